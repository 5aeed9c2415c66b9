"""DuckDB calls as if the user had made them: its replacement scans look at the Python frame of the caller.

`SELECT * FROM df` finds a DataFrame among the variables of the frame that calls DuckDB. That frame would be one
of ours, with variables of its own; so the call is made from a frame that has the user's.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

_BETWEEN = ("sqlfront", "contextlib")  # Whose frames can lie between the user's and DuckDB's.
_CALL = compile("__sqlfront_call()", "<sqlfront>", "eval")


def as_user(call: Callable[[], Any]) -> Any:
    """`call()`, a function of DuckDB's without a frame of its own, from the user's frame. O(variables there)."""
    module, variables = _namespaces()
    return eval(_CALL, module, {**variables, "__sqlfront_call": call})  # The code is the constant above.


def warn_user(message: str, category: type[Warning]) -> None:
    """`warnings.warn`, at the user's line."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def user_object(name: str) -> Any:
    """The object that a variable of the user's frame names, or None."""
    module, variables = _namespaces()
    return variables.get(name, module.get(name))


def _namespaces() -> tuple[dict[str, Any], Mapping[str, Any]]:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return frame.f_globals, frame.f_locals

"""Questions about a cursor's session whose answers are remembered: its settings, its search path.

Only the cursors that a session of ours `follows` are remembered, as we see each of their statements. `forget` is called
after each statement that may change a setting, of any cursor: SET GLOBAL changes the settings of all.
"""

from __future__ import annotations

import weakref
from typing import Any

Answer = tuple[Any, ...]

_followed: weakref.WeakKeyDictionary[Any, dict[str, tuple[object, Answer]]] = weakref.WeakKeyDictionary()
_since = [object()]
"""Answers count if they came after this was made."""


def follow(con: Any) -> None:
    """From now on remember answers of a cursor, all of whose statements are a session's."""
    _followed[con] = {}


def ask(con: Any, query: str) -> Answer:
    """The one row of a query about the session of `con`."""
    known, since = _followed.get(con, {}), _since[0]
    found = known.get(query)
    if found is None or found[0] is not since:
        [row] = con.execute(query).fetchall()
        known[query] = found = since, row
    return found[1]


def forget() -> None:
    """Ask anew from now on."""
    _since[0] = object()

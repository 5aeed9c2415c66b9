"""One text for equal frozen values in every process, by which definitions, plans and keys are compared.

`repr` is no such text: the order of a set's members changes with the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import FunctionType
from typing import Any

from sqlfront.storage.errors import InternalError

_PLAIN = (str, int, float, bytes, type(None), Fraction, Decimal, date, time, timedelta)


def canonical(value: Any, without: Collection[str] = ()) -> str:
    """The text of a value of dataclasses, collections, enumerations, functions of modules and plain values, `without`
    fields of these names. InternalError for any other value."""

    def text(value: Any) -> str:
        if isinstance(value, Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, Mapping):
            return "{" + ", ".join(sorted(f"{text(key)}: {text(one)}" for key, one in value.items())) + "}"
        if isinstance(value, Set):
            return "{" + ", ".join(sorted(map(text, value))) + "}"
        if isinstance(value, list | tuple):
            return "(" + ", ".join(map(text, value)) + ")"
        if is_dataclass(value) and not isinstance(value, type):
            kept = (getattr(value, one.name) for one in fields(value) if one.name not in without)
            return f"{type(value).__name__}({', '.join(map(text, kept))})"
        if isinstance(value, FunctionType) and "<" not in value.__qualname__:
            return f"{value.__module__}.{value.__qualname__}"
        raise InternalError(f"{type(value).__name__} has no text that is the same in every process")

    return text(value)


def digest(value: Any, without: Collection[str] = ()) -> str:
    """A short hash of the text of a value."""
    return hashlib.sha256(canonical(value, without).encode()).hexdigest()[:32]

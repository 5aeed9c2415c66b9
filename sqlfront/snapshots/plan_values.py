"""Definitions and plans as values of JSON, and back: a view comes from a snapshot as it was planned, and is not bound.

A dataclass is written as its name in `planner/model` and its fields. Where it comes again it is the same object, as it
was in the process that wrote it: plans compare nodes by identity. A strategy is code: it is written as its place among
all strategies. Nothing but these names is looked up, so a file of foreign values can call no other code.

Cost: O(size of the values).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from importlib import import_module
from typing import Any

from sqlfront.planner.model.heavy_light import Strategy
from sqlfront.storage.errors import InternalError

_PLAIN = (str, int, float, bool, type(None))
_MODEL = "sqlfront.planner.model."
_NAME = re.compile(r"([a-z_]+)\.([A-Z]\w*)")


def written(value: Any) -> Any:
    """A value of definitions and plans as one of JSON. InternalError for any other value."""
    known: dict[int, int] = {}

    def write(value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if id(value) in known:
            return ["=", known[id(value)]]
        if isinstance(value, Enum):
            return ["enum", _name_of(type(value)), value.name]
        if isinstance(value, Fraction):
            return ["fraction", value.numerator, value.denominator]
        if isinstance(value, tuple):
            return ["tuple", *map(write, value)]
        if isinstance(value, frozenset):
            return ["set", *map(write, value)]
        if isinstance(value, Mapping):
            return ["map", *([write(key), write(one)] for key, one in value.items())]
        if isinstance(value, Strategy):
            from sqlfront.planner.heavy_light.strategies import RULES

            return ["strategy", RULES.index(value)]
        if is_dataclass(value):
            found = [write(getattr(value, field.name)) for field in fields(value)]
            known[id(value)] = len(known)
            return ["value", _name_of(type(value)), *found]
        raise InternalError(f"{type(value).__name__} cannot be part of a snapshot")

    return write(value)


def read(value: Any) -> Any:
    """What `written` has written. InternalError for what it cannot have written."""
    known: list[Any] = []

    def make(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, *rest = value
        match kind:
            case "=":
                return known[rest[0]]
            case "enum":
                return _class_of(rest[0])[rest[1]]
            case "fraction":
                return Fraction(*rest)
            case "tuple":
                return tuple(map(make, rest))
            case "set":
                return frozenset(map(make, rest))
            case "map":
                return {make(key): make(one) for key, one in rest}
            case "strategy":
                from sqlfront.planner.heavy_light.strategies import RULES

                return RULES[rest[0]]
            case "value":
                found = _class_of(rest[0])
                names = [field.name for field in fields(found)]
                known.append(found(**dict(zip(names, map(make, rest[1:]), strict=True))))
                return known[-1]
        raise InternalError(f"{kind!r} is no value of a snapshot")

    return make(value)


def _name_of(cls: type) -> str:
    if not cls.__module__.startswith(_MODEL):
        raise InternalError(f"{cls.__name__} cannot be part of a snapshot")
    return f"{cls.__module__.removeprefix(_MODEL)}.{cls.__name__}"


def _class_of(name: str) -> Any:
    match = _NAME.fullmatch(name)
    found = None if match is None else getattr(import_module(f"{_MODEL}{match[1]}"), match[2], None)
    if not isinstance(found, type) or not (is_dataclass(found) or issubclass(found, Enum)) or _name_of(found) != name:
        raise InternalError(f"{name} is no class of a snapshot")
    return found

"""Arguments of the Python API: values of the expected kind, or InterfaceError with the argument's name."""

from __future__ import annotations

import math
import os
import re
import reprlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeGuard

from sqlfront.storage.errors import InterfaceError

OWN: dict[str, Any] = {
    "sqlfront_progress": True,
    "sqlfront_threads": None,
    "sqlfront_snapshot": 300.0,
    "sqlfront_memory": math.inf,
    "sqlfront_spill": None,
}
"""The settings of ours that a connection's config may have, and what they are without it."""

_NAMES = ", ".join(OWN)
_SIZE, _BYTES = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]i?)?B", re.IGNORECASE), " KMGT"
_PERIOD, _UNITS = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h)"), {"s": 1.0, "min": 60.0, "h": 3600.0}


def path_text(value: Any, name: str = "database") -> str:
    """A str or a path as a str. InterfaceError for anything else: its repr would become the name of a file."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if _is_text(path) and "\0" not in path:
            return path
    return _refuse(value, name, 'the path of a file as a str or pathlib.Path, or ":memory:"')


def text(value: Any, name: str) -> str:
    """A str without halves of surrogate pairs, which UTF-8 has no bytes for."""
    return value if _is_text(value) else _refuse(value, name, "a str")


def whole(value: Any, name: str) -> int:
    """An int."""
    return value if isinstance(value, int) else _refuse(value, name, "an int")


def number(value: Any, name: str) -> float:
    """An int or a float."""
    return value if isinstance(value, int | float) else _refuse(value, name, "a number")


def options(value: Any, name: str) -> dict[str, Any]:
    """A mapping with names as its keys, or None, as a dict."""
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    return _refuse(value, name, "a dict of options by name")


def split_config(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config as DuckDB's part and ours, which has all of OWN. InterfaceError for one of ours that there is not."""
    own = {name: value for name, value in config.items() if name.startswith("sqlfront_")}
    for name, value in own.items():
        if name not in OWN:
            raise InterfaceError(f"there is no setting {name}", where="argument config", hint=f"there is {_NAMES}")
        own[name] = _SETTINGS[name](value, f"config[{name!r}]")
    return {name: value for name, value in config.items() if name not in own}, OWN | own


def several(value: Any, name: str) -> list[Any]:
    """An iterable, as a list."""
    return list(value) if isinstance(value, Iterable) else _refuse(value, name, "an iterable")


def _flag(value: Any, name: str) -> bool:
    """A bool, which DuckDB's config also takes as a text."""
    words = {"true": True, "false": False}
    found = words.get(value.casefold()) if isinstance(value, str) else value
    return found if isinstance(found, bool) else _refuse(value, name, "True or False")


def _threads(value: Any, name: str) -> int:
    """A number of threads, which DuckDB's config also takes as a text."""
    found = int(value) if isinstance(value, str) and value.isdecimal() else value
    return found if isinstance(found, int) and found >= 1 else _refuse(value, name, "a whole number from 1 on")


def _seconds(value: Any, name: str) -> float:
    """How often a snapshot may be written, in seconds; 0 for "off"."""
    words = {"on": OWN["sqlfront_snapshot"], "off": 0.0}
    if isinstance(value, str) and value.casefold() in words:
        return float(words[value.casefold()])
    found = _PERIOD.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(found[1]) * _UNITS[found[2]] if found is not None else 0.0
    return seconds if seconds > 0 else _refuse(value, name, '"on", "off" or a time such as "30s", "5min" or "1h"')


def _bytes(value: Any, name: str) -> float:
    """A number of bytes, written as DuckDB's memory_limit."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return _refuse(value, name, 'a size such as "500MB" or "2GiB"')
    unit = (found[2] or " ").upper()
    return float(found[1]) * (1024 if unit.endswith("I") else 1000) ** _BYTES.index(unit[0])


def _directory(value: Any, name: str) -> str | None:
    """A directory for temporary files, as an absolute path; None for no spill."""
    if value is None:
        return None
    text = path_text(value, name)
    path = os.path.abspath(text)
    if not (text and os.path.isdir(path) and os.access(path, os.W_OK)):
        return _refuse(value, name, "a directory in which files can be made")
    if sys.platform != "linux":
        raise InterfaceError(
            f"{name} needs Linux", why="other systems do not take a file's room beforehand", hint="leave it out"
        )
    return path


_SETTINGS = {
    "sqlfront_progress": _flag,
    "sqlfront_threads": _threads,
    "sqlfront_snapshot": _seconds,
    "sqlfront_memory": _bytes,
    "sqlfront_spill": _directory,
}


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _refuse(value: Any, name: str, expected: str) -> NoReturn:
    raise InterfaceError(
        f"argument {name} is {reprlib.repr(value)}, of type {type(value).__name__}", hint=f"give {expected}"
    )

"""Numba and llvmlite, which compile kernels (extra `kernels`): imported here alone. A wheel needs neither."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sqlfront.storage.errors import OperationalError


def has_compilers() -> bool:
    """Whether numba and llvmlite are installed."""
    return all(find_spec(name) for name in ("numba", "llvmlite"))


def numba(part: str = "") -> Any:
    """A module of numba. OperationalError if numba is not installed."""
    return _module(f"numba.{part}" if part else "numba")


def llvmlite(part: str = "") -> Any:
    """A module of llvmlite. OperationalError if llvmlite is not installed."""
    return _module(f"llvmlite.{part}" if part else "llvmlite")


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise OperationalError(
            "kernels cannot be compiled here", why=str(error), hint="pip install 'sqlfront[kernels]'"
        ) from error

"""SQL materialized views that maintain themselves, in process, for DuckDB.

Importing this package loads no engine: everything heavy is imported at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlfront._guard import check_packages

check_packages()

from storage.errors import (  # noqa: E402  (only once the packages are known to be ours)
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    Lost,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    StaleRead,
)

if TYPE_CHECKING:
    from sqlfront.connection import Connection, connect

__version__ = "0.1.0"

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

__all__ = [
    "Connection",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Lost",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "StaleRead",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

_LAZY = {"connect": "sqlfront.connection", "Connection": "sqlfront.connection"}


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name when the name is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'sqlfront' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value

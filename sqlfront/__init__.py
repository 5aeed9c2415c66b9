"""SQL materialized views that maintain themselves, in process, for DuckDB.

Public names are bound at first use, so that importing a package below this one does not load the face.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlfront.async_connection import AsyncConnection, aconnect
    from sqlfront.connection import Connection, connect
    from sqlfront.storage.errors import (
        CostWarning,
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

__version__ = "0.1.0"

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

__all__ = [
    "AsyncConnection",
    "Connection",
    "CostWarning",
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
    "aconnect",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

_FACE = {
    "AsyncConnection": "sqlfront.async_connection",
    "Connection": "sqlfront.connection",
    "aconnect": "sqlfront.async_connection",
    "connect": "sqlfront.connection",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name when the name is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'sqlfront' has no attribute {name!r}")
    value = getattr(import_module(_FACE.get(name, "sqlfront.storage.errors")), name)
    globals()[name] = value
    return value

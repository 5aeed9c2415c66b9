"""The project's errors under the name users import them by: `sqlfront.errors.NotSupportedError` and so on."""

from __future__ import annotations

from sqlfront.storage.errors import (
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

__all__ = [
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
]

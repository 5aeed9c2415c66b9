"""The project's errors under the name users import them by: `sqlfront.errors.NotSupportedError` and so on."""

from __future__ import annotations

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

__all__ = [
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
]

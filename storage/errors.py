"""Every error the project raises, as one tree with the DB-API 2.0 names.

The tree lives on the ground floor so that each package can raise from it; users import it as
`sqlfront.Error` and so on. Each message says what is wrong, where, why, and a way out.
"""

from __future__ import annotations


class CostWarning(UserWarning):
    """A view has been created whose changes may take long."""


class Error(Exception):
    """Root of all errors.

    `what` happened; `where` it did (SQL with a caret, a table, a row); `why` it is refused;
    `hint` is a way out. Any of the last three may be absent.
    """

    def __init__(self, what: str, *, where: str | None = None, why: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        parts = [what]
        if where:
            parts.append(where)
        if why:
            parts.append(f"Why: {why}")
        if hint:
            parts.append(f"Try: {hint}")
        super().__init__("\n".join(parts))


class InterfaceError(Error):
    """The Python API was misused: a closed connection, a fetch without a result."""


class DatabaseError(Error):
    """Something went wrong with the database or its views."""


class DataError(DatabaseError):
    """A value does not fit: out of range, wrong type, a sum beyond its result type.

    `views` are the materialized views that cannot take a row, where they are known.
    """

    views: frozenset[str] = frozenset()


class OperationalError(DatabaseError):
    """The environment failed: a lost table, an interrupted epoch, a file that cannot be read."""


class IntegrityError(DatabaseError):
    """A constraint does not hold: a duplicate key, a delete of a row that is not there."""


class InternalError(DatabaseError):
    """An invariant of ours does not hold; please report it."""


class ProgrammingError(DatabaseError):
    """The statement is wrong: syntax, an unknown name, the wrong number of parameters."""


class NotSupportedError(DatabaseError):
    """The statement is understood and refused: the message names the construct and the reason."""


class StaleRead(OperationalError):
    """Another epoch was committed, and what is read is older: the rest of a result that is too large to be held, or a
    view in a transaction that only the present state has."""


class Lost(OperationalError):
    """A change table, or a view over it, lost its rows when the process ended; feed it again."""


for _error in (Error, *Error.__subclasses__(), *DatabaseError.__subclasses__(), *OperationalError.__subclasses__()):
    _error.__module__ = "sqlfront"  # The name users import it by, which tracebacks print.

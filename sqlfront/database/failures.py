"""DuckDB's exceptions as ours, and a scan's own error instead of what DuckDB makes of it."""

from __future__ import annotations

import importlib.util
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from sqlfront.storage import errors

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("sqlfront")


def expect_copy() -> None:
    """Keep DuckDB from warning of the copy that Arrow output of an executed statement makes: a user cannot avoid it.

    Only where our modules cause it; called each time, as others (pytest) put back the filters that they found.
    """
    warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning, r"sqlfront\.")


def require_pandas() -> None:
    """InterfaceError if pandas, which sqlfront does not depend on, is missing."""
    if importlib.util.find_spec("pandas") is None:
        raise errors.InterfaceError(
            "df() needs pandas", why="it is not installed", hint="pip install pandas, or use to_arrow_table()"
        )


def polars_frame(table: pa.Table) -> Any:
    """An Arrow table as a polars DataFrame. InterfaceError if polars, which sqlfront does not depend on, is missing."""
    if importlib.util.find_spec("polars") is None:
        raise errors.InterfaceError(
            "pl() needs polars", why="it is not installed", hint="pip install polars, or use to_arrow_table()"
        )
    import polars

    return polars.from_arrow(table)


_HELD_LOCK = re.compile(r'Could not set lock on file "(?P<file>[^"]*)".*held in (?P<holder>.* \(PID \d+\))')
_OUT_OF_MEMORY = re.compile(
    r"Out of Memory Error: (?P<failed>[^\n]*?)(?: \((?P<used>[^/()\n]*)/(?P<limit>[^/()\n]*) used\))?\s*(?:\n|$)"
)
_LIMIT_IN_USE = re.compile(r"Failed to change memory limit to (?P<limit>\d+): (?P<why>[^\n]*)")
_INTERRUPTED = re.compile(
    r"failed: (KeyboardInterrupt|Unknown error: Query interrupted|.*Python exception: .*\nKeyboardInterrupt)", re.DOTALL
)


def translated(scan_error: Callable[[], BaseException | None] | None) -> AbstractContextManager[None]:
    """Raise sqlfront errors for DuckDB's; `scan_error` tells what a scan of ours raised inside DuckDB."""
    return _Translated(scan_error)


@contextmanager
def logged(path: str, so: str) -> Iterator[None]:
    """Let the body fail without harm: the log says of the file at a path why DuckDB or the system refused it (no room,
    no right to write), and what is `so` therefore."""
    try:
        with translated(None):
            yield
    except (errors.Error, OSError) as error:
        _log.warning("sqlfront: %s: %s: %s", path, so, error)


class _Translated:
    """A class, as it is entered several times in a statement: a generator takes three times as long."""

    __slots__ = ("_scan_error",)

    def __init__(self, scan_error: Callable[[], BaseException | None] | None) -> None:
        self._scan_error = scan_error

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception):
            found = self._found(error)
            if found is not None:
                raise found from error

    def _found(self, error: Exception) -> BaseException | None:
        """What to raise instead of an error; None for the error itself."""
        import duckdb

        if isinstance(error, (duckdb.Error, OSError)):
            inner = self._scan_error() if self._scan_error is not None else None
            if isinstance(inner, (errors.Error, KeyboardInterrupt)):
                return inner
        if isinstance(error, duckdb.Error):  # Else a SIGINT came while DuckDB was reading an object.
            return KeyboardInterrupt() if _INTERRUPTED.search(str(error)) else translate(error)
        if isinstance(error, errors.DataError):  # SIGINT came while DuckDB was reading a batch of ours.
            return KeyboardInterrupt() if "KeyboardInterrupt" in str(error.__cause__) else None
        if isinstance(error, RuntimeError):  # What DuckDB makes of SIGINT.
            return KeyboardInterrupt() if str(error) == "Query interrupted" else None
        if isinstance(error, UnicodeDecodeError):  # DuckDB cut its message inside a character.
            return errors.ProgrammingError(error.object.decode(errors="replace"))
        if isinstance(error, UnicodeEncodeError):
            return errors.ProgrammingError(
                f"the text has a character that is not Unicode at position {error.start}",
                why=error.reason,
                hint="remove the lone surrogate",
            )
        if isinstance(error, OverflowError):
            return errors.DataError(
                "a value of the result is beyond the range of its Python type",
                why=str(error),
                hint="fetch with to_arrow_table(), or cast the column to VARCHAR",
            )
        return None


def translate(error: Exception) -> errors.Error:
    """Our error of the same DB-API class, with DuckDB's message."""
    import duckdb

    if isinstance(error, duckdb.InterruptException):
        return errors.OperationalError(str(error))
    if re.search(r"(ON CONFLICT|MERGE INTO) .*supported .*triggers", str(error)):
        return errors.NotSupportedError(
            "an upsert or MERGE into a table that views read is not supported here",
            why=f"its changes are captured only when it runs by itself, on a database open for writing: {error}",
            hint="execute the statement itself, with parameters: con.execute(sql, params)",
        )
    if re.search(r"Table with name __sqlfront_scan_\w+ does not exist", str(error)):
        return errors.NotSupportedError(
            "a materialized view or change table of another database file cannot be read here",
            why="an earlier release has written the file: only sqlfront can read its views",
            hint="sqlfront.connect(the file) once, which converts it, and try again",
        )
    if (held := _HELD_LOCK.search(str(error))) is not None:
        return errors.OperationalError(
            f"{held['file']} is open in another process",
            why=f"{held['holder']} holds DuckDB's lock on the file: one process may write it, or several only read it",
            hint="close it there; let threads of that process share it, each with con.cursor(); or open it in every "
            "process with read_only = True",
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return _out_of_memory(error)
    for name in ("IntegrityError", "DataError", "NotSupportedError", "ProgrammingError", "OperationalError"):
        if isinstance(error, getattr(duckdb, name)):
            return getattr(errors, name)(str(error))
    return errors.DatabaseError(str(error))


def _out_of_memory(error: Exception) -> errors.OperationalError:
    """DuckDB's error that memory is short, with the limit that it met, if it tells that."""
    found, set_to = _OUT_OF_MEMORY.match(str(error)), _LIMIT_IN_USE.search(str(error))
    failed, used, limit = found.group("failed", "used", "limit") if found is not None else (str(error), None, None)
    what, why = "DuckDB is out of memory", failed
    if set_to is not None:
        what, why = f"memory_limit cannot be {int(set_to['limit']):,} bytes", f"more is in use: DuckDB {set_to['why']}"
    elif limit is not None:
        what, why = f"DuckDB needs more memory than memory_limit, {limit}", f"it {failed}, and {used} are in use"
    return errors.OperationalError(
        what,
        why=why,
        hint="allow more: SET memory_limit = '1GB', or connect(path, config={'memory_limit': '1GB'}); or need less: "
        "SET threads = 1, SET preserve_insertion_order = false",
    )

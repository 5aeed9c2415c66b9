"""DuckDB's exceptions as ours, and a scan's own error instead of what DuckDB makes of it."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlfront.storage import errors

if TYPE_CHECKING:
    import pyarrow as pa


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


_INTERRUPTED = re.compile(r"failed: (KeyboardInterrupt|.*Python exception: .*\nKeyboardInterrupt)", re.DOTALL)


@contextmanager
def translated(scan_error: Callable[[], BaseException | None] | None) -> Iterator[None]:
    """Raise sqlfront errors for DuckDB's; `scan_error` tells what a scan of ours raised inside DuckDB."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        inner = scan_error() if scan_error is not None else None
        if isinstance(inner, (errors.Error, KeyboardInterrupt)):
            raise inner from error
        if _INTERRUPTED.search(str(error)):  # It came while DuckDB was reading an object.
            raise KeyboardInterrupt from error
        raise translate(error) from error
    except errors.DataError as error:
        if "KeyboardInterrupt" in str(error.__cause__):  # It came while DuckDB was reading a batch of ours.
            raise KeyboardInterrupt from error
        raise
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from error  # What DuckDB makes of SIGINT.
    except OSError as error:
        inner = scan_error() if scan_error is not None else None
        if isinstance(inner, (errors.Error, KeyboardInterrupt)):
            raise inner from error
        raise
    except UnicodeDecodeError as error:  # DuckDB cut its message inside a character.
        raise errors.ProgrammingError(error.object.decode(errors="replace")) from error
    except UnicodeEncodeError as error:
        raise errors.ProgrammingError(
            f"the text has a character that is not Unicode at position {error.start}",
            why=error.reason,
            hint="remove the lone surrogate",
        ) from error
    except OverflowError as error:
        raise errors.DataError(
            "a value of the result is beyond the range of its Python type",
            why=str(error),
            hint="fetch with to_arrow_table(), or cast the column to VARCHAR",
        ) from error


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
    for name in ("IntegrityError", "DataError", "NotSupportedError", "ProgrammingError", "OperationalError"):
        if isinstance(error, getattr(duckdb, name)):
            return getattr(errors, name)(str(error))
    return errors.DatabaseError(str(error))

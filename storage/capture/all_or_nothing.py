"""All or nothing: several statements on one DuckDB connection as one unit.

DuckDB 2.0 has no savepoints, and *any* error inside a transaction, a syntax error included, aborts
the whole of it: every later statement fails until ROLLBACK. So a unit inside a user's transaction
that fails takes the user's transaction with it; the same happens here when the failure is ours
(an exception in Python, Ctrl-C), because half of a unit must never be committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def unit(con: Any, in_transaction: bool) -> Iterator[None]:
    """Run the block atomically: in the open transaction of `con`, or in one of its own.

    On an error the own transaction is rolled back, and an open one is aborted (only ROLLBACK is
    possible then).
    """
    if not in_transaction:
        con.execute("BEGIN")
    try:
        yield
        if not in_transaction:
            con.execute("COMMIT")
    except BaseException:
        _undo(con, in_transaction)
        raise


def _undo(con: Any, in_transaction: bool) -> None:
    import duckdb

    with contextlib.suppress(duckdb.Error):  # a failed COMMIT has ended the transaction already
        con.execute("SELECT error('this transaction was interrupted half way')" if in_transaction else "ROLLBACK")

"""Own and foreign changes, ROLLBACK, and transactions side by side."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from sqlfront.storage.capture.capture import Capture, QualifiedName
from sqlfront.storage.errors import InternalError
from tests.storage.capture.captured import take


def test_own_and_foreign_changes(con: Any, capture: Capture) -> None:
    raw = con.cursor()
    raw.execute("INSERT INTO t VALUES (1, 'raw')")
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (2, 'own')")
    assert capture.check(con)
    assert take(capture, con, own=True) == {(2, "own"): 1}
    assert take(capture, con, own=True) == {}
    con.execute("COMMIT")
    assert capture.check(con)
    assert take(capture, con, own=False) == {(1, "raw"): 1}
    assert not capture.check(con)


def test_consume_deletes_precisely_what_was_read(con: Any, capture: Capture) -> None:
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (1, 'a')")
    pending = capture.pending(con, own=True)
    con.execute("INSERT INTO t VALUES (2, 'b')")
    capture.consume(con, pending)
    assert take(capture, con, own=True) == {(2, "b"): 1}
    con.execute("COMMIT")
    con.execute("INSERT INTO t VALUES (3, 'c')")
    pending = capture.pending(con)
    assert take(capture, con) == {(3, "c"): 1}
    with pytest.raises(InternalError, match="one transaction"):
        capture.consume(con, pending)


def test_rollback_discards(con: Any, capture: Capture) -> None:
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (1, 'a')")
    con.execute("ROLLBACK")
    assert not capture.check(con)
    assert take(capture, con) == {}


def test_concurrent_transactions_do_not_conflict_on_our_account(con: Any, capture: Capture) -> None:
    con.execute("INSERT INTO t VALUES (0, 'base')")
    take(capture, con)
    other = con.cursor()
    for connection, value in ((con, 1), (other, 2)):
        connection.execute("BEGIN")
        connection.execute(f"INSERT INTO t VALUES ({value}, 'x')")
    for connection, value in ((con, 1), (other, 2)):
        connection.execute(f"INSERT INTO t VALUES ({value}, 'y')")
        assert not capture.check(connection)
        assert take(capture, connection, own=True) == {(value, "x"): 1, (value, "y"): 1}
    con.execute("COMMIT")
    other.execute("COMMIT")
    assert not capture.check(con)
    assert con.execute("SELECT count(*) FROM t").fetchone() == (5,)


@pytest.mark.parametrize("seed", range(4))
def test_interleaved_transactions_never_conflict_and_each_sees_its_own(seed: int) -> None:
    choose = random.Random(seed)
    con = duckdb.connect()
    con.execute("CREATE TABLE t(who INTEGER, a INTEGER)")
    table, capture = QualifiedName("main", "t"), Capture("memory")
    capture.install(con, {table: ["who", "a"]})
    cursors = [con.cursor() for _ in range(3)]
    private: list[Counter[tuple[int, int]] | None] = [None, None, None]
    copy: Counter[tuple[int, int]] = Counter()
    for _ in range(150):
        who = choose.randrange(3)
        cursor, changes = cursors[who], private[who]
        if changes is None:
            cursor.execute("BEGIN")
            private[who] = Counter()
        elif choose.random() < 0.25:
            if choose.random() < 0.6:
                cursor.execute("COMMIT")
                copy.update(changes)
            else:
                cursor.execute("ROLLBACK")
            private[who] = None
            rows = Counter(con.execute("FROM t").fetchall())
            assert rows == Counter({row: n for row, n in copy.items() if n})
        else:  # each writes rows of its own: writes to one row would conflict in DuckDB itself
            value = choose.randrange(3)
            statement = choose.choice(
                [
                    f"INSERT INTO t VALUES ({who}, {value}), ({who}, {value})",
                    f"UPDATE t SET a = a + 1 WHERE who = {who} AND a = {value}",
                    f"DELETE FROM t WHERE who = {who} AND a = {value}",
                ]
            )
            cursor.execute(statement)
            assert not capture.check(cursor)
            for batch in capture.take(cursor, own=True).values():
                for row in batch.to_pylist():
                    assert row["who"] == who
                    changes[row["who"], row["a"]] += row["_weight"]
    assert not capture.check(con)

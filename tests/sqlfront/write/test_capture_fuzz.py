"""Random writes by sqlfront's own connection, by a plain cursor of DuckDB's, and by both in turn: views follow exactly.

Tables of one name stand in two schemas, with a key, a default and a generated column, and a trigger of the user's
writes a third. After every step outside transactions each view equals its query, also what a transaction reads.
"""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlfront

VIEWS = {
    "v": "SELECT g, sum(m) AS s, count(*) AS n, max(k) AS top FROM t GROUP BY g",
    "other": "SELECT k, g, n, d FROM aside.t",
    "joined": "SELECT a.k, a.n, b.g FROM t AS a JOIN aside.t AS b ON a.k = b.k",
    "logged": "SELECT x, count(*) AS n FROM log GROUP BY x",
}
COLUMNS = "(k INTEGER PRIMARY KEY, g VARCHAR DEFAULT 'd', n BIGINT CHECK (n < 900), d DATE, m BIGINT AS (n + 1))"
PLAIN = "(k INTEGER PRIMARY KEY, g VARCHAR DEFAULT 'd', n BIGINT NOT NULL, d DATE)"
TRIGGER = "CREATE TRIGGER noting AFTER INSERT ON t FOR EACH STATEMENT INSERT INTO log VALUES (1)"


def connected() -> Any:
    con = sqlfront.connect(":memory:")
    con.execute(f"CREATE SCHEMA aside; CREATE TABLE t {COLUMNS}; CREATE TABLE aside.t {PLAIN}")
    con.execute("CREATE TABLE log (x INTEGER)")
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return con


Batch = tuple[str, list[list[Any]]]


class Writes:
    """Random statements on the two tables; many fail by a key or by the check."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def statement(self) -> str | Batch:
        pick = self.random.choice
        table = pick(["t", "main.t", "aside.t", '"T"'])
        if self.random.random() < 0.1:
            return self.batch(pick([table, "memory.aside.t", "memory.aside.t"]))
        return pick([self.insert, self.insert, self.update, self.delete, self.upsert, self.merge])(table)

    def batch(self, table: str) -> Batch:
        """One INSERT for several sets of parameters, whose keys are new as a rule."""
        first, pick = self.random.randrange(40, 100_000), self.random.choice
        rows = [[first + i, pick([None, "a"]), self.random.randrange(905)] for i in range(pick([1, 3, 12]))]
        return f"INSERT INTO {table} (g, k, d, n) VALUES ($2, $1, NULL, $3)" if pick([0, 1]) else (
            f"INSERT INTO {table} (k, g, n, d) VALUES (?, ?, ?, NULL)"
        ), rows

    def insert(self, table: str) -> str:
        k, values = self.random.randrange(40), ", ".join(self.row() for _ in range(self.random.choice([1, 1, 3, 12])))
        chosen = [
            f"INSERT INTO {table} (k, g, n, d) VALUES {values}",
            f"INSERT INTO {table} (k, n) VALUES ({k}, {self.random.randrange(950)})",
            f"INSERT INTO {table} (k, g, n) SELECT k + {k}, g, n FROM t WHERE k < 4",
            f"INSERT INTO {table} BY NAME SELECT {k} AS k, 7 AS n",
            f"INSERT OR IGNORE INTO {table} (k, n) VALUES ({k}, 5), ({k + 1}, 6)",
            f"INSERT INTO {table} (k, n) SELECT {k} + i, 1 FROM range(3) r(i) WHERE random() < 0.5",
            f"INSERT INTO {table} (k, n) VALUES ({k}, 3) RETURNING k, m",
        ]
        return self.random.choice(chosen)

    def update(self, table: str) -> str:
        k, n = self.random.randrange(40), self.random.randrange(950)
        chosen = [
            f"UPDATE {table} SET n = {n} WHERE k = {k}",
            f"UPDATE {table} AS x SET g = 'b', n = x.n + 1 WHERE x.k < {k} AND x.n IS NOT NULL",
            f"UPDATE {table} SET k = {k} WHERE k = {k + 1}",
            f"UPDATE {table} SET n = n + 1 WHERE random() < 0.5",
            f"UPDATE {table} SET g = NULL, d = 'infinity' WHERE k = {k} RETURNING *",
            f"UPDATE {table} AS x SET n = q.n FROM (SELECT k, n + 1 AS n FROM aside.t) q WHERE x.k = q.k",
        ]
        return self.random.choice(chosen)

    def delete(self, table: str) -> str:
        k = self.random.randrange(40)
        chosen = [
            f"DELETE FROM {table} WHERE k = {k}",
            f"DELETE FROM {table} WHERE k BETWEEN {k} AND {k + 12}",
            f"DELETE FROM {table} WHERE random() < 0.2",
            f"DELETE FROM {table} WHERE k = {k} RETURNING n",
            f"DELETE FROM {table} WHERE g IN (SELECT g FROM aside.t WHERE n > 800)",
        ]
        return self.random.choice(chosen)

    def upsert(self, table: str) -> str:
        row = self.row()
        chosen = [
            f"INSERT INTO {table} (k, g, n, d) VALUES {row} ON CONFLICT (k) DO UPDATE SET n = excluded.n, g = 'u'",
            f"INSERT OR REPLACE INTO {table} (k, g, n, d) VALUES {row}",
            f"INSERT INTO {table} (k, g, n, d) VALUES {row} ON CONFLICT DO NOTHING",
        ]
        return self.random.choice(chosen)

    def merge(self, table: str) -> str:
        k = self.random.randrange(40)
        return (
            f"MERGE INTO {table} USING (SELECT {k} AS k, {self.random.randrange(950)} AS n) AS s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)"
        )

    def row(self) -> str:
        pick = self.random.choice
        day = pick(["NULL", "'2024-02-29'", "'infinity'", "'0001-01-01'"])
        group = pick(["NULL", "'a'"])
        return f"({self.random.randrange(40)}, {group}, {self.random.randrange(950)}, {day})"


def attempt(con: Any, statement: str | Batch) -> bool:
    """Run a statement that may fail."""
    try:
        if isinstance(statement, str):
            con.execute(statement).fetchall()
        else:
            con.executemany(*statement)
    except (sqlfront.Error, duckdb.Error):
        return False
    return True


def check(con: Any) -> None:
    looked_up = con.execute("SELECT * FROM v WHERE g = 'a'").fetchall()  # First, as it may do without a look at DuckDB.
    assert looked_up == con.execute(f"SELECT * FROM ({VIEWS['v']}) WHERE g = 'a'").fetchall()
    for name, query in VIEWS.items():
        kept = con.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall()
        assert kept == con.execute(f"{query} ORDER BY ALL").fetchall(), name


@pytest.mark.parametrize(("seed", "plain"), [(0, True), (1, True), (2, True), (3, True), (4, False), (5, False)])
def test_views_follow_every_writer(seed: int, plain: bool) -> None:
    """The other writer is a plain cursor of DuckDB's, or another connection of ours, which has to tell what it does."""
    con, writes = connected(), Writes(seed)
    stranger = con.session.database.root.cursor() if plain else con.cursor()
    run = {"own": 0, "stranger": 0, "failed": 0, "together": 0}
    for step in range(45):
        if step == 30:
            con.execute(TRIGGER)
        who = writes.random.choice(["own", "own", "stranger", "together"])
        if who == "together":
            together(con, stranger, writes)
            worked = True
        elif who == "own" or step >= 30:  # A plain cursor may not upsert or merge.
            worked = attempt(con, writes.statement())
        else:
            worked = attempt(stranger, writes.statement())
        run[who if worked else "failed"] += 1
        if writes.random.random() < 0.3:
            check(con)
    check(con)
    assert con.session.database.capture.pending(con.session.duck).tables == {}
    assert min(run.values()) > 0, (seed, run)


def together(con: Any, stranger: Any, writes: Writes) -> None:
    """A transaction of ours and one of the stranger's, in turn, each ended either way."""
    con.execute("BEGIN")
    stranger.execute("BEGIN")
    for _ in range(writes.random.randrange(1, 4)):
        if not attempt(con, writes.statement()):
            break
        if writes.random.random() < 0.5:
            assert attempt(con, "SELECT * FROM v, other")
        if not attempt(stranger, writes.statement()):
            break
    else:
        if writes.random.random() < 0.7:
            check(con)
    for cursor in (con, stranger):
        end = writes.random.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        if not attempt(cursor, end):
            attempt(cursor, "ROLLBACK")


def test_a_session_tells_only_what_it_returns() -> None:
    """Between writes that tell their changes stand writes that do not: none of these passes the triggers."""
    con = connected()
    check(con)
    for number, statement in enumerate(
        (
            "UPDATE t SET n = n + 1",
            "PREPARE later AS INSERT INTO t (k, n) VALUES ($1, 1)",
            "EXECUTE later(50)",
            "WITH q AS (INSERT INTO aside.t (k, n) VALUES (51, 1) RETURNING k) SELECT k FROM q",
            "COPY (SELECT 1 AS x) TO '/dev/null'",
            "EXPLAIN ANALYZE INSERT INTO log VALUES (3)",
            "BEGIN; DELETE FROM t WHERE k = 50; COMMIT",
        )
    ):
        con.execute(f"INSERT INTO t (k, n) VALUES ({100 + number}, {number})").fetchall()
        con.execute(statement)
        check(con)
    con.executemany("INSERT INTO t (k, n) VALUES (?, ?)", [(200, 1), (201, 2)])
    con.executemany("INSERT INTO memory.aside.t VALUES (?, 'x', ?, NULL)", [(200, 1), (201, 2)])
    check(con)
    con.execute("BEGIN")
    con.executemany("INSERT INTO main.t (k, n) VALUES (?, ?)", [(210, 1), (211, 2)])
    con.executemany("INSERT INTO memory.aside.t VALUES (?, 'x', ?, NULL)", [(210, 1), (211, 2)])
    check(con)
    con.execute("COMMIT")
    check(con)
    with pytest.raises(sqlfront.IntegrityError, match="k: 200"):
        con.executemany("INSERT INTO memory.aside.t VALUES (?, 'x', ?, NULL)", [(300, 1), (200, 2)])
    con.apply({"log": pa.table({"x": [5]})})
    check(con)

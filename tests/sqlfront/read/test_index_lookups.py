"""CREATE INDEX on a view: WHERE with values of its first columns reads just such rows along the order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from tests.sqlfront.read.test_keyset import ABSENT, VALUES

COLUMNS = list(VALUES)
ODD = {"i": ["2.5", "'2'", "2.0::DOUBLE"], "s": ["'A'", "7"], "d": ["'2020-01-01'"], "n": ["2.250::DECIMAL(9, 3)"]}
ODD |= {"f": ["'nan'::DOUBLE", "-0.0::DOUBLE"], "c": ["DATE '2020-01-01'"], "u": ["-1"], "h": ["5.0"], "b": ["1e0"]}


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_values_are_those_of_the_query(con: Any, walks: list[RankedWalk], seed: int) -> None:
    """Random indexes over columns of all types with ties and NULLs; values that are there, absent, of other types."""
    choose = random.Random(seed)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
    con.execute(f"CREATE TABLE r ({columns})")

    def value(name: str, *, null: float) -> str:
        kind, known = VALUES[name]
        return "NULL" if "NOT" not in kind and choose.random() < null else choose.choice(known)

    def insert(count: int) -> None:
        rows = [", ".join(value(name, null=0.2) for name in COLUMNS) for _ in range(count)]
        con.execute(f"INSERT INTO r VALUES {', '.join(f'({row})' for row in rows)}")

    insert(150)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM r")
    led = 0
    for _ in range(6):
        index = choose.sample(COLUMNS, choose.randint(1, 3))
        items = ", ".join(f"{name} {choose.choice(['', 'DESC', 'NULLS FIRST', 'DESC NULLS LAST'])}" for name in index)
        con.execute(f"CREATE INDEX own ON v ({items})")
        for _ in range(8):
            fixed = index[: choose.randint(1, len(index))]
            extra = [name for name in COLUMNS if name not in index][: choose.randint(0, 1)]
            given = {name: choose.choice([value(name, null=0.1), ABSENT.get(name, "NULL"), *ODD.get(name, [])])
                     for name in [*fixed, *extra]}  # fmt: skip
            where = " AND ".join(f"{name} = {constant}" for name, constant in given.items())
            try:
                expected = con.session.duck.execute(f"SELECT * FROM r WHERE {where}").fetchall()
            except duckdb.Error:  # A cast fails of a row that a narrowed scan need not read.
                continue
            walks.clear()
            found = con.execute(f"SELECT * FROM v WHERE {where}").fetchall()
            assert Counter(map(repr, found)) == Counter(map(repr, expected)), (items, where)
            led += len(walks)
        con.execute("DROP INDEX own")
        con.execute(f"DELETE FROM r WHERE {choose.choice(['i = 1', 's IS NULL', 'n < 0'])}")
        insert(10)
    assert led > 10


def test_few_rows_cost_few_steps_and_many_are_scanned(con: Any, walks: list[RankedWalk]) -> None:
    con.execute("CREATE TABLE r (a BIGINT, x VARCHAR)")
    values = "CASE WHEN i < 20_000 THEN 'often' ELSE 'x' || i % 7000 END"
    con.execute(f"INSERT INTO r SELECT i, {values} FROM range(40000) t(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, x FROM r; CREATE INDEX own ON v (x DESC)")
    query = "SELECT a FROM v WHERE x = ?"
    assert sorted(con.execute(query, ["x5"]).fetchall()) == [(21005,), (28005,), (35005,)]
    assert [walk.steps < 2_000 for walk in walks] == [True]
    assert con.execute(query, ["nowhere"]).fetchall() == []
    walks.clear()
    assert len(con.execute(query, ["often"]).fetchall()) == 20_000
    assert len(walks) == 1
    assert walks[0].rows < 20_000
    walks.clear()
    assert con.execute("SELECT x FROM v WHERE a = 5 AND x <> 'x5'").fetchall() == [("often",)]
    assert walks == []
    assert "WHERE x = ... finds the first such row in O(log N) and reads no others." in str(con.explain("v"))


def test_an_order_that_does_not_begin_so_says_it(con: Any, walks: list[RankedWalk]) -> None:
    con.execute("CREATE TABLE r (k BIGINT, a BIGINT); CREATE TABLE s (k BIGINT, b BIGINT)")
    con.execute("INSERT INTO r SELECT i % 50, i FROM range(500) t(i); INSERT INTO s SELECT i, i FROM range(50) t(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT r.k, a, b FROM r JOIN s ON r.k = s.k; CREATE INDEX own ON v (a)")
    assert con.execute("SELECT * FROM v WHERE a = 77").fetchall() == [(27, 77, 27)]
    assert walks == []
    assert "WHERE column = ... does not use this order" in str(con.explain("v"))

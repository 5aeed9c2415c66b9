"""First rows of groups: ORDER BY an aggregate with LIMIT is a ranked view over the view of the groups."""

from __future__ import annotations

import random
from typing import Any

import pytest

import sqlfront

TABLES = """
CREATE TABLE r (a BIGINT, b INTEGER, w BIGINT, f DOUBLE, s VARCHAR, bits BIT);
CREATE TABLE named (id BIGINT PRIMARY KEY, name VARCHAR);
CREATE TABLE loose (id BIGINT, name VARCHAR)
"""
RANKED = [
    "SELECT a, sum(w) AS total FROM r GROUP BY a ORDER BY total DESC NULLS LAST, a LIMIT 3",
    "SELECT a, b, count(*) FROM r GROUP BY ALL ORDER BY count(*) DESC, avg(w) NULLS FIRST, 1, 2 LIMIT 3 OFFSET 1",
    "SELECT b FROM r WHERE w > 1 GROUP BY b HAVING count(*) > 1 ORDER BY min(s) DESC NULLS LAST, max(f) / 2, b LIMIT 2",
    "SELECT a, sum(w) - count(*) AS rest FROM r GROUP BY a ORDER BY abs(sum(w) - 9), a LIMIT 2",
    "SELECT a + 1, min(w), count(DISTINCT b) FROM r GROUP BY a + 1 ORDER BY ALL LIMIT 4",
    "SELECT sum(w) FROM r GROUP BY a, b ORDER BY 1 LIMIT 5",
    "SELECT name, sum(w) AS s FROM r JOIN named ON a = id GROUP BY name ORDER BY s DESC NULLS LAST, name LIMIT 2",
    "SELECT id, name, sum(w) AS s FROM r JOIN named ON a = id GROUP BY ALL ORDER BY s, id, name LIMIT 2",
    "SELECT name, sum(w) AS s FROM r JOIN loose ON a = id GROUP BY name ORDER BY s DESC NULLS LAST, name LIMIT 2",
    "SELECT b, a, sum(w) AS total FROM r GROUP BY b, a "
    "QUALIFY row_number() OVER (PARTITION BY b ORDER BY total DESC NULLS LAST, a) <= 2",
    "SELECT b, a FROM r GROUP BY b, a QUALIFY row_number() OVER (PARTITION BY count(*) ORDER BY b, a) = 1",
]
SORTED = [
    ("SELECT a, sum(w) AS s FROM r GROUP BY a ORDER BY s", "a read gives all groups"),
    (
        "SELECT id, name, sum(w) AS s FROM r JOIN loose ON a = id GROUP BY ALL ORDER BY ALL LIMIT 3",
        "row of r may change",
    ),
    ("SELECT w, name, count(*) FROM r JOIN loose ON a = id GROUP BY ALL ORDER BY ALL LIMIT 3", "row of r may"),
    ("SELECT bits, count(*) FROM r GROUP BY bits ORDER BY 2, 1 LIMIT 3", "a type without an order"),
    ("SELECT b FROM r GROUP BY b QUALIFY rank() OVER (ORDER BY sum(w)) < 3", "share their rank"),
    ("SELECT sum(w) FROM r ORDER BY 1 LIMIT 1", "one row"),
]


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        for statement in TABLES.split(";"):
            connection.execute(statement)
        yield connection


def change(rng: random.Random) -> str:
    """A statement that changes groups: rows come and go, and NULLs."""
    value = lambda values: rng.choice(["NULL", *map(repr, values)])  # noqa: E731
    rows = [
        f"({value(range(5))}, {value(range(3))}, {value(range(6))}, {value([0.1, 0.2, -3.5])}, {value('xyz')}, '101')"
        for _ in range(rng.randint(1, 12))
    ]
    names = f"({rng.randint(0, 4)}, {value('xyz')})"
    return rng.choice(
        [
            *[f"INSERT INTO r VALUES {', '.join(rows)}"] * 3,
            f"INSERT OR REPLACE INTO named VALUES {names}",
            f"INSERT INTO loose VALUES {names}, {names}",
            f"DELETE FROM r WHERE a = {rng.randint(0, 4)} OR w IS NULL",
            f"DELETE FROM loose WHERE id = {rng.randint(0, 4)}",
            f"UPDATE r SET w = {value(range(6))} WHERE b = {rng.randint(0, 2)}",
        ]
    )


@pytest.mark.parametrize("query", [*RANKED, *(query for query, _ in SORTED)])
def test_random_changes_against_duckdb(con: Any, query: str) -> None:
    """After every change the view's rows are DuckDB's, in its order where the view has a LIMIT."""
    rng = random.Random(query)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for table in ("named", "loose"):
        con.execute(f"INSERT INTO {table} SELECT i, 'n' || i FROM range(5) t(i)")
    in_order, changed, before = "LIMIT" in query, 0, []
    for step in range(16):
        con.execute(change(rng) if step < 13 else f"DELETE FROM {('r', 'named', 'loose')[step - 13]}")
        expected = con.session.duck.execute(query).fetchall()
        found = con.execute("SELECT * FROM v").fetchall()
        assert found == expected if in_order else sorted(map(repr, found)) == sorted(map(repr, expected)), step
        if in_order:
            assert con.view("v").top(2) == expected[:2]
        changed, before = changed + (expected != before), expected
    assert changed >= 5


@pytest.mark.parametrize("query", RANKED)
def test_explain_names_the_block_and_the_cost_of_a_changed_group(con: Any, query: str) -> None:
    data = con.explain(query).to_dict()
    assert data["strategy"] == "ranked enumeration" and data["orders"][0]["strategy"] == "ranked enumeration"
    assert "the block of groups over r" in data["reason"] and "a changed group leaves its place" in data["reason"]
    update = data["cost"]["update"]
    assert update.startswith("O(N" if "loose" in query else "O(log N") and "result" not in update
    assert data["cost"]["delay"] == "O(log N)"


@pytest.mark.parametrize(("query", "why"), SORTED)
def test_other_orders_of_groups_are_sorted_with_the_reason(con: Any, query: str, why: str) -> None:
    data = con.explain(query).to_dict()
    assert data["strategy"] != "ranked enumeration" and "log N" not in data["cost"]["update"]
    assert data["orders"][0]["strategy"] == "sorted when read" and why in data["orders"][0]["reason"]


def test_a_read_takes_the_first_groups_alone(con: Any) -> None:
    """The steps of a read do not grow with the groups, those of a changed group with their logarithm at most."""
    reads, changes = [], []
    con.execute(f"CREATE MATERIALIZED VIEW v AS {RANKED[0]}")
    for size in (100, 10_000):
        con.execute(f"INSERT INTO r (a, w) SELECT i, i * 7 % 1001 FROM range({size}) t(i)")
        before = con.view("v").cost()
        con.view("v").top(3)
        con.execute("INSERT INTO r (a, w) VALUES (5, 1)")
        after = con.view("v").cost()
        reads.append(after["read_steps"] - before["read_steps"])
        changes.append(after["steps"] - before["steps"])
    assert reads[0] == reads[1] <= 6
    assert changes[1] <= 3 * changes[0]

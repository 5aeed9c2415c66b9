"""INTERSECT ALL and EXCEPT ALL: rows that stand in a join as often as two counts say, against DuckDB."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from tests.outer_queries import TABLES, RandomRows, create_tables, rows_of, table_of
from tests.sqlfront.views.test_outer_children import follow

LESS = "SELECT k AS p, x AS q FROM a EXCEPT ALL SELECT k, y FROM b"
BOTH = "SELECT k AS p, k AS q FROM a INTERSECT ALL SELECT y, y FROM b"
QUERIES = {
    "except all": LESS,
    "intersect all": BOTH,
    "of itself": "SELECT k AS p, x AS q FROM a EXCEPT ALL SELECT x, k FROM a",
    "three": f"({LESS}) INTERSECT ALL (SELECT k, z FROM c UNION ALL {BOTH})",
    "joined": f"SELECT s.q, c.z FROM ({LESS}) s JOIN c ON c.k = s.p",
    "joined with itself": f"WITH s AS ({BOTH}) SELECT s.p, t.q FROM s JOIN s AS t ON s.q = t.p",
    "optional": f"SELECT c.z, s.q FROM c LEFT JOIN ({LESS}) s ON c.k = s.p",
    "absent": f"SELECT c.z FROM c ANTI JOIN ({BOTH}) s ON c.k = s.p",
    "groups": f"SELECT p, count(*) AS n, sum(q) AS s, max(q) AS m, count(DISTINCT q) AS d FROM ({LESS}) GROUP BY p",
    "distinct": f"SELECT DISTINCT p FROM ({LESS})",
    "counted": f"SELECT count(*) AS n FROM ({BOTH})",
}


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        create_tables(connection)
        yield connection


def test_copies_are_right_after_every_epoch(con):
    for name, query in QUERIES.items():
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query}')
    changed = follow(con, QUERIES, RandomRows(random.Random(3)), 10)
    assert changed.keys() == QUERIES.keys() and changed.total() > 3 * len(QUERIES), changed


def random_query(chance: random.Random, depth: int = 2) -> str:
    """A set operation that counts copies, perhaps in a join, below an aggregate, or in a condition."""
    rows = _operation(chance, depth)
    if "T ALL" not in rows and "N ALL" not in rows:
        return random_query(chance, depth)
    forms = (
        "FROM s",
        "SELECT p, count(*) AS n, sum(q) AS total, max(q) AS m FROM s GROUP BY p",
        "SELECT c.z, s.q FROM c LEFT JOIN s ON c.k = s.p",
        "SELECT s.q, c.z FROM s LEFT JOIN c ON c.k = s.p",
        "SELECT a.x, a.k IN (SELECT p FROM s) AS m FROM a",
        "SELECT a.x FROM a WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.p = a.k)",
        "SELECT DISTINCT p FROM s",
        "SELECT s.p, s.q FROM s, c WHERE s.q < c.z",
        "SELECT s.p, t.q FROM s, s AS t WHERE s.p = t.q",
        "SELECT p, q FROM s ORDER BY p, q LIMIT 3",
    )
    return f"WITH s AS ({rows}) {chance.choice(forms)}"


def _operation(chance: random.Random, depth: int) -> str:
    kind = chance.choice((*("EXCEPT ALL", "INTERSECT ALL") * 2, "UNION ALL", "EXCEPT", "INTERSECT"))
    return f"{_branch(chance, depth)} {kind} {_branch(chance, depth)}"


def _branch(chance: random.Random, depth: int) -> str:
    if depth > 0 and chance.random() < 0.35:
        return f"({_operation(chance, depth - 1)})"
    table = chance.choice("abc")
    p, q, tested = (chance.choice(TABLES[table]) for _ in range(3))
    where = f" WHERE {tested} {chance.choice(('> 1', 'IS NULL', '<> 2'))}" if chance.random() < 0.3 else ""
    distinct = "DISTINCT " if chance.random() < 0.15 else ""
    return f"SELECT {distinct}{p} AS p, {q} AS q FROM {table}{where}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_random_set_operations(con, seed):
    chance = random.Random(seed)
    query = random_query(chance)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    follow(con, {"v": query}, RandomRows(chance), 16)


@pytest.mark.parametrize("size", [1_000, 100_000])
@pytest.mark.parametrize("query", [LESS, BOTH, "SELECT k FROM a EXCEPT ALL SELECT k FROM b"])
def test_steps_do_not_grow(con, query, size):
    """Neither with the tables, nor with the copies of a row."""
    con.execute(f"INSERT INTO a SELECT i, i, 0 FROM range({size // 2}) t(i)")
    con.execute(f"INSERT INTO a SELECT -1, -1, 0 FROM range({size // 2}) t(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    plan = con.explain("v").to_dict()
    assert (plan["cost"]["update"], plan["cost"]["delay"]) == ("O(1)", "O(1)")
    view = con.view("v")
    for table, row, weight in (
        ("b", (-1, -1, 0), 1), ("b", (-1, -1, 0), 1), ("a", (-1, -1, 0), 1), ("b", (1, 1, 0), 1),
        ("b", (-1, -1, 0), -1), ("a", (7, 7, 0), -1),
    ):  # fmt: skip
        before = view.cost()["steps"]
        con.apply({table: table_of(table, [(row, weight)])})
        assert view.cost()["steps"] - before <= 40, (table, row, weight)
    assert rows_of(con, "FROM v") == Counter(con.session.duck.execute(query).fetchall())


def test_explain_tells_how_often_rows_count(con):
    assert "CAST((mine - theirs) AS BIGINT) times" in str(con.explain(LESS))
    assert "each stays as often as the side that has it less often" in str(con.explain(BOTH))

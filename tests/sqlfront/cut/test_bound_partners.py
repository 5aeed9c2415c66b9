"""EXISTS over joins: the partners that are bound to the rows around them, against all partners, DuckDB, and DISTINCT
joins."""

from __future__ import annotations

import random
from fractions import Fraction

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.cut import query_blocks
from sqlfront.cut.block_definition import BlockBinder
from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.query import Atom, Definition, LeafColumn
from sqlfront.planner.theory.extended_result import extended_exponent
from tests.outer_queries import RandomRows, create_tables
from tests.sqlfront.views.test_outer_children import follow

TRIANGLE = "FROM b f, c g WHERE e.k = f.k AND f.y = g.z AND g.w = e.x"
QUERIES = {
    "rows": f"SELECT e.k, e.x FROM a e WHERE EXISTS ({TRIANGLE})",
    "no rows": f"SELECT e.k, e.x FROM a e WHERE NOT EXISTS ({TRIANGLE} AND e.u > 1)",
    "own rows": "SELECT e.k, e.x FROM a e WHERE EXISTS (FROM a f, a g WHERE e.k = f.x AND f.k = g.u AND g.x = e.x)",
    "marks": f"SELECT e.k, e.u, EXISTS ({TRIANGLE} AND f.v > 1 AND e.u < 3) AS m FROM a e",
    "filtered": f"SELECT e.k, e.u FROM a e WHERE EXISTS ({TRIANGLE} AND f.v > 1 AND e.u < 3)",
    "pairs": "SELECT k, u FROM a WHERE (k, x) IN (SELECT f.k, g.w FROM b f, c g WHERE f.y = g.z)",
    "groups": f"SELECT e.k, count(*) AS n FROM a e, b h WHERE h.v = e.u AND EXISTS ({TRIANGLE}) GROUP BY e.k",
    "optional": f"SELECT e.k, h.v FROM a e LEFT JOIN b h ON h.k = e.k WHERE EXISTS ({TRIANGLE})",
    "distinct rows": f"SELECT e.k, e.x FROM (SELECT DISTINCT k, x FROM a) e WHERE EXISTS ({TRIANGLE})",
    "distinct": f"SELECT DISTINCT e.k, e.x FROM a e WHERE EXISTS ({TRIANGLE})",
    "distinct ends": f"SELECT DISTINCT e.x FROM a e WHERE EXISTS ({TRIANGLE})",
    "distinct of more": f"SELECT DISTINCT e.k, e.u FROM a e WHERE EXISTS ({TRIANGLE})",
}
EDGES = "SELECT * FROM e e1 WHERE EXISTS (FROM e e2, e e3 WHERE e1.b = e2.a AND e2.b = e3.a AND e3.b = e1.a)"


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        create_tables(connection)
        yield connection


def reason(con: sqlfront.Connection, query: str) -> str:
    return con.explain(query).to_dict()["reason"]


def test_partners_are_right_after_every_epoch(con, monkeypatch):
    views = dict(QUERIES)
    for name, query in QUERIES.items():
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query}')
        assert "O(N^2) rows, and O(N^1.5) with those rows" in reason(con, f'"{name}"'), name
    monkeypatch.setattr(query_blocks, "with_bound_partners", lambda term, core, blocks: term)
    for name in ("rows", "no rows"):
        con.execute(f'CREATE MATERIALIZED VIEW "all of {name}" AS {QUERIES[name]}')
        views[f"all of {name}"] = QUERIES[name]
    rows = RandomRows(random.Random(47))
    for _ in range(6):
        con.apply(rows.epoch())
    changed = follow(con, views, rows, 16)
    assert all(changed[name] > 1 for name in QUERIES), changed


@pytest.mark.parametrize("key", ["PRIMARY KEY (k, x)", "UNIQUE (k, x)"])
def test_rows_with_a_key_are_those_of_the_join(con, key):
    """The join takes the place of EXISTS where its copies are none of the query's, and only where."""
    con.execute(f"CREATE TABLE r (k INTEGER, x INTEGER, {key})")
    query = f"SELECT k, x FROM r e WHERE EXISTS ({TRIANGLE})"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert (con.explain("v").to_dict()["shape"] == "cyclic") == key.startswith("PRIMARY")
    con.execute("INSERT INTO r VALUES (1, 2), (2, 2); INSERT INTO b VALUES (1, 3, 0), (1, 3, 0), (1, 4, 0)")
    con.execute("INSERT INTO c SELECT 0, z, 2 FROM (VALUES (3), (4), (4)) t(z)")
    assert con.execute("FROM v").fetchall() == [(1, 2)]


def test_edges_of_triangles_take_the_memory_of_the_distinct_join(con, monkeypatch):
    """A hub has 200 edges in and out: 40,000 paths of two edges lead through it."""
    con.execute("CREATE TABLE e (a INTEGER, b INTEGER)")
    hub = [(0, i) for i in range(1, 201)] + [(i, 0) for i in range(1, 201)] + [(i, i + 1) for i in range(1, 200)]
    ends = [pa.array(column, pa.int32()) for column in zip(*hub, strict=True)]
    con.apply({"e": pa.table(ends, names=["a", "b"])})
    joined = (
        EDGES.replace("EXISTS (FROM e e2, e e3 WHERE ", "")
        .replace(")", "")
        .replace("e e1 WHERE", "e e1, e e2, e e3 WHERE")
    )
    joined = joined.replace("SELECT *", "SELECT DISTINCT e1.a, e1.b")
    for name, query in {"v": EDGES, "d": joined, "s": EDGES.replace("*", "DISTINCT a, b")}.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    monkeypatch.setattr(query_blocks, "with_bound_partners", lambda term, core, blocks: term)
    con.execute(f"CREATE MATERIALIZED VIEW whole AS {EDGES}")
    own = {
        name: sum(entry["entries"] for entry in con.view(name).state() if not entry["shared"])
        for name in ("v", "d", "s", "whole")
    }
    assert own["s"] == own["d"] <= con.view("v").count() == con.view("d").count()
    assert own["v"] <= 4 * own["d"] and own["whole"] > 40_000, own


def test_epsilon_is_for_distinct_rows_that_ask_for_a_triangle(con):
    con.execute("CREATE TABLE e (a INTEGER, b INTEGER); CREATE TABLE asked (a INTEGER, b INTEGER, PRIMARY KEY (a, b))")
    for number, query in enumerate((EDGES.replace("*", "DISTINCT a, b"), EDGES.replace("FROM e e1", "FROM asked e1"))):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} WITH (epsilon = 0.5) AS {query}")
        assert con.explain(f"v{number}").to_dict()["cost"]["update"] == "O(N^0.5) amortised"
    with pytest.raises(sqlfront.ProgrammingError, match="option epsilon does not apply"):
        con.execute(f"CREATE MATERIALIZED VIEW w WITH (epsilon = 0.5) AS {EDGES}")


@pytest.mark.parametrize(("query", "words"), [
    ("SELECT e.x FROM a e WHERE EXISTS (FROM b f, c g WHERE e.k = f.k AND f.y = g.z)", None),
    ("SELECT e.x FROM a e, a h WHERE EXISTS (FROM b f, c g WHERE e.k = f.k AND f.y = g.z AND g.w = h.x)",
     "its join with these rows can have as many rows"),
    (f"SELECT e.k FROM (SELECT k, max(x) AS x FROM a GROUP BY k) e WHERE EXISTS ({TRIANGLE})", "are no join of tables"),
])  # fmt: skip
def test_explain_says_why_partners_are_not_bound(con, query, words):
    found = reason(con, query)
    assert words in found if words else "the subquery's values are kept" not in found


@pytest.mark.parametrize(("schemes", "free", "exponent"), [
    (("ab",), "a", Fraction(1)),
    (("ab", "bc"), "ac", Fraction(2)),
    (("ab", "bc", "cd"), "ad", Fraction(2)),
    (("ab", "bc"), "b", Fraction(1)),
    (("ab", "bc", "ca"), "ab", Fraction(3, 2)),
])  # fmt: skip
def test_the_exponent_of_what_a_tree_combines(schemes, free, exponent):
    atoms = tuple(
        Atom(scheme, scheme, tuple(LeafColumn(name, name, "INTEGER", name) for name in scheme)) for scheme in schemes
    )
    definition = Definition(atoms, tuple(free), "set")
    assert extended_exponent(definition, plan_view(definition)) == exponent


def scalars(levels):
    return f"SELECT {', '.join(f'(SELECT max(y) FROM b WHERE y > {level})' for level in range(levels))} FROM a"


def chain(levels):
    joins = (f"LEFT JOIN b AS b{level} ON b{level}.y > a.x AND b{level}.k = a.k" for level in range(levels))
    return f"SELECT a.x FROM a {' '.join(joins)}"


def nested(levels):
    query = "SELECT * FROM a AS e0"
    for level in range(levels):
        query += f" WHERE EXISTS (SELECT 1 FROM b AS f{level} JOIN a AS e{level + 1} ON f{level}.y = e{level + 1}.u"
    query += " WHERE f0.k = e0.k"
    return query + "".join(f" AND f{level}.k = e{level}.k)" for level in range(levels - 1, 0, -1)) + ")"


@pytest.mark.parametrize("query", [scalars, chain, nested])
def test_the_work_of_joins_inside_joins_does_not_double_by_level(con, monkeypatch, query):
    blocks = list[object]()
    bind = BlockBinder._bind
    monkeypatch.setattr(BlockBinder, "_bind", lambda *arguments: (blocks.append(None), bind(*arguments))[1])
    counts = []
    for levels in (3, 6):
        blocks.clear()
        con.execute(f"EXPLAIN (MATERIALIZED) {query(levels)}")
        counts.append(len(blocks))
    assert counts[0] < counts[1] <= 4 * counts[0]

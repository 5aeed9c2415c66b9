"""Views that ignore multiplicity are kept as their core: equal to DuckDB under NULLs, filters and deletes."""

from __future__ import annotations

from random import Random

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlfront
from sqlfront.cut.view_query import bind_view
from sqlfront.planner.theory.core import minimise
from tests.catalogs import WithoutMacros
from tests.definition_oracle import evaluate_definition, same_bag
from tests.slices import parts

SCHEMA = """
CREATE TABLE t (x BIGINT, y BIGINT, z INTEGER, s VARCHAR, n INTEGER NOT NULL);
CREATE TABLE e (x INTEGER, y INTEGER);
CREATE TABLE u (y BIGINT);
"""

VIEWS = [
    # (query, the atoms that are left)
    ("SELECT DISTINCT a.x FROM t a JOIN t b ON a.x = b.x", "a"),
    ("SELECT DISTINCT b.x FROM t a JOIN t b USING (x, y)", "a"),
    ("SELECT a.x FROM t a JOIN t b ON a.x = b.x GROUP BY a.x", "a"),
    ("SELECT DISTINCT a.x, a.z FROM t a, t b, t c WHERE a.x = b.x AND b.y = c.y", "a b"),
    ("SELECT DISTINCT a.x, a.z FROM t a, t b, t c WHERE a.x = b.x AND b.n = c.n", "a"),
    ("SELECT DISTINCT a.x, a.z FROM t a, t b, t c WHERE a.x = b.x AND b.y = c.y AND c.z > 1", "a b c"),
    ("SELECT DISTINCT a.x FROM t a JOIN t b ON a.x = b.x WHERE b.z > 1 AND b.s LIKE 'p%' AND a.z > 1", "b"),
    ("SELECT DISTINCT a.x FROM t a JOIN t b ON a.x = b.x WHERE a.z > 1 AND b.z > 2", "a b"),
    ("SELECT DISTINCT a.x, b.s FROM t a JOIN t b ON a.x = b.x", "b"),
    ("SELECT DISTINCT a.z, b.s FROM t a JOIN t b ON a.x = b.x", "a b"),
    ("SELECT DISTINCT a.x + 1 AS v, a.s FROM t a, t b WHERE a.x = b.x AND b.x = 2 AND a.s IS NULL", "a"),
    ("SELECT DISTINCT a.s FROM t a JOIN t b ON a.x = b.z", "a b"),
    ("SELECT DISTINCT a.y FROM t a, t b WHERE b.z IS NOT NULL", "a b"),
    ("SELECT DISTINCT u.y FROM u, e a, e b, e c WHERE a.x = a.y AND a.y = b.x AND b.y = c.x AND c.x = c.y", "a u"),
    ("SELECT DISTINCT a.x FROM e a, e b, e c, e d WHERE a.y = b.y AND b.x = c.x AND c.y = d.y AND d.x = a.x", "a"),
    ("SELECT DISTINCT a.x, u.y FROM t a JOIN u ON a.y = u.y JOIN t b ON b.y = u.y", "a u"),
]  # fmt: skip


@pytest.fixture
def con():
    con = sqlfront.connect()
    for statement in filter(str.strip, SCHEMA.split(";")):
        con.execute(statement)
    yield con
    con.close()


def rows(con, query):
    return sorted(con.execute(query).fetchall(), key=str)


def all_rows(con, queries):
    """The sorted rows of several queries, by one statement."""
    lists = ", ".join(f"(SELECT list(q ORDER BY q) FROM ({query}) AS q)" for query in queries)
    return con.execute(f"SELECT {lists}").fetchone()


def atoms(con, what):
    """The tables that a view's tree reads, by their aliases."""

    def leaves(node):
        return ([node["atom"]] if node["atom"] else []) + [name for c in node["children"] for name in leaves(c)]

    return " ".join(sorted(leaves(con.explain(what).to_dict()["tree"])))


def change(con, choose):
    """One random insert, delete or update; NULLs often."""
    value = lambda: choose.choice(["NULL", "NULL", "1", "2", "2", "3"])  # noqa: E731
    text = choose.choice(["NULL", "'p'", "'pq'", "'q'"])
    column, table = choose.choice(["x", "y"]), choose.choice(["t", "t", "e"])
    statements = [
        f"INSERT INTO t VALUES ({value()}, {value()}, {value()}, {text}, {choose.randrange(3)})",
        f"INSERT INTO e VALUES ({value()}, {value()})",
        f"INSERT INTO u VALUES ({value()})",
        f"UPDATE {table} SET {column} = {value()} WHERE {column} IS NOT DISTINCT FROM {value()}",
        f"DELETE FROM {table} WHERE {column} IS NOT DISTINCT FROM {value()}",
        f"DELETE FROM u WHERE y = {value()}",
    ]
    con.execute(choose.choice(statements[:3] + statements))


@pytest.mark.parametrize(("query", "left"), VIEWS)
def test_the_view_reads_its_core_alone(con, query, left):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert atoms(con, "v") == atoms(con, query) == left


@pytest.mark.parametrize("seed", parts(4))
def test_every_view_equals_its_query_after_every_change(con, seed):
    for number, (query, _) in enumerate(VIEWS):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    choose, before, changed = Random(11 + seed), {}, 0
    for _ in range(80 if seed else 20):
        change(con, choose)
        found = all_rows(con, [f"FROM v{number}" for number in range(len(VIEWS))])
        expected = all_rows(con, [query for query, _ in VIEWS])
        for number, (query, _) in enumerate(VIEWS):
            assert found[number] == expected[number], query
            changed += before.get(number) != found[number]
            before[number] = found[number]
    assert changed > 20
    assert all(con.execute(f"CHECK MATERIALIZED VIEW v{n}").fetchall() == [] for n in range(len(VIEWS)))
    for table in ("t", "e", "u"):
        con.execute(f"DELETE FROM {table}")
    assert all(rows(con, f"FROM v{number}") == [] for number in range(len(VIEWS)))


def test_views_over_rows_that_are_there_already(con):
    choose = Random(3)
    for _ in range(60):
        change(con, choose)
    for number, (query, _) in enumerate(VIEWS):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        assert rows(con, f"FROM v{number}") == rows(con, query), query


def test_a_core_stores_what_a_view_of_the_one_table_does(con):
    """One entry per output row, though hundreds of rows share the key."""
    con.execute("INSERT INTO t SELECT 1, i, 1, 'p', 0 FROM range(500) r(i)")
    con.execute("CREATE MATERIALIZED VIEW joined AS SELECT DISTINCT a.x FROM t a JOIN t b ON a.x = b.x")
    con.execute("CREATE MATERIALIZED VIEW single AS SELECT DISTINCT x FROM t WHERE x IS NOT NULL")
    con.execute("INSERT INTO t VALUES (2, 1, 1, 'p', 0)")
    trees = [con.explain(name).to_dict() for name in ("joined", "single")]
    assert trees[0]["shape"] == trees[1]["shape"] == "q-hierarchical"
    assert trees[0]["tree"]["children"][0]["rows"] == trees[1]["tree"]["children"][0]["rows"] == 2


def test_explain_names_what_folds_and_why(con):
    query = 'SELECT DISTINCT a.x FROM t a JOIN t AS "B b" ON a.x = "B b".x'
    expected = "b b folds onto a: DISTINCT ignores multiplicity. The query is q-hierarchical"
    assert con.explain(query).to_dict()["reason"].startswith(expected)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    told = dict(con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall())
    assert told["reason"].startswith(expected)


def test_a_cyclic_query_with_an_acyclic_core_is_maintained(con):
    query = "SELECT DISTINCT a.x FROM e a, e b, e c, e d WHERE a.y = b.y AND b.x = c.x AND c.y = d.y AND d.x = a.x"
    assert con.explain(query).to_dict()["shape"] == "q-hierarchical"
    assert con.explain(query.replace("DISTINCT ", "")).to_dict()["shape"] == "cyclic"


def test_bags_and_aggregates_keep_every_table(con):
    bag = "SELECT a.x FROM t a JOIN t b ON a.x = b.x"
    count = "SELECT a.x, count(*) AS n FROM t a JOIN t b ON a.x = b.x GROUP BY a.x"
    for number, query in enumerate((bag, count)):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        assert atoms(con, query) == "a b"
        assert "folds" not in str(con.explain(query))
    con.execute("INSERT INTO t VALUES (1, 1, 1, 'p', 0), (1, 2, 1, 'p', 0), (NULL, 1, 1, 'p', 0)")
    assert rows(con, "FROM v0") == [(1,)] * 4
    assert rows(con, "FROM v1") == [(1, 4)]


def test_a_core_survives_refresh_and_an_added_column(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT DISTINCT a.x FROM t a JOIN t b USING (x, y)")
    con.execute("INSERT INTO t VALUES (1, NULL, 1, 'p', 0), (2, 3, 1, 'p', 0)")
    con.execute("ALTER TABLE t ADD COLUMN more INTEGER")
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert rows(con, "FROM v") == [(2,)]
    con.execute("UPDATE t SET y = 1 WHERE x = 1")
    assert rows(con, "FROM v") == [(1,), (2,)]
    assert atoms(con, "v") == "a"


def random_self_join(choose):
    """DISTINCT over two to four copies of `k`, joined and filtered at random."""
    copies = ["p", "q", "s", "t"][: choose.choice([2, 3, 3, 4])]
    column = lambda: f"{choose.choice(copies)}.{choose.choice('abc')}"  # noqa: E731
    conditions = [f"{column()} = {column()}" for _ in range(choose.choice([1, 2, 3, 4]))]
    filters = choose.choice([0, 0, 1, 2])
    conditions += [f"{column()} {choose.choice(['= 1', '> 1', 'IS NOT NULL', 'IS NULL'])}" for _ in range(filters)]
    items = ", ".join(f"{column()} AS o{i}" for i in range(choose.choice([1, 1, 2])))
    tables = ", ".join(f"k AS {name}" for name in copies)
    return f"SELECT DISTINCT {items} FROM {tables} WHERE {' AND '.join(conditions)}"


@pytest.fixture(scope="module")
def judge():
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE TABLE k (a INTEGER, b INTEGER, c INTEGER)")
    yield con
    con.close()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_core_of_a_random_self_join_is_the_query(seed, judge):
    choose = Random(seed)
    query = random_self_join(choose)
    core = minimise(bind_view(query, judge, WithoutMacros(judge)).definition)
    for _ in range(2):
        cells = [tuple(choose.choice(["NULL", "1", "2"]) for _ in range(3)) for _ in range(6)]
        judge.execute("DELETE FROM k")
        judge.execute(f"INSERT INTO k VALUES {', '.join(f'({a}, {b}, {c})' for a, b, c in cells)}")
        assert same_bag(evaluate_definition(core, judge), judge.execute(query).fetchall()), query


def test_random_self_joins_fold_often(judge):
    bound = [bind_view(random_self_join(Random(seed)), judge, WithoutMacros(judge)).definition for seed in range(30)]
    assert sum(minimise(definition) is not definition for definition in bound) >= 8


EXISTS = {
    "SELECT EXISTS (SELECT 1 FROM e a, e b, e c WHERE a.x = a.y AND a.y = b.x AND b.y = c.x AND c.x = c.y)": 1,
    "SELECT EXISTS (SELECT 1 FROM e a, e b, e c, e d WHERE a.y = b.y AND b.x = c.x AND c.y = d.y AND d.x = a.x)": 1,
    "SELECT NOT EXISTS (SELECT a.x, b.y + 1 FROM e a, e b WHERE a.x = b.x GROUP BY a.x, b.y + 1)": 1,
    "SELECT EXISTS (SELECT 1 FROM e a, e b WHERE a.y = b.x AND b.y > 1)": 2,
    "SELECT CASE WHEN EXISTS (FROM e a, e b WHERE a.x = b.x AND b.y = 2) THEN 'yes' ELSE 'no' END AS r": 1,
}


def test_exists_ignores_multiplicity() -> None:
    """What it asks for is folded as any set, and stays what DuckDB says."""
    choose = Random(3)
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE e (x BIGINT, y BIGINT)")
        for number, (query, atoms) in enumerate(EXISTS.items()):
            con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
            explained = con.explain(f"v{number}").to_dict()
            assert len(con.session.database.views["main", f"v{number}"].definition.atoms) == atoms
            assert explained["cost"]["update"] == "O(1)"
            assert ("EXISTS ignores multiplicity" in explained["reason"]) == (atoms == 1)
        seen = set()
        for _ in range(40):
            if choose.random() < 0.5:
                con.execute(f"INSERT INTO e VALUES ({choose.randrange(3)}, {choose.randrange(3)})")
            else:
                con.execute(f"DELETE FROM e WHERE x = {choose.randrange(3)}")
            for number, query in enumerate(EXISTS):
                found = con.execute(f"FROM v{number}").fetchall()
                assert found == con.execute(query).fetchall(), query
                seen.add((number, *found))
        assert len(seen) == 2 * len(EXISTS)

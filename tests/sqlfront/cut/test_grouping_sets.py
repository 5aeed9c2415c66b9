"""ROLLUP, CUBE and GROUPING SETS: the groups of each set, native or computed by DuckDB from rows kept once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import sqlfront
from sqlfront.maintenance.output.touched_groups import TouchedGroupsNode
from tests.definition_oracle import same_bag
from tests.following import is_query
from tests.slices import parts

VIEWS = {
    "averages": "SELECT a, b, avg(x) AS m FROM r GROUP BY CUBE (a, b)",
    "sums": "SELECT a, b, sum(x) AS s, count(*) AS n, count(x) AS c FROM r GROUP BY ROLLUP (a, b)",
    "averages beside sums": "SELECT a, avg(x) AS m, sum(x) AS s, avg(b) AS k FROM r GROUP BY ROLLUP (a)",
    "averages in touched groups": "SELECT a, avg(x) AS m, median(DISTINCT b) AS k FROM r GROUP BY ROLLUP (a)",
    "averages of all alone": "SELECT avg(x) AS m FROM r GROUP BY GROUPING SETS ((), ())",
    "extremes": "SELECT a, b, min(x) AS l, max(x) AS m, count(DISTINCT x) AS d FROM r "
    "GROUP BY GROUPING SETS ((a), (b), ())",
    "filters": "SELECT a, sum(x) FILTER (WHERE b > 0) AS s, sum(DISTINCT b) FILTER (WHERE x > 0) AS d FROM r "
    "GROUP BY ROLLUP (a)",
    "bits": "SELECT a, b, grouping(a) AS p, grouping(b, a) AS q, grouping_id(a, b, a) AS t, count(*) AS n FROM r "
    "GROUP BY CUBE (a, b)",
    "bits in conditions": "SELECT a, CASE grouping(a) WHEN 1 THEN 'all' ELSE 'one' END AS w, sum(x) AS s FROM r "
    "GROUP BY ROLLUP (a) HAVING grouping(a) = 1 OR sum(x) > 0",
    "equal sets": "SELECT a, count(*) AS n, string_agg(x::VARCHAR, ',' ORDER BY x) AS l FROM r "
    "GROUP BY GROUPING SETS ((a), (), (a), ())",
    "sets of sets": "SELECT a, b, c, count(*) AS n FROM r JOIN s USING (b) "
    "GROUP BY GROUPING SETS ((a, c), ROLLUP (b, c), CUBE (a), ())",
    "beside a group": "SELECT a, b, median(DISTINCT x) AS m, sum(x) AS s FROM r GROUP BY a, ROLLUP (b)",
    "two of them": "SELECT a, b, count(*) AS n FROM r GROUP BY ROLLUP (a), CUBE (b)",
    "groups alone": "SELECT a, b FROM r GROUP BY CUBE (a, b)",
    "distinct": "SELECT DISTINCT a FROM r GROUP BY CUBE (a, b)",
    "expressions": "SELECT a + b AS k, b % 2 AS o, count(*) AS n, sum(x) + 1 AS s FROM r "
    "GROUP BY ROLLUP (a + b, b % 2)",
    "a constant": "SELECT a, 'w' AS w, count(*) AS n FROM r GROUP BY CUBE (a, 2)",
    "joins": "SELECT a, c, sum(r.x * s.b) AS w, avg(r.b) AS m FROM r JOIN s USING (b) GROUP BY ROLLUP (c, a)",
    "over several tables": "SELECT a, c, sum(a / nullif(c, 0)) AS q, count(*) AS n FROM r JOIN s USING (b) "
    "GROUP BY CUBE (a, c)",
    "left join": "SELECT r.a, s.c, count(*) AS n, mode(r.b) AS m FROM r LEFT JOIN s USING (b) GROUP BY ROLLUP (c, a)",
    "of groups": "SELECT a, k, max(n) AS m FROM (SELECT a, b AS k, count(*) AS n FROM r GROUP BY a, b) "
    "GROUP BY ROLLUP (a, k)",
    "below a join": "SELECT s.c, g.n FROM s JOIN (SELECT b, count(*) AS n FROM r GROUP BY ROLLUP (b)) AS g "
    "ON s.b IS NOT DISTINCT FROM g.b",
    "ordered": "SELECT a, b, count(*) AS n FROM r GROUP BY ROLLUP (a, b) ORDER BY n DESC, a, b LIMIT 3 OFFSET 1",
    "windows": "SELECT a, b, rank() OVER (PARTITION BY grouping(a) + grouping(b) ORDER BY count(*)) AS p FROM r "
    "GROUP BY ROLLUP (a, b)",
    "for each row": "SELECT c, (SELECT sum(n) FROM (SELECT count(*) AS n FROM r WHERE r.b = s.b GROUP BY ROLLUP (a)) "
    "AS q) AS t FROM s",
    "a shared term": "WITH q AS (SELECT a, b, x FROM r WHERE x > 0) SELECT a, count(*) AS n FROM q GROUP BY ROLLUP (a) "
    "UNION ALL SELECT b, median(DISTINCT x)::BIGINT FROM q GROUP BY CUBE (b)",
}
PARTS = 8
LEFT_OPEN = "SELECT a, b, any_value(x) AS f, list(x) AS l FROM r GROUP BY ROLLUP (a, b)"


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    connection.execute("CREATE TABLE r (a INTEGER, b INTEGER, x BIGINT); CREATE TABLE s (b INTEGER, c INTEGER)")
    yield connection
    connection.close()


def change(rng: random.Random) -> str:
    """Few keys, NULLs and copies; values whose averages DuckDB rounds in two ways."""
    key, value = lambda: rng.choice(["NULL", "0", "1", "2"]), lambda: rng.choice([1, -7, rng.randrange(2**52, 2**61)])
    rows = [f"({key()}, {key()}, {rng.choice(['NULL', value(), value()])})" for _ in range(rng.randint(1, 4))]
    return rng.choices(
        [
            f"INSERT INTO r VALUES {', '.join([*rows, rows[0]])}",
            f"INSERT INTO s VALUES ({key()}, {key()})",
            f"DELETE FROM r WHERE a IS NOT DISTINCT FROM {key()} AND b IS NOT DISTINCT FROM {key()}",
            f"UPDATE r SET a = b, b = a WHERE a = {key()}",
            f"DELETE FROM s WHERE b = {key()}",
            "DELETE FROM r",
            f"BEGIN; INSERT INTO r VALUES {rows[0]}; DELETE FROM r WHERE b = {key()}; ROLLBACK",
        ],
        [12, 4, 5, 2, 1, 1, 2],
    )[0]


@pytest.mark.parametrize("seed", parts(PARTS))
def test_the_groups_of_each_set_are_those_of_duckdb(con: sqlfront.Connection, seed: int) -> None:
    rng = random.Random(seed)
    chosen = list(VIEWS.values())[seed % PARTS :: PARTS]
    names = {f"v{number}": query for number, query in enumerate(chosen)}
    for _ in range(3 if seed else 0):  # Some views are built over rows.
        con.execute(change(rng))
    for name, query in names.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        assert con.execute(f"DESCRIBE {name}").fetchall() == con.execute(f"DESCRIBE {query}").fetchall()
    for _ in range(25 if seed else 12):
        con.execute(change(rng))
        for name, query in names.items():
            found, expected = con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall()
            assert same_bag(found, expected), f"{query}\nfound    {found}\nexpected {expected}"
    for name in names:
        assert is_query(con, name)
    con.execute("DELETE FROM r; DELETE FROM s")
    for name, query in names.items():
        assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall())
        con.execute(f"DROP MATERIALIZED VIEW {name}")
    engine = con.session.database.engine
    assert not engine.nodes and not engine.relations


@pytest.mark.parametrize("name", ["averages", "averages in touched groups", "averages of all alone"])
def test_averages_are_rounded_as_duckdb_rounds_them(con: sqlfront.Connection, name: str) -> None:
    """Over all rows too, which DuckDB averages by SUM / COUNT only without other groups."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")
    rng = random.Random(1)
    for _ in range(8):
        con.execute(f"INSERT INTO r VALUES (1, 1, {rng.randrange(2**52, 2**61)}), (2, 1, {rng.randrange(2**52)})")
        found, expected = con.execute("FROM v").fetchall(), con.execute(VIEWS[name]).fetchall()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_orders_left_open_are_completed_by_the_columns_of_all_sets(con: sqlfront.Connection) -> None:
    """Else a set would order its rows by fewer columns than DuckDB does for all sets together."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {LEFT_OPEN}")
    rng = random.Random(3)
    for _ in range(6):
        con.execute(change(rng))
        assert is_query(con)
    con.execute("INSERT INTO r VALUES (1, 2, 5), (1, 0, 6)")
    assert con.execute("SELECT f IS NOT NULL AND len(l) > 1 FROM v WHERE a = 1 AND b IS NULL").fetchall() == [(True,)]


def test_sets_of_sums_are_native(con: sqlfront.Connection) -> None:
    for query in ("SELECT a, b, sum(x) AS s, avg(x) AS m FROM r GROUP BY CUBE (a, b)", VIEWS["sums"], VIEWS["bits"]):
        explained = con.explain(query).to_dict()
        assert explained["cost"]["update"] == "O(1)"
        assert "grouping sets are a union" in explained["reason"]
    touched = con.explain("SELECT a, b, median(DISTINCT x) AS m FROM r GROUP BY GROUPING SETS ((a), (b))").to_dict()
    assert touched["cost"]["update"] == "O(1 + rows of the touched groups)"
    assert touched["reason"].count("median: DuckDB computes the groups that a change touches") == 1


def test_touched_groups_of_all_sets_are_computed_in_one_query_from_one_store(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO r SELECT i % 10, i // 10, i FROM range(200) t(i)")
    query = "SELECT a, b, median(DISTINCT x) AS m FROM r GROUP BY GROUPING SETS ((a), (b), (a, b))"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    engine = con.session.database.engine
    [node] = [node for node in engine.nodes.values() if isinstance(node, TouchedGroupsNode)]
    before, evaluate = node.rows_computed, engine.evaluate
    queries, handed = evaluate.queries, evaluate.rows
    con.execute("INSERT INTO r VALUES (3, 7, 1000)")
    assert node.rows_computed - before == evaluate.rows - handed == 21 + 11 + 2
    assert evaluate.queries - queries == 1


def test_a_column_may_be_called_as_the_number_of_a_set(con: sqlfront.Connection) -> None:
    con.execute('CREATE TABLE q ("grouping set" INTEGER, "Grouping Set_1" INTEGER)')
    query = 'SELECT "grouping set" AS s, median(DISTINCT "Grouping Set_1") AS m FROM q GROUP BY CUBE ("grouping set")'
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO q VALUES (0, 5), (1, 6), (NULL, 7)")
    assert same_bag(con.execute("FROM v").fetchall(), con.execute(query).fetchall())


def test_more_sets_than_a_union_may_have_branches_are_refused(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE TABLE wide ({', '.join(f'c{number} INTEGER' for number in range(9))})")
    columns = ", ".join(f"c{number}" for number in range(9))
    with pytest.raises(sqlfront.NotSupportedError, match="512 grouping sets"):
        con.execute(
            f"CREATE MATERIALIZED VIEW v AS SELECT {columns}, count(*) AS n FROM wide GROUP BY CUBE ({columns})"
        )
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []

"""Views that DuckDB computes on the changed rows of a join, or group by group: equal to their queries, always."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.output.touched_groups import TouchedGroupsNode
from sqlfront.sql.tokens import split
from tests.definition_oracle import same_bag
from tests.following import empty_and_drop, follow
from tests.slices import parts

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "computed"


def statements(name: str) -> list[str]:
    text = (FIXTURES / f"{name}.sql").read_text()
    return [text[start:end] for start, end in split(text)]


QUERIES = [*statements("views"), *statements("partners")]
PARTS = 4


def named(part: int) -> dict[str, str]:
    """One part of the queries, by the names of their views."""
    return {f"v{number}": query for number, query in enumerate(QUERIES[part::PARTS])}


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    for statement in statements("schema"):
        connection.execute(statement)
    yield connection
    connection.close()


def change(con: sqlfront.Connection, rng: random.Random) -> None:
    """One random statement: duplicates, NULLs, rows that change their group, and tables that become empty."""
    number = lambda: rng.choice(["NULL", "0", "1", "1", "2"])  # noqa: E731
    shop, day = number(), number()
    kind = rng.random()
    if kind < 0.5:
        rows = [
            f"({number()}, {number()}, {rng.choice(['NULL', repr('pen'), repr('ink')])}, "
            f"{rng.choice(['NULL', '1.25', '2', '-3.5'])}, {rng.choice(['NULL', '0.5', '4'])})"
            for _ in range(rng.randint(1, 4))
        ]
        con.execute(f"INSERT INTO sales VALUES {', '.join(rows + rows[:1])}")
    elif kind < 0.6:
        con.execute(f"INSERT INTO shops VALUES ({number()}, {rng.choice(['NULL', repr('Bonn'), repr('Ulm')])}, {day})")
    elif kind < 0.75:
        con.execute(f"UPDATE sales SET shop = {shop}, amount = amount + 1 WHERE day = {day}")
    elif kind < 0.8:
        con.execute(f"UPDATE shops SET size = size + 1 WHERE shop = {shop}")
    elif kind < 0.97:
        con.execute(f"DELETE FROM sales WHERE shop IS NOT DISTINCT FROM {shop} AND day IS NOT DISTINCT FROM {day}")
    else:
        con.execute("DELETE FROM sales")


def check(con: sqlfront.Connection, names: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
    found = {}
    for name, query in names.items():
        expected = con.execute(query).fetchall()
        found[name] = con.execute(f"SELECT * FROM {name}").fetchall()
        assert same_bag(found[name], expected), f"{query}\nfound    {found[name]}\nexpected {expected}"
    return found


@pytest.mark.parametrize("seed", parts(10 * PARTS))
def test_views_are_their_queries_after_each_change(con: sqlfront.Connection, seed: int) -> None:
    rng = random.Random(seed)
    names, steps = named(seed % PARTS), 40 if seed else 12
    for name, query in names.items():
        if rng.random() < 0.8:  # Some views are built over rows that are there already.
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for _ in range(5):
        change(con, rng)
    for name, query in names.items():
        con.execute(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {query}")
    changed = follow(con, steps, lambda: change(con, rng), lambda: check(con, names), undone=10)
    assert changed.keys() == names.keys()
    empty_and_drop(con, names, ("sales", "shops"), lambda: check(con, names))


@pytest.mark.parametrize("part", parts(PARTS))
def test_feeds_replayed_give_the_views(con: sqlfront.Connection, part: int) -> None:
    rng = random.Random(7)
    feeds: dict[str, tuple[Any, list[tuple[object, ...]]]] = {}
    for name, query in named(part).items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        rows = con.execute(f"SELECT * FROM {name}").fetchall()
        feeds[query] = con.view(name).subscribe(snapshot=False), rows
    for _ in range(8):
        change(con, rng)
        for query, (feed, rows) in feeds.items():
            for batch in iter(feed.poll, None):
                for *values, kind, _, _ in (tuple(row.values()) for row in batch.to_pylist()):
                    if kind in ("insert", "update_postimage"):
                        rows.append(tuple(values))
                    else:
                        rows.remove(tuple(values))
            assert same_bag(rows, con.execute(query).fetchall())


def test_distinct_rows_in_the_order_of_their_first_ones(con: sqlfront.Connection) -> None:
    """DuckDB leaves open which row a distinct one is ordered by: it is the first in the order."""
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT DISTINCT shop FROM sales ORDER BY day DESC LIMIT 2")
    first = "SELECT DISTINCT ON (shop) shop, day FROM sales ORDER BY day DESC, shop"
    rng = random.Random(5)
    for _ in range(20):
        change(con, rng)
        expected = con.execute(f"SELECT shop FROM ({first}) ORDER BY day DESC, shop LIMIT 2").fetchall()
        assert same_bag(con.execute("SELECT * FROM v").fetchall(), expected)
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_a_union_and_its_members_are_read(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE either (a INTEGER, u UNION(num INTEGER, str VARCHAR))")
    items = ("u.num AS n, u.str AS s", "u IS NULL AS k", "union_tag(u) AS k", "u::VARCHAR AS k", "u = 1 AS k")
    queries = [f"SELECT {item}, count(*) AS c FROM either GROUP BY ALL" for item in items]
    for number, query in enumerate(queries):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    con.execute("INSERT INTO either VALUES (1, 1), (2, 'x'), (3, NULL), (4, union_value(num := NULL::INTEGER)), (1, 1)")
    for number, query in enumerate(queries):
        assert same_bag(con.execute(f"SELECT * FROM v{number}").fetchall(), con.execute(query).fetchall())


def test_the_best_of_rows_that_tie(con: sqlfront.Connection) -> None:
    """DuckDB leaves open which it is; beside an aggregate that it computes, it is what it is elsewhere."""
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT arg_max(item, day), arg_min(item, day), mode(shop) FROM sales")
    con.execute("INSERT INTO sales (day, item) VALUES (1, 'b'), (1, 'c'), (1, 'a'), (1, NULL), (NULL, 'd')")
    assert con.execute("SELECT * FROM v").fetchall() == [("c", "a", None)]
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_a_view_keeps_the_macros_of_the_plain_views_that_it_reads(con: sqlfront.Connection) -> None:
    con.execute("CREATE MACRO raised(x, y := 2) AS x + y")
    con.execute("CREATE VIEW plain AS SELECT shop, raised(day) AS day, raised(day, y := 5) AS late FROM sales")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM plain")
    con.execute("CREATE OR REPLACE MACRO raised(x, y := 2) AS x * y")
    con.execute("INSERT INTO sales VALUES (1, 10, 'pen', 1, 1)")
    assert con.execute("SELECT * FROM v").fetchall() == [(1, 12, 15)]
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_explain_says_what_is_computed_and_at_what_cost(con: sqlfront.Connection) -> None:
    explanation = con.explain("SELECT shop, median(DISTINCT amount) AS m FROM sales GROUP BY shop")
    assert explanation.to_dict()["shape"] == "dataflow"
    assert explanation.to_dict()["tasks"] == {}
    assert explanation.to_dict()["cost"]["update"] == "O(1 + rows of the touched groups)"
    assert "median: DuckDB computes the groups that a change touches" in str(explanation)
    whole = con.explain("SELECT median(DISTINCT amount) AS m FROM sales").to_dict()
    assert whole["cost"]["update"] == "O(N)"
    joined = "SELECT amount * size AS w, count(*) AS n FROM sales JOIN shops USING (shop) GROUP BY 1"
    assert "touched" not in con.explain(joined).to_dict()["cost"]["update"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT shop, median(DISTINCT day) AS m FROM sales GROUP BY shop",
        "SELECT shop, list(day) OVER (PARTITION BY shop ORDER BY day) AS r FROM sales",
    ],
)
def test_a_change_costs_the_rows_of_its_group_whatever_else_there_is(query: str) -> None:
    found = {}
    for shops in (10, 100, 1000):
        con = sqlfront.connect()
        con.execute("CREATE TABLE sales (shop INTEGER, day INTEGER)")
        con.execute(f"INSERT INTO sales SELECT i % {shops}, i FROM range({20 * shops}) t(i)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        before = con.view("v").cost()["steps"]
        con.execute("INSERT INTO sales VALUES (3, 1)")
        found[shops] = con.view("v").cost()["steps"] - before
        con.close()
    assert min(found.values()) >= 21, found  # The group has 21 rows.
    assert max(found.values()) <= 1.5 * min(found.values()), found  # Probes of hash tables differ by chance.


HANDED = {
    "groups": ("SELECT shop, median(DISTINCT amount) AS m FROM sales GROUP BY shop", 21, 1),
    "wide lists": ("SELECT shop, list(day::HUGEINT ORDER BY day) AS l FROM sales GROUP BY shop", 21, 1),
    "partitions": ("SELECT shop, day, list(day) OVER (PARTITION BY shop ORDER BY day) AS s FROM sales", 21, 1),
    "filtered partitions": ("SELECT shop, day FROM sales QUALIFY day > median(day) OVER (PARTITION BY shop)", 21, 1),
    "partitions of which no column is read": (
        "SELECT count(*) AS n FROM (SELECT median(shop) OVER (PARTITION BY day) AS s FROM sales) WHERE s > 4",
        11,
        1,
    ),
    "groups of several sets": (
        "SELECT shop, day, median(DISTINCT amount) AS m FROM sales GROUP BY GROUPING SETS ((shop), (shop, day))",
        21 + 2,
        1,
    ),
    "groups of groups": (
        "SELECT shop, median(DISTINCT m) AS k FROM (SELECT shop, item, median(DISTINCT day) AS m FROM sales "
        "GROUP BY shop, item) GROUP BY shop",
        21 + 1,
        2,
    ),
    "an expression over a join": (
        "SELECT day % (size + 1) AS k, count(*) AS n FROM sales JOIN shops USING (shop) GROUP BY k",
        1,
        1,
    ),
    "an expression over a join that a program computes": (
        "SELECT greatest(day, size) - 2 * day AS k, CASE WHEN day > size THEN item ELSE city END AS t, count(*) AS n "
        "FROM sales JOIN shops USING (shop) GROUP BY k, t",
        0,
        0,
    ),
    "a left join": ("SELECT sales.shop, day, size FROM sales LEFT JOIN shops USING (shop)", 0, 0),
    "an anti-join": ("SELECT shop, day FROM sales WHERE NOT EXISTS (FROM shops WHERE shops.shop = sales.shop)", 0, 0),
}
"""Queries with the rows, at most, that DuckDB gets for a new row of one shop, and the queries that it is asked."""


@pytest.mark.parametrize("kind", HANDED)
def test_duckdb_gets_the_rows_of_the_touched_groups_in_one_query_of_each_node(
    con: sqlfront.Connection, kind: str
) -> None:
    query, rows, queries = HANDED[kind]
    con.execute("INSERT INTO sales SELECT i % 10, i // 10, 'pen', i, i FROM range(200) AS t(i)")
    con.execute("INSERT INTO shops SELECT i, 'Ulm', i FROM range(10) AS t(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    evaluate = con.session.database.engine.evaluate
    found = []
    for day in (30, 7, 31):  # The first change tells the types of columns.
        before, asked = evaluate.rows, evaluate.queries
        con.execute(f"INSERT INTO sales VALUES (3, {day}, 'pen', 1000, 1)")
        found.append((evaluate.rows - before, evaluate.queries - asked))
        assert same_bag(con.execute("FROM v").fetchall(), con.execute(query).fetchall())
        con.execute("DELETE FROM sales WHERE shop = 3 AND amount = 1000")
    assert all(handed <= rows and asked <= queries for handed, asked in found[1:]), found
    assert found[1][0] > 0 or not rows


def test_the_rows_of_a_shared_term_are_kept_once(con: sqlfront.Connection) -> None:
    groups = "SELECT shop, item, count(*) AS n FROM sales GROUP BY shop, item"
    listed = "SELECT shop, len(list(n::HUGEINT ORDER BY n)) FROM q GROUP BY shop"
    query = f"SELECT shop, median(DISTINCT n) AS m FROM q GROUP BY shop UNION ALL {listed}"
    con.execute(f"CREATE MATERIALIZED VIEW v AS WITH q AS ({groups}) {query}")
    nodes = [node for node in con.session.database.engine.nodes.values() if isinstance(node, TouchedGroupsNode)]
    assert len(nodes) == 2 and len({id(node.kept.store) for node in nodes}) == 1


def test_a_row_that_cannot_be_computed_refuses_the_epoch(con: sqlfront.Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT shop, sum(day // size) AS q FROM sales JOIN shops USING (shop) "
                "GROUP BY shop")  # fmt: skip
    con.execute("INSERT INTO shops VALUES (1, 'Ulm', 2); INSERT INTO sales VALUES (1, 1, 'pen', 3, 1)")
    before = con.execute("SELECT * FROM v").fetchall()
    with pytest.raises(sqlfront.DataError, match=r"[Dd]ivision by zero"):
        con.execute("INSERT INTO shops VALUES (1, 'Bonn', 0)")
    assert con.execute("SELECT * FROM v").fetchall() == before
    assert con.execute("SELECT count(*) FROM shops").fetchall() == [(1,)]


@pytest.mark.parametrize("part", parts(PARTS))
def test_a_file_opened_again_has_the_views(tmp_path: Path, part: int) -> None:
    rng = random.Random(11)
    con = sqlfront.connect(tmp_path / "shops.duckdb")
    for statement in statements("schema"):
        con.execute(statement)
    names = named(part)
    for name, query in names.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for _ in range(3):
        change(con, rng)
    con.close()
    con = sqlfront.connect(tmp_path / "shops.duckdb")
    for _ in range(3):
        change(con, rng)
        check(con, names)
    assert not any(con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() for name in names)
    con.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM moods WHERE m = CAST('ok' AS mood)",
        "SELECT a, TRY_CAST(m::VARCHAR AS mood) IS NOT DISTINCT FROM greatest(m, 'ok'::mood) AS f FROM moods",
        "SELECT a, list(m ORDER BY m) FILTER (WHERE m < ANY ([mood 'happy'])) AS l FROM moods GROUP BY a",
        "SELECT a, m, p FROM moods, (VALUES (row('sad', 1)::pair)) AS v(p) WHERE p.m <> moods.m",
    ],
)
def test_types_of_the_user_are_known_wherever_views_are_computed(con: sqlfront.Connection, query: str) -> None:
    con.execute("CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'ok', 'happy')")
    con.execute("CREATE TYPE pair AS STRUCT(m mood, n INTEGER)")
    con.execute("CREATE TABLE moods (a INTEGER, m mood)")
    con.execute("INSERT INTO moods VALUES (1, 'ok')")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO moods VALUES (1, 'happy'), (2, 'sad'), (2, NULL), (3, 'ok'), (3, 'ok')")
    con.execute("DELETE FROM moods WHERE a = 1")
    assert same_bag(con.execute("SELECT * FROM v").fetchall(), con.execute(query).fetchall())
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT shop, list(DISTINCT day ORDER BY day DESC) AS days FROM sales GROUP BY shop",
        "SELECT shop, string_agg(DISTINCT item, '-' ORDER BY item) AS items FROM sales GROUP BY shop",
        "SELECT shop, list_sort(list(DISTINCT item) OVER (PARTITION BY shop ORDER BY day)) AS items FROM sales",
    ],
)
def test_distinct_values_are_ordered_by_themselves(con: sqlfront.Connection, query: str) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    rng = random.Random(query)
    for _ in range(8):
        change(con, rng)
        check(con, {"v": query})
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT shop FROM sales WHERE CAST(NULL AS DATE) IS NULL",
        "SELECT shop, sum(day) FILTER (WHERE NULL::INTEGER IS NOT NULL) AS s FROM sales GROUP BY shop",
        "SELECT shop, max(day) FILTER (WHERE TRY_CAST('x' AS INTEGER) IS NOT NULL) AS m FROM sales GROUP BY shop",
        "SELECT day FROM sales WHERE CAST(NULL AS INTEGER) NOT IN (SELECT size FROM shops)",
        "SELECT day FROM sales WHERE TRY_CAST('x' AS INTEGER) NOT IN (SELECT size FROM shops)",
        "SELECT s.day, t.size FROM sales s JOIN shops t ON s.day IS DISTINCT FROM t.size",
        "SELECT city, count(*) AS n, sum(day) AS d FROM sales s, shops t WHERE s.item IS DISTINCT FROM city GROUP BY 1",
        "SELECT s.day, t.size FROM sales s LEFT JOIN shops t ON s.shop = t.shop AND s.day IS DISTINCT FROM t.size",
        "SELECT day FROM sales s WHERE EXISTS (SELECT 1 FROM shops t WHERE t.size IS DISTINCT FROM s.day)",
    ],
)
def test_nulls_are_told_from_values(con: sqlfront.Connection, query: str) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    rng = random.Random(query)
    for _ in range(25):
        change(con, rng)
        check(con, {"v": query})

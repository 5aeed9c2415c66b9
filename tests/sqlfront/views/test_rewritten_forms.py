"""Views over constant rows, pivots and shares of rows are their queries after every change, and in a reopened file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqlfront
from tests.following import empty_and_drop, follow
from tests.slices import parts
from tests.sqlfront.views.test_computed_views import change, check, statements

FILES = ("constants", "pivots", "shares")
QUERIES = [query for file in FILES for query in statements(file)]
PARTS = 6


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    for statement in statements("schema"):
        connection.execute(statement)
    yield connection
    connection.close()


def create(con: sqlfront.Connection, part: int) -> dict[str, str]:
    """Create the views of one part of the queries; their queries by their names."""
    names = {f"v{number}": query for number, query in enumerate(QUERIES[part::PARTS])}
    for name, query in names.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return names


@pytest.mark.parametrize("seed", parts(4 * PARTS))
def test_views_are_their_queries_after_each_change(con: sqlfront.Connection, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        change(con, rng)
    names = create(con, seed % PARTS)
    changed = follow(con, 6, lambda: change(con, rng), lambda: check(con, names))
    assert len(changed) >= len(names) / 2
    empty_and_drop(con, names, ("sales", "shops"), lambda: check(con, names))


@pytest.mark.parametrize("part", parts(PARTS))
def test_constant_rows_outlive_the_process(tmp_path: Path, part: int) -> None:
    rng = random.Random(part)
    with sqlfront.connect(tmp_path / "a.duckdb") as con:
        for statement in statements("schema"):
            con.execute(statement)
        names = create(con, part)
    with sqlfront.connect(tmp_path / "a.duckdb") as con:
        check(con, names)
        change(con, rng)
        for name, query in list(names.items())[::3]:
            con.execute(f"REFRESH MATERIALIZED VIEW {name}")
            con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}")
        change(con, rng)
        check(con, names)


def test_explain_says_that_the_rows_are_constant(con: sqlfront.Connection) -> None:
    explanation = con.explain("SELECT item, x FROM sales JOIN (VALUES (1, 2), (2, 3)) v(shop, x) USING (shop)")
    assert "v: the rows are constant; DuckDB computes them when the view is built" in str(explanation)
    assert "constant rows: no change reaches them" in str(explanation)


def test_a_view_that_reads_no_table_follows_none(con: sqlfront.Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s FROM (VALUES (1), (2)) v(x)")
    con.execute("INSERT INTO sales VALUES (1, 1, 'pen', 1, 1)")
    assert con.execute("SELECT * FROM v").fetchall() == [(3,)]
    assert con.view("v").cost()


def test_constant_rows_keep_the_settings_of_their_view(con: sqlfront.Connection) -> None:
    con.execute("SET TimeZone = 'America/New_York'")
    query = "SELECT x FROM (VALUES (TIMESTAMPTZ '2020-01-01 00:00:00'::VARCHAR), ('now and then')) v(x)"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    rows = sorted(con.execute(query).fetchall())
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert sorted(con.execute("SELECT * FROM v").fetchall()) == rows
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_a_view_keeps_what_its_macros_said(tmp_path: Path) -> None:
    with sqlfront.connect(tmp_path / "a.duckdb") as con:
        con.execute("CREATE TABLE r (a INTEGER); INSERT INTO r VALUES (1), (5), (NULL)")
        con.execute("CREATE MACRO more(x) AS x + 1; CREATE MACRO above(k) AS TABLE SELECT a FROM r WHERE a > k")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT more(a), more(more(a)) AS b FROM above(2)")
        con.execute("CREATE OR REPLACE MACRO more(x) AS x + 10; DROP MACRO TABLE above")
    with sqlfront.connect(tmp_path / "a.duckdb") as con:
        con.execute("REFRESH MATERIALIZED VIEW v")
        con.execute("INSERT INTO r VALUES (3), (2)")
        assert sorted(con.execute("SELECT * FROM v").fetchall()) == [(4, 5), (6, 7)]
        assert [column[0] for column in con.execute("SELECT * FROM v").description] == ["more(a)", "b"]
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_macros_over_change_tables_and_views(con: sqlfront.Connection) -> None:
    """Neither has a plan that DuckDB writes down, by which it confirms a macro's text."""
    con.execute("CREATE CHANGE TABLE c (k INTEGER, x INTEGER); INSERT INTO c VALUES (1, 2), (1, 8), (2, 5)")
    con.execute("CREATE MACRO more(x) AS x + 1; CREATE MACRO above(n) AS TABLE SELECT k, x FROM c WHERE x > n")
    con.execute("CREATE MATERIALIZED VIEW sums AS SELECT k, sum(x)::INTEGER AS x FROM c GROUP BY k")
    con.execute("CREATE MATERIALIZED VIEW listed AS SELECT k, json_group_array(x) AS xs FROM c GROUP BY k")
    con.execute("CREATE MATERIALIZED VIEW over_both AS SELECT k, geomean(c.x), more(max(v.x)) AS b FROM c JOIN sums v "
                "USING (k) GROUP BY k")  # fmt: skip
    con.execute("CREATE MATERIALIZED VIEW of_macro AS SELECT more(x) AS y FROM above(4)")
    con.execute("INSERT INTO c VALUES (2, 20)")
    assert sorted(con.execute("FROM over_both").fetchall()) == [
        (1, pytest.approx(4.0), 11),
        (2, pytest.approx(10.0), 26),
    ]
    assert sorted(con.execute("FROM listed").fetchall()) == [(1, "[2,8]"), (2, "[20,5]")]
    assert sorted(con.execute("FROM of_macro").fetchall()) == [(6,), (9,), (21,)]


def test_a_macro_that_calls_itself_in_turn_is_refused(con: sqlfront.Connection) -> None:
    con.execute("CREATE MACRO f(x) AS x; CREATE MACRO g(x) AS f(x)")
    con.execute("CREATE OR REPLACE MACRO f(x) AS g(x)")
    with pytest.raises(sqlfront.Error):
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT f(shop) FROM sales")
    assert not con.session.database.engine.nodes


def test_a_query_that_is_nested_too_deeply_is_refused(con: sqlfront.Connection) -> None:
    text = "SELECT * FROM (" * 900 + "SELECT shop FROM sales" + ")" * 900
    with pytest.raises(sqlfront.Error, match="nested"):
        con.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    assert not con.session.database.engine.nodes

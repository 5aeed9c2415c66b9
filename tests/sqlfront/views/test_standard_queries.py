"""Every query of TPC-H and TPC-DS is a view that equals its query after each change of its tables."""

from __future__ import annotations

import pytest

import sqlfront
from sqlfront.cut.view_query import bind_view
from tests.catalogs import WithoutMacros
from tests.sqlfront.standard_rows import StandardRows, queries_of

TPCH = queries_of("tpch")
TPCDS = queries_of("tpcds")
IN_SLICE = 16
"""Of the queries of TPC-DS every sixteenth is followed in the ordinary run, all when slow tests run."""


def follows(benchmark: str, name: str, epochs: int, seed: int = 0) -> int:
    """Change the tables that a query reads, compare its view after each change, then empty them; how many of the
    changes left rows in the view."""
    rows = StandardRows(benchmark, epochs + sum(map(ord, name)) + 1000 * seed)
    con = sqlfront.connect()
    con.execute(rows.schema)
    query = queries_of(benchmark)[name]
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    tables, filled = rows.tables_of(con, query), 0
    for table in tables * 2:
        rows.change(con, table)
    for epoch in range(epochs):
        rows.change(con, tables[epoch % len(tables)])
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == [], f"{name}, after epoch {epoch}"
        filled += con.view("v").count() > 0
    for table in tables:
        con.execute(f"DELETE FROM {table}")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == [], f"{name}, when all tables were emptied"
    con.close()
    return filled


@pytest.mark.parametrize("name", TPCH)
def test_tpch(name):
    follows("tpch", name, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", TPCH)
def test_tpch_in_many_epochs(name):
    assert any(follows("tpch", name, 60, seed) for seed in range(4))  # Few random rows pass the filters of some.


@pytest.mark.parametrize("name", list(TPCDS)[::IN_SLICE])
def test_tpcds(name):
    follows("tpcds", name, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", TPCDS)
def test_tpcds_in_many_epochs(name):
    follows("tpcds", name, 20)


@pytest.mark.parametrize(("benchmark", "number"), [("tpch", 22), ("tpcds", 99)])
def test_every_query_is_accepted(benchmark, number):
    queries = queries_of(benchmark)
    assert len(queries) == number
    with sqlfront.connect() as con:
        con.execute(StandardRows(benchmark, 0).schema)
        catalog = WithoutMacros(con.session.duck)
        for query in queries.values():
            bind_view(query, con.session.duck, catalog)

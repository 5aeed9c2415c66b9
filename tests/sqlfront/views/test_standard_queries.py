"""Every query of TPC-H and TPC-DS is a view that equals its query after each change of its tables."""

from __future__ import annotations

import pytest

import sqlfront
from sqlfront.cut.view_query import bind_view
from tests.sqlfront.standard_rows import StandardRows

TPCH = sorted(StandardRows("tpch", 0).queries)
TPCDS = sorted(StandardRows("tpcds", 0).queries)
IN_SLICE = 8
"""Of the queries of TPC-DS every eighth is followed in the ordinary run, all when slow tests run."""


def follows(benchmark: str, name: str, epochs: int) -> int:
    """Change the tables that a query reads, compare its view after each change, then empty them; how many of the
    changes left rows in the view."""
    rows = StandardRows(benchmark, epochs + sum(map(ord, name)))
    con = sqlfront.connect()
    con.execute(rows.schema)
    query = rows.queries[name]
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
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == [], f"{name}, when {table} was emptied"
    con.close()
    return filled


@pytest.mark.parametrize("name", TPCH)
def test_tpch(name):
    follows("tpch", name, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TPCH)
def test_tpch_in_many_epochs(name):
    assert follows("tpch", name, 60) > 0


@pytest.mark.parametrize("name", TPCDS[::IN_SLICE])
def test_tpcds(name):
    follows("tpcds", name, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", TPCDS)
def test_tpcds_in_many_epochs(name):
    follows("tpcds", name, 20)


def test_every_query_is_accepted():
    for benchmark, number in (("tpch", 22), ("tpcds", 99)):
        rows = StandardRows(benchmark, 0)
        con = sqlfront.connect()
        con.execute(rows.schema)
        assert len(rows.queries) == number
        for query in rows.queries.values():
            bind_view(query, con.session.duck)

"""Every query of TPC-H and TPC-DS is a view that equals its query after each change of its tables."""

from __future__ import annotations

import pytest

import sqlfront
from tests.sqlfront.standard_rows import StandardRows

TPCH = sorted(StandardRows("tpch", 0).queries)
TPCDS = sorted(StandardRows("tpcds", 0).queries)


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
    assert follows("tpch", name, 12) >= 0


@pytest.mark.parametrize("name", TPCDS)
def test_tpcds(name):
    assert follows("tpcds", name, 3) >= 0

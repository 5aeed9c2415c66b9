"""unnest in the SELECT list: rows, columns and their names are DuckDB's, after each change."""

from __future__ import annotations

import pytest

import sqlfront

NESTED = "[{'p': {'q': a, 's': 'x'}, 'r': l}, NULL]"
QUERIES = [
    "SELECT unnest({'p': {'q': a}, 'r': l}) FROM t",
    "SELECT unnest({'p': {'q': a}, 'r': l}, recursive := true) FROM t",
    "SELECT unnest({'p': {'q': a}, 'r': l}, recursive := true, keep_parent_names := true) FROM t",
    f"SELECT a, unnest({NESTED}) FROM t",
    f"SELECT a, unnest({NESTED}, max_depth := 2) FROM t",
    f"SELECT a, unnest({NESTED}, recursive := true) FROM t",
    "SELECT unnest([l, NULL, [], [a]], recursive := true) AS e, unnest([1, 2, 3]) AS n FROM t",
    "SELECT unnest([[l], [[a]]], max_depth := 2) AS e FROM t",
    "SELECT q, count(*) AS n FROM (SELECT unnest([{'q': a}, {'q': 1}], recursive := true) FROM t) GROUP BY q",
    "SELECT unnest(row(a, l)) FROM t",
]


@pytest.mark.parametrize("query", QUERIES)
def test_unnest_unfolds_as_duckdb_does(query: str) -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a INTEGER, l INTEGER[])")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.execute("DESCRIBE v").fetchall() == con.execute(f"DESCRIBE {query}").fetchall()
    con.execute("INSERT INTO t VALUES (1, [5, NULL]), (NULL, []), (2, NULL), (1, [5, NULL])")
    con.execute("DELETE FROM t WHERE a = 2")
    assert sorted(con.execute("FROM v").fetchall(), key=str) == sorted(con.execute(query).fetchall(), key=str)
    con.execute("DELETE FROM t")
    assert con.execute("FROM v").fetchall() == []

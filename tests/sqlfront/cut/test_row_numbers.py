"""The first rows of each group by a filter on a subquery's row numbers: the same view as with QUALIFY."""

from __future__ import annotations

import random
from typing import Any

import pytest

import sqlfront

WINDOW = "row_number() OVER (PARTITION BY g ORDER BY w DESC, k)"
SAME = {
    f"SELECT g, k FROM (SELECT g, k, {WINDOW} AS n FROM t) AS q WHERE n <= 3": (
        f"SELECT g, k FROM t QUALIFY {WINDOW} <= 3"
    ),
    f"SELECT q.k AS key, g FROM (SELECT *, {WINDOW} n FROM t WHERE w > 1) q WHERE 3 > q.n": (
        f'SELECT k AS "key", g FROM t WHERE w > 1 QUALIFY {WINDOW} < 3'
    ),
    f"SELECT * EXCLUDE (n) FROM (SELECT t.*, t.w + 1 AS more, {WINDOW} AS n FROM t) WHERE n = 1": (
        f'SELECT t.*, t.w + 1 AS "more" FROM t QUALIFY {WINDOW} = 1'
    ),
    f"WITH q AS (SELECT k, CASE WHEN w > 1 THEN g ELSE k END AS c, {WINDOW} AS n FROM t) SELECT c FROM q WHERE n < 2": (
        f'SELECT CASE WHEN w > 1 THEN g ELSE k END AS "c" FROM t QUALIFY {WINDOW} < 2'
    ),
}
ACCEPTED = [
    f"SELECT g FROM (SELECT g, {WINDOW} AS n FROM t) WHERE n <= 3 AND g > 1",
    f"SELECT g + 1 FROM (SELECT g, {WINDOW} AS n FROM t) WHERE n <= 3",
    f"SELECT DISTINCT g FROM (SELECT g, {WINDOW} AS n FROM t) WHERE n <= 3",
    f"SELECT g FROM (SELECT g, {WINDOW} AS n FROM t) WHERE n <= 3 ORDER BY g",
    f"SELECT k AS w FROM (SELECT k, {WINDOW} AS n FROM t) WHERE n <= 3",
    f"SELECT g FROM (SELECT g, {WINDOW} AS n FROM t) WHERE n > 1",
]
COMPUTED = [
    f"SELECT g, n FROM (SELECT g, {WINDOW} AS n FROM t) WHERE n <= 3",
    f"SELECT * FROM (SELECT g, {WINDOW} AS n FROM t) WHERE n <= 3",
    "SELECT g FROM (SELECT g, ntile(2) OVER (ORDER BY w) AS n FROM t) WHERE n <= 3",
]


@pytest.mark.parametrize("query", [*SAME, *ACCEPTED])
def test_views_are_what_duckdb_answers(query: str) -> None:
    """The view, under changes, against DuckDB's own answer to the query as it was written."""
    rng = random.Random(7)
    con: Any = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE t (k BIGINT, g BIGINT, w BIGINT)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    names = [column[0] for column in con.execute("SELECT * FROM v").description]
    assert names == [column[0] for column in con.execute(query).description]
    seen = set()
    for key in range(12):
        con.execute(f"INSERT INTO t VALUES ({key}, {rng.randrange(3)}, {rng.randrange(5)})")
        if rng.random() < 0.4:
            con.execute(f"DELETE FROM t WHERE w = {rng.randrange(5)}")
        rows = con.execute("SELECT * FROM v ORDER BY ALL").fetchall()
        assert rows == con.execute(f"SELECT * FROM ({query}) ORDER BY ALL").fetchall()
        seen.add(tuple(rows))
    assert len(seen) > 3
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    con.close()


@pytest.mark.parametrize("query", SAME)
def test_both_spellings_are_one_view(query: str) -> None:
    con: Any = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE t (k BIGINT, g BIGINT, w BIGINT)")
    found, same = (con.explain(text).to_dict() for text in (query, SAME[query]))
    assert (found["strategy"] == "ranked enumeration") == ("n = 1" in query or "n < 2" in query)
    assert (found["strategy"], found["cost"]) == (same["strategy"], same["cost"])
    con.close()


@pytest.mark.parametrize("query", COMPUTED)
def test_other_windows_are_computed(query: str) -> None:
    con: Any = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE t (k BIGINT, g BIGINT, w BIGINT)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO t SELECT i, i % 3, i * 7 % 11 FROM range(11) r(i)")
    assert sorted(con.execute("FROM v").fetchall()) == sorted(con.execute(query).fetchall())
    assert "OVER" in con.explain("v").to_dict()["reason"]
    con.close()

"""Constants that are NULL without saying so in one word: views over them are DuckDB's answers."""

from __future__ import annotations

from collections import Counter

import pytest

import sqlfront

NULLS = ("CAST(NULL AS INT)", "TRY_CAST('x' AS INT)", "NULL + 1", "nullif(1, 1)")
QUERIES = (
    "SELECT w FROM f WHERE k IS NOT DISTINCT FROM {}",
    "SELECT w FROM f WHERE NOT ({} IS DISTINCT FROM k)",
    "SELECT sum(w) AS s FROM f WHERE k IS DISTINCT FROM {}",
    "SELECT sum({}) AS s, count({}) AS n, max({}) AS m FROM f",
    "SELECT f.k, g.w FROM f LEFT JOIN g ON f.k = g.k WHERE g.w IS NOT DISTINCT FROM {}",
    "SELECT f.k FROM f JOIN g ON f.k IS NOT DISTINCT FROM g.k AND g.k IS NOT DISTINCT FROM {}",
    "SELECT k FROM f WHERE k NOT IN (1, {})",
    "SELECT k FROM f EXCEPT SELECT {} FROM g",
)


@pytest.fixture(scope="module")
def con():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE f(k INTEGER, w INTEGER); CREATE TABLE g(k INTEGER, w INTEGER)")
        yield con


@pytest.mark.parametrize("query", QUERIES)
def test_views_are_their_queries(con, query):
    con.execute("DELETE FROM f; DELETE FROM g; INSERT INTO f VALUES (5, 2); INSERT INTO g VALUES (5, NULL)")
    texts = {f"v{number}": query.replace("{}", null) for number, null in enumerate(NULLS)}
    for name, text in texts.items():
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {text}")
    for statement in (
        "INSERT INTO f VALUES (NULL, 1), (NULL, NULL)",
        "INSERT INTO g VALUES (NULL, 3)",
        "DELETE FROM g",
    ):
        con.execute(statement)
        for name, text in texts.items():
            found, expected = con.execute(f"FROM {name}").fetchall(), con.session.duck.execute(text).fetchall()
            assert Counter(found) == Counter(expected), text

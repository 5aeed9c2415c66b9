"""QUALIFY rank() and dense_rank(): rows that tie with the last one are kept too."""

from __future__ import annotations

import random
from collections import Counter

import sqlfront
from tests.following import take

QUERIES = [
    "SELECT g, a, b FROM r QUALIFY rank() OVER (ORDER BY a DESC) <= 3",
    "SELECT g, a, b FROM r QUALIFY rank() OVER (PARTITION BY g ORDER BY a, b) <= 2",
    "SELECT g, a, x FROM r JOIN s USING (b) "
    "QUALIFY dense_rank() OVER (PARTITION BY g ORDER BY a + x DESC NULLS FIRST) < 3",
    "SELECT g, count(*) AS n, sum(a) AS t FROM r GROUP BY g QUALIFY rank() OVER (ORDER BY n DESC) = 1",
    "SELECT g, a FROM r QUALIFY rank() OVER () <= 3",
    "WITH q AS (SELECT g, a, rank() OVER (PARTITION BY g ORDER BY a) AS n FROM r) SELECT g, a FROM q WHERE n <= 2",
    "SELECT s.x, q.a FROM s JOIN (SELECT b, a FROM r QUALIFY rank() OVER (PARTITION BY b ORDER BY a) = 1) q USING (b)",
    "SELECT s.x, q.a FROM s, LATERAL (SELECT a FROM r WHERE r.b = s.b QUALIFY rank() OVER (ORDER BY a) = 1) q",
]


def change(rng: random.Random) -> str:
    value = lambda: rng.choice(["NULL", "0", "1", "1", "2", "3"])  # noqa: E731
    return rng.choice(
        [f"INSERT INTO r VALUES ({value()}, {value()}, {value()})"] * 4
        + [f"INSERT INTO s VALUES ({value()}, {rng.choice(['NULL', '0.5', '1.5', '2.5'])})"] * 3
        + [f"DELETE FROM r WHERE a = {value()}", f"DELETE FROM s WHERE b = {value()}"]
        + [f"UPDATE r SET a = {value()} WHERE g = {value()}"]
    )


def test_views_and_feeds_follow_duckdb() -> None:
    rng, con = random.Random(1), sqlfront.connect()
    con.execute("CREATE TABLE r (g INTEGER, a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, x DOUBLE)")
    for number, query in enumerate(QUERIES):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    feeds = [con.view(f"v{number}").subscribe(timeout=0) for number in range(len(QUERIES))]
    followed: list[Counter] = [Counter() for _ in QUERIES]
    most = Counter()
    for _ in range(11):
        con.execute(change(rng))
        for number, query in enumerate(QUERIES):
            wanted = Counter(con.execute(query).fetchall())
            assert Counter(con.execute(f"FROM v{number}").fetchall()) == wanted, query
            assert con.execute(f"CHECK MATERIALIZED VIEW v{number}").fetchall() == []
            take(feeds[number], followed[number])
            assert +followed[number] == wanted, query
            most[number] = max(most[number], wanted.total())
    assert most[0] > 3, "nothing has tied"
    con.close()


def test_explain_says_that_they_are_sorted() -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE r (g INTEGER, a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, x DOUBLE)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES[2]}")
    [order] = con.explain("v").to_dict()["orders"]
    assert order["strategy"] == "sorted when read" and "tie" in order["reason"]
    query = "SELECT a FROM r QUALIFY rank() OVER (ORDER BY a) = 2"
    con.execute(f"CREATE MATERIALIZED VIEW w AS {query}")
    con.execute("INSERT INTO r VALUES (1, 1, 1), (1, 2, 1), (1, 2, 2), (1, 3, 1)")
    assert con.execute("FROM w").fetchall() == con.execute(query).fetchall() == [(2,), (2,)]
    con.close()

"""Equalities of DOUBLE with a class of integers: not transitive with it, for DOUBLE rounds."""

from __future__ import annotations

from random import Random

import pytest

import sqlfront
from tests.definition_oracle import same_bag

QUERIES = [
    "SELECT r.a, count(*) FROM r, t, u WHERE r.a = t.a AND t.a = u.k AND r.f = r.a AND u.k = r.f GROUP BY r.a",
    "SELECT t.a, u.k FROM r, t, u WHERE t.a = u.k AND u.k = r.f",
    "SELECT t.a, r.f FROM r, t, u WHERE r.f = u.k AND u.k = t.a AND t.a = r.a",
]


@pytest.mark.parametrize("query", QUERIES)
def test_views_equal_their_queries(query: str) -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a BIGINT, f DOUBLE); CREATE TABLE t (a BIGINT); CREATE TABLE u (k INTEGER)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        random, shown = Random(3), 0
        whole = lambda: random.choice(["NULL", "1", "2", "9007199254740993"])  # noqa: E731
        for _ in range(12):
            real = random.choice(["NULL", "1", "2", "9007199254740992.0", "2.5"])
            con.execute(f"INSERT INTO r VALUES ({whole()}, {real}), (1, 1), (2, 2)")
            con.execute(f"INSERT INTO t VALUES ({whole()}); INSERT INTO u VALUES ({random.choice(['NULL', '1', '2'])})")
            con.execute(f"DELETE FROM t WHERE a = {whole()} AND {random.choice(['true', 'false', 'false'])}")
            expected = con.execute(query).fetchall()
            assert same_bag(con.execute("FROM v").fetchall(), expected)
            shown += len(expected)
        assert shown > 10
        con.execute("DELETE FROM r")
        assert con.execute("FROM v").fetchall() == []

"""Aggregates inside a subquery that are those of the block around it, as all their columns are the block's."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront

QUERIES = {
    "exists": "SELECT o.k FROM o GROUP BY o.k HAVING EXISTS (FROM o p WHERE p.k = o.k AND p.q > sum(o.q) / 2)",
    "having": "SELECT o.k FROM o GROUP BY o.k HAVING (SELECT count(*) FROM o p WHERE p.q >= min(o.q)) % 2 = 1",
    "item": "SELECT o.k, count(*) AS c, (SELECT max(p.q) FROM o p WHERE p.m < sum(o.q) AND p.k = o.k) AS n "
    "FROM o GROUP BY o.k",
    "one group": "SELECT (SELECT count(*) FROM o p WHERE p.q > avg(o.q)) AS n FROM o",
    "no table inside": "SELECT (SELECT sum(o.q)) AS n FROM o",
    "order": "SELECT o.k FROM o GROUP BY o.k ORDER BY (SELECT sum(o.q)) DESC, o.k LIMIT 2",
    "in": "SELECT o.k FROM o GROUP BY o.k HAVING max(o.q) IN (SELECT p.m + min(o.m) FROM o p)",
    "in, compared alone": "SELECT o.k FROM o GROUP BY o.k HAVING (count(*), max(o.q)) IN (SELECT m, q FROM o)",
    "two levels": "SELECT o.k, (SELECT (SELECT count(*) FROM o q WHERE q.q > sum(o.q) AND q.k = p.k) FROM o p "
    "WHERE p.id = max(o.id)) AS n FROM o GROUP BY o.k",
    "of both blocks": "SELECT o.k, (SELECT sum(p.q + o.k) FROM o p WHERE p.m = o.k) AS n FROM o GROUP BY o.k",
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_aggregate_is_that_of_the_group_around(name: str) -> None:
    rng, changed, before = random.Random(name), 0, None
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE o (id BIGINT PRIMARY KEY, m INTEGER, k INTEGER, q INTEGER)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES[name]}")
        for number in range(45):
            if rng.random() < 0.75:
                row = (number, rng.randrange(6), rng.randrange(3), rng.choice([None, 1, 2, 3, 9, 9]))
                con.execute("INSERT INTO o VALUES (?, ?, ?, ?)", row)
            else:
                con.execute(f"DELETE FROM o WHERE id % 5 = {rng.randrange(5)}")
            found = Counter(con.execute("FROM v").fetchall())
            assert found == Counter(con.session.duck.execute(QUERIES[name]).fetchall())
            changed, before = changed + (found != before), found
        assert changed > 4

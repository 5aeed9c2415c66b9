"""A triangle is recognised however it is written, and its view follows every change."""

from __future__ import annotations

import random

import pytest

import sqlfront
from tests.following import is_query

SCHEMA = """
CREATE TABLE r (a BIGINT, b BIGINT, w BIGINT, note VARCHAR);
CREATE TABLE s (c BIGINT, b BIGINT, w BIGINT);
CREATE TABLE t (a BIGINT, c BIGINT, w BIGINT);
CREATE TABLE e (x BIGINT, y BIGINT, w BIGINT);
"""
ON = "r JOIN s ON r.b = s.b JOIN t ON s.c = t.c AND t.a = r.a"
POSITIVE = "(SELECT x, y FROM e WHERE w > 0)"
SPELLINGS = {
    "comma": "SELECT count(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a",
    "on": f"SELECT count(*) AS n FROM {ON}",
    "using": "SELECT count(*) AS n FROM r JOIN s USING (b) JOIN t USING (a, c)",
    "natural": "SELECT count(*) AS n FROM (SELECT a, b FROM r) NATURAL JOIN (SELECT b, c FROM s) NATURAL JOIN "
    "(SELECT c, a FROM t)",
    "cross": "SELECT count(*) AS n FROM t CROSS JOIN r CROSS JOIN s WHERE s.b = r.b AND t.c = s.c AND r.a = t.a",
    "local filters": f"SELECT count(*) AS n FROM {ON} WHERE r.w > 0 AND s.w BETWEEN 0 AND 2 AND r.note LIKE 'a%'",
    "product": f"SELECT sum(r.w * s.w * t.w) AS p, count(*) AS n FROM {ON}",
    "one value": f"SELECT sum(r.w) AS p, avg(s.w) AS m, count(t.w) AS k FROM {ON}",
    "filtered aggregate": f"SELECT count(*) FILTER (WHERE r.w > 1) AS n FROM {ON}",
    "having": f"SELECT count(*) AS n FROM {ON} HAVING count(*) > 0",
    "computed edges": "SELECT count(*) AS n FROM r JOIN s ON r.b + 1 = s.b JOIN t ON s.c = t.c AND t.a = abs(r.a)",
    "computed block": "SELECT count(*) AS n FROM r, (SELECT b * 2 AS d, c FROM s) q, t WHERE r.b = q.d AND q.c = t.c "
    "AND t.a = r.a",
    "cte": "WITH q AS (SELECT b, c FROM s WHERE w > 0) SELECT count(*) AS n FROM r JOIN q ON r.b = q.b "
    "JOIN t ON q.c = t.c AND t.a = r.a",
    "one table": "SELECT count(*) AS n FROM e f, e g, e h WHERE f.y = g.x AND g.y = h.x AND h.y = f.x",
    "one table, reversed": "SELECT count(*) AS n FROM e f, e g, e h WHERE f.x = g.y AND g.x = h.y AND h.x = f.y",
    "one table, filtered": f"SELECT count(*) AS n FROM {POSITIVE} f JOIN {POSITIVE} g ON f.y = g.x JOIN {POSITIVE} h "
    "ON g.y = h.x AND h.y = f.x",
    "ordered edges": "SELECT count(*) AS n FROM e f, e g, e h WHERE f.y = g.x AND f.x = h.x AND g.y = h.y",
    "ascending vertices": "SELECT count(*) AS n FROM e f, e g, e h WHERE f.y = g.x AND g.y = h.x AND h.y = f.x "
    "AND f.x < g.x AND g.x < h.x",
    "vertices of other tables": f"SELECT count(*) AS n FROM {ON} WHERE t.c <> r.b AND t.a BETWEEN r.b AND s.c",
    "one filtered": "SELECT count(*) AS n FROM e f, e g, e h WHERE f.y = g.x AND g.y = h.x AND h.y = f.x AND f.w > 0",
    "one table twice": "SELECT count(*) AS n FROM e f, e g, t WHERE f.y = g.x AND g.y = t.c AND t.a = f.x",
}
ALSO_CYCLIC = {
    "by vertex": f"SELECT r.a, count(*) AS n FROM {ON} GROUP BY r.a",
    "by edge": f"SELECT r.a, r.b, sum(s.w * t.w) AS p FROM {ON} GROUP BY r.a, r.b",
    "listed": f"SELECT r.a, r.b, s.c FROM {ON}",
    "distinct": f"SELECT DISTINCT r.a FROM {ON}",
}


@pytest.fixture
def con():
    with sqlfront.connect(":memory:") as connection:
        connection.execute(SCHEMA)
        yield connection


@pytest.mark.parametrize("name", [*SPELLINGS, *ALSO_CYCLIC])
def test_it_is_recognised_and_kept(con, name):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {(SPELLINGS | ALSO_CYCLIC)[name]}")
    explained = con.explain("v").to_dict()
    assert explained["shape"] == "cyclic" and explained["cost"]["preprocessing"] == "O(N^1.5)"
    if name in SPELLINGS:
        assert explained["cost"]["update"] == "O(N^0.5) amortised" and explained["heavy"]["epsilon"] == 0.5
    choose = random.Random(name)
    found = 0
    for step in range(6):
        for table in "rste":
            rows = []
            for _ in range(choose.choice((1, 12))):
                # 1 is a hub on both sides.
                x, y = (choose.choice((1, choose.randrange(-2, 5))) for _ in range(2))
                rows.append((x, y, choose.randrange(3), *(["ab"] if table == "r" else [])))
            con.execute(f"INSERT INTO {table} VALUES {', '.join(map(str, rows))}")
            if step % 3 == 2:
                con.execute(f"DELETE FROM {table} WHERE w = {choose.randrange(3)}")
        assert is_query(con)
        found += any(value for row in con.execute("FROM v").fetchall() for value in row)
    assert found >= 1
    for table in "rste":
        con.execute(f"DELETE FROM {table}")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []

"""Queries with blocks in shards: each shard computes the whole chain from the rows that it is sent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

import sqlfront
from sqlfront.binding.ties import without_ties
from sqlfront.shards import shard
from sqlfront.shards.shard_plan import plan_shards
from tests.definition_oracle import same_bag
from tests.random_blocks import random_query
from tests.rewriting import rewritten
from tests.shards import LocalShards, arrow, declared, oracle, stream

BLOCKS = {
    "in": "SELECT r.a, r.n FROM r WHERE r.b IN (SELECT b FROM s WHERE c > 0)",
    "exists": "SELECT count(*) AS n FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.b = r.b AND s.c = r.a)",
    "exists another": "SELECT r.b, sum(n) AS n FROM r WHERE EXISTS (SELECT 1 FROM e WHERE e.y > r.a) GROUP BY r.b",
    "not exists greater": "SELECT r.a, r.n FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.b = r.b AND s.c > r.a)",
    "in of two tables": "SELECT r.a FROM r WHERE r.b IN (SELECT s.b FROM s, e WHERE s.c = e.x)",
    "groups joined on their key": (
        "SELECT g.b, g.total, r.a FROM (SELECT b, sum(c) AS total FROM s GROUP BY b) g JOIN r ON r.b = g.b"
    ),
    "groups joined on a wider type": (
        "SELECT r.a, g.y FROM (SELECT x, max(y) AS y FROM e GROUP BY x) g JOIN r ON r.a = g.x"
    ),
    "groups joined on an aggregate": (
        "SELECT r.b, count(*) AS n FROM (SELECT x, count(*) AS n FROM e GROUP BY x) g JOIN r ON r.a = g.n GROUP BY r.b"
    ),
    "groups alone": "SELECT n, count(*) AS times FROM (SELECT b, count(*) AS n FROM s GROUP BY b) g GROUP BY n",
    "groups of a join": (
        "SELECT total, count(*) AS n FROM (SELECT r.a, sum(c) AS total FROM r, s WHERE r.b = s.b GROUP BY r.a) g "
        "GROUP BY total"
    ),
    "groups of groups": (
        "SELECT most, count(*) AS n FROM (SELECT n, max(b) AS most FROM (SELECT b, count(*) AS n FROM s GROUP BY b) g "
        "GROUP BY n) h GROUP BY most"
    ),
    "distinct values of groups": (
        "SELECT count(DISTINCT n) AS n, count(*) AS groups FROM (SELECT b, count(*) AS n FROM s GROUP BY b) g"
    ),
    "one group": "SELECT r.a, g.most FROM (SELECT max(y) AS most FROM e) g JOIN r ON r.a < g.most",
    "only one group": "SELECT most FROM (SELECT max(y) AS most FROM e WHERE x > 1) g",
    "union": "SELECT a FROM r UNION SELECT x FROM e",
    "union all": "SELECT a, b FROM r UNION ALL SELECT c, b FROM s UNION ALL SELECT x, 'e' FROM e",
    "union of groups": (
        "SELECT b, count(*) AS n FROM r GROUP BY b UNION ALL SELECT r.b, sum(c) FROM r, s WHERE r.b = s.b GROUP BY r.b"
    ),
    "a union with one row": "SELECT a FROM r UNION ALL SELECT max(x) FROM e",
    "the same branch twice": "SELECT a FROM r UNION ALL SELECT a FROM r",
    "aggregates of a union": (
        "SELECT k, count(*) AS n, sum(v) AS v FROM (SELECT a AS k, n AS v FROM r UNION ALL SELECT c, a FROM s, r "
        "WHERE s.b = r.b) u GROUP BY k"
    ),
    "a union joined": "SELECT u.k, r.n FROM (SELECT c AS k FROM s UNION ALL SELECT y FROM e) u JOIN r ON r.a = u.k",
    "a union joined on what one branch computes": (
        "SELECT u.k, r.n FROM (SELECT c AS k FROM s UNION ALL SELECT y + 1 FROM e) u JOIN r ON r.a = u.k"
    ),
    "first rows of a union": "SELECT a, b FROM r UNION ALL SELECT c, b FROM s ORDER BY a DESC NULLS LAST, b LIMIT 4",
    "the greatest over two tables": "SELECT r.b, max(r.n + e.y) AS m FROM r JOIN e ON r.a = e.x GROUP BY r.b",
    "what is there at the greatest": (
        "SELECT r.b, arg_max(e.y, r.n + e.y) AS m, arg_min(r.n + e.y, e.y) AS f FROM r JOIN e ON r.a = e.x GROUP BY r.b"
    ),
    "what is there at the greatest of all": "SELECT arg_max(e.y, r.n + e.y) AS m FROM r JOIN e ON r.a = e.x",
    "first rows": "SELECT a, count(*) AS n FROM (SELECT a, b FROM r ORDER BY b, a LIMIT 4) f GROUP BY a",
    "first rows joined": "SELECT r.a, f.c FROM (SELECT b, c FROM s ORDER BY c, b LIMIT 3) f JOIN r ON r.b = f.b",
    "first rows of each": (
        "SELECT f.a, e.y FROM (SELECT a, b FROM r QUALIFY row_number() OVER (PARTITION BY a ORDER BY b, n) <= 1) f "
        "JOIN e ON e.y = f.a"
    ),
    "blocks of both sides": (
        "SELECT f.b, f.n, g.m FROM (SELECT b, count(*) AS n FROM r GROUP BY b) f "
        "JOIN (SELECT b, count(*) AS m FROM s GROUP BY b) g ON f.b = g.b WHERE f.b NOT IN ('z') AND f.n IN "
        "(SELECT y FROM e)"
    ),
    "a table inside and outside": (
        "SELECT r.b, r.a FROM r JOIN (SELECT a, count(*) AS n FROM r GROUP BY a HAVING count(*) > 1) g ON g.a = r.a"
    ),
    "a table inside and outside by other columns": (
        "SELECT e.x, e.y, g.n FROM e JOIN (SELECT y, count(*) AS n FROM e GROUP BY y) g ON g.y = e.x"
    ),
    "triangles of a block": (
        "SELECT p.x, count(*) AS n FROM (SELECT DISTINCT x, y FROM e) p, e q, e t WHERE p.y = q.x AND q.y = t.x "
        "AND t.y = p.x GROUP BY p.x"
    ),
    "triangles in a block": (
        "SELECT n, count(*) AS m FROM (SELECT p.x, count(*) AS n FROM e p, e q, e t WHERE p.y = q.x AND q.y = t.x "
        "AND t.y = p.x GROUP BY p.x) g GROUP BY n"
    ),
    "a product with a block": "SELECT r.a, g.n FROM r, (SELECT x, count(*) AS n FROM e GROUP BY x) g WHERE r.n = 1",
    "two components, one with groups": (
        "SELECT r.b, sum(g.n) AS n FROM r, (SELECT x, count(*) AS n FROM e GROUP BY x) g GROUP BY r.b"
    ),
}


@pytest.fixture(scope="module")
def con():
    with declared() as connection:
        connection.execute(
            "CREATE MATERIALIZED VIEW per_b AS SELECT b, count(*) AS n, max(c) AS most FROM s GROUP BY b"
        )
        connection.execute("CREATE MATERIALIZED VIEW busy AS SELECT n, count(*) AS bs FROM per_b GROUP BY n")
        connection.execute("CREATE MATERIALIZED VIEW either AS SELECT a FROM r UNION SELECT y FROM e")
        yield connection


VIEWS = (
    "WITH per_b AS (SELECT b, count(*) AS n, max(c) AS most FROM s GROUP BY b), "
    "busy AS (SELECT n, count(*) AS bs FROM per_b GROUP BY n), "
    "either AS (SELECT a FROM r UNION SELECT y FROM e) "
)
READERS = {
    "a view": ("SELECT r.a, p.n FROM r JOIN per_b p ON p.b = r.b", {"r": 1, "s": 1}),
    "a view of a view": ("SELECT sum(bs) AS n, max(n) AS most FROM busy", {"s": 1}),
    "a view twice": ("SELECT p.b, q.n FROM per_b p JOIN per_b q ON p.n = q.most", None),
    "a view twice by its key": ("SELECT p.b, q.n FROM per_b p JOIN per_b q ON p.b = q.b", {"s": 1}),
    "views of several depths": ("SELECT p.b, q.bs, a FROM per_b p, busy q, either WHERE p.n = q.n AND a = q.n", None),
}


def check(con, query, written, shards, steps=2):
    """The partitioning, after streams whose rows have been what DuckDB says and where the plan says."""
    local = LocalShards(plan_shards(con.session, query, shards))
    found, changed = local.plan.partitioning, Counter()
    for batch, held in stream(f"{query} {shards}", steps):
        own = {table: rows for table, rows in batch.items() if f"main.{table}" in found.rows_sent}
        local.apply({f"main.{table}": arrow(table, rows) for table, rows in own.items()})
        changed.update({f"main.{table}": len(rows) for table, rows in own.items()})
        assert same_bag(local.rows(), oracle(held, rewritten(written, without_ties))), found.reason
    for table, copies in found.rows_sent.items():
        ways = [one for one in found.streams if one.table == table]
        assert local.sent[table] <= changed[table] * copies
        assert local.sent[table] == changed[table] * copies or any(one.conditions for one in ways)
    assert len(local.logs) > (found.shards > 1)
    local.close()
    return found


# The shards that are used of four, and to how many of them a row of each table is sent.
SENT = {
    "in": (4, {"r": 1, "s": 1}),
    "exists another": (4, {"r": 1, "e": 4}),
    "groups joined on their key": (4, {"r": 1, "s": 1}),
    "groups joined on a wider type": (4, {"r": 1, "e": 1}),
    "groups joined on an aggregate": (4, {"r": 2, "e": 2}),
    "groups alone": (4, {"s": 1}),
    "groups of a join": (4, {"r": 1, "s": 4}),
    "groups of groups": (1, {"s": 1}),
    "one group": (4, {"r": 1, "e": 4}),
    "union": (4, {"r": 1, "e": 1}),
    "union of groups": (4, {"r": 1, "s": 1}),
    "a union with one row": (1, {"r": 1, "e": 1}),
    "a union joined on what one branch computes": (4, {"r": 1, "s": 1, "e": 1}),
    "first rows of a union": (4, {"r": 1, "s": 1}),
    "first rows": (1, {"r": 1}),
    "first rows joined": (4, {"r": 1, "s": 4}),
    "first rows of each": (4, {"r": 1, "e": 1}),
    "a table inside and outside": (4, {"r": 1}),
    "a table inside and outside by other columns": (4, {"e": 2}),
    "two components, one with groups": (4, {"r": 1, "e": 1}),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_shards_have_the_rows_of_a_view_with_blocks(con, name):
    found = check(con, BLOCKS[name], BLOCKS[name], 4)
    if name in SENT:
        assert (found.shards, found.rows_sent) == (SENT[name][0], {f"main.{t}": n for t, n in SENT[name][1].items()})


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("name", ["groups of groups", "aggregates of a union", "blocks of both sides"])
def test_any_number_of_shards_has_them(con, name, shards):
    check(con, BLOCKS[name], BLOCKS[name], shards)


def test_the_row_of_a_block_without_groups_is_there_when_no_row_meets_its_conditions(con):
    local = LocalShards(plan_shards(con.session, BLOCKS["only one group"], 4))
    local.apply({"main.e": arrow("e", [((0, 5), 1)])})
    assert local.rows() == [(None,)]
    local.apply({"main.e": arrow("e", [((2, 7), 1)])})
    assert local.rows() == [(7,)]
    local.close()


@pytest.mark.parametrize("name", READERS)
def test_shards_have_the_rows_of_a_view_over_views(con, name):
    query, sent = READERS[name]
    found = check(con, query, VIEWS + query, 4)
    assert sent is None or found.rows_sent == {f"main.{table}": copies for table, copies in sent.items()}


@pytest.mark.parametrize("query", ["SELECT b, n FROM kept", "SELECT n, count(*) AS m FROM kept GROUP BY n"])
def test_the_log_of_a_view_that_has_been_replaced_is_refused(query):
    with declared() as con:
        con.execute("CREATE MATERIALIZED VIEW kept AS SELECT b, sum(c) AS n FROM s GROUP BY b")
        local = LocalShards(plan_shards(con.session, query, 1))
        local.apply({"main.s": arrow("s", [(("x", 5, None), 1), (("x", 6, None), 1)])})
        con.execute("CREATE OR REPLACE MATERIALIZED VIEW kept AS SELECT b, sum(2 * c) AS n FROM s GROUP BY b")
        with pytest.raises(sqlfront.OperationalError, match="has been replaced"):
            shard.advance(plan_shards(con.session, query, 1), local.query, 0, local.logs[0], [])
        local.close()


def test_every_process_has_the_same_plan(con):
    """One that starts again goes on with the logs."""
    program = (
        "from tests.shards import declared\n"
        "from sqlfront.shards.shard_plan import plan_shards\n"
        "from tests.sqlfront.shards.test_shard_blocks import BLOCKS\n"
        "con = declared()\n"
        "print([plan_shards(con.session, query, 4).fingerprint for query in BLOCKS.values()])\n"
        "con.close()\n"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str([plan_shards(con.session, query, 4).fingerprint for query in BLOCKS.values()])


@pytest.mark.parametrize("seed", [7, 21, 103])
def test_shards_have_the_rows_of_random_queries(con, seed):
    random, spread = Random(seed), 0
    for _ in range(3):
        query = random_query(random)
        spread += check(con, query, query, random.choice([2, 4])).shards > 1
    assert spread


def test_explain_says_what_is_sent_for_a_block(con):
    text = str(con.explain(BLOCKS["one group"], shards=4))
    assert "4 of 4: a in 4" in text
    assert "a row of e in g goes to all, as blocks over them are computed in full in every shard" in text
    assert "e: each changed row to 4 shards" in text
    assert "1 of 4" in str(con.explain(BLOCKS["first rows"], shards=4))
    rows = con.execute("EXPLAIN MATERIALIZED VIEW busy WITH (shards = 4)").fetchall()
    assert "s: each changed row to one shard" in "\n".join(value for _, value in rows)

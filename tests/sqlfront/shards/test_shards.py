"""Views in shards: the same rows as one engine and DuckDB have, whatever the number of shards, and after failures."""

from __future__ import annotations

import math
import re
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.shards import shard
from sqlfront.shards.routes import Router
from sqlfront.shards.shard_log import START, At, ShardDelta, ShardLog, pack, unpack
from sqlfront.shards.shard_plan import plan_shards
from tests.definition_oracle import same_bag
from tests.shards import LocalShards, arrow, declared, oracle, stream

QUERIES = {
    "join": "SELECT r.a, r.b, s.c FROM r, s WHERE r.b = s.b",
    "filtered": "SELECT r.a, s.c * 2 AS twice FROM r, s WHERE r.b = s.b AND r.n > 1 AND s.c < 3",
    "one table": "SELECT a, n FROM r WHERE b <> 'x'",
    "distinct": "SELECT DISTINCT b FROM r",
    "whether there are rows": "SELECT DISTINCT 1 AS one FROM r, s WHERE r.b = s.b AND s.c = 1",
    "distinct projection": "SELECT DISTINCT r.a, s.c FROM r, s WHERE r.b = s.b",
    "groups of the hashed column": (
        "SELECT r.b, count(*) AS n, sum(n) AS total, avg(m) AS mean FROM r, s WHERE r.b = s.b GROUP BY r.b "
        "HAVING count(*) > 1"
    ),
    "groups of another column": (
        "SELECT r.a, count(*) AS n, sum(n * m) AS total, avg(c) AS mean, avg(m) AS cents FROM r, s WHERE r.b = s.b "
        "GROUP BY r.a HAVING sum(n) > 2"
    ),
    "everything": "SELECT count(*) AS n, sum(c) AS total, avg(n) AS mean FROM r, s WHERE r.b = s.b",
    "rows under a condition": "SELECT count(*) AS n FROM r WHERE n > 1 AND (b <> 'x' OR a = 1)",
    "everything of one table": "SELECT count(*) AS n, sum(n) + 1 AS total, min(b) AS first FROM r",
    "extremes": "SELECT r.a, min(s.c) AS least, max(s.m) AS most FROM r, s WHERE r.b = s.b GROUP BY r.a",
    "values of a table joined with itself": (
        "SELECT s.b, min(t.c) AS least, count(DISTINCT t.m) AS n FROM s, s t WHERE s.b = t.b GROUP BY s.b"
    ),
    "distinct values": "SELECT r.b, count(DISTINCT s.c) AS n FROM r, s WHERE r.b = s.b GROUP BY r.b",
    "distinct values of a group": "SELECT r.a, count(DISTINCT s.c) AS n FROM r, s WHERE r.b = s.b GROUP BY r.a",
    "first rows": "SELECT r.a, s.c, r.b FROM r, s WHERE r.b = s.b ORDER BY r.a + s.c DESC, s.c LIMIT 4 OFFSET 1",
    "first groups": "SELECT r.a, count(*) AS n FROM r, s WHERE r.b = s.b GROUP BY r.a ORDER BY n DESC LIMIT 2",
    "first of each": (
        "SELECT r.a, s.c FROM r, s WHERE r.b = s.b "
        "QUALIFY row_number() OVER (PARTITION BY r.a ORDER BY s.c DESC, r.a) <= 2"
    ),
    "self-join": "SELECT e1.x, e2.y FROM e AS e1, e AS e2 WHERE e1.y = e2.x",
    "path": "SELECT e1.x, count(*) AS n FROM e e1, e e2, e e3 WHERE e1.y = e2.x AND e2.y = e3.x GROUP BY e1.x",
    "triangles": "SELECT count(*) AS n FROM e e1, e e2, e e3 WHERE e1.y = e2.x AND e2.y = e3.x AND e3.y = e1.x",
    "triangles of a corner": (
        "SELECT e1.x, count(*) AS n FROM e e1, e e2, e e3 WHERE e1.y = e2.x AND e2.y = e3.x AND e3.y = e1.x "
        "GROUP BY e1.x"
    ),
    "rows of extremes": (
        "SELECT r.a, arg_min(s.c, s.m) AS f, arg_max(s.m, s.c) AS l FROM r, s WHERE r.b = s.b GROUP BY r.a"
    ),
    "the row of an extreme": "SELECT arg_max(b, n) AS b, arg_min(a, b) AS a, max(n) AS n FROM r",
    "distinct values of all": "SELECT count(DISTINCT c) AS n, sum(DISTINCT c) AS total, avg(DISTINCT c) AS mean FROM s",
    "distinct values of each": "SELECT n, count(DISTINCT s.c) AS m FROM r, s WHERE r.b = s.b GROUP BY n HAVING m > 1",
    "extremes within bounds": (
        "SELECT r.a, max(s.c) AS m FROM r, s WHERE r.b = s.b AND r.n < s.c AND r.a < s.m GROUP BY r.a"
    ),
    "ordered pairs": "SELECT count(*) AS n FROM r, s WHERE r.b = s.b AND r.a < s.c",
}


@pytest.fixture(scope="module")
def con():
    with declared() as connection:
        yield connection


def completed(query):
    """The query with its output columns behind its ORDER BY, which is what a view orders by, and an order between rows
    that tie for ARG_MIN."""
    first = r"(arg_m..)\(([a-z.]+), ([a-z.]+)\)"
    query = re.sub(first, r"\1(\2, (\3, \2)) FILTER (WHERE \2 IS NOT NULL AND \3 IS NOT NULL)", query)
    return query.replace("s.c LIMIT", "s.c, 1, 2, 3 LIMIT").replace("n DESC LIMIT", "n DESC, 1, 2 LIMIT")


SOME = ("groups of another column", "first rows", "triangles")


@pytest.mark.parametrize(
    ("name", "shards"), [*((name, 4) for name in QUERIES), *((name, n) for name in SOME for n in (1, 2))]
)
def test_shards_have_the_rows_of_the_view(con, name, shards):
    local = LocalShards(plan_shards(con.session, QUERIES[name], shards))
    tables = {table for table, _ in local.plan.tables}
    for batch, held in stream(f"{name} {shards}"):
        local.apply({f"main.{t}": arrow(t, rows) for t, rows in batch.items() if f"main.{t}" in tables})
        assert same_bag(local.rows(), oracle(held, completed(QUERIES[name])))
    assert len(local.logs) > (shards > 1)
    local.close()


@pytest.mark.parametrize(
    "select",
    [
        "count(*) AS n",
        "count(*) > 0 AS any, 5 AS five",
        "sum(n) AS total, avg(n) AS mean, min(b) AS first, count(DISTINCT b) AS texts",
        "avg(DISTINCT n) AS mean, sum(DISTINCT a) AS total, max(n) AS most",
    ],
)
@pytest.mark.parametrize("having", ["", " HAVING count(*) > 0"])
def test_a_view_without_groups_on_one_shard_has_its_row_before_rows_are_sent(con, select, having):
    query = f"SELECT {select} FROM r WHERE a > 1{having}"
    local, held = LocalShards(plan_shards(con.session, query, 1)), {table: Counter() for table in ("r", "s", "e")}
    for a, weight in [(None, 0), (1, 1), (2, 1), (3, 2), (2, -1), (3, -2)]:
        held["r"][a, "x", a] += weight
        local.apply({"main.r": arrow("r", [((a, "x", a), weight)] if weight else [])})
        assert same_bag(local.rows(), oracle(held, query))
    local.close()


def test_what_is_sent_is_what_the_plan_says(con):
    local = LocalShards(plan_shards(con.session, QUERIES["triangles"], 8))
    rows = [((i, i + 1), 1) for i in range(100)]
    local.apply({"main.e": arrow("e", rows)})
    assert local.plan.partitioning.rows_sent == {"main.e": 6}
    assert local.sent == {"main.e": 600}
    local.close()


def test_a_group_lies_in_the_shard_that_its_value_is_hashed_to(con):
    local = LocalShards(plan_shards(con.session, QUERIES["groups of the hashed column"], 4))
    for batch, _ in stream("places"):
        local.apply({f"main.{table}": arrow(table, batch[table]) for table in ("r", "s")})
    for number, rows in local.parts.items():
        for value in {row[0] for row in +rows}:
            [(place, _, _)] = Router(local.plan).route("main.s", arrow("s", [((value, 1, None), 1)]))
            assert place == number
    local.close()


def test_equal_values_of_several_types_go_to_one_shard(con):
    plan = plan_shards(con.session, "SELECT r.a FROM r, e WHERE r.a = e.x", 16)
    router = Router(plan)
    for value in range(50):
        [(one, _, _)] = router.route("main.r", arrow("r", [((value, None, None), 1)]))
        [(other, _, _)] = router.route("main.e", arrow("e", [((value, None), 1)]))
        assert one == other


@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("value", [0.0, math.nan])
def test_floating_values_that_are_equal_whatever_their_sign_go_to_one_shard(type_, value):
    with sqlfront.connect() as con:
        con.execute(f"CREATE CHANGE TABLE f (v {type_}) WITH (retain = false)")
        router = Router(plan_shards(con.session, "SELECT v, count(*) AS n FROM f GROUP BY v", 1024))
        rows = pa.table({"v": [value, math.copysign(value, -1)], "_weight": [1, 1]})
        [(_, _, sent)] = router.route("main.f", rows)
        assert sent.num_rows == 2


def test_only_what_the_view_reads_is_sent(con):
    plan = plan_shards(con.session, QUERIES["filtered"], 2)
    rows = arrow("r", [((1, "x", 0), 1), ((2, "y", 5), 1), ((3, "y", None), 1)])
    pieces = list(Router(plan).route("main.r", rows))
    assert [piece.to_pylist() for _, _, piece in pieces] == [[{"a": 2, "b": "y", "n": 5, "_weight": 1}]]
    assert list(Router(plan).route("main.r", rows.slice(2))) == []
    # What is not read is not sent.
    [(_, _, sent)] = Router(plan_shards(con.session, "SELECT a FROM r", 2)).route("main.r", rows.slice(0, 1))
    assert sent.column_names == ["a", "_weight"]


# The log and failures ------------------------------------------------------------------------------


def changes(*rows):
    return {"main.r": arrow("r", [((a, b, 1), weight) for a, b, weight in rows])}


def one_shard(con):
    local = LocalShards(plan_shards(con.session, "SELECT b, count(*) AS n FROM r GROUP BY b", 1))
    local.apply(changes((1, "x", 1), (2, "x", 1), (3, "y", 1)))
    return local


def copy_of(log):
    """The log as it is now: what a state store gives after a failure."""
    own = ShardLog()
    own.replace(log.base(), log.rows(), list(log.snapshot()))
    for at, piece in log.entries():
        own.add(at, log.rows(), [piece])
    return own


def test_a_try_that_was_not_committed_is_forgotten(con):
    local = one_shard(con)
    committed = copy_of(local.logs[0])
    # The task fails when its engine has been changed: the log is as before, and the same changes come again.
    [pieces] = local.pieces(changes((4, "x", 1))).values()
    shard.advance(local.plan, local.query, 0, local.logs[0], pieces)
    ahead = shard._hot[local.query, 0]
    assert ahead.at.number == committed.at().number + 1
    local.take(0, shard.advance(local.plan, local.query, 0, committed, pieces))
    assert shard._hot[local.query, 0] is not ahead
    assert sorted(local.rows()) == [("x", 3), ("y", 1)]
    local.close()


def test_an_engine_that_is_behind_catches_up(con):
    local = one_shard(con)
    behind = shard._hot.pop((local.query, 0))
    local.apply(changes((1, "x", -1)))  # Spark has moved the shard to another worker, and back.
    shard._hot.pop((local.query, 0)).close()
    shard._hot[local.query, 0] = behind
    local.apply(changes((9, "z", 1)))
    assert shard._hot[local.query, 0] is behind
    assert sorted(local.rows()) == [("x", 1), ("y", 1), ("z", 1)]
    local.close()


def test_a_lost_engine_is_built_from_the_log(con):
    local = one_shard(con)
    shard._hot.pop((local.query, 0)).close()
    local.apply(changes((3, "y", -1)))
    assert sorted(local.rows()) == [("x", 2)]
    local.close()


def test_the_log_is_compacted_when_it_is_longer_than_the_snapshot(con, monkeypatch):
    monkeypatch.setattr("sqlfront.shards.shard_log.COMPACT_FROM", 4)
    local = LocalShards(plan_shards(con.session, "SELECT b, count(*) AS n FROM r GROUP BY b", 1))
    for step in range(20):
        local.apply(changes((step, "x", 1), *([(step - 1, "x", -1)] if step else [])))
        assert sum(piece.count for _, piece in local.logs[0].entries()) <= 4
    [kept] = local.logs[0].snapshot()
    assert unpack(kept.rows).num_rows <= 3
    shard._hot.pop((local.query, 0)).close()
    local.apply(changes((30, "y", 1)))
    assert sorted(local.rows()) == [("x", 1), ("y", 1)]
    local.close()


def test_a_shard_was_never_where_the_log_does_not_say():
    log = ShardLog()
    piece = ShardDelta(0, b"", 1)
    log.append(At(0, "base"), [piece])
    log.append(At(1, "one"), [piece])
    log.append(At(2, "two"), [piece, piece])
    assert log.after(At(0, "base")) == [piece, piece, piece]
    assert log.after(At(1, "one")) == [piece, piece]
    assert log.after(At(2, "two")) == []
    assert log.after(At(2, "another try")) is None
    assert log.after(START) is None


def test_the_log_of_another_plan_is_refused(con):
    local = one_shard(con)
    other = plan_shards(con.session, "SELECT b, count(*) AS n FROM r GROUP BY b", 2)
    assert other.fingerprint != local.plan.fingerprint
    assert plan_shards(con.session, local.plan.query, 1).fingerprint == local.plan.fingerprint
    with pytest.raises(sqlfront.OperationalError, match="kept by another plan"):
        shard.advance(other, local.query, 0, local.logs[0], [])
    local.close()


def test_a_shard_refuses_rows_that_are_not_there(con):
    local = one_shard(con)
    with pytest.raises(sqlfront.IntegrityError, match="deleted more often"):
        local.apply(changes((7, "x", 1), (7, "z", -1)))
    local.apply(changes((7, "z", 1)))  # Nothing of it was logged.
    assert sorted(local.rows()) == [("x", 2), ("y", 1), ("z", 1)]
    local.close()


# EXPLAIN -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT count(DISTINCT c) AS n, count(DISTINCT b) AS m FROM s", "distinct values of c and b are counted"),
        ("SELECT max(a) AS most FROM (SELECT max(a) AS a FROM r) q", "no hash keeps the groups of its blocks whole"),
    ],
)
def test_what_cannot_be_spread_is_on_one_shard_with_the_reason(con, query, why):
    assert plan_shards(con.session, query, 4).partitioning.shards == 1
    assert why in str(con.explain(query, shards=4))


def test_explain_says_what_is_sent_where(con):
    query = QUERIES["triangles"]
    found = con.explain(query, shards=8)
    data = found.to_dict()["shards"]
    assert (data["used"], data["communication"], list(data["hashed"].values())) == (8, 6.0, [2, 2, 2])
    assert data["tables"]["e"] == {"copies": 6, "rows": 1.0, "ways": 3}
    assert "8 of 8" in str(found)
    assert "e: each changed row to 6 shards, 3 ways" in str(found)
    assert "added up" in str(found)
    assert "shards" not in con.explain(query).to_dict()
    rows = con.execute(f"EXPLAIN (MATERIALIZED, SHARDS 8) {query}").fetchall()
    assert next(value for name, value in rows if name == "shards").startswith("8 of 8: ")


def test_explain_of_a_view_knows_its_tables():
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE f (d BIGINT, n BIGINT)")
        con.execute("CREATE TABLE days (d BIGINT, y BIGINT)")
        con.execute("INSERT INTO days SELECT i, i // 365 FROM range(100) AS t(i)")
        con.execute("INSERT INTO f SELECT i % 100, i FROM range(10000) AS t(i)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT y, sum(n) AS n FROM f, days WHERE f.d = days.d GROUP BY y")
        rows = con.execute("EXPLAIN MATERIALIZED VIEW v WITH (shards = 4)").fetchall()
        text = "\n".join(value for name, value in rows if name in ("shards", ""))
        assert "f: each changed row to one shard" in text
        assert "f 10,000, days 100" in text
        with pytest.raises(sqlfront.ProgrammingError, match="0 shards"):
            con.execute("EXPLAIN MATERIALIZED VIEW v WITH (shards = 0)")
        with pytest.raises(sqlfront.ProgrammingError, match="EXPLAIN has no option"):
            con.execute("EXPLAIN MATERIALIZED VIEW v WITH (shard = 2)")


def test_pieces_come_back_as_they_were():
    rows = arrow("s", [(("x", 1, Decimal("1.50")), 2), ((None, None, None), -1)])
    assert unpack(pack(3, rows).rows).equals(rows)

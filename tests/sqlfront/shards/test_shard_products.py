"""Products in shards: components are hashed apart, so that no row meets another component's, and multiplied at read."""

from __future__ import annotations

import math
import random
from collections import Counter
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.shards import shard
from sqlfront.shards.shard_log import unpack
from sqlfront.shards.shard_plan import plan_shards
from tests.definition_oracle import same_bag
from tests.shards import LocalShards, arrow, declared, oracle, stream

PRODUCTS = {
    "pairs": "SELECT r.a, e.y, r.a * 2 + e.y AS both FROM r, e WHERE r.n = 3",
    "pairs of copies": "SELECT s.m FROM s, r WHERE r.n = 1",
    "pairs of joins": (
        "SELECT r.a, e1.x, e2.y FROM r, s, e e1, e e2 WHERE r.b = s.b AND s.c = 1 AND e1.y = e2.x AND e2.y = 2"
    ),
    "distinct pairs": "SELECT DISTINCT r.a, s.c FROM r, s",
    "distinct rows if others are there": "SELECT DISTINCT r.b FROM r, e WHERE e.x = 2",
    "whether there are pairs": "SELECT count(r.a) > 0 AS any FROM r, e WHERE e.x = e.y",
    "number of pairs": "SELECT count(r.a) AS n, count(r.b) AS texts FROM r, s WHERE s.c > 0",
    "sums over pairs": (
        "SELECT sum(r.n) AS n, sum(s.m) AS m, sum(r.n * s.m) AS both, sum(r.n + 2 * s.c) AS one_and_other, "
        "avg(s.m) AS mean, avg(r.a) FILTER (WHERE s.c > 1) AS filtered, "
        "count(*) FILTER (WHERE r.n > 1 AND s.c < 2) AS some FROM r, s"
    ),
    "extremes of pairs": (
        "SELECT min(r.a) AS least, max(s.m) AS most, bool_or(s.c > 1) AS some FROM r, s, e WHERE e.x = 1"
    ),
    "groups of both": (
        "SELECT r.b, e.x, count(*) AS n, sum(r.a * e.y) AS total, avg(r.n) + 1 AS mean, min(e.y) AS least, "
        "max(r.a) AS most FROM r, e GROUP BY r.b, e.x HAVING sum(e.y) > 1"
    ),
    "extremes of both": "SELECT min(r.n) AS least, max(s.c) AS most, max(s.b) AS last, count(*) AS n FROM r, s",
    "groups of one": "SELECT e.x, count(*) AS n, sum(m) AS total, max(s.b) AS last FROM e, s GROUP BY e.x",
    "groups without aggregates": "SELECT r.a, s.b FROM r, s GROUP BY r.a, s.b",
    "distinct values beside another": "SELECT r.b, count(DISTINCT r.a) AS n, sum(e.x) AS x FROM r, e GROUP BY r.b",
    "distinct values of another": "SELECT r.a, count(DISTINCT e.y) AS n, sum(DISTINCT e.y) AS y FROM r, e GROUP BY r.a",
    "distinct values of joins": (
        "SELECT f.y, sum(DISTINCT e.y) AS y, avg(s.c) AS c FROM e, e f, s, s t WHERE e.y = f.y AND s.b = t.b "
        "GROUP BY f.y"
    ),
    "three of one table": "SELECT a.x, count(*) AS n FROM e a, e b, e c WHERE b.x = 1 GROUP BY a.x",
    "triangles and rows": (
        "SELECT r.a, count(*) AS n, sum(r.n) AS total FROM r, e e1, e e2, e e3 "
        "WHERE e1.y = e2.x AND e2.y = e3.x AND e3.y = e1.x GROUP BY r.a"
    ),
}
SOME = ("pairs", "groups of both")


@pytest.fixture(scope="module")
def con():
    with declared() as connection:
        yield connection


def given(local, batch):
    """The changes of those tables that the plan reads."""
    tables = {table for table, _ in local.plan.tables}
    return {f"main.{table}": arrow(table, rows) for table, rows in batch.items() if f"main.{table}" in tables}


@pytest.mark.parametrize(
    ("name", "shards"), [*((name, 4) for name in PRODUCTS), *((name, n) for name in SOME for n in (1, 2))]
)
def test_shards_have_the_rows_of_a_product(con, name, shards):
    local = LocalShards(plan_shards(con.session, PRODUCTS[name], shards))
    for batch, held in stream(f"{name} {shards}"):
        local.apply(given(local, batch))
        assert same_bag(local.rows(), oracle(held, PRODUCTS[name]))
    assert (len(local.plan.combination.shards) > 1) == (shards > 1)
    assert len(local.logs) > (shards > 1)
    local.close()


@pytest.mark.parametrize("name", ["sums over pairs", "groups of both", "extremes of both"])
@pytest.mark.parametrize("shards", [2, 4])
def test_a_product_of_empty_components(con, name, shards):
    """Before there are rows, and when first the one component and then the other is empty again."""
    local = LocalShards(plan_shards(con.session, PRODUCTS[name], shards))
    held = {table: Counter() for table in ("r", "s", "e")}
    assert same_bag(local.rows(), oracle(held, PRODUCTS[name]))
    rows = {"r": (1, "x", 1), "s": ("y", 2, Decimal("0.50")), "e": (2, 3)}
    for table, weight in [("r", 2), ("s", 1), ("e", 1), ("r", -2), ("r", 1), ("s", -1), ("e", -1), ("r", -1)]:
        held[table][rows[table]] += weight
        local.apply(given(local, {table: [(rows[table], weight)]}))
        assert same_bag(local.rows(), oracle(held, PRODUCTS[name]))
    local.close()


def test_each_row_is_in_one_shard_and_in_no_other(con):
    """What is sent is |delta|: in a grid each row of r would be in two shards of four, and each row of e too."""
    local = LocalShards(plan_shards(con.session, "SELECT r.a, e.x, e.y FROM r, e", 4))
    held = {"main.r": Counter(), "main.e": Counter()}
    changed = 0
    for batch, _ in stream("places", steps=4):
        local.apply(given(local, batch))
        changed += len(batch["r"]) + len(batch["e"])
        for table in ("r", "e"):
            for row, weight in batch[table]:
                held[f"main.{table}"][row if table == "e" else row[:1]] += weight
    assert local.plan.partitioning.communication() == 1
    assert sum(local.sent.values()) == changed
    found = {"main.r": {}, "main.e": {}}
    for number, log in local.logs.items():
        for piece in log.all():
            stream_ = local.plan.streams[piece.stream]
            for *row, weight in (row.values() for row in unpack(piece.rows).to_pylist()):
                own = found[stream_.table].setdefault(tuple(row), Counter())
                own[number] += weight
    for table, rows in found.items():
        assert all(len(own) == 1 for own in rows.values())
        assert {row: sum(own.values()) for row, own in rows.items() if sum(own.values())} == +held[table]
        assert len({number for own in rows.values() for number in own}) > 1
    local.close()


def test_what_a_product_puts_out_is_as_much_as_its_components(con):
    """A row more of one component is one row put out, not one for each row of the other."""
    local = LocalShards(plan_shards(con.session, "SELECT r.a, e.y FROM r, e", 4))
    local.apply({"main.e": arrow("e", [((1, y), 1) for y in range(50)])})
    local.apply({"main.r": arrow("r", [((a, "x", 1), 1) for a in range(20)])})
    assert sum(own.total() for own in local.parts.values()) == 70
    assert len(local.rows()) == 1000
    local.close()


def test_atoms_that_hash_one_column_are_sent_one_row_in_two_components(con):
    local = LocalShards(plan_shards(con.session, "SELECT a.x, b.x AS other FROM e a, e b", 4))
    local.apply({"main.e": arrow("e", [((x, x), 1) for x in range(9)])})
    assert local.sent == {"main.e": 9}
    assert same_bag(local.rows(), [(a, b) for a in range(9) for b in range(9)])
    local.close()


def test_engines_that_fail_or_are_lost_are_those_of_the_log(con):
    """Between any two epochs of a product a shard's task fails after it has changed its engine, or its worker ends."""
    rng, name = random.Random(3), "groups of both"
    local = LocalShards(plan_shards(con.session, PRODUCTS[name], 2))
    for batch, held in stream(name, steps=6):
        for number in list(local.logs):
            fate = rng.choice(["fails", "lost", "stays"])
            if fate == "fails":  # Its engine is ahead; what it has put out and logged is forgotten.
                forgotten = shard._hot[local.query, number]
                forgotten.apply(local.pieces(given(local, batch)).get(number, []))
                forgotten.at = forgotten.at._replace(number=forgotten.at.number + 1, token="not committed")
            elif fate == "lost":
                shard._hot.pop((local.query, number)).close()
        local.apply(given(local, batch))
        assert same_bag(local.rows(), oracle(held, PRODUCTS[name]))
    local.close()


@pytest.mark.parametrize(
    "values", [[1.5, 0.1, None], [math.inf, 2.0], [math.inf, -math.inf], [math.nan, 1.0, None], []]
)
def test_floating_sums_of_a_product(values):
    query = (
        "SELECT sum(x) AS x, avg(x) AS mean, sum(x) FILTER (WHERE k > 1) AS some, sum(k) AS k, sum(x * k) AS both, "
        "avg(x * (2.5 - k)) AS turned, sum(x - k) AS less, sum(CASE WHEN k > 2 THEN x ELSE -k END) AS either FROM f, g"
    )
    with sqlfront.connect() as con, duckdb.connect() as judge:
        for one in (con, judge):
            kind = "CHANGE TABLE" if one is con else "TABLE"
            one.execute(f"CREATE {kind} f (x DOUBLE)")
            one.execute(f"CREATE {kind} g (k BIGINT)")
        local = LocalShards(plan_shards(con.session, query, 4))
        for table, column, rows in (("f", "x", values), ("g", "k", [1, 2, 3, None])):
            type_ = pa.float64() if table == "f" else pa.int64()
            changes = pa.table({column: pa.array(rows, type_), "_weight": pa.array([1] * len(rows), pa.int64())})
            local.apply({f"main.{table}": changes})
            for row in rows:
                judge.execute(f"INSERT INTO {table} VALUES (?)", [row])
        [found], [wanted] = local.rows(), judge.execute(query).fetchall()
        for one, other in zip(found, wanted, strict=True):
            assert one is other is None or one == pytest.approx(other, rel=1e-12, nan_ok=True)
        local.close()


# The reader -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["pairs", "number of pairs", "extremes of both", "distinct rows if others are there", "groups of one"]
)
def test_a_view_over_the_shards_rows_tells_the_change_of_the_product(con, name):
    """The engine multiplies the components: the product's own output delta, of which no shard has seen a row."""
    plan = plan_shards(con.session, PRODUCTS[name], 4)
    with sqlfront.connect() as reader:
        columns = ", ".join(f'"{column}" {type_}' for column, type_ in plan.columns)
        reader.execute(f"CREATE CHANGE TABLE parts ({columns})")
        reader.execute(f"CREATE VIEW v AS {plan.combination.query('parts')}")
        described = [row[:2] for row in reader.execute("DESCRIBE v").fetchall()]
        assert described == list(plan.definition.columns)
        reader.execute("CREATE MATERIALIZED VIEW m AS FROM v")
        expected = "O(log N)" if "max(" in PRODUCTS[name] else "O(1)"  # The values of an extreme are kept sorted.
        assert reader.explain("m").to_dict()["cost"]["update"] == expected
        feed, copy = reader.view("m").subscribe(timeout=0), Counter()

        class Told(LocalShards):
            def take(self, number, change):
                super().take(number, change)
                if change is not None:
                    reader.apply({"parts": change})

        local = Told(plan)
        for batch, held in stream(name):
            local.apply(given(local, batch))
            for row in (row for changes in feed for row in changes.to_pylist()):
                values = tuple(row[column] for column, _ in described)
                copy[values] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
            assert same_bag(copy.elements(), oracle(held, PRODUCTS[name]))
        local.close()


def test_first_rows_of_a_product_are_read_without_the_product(con):
    plan = plan_shards(con.session, PRODUCTS["pairs"], 4)
    with duckdb.connect() as reader:
        reader.execute(f"CREATE TABLE parts ({', '.join(f'{name} {type_}' for name, type_ in plan.columns)})")
        n = 1_000_000
        reader.execute(f"INSERT INTO parts (component, a, r_value) SELECT 1, i, i FROM range({n}) AS t(i)")
        reader.execute(f"INSERT INTO parts (component, y) SELECT 2, i FROM range({n}) AS t(i)")
        rows = reader.execute(f"{plan.combination.query('parts')} LIMIT 3 OFFSET 5000").fetchall()
    assert len(rows) == 3


# EXPLAIN ----------------------------------------------------------------------------------------------


def test_explain_says_that_components_are_hashed_apart(con):
    found = con.explain(PRODUCTS["triangles and rows"], shards=8)
    data = found.to_dict()["shards"]
    assert (data["used"], list(data["hashed"].values())) == (8, [8, 2, 2, 2])
    assert [grid["atoms"] for grid in data["grids"]] == [["r"], ["e1", "e2", "e3"]]
    assert {table: sent["copies"] for table, sent in data["tables"].items()} == {"r": 1, "e": 6}
    text = str(found)
    assert "8 of 8: a in 8; y in 2 x" in text
    assert "its components are hashed apart" in text
    assert "the components are multiplied when the view is read" in text
    assert "r: each changed row to one shard" in text


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT r.a, e.y FROM r, e ORDER BY r.a + e.y LIMIT 3", "first rows of a product are not those of its"),
        ("SELECT r.a, m FROM r, (SELECT max(y) AS m FROM e) q", "has rows before any are sent"),
        ("SELECT r.a, min(e.y) FILTER (WHERE r.n > 1) AS y FROM r, e GROUP BY r.a", "is decided in several of its"),
        ("SELECT r.a, count(DISTINCT (r.n, e.y)) AS n FROM r, e GROUP BY r.a", "are of several of its components"),
    ],
)
def test_what_is_not_made_of_components_stays_in_one_grid(con, query, why):
    local = LocalShards(plan_shards(con.session, query, 4))
    assert why in local.plan.partitioning.reason
    assert len(local.plan.combination.shards) == 1
    for batch, held in stream(query, steps=2):
        local.apply(given(local, batch))
        assert same_bag(local.rows(), oracle(held, query.replace("LIMIT", ", 1, 2 LIMIT")))
    local.close()


def test_explain_says_why_a_component_is_on_one_shard(con):
    """It is only counted; in a condition, a column would be read, and hashed."""
    found = con.explain("SELECT count(*) AS n, max(r.n) AS most FROM r, e", shards=4)
    reason = found.to_dict()["shards"]["reason"]
    assert "of e, everything is on one shard: it reads no column that can be hashed" in reason
    assert "the shards' parts of the one row are added up" in str(found)

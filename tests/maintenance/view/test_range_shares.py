"""The share of rows that comparisons let pass, and the steps that are predicted from it, against what is counted."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.view.range_shares import RangeShares

COLUMNS = ("id", "k", "s", "e", "v")
TABLE = "(id BIGINT NOT NULL, k BIGINT NOT NULL, s {0} NOT NULL, e {0} NOT NULL, v {0} NOT NULL, CHECK (s <= e))"


def filled(count, *, keys, width, cast="BIGINT"):
    """Two tables of ranges s to e of up to so much width, with 10 places for a row of each."""
    con = sqlfront.connect()
    for seed, name in enumerate("xy"):
        con.execute(f"CREATE TABLE {name} {TABLE.format(cast)}")
        draw = np.random.default_rng(seed)
        s = draw.integers(0, 10 * count, count)
        values = np.arange(count), draw.integers(0, keys, count), s, s + draw.integers(0, width, count)
        columns = dict(zip(COLUMNS, (*values, draw.integers(0, 10 * count, count)), strict=True))
        con.apply({name: pa.table(columns)})
    return con


RANGES = {
    "overlap": "SELECT x.id, y.id AS y FROM x JOIN y ON x.s <= y.e AND y.s <= x.e",
    "overlaps of each row": "SELECT x.id, count(*) AS n FROM x JOIN y ON x.s <= y.e AND y.s <= x.e GROUP BY x.id",
    "overlap within a key": "SELECT x.id, y.id AS y FROM x JOIN y ON x.k = y.k AND x.s <= y.e AND y.s <= x.e",
    "dominance": "SELECT x.id, y.id AS y FROM x JOIN y ON x.s < y.s AND x.v < y.v",
    "counts by dominance": "SELECT count(*) AS n FROM x JOIN y ON x.s < y.s AND x.v < y.v",
    "points in ranges": "SELECT x.id, y.id AS y FROM x JOIN y ON y.s BETWEEN x.s AND x.e",
    "ranges of points": "SELECT x.id, sum(y.v) AS n FROM x JOIN y ON y.s BETWEEN x.s AND x.e GROUP BY x.id",
    "close points": "SELECT x.id, y.id AS y FROM x JOIN y ON abs(x.s - y.s) <= 9 AND abs(x.v - y.v) <= 900",
    "all that is later": "SELECT x.id, count(*) AS n FROM x JOIN y ON x.s <= y.s GROUP BY x.id",
    "the greatest in a range": "SELECT x.id, max(y.v) AS n FROM x JOIN y ON y.s BETWEEN x.s AND x.e GROUP BY x.id",
    "keys in a range": "SELECT x.id, count(DISTINCT y.k) AS n FROM x JOIN y ON y.s BETWEEN x.s AND x.e GROUP BY x.id",
    "the last one": "SELECT x.id, y.id AS y FROM x ASOF LEFT JOIN y ON x.s >= y.s",
    "the last one of a key": "SELECT x.id, y.id AS y FROM x ASOF JOIN y ON x.k = y.k AND x.s >= y.s",
    "the first greatest": "SELECT x.id, m.v "
    "FROM x, LATERAL (SELECT max(y.v) AS v FROM y WHERE y.s BETWEEN x.s AND x.e) m",
}


def predicted(con, table):
    """The steps that a changed row of a table should take in all nodes that it comes to, if it changes one row of
    each."""
    nodes = con.explain("w").to_dict()["nodes"]
    below = {table}
    total = 0.0
    for node in nodes:
        if met := below & set(node["inputs"]):
            total += sum(node["predicted"].get(name, 0.0) for name in met)
            below.add(node["name"])
    return total


def counted(con, table, seed, width, keys, span):
    draw, found = random.Random(seed), []
    for number in range(3):
        s = draw.randrange(span)
        row = (10**9 + number, draw.randrange(keys), s, s + draw.randrange(width), draw.randrange(span))
        for weight in (1, -1):
            before = con.view("w").cost()["steps"]
            con.apply_row(table, row, weight=weight)
            found.append(con.view("w").cost()["steps"] - before)
    return sum(found) / len(found)


@pytest.mark.parametrize("name", RANGES)
def test_predicted_steps_are_those_of_changes(name):
    for count, width in ((500, 500), (3000, 40)):
        with filled(count, keys=count // 10, width=width) as con, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            con.execute(f"CREATE MATERIALIZED VIEW w AS {RANGES[name]}")
            before = {table: predicted(con, table) for table in "xy"}
            for table, steps in before.items():
                took = counted(con, table, 1, width, count // 10, 10 * count)
                assert steps / 8 < took < 8 * steps, (count, width, table)


def test_a_view_of_narrow_ranges_is_announced_as_slow_only_where_it_is():
    con = filled(80_000, keys=10, width=40)
    quick = [name for name in RANGES if name not in ("dominance", "all that is later")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, name in enumerate(quick):
            con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {RANGES[name]}")
            con.execute(f"DROP MATERIALIZED VIEW v{number}")
    with pytest.warns(sqlfront.CostWarning, match="a changed row of y takes about"):
        con.execute(f"CREATE MATERIALIZED VIEW later AS {RANGES['all that is later']}")


def test_rows_that_are_sorted_at_each_epoch_are_announced():
    con = filled(1000, keys=10, width=40)
    with pytest.warns(sqlfront.CostWarning, match=r"a changed row of x takes about \d\d\d,\d\d\d steps in block 1"):
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT max(y.v - x.v) AS n FROM x JOIN y ON y.s <= x.s")


def test_rows_that_are_told_to_a_condition_row_by_row_are_predicted():
    """The pairs of the range are listed for DuckDB to test; nobody else would have them listed."""
    con = filled(1000, keys=10, width=40)
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT x.id FROM x JOIN y ON x.s < y.s AND hash(x.id + y.id) % 5 = 1")
    for table in "xy":
        steps = predicted(con, table)
        assert steps / 4 < counted(con, table, 1, 40, 10, 10_000) < 4 * steps and steps > 500


def test_a_row_that_is_nearest_to_many_is_announced():
    con = filled(60_000, keys=10, width=40)
    con.execute("DELETE FROM y WHERE id >= 3")
    with pytest.warns(sqlfront.CostWarning, match=r"a changed row of block \d takes about .* steps in block \d"):
        con.execute(f"CREATE MATERIALIZED VIEW w AS {RANGES['the last one']}")


@pytest.mark.parametrize(
    "type_", ["BIGINT", "INTEGER", "DOUBLE", "DECIMAL(9, 2)", "HUGEINT", "UBIGINT", "DATE", "INTERVAL"]
)
def test_shares_are_those_of_all_pairs(type_):
    draw = random.Random(type_)
    con = sqlfront.connect()
    made = {"DATE": "DATE '2020-01-01' + {}::INTEGER", "INTERVAL": "to_seconds({})"}.get(type_, "{}")
    for name in "xy":
        con.execute(f"CREATE TABLE {name} (id BIGINT, k BIGINT, a {type_}, b {type_})")
        rows = [(i, draw.randrange(4), draw.randrange(100), draw.randrange(100)) for i in range(300)]
        con.execute("CREATE OR REPLACE TEMP TABLE drawn (id BIGINT, k BIGINT, a BIGINT, b BIGINT)")
        con.executemany("INSERT INTO drawn VALUES (?, ?, ?, ?)", rows)
        column = [f"CASE WHEN {one} < 90 THEN ({made.format(one)})::{type_} END" for one in "ab"]
        con.execute(f"INSERT INTO {name} SELECT id, k, {', '.join(column)} FROM drawn")
    con.execute(
        "CREATE MATERIALIZED VIEW w AS SELECT x.id, y.id AS y FROM x JOIN y ON x.k = y.k AND x.a < y.a AND y.b <= x.b"
    )
    member = con.view("w")._entry.maintained
    tests = member.definition.comparisons
    assert len(tests) == 2
    shares = RangeShares(member)
    # NULLs are in no leaf, so they count for no pair.
    [(all_pairs, met)] = con.execute(
        "SELECT count(*), count(*) FILTER (x.a < y.a AND y.b <= x.b) FROM x JOIN y ON x.k = y.k "
        "WHERE x.a IS NOT NULL AND x.b IS NOT NULL AND y.a IS NOT NULL AND y.b IS NOT NULL"
    ).fetchall()
    assert shares.of(tests) == pytest.approx(met / all_pairs)
    for one in tests:
        assert 0.2 < shares.of([one]) < 0.8

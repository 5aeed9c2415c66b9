"""A view kept in another file: equal to the view after every write, whatever was missed, and written once."""

from __future__ import annotations

import random
import time
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

import sqlfront


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT, s VARCHAR)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT s, a FROM t WHERE a > 0")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT s, sum(a) AS total FROM t GROUP BY s")
        yield con


def held(path, table):
    with duckdb.connect(str(path)) as con:
        return Counter(con.execute(f"FROM {table}").fetchall())


def wanted(con, view):
    return Counter(con.execute(f"FROM {view}").fetchall())


@pytest.mark.parametrize("view", ["v", "w"])
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_the_view(con, tmp_path, view, seed):
    rng, rows, path = random.Random(seed), [], tmp_path / "copy.duckdb"
    for _ in range(4):
        with con.view(view).copy_to(str(path)):
            for _ in range(4):
                change(con, rng, rows)
        assert held(path, view) == wanted(con, view)
        change(con, rng, rows)  # Nobody copies this one: the next copy finds the difference.


def change(con, rng, rows):
    new = [(rng.choice([-1, 1, 2, None]), rng.choice(["x", "y", None])) for _ in range(5)]
    gone = rng.sample(rows, min(3, len(rows)))
    weights = [1] * len(new) + [-1] * len(gone)
    a, s = zip(*new, *gone, strict=True)
    con.apply({"t": pa.table({"a": pa.array(a, pa.int64()), "s": pa.array(s, pa.string()), "_weight": weights})})
    for row in gone:
        rows.remove(row)
    rows += new


def test_a_copy_follows_without_being_closed(con, tmp_path):
    copy = con.view("w").copy_to(str(tmp_path / "copy.duckdb"), "totals")
    epoch = con.apply_row("t", (5, "x"))
    until = time.monotonic() + 30
    while copy.version < epoch and time.monotonic() < until:
        time.sleep(0.01)
    assert copy.version == epoch and copy.error is None
    copy.close()
    assert held(tmp_path / "copy.duckdb", "totals") == {("x", 5): 1}


def test_what_is_written_is_not_written_again(con, tmp_path):
    path = tmp_path / "copy.duckdb"
    con.execute("INSERT INTO t VALUES (1, 'x')")
    con.view("v").copy_to(str(path)).close()
    with duckdb.connect(str(path)) as other:
        other.execute("INSERT INTO v VALUES ('mark', 0)")
    con.view("v").copy_to(str(path)).close()
    assert held(path, "v") == {("x", 1): 1, ("mark", 0): 1}


def test_a_copy_that_cannot_be_kept_is_refused(con, tmp_path):
    path = tmp_path / "copy.duckdb"
    with duckdb.connect(str(path)) as other:
        other.execute("CREATE TABLE v (s VARCHAR)")
    with pytest.raises(sqlfront.ProgrammingError, match="other columns"):
        con.view("v").copy_to(str(path))
    with pytest.raises(sqlfront.OperationalError, match="cannot be kept"):
        con.view("v").copy_to(str(tmp_path / "nosuch" / "copy.duckdb"))
    copy = con.view("w").copy_to(str(path))
    with duckdb.connect(str(path)) as other:
        other.execute("DROP TABLE w")
    con.execute("INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(duckdb.Error, match="w"):
        copy.close()

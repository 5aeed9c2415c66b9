"""The short ways in, for batches and for single rows: the same result as the general way, whatever the columns."""

from __future__ import annotations

import datetime
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.epoch import RowFastPath
from sqlfront.maintenance.relation.ingest import Ingest

SCHEMA = "id BIGINT, name VARCHAR NOT NULL, tag VARCHAR, day DATE"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT name, tag, day, COUNT(*) AS n, SUM(id) AS s FROM t GROUP BY ALL"


@pytest.fixture
def con():
    con = sqlfront.connect()
    con.execute(f"CREATE CHANGE TABLE t ({SCHEMA}) WITH (retain = false)")
    con.execute(VIEW)
    yield con
    con.close()


def batch(rows, text=None):
    text = text or pa.string()
    types = [pa.int64(), text, text, pa.date32()]
    columns = [pa.array([row[i] for row in rows], types[i]) for i in range(4)]
    return pa.record_batch(columns, names=["id", "name", "tag", "day"])


def random_rows(random, count, names):
    day = datetime.date(2026, 1, 1)
    return [
        (
            int(random.integers(1000)),
            f"name {random.integers(names)}",
            None if random.random() < 0.2 else "x" * int(random.integers(20)),
            None if random.random() < 0.1 else day + datetime.timedelta(days=int(random.integers(3))),
        )
        for _ in range(count)
    ]


def expected(bag):
    groups = {}
    for (key, *group), weight in bag.items():
        n, s = groups.get(tuple(group), (0, 0))
        groups[tuple(group)] = n + weight, s + weight * key
    return Counter((*group, n, s) for group, (n, s) in groups.items() if n)


def count_calls(monkeypatch, owner, name):
    """Count the calls that the short way has served: its result is neither None nor False."""
    served = []
    original = getattr(owner, name)

    def counted(self, *arguments):
        result = original(self, *arguments)
        served.append(result is not None and result is not False)
        return result

    monkeypatch.setattr(owner, name, counted)
    return served


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_batches_of_text_go_the_short_way(con, monkeypatch, text):
    """Slices, NULLs and ever new strings included; only growth of the dictionary sends a batch the general way."""
    served = count_calls(monkeypatch, Ingest, "pack")
    random = np.random.default_rng(3)
    bag = Counter()
    for number in range(40):
        rows = random_rows(random, 60, 10 * (number + 1))
        con.apply({"t": batch(rows, text).slice(7, 41)})
        bag.update(rows[7:48])
        assert Counter(con.execute("FROM v").fetchall()) == expected(bag)
    assert sum(served) > 25


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_kinds_of_changes_go_the_short_way(con, monkeypatch, text):
    """Before and after images as well, in slices and chunks; an unknown kind, or none, goes the general way, which
    refuses it. Epochs count distinct rows of the table, not of its changes."""
    served, bag = count_calls(monkeypatch, Ingest, "pack"), Counter()
    con.apply({"t": batch([(0, "first", None, None)])})
    bag[0, "first", None, None] = 1
    for number in range(12):
        came = random_rows(np.random.default_rng(number), 25, 8)
        came += came[:5]  # Of the other kind.
        gone = [row for row in bag.elements() if row[0] % 3 == 0]
        kinds = ["insert", "update_postimage"] * 15 + ["delete", "update_preimage"] * len(gone)
        rows = pa.table(batch([*came, *gone], text)).append_column(
            "_Change_Type", pa.array(kinds[: 30 + len(gone)], text)
        )
        changes = pa.concat_tables([rows.slice(0, 11), rows.slice(11)])
        epoch = con.apply({"t": changes if number % 2 else changes.combine_chunks().to_batches()[0]})
        before = bag.copy()
        bag.update(came)
        bag.subtract(gone)
        assert epoch.rows == {"t": sum(bag[row] != before[row] for row in {*bag, *before})}
        bag = +bag
        assert Counter(con.execute("FROM v").fetchall()) == expected(bag)
    assert sum(served) > 8
    before = con.execute("FROM v").fetchall()
    for kind in ("inserts", "Insert", "update_preimagf", "", None):
        rows = pa.table(batch([(1, "a", None, None)])).append_column("_change_type", pa.array([kind], text))
        with pytest.raises(sqlfront.DataError, match="_change_type of t is"):
            con.apply({"t": rows})
    assert con.execute("FROM v").fetchall() == before


def test_batches_of_other_schemas_follow_each_other(con):
    """Columns in another order, under other names, of other types, nested or in dictionaries."""
    plain = pa.Table.from_batches([batch([(1, "a", None, None), (2, "b", "c", datetime.date(2026, 1, 2))])])
    total = 0
    narrow = plain.set_column(0, "ID", plain["id"].cast(pa.int32()))
    encoded = plain.set_column(1, "name", plain["name"].dictionary_encode())
    dated = plain.set_column(3, "day", plain["day"].cast(pa.date64()))
    for changes in (plain, narrow, plain, plain.select([3, 0, 2, 1]), encoded, plain, dated, encoded, narrow, plain):
        con.apply({"t": changes.append_column("_weight", pa.array([3, 4], pa.int64()))})
        total += 7
        con.apply({"t": changes})
        total += 2
        assert con.execute("SELECT sum(n) FROM v").fetchall() == [(total,)]
    for wrong in (plain.drop_columns(["day"]), plain.rename_columns(["id", "name", "tag", "dax"])):
        with pytest.raises(sqlfront.Error):
            con.apply({"t": wrong})
    structs = plain.set_column(0, "id", pa.array([{"x": 1}, {"x": 2}]))
    with pytest.raises(sqlfront.Error):
        con.apply({"t": structs})
    assert con.execute("SELECT sum(n) FROM v").fetchall() == [(total,)]


def test_a_batch_is_let_go(con):
    """What was handed over comes back: no buffer of it is held when the epoch has been logged over."""
    rows = batch([(number, "a", None, None) for number in range(20_000)])
    con.apply({"t": rows})
    con.apply({"t": batch([(1, "a", None, None)])})
    held = pa.total_allocated_bytes()
    for _ in range(5):
        con.apply({"t": batch([(number, "a", None, None) for number in range(20_000)])})
    con.apply({"t": batch([(1, "a", None, None)])})
    assert pa.total_allocated_bytes() <= held + 1_000


def test_a_null_in_a_column_that_no_view_reads_is_refused(con, monkeypatch):
    con.execute("CREATE CHANGE TABLE u (a BIGINT, b VARCHAR NOT NULL) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a, count(*) AS n FROM u GROUP BY a")
    con.apply({"u": pa.record_batch({"a": [1], "b": ["x"]})})
    served = count_calls(monkeypatch, Ingest, "pack")
    con.apply({"u": pa.record_batch({"a": [1], "b": ["y"]})})
    assert served == [True]
    with pytest.raises(sqlfront.IntegrityError, match="NULL in column b"):
        con.apply({"u": pa.record_batch({"a": [1, 2], "b": ["y", None]})})
    assert con.execute("FROM w").fetchall() == [(1, 2)]


def test_single_rows_of_text_go_the_short_way(con, monkeypatch):
    con.apply_row("t", (0, "first", None, None))
    served = count_calls(monkeypatch, RowFastPath, "run")
    random = np.random.default_rng(4)
    bag = Counter({(0, "first", None, None): 1})
    for row in random_rows(random, 300, 100):
        con.apply_row("t", row)
        bag[row] += 1
        if random.random() < 0.3:
            gone = next(iter(bag))
            con.apply_row("t", gone, -1)
            bag[gone] -= 1
            bag += Counter()
    assert Counter(con.execute("FROM v").fetchall()) == expected(bag)
    assert all(served)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((1, None, "a", None), sqlfront.IntegrityError),
        ((1, "a", 5, "no date"), sqlfront.DataError),
        (("one", "a", "a", None), sqlfront.DataError),
        ((2**63, "a", "a", None), sqlfront.DataError),
        ((1, "\ud800", "a", None), sqlfront.DataError),
        ((1, "a", "a"), sqlfront.DataError),
    ],
)
def test_bad_rows_are_refused_and_nothing_changes(con, row, error):
    con.apply_row("t", (1, "a", "a", None))
    before = con.execute("FROM v").fetchall()
    with pytest.raises(error):
        con.apply_row("t", row)
    assert con.execute("FROM v").fetchall() == before


def test_a_null_where_none_may_be_is_refused_in_a_batch(con):
    con.apply({"t": batch([(1, "a", "a", None)])})
    with pytest.raises(sqlfront.IntegrityError, match="NULL in column name"):
        con.apply({"t": batch([(2, None, "a", None)])})
    assert con.execute("FROM v").fetchall() == [("a", "a", None, 1, 1)]


def test_strings_out_of_use_are_forgotten_by_the_short_ways(con):
    """A window of 100 rows slides over 20,000 strings; those that left it do not stay."""
    held = []
    for number in range(200):
        rows = [(i, f"{number}/{i}", None, None) for i in range(100)]
        con.apply(
            {
                "t": pa.record_batch(
                    [*batch(held + rows).columns, pa.array([-1] * len(held) + [1] * 100)],
                    names=["id", "name", "tag", "day", "_weight"],
                )
            }
        )
        held = rows
    for row in [(i, f"row {i}", None, None) for i in range(5000)]:
        con.apply_row("t", row)
        con.apply_row("t", row, -1)
    assert con.session.database.engine.dictionaries.varchar.live() < 3000


def test_an_epoch_counts_distinct_rows_of_the_table(con):
    """Also in columns that the view does not read, in both ways in."""
    con.execute("CREATE CHANGE TABLE u (a BIGINT, b VARCHAR, c INTERVAL) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a, COUNT(*) AS n FROM u GROUP BY a")
    month = pa.array([(1, 0, 0), (1, 0, 0), (2, 0, 0), (1, 0, 0)], pa.month_day_nano_interval())
    columns = [pa.array([1, 1, 1, 2]), pa.array(["x", "x", "x", None]), month]
    weights = pa.array([1, 1, 1, 0], pa.int64())
    rows = pa.table([*columns, weights], ["a", "b", "c", "_weight"])
    assert con.apply({"u": rows}).rows == {"u": 2}
    assert con.apply({"t": batch([(1, "a", None, None), (1, "a", None, None), (1, "b", None, None)])}).rows == {"t": 2}
    assert con.apply({"t": batch([(1, "a", None, None), (2, "a", None, None)])}).rows == {"t": 2}


@pytest.mark.parametrize("kind", ["table", "frame", "strided", "all"])
def test_tables_and_frames_of_numbers_go_the_short_way(monkeypatch, kind):
    """Chunks, weights, columns that lie apart and changing schemas; the epoch tells the rows that were given."""
    served = count_calls(monkeypatch, Ingest, "pack")
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE n (a BIGINT, b INTEGER) WITH (retain = false)")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT b, SUM(a) AS s FROM n GROUP BY b")
        bag = Counter()
        for number in range(12):
            words = np.random.default_rng(number).integers(-9, 9, (40, 3))
            weighted = {"_weight": np.abs(words[:, 2]) + 1} if number % 4 == 3 else {}
            frame = pd.DataFrame({"a": words[:, 0], "b": words[:, 1].astype("i4"), **weighted})
            changes = frame
            turn = ("table", "frame", "strided")[number % 3] if kind == "all" else kind
            if turn == "table":
                changes = pa.concat_tables([pa.table(frame).slice(0, 7), pa.table(frame).slice(7)])
            elif turn == "strided":
                changes = pd.DataFrame(np.ascontiguousarray(frame.to_numpy(np.int64)), columns=frame.columns)
                changes["b"] = changes["b"].astype(np.int32)
            epoch = con.apply({"n": changes})
            for a, b, n in zip(frame.a, frame.b, weighted.get("_weight", np.ones(40, int)), strict=True):
                bag[int(b)] += int(a * n)
            assert epoch.rows == {"n": len(set(zip(frame.a, frame.b, strict=True)))}
        assert dict(con.sql("FROM w").fetchall()) == bag
    assert sum(served) >= 11


def test_frames_that_do_not_fit_go_the_general_way():
    """A number that stands for NULL, other widths, floating numbers and unknown columns."""
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE n (a BIGINT, b DOUBLE) WITH (retain = true)")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT a, b FROM n")
        frames = [{"a": [1], "b": [2]}, {"a": [-(2**63)], "b": [float("nan")]}, {"a": np.array([7], "i2"), "b": [0.5]}]
        for columns in frames:
            con.apply({"n": pd.DataFrame(columns)})
        assert sorted(con.sql("FROM w").fetchall()) == [(-(2**63), None), (1, 2.0), (7, 0.5)]
        with pytest.raises(sqlfront.ProgrammingError, match="no column c"):
            con.apply({"n": pd.DataFrame({"a": [1], "b": [2], "c": [3]})})

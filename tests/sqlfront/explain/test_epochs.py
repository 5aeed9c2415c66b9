"""SHOW EPOCHS: the parts and phases of the last epochs, whose seconds and steps add up."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.epoch_work import KEPT


@pytest.fixture
def con():
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a BIGINT, b BIGINT)")
    con.execute("CREATE CHANGE TABLE c (a BIGINT, n BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW middle AS SELECT a, median(DISTINCT b) AS m FROM t GROUP BY a")
    con.execute("CREATE MATERIALIZED VIEW total AS SELECT a, sum(n) AS s FROM t JOIN c USING (a) GROUP BY a")
    return con


def shown(con):
    return con.sql("SHOW EPOCHS").to_arrow_table().to_pylist()


def test_nothing_has_been_changed_yet(con):
    assert shown(sqlfront.connect()) == [] and shown(con) == []


def test_an_insert_has_a_row_for_each_part_and_phase(con):
    con.execute("INSERT INTO t SELECT i % 10, i FROM range(1000) AS r(i)")
    rows = {(row["view"], row["part"]): row for row in shown(con)}
    computed = rows["middle", "block 2"]
    assert (computed["rows_in"], computed["rows_out"]) == (1000, 10) and computed["steps"] >= 1000
    assert rows["total", "view"]["rows_in"] == 1000 and rows["total", "view"]["rows_out"] is None
    phases = {part for view, part in rows if view is None}
    assert phases >= {"writing in DuckDB", "encoding", "COMMIT", "other"}
    assert {row["epoch"] for row in rows.values()} == {con.session.database.engine.epoch}
    assert all(row["epochs"] == 1 and row["seconds"] >= 0 for row in rows.values())
    con.execute("BEGIN; UPDATE t SET b = b + 1 WHERE a = 1; COMMIT")  # Triggers capture it.
    assert any(row["part"] == "reading captured changes" for row in shown(con))


def test_the_seconds_of_an_epoch_add_up_to_its_own(con):
    epoch = con.apply({"c": pa.table({"a": [1, 2], "n": [1, 1]}), "t": pa.table({"a": [1], "b": [5]})})
    rows = [row for row in shown(con) if row["epoch"] == epoch.number]
    assert sum(row["seconds"] for row in rows) == pytest.approx(epoch.seconds)
    for view in ("middle", "total"):
        own = [row for row in rows if row["view"] == view]
        assert sum(row["seconds"] for row in own) == pytest.approx(epoch.view_seconds[view])
        assert sum(row["steps"] for row in own) == epoch.steps[view]


def test_a_computed_group_that_is_slow_is_named(con):
    evaluator = con.session.database.engine.nodes
    node = next(node for name, node in evaluator.items() if name.endswith("/2"))
    output = node.output
    node.output = lambda done: (time.sleep(0.05), output(done))[1]
    con.execute("INSERT INTO t VALUES (1, 1)")
    slowest = max(shown(con), key=lambda row: row["seconds"])
    assert (slowest["view"], slowest["part"]) == ("middle", "block 2") and slowest["seconds"] >= 0.05


def test_single_rows_are_one_entry_between_others(con):
    con.execute("INSERT INTO t VALUES (1, 1)")
    con.apply_row("c", (1, 1))  # It opens the short way.
    before = con.view("total").cost()["steps"]
    for n in range(7):
        con.apply_row("c", (1, n))
    steps = con.view("total").cost()["steps"] - before
    con.execute("INSERT INTO t VALUES (1, 2)")
    entries = [row for row in shown(con) if row["view"] == "total"]
    assert [row["epochs"] for row in entries] == [1, 1, 7, 1]
    assert entries[2]["seconds"] is None and entries[2]["rows_in"] is None and entries[2]["steps"] == steps
    assert [row["epoch"] for row in entries] == [1, 2, 9, 10]


def test_steps_of_what_was_taken_back_are_no_epochs(con):
    con.execute("INSERT INTO t SELECT 1, i FROM range(100) AS r(i)")
    con.execute("INSERT INTO c VALUES (1, 1)")
    with pytest.raises(sqlfront.IntegrityError):
        con.apply({"c": pa.table({"a": [9] * 5000, "n": [9] * 5000, "_weight": [-1] * 5000})})
    con.execute("BEGIN")
    con.execute("INSERT INTO t SELECT 1, i FROM range(5000) AS r(i)")
    con.execute("FROM total").fetchall()
    con.execute("ROLLBACK")
    assert len({row["epoch"] for row in shown(con)}) == 2
    con.execute("INSERT INTO c VALUES (2, 2)")
    last = [row for row in shown(con) if row["epoch"] == con.session.database.engine.epoch]
    assert 0 < sum(row["steps"] or 0 for row in last) < 100


def test_what_a_subscriber_is_told_is_the_views(con):
    con.execute("INSERT INTO t VALUES (1, 1)")
    with con.view("total").subscribe(snapshot=False):
        con.execute("INSERT INTO c VALUES (1, 5), (2, 6)")
        row = shown(con)[-3:]
    told = next(one for one in row if one["view"] == "total")
    assert told["rows_out"] == 1


def test_only_the_last_epochs_are_kept_and_a_dropped_view_is_still_named(con):
    for n in range(KEPT + 5):
        con.apply({"c": pa.table({"a": [n], "n": [1]})})
    con.execute("DROP MATERIALIZED VIEW total")
    con.execute("DROP MATERIALIZED VIEW middle")
    con.execute("CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM c")
    rows = shown(con)
    assert [row["epoch"] for row in rows if row["view"] == "total"] == list(range(6, KEPT + 6))
    assert not [row for row in rows if row["view"] == "other"]


def test_epochs_go_on_where_a_file_was_left(tmp_path):
    with sqlfront.connect(tmp_path / "d") as con:
        con.execute("CREATE TABLE t (a BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
        con.execute("INSERT INTO t VALUES (1)")
    with sqlfront.connect(tmp_path / "d") as con:
        assert shown(con) == []
        con.execute("INSERT INTO t VALUES (2)")
        assert {row["epoch"] for row in shown(con)} == {2}

"""The demonstration, small: it ends well when every view equals its query, and not when one does not."""

from __future__ import annotations

import duckdb
import pyarrow
import pytest

from sqlfront.demo.__main__ import main
from sqlfront.demo.judge import Judge
from sqlfront.demo.tpch import STREAMED, TABLES, Source, schema, views


@pytest.fixture(scope="module")
def source():
    return Source(0.01, 4)


def test_every_view_equals_its_query(capsys):
    assert main(["--scale", "0.01", "--refreshes", "2"]) == 0
    output = capsys.readouterr().out
    assert "Every view equals its query" in output
    assert "4 refreshes" in output
    for name in views():
        assert f"{name}: " in output


def test_the_stream_inserts_what_was_held_back_and_deletes_what_was_loaded(source):
    keys = {name: set(source.initial(name)[key].to_pylist()) for name, key in STREAMED.items()}
    loaded = keys["orders"]
    seen = set()
    for refresh in source.stream():
        orders = set(refresh.orders["o_orderkey"].to_pylist())
        assert orders
        assert set(refresh.lineitem["l_orderkey"].to_pylist()) == orders
        assert not orders & seen
        seen |= orders
        assert orders <= loaded if refresh.weight < 0 else not orders & loaded
    assert keys["lineitem"] == loaded
    assert len(seen) == 2 * source.refreshes * source.size


def test_the_judge_finds_a_wrong_row_and_a_wrong_type(source):
    judge = Judge(schema(), views())
    for name in TABLES:
        judge.load(name, source.initial(name))
    rows = judge.con.sql(views()["q18_inner"].replace("> 300", "> 200")).to_arrow_table()
    right = judge.con.sql(views()["q18_inner"]).to_arrow_table()
    assert judge.differences("q18_inner", right) == (len(right), 0, 0)
    assert judge.differences("q18_inner", rows) == (len(right), 0, len(rows) - len(right))
    q1 = judge.con.sql(views()["q1"]).to_arrow_table()
    assert judge.differences("q1", q1) == (len(q1), 0, 0)
    off = duckdb.sql("SELECT * REPLACE (avg_disc * 1.000001 AS avg_disc) FROM q1").to_arrow_table()
    assert judge.differences("q1", off) == (len(q1), len(q1), len(q1))
    with pytest.raises(AssertionError, match="types"):
        judge.differences("q18_inner", right.set_column(1, "quantity", right["quantity"].cast(pyarrow.float64())))


def test_wrong_options_are_refused():
    with pytest.raises(SystemExit):
        main(["--scale", "0.001"])

"""The sides of the benchmarks agree, on small workloads: a race between wrong answers says nothing."""

from __future__ import annotations

import pytest

from benchmarks import harness, inequality_streams, range_joins, scaling, triangle_costs, triangle_delays
from benchmarks.sides import Missing, Run, run_duckdb, run_pathway, run_sqlfront, run_sqlite
from benchmarks.w1 import compare, normal, verdicts
from benchmarks.workloads import WORKLOADS


@pytest.fixture(scope="module", params=WORKLOADS)
def work(request):
    return WORKLOADS[request.param](400, scale=0.01)


@pytest.mark.parametrize("size", [100, 1])
def test_peers_agree(work, size):
    duck = run_duckdb(work, size, most=3)
    assert duck.rows
    assert normal(run_sqlite(work, size).rows) == normal(duck.rows)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("size", [100, 1])
def test_sqlfront_agrees(work, size, retain):
    run = run_sqlfront(work, size, retain=retain)
    compare([run, run_sqlite(work, size)])
    assert run.steps
    assert run.rate > 0


def test_a_declared_key_lowers_the_cost_class():
    work = WORKLOADS["w1"](100, scale=0.01)
    keyed, plain = (run_sqlfront(work, 100, retain=True, keyed=keyed) for keyed in (True, False))
    assert keyed.notes["update"] == "O(1)"
    assert plain.notes["shape"] == "free-connex"
    assert plain.notes["update"] != "O(1)"
    assert normal(keyed.rows) == normal(plain.rows)


def test_pathway_agrees_where_it_is_installed(work):
    try:
        run = run_pathway(work, 100)
    except Missing as reason:
        pytest.skip(str(reason))
    assert normal(run.rows) == normal(run_sqlite(work, 100).rows)


def test_other_rows_are_seen():
    work = WORKLOADS["w1"](50, scale=0.01)
    right = run_sqlite(work, 50)
    wrong = Run("wrong", 50, [1.0], right.rows[1:], 0.0)
    with pytest.raises(SystemExit, match="wrong at batches of 50"):
        compare([right, wrong])


def test_a_missed_promise_is_said():
    fast = Run("sqlfront retain=false", 100, [1.0], [], 0.0)
    slow = Run("sqlfront retain=true", 100, [3.0], [], 0.0)
    lines = verdicts([fast, slow, Run("duckdb recompute", 100, [2.0], [], 0.0)], {100: 50.0})
    assert [line.endswith("MISSED.") for line in lines] == [True, True, True]
    lines = verdicts([fast], {100: 5.0})
    assert lines == ["batches of 100: 20.0x SQLite, 10.0x promised: kept."]


def test_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    path = harness.report("some", "Some figures", [{"a": 1234567, "b": 0.12345}, {"a": 1, "c": "x"}], notes=["a note"])
    text = path.read_text()
    assert "| 1,234,567 | 0.123 | - |" in text
    assert "- a note" in text
    assert (tmp_path / "some.csv").read_text().splitlines() == ["a,b,c", "1234567,0.12345,", "1,,x"]
    assert "Some figures" in capsys.readouterr().out
    assert "GiB" in harness.machine()


def test_the_simulation_of_shards_sends_what_the_planner_expects():
    for line in scaling.simulate(2000, (1, 8)):
        mean = line["expected"] * line["used"]
        assert line["copies"] * sum(scaling._rows(t, 2000) for t in tables_of(line["query"])) == pytest.approx(mean)
        assert line["s = 1.5"] >= line["s = 0.0"] >= 1
    assert line["grid"] == "2 x 2 x 2"


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.25, 0.5])
def test_the_longest_waits_are_as_stated(columns, epsilon):
    """Kara et al. (2020), Theorem 3, where every row is found in as many ways as its parts allow."""
    waits = []
    query = f"SELECT {triangle_costs.OUTPUTS[columns]}, count(*) AS n {triangle_costs.JOIN} GROUP BY ALL"
    for size in (3_000, 30_000):
        con = triangle_costs.built(triangle_delays.block(columns, epsilon, size), query, f"WITH (epsilon = {epsilon})")
        waits.append(triangle_delays.longest_wait(con))
        con.close()
        assert waits[-1] <= triangle_delays.MOST * size ** (triangle_delays.POWER[columns] * epsilon)
    if columns < 3:
        assert waits[1] >= 1.5 * waits[0], "the graph does not make rows wait"


def tables_of(query):
    return [table for table in scaling.TABLES if f" {table} " in f"{scaling.QUERIES[query]} "]


@pytest.mark.parametrize(
    "work", [range_joins.PAPER[0], range_joins.PAPER[5], range_joins.OWN[0]], ids=lambda work: work.name
)
def test_joins_by_ranges_store_no_pairs(work):
    """Beside a view that stores every join, and whose rows are those of the query too."""
    found = [range_joins.measure(work, rows, 20, times=2) for rows in (100, 400)]
    assert found[1]["entries/row"] < min(4, 1.2 * found[0]["entries/row"])
    assert found[1]["result"] > 4 * found[0]["result"]


@pytest.mark.parametrize("name", ["GCQ6", "fraud"])
def test_streams_are_smaller_than_stored_joins(name):
    """All views have the rows of the query, and the subscriber is told of rows."""
    [stream] = (one for one in inequality_streams.STREAMS if one.name == name)
    assert inequality_streams.beside_stored(stream, 300, times=2)["times smaller"] > 1
    rows_a_second, rows_a_change = inequality_streams.emitted(stream, 60, seconds=0.2)
    assert rows_a_second > 0 and rows_a_change > 0

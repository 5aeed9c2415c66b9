"""The sides of the yannakakis benchmark agree, full joins included, and its verdicts can be bad."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from benchmarks.tpch_stream import PHASES, Workload, queries, read_workload, write_workload
from benchmarks.yannakakis import compare, verdicts
from benchmarks.yannakakis_side import Figures, normal, run_side

SCALE, BUDGET = 0.001, 2**40


@pytest.mark.parametrize(("name", "scale"), [("FQ1", SCALE), ("FQ4", SCALE / 4), ("Q3", SCALE), ("Q12", SCALE)])
def test_sides_agree(name, scale, tmp_path):
    work = write_workload(name, scale, tmp_path)
    assert read_workload(work.save()) == work
    # Under a name of its own, a full join's rows are compared too.
    runs = {side: run_side(side, replace(work, name="all"), BUDGET) for side in ("auto", "materialize", "duckdb")}
    compare(name, runs)
    for run in runs.values():
        assert run.epochs == work.epochs
        assert all(len(run.answer[phase]) == run.rows[phase] for phase in PHASES)
        assert run.single and run.peak > 0
    assert runs["auto"].rows["insert"] > 0
    assert json.loads(json.dumps(asdict(runs["auto"])))["side"] == "auto"


def test_a_stream_brings_two_thirds_of_each_table_once(tmp_path):
    work = write_workload("FQ1", SCALE, tmp_path)
    assert {table: work.rows[table] for table in ("orders", "part", "partsupp")} == {
        "orders": 1000, "part": 133, "partsupp": 532,
    }  # fmt: skip
    epochs = list(work.phase("insert"))
    assert [sum(batch.num_rows for batch in epoch.values()) for epoch in epochs[:-1]] == [1000] * (len(epochs) - 1)
    orders = [key for epoch in epochs if "orders" in epoch for key in epoch["orders"]["o_orderkey"].to_pylist()]
    assert len(orders) == len(set(orders)) == 1000
    assert orders != sorted(orders)
    gone = [
        key for epoch in work.phase("delete") if "orders" in epoch for key in epoch["orders"]["o_orderkey"].to_pylist()
    ]
    assert 50 < len(gone) < 200
    assert set(gone) < set(orders)


def test_a_side_stops_beyond_its_budget(tmp_path):
    work = write_workload("FQ4", SCALE, tmp_path)
    run = run_side("materialize", work, 2**20)
    assert run.out_of_budget
    assert run.epochs["insert"] < work.epochs["insert"]
    assert "insert" not in run.rows


def test_other_results_are_seen():
    right = Figures("auto", rows={"insert": 2}, answer={"insert": ["1", "2"]})
    compare("Q1", {"auto": right, "duckdb": replace(right, side="duckdb")})
    with pytest.raises(SystemExit, match="duckdb and auto disagree on Q1"):
        compare("Q1", {"auto": right, "duckdb": replace(right, side="duckdb", answer={"insert": ["1", "3"]})})


def test_verdicts_can_be_bad(tmp_path):
    works = [
        Workload(name, "", tmp_path, {"lineitem": 2_000_000}, {"insert": 10, "delete": 1}) for name in ("FQ4", "Q1")
    ]
    auto = Figures("auto", {"insert": 1.0}, {"insert": 10}, 100, 100, 1e-5, rows={"insert": 10**8})
    good = Figures("materialize", {"insert": 4.1}, {"insert": 10}, 600, 90, rows={"insert": 10**8})
    bad = Figures("materialize", {"insert": 3.9}, {"insert": 10}, 400, 80, rows={"insert": 10**8})

    def words(base: Figures, single: float) -> list[str]:
        duckdb = Figures("duckdb", single=single)
        runs = [{"auto": auto, "materialize": base, "duckdb": duckdb}, {"auto": auto, "materialize": base}]
        cases = [(0.25, work, sides) for work, sides in zip(works, runs, strict=True)]
        return [line.rpartition(": ")[2] for line in verdicts(cases, 1.0)]

    assert words(good, 1.0) == ["kept.", "kept.", "kept.", "kept.", "MISSED."]
    assert words(bad, 1e-4) == ["MISSED.", "MISSED.", "MISSED.", "MISSED.", "MISSED."]


def test_queries_are_those_of_the_paper():
    assert list(queries()) == ["FQ1", "FQ2", "FQ3", "FQ4", "Q1", "Q3", "Q4", "Q6", "Q9", "Q12", "Q13'", "Q16'", "Q18",
                               "Q18 inner"]  # fmt: skip
    assert normal([(1, 2.0000000001), (0, None)]) == ["0 | None", "1 | 2"]

"""Costs by counting steps: what a view's class promises holds from a thousand to a million rows (law 4).

Steps are slots looked at, list members visited and rows written; hashing adds a small spread, so medians of many
single-row updates are compared.
"""

from __future__ import annotations

import statistics

import numpy as np
import pyarrow as pa
import pytest

import sqlfront

SIZES = [1_000, 10_000, 100_000]
MILLION = pytest.param(1_000_000, marks=pytest.mark.slow)
Q_HIERARCHICAL = "SELECT r.a, count(*) AS n, sum(r.b * s.c) AS p FROM r, s WHERE r.a = s.a GROUP BY r.a"
FULL_JOIN = "SELECT r.a, r.b, s.c FROM r, s WHERE r.a = s.a"
FREE_CONNEX = "SELECT r.b, count(*) AS n FROM r, s WHERE r.a = s.a GROUP BY r.b"


class Steps:
    """Two change tables r(a, b) and s(a, c), and a view; counts steps of updates and of reading."""

    def __init__(self, query: str) -> None:
        self.con = sqlfront.connect()
        self.con.execute("CREATE CHANGE TABLE r (a BIGINT, b BIGINT) WITH (retain = true)")
        self.con.execute("CREATE CHANGE TABLE s (a BIGINT, c BIGINT) WITH (retain = true)")
        self.con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        self.view = self.con.view("v")

    def load(self, table: str, keys: np.ndarray, values: np.ndarray) -> None:
        self.con.apply({table: pa.table({"a": keys, "b" if table == "r" else "c": values})})

    def update(self, table: str, row: tuple[int, int], weight: int = 1) -> int:
        before = self.view.cost()["steps"]
        self.con.apply_row(table, row, weight)
        return self.view.cost()["steps"] - before

    def median_update(self, key: int | None, keys: int) -> float:
        """The median steps of 200 single rows, inserted and deleted again, at one key or at many."""
        found = []
        for i in range(100):
            row = (key if key is not None else i * 7919 % keys, 10**9 + i)
            for weight in (1, -1):
                found.append(self.update("rs"[i % 2], row, weight))
        return statistics.median(found)

    def state(self) -> int:
        return sum(entry["entries"] for entry in self.view.state())

    def gaps(self) -> tuple[int, float]:
        """(tuples, steps per tuple) of a whole enumeration, by the reader that serves SQL."""
        from sqlfront.maintenance.output.output import Reader

        reader = Reader(self.con.session.database.view(self.con.session.duck, ["v"]).maintained)
        tuples = reader.count_tuples()
        return tuples, reader.steps / max(1, tuples)


def spread(keys: int, rows: int) -> np.ndarray:
    return np.arange(rows, dtype=np.int64) % keys


@pytest.mark.parametrize("query", [Q_HIERARCHICAL, FULL_JOIN])
@pytest.mark.parametrize("hub", [False, True])
def test_an_update_of_a_q_hierarchical_view_takes_constant_steps(query, hub):
    assert _growth(query, hub, SIZES) <= 1.5


@pytest.mark.slow
@pytest.mark.parametrize("hub", [False, True])
def test_it_does_at_a_million_rows(hub):
    assert _growth(Q_HIERARCHICAL, hub, [1_000, 1_000_000]) <= 1.5


def _growth(query: str, hub: bool, sizes: list[int]) -> float:
    """The largest median of steps per update over the smallest; with `hub` half of all rows share the key updated."""
    medians = []
    for size in sizes:
        steps = Steps(query)
        keys = spread(size // 10, size)
        if hub:
            keys[::2] = 0
        for table in "rs":
            steps.load(table, keys, np.arange(size, dtype=np.int64))
        medians.append(steps.median_update(0 if hub else None, size // 10))
    assert min(medians) > 0
    return max(medians) / min(medians)


def test_a_free_connex_view_pays_for_a_hub_and_the_counter_sees_it():
    """The other side of the law: where an update may cost the size of a group, the steps say so."""
    costs = []
    for size in (1_000, 10_000):
        steps = Steps(FREE_CONNEX)
        assert steps.con.explain("v").to_dict()["shape"] == "free-connex"
        steps.load("r", np.zeros(size, np.int64), np.arange(size, dtype=np.int64))
        costs.append(steps.update("s", (0, 1)))
    assert costs[0] >= 1_000
    assert 7 <= costs[1] / costs[0] <= 13


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000, MILLION])
def test_the_steps_between_two_tuples_are_constant(size):
    steps = Steps(FULL_JOIN)
    for table in "rs":
        steps.load(table, spread(size // 2, size), np.arange(size, dtype=np.int64))
    tuples, gap = steps.gaps()
    assert tuples == 2 * size
    assert gap <= 6


def test_the_first_tuples_do_not_wait_for_the_rest():
    from sqlfront.maintenance.output.output import Reader

    steps = Steps(FULL_JOIN)
    for table in "rs":
        steps.load(table, np.zeros(3_000, np.int64), np.arange(3_000, dtype=np.int64))
    reader = Reader(steps.con.session.database.view(steps.con.session.duck, ["v"]).maintained)
    first = next(iter(reader))
    assert first.num_rows > 0
    assert reader.steps <= 40 * first.num_rows


def test_state_is_linear_where_the_result_is_quadratic():
    """As FQ4 of Idris et al. (2017): a join over one hub has n * n tuples, the view keeps O(n)."""
    kept, tuples = [], []
    for size in (300, 3_000):
        steps = Steps(FULL_JOIN)
        for table in "rs":
            steps.load(table, np.zeros(size, np.int64), np.arange(size, dtype=np.int64))
        kept.append(steps.state())
        tuples.append(steps.view.count())
    assert tuples == [300**2, 3_000**2]
    assert kept[1] <= 12 * kept[0]
    assert kept[1] <= 30 * 3_000


def test_state_vanishes_with_the_rows():
    steps = Steps(Q_HIERARCHICAL)
    empty = steps.state()
    keys, values = spread(100, 5_000), np.arange(5_000, dtype=np.int64)
    for table, column in (("r", "b"), ("s", "c")):
        steps.load(table, keys, values)
        minus = pa.array(np.full(5_000, -1, np.int64))
        steps.con.apply({table: pa.table({"a": keys, column: values, "_weight": minus})})
    assert steps.state() == empty == 0

"""Views over random streams of changes are what DuckDB says, after every step (laws 1, 2, 5 and 7).

Seeds are in the tests' names. SQLFRONT_STREAMS=120-180 replays or adds others; `-m slow` runs many.
`python -m tests.streams.shrink SEED` makes a failing one small and commits it as a fixture.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.streams.changes import hub_stream, random_stream
from tests.streams.replay import Replay
from tests.streams.shrink import FIXTURES, read_stream

QUICK = (1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 14, 15, 17, 19)
"""The streams that are always followed; the others up to LONG are when there is time."""
LONG, HUBS, MANY_HUBS = 600, 3, 40
FEATURES = [
    "bag", "set", "group", "scalar", "having", "filter", "hidden group key", "self-join of 2", "self-join of 3",
    "equal atoms", "ring", "pairs more", "comparison",
    "cross product", "mixed types", "two-word key", "text key", "predicate", "count", "sum", "avg",
    "product", "exact sum", "float sum", "kept values", "retained table", "passing table", "ordinary table", "key",
    "several tables at once", "materialized joins",
    "rows", "insert", "delete", "update", "absent", "begin", "commit", "rollback", "drop", "check", "refresh",
    "view on view", "view and table", "order by", "limit", "order by sum",
    "1 atoms", "2 atoms", "3 atoms", "4 atoms", "5 atoms",
]  # fmt: skip


def wanted_seeds() -> list[int]:
    if (asked := os.environ.get("SQLFRONT_STREAMS")) is None:
        return list(QUICK)
    first, _, last = asked.partition("-")
    return list(range(int(first), int(last or first) + 1))


@cache
def replayed(seed: int) -> tuple[int, int, frozenset[str]]:
    """(steps, those that changed a result, shapes of the views)."""
    done = Replay(random_stream(seed)).run()
    return done.steps, done.changed, frozenset(done.shapes)


@pytest.mark.parametrize("seed", wanted_seeds())
def test_views_follow_a_random_stream(seed):
    steps, _, _ = replayed(seed)
    assert steps > 0


@pytest.mark.parametrize("seed", range(HUBS))
def test_views_follow_a_stream_around_a_hub(seed):
    assert Replay(hub_stream(seed)).run().changed >= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*range(LONG)} - {*QUICK}))
def test_views_follow_many_random_streams(seed):
    replayed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(HUBS, MANY_HUBS))
def test_views_follow_many_hubs(seed):
    Replay(hub_stream(seed)).run()


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.txt")), ids=lambda path: path.stem)
def test_what_failed_once(path: Path):
    Replay(read_stream(path)).run()


def test_the_streams_cover_what_they_should():
    """Every feature is in at least 5 % of streams, half of the steps change a result, all shapes occur."""
    found: Counter[str] = Counter()
    for seed in range(300):
        found.update(random_stream(seed).features)
    assert {feature: found[feature] for feature in FEATURES if found[feature] < 15} == {}
    outcomes = [replayed(seed) for seed in QUICK]
    steps, changed = (sum(outcome[i] for outcome in outcomes) for i in (0, 1))
    assert 2 * changed >= steps, f"{changed} of {steps} steps changed a result"
    assert {shape for outcome in outcomes for shape in outcome[2]} == {
        "q-hierarchical",
        "free-connex",
        "acyclic",
        "cyclic",
        "inequality",
    }

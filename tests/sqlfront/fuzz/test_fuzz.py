"""Views of random terms of the algebra, over columns of all types, equal DuckDB's answers after every epoch."""

from __future__ import annotations

from collections import Counter

import pytest

from sqlfront.planner.algebra.rules.all_rules import RULES
from tests.sqlfront.fuzz.replay import KINDS, Replay

PARTS, SEEDS_OF_A_PART, FIRES = 4, 45, 200
MOST_REFUSED = 0.05


def run(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        Replay(seed, seen).run()
    print(dict(sorted(seen.items())))
    return seen


def test_views_of_random_terms() -> None:
    seen = run(range(2))
    assert seen["rows"] >= 0.3 * seen["view-epochs"] >= 30
    assert seen["refused"] <= 0.2 * seen["queries"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_views_of_random_terms_at_length(part: int) -> None:
    first = 1000 + part * SEEDS_OF_A_PART
    seen = run(range(first, first + SEEDS_OF_A_PART))
    assert seen["view-epochs"] >= 10_000 / PARTS
    assert seen["refused"] <= MOST_REFUSED * seen["queries"]
    assert seen["unanswered"] <= 0.02 * seen["view-epochs"]
    rules = [rule.__name__.replace("_", " ") for rule in RULES]
    assert {name: seen[name] for name in (*KINDS, *rules) if seen[name] < FIRES / PARTS} == {}

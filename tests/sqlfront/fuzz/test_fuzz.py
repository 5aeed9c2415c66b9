"""Views of random terms of the algebra, over columns of all types, equal DuckDB's answers after every epoch."""

from __future__ import annotations

from collections import Counter

import pytest

from sqlfront.planner.algebra.rules.all_rules import RULES
from tests.sqlfront.fuzz.replay import KINDS, Replay

PARTS, SEEDS_OF_A_PART, FIRES = 4, 40, 200
"""Every kind of node, and every rule, is in this many epochs of views."""


def run(seeds: range, views: int = 8, epochs: int = 12) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        Replay(seed, seen, views, epochs).run()
    print(dict(sorted(seen.items())))
    return seen


def test_views_of_random_terms() -> None:
    seen = run(range(2), views=2, epochs=5)
    assert seen["rows"] >= 0.3 * seen["view-epochs"] >= 8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_views_of_random_terms_at_length(part: int) -> None:
    first = 1000 + part * SEEDS_OF_A_PART
    seen = run(range(first, first + SEEDS_OF_A_PART))
    assert seen["view-epochs"] >= 10_000 / PARTS
    assert seen["refused"] == 0
    assert seen["unanswered"] <= 0.02 * seen["view-epochs"]
    rules = [rule.__name__.replace("_", " ") for rule in RULES]
    assert {name: seen[name] for name in (*KINDS, *rules) if seen[name] < FIRES / PARTS} == {}

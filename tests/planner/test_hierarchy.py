"""The hierarchical tests look at join variables alone, however wide the tables are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import pytest

from sqlfront.planner.theory import hierarchy


def test_columns_of_one_table_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def counted(items: Iterable[str], size: int) -> Iterator[tuple[str, ...]]:
        for pair in combinations(items, size):
            compared.append(pair)
            yield pair

    monkeypatch.setattr(hierarchy, "combinations", counted)
    wide = frozenset(f"c{number}" for number in range(200))
    edges = {"r": wide | {"x"}, "s": frozenset("xy"), "t": frozenset("y")}
    found = list(hierarchy.violations(edges, wide))
    assert ("hierarchical", "x", "y") in {(one.condition, *sorted((one.x, one.y))) for one in found}
    assert len(compared) == 1

"""The cost of a view whose query has blocks that are kept as views of their own: the worst of the view and its blocks.

The worst of several bounds has the highest of their powers and all of their named terms. Reading the view reads no
block, so the delay is the view's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.model.bound import RESULT, RESULT_CHANGE, Bound, Term, worst
from sqlfront.planner.model.cost import Cost


@dataclass(frozen=True)
class Block:
    """A block as its view's cost counts it: what people call it, and what it costs.

    The view stores the block's rows. `wide`: their number is not bounded by that of a table of the block; `spreads`:
    one changed row of a table may change many of them. `computed`: DuckDB computes it, no view tree keeps it.
    """

    label: str
    cost: Cost
    wide: bool = False
    spreads: bool = False
    computed: bool = False

    def bound(self, field: str) -> Bound:
        """One of the costs for the view that has the block: with the rows that the view stores."""
        found: Bound = getattr(self.cost, field).of_block()
        stored = self.spreads if field == "update" else self.wide
        if not stored or any(term.quantity.is_result for term in found.terms):
            return found
        rows = Term(RESULT_CHANGE if field == "update" else RESULT, of_block=True)
        return replace(found, terms=(*found.terms, rows))


def whole_cost(own: Cost, blocks: Iterable[Block]) -> Cost:
    """The worst of a view's own cost and those of its blocks; its delay is its own."""
    kept = tuple(blocks)
    if not kept:
        return own
    return replace(own, **{f: worst([getattr(own, f), *(one.bound(f) for one in kept)]) for f in FIELDS})


FIELDS = ("preprocessing", "update", "space")
"""The costs to which blocks add."""


def deciding(own: Cost, blocks: Iterable[Block]) -> dict[str, str | None]:
    """For each of the costs the block that decides it; None where it is the view itself, or where they are alike."""
    kept = tuple(blocks)
    found: dict[str, str | None] = {"delay": None}
    for field in FIELDS:
        costs = [(getattr(own, field), None), *((one.bound(field), one.label) for one in kept)]
        found[field] = max(costs, key=lambda item: item[0])[1]
    return found


def spell_deciding(decided: Mapping[str, str | None]) -> list[str]:
    """The blocks that decide costs, each with these."""
    labels = dict.fromkeys(label for label in decided.values() if label is not None)
    return [f"{one}: {', '.join(cost for cost, label in decided.items() if label == one)}" for one in labels]

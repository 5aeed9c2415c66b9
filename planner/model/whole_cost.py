"""The cost of a view whose query has blocks that are kept as views of their own: the worst of the view and its blocks.

A view and its blocks are the nodes of a graph. Each node states two bounds for one changed row of what it reads: its
work, and the rows of its output that change. A change of one row of a table reaches a node as all rows that the nodes
on its way put out. So what it takes there is the node's work times the outputs below it. The update's bound is the
largest of these, over all nodes. The worst of several bounds has the highest of their powers and all of their named
terms. Reading the view reads no block, so the delay is the view's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.model.bound import CONSTANT_BOUND, RESULT, Bound, Term, worst
from sqlfront.planner.model.cost import Cost


@dataclass(frozen=True)
class Block:
    """A block as its view's cost counts it: what people call it, and what it costs.

    The view stores the block's rows. `wide`: their number is not bounded by that of a table of the block. `output`
    bounds the block's rows that change for one changed row of the relation that it `reads`. `computed`: DuckDB computes
    it, no view tree keeps it. `feeds` is the relation that has its rows, perhaps with those of other blocks.
    """

    label: str
    cost: Cost
    wide: bool = False
    output: Bound = CONSTANT_BOUND
    computed: bool = False
    feeds: str = ""
    reads: frozenset[str] = frozenset()

    def bound(self, field: str) -> Bound:
        """One of the costs for the view that has the block: with the rows that the view stores."""
        found: Bound = getattr(self.cost, field).of_block()
        if field == "update":
            return worst([found, self.output.of_block()])
        if not self.wide or any(term.quantity.is_result for term in found.terms):
            return found
        return replace(found, terms=(*found.terms, Term(RESULT, of_block=True)))


@dataclass(frozen=True)
class Stage:
    """A node that a change of a table reaches: `rows` bounds the rows that reach it, `work` what each takes there, and
    `output` the rows that each changes. The view itself has no `label`."""

    label: str | None
    rows: Bound
    work: Bound
    output: Bound
    reads: frozenset[str] = frozenset()

    @property
    def total(self) -> Bound:
        """What one changed row of a table takes at the node."""
        return self.work.of_each(self.rows)


def whole_cost(own: Cost, blocks: Iterable[Block], inputs: Collection[str] = ()) -> Cost:
    """The worst of a view's own cost and the costs of its blocks. The view reads `inputs`. Its delay is its own."""
    kept = tuple(blocks)
    if not kept:
        return own
    added = {f: worst([getattr(own, f), *(one.bound(f) for one in kept)]) for f in ("preprocessing", "space")}
    return replace(own, update=worst(total for total, _, _ in _updates(own, kept, inputs)), **added)


FIELDS = ("preprocessing", "update", "space")
"""The costs to which blocks add."""


def deciding(own: Cost, blocks: Iterable[Block], inputs: Collection[str] = ()) -> dict[str, str | None]:
    """For each of the costs the block that decides it; None where it is the view itself, or where they are alike."""
    kept = tuple(blocks)
    found: dict[str, str | None] = {"delay": None}
    for field in FIELDS:
        costs = [(getattr(own, field), None), *((one.bound(field), one.label) for one in kept)]
        found[field] = max(costs, key=lambda item: item[0])[1]
    found["update"] = max(_updates(own, kept, inputs), key=lambda item: (item[0].growth, item[1].growth))[2]
    return found


def deciding_path(own: Cost, blocks: Iterable[Block], inputs: Collection[str] = ()) -> list[Stage]:
    """The nodes on the way of the changes that decide what an update costs, the lowest first."""
    kept = tuple(blocks)
    nodes = stages(own, kept, inputs)
    path = [max(reversed(nodes), key=lambda node: node.total)]
    while below := [node for one, node in zip(kept, nodes, strict=False) if one.feeds in path[0].reads]:
        path.insert(0, max(below, key=lambda node: node.output.of_each(node.rows)))
    return path


def _updates(own: Cost, blocks: Collection[Block], inputs: Collection[str]) -> list[tuple[Bound, Bound, str | None]]:
    """What a change takes at each node, by all rows that reach it and by one, with its label: the view itself first."""
    *below, last = stages(own, blocks, inputs)
    alone = [one.bound("update") for one in blocks]
    totals = [cost.of_each(stage.rows) for cost, stage in zip(alone, below, strict=True)]
    labels = [one.label for one in blocks]
    return [(last.total, own.update, None), *zip(totals, alone, labels, strict=True)]


def stages(own: Cost, blocks: Iterable[Block], inputs: Collection[str]) -> list[Stage]:
    """All nodes, each after those that it reads; the view itself is the last."""
    put_out: dict[str, Bound] = {}
    found = []
    for one in blocks:
        rows = worst([CONSTANT_BOUND, *(put_out[name] for name in one.reads if name in put_out)])
        found.append(Stage(one.label, rows, one.cost.update.of_block(), one.output.of_block(), one.reads))
        put_out[one.feeds] = worst([put_out.get(one.feeds, CONSTANT_BOUND), found[-1].output.of_each(rows)])
    rows = worst([CONSTANT_BOUND, *(put_out[name] for name in inputs if name in put_out)])
    return [*found, Stage(None, rows, own.update, CONSTANT_BOUND, frozenset(inputs))]


def spell_deciding(decided: Mapping[str, str | None]) -> list[str]:
    """The blocks that decide costs, each with these."""
    labels = dict.fromkeys(label for label in decided.values() if label is not None)
    return [f"{one}: {', '.join(cost for cost, label in decided.items() if label == one)}" for one in labels]


def spell_path(path: Iterable[Stage]) -> str:
    """The way of a change, node by node, with what each takes and puts out."""
    return "; then ".join(
        f"{stage.label or 'the view itself'}: {stage.work} for each of {stage.rows} rows" for stage in path
    )

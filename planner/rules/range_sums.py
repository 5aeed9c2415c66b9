"""Rule 0a: aggregates over joins by comparisons get a tree that looks up sums over ranges of sorted lists."""

from __future__ import annotations

from planner.cost import RANGES, RANGES_LOGARITHMIC
from planner.plan import Node, Plan
from planner.query import Definition
from planner.ranges import build_range_tree, meets_one
from planner.tree import Weights
from planner.wording import enumerate_words, spell_comparison

STRATEGY = "dynamic Yannakakis, sums over ranges of sorted lists"


def plan_range_sums(definition: Definition, weights: Weights) -> Plan | None:
    """A generalized join tree whose nodes compare what they sum out (Idris et al. 2020): linear space, constant delay.

    A change that has bound one side of a comparison finds the sum of the other side's rows within the bounds in
    O(log N); where it must reach rows above the other side, it lists those within the bounds. None for a query without
    comparisons, and where there is no such tree: one that needs bags.
    """
    if not definition.comparisons:
        return None
    root = build_range_tree(definition, weights)
    if root is None:
        return None
    listing = _listing(root, definition)
    return Plan(
        shape="inequality",
        strategy=STRATEGY,
        root=root,
        free=tuple(dict.fromkeys(definition.free)),
        projected=False,
        variables_added=(),
        cost=RANGES if listing else RANGES_LOGARITHMIC,
        reason=_explain(definition, listing),
    )


def _listing(root: Node, definition: Definition) -> list[str]:
    """The atoms whose changes meet many rows somewhere on their way up."""
    found: dict[str, None] = {}
    for node in root.walk():
        for child in node.children:
            if not meets_one(node, child, definition):
                found.update(dict.fromkeys(leaf.atom or "" for leaf in child.leaves()))
    return list(found)


def _explain(definition: Definition, listing: list[str]) -> str:
    tests = enumerate_words(spell_comparison(definition, one) for one in definition.comparisons)
    verb = "compares" if len(definition.comparisons) == 1 else "compare"
    opening = (
        f"{tests} {verb} columns of different tables that are not both put out, and the query is free-connex acyclic "
        "with comparisons, so no rows of both sides are combined: lists that are sorted by what is compared keep sums "
        "over their ranges (Idris et al. 2020, with a search tree for what they sort)."
    )
    if not listing:
        return f"{opening} A change looks up one such sum, or one row, at each node, after O(log N) steps."
    rest = [atom.name for atom in definition.atoms if atom.name not in listing]
    quick = f" A change of {enumerate_words(rest)} takes O(log N) steps." if rest else ""
    return (
        f"{opening}{quick} A change of {enumerate_words(listing)} also meets the rows above it within the bounds, "
        "whose sums it changes: few in practice, all of them in the worst case."
    )

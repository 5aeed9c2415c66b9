"""Rule 0a: joins by comparisons get a tree that looks up sums over ranges of sorted lists, where there is one."""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.model.bound import LOGARITHMIC_BOUND
from sqlfront.planner.model.cost import BOX_SUMS, BOXES, RANGES, RANGES_LOGARITHMIC
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.search.join_tree import Weights
from sqlfront.planner.search.ranges import (
    build_range_tree,
    is_box,
    is_rectangle,
    meets_one,
    sums_boxes,
    sums_boxes_of_each,
)
from sqlfront.planner.theory.enumerable import enumerable_sets
from sqlfront.planner.theory.wording import are, enumerate_words, labels, spell_comparison, spell_constants

STRATEGY = "dynamic Yannakakis, sums over ranges of sorted lists"

OF_EACH = " Each of these rows looks up a sum over a box of another table."


def plan_range_sums(definition: Definition, weights: Weights) -> Plan | None:
    """A generalized join tree whose nodes compare what their children have (Idris et al. 2020): linear space.

    A change that has bound one side of a comparison finds the sum of the other side's rows within the bounds in
    O(log N); where it must reach rows above the other side, it lists those within the bounds. So does enumeration, for
    each row that has one side. Where the root compares two enumerated children, nothing is above either. If the view
    may enumerate several sets of variables, a tree whose changes list nothing is taken first. Where none has ranges
    alone, changes list what lies within boxes. None for a query without comparisons, and where there is no such tree:
    one that needs bags.
    """
    if not definition.comparisons:
        return None
    for fits in (None, is_box, is_rectangle):
        trees = [(free, build_range_tree(definition, free, weights, fits)) for free in enumerable_sets(definition)]
        found = [(free, root, _listing(root, definition)) for free, root in trees if root is not None]
        if fits is is_rectangle:  # Their rows cannot be listed: of one column, only one bound leaves out subtrees.
            found = [one for one in found if not one[2]]
        if found:
            break
    else:
        return None
    boxes = fits is not None
    free, root, listing = min(found, key=lambda tree: bool(tree[2]))
    added = tuple(variable for variable in free if variable not in definition.free)
    summed = any(sums_boxes(node, definition) for node in root.walk())
    of_each = bool(listing) and sums_boxes_of_each(root, definition)
    if not listing:
        cost = BOX_SUMS if summed else RANGES_LOGARITHMIC
    elif summed:
        update = replace(RANGES.update, logs=BOX_SUMS.update.logs) if of_each else RANGES.update
        cost = replace(BOXES if boxes else BOX_SUMS, update=update, space=BOX_SUMS.space)
    else:
        cost = BOXES if boxes else RANGES
    listed = (boxes and listing) or any(
        node.comparisons and any(child.connex for child in node.children) for node in root.walk()
    )
    return Plan(
        shape="inequality",
        strategy=STRATEGY,
        root=root,
        free=free,
        variables_added=added,
        cost=replace(cost, delay=LOGARITHMIC_BOUND) if listed else cost,
        reason=_explain(definition, added, listing, boxes, summed) + (OF_EACH if of_each else ""),
    )


def _listing(root: Node, definition: Definition) -> list[str]:
    """The atoms whose changes meet many rows somewhere on their way up."""
    found: dict[str, None] = {}
    for node in root.walk():
        for child in node.children:
            if not meets_one(node, child, definition):
                found.update(dict.fromkeys(leaf.atom or "" for leaf in child.leaves()))
    return [atom.name for atom in definition.changing_atoms if atom.name in found]


def _explain(definition: Definition, added: tuple[str, ...], listing: list[str], boxes: bool, summed: bool) -> str:
    tests = enumerate_words(spell_comparison(definition, one) for one in definition.comparisons)
    verb = "compares" if len(definition.comparisons) == 1 else "compare"
    once = f" once {labels(definition, added)} {are(added)} enumerated too, as SELECT without DISTINCT allows,"
    opening = (
        f"{tests} {verb} columns of different tables, and the query is free-connex acyclic with comparisons"
        f"{once if added else ','} so no combinations of rows of both sides are stored: lists that are sorted by what "
        "is compared keep sums over their ranges (Idris et al. 2020, with a search tree for what they sort)."
    )
    if boxes and listing:
        opening += (
            " Where two columns of a table are compared, its lists are sorted by one of them and know the extremes "
            "of the other: each row within both bounds is found in O(log N) (a priority search tree, McCreight 1985)."
        )
    if summed:
        opening += (
            " Sums of what lies within bounds of two columns are looked up in O(log^2 N), in sets of doubling sizes "
            "(Bentley and Saxe 1980), each a wavelet tree with sums (Chazelle 1988)."
        )
    steps = BOX_SUMS.update if summed else LOGARITHMIC_BOUND
    if constants := spell_constants(definition):
        opening += f" {constants[0].upper()}{constants[1:]}."
    if not listing:
        return f"{opening} A change looks up one such sum, or one row, at each node, after {steps} steps."
    rest = [atom.name for atom in definition.changing_atoms if atom.name not in listing]
    quick = f" A change of {enumerate_words(rest)} takes {steps} steps." if rest else ""
    return (
        f"{opening}{quick} A change of {enumerate_words(listing)} also meets the rows above it within the bounds, "
        "whose sums it changes: few in practice, all of them in the worst case."
    )

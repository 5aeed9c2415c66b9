"""What a change of a view should cost, from the tree and the present fan-outs.

In the machine's elementary steps: a look-up that finds its row counts two, a listed member one, a written row two
and one more for each index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log2, sqrt

from sqlfront.maintenance.tree.carrying import carry_steps
from sqlfront.maintenance.tree.missing_rows import routes
from sqlfront.maintenance.tree.steps import Step
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.maintenance.view.emission import Emission
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.sizes import PresentSizes, Sizes, table_depth
from sqlfront.maintenance.view.tuple_count import TupleCount
from sqlfront.planner.model.query import Definition
from sqlfront.storage.stores.table import Table

FOUND, LISTED, WRITTEN, INDEXED = 2, 1, 2, 1


def predict(view: MaintainedView, sizes_of: Callable[[MaintainedView], Sizes] = PresentSizes) -> dict[str, float]:
    """The predicted steps of one changed row, by table: each look-up lists as many rows as a group has on average, or
    as the sizes say that `sizes_of` gives for the view, or for its distinct values.

    A leaf that other views read too is updated at nobody's expense. Constant rows have no changes. Empty where heavy
    values are told from light ones, or a best may change or not: there the values of a change decide, not the mean.
    O(nodes^2).
    """
    if view.balance is not None or view.ranked:
        return {}
    found: dict[str, float] = {}
    stores = {id(source.store): source for member in view.members for source in member.sources.values()}
    for source in stores.values():
        cost = _kept(source.store.table) if len(source.store.users) == 1 else 0
        found[source.relation.name] = found.get(source.relation.name, 0) + cost
    for member in view.members:
        prices = _Prices(sizes_of(member))
        for leaf in member.delta_paths.entries(member.tree):
            name = member.sources[leaf.node.atom or leaf.node.filters or ""].relation.name
            found[name] += prices.path(member.tree, leaf)
            turns = sum(map(bool, routes(leaf)))
            # Added up by key, looked up, and seldom one that appears or disappears.
            found[name] += turns * (WRITTEN + FOUND)
            if member.tuple_count is not None:
                found[name] += prices.tallied(member.tuple_count, member.tree, leaf)
            if member.delta is not None and member.tree.output is None:
                found[name] += prices.told(member.tree, leaf)
    definitions = (view.definition, *(one.definition for one in view.definition.distinct_sets))
    constant = {atom.table for one in definitions for atom in one.atoms if atom.is_constant}
    return {table: cost for table, cost in found.items() if table not in constant}


def predicted_mean(predicted: Mapping[str, float], mix: Mapping[str, float]) -> float | None:
    """The predicted steps of a change of a mix of tables; None when the mix is empty."""
    total = sum(mix.get(table, 0) for table in predicted)
    return sum(cost * mix.get(table, 0) for table, cost in predicted.items()) / total if total else None


class _Prices:
    """The steps of paths, among views of these sizes."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes

    def path(self, tree: Tree, leaf: View) -> float:
        """The steps of a leaf's path."""
        top = tree.top(leaf)
        total, rows, view = 0.0, 1.0, leaf
        for join in tree.side_joins():
            if leaf in join.children:
                cost, made = self._joined(tree, tree.update_steps(join, leaf), 1.0)
                total += cost + self._written(join, made)
        while top is not None and view is not top:
            parent = view.parent
            assert parent is not None
            cost, rows = self._joined(tree, tree.update_steps(parent, view), rows)
            total += cost
            if parent.stored:
                rows = min(rows, max(1.0, self._sizes.rows(parent)))
                total += self._written(parent, rows)
            view = parent
        if tree.output is not None:
            cost, rows = self._joined(tree, carry_steps(tree, leaf), 1.0)
            total += cost + min(rows, max(1.0, self._sizes.projected(tree))) * _kept(tree.projection)
        return total

    def tallied(self, tuple_count: TupleCount, tree: Tree, leaf: View) -> float:
        """What counting the tuples adds: the way to where they are enumerated, again, and the path in the tuple count's
        tree."""
        emission = Emission(tree, leaf)
        total, rows = self._climbed(tree, emission)
        entry = tuple_count.entry(emission)
        # Added up by key, looked up in the view's table, and written if it turns.
        total += rows * (WRITTEN + FOUND) + self._written(entry, rows)
        return total + rows * self.path(tuple_count.tree, entry)

    def told(self, tree: Tree, leaf: View) -> float:
        """What telling the rows of the output that change adds, where somebody hears of them."""
        emission = Emission(tree, leaf)
        total, rows = self._climbed(tree, emission)
        cost, rows = self._joined(tree, emission.free, rows)
        return total + cost + rows * WRITTEN

    def _climbed(self, tree: Tree, emission: Emission) -> tuple[float, float]:
        """The steps to where a delta enters the enumerated part of the tree, and the rows that come there."""
        total, rows = 0.0, 1.0
        for parent, child in emission.bound:
            cost, rows = self._joined(tree, tree.update_steps(parent, child), rows)
            total += cost
        return total, rows

    def _joined(self, tree: Tree, steps: Iterable[Step], rows: float) -> tuple[float, float]:
        """The steps that looking up all siblings takes, and the rows that come of it."""
        total = 0.0
        for step in steps:
            if step.lists:
                cost, met = self._listed(tree.definition, step)
                total += rows * cost
                rows *= met
            elif step.access == "filter":
                total += rows
                rows *= _default(self._sizes.share(step), 1.0)
            elif step.access == "range sum":
                total += rows * (FOUND + 2 * self._sizes.depth(step.view))
            elif step.access == "box sum":
                # The sets that are searched have the rows of all keys.
                total += rows * (FOUND + log2(1 + self._sizes.rows(step.view)) ** 2 / 2)
            else:
                total += rows * FOUND
        return total, rows

    def _listed(self, definition: Definition, step: Step) -> tuple[float, float]:
        """The steps that a listing takes, and how many members it meets."""
        members = min(self._sizes.fan_out(view, key) for view, key in ((step.view, step.key), *step.partners))
        place = 0.0
        if step.access == "range":
            place = self._sizes.depth(step.view)
            # Of text nobody knows how wide a range is: narrow between two bounds of one order, as people write it.
            guess = 1 / sqrt(max(members, 1.0)) if _is_band(definition, step) else 0.5
            members *= _default(self._sizes.share(step), guess)
        # A row that is found along extremes takes a way of its own from the root; other rows share about half of it.
        steps = LISTED + len(step.partners) + (place / 2 if step.beside else 0)
        return 1 + len(step.partners) + 2 * place + members * steps, members

    def _written(self, view: View, rows: float) -> float:
        return rows * (WRITTEN + INDEXED * len(view.indexes) + self._sizes.depth(view))


def _default(found: float | None, guess: float) -> float:
    return guess if found is None else found


def _is_band(definition: Definition, step: Step) -> bool:
    """Whether a step lists a range between two bounds of one order, as a - 5 and a + 5 are."""
    fresh = [test.right if test.right in step.fresh else test.left for test in step.comparisons]
    bounds = [test.left if test.right in step.fresh else test.right for test in step.comparisons]
    alike = all(set(side) <= definition.order_of(side[0]) for side in (fresh, bounds) if side)
    return step.access == "range" and len(fresh) == 2 and alike


def _kept(table: Table | None) -> float:
    """The steps of a row written to a table; of one that is not built yet, without its indexes."""
    return WRITTEN if table is None else WRITTEN + INDEXED * len(table.groups) + table_depth(table)

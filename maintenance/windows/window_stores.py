"""The rows of a view in the orders of its window functions: stores of the relation that the view reads.

Each order is a store of all columns of the rows, whose ordered index has a group for each partition, sorted by ORDER BY
and then by all other columns. Its rows have subtree sums of the number of rows and of what aggregates add up, and
subtree summaries for MIN and MAX, and for DENSE_RANK and frames of GROUPS. The relation's program keeps the stores and
undoes them, O(log partition) a change. Views of the same rows share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlfront.maintenance.program.shapes import Part, Shape
from sqlfront.maintenance.relation.atom_source import Source
from sqlfront.maintenance.relation.base_relation import LeafStore, Relation, StoreOrder, Summary
from sqlfront.planner.model.query import Atom, Definition, LeafColumn
from sqlfront.planner.model.window_functions import WindowOrder, Windows
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.windows.order_delta import OrderDelta


@dataclass
class KeptOrder:
    """One order of a view's rows: the store, as a source of the view's one atom."""

    source: Source
    order: WindowOrder
    atom: Atom
    shapes: dict[int, Shape] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The store's layout in the view's names, which changes with the width of its values."""
        store = self.source.store
        if store.limbs not in self.shapes:
            self.shapes[store.limbs] = store.shape(self.atom)
        return self.shapes[store.limbs]

    def places(self, variables: tuple[str, ...]) -> tuple[int, ...]:
        """The key words that hold these variables."""
        return self.shape.places(variables)

    def item_places(self, items: int) -> tuple[int, ...]:
        """The key words that hold the first items of the order, in their order."""
        return self.places(tuple(item.variable for item in self.order.items[:items]))

    def peers(self, items: int) -> int:
        """The number of the store's subtree summary that counts groups of rows which tie in the first `items`."""
        return self.source.store.summaries.index(Summary(items=items))

    def extremes(self, variable: str, greatest: bool) -> int:
        """The number of the store's subtree summary that has the greatest, or the least, values of a variable."""
        [expression] = (column.expression for column in self.atom.variables if column.name == variable)
        return self.source.store.summaries.index(Summary(expression, greatest))

    def shift(self, part: Part) -> int:
        """The binary scale of a part's floating factor."""
        store, columns = self.source.store, {column.name: column for column in self.atom.factors}
        items = (store.inputs["factor " + columns[name].expression] for _, name in part)
        return sum(item.shift for item in items if item.kind == "factor")


class WindowStores:
    """The orders of a view, by their numbers, once they are open; their `delta`, while somebody reads changes."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.parts = [frozenset(measure.factors) for measure in windows.measures]
        self.kept: list[KeptOrder] = []
        self.delta: OrderDelta | None = None

    @property
    def sources(self) -> list[Source]:
        return [one.source for one in self.kept]

    def open(
        self, definition: Definition, relations: Mapping[str, Relation], user: str
    ) -> list[tuple[Relation, LeafStore, Table | None]]:
        """Open the stores for a view. The stores whose tables are empty, each with its former table: a new store has
        none, and a store that needed more summaries has its rows there."""
        [atom] = definition.atoms
        held = set(definition.free)
        variables = tuple(column for column in atom.variables if column.name in held)
        rows = Atom(atom.name, atom.table, variables, self.windows.factors, atom.conditions)
        relation, made = relations[atom.table], list[tuple[Relation, LeafStore, Table | None]]()
        for number, order in enumerate(self.windows.orders):
            known, sorted_by = set(relation.stores), _store_order(order, variables)
            store = relation.open_store(
                variables, rows.factors, [one.text for one in rows.conditions], (), f"sorted by {sorted_by}",
                definition.settings,
            )  # fmt: skip
            summaries, former = _summaries(definition, number, variables), store.table
            renewed = relation.reindex(store, [sorted_by.grouping], [False], sorted_by, True, summaries)
            store.users.add(user)
            if renewed or store.key not in known:
                made.append((relation, store, former if store.key in known else None))
            self.kept.append(KeptOrder(Source(relation, store, 0), order, rows))
        return made


def _summaries(definition: Definition, number: int, variables: tuple[LeafColumn, ...]) -> list[Summary]:
    """What the rows of an order have to know of the rows below them for a view's functions and conditions."""
    assert definition.windows is not None
    expressions = {column.name: column.expression for column in variables}
    functions = [(raw.window, raw.variable) for raw in definition.raw if raw.window is not None]
    functions += [(bound.value, None) for bound in definition.windows.qualified]
    found = dict[Summary, None]()
    for value, variable in functions:
        if value.order != number:
            continue
        if value.counts_peers:
            found[Summary(items=value.peers)] = None
        if value.function in ("min", "max"):
            assert variable is not None
            found[Summary(expressions[variable], value.function == "max")] = None
    return list(found)


def _store_order(order: WindowOrder, variables: tuple[LeafColumn, ...]) -> StoreOrder:
    """The order of a store, by expressions."""
    expressions = {column.name: column.expression for column in variables}
    items = (
        (
            expressions[item.variable],
            at.ORDER_DESCENDING * item.descending + at.ORDER_NULLS_LAST * (not item.nulls_first),
        )
        for item in order.items
    )
    return StoreOrder(tuple(expressions[name] for name in order.partition), tuple(items))

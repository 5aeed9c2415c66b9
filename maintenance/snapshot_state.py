"""The state of an engine as arrays, for snapshots, and an engine that takes them.

Whoever restores a snapshot makes the same relations and views again, over no rows, between `prepare` and `adopt`. So
trees, programs and attachments are made as ever; what comes from the snapshot are rows and widths. A table is known by
its place: a store by its relation and its key, a view's own table by the view and its number there. A layout that
differs is refused, and the engine is then of no use.

Cost: nothing is hashed, sorted or added up. Arrays that can be mapped are not even copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from sqlfront.maintenance.memory_budget import MemoryBudget
from sqlfront.maintenance.output.node import TreeNode
from sqlfront.maintenance.output.top_change import KnownRows
from sqlfront.maintenance.relation.base_relation import LeafStore, Relation
from sqlfront.maintenance.relation.leaf_store import StoreBoxes, StoreLayout, StoreOrder, Summary
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.canonical_text import canonical
from sqlfront.storage.errors import OperationalError
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.table_arrays import Read, adopt, arrays_of, layout_of, references_of

Mapped: TypeAlias = Callable[[Table, str, int], int]
"""The address of the array of this table, name and size, which belongs to the table; 0 if it has to be read."""


@dataclass(frozen=True)
class SavedState:
    """Values of JSON, and arrays by their names. These are valid until the state changes."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


class SnapshotState(MemoryBudget):
    """State that gives and takes snapshots."""

    def arrays(self, nodes: Collection[str], tables: Collection[str]) -> SavedState:
        """The state of some nodes, with all that they read, and of tables that keep their rows. No epoch is open, and
        nothing waits for a view. O(references of other nodes); the arrays are no copies."""
        relations = {name for node in nodes for name in self.nodes[node].relations}.union(tables)
        relations |= {name for name, relation in self.relations.items() if set(relation.fed_by) & set(nodes)}
        every = {name: self._stores(self.relations[name], nodes, tables) for name in sorted(relations)}
        stores = {name: found for name, found in every.items() if found}
        facts: dict[str, Any] = {
            "relations": {name: self._relation_facts(self.relations[name], found) for name, found in stores.items()},
            "views": {name: [_view_facts(one) for one in self.views[name].members] for name in self._trees(nodes)},
            "dictionaries": [],
            "tables": {},
        }
        arrays = dict[str, np.ndarray]()
        for name, table in self._tables(stores, self._trees(nodes)):
            sizes, found = arrays_of(table)
            facts["tables"][name] = {"layout": layout_of(table), "sizes": sizes}
            arrays |= {f"{name} {own}": array for own, array in found.items()}
        kept = {id(store) for found in stores.values() for store in found.values()}
        for number, dictionary in enumerate(self.dictionaries):
            sizes, found = dictionary.arrays()
            self._leave_out(found["refs"], int(dictionary.header.ctypes.data), kept)
            facts["dictionaries"].append({"sizes": sizes, "lengths": {own: len(one) for own, one in found.items()}})
            arrays |= {f"dictionary {number} {own}": array for own, array in found.items()}
        return SavedState(facts, arrays)

    def prepare(self, facts: Mapping[str, Any], read: Read) -> None:
        """Before relations and views are made: take the words of dictionaries, and let stores be laid out as the
        snapshot's."""
        for number, (dictionary, one) in enumerate(zip(self.dictionaries, facts["dictionaries"], strict=True)):
            dictionary.adopt(one["sizes"], one["lengths"], _within(f"dictionary {number}", read))
        for name, relation in facts["relations"].items():
            self.layouts[name] = {key: _layout(*written) for key, written in relation["stores"].items()}

    def adopt(
        self, facts: Mapping[str, Any], read: Read, mapped: Mapped = lambda table, name, size: 0,
        check: Callable[[Iterable[Table]], object] = bool,
    ) -> None:  # fmt: skip
        """Take the rows of a snapshot for the relations and views made since `prepare`. OperationalError if they are
        not those of the snapshot; the engine is then of no use. `check` is called before tables are read."""
        with self.lock:
            for layouts in self.layouts.values():
                layouts.clear()
            for name, written in facts["relations"].items():
                _take_widths(self.relations[name], written["inputs"])
            for name, members in facts["views"].items():
                for member, written in zip(self.views[name].members, members, strict=True):
                    if member.limbs < written["limbs"]:
                        member.widen(written["limbs"])
            self._assemble()
            self._take_tables(facts, read, mapped)
            for name, members in facts["views"].items():
                for member, written in zip(self.views[name].members, members, strict=True):
                    _take_balance(member, written["balance"])
                if members[0]["divides"]:
                    self.observe_divided(name)
            for node in self.nodes.values():
                if isinstance(node, TreeNode) and isinstance(node.view.changes, KnownRows):
                    check(self.tables_of([node.name]))
                    node.hear(False)  # It knows the rows that were there when it was made.
                    node.hear(True)
            self._rebuilt += 1
            self._assemble()

    def tables_of(self, nodes: Collection[str], tables: Collection[str] = ()) -> list[Table]:
        """The tables that nodes read and own, and those that keep the rows of base tables."""
        stores = {name: self._stores(relation, nodes, tables) for name, relation in self.relations.items()}
        return [table for _, table in self._tables(stores, self._trees(nodes))]

    def forget_rows(self, tables: Iterable[Table]) -> None:
        """Empty tables whose memory cannot be trusted. The references of the others to dictionaries are counted anew.
        O(references)."""
        for table in tables:
            table.reset()
        codes: dict[int, list[np.ndarray]] = {int(one.header.ctypes.data): [] for one in self.dictionaries}
        for store in (store for relation in self.relations.values() for store in relation.stores.values()):
            for address, found in references_of(store.table):
                codes[address].append(found)
        for dictionary in self.dictionaries:
            dictionary.count_anew(codes[int(dictionary.header.ctypes.data)])

    # Inside --------------------------------------------------------------------------------------

    def _take_tables(self, facts: Mapping[str, Any], read: Read, mapped: Mapped) -> None:
        stores = {
            name: {canonical(store.key): store for store in self.relations[name].stores.values()}
            for name in facts["relations"]
        }
        found = dict(self._tables(stores, facts["views"]))
        written = facts["tables"]
        for name in sorted(found.keys() ^ written.keys()):
            raise _differs(f"{name} is only in one of the two")
        for name, table in found.items():
            if layout_of(table) != written[name]["layout"]:
                raise _differs(f"{name} is laid out in another way")
            own = partial(_mapped_within, mapped, table, name)
            adopt(table, written[name]["sizes"], _within(name, read), own)

    def _tables(
        self, stores: Mapping[str, Mapping[str, LeafStore]], views: Collection[str]
    ) -> Iterator[tuple[str, Table]]:
        """All tables by their names, each once."""
        seen = set[int]()
        for relation, found in stores.items():
            for key, store in sorted(found.items()):
                seen.add(id(store.table))
                yield f"store {relation} {key}", store.table
        for name in views:
            for number, member in enumerate(self.views[name].members):
                for place, table in enumerate(_own_tables(member)):
                    if id(table) not in seen:
                        seen.add(id(table))
                        yield f"view {name} {number} {place} {table.name}", table

    def _trees(self, nodes: Collection[str]) -> list[str]:
        """Those of the nodes that are views, in the order in which they were made."""
        return [name for name in self.views if name in nodes]

    @staticmethod
    def _stores(relation: Relation, nodes: Collection[str], tables: Collection[str]) -> dict[str, LeafStore]:
        """The stores that these nodes read, or that keep the rows of these tables, by the texts of their keys."""
        own = relation.base if relation.name in tables else None
        used = [store for store in relation.stores.values() if store is own or store.users & set(nodes)]
        return {canonical(store.key): store for store in used}

    @staticmethod
    def _relation_facts(relation: Relation, stores: Mapping[str, LeafStore]) -> dict[str, Any]:
        return {
            "inputs": [
                [canonical(key), item.limbs, item.shift]
                for key, item in relation.inputs.items()
                if item.kind == "factor"
                and any(item is one for store in stores.values() for one in store.inputs.values())
            ],
            "stores": {key: list(StoreLayout.of(store)) for key, store in stores.items()},
        }

    def _leave_out(self, refs: np.ndarray, header: int, kept: Collection[int]) -> None:
        """Take the references of stores that are not kept from those of a dictionary with this header."""
        others = [store for one in self.relations.values() for store in one.stores.values() if id(store) not in kept]
        for store in others:
            for address, codes in references_of(store.table):
                if address == header:
                    np.subtract.at(refs, codes, 1)


def _own_tables(view: MaintainedView) -> list[Table]:
    """A view's own tables whose rows stay from epoch to epoch."""
    passing = {id(table) for table in (view.delta.kept() if view.delta is not None else ())}
    return [table for table in view.all_tables() if id(table) not in passing]


def _view_facts(view: MaintainedView) -> dict[str, Any]:
    balance, bounds = view.balance, None
    if balance is not None:
        bounds = [balance.base, [int(word) for word in balance.part_trees.bounds]]
    divides = view.observation is not None and view.observation.divides
    return {"limbs": view.limbs, "balance": bounds, "divides": divides}


def _take_balance(view: MaintainedView, written: tuple[int, list[int]] | None) -> None:
    if (view.balance is None) != (written is None):
        raise _differs(f"{view.name} tells heavy values from light ones in one of the two")
    if view.balance is not None and written is not None:
        view.balance.base, view.balance.part_trees.bounds[:] = written


def _take_widths(relation: Relation, written: Collection[tuple[str, int, int]]) -> None:
    """Give a relation's factors the widths and units of a snapshot."""
    items = {canonical(key): item for key, item in relation.inputs.items()}
    for key, limbs, shift in written:
        if key not in items:
            raise _differs(f"{relation.name} has no factor {key}")
        relation.rescale(items[key], limbs, shift)


def _layout(
    indexes: list[list[str]], summed: list[bool], order: list[Any] | None, ranges: bool, summaries: list[list[Any]],
    boxes: list[Any] | None, limbs: int,
) -> StoreLayout:  # fmt: skip
    """A layout from values of JSON."""
    sorted_by = None if order is None else StoreOrder(tuple(order[0]), tuple((name, flags) for name, flags in order[1]))
    known = tuple(Summary(one[0], one[1], one[2], tuple(one[3])) for one in summaries)
    boxed = None if boxes is None else StoreBoxes(tuple(boxes[0]), *boxes[1:])
    return StoreLayout(tuple(map(tuple, indexes)), tuple(summed), sorted_by, ranges, known, boxed, limbs)


def _within(name: str, read: Read) -> Read:
    """Reads the arrays whose names begin with this one."""
    return lambda own, words: read(f"{name} {own}", words)


def _mapped_within(mapped: Mapped, table: Table, name: str, own: str, size: int) -> int:
    """Maps an array of a table, whose name begins with this one."""
    return mapped(table, f"{name} {own}", size)


def _differs(why: str) -> OperationalError:
    return OperationalError("the snapshot is of other views", why=why)

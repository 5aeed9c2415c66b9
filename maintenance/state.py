"""What the engine keeps: relations, views, and the programs that carry changes from the ones to the others."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.epoch_work import Counted, EpochLog
from sqlfront.maintenance.open_readers import OpenReaders
from sqlfront.maintenance.output.computed_nodes import open_node
from sqlfront.maintenance.output.node import ComputedNode, Node, TreeNode
from sqlfront.maintenance.output.reading import rows_of
from sqlfront.maintenance.output.subscribers import Listener, Subscribers
from sqlfront.maintenance.program.machine import MAX_VIEWS, Machine, RelationPrograms, Watch
from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.relation.base_relation import Column, LeafStore, Relation, Rescale
from sqlfront.maintenance.relation.calendar import Calendar
from sqlfront.maintenance.relation.filling import fill_store, lay_out
from sqlfront.maintenance.relation.waiting import Waiting
from sqlfront.maintenance.relation_programs import programs_of, share_out, shared_programs
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.unbuilt import open_stores, unbuilt_view
from sqlfront.planner.model.computed_rows import ComputedRows
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.storage.codecs.encoding import Dictionaries
from sqlfront.storage.errors import DataError, InternalError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.output.node import Load, Rows
    from sqlfront.maintenance.relation.base_relation import Evaluate
    from sqlfront.maintenance.relation.leaf_store import StoreLayout
    from sqlfront.maintenance.tree.description import Description


class State:
    """The relations and views of one database, and the programs that keep them.

    `evaluate(rows, types, expressions)` computes SQL expressions over the columns of `rows`, cast to `types`. `layouts`
    are those of a snapshot's stores, by relation.
    """

    def __init__(self, evaluate: Evaluate, lock: threading.RLock | None = None, watch: Watch | None = None) -> None:
        self.lock, self.evaluate = lock or threading.RLock(), evaluate
        self.relations: dict[str, Relation] = {}
        self.nodes: dict[str, Node] = {}
        self.views: dict[str, MaintainedView] = {}
        self.dictionaries = Dictionaries()
        self.calendars = defaultdict[str, Calendar](Calendar)
        self.machine = Machine(watch) if watch else Machine()
        self.memory_limit: Callable[[], float] = lambda: math.inf
        self.layouts: dict[str, dict[str, StoreLayout]] = {}
        self._programs: dict[str, RelationPrograms] = {}
        self._shared: dict[tuple[str, ...], tuple[dict[int, int], list[list[RelationPrograms]]]] = {}
        self.subscribers = Subscribers(self.nodes)
        self._rebuilt = self._holding = 0
        self._log = EpochLog(self.machine.counters)
        self._stale: set[str] = set()
        self.readers = OpenReaders()

    @property
    def version(self) -> int:
        """Another number after each change of the state."""
        return self._rebuilt + self.machine.runs

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The lock, for a body that changes the state: whoever reads it has read the rest before."""
        with self.lock:
            self.readers.finish()
            yield

    @contextmanager
    def assembling_once(self) -> Iterator[None]:
        """Make the programs once, after the body, which creates and drops views: one time for all its parts. It applies
        no changes."""
        with self.changing():
            self._holding += 1
            try:
                yield
            finally:
                self._holding -= 1
                self._assemble((), ())

    def create_table(self, name: str, columns: Sequence[Column], *, retain: bool) -> None:
        """Register a base table. With `retain`, its rows are kept here."""
        with self.lock:
            self._add_relation(name, columns, retain=retain)
            self._assemble((), [name])

    def copy_relation(self, name: str, copy: str, owner: str) -> None:
        """Make a relation with the rows of another one, whose changes wait until the view `owner` is read."""
        with self.lock:
            self._catch_up([name])
            made = self._add_relation(copy, self.relations[name].columns)
            made.copy_of, made.owner = name, owner
            made.waiting = Waiting(made)
            self._assemble((), [name, copy])

    def fill_table(self, name: str, batches: Iterable[Any], count: int) -> None:
        """Fill a table that keeps its rows, before any view reads it, from batches or pairs of these and weights.

        `count` is about how many rows come. O(rows).
        """
        with self.changing():
            relation = self.relations[name]
            assert relation.base is not None
            fill_store(self.machine, relation, relation.base, batches, count, self._rescale)
            self._rebuilt += 1
            self._assemble((), [name])

    def renew_programs(self, relations: Iterable[str]) -> None:
        """Make the programs of relations again: their columns have changed."""
        self._assemble((), relations)

    def drop_table(self, name: str) -> None:
        """Forget a base table, or a view exposed as one, that no view reads."""
        with self.lock:
            relation = self.relations.pop(name)
            self.subscribers.unfeed(name)
            for store in relation.stores.values():
                store.table.release()
            self._assemble(self._views(relation.fed_by), [name, relation.copy_of])

    def create_view(
        self,
        name: str,
        definition: Definition,
        plan: Plan,
        load: Load,
        epsilon: float = 0.5,
        room: Room | None = None,
        *,
        stateless: bool = False,
    ) -> MaintainedView:
        """Build a view and keep it from now on. `load(table)` gives the present rows of a table that is not retained,
        as record batches, and their number. `epsilon` is when a value of a triangle is heavy, `room` what memory a view
        over bags may take. A `stateless` one shares no store (see pass_on). O(rows of its tables) for free-connex
        plans. On failure nothing has changed.
        """
        with self.changing():
            self._catch_up(definition.tables)
            view = self._plan_view(name, definition, plan, epsilon)
            view.stateless, view.room, node = stateless, room, TreeNode(view, self)
            try:
                sharing = self._build(view, lambda relation, store: self.fill(relation, store, None, load), room)
            except BaseException:
                node.close()
                self._assemble()
                for dictionary in self.dictionaries:
                    dictionary.sweep(all_unused=False)
                raise
            self.views[name] = view
            self.nodes[name] = node
            self._rebuilt += 1
            self.machine.counters[view.number] = 0
            for part in self.parts(view):
                part.reads.steps = 0  # Building it has read its blocks.
            view.changes_before = {relation: self.relations[relation].changes for relation in view.relations}
            self._assemble([view, *sharing])
            return view

    def create_computed(self, name: str, rows: ComputedRows, load: Load) -> ComputedNode:
        """Keep rows that DuckDB computes as a relation of this name. O(rows read) to fill. On failure nothing has
        changed."""
        with self.assembling_once():
            node = open_node(name, rows, self._number(), self)
            self._catch_up(node.relations)
            try:
                node.open(load)
                self.nodes[name] = node
                self.expose(name, inner=True)
                node.feed(self.relations[name])
            except BaseException:
                self.nodes.pop(name, None)
                node.close()
                if name in self.relations:
                    self.drop_table(name)
                self._assemble()
                raise
            self._rebuilt += 1
            read = [self.relations[relation] for relation in node.relations]
            self._assemble([view for relation in read for view in self._readers(relation)], [*node.relations, name])
            return node

    def fill(self, relation: Relation, store: LeafStore, rows: Rows | None, load: Load | None) -> None:
        """Fill a new store from these rows, or from the relation's present ones. O(rows)."""
        if rows is None:
            assert load is not None
            rows = self._present_rows(relation, load)
        fill_store(self.machine, relation, store, *rows, self._rescale)

    def drop_view(self, name: str) -> None:
        """Forget a view, or another node; stores that no other node reads go with it."""
        with self.assembling_once():
            node = self.nodes.pop(name)
            self._assemble((), node.relations)
            self.subscribers.close(name)
            view = self.views.pop(name, None)
            node.close()
            self._rebuilt += 1
            self.drop_unread()
            for branch in view.branches if view is not None else ():
                self.drop_view(branch.name)
            for dictionary in self.dictionaries:
                dictionary.sweep(all_unused=False)

    # Changes out ---------------------------------------------------------------------------------

    def listen(self, name: str, listener: Listener) -> None:
        """Call `listener(epoch, change)` at each commit that may change a view; with the error if its rows have one.

        Listeners are called under the engine's lock and must not raise.
        """
        with self.lock:
            self._catch_up(self.subscribers.beside(name))
            self.subscribers.listen(name, listener)
            self._assemble(self._views([name]))

    def forget(self, name: str, listener: Listener) -> None:
        """Call a listener no more."""
        with self.lock:
            self.subscribers.forget(name, listener)
            self._assemble(self._views([name]))

    def expose(self, name: str, nodes: Sequence[str] = (), *, inner: bool = False) -> None:
        """Make the rows of `nodes` (else of the node of this name) those of a relation that other nodes may read: they
        follow in the same epoch. The nodes have columns of the same types.

        They are `inner` if they are there for the relation's readers alone: they go with the last of these.
        """
        with self.lock:
            if name in self.relations:
                return
            feeding = tuple(nodes) or (name,)
            made = self._add_relation(name, [Column(*column) for column in self.nodes[feeding[0]].columns])
            made.fed_by = feeding
            for node in feeding:
                self.nodes[node].inner = inner
                self._catch_up(self.subscribers.beside(node))
            self.subscribers.feed(name, feeding)
            self._assemble(self._views(feeding), [name])

    def pass_on(self, name: str) -> None:
        """Keep no rows for a view of one table that was created to pass them on: its changes go to its readers, and it
        cannot be read any more."""
        with self.lock:
            view = self.views[name]
            [source] = view.sources.values()
            source.relation.pass_on(source.store)
            self._rebuilt += 1
            self._assemble([view])

    def drop_unread(self) -> None:
        """Forget the relations of views, and copies of relations, that no other view reads any more."""
        with self.lock:
            derived = [name for name, relation in self.relations.items() if relation.is_view or relation.copy_of]
            for name in reversed(derived):  # Copies after what they are of.
                relation = self.relations.get(name)
                copied = any(other.copy_of == name for other in self.relations.values())
                if relation is None or copied or any(name in node.relations for node in self.nodes.values()):
                    continue
                self.drop_table(name)
                for source in relation.fed_by:
                    if source in self.nodes and self.nodes[source].inner:
                        self.drop_view(source)

    def parts(self, view: MaintainedView) -> list[MaintainedView]:
        """The views of a view's query blocks, then itself, each followed by its distinct values."""
        inner = [part for name, part in self.views.items() if name.startswith(f"{view.name}/")]
        return [member for part in (*inner, view) for member in part.members]

    def describe(self, view: MaintainedView) -> list[Description]:
        """What the nodes of a view say of themselves: those of its query blocks, then its own."""
        return [node.describe() for node in self.nodes_of(view)]

    def nodes_of(self, view: MaintainedView) -> list[Node]:
        """The nodes of a view's query blocks, each after those that it reads, then its own."""
        return [*(one for name, one in self.nodes.items() if name.startswith(f"{view.name}/")), self.nodes[view.name]]

    # Inner workings ------------------------------------------------------------------------------

    def _add_relation(self, name: str, columns: Sequence[Column], *, retain: bool = False) -> Relation:
        made = Relation(name, columns, retain, self.dictionaries, self.evaluate, self.layouts.get(name))
        self.relations[name] = made
        return made

    def _catch_up(self, relations: Collection[str]) -> None:
        """Take in what waits for relations, before anything is built on them."""

    def _touched(self, relation: Relation) -> list[Table]:
        own = [table for view in self._readers(relation) for table in (*view.tables(), *view.ranked_tables())]
        return [store.table for store in relation.stores.values()] + own

    def _owner(self, store: LeafStore) -> int:
        """The number of the view that alone reads a store; 0 for a shared one, whose steps are nobody's."""
        node = self.nodes.get(next(iter(store.users))) if len(store.users) == 1 else None
        return node.number if node is not None else 0

    def _members(self) -> list[MaintainedView]:
        """All views with their distinct values."""
        return [member for view in self.views.values() for member in view.members]

    def _views(self, names: Iterable[str]) -> list[MaintainedView]:
        found = [self.views[name] for name in names if name in self.views]
        return found + [branch for view in found for branch in view.branches]

    def _readers(self, relation: Relation) -> list[MaintainedView]:
        return [view for view in self._members() if relation.name in view.relations]

    def _widen(self, relations: list[Relation]) -> None:
        views = {id(view): view for relation in relations for view in self._readers(relation)}
        stores = [store for relation in dict.fromkeys(relations) for store in relation.stores.values()]
        if max([view.limbs for view in views.values()] + [store.limbs for store in stores]) >= at.MAX_LIMBS:
            raise DataError("a sum is too large to be kept", why=f"it needs more than {64 * at.MAX_LIMBS} bits")
        for view in views.values():
            view.widen(view.limbs + 1)
        for store in stores:
            store.limbs += 1
            store.table.widen(store.limbs)
        self._assemble(views.values(), [relation.name for relation in relations])

    def _rescale(self, needed: Rescale) -> None:
        """Give a floating factor a finer unit, and multiply what has been summed in the old one."""
        item = needed.item
        bits = needed.shift - item.shift
        more = (bits + 63) // 64
        needed.relation.rescale(item, needed.limbs, needed.shift)
        for store in needed.relation.stores.values():
            column = next((c for c in store.factors if store.inputs["factor " + c.expression] is item), None)
            if column is None:
                continue
            store.limbs = max(store.limbs + more, needed.limbs)
            store.table.widen(store.limbs)
            store.table.rescale(1 + store.factors.index(column), bits)
            for view in self._members():
                if view.reads_store(store):
                    view.rescale(store, column.expression, bits)
        self._assemble(self._readers(needed.relation), [needed.relation.name])

    def _number(self) -> int:
        """The counter of steps of a new node, set to 0."""
        taken = {node.number for node in self.nodes.values()}
        number = next((n for n in range(1, MAX_VIEWS) if n not in taken), None)
        if number is None:
            raise InternalError(f"more than {MAX_VIEWS - 1} views and blocks", hint="drop some")
        self.machine.counters[number] = 0
        return number

    def _build(
        self, view: MaintainedView, fill: Callable[[Relation, LeafStore], None], room: Room | None
    ) -> list[MaintainedView]:
        """Open the stores that a view's plan needs, `fill` the new ones, and build the view's tables. Returns the other
        views that read a store whose table is another one now: it needed more indexes."""
        fresh, renewed = open_stores(view, self.relations, self.machine)
        sharing = [other for other in self._members() if any(map(other.reads_store, renewed))]
        for relation, store in fresh:
            fill(relation, store)
        for other in sharing:
            other.bind_leaves()
        for member in view.members:
            member.bind_leaves()
            member.build(self.machine, room)
        walked = [tree for one in view.members for tree in rows_of(one).trees]
        lay_out(walked, [store.table for _, store in fresh])
        return sharing

    def _plan_view(self, name: str, definition: Definition, plan: Plan, epsilon: float) -> MaintainedView:
        view = unbuilt_view(name, definition, plan, self._number(), self.dictionaries, epsilon)
        if definition.merged:
            view.merge([self.views[branch.table] for branch in definition.branches], self.evaluate)
        return view

    @staticmethod
    def close_store(relation: Relation, store: LeafStore, user: str) -> None:
        """The user reads a store no longer."""
        if store.key in relation.stores:
            if store.users <= {user}:
                store.table.release()
                store.table.reset()
            relation.close_store(store, user)

    def _present_rows(self, relation: Relation, load: Load) -> tuple[Iterable[Any], int]:
        """The rows of a relation as record batches, or pairs of these and weights; and their number (0: unknown)."""
        from sqlfront.maintenance.output.output import table_batches

        relation = self.relations[relation.copy_of or relation.name]
        if relation.is_view:
            return chain.from_iterable(self.nodes[name].batches() for name in relation.fed_by), 0
        if relation.base is not None:
            return table_batches(relation), relation.base.table.live
        return load(relation.name)

    def _assemble(self, views: Iterable[MaintainedView] | None = None, relations: Iterable[str] = ()) -> None:
        """Make the programs of some relations again, and of all relations that some views read. The tables, widths or
        listeners of these views have changed. Without `views`, make all programs."""
        changed = self.views.values() if views is None else views
        members = {id(member): member for view in changed for member in view.members}
        for member in members.values():
            member.refresh(self.machine)
            self._stale |= member.relations
        self._stale.update(relations)
        if views is None:
            self._stale |= {*self.relations, *self._programs}
        if not self._holding:
            stale, self._stale = self._stale, set()
            self._make_programs(stale)

    def _make_programs(self, stale: Collection[str]) -> None:
        self._shared.clear()
        readers = defaultdict[str, list[MaintainedView]](list)
        for view in self._members():
            for name in view.relations:
                readers[name].append(view)
        for name in stale:
            relation = self.relations.get(name)
            if relation is not None:
                self._programs[name] = programs_of(relation, readers[name], self._owner)
            else:
                self._programs.pop(name, None)
        counted = [
            Counted(node.name, node.number, frozenset(node.relations), tuple(node.columns))
            for node in self.nodes.values()
        ]
        self._log.know(counted, self.machine.epochs)

    def _shares(self, names: Sequence[str]) -> list[list[RelationPrograms]]:
        """The programs of relations for each thread that takes a share of their changes; none if one does all."""
        readers = [self._readers(self.relations[name]) for name in names]
        reading = {view.number for views in readers for view in views}
        reading |= {node.number for node in self.nodes.values() if not node.relations.isdisjoint(names)}
        threads = min(self.machine.threads, len(reading))
        # Which values are looked at again, heavy or light, depends on all rows that were written in a chunk.
        if threads < 2 or any(view.balance is not None for views in readers for view in views):
            return []
        thread_of = share_out({number: int(self.machine.counters[number]) for number in reading}, threads)
        known, shares = self._shared.get(tuple(names), ({}, []))
        if known != thread_of:
            read = [(self.relations[name], views) for name, views in zip(names, readers, strict=True)]
            shares = shared_programs(read, self._owner, thread_of, threads)
            self._shared[tuple(names)] = thread_of, shares
        return shares

"""One maintained view: its tree over the relations' stores, its bulk build, and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sqlfront.maintenance.heavy_light.balance import Balance
from sqlfront.maintenance.heavy_light.covers import add_part_paths
from sqlfront.maintenance.heavy_light.part_trees import PartTrees, planned_part_trees
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.metering import Meter
from sqlfront.maintenance.program.parallel_fill import in_parts, is_copy, kinds_in, sweep
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.room import Goal, Room, fill
from sqlfront.maintenance.program.shapes import Part, Shape, shape_of
from sqlfront.maintenance.ranked.branches import RankedBranches
from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.maintenance.ranked.index_union import RankedUnion
from sqlfront.maintenance.ranked.ranked_order import RankedOrder
from sqlfront.maintenance.relation.atom_source import Source
from sqlfront.maintenance.relation.attachment import Attachment
from sqlfront.maintenance.relation.base_relation import LeafStore, Relation
from sqlfront.maintenance.tree.carrying import base_of, entry_of
from sqlfront.maintenance.tree.missing_rows import make_room, routes
from sqlfront.maintenance.tree.paths import build_path, build_projection, update_path
from sqlfront.maintenance.tree.view_tables import label, view_table
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.maintenance.view.change_reader import ChangeReader
from sqlfront.maintenance.view.delta_paths import DeltaPaths
from sqlfront.maintenance.view.emission import OutputDelta
from sqlfront.maintenance.view.observation import Observation
from sqlfront.maintenance.view.tuple_count import TupleCount
from sqlfront.maintenance.windows.window_stores import WindowStores
from sqlfront.planner.model.multiplicity import is_spread
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Atom, Definition, Direction, DistinctValues, Limit, RawColumn
from sqlfront.storage.codecs.encoding import Codec
from sqlfront.storage.codecs.order import directed_places
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.copied_tables import can_be_copied, copy
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate


class FirstRowsReader(Protocol):
    """Reads the first rows of an order without DuckDB (output/first_rows.py)."""

    def read(self, limit: Limit) -> list[tuple[Any, ...]] | None: ...

    def batches(self, limit: Limit, first: int) -> Iterator[list[tuple[Any, ...]]]: ...


@dataclass
class MaintainedView:
    """A view in the engine. `limbs` is the width of the values of its own tables.

    `output_schema` is that of its rows in Arrow, and `output_row` one of them, once some have been computed by
    DuckDB. `tuple_count` counts its tuples where no table's size or count is their number (see tuple_count.py); where
    that would cost too much, `counted` is the number last asked for, after the machine's run of this number.
    `epsilon` says when a value is heavy, where the plan is a union of `part_trees` over heavy and light parts.
    `balance` keeps the parts, unless no value is heavy or light (at 0 and 1) and the tree keeps the whole output.
    `stateless`: the view has one table and hands on its changed rows (see State.pass_on). `ranked` are the ranked
    trees of the orders that have one, by the order's number; `changes` reads the view's changes, if somebody wants
    them, `reader` reads first rows (False: DuckDB does), `look_ups` rows by values of variables (output/look_up.py).
    `windows` keeps its rows in the orders of its window functions.
    `branches` are the views whose rows it merges, if it has none of its own. `reads` counts the steps of its readers.
    `room` is what memory it may take. If it may be planned anew, `observation` is that of its costs. Its present plan
    runs since the tables had `changes_before`, and the view had taken `steps_before`.
    """

    name: str
    definition: Definition
    plan: Plan
    tree: Tree
    number: int
    codecs: dict[str, Codec]
    delta_paths: DeltaPaths
    sources: dict[str, Source] = field(default_factory=dict)
    limbs: int = 1
    broken: str | None = None
    changes_before: dict[str, int] = field(default_factory=dict)
    delta: OutputDelta | None = None
    inner: bool = False
    stateless: bool = False
    output_schema: pa.Schema | None = None
    output_row: pa.Table | None = None
    distinct_set: DistinctValues | None = None
    distinct_sets: list[MaintainedView] = field(default_factory=list)
    tuple_count: TupleCount | None = None
    counted: tuple[int, int] | None = None
    machine: Machine | None = None
    epsilon: float = 0.5
    part_trees: PartTrees | None = None
    balance: Balance | None = None
    ranked: dict[int, RankedOrder] = field(default_factory=dict)
    changes: ChangeReader | None = None
    reader: FirstRowsReader | Literal[False] | None = None
    look_ups: dict[tuple[str, ...], Any] = field(default_factory=dict)
    branches: list[MaintainedView] = field(default_factory=list)
    reads: Meter = field(default_factory=Meter)
    windows: WindowStores | None = None
    room: Room | None = None
    observation: Observation | None = None
    steps_before: int = 0
    _paths: dict[tuple[int, int], Assembler] = field(default_factory=dict)

    @property
    def members(self) -> list[MaintainedView]:
        """The view and its distinct values, which share its name and its number."""
        return [self, *self.distinct_sets]

    @property
    def is_heard(self) -> bool:
        """Whether somebody reads the view's changes."""
        return self.delta is not None or self.changes is not None

    @property
    def relations(self) -> set[str]:
        own = {source.relation.name for source in self.sources.values()}
        return own.union(*(branch.relations for branch in self.branches)) if self.branches else own

    @property
    def all_sources(self) -> list[Source]:
        """The stores that the view reads, those of its distinct values and of its window functions too."""
        kept = [source for member in self.members for source in member.sources.values()]
        return kept + (self.windows.sources if self.windows is not None else [])

    @property
    def attachments(self) -> list[Attachment]:
        """All that is kept beside the tree."""
        orders = self.windows.delta if self.windows is not None else None
        kept = (self.delta, orders, self.tuple_count, *self.ranked.values(), self.balance)
        return [one for one in kept if one is not None]

    def tables(self) -> list[Table]:
        """The view's own tables that changes are swept from; leaf stores belong to the relations."""
        return self._summed() + [table for one in self.attachments for table in one.swept()]

    def all_tables(self) -> list[Table]:
        """All of the view's own tables, for their memory: those that no change may empty too."""
        return self._summed() + [table for one in self.attachments for table in one.kept()]

    def ranked_tables(self) -> list[Table]:
        """The tables of the ranked trees, which their own steps sweep."""
        return [table for index in self.ranked.values() for table in index.tables()]

    def _summed(self) -> list[Table]:
        """The tree's own tables, whose values have `limbs` words."""
        own = [view.table for view in self.tree.stored_inner() if view.table is not None]
        return own + ([self.tree.projection] if self.tree.projection is not None else [])

    def codec(self, raw: RawColumn) -> Codec | None:
        """The codec of a raw column that is a variable's value; None for counts and sums, and lists of values."""
        kinds = ("variable", "least", "greatest", "rank", "first", "last", "window")
        if raw.kind not in kinds or raw.variable is None or raw.first:
            return None
        view = self if raw.distinct_set is None else self.distinct_sets[raw.distinct_set]
        return view.codecs[raw.variable]

    def shift(self, part: Part) -> int:
        """The sum of the binary scales of a part's floating factors."""
        total = 0
        for atom, factor in part:
            store = self.sources[atom].store
            column = next(f for f in self.definition.atom(atom).factors if f.name == factor)
            item = store.inputs["factor " + column.expression]
            total += item.shift if item.kind == "factor" else 0
        return total

    def bind_leaves(self) -> None:
        """Point the tree's leaves at the stores' present tables and layouts."""
        for atom, source in self.sources.items():
            leaf, store = self.tree.leaves[atom], source.store
            leaf.table = store.table
            leaf.shape = store.shape(self.definition.atom(atom))
            translate = {c.name: c.expression for c in self.definition.atom(atom).variables}
            back = {expression: name for name, expression in translate.items()}
            leaf.indexes = [tuple(back[expression] for expression in index) for index in store.indexes]
            order = store.order
            leaf.order = (tuple(back[e] for e in order.grouping), back[order.by[0][0]]) if order is not None else None
            leaf.ranges = store.ranges
            extremes = [(back[one.expression], one.greatest) for one in store.summaries[:1] if one.expression in back]
            leaf.extreme = extremes[0] if extremes else None
            boxes = store.boxes
            leaf.boxes = boxes and (tuple(back[e] for e in boxes.key), back[boxes.first], back[boxes.second])
            leaf.stateless = store.stateless
        self.delta_paths.bind(self)

    def make_tables(self) -> None:
        """Make the view's own tables, empty."""
        for view in self.tree.stored_inner():
            view.shape = self.tree.shape(view, self.limbs)
            view.table = view_table(self.tree, view, label(self.definition, view.node))
        if self.tree.output is not None:
            self.tree.projection = self._projection(self.tree.output)
        for leaf in self.tree.leaves.values() if self.tree.supports else ():
            words = sum(self.tree.widths[variable] for variable in entry_of(self.tree, base_of(self.tree, leaf)))
            leaf.gathered = Table(words, 1, self.limbs, name="delta of a leaf")
        make_room(self.tree, self.limbs)
        kept = self.plan.keeps_number and is_spread(self.definition, self.plan)
        self.tuple_count, self.counted = TupleCount(self.tree, self.limbs) if kept else None, None

    def _projection(self, variables: tuple[str, ...]) -> Table:
        """An empty table of the output's variables; the distinct values' is grouped, and ordered by the
        argument if asked."""
        shape = shape_of(variables, self.tree.widths, self.tree.parts(self.tree.root), self.limbs)
        if self.distinct_set is None:
            return Table(shape.keys, len(shape.parts), self.limbs, name="projection")
        group = shape.places(dict.fromkeys(name for _, name in self.distinct_set.group))
        order = None
        if self.distinct_set.ordered:
            directions = self.distinct_set.directions or (Direction(),) * len(self.distinct_set.argument)
            pairs = zip(self.distinct_set.argument, directions, strict=True)
            starts = [(self.codecs[v], shape.places([v])[0], direction) for v, direction in pairs]
            order = 0, [place for one in starts for place in directed_places(*one)]
        ranges = self.distinct_set.ranked
        return Table(shape.keys, len(shape.parts), self.limbs, [group], name="values", order=order, ranges=ranges)

    def merge(self, branches: list[MaintainedView], evaluate: Evaluate) -> None:
        """Make the rows of `branches` those of the view; of first rows each has one ranked tree."""
        self.branches = branches
        if self.definition.limit is not None:
            indexes = [index for branch in branches for index in branch._own_ranked()]
            self.ranked[0] = RankedBranches(self.definition, self.codecs, indexes, evaluate)

    @property
    def branch_variables(self) -> list[dict[str, str]]:
        """For each branch whose rows are read in turn, its own variables by those of the view."""
        variables = [str(raw.variable) for raw in self.definition.raw]
        columns = [[str(column.variable) for column in branch.columns] for branch in self.definition.branches]
        return [dict(zip(variables, own, strict=True)) for own in columns]

    def build(self, machine: Machine, room: Room | None = None) -> None:
        """Fill the view's tables from its leaves' stores, children first, with wider values as they prove needed.

        O(rows) for every class but "acyclic", where the extended result counts too. Raises OperationalError as soon as
        it is foreseen that they do not find room.
        """
        self.machine = machine
        while True:
            self.make_tables()
            if self._fill(machine, room) & at.OVERFLOW == 0:
                break
            self.limbs += 1
        self.balance_by(self.epsilon)
        self.refresh(machine, room)
        for index in self._own_ranked():
            index.build(machine, self._stores(), {atom: self._leaf_shape(atom) for atom in self.sources})

    def _own_ranked(self) -> list[RankedIndex]:
        """The ranked trees that are not the part trees'."""
        return [index for index in self.ranked.values() if isinstance(index, RankedIndex)]

    def _stores(self) -> dict[str, LeafStore]:
        return {atom: source.store for atom, source in self.sources.items()}

    def balance_by(self, epsilon: float) -> None:
        """Tell heavy from light values by another epsilon; `refresh` fills the new tables, which are still empty."""
        self.epsilon, self.balance = epsilon, None
        part_trees = self.planned_part_trees()
        if part_trees is not None and (self.tree.is_shared or 0 < epsilon < 1):
            part_trees.open(self.sources)
            part_trees.make_tables(self.limbs)
            self.part_trees = part_trees
            self.ranked = self.ranked | ranked_by(part_trees)
            self.balance = Balance(part_trees, epsilon, lambda: self.limbs, lambda: self.widen(self.limbs + 1))

    def planned_part_trees(self) -> PartTrees | None:
        """The part trees of the plan, without tables; None if it has none."""
        return planned_part_trees(self.tree, self.number, symmetric=bool(self.delta_paths.alike(self.tree)))

    def refresh(self, machine: Machine, room: Room | None = None) -> None:
        """Fit to the stores what the view keeps beside its tree, after tables, listeners or widths have changed."""
        self.bind_leaves()
        self.reader = None
        self.look_ups.clear()
        self._paths.clear()
        for one in self.attachments:
            one.refresh(machine, self._stores(), room)

    def _fill(self, machine: Machine, room: Room | None) -> int:
        flags, any_rows = 0, any(store.table.live for store in self._stores().values())
        for view in self.tree.stored_inner() if any_rows and not self.tree.is_shared else ():
            assembler = Assembler()
            scanned = build_path(self.tree, view, assembler, self.number, self.limbs)
            assert view.table is not None and view.shape is not None
            goal = self._goal(view.table, view.shape.variables, view)
            flags |= self._run(machine, assembler, scanned, goal, room)
        if any_rows and self.tree.output is not None:
            flags |= self._fill_projection(machine, room)
        if self.tuple_count is not None:
            flags |= self.tuple_count.build(machine, self.number)
        sweep(machine, *self.tables())
        for view in self.tree.root.walk():
            if view.boxes is not None and view.table is not None:
                view.table.make_boxes(machine.address)
        return flags

    def _fill_projection(self, machine: Machine, room: Room | None) -> int:
        assembler, table = Assembler(), self.tree.projection
        scanned = build_projection(self.tree, assembler, self.number, self.limbs)
        assert table is not None and self.tree.output is not None
        if room is None and is_copy(assembler.code) and can_be_copied(table, scanned):
            with table.unsorted(partial(in_parts, machine, table)):
                copy(table, scanned, machine.address, signs=at.SIGN in kinds_in(assembler.code))
            table.compact()
            return 0
        return self._run(machine, assembler, scanned, self._goal(table, self.tree.output, self.tree.root), room)

    def _goal(self, table: Table, variables: Sequence[str], view: View) -> Goal:
        """A table to be filled with what joins below a view."""
        names = {below.node.atom or below.node.filters for below in view.walk() if not below.children}
        leaves = [self.tree.leaves[name] for name in names if name is not None]
        sizes = []
        for leaf in leaves:
            assert leaf.table is not None
            sizes.append((frozenset(leaf.node.variables), leaf.table.live))
            groups = zip(leaf.indexes, leaf.table.groups, strict=True)
            sizes += [(frozenset(index), group.live) for index, group in groups]
        return Goal(table, variables, [self.definition.label(variable) for variable in variables], sizes)

    def _run(self, machine: Machine, assembler: Assembler, scanned: Table, goal: Goal, room: Room | None) -> int:
        taken = sum(table.bytes() for table in self._summed() if table is not goal.table)
        with goal.table.unsorted(partial(in_parts, machine, goal.table)):
            flags = fill(machine, assembler, scanned.used, goal, taken, room)
            sweep(machine, goal.table)
        goal.table.compact()
        return flags

    def add_paths(self, assembler: Assembler, store: LeafStore, position: int) -> None:
        """Add the update paths of this view's atoms that read `store` at this position. O(their length) from the second
        time on, until `refresh`."""
        key = id(store), position
        if key not in self._paths:
            self._paths[key] = Assembler()
            self._make_paths(self._paths[key], store, position)
        assembler.append(self._paths[key])

    def _make_paths(self, assembler: Assembler, store: LeafStore, position: int) -> None:
        reading = [(atom, source) for atom, source in self.sources.items() if source.store is store]
        atoms = {atom: self._leaf_shape(atom) for atom, source in reading if source.position == position}
        for one in self.attachments:
            one.add_row_paths(assembler, store, position, atoms)
        self.delta_paths.add(self, assembler, store, position)

    def _leaf_shape(self, atom: str) -> Shape:
        shape = self.tree.leaves[atom].shape
        assert shape is not None
        return shape

    def add_ranking(self, assembler: Assembler, relation: Relation) -> None:
        """Bring the ranked trees up to date with a change of `relation`, once for each node."""
        atoms = {atom for atom, source in self.sources.items() if source.relation is relation}
        for one in self.attachments:
            one.add_ranking(assembler, atoms)

    def add_requests(self, assembler: Assembler, relation: Relation) -> None:
        """Ask for attention if a change of `relation`, whose stores have been swept, makes it necessary: a rebalance is
        due, or many rows of the output's change have been gathered."""
        own = {id(source.store): source.store for source in self._own_sources() if source.relation is relation}
        for one in self.attachments:
            one.add_requests(assembler, list(own.values()))

    def stores(self) -> list[LeafStore]:
        """The stores that the view's atoms read, and those of its window functions, each once."""
        return list({id(source.store): source.store for source in self._own_sources()}.values())

    def reads_store(self, store: LeafStore) -> bool:
        return any(source.store is store for source in self._own_sources())

    def _own_sources(self) -> list[Source]:
        return [*self.sources.values(), *(self.windows.sources if self.windows is not None else ())]

    def _read_by(self) -> list[tuple[Source, Atom]]:
        """What the view reads, each with the atom whose rows it has."""
        orders = self.windows.kept if self.windows is not None else ()
        atoms = [(source, self.definition.atom(name)) for name, source in self.sources.items()]
        return [*atoms, *((one.source, one.atom) for one in orders)]

    def add_path(self, assembler: Assembler, leaf: View, position: int, times: int, alone: bool = True) -> None:
        """The path of a leaf's delta; `alone`: its siblings are stored tables, and may be partitioned."""
        for route in routes(leaf):
            if self.balance is None or not alone:
                update_path(self.tree, leaf, assembler, self.number, self.limbs, position, times, route)
            else:
                store = self.sources[leaf.node.atom or ""].store
                add_part_paths(self.balance.part_trees, assembler, leaf, store, position, self.limbs, times)
            for one in self.attachments:
                one.add_path(leaf, assembler, self.number, position, times, route)

    def widen(self, limbs: int) -> None:
        """Give the values of the view's own tables more limbs."""
        self.limbs = limbs
        for table in self._summed():
            table.widen(limbs)
        for view in self.tree.stored_inner():
            view.shape = self.tree.shape(view, limbs)
        for view in self.tree.root.walk():
            if view.gathered is not None:
                view.gathered.widen(limbs)
        for one in self.attachments:
            one.widen(limbs)

    def rescale(self, store: LeafStore, expression: str, bits: int) -> None:
        """Multiply every sum that contains a factor of this expression by 2**bits, once for each time it does."""
        stored = [(view.table, view.shape.parts) for view in self.tree.stored_inner() if view.table and view.shape]
        if self.tree.projection is not None:
            stored.append((self.tree.projection, self.tree.parts(self.tree.root)))
        names = {
            (atom.name, f.name)
            for source, atom in self._read_by()
            if source.store is store
            for f in atom.factors
            if f.expression == expression
        }
        times = max((len(part & names) for part in self.tree.parts(self.tree.root)), default=0)
        self.widen(self.limbs + (times * bits + 63) // 64)
        for table, parts in stored:
            for number, part in enumerate(parts):
                for _ in part & names:
                    table.rescale(number, bits)
        for one in self.attachments:
            one.rescale(names, bits)


def ranked_by(part_trees: PartTrees) -> dict[int, RankedOrder]:
    """The orders that the part trees of a view keep ranked trees of, by their numbers."""
    free, trees = part_trees.base.definition.free, part_trees.trees
    return {number: RankedUnion([kept.ranked[number] for kept in trees], free) for number in trees[0].ranked}

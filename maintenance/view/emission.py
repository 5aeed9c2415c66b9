"""Delta enumeration: what an epoch changes in a view's output, from the tree, without enumerating the rest.

A leaf's delta climbs as in an update, but keeps the free variables it meets. When it has come to the root every
sibling is known to have a partner, and only then are the siblings' own free variables listed, so no look-up is in
vain that the update does not make too (Idris et al. 2017, "push mode"; theirs walks down along the updated
path and needs deltas of one sign, ours carries each row's own weight and needs none). Rows are added up per key
where they enter the enumerated part of the tree and once more where they end, in a table of tuples of the
output's variables: what relations and signs cancel between them is gone when the epoch's change is read. Rows that one
run of a path lists differ from each other, unless a bag leaves out what tells them apart. Those of bags and sets are
appended to a table without slots. They are added up if they may cancel, or the same tuples are to be there once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from sqlfront.maintenance.program.machine import Machine, Program
from sqlfront.maintenance.program.programs import Assembler, Join
from sqlfront.maintenance.program.shapes import COUNT, TOUCHES, Shape, parts_of, shape_of
from sqlfront.maintenance.relation.attachment import Attachment
from sqlfront.maintenance.relation.base_relation import LeafStore
from sqlfront.maintenance.tree.missing_rows import arrives
from sqlfront.maintenance.tree.paths import Delta, begin_path, carry_path, climb, join_siblings, join_step, project
from sqlfront.maintenance.tree.steps import Step
from sqlfront.maintenance.tree.view_tree import Route, Tree, View
from sqlfront.planner.model.multiplicity import ignores_multiplicity
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.tables import appended_rows
from sqlfront.storage.stores.row_addresses import address_of
from sqlfront.storage.stores.table import Table

_copy_columns = entry_point(appended_rows.copy_columns)

USUAL_ROWS = 65536
"""Rows of an epoch's change for which memory is kept ready."""
MOST_ROWS = 4 * USUAL_ROWS
"""Rows for which memory is kept after a large epoch: memory that is new for each epoch costs more than the rows."""
FEW_ROWS = 256
"""Rows of recent epochs that have not made the memory of later ones large."""
MANY_ROWS = 4096
"""Up to so many appended rows are added up without asking whether that is necessary."""


class OutputDelta(Attachment):
    """The tables in which one view's output change is gathered, and the paths that fill them.

    Rows are added up in `table`, or appended to those that are `listed`. `repeats`: a path appends equal rows, those of
    a bag that does not show all that its joins list.

    A row is a tuple of the output's variables with the change of each partial sum; the first value counts the
    rows added up, so that a row is there also when its sums cancel. With `supports`, for DISTINCT and groups without
    sums, a tuple counts 1 however often it is derived: what changes only that is not carried on; not so if part
    trees keep the output. The tables are linear in the changes: undoing an epoch takes its part out again.
    """

    def __init__(self, tree: Tree, limbs: int, machine: Machine) -> None:
        self.tree, self._machine = tree, machine
        self.variables = tuple(dict.fromkeys(tree.definition.free))
        self.repeats, self._recent = False, 0
        self.supports = ignores_multiplicity(tree.definition) and tree.output is None and not tree.is_shared
        self._aggregates: dict[tuple[View, Route], Table] = {}
        self._bounds = np.array([0, 0, 0, USUAL_ROWS], np.int64)
        self._shape(limbs)
        self._runs = np.zeros(at.RUN_STARTS + at.MOST_RUNS, np.int64)
        self.table, self.listed = (
            Table(self.shape.keys, len(self.shape.parts), limbs, name="output delta") for _ in range(2)
        )
        # A word of a view of memory is read in a fifth of the time that one of an array takes.
        self.table_header, self.listed_header, self._run_words = (
            words.data.cast("B").cast("q") for words in (self.table.header, self.listed.header, self._runs)
        )

    def add_path(
        self, leaf: View, assembler: Assembler, owner: int, position: int, times: int = 1, route: Route = ()
    ) -> None:
        """Add the path that carries a leaf's delta to the output."""
        tree, limbs = self.tree, self.shape.limbs
        emission = None if tree.output is not None else Emission(tree, route[-1] if route else leaf)
        if not arrives(leaf, route) or (self.supports and emission is not None and emission.is_unseen):
            return
        begin_path(tree, leaf, assembler, owner, position, route)
        if emission is None:
            delta = carry_path(tree, leaf, assembler, limbs, position)
        else:
            delta = climb(tree, leaf, emission.source, assembler, limbs, write_all=False, route=route)
            delta = self._emit(emission, delta, (leaf, route), assembler, position, times)
        if delta.shape != self.shape:
            assembler.project(Join(delta.shape, delta.atoms, None, self.shape))
        if emission is not None and self._appends(emission, delta):
            assembler.append_rows(self.listed, int(self._runs.ctypes.data))
        else:
            assembler.upsert(self.table)
        assembler.path_end()

    @property
    def rows(self) -> int:
        """How many rows have been gathered. The same tuple may be counted more than once."""
        return self.table.live + self.listed.live

    def changed(self, *, once: bool = True) -> np.ndarray:
        """The tuples to which something was added that did not cancel: their key words, then the limbs of each part.

        They lie column by column. Unless it is to be there `once`, a tuple of a bag may repeat.
        """
        listed, shape = self.listed, self.shape
        columns = _columns(listed) if listed.used else _columns(self.table)
        if listed.used and (self.table.used or not (self._are_apart(columns) if once else self._add_nothing(columns))):
            self._add_up()
            columns = _columns(self.table)
        sums = columns[shape.keys + shape.limbs :]
        if len(sums) == 1 and np.count_nonzero(sums[0]) == columns.shape[1]:
            return columns.T
        changed = (sums != 0).any(0)
        return columns.T if changed.all() else columns[:, changed].T

    def clear(self) -> None:
        """Forget what has been gathered; memory beyond a usual epoch's goes back, unless a recent epoch filled it."""
        added, listed = self.table_header[at.USED], self.listed_header[at.USED]
        if not (added or listed):
            return
        self._recent = max(added + listed, self._recent - self._recent // 8)
        if listed:
            self._forget_listed()
        if added:
            self.table.clear()
        if self._recent <= FEW_ROWS and not self._aggregates:
            return  # What was larger has been looked at while it was recent.
        kept = MOST_ROWS if self._recent > USUAL_ROWS // 2 else USUAL_ROWS
        for table in (self.table, self.listed, *self._aggregates.values()):
            if table.capacity > kept:
                table.compact()

    def add_requests(self, assembler: Assembler, stores: list[LeafStore]) -> None:
        """Ask for attention if more than a usual epoch's rows have been gathered."""
        assembler.balance([self.table, self.listed], 1, int(self._bounds.ctypes.data))

    def widen(self, limbs: int) -> None:
        self._aggregates.clear()
        if self.listed.used:
            self._add_up()
        self.table.widen(limbs)
        self.listed.widen(limbs)
        self._shape(limbs)

    def rescale(self, names: Set[tuple[str, str]], bits: int) -> None:
        for number, part in enumerate(self.shape.parts):
            for _ in part & names:
                self.table.rescale(number, bits)

    def _add_nothing(self, columns: np.ndarray) -> bool:
        """Whether no two rows cancel or make one of two signs: no tuple repeats, or all counts have one sign. Rows that
        go meet others that have gone in the same epoch: these count 0, and are left out later."""
        counts = columns[self.shape.keys + self.shape.parts.index(COUNT)]
        return bool((counts >= 0).all() or (counts <= 0).all()) or self._are_apart(columns)

    def _are_apart(self, columns: np.ndarray) -> bool:
        """Whether no two runs have appended the same tuple, as some word tells: each word's values in the one are less
        than those in the other. O(rows), and runs squared."""
        runs = int(self._runs[at.RUN_COUNT])
        if self.repeats:
            return False
        if runs <= 1:
            return True
        if runs > at.MOST_RUNS or self.listed.used <= MANY_ROWS:
            return False
        starts, known = self._runs[at.RUN_STARTS :][:runs], np.eye(runs, dtype=bool)
        for column in columns[: self.shape.keys]:
            least, most = (one.reduceat(column, starts) for one in (np.minimum, np.maximum))
            known |= (most[:, None] < least) | (most < least[:, None])
            if known.all():
                return True
        return False

    def _add_up(self) -> None:
        """Add the appended rows to those of the table, each tuple once. DataError if a count does not fit."""
        if self._machine.run(self._adding, None, self.listed.used) & at.OVERFLOW:
            raise DataError("a row's count has changed by more than BIGINT holds", hint="split the change")
        self._forget_listed()

    @functools.cached_property
    def _adding(self) -> Program:
        assembler = Assembler()
        assembler.scan(self.listed)
        assembler.path(0)
        assembler.upsert(self.table)
        assembler.path_end()
        return assembler.program()

    def _forget_listed(self) -> None:
        header, runs = self.listed_header, self._run_words
        header[at.USED] = header[at.LIVE] = runs[at.RUN_COUNT] = runs[at.RUN_STEP] = 0

    def _shape(self, limbs: int) -> None:
        parts = (TOUCHES, *self.tree.parts(self.tree.root))
        self.shape = shape_of(self.variables, self.tree.widths, parts, limbs)

    def _emit(
        self,
        emission: Emission,
        entering: Delta,
        way: tuple[View, Route],
        assembler: Assembler,
        position: int,
        times: int,
    ) -> Delta:
        """The delta over all output variables, from a tree that enumerates them. It has come from a leaf on a route."""
        tree, limbs = self.tree, self.shape.limbs
        delta = emission.enter(entering, assembler, limbs)
        if times != 1:
            assembler.scale(delta.shape, times)
        if self.supports or any(step.lists for step in emission.free):
            self._aggregate(way, delta, assembler)
        has_turned = bool(way[1]) and emission.top is emission.source  # Its rows have appeared or disappeared.
        if self.supports and not has_turned:
            emission.turn(assembler, delta, position)
        free = set(tree.plan.free)
        for step in emission.free:
            listed = step.view.node.variables if step.lists else ()
            new = [v for v in listed if v in free and v not in delta.shape.variables]
            variables = (*delta.shape.variables, *new)
            is_last = step is emission.free[-1] and not self.supports
            out = self.shape if is_last and self._is_output(variables, step, delta) else None
            delta = join_step(tree, assembler, delta, step, variables, limbs, out)
        if self.supports:
            assembler.sign(delta.shape)
        return delta

    def _is_output(self, variables: Sequence[str], step: Step, delta: Delta) -> bool:
        """Whether a step makes the rows of the output from a delta: no others are left out, or added up."""
        atoms = delta.atoms | step.view.atoms if step.multiply else delta.atoms
        parts = parts_of(self.tree.definition.measures, atoms)
        return {*variables} == {*self.variables} and self.shape.parts == (TOUCHES, *parts)

    def _appends(self, emission: Emission, delta: Delta) -> bool:
        """Whether the rows of a delta of the output are appended. Sums are not: they may not fit when they are added up
        later. Equal rows of a set are not either. The rows of a run differ if rows that have been added up are joined
        with whole rows. Otherwise the rows of a bag may repeat."""
        is_bag = self.tree.definition.mode == "bag" and not self.supports
        listed = {variable for step in emission.free if step.lists for variable in step.view.node.variables}
        if self.shape.limbs > 1 or not (is_bag or self.supports) or not listed:
            return False
        is_once = listed <= {*delta.shape.variables} == {*self.variables}
        self.repeats |= not is_once and is_bag
        return is_once or is_bag

    def _aggregate(self, way: tuple[View, Route], delta: Delta, assembler: Assembler) -> None:
        shape = delta.shape
        if way not in self._aggregates:
            self._aggregates[way] = Table(shape.keys, len(shape.parts), shape.limbs, name="delta of a leaf")
        assembler.aggregate(self._aggregates[way])


class Emission:
    """The way to the output from a leaf, or from the view at which its delta has turned last: `bound`, (node, child)
    pairs, until the path enters the enumerated part of the tree at `top`; `free`, the steps from there on, those the
    update makes too before those that list the output."""

    def __init__(self, tree: Tree, source: View) -> None:
        self._tree, self.source = tree, source
        self.bound: list[tuple[View, View]] = []
        self.free: list[Step] = []
        self._listing: list[Step] = []
        view = source
        while not view.node.connex:
            parent = view.parent
            assert parent is not None
            if parent.node.connex and not tree.frontier(parent):
                break
            self.bound.append((parent, view))
            view = parent
        self.top, self.is_message = view, not view.node.connex
        for parent in view.ancestors():
            self._pass(parent, view)
            view = parent
        self.free += self._listing

    @property
    def is_unseen(self) -> bool:
        """Whether the output has the same tuples with and without rows of the source."""
        top = self.top
        return self.is_message and top.presence == "optional" and top.link == top.key

    def enter(self, delta: Delta, assembler: Assembler, limbs: int) -> Delta:
        """Carry a delta of the source to where it enters the enumerated part of the tree."""
        tree, top = self._tree, self.top
        for parent, child in self.bound:
            delta = join_siblings(tree, assembler, delta, parent, child, parent.node.variables, limbs)
            delta = project(tree, assembler, delta, parent.node.variables, limbs)
        if top is self.source and top.node.connex:
            return project(tree, assembler, delta, delta.shape.variables, limbs)
        return project(tree, assembler, delta, top.link if self.is_message else top.node.variables, limbs)

    def turn(self, assembler: Assembler, delta: Delta, position: int) -> None:
        """Keep of a delta, of one row a key, what makes a row appear or disappear there, counted 1 or -1."""
        table, shape = self._tree.message(self.top) if self.is_message else (self.top.table, self.top.shape)
        assert table is not None and shape is not None
        is_new = self.top.node.atom is None or position == 1
        assembler.transition(table, is_new, delta.shape, delta.shape.places(shape.variables))

    def _pass(self, parent: View, source: View) -> None:
        """Look the siblings up, as the update does; list what they put out later, when all are known to be there."""
        for step in self._tree.update_steps(parent, source):
            sibling = step.view
            if sibling.presence == "optional" and sibling.node.connex:
                self._list(sibling, inside=False)
            elif step.access == "filter" or not sibling.node.connex:
                self.free.append(step)
            elif step.lists:
                self.free.append(replace(step, multiply=self._tree.frontier(sibling), partners=()))
                self._list_children(sibling)
            else:
                self.free.append(replace(step, multiply=False))
                self._list(sibling, inside=False)

    def _list(self, view: View, inside: bool) -> None:
        """List a view's rows, and what is below it. `inside`: an optional view around it is listed too."""
        step = self._tree.listing(view)
        if step.lists:
            self._listing.append(replace(step, multiply=self._tree.frontier(view), inside=inside))
        self._list_children(view, inside or view.presence == "optional")

    def _list_children(self, view: View, inside: bool = False) -> None:
        if self._tree.frontier(view):
            return
        for child in view.children:
            if child.node.connex:
                self._list(child, inside)
            else:
                self._listing.append(Step(child, "message", child.link, True, inside=inside))


class CopiedWords:
    """Words of a table's rows to be copied, each to a column of its own: the places in a row of columns 0, 1, ..., or
    None for a column that stays as it is. `extents` are then the least words of the columns that have been written, and
    the greatest of the last one."""

    def __init__(self, places: Sequence[int | None]) -> None:
        wanted = [(place, 2 * column, appended_rows.WORD) for column, place in enumerate(places) if place is not None]
        self._wanted = np.array([len(wanted), *(word for one in wanted for word in one)], np.int64)
        extents = np.zeros(len(wanted) + 1, np.int64)
        self._addresses, self.extents = (address_of(self._wanted), address_of(extents)), extents

    def copy(self, table: Table, out: int, stride: int) -> None:
        """Copy the words of all rows to columns of `stride` words from the address `out` on."""
        _copy_columns(table.address, *self._addresses, out, stride)


def _columns(table: Table) -> np.ndarray:
    """The words of a table's rows, column after column."""
    words = np.empty((table.width, table.used), np.int64)
    if table.used:
        _all_words(table.width).copy(table, address_of(words), table.used)
    return words


@functools.lru_cache(64)
def _all_words(width: int) -> CopiedWords:
    """All words of rows of so many."""
    return CopiedWords(range(width))


@dataclass(frozen=True)
class Factor:
    """A table whose row, found by the output's variables, is one factor of an output tuple's values."""

    table: Table
    shape: Shape
    atoms: frozenset[str]
    view: View | None = None


def factors(tree: Tree) -> list[Factor]:
    """The tables that give the values of an output tuple: their product, or nothing if one has no such row."""
    if tree.output is not None:
        assert tree.projection is not None
        return [Factor(tree.projection, tree.projection_shape(), tree.root.atoms)]
    found = []
    for view in tree.root.walk():
        if not view.node.connex:
            continue
        if tree.frontier(view):
            assert view.table is not None and view.shape is not None
            found.append(Factor(view.table, view.shape, view.atoms, view))
            continue
        for child in view.children:
            if not child.node.connex:
                found.append(Factor(*tree.message(child), child.atoms, child))
    return found

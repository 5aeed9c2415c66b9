"""Enumeration: a walk over the stored views that hold the free variables, in batches of rows.

Berkholz et al. (2017), section 6.3 and Idris et al. (2017), ENUM: every listed row has a partner in each
view below, so nothing is tried in vain, and each row of output costs a number of steps that depends on
the query only. Views are visited in depth-first order; the last one turns fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sqlfront.maintenance.program.metering import Meter, Metered
from sqlfront.maintenance.program.programs import PASSING, WordTest
from sqlfront.maintenance.program.rows import BATCH
from sqlfront.maintenance.program.shapes import COUNT, Part, Shape
from sqlfront.maintenance.tree.arrange import Level
from sqlfront.maintenance.tree.missing_rows import missing_row
from sqlfront.maintenance.tree.paths import bound_test
from sqlfront.maintenance.tree.steps import Step
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import scan as kernels
from sqlfront.storage.kernels.tables.waves import WAVE_WORDS
from sqlfront.storage.stores.table import Table

_next_rows, _all_equal = entry_point(kernels.next_rows), entry_point(kernels.all_equal)
_CURSOR = 7  # The word of a level's state that says how far a scan has come.


class Walk(Metered):
    """One enumeration in progress. Valid until the tree changes; `steps` counts slots and list members visited.

    Of each row, the words of `variables` and what `parts` are products of are gathered as the walk passes it.
    """

    def __init__(
        self,
        tree: Tree,
        where: Mapping[str, tuple[int, ...]] | None = None,
        variables: Iterable[str] = (),
        parts: Iterable[Part] = (),
        meter: Meter | None = None,
    ) -> None:
        super().__init__(meter)
        self._tree, self._narrowed = tree, bool(where)
        self.levels: list[Level] = []
        self._listed: dict[View, int] = {}
        self._leads = False
        self.factors: list[tuple[int, Shape]] = []
        self._start(tree, dict(where or {}))
        self.empty = self._has_empty_child()
        places = [place for variable in variables for place in self._places(variable)]
        places += [place for part in parts for factor in self._factors(part) for place in factor]
        self._allocate(list(dict.fromkeys(places)))

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance; the number of rows now in the batch, 0 at the end. Without `gather` they are only counted."""
        if self.empty:
            return 0
        columns = [np.empty(capacity, np.int64) for _ in self._gathered] if gather else []
        self._gathered[: len(columns), 2] = [column.ctypes.data for column in columns]
        self.rows = _next_rows(
            self._state.ctypes.data,
            len(self.levels),
            capacity,
            self._scratch.ctypes.data,
            self._wave.ctypes.data,
            self._gathered.ctypes.data,
            len(columns),
        )
        self._columns = [column[: self.rows] for column in columns]
        self._passed += self.rows
        self._tell()
        if self.rows == 0:
            self._end_of_walk()
        return self.rows

    def again(self, words: Sequence[int]) -> None:
        """Begin anew with other code words of the constants; the tables are those of the beginning."""
        if self._given is not None:
            self.levels[self._given[0]].table.overwrite(words)
        self._state[:], self._scratch[:] = self._first, 0
        self.rows = self._passed = self._told = 0
        self.empty = self._has_empty_child()

    @property
    def steps(self) -> int:
        """Rows looked up, slots scanned and list members visited so far. The kernels count look-ups and ranges."""
        taken, last = int(self._scratch[at.STEPS]), len(self.levels) - 1
        for i, level in enumerate(self.levels):
            if level.kind == kernels.SCAN_LEVEL:
                taken += int(self._state[i, _CURSOR])
            elif level.kind == kernels.GROUP_LEVEL:  # The next level looks up each member.
                taken += int(self._state[i + 1, kernels.LOOKED_UP]) if i < last else self._passed
        return taken

    @property
    def scans(self) -> bool:
        """Whether the first table is walked from one end to the other: no constants lead to its rows."""
        scanned = self.levels[0].kind == kernels.SCAN_LEVEL and (self._given is None or self._given[0] > 0)
        return scanned and not self._leads

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch (their own: `where` may not have narrowed them)."""
        return [self._column(place) for place in self._places(variable)]

    def all_ones(self, part: Part) -> bool:
        """Whether a part's value is 1 for each row because those it is the product of are."""
        words = [(place, int(i == 0)) for factor in self._factors(part) for i, place in enumerate(factor)]
        return all(_all_equal(self._column(place).ctypes.data, self.rows, word) for place, word in words)

    def values(self, part: Part) -> np.ndarray:
        """A part's value for each row, shape (rows, limbs): the product over the views that end the walk."""
        factors = self._factors(part)
        words = np.column_stack([self._column(place) for factor in factors for place in factor])
        if len(factors) == 1:
            return words
        limbs = max(map(len, factors))
        while True:
            values, overflow = self._product(words, list(map(len, factors)), limbs)
            if not overflow:
                return values
            limbs += 1

    def _product(self, words: np.ndarray, widths: list[int], limbs: int) -> tuple[np.ndarray, bool]:
        """The product, in `limbs` limbs, of the values of these widths that the rows of an array hold."""
        addresses = np.arange(self.rows) * words.strides[0] + words.ctypes.data
        starts = np.cumsum([0, *widths])
        factors = np.array([(0, start, width) for start, width in zip(starts, widths, strict=False)], np.int64)
        out = np.empty((self.rows, limbs), np.int64)
        overflow = kernels.gather_product(
            addresses.ctypes.data,
            1,
            factors.ctypes.data,
            len(factors),
            out.ctypes.data,
            limbs,
            self.rows,
            self._temporary.ctypes.data,
        )
        return out, bool(overflow)

    def _has_empty_child(self) -> bool:
        tree = self._tree
        return tree.output is None and any(
            child.table is not None and child.table.live == 0 and child.presence == "required"
            for child in tree.root.children
        )

    def _column(self, place: tuple[int, int]) -> np.ndarray:
        return self._columns[self._numbers[place]]

    def _places(self, variable: str) -> list[tuple[int, int]]:
        """Where the words of a variable are found: (level, place)."""
        level, shape = next(
            (i, level.shape)
            for i, level in enumerate(self.levels)
            if variable in level.shape.variables
            and level.kind not in (kernels.FIRST_LEVEL, kernels.LAST_LEVEL)
            and (self._given is None or i != self._given[0])
        )
        return [(level, place) for place in shape.places([variable])]

    def _factors(self, part: Part) -> list[list[tuple[int, int]]]:
        """Where the limbs of each value are found that a part is the product of."""
        found = []
        for level, shape in self.factors:
            atoms = self._atoms[level]
            own = frozenset(pair for pair in part if pair[0] in atoms)
            first = shape.keys + shape.parts.index(own) * shape.limbs
            found.append([(level, first + i) for i in range(shape.limbs)])
        return found

    def _end_of_walk(self) -> None:
        """Tell how many rows were not next to the one before, apart from those that a walk comes to several times."""
        astray = 0
        for level, state in zip(self.levels, self._state, strict=True):
            again = max(0, int(state[kernels.LOOKED_UP]) - level.looked_up.live)
            astray += max(0, int(state[kernels.JUMPS]) - again)
            level.table.readers.discard(self)
            level.looked_up.readers.discard(self)
        self.empty = True
        if not self._narrowed:
            self._tree.arrangement.note(self, astray)

    # Construction --------------------------------------------------------------------------------

    def _start(self, tree: Tree, where: dict[str, tuple[int, ...]]) -> None:
        self._atoms: dict[int, frozenset[str]] = {}
        self._given: tuple[int, Shape] | None = None
        if tree.output is not None:
            assert tree.projection is not None
            shape = tree.projection_shape()
            self._enter(tree.projection, shape, [], where)
            self._end(tree.root.atoms, shape, self._level_of(tree.projection))
            return
        root = tree.root
        connex = [child for child in root.children if child.node.connex]
        if not connex:
            assert root.table is not None and root.shape is not None
            self._enter(root.table, root.shape, [], where)
            self._end(root.atoms, root.shape, self._level_of(root.table))
            return
        first = root if root.node.comparisons else connex[0]
        assert first.table is not None and first.shape is not None
        self._enter(first.table, first.shape, first.indexes, where)
        level = self._level_of(first.table)
        self._visit(tree, first, level)
        for child in root.children if first is not root else ():
            if child is not first:
                self._join(tree, child, level)

    def _enter(
        self, table: Table, shape: Shape, indexes: list[tuple[str, ...]], where: dict[str, tuple[int, ...]]
    ) -> None:
        """The first table: found by its key or an index if constants give one, else scanned.

        The constants are a relation of one row; where they do not lead to the first table they are joined after it.
        """
        given = Shape(tuple(where), tuple(map(len, where.values())), (COUNT,), 1)
        usable = [index for index in (shape.variables, *indexes) if index and set(index) <= where.keys()]
        if not usable:
            self.levels.append(Level(kernels.SCAN_LEVEL, table, shape))
        if where:
            constants = _one_row([word for code in where.values() for word in code])
            joined = Level(kernels.GROUP_LEVEL, constants, given, constants.groups[0])
            self.levels.append(joined if self.levels else Level(kernels.SCAN_LEVEL, constants, given))
            self._given = len(self.levels) - 1, given
        if usable:
            key = usable[0] if usable[0] == shape.variables else max(usable, key=len)
            self._look_up(table, shape, key, indexes, {})

    def _look_up(
        self,
        table: Table,
        shape: Shape,
        key: tuple[str, ...],
        indexes: list[tuple[str, ...]],
        above: Mapping[str, tuple[int, Shape]],
        missing: int = 0,
    ) -> None:
        """The level that finds the rows of a table by a key, from the rows `above` and the constants."""
        sources = []
        for variable in key:
            found = above.get(variable) or self._given
            assert found is not None
            sources += [(found[0], place) for place in found[1].places([variable])]
        if key == shape.variables:
            self.levels.append(Level(kernels.PROBE_LEVEL, table, shape, None, 0, tuple(sources), missing=missing))
            return
        number = indexes.index(key)
        group = table.groups[number]
        self.levels.append(Level(kernels.GROUP_LEVEL, table, shape, group, number, tuple(sources), missing=missing))

    def _visit(self, tree: Tree, view: View, level: int, inside: bool = False) -> None:
        if tree.frontier(view):
            assert view.shape is not None
            self._end(view.atoms, view.shape, level)
            return
        # Of children that are compared with each other, one that constants lead to comes first.
        given = set(self._given[1].variables if self._given is not None else ())
        led = [one for one in view.children if tree.compared_sibling(one) is not None and given & set(one.link)]
        for child in (*led, *(one for one in view.children if one not in led)):
            self._join(tree, child, level, inside)

    def _join(self, tree: Tree, child: View, level: int, inside: bool = False) -> None:
        """A child's rows: those of the link, or fewer where constants lead to them. Without any rows of the link an
        optional child has one of NULLs, and so have views `inside` it: constants do not lead there. An absent child has
        none."""
        assert child.table is not None and child.shape is not None
        if child.presence == "absent":
            return
        shape = self.levels[level].shape
        above = {variable: (level, shape) for variable in child.link if variable in shape.variables}
        step = tree.listing(child) if child.node.connex else None
        known = above.keys() | set(self._given[1].variables if self._given else ())
        sibling = tree.compared_sibling(child)
        is_found = sibling is not None and sibling not in self._listed and set(child.shape.variables) <= known
        if step is not None and step.access == "range" and not is_found:
            self._list_range(tree, step, level, level if sibling is None else self._beside(tree, step, sibling, level))
            self._listed[child] = len(self.levels) - 1
            self._visit(tree, child, len(self.levels) - 1)
            return
        if child.node.connex:
            if inside or child.presence == "optional":
                known = set(above)
            usable = [index for index in child.indexes if set(index) <= known]
            whole = set(child.shape.variables) <= known
            key = child.shape.variables if whole else max(usable, key=lambda index: (len(index), index == child.link))
            missing = missing_row(tree, child, child.shape, inside)
            self._look_up(child.table, child.shape, key, child.indexes, above, missing)
            self._listed[child] = len(self.levels) - 1
            self._leads |= is_found and not shape.variables
            self._visit(tree, child, len(self.levels) - 1, inside or child.presence == "optional")
            return
        table, shape = tree.message(child)
        self._look_up(table, shape, shape.variables, [], above, missing_row(tree, child, shape, inside))
        self._end(child.atoms, shape, len(self.levels) - 1)

    def _beside(self, tree: Tree, step: Step, sibling: View, level: int) -> int:
        """The level of the sibling that a step's view is compared with. Before the sibling is listed, a level with its
        first or last row in the group of each row of a level: what meets not even this row has no partner."""
        if sibling in self._listed:
            return self._listed[sibling]
        table, shape, own = sibling.table, sibling.shape, step.view.shape
        assert table is not None and shape is not None and own is not None
        is_least = bound_test(tree, step, step.comparisons[0], shape, own).is_lower_bound
        key = tree.listing(sibling).key
        number = sibling.index_number(key)
        kind = kernels.FIRST_LEVEL if is_least else kernels.LAST_LEVEL
        self.levels.append(Level(kind, table, shape, table.groups[number], number, self._sources(level, key)))
        return len(self.levels) - 1

    def _sources(self, level: int, key: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
        """Where a level's rows have the words of a key."""
        return tuple((level, place) for place in self.levels[level].shape.places(key))

    def _list_range(self, tree: Tree, step: Step, level: int, bounding: int) -> None:
        """The level that lists an ordered group of each row of a level, between the bounds that the rows of the level
        `bounding` set; where a constant is given for what is sorted, just those that have it."""
        table, shape = step.view.table, step.view.shape
        assert table is not None and shape is not None
        assert step.view.parent is not None
        compared = [test for test in step.view.parent.node.comparisons if test.scheme & step.fresh]
        met = dict.fromkeys((*step.tests, *compared))
        tests = [(bounding, bound_test(tree, step, test, self.levels[bounding].shape, shape)) for test in met]
        sorting = tests[: len(step.comparisons)]
        beside = tests[len(sorting)] if step.beside else None
        lower, upper = (next((t for t in sorting if t[1].is_lower_bound == below), None) for below in (True, False))
        bounds = [lower, upper, beside, *tests[len(step.tests) :]]
        if self._given is not None and step.compared in self._given[1].variables:
            left, right = self._given[1].places([step.compared])[0], shape.places([step.compared])[0]
            places = sorting[0][1].places
            equal = [WordTest(PASSING[operator], left, right, places) for operator in ("<=", ">=")]
            bounds = [*((self._given[0], test) for test in equal), beside, *tests]
            self._leads |= not self.levels[level].shape.variables
        number = step.view.index_number(step.key)
        group, sources = table.groups[number], self._sources(level, step.key)
        self.levels.append(Level(kernels.RANGE_LEVEL, table, shape, group, number, sources, tuple(bounds)))

    def _level_of(self, table: Table) -> int:
        return next(i for i, level in enumerate(self.levels) if level.table is table)

    def _end(self, atoms: frozenset[str], shape: Shape, level: int) -> None:
        """The values of `shape` at this level are a factor of each row's."""
        self._atoms[level] = atoms
        self.factors.append((level, shape))

    def _allocate(self, places: list[tuple[int, int]]) -> None:
        depth = len(self.levels)
        self._state = np.zeros((depth, kernels.LEVEL_WORDS), np.int64)
        self._blocks = [np.empty((kernels.BLOCK, i + 1), np.int64) for i in range(depth)]
        self._tests: list[np.ndarray] = []
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        self._wave = np.empty(WAVE_WORDS, np.int64)
        for i, level in enumerate(self.levels):
            address = level.looked_up.address
            flat = [word for source in level.sources for word in source]
            fields = [level.kind, address, level.table.address, level.index, self._blocks[i].ctypes.data]
            self._tests.append(_test_words(level))
            fields += [0, 0, 0, 0, len(level.sources), 0, 0, 0, self._tests[i].ctypes.data]
            fields += [level.missing, *flat]
            self._state[i, : len(fields)] = fields
            level.table.readers.add(self)
            level.looked_up.readers.add(self)
        self._first = self._state.copy()
        self._numbers = {place: number for number, place in enumerate(places)}
        self._gathered = np.array([(*place, 0) for place in places], np.int64).reshape(-1, 3)
        self.rows = self._passed = 0


def _test_words(level: Level) -> np.ndarray:
    """The tests of a level that lists a range, as its kernel reads them."""
    starts, words = [], list[int]()
    for found in level.tests:
        starts.append(0 if found is None else 4 + sum(test is not None for test in level.tests) + len(words))
        if found is not None:
            words += [found[0], *found[1].words()]
    present = [start for start in starts if start]
    return np.array([*(starts[:3] or [0, 0, 0]), len(present), *present, *words], np.int64)


def _one_row(words: list[int]) -> Table:
    """A table of one row, all of whose words are its key, grouped by nothing."""
    table = Table(len(words), 1, indexes=[()])
    table.insert(words)
    return table

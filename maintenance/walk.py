"""Enumeration: a walk over the stored views that hold the free variables, in blocks of rows.

Berkholz et al. (2017), section 6.3 and Idris et al. (2017), ENUM: every listed row has a partner in each
view below, so nothing is tried in vain, and each row of output costs a number of steps that depends on
the query only. Views are visited in depth-first order; the last one turns fastest.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maintenance.arrange import Level
from maintenance.shapes import Part, Shape
from maintenance.tree import Tree, View
from storage import layout as at
from storage import scan_kernels as kernels
from storage.jit import entry_point
from storage.table import Table

_next_block = entry_point(kernels.next_block)
FIRST_BLOCK, BLOCK = 256, 32768


class Walk:
    """One enumeration in progress. Valid until the tree changes; `steps` counts slots and list members visited."""

    def __init__(self, tree: Tree, where: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._tree, self._narrowed = tree, bool(where)
        self.levels: list[Level] = []
        self.factors: list[tuple[int, Shape]] = []
        self._constants = np.array([word for code in (where or {}).values() for word in code] or [0], np.int64)
        self._start(tree, dict(where or {}))
        self.empty = not tree.plan.projected and any(
            child.table is not None and child.table.live == 0 for child in tree.root.children
        )
        self._allocate()

    def next(self, capacity: int = BLOCK) -> int:
        """Advance; the number of rows now in the block, 0 at the end."""
        if self.empty:
            return 0
        self.rows = _next_block(
            self._state.ctypes.data, len(self.levels), capacity, self._scratch.ctypes.data, self._wave.ctypes.data
        )
        if self.rows == 0:
            self._end_of_walk()
        return self.rows

    @property
    def steps(self) -> int:
        return int(self._scratch[at.STEPS])

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the block (their own: `where` may not have narrowed them)."""
        level, shape = next(
            (i, level.shape)
            for i, level in enumerate(self.levels)
            if variable in level.shape.variables and level.kind != kernels.UNIT_LEVEL
        )
        out = []
        for place in shape.places([variable]):
            column = np.empty(self.rows, np.int64)
            kernels.gather_word(self._block, len(self.levels), level, place, column.ctypes.data, self.rows)
            out.append(column)
        return out

    def values(self, part: Part) -> np.ndarray:
        """A part's value for each row, shape (rows, limbs): the product over the views that end the walk."""
        limbs = max(shape.limbs for _, shape in self.factors)
        while True:
            values, overflow = self._values(part, limbs)
            if not overflow:
                return values
            limbs += 1

    def _values(self, part: Part, limbs: int) -> tuple[np.ndarray, bool]:
        words = []
        for level, shape in self.factors:
            atoms = self._atoms[level]
            own = frozenset(pair for pair in part if pair[0] in atoms)
            words += [level, shape.keys + shape.parts.index(own) * shape.limbs, shape.limbs]
        out = np.empty((self.rows, limbs), np.int64)
        factors = np.array(words, np.int64)
        overflow = kernels.gather_product(
            self._block,
            len(self.levels),
            factors.ctypes.data,
            len(self.factors),
            out.ctypes.data,
            limbs,
            self.rows,
            self._temporary.ctypes.data,
        )
        return out, bool(overflow)

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
        unit = None
        if where:
            widths = tuple(len(code) for code in where.values())
            unit = Shape(tuple(where), widths, (), 1)
            self.levels.append(Level(kernels.UNIT_LEVEL, Table(0, 1), unit))
        if tree.plan.projected:
            assert tree.projection is not None and tree.output is not None
            shape = tree.projection_shape()
            self._enter(tree.projection, shape, [], unit)
            self._end(tree.root.atoms, shape)
            return
        root = tree.root
        connex = [child for child in root.children if child.node.connex]
        if not connex:
            assert root.table is not None and root.shape is not None
            self._enter(root.table, root.shape, [], unit)
            self._end(root.atoms, root.shape)
            return
        first = connex[0]
        assert first.table is not None and first.shape is not None
        self._enter(first.table, first.shape, first.indexes, unit)
        self._visit(tree, first)
        for child in root.children:
            if child is not first:
                self._join(tree, child, 0)

    def _enter(self, table: Table, shape: Shape, indexes: list[tuple[str, ...]], unit: Shape | None) -> None:
        """The first table: found by its key or an index if constants give one, else scanned."""
        if unit is not None:
            given = set(unit.variables)
            if shape.variables and set(shape.variables) <= given:
                sources = tuple((0, place) for place in unit.places(shape.variables))
                self.levels.append(Level(kernels.PROBE_LEVEL, table, shape, None, 0, sources))
                return
            usable = [index for index in indexes if index and set(index) <= given]
            if usable:
                index = max(usable, key=len)
                number = indexes.index(index)
                sources = tuple((0, place) for place in unit.places(index))
                self.levels.append(Level(kernels.GROUP_LEVEL, table, shape, table.groups[number], number, sources))
                return
            self.levels.clear()
        self.levels.append(Level(kernels.SCAN_LEVEL, table, shape))

    def _visit(self, tree: Tree, view: View) -> None:
        level = len(self.levels) - 1
        if tree.frontier(view):
            assert view.shape is not None
            self._end(view.atoms, view.shape)
            return
        for child in view.children:
            self._join(tree, child, level)

    def _join(self, tree: Tree, child: View, level: int) -> None:
        assert child.table is not None and child.shape is not None
        above = self.levels[level].shape
        sources = tuple((level, place) for place in above.places(child.link))
        if child.node.connex:
            number = child.index_number(child.link)
            group = child.table.groups[number]
            self.levels.append(Level(kernels.GROUP_LEVEL, child.table, child.shape, group, number, sources))
            self._visit(tree, child)
            return
        table, shape = tree.message(child)
        sources = tuple((level, place) for place in above.places(shape.variables))
        self.levels.append(Level(kernels.PROBE_LEVEL, table, shape, None, 0, sources))
        self._end(child.atoms, shape)

    def _end(self, atoms: frozenset[str], shape: Shape) -> None:
        self._atoms[len(self.levels) - 1] = atoms
        self.factors.append((len(self.levels) - 1, shape))

    def _allocate(self) -> None:
        depth = len(self.levels)
        self._state = np.zeros((depth, kernels.LEVEL_WORDS), np.int64)
        self._blocks = [np.empty((BLOCK, i + 1), np.int64) for i in range(depth)]
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        self._wave = np.empty(kernels.WAVE_WORDS, np.int64)
        for i, level in enumerate(self.levels):
            address = self._constants.ctypes.data if level.kind == kernels.UNIT_LEVEL else level.looked_up.address
            flat = [word for source in level.sources for word in source]
            fields = [level.kind, address, level.table.address, level.index, self._blocks[i].ctypes.data]
            fields += [0, 0, 0, 0, len(level.sources), 0, 0, 0, *flat]
            self._state[i, : len(fields)] = fields
            level.table.readers.add(self)
            level.looked_up.readers.add(self)
        self._block = self._blocks[-1].ctypes.data
        self.rows = 0

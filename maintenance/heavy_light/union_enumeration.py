"""Reading a union whose part trees overlap: each output tuple once, with its values added up over all part trees.

A tuple of some of the variables is in a tree once for each value of the others, and may be in several trees. The trees'
rows are taken bucket by bucket, hopping over tuples that have been put out (kernels/programs/hop.py). A bucket is a row
of a tree's upper view. The views enumerated below, the levels, have lists of rows under it, and its tuples are their
product. Scratch memory of a read: two words for each row of a level, touched as far as it reads. The delay is the
number of buckets that a tuple may be in. For triangles this is O(N^min(eps, 1-eps)) for two variables, O(N^(2 min(eps,
1-eps))) for one, and for stars O(N^(1-eps)).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from sqlfront.maintenance.heavy_light.part_trees import PartTrees
from sqlfront.maintenance.heavy_light.stored_part_tree import Branch, StoredPartTree
from sqlfront.maintenance.program.metering import Meter, Metered
from sqlfront.maintenance.program.rows import BATCH, RowSource
from sqlfront.maintenance.program.shapes import COUNT, Part, Shape
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import hop
from sqlfront.storage.kernels.programs import tuple_union as kernels

Where = Mapping[str, tuple[int, ...]]
_next_union, _union_values = entry_point(kernels.next_union), entry_point(kernels.union_values)
_BEGINS = (hop.FROM_KEY, hop.FROM_VALUES, hop.FROM_LINK, hop.FROM_UPPER, hop.FROM_OWN, hop.FROM_OUT)


class PartTreeRows:
    """The rows of a view that part trees keep: the trees are walked one after the other, or merged where some may have
    a tuple in common."""

    single: Tree | None = None

    def __init__(self, part_trees: PartTrees, meter: Meter) -> None:
        self._part_trees, self._meter = part_trees, meter
        self.trees = [part_trees.base, *(kept.tree for kept in part_trees.enumerated())]

    def read(self, where: Where | None, variables: Iterable[str], parts: Iterable[Part], by_order: bool) -> RowSource:
        if (merged := self.merged(where)) is not None:
            return merged
        return Chain(Walk(tree, where, variables, parts, self._meter) for tree in self.trees)

    def merged(self, where: Where | None = None) -> UnionEnumeration | None:
        return UnionEnumeration(self._part_trees, where, self._meter) if self._part_trees.overlapping() else None


class UnionEnumeration(Metered):
    """One enumeration in progress, in batches of `rows` rows. Valid until the state changes.

    Constants that give the whole tuple (`where`) lead to it, at the cost of one row; others are ignored.
    """

    def __init__(self, part_trees: PartTrees, where: Where | None = None, meter: Meter | None = None) -> None:
        super().__init__(meter)
        output = part_trees.base.root.children[0]
        assert output.table is not None and output.shape is not None
        kept = part_trees.overlapping()
        limbs = max([output.shape.limbs, *(_limbs(one) for one in kept)]) + 1
        self.shape = Shape(output.shape.variables, output.shape.widths, output.shape.parts, limbs)
        self.rows = 0
        self._wanted: list[int] | None = None
        if where and set(self.shape.variables) <= where.keys():
            self._wanted = [word for variable in self.shape.variables for word in where[variable]]
        self._out = np.empty((0, self._width), np.int64)
        values = len(self.shape.parts) * limbs
        self._trees = [_Tree(one, self.shape, values) for one in kept]
        self._addresses = np.array([int(tree.words.ctypes.data) for tree in self._trees], np.int64)
        self._product = np.zeros(2 * limbs, np.int64)
        self._union = np.zeros(kernels.UNION_WORDS, np.int64)
        self._union[[kernels.SHARED, kernels.TREES]] = output.table.address, len(kept)
        self._union[[kernels.OUT_KEYS, kernels.OUT_VALUES]] = self.shape.keys, len(self.shape.parts)
        self._union[[kernels.OUT_LIMBS, kernels.PRODUCT]] = limbs, self._product.ctypes.data
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        self._scratch[at.TEMPORARY] = self._temporary.ctypes.data

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance; the number of rows now in the batch, 0 at the end."""
        if self._wanted is not None:
            return self._next_wanted()
        if len(self._out) < capacity:
            self._out = np.empty((capacity, self._width), np.int64)
        self.rows = _next_union(*self._state(), self._out.ctypes.data, capacity)
        self._tell()
        return self.rows

    def look_up(self, keys: np.ndarray) -> None:
        """Make the batch of the tuples with these key words, one a row; those that are nowhere have a count of 0."""
        self.rows = len(keys)
        self._out = np.empty((len(keys), self._width), np.int64)
        self._out[:, : self.shape.keys] = keys
        _union_values(*self._state(), self._out.ctypes.data, len(keys))
        self._tell()

    def _next_wanted(self) -> int:
        if self._wanted:
            self.look_up(np.array([self._wanted], np.int64))
            self._wanted = []
            self.rows = int(self.values(COUNT).any())
        else:
            self.rows = 0
        return self.rows

    @property
    def steps(self) -> int:
        """Elementary steps taken so far."""
        return int(self._scratch[at.STEPS])

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch."""
        return [np.ascontiguousarray(self._out[: self.rows, place]) for place in self.shape.places([variable])]

    def values(self, part: Part) -> np.ndarray:
        """A part's value for each row, shape (rows, limbs)."""
        first = self.shape.keys + self.shape.parts.index(part) * self.shape.limbs
        values = self._out[: self.rows, first : first + self.shape.limbs]
        needed = self.shape.limbs
        while needed > 1 and (values[:, needed - 1] == values[:, needed - 2] >> 63).all():
            needed -= 1
        return np.ascontiguousarray(values[:, :needed])

    def all_ones(self, part: Part) -> bool:
        """Whether a part's value is 1 for each row."""
        values = self.values(part)
        return values.shape[1] == 1 and bool((values == 1).all())

    @property
    def _width(self) -> int:
        return self.shape.keys + len(self.shape.parts) * self.shape.limbs

    def _state(self) -> tuple[int, int, int]:
        return self._union.ctypes.data, self._addresses.ctypes.data, self._scratch.ctypes.data


class Chain:
    """Walks one after the other: over trees that have no row in common, or of branches whose rows all count."""

    def __init__(self, walks: Iterable[RowSource]) -> None:
        self._walks: Iterator[RowSource] = iter(walks)
        self._walk: RowSource | None = next(self._walks, None)
        self._passed = self.rows = 0

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance; the number of rows now in the batch, 0 at the end."""
        self.rows = 0
        while self._walk is not None and not self.rows:
            self.rows = self._walk.next(capacity, gather)
            if not self.rows:
                self._passed += self._walk.steps
                self._walk = next(self._walks, None)
        return self.rows

    @property
    def steps(self) -> int:
        """Elementary steps taken so far."""
        return self._passed + (self._walk.steps if self._walk is not None else 0)

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch."""
        assert self._walk is not None
        return self._walk.words(variable)

    def values(self, part: Part) -> np.ndarray:
        """A part's value for each row, shape (rows, limbs)."""
        assert self._walk is not None
        return self._walk.values(part)

    def all_ones(self, part: Part) -> bool:
        """Whether a part's value is 1 for each row."""
        assert self._walk is not None
        return self._walk.all_ones(part)


class _Tree:
    """The words of one tree for the kernels, and the arrays they point to; `values` is how many words the values of a
    tuple have."""

    def __init__(self, kept: StoredPartTree, out: Shape, values: int) -> None:
        branches, self._branches = kept.branches(), list[_Branch]()
        for branch in reversed(branches):
            self._branches.insert(0, _Branch(branch, out, values, self._branches[0] if self._branches else None))
        levels: list[_Part] = []
        for own in self._branches:
            own.words[hop.LEVEL] = len(levels)
            levels += own.levels
        parts = [view for branch in branches for view in (*branch.levels(), *branch.factors(), *branch.guards)]
        used, keys = _used(branches[0].upper), max(view.table.keys for view in parts if view.table is not None)
        self._buckets = np.zeros((2, used + 1), np.int64)
        self._found, self._words = np.zeros(1 + hop.ENTRY * used, np.int64), np.zeros(out.keys, np.int64)
        self._rows, self._key = np.zeros(len(parts), np.int64), np.zeros(keys, np.int64)
        words = [
            *map(_address, self._buckets),
            -1,
            0,
            *map(_address, (self._found, self._rows, self._words, self._key)),
        ]
        words += [len(levels), len(branches), *(_address(level.words) for level in levels)]
        words += [_address(own.words) for own in self._branches]
        self.words = np.array(words, np.int64)


class _Branch:
    """The words of a branch, and the arrays they point to."""

    words: np.ndarray

    def __init__(self, branch: Branch, out: Shape, values: int, following: _Branch | None) -> None:
        upper = branch.upper
        assert upper.table is not None and upper.shape is not None
        own = branch.levels()
        self.levels = [
            _Part(view, upper, out, is_level=True, is_first=view is own[0] and not branch.before) for view in own
        ]
        self._others = [_Part(view, upper, out) for view in (*branch.factors(), *branch.guards)]
        words = [upper.table.address, upper.table.used, 0, len(own), len(branch.factors()), len(branch.guards)]
        words += [_address(following.words) if following is not None else 0]
        self._turns: list[np.ndarray] = []
        places: tuple[int, ...] = ()
        if not branch.before:
            words += [0] * (hop.OWN_PARTS - hop.ABOVE)
        for above in branch.common[-1:]:
            last = branch.before[-1].shape
            assert above.table is not None and last is not None
            number, rows = upper.index_number(above.node.variables), above.table.used
            places = last.places(above.node.variables)
            words += [above.table.address, upper.table.groups[number].address, number, 0]
            for _ in range(2):
                listed = np.zeros(1 + hop.ENTRY * upper.table.used, np.int64)
                self._turns += [listed, np.zeros(rows * values, np.int64), np.zeros(rows, np.int64)]
                words += [*map(_address, self._turns[-3:]), 0]
        words += [_address(part.words) for part in (*self.levels, *self._others)]
        words[hop.FROM_ABOVE] = len(words)
        self.words = np.array([*words, *places], np.int64)
        for part in self.levels:
            part.words[hop.BRANCH] = _address(self.words)


class _Part:
    """The words of a level of a branch, a factor or a guard, and the arrays they point to."""

    def __init__(self, view: View, upper: View, out: Shape, *, is_level: bool = False, is_first: bool = False) -> None:
        assert view.table is not None and view.shape is not None and upper.table is not None
        assert upper.shape is not None
        table, shape, above = view.table, view.shape, upper.shape
        own = _own(view, out)
        bucket = {v: [-1 - place for place in above.places([v])] for v in above.variables}
        key = [place for v in shape.variables for place in bucket.get(v, out.places([v]) if v in own else [])]
        values = [frozenset(pair for pair in part if pair[0] in view.atoms) for part in out.parts]
        places = [[*key], [shape.keys + shape.parts.index(part) * shape.limbs for part in values]]
        words = [table.address, 0, 0]
        if is_level:
            link, output = view.index_number(view.link), view.index_number(own) if is_first else 0
            used, groups = table.used, table.groups[link].used
            self._members, self._groups = np.zeros((2, used + groups), np.int64), np.zeros((2, groups), np.int64)
            self._list = np.zeros(1 + hop.ENTRY * upper.table.used, np.int64)
            words += [link, table.groups[link].address, output, table.groups[output].address, used]
            words += [*map(_address, self._members), 0, used + groups + 1, -1, 0, 0, _address(self._list)]
            words += [len(shape.places(own)), *map(_address, self._groups), 0, 0, 0, 0, 0, 0]
            found = shape.places(above.variables) if is_first else ()
            places += [[*above.places(view.link)], [*found], [*shape.places(own)], [*out.places(own)]]
        starts = np.cumsum([len(words), *map(len, places)]).tolist()
        for begin, start in zip(_BEGINS, starts[:-1], strict=False):
            words[begin] = start
        self.words = np.array([*words, *(place for listed in places for place in listed)], np.int64)


def _own(view: View, out: Shape) -> tuple[str, ...]:
    """The output variables of a level, in the output's order."""
    return tuple(variable for variable in out.variables if variable in view.node.variables)


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def _used(view: View) -> int:
    assert view.table is not None
    return view.table.used


def _limbs(kept: StoredPartTree) -> int:
    """How wide a product of a tree's values can be, with the sums of all branches but the last."""
    branches = kept.branches()
    views = [view for branch in branches for view in (*branch.levels(), *branch.factors())]
    return sum(view.shape.limbs for view in views if view.shape is not None) + len(branches) - 1

"""What distinct values tell about a view's groups: how many distinct values, the first, the last, their sum."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.program.rows import Rows
from sqlfront.maintenance.program.shapes import COUNT, Shape
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import RawColumn
from sqlfront.planner.model.raw_column import Rank
from sqlfront.storage.codecs.distances import differences, middle, numbers
from sqlfront.storage.codecs.sums import FactorRange, decode_avg, decode_sum, encode_factor, with_specials
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import group_reads as kernels
from sqlfront.storage.stores.ordered_rows import OrderedRows
from sqlfront.storage.stores.row_addresses import find_rows, gather_words
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    import pyarrow as pa


_LAST = ("greatest", "last")
_ENDS = ("least", "first", *_LAST)
_ALL = 2**62
"""More values than a group has."""


def places_at(rank: Rank, counts: np.ndarray) -> np.ndarray:
    """The places, between positions, of a rank that is not discrete."""
    return (counts - 1).astype(np.float64) * float(rank.fraction)


def positions_at(rank: Rank, counts: np.ndarray) -> np.ndarray:
    """The positions, from 0, of a rank among so many values, as DuckDB rounds them; -1 where there is none."""
    if rank.rounded == "discrete":
        above = 1 - Fraction(rank.fraction)
        skipped = [count * above.numerator // above.denominator for count in counts.tolist()]
        found = np.maximum(1, counts - np.array(skipped, np.int64)) - 1
    else:
        place = places_at(rank, counts)
        found = (np.floor(place) if rank.rounded == "down" else np.ceil(place)).astype(np.int64)
    found = counts - 1 - found if rank.descending else found
    return np.where(counts > 0, found, -1)


At = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""The addresses and the numbers of the values at a position of each group."""


def nearest_to(medians: np.ndarray, at: At, counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The address of the value that so many are nearer to each group's median than, or as near.

    The values that are nearest stand side by side. The farthest of them is the first or the last. As they move up, the
    first comes nearer and the last goes away: a binary search finds where the last is farther for the first time. A
    distance of NaN is farther than all others.
    """
    start, end = np.zeros_like(counts), np.maximum(counts - wanted, 0)
    while (start < end).any():
        middle_start = (start + end) // 2
        first_number, last_number = at(middle_start)[1], at(middle_start + wanted)[1]
        is_farthest = (medians == -np.inf) & (first_number == medians)
        below, above = differences(medians, first_number), differences(last_number, medians)
        beyond, open_ = ~((above < below) | is_farthest), start < end
        end = np.where(open_ & beyond, middle_start, end)
        start = np.where(open_ & ~beyond, middle_start + 1, start)
    (first, first_number), (last, last_number) = at(start - 1), at(start + wanted)
    below, above = differences(medians, first_number), differences(last_number, medians)
    is_last = (start == 0) | (((above <= below) | np.isnan(below)) & (start + wanted < counts))
    return np.where(is_last, last, first)


def has_words(raw: RawColumn) -> bool:
    """Whether a column that distinct values answer is one value of theirs, as it is kept, or their number."""
    return raw.kind in (*_ENDS, "count") and not raw.is_list


class Groups:
    """The groups of one view of distinct values to which `rows` rows of its view belong. O(1) a row to find."""

    def __init__(self, view: MaintainedView, number: int, source: Rows, rows: int) -> None:
        self._view, self._distinct_set, self._rows = view, view.distinct_sets[number], rows
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._groups = self._find(source)

    def column(self, raw: RawColumn) -> pa.Array:
        """The column of an aggregate that the view of distinct values answers."""
        if raw.is_list:
            return self._lists(raw)
        if raw.kind in _ENDS:
            return self._decoded(raw, self._end(raw))
        if raw.rank is not None and raw.kind == "weight":
            return self._weights(raw.rank)
        if raw.rank is not None:
            return self._decoded(raw, self._by_distance(raw) if raw.rank.by_distance else self._at(raw.rank))
        if raw.kind == "count":
            return decode_sum(self.sizes.reshape(-1, 1), 0, None, raw.type)
        return self._sum(raw)

    def words(self, raw: RawColumn) -> list[np.ndarray]:
        """The words of a column that `has_words`."""
        if raw.kind == "count":
            return [self.sizes]
        assert raw.variable is not None
        addresses = self._end(raw)
        found = list(gather_words(addresses, self._shape.places([raw.variable]), at.NULL_CODE))
        for word, null in zip(found[1:], self._distinct_set.codecs[raw.variable].encode_value(None)[1:], strict=True):
            word[addresses == 0] = null
        return found

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many distinct values each group has."""
        out = np.empty(self._rows, np.int64)
        self._view.reads.steps += self._rows
        kernels.sizes(self._table.groups[0].address, self._groups.ctypes.data, self._rows, out.ctypes.data)
        return out

    @cached_property
    def _ranked(self) -> tuple[OrderedRows, np.ndarray]:
        """The values by their positions, and how many copies of values each group has."""
        rows = OrderedRows(self._table)
        copies = rows.copies(self._groups)
        self._view.reads.steps += rows.steps
        return rows, copies

    def _at(self, rank: Rank) -> np.ndarray:
        """The address of the value at a rank of each group, 0 if it has none. O(log group) expected each."""
        rows, copies = self._ranked
        before = rows.steps
        found, _ = rows.select(self._groups, positions_at(rank, copies))
        self._view.reads.steps += rows.steps - before
        return found

    def _by_distance(self, raw: RawColumn) -> np.ndarray:
        """The address of the value whose distance from the median has a rank among all; 0 without values. O(log^2
        group) expected each."""
        rows, copies = self._ranked
        assert raw.rank is not None
        steps, wanted = rows.steps, positions_at(raw.rank, copies)

        def at(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            addresses, _ = rows.select(self._groups, positions)
            return addresses, numbers(self._decoded(raw, addresses), raw.type)

        (_, low), (_, high) = (at(positions_at(Rank("0.5", side), copies)) for side in ("down", "up"))
        found = nearest_to(middle(low, high, copies % 2 == 0, raw.type), at, copies, wanted)
        self._view.reads.steps += rows.steps - steps
        return np.where(copies > 0, found, 0)

    def _weights(self, rank: Rank) -> pa.Array:
        """How far each group's position of a rank is beyond the one that it is rounded down to; NULL without values."""
        import pyarrow as pa

        copies = self._ranked[1]
        place = places_at(rank, copies)
        return pa.array(place - np.floor(place), mask=copies == 0)

    def _tell(self) -> None:
        """Add to the view's meter what a kernel has taken."""
        self._view.reads.steps += int(self._scratch[at.STEPS])
        self._scratch[at.STEPS] = 0

    @property
    def _table(self) -> Table:
        table = self._distinct_set.tree.projection
        assert table is not None
        return table

    @property
    def _shape(self) -> Shape:
        return self._distinct_set.tree.projection_shape()

    def _find(self, source: Rows) -> np.ndarray:
        """The address of each row's group, 0 if it has none."""
        assert self._distinct_set.distinct_set is not None
        named: dict[str, list[np.ndarray]] = {}
        differ = np.zeros(self._rows, bool)
        for variable, name in self._distinct_set.distinct_set.group:
            words = source.words(variable)
            for one, other in zip(words, named.setdefault(name, words), strict=True):
                differ |= one != other  # Two columns that the filter equates, and that differ here.
        columns = [word for words in named.values() for word in words] or [np.zeros(self._rows, np.int64)]
        out = find_rows(self._table.groups[0], np.column_stack(columns), self._scratch)
        self._tell()
        out[differ] = 0
        if self._view.definition.scalar:
            out[~source.values(COUNT).any(axis=1)] = 0  # The one row is there without rows that it would aggregate.
        return out

    def _end(self, raw: RawColumn) -> np.ndarray:
        """The address of each group's first or last value, 0 if it has none."""
        out, table, last = np.empty(self._rows, np.int64), self._table, int(raw.kind in _LAST)
        group, groups, scratch = table.groups[0].address, self._groups.ctypes.data, self._scratch.ctypes.data
        kernels.ends(table.address, group, groups, self._rows, last, scratch, out.ctypes.data)
        self._tell()
        return out

    def _lists(self, raw: RawColumn) -> pa.Array:
        """The first or last values of each group, or all, each as often as it comes about, if not once; NULL without
        any. O(values)."""
        import pyarrow as pa

        sizes, table = np.empty(self._rows, np.int64), self._table
        count = -1 if raw.once else self._count_place
        ends = (table.address, table.groups[0].address, self._groups.ctypes.data, self._rows, raw.first or _ALL)
        asked = (*ends, int(raw.kind == "greatest"), count, self._scratch.ctypes.data, sizes.ctypes.data)
        out = np.empty(kernels.firsts(*asked, 0), np.int64)
        kernels.firsts(*asked, out.ctypes.data)
        self._tell()
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        values = self._copies(out) if raw.variable is None else self._decoded(raw, out)
        return pa.ListArray.from_arrays(offsets, values, mask=pa.array(sizes == 0))

    @property
    def _count_place(self) -> int:
        """The word of a value's row that has how often it comes about."""
        shape = self._shape
        return shape.keys + shape.parts.index(COUNT) * shape.limbs

    def _copies(self, addresses: np.ndarray) -> pa.Array:
        """How often the values at the addresses come about."""
        import pyarrow as pa

        return pa.array(gather_words(addresses, [self._count_place])[0])

    def _members(self) -> np.ndarray:
        """The addresses of all values, group after group."""
        table, scratch = self._table, self._scratch.ctypes.data
        group, groups = table.groups[0].address, self._groups.ctypes.data
        out = np.empty(int(self.sizes.sum()), np.int64)
        kernels.members(table.address, group, 0, groups, self._rows, scratch, out.ctypes.data)
        self._tell()
        return out

    def _decoded(self, raw: RawColumn, addresses: np.ndarray) -> pa.Array:
        """The values of the column's variable in the rows at the addresses."""
        assert raw.variable is not None
        words = gather_words(addresses, self._shape.places([raw.variable]), at.NULL_CODE)
        return self._distinct_set.codecs[raw.variable].decode(list(words))

    def _sum(self, raw: RawColumn) -> pa.Array:
        """SUM and AVG over the distinct values, added up now. O(values of the groups)."""
        assert raw.variable is not None and raw.argument_type is not None
        values, specials = self._decoded(raw, self._members()), None
        if raw.argument_type in ("FLOAT", "DOUBLE"):
            values, specials = self._finite(values.to_numpy(zero_copy_only=False))
        limbs, shift = self._added(values, self._distinct_set.codecs[raw.variable].type)
        if raw.kind == "avg":
            array = decode_avg(limbs, shift, raw.scale, self.sizes, raw.argument_type, raw.from_sum)
        else:
            array = decode_sum(limbs, shift, self.sizes, raw.type)
        return array if specials is None else with_specials(array, *specials)

    def _added(self, values: pa.Array, type_: str) -> tuple[np.ndarray, int]:
        """The exact sum of each group's values, and the binary scale of a floating one."""
        limbs, shift = 1, 0
        while True:
            try:
                factors = encode_factor(values, type_, limbs + 1, shift)
                break
            except FactorRange as needed:
                limbs, shift = needed.limbs, needed.shift
        out = np.zeros((self._rows, limbs + 1), np.int64)
        factors, sizes = np.ascontiguousarray(factors), self.sizes
        kernels.add_runs(factors.ctypes.data, limbs + 1, sizes.ctypes.data, self._rows, out.ctypes.data)
        return out, shift

    def _finite(self, values: np.ndarray) -> tuple[pa.Array, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The values with 0 for what is not finite; how many NaN, inf and -inf each group has."""
        import pyarrow as pa

        owners = np.repeat(np.arange(self._rows), self.sizes)
        tests = (np.isnan(values), values == np.inf, values == -np.inf)
        counts = [np.bincount(owners[test], minlength=self._rows) for test in tests]
        return pa.array(np.where(np.isfinite(values), values, 0)), (counts[0], counts[1], counts[2])

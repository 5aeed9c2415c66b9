"""The rows that a change of a view is told by, as words in Arrow's layout: one call of a kernel from the output delta.

The plan of the call is made once for a subscription: where the words of each column come from, what program computes
columns, and where Arrow has them. A change is a block of memory without dictionaries, so it may wait until it is read.
Changes with a NULL, with rows that may cancel, or with sums beyond a word are told in the general way (path_change.py).
O(tuples changed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlfront.maintenance.program.shapes import COUNT, Part, Shape
from sqlfront.maintenance.view.emission import USUAL_ROWS, Factor, OutputDelta
from sqlfront.planner.model.query import RawColumn
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.sums import quotient_factor
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import told_columns as kernels
from sqlfront.storage.kernels.tables.appended_rows import WORD
from sqlfront.storage.stores.row_addresses import address_of

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.planner.model.raw_column import Terms
    from sqlfront.storage.codecs.word_batches import WordBatches
    from sqlfront.storage.stores.table import Table

_tell_rows, _join_blocks = entry_point(kernels.tell_rows), entry_point(kernels.join_blocks)


@dataclass(frozen=True)
class RowLayout:
    """Where the words of a row lie from which a program computes columns.

    `raw` columns are found elsewhere, `constants` are words at their places. `shown` are the codecs of the columns, and
    where each begins; `visible` is the place of what says whether a row shows, -1 if all do. The `program` is its
    address, its number of operations, and the address of its registers; 0 each without one."""

    width: int
    raw: Sequence[tuple[RawColumn, Codec, int]]
    constants: Sequence[tuple[int, int]]
    shown: Sequence[tuple[Codec, int]]
    visible: int
    program: tuple[int, int, int]

    def of(self, names: Mapping[str, str]) -> RowLayout:
        """The layout of the rows of a branch, which has other names for the variables."""
        raw = [
            (replace(one, variable=names.get(str(one.variable), one.variable)), codec, place)
            for one, codec, place in self.raw
        ]
        return replace(self, raw=raw)


class Block(NamedTuple):
    """Told rows: the memory, how many they are, and the words of a column of 64 bits in it. `least` and `greatest` are
    those of the rows' weights, or of their kinds if they are images of groups."""

    memory: pa.Buffer
    rows: int
    stride: int
    least: int
    greatest: int


class WordRows:
    """Tells the changes of one view as blocks.

    `parts` are those of the view's measures, `factor` is the table of a group's sums; None for a bag or a set.
    `is_whole`: no two tuples make equal rows. `batches` are those of the columns with the version and the time of an
    epoch, `last` is where the weights or kinds begin, in strides of words.
    """

    def __init__(
        self,
        delta: OutputDelta,
        factor: Factor | None,
        layout: RowLayout,
        batches: WordBatches,
        layouts: Sequence[int],
        parts: Sequence[Part],
        *,
        is_whole: bool,
        is_scalar: bool,
    ) -> None:
        import pyarrow as pa

        self._delta, self._shape, self._is_whole, self.batches = delta, delta.shape, is_whole, batches
        self._allocate = pa.allocate_buffer
        self.is_grouped = factor is not None
        self.last = (batches.starts[-1] + 1) // 2
        starts = batches.starts
        self._held: list[np.ndarray] = []
        shown = [(place, starts[n], layouts[n]) for n, (_, place) in enumerate(layout.shown)]
        out = layout.width + 2
        last = out - 1 if self.is_grouped else out - 2
        plan = self._plan(factor, layout, parts, out, is_scalar)
        places = [place + word for codec, place in layout.shown for word in range(codec.words)]
        told = self._array(places)
        call = [self._hold(plan), 0, *layout.program, layout.visible, len(places), told]
        self._gathered = _Call(call, [*shown, (last, 2 * self.last, WORD)], out * (2 if self.is_grouped else 1))
        self._copied = None if factor is not None else self._copy(layout, layouts)

    def read(self) -> Block | None:
        """What has been gathered; None if it is to be told in the general way."""
        delta = self._delta
        added, listed = delta.table_header[at.USED], delta.listed_header[at.USED]
        if delta.shape is not self._shape or (added and listed) or not (used := added or listed):
            return None
        table = delta.table if added else delta.listed
        stride, head = self.batches.stride(2 * used if self.is_grouped else used), self.batches.head
        # Arrow's pool keeps the memory of large blocks ready; NumPy's goes back to the system.
        memory = self._allocate(8 * (head + (self.last + 1) * stride))
        out = memory.address + 8 * head
        if self._copied is not None:
            rows, least, greatest = self._copied.run(table, used, out, stride)
            if rows > 0 and (least > 0 or greatest < 0):
                return Block(memory, rows, stride, least, greatest)
            if rows < 0:
                return None
        if table is not delta.table and self._copied is not None:
            return None
        rows, least, greatest = self._gathered.run(table, used, out, stride)
        is_apart = self.is_grouped or rows <= 1 or least > 0 or greatest < 0 or self._may_mix(table)
        return Block(memory, rows, stride, least, greatest) if rows >= 0 and is_apart else None

    def joined(self, blocks: Sequence[Block], stamps: Sequence[tuple[int, int]]) -> Block:
        """The rows of blocks as one, with the stamps of each. Only images of groups have kinds: `least` and `greatest`
        are the extents of all. O(rows)."""
        head, rows = 8 * self.batches.head, sum(block.rows for block in blocks)
        stride = self.batches.stride(rows)
        memory = self._allocate(head + 8 * (self.last + 1) * stride)
        words = [
            word
            for block, own in zip(blocks, stamps, strict=True)
            for word in (block.memory.address + head, block.rows, block.stride, *own)
        ]
        starts = np.array([*self.batches.starts[:-1], 2 * self.last, 2 * self.last + 2], np.int64)
        given = np.array(words, np.int64)
        _join_blocks(address_of(given), len(blocks), address_of(starts), len(starts) - 1, memory.address + head, stride)
        least, greatest = min(block.least for block in blocks), max(block.greatest for block in blocks)
        return Block(memory, rows, stride, least, greatest)

    @property
    def has_rows(self) -> bool:
        """Whether something has been gathered."""
        return bool(self._delta.table_header[at.USED] or self._delta.listed_header[at.USED])

    @property
    def repeats(self) -> bool:
        """Whether equal rows may be told more than once."""
        return not self.is_grouped and (self._delta.repeats or not self._is_whole)

    def _may_mix(self, table: Table) -> bool:
        """Whether rows that come do not cancel rows that go."""
        return self._is_whole and table is self._delta.table

    def _copy(self, layout: RowLayout, layouts: Sequence[int]) -> _Call | None:
        """Copies the rows as they lie in the delta; None if a column is computed."""
        if layout.program[1] or layout.constants:
            return None
        variables = {place: raw.variable for raw, _, place in layout.raw}
        places = [self._shape.places([str(variables[place])])[0] for _, place in layout.shown]
        shown = [(place, self.batches.starts[n], layouts[n]) for n, place in enumerate(places)]
        count = self._shape.keys + self._shape.parts.index(COUNT)
        return _Call([0] * kernels.WANTED, [*shown, (count, 2 * self.last, WORD)], 0)

    def _plan(
        self, factor: Factor | None, layout: RowLayout, parts: Sequence[Part], out: int, is_scalar: bool
    ) -> np.ndarray:
        shape, words = self._shape, np.zeros(kernels.GATHER_WORDS, np.int64)
        own = shape if factor is None else factor.shape
        columns = [word for raw, codec, place in layout.raw for word in self._column(raw, codec, place, own, parts)]
        columns += [word for place, word in layout.constants for word in (kernels.CONSTANT, place, word, 0, 0)]
        first = shape.keys + 1  # Behind the keys is the number of rows added up.
        words[kernels.FIRST], words[kernels.LAST] = first, shape.keys + len(shape.parts)
        words[kernels.DELTA_COUNT], words[kernels.OUT] = shape.keys + shape.parts.index(COUNT), out
        words[kernels.COLUMN_COUNT] = len(columns) // kernels.COLUMN_WORDS
        words[kernels.COLUMNS] = self._array(columns)
        if factor is not None:
            words[kernels.FACTOR], words[kernels.KEYS] = factor.table.address, own.keys
            words[kernels.SCRATCH] = self._hold(np.zeros(at.SCRATCH_WORDS, np.int64))
            words[kernels.KEY] = self._array(shape.places(own.variables))
            words[kernels.ABSENT] = self._hold(np.zeros(own.keys + len(own.parts), np.int64))
            words[kernels.FACTOR_COUNT] = -1 if is_scalar else own.keys + own.parts.index(COUNT)
        return words

    def _column(self, raw: RawColumn, codec: Codec, place: int, own: Shape, parts: Sequence[Part]) -> list[int]:
        """The plan of a raw column."""
        if raw.kind == "variable":
            return [kernels.COPY, place, self._shape.starts[str(raw.variable)][0], codec.words, 0]

        def terms(wanted: Terms) -> int:
            words = [len(wanted)]
            for coefficient, measure in wanted:
                part = parts[measure]
                words += [coefficient, self._shape.keys + self._shape.parts.index(part)]
                words.append(own.keys + own.parts.index(part))
            return self._array(words)

        total, present = terms(raw.terms), 0 if raw.present is None else terms(((1, raw.present),))
        if raw.kind == "count":
            return [kernels.COUNT, place, total, 0, 0]
        if raw.kind == "sum":
            return [kernels.SUM, place, total, present, 0]
        return [kernels.AVERAGE, place, total, present, _factor(raw) or 0]

    def _array(self, words: Iterable[int]) -> int:
        return self._hold(np.array([*words, 0], np.int64))

    def _hold(self, words: np.ndarray) -> int:
        """The address of words that stay as long as this."""
        self._held.append(words)
        return address_of(words)


class BranchRows:
    """Tells the changes of a view whose rows are those of its branches, if all rows come or all go: else those of two
    branches may cancel."""

    is_grouped, repeats = False, True

    def __init__(self, branches: Sequence[WordRows]) -> None:
        self._branches, self.batches, self.last = branches, branches[0].batches, branches[0].last
        self.joined = branches[0].joined

    def read(self) -> Block | None:
        """As `WordRows.read`: the blocks of the branches as one."""
        blocks = []
        for branch in self._branches:
            if branch.has_rows:
                if (block := branch.read()) is None:
                    return None
                blocks.append(block)
        told = [block for block in blocks if block.rows]
        if len(told) < 2:
            return next(iter(told or blocks), None)
        if min(block.least for block in told) <= 0 <= max(block.greatest for block in told):
            return None
        return self.joined(told, [(0, 0)] * len(told))


class _Call:
    """A call of the kernel. `wanted` are the words to copy (places, columns, layouts), `size` is the room that a row of
    the delta takes."""

    def __init__(self, words: Sequence[int], wanted: Sequence[tuple[int, int, int]], size: int) -> None:
        self._wanted = np.array([len(wanted), *(word for one in wanted for word in one)], np.int64)
        extents = np.zeros(len(wanted) + 1, np.int64)
        self._extents, self._last, self._size = extents.data, len(wanted) - 1, size
        self._words = np.array([*words, address_of(self._wanted), address_of(extents)], np.int64)
        self._address, self._room = address_of(self._words), np.empty(0, np.int64)

    def run(self, table: Table, used: int, out: int, stride: int) -> tuple[int, int, int]:
        """Write the rows; how many they are, -1 if one is not told here, and the extents of the last column."""
        if used * self._size > self._room.size:
            self._room = np.empty(2 * used * self._size, np.int64)
            self._words[kernels.ROOM] = address_of(self._room)
        rows = _tell_rows(table.address, self._address, out, stride)
        if self._room.size > USUAL_ROWS * self._size:
            self._room = np.empty(0, np.int64)
        return rows, self._extents[self._last], self._extents[self._last + 1]


def is_told(raw: RawColumn, codec: Codec, parts: Sequence[Part], shift: Callable[[Part], int]) -> bool:
    """Whether a raw column can be made of words here."""
    if raw.kind == "variable":
        return True
    if raw.specials is not None or raw.distinct_set is not None or raw.window is not None:
        return False
    if any(shift(parts[measure]) for _, measure in raw.terms):
        return False
    if raw.kind == "count":
        return raw.present is None and codec.words == 1
    if raw.kind == "sum":
        return raw.type != "DOUBLE" and codec.words == 2
    return raw.kind == "avg" and raw.present is not None and _factor(raw) is not None


def _factor(raw: RawColumn) -> int | None:
    return quotient_factor(raw.scale, raw.argument_type or raw.type, raw.from_sum)

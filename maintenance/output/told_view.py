"""The changes of views as words in Arrow's layout that wait until somebody reads them.

A block (told_rows.py) has the words of all columns. A dictionary may forget texts: they are decoded when a change is
told, and wait beside its block.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.output_change import (
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    EncodedChange,
    Stamps,
    plain,
    plain_schema,
    with_columns,
)
from sqlfront.maintenance.output.reading import rows_of
from sqlfront.maintenance.output.row_program import RowProgram, Words
from sqlfront.maintenance.output.sql_rows import as_shown
from sqlfront.maintenance.view.emission import Factor, factors
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.told_rows import Block, BranchRows, WordRows
from sqlfront.planner.model.query import shown_tuple
from sqlfront.storage.codecs.word_batches import WordBatches, codes_of
from sqlfront.storage.kernels.tables.appended_rows import NAMED

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.storage.codecs.encoding import Codec

_STAMPED = ("_commit_version", "_commit_timestamp")


class WordsChange(EncodedChange):
    """A change as a block of words in Arrow's layout, and `texts`, the columns of texts: it waits until somebody
    asks."""

    lasts = True

    def __init__(self, told: ToldView, block: Block, texts: Sequence[pa.Array], repeats: bool) -> None:
        self.told, self.block, self.texts, self._repeats = told, block, texts, repeats
        self._stamps: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self.block.rows

    def only_kind(self) -> int | None:
        block, least = self.block, self.block.least
        if least != block.greatest:
            return None
        if self.told.rows.is_grouped:
            return least
        return (INSERT if least > 0 else DELETE) if abs(least) == 1 else None

    @property
    def copies(self) -> int:
        block = self.block
        if self.told.rows.is_grouped:
            return block.rows
        return abs(block.least) * block.rows if block.least == block.greatest else super().copies

    @property
    def weights(self) -> np.ndarray:
        last = self._last
        return np.where((last == INSERT) | (last == UPDATE_POSTIMAGE), 1, -1) if self.told.rows.is_grouped else last

    @property
    def kinds(self) -> np.ndarray:
        return self._last if self.told.rows.is_grouped else np.where(self.weights > 0, INSERT, DELETE)

    @functools.cached_property
    def rows(self) -> pa.Table:
        return self.told.table(self.block, self.texts)

    def stamped(self, stamps: Stamps, types: Mapping[str, str] | None = None) -> pa.Table:
        told, block, own = self.told, self.block, (stamps.version, stamps.moment)
        with told.stamping:
            before, self._stamps = self._stamps, self._stamps or own
        if before is None or before == own:
            return told.table(block, self.texts, own, stamps.types, types)
        table = told.table(block, self.texts)  # The memory of stamps is another listener's.
        return with_columns(table if types is None else plain(table, types), stamps)

    def bytes(self) -> int:
        return int(self.block.memory.size) + sum(text.nbytes for text in self.texts)

    @property
    def _last(self) -> np.ndarray:
        """The last column: weights, or kinds."""
        return self.told.column(self.block, 2 * self.told.rows.last)[: self.block.rows]

    @functools.cached_property
    def _words(self) -> Words:
        return self.told.words(self.block)


class ToldView:
    """How the blocks of a view's changes become Arrow."""

    def __init__(
        self, schema: pa.Schema, rows: WordRows | BranchRows, codecs: Sequence[Codec], layouts: Sequence[int]
    ) -> None:
        import pyarrow as pa

        self.rows, self._codecs, self._layouts, self._names = rows, codecs, layouts, schema.names
        self._schema, self._columns = stamped_words(plain_schema(schema), layouts), range(len(codecs))
        self._texts = [(number, schema.field(number)) for number, layout in enumerate(layouts) if layout == NAMED]
        self.stamping, self._from_batches, self._join = threading.Lock(), pa.Table.from_batches, pa.concat_arrays

    def read(self) -> WordsChange | None:
        """The change that has been gathered; None if it is told in the general way."""
        if (block := self.rows.read()) is None:
            return None
        texts, starts = [], self.rows.batches.starts
        for number, field in self._texts:
            numbers = self.column(block, starts[number])[: block.rows]
            text = as_shown(self._codecs[number].decode([numbers]), field.type)
            if text is None:
                return None
            texts.append(text)
        return WordsChange(self, block, texts, self.rows.repeats)

    def joined(self, changes: Sequence[WordsChange], stamps: Sequence[tuple[int, int]]) -> WordsChange:
        """Changes as one, which has the stamps of each. O(rows)."""
        block = self.rows.joined([one.block for one in changes], stamps)
        texts = [self._join(own) for own in zip(*(one.texts for one in changes), strict=True)]
        return WordsChange(self, block, texts, repeats=False)

    def table(
        self,
        block: Block,
        texts: Sequence[pa.Array],
        stamps: tuple[int, int] | None = None,
        kinds: pa.Array | None = None,
        types: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """The rows in Arrow, which share the memory of the block, in plain types if `types` are given; with their kinds
        and the stamps if there are `kinds`. Without `stamps` the block has them."""
        schema = None if types is None else self._schema
        batch = self.rows.batches.batch(block.memory, block.rows, block.stride, stamps, schema)
        for (number, field), text in zip(self._texts, texts, strict=True):
            batch = batch.set_column(number, field, text)
        if kinds is None:
            return self._from_batches([batch]).select(self._columns)
        return self._from_batches([batch.add_column(len(self._codecs), "_change_type", kinds)])

    def column(self, block: Block, start: int) -> np.ndarray:
        """The words of a block from a column on, which begins so many strides of half words behind its head."""
        place = 8 * self.rows.batches.head + 4 * start * block.stride
        return np.frombuffer(block.memory, np.int64, offset=place)

    def words(self, block: Block) -> Words:
        """The columns in words."""
        found: dict[str, tuple[Codec, Sequence[np.ndarray]]] = {}
        starts = self.rows.batches.starts
        for name, codec, layout, start in zip(self._names, self._codecs, self._layouts, starts, strict=False):
            found[name] = codec, codes_of(layout, self.column(block, start), block.rows)
        return found


def told_view(view: MaintainedView, program: RowProgram, schema: pa.Schema, *, is_counted: bool) -> ToldView | None:
    """What tells the changes of a view as blocks; None if a column has no words of Arrow's, or the sums of a group are
    not in one row of one table."""
    layout, is_whole = program.layout(), shown_tuple(view.definition) is not None
    members = list(zip(view.branches, view.branch_variables, strict=True)) or [(view, {})]
    deltas = [branch.delta for branch, _ in members if branch.delta is not None and branch.delta.shape.limbs == 1]
    if layout is None or len(deltas) < len(members) or not (is_counted or is_whole):
        return None
    factor = None
    if is_counted:
        if any(raw.kind != "variable" for raw, _, _ in layout.raw) or any(len(one.shape.parts) != 2 for one in deltas):
            return None
    elif view.branches or deltas[0].supports or (factor := _factor(view)) is None:
        return None
    codecs = [codec for codec, _ in layout.shown]
    found = [codec.layout_in(type_) for codec, type_ in zip(codecs, schema.types, strict=True)]
    layouts = [one for one in found if one is not None]
    if len(layouts) < len(found):
        return None
    parts = [frozenset(one.factors) for one in view.definition.measures]
    batches = WordBatches(stamped_words(schema, layouts))
    is_scalar = view.definition.scalar
    rows = [
        WordRows(delta, factor, layout.of(names), batches, layouts, parts, is_whole=is_whole, is_scalar=is_scalar)
        for delta, (_, names) in zip(deltas, members, strict=True)
    ]
    return ToldView(schema, BranchRows(rows) if view.branches else rows[0], codecs, layouts)


def _factor(view: MaintainedView) -> Factor | None:
    """The one table whose rows have the sums of groups, a word each; None if there is none."""
    rows = rows_of(view)
    found = factors(rows.trees[0]) if rows.merged() is None and len(rows.trees) == 1 else []
    if len(found) != 1 or found[0].shape.limbs > 1:
        return None
    around = None if found[0].view is None else next(found[0].view.borders(), None)
    return found[0] if around is None else None


def stamped_words(schema: pa.Schema, layouts: Sequence[int]) -> pa.Schema:
    """The schema of a view's rows in a block, with the version and the time of an epoch: texts are numbers."""
    import pyarrow as pa

    columns = [
        pa.field(field.name, pa.int64()) if layout == NAMED else field
        for field, layout in zip(schema, layouts, strict=True)
    ]
    stamps = [pa.field(name, type_) for name, type_ in zip(_STAMPED, (pa.int64(), pa.timestamp("us")), strict=True)]
    return pa.schema([*columns, *stamps])

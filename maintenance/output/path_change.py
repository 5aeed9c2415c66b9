"""The change of a view from its output delta, which the paths gather: tuples that changed, before and after.

The values after the change are looked up in the tables, those before it are less by the delta. O(tuples changed).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sqlfront.maintenance.output.distinct_change import ChangedGroups, rewound
from sqlfront.maintenance.output.gathered import AnyGathered, Gathered, GatheredBranches, Sides
from sqlfront.maintenance.output.output import raw_batch
from sqlfront.maintenance.output.output_change import (
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    EncodedChange,
    OutputChange,
    Stamps,
    netted,
    stamp_columns,
    stamped_schema,
    with_columns,
)
from sqlfront.maintenance.output.row_program import RowProgram, Words, netted_words, picked_words, row_program
from sqlfront.maintenance.output.sql_rows import as_shown, no_rows, sql_rows_of_all, sql_schema
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.netting import net
from sqlfront.maintenance.program.rows import whole_numbers
from sqlfront.maintenance.view.emission import OutputDelta
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import output_keys, shown_tuple
from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.told_view import ToldView
    from sqlfront.maintenance.relation.base_relation import Evaluate
    from sqlfront.storage.codecs.encoding import Dictionaries

T = TypeVar("T")
Changed = tuple["pa.Table", np.ndarray, np.ndarray]
"""SQL rows, the number of the tuple that each is of, and their weights."""
ChangedWords = tuple[Words, np.ndarray, np.ndarray]
"""The same, with rows in words."""


class ShownWords:
    """Rows in words, in the types that DuckDB has once told for the columns of a view."""

    def __init__(self, view: MaintainedView, evaluate: Evaluate) -> None:
        self._view, self._evaluate = view, evaluate
        self._schema: tuple[pa.Schema, list[pa.DataType], pa.Schema] | None = None

    def __call__(self, words: Words, known: np.ndarray | None, stamps: Stamps | None) -> pa.Table:
        """The rows; `known` has all their words, if one array has them."""
        import pyarrow as pa

        schema, types, stamped = self._known(sql_schema(self._view, self._evaluate))
        is_plain = known is not None and known.min(initial=0) > at.RESERVED_LOW  # One look, not one a column.
        arrays = []
        for type_, (codec, code) in zip(types, words.values(), strict=True):
            own = codec.plain_array(code[0]) if is_plain and codec.is_word else codec.decode(list(code))
            arrays.append(as_shown(own, type_))
        if any(array is None for array in arrays):
            return with_columns(self._decoded(words), stamps)
        if stamps is None:
            return pa.Table.from_arrays(arrays, schema=schema)
        arrays += [column for _, column in stamp_columns(stamps)]
        return pa.Table.from_arrays(arrays, schema=stamped)

    def _known(self, schema: pa.Schema) -> tuple[pa.Schema, list[pa.DataType], pa.Schema]:
        """A schema, its types, and the schema of its rows with stamps: found once for each."""
        if self._schema is None or self._schema[0] is not schema:
            self._schema = schema, schema.types, stamped_schema(schema)
        return self._schema

    def _decoded(self, words: Words) -> pa.Table:
        """Rows in words, in the types that DuckDB has for a view's columns."""
        import pyarrow as pa

        definition, arrays, fields = self._view.definition, [], []
        for name, (codec, own) in words.items():
            arrays.append(codec.decode([np.ascontiguousarray(word) for word in own]))
            fields.append(codec.arrow_field(name))
        rows, types = pa.Table.from_arrays(arrays, schema=pa.schema(fields)), dict(definition.columns)
        found = self._evaluate(rows, types, [quote(name) for name in types], None, definition.settings)
        return found.rename_columns(list(types))


class PathChange:
    """The change that the paths of a view, and of its distinct values, gather from now on; see `ChangeReader`.

    The paths of branches gather that of a view whose rows are those of its branches. `evaluate` computes SQL over raw
    columns.
    """

    def __init__(self, view: MaintainedView, machine: Machine, evaluate: Evaluate, dictionaries: Dictionaries) -> None:
        self._view, self._machine, self._evaluate, self._dictionaries = view, machine, evaluate, dictionaries
        self._members = view.branches or view.members
        self._shown = ShownWords(view, evaluate)
        for member in self._members:
            member.delta = OutputDelta(member.tree, member.limbs, machine)

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        rows, _, weights = self._changed()
        return rows, weights

    def told(self) -> OutputChange | None:
        """The change as words, which nothing is read for; None if it is read in the general way."""
        return None if (told := self._told) is None else told.read()

    def read(self) -> OutputChange:
        view = self._view
        if not any(member.delta.rows for member in self._members if member.delta is not None):
            return EncodedChange(dict, np.empty(0, np.int64), self._no_rows)
        if (found := self._encoded()) is not None:
            return found
        whole = view.definition.mode == "bag" and self._is_whole
        rows, tuples, weights = self._changed()
        if whole:
            return OutputChange(rows, weights, np.where(weights > 0, INSERT, DELETE))
        return _paired(rows, tuples, weights) if output_keys(view.definition) else netted(rows, weights)

    def forget(self) -> None:
        for member in self._members:
            if member.delta is not None:
                member.delta.clear()

    def commit(self) -> None:
        """Nothing is known of the rows but what has been gathered."""

    def close(self) -> None:
        for member in self._members:
            member.delta = None
        program = vars(self).pop("_program", None)  # If a change has made it.
        vars(self).pop("_told", None)
        if program is not None:
            program.close()

    def _encoded(self) -> EncodedChange | None:
        """The change in words; None if DuckDB computes it."""
        delta, program = self._view.delta, self._program
        if program is None:
            return None
        if not self._is_counted:
            return self._regrouped(program)
        gathered = self._gathered(once=False)
        found = program.run(gathered.rows([("change", np.arange(len(gathered.data)))]), len(gathered.data))
        if found is None:
            return None
        words, counts, repeats = found[0], whole_numbers(gathered.counts()), delta is not None and delta.repeats
        if not self._is_whole:
            (words, counts), repeats = netted_words(words, counts), False
        known = gathered.data if self._is_whole and program.is_plain else None
        return EncodedChange(lambda: words, counts, functools.partial(self._shown, words, known), repeats=repeats)

    def _regrouped(self, program: RowProgram) -> EncodedChange | None:
        """The change of groups: their rows as they were, and as they are."""
        found = self._at_both_times(functools.partial(_words_at, program))
        if None in found:
            return None
        words, tuples, weights = functools.reduce(_joined_words, filter(None, found))
        if not self._is_whole:
            words, weights = netted_words(words, weights)
            return EncodedChange(lambda: words, weights, functools.partial(self._shown, words, None))
        order, kinds = paired_words(words, tuples, weights)
        images = picked_words(words, order)
        return EncodedChange(lambda: images, weights[order], functools.partial(self._shown, images, None), kinds=kinds)

    @property
    def _is_counted(self) -> bool:
        """Whether the change of a tuple's count is all that its rows' change is: that of a set is 1 or -1."""
        view, delta = self._view, self._view.delta
        is_set = delta is not None and delta.supports and self._is_whole
        return not view.distinct_sets and (view.definition.mode == "bag" or is_set)

    @functools.cached_property
    def _told(self) -> ToldView | None:
        """What tells the rows as words, made for the first change; None if they are told in the general way alone."""
        view, program = self._view, None if self._view.distinct_sets else self._program
        if program is None:
            return None
        from sqlfront.maintenance.output.told_view import told_view

        return told_view(view, program, sql_schema(view, self._evaluate), is_counted=self._is_counted)

    @functools.cached_property
    def _is_whole(self) -> bool:
        """Whether all words of a tuple show."""
        return shown_tuple(self._view.definition) is not None

    @functools.cached_property
    def _program(self) -> RowProgram | None:
        """What computes the rows, made for the first of their changes."""
        return row_program(self._view, self._evaluate, self._dictionaries)

    def _no_rows(self, stamps: Stamps | None) -> pa.Table:
        return with_columns(no_rows(self._view, self._evaluate), stamps)

    def _gathered(self, groups: ChangedGroups | None = None, *, once: bool = True) -> AnyGathered:
        if self._view.branches:
            return GatheredBranches(self._view)
        assert self._view.delta is not None
        return Gathered(self._view, self._view.delta, groups, once=once)

    def _changed(self) -> Changed:
        if self._is_counted and self._view.definition.mode == "bag":
            gathered = self._gathered()
            weights = whole_numbers(gathered.counts())
            tuples = np.arange(len(weights))
            raw = [self._raw(gathered, [("change", tuples)])]
        else:
            found = self._at_both_times(self._signed)
            raw = [one for one, _, _ in found]
            tuples, weights = (np.concatenate([one[place] for one in found]) for place in (1, 2))
        rows, visible = sql_rows_of_all(self._view, self._evaluate, raw)
        return rows, tuples[visible], weights[visible]

    def _at_both_times(self, rows: Callable[[AnyGathered, Sequence[str]], T]) -> list[T]:
        """What is made of the tuples before and after the change: in one go, or one after the other where distinct
        values have to be as they were then."""
        view = self._view
        if not view.distinct_sets:
            return [rows(self._gathered(), ["before", "after"])]
        groups = ChangedGroups(view)
        with rewound(view, self._machine):
            gathered = self._gathered(groups)
            before = rows(gathered, ["before"])
        return [before, rows(gathered, ["after"])]

    def _signed(self, gathered: AnyGathered, times: Sequence[str]) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
        """The raw rows before the change with weight -1, those after it with 1."""
        sides = [(when, gathered.live(when)) for when in times]
        return self._raw(gathered, sides), *_at_times(sides)

    def _raw(self, gathered: AnyGathered, sides: Sides) -> pa.RecordBatch:
        """The raw rows of the tuples that are picked, at their times."""
        return raw_batch(self._view, gathered.rows(sides), sum(len(picked) for _, picked in sides))


def paired_words(words: Words, tuples: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of rows that differ before and after, those of a tuple one after the other, and their kinds. A tuple
    has at most one row before, of weight -1, and one after it."""
    order = np.lexsort((weights, tuples))
    of, sums = tuples[order], weights[order]
    first = np.zeros(len(of), bool)  # The former of two images.
    first[:-1] = of[:-1] == of[1:]
    former = first.nonzero()[0]
    same, before, after = np.ones(len(former), bool), order[former], order[former + 1]
    for _, code in words.values():
        for word in code:
            same &= word[before] == word[after]
    kinds = np.where(sums > 0, INSERT, DELETE)
    kinds[former], kinds[former + 1] = UPDATE_PREIMAGE, UPDATE_POSTIMAGE
    if same.any():
        kept = np.ones(len(of), bool)
        kept[former[same]] = kept[former[same] + 1] = False
        order, kinds = order[kept], kinds[kept]
    return order, kinds


def _at_times(sides: Sides) -> tuple[np.ndarray, np.ndarray]:
    """The tuples of all sides, and the weights of their rows."""
    tuples = np.concatenate([picked for _, picked in sides])
    return tuples, np.repeat([-1 if when == "before" else 1 for when, _ in sides], [len(one) for _, one in sides])


def _words_at(program: RowProgram, gathered: AnyGathered, times: Sequence[str]) -> ChangedWords | None:
    """The rows of tuples at these times, those before the change with weight -1; None if the program refuses."""
    sides = [(when, gathered.live(when)) for when in times]
    tuples, weights = _at_times(sides)
    found = program.run(gathered.rows(sides), len(tuples))
    if found is None:
        return None
    words, visible = found
    if visible is not None:
        words, tuples, weights = picked_words(words, visible), tuples[visible], weights[visible]
    return words, tuples, weights


def _joined_words(one: ChangedWords, other: ChangedWords) -> ChangedWords:
    words = {
        name: (codec, [np.concatenate(parts) for parts in zip(own, other[0][name][1], strict=True)])
        for name, (codec, own) in one[0].items()
    }
    return words, np.concatenate([one[1], other[1]]), np.concatenate([one[2], other[2]])


def _paired(rows: pa.Table, tuples: np.ndarray, weights: np.ndarray) -> OutputChange:
    """Rows of tuples. A tuple is one row of the view at a time, so the row that went and the row that came pair."""
    import pyarrow as pa

    positions, sums = net([pa.array(tuples), *rows.columns], weights)
    order = np.lexsort((sums, tuples[positions]))
    positions, sums = positions[order], sums[order]
    same = tuples[positions]
    paired = np.zeros(len(same), bool)
    paired[:-1] = same[:-1] == same[1:]
    paired[1:] |= paired[:-1]
    kinds = np.where(sums > 0, INSERT, DELETE)
    kinds[paired] = np.where(sums > 0, UPDATE_POSTIMAGE, UPDATE_PREIMAGE)[paired]
    return OutputChange(rows.take(arrow_numbers(positions)), sums, kinds)

"""The rows that a view puts out as a program over the words of its raw columns: no query computes them.

The programs are those of computed columns (maintenance/relation/expressions.py). What they cannot compute exactly, and
rows for which they refuse, are left to DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from sqlfront.maintenance.output.aggregate_columns import Sums, aggregate_words
from sqlfront.maintenance.program.netting import net_words
from sqlfront.maintenance.program.rows import Rows
from sqlfront.maintenance.relation.base_relation import Column, Evaluate, Input
from sqlfront.maintenance.relation.expressions import Expressions
from sqlfront.maintenance.relation.guards import in_order, unused_names
from sqlfront.maintenance.view.distinct_values import Groups, has_words
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.told_rows import RowLayout, is_told
from sqlfront.planner.model.query import RawColumn, is_constant
from sqlfront.storage.codecs.encoding import Codec, Dictionaries, codec_for
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW

T = TypeVar("T")
Words = Mapping[str, tuple[Codec, Sequence[np.ndarray]]]
"""The codec of each column, in their order, and an array for each word of a value."""


class RowProgram:
    """Computes the columns of a view from its raw columns: variables, and aggregates of groups.

    `is_plain`: each is a raw column or a number. DuckDB binds the expressions once, `evaluate` computes what is
    memoized. NotSupportedError if one is not computed here.
    """

    def __init__(self, view: MaintainedView, evaluate: Evaluate, dictionaries: Dictionaries) -> None:
        definition = self._definition = view.definition
        self._view, distinct = view, [raw for raw in definition.raw if raw.distinct_set is not None]
        if any(raw.is_list or raw.window is not None for raw in definition.raw) or not all(map(has_words, distinct)):
            raise NotSupportedError("lists, windows and sums of distinct values are not computed here")
        self._raw = {raw.name: raw for raw in definition.raw}
        self._codecs = {name: _codec(view, raw, dictionaries) for name, raw in self._raw.items()}
        if any(codec.type != self._raw[name].type for name, codec in self._codecs.items()):
            raise NotSupportedError("a raw column is cast")
        self._parts, self._shift = [frozenset(measure.factors) for measure in definition.measures], view.shift
        self._names = [name for name, _ in definition.columns]
        self._shown: dict[str, str] = {}
        self._constants: dict[str, tuple[Codec, tuple[int, ...]]] = {}
        self._items: dict[str, Input] = {}
        types = {name: raw.type for name, raw in self._raw.items()}
        for expression, (name, type_) in zip(definition.projection, definition.columns, strict=True):
            raw_name, codec = expression.strip().strip('"'), codec_for(type_, dictionaries)
            if types.get(raw_name) == type_:
                self._shown[name] = raw_name
            elif is_constant(expression) and (codec.dictionary is None or not expression.isdigit()):
                value = int(expression) if expression.isdigit() else None
                self._constants[name] = codec, codec.encode_value(value)
            else:
                text = f"CAST({expression} AS {type_})"
                self._items[name] = Input("key", text, type_, None, definition.settings, codec=codec)
        self.is_plain = not self._items and all(code[0] != NULL_CODE for _, code in self._constants.values())
        self._having = self._visible(dictionaries)
        columns = [Column(name, type_) for name, type_ in types.items()]
        self._program = Expressions(columns, dictionaries, evaluate).translate(list(self._items.values()))
        if self._program is None and self._items:
            raise NotSupportedError("DuckDB computes a column")
        self._place()

    def _visible(self, dictionaries: Dictionaries) -> str | None:
        """The name of what says whether a row is shown, as one more item; None if all are."""
        definition = self._definition
        if not definition.having:
            return None
        [name] = unused_names([*self._names, *self._raw], 1)
        text, codec = f"CAST({in_order([definition.having])} AS BOOLEAN)", codec_for("BOOLEAN", dictionaries)
        self._items[name] = Input("key", text, "BOOLEAN", None, definition.settings, codec=codec)
        return name

    def _place(self) -> None:
        """Settle where the words of a row lie: those that the program reads, then those that it computes."""
        self._read, self._width = dict[str, int](), 0
        for column in self._program.reads if self._program is not None else ():
            self._read[column.name] = self._width
            self._width += self._codecs[column.name].words
        for item in self._items.values():
            assert item.codec is not None
            item.place, self._width = self._width, self._width + item.codec.words
        if self._program is not None:
            self._program.place(self._read)

    def layout(self) -> RowLayout | None:
        """Where the words of all columns lie, if rows of words are computed; None if a raw column is made in another
        way, or a constant is NULL."""
        raw, constants, width = dict(self._read), [], self._width
        places = {name: item.place for name, item in self._items.items()}
        for name, shown in self._shown.items():
            if shown not in raw:
                raw[shown], width = width, width + self._codecs[shown].words
            places[name] = raw[shown]
        for name, (_, code) in self._constants.items():
            places[name] = width
            for word in code:
                constants.append((width, word))
                width += 1
        columns = [(self._raw[name], self._codecs[name], place) for name, place in raw.items()]
        are_words = all(is_told(column, codec, self._parts, self._shift) for column, codec, _ in columns)
        if not are_words or any(code[0] <= RESERVED_LOW for _, code in self._constants.values()):
            return None
        codecs = {name: self._codecs[shown] for name, shown in self._shown.items()}
        codecs |= {name: codec for name, (codec, _) in self._constants.items()}
        codecs |= {name: item.codec for name, item in self._items.items() if item.codec is not None}
        shown_at = [(codecs[name], places[name]) for name in self._names]
        visible = -1 if self._having is None else self._items[self._having].place
        program = (0, 0, 0) if self._program is None else self._program.call
        return RowLayout(width, columns, constants, shown_at, visible, program)

    def run(self, source: Rows, rows: int) -> tuple[Words, np.ndarray | None] | None:
        """The words of all columns of so many rows, and the places of those that HAVING shows, None if all are; None if
        the program refuses."""
        groups = [Groups(self._view, number, source, rows) for number in range(len(self._view.distinct_sets))]
        raw = {name: self._words(source, groups, name) for name in self._raw}
        found: dict[str, tuple[Codec, Sequence[np.ndarray]]] = {
            name: (self._codecs[shown], raw[shown]) for name, shown in self._shown.items()
        }
        for name, (codec, code) in self._constants.items():
            found[name] = codec, [np.full(rows, word, np.int64) for word in code]
        if self._program is None:
            return self._in_order(found), None
        data = np.empty((rows, self._width), np.int64)
        for name, place in self._read.items():
            for number, word in enumerate(raw[name]):
                data[:, place + number] = word
        if not self._program.run(int(data.ctypes.data), self._width, rows):
            return None
        for name, item in self._items.items():
            assert item.codec is not None
            places = range(item.place, item.place + item.codec.words)
            found[name] = item.codec, [np.ascontiguousarray(data[:, place]) for place in places]
        visible = None if self._having is None else np.flatnonzero(found[self._having][1][0] == 1)
        return self._in_order(found), visible

    def _words(self, source: Rows, groups: Sequence[Groups], name: str) -> Sequence[np.ndarray]:
        """The words of a raw column."""
        raw = self._raw[name]
        if raw.distinct_set is not None:
            return groups[raw.distinct_set].words(raw)
        if raw.kind == "variable":
            return source.words(str(raw.variable))
        return aggregate_words(Sums(self._parts, self._shift, source.values), raw, self._codecs[name])

    def _in_order(self, found: Mapping[str, T]) -> dict[str, T]:
        return {name: found[name] for name in self._names}

    def close(self) -> None:
        """Let go of the constants of the program."""
        if self._program is not None:
            self._program.release()


def _codec(view: MaintainedView, raw: RawColumn, dictionaries: Dictionaries) -> Codec:
    kept = view if raw.distinct_set is None else view.distinct_sets[raw.distinct_set]
    is_number = raw.kind == "count" or raw.variable is None
    return codec_for(raw.type, dictionaries) if is_number else kept.codecs[str(raw.variable)]


def row_program(view: MaintainedView, evaluate: Evaluate, dictionaries: Dictionaries) -> RowProgram | None:
    """What computes the rows of a view; None if DuckDB does. DuckDB binds the expressions of the rows."""
    try:
        return RowProgram(view, evaluate, dictionaries)
    except NotSupportedError:
        return None


def netted_words(words: Words, weights: np.ndarray) -> tuple[Words, np.ndarray]:
    """Rows in words, each once, with the sums of their weights."""
    columns = [word for _, own in words.values() for word in own]
    rows, sums = net_words(np.array(columns).T, weights)
    found = iter(rows.T)
    return {name: (codec, [next(found) for _ in own]) for name, (codec, own) in words.items()}, sums


def picked_words(words: Words, places: np.ndarray) -> Words:
    """The rows at some places."""
    return {name: (codec, [word[places] for word in own]) for name, (codec, own) in words.items()}

"""The rows that a view puts out as a program over the words of its raw columns: no query computes them.

The programs are those of computed columns (maintenance/relation/expressions.py). What they cannot compute exactly, and
rows for which they refuse, are left to DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlfront.maintenance.relation.base_relation import Column, Input
from sqlfront.maintenance.relation.expressions import Expressions
from sqlfront.planner.model.query import Definition, is_constant
from sqlfront.storage.codecs.encoding import Codec, Dictionaries, codec_for
from sqlfront.storage.errors import NotSupportedError

Words = Mapping[str, tuple[Codec, Sequence[np.ndarray]]]
"""The codec of each column, in their order, and an array for each word of a value."""


class RowProgram:
    """Computes the columns of a view from its raw columns, which are variables with these codecs.

    `is_plain`: each is a raw column or a constant. DuckDB binds the expressions once. NotSupportedError if one is not
    computed here.
    """

    def __init__(self, definition: Definition, codecs: Mapping[str, Codec], dictionaries: Dictionaries) -> None:
        if definition.having or any(raw.kind != "variable" for raw in definition.raw):
            raise NotSupportedError("sums are not computed here")
        self._variables = {raw.name: str(raw.variable) for raw in definition.raw}
        self._codecs = {name: codecs[variable] for name, variable in self._variables.items()}
        types = {raw.name: raw.type for raw in definition.raw}
        if any(codec.type != types[name] for name, codec in self._codecs.items()):
            raise NotSupportedError("a raw column is cast")
        self._names = [name for name, _ in definition.columns]
        self._shown: dict[str, str] = {}
        self._constants: dict[str, tuple[Codec, tuple[int, ...]]] = {}
        self._items: dict[str, Input] = {}
        for expression, (name, type_) in zip(definition.projection, definition.columns, strict=True):
            raw, codec = expression.strip().strip('"'), codec_for(type_, dictionaries)
            if types.get(raw) == type_:
                self._shown[name] = raw
            elif is_constant(expression) and (codec.dictionary is None or not expression.isdigit()):
                value = int(expression) if expression.isdigit() else None
                self._constants[name] = codec, codec.encode_value(value)
            else:
                text = f"CAST({expression} AS {type_})"
                self._items[name] = Input("key", text, type_, None, definition.settings, codec=codec)
        self.is_plain = not self._items
        columns = [Column(name, type_) for name, type_ in types.items()]
        self._program = Expressions(columns, dictionaries).translate(list(self._items.values()))
        if self._program is None and self._items:
            raise NotSupportedError("DuckDB computes a column")
        self._place()

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

    def run(self, words: Callable[[str], list[np.ndarray]], rows: int) -> Words | None:
        """The words of all columns of so many rows, from those of variables; None if the program refuses."""
        raw = {name: words(variable) for name, variable in self._variables.items()}
        found: dict[str, tuple[Codec, Sequence[np.ndarray]]] = {
            name: (self._codecs[shown], raw[shown]) for name, shown in self._shown.items()
        }
        for name, (codec, code) in self._constants.items():
            found[name] = codec, [np.full(rows, word, np.int64) for word in code]
        if self._program is None:
            return self._in_order(found)
        data = np.empty((rows, self._width), np.int64)
        for name, place in self._read.items():
            for number, word in enumerate(raw[name]):
                data[:, place + number] = word
        if not self._program.run(int(data.ctypes.data), self._width, rows):
            return None
        for name, item in self._items.items():
            assert item.codec is not None
            found[name] = item.codec, [data[:, item.place + word] for word in range(item.codec.words)]
        return self._in_order(found)

    def _in_order(self, found: Words) -> Words:
        return {name: found[name] for name in self._names}

    def close(self) -> None:
        """Let go of the constants of the program."""
        if self._program is not None:
            self._program.release()

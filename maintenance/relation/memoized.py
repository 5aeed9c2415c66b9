"""Expressions over one text column in compiled programs: DuckDB computes each once for a text, a memo has its words.

A program reads the words by the codes of the texts (storage/codecs/memo.py) and refuses rows with texts that are new.
These are computed by one query for all expressions with the same settings, and the program runs again: a known text
costs a read, an epoch with new ones a query. NULL is a text of its own. Rows with a text for which an expression fails
are refused for good, so that DuckDB computes them, or fails, as if there were no memo. A large batch of new texts is
left to DuckDB, too, which takes half of the time and no memory for texts that may never come again.

A view's expressions may be memoized, for they are deterministic under its settings
(`sqlfront/binding/function_catalog.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.codecs.encoding import Codec, Dictionaries, codec_for
from sqlfront.storage.codecs.memo import Memo
from sqlfront.storage.codecs.sub_expressions import SubExpression
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Column
    from sqlfront.maintenance.relation.guards import Evaluate

_MANY = 1 << 14
"""Rows that may better be left to DuckDB."""
_SLICES, _SLICE = 32, 64
"""The sample of many rows."""


@dataclass(frozen=True)
class _Function:
    """An expression over the column `source` under settings, the memo with this key, and the codec of the values."""

    source: Column
    expression: SubExpression
    settings: Settings
    key: Hashable
    memo: Memo
    codec: Codec

    def words(self, values: Any) -> np.ndarray:
        """A word for each value, as registers hold it; `absent` where one word is not enough."""
        first, *rest = self.codec.encode(values)
        if not rest:
            return first
        fits = (first == rest[0] >> 63) & (rest[0] != NULL_CODE)
        return np.where(first == NULL_CODE, NULL_CODE, np.where(fits, rest[0], self.memo.absent))


_Codes: TypeAlias = Mapping[str, np.ndarray]
"""The codes of texts by the name of their column."""


class Memoized:
    """The memos that a program reads; `release` them in the end."""

    def __init__(self, dictionaries: Dictionaries, evaluate: Evaluate) -> None:
        self._dictionaries, self._evaluate = dictionaries, evaluate
        self._functions = dict[Hashable, _Function]()
        self.memos: list[Memo] = []

    def open(self, source: Column, expression: SubExpression, type: str, settings: Settings, absent: int) -> int:
        """The number, among `memos`, of the memo of an expression of a type over a text column."""
        key = (source.name, expression, source.type, type, settings)
        if key not in self._functions:
            shared, codec = key[1:], codec_for(type, self._dictionaries)
            memo = self._dictionaries.varchar.memos.open(shared, absent, is_text=codec.dictionary is not None)
            self._functions[key] = _Function(source, expression, settings, shared, memo, codec)
            self.memos.append(memo)
        return list(self._functions).index(key)

    def learn(self, data: np.ndarray, places: Mapping[str, int]) -> bool:
        """Compute what the memos lack for rows whose columns begin at these places. False if they lack nothing, or an
        expression fails for a text: then DuckDB computes the rows."""
        asked = dict[Settings, tuple[list[_Function], dict[str, np.ndarray]]]()
        for function in self._functions.values():
            name = function.source.name
            codes = np.ascontiguousarray(data[:, places[name]])
            if function.memo.fails(codes):
                return False
            if (lacking := function.memo.lacks(codes)).size:
                functions, texts = asked.setdefault(function.settings, ([], {}))
                functions.append(function)
                texts[name] = np.concatenate([texts[name], lacking]) if name in texts else lacking
        return bool(asked) and all(self._learn(*each) for each in asked.values())

    def lacks_most(self, rows: int, column: Callable[[str], pa.Array | pa.ChunkedArray]) -> bool:
        """Whether the rows are many, and memos lack texts of most: a sample has more that they lack than it would have
        if each came twice."""
        if rows < _MANY:
            return False
        half, step = rows / 2, rows // _SLICES
        for function in self._functions.values():
            codec, texts = codec_for(function.source.type, self._dictionaries), column(function.source.name)
            try:
                sample = [codec.encode(texts.slice(first, _SLICE))[0] for first in range(0, step * _SLICES, step)]
            except DataError:  # Whoever encodes the rows says so.
                return False
            if len(function.memo.lacks(np.concatenate(sample))) > half * -math.expm1(-_SLICES * _SLICE / half):
                return True
        return False

    def release(self) -> None:
        """Let go of the memos."""
        for function in self._functions.values():
            self._dictionaries.varchar.memos.close(function.key)
        self._functions.clear()

    def _learn(self, functions: Sequence[_Function], texts: _Codes) -> bool:
        """Compute expressions with the same settings for texts; False if one fails."""
        expressions = [function.expression.over(function.source.name) for function in functions]
        try:
            found = self._values(functions, texts, expressions)
        except DataError:
            return self._try(functions, texts, expressions)
        for function, values in zip(functions, found, strict=True):
            codes = texts[function.source.name]
            function.memo.learn(codes, function.words(values[: len(codes)]))
        return True

    def _try(self, functions: Sequence[_Function], texts: _Codes, expressions: Sequence[str]) -> bool:
        """As `_learn` where an expression fails: for which texts is noted."""
        tried = [f"TRY({expression})" for expression in expressions]
        tried += [f"TRY([{expression}]) IS NOT NULL" for expression in expressions]
        try:
            found = self._values(functions, texts, tried)
        except DataError:  # TRY does not catch it: the text is known if it is the only one.
            if all(len(codes) == 1 for codes in texts.values()):
                for function in functions:
                    function.memo.fail(texts[function.source.name])
            return False
        count, succeeds = len(functions), True
        for function, values, has_value in zip(functions, found[:count], found[count:], strict=True):
            codes = texts[function.source.name]
            is_known = np.array(has_value[: len(codes)].to_pylist(), bool)
            function.memo.learn(codes[is_known], function.words(values[: len(codes)])[is_known])
            function.memo.fail(codes[~is_known])
            succeeds &= bool(is_known.all())
        return succeeds

    def _values(self, functions: Sequence[_Function], texts: _Codes, expressions: Sequence[str]) -> Sequence[Any]:
        """The values of expressions over columns of texts, side by side. A shorter column repeats its texts."""
        import pyarrow as pa

        sources = {function.source.name: function.source for function in functions}
        rows, arrays, fields = max(map(len, texts.values())), [], []
        for name, source in sources.items():
            codec = codec_for(source.type, self._dictionaries)
            arrays.append(codec.decode([np.resize(texts[name], rows)]))
            fields.append(codec.arrow_field(name))
        types = {name: source.type for name, source in sources.items()}
        table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        columns: Sequence[Any] = self._evaluate(table, types, expressions, {}, functions[0].settings).columns
        return columns

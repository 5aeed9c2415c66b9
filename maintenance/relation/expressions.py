"""Filters and computed columns as a program over a row's encoded words, so that no query is needed to compute them.

DuckDB binds every expression; what its bound tree says is translated where our arithmetic gives the very same value
(registers.py). An expression that is not translated, and rows for which the program refuses (an overflow, say), are
left to DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.relation.registers import RESERVED, TEXTS, Registers, Untranslated
from sqlfront.storage.codecs.bound_tree import Bound, bind
from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.codecs.encoding import Dictionaries
from sqlfront.storage.codecs.types import scale_of
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.programs import expression as kernels
from sqlfront.storage.stores.words import words_at

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Column, Input
    from sqlfront.maintenance.relation.guards import Evaluate
    from sqlfront.storage.codecs.sub_expressions import SubExpression

_compute = entry_point(kernels.compute)

_MOST_OPERATIONS = 1000


class Expressions:
    """Translates the computed items of one relation; asks DuckDB about each expression once.

    `evaluate` computes what is memoized (memoized.py)."""

    def __init__(self, columns: Sequence[Column], dictionaries: Dictionaries, evaluate: Evaluate) -> None:
        self._columns, self._dictionaries, self._evaluate = columns, dictionaries, evaluate
        self._types = {column.name: column.type for column in columns}
        self._bound: dict[tuple[str, Settings], Bound | None] = {}
        self._parts: dict[tuple[str, Settings], dict[tuple[str, str], SubExpression]] = {}

    def translate(self, items: Sequence[Input]) -> Computation | None:
        """The program of all these items, not yet placed; None if there are none, or one has to be left to DuckDB."""
        texts = [(item_sql(item), item.settings) for item in items]
        self._bound = {text: self._bound[text] for text in texts if text in self._bound}
        self._parts = {text: self._parts[text] for text in texts if text in self._parts}
        new = dict.fromkeys(text for text in texts if text not in self._bound)
        for settings in dict.fromkeys(settings for _, settings in new):
            asked = [text for text, under in new if under == settings]
            found = bind(self._types, asked, settings)
            self._bound |= {(text, settings): bound for text, bound in zip(asked, found, strict=True)}
        if not items or None in self._bound.values():
            return None
        made = Computation(self._columns, self._dictionaries, self._evaluate)
        try:
            for item, text in zip(items, texts, strict=True):
                made.add(item, self._bound[text], partial(self._parts_of, *text))  # type: ignore[arg-type]
        except Untranslated:
            made.release()
            return None
        return made

    def _parts_of(self, text: str, settings: Settings) -> Mapping[tuple[str, str], SubExpression]:
        """The sub-expressions of an item over one text column."""
        if (text, settings) not in self._parts:
            from sqlfront.storage.codecs.sub_expressions import sub_expressions  # Most views need none.

            self._parts[text, settings] = sub_expressions(self._types, text, settings, TEXTS)
        return self._parts[text, settings]


class Computation:
    """A program that computes items; `place` it before it runs, `release` the text constants and memos that it holds in
    the end."""

    def __init__(self, columns: Sequence[Column], dictionaries: Dictionaries, evaluate: Evaluate) -> None:
        self._columns, self._dictionaries = columns, dictionaries
        self._registers = Registers(columns, dictionaries, evaluate)
        self._stores: list[tuple[Input, int, int]] = []
        self._products: list[tuple[Input, list[tuple[int, bool]]]] = []

    @property
    def reads(self) -> list[Column]:
        """The columns that the program reads."""
        return self._registers.reads

    def add(
        self, item: Input, bound: Bound, parts: Callable[[], Mapping[tuple[str, str], SubExpression]] = dict
    ) -> None:
        """Compute one more item, whose sub-expressions are `parts`. Untranslated if that cannot be exact."""
        self._registers.parts, self._registers.settings = parts, item.settings
        if item.kind == "factor" and (item.type == "DOUBLE" or item.type.endswith("]")):
            self._products.append((item, self._registers.factors(bound)))
        else:
            self._stores.append((item, self._registers.value(bound), _reserved(item, bound)))
        if len(self._registers.operations) > _MOST_OPERATIONS:
            raise Untranslated

    def place(self, columns: Mapping[str, int]) -> None:
        """Settle where the words lie: each item at its place, the columns that are read at theirs."""
        self._placed, program = columns, []
        self._laid_out = [_pattern(parts) for parts in self._registers.patterns]
        for register, (kind, a, b, x, y) in enumerate(self._registers.operations):
            if kind in (kernels.LOAD, kernels.LOAD_WIDE):
                a = columns[self._columns[a].name] + b
            elif kind == kernels.LIKE:
                x, y = int(self._laid_out[x][0].ctypes.data), self._dictionaries.varchar.state
            elif kind == kernels.LOOK_UP:
                assert self._registers.memoized is not None
                x = self._registers.memoized.memos[x].address
            program.append((kind, register, a, b, x, y))
        for item, register, reserved in self._stores:
            if item.kind == "factor":
                program.append((kernels.STORE_LIMBS, 0, register, item.place, item.limbs, 0))
            elif item.kind == "key" and item.codec is not None and item.codec.words == 2:
                program.append((kernels.STORE_WIDE, 0, register, item.place, 0, 0))
            else:
                program.append((kernels.STORE, 0, register, item.place, reserved, 0))
        self._room = np.empty(kernels.ROOM * max((item.limbs for item, _ in self._products), default=0), np.int64)
        for item, factors in self._products:
            place = (item.place, item.limbs, item.shift // len(factors))
            program.append((kernels.STORE_PRODUCT, int(self._room.ctypes.data), *place, _fields(factors)))
        self._program = np.array(program, np.int64)
        self._scratch = np.empty(len(self._registers.operations) * kernels.BLOCK, np.int64)
        self._call = int(self._program.ctypes.data), len(program), int(self._scratch.ctypes.data)

    @property
    def call(self) -> tuple[int, int, int]:
        """The address of the operations, their number, and the address of the registers, once it is placed."""
        return self._call

    def run(self, address: int, width: int, rows: int) -> bool:
        """Compute the items of encoded rows of `width` words; False if that must be left to DuckDB. O(rows), and a
        query of DuckDB's if a memo lacks a text."""
        if not _compute(*self._call, address, width, rows):
            return True
        if (memoized := self._registers.memoized) is None:
            return False
        data = words_at(address, rows * width).reshape(rows, width)
        return memoized.learn(data, self._placed) and not _compute(*self._call, address, width, rows)

    def lacks_most(self, rows: int, column: Callable[[str], pa.Array | pa.ChunkedArray]) -> bool:
        """Whether the rows are many, and memos lack texts of their own of most. Looks at a few of them."""
        memoized = self._registers.memoized
        return memoized is not None and memoized.lacks_most(rows, column)

    def release(self) -> None:
        """Let go of the text constants and memos."""
        self._registers.release()


def item_sql(item: Input) -> str:
    """What is computed for an item, as SQL."""
    return f"({item.expression}) IS TRUE" if item.kind == "predicate" else f"({item.expression})"


def _reserved(item: Input, bound: Bound) -> int:
    """The code that no value of an item has. Untranslated if its words are not those of the expression's type."""
    if item.kind == "key":
        if bound.type != item.type or item.codec is None:
            raise Untranslated
        return RESERVED.get(item.type, NULL_CODE)
    if item.kind == "factor" and (bound.type != item.type or scale_of(bound.type) is None):
        raise Untranslated
    return NULL_CODE


def _fields(factors: Sequence[tuple[int, bool]]) -> int:
    """The factors of a product as one word; register 0 is written as 1."""
    fields = 0
    for register, whole in reversed(factors):
        fields = fields << kernels.FIELD | register + 1 | kernels.WHOLE * whole
    return fields - 2**64 if fields >= 2**63 else fields


def _pattern(parts: tuple[bytes, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A pattern as LIKE reads it, and the bytes it points to."""
    first, *between, last = parts
    data = np.frombuffer(b"".join((first, last, *between)) + b"\0", np.uint8)
    words, address = [len(between)], int(data.ctypes.data)
    for part in (first, last, *between):
        words += [address, len(part)]
        address += len(part)
    return np.array(words, np.int64), data

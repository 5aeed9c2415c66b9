"""Filters and computed columns as a program over a row's encoded words, so that no query is needed to compute them.

DuckDB binds every expression; what its bound tree says is translated where our arithmetic gives the very same value.
An expression that is not translated, and rows for which the program refuses (an overflow, say), are left to DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.storage.codecs.bound_tree import Bound, bind
from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.codecs.codec import RESERVED_HIGH
from sqlfront.storage.codecs.encoding import Dictionaries, codec_for
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW
from sqlfront.storage.kernels.programs import expression as kernels

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Column, Input

_compute = entry_point(kernels.compute)

_MOST_OPERATIONS = 1000
_MAX = 2**63 - 1
_DAY = 86_400_000_000
_LAST_DAY = 2**31 - 1  # It stands for infinity, as its opposite does.
_INTEGERS = {"HUGEINT": (-_MAX, _MAX), "BOOLEAN": (0, 1)}
for _bits, _name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INTEGER"), (64, "BIGINT")):
    _INTEGERS[_name] = (-(2 ** (_bits - 1)), 2 ** (_bits - 1) - 1) if _bits < 64 else (-_MAX, _MAX)
    if _bits < 64:
        _INTEGERS["U" + _name] = (0, 2**_bits - 1)
_RESERVED = {"BIGINT": RESERVED_LOW, "UBIGINT": RESERVED_HIGH}
# The types whose codes are ordered as their values, besides numbers.
_ORDERED = {
    *("UBIGINT", "FLOAT", "DOUBLE", "DATE", "TIME", "TIME_NS", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"),
    *("TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"),
}
_EQUALITIES = {
    "=": kernels.EQUAL,
    "<>": kernels.UNEQUAL,
    "IS DISTINCT FROM": kernels.DISTINCT,
    "IS NOT DISTINCT FROM": kernels.NOT_DISTINCT,
}
_ORDERS = {"<": kernels.LESS, "<=": kernels.LESS_EQUAL, ">": kernels.LESS, ">=": kernels.LESS_EQUAL}
_CONNECTIVES = {"AND": kernels.AND, "OR": kernels.OR}
_ARITHMETIC = {"+": kernels.ADD, "-": kernels.SUBTRACT, "*": kernels.MULTIPLY}
# From a constant to what a string begins with, what it has then, one after the other, and what it ends with.
_LIKE: dict[str, Callable[[str], list[str]]] = {
    "prefix": lambda text: [text, ""],
    "contains": lambda text: ["", text, ""],
    "suffix": lambda text: ["", text],
    "starts_with": lambda text: [text, ""],
    "ends_with": lambda text: ["", text],
    "~~": lambda text: text.split("%"),
    "!~~": lambda text: text.split("%"),
}
_EXTREMES = ("greatest", "least")
_CALENDAR = {"year": kernels.YEAR, "month": kernels.MONTH, "day": kernels.DAY}


class Untranslated(Exception):
    """An expression that only DuckDB computes."""


class Expressions:
    """Translates the computed items of one relation; asks DuckDB once for each expression."""

    def __init__(self, columns: Sequence[Column], dictionaries: Dictionaries) -> None:
        self._columns, self._dictionaries = columns, dictionaries
        self._bound: dict[tuple[str, Settings], Bound | None] = {}

    def translate(self, items: Sequence[Input]) -> Computation | None:
        """The program of all these items, not yet placed; None if there are none, or one has to be left to DuckDB."""
        texts = [(item_sql(item), item.settings) for item in items]
        types = {column.name: column.type for column in self._columns}
        self._bound = {text: self._bound[text] if text in self._bound else bind(types, *text) for text in texts}
        if not items or None in self._bound.values():
            return None
        made = Computation(self._columns, self._dictionaries)
        try:
            for item, text in zip(items, texts, strict=True):
                made.add(item, self._bound[text])  # type: ignore[arg-type]
        except Untranslated:
            made.release()
            return None
        return made


class Computation:
    """A program that computes items; `place` it before it runs, `release` the text constants it holds in the end."""

    def __init__(self, columns: Sequence[Column], dictionaries: Dictionaries) -> None:
        self._columns, self._dictionaries = columns, dictionaries
        self._registers: dict[tuple[int, ...], int] = {}
        self._stores: list[tuple[Input, int, int]] = []
        self._pinned: dict[str, int] = {}
        self._patterns: list[tuple[bytes, ...]] = []
        self.reads: list[Column] = []

    def add(self, item: Input, bound: Bound) -> None:
        """Compute one more item. Untranslated if that cannot be exact."""
        register = self._value(bound)
        reserved = NULL_CODE
        if item.kind == "key":
            if bound.type != item.type or item.codec is None or item.codec.words != 1:
                raise Untranslated
            reserved = _RESERVED.get(item.type, NULL_CODE)
        elif item.kind == "factor" and (bound.type != item.type or _scale(bound.type) is None):
            raise Untranslated
        self._stores.append((item, register, reserved))
        if len(self._registers) > _MOST_OPERATIONS:
            raise Untranslated

    def place(self, columns: Mapping[str, int]) -> None:
        """Settle where the words lie: each item at its place, the columns that are read at theirs."""
        program = []
        self._laid_out = [_pattern(parts) for parts in self._patterns]
        for register, (kind, a, b, x, y) in enumerate(self._registers):
            if kind == kernels.LOAD:
                a = columns[self._columns[a].name] + b
            elif kind == kernels.LIKE:
                x, y = int(self._laid_out[x][0].ctypes.data), self._dictionaries.varchar.state
            program.append((kind, register, a, b, x, y))
        for item, register, reserved in self._stores:
            if item.kind == "factor":
                program.append((kernels.STORE_LIMBS, 0, register, item.place, item.limbs, 0))
            else:
                program.append((kernels.STORE, 0, register, item.place, reserved, 0))
        self._program = np.array(program, np.int64)
        self._scratch = np.empty(len(self._registers) * kernels.BLOCK, np.int64)
        self._call = int(self._program.ctypes.data), len(program), int(self._scratch.ctypes.data)

    def run(self, address: int, width: int, rows: int) -> bool:
        """Compute the items of encoded rows of `width` words; False if that must be left to DuckDB. O(rows)."""
        return not _compute(*self._call, address, width, rows)

    def release(self) -> None:
        """Let go of the text constants."""
        for code in self._pinned.values():
            self._dictionaries.varchar.unpin(code)
        self._pinned.clear()

    # Registers: each is the result of one operation, (kind, a, b, x, y), made once ----------------

    def _add(self, kind: int, a: int = 0, b: int = 0, x: int = 0, y: int = 0) -> int:
        return self._registers.setdefault((kind, a, b, x, y), len(self._registers))

    def _word(self, word: int) -> int:
        return self._add(kernels.CONSTANT, x=word)

    def _value(self, bound: Bound) -> int:
        """The register of an expression's value. Untranslated unless its type has codes that we can compute with."""
        if bound.type != "VARCHAR" and bound.type not in _ORDERED and _scale(bound.type) is None:
            raise Untranslated
        if bound.operation == "COLUMN":
            return self._load(bound.value)
        if bound.operation == "CONSTANT":
            return self._constant(bound)
        return self._rule(bound.operation)(bound)

    def _rule(self, operation: str) -> Callable[[Bound], int]:
        if operation in _EQUALITIES or operation in _ORDERS:
            return self._comparison
        if operation in _CONNECTIVES or operation == "NOT":
            return self._connective
        if operation in _ARITHMETIC:
            return self._arithmetic
        if operation in _CALENDAR:
            return self._calendar
        if operation in _LIKE:
            return self._like
        if operation in _EXTREMES:
            return self._extreme
        rules = {
            "date_diff": self._date_difference,
            "datediff": self._date_difference,
            "IN": self._membership,
            "IS NULL": self._nullness,
            "IS NOT NULL": self._nullness,
            "CASE": self._case,
            "COALESCE": self._coalesce,
            "CAST": self._cast,
            "constant_or_null": self._constant_or_null,
        }
        if operation not in rules:
            raise Untranslated
        return rules[operation]

    def _load(self, number: int, word: int | None = None) -> int:
        """A column's only word; or this `word` of it."""
        column = self._columns[number]
        try:
            codec = codec_for(column.type, self._dictionaries)
        except NotSupportedError:
            raise Untranslated from None
        if codec.words != 1 and word is None:
            raise Untranslated
        if column not in self.reads:
            self.reads.append(column)
        return self._add(kernels.LOAD, number, word or 0, x=_RESERVED.get(column.type, NULL_CODE))

    def _constant(self, bound: Bound) -> int:
        value = bound.value
        if value is None:
            return self._word(NULL_CODE)
        if bound.type == "VARCHAR":
            if value not in self._pinned:
                self._pinned[value] = self._dictionaries.varchar.pin(value.encode())
            return self._word(self._pinned[value])
        if bound.type in ("FLOAT", "DOUBLE"):
            return self._word(codec_for("DOUBLE", self._dictionaries).encode_value(float(value))[0])
        code = _whole(value) + (NULL_CODE + 1 if bound.type == "UBIGINT" else 0)
        if not -_MAX <= code <= _MAX:
            raise Untranslated
        return self._word(code)

    def _comparison(self, bound: Bound) -> int:
        left, right = bound.children
        if not _alike(left.type, right.type):
            raise Untranslated
        if left.type == "HUGEINT" and bound.operation in ("=", "<>"):
            column, constant = (right, left) if left.operation == "CONSTANT" else (left, right)
            if column.operation == "COLUMN" and constant.operation == "CONSTANT":
                equal = self._wide_equality(column, constant)
                return equal if bound.operation == "=" else self._add(kernels.NOT, equal)
        if bound.operation in (">", ">="):
            left, right = right, left
        if bound.operation in _ORDERS:
            if left.type == "VARCHAR":
                raise Untranslated
            return self._add(_ORDERS[bound.operation], self._value(left), self._value(right))
        return self._add(_EQUALITIES[bound.operation], self._value(left), self._value(right))

    def _wide_equality(self, column: Bound, constant: Bound) -> int:
        """Whether a column of two words is a constant. Where its second word is another one, the first is compared with
        itself, which tells NULL from false."""
        high, low = codec_for(column.type, self._dictionaries).encode_value(_whole(constant.value))
        first, second = (self._load(column.value, word) for word in range(2))
        unequal = self._add(kernels.UNEQUAL, first, first)
        equal = self._add(kernels.EQUAL, first, self._word(high))
        same = self._add(kernels.NOT_DISTINCT, second, self._word(low))
        return self._add(kernels.SELECT, same, equal, unequal)

    def _connective(self, bound: Bound) -> int:
        if any(child.type != "BOOLEAN" for child in bound.children):
            raise Untranslated
        first, *others = map(self._value, bound.children)
        if bound.operation == "NOT":
            return self._add(kernels.NOT, first)
        for other in others:
            first = self._add(_CONNECTIVES[bound.operation], first, other)
        return first

    def _membership(self, bound: Bound) -> int:
        value, *members = bound.children
        if not all(_alike(value.type, member.type) for member in members):
            raise Untranslated
        found = self._word(0)
        for member in members:
            equal = self._add(kernels.EQUAL, self._value(value), self._value(member))
            found = self._add(kernels.OR, found, equal)
        return found

    def _nullness(self, bound: Bound) -> int:
        (child,) = bound.children
        value = self._load(child.value, 0) if child.operation == "COLUMN" else self._value(child)
        kind = kernels.NOT_DISTINCT if bound.operation == "IS NULL" else kernels.DISTINCT
        return self._add(kind, value, self._word(NULL_CODE))

    def _like(self, bound: Bound) -> int:
        value, pattern = bound.children
        if value.type != "VARCHAR" or pattern.operation != "CONSTANT" or type(pattern.value) is not str:
            raise Untranslated
        parts = _LIKE[bound.operation](pattern.value)
        if len(parts) < 2 or ("~~" in bound.operation and "_" in pattern.value):
            raise Untranslated
        found = tuple(part.encode() for part in parts)
        if found not in self._patterns:
            self._patterns.append(found)
        is_like = self._add(kernels.LIKE, self._value(value), x=self._patterns.index(found))
        return self._add(kernels.NOT, is_like) if bound.operation == "!~~" else is_like

    def _case(self, bound: Bound) -> int:
        *pairs, otherwise = bound.children
        values = [*pairs[1::2], otherwise]
        if not all(_alike(value.type, bound.type) for value in values) or any(c.type != "BOOLEAN" for c in pairs[::2]):
            raise Untranslated
        result = self._value(otherwise)
        for condition, value in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
            result = self._add(kernels.SELECT, self._value(condition), self._value(value), result)
        return result

    def _coalesce(self, bound: Bound) -> int:
        if not all(_alike(child.type, bound.type) for child in bound.children):
            raise Untranslated
        first, *others = map(self._value, bound.children)
        for other in others:
            first = self._add(kernels.COALESCE, first, other)
        return first

    def _constant_or_null(self, bound: Bound) -> int:
        """What DuckDB makes of x * 0."""
        constant, *others = bound.children
        result = self._value(constant)
        for other in others:
            null = self._add(kernels.NOT_DISTINCT, self._value(other), self._word(NULL_CODE))
            result = self._add(kernels.SELECT, null, self._word(NULL_CODE), result)
        return result

    def _arithmetic(self, bound: Bound) -> int:
        scales = [_scale(child.type) for child in bound.children]
        natural = sum(scale or 0 for scale in scales) if bound.operation == "*" else scales[0]
        if None in scales or natural != _scale(bound.type) or (bound.operation != "*" and len({*scales}) > 1):
            raise Untranslated
        *first, last = (self._value(child) for child in bound.children)
        left = first[0] if first else self._word(0)
        return self._add(_ARITHMETIC[bound.operation], left, last, *_bounds(bound.type))

    def _cast(self, bound: Bound) -> int:
        (child,) = bound.children
        value, goal = self._value(child), bound.type
        if child.type == goal or (child.type, goal) == ("FLOAT", "DOUBLE"):
            return value
        if (child.type, goal) == ("DATE", "TIMESTAMP"):
            return self._add(kernels.MULTIPLY, value, self._word(_DAY), -_MAX, _MAX)
        if (child.type, goal) == ("TIMESTAMP", "DATE"):
            return self._day(value)
        before, after = _scale(child.type), _scale(goal)
        if before is None or after is None or not 0 <= after - before <= 18 or goal == "BOOLEAN":
            raise Untranslated
        if (
            before == after
            and _bounds(goal)[0] <= _bounds(child.type)[0]
            and _bounds(child.type)[1] <= _bounds(goal)[1]
        ):
            return value
        return self._add(kernels.MULTIPLY, value, self._word(10 ** (after - before)), *_bounds(goal))

    def _calendar(self, bound: Bound) -> int:
        (child,) = bound.children
        if child.type not in ("DATE", "TIMESTAMP") or bound.type != "BIGINT":
            raise Untranslated
        value = self._value(child)
        return self._add(_CALENDAR[bound.operation], value if child.type == "DATE" else self._day(value))

    def _date_difference(self, bound: Bound) -> int:
        """How many days, months or years begin after one date until another one."""
        unit, *dates = bound.children
        if unit.value not in _CALENDAR or any(date.type not in ("DATE", "TIMESTAMP") for date in dates):
            raise Untranslated
        before, after = (self._since(unit.value, date) for date in dates)
        return self._add(kernels.SUBTRACT, after, before, *_bounds("BIGINT"))

    def _since(self, unit: str, date: Bound) -> int:
        """The number of a date's day, month or year."""
        value = self._value(date)
        if unit == "day":
            return self._day(value) if date.type == "TIMESTAMP" else self._add(kernels.FLOOR, value, x=1, y=_LAST_DAY)
        day = value if date.type == "DATE" else self._day(value)
        year = self._add(kernels.YEAR, day)
        if unit == "year":
            return year
        months = self._add(kernels.MULTIPLY, year, self._word(12), *_bounds("BIGINT"))
        return self._add(kernels.ADD, months, self._add(kernels.MONTH, day), *_bounds("BIGINT"))

    def _extreme(self, bound: Bound) -> int:
        """The greatest or the least of values that are not NULL."""
        if bound.type == "VARCHAR" or not all(_alike(child.type, bound.type) for child in bound.children):
            raise Untranslated
        first, *others = map(self._value, bound.children)
        for other in others:
            pair = (first, other) if bound.operation == "greatest" else (other, first)
            passed = self._add(kernels.LESS, *pair)
            first = self._add(kernels.SELECT, passed, other, self._add(kernels.COALESCE, first, other))
        return first

    def _day(self, timestamp: int) -> int:
        return self._add(kernels.FLOOR, timestamp, x=_DAY, y=_MAX)


def item_sql(item: Input) -> str:
    """What is computed for an item, as SQL."""
    return f"({item.expression}) IS TRUE" if item.kind == "predicate" else f"({item.expression})"


def _pattern(parts: tuple[bytes, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A pattern as LIKE reads it, and the bytes it points to."""
    first, *between, last = parts
    data = np.frombuffer(b"".join((first, last, *between)) + b"\0", np.uint8)
    words, address = [len(between)], int(data.ctypes.data)
    for part in (first, last, *between):
        words += [address, len(part)]
        address += len(part)
    return np.array(words, np.int64), data


def _scale(type: str) -> int | None:
    """How many decimal digits a number's code has behind the point; None if the type is no whole number or decimal."""
    if type in _INTEGERS:
        return 0
    return int(type[8:-1].split(",")[1]) if type.startswith("DECIMAL(") else None


def _bounds(type: str) -> tuple[int, int]:
    """The least and the greatest code of a number's type, as far as they fit a word."""
    if type in _INTEGERS:
        return _INTEGERS[type]
    high = min(10 ** int(type[8:].split(",")[0]) - 1, _MAX)
    return -high, high


def _whole(value: Any) -> int:
    """A whole number as DuckDB stores it in a constant."""
    if isinstance(value, dict):
        value = (value["upper"] << 64) + value["lower"]
    if not isinstance(value, int):
        raise Untranslated
    return int(value)


def _alike(left: str, right: str) -> bool:
    """Whether equal codes of two types mean equal values."""
    if left.startswith("DECIMAL(") and right.startswith("DECIMAL("):
        return _scale(left) == _scale(right)
    return left == right

"""The registers of a compiled expression: the operations that compute its value from the codes of columns.

Each register is the result of one operation, made once. An expression is translated where our arithmetic gives the very
value that DuckDB gives; for any other it is Untranslated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.storage.codecs.bound_tree import Bound, columns_read, meaning
from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.codecs.codec import RESERVED_HIGH
from sqlfront.storage.codecs.encoding import Dictionaries, codec_for
from sqlfront.storage.codecs.types import INTEGERS, alike, bounds, scale_of
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW
from sqlfront.storage.kernels.programs import expression as kernels
from sqlfront.storage.kernels.programs import reals

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Column
    from sqlfront.maintenance.relation.guards import Evaluate
    from sqlfront.maintenance.relation.memoized import Memoized
    from sqlfront.maintenance.relation.time_values import TimeValues
    from sqlfront.storage.codecs.sub_expressions import SubExpression

_MAX = 2**63 - 1
_LARGEST_EXACT = 2**53  # Every whole number up to it is a DOUBLE.
RESERVED = {"BIGINT": RESERVED_LOW, "UBIGINT": RESERVED_HIGH}
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
_REAL = {"+": reals.REAL_ADD, "-": reals.REAL_SUBTRACT, "*": reals.REAL_MULTIPLY, "/": reals.REAL_DIVIDE}
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
TEXTS = ("VARCHAR", "JSON")
"""Types whose codes are equal only if the texts are, byte by byte. Other values in dictionaries may be equal and look
different."""


class Untranslated(Exception):
    """An expression that only DuckDB computes."""


class Registers:
    """The operations of a program, (kind, a, b, x, y), by their registers; `patterns` are those of LIKE, `reads` the
    columns. `release` lets go of the text constants and memos.

    The largest sub-expressions over one text column that have no operations are `memoized`. `parts` are their texts,
    asked for at need, and `settings` those under which DuckDB computes them.
    """

    def __init__(self, columns: Sequence[Column], dictionaries: Dictionaries, evaluate: Evaluate) -> None:
        self._columns, self._dictionaries, self._evaluate = columns, dictionaries, evaluate
        self.memoized: Memoized | None = None
        self.parts: Callable[[], Mapping[tuple[str, str], SubExpression]] = dict
        self.settings: Settings = ()
        self._is_alone = False
        self._pinned: dict[str, int] = {}
        self._loaded: dict[tuple[int, int | None], int] = {}
        self.operations: dict[tuple[int, ...], int] = {}
        self.patterns: list[tuple[bytes, ...]] = []
        self.reads: list[Column] = []

    def release(self) -> None:
        for code in self._pinned.values():
            self._dictionaries.varchar.unpin(code)
        self._pinned.clear()
        if self.memoized is not None:
            self.memoized.release()

    def factors(self, bound: Bound) -> list[tuple[int, bool]]:
        """The registers whose product is stored, and which hold whole numbers; NULL is 0."""
        if bound.operation == "CASE" and len(bound.children) == 3:
            condition, value, otherwise = bound.children
            if condition.type != "BOOLEAN" or otherwise.operation != "CONSTANT" or otherwise.value is not None:
                raise Untranslated
            (first, whole), *others = self.factors(value)
            return [(self.add(kernels.SELECT, self.value(condition), first, self.word(NULL_CODE)), whole), *others]
        if bound.operation == "array_value" and len(bound.children) <= kernels.MOST_FACTORS:
            return [self._factor(child) for child in bound.children]
        return [self._factor(bound)]

    def _factor(self, bound: Bound) -> tuple[int, bool]:
        """A number: a whole one, also as the DOUBLE that it is cast to, or the code of a DOUBLE."""
        if bound.operation == "CAST" and bound.type == "DOUBLE" and bound.children[0].type in INTEGERS:
            value = self.value(bound.children[0])
            return self.add(kernels.ADD, value, self.word(0), -_LARGEST_EXACT, _LARGEST_EXACT), True
        if bound.type not in ("DOUBLE", "HUGEINT"):
            raise Untranslated
        return self.value(bound), bound.type == "HUGEINT"

    def add(self, kind: int, a: int = 0, b: int = 0, x: int = 0, y: int = 0) -> int:
        return self.operations.setdefault((kind, a, b, x, y), len(self.operations))

    def word(self, word: int) -> int:
        return self.add(kernels.CONSTANT, x=word)

    def value(self, bound: Bound) -> int:
        """The register of an expression's value. Untranslated unless its type has codes that we can compute with."""
        if bound.type != "VARCHAR" and bound.type not in _ORDERED and scale_of(bound.type) is None:
            raise Untranslated
        if bound.operation == "COLUMN":
            return self._load(bound.value)
        if bound.operation == "CONSTANT":
            return self._constant(bound)
        if self._is_alone or (source := self._only_text(bound)) is None:
            return self._rule(bound.operation)(bound)
        kept = len(self.operations), len(self.patterns), len(self.reads)
        self._is_alone = True
        try:
            return self._rule(bound.operation)(bound)
        except Untranslated:
            self._forget(*kept)
        finally:
            self._is_alone = False
        return self._memo(bound, source)

    def _only_text(self, bound: Bound) -> Column | None:
        """The text column that is all that an expression reads; None for any other expression."""
        read = columns_read(bound.tree)
        column = self._columns[read.pop()] if len(read) == 1 else None
        return column if column is not None and column.type in TEXTS else None

    def _forget(self, operations: int, patterns: int, reads: int) -> None:
        """Go back to so many operations, patterns and columns."""
        while len(self.operations) > operations:
            self.operations.popitem()
        del self.patterns[patterns:], self.reads[reads:]
        self._loaded = {key: register for key, register in self._loaded.items() if register < operations}

    def _memo(self, bound: Bound, source: Column) -> int:
        """The register of what DuckDB computes for each text, or that of what is made of such."""
        part = self.parts().get((source.name, meaning(bound.tree)))
        if part is None:
            return self._rule(bound.operation)(bound)
        if self.memoized is None:
            from sqlfront.maintenance.relation.memoized import Memoized  # Most views need none.

            self.memoized = Memoized(self._dictionaries, self._evaluate)
        absent = RESERVED.get(bound.type, RESERVED_LOW)
        number = self.memoized.open(source, part, bound.type, self.settings, absent)
        return self.add(kernels.LOOK_UP, self._load(self._columns.index(source)), x=number, y=absent)

    def _rule(self, operation: str) -> Callable[[Bound], int]:
        if operation in _EQUALITIES or operation in _ORDERS:
            return self._comparison
        if operation in _CONNECTIVES or operation == "NOT":
            return self._connective
        if operation in _REAL:
            return self._arithmetic
        if operation in _LIKE:
            return self._like
        if operation in _EXTREMES:
            return self._extreme
        rules = {
            "&": self._bits,
            "//": self._quotient,
            "%": self._remainder,
            "abs": self._absolute,
            "isfinite": self._finiteness,
            "isnan": self._finiteness,
            "IN": self._membership,
            "IS NULL": self._nullness,
            "IS NOT NULL": self._nullness,
            "CASE": self._case,
            "COALESCE": self._coalesce,
            "CAST": self._cast,
            "constant_or_null": self._constant_or_null,
        }
        found = rules.get(operation) or self._times.rules.get(operation)
        if found is None:
            raise Untranslated
        return found

    @functools.cached_property
    def _times(self) -> TimeValues:
        from sqlfront.maintenance.relation.time_values import TimeValues  # Most views compute none.

        return TimeValues(self)

    def _load(self, number: int, word: int | None = None) -> int:
        """A column's only word, or the number that it has in two; or this `word` of it."""
        if (number, word) not in self._loaded:
            self._loaded[number, word] = self._load_anew(number, word)
        return self._loaded[number, word]

    def _load_anew(self, number: int, word: int | None) -> int:
        column = self._columns[number]
        try:
            codec = codec_for(column.type, self._dictionaries)
        except NotSupportedError:
            raise Untranslated from None
        is_wide = codec.words != 1 and word is None
        if is_wide and scale_of(column.type) is None:
            raise Untranslated
        if column not in self.reads:
            self.reads.append(column)
        if is_wide:
            return self.add(kernels.LOAD_WIDE, number)
        return self.add(kernels.LOAD, number, word or 0, x=RESERVED.get(column.type, NULL_CODE))

    def _code(self, number: float) -> int:
        return codec_for("DOUBLE", self._dictionaries).encode_value(number)[0]

    def _constant(self, bound: Bound) -> int:
        value = bound.value
        if value is None:
            return self.word(NULL_CODE)
        if bound.type == "VARCHAR":
            if value not in self._pinned:
                self._pinned[value] = self._dictionaries.varchar.pin(value.encode())
            return self.word(self._pinned[value])
        if bound.type in ("FLOAT", "DOUBLE"):
            return self.word(self._code(float(value)))
        code = _whole(value) + (NULL_CODE + 1 if bound.type == "UBIGINT" else 0)
        if not -_MAX <= code <= _MAX:
            raise Untranslated
        return self.word(code)

    def _comparison(self, bound: Bound) -> int:
        left, right = bound.children
        if not alike(left.type, right.type):
            raise Untranslated
        if left.type == "HUGEINT" and bound.operation in ("=", "<>"):
            column, constant = (right, left) if left.operation == "CONSTANT" else (left, right)
            if column.operation == "COLUMN" and constant.operation == "CONSTANT":
                equal = self._wide_equality(column, constant)
                return equal if bound.operation == "=" else self.add(kernels.NOT, equal)
        if bound.operation in (">", ">="):
            left, right = right, left
        if bound.operation in _ORDERS:
            if left.type == "VARCHAR":
                raise Untranslated
            return self.add(_ORDERS[bound.operation], self.value(left), self.value(right))
        return self.add(_EQUALITIES[bound.operation], self.value(left), self.value(right))

    def _wide_equality(self, column: Bound, constant: Bound) -> int:
        """Whether a column of two words is a constant. Where its second word is another one, the first is compared with
        itself, which tells NULL from false."""
        high, low = codec_for(column.type, self._dictionaries).encode_value(_whole(constant.value))
        first, second = (self._load(column.value, word) for word in range(2))
        unequal = self.add(kernels.UNEQUAL, first, first)
        equal = self.add(kernels.EQUAL, first, self.word(high))
        same = self.add(kernels.NOT_DISTINCT, second, self.word(low))
        return self.add(kernels.SELECT, same, equal, unequal)

    def _connective(self, bound: Bound) -> int:
        if any(child.type != "BOOLEAN" for child in bound.children):
            raise Untranslated
        first, *others = map(self.value, bound.children)
        if bound.operation == "NOT":
            return self.add(kernels.NOT, first)
        for other in others:
            first = self.add(_CONNECTIVES[bound.operation], first, other)
        return first

    def _membership(self, bound: Bound) -> int:
        value, *members = bound.children
        if not all(alike(value.type, member.type) for member in members):
            raise Untranslated
        found = self.word(0)
        for member in members:
            equal = self.add(kernels.EQUAL, self.value(value), self.value(member))
            found = self.add(kernels.OR, found, equal)
        return found

    def _bits(self, bound: Bound) -> int:
        if not all(alike(child.type, bound.type) for child in bound.children) or bound.type not in INTEGERS:
            raise Untranslated
        left, right = map(self.value, bound.children)
        return self.add(kernels.BITS, left, right, *bounds(bound.type))

    def _quotient(self, bound: Bound) -> int:
        """A whole number divided by a positive constant, without the rest."""
        number, constant = bound.children
        is_positive = constant.operation == "CONSTANT" and constant.value is not None and _whole(constant.value) > 0
        if not is_positive or not all(child.type == bound.type in INTEGERS for child in bound.children):
            raise Untranslated
        divisor, zero, value = _whole(constant.value), self.word(0), self.value(number)
        if divisor > _MAX or bound.type in ("UBIGINT", "UHUGEINT"):
            raise Untranslated
        positive = self.add(kernels.FLOOR, value, x=divisor, y=_MAX)
        opposite = self.add(kernels.SUBTRACT, zero, value, -_MAX, _MAX)
        negative = self.add(kernels.FLOOR, opposite, x=divisor, y=_MAX)
        negative = self.add(kernels.SUBTRACT, zero, negative, -_MAX, _MAX)
        return self.add(kernels.SELECT, self.add(kernels.LESS, value, zero), negative, positive)

    def _remainder(self, bound: Bound) -> int:
        """What a whole number has beyond a multiple of a positive constant, with the number's sign."""
        number, constant = bound.children
        quotient = self._quotient(bound)
        multiple = self.add(kernels.MULTIPLY, quotient, self.value(constant), -_MAX, _MAX)
        return self.add(kernels.SUBTRACT, self.value(number), multiple, -_MAX, _MAX)

    def _absolute(self, bound: Bound) -> int:
        (child,) = bound.children
        if child.type != bound.type or scale_of(bound.type) is None or bound.type == "BOOLEAN":
            raise Untranslated
        value, zero = self.value(child), self.word(0)
        opposite = self.add(kernels.SUBTRACT, zero, value, *bounds(bound.type))
        return self.add(kernels.SELECT, self.add(kernels.LESS, value, zero), opposite, value)

    def _finiteness(self, bound: Bound) -> int:
        """Whether a DOUBLE is between the infinities; whether it is behind the greater one, as NaN is."""
        (child,) = bound.children
        if child.operation == "CAST" and child.children[0].type in INTEGERS:
            value = self.value(child.children[0])
            return self.add(kernels.EQUAL if bound.operation == "isfinite" else kernels.UNEQUAL, value, value)
        value = self.value(child)
        if child.type not in ("FLOAT", "DOUBLE"):
            raise Untranslated
        least, greatest = (self.word(self._code(infinity)) for infinity in (-math.inf, math.inf))
        if bound.operation == "isnan":
            return self.add(kernels.LESS, greatest, value)
        above, below = self.add(kernels.LESS, least, value), self.add(kernels.LESS, value, greatest)
        return self.add(kernels.AND, above, below)

    def _nullness(self, bound: Bound) -> int:
        (child,) = bound.children
        value = self._load(child.value, 0) if child.operation == "COLUMN" else self.value(child)
        kind = kernels.NOT_DISTINCT if bound.operation == "IS NULL" else kernels.DISTINCT
        return self.add(kind, value, self.word(NULL_CODE))

    def _like(self, bound: Bound) -> int:
        value, pattern = bound.children
        if value.type != "VARCHAR" or pattern.operation != "CONSTANT" or type(pattern.value) is not str:
            raise Untranslated
        parts = _LIKE[bound.operation](pattern.value)
        if len(parts) < 2 or ("~~" in bound.operation and "_" in pattern.value):
            raise Untranslated
        found = tuple(part.encode() for part in parts)
        if found not in self.patterns:
            self.patterns.append(found)
        is_like = self.add(kernels.LIKE, self.value(value), x=self.patterns.index(found))
        return self.add(kernels.NOT, is_like) if bound.operation == "!~~" else is_like

    def _case(self, bound: Bound) -> int:
        *pairs, otherwise = bound.children
        values = [*pairs[1::2], otherwise]
        if not all(alike(value.type, bound.type) for value in values) or any(c.type != "BOOLEAN" for c in pairs[::2]):
            raise Untranslated
        result = self.value(otherwise)
        for condition, value in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
            result = self.add(kernels.SELECT, self.value(condition), self.value(value), result)
        return result

    def _coalesce(self, bound: Bound) -> int:
        if not all(alike(child.type, bound.type) for child in bound.children):
            raise Untranslated
        first, *others = map(self.value, bound.children)
        for other in others:
            first = self.add(kernels.COALESCE, first, other)
        return first

    def _constant_or_null(self, bound: Bound) -> int:
        """What DuckDB makes of x * 0."""
        constant, *others = bound.children
        result = self.value(constant)
        for other in others:
            null = self.add(kernels.NOT_DISTINCT, self.value(other), self.word(NULL_CODE))
            result = self.add(kernels.SELECT, null, self.word(NULL_CODE), result)
        return result

    def _arithmetic(self, bound: Bound) -> int:
        if bound.type == "DOUBLE" and all(child.type == "DOUBLE" for child in bound.children):
            *first, last = map(self.value, bound.children)
            return self.add(_REAL[bound.operation], first[0] if first else self.word(0), last)
        if bound.operation in ("+", "-") and bound.children[0].type in ("DATE", "TIMESTAMP"):
            return self._times.shifted(bound)
        if bound.operation not in _ARITHMETIC:
            raise Untranslated
        scales = [scale_of(child.type) for child in bound.children]
        natural = sum(scale or 0 for scale in scales) if bound.operation == "*" else scales[0]
        if None in scales or natural != scale_of(bound.type) or (bound.operation != "*" and len({*scales}) > 1):
            raise Untranslated
        *first, last = (self.value(child) for child in bound.children)
        left = first[0] if first else self.word(0)
        return self.add(_ARITHMETIC[bound.operation], left, last, *bounds(bound.type))

    def _cast(self, bound: Bound) -> int:
        (child,) = bound.children
        value, goal = self.value(child), bound.type
        if child.type == goal or (child.type, goal) == ("FLOAT", "DOUBLE"):
            return value
        if (child.type, goal) == ("DATE", "TIMESTAMP"):
            return self._times.of_day(value)
        if (child.type, goal) == ("TIMESTAMP", "DATE"):
            return self._times.day_of(value)
        before, after = scale_of(child.type), scale_of(goal)
        if goal == "DOUBLE" and before is not None and before <= 18 and child.type != "BOOLEAN":
            return self.add(reals.TO_REAL, value, x=10**before)
        if before is None or after is None or not 0 <= after - before <= 18 or goal == "BOOLEAN":
            raise Untranslated
        if before == after and bounds(goal)[0] <= bounds(child.type)[0] and bounds(child.type)[1] <= bounds(goal)[1]:
            return value
        return self.add(kernels.MULTIPLY, value, self.word(10 ** (after - before)), *bounds(goal))

    def _extreme(self, bound: Bound) -> int:
        """The greatest or the least of values that are not NULL."""
        if bound.type == "VARCHAR" or not all(alike(child.type, bound.type) for child in bound.children):
            raise Untranslated
        first, *others = map(self.value, bound.children)
        for other in others:
            pair = (first, other) if bound.operation == "greatest" else (other, first)
            passed = self.add(kernels.LESS, *pair)
            first = self.add(kernels.SELECT, passed, other, self.add(kernels.COALESCE, first, other))
        return first


def _whole(value: Any) -> int:
    """A whole number as DuckDB stores it in a constant."""
    if isinstance(value, dict):
        value = (value["upper"] << 64) + value["lower"]
    if not isinstance(value, int):
        raise Untranslated
    return int(value)

"""Compiled expressions of dates and times: their parts, the periods that they are in, differences, shifts.

A DATE's code is its day, counted from 1970, a TIMESTAMP's its microsecond. Infinite ones are refused, so that DuckDB
says what is made of them.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlfront.maintenance.relation.registers import Registers, Untranslated
from sqlfront.storage.codecs.bound_tree import Bound
from sqlfront.storage.kernels.programs import expression as kernels

_MAX = 2**63 - 1
_DAY = 86_400_000_000
_LAST_DAY = 2**31 - 1
"""It stands for infinity, as its opposite does."""
_LENGTHS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": _DAY,
}  # fmt: skip
_BUCKETS_BEGIN = 10_959 * _DAY
"""2000-01-03, a Monday: where time_bucket begins a bucket if the query does not say."""
_CALENDAR = {"year": kernels.YEAR, "month": kernels.MONTH, "day": kernels.DAY}
_PERIODS = (*_LENGTHS, "week", "month", "quarter", "year")
_NAMES = {name + ending: name for name in _PERIODS for ending in ("", "s")}


class TimeValues:
    """The registers of expressions of dates and times."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers

    @property
    def rules(self) -> dict[str, Callable[[Bound], int]]:
        """What translates a function, by its name."""
        parts = ("year", "month", "day", "quarter", "hour", "minute", "second", "dayofyear")
        return {
            **dict.fromkeys((*parts, "dayofweek", "weekday", "isodow"), self._part),
            "date_trunc": self._truncated,
            "datetrunc": self._truncated,
            "time_bucket": self._bucket,
            "epoch_us": self._microseconds,
            "date_diff": self._difference,
            "datediff": self._difference,
        }

    def of_day(self, day: int) -> int:
        """The timestamp at which a day begins."""
        return self._times(day, _DAY)

    def day_of(self, timestamp: int) -> int:
        return self._floor(timestamp, _DAY)

    def shifted(self, bound: Bound) -> int:
        """A date or timestamp, and days or an interval of a fixed length more or less; days between two dates."""
        left, right = bound.children
        add = self._plus if bound.operation == "+" else self._minus
        kinds = left.type, right.type, bound.type
        if kinds == ("DATE", "DATE", "BIGINT") and bound.operation == "-":
            return self._minus(self._days(left), self._days(right))
        if bound.type == "DATE" and left.type == "DATE" and right.type == "INTEGER":
            days = self._registers.value(right)
            return self._within(add(self._days(left), days), _LAST_DAY - 1)
        if kinds != ("TIMESTAMP", "INTERVAL", "TIMESTAMP"):
            raise Untranslated
        moved = add(self._microsecond(left), self._registers.word(_length_of(right)))
        return self._within(moved, _MAX - 1)

    # Inside ------------------------------------------------------------------------------------

    def _days(self, bound: Bound) -> int:
        """The day of a date or timestamp."""
        if bound.type == "TIMESTAMP":
            return self.day_of(self._registers.value(bound))
        if bound.type != "DATE":
            raise Untranslated
        return self._floor(self._registers.value(bound), 1, _LAST_DAY)

    def _microsecond(self, bound: Bound) -> int:
        """The microsecond of a date or timestamp."""
        if bound.type == "TIMESTAMP":
            return self._floor(self._registers.value(bound), 1)
        return self.of_day(self._days(bound))

    def _microseconds(self, bound: Bound) -> int:
        [timestamp] = bound.children
        if timestamp.type != "TIMESTAMP":
            raise Untranslated
        return self._microsecond(timestamp)

    def _part(self, bound: Bound) -> int:
        """A part of a date or timestamp, a number."""
        [child] = bound.children
        if bound.type != "BIGINT":
            raise Untranslated
        part = bound.operation
        if part in ("hour", "minute", "second"):
            passed = self._floor(self._rest(self._microsecond(child), _DAY), _LENGTHS[part])
            return passed if part == "hour" else self._rest(passed, 60)
        day = self._days(child)
        if part in _CALENDAR:
            return self._registers.add(_CALENDAR[part], day)
        if part == "quarter":
            return self._floor(self._plus(self._registers.add(kernels.MONTH, day), self._registers.word(2)), 3)
        if part == "dayofyear":
            return self._plus(self._minus(day, self._year_begins(day)), self._registers.word(1))
        if part == "isodow":
            return self._plus(self._rest(self._plus(day, self._registers.word(3)), 7), self._registers.word(1))
        return self._rest(self._plus(day, self._registers.word(4)), 7)  # From Sunday, which is 0.

    def _truncated(self, bound: Bound) -> int:
        """The timestamp at which the period of a date or timestamp begins."""
        unit, moment = bound.children
        period = _NAMES.get(str(unit.value).lower()) if unit.operation == "CONSTANT" else None
        if period is None or bound.type != "TIMESTAMP":
            raise Untranslated
        if period in _LENGTHS:
            return self._times(self._floor(self._microsecond(moment), _LENGTHS[period]), _LENGTHS[period])
        return self.of_day(self._begin(self._days(moment), period))

    def _begin(self, day: int, period: str) -> int:
        """The day on which the period of a day begins."""
        if period == "year":
            return self._year_begins(day)
        if period == "week":
            return self._minus(day, self._rest(self._plus(day, self._registers.word(3)), 7))
        add, word = self._registers.add, self._registers.word
        found = self._month_begins(day)
        if period == "quarter":
            within = self._rest(self._minus(add(kernels.MONTH, day), word(1)), 3)
            for passed in (1, 2):
                before = self._month_begins(self._minus(found, word(1)))
                found = add(kernels.SELECT, add(kernels.LESS_EQUAL, word(passed), within), before, found)
        return found

    def _month_begins(self, day: int) -> int:
        passed = self._minus(self._registers.add(kernels.DAY, day), self._registers.word(1))
        return self._minus(day, passed)

    def _year_begins(self, day: int) -> int:
        """Days from 1970 to a year: 365 for each, and one for each leap year."""
        year, word = self._registers.add(kernels.YEAR, day), self._registers.word
        found = self._times(self._minus(year, word(1970)), 365)
        for every, since, add in ((4, 1969, self._plus), (100, 1901, self._minus), (400, 1601, self._plus)):
            found = add(found, self._floor(self._minus(year, word(since)), every))
        return found

    def _bucket(self, bound: Bound) -> int:
        """The begin of a bucket of a fixed length."""
        width, moment, *origin = bound.children
        length = _length_of(width)
        begin = self._registers.word(_BUCKETS_BEGIN)
        if origin:
            if moment.type != "TIMESTAMP" or origin[0].type != "TIMESTAMP":
                raise Untranslated
            begin = self._microsecond(origin[0])
        if length <= 0 or bound.type not in ("DATE", "TIMESTAMP"):
            raise Untranslated
        passed = self._times(self._floor(self._minus(self._microsecond(moment), begin), length), length)
        found = self._plus(passed, begin)
        return self.day_of(found) if bound.type == "DATE" else found

    def _difference(self, bound: Bound) -> int:
        """How many days, months or years begin after one date until another one."""
        unit, *dates = bound.children
        if unit.value not in _CALENDAR:
            raise Untranslated
        before, after = (self._since(unit.value, self._days(date)) for date in dates)
        return self._minus(after, before)

    def _since(self, unit: str, day: int) -> int:
        """The number of a day, or of its month or year."""
        if unit == "day":
            return day
        year = self._registers.add(kernels.YEAR, day)
        return year if unit == "year" else self._plus(self._times(year, 12), self._registers.add(kernels.MONTH, day))

    def _floor(self, value: int, divisor: int, infinite: int = _MAX) -> int:
        return self._registers.add(kernels.FLOOR, value, x=divisor, y=infinite)

    def _rest(self, value: int, divisor: int) -> int:
        """What is left of a value above a multiple of the divisor."""
        return self._minus(value, self._times(self._floor(value, divisor), divisor))

    def _times(self, value: int, factor: int) -> int:
        return self._registers.add(kernels.MULTIPLY, value, self._registers.word(factor), -_MAX + 1, _MAX - 1)

    def _plus(self, left: int, right: int) -> int:
        return self._registers.add(kernels.ADD, left, right, -_MAX + 1, _MAX - 1)

    def _minus(self, left: int, right: int) -> int:
        return self._registers.add(kernels.SUBTRACT, left, right, -_MAX + 1, _MAX - 1)

    def _within(self, value: int, most: int) -> int:
        return self._registers.add(kernels.ADD, value, self._registers.word(0), -most, most)


def _length_of(bound: Bound) -> int:
    """The microseconds of an interval that is a constant without months."""
    value = bound.value
    if bound.operation != "CONSTANT" or bound.type != "INTERVAL" or value is None or value["months"]:
        raise Untranslated
    return int(value["days"]) * _DAY + int(value["micros"])

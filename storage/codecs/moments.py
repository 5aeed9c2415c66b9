"""Statistics of exact sums of powers: VAR_POP, CORR, SKEWNESS and their like.

A *moment* is the sum, over the rows of a group, of a product of powers of the arguments. The moments are exact integers
in one unit, so a statistic is a quotient of integers, or the root of one. It is rounded once, to the nearest DOUBLE:
deletes leave no drift, and no digits cancel. O(1) big-integer operations a group.

DuckDB's own updates of floating states round at every row. NULL, NaN and the errors here are DuckDB's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sqlfront.storage.errors import DataError

Powers = tuple[int, ...]
"""The power of each argument in a moment."""


@dataclass(frozen=True)
class Group:
    """The moments of one group of `count` rows, none of whose arguments is NULL, in the unit 1 / `unit`.

    A moment is over the rows where its own arguments are finite; `wild` says which arguments are not, in some row.
    """

    count: int
    moments: Mapping[Powers, int]
    unit: int
    wild: tuple[bool, ...]

    def spread(self, argument: int = 0) -> int:
        """count^2 times the population variance of an argument."""
        first = tuple(int(number == argument) for number in range(len(self.wild)))
        return self.count * self.moments[tuple(2 * power for power in first)] - self.moments[first] ** 2

    def joint(self) -> int:
        """count^2 times the population covariance of both arguments."""
        return self.count * self.moments[1, 1] - self.moments[1, 0] * self.moments[0, 1]

    def is_constant(self, argument: int) -> bool:
        """Whether DuckDB's variance of an argument is 0: it is for a single row, whatever its value."""
        return self.count == 1 or (not self.wild[argument] and self.spread(argument) == 0)


def _variance(group: Group, divisor: int, alone: float | None) -> tuple[int, int] | float | None:
    """The variance as a quotient, with n * `divisor` as denominator; that of a single row is `alone`."""
    if group.count == 1:
        return alone
    return math.nan if group.wild[0] else (group.spread(), group.count * divisor * group.unit**2)


def _var_pop(group: Group) -> float | None:
    return _of(_variance(group, group.count, 0.0), quotient)


def _var_samp(group: Group) -> float | None:
    return _of(_variance(group, group.count - 1, None), quotient)


def _stddev_pop(group: Group) -> float | None:
    return _of(_variance(group, group.count, 0.0), root)


def _stddev_samp(group: Group) -> float | None:
    return _of(_variance(group, group.count - 1, None), root)


def _sem(group: Group) -> float | None:
    return math.nan if group.wild[0] else root(group.spread(), group.count**3 * group.unit**2)


def _skewness(group: Group) -> float | None:
    n = group.count
    if n <= 2 or _is_flat(group, "SKEWNESS"):
        return None
    s1, s2, s3 = (group.moments[power,] for power in (1, 2, 3))
    third, spread = n * n * s3 - 3 * n * s1 * s2 + 2 * s1**3, group.spread()
    return _signed_root(third, n * (n - 1), (n - 2) ** 2 * spread**3)


def _kurtosis(group: Group) -> float | None:
    n = group.count
    if n <= 3 or _is_flat(group, "KURTOSIS"):
        return None
    fourth, square = _fourth(group), group.spread() ** 2
    return quotient((n - 1) * ((n + 1) * fourth - 3 * (n - 1) * square), (n - 2) * (n - 3) * square)


def _kurtosis_pop(group: Group) -> float | None:
    if group.count <= 1 or _is_flat(group, "KURTOSIS_POP"):
        return None
    square = group.spread() ** 2
    return quotient(_fourth(group) - 3 * square, square)


def _fourth(group: Group) -> int:
    """count^4 times the fourth central moment."""
    n = group.count
    s1, s2, s3, s4 = (group.moments[power,] for power in (1, 2, 3, 4))
    return int(n**3 * s4 - 4 * n * n * s1 * s3 + 6 * n * s1 * s1 * s2 - 3 * s1**4)


def _is_flat(group: Group, function: str) -> bool:
    """Whether all values are equal. DataError for NaN and infinities, which DuckDB refuses here."""
    if group.wild[0]:
        hint = "filter them out: FILTER (WHERE isfinite(...))"
        raise DataError(f"{function} of NaN or an infinity", why="DuckDB calls it out of range", hint=hint)
    return group.spread() == 0


def _covar_pop(group: Group) -> float | None:
    return math.nan if any(group.wild) else quotient(group.joint(), group.count**2 * group.unit**2)


def _covar_samp(group: Group) -> float | None:
    if group.count == 1:
        return None
    return math.nan if any(group.wild) else quotient(group.joint(), group.count * (group.count - 1) * group.unit**2)


def _corr(group: Group) -> float | None:
    if any(group.wild) or group.is_constant(0) or group.is_constant(1):
        return math.nan
    return _signed_root(group.joint(), 1, group.spread(0) * group.spread(1))


def _regr_slope(group: Group) -> float | None:
    if any(group.wild) or group.is_constant(1):
        return math.nan
    return quotient(group.joint(), group.spread(1))


def _regr_intercept(group: Group) -> float | None:
    if any(group.wild) or group.is_constant(1):
        return None
    y, x, spread = group.moments[1, 0], group.moments[0, 1], group.spread(1)
    return quotient(y * spread - x * group.joint(), group.count * spread * group.unit)


def _regr_r2(group: Group) -> float | None:
    if group.is_constant(1):
        return None
    if group.is_constant(0):
        return 1.0
    return math.nan if any(group.wild) else quotient(group.joint() ** 2, group.spread(0) * group.spread(1))


def _regr_syy(group: Group) -> float | None:
    return _deviations(group, 0)


def _regr_sxx(group: Group) -> float | None:
    return _deviations(group, 1)


def _deviations(group: Group, argument: int) -> float:
    """The sum of the squared deviations from the mean."""
    if group.count == 1:
        return 0.0
    return math.nan if group.wild[argument] else quotient(group.spread(argument), group.count * group.unit**2)


def _regr_sxy(group: Group) -> float | None:
    return math.nan if any(group.wild) else quotient(group.joint(), group.count * group.unit**2)


_BOTH = ((1, 0), (0, 1), (1, 1))
_Y, _X = (2, 0), (0, 2)
_Statistic = tuple[tuple[Powers, ...], Callable[[Group], float | None]]
_STATISTICS: dict[str, _Statistic] = {
    "var_pop": (((1,), (2,)), _var_pop),
    "var_samp": (((1,), (2,)), _var_samp),
    "variance": (((1,), (2,)), _var_samp),
    "stddev_pop": (((1,), (2,)), _stddev_pop),
    "stddev_samp": (((1,), (2,)), _stddev_samp),
    "stddev": (((1,), (2,)), _stddev_samp),
    "sem": (((1,), (2,)), _sem),
    "skewness": (((1,), (2,), (3,)), _skewness),
    "kurtosis": (((1,), (2,), (3,), (4,)), _kurtosis),
    "kurtosis_pop": (((1,), (2,), (3,), (4,)), _kurtosis_pop),
    "covar_pop": (_BOTH, _covar_pop),
    "covar_samp": (_BOTH, _covar_samp),
    "corr": ((*_BOTH, _Y, _X), _corr),
    "regr_slope": ((*_BOTH, _X), _regr_slope),
    "regr_intercept": ((*_BOTH, _X), _regr_intercept),
    "regr_r2": ((*_BOTH, _Y, _X), _regr_r2),
    "regr_sxx": (((0, 1), _X), _regr_sxx),
    "regr_sxy": (_BOTH, _regr_sxy),
    "regr_syy": (((1, 0), _Y), _regr_syy),
}
MOMENTS: Mapping[str, tuple[Powers, ...]] = {name: moments for name, (moments, _) in _STATISTICS.items()}
"""The moments of which each statistic is made; those of two arguments are of (y, x), in the order of the call."""

UNITLESS = ("corr", "regr_r2", "skewness", "kurtosis", "kurtosis_pop")
"""Statistics that stay the same when their arguments are measured in another unit."""


def decode_statistic(
    name: str, counts: np.ndarray, moments: Mapping[Powers, Sequence[int]], unit: int, wild: Sequence[np.ndarray]
) -> pa.Array:
    """A statistic of each group, a DOUBLE, from its number of rows, its moments in the unit 1 / `unit`, and the numbers
    of rows in which each argument is NaN or an infinity. NULL for a group without rows. DataError where DuckDB fails.
    """
    keys, value = list(moments), _STATISTICS[name][1]
    arguments = len(keys[0])
    rows = zip(counts.tolist(), zip(*moments.values()), zip(*wild) if wild else [()] * len(counts))
    found = [
        value(Group(count, dict(zip(keys, sums)), unit, tuple(map(bool, outside)) or (False,) * arguments))
        if count
        else None
        for count, sums, outside in rows
    ]
    return pa.array(found, pa.float64())


def quotient(numerator: int, denominator: int) -> float:
    """The DOUBLE nearest to a quotient of integers; the denominator is greater than 0."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def root(numerator: int, denominator: int) -> float:
    """The DOUBLE nearest to the root of a quotient of integers of 0 or more."""
    missing = 2 * _DIGITS - numerator.bit_length() + denominator.bit_length()
    places = max(missing // 2 + 1, 0)
    whole, rest = divmod(numerator << 2 * places, denominator)
    found = math.isqrt(whole)
    # The last bit stands for all that follow: at least _DIGITS are before it, so it decides no rounding but of ties.
    inexact = rest != 0 or found * found != whole
    return quotient(2 * found + inexact, 2 << places)


_DIGITS = 56


def _signed_root(value: int, numerator: int, denominator: int) -> float:
    """value * root(numerator / denominator), rounded once."""
    found = root(value * value * numerator, denominator)
    return -found if value < 0 else found


def _of(found: tuple[int, int] | float | None, rounded: Callable[[int, int], float]) -> float | None:
    return rounded(*found) if isinstance(found, tuple) else found

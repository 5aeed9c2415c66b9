"""Raw columns that are made of sums, of groups or of frames: counts, sums, averages and statistics, as Arrow. But for
statistics, also as the Python values that DuckDB gives for them, for small reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlfront.maintenance.program.rows import whole_numbers
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.ranked.exact import BeyondTypeError
from sqlfront.planner.model.query import RawColumn
from sqlfront.planner.model.raw_column import Terms
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.fixed import float_codes
from sqlfront.storage.codecs.moments import decode_statistic
from sqlfront.storage.codecs.sums import averages, combine, decode_avg, decode_sum, to_integers, with_specials
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW

SUMS = {"BIGINT": 63, "HUGEINT": 127}
"""The bits of a sum that is a whole number, without its sign."""


@dataclass
class Sums:
    """The sums of some rows: `parts` are those of the measures by their numbers, `shift` is the binary scale of a part,
    `values` has it for each row, shape (rows, limbs)."""

    parts: Sequence[Part]
    shift: Callable[[Part], int]
    values: Callable[[Part], np.ndarray]

    def numbers(self, measure: int) -> np.ndarray:
        """A measure's values as int64. DataError if one is beyond that."""
        return whole_numbers(self.values(self.parts[measure]))

    def counts(self, terms: Terms) -> np.ndarray:
        """The sums of coefficients times measures that count, as int64. DataError if one is beyond that."""
        return whole_numbers(self.total(terms)[0])

    def total(self, terms: Terms) -> tuple[np.ndarray, int]:
        """The sums of coefficients times measures, in the unit 2^-shift, and the shift."""
        if len(terms) == 1 and terms[0][0] == 1:
            part = self.parts[terms[0][1]]
            return self.values(part), self.shift(part)
        parts = [(coefficient, self.parts[measure]) for coefficient, measure in terms]
        shift = max((self.shift(part) for _, part in parts), default=0)
        return combine([(number << (shift - self.shift(part)), self.values(part)) for number, part in parts]), shift


def is_plain_sum(raw: RawColumn) -> bool:
    """Whether a raw column is one that `plain_sums` gives."""
    return raw.kind in ("sum", "count") and raw.type in SUMS and raw.specials is None


def plain_sums(raw: RawColumn, parts: Sequence[Part], values: Callable[[Part], np.ndarray]) -> list[Any]:
    """A sum or count, whose measures have these parts, from the values of parts, shape (rows, limbs). BeyondTypeError
    for a sum that does not fit its type, which DuckDB then says."""
    bound = 2 ** SUMS[raw.type]
    columns = [(coefficient, to_integers(values(parts[measure]))) for coefficient, measure in raw.terms]
    if len(columns) == 1 and columns[0][0] == 1:
        totals = columns[0][1]
    else:
        totals = [
            sum(coefficient * number for (coefficient, _), number in zip(columns, row, strict=True))
            for row in zip(*(numbers for _, numbers in columns), strict=True)
        ]
    if any(not -bound <= total < bound for total in totals):
        raise BeyondTypeError
    if raw.present is None:
        return totals
    present = whole_numbers(values(parts[raw.present])).tolist()
    return [total if count else None for total, count in zip(totals, present, strict=True)]


def plain_integers(codec: Codec, words: Sequence[np.ndarray]) -> list[Any]:
    """Whole numbers, whose codes they are, except NULL and one value of BIGINT."""
    values: list[Any] = words[0].tolist()
    if RESERVED_LOW in values:
        return codec.decode(words).to_pylist()
    return [None if value == NULL_CODE else value for value in values] if NULL_CODE in values else values


def plain_averages(sums: Sums, raw: RawColumn) -> list[float | None]:
    """An AVG without values that are not finite, as Python values."""
    found, present = _averages(sums, raw)
    return [value if count else None for value, count in zip(found.tolist(), present.tolist(), strict=True)]


def aggregate_column(sums: Sums, raw: RawColumn) -> Any:
    """A raw column that is made of sums."""
    if raw.kind == "statistic":
        return _statistic(sums, raw)
    present = None if raw.present is None else sums.numbers(raw.present)
    limbs, shift = sums.total(raw.terms)
    if raw.kind == "avg":
        assert present is not None
        array = decode_avg(limbs, shift, raw.scale, present, raw.argument_type or raw.type, raw.from_sum)
    else:
        array = decode_sum(limbs, shift, present, raw.type)
    return array if raw.specials is None else with_specials(array, *map(sums.counts, raw.specials))


def aggregate_words(sums: Sums, raw: RawColumn, codec: Codec) -> Sequence[np.ndarray]:
    """The words of a raw column that is made of sums, in the codec of its type."""
    if raw.kind in ("count", "sum") and raw.specials is None and raw.type != "DOUBLE":
        limbs, _ = sums.total(raw.terms)
        low = np.ascontiguousarray(limbs[:, 0])
        if limbs.shape[1] == 1 and raw.kind == "count" and raw.present is None:
            return [low]
        if limbs.shape[1] == 1 and codec.words == 2:
            null = np.zeros(len(low), bool) if raw.present is None else sums.numbers(raw.present) == 0
            return [np.where(null, NULL_CODE, low >> 63), np.where(null, 0, low)]
    if raw.kind == "avg" and raw.specials is None:
        found, present = _averages(sums, raw)
        return [np.where(present == 0, NULL_CODE, float_codes(found))]
    return codec.encode(aggregate_column(sums, raw))


def _averages(sums: Sums, raw: RawColumn) -> tuple[np.ndarray, np.ndarray]:
    """An AVG, and the number of values, without which it is any number."""
    assert raw.present is not None
    present = sums.numbers(raw.present)
    limbs, shift = sums.total(raw.terms)
    return averages(limbs, shift, raw.scale, present, raw.argument_type or raw.type, raw.from_sum), present


def _statistic(sums: Sums, raw: RawColumn) -> Any:
    """A statistic from its moments, brought to the finest unit that one of them has for its arguments."""
    assert raw.statistic is not None and raw.present is not None
    totals = {one.powers: sums.total(one.terms) for one in raw.moments}
    places = max(-(-shift // sum(powers)) for powers, (_, shift) in totals.items())
    moments = {
        powers: [number << (places * sum(powers) - shift) for number in to_integers(limbs)]
        for powers, (limbs, shift) in totals.items()
    }
    unit, wild = 10**raw.scale << places, list(map(sums.counts, raw.specials or ()))
    return decode_statistic(raw.statistic, sums.numbers(raw.present), moments, unit, wild)

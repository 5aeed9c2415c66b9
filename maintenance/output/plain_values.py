"""Codes and sums as the Python values that DuckDB gives for them, without Arrow: for small reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sqlfront.maintenance.program.rows import whole_numbers
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.ranked.exact import BeyondTypeError
from sqlfront.planner.model.query import RawColumn
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.sums import to_integers
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW

SUMS = {"BIGINT": 63, "HUGEINT": 127}


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

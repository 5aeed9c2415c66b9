"""The frames of window functions as ordered rows have them: whole numbers of rows or groups, or distances in codes."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlfront.planner.algebra.terms import Windowed
from sqlfront.planner.model.window_functions import DEFAULT_FRAME, WHOLE_PARTITION, Frame
from sqlfront.storage.codecs.order import is_narrow_decimal

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_FRAME = re.compile(r"(ROWS|RANGE|GROUPS) (?:BETWEEN (.+) AND (.+)|(.+))")


class NotPulledError(Exception):
    """Why window functions are not computed when the view is read."""


def frame_of(one: Windowed, con: Any) -> Frame:
    """The frame of a function. NotPulledError for one that is not made of counted rows, or of fixed distances."""
    if not one.frame:
        return DEFAULT_FRAME if one.order else WHOLE_PARTITION
    if one.frame.endswith(" EXCLUDE NO OTHERS"):
        return frame_of(replace(one, frame=one.frame.removesuffix(" EXCLUDE NO OTHERS")), con)
    found = _FRAME.fullmatch(one.frame)
    if found is None or "EXCLUDE" in one.frame:
        raise NotPulledError(f"the frame {one.frame} leaves out rows in its middle")
    unit, start, end, alone = found.groups()
    bounds = [_bound(text, unit, one, con) for text in (start or alone, end or "CURRENT ROW")]
    return Frame(unit, *bounds)  # type: ignore[arg-type]


def _bound(text: str, unit: str, one: Windowed, con: Any) -> int | None:
    if text == "CURRENT ROW":
        return 0
    distance, _, side = text.rpartition(" ")
    if distance == "UNBOUNDED":
        return None
    found: int | None = int(distance) if distance.isdigit() and len(distance) < 19 else None
    if unit == "RANGE":
        found = _code_distance(distance, one.order[0].value.type, con) if len(one.order) == 1 else None
    if found is None:
        raise NotPulledError(f"the bound {text} of its frame is no whole number of rows, and no fixed distance")
    return -found if side == "PRECEDING" else found


def _code_distance(text: str, type_: str, con: Any) -> int | None:
    """How far two values are apart in codes; None for a distance that is not the same everywhere."""
    is_time = type_ in ("DATE", "TIMESTAMP")
    if not (is_time or type_ in _WHOLE or is_narrow_decimal(type_)):
        return None
    kind = con.execute(f"SELECT typeof({text})").fetchall()[0][0]
    value = con.execute(f"SELECT {text}").fetchall()[0][0]
    if is_time:
        months = f"SELECT date_part('month', {text}) + date_part('year', {text})"
        varies = kind != "INTERVAL" or con.execute(months).fetchall()[0][0]
        unit = timedelta(days=1) if type_ == "DATE" else timedelta(microseconds=1)
        found = None if varies or value is None or value % unit else Fraction(value // unit)
    else:
        scale = int(type_.rpartition(",")[2].rstrip(")")) if is_narrow_decimal(type_) else 0
        found = Fraction(value) * 10**scale if isinstance(value, int | Decimal) else None
    return int(found) if found is not None and found.denominator == 1 and 0 <= found < 2**61 else None

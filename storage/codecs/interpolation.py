"""Values between two neighbours, as DuckDB SQL: what a continuous quantile is; and distances from a median.

The arithmetic is DuckDB's own for the type, to the last bit. DuckDB's C++ may round the sum of two products once, by a
fused multiply-add, or not, as it was compiled. Its list_inner_product() is such a sum in the same build.
"""

from __future__ import annotations

from decimal import Decimal

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""Times that are interpolated as microseconds."""
_WHOLE = {f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")}
_MOST_DIGITS = 18
"""The digits of the decimals that DuckDB interpolates in words of 64 bits."""


def interpolated_type(type_: str) -> str | None:
    """The type of a value between two of a type; None if there is none, or DuckDB computes it in another way."""
    if type_ in _WHOLE:
        return "DOUBLE"
    if type_ in ("FLOAT", "DOUBLE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        return type_
    if type_.startswith("DECIMAL("):
        return type_ if _digits(type_)[0] <= _MOST_DIGITS else None
    return "TIMESTAMP" if type_ == "DATE" else None


def interpolated(type_: str) -> str:
    """A value between two as a form: {0} and {1} are the values, {2} is the weight of the second."""
    return f"CASE WHEN {{2}} > 0 THEN {_between(type_, '{2}')} ELSE CAST({{0}} AS {interpolated_type(type_)}) END"


def distance_type(type_: str) -> str | None:
    """The type of the distance of values of a type from their median; None if they have none that is computed here."""
    if type_.removeprefix("U") == "HUGEINT":
        return None
    return "INTERVAL" if type_ == "TIME" or type_ in _TIMES else interpolated_type(type_)


def median_distance(type_: str) -> str:
    """The median of the distances from a median, as a form: {0} and {1} are the values that the median {3} lies
    between, {2} is the weight of the second; {4} and {5} are the values whose distances the result lies between."""
    low, high = (_distance(type_, f"{{{place}}}") for place in (4, 5))
    if distance_type(type_) != "INTERVAL":
        return interpolated(type_).format(f"({low})", f"({high})", "{2}")
    between = f"CASE WHEN {{2}} > 0 THEN round(CAST({high} - {low} AS DOUBLE) * {{2}}) ELSE 0 END"
    return f"(make_timestamp({low} + CAST({between} AS BIGINT)) - make_timestamp(0))"


def _distance(type_: str, value: str) -> str:
    """How far a value is from the median {3}: of times the microseconds, which infinite times have none of."""
    if distance_type(type_) != "INTERVAL":
        median = interpolated_type(type_)
        return f"CAST(abs(CAST({value} AS {median}) - {{3}}) AS {median})"
    if type_ == "TIME":
        return f"abs(epoch_us({value}) - epoch_us({{3}}))"
    why = "error('the median absolute deviation of infinite times')"
    own = type_.replace("DATE", "TIMESTAMP")
    far = f"abs(epoch_us(CAST({value} AS {own})) - epoch_us({{3}}))"
    return f"CASE WHEN NOT isfinite({value}) OR NOT isfinite({{3}}) THEN CAST({why} AS BIGINT) ELSE {far} END"


def _digits(type_: str) -> tuple[int, int]:
    """The width and the scale of a DECIMAL."""
    width, scale = type_[8:-1].split(",")
    return int(width), int(scale)


def _between(type_: str, weight: str) -> str:
    """A value between {0} and {1} by its weight, which is not 0."""
    low, high = (_number(type_, place) for place in (0, 1))
    shares = f"list_inner_product([{high}, {low}], [{weight}, 1 - {weight}])"
    stepped = f"list_inner_product([{low}, {high} - {low}], [CAST(1 AS DOUBLE), {weight}])"
    if type_ in _TIMES:
        made = "make_timestamptz" if "ZONE" in type_ else "make_timestamp"
        found = f"{made}(CAST({low} + CAST(round(CAST({high} - {low} AS DOUBLE) * {weight}) AS HUGEINT) AS BIGINT))"
        return f"CASE WHEN {{0}} <> {{1}} THEN {found} ELSE {{0}} END"  # Both may be infinite, which no number makes.
    if type_ == "TIME":
        return f"(TIME '00:00:00' + to_microseconds(CAST(round({shares}) AS BIGINT)))"
    if type_.startswith("DECIMAL("):
        scale = _digits(type_)[1]
        unit = f"CAST({Decimal(1).scaleb(-scale):f} AS DECIMAL({scale + 1}, {scale}))"
        return f"CAST(CAST(CAST(trunc({stepped}) AS HUGEINT) AS DECIMAL(38, 0)) * {unit} AS {type_})"
    return f"CAST({stepped} AS FLOAT)" if type_ == "FLOAT" else shares


def _number(type_: str, place: int) -> str:
    """The number that stands for an argument of a type: microseconds, which an infinite time has too, a decimal's
    digits, or itself."""
    if type_ in _TIMES:
        own = type_.replace("DATE", "TIMESTAMP")
        value = f"CAST({{{place}}} AS {own})"
        infinity = f"CASE WHEN {value} > CAST('epoch' AS {own}) THEN 1 ELSE -1 END * CAST({2**63} AS HUGEINT)"
        return f"CAST(coalesce(epoch_us({value}), {infinity}) AS HUGEINT)"
    if type_ == "TIME":
        return f"CAST(epoch_us({{{place}}}) AS DOUBLE)"
    if type_.startswith("DECIMAL("):
        scale = _digits(type_)[1]
        return f"CAST(CAST(CAST({{{place}}} AS DECIMAL(38, {scale})) * {10**scale} AS HUGEINT) AS DOUBLE)"
    return f"CAST({{{place}}} AS DOUBLE)"

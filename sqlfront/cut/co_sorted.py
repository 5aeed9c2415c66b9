"""Which expressions of a table's rows are in one order: a, a + 5, a - INTERVAL 5 MINUTES, a cast that widens.

They grow strictly with the same column: of two rows the same one has the greater value in each. So a list sorted by one
of them is sorted by all, and bounds of several make one range. Rounded sums, casts that lose digits and months are left
out: they are equal in rows in which others differ.
"""

from __future__ import annotations

from sqlfront.cut.value_types import INTEGER_BITS, ComparedTypes, is_exact_number, is_lossless
from sqlfront.planner.algebra.scalars import Call, Ref, Scalar, columns_of

_TIMES = ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS")
_FLOATS = ("FLOAT", "DOUBLE")


def strict_base(value: Scalar, types: ComparedTypes) -> Ref | None:
    """The column with which a value grows strictly; None if none is known. `types` knows constant INTERVALs."""
    match value:
        case Ref():
            return value
        case Call(form="{0} + {1}" | "{0} - {1}", arguments=(one, other)) if not columns_of(other):
            return strict_base(one, types) if _is_exact(value, one, other, types) else None
        case Call(form="{0} + {1}", arguments=(one, other)) if not columns_of(one):
            return strict_base(other, types) if _is_exact(value, other, one, types) else None
        case Call(form=form, arguments=(one,), type=kind) if form == f"CAST({{0}} AS {kind})":
            return strict_base(one, types) if _keeps_order(one.type, kind) else None
    return None


def _is_exact(value: Scalar, one: Scalar, constant: Scalar, types: ComparedTypes) -> bool:
    """Whether a sum with a constant, or the difference, is rounded nowhere. A sum that overflows is an error."""
    if is_exact_number(value.type):
        return is_exact_number(one.type) and is_exact_number(constant.type)
    if one.type == "DATE" and constant.type in INTEGER_BITS:
        return value.type == "DATE"
    return one.type in ("DATE", "TIMESTAMP") and constant.type == "INTERVAL" and types.has_no_months(constant)


def _keeps_order(source: str, target: str) -> bool:
    """Whether a cast keeps all values apart, and in their order."""
    families = (_TIMES, _FLOATS)
    alike = any(source in family and target in family for family in families)
    return is_lossless(source, target) and (alike or (is_exact_number(source) and is_exact_number(target)))

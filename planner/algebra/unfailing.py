"""Bounds of ranges that cannot overflow, as `s.t <= r.t + 5`: the sum is computed in a wider type."""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.scalars import Call, Compare, Constant, Ref, Scalar, can_fail

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


def unfailing(condition: Scalar) -> Scalar | None:
    """An inequality of columns, or of columns moved by constants; integers in a type in which they do not overflow.

    None for any other condition: it might fail for rows without a partner.
    """
    if not isinstance(condition, Compare):
        return None
    left, right = _moved(condition.left), _moved(condition.right)
    return None if left is None or right is None else replace(condition, left=left, right=right)


def _moved(value: Scalar) -> Scalar | None:
    if not isinstance(value, Call) or not can_fail(value):
        return value
    is_sum = value.form in ("({0} + {1})", "({0} - {1})", "{0} + {1}", "{0} - {1}")
    if not is_sum or not all(isinstance(one, Ref | Constant) for one in value.arguments):
        return None
    if any(one.type not in _WHOLE for one in (value, *value.arguments)):
        return value if value.type.startswith(("DATE", "TIMESTAMP")) else None
    wide = (Call("CAST({0} AS HUGEINT)", (one,), "HUGEINT", strict=True, can_fail=False) for one in value.arguments)
    return replace(value, arguments=tuple(wide), type="HUGEINT", can_fail=False)

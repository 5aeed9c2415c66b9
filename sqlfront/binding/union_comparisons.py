"""Comparisons of UNIONs made explicit: DuckDB's own are no comparisons of values.

In `a = b` of two UNIONs a member that is NULL is NULL, as a column is: it equals nothing, itself neither. Codes, as
DISTINCT, groups and `<` in DuckDB's joins, take it for a value. So an equality that is a condition compares values that
are NULL where their member is. IN a subquery is no such condition: a NULL member equals nothing there, but IN is false,
not NULL. Any other = or <> is left to DuckDB.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.binding.notes import Notes
from sqlfront.planner.algebra.rewriting import rewrite, with_scalars
from sqlfront.planner.algebra.scalars import Call, Compare, Scalar, conjunction, conjuncts, parts_of, with_parts
from sqlfront.planner.algebra.terms import Filter, Join, Term

_EQUAL_ITSELF = ("CASE WHEN {0} = {0} THEN {0} END",) * 2
_LISTED = "CASE WHEN {0} = {0} THEN [{0}] WHEN {0} IS NOT NULL THEN %s END"
_MARKED = _LISTED % "[]", _LISTED % "[{0}, {0}]"


def with_explicit_comparisons(term: Term, notes: Notes) -> Term:
    """A query in which equality of UNIONs, as a condition, is that of their values."""

    def change(part: Term) -> Term:
        if not isinstance(part, Filter | Join):
            return with_scalars(part, explicit)
        marks, found = isinstance(part, Join) and part.kind == "mark", []
        for one in conjuncts(part.condition):
            equal = _of_values(one, marks=marks)
            found.append(equal if equal is not None else explicit(one))
            notes.move(one, found[-1])
        return replace(part, condition=conjunction(found))

    def explicit(scalar: Scalar) -> Scalar:
        parts = [explicit(part) for part in parts_of(scalar)]
        if isinstance(scalar, Compare) and _compares_unions(scalar):
            found: Scalar = Call(f"{{0}} {scalar.operator} {{1}}", tuple(parts), "BOOLEAN", can_fail=False)
        else:
            found = with_parts(scalar, parts) if parts else scalar
        notes.move(scalar, found)
        return found

    return rewrite(term, change)


def _of_values(condition: Scalar, *, marks: bool) -> Scalar | None:
    """An equality of UNIONs as one of values, or, if it `marks`, of lists: None for any other condition."""
    if not isinstance(condition, Compare) or condition.operator != "=" or not _compares_unions(condition):
        return None
    left, right = (
        Call(form, (side,), f"{side.type}[]" if marks else side.type, strict=True, can_fail=False)
        for form, side in zip(_MARKED if marks else _EQUAL_ITSELF, parts_of(condition), strict=True)
    )
    return replace(condition, left=left, right=right)


def _compares_unions(scalar: Scalar) -> bool:
    is_equality = isinstance(scalar, Compare) and scalar.operator in ("=", "<>")
    return is_equality and any(
        side.type.startswith("UNION(") and not side.type.endswith("]") for side in parts_of(scalar)
    )

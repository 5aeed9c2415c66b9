"""Maps over maps become one, a map that changes nothing goes, and aggregates read what a map below them computes.

A value takes the place of its column if it is a column, a constant, or read once: nothing is computed twice, and all
is computed for the same rows as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from sqlfront.planner.algebra.rewriting import passed, rewrite, with_changed, with_scalars
from sqlfront.planner.algebra.scalars import Column, Constant, Ref, Scalar, columns_of, substitute, walk
from sqlfront.planner.algebra.terms import Aggregate, Map, Term, scalars_of


def inline_maps(term: Term) -> Term:
    """A term with as few maps as may be."""
    return rewrite(term, _inlined)


def _inlined(term: Term) -> Term:
    match term:
        case Map(input=input, made=made) if made == passed(input.columns):
            return input
        case Map(input=Map() as below):
            values = _values(below, scalars_of(term))
            if values is not None:
                return _inlined(_over(term, below, values))
        case Aggregate(input=Map() as below):
            values = _values(below, scalars_of(term))
            inside = values is not None and columns_of(*values.values()) <= frozenset(below.input.columns)
            # SQL takes an aggregate of outer columns alone for the outer query's.
            if values is not None and inside and all(values[column] == Ref(column) for column in term.groups):
                return _inlined(_over(term, below, values))
    return term


def _over(term: Map | Aggregate, below: Map, values: Mapping[Column, Scalar]) -> Term:
    changed = with_scalars(term, lambda scalar: substitute(scalar, values))
    return with_changed(changed, (below.input,))


def _values(below: Map, readers: Iterable[Scalar]) -> Mapping[Column, Scalar] | None:
    """The values of a map's columns; None if one would be computed twice."""
    reads = Counter(part.column for reader in readers for part in walk(reader) if isinstance(part, Ref))
    values = {one.column: one.value for one in below.made}
    once = (reads[column] < 2 or isinstance(value, Ref | Constant) for column, value in values.items())
    return values if all(once) else None

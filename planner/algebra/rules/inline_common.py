"""A shared term that is used once, or that is no more than a table or another shared term, is put where it is used."""

from __future__ import annotations

from collections import Counter

from sqlfront.planner.algebra.rewriting import NewColumns, copied, rewrite, walk_once
from sqlfront.planner.algebra.scalars import Ref
from sqlfront.planner.algebra.terms import Common, Made, Map, Scan, Term, Values


def inline_common(term: Term) -> Term:
    """A term whose shared terms are used at least twice."""
    uses = Counter(part.name for part in walk_once(term) if isinstance(part, Common))
    new = NewColumns(term)

    def change(part: Term) -> Term:
        if not isinstance(part, Common):
            return part
        if uses[part.name] > 1 and not isinstance(part.term, Scan | Values | Common):
            return part
        inner = part.term if uses[part.name] == 1 else copied(part.term, new)[0]
        return Map(inner, tuple(Made(column, Ref(old)) for column, old in zip(part.columns, inner.columns)))

    return rewrite(term, change)

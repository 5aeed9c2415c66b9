"""DISTINCT goes where no two rows are equal anyway, and where nobody counts copies: right of a semi or an anti join,
and below another DISTINCT.

Source: Pirahesh, Hellerstein and Hasan, Extensible/rule based query rewrite optimization in Starburst, SIGMOD 1992.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.rewriting import projected, rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, keys_of
from sqlfront.planner.algebra.terms import Aggregate, Distinct, Filter, Join, Map, SetOperation, Term


def remove_distinct(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term without what removes copies where there are none, or where they do not count."""

    def change(part: Term) -> Term:
        match part:
            case Distinct(input=input, on=on):
                columns = frozenset(input.columns if on is None else on)
                if any(key <= columns for key in keys_of(input, facts)):
                    return input
                return part if on is not None else replace(part, input=_with_copies(input))
            case SetOperation(kind="union", all=False, left=left, right=right):
                return replace(part, left=_with_copies(left), right=_with_copies(right))
            case Aggregate(input=input, groups=groups, aggregates=(), sets=None, grouping=()) if groups:
                unique = any(key <= frozenset(groups) for key in keys_of(input, facts))
                return projected(input, groups) if unique else part
            case Join(kind="semi" | "anti" | "mark", right=right):
                return replace(part, right=_with_copies(right))
        return part

    return rewrite(term, change)


def _with_copies(term: Term) -> Term:
    """A term with at least one copy of each row it had, and no other rows."""
    match term:
        case Distinct(input=input, on=None):
            return _with_copies(input)
        case Aggregate(input=input, groups=groups, aggregates=(), sets=None, grouping=()) if groups:
            return projected(_with_copies(input), groups)
        case Filter(input=input) | Map(input=input):
            return replace(term, input=_with_copies(input))
        case SetOperation(kind="union", left=left, right=right):
            return replace(term, all=True, left=_with_copies(left), right=_with_copies(right))
    return term

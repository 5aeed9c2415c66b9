"""An ORDER BY without LIMIT orders nothing unless it is the query's last step; rows of a term have no order."""

from __future__ import annotations

from sqlfront.planner.algebra.rewriting import rewrite, with_changed
from sqlfront.planner.algebra.terms import Common, Map, Term, Top, inputs_of


def drop_orders(term: Term) -> Term:
    """A term without orders that choose no rows, but for its own, over which a Map may select."""
    if isinstance(term, Map):
        return with_changed(term, [drop_orders(term.input)])
    if isinstance(term, Top | Common):
        return with_changed(term, [rewrite(part, _unordered) for part in inputs_of(term)])
    return rewrite(term, _unordered)


def _unordered(term: Term) -> Term:
    return term.input if isinstance(term, Top) and term.limit is None and term.offset is None else term

"""The values that rows are ordered by: whether these may be NULL, or rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlfront.planner.model.query import Definition, Order, Term


def is_held_back(definition: Definition, order: Order) -> bool:
    """Whether keys do not always tell which of two rows comes first: by sums that are rounded, or NULL."""
    return is_rounded(order) or has_null_sums(definition, order)


def has_null_sums(definition: Definition, order: Order) -> bool:
    """Whether a sum that rows are ordered by may be NULL."""
    return any(term.form in ("sum", "rounded") and may_be_null(definition, term) for term in order.terms)


def is_rounded(order: Order) -> bool:
    """Whether rows are ordered by a sum of floating numbers."""
    return any(term.form == "rounded" for term in order.terms)


def may_be_null(definition: Definition, term: Term) -> bool:
    """Whether one of a term's values may be NULL."""
    certain = [atom for atom in definition.atoms if atom.is_certain]
    safe = {column.name for atom in certain for column in atom.variables if column.not_null}
    safe |= {name for atom in certain for name in atom.required}
    return any(name not in safe for _, name in term.parts)

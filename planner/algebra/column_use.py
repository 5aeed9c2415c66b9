"""Which columns of its inputs an operator reads."""

from __future__ import annotations

from sqlfront.planner.algebra.scalars import Column, columns_of
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Recursion,
    SetOperation,
    Term,
    Top,
    Unnest,
    Window,
    free_columns,
    inputs_of,
    scalars_of,
)

Columns = frozenset[Column]


def columns_read(term: Term, needed: Columns) -> tuple[Columns, ...]:
    """The columns that an operator reads of each input so that the needed ones of its own can be computed."""
    inputs = inputs_of(term)
    match term:
        case SetOperation(kind="union", all=True):
            kept = [place for place, column in enumerate(term.columns) if column in needed]
            return tuple(frozenset(side.columns[place] for place in kept) for side in inputs)
        case SetOperation() | Recursion() | Common() | Distinct(on=None):
            return tuple(frozenset(part.columns) for part in inputs)
    read = columns_of(*scalars_of(term))
    match term:
        case Join():
            read |= needed | (free_columns(term.right) if term.dependent else frozenset())
        case Filter() | Window() | Top() | Unnest():
            read |= needed
        case Distinct(on=on) if on is not None:
            read |= needed | frozenset(on)
        case Aggregate(groups=groups):
            read |= frozenset(groups)
    return tuple(read & frozenset(part.columns) for part in inputs)

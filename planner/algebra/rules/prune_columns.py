"""Every operator computes only the columns that are read above it, and tables are read by those columns alone."""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.column_use import Columns, columns_read
from sqlfront.planner.algebra.rewriting import projected, walk_once, with_changed
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Join,
    Map,
    Recursion,
    Scan,
    SetOperation,
    Term,
    Unnest,
    Values,
    Window,
    inputs_of,
)


def prune_columns(term: Term) -> Term:
    """A term without columns and computations that nothing above reads; a shared term has what some use reads."""
    needs: dict[str, Columns] = {}
    shared = {part.name: part for part in walk_once(term) if isinstance(part, Common)}
    whole = projected(_pruned(term, frozenset(term.columns), needs), term.columns)
    pruned = {}
    for name, one in reversed(shared.items()):
        columns = tuple(column for column in one.term.columns if column in needs.get(name, ()))
        pruned[name] = projected(_pruned(one.term, frozenset(columns), needs), columns)
    return _over(whole, pruned, shared)


def _over(term: Term, pruned: dict[str, Term], shared: dict[str, Common]) -> Term:
    """A term whose uses of shared terms are uses of the pruned ones."""
    if not isinstance(term, Common):
        return with_changed(term, [_over(part, pruned, shared) for part in inputs_of(term)])
    before = shared[term.name].term.columns
    kept = frozenset(pruned[term.name].columns)
    columns = tuple(column for column, old in zip(term.columns, before) if old in kept)
    return Common(term.name, _over(pruned[term.name], pruned, shared), columns)


def _pruned(term: Term, needed: Columns, needs: dict[str, Columns]) -> Term:
    """A term with the needed columns, and perhaps others that it reads itself; uses of shared terms stay whole."""
    match term:
        case Common(name=name, term=shared, columns=columns):
            used = frozenset(old for old, column in zip(shared.columns, columns) if column in needed)
            needs[name] = needs.get(name, frozenset()) | used
            return term
        case Scan():
            return replace(term, read=tuple(one for one in term.read if one[1] in needed))
        case Values(columns=columns, rows=rows):
            places = [place for place, column in enumerate(columns) if column in needed]
            kept = tuple(tuple(row[place] for place in places) for row in rows)
            return Values(tuple(columns[place] for place in places), kept)
        case Join(kind="mark", mark=mark) if mark not in needed:
            return _pruned(term.left, needed, needs)
    whole, term = term, _narrowed(term, needed)
    read = columns_read(whole if isinstance(whole, SetOperation) else term, needed)
    if isinstance(term, Window) and not term.functions:
        return _pruned(term.input, needed, needs)
    inputs = [_pruned(part, some, needs) for part, some in zip(inputs_of(term), read)]
    match term:
        case SetOperation() | Recursion():
            kept_columns = (tuple(c for c in part.columns if c in some) for part, some in zip(inputs_of(term), read))
            inputs = [projected(part, columns) for part, columns in zip(inputs, kept_columns)]
    return with_changed(term, inputs)


def _narrowed(term: Term, needed: Columns) -> Term:
    """An operator that itself makes the needed columns alone."""
    match term:
        case Map(made=made):
            return replace(term, made=tuple(one for one in made if one.column in needed))
        case Window(functions=functions):
            return replace(term, functions=tuple(one for one in functions if one.column in needed))
        case Unnest(position=position) if position not in needed:
            return replace(term, position=None)
        case SetOperation(kind="union", all=True, columns=columns):
            return replace(term, columns=tuple(column for column in columns if column in needed))
        case Aggregate(aggregates=aggregates, grouping=grouping):
            kept = tuple(one for one in aggregates if one.column in needed)
            bits = tuple(one for one in grouping if one[0] in needed)
            some = kept or bits or term.groups  # SQL has no GROUP BY without a column or an aggregate.
            return replace(term, aggregates=kept if some else aggregates[:1], grouping=bits)
    return term

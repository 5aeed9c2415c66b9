"""Equal parts of a query become one shared term, of which one copy is kept.

Parts are equal up to the numbers and names of their columns. Only parts that would keep state are shared: filters and
maps of a table are not. The largest parts are shared first, so each shared term is used at least twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sqlfront.planner.algebra.rewriting import NewColumns, copied, walk_once, with_changed
from sqlfront.planner.algebra.scalars import Column
from sqlfront.planner.algebra.terms import (
    Common,
    Filter,
    Map,
    Recursive,
    Scan,
    Term,
    Values,
    free_columns,
    inputs_of,
    walk,
)


def share_common(term: Term) -> Term:
    """A term in which no two parts are equal. It ends: each round leaves fewer operators."""
    new = NewColumns(term)
    while (equal := _largest_equal_parts(term)) is not None:
        shared, _ = copied(equal[0], new)
        name = f"shared {new.column('', 'BOOLEAN').number}"
        term = _replaced(term, {id(part): Common(name, shared, part.columns) for part in equal}, {})
    return term


class _Nameless(NewColumns):
    """Columns by numbers alone, in the order in which they are met."""

    def like(self, column: Column) -> Column:
        return self.column("", column.type)


def _largest_equal_parts(term: Term) -> list[Term] | None:
    """Parts that are equal, and larger than others that are."""
    by_shape = defaultdict(list)
    for part, shape in _shapes(term):
        by_shape[shape].append(part)
    found: dict[Term, list[Term]] = defaultdict(list)
    for parts in by_shape.values():
        for part in parts if len(parts) > 1 else ():
            if _is_shared(part):
                found[copied(part, _Nameless())[0]].append(part)
    several = [parts for parts in found.values() if len(parts) > 1]
    return max(several, key=lambda parts: sum(1 for _ in walk(parts[0])), default=None)


def _shapes(term: Term) -> Iterator[tuple[Term, int]]:
    """The parts of a term, each with a number that equal parts have in common."""
    shapes: dict[int, int] = {}
    for part in walk_once(term):
        inputs = () if isinstance(part, Common) else inputs_of(part)
        table = part.table if isinstance(part, Scan) else part.name if isinstance(part, Common) else ()
        shape = hash((type(part).__name__, table, len(part.columns), *(shapes[id(one)] for one in inputs)))
        shapes[id(part)] = shape
        yield part, shape


def _is_shared(term: Term) -> bool:
    below = term
    while isinstance(below, Filter | Map):
        below = below.input
    apart = not free_columns(term) and not any(isinstance(part, Recursive) for part in walk(term))
    return apart and not isinstance(below, Scan | Values | Common | Recursive)


def _replaced(term: Term, uses: dict[int, Common], done: dict[str, Term]) -> Term:
    """A term with parts, told by identity, replaced by uses of a shared one."""
    if id(term) in uses:
        return uses[id(term)]
    if isinstance(term, Common):
        if term.name not in done:
            done[term.name] = _replaced(term.term, uses, done)
        return with_changed(term, (done[term.name],))
    return with_changed(term, [_replaced(part, uses, done) for part in inputs_of(term)])

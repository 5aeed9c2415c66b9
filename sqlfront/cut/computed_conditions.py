"""Conditions over several tables that no index serves are computed row by row: a block below has them as a column.

DuckDB computes the column for the changed rows of the join, whose other conditions are met: O(change of the join).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlfront.cut.expressions.scalar_forms import SUBTRACT
from sqlfront.cut.expressions.separated_sides import ABSOLUTE
from sqlfront.cut.split_conditions import ORDERS
from sqlfront.planner.algebra.clock import BETWEEN
from sqlfront.planner.algebra.join_sides import is_plain
from sqlfront.planner.algebra.rewriting import extended, projected, with_changed
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    IsNull,
    Logic,
    Ref,
    Scalar,
    columns_of,
    conjunction,
    conjuncts,
    parts_of,
)
from sqlfront.planner.algebra.terms import Common, Filter, Join, Made, Map, Term, inputs_of
from sqlfront.storage.codecs.order import is_orderable

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

COMPUTED = "a condition over several tables is computed for the changed rows of their join"
ALTERNATIVES = (
    "write the alternatives of the OR so that they exclude each other, as a UNION ALL of joins, one for each: these "
    "are ranges of sorted lists"
)
ROUNDED = (
    "write `a - b < c` over DOUBLE or FLOAT as `a < b + c`, and `abs(a - b) <= c` as `a BETWEEN b - c AND b + c`: "
    "these are ranges of sorted lists, which round the sum instead of the difference"
)
Owners = Mapping[Column, frozenset[int]]
"""For each column of a join the numbers of the tables and blocks that decide it."""


def has_computed_conditions(core: Term) -> bool:
    """Whether the join of a block has a condition over several tables that is no comparison of two of them, or one by
    an order that codes do not have, or IS DISTINCT FROM."""
    owners = _owners(core)
    return any(_is_mixed(one, owners) for part in _parts(core) for one in _conditions(part))


def with_computed_conditions(core: Term, blocks: Blocks) -> Term:
    """The join with each such condition as the column of a block below it."""
    owners = _owners(core)

    def visit(part: Term) -> Term:
        if not _is_of_join(part):
            return part
        part = with_changed(part, [visit(one) for one in inputs_of(part)])
        mixed = [one for one in _conditions(part) if _is_mixed(one, owners)]
        if not mixed:
            return part
        rest = conjunction([one for one in _conditions(part) if one not in mixed])
        match part:
            case Join(left=left, right=right):
                below: Term = Join("inner", left, right, rest)
            case _:
                [below] = inputs_of(part)
                below = below if rest == TRUE else Filter(below, rest)
        blocks.told[COMPUTED] = None
        if any(isinstance(one, Logic) and one.word == "OR" and _compares_all(one) for one in mixed):
            blocks.told[ALTERNATIVES] = None
        if any(_is_rounded(one, owners) for one in mixed):
            blocks.told[ROUNDED] = None
        met = blocks.new.column("met", "BOOLEAN")
        rows = extended(below, [Made(met, conjunction(mixed))])
        return projected(Filter(blocks.common(rows), Ref(met)), part.columns)

    return visit(core)


def is_copied(term: Common) -> bool:
    """Whether each use of a shared term is a copy of it: it only selects, projects and joins, and keeps no rows."""
    return is_plain(term.term) and not has_computed_conditions(term.term)


def _is_of_join(part: Term) -> bool:
    """Whether a term is part of the join around it, and no table or block that it reads."""
    return isinstance(part, Map | Filter) or (isinstance(part, Join) and part.kind == "inner" and not part.dependent)


def _parts(term: Term) -> list[Term]:
    return [term, *(found for one in inputs_of(term) for found in _parts(one))] if _is_of_join(term) else []


def _conditions(part: Term) -> tuple[Scalar, ...]:
    return conjuncts(part.condition) if isinstance(part, Filter | Join) else ()


def _owners(term: Term) -> Owners:
    found: dict[Column, frozenset[int]] = {}

    def visit(part: Term) -> None:
        if not _is_of_join(part):
            leaf = frozenset({len(found)})
            found.update(dict.fromkeys(part.columns, leaf))
            return
        for one in inputs_of(part):
            visit(one)
        if isinstance(part, Map):
            for made in part.made:
                found[made.column] = _read(made.value, found)

    visit(term)
    return found


def _read(value: Scalar, owners: Owners) -> frozenset[int]:
    return frozenset[int]().union(*(owners.get(column, frozenset()) for column in columns_of(value)))


def _compares_all(condition: Logic) -> bool:
    """Whether all alternatives of an OR are comparisons, or tests for NULL."""
    return all(
        isinstance(one, Compare | IsNull) or (isinstance(one, Call) and one.form == BETWEEN) for one in condition.parts
    )


def _is_rounded(condition: Scalar, owners: Owners) -> bool:
    """Whether a comparison has a difference of floating numbers of two tables."""
    if isinstance(condition, Compare):
        return any(_is_rounded(side, owners) for side in parts_of(condition))
    if not isinstance(condition, Call):
        return False
    if condition.form in (ABSOLUTE, BETWEEN):
        return any(_is_rounded(one, owners) for one in condition.arguments)
    read = {_read(one, owners) for one in condition.arguments} - {frozenset()}
    return condition.type in ("DOUBLE", "FLOAT") and condition.form == SUBTRACT and len(read) > 1


def _is_mixed(condition: Scalar, owners: Owners) -> bool:
    is_between = isinstance(condition, Call) and condition.form == BETWEEN
    if isinstance(condition, Compare) or is_between:
        operator = condition.operator if isinstance(condition, Compare) else "BETWEEN"
        if operator in (*ORDERS, "BETWEEN") and not all(is_orderable(side.type) for side in parts_of(condition)):
            return len(_read(condition, owners)) > 1
        return any(len(_read(side, owners)) > 1 for side in parts_of(condition))
    return len(_read(condition, owners)) > 1

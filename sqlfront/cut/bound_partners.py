"""The partners of a semi or anti join, bound to the rows that ask for them.

EXISTS over a join keeps the distinct values that the subquery has. Where the join of the subquery can have more rows,
by their exponent of N, than its join with the rows around it, only values are kept that some row around it asks for:
SELECT DISTINCT e2.a, e3.b FROM e2, e3, e1 in place of FROM e2, e3. Rows without such a value meet no partner either
way, so each row keeps its copies. Where no copies count, and only such values are read, the join takes the place of the
semi join: SELECT DISTINCT e1.a, e1.b FROM e1, e2, e3, which may be divided by heavy and light values.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlfront.cut.join_core import JoinCore, OuterChildError
from sqlfront.planner.algebra.join_sides import Copies, Sides, is_plain, least_part, sides_of
from sqlfront.planner.algebra.row_facts import never_null
from sqlfront.planner.algebra.scalars import Compare, Ref, columns_of, conjunction, is_never_null, truth
from sqlfront.planner.algebra.terms import Common, Distinct, Filter, Join, Made, Map, Term
from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.extended_result import extended_exponent
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

BOUND = (
    "the subquery's values are kept as far as a row around it asks for them: its join can have O(N^{own}) rows, and "
    "O(N^{bound}) with those rows"
)
_UNBOUND = "the subquery's values are kept whether or not a row around it asks for them, as {why}"


def with_bound_partners(term: Join, core: JoinCore, blocks: Blocks) -> Join:
    """A semi, anti or mark join whose right side has the values that its left side asks for, if that is less by
    exponent.

    An inner join where no copies count, and nothing else of the left is read. The join itself where nothing is gained,
    and where its condition is not made of equalities and conditions of one side.
    """
    sides = sides_of(term.condition, term.left.columns, term.right.columns)
    if blocks.compares_partners:  # Compared again for each join around them, they double the work by level.
        return term
    if term.dependent or sides.both or not sides.pairs or any(pair.nulls for pair in sides.pairs):
        return term
    present = never_null(term.left, blocks.facts) | never_null(term.right, blocks.facts)
    if term.kind == "mark" and not is_never_null(term.condition, present):
        return term
    if not isinstance(_inside(term.right), Join):
        return term
    own = _keys(term.right, sides, blocks)
    exponent = _exponent(own, blocks)
    if exponent is None or exponent <= 1:
        return term
    asked = columns_of(*(pair.mine for pair in sides.pairs))
    asking = least_part(term.left, asked)
    if not (is_plain(asking) or (isinstance(asking, Common) and is_plain(asking.term))):
        blocks.told[_UNBOUND.format(why="these rows are no join of tables")] = None
        return term
    rows = Copies(blocks.new).copy(asking)
    same = [Compare("=", rows.over(pair.mine), pair.theirs) for pair in sides.pairs]
    together = Join("inner", term.right, rows.term, conjunction(same))
    bound = _keys(together, sides, blocks)
    smaller = _exponent(bound, blocks)
    if smaller is None or smaller >= exponent:
        blocks.told[_UNBOUND.format(why="its join with these rows can have as many rows")] = None
        return term
    blocks.told[BOUND.format(own=_spelled(exponent), bound=_spelled(smaller))] = None
    if term.kind == "semi" and blocks.distinct is not None and asking == term.left and blocks.distinct <= asked:
        core.has_copies = True
        return replace(term, kind="inner")
    blocks.notes.aliases |= dict.fromkeys(bound.columns, "partners")
    same = [Compare("=", pair.mine, Ref(key)) for pair, key in zip(sides.pairs, bound.columns, strict=True)]
    condition = [truth(one) if term.kind == "mark" else one for one in (*same, *sides.left)]
    return replace(term, right=bound, condition=conjunction(condition))


def _keys(rows: Term, sides: Sides, blocks: Blocks) -> Distinct:
    """The distinct values of rows of the right side that the left side's are equal to."""
    kept = Filter(rows, conjunction(list(sides.right))) if sides.right else rows
    made = (Made(blocks.new.column(pair.name, pair.theirs.type), pair.theirs) for pair in sides.pairs)
    return Distinct(Map(kept, tuple(made)))


def _exponent(partners: Term, blocks: Blocks) -> Fraction | None:
    """The exponent of N of the rows that a tree for these values combines; None where a block has the values, or where
    N does not bound the rows that are read."""
    kept, outer_form = blocks.state(), blocks.outer_form
    blocks.compares_partners = True
    try:
        table = blocks.derive(partners)
        found = blocks.definitions[table]
        known = blocks.definitions.keys() | blocks.unions.keys()
        if not isinstance(found, Definition) or found.comparisons or found.tables & known:
            return None
        return extended_exponent(found, plan_view(found))
    except (NotSupportedError, OuterChildError):
        return None
    finally:
        blocks.restore(kept)
        blocks.outer_form, blocks.compares_partners = outer_form, False


def _inside(term: Term) -> Term:
    """A term without what only selects rows and columns of it."""
    while isinstance(term, Filter | Map | Distinct):
        term = term.input
    return term


def _spelled(exponent: Fraction) -> str:
    return f"{float(exponent):.6g}"

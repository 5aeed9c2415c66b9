"""Left and anti joins as more atoms of the join: an optional or an absent child of a node of its tree.

An atom's key are the expressions that the condition of the join equates with those of the atoms around it, NULL with
NULL too if it says IS NOT DISTINCT FROM. Its filter is what the condition asks of its side alone. Where the atom has no
row of a key, the join has a row of NULLs (left), or only there a row at all (anti). What reads the atom above the join
must be NULL where all its columns are, or is computed of the columns when the view is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlfront.cut.expressions.scalar_forms import row_values
from sqlfront.cut.expressions.value_types import usual_value
from sqlfront.cut.join_core import JoinCore, OuterAtom, OuterChildError
from sqlfront.cut.split_conditions import ORDERS
from sqlfront.planner.algebra.join_sides import Pair, is_plain, met
from sqlfront.planner.algebra.outer_children import full_of_keys, marks_of_keys
from sqlfront.planner.algebra.row_facts import Facts, matches_one_at_most
from sqlfront.planner.algebra.scalars import TRUE, Compare, Ref, Scalar, columns_of, conjuncts, null, substitute, truth
from sqlfront.planner.algebra.terms import Common, Filter, Join, Map, Scan, Term
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.planner.model.query import Presence

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

EQUALITIES = ("=", "IS NOT DISTINCT FROM")
MOST_LEFT_SIDES = 2
"""So many left sides of outer joins, one inside the other, are views of their own."""
FORMS = {
    "left": "a left join is its pairs of rows and, with NULLs, the rows without a partner",
    "full": "a full join is its pairs of rows and, with NULLs, the rows of either side without a partner",
    "semi": "rows with a partner join the distinct values that have one",
    "anti": "rows without a partner join the keys that no partner has: both sides are counted by key",
    "mark": "a subquery in an expression is true for rows with a partner, NULL or false for others: a union",
    "single": "a scalar subquery is a left join with its only row",
    "intersect": "rows of both sides are counted, and those stay that each side has",
    "except": "rows of both sides are counted, and those stay that the second has not",
    "intersect all": "rows of both sides are counted, and each stays as often as the side that has it less often",
    "except all": "rows of both sides are counted, and each stays as often as the first has it more often",
}
"""Those of joins and set operations that are other joins, unions and counts."""

CHILDREN = {
    "left": "a left join is an optional child: a row without a partner meets a row of NULLs, which is not stored",
    "anti": "an anti join is an absent child: a row counts where no partner is found",
    "full": "a full join is two optional children of the keys of both sides, which are kept: a key without rows on one "
    "side meets a row of NULLs there, which is not stored",
    "mark": "a subquery in an expression is an optional child of the rows that ask, or an absent one where it must be "
    "false: the keys that it has, and those for which a NULL leaves it open, are looked up",
    "single": "a scalar subquery is an optional child: a row without a partner meets NULL, which is not stored",
}
"""Those of joins that are children of a tree's node."""
LEFT_SIDE = "the left side of an outer join is a view of its own: with it, no tree has the right side as its child"
COMPARED = (
    "a join whose condition compares both sides looks its partners up by the compared values of its left side, each of "
    "which is kept once with its partners"
)
_PRESENCE: dict[str, Presence] = {"left": "optional", "single": "optional", "anti": "absent"}


def may_be_child(term: Join, facts: Facts) -> bool:
    """Whether a join is of a kind that can be optional or absent children."""
    single = term.kind == "single" and matches_one_at_most(term, facts)
    return not term.dependent and (single or term.kind in ("left", "anti", "full", "mark"))


def add_outer_join(term: Join, core: JoinCore, blocks: Blocks) -> None:
    """Add a left or anti join to a join, or a single one that meets one row at most. Raises OuterChildError where it is
    no such atom, or group of atoms."""
    missing = MissingValues(blocks.con)
    if blocks.outer_form == "sides" and not is_one_table(term.left, missing):
        _add_left_side(term, core, blocks)
    else:
        blocks.collect(term.left, core)
    before = len(core.atoms)
    if is_one_table(term.right, missing) or (blocks.outer_form == "groups" and is_group(term.right, missing)):
        blocks.collect(term.right, core)
    else:
        blocks.add_block(term.right, core)
    added = [atom.name for atom in core.atoms[before:]]
    if before == 0 or not added:
        raise OuterChildError("one of its sides is no table or block")
    head = next(name for name in added if name not in core.outer)
    pairs = _take_condition(term, core, frozenset(added))
    within = _within(pairs, core)
    if within is not None and term.kind == "anti":
        raise OuterChildError("it asks for rows that may be missing, of a table beside")
    for name in added:
        outer = core.outer.get(name, OuterAtom("required", (), missing))
        core.outer[name] = replace(outer, within=outer.within or head) if name != head else outer
    core.outer[head] = OuterAtom(_PRESENCE[term.kind], tuple(pairs), missing, within)


def _add_left_side(term: Join, core: JoinCore, blocks: Blocks) -> None:
    """Add the left side as a view of its own. Refused where the right side is no child of it, and in the left side of
    another join's left side: each level would double the work."""
    ours, others = frozenset(term.left.columns), frozenset(term.right.columns)
    read = [columns_of(one) for one in met(term.condition)]
    if blocks.left_sides == MOST_LEFT_SIDES or not any(one & ours and one & others for one in read):
        raise OuterChildError("no equality ties its sides")
    blocks.told[f"{LEFT_SIDE}, as {blocks.no_children}"] = None
    blocks.left_sides += 1
    try:
        blocks.add_block(term.left, core)
    finally:
        blocks.left_sides -= 1


def add_join_of_keys(term: Join, core: JoinCore, blocks: Blocks, is_false: bool) -> None:
    """Add a full or mark join as left or anti joins with keys. Raises OuterChildError where it has no such form."""
    new, facts, common = blocks.new, blocks.facts, blocks.types.common
    full = full_of_keys(term, new, facts, common, usual_value) if term.kind == "full" else None
    found = full.rows if full is not None else marks_of_keys(term, new, facts, common, is_false)
    if found is None:
        raise OuterChildError("its condition is not made of equalities that give its sides keys")
    blocks.collect(found, core)
    for key in full.merged if full is not None else ():
        core.merge(key.sides, key.value)


def is_group(term: Term, missing: MissingValues) -> bool:
    """Whether a term joins tables and only selects rows and columns of the join. Each column is NULL where the tables'
    rows are missing. No condition joins NULL with NULL: a row of NULLs would meet rows with NULL keys."""
    match term:
        case Join(kind="inner" | "left", left=left, right=right, condition=condition, dependent=False):
            concerns = condition == TRUE or _reads_columns(condition)
            return concerns and not _joins_nulls(condition) and is_group(left, missing) and is_group(right, missing)
        case Filter(input=input, condition=condition):
            return _reads_columns(condition) and not _joins_nulls(condition) and is_group(input, missing)
        case Map(input=input, made=made):
            return all(missing.is_null(one.value) for one in made) and is_group(input, missing)
    return is_one_table(term, missing)


def _joins_nulls(condition: Scalar) -> bool:
    """Whether NULL equals NULL in a condition, as it does in rows."""
    compared = [one for one in met(condition) if isinstance(one, Compare)]
    return any(one.operator == "IS NOT DISTINCT FROM" or row_values(one.left) for one in compared)


def _reads_columns(condition: Scalar) -> bool:
    """Whether each part of a condition reads columns, which tell the atom that it concerns."""
    return all(map(columns_of, conjuncts(condition)))


def is_one_table(term: Term, missing: MissingValues) -> bool:
    """Whether a term is one table of which it only selects rows and columns, each NULL where the table's are."""
    match term:
        case Scan():
            return True
        case Filter(input=input, condition=condition):
            return _reads_columns(condition) and is_one_table(input, missing)
        case Map(input=input, made=made):
            return all(missing.is_null(one.value) for one in made) and is_one_table(input, missing)
        case Common(term=inner):
            return is_plain(inner) and is_one_table(inner, missing)
    return False


class MissingValues:
    """What expressions are where all columns that they read are NULL, as in a missing row."""

    def __init__(self, con: Any) -> None:
        self._con = con
        self._known: dict[Scalar, tuple[Any] | None] = {}

    def is_null(self, value: Scalar) -> bool:
        """Whether an expression is NULL there."""
        return isinstance(value, Ref) or self._value(value) == (None,)

    def adds_nothing(self, value: Scalar) -> bool:
        """Whether an expression is NULL or 0 there."""
        return isinstance(value, Ref) or self._value(value) in ((None,), (0,))

    def is_true(self, value: Scalar) -> bool:
        """Whether a condition is true there, or fails."""
        return self._value(value) in ((True,), None)

    def _value(self, value: Scalar) -> tuple[Any] | None:
        if value not in self._known:
            nulls = substitute(value, {column: null(column.type) for column in columns_of(value)})
            try:
                found = self._con.execute(f"SELECT {scalar_sql(nulls)}").fetchall()
            except Exception:  # It fails for NULLs, whatever DuckDB says: then it has no value there.
                found = [None]
            self._known[value] = found[0]
        return self._known[value]


def _take_condition(term: Join, core: JoinCore, added: frozenset[str]) -> list[Pair]:
    """Give the added atoms the conditions that concern them alone; the equal expressions of other atoms and of them."""
    ours, others = frozenset(term.left.columns), frozenset(term.right.columns)
    pairs = list[Pair]()
    for one in met(term.condition):
        read = columns_of(one)
        if read and read <= others:
            core.add_conditions(one)
        elif read and read <= ours:
            pairs.append(Pair(core.over_atoms(truth(one)), TRUE))
        else:
            pairs.append(_equal_sides(one, core, added))
    if not any(columns_of(pair.theirs) for pair in pairs):
        raise OuterChildError("no equality ties its sides")
    return pairs


def _equal_sides(one: Scalar, core: JoinCore, added: frozenset[str]) -> Pair:
    """An equality as the expression of an atom that was there before and that of an added one."""
    if isinstance(one, Compare) and one.operator in EQUALITIES:
        sides = [core.over_atoms(one.left), core.over_atoms(one.right)]
        for mine, theirs in (sides, sides[::-1]):
            owners = core.atoms_of(theirs)
            if len(owners) == 1 and owners[0] in added and not added & set(core.atoms_of(mine)):
                return Pair(mine, theirs, one.operator != "=")
    raise _no_equality(one)


def _no_equality(one: Scalar) -> OuterChildError:
    ordered = isinstance(one, Compare) and one.operator in ORDERS
    why = "its sides are compared by order, and a child is looked up by equal keys"
    return OuterChildError(why if ordered else "a condition of both its sides is no equality")


def _within(pairs: Sequence[Pair], core: JoinCore) -> str | None:
    """The atom that may be missing and with which an atom of these pairs is joined first; None: its key is required.

    (A left join B) left join C is A left join (B left join C) if no row of C meets a missing row of B.
    """
    owners = [core.atoms_of(pair.mine) for pair in pairs]
    if any(len(one) != 1 for one in owners):
        raise OuterChildError("a side of its equality is not computed from one row")
    heads = {_head(one, core) for [one] in owners}
    if len(heads) > 1:
        raise OuterChildError("its key is of several tables, some of whose rows may be missing")
    [head] = heads
    strict = [pair.mine for pair in pairs if not pair.nulls]
    if head is not None and not any(core.outer[head].missing.is_null(mine) for mine in strict):
        raise OuterChildError("its key has a value where the row of it is missing")
    return head


def _head(name: str, core: JoinCore) -> str | None:
    """The atom with which an atom may be missing; None if it is always there."""
    outer = core.outer.get(name)
    return None if outer is None else name if outer.presence != "required" else outer.within

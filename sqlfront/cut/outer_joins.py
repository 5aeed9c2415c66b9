"""Left and anti joins as one more atom of the join: an optional or an absent child of a node of its tree.

The atom's key are the expressions that the condition of the join equates with those of required atoms. Its filter is
what the condition asks of its side alone. Where the atom has no row of a key, the join has a row of NULLs (left), or
only there a row at all (anti). What reads the atom above the join must be NULL where all its columns are, or is
computed of the columns when the view is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlfront.cut.join_core import JoinCore, OuterAtom, OuterChildError
from sqlfront.planner.algebra.join_sides import is_plain, met
from sqlfront.planner.algebra.row_facts import Facts, matches_one_at_most
from sqlfront.planner.algebra.scalars import TRUE, Compare, Ref, Scalar, columns_of, null, substitute, truth
from sqlfront.planner.algebra.terms import Common, Filter, Join, Map, Scan, Term
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.planner.model.query import Presence

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

_PRESENCE: dict[str, Presence] = {"left": "optional", "single": "optional", "anti": "absent"}


def may_be_child(term: Join, facts: Facts) -> bool:
    """Whether a join is of a kind that can be optional or absent children."""
    single = term.kind == "single" and matches_one_at_most(term, facts)
    return not term.dependent and (single or term.kind in ("left", "anti", "full", "mark"))


def add_outer_join(term: Join, core: JoinCore, blocks: Blocks) -> None:
    """Add a left or anti join to a join, or a single one that meets one row at most. Raises OuterChildError where it is
    no such atom."""
    blocks.collect(term.left, core)
    before = len(core.atoms)
    missing = MissingValues(blocks.con)
    if is_one_table(term.right, missing):
        blocks.collect(term.right, core)
    else:
        blocks.add_block(term.right, core)
    if before == 0 or len(core.atoms) != before + 1:
        raise OuterChildError("one of its sides is no table or block")
    atom = core.atoms[-1]
    pairs = _take_condition(term, core, atom.name)
    core.outer[atom.name] = OuterAtom(_PRESENCE[term.kind], tuple(pairs), missing)


def is_one_table(term: Term, missing: MissingValues) -> bool:
    """Whether a term is one table of which it only selects rows and columns, each NULL where the table's are."""
    match term:
        case Scan():
            return True
        case Filter(input=input, condition=condition):
            return bool(columns_of(condition)) and is_one_table(input, missing)
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


def _take_condition(term: Join, core: JoinCore, name: str) -> list[tuple[Scalar, Scalar]]:
    """Give the atom the conditions that concern it alone; the equal expressions of other atoms and of it."""
    ours, others = frozenset(term.left.columns), frozenset(term.right.columns)
    pairs = list[tuple[Scalar, Scalar]]()
    for one in met(term.condition):
        read = columns_of(one)
        if read and read <= others:
            core.add_conditions(one)
        elif read and read <= ours:
            pairs.append((core.over_atoms(truth(one)), TRUE))
        else:
            pairs.append(_equal_sides(one, core, name))
    if not any(columns_of(theirs) for _, theirs in pairs):
        raise OuterChildError("no equality ties its sides")
    for mine, _ in pairs:
        owners = core.atoms_of(mine)
        if len(owners) != 1 or owners[0] in core.outer:
            raise OuterChildError("a side of its equality is not computed from one row that is always there")
    return pairs


def _equal_sides(one: Scalar, core: JoinCore, name: str) -> tuple[Scalar, Scalar]:
    """An equality as the expression of other atoms and that of the atom of this name."""
    if isinstance(one, Compare) and one.operator == "=":
        sides = [core.over_atoms(one.left), core.over_atoms(one.right)]
        for mine, theirs in (sides, sides[::-1]):
            if core.atoms_of(theirs) == [name] and name not in core.atoms_of(mine):
                return mine, theirs
    raise OuterChildError("a condition of both its sides is no equality")

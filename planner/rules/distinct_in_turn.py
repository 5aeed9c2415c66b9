"""`strategy = 'linear space'`: DISTINCT rows of a join that is not free-connex are found in turn, and none is stored.

`SELECT DISTINCT b, e, h FROM r, s, t WHERE a < d AND d < g AND s.k = t.k` does not put k out, and no table has both e
and h. Only the tables' rows are stored. A read takes the rows of t with one h after the other. In memory it has the
greatest d of each e that joins them; then it lists the rows of r below this d. Rows that join nothing have been left
out when the read began. So each h gives a row, and the delay is what its rows take.

Invariant: the outer rows of a group with the same values in the joined columns differ in nothing that matters. So each
inner row joins a group once at most, and a group takes O(N). Bagan, Durand and Grandjean (2007) show a linear delay for
all acyclic joins by equalities. Here the join is a pair of tables with partners around it, and compares by ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import permutations

from sqlfront.planner.model.bound import LINEAR_BOUND, TO_THE_FIRST
from sqlfront.planner.model.cost import CONSTANT
from sqlfront.planner.model.distinct_turns import Extreme, Partner, Range, Turns
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Node, Plan, RowsIn
from sqlfront.planner.model.query import Atom, Comparison, Definition
from sqlfront.planner.search.join_tree import Weights
from sqlfront.planner.theory.connex import find_free_path
from sqlfront.planner.theory.gyo import is_acyclic
from sqlfront.planner.theory.wording import enumerate_words, labels, spell_free_path

STRATEGY = "the tables' rows, and distinct rows of outer groups in turn"
_ONE_WORD = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE",
    "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip
"""Types whose values are compared as one number, as decimals of up to 18 digits are."""


def plan_in_turn(definition: Definition, weights: Weights) -> Plan | None:
    """The leaves of the tables, and how a read finds the distinct rows; None if the view is not DISTINCT rows, is
    free-connex by equalities, or has no pair of tables around which the others are partners. O(atoms^3)."""
    if not shows_variables(definition) or definition.outer_atoms or definition.orders or definition.limit is not None:
        return None
    edges, witness = hypergraph(definition), None
    if not definition.comparisons:
        path = find_free_path(edges, definition.free) if is_acyclic(edges) else None
        if path is None:
            return None
        witness = spell_free_path(definition, path)
    pairs = permutations(definition.atoms, 2)
    turns = next((found for outer, inner in pairs if (found := _turns(definition, outer, inner)) is not None), None)
    if turns is None:
        return None
    leaves = [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]
    return Plan(
        shape="inequality" if definition.comparisons else "acyclic",
        strategy=STRATEGY,
        root=Node((), tuple(leaves)),
        free=tuple(dict.fromkeys(definition.free)),
        variables_added=(),
        cost=replace(CONSTANT, delay=replace(LINEAR_BOUND, remark=f", {LINEAR_BOUND.in_order()}{TO_THE_FIRST}")),
        reason=_explain(definition, turns),
        witness=witness,
        rows_in=RowsIn.TURNS,
        turns=turns,
    )


def _turns(definition: Definition, outer: Atom, inner: Atom) -> Turns | None:
    """The way to find rows in turn with these atoms as the outer and the inner one; None if it misses some."""
    own, free = outer.scheme | inner.scheme, frozenset(definition.free)
    others = [atom for atom in definition.atoms if atom not in (outer, inner)]
    tests = [test for test in definition.comparisons if test.scheme <= own]
    if not _are_comparable(definition) or not _is_each_apart(definition, own, others):
        return None
    joined = _range(inner, tests, _in_order(inner, inner.scheme & outer.scheme))
    if joined is None or any(len(test.scheme & outer.scheme) != 1 for test in tests):
        return None
    extremes = _hidden(joined.tests, outer.scheme - free.union(joined.by))
    partners = [_partner(definition, atom, outer, inner) for atom in others]
    found = [partner for partner in partners if partner is not None]
    best = {one for partner in found if partner.shown for one in _hidden(partner.range.tests, inner.scheme - free)}
    if len(extremes) > 1 or len(found) < len(others) or len(best) > 1:
        return None
    return Turns(
        outer.name,
        inner.name,
        _in_order(outer, outer.scheme & free),
        _in_order(inner, inner.scheme & free - outer.scheme),
        joined,
        next(iter(extremes), None),
        next(iter(best), None),
        tuple(found),
    )


def shows_variables(definition: Definition) -> bool:
    """Whether a view is distinct rows of variables: of DISTINCT, or of GROUP BY without aggregates."""
    groups = definition.mode == "group" and not definition.scalar and definition.windows is None
    return definition.mode == "set" or (groups and all(raw.kind == "variable" for raw in definition.raw))


def _are_comparable(definition: Definition) -> bool:
    """Whether all comparisons are ranges of numbers, each of two atoms, whose rows have no NULL there."""
    types = {column.name: column.type for atom in definition.atoms for column in atom.variables}
    tests, atoms = definition.comparisons, definition.atoms
    compared = frozenset[str]().union(*(test.scheme for test in tests))
    return (
        all(test.is_order and _is_one_word(types[test.left]) for test in tests)
        and not any(test.scheme <= atom.scheme for test in tests for atom in atoms)
        and all(compared & atom.scheme <= atom.required for atom in atoms)
    )


def _is_one_word(type_: str) -> bool:
    family, _, digits = type_.partition("(")
    return type_ in _ONE_WORD or (family == "DECIMAL" and int(digits.partition(",")[0]) <= 18)


def _is_each_apart(definition: Definition, own: frozenset[str], others: Sequence[Atom]) -> bool:
    """Whether the other atoms have nothing to do with each other but by the variables of the pair."""
    alone = [atom.scheme - own for atom in others]
    shared = any(one & other for one, other in permutations(alone, 2))
    return not shared and all(test.scheme & own for test in definition.comparisons)


def _partner(definition: Definition, atom: Atom, outer: Atom, inner: Atom) -> Partner | None:
    """An atom as a partner of the outer or of the inner one; None if it is none.

    What a partner that shows something is found by must be the same for all rows that show the same: columns that are
    put out, and one value of the inner row whose best one serves.
    """
    own, free = outer.scheme | inner.scheme, frozenset(definition.free)
    tests = [test for test in definition.comparisons if test.scheme & atom.scheme - own]
    joined = _range(atom, tests, _in_order(atom, atom.scheme & own))
    if joined is None:
        return None
    wanted = frozenset(joined.by).union(*(test.scheme & own for test in joined.tests))
    shown = _in_order(atom, atom.scheme & free - own)
    is_inner = wanted <= inner.scheme
    side = inner if is_inner else outer
    extremes = _hidden(joined.tests, atom.scheme - free.union(joined.by))
    extreme = next(iter(extremes)) if len(extremes) == 1 else None
    hidden = wanted - free
    if not wanted <= side.scheme or (shown and (len(extremes) > 1 or hidden & set(joined.by))):
        return None
    return None if shown and hidden and not is_inner else Partner(atom.name, is_inner, joined, shown, extreme)


def _range(atom: Atom, tests: Sequence[Comparison], by: tuple[str, ...]) -> Range | None:
    """The rows of an atom that equalities and tests lead to; None if these bound several of its variables, or one
    twice."""
    if not tests:
        return Range(by)
    variables = frozenset().union(*(test.scheme & atom.scheme for test in tests))
    if len(variables) != 1:
        return None
    [variable] = variables
    sides = [bounds_below(test, variable) for test in tests]
    return Range(by, variable, tuple(tests)) if len(set(sides)) == len(sides) else None


def bounds_below(test: Comparison, variable: str) -> bool:
    """Whether a comparison is a bound below a variable."""
    return (test.operator in ("<", "<=")) == (test.right == variable)


def _hidden(tests: Collection[Comparison], variables: frozenset[str]) -> set[Extreme]:
    """Which of these variables are compared, each with the value that meets most; twice if both ways."""
    pairs = [(test, variable) for test in tests for variable in test.scheme & variables]
    return {Extreme(variable, bounds_below(test, variable)) for test, variable in pairs}


def _in_order(atom: Atom, variables: Collection[str]) -> tuple[str, ...]:
    return tuple(column.name for column in atom.variables if column.name in variables)


def _explain(definition: Definition, turns: Turns) -> str:
    inner = labels(definition, turns.inner) or "row"
    found = f"the distinct {inner}"
    if turns.best is not None:
        which = "greatest" if turns.best.greatest else "least"
        found = f"the {which} {definition.label(turns.best.variable)} of each {inner}"
    group = f"each {labels(definition, turns.outer)}" if turns.outer else "all rows"
    shown = [partner.atom for partner in turns.partners if partner.shown]
    then = f", and lists what joins it in {enumerate_words(shown)}" if shown else ""
    return (
        f"{turns.outer_atom} and {turns.inner_atom} are joined by what is not put out: the query is not free-connex. "
        f"As strategy = 'linear space' asks, only rows of single tables are stored. A read sorts them once and leaves "
        f"out what joins nothing. For {group} of {turns.outer_atom} in turn it has {found} of {turns.inner_atom} in "
        f"memory, O(N) rows{then}. Each turn has rows, so they follow at a delay of O(N) (Bagan, Durand and Grandjean "
        "2007). Counting reads all rows. While somebody subscribes to the view, or another view reads it, its rows are "
        "kept too, and compared at each epoch."
    )

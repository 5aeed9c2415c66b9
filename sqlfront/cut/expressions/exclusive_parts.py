"""ORs of comparisons as alternatives that have nothing in common, whatever columns they compare.

Each condition says that a *fact* has one of some values. The fact of a comparison is how two values stand: less, equal,
greater, or unknown, where one is NULL. So `a < b` is true for one value of the fact of a and b, and not true for the
other three. Of an OR, each alternative is taken without the pairs of those before it: of `a < b OR (a = b AND c < d)`
the second alternative has none. Of intervals that overlap, `a BETWEEN c AND d OR c BETWEEN a AND b`, the second is
taken where a < c, and where a = c is behind d.

The alternatives are those leaves of a search by cases in which no fact contradicts another (Davis, Putnam, Logemann,
Loveland 1962, with all solutions). Their number is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from sqlfront.cut.expressions.disjoint_ranges import alternatives, bounds_of
from sqlfront.cut.expressions.separated_sides import AtomsOf
from sqlfront.cut.expressions.value_types import never_null
from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    Call,
    Column,
    Compare,
    IsNull,
    Logic,
    Not,
    Operator,
    Scalar,
    can_fail,
    columns_of,
    conjunction,
    conjuncts,
    is_null_where,
    truth,
)
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.storage.codecs.nested_types import parse_nested
from sqlfront.storage.codecs.order import is_orderable

MOST_PARTS = 8
_STANDINGS: Mapping[str, str] = {"<": "<", "<=": "<=", "=": "=", ">=": "=>", ">": ">", "<>": "<>"}
"""How two values may stand where a comparison is true: each letter is one way."""
_OPERATORS: Mapping[frozenset[str], Operator] = {
    frozenset("<"): "<", frozenset("<="): "<=", frozenset("="): "=", frozenset("=>"): ">=", frozenset(">"): ">",
    frozenset("<>"): "<>",
}  # fmt: skip
Values = frozenset[str]
_UNKNOWN, _EVERY = frozenset("?"), frozenset("<=>?")
_TRUE, _NOT_TRUE = frozenset("+"), frozenset("-")


@dataclass(frozen=True)
class _Fact:
    """How two values stand; without `right`, whether a condition is true."""

    left: Scalar
    right: Scalar | None = None

    @property
    def every(self) -> Values:
        return _TRUE | _NOT_TRUE if self.right is None else _EVERY


Literal = tuple[_Fact, Values]
Clause = list[list[Literal]]
"""Alternatives, each of literals that are all met."""
Known = dict[_Fact, Values]


def exclusive_parts(
    conditions: Sequence[Scalar], atoms_of: AtomsOf, columns: frozenset[Column]
) -> list[list[Scalar]] | None:
    """Conditions as alternatives. A pair of rows that meets the conditions meets exactly one alternative. `columns` are
    never NULL. None if no condition is an OR with a comparison of two atoms, if one of these ORs has another form, or
    if there are more than MOST_PARTS alternatives."""
    ors = [one for one in conditions if len(atoms_of(one)) > 1 and alternatives(one)]
    if len(ors) == 1 and (whole := _as_one(ors[0], atoms_of)) is not None:
        return [[*(one for one in conditions if one not in ors), whole]]
    clauses = [_clause(one, atoms_of) for one in ors]
    met = [one for one in clauses if one is not None]
    if not met or len(met) < len(clauses):
        return None
    rest = [bound for one in conditions if one not in ors for bound in bounds_of(one)]
    simple = {one: literal for one in rest if (literal := _literal(one, atoms_of)) is not None}
    search = _Search(columns)
    start = search.told({}, list(simple.values()))
    found = [] if start is None else list(islice(search.cases(start, met), MOST_PARTS + 1))
    if start is None or not found or len(found) > MOST_PARTS:
        return None
    same = [search.changed(start, case) for case in found]
    return [
        [
            *(one for one in rest if one not in simple or simple[one][0] not in changed),
            *(condition for fact in changed for condition in search.conditions(case, fact)),
        ]
        for case, changed in zip(found, same)
    ]


def _as_one(condition: Scalar, atoms_of: AtomsOf) -> Scalar | None:
    """`t < a OR t < b` as `t < greatest(a, b)`, which is NULL where both are; None of any other condition."""
    tests = alternatives(condition)
    compared = [one for one in tests if isinstance(one, Compare) and one.operator in ("<", "<=", ">", ">=")]
    upwards = [one for one in compared if one.operator[0] == "<"]
    upwards += [Compare(MIRRORED[one.operator], one.right, one.left) for one in compared if one.operator[0] == ">"]
    if len(tests) < 2 or len(upwards) < len(tests) or len({one.operator for one in upwards}) > 1:
        return None
    lows, highs = ([*dict.fromkeys(sides)] for sides in zip(*((one.left, one.right) for one in upwards)))
    if min(len(lows), len(highs)) > 1 or not all(_is_total(one.left, one.right) for one in upwards):
        return None
    name, many = ("greatest", highs) if len(lows) == 1 else ("least", lows)
    if len({one.type for one in many}) > 1 or {len(atoms_of(conjunction(side))) for side in (lows, highs)} != {1}:
        return None
    form = f"{name}({', '.join(f'{{{place}}}' for place in range(len(many)))})"
    bound = Call(form, tuple(many), many[0].type, can_fail=False)
    return Compare(upwards[0].operator, *((lows[0], bound) if name == "greatest" else (bound, highs[0])))


def _clause(condition: Scalar, atoms_of: AtomsOf) -> Clause | None:
    """An OR as literals; None if a part has another form, or none compares two atoms."""
    found: Clause = []
    for one in alternatives(condition):
        parts = [_clause(part, atoms_of) if alternatives(part) else _all_of(part, atoms_of) for part in conjuncts(one)]
        if None in parts:
            return None
        found += [[literal for some in chosen for literal in some] for chosen in product(*filter(None, parts))]
    found = _merged(found)
    compared = [fact for one in found for fact, _ in one if fact.right is not None]
    is_join = any(len(atoms_of(Compare("=", one.left, one.right))) > 1 for one in compared if one.right is not None)
    return found if is_join and len(found) <= MOST_PARTS else None


def _merged(clause: Clause) -> Clause:
    """Alternatives that state one fact alone as one: `a < b OR a = b` is that a stands in one of two ways. All three
    ways stay apart: a choice between them decides more than that none of the values is NULL."""
    single, others = Known(), [one for one in clause if len(one) != 1]
    for fact, values in (literal for one in clause if len(one) == 1 for literal in one):
        single[fact] = single.get(fact, frozenset()) | values
    if any(len(values) > 2 for values in single.values()):
        return clause
    return [*([one] for one in single.items()), *others]


def _all_of(condition: Scalar, atoms_of: AtomsOf) -> Clause | None:
    """A condition without OR as the one alternative of its literals."""
    literals = [_literal(one, atoms_of) for one in bounds_of(condition)]
    known = [one for one in literals if one is not None]
    return [known] if len(known) == len(literals) else None


def _literal(condition: Scalar, atoms_of: AtomsOf) -> Literal | None:
    """The fact that a condition states, and its values; None if it is no comparison in a total order, and no condition
    of one atom that is sure to have a value."""
    match condition:
        case Compare(operator=operator, left=left, right=right) if operator in _STANDINGS and _is_total(left, right):
            if scalar_sql(left) > scalar_sql(right):
                operator, left, right = MIRRORED[operator], right, left
            is_join = len(atoms_of(condition)) > 1
            return (_Fact(left, right), frozenset(_STANDINGS[operator])) if is_join or not can_fail(condition) else None
        case Not(part=IsNull() as part):
            return _Fact(part), _NOT_TRUE
    is_plain = len(atoms_of(condition)) < 2 and not can_fail(condition) and not isinstance(condition, Logic)
    return (_Fact(condition), _TRUE) if is_plain else None


def _is_total(left: Scalar, right: Scalar) -> bool:
    """Whether two different values stand in one of three ways wherever both have a value."""
    kinds = (left.type, right.type)
    return left != right and all(is_orderable(kind) and parse_nested(kind) is None for kind in kinds)


@dataclass(frozen=True)
class _Search:
    """The search; `columns` are never NULL."""

    columns: frozenset[Column]

    def cases(self, known: Known, clauses: Sequence[Clause]) -> Iterator[Known]:
        """What is known in each of the alternatives."""
        waiting: list[Clause] = []
        for clause in clauses:
            left = [self._open(known, one) for one in clause]
            possible = [one for one in left if one is not None]
            if not possible:
                return
            if [] not in possible:
                waiting.append(possible)
        if not waiting:
            yield from self._apart_by_null(known)
            return
        waiting.sort(key=len)  # A clause of one alternative is no choice.
        (first, *others), *rest = waiting
        if (met := self.told(known, first)) is not None:
            yield from self.cases(met, rest)
        for number, (fact, values) in enumerate(first):
            missed = self.told(known, [*first[:number], (fact, fact.every - values)])
            if missed is not None and others:
                yield from self.cases(missed, [others, *rest])

    def told(self, known: Known, literals: Sequence[Literal]) -> Known | None:
        """What is known with some literals, too; None if they contradict it."""
        found = dict(known)
        for fact, values in literals:
            found[fact] = found.get(fact, fact.every) & values
        return found if all(self._possible(found, fact) for fact in found) else None

    def changed(self, known: Known, case: Known) -> list[_Fact]:
        """The facts that a case narrows beyond what was known before."""
        return [fact for fact in case if self._possible(case, fact) != self._possible(known, fact)]

    def conditions(self, case: Known, fact: _Fact) -> list[Scalar]:
        """That a fact has the values of a case."""
        values, left, right = self._possible(case, fact), fact.left, fact.right
        if right is None:
            if isinstance(left, IsNull):
                is_known = values == _NOT_TRUE and self._has_value(_comparisons(case), left.part, fact)
                return [] if is_known else [left if values == _TRUE else Not(left)]
            return [left if values == _TRUE else Not(truth(left))]
        if values in _OPERATORS:
            return [Compare(_OPERATORS[values], left, right)]
        missing = [one for one in (left, right) if not self._has_value(_comparisons(case), one, fact)]
        return [] if values == _UNKNOWN else [Not(IsNull(one)) for one in missing]

    def _open(self, known: Known, alternative: Sequence[Literal]) -> list[Literal] | None:
        """The literals of an alternative that are not known to be met; None if one is known to be missed."""
        found = []
        for fact, values in alternative:
            possible = self._possible(known, fact)
            if not possible & values:
                return None
            if not possible <= values:
                found.append((fact, values))
        return found

    def _apart_by_null(self, known: Known) -> Iterator[Known]:
        """A case, split by NULL: in each part both values of a comparison are there, or one of them is NULL."""
        for fact in known:
            values = self._possible(known, fact)
            if fact.right is None or not _UNKNOWN < values < _EVERY:
                if fact.right is None or values != _UNKNOWN or self._is_null(known, fact.left, fact.right):
                    continue
                missing = (_Fact(IsNull(fact.left)), _Fact(IsNull(fact.right)))
                split = [[(missing[0], _TRUE)], [(missing[0], _NOT_TRUE), (missing[1], _TRUE)]]
            else:
                split = [[(fact, values - _UNKNOWN)], [(fact, _UNKNOWN)]]
            for one in filter(None, (self.told(known, literals) for literals in split)):
                yield from self._apart_by_null(one)
            return
        yield known

    def _possible(self, known: Known, fact: _Fact) -> Values:
        """The values that a fact can have."""
        values, left, right = known.get(fact, fact.every), fact.left, fact.right
        if right is None:
            is_present = isinstance(left, IsNull) and self._has_value(known, left.part, fact)
            return values & _NOT_TRUE if is_present else values
        if self._is_null(known, left, right):
            return values & _UNKNOWN
        return values - _UNKNOWN if all(self._has_value(known, one, fact) for one in (left, right)) else values

    def _is_null(self, known: Known, *sides: Scalar) -> bool:
        return any(known.get(_Fact(IsNull(one))) == _TRUE for one in sides)

    def _has_value(self, known: Known, value: Scalar, asking: _Fact) -> bool:
        """Whether other facts, or the columns, tell that an expression is not NULL."""
        present, columns = set[Scalar](), set(self.columns)
        for fact, values in known.items():
            if fact == asking:
                continue
            if fact.right is not None and not values & _UNKNOWN:
                present |= {fact.left, fact.right}
            elif isinstance(fact.left, IsNull) and values == _NOT_TRUE:
                present.add(fact.left.part)
        for one in present:
            columns |= {column for column in columns_of(one) if is_null_where(one, frozenset({column}))}
        return value in present or never_null(value, columns.__contains__)


def _comparisons(case: Known) -> Known:
    """The facts of a case that become comparisons, which no NULL meets."""
    return {fact: values for fact, values in case.items() if values in _OPERATORS}

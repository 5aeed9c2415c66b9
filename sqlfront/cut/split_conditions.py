"""Conditions of the join: equality classes and comparisons across atoms, predicates on one atom, all else refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from sqlfront.binding.notes import Notes
from sqlfront.cut.expressions.scalar_forms import call, equal, row_values
from sqlfront.cut.expressions.separated_sides import separated
from sqlfront.cut.expressions.value_types import ComparedTypes, is_lossless, never_null, usual_value
from sqlfront.cut.join_core import JoinCore
from sqlfront.planner.algebra.join_sides import Pair
from sqlfront.planner.algebra.scalars import (
    Call,
    Compare,
    Constant,
    IsNull,
    Logic,
    Ref,
    Scalar,
    cast,
    columns_of,
)
from sqlfront.planner.algebra.scalars import Operator as AnyOperator
from sqlfront.storage.codecs.nested_types import LOOSE_VARIANTS, has_loose_variants
from sqlfront.storage.codecs.order import is_orderable
from sqlfront.storage.errors import NotSupportedError

Element = tuple[str, Scalar]
Operator = Literal["<", "<=", ">", ">=", "<>", "IS DISTINCT FROM"]
ORDERS = ("<", "<=", ">", ">=", "<>")
COMPARISONS = (*ORDERS, "IS DISTINCT FROM")
EQUALITIES: tuple[AnyOperator, ...] = ("=", "IS NOT DISTINCT FROM")


@dataclass
class EqualityClass:
    """Expressions of at least two atoms that the query equates; one per atom stands for that atom's others. `nulls`:
    they are equal where all are NULL, too."""

    type: str
    members: dict[str, Scalar]
    elements: dict[Element, None]
    nulls: bool = True


@dataclass(frozen=True)
class ComparedSides:
    """Expressions of one atom each, both cast to `type` in which DuckDB compares them."""

    left: Scalar
    operator: Operator
    right: Scalar
    type: str


@dataclass
class Conditions:
    """`predicates` lists, per atom, the conditions that concern it alone. `keys` are the equalities of required atoms
    with those that may be missing: the pair, the other's name, the type."""

    classes: list[EqualityClass] = field(default_factory=list)
    predicates: dict[str, list[Scalar]] = field(default_factory=dict)
    comparisons: list[ComparedSides] = field(default_factory=list)
    keys: list[tuple[Pair, str, str]] = field(default_factory=list)

    def add_predicate(self, atom: str, predicate: Scalar) -> None:
        known = self.predicates.setdefault(atom, [])
        if predicate not in known:
            known.append(predicate)


def split_conditions(core: JoinCore, types: ComparedTypes, notes: Notes) -> Conditions:
    """Sort the conditions of `core` into equality classes, comparisons and predicates. Raises NotSupportedError."""
    return _Splitting(core, types, notes).split()


def equated_columns(condition: Scalar) -> tuple[Ref, Ref] | None:
    """r.x = r.y of one type: the two columns, which are one variable if either joins. None for all else."""
    match condition:
        case Compare(operator="=", left=Ref() as left, right=Ref() as right) if left.type == right.type:
            return left, right
    return None


def fixed_columns(predicates: Iterable[Scalar]) -> set[Scalar]:
    """The columns that a predicate equates with a constant."""
    fixed: set[Scalar] = set()
    for predicate in predicates:
        if isinstance(predicate, Compare) and predicate.operator == "=":
            for column, value in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
                if isinstance(column, Ref) and not columns_of(value):
                    fixed.add(column)
    return fixed


class _Splitting:
    def __init__(self, core: JoinCore, types: ComparedTypes, notes: Notes) -> None:
        self._core, self._types, self._notes = core, types, notes

    def split(self) -> Conditions:
        core = self._core
        result = Conditions([], {atom.name: [] for atom in core.atoms})
        equalities: list[tuple[Scalar, Scalar, Scalar]] = []
        for condition in (part for whole in core.conditions for part in self._parts(whole)):
            atoms = core.atoms_of(condition)
            if len(atoms) <= 1:
                result.add_predicate(atoms[0] if atoms else core.atoms[0].name, condition)
                columns = equated_columns(condition)
                if columns:
                    equalities.append((condition, *columns))
                continue
            if not isinstance(condition, Compare) or condition.operator not in (*EQUALITIES, *COMPARISONS):
                raise self._refused(condition)
            if any(len(core.atoms_of(side)) != 1 for side in (condition.left, condition.right)):
                raise self._refused(condition)
            kind = self._common_type(condition)
            condition = self._in_type(condition, kind)
            if condition.operator in EQUALITIES:
                equalities.append((condition, condition.left, condition.right))
            else:
                operator: Operator = condition.operator  # type: ignore[assignment]
                result.comparisons.append(ComparedSides(condition.left, operator, condition.right, kind))
        equalities.sort(key=lambda one: len(core.atoms_of(one[0])) < 2)  # Classes are named by what joins.
        equalities = self._transitive(equalities, result)
        result.classes = self._classes(equalities)
        for equality_class in result.classes:
            self._tie_members(equality_class, equalities, result)
            self._spread_constants(equality_class, result)
        result.comparisons = [sides for sides in result.comparisons if not self._within_atoms(sides, result)]
        result.keys = [self._key(name, pair) for name, outer in core.outer.items() for pair in outer.pairs]
        return result

    def _key(self, name: str, pair: Pair) -> tuple[Pair, str, str]:
        """An equality with an atom that may be missing, which unites no expressions of the others."""
        kind = self._common_type(Compare(pair.operator, pair.mine, pair.theirs))
        return pair, next(iter(self._core.atoms_of(pair.theirs)), name), kind

    def _parts(self, condition: Scalar) -> list[Scalar]:
        """A BETWEEN over several tables as its comparisons, an equality of rows as those of their values, a difference
        over two tables as a comparison of one with the other; all else as it is."""
        if len(self._core.atoms_of(condition)) < 2:
            return [condition]
        if isinstance(condition, Call) and condition.form == "{0} BETWEEN {1} AND {2}":
            value, low, high = condition.arguments
            return self._in_parts(condition, [Compare(">=", value, low), Compare("<=", value, high)])
        if found := separated(condition, self._core.atoms_of, self._types):
            return self._in_parts(condition, found)
        if isinstance(condition, Compare) and condition.operator == "IS NOT DISTINCT FROM":
            sides = (condition.left, condition.right)
            if any(never_null(side, self._core.is_declared) for side in sides):
                self._notes.move(condition, equal(*sides))
                return [equal(*sides)]
        if isinstance(condition, Compare) and condition.operator == "=":
            left, right = row_values(condition.left), row_values(condition.right)
            if left and right and len(left) == len(right):
                return [part for a, b in zip(left, right) for part in self._equal_values(condition, a, b)]
        return [condition]

    def _in_parts(self, condition: Scalar, parts: Iterable[Scalar]) -> list[Scalar]:
        """The parts of the comparisons that a condition stands for, at its place."""
        found = []
        for part in parts:
            self._notes.move(condition, part)
            found += self._parts(part)
        return found

    def _equal_values(self, condition: Scalar, left: Scalar, right: Scalar) -> list[Scalar]:
        """What it takes that two values are equal as those of rows are: there, NULL equals NULL."""
        joins = len(self._core.atoms_of(Logic("AND", (left, right)))) > 1
        are_rows = joins and row_values(left) and row_values(right)
        part = Compare("=" if are_rows else "IS NOT DISTINCT FROM", left, right)
        self._notes.move(condition, part)
        return self._parts(part) if joins else [part]

    def _common_type(self, condition: Compare) -> str:
        """The type in which DuckDB compares two sides. Refuses an order that the codes of values do not have."""
        left, right, operator = condition.left, condition.right, condition.operator
        types = [left.type, right.type]
        for side in (left, right):
            if has_loose_variants(side.type):
                place = self._notes.place_of(side)
                raise self._notes.refusal(f"A join on {side.type}", place, LOOSE_VARIANTS, "join on its parts")
        common, place = self._types.common(*types), self._notes.place_of(condition)
        if common is None:
            why, hint = "DuckDB compares them in a way a join index cannot", "cast one side to the other's type"
            raise self._notes.refusal(f"{types[0]} {operator} {types[1]}", place, why, hint)
        if operator in ORDERS and not is_orderable(common):
            why = "the words that stand for its values are not in the order in which DuckDB compares them"
            hint = "cast both sides to a number, a timestamp or VARCHAR"
            raise self._notes.refusal(f"A join by the order of {common}", place, why, hint)
        return common

    def _in_type(self, condition: Compare, kind: str) -> Compare:
        """The comparison with its casts written out where these merge or reject values: then the sides are other
        expressions than the columns, which may be equated with others in types of their own."""
        sides = (condition.left, condition.right)
        if all(is_lossless(side.type, kind) for side in sides):
            return condition
        found = Compare(condition.operator, cast(sides[0], kind), cast(sides[1], kind))
        self._notes.move(condition, found)
        return found

    def _classes(self, equalities: list[tuple[Scalar, Scalar, Scalar]]) -> list[EqualityClass]:
        """Connected components of the equalities, in order of first appearance; those of one atom are no class."""
        find = _union((self._element(left), self._element(right)) for _, left, right in equalities)
        groups: dict[Element, EqualityClass] = {}
        for condition, left, right in equalities:
            for side in (left, right):
                element = self._element(side)
                group = groups.setdefault(find(element), EqualityClass(side.type, {}, {}))
                group.type = self._types.common(group.type, side.type) or group.type
                group.members.setdefault(element[0], side)
                group.elements[element] = None
            group.nulls &= isinstance(condition, Compare) and condition.operator != "="
        return [group for group in groups.values() if len(group.members) > 1]

    def _transitive(
        self, equalities: list[tuple[Scalar, Scalar, Scalar]], conditions: Conditions
    ) -> list[tuple[Scalar, Scalar, Scalar]]:
        """The equalities whose classes have a common exact type, in their order. Any other between tables, such as one
        of DOUBLE with a class of BIGINT, is a pair of comparisons; one of a single table is a predicate already."""
        types: dict[Element, str] = {}
        united: dict[Element, frozenset[Element]] = {}
        kept: list[tuple[Scalar, Scalar, Scalar]] = []
        for condition, left, right in equalities:
            elements = [self._element(left), self._element(right)]
            one, other = (types.get(element, element[1].type) for element in elements)
            common = self._types.common(one, other)
            if common is not None and is_lossless(one, common) and is_lossless(other, common):
                kept.append((condition, left, right))
                together = frozenset().union(*(united.get(element, {element}) for element in elements))
                united |= dict.fromkeys(together, together)
                types |= dict.fromkeys(together, common)
            elif len(self._core.atoms_of(condition)) > 1:
                kind = self._types.common(left.type, right.type)
                assert kind is not None
                values = left, right
                if isinstance(condition, Compare) and condition.operator != "=":
                    values, both = self._without_nulls(condition, kind)
                    kept.append((both, both.left, both.right))
                operators: tuple[Operator, ...] = ("<=", ">=")
                conditions.comparisons += [
                    ComparedSides(values[0], operator, values[1], kind) for operator in operators
                ]
        return kept

    def _without_nulls(self, condition: Compare, kind: str) -> tuple[tuple[Scalar, Scalar], Compare]:
        """Sides whose NULLs are a usual value, and the condition that both are NULL or neither is. Refuses types
        without such a value."""
        usual, sides = usual_value(kind), (condition.left, condition.right)
        if usual is None:
            raise self._refused(condition)
        left, right = (call("coalesce({0}, {1})", kind, cast(side, kind), Constant(usual, kind)) for side in sides)
        for part in (left, right):
            self._notes.move(condition, part)
        return (left, right), Compare("=", IsNull(sides[0]), IsNull(sides[1]))

    def _element(self, side: Scalar) -> Element:
        return self._core.atoms_of(side)[0], side

    def _tie_members(
        self, group: EqualityClass, equalities: list[tuple[Scalar, Scalar, Scalar]], conditions: Conditions
    ) -> None:
        """An atom's further expressions in the class equal the one that stands for them."""
        written = {frozenset((self._element(left), self._element(right))) for _, left, right in equalities}
        for _, left, right in equalities:
            for side in (left, right):
                element = self._element(side)
                first = group.members.get(element[0])
                if first is None or element not in group.elements or first == side:
                    continue
                if frozenset((self._element(first), element)) not in written:
                    conditions.add_predicate(element[0], Compare(EQUALITIES[group.nulls], first, side))

    def _spread_constants(self, group: EqualityClass, conditions: Conditions) -> None:
        """a = b and b = 5: also a = 5, where the types agree, so that a's leaf keeps fewer rows."""
        for atom, predicates in list(conditions.predicates.items()):
            for predicate in list(predicates):
                if not isinstance(predicate, Compare) or predicate.operator != "=":
                    continue
                for column, value in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
                    if (atom, column) not in group.elements or columns_of(value):
                        continue
                    for other, member in group.members.items():
                        if other != atom and member.type == column.type:
                            conditions.add_predicate(other, equal(member, value))

    def _within_atoms(self, sides: ComparedSides, conditions: Conditions) -> bool:
        """Whether equalities make a comparison one of a single atom's row, of which it is a predicate then: r.b = s.b
        AND r.b < s.c is s.b < s.c. Each atom that has both values is tested."""
        left, right = (self._equals_of(side, sides.type, conditions) for side in (sides.left, sides.right))
        both = [atom for atom in left if atom in right]
        for atom in both:
            conditions.add_predicate(atom, Compare(sides.operator, left[atom], right[atom]))
        return bool(both)

    def _equals_of(self, side: Scalar, type_: str, conditions: Conditions) -> dict[str, Scalar]:
        """By atom, the expressions that are known to equal one, in a type; those that it would round are left out."""
        element = self._element(side)
        equals = next((group.members for group in conditions.classes if element in group.elements), {})
        every = {element[0]: side, **equals}
        return {atom: cast(value, type_) for atom, value in every.items() if is_lossless(value.type, type_)}

    def _spelled(self, value: Scalar) -> str:
        return spelled(value, self._core, self._notes)

    def _refused(self, condition: Scalar) -> NotSupportedError:
        """Name what a condition over several tables is."""
        operator = condition.operator if isinstance(condition, Compare) else ""
        if isinstance(condition, Logic) and condition.word == "OR":
            what, why = "OR across tables", "the rows a change meets are then no single index look-up"
            hint = "use a view for each alternative, or rewrite the OR inside one table's condition"
        elif operator in COMPARISONS:
            what, why = "A comparison that mixes tables on one side", "each side must be computed from one table's row"
            hint = "move terms until each side names one table only"
        elif operator == "IS NOT DISTINCT FROM" and self._notes.place(condition) is None:
            what, why = "This correlated subquery", "its rows are no join of equal values with those around it"
            hint = "tie it to the rows around it by equalities of columns alone, each beside no other use of them"
        elif operator == "IS NOT DISTINCT FROM":
            what, why = "IS NOT DISTINCT FROM across tables", "a NULL of this type never joins in a view"
            hint = "join on coalesce(x, some value) on both sides"
        elif operator == "=":
            what, why = "An equality that mixes tables on one side", "each side must be computed from one table's row"
            hint = "move terms until each side names one table only"
        else:
            what, why = "A condition over several tables", "only =, <, <=, >, >=, <> and BETWEEN join tables"
            hint = "write it as a comparison of an expression of one table with an expression of another"
        return self._notes.refusal(what, self._notes.place_of(condition), why, hint)


def spelled(value: Scalar, core: JoinCore, notes: Notes) -> str:
    """An expression as the user wrote it, else as text over its columns' names."""
    return notes.written(value) or core.spelled(value)


def _union(pairs: Iterable[tuple[Element, Element]]) -> Callable[[Element], Element]:
    """The representative of each element after uniting all `pairs`."""
    parent: dict[Element, Element] = {}

    def find(element: Element) -> Element:
        while parent.setdefault(element, element) != element:
            element = parent[element]
        return element

    for one, other in pairs:
        parent[find(other)] = find(one)
    return find

"""Conditions of the join: equality classes and comparisons across atoms, predicates on one atom, all else refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sqlfront.bind.from_clause import AtomTable, JoinCore
from sqlfront.bind.refusals import refusal
from sqlfront.bind.result_types import Typing, is_lossless, is_nested, never_null
from sqlfront.sql.parse_tree import SourceText, Tree, arguments, atoms_of, expression, key, render, row_values, span
from sqlfront.storage.codecs.order import is_orderable
from sqlfront.storage.errors import NotSupportedError

Element = tuple[str, str]
Operator = Literal["<", "<=", ">", ">=", "<>"]

OPERATORS: dict[str, Operator] = {
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOTEQUAL": "<>",
}


@dataclass
class EqualityClass:
    """Expressions of at least two atoms that the query equates; one per atom stands for that atom's others."""

    type: str
    members: dict[str, Tree]
    elements: set[Element]


@dataclass(frozen=True)
class ComparedSides:
    """Expressions of one atom each, both cast to `type` in which DuckDB compares them."""

    left: Tree
    operator: Operator
    right: Tree
    type: str


@dataclass
class Conditions:
    """`predicates` lists, per atom, the conditions that concern it alone."""

    classes: list[EqualityClass] = field(default_factory=list)
    predicates: dict[str, list[Tree]] = field(default_factory=dict)
    comparisons: list[ComparedSides] = field(default_factory=list)

    def add_predicate(self, atom: str, predicate: Tree) -> None:
        known = self.predicates.setdefault(atom, [])
        if key(predicate) not in {key(other) for other in known}:
            known.append(predicate)


def split_conditions(core: JoinCore, typing: Typing, source: SourceText) -> Conditions:
    """Sort the conditions of `core` into equality classes, comparisons and predicates. Raises NotSupportedError."""
    result = Conditions([], {atom.name: [] for atom in core.atoms})
    equalities: list[tuple[Tree, Tree, Tree]] = []
    for condition in (part for whole in core.conditions for part in _parts(whole, core, typing, source)):
        atoms = sorted(atoms_of(condition))
        if len(atoms) <= 1:
            result.add_predicate(atoms[0] if atoms else core.atoms[0].name, condition)
            columns = equated_columns(condition, typing)
            if columns:
                equalities.append((condition, *columns))
            continue
        operator = OPERATORS.get(condition["type"])
        sides = _sides(condition, "COMPARE_EQUAL" if operator is None else condition["type"])
        if sides is None or any(len(atoms_of(side)) != 1 for side in sides):
            raise _refuse_condition(condition, source)
        kind = _common_type(condition, *sides, "=" if operator is None else operator, typing, source)
        if operator is None:
            equalities.append((condition, *sides))
        else:
            result.comparisons.append(ComparedSides(sides[0], operator, sides[1], kind))
    result.classes = _classes(equalities, typing, source)
    for equality_class in result.classes:
        _tie_members(equality_class, equalities, result)
        _spread_constants(equality_class, result, typing)
    result.comparisons = [sides for sides in result.comparisons if not _within_atoms(sides, result, typing)]
    return result


def bound_columns(atom: AtomTable, predicates: list[Tree]) -> set[str]:
    """Columns of `atom` that a predicate fixes to one constant."""
    fixed = set()
    for predicate in predicates:
        sides = _sides(predicate)
        for column, value in (sides, sides[::-1]) if sides else ():
            if column["class"] == "COLUMN_REF" and not atoms_of(value):
                fixed.add(column["column_names"][1])
    return fixed


def equated_columns(condition: Tree, typing: Typing) -> tuple[Tree, Tree] | None:
    """r.x = r.y of one type: the two columns, which are one variable if either joins. None for all else."""
    sides = _sides(condition)
    if sides is None or any(side["class"] != "COLUMN_REF" for side in sides):
        return None
    return sides if typing.type_of(sides[0]) == typing.type_of(sides[1]) else None


def _parts(condition: Tree, core: JoinCore, typing: Typing, source: SourceText) -> list[Tree]:
    """A BETWEEN over several tables as its two comparisons, an equality of rows as those of their values; all else as
    it is."""
    if len(atoms_of(condition)) > 1:
        if condition["type"] == "COMPARE_BETWEEN":
            return _bounds(condition, typing, source)
        sides = _sides(condition)
        rows = [row_values(side) for side in sides or ()]
        if sides and all(rows) and len(rows[0]) == len(rows[1]):
            pairs = zip(rows[0], rows[1], strict=True)
            return [part for a, b in pairs for part in _equal_values(condition, a, b, core, typing, source)]
    return [condition]


def _equal_values(
    condition: Tree, left: Tree, right: Tree, core: JoinCore, typing: Typing, source: SourceText
) -> list[Tree]:
    """What it takes that two values are equal as those of rows are: there, NULL equals NULL."""

    def is_declared(column: Tree) -> bool:
        atom, name = column["column_names"]
        return next((bool(one.column(name)[2]) for one in core.atoms if one.name == atom), False)

    place = {name: condition[name] for name in ("query_location", "query_location_length")}
    joins = len(atoms_of(left) | atoms_of(right)) > 1
    part = expression("a = b" if joins else "a IS NOT DISTINCT FROM b", a=left, b=right) | place
    typing.learn([part])
    if joins and row_values(left) and row_values(right):
        return _parts(part, core, typing, source)
    if joins and not any(never_null(side, is_declared, typing) for side in (left, right)):
        spelled = f"{_spelled(left, source)} = {_spelled(right, source)}"
        why = f"inside rows NULL equals NULL, which never joins in a view, and in {spelled} both may be NULL"
        hint = "write a = c AND b = d for (a, b) = (c, d), or declare one column of each pair NOT NULL"
        raise refusal("An equality of rows", source, span(condition), why, hint)
    return [part]


def _bounds(condition: Tree, typing: Typing, source: SourceText) -> list[Tree]:
    place = {name: condition[name] for name in ("query_location", "query_location_length")}
    found = []
    for operator, bound in ((">=", condition["lower"]), ("<=", condition["upper"])):
        part = expression(f"a {operator} b", a=condition["input"], b=bound) | place
        typing.learn([part])
        # DuckDB compares all three in one type: the same values pass as with two types that lose nothing.
        _common_type(part, condition["input"], bound, operator, typing, source)
        found.append(part)
    return found


def _sides(condition: Tree, type_: str = "COMPARE_EQUAL") -> tuple[Tree, Tree] | None:
    """The two sides of a comparison of this type; None for all else."""
    if condition["type"] != type_:
        return None
    if condition["class"] == "FUNCTION":
        left, right = arguments(condition)
        return left, right
    return condition["left"], condition["right"]


def _common_type(condition: Tree, left: Tree, right: Tree, operator: str, typing: Typing, source: SourceText) -> str:
    """The type in which DuckDB compares two sides. Refuses one whose casts merge or reject values, and an order that
    the codes of values do not have."""
    types = [typing.type_of(left), typing.type_of(right)]
    for side, kind in zip((left, right), types, strict=True):
        if is_nested(kind):
            why = "lists, structs and maps cannot be join columns yet"
            raise refusal(f"A join on {kind}", source, span(side), why, "join on the fields or elements themselves")
    common = typing.comparison_type(*types)
    if common is None:
        why = "DuckDB compares them in a way a join index cannot"
        what = f"{types[0]} {operator} {types[1]}"
        raise refusal(what, source, span(condition), why, "cast one side to the other's type")
    casts = [
        f"CAST({_spelled(side, source)} AS {common})"
        for side, kind in zip((left, right), types, strict=True)
        if kind != common and not is_lossless(kind, common)
    ]
    if casts:
        raise refusal(
            f"{types[0]} {operator} {types[1]}",
            source,
            span(condition),
            f"DuckDB compares both as {common}, a cast under which different values can become equal or fail",
            f"say so yourself: {' and '.join(casts)}",
        )
    if operator not in ("=", "<>") and not is_orderable(common):
        why = "the words that stand for its values are not in the order in which DuckDB compares them"
        hint = "cast both sides to a number, a timestamp or VARCHAR"
        raise refusal(f"A join by the order of {common}", source, span(condition), why, hint)
    return common


def _spelled(tree: Tree, source: SourceText) -> str:
    return source.text(span(tree)) or render(tree)


def _classes(equalities: list[tuple[Tree, Tree, Tree]], typing: Typing, source: SourceText) -> list[EqualityClass]:
    """Connected components of the equalities, in order of first appearance; those of one atom are no class."""
    find = _union((_element(left), _element(right)) for _, left, right in equalities)
    groups: dict[Element, EqualityClass] = {}
    for condition, left, right in equalities:
        for side in (left, right):
            kind = typing.type_of(side)
            group = groups.setdefault(find(_element(side)), EqualityClass(kind, {}, set()))
            group.type = _wider(group.type, kind, condition, typing, source)
            group.members.setdefault(_element(side)[0], side)
            group.elements.add(_element(side))
    return [group for group in groups.values() if len(group.members) > 1]


def _wider(one: str, other: str, condition: Tree, typing: Typing, source: SourceText) -> str:
    common = typing.comparison_type(one, other)
    if common is None or not (is_lossless(one, common) and is_lossless(other, common)):
        why = f"through other equalities it also equates {one} and {other}, which have no common exact type"
        raise refusal("This equality", source, span(condition), why, "cast the columns to one type")
    return common


def _element(side: Tree) -> Element:
    return next(iter(atoms_of(side))), key(side)


def _union(pairs: object) -> Callable[[Element], Element]:
    """The representative of each element after uniting all `pairs`."""
    parent: dict[Element, Element] = {}

    def find(element: Element) -> Element:
        while parent.setdefault(element, element) != element:
            element = parent[element]
        return element

    for one, other in pairs:  # type: ignore[attr-defined]
        parent[find(other)] = find(one)
    return find


def _tie_members(
    equality_class: EqualityClass, equalities: list[tuple[Tree, Tree, Tree]], conditions: Conditions
) -> None:
    """An atom's further expressions in the class equal the one that stands for them."""
    written = {frozenset((_element(left), _element(right))) for _, left, right in equalities}
    for _, left, right in equalities:
        for side in (left, right):
            atom = _element(side)[0]
            first = equality_class.members.get(atom)
            if first is None or _element(side) not in equality_class.elements or key(first) == key(side):
                continue
            if frozenset((_element(first), _element(side))) not in written:
                conditions.add_predicate(atom, expression("a = b", a=first, b=side))


def _spread_constants(equality_class: EqualityClass, conditions: Conditions, typing: Typing) -> None:
    """a = b and b = 5: also a = 5, where the types agree, so that a's leaf keeps fewer rows."""
    for atom, predicates in list(conditions.predicates.items()):
        for predicate in list(predicates):
            sides = _sides(predicate)
            for column, value in (sides, sides[::-1]) if sides else ():
                if (atom, key(column)) not in equality_class.elements or atoms_of(value):
                    continue
                for other, member in equality_class.members.items():
                    if other != atom and typing.type_of(member) == typing.type_of(column):
                        conditions.add_predicate(other, expression("a = b", a=member, b=value))


def _within_atoms(sides: ComparedSides, conditions: Conditions, typing: Typing) -> bool:
    """Whether equalities make a comparison one of a single atom's row, of which it is a predicate then: r.b = s.b AND
    r.b < s.c is s.b < s.c. Each atom that has both values is tested."""
    left, right = (_equals_of(side, sides.type, conditions, typing) for side in (sides.left, sides.right))
    both = [atom for atom in left if atom in right]
    for atom in both:
        conditions.add_predicate(atom, expression(f"a {sides.operator} b", a=left[atom], b=right[atom]))
    return bool(both)


def _equals_of(side: Tree, type_: str, conditions: Conditions, typing: Typing) -> dict[str, Tree]:
    """By atom, the expressions that are known to equal one, in a type; those that it would round are left out."""
    equals = next((group.members for group in conditions.classes if _element(side) in group.elements), {})
    found = {}
    for atom, tree in {_element(side)[0]: side, **equals}.items():
        kind = typing.type_of(tree)
        if is_lossless(kind, type_):
            found[atom] = tree if kind == type_ else expression(f"CAST(v AS {type_})", v=tree)
    return found


def _refuse_condition(condition: Tree, source: SourceText) -> NotSupportedError:
    """Name what a condition over several tables is."""
    kind = condition["type"]
    if kind == "CONJUNCTION_OR":
        what, why = "OR across tables", "the rows a change meets are then no single index look-up"
        hint = "use a view for each alternative, or rewrite the OR inside one table's condition"
    elif kind in OPERATORS:
        what, why = "A comparison that mixes tables on one side", "each side must be computed from one table's row"
        hint = "move terms until each side names one table only"
    elif kind in ("COMPARE_NOT_DISTINCT_FROM", "COMPARE_DISTINCT_FROM"):
        what, why = "IS [NOT] DISTINCT FROM across tables", "a NULL never joins in a view"
        hint = "join on coalesce(x, some value) on both sides"
    elif kind == "COMPARE_EQUAL":
        what, why = "An equality that mixes tables on one side", "each side must be computed from one table's row"
        hint = "move terms until each side names one table only"
    else:
        what, why = "A condition over several tables", "only =, <, <=, >, >=, <> and BETWEEN join tables"
        hint = "write it as a comparison of an expression of one table with an expression of another"
    return refusal(what, source, span(condition), why, hint)

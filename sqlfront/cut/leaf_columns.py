"""What each atom's leaf computes: variables (join, group, output columns) and factors (summed columns)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from sqlfront.binding.notes import Notes
from sqlfront.cut.expressions.scalar_forms import call, is_not_null
from sqlfront.cut.expressions.value_types import ComparedTypes, never_null, strict_base
from sqlfront.cut.join_core import AtomTable, JoinCore, OuterChildError
from sqlfront.cut.split_conditions import ComparedSides, Conditions, equated_columns, fixed_columns
from sqlfront.planner.algebra.join_sides import Pair
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    Ref,
    Scalar,
    cast,
    columns_of,
    function_name,
)
from sqlfront.planner.model.query import Atom, Comparison, Condition, Definition, LeafColumn, Reference
from sqlfront.sql.keywords import quoted
from sqlfront.storage.codecs.nested_types import LOOSE_VARIANTS, has_loose_variants


@dataclass
class _Variable:
    name: str
    type: str
    members: dict[str, Scalar]
    label: str
    nulls: bool = False
    outer: dict[str, Scalar] = field(default_factory=dict)
    strict: set[str] = field(default_factory=set)


class Leaves:
    """Collects variables and factors while the output is bound; `build` then gives the atoms.

    A variable's or a raw column's value is a Ref to a column of that name: `reference` and `named`. A variable's
    members are equal in each row of the join, with `nulls` where all are NULL, too. Its `outer` atoms, which may be
    missing, have it as a key, which is no value of theirs; a key of `strict` ones is not NULL.
    """

    def __init__(self, core: JoinCore, conditions: Conditions, types: ComparedTypes, notes: Notes) -> None:
        self._core, self._conditions, self._types, self._notes = core, conditions, types, notes
        self._atoms = {atom.name: atom for atom in core.atoms}
        self._names: set[str] = set()
        self._variables: dict[str, _Variable] = {}
        self._by_element: dict[tuple[str, Scalar], str] = {}
        self._factors: dict[tuple[str, Scalar], tuple[str, Scalar]] = {}
        for equality_class in conditions.classes:
            name = self._declare(equality_class.type, equality_class.members, equality_class.nulls)
            for element in equality_class.elements:
                self._by_element[element] = name
            for atom, value in equality_class.members.items():
                self._by_element.setdefault((atom, cast(value, equality_class.type)), name)
        for pair, name, kind in conditions.keys:
            self._add_key(self._held(pair.mine, kind), name, pair)
        self.comparisons = tuple(dict.fromkeys(self._compare(sides) for sides in conditions.comparisons))

    def variable(self, value: Scalar) -> str:
        """The variable that holds an expression of one atom; made if there is none. Raises NotSupportedError."""
        element = (self._core.atoms_of(value)[0], value)
        if element not in self._by_element:
            outer = self._core.outer.get(element[0])
            if outer is not None and not outer.missing.is_null(value):
                raise OuterChildError("an expression above it has a value where its row is missing")
            if has_loose_variants(value.type):
                place = self._notes.place_of(value)
                raise self._notes.refusal(f"A column of type {value.type}", place, LOOSE_VARIANTS, "select its parts")
            self._by_element[element] = self._declare(value.type, {element[0]: value})
        return self._by_element[element]

    def variable_type(self, name: str) -> str:
        return self._variables[name].type

    def reference(self, value: Scalar) -> Scalar:
        """The expression's value as read from its variable, in the expression's own type."""
        name = self.variable(value)
        return cast(named(name, self._variables[name].type), value.type)

    def factor(self, value: Scalar, atom: str) -> str:
        """The name of the factor that computes a value in the atom's leaf."""
        element = (atom, value)
        if element not in self._factors:
            outer = self._core.outer.get(atom)
            if outer is not None and not outer.missing.adds_nothing(value):
                raise OuterChildError("an aggregate above it adds a value where its row is missing")
            plain = isinstance(value, Ref)
            base = self._core.name_of(value.column) if isinstance(value, Ref) else f"{atom}_factor"
            name = self._free_name([f"{base}_sum", f"{atom}_{base}"] if plain else [base])
            self._factors[element] = (name, value)
        return self._factors[element][0]

    def never_null(self, value: Scalar) -> bool:
        """Whether the expression has a value in every row of the join; sound, not complete."""
        return never_null(value, lambda column: self._is_join_column(column) or self._core.is_declared(column))

    def unused_name(self, base: str) -> str:
        """A name no variable or factor has, reserved for the caller."""
        return self._free_name([base])

    def build(self) -> tuple[Atom, ...]:
        """The atoms with all that was asked for."""
        columns = [
            (atom, self._column(one.name, value, one.type))
            for one in self._variables.values()
            for atom, value in (*one.members.items(), *one.outer.items())
        ]
        sums = [(atom, self._column(name, value, value.type)) for (atom, _), (name, value) in self._factors.items()]
        return tuple(self._atom(atom, _of(columns, atom.name), _of(sums, atom.name)) for atom in self._atoms.values())

    def compared(self, definition: Definition) -> Definition:
        """The definition with the comparisons, and with sets of their variables that grow strictly with one
        expression of an atom. A variable of several atoms is in no set: the expression of one atom says nothing of
        another atom's rows.
        """
        compared = frozenset[str]().union(*(one.scheme for one in self.comparisons))
        found: dict[tuple[str, Scalar], list[str]] = {}
        for one in self._variables.values():
            if one.name in compared and len(one.members) + len(one.outer) == 1:
                [(atom, value)] = one.members.items()
                found.setdefault((atom, strict_base(value, self._types)), []).append(one.name)
        co_sorted = tuple(frozenset(names) for names in found.values() if len(names) > 1)
        return replace(definition, comparisons=self.comparisons, co_sorted=co_sorted)

    def labels(self) -> tuple[tuple[str, str], ...]:
        return tuple((variable.name, variable.label) for variable in self._variables.values())

    def _compare(self, sides: ComparedSides) -> Comparison:
        """The comparison of variables that hold both sides in the type in which they are compared."""
        return Comparison(self._held(sides.left, sides.type), sides.operator, self._held(sides.right, sides.type))

    def _add_key(self, name: str, atom: str, pair: Pair) -> None:
        """Make a variable of the atoms around it a part of the key of an atom that may be missing, and of the atoms of
        its group in which an expression is equal to it."""
        variable = self._variables[name]
        known = self._by_element.get((atom, pair.theirs))
        members = {atom: pair.theirs} | (self._variables[known].members if known is not None else {})
        variable.strict.update(() if pair.nulls else members)
        for member, expression in members.items():
            held = variable.outer.get(member)
            if held is None:
                variable.outer[member] = self._apart(member, expression)
            elif held != expression:
                same = Compare(pair.operator, cast(held, variable.type), cast(expression, variable.type))
                self._conditions.add_predicate(member, same)

    def _apart(self, atom: str, value: Scalar) -> Scalar:
        """An expression of an atom that may be missing as one that none of its variables has: columns of its rows have
        different expressions."""
        while any(value in (one.outer.get(atom), one.members.get(atom)) for one in self._variables.values()):
            value = call("({0})", value.type, value)
        return value

    def _held(self, value: Scalar, type_: str) -> str:
        """The variable that holds an expression's value in a type."""
        known = self._by_element.get((self._core.atoms_of(value)[0], value))
        if known is not None and self._variables[known].type == type_:
            return known
        if known is None and value.type == type_:
            return self.variable(value)
        held = cast(value, type_)
        self._notes.move(value, held)
        return self.variable(held)

    def _is_never_null(self, variable: _Variable) -> bool:
        """Whether a row whose variable is NULL joins nothing."""
        compared = any(variable.name in one.scheme and one.rejects_nulls for one in self.comparisons)
        return compared or (len(variable.members) > 1 and not variable.nulls)

    def _is_join_column(self, column: Column) -> bool:
        owner = self._core.owner(column)
        name = None if owner in self._core.outer else self._by_element.get((owner, Ref(column)))
        return name is not None and self._is_never_null(self._variables[name])

    def _declare(self, kind: str, members: dict[str, Scalar], nulls: bool = False) -> str:
        atom, value = next(iter(members.items()))
        members = {
            one: self._apart(one, member) if one in self._core.outer else member for one, member in members.items()
        }
        columns = [self._core.name_of(one.column) for one in members.values() if isinstance(one, Ref)]
        if columns:
            names = [columns[0], f"{atom}_{columns[0]}"]
        else:
            function = function_name(value.form) if isinstance(value, Call) else ""
            names = [f"{atom}_{function if function.isidentifier() else 'value'}"]
        name = self._free_name(names)
        label = name if columns else self._notes.written(value) or self._core.label(value)
        self._variables[name] = _Variable(name, kind, members, label, nulls)
        return name

    def _free_name(self, wanted: list[str]) -> str:
        numbered = [f"{wanted[-1]}_{i}" for i in range(2, len(self._names) + 3)]
        name = next(name for name in [*wanted, *numbered] if name.lower() not in self._names)
        self._names.add(name.lower())
        return name

    def _column(self, name: str, value: Scalar, kind: str) -> LeafColumn:
        columns = columns_of(value)
        source = self._core.name_of(next(iter(columns))) if columns else ""
        plain = isinstance(value, Ref)
        presence = len(columns) == 1 and value == presence_of(Ref(next(iter(columns))))
        return LeafColumn(
            name,
            self._core.text(cast(value, kind)),
            kind,
            source=source if plain and value.type == kind else None,
            presence_of=source if presence else None,
            not_null=self.never_null(value) and all(map(self._core.is_declared, columns)),
        )

    def _where(self, atom: str) -> tuple[Condition, ...]:
        found = []
        for predicate in self._conditions.predicates[atom]:
            sides = equated_columns(predicate)
            equates = (self._core.text(sides[0]), self._core.text(sides[1])) if sides else None
            found.append(Condition(self._core.text(predicate), equates, self._read(predicate)))
        return tuple(found)

    def _read(self, predicate: Scalar) -> tuple[tuple[str, str], ...]:
        """The columns that a condition reads, with their types."""
        read = sorted((self._core.name_of(column), column.type) for column in columns_of(predicate))
        return tuple((quoted(name), type_) for name, type_ in read)

    def _atom(self, atom: AtomTable, variables: list[LeafColumn], factors: list[LeafColumn]) -> Atom:
        variables_of = self._variables.values()
        joins = [v for v in variables_of if atom.name in v.members and self._is_never_null(v)]
        joins += [v for v in variables_of if atom.name in v.strict]
        outer = self._core.outer.get(atom.name)
        return Atom(
            name=atom.name,
            table=atom.table,
            variables=tuple(variables),
            factors=tuple(factors),
            conditions=self._where(atom.name),
            required=frozenset(variable.name for variable in joins),
            keys=self._keys(atom),
            references=self._references(atom),
            is_constant=atom.is_constant,
            presence=outer.presence if outer is not None else "required",
            within=outer.within if outer is not None else None,
            copies=None if atom.copies is None else self._column("copies", atom.copies, atom.copies.type),
        )

    def _references(self, atom: AtomTable) -> tuple[Reference, ...]:
        """Declared foreign keys whose columns are variables of the atom."""
        held, found = self._held_columns(atom), []
        for columns, table, targets in atom.references:
            names = [held.get(column) for column in columns]
            pairs = tuple((name, target) for name, target in zip(names, targets, strict=True) if name)
            if len(pairs) == len(columns):
                found.append(Reference(table, pairs))
        return tuple(found)

    def _keys(self, atom: AtomTable) -> tuple[frozenset[str], ...]:
        """Declared keys whose columns are variables of the atom or fixed to a constant."""
        fixed_values = fixed_columns(self._conditions.predicates[atom.name])
        fixed = {one.name for one in atom.columns if Ref(one.column) in fixed_values}
        held, found = self._held_columns(atom), []
        for columns in atom.keys:
            names = {column: held.get(column) for column in columns}
            if all(name or column in fixed for column, name in names.items()):
                found.append(frozenset(name for name in names.values() if name))
        return tuple(dict.fromkeys(found))

    def _held_columns(self, atom: AtomTable) -> dict[str, str]:
        """By the table's names, the variables that hold columns."""
        pairs = ((one.name, self._by_element.get((atom.name, Ref(one.column)))) for one in atom.columns)
        held = {column: name for column, name in pairs if name is not None}
        keys = ((one.outer.get(atom.name), one.name) for one in self._variables.values())
        return held | {self._core.name_of(key.column): name for key, name in keys if isinstance(key, Ref)}


def named(name: str, type_: str) -> Scalar:
    """A variable or raw column, by its name."""
    return Constant(quoted(name), type_)


def presence_of(value: Scalar) -> Scalar:
    """1 where a value is not NULL."""
    return call("CASE WHEN {0} THEN {1} END", "INTEGER", is_not_null(value), Constant("1", "INTEGER"))


def _of(pairs: list[tuple[str, Any]], atom: str) -> list[Any]:
    return [value for owner, value in pairs if owner == atom]

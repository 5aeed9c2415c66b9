"""The join of a block in the making: its atoms, its conditions, and what computed columns stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from sqlfront.binding.table_catalog import ForeignKey
from sqlfront.cut.expressions.scalar_forms import in_words, with_names
from sqlfront.planner.algebra.join_sides import Pair
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    Scalar,
    columns_of,
    conjuncts,
    substitute,
    transform,
)
from sqlfront.planner.algebra.terms import Sort
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.planner.model.query import Presence
from sqlfront.sql.keywords import quoted
from sqlfront.sql.trees import Span


@dataclass(frozen=True)
class AtomColumn:
    """A column of an atom: in the term, and in the table."""

    column: Column
    name: str
    not_null: bool = False


@dataclass(frozen=True)
class AtomTable:
    """A table at one place of the join; with `copies` each of its rows stands there as often as that says."""

    name: str
    table: str
    columns: tuple[AtomColumn, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    references: tuple[ForeignKey, ...] = ()
    at: Span | None = None
    is_constant: bool = False
    copies: Scalar | None = None


OuterForm = Literal["groups", "children", "sides", "joins"]
"""What outer joins are: children of their block's tree, with joins on their right sides as groups of children, or as
views of their own, or with both sides as such; or inner joins, unions and counts."""
OUTER_FORMS: tuple[OuterForm, ...] = ("groups", "children", "sides", "joins")


class OuterChildError(Exception):
    """Why an outer join is no optional or absent child of its block's tree."""


class Missing(Protocol):
    """What expressions are where all columns that they read are NULL."""

    def is_null(self, value: Scalar) -> bool: ...

    def adds_nothing(self, value: Scalar) -> bool: ...

    def is_true(self, value: Scalar) -> bool: ...


@dataclass(frozen=True)
class OuterAtom:
    """How an atom that may be missing is joined: `pairs` are expressions of the atoms around it with equal ones of its
    own or of its group, which are the atoms `within` it. Those may be missing with it.

    `missing` tells what expressions over it are in a missing row.
    """

    presence: Presence
    pairs: tuple[Pair, ...]
    missing: Missing
    within: str | None = None


@dataclass
class JoinCore:
    """Atoms and conditions in the order of the query; names its atoms may not have.

    `has_copies`: rows of the query stand in it several times, where that does not count.
    `values` has, for each computed column of the term, its value over the columns of atoms, `lost` why a column has
    none. `outer` are the atoms that may be missing, by their names; `merged` has, for two of their expressions, the
    value of the one that is not NULL.
    """

    atoms: list[AtomTable] = field(default_factory=list)
    conditions: list[Scalar] = field(default_factory=list)
    reserved: frozenset[str] = frozenset()
    values: dict[Column, Scalar] = field(default_factory=dict)
    lost: dict[Column, Exception] = field(default_factory=dict)
    has_copies: bool = False
    outer: dict[str, OuterAtom] = field(default_factory=dict)
    merged: dict[frozenset[Scalar], Scalar] = field(default_factory=dict)
    _owners: dict[Column, str] = field(default_factory=dict)
    _columns: dict[Column, AtomColumn] = field(default_factory=dict)

    def add_atom(
        self,
        alias: str,
        table: str,
        columns: Sequence[AtomColumn],
        keys: Sequence[tuple[str, ...]] = (),
        references: Sequence[ForeignKey] = (),
        at: Span | None = None,
        is_constant: bool = False,
    ) -> None:
        """A new atom, called by its alias if that is free."""
        taken = {atom.name for atom in self.atoms} | self.reserved
        wanted = alias.lower()
        name = next(n for i in range(len(taken) + 1) if (n := wanted if i == 0 else f"{wanted}_{i + 1}") not in taken)
        self.atoms.append(AtomTable(name, table, tuple(columns), tuple(keys), tuple(references), at, is_constant))
        self._owners |= {one.column: name for one in columns}
        self._columns |= {one.column: one for one in columns}

    def add_copies(self, copies: Scalar) -> None:
        """Have each row of the last atom stand in the join as often as an expression of it says."""
        self.atoms[-1] = replace(self.atoms[-1], copies=self.over_atoms(copies))

    def over_atoms(self, value: Scalar) -> Scalar:
        """An expression over columns of atoms."""
        found = substitute(value, self.values) if self.values else value
        if self.merged:
            found = transform(found, self._merged_key)
        for column in columns_of(found) & self.lost.keys():
            raise self.lost[column]
        return found

    def merge(self, sides: Iterable[Scalar], value: Scalar) -> None:
        """Have a value stand for coalesce() of two expressions, as it is the one which is not NULL."""
        self.merged[frozenset(map(self.over_atoms, sides))] = self.over_atoms(value)

    def _merged_key(self, part: Scalar) -> Scalar:
        if isinstance(part, Call) and part.form == "coalesce({0}, {1})":
            value = self.merged.get(frozenset(part.arguments))
            return part if value is None or value.type != part.type else value
        return part

    def add_conditions(self, condition: Scalar) -> None:
        for part in conjuncts(self.over_atoms(condition)):
            if self.outer.keys() & set(self.atoms_of(part)):
                raise OuterChildError("a condition above it reads the columns that it may leave NULL")
            if part not in self.conditions:
                self.conditions.append(part)

    def atoms_of(self, value: Scalar) -> list[str]:
        """The names of the atoms that an expression reads, sorted."""
        return sorted({self._owners[column] for column in columns_of(value) if column in self._owners})

    def atom(self, name: str) -> AtomTable:
        return next(atom for atom in self.atoms if atom.name == name)

    def owner(self, column: Column) -> str:
        return self._owners[column]

    def is_own(self, column: Column) -> bool:
        return column in self._owners

    def name_of(self, column: Column) -> str:
        """What the table calls a column."""
        return self._columns[column].name

    def is_declared(self, column: Column) -> bool:
        """Whether a column is declared NOT NULL, and its row always there."""
        return self._columns[column].not_null and self._owners[column] not in self.outer

    def text(self, value: Scalar) -> str:
        """An expression of one atom as SQL over its table's columns."""
        return with_names(value, {column: self.name_of(column) for column in columns_of(value)})

    def label(self, value: Scalar) -> str:
        """An expression of one atom as text for people, over its table's columns."""
        return self.text(transform(value, in_words))

    def spelled(self, value: Scalar) -> str:
        """An expression as text for people, over the columns of atoms."""
        return scalar_sql(substitute(value, {column: self._shown(column) for column in columns_of(value)}))

    def spelled_order(self, order: Sequence[Sort]) -> str:
        """An order as text for people."""
        return ", ".join(self.spelled(one.value) + " DESC" * one.descending for one in order)

    def _shown(self, column: Column) -> Scalar:
        atom = self._owners.get(column)
        name = quoted(column.name if atom is None else self.name_of(column))
        return Constant(name if atom is None else f"{quoted(atom)}.{name}", column.type)

    def require(self, name: str) -> None:
        """Make an atom that may be missing a required one, and those with which alone it is there."""
        outer = self.outer.pop(name)
        if outer.within in self.outer:
            self.require(outer.within)
        for other, one in list(self.outer.items()):
            if one.within == name and one.presence == "required" and other in self.outer:
                self.require(other)
        for pair in outer.pairs:
            self.add_conditions(Compare(pair.operator, pair.mine, pair.theirs))

    def drop(self, name: str) -> None:
        """Leave out an atom that may be missing, with its group, and that nothing reads."""
        del self.outer[name]
        self.atoms = [atom for atom in self.atoms if atom.name != name]
        self.conditions = [one for one in self.conditions if name not in self.atoms_of(one)]
        for other, one in list(self.outer.items()):
            if one.within == name and other in self.outer:
                self.drop(other)

    def group_of(self, name: str) -> frozenset[str]:
        """The atoms that are missing where an atom is: itself and those within it."""
        own = (self.group_of(other) for other, one in self.outer.items() if one.within == name)
        return frozenset({name}).union(*own)

    def narrowed(self) -> JoinCore:
        """The same join, to which conditions may be added."""
        found = JoinCore(list(self.atoms), list(self.conditions), self.reserved, dict(self.values), dict(self.lost))
        found.has_copies = self.has_copies
        found.outer, found.merged = dict(self.outer), dict(self.merged)
        found._owners, found._columns = dict(self._owners), dict(self._columns)
        return found

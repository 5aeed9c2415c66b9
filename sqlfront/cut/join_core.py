"""The join of a block in the making: its atoms, its conditions, and what computed columns stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlfront.binding.table_catalog import ForeignKey
from sqlfront.cut.scalar_forms import with_names
from sqlfront.planner.algebra.scalars import Column, Constant, Scalar, columns_of, conjuncts, substitute
from sqlfront.planner.algebra.to_sql import scalar_sql
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
    """A table at one place of the join."""

    name: str
    table: str
    columns: tuple[AtomColumn, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    references: tuple[ForeignKey, ...] = ()
    at: Span | None = None
    is_constant: bool = False


@dataclass
class JoinCore:
    """Atoms and conditions in the order of the query; names its atoms may not have.

    `values` has, for each computed column of the term, its value over the columns of atoms, `lost` why a column has
    none.
    """

    atoms: list[AtomTable] = field(default_factory=list)
    conditions: list[Scalar] = field(default_factory=list)
    reserved: frozenset[str] = frozenset()
    values: dict[Column, Scalar] = field(default_factory=dict)
    lost: dict[Column, Exception] = field(default_factory=dict)
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

    def over_atoms(self, value: Scalar) -> Scalar:
        """An expression over columns of atoms."""
        found = substitute(value, self.values) if self.values else value
        for column in columns_of(found) & self.lost.keys():
            raise self.lost[column]
        return found

    def add_conditions(self, condition: Scalar) -> None:
        for part in conjuncts(self.over_atoms(condition)):
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
        """Whether a column is declared NOT NULL."""
        return self._columns[column].not_null

    def text(self, value: Scalar) -> str:
        """An expression of one atom as SQL over its table's columns."""
        return with_names(value, {column: self.name_of(column) for column in columns_of(value)})

    def spelled(self, value: Scalar) -> str:
        """An expression as text for people, over the columns of atoms."""
        return scalar_sql(substitute(value, {column: self._shown(column) for column in columns_of(value)}))

    def _shown(self, column: Column) -> Scalar:
        atom = self._owners.get(column)
        name = quoted(column.name if atom is None else self.name_of(column))
        return Constant(name if atom is None else f"{quoted(atom)}.{name}", column.type)

    def narrowed(self) -> JoinCore:
        """The same join, to which conditions may be added."""
        found = JoinCore(list(self.atoms), list(self.conditions), self.reserved, dict(self.values), dict(self.lost))
        found._owners, found._columns = dict(self._owners), dict(self._columns)
        return found

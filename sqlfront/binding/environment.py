"""What a query block sees besides its own FROM: the catalog, WITH, the session's order of rows, the query around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sqlfront.binding.function_catalog import Functions
from sqlfront.binding.notes import Notes
from sqlfront.binding.scalar_types import Types
from sqlfront.binding.session_settings import Settings
from sqlfront.binding.sight import Sight
from sqlfront.binding.table_catalog import CatalogView
from sqlfront.planner.algebra.scalars import Column, Scalar
from sqlfront.planner.algebra.terms import Sort, Term


@dataclass(frozen=True)
class Output:
    """A query's rows: the term, and the names under which its first columns are put out; `more` orders of them."""

    term: Term
    names: tuple[str, ...]
    more: tuple[tuple[Sort, ...], ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.term.columns[: len(self.names)]


@dataclass(frozen=True)
class Named:
    """A query of WITH: each use is a term with columns of its own."""

    use: Callable[[], Output]


@dataclass
class Numbers:
    """The numbers of columns and shared terms that are in use, and the types of the columns."""

    last: int = 0
    types: set[str] = field(default_factory=set)

    def column(self, name: str, type_: str) -> Column:
        self.last += 1
        self.types.add(type_)
        return Column(self.last, name, type_)

    def like(self, column: Column) -> Column:
        """A new column with the name and type of another."""
        return self.column(column.name, column.type)

    def next(self) -> int:
        self.last += 1
        return self.last


@dataclass(frozen=True)
class Defaults:
    """What ORDER BY means where it does not say: the session's settings at CREATE, which the view keeps."""

    descending: bool
    nulls: str

    def sort(self, value: Scalar, descending: bool | None = None, nulls_first: bool | None = None) -> Sort:
        down = self.descending if descending is None else descending
        if nulls_first is not None:
            return Sort(value, down, nulls_first)
        by_direction = "first_on_desc" if down else "first_on_asc"
        return Sort(value, down, self.nulls == "nulls_first" or by_direction in self.nulls)

    def written(self, value: Scalar, node: exp.Ordered) -> Sort:
        return self.sort(value, node.args.get("desc"), node.args.get("nulls_first"))


@dataclass(frozen=True)
class Environment:
    """The surroundings of a block. `con` is a DuckDB cursor without an open result; no table is read."""

    con: Any
    catalog: CatalogView
    functions: Functions
    types: Types
    notes: Notes
    numbers: Numbers
    defaults: Defaults
    ctes: Mapping[str, Named] = field(default_factory=dict)
    outer: Sight | None = None
    views: frozenset[str] = frozenset()

    def inside(self, sight: Sight) -> Environment:
        """The surroundings of a query inside one that sees this."""
        return replace(self, outer=sight)

    def apart(self) -> Environment:
        """The surroundings of a view's text."""
        return replace(self, ctes={}, outer=None)


def defaults_of(settings: Settings) -> Defaults:
    """What default_order and default_null_order say."""
    return Defaults(settings["default_order"] == "DESCENDING", settings["default_null_order"].lower())

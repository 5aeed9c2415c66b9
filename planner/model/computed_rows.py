"""Rows that no view tree has, as plan data: what is computed, from which relations, and at what cost. DuckDB computes
most of them.

Each kind of rows is one value that says all that others ask of it: its bounds, the note that EXPLAIN gives, and why no
shard computes it. `maintenance/output/computed_nodes.py` lists the node that keeps each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from sqlfront.planner.model.bound import CONSTANT_BOUND, LINEAR_BOUND, TOUCHED_ROWS, Bound
from sqlfront.planner.model.cost import TIMED, TOUCHED, TOUCHED_WHOLE, Cost


class OneShard(NamedTuple):
    """Why rows are computed in one process only: what is refused, the cause, and a way out."""

    what: str
    why: str
    hint: str


class ComputedRows(Protocol):
    """Rows computed with these `columns`, from the relations `tables`, under these `settings` of DuckDB.

    `label` names the computation for EXPLAIN, `block` the rows. `cost` is that of the node that keeps them; None if
    they cost nothing. `output` bounds the rows that one changed row of a relation changes among them.
    """

    @property
    def columns(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def label(self) -> str: ...

    @property
    def tables(self) -> frozenset[str]: ...

    @property
    def settings(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def cost(self) -> Cost | None: ...

    @property
    def output(self) -> Bound: ...

    @property
    def block(self) -> str:
        """What people call the block that they are, where its cost is stated."""
        ...

    @property
    def note(self) -> str:
        """How they are kept, for the reason that EXPLAIN gives."""
        ...

    @property
    def one_shard(self) -> OneShard: ...

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same rows, from relations called by `names`."""
        ...

    def under(self, settings: tuple[tuple[str, str], ...]) -> Self:
        """The same rows, computed under these settings."""
        ...


@dataclass(frozen=True)
class GroupingSets:
    """Several groupings of the same rows: `keys` are those of each set, among the keys of the groups.

    DuckDB gets a row once for each set, whose number is the column `tag` of `{rows}`. Of the computed columns
    `shown_tag` is this number.
    """

    keys: tuple[tuple[str, ...], ...]
    tag: str
    shown_tag: str


@dataclass(frozen=True)
class TouchedGroups:
    """Groups, or partitions, of a relation's rows that DuckDB computes: in an epoch only those with changed rows.

    `table` is the relation; rows of one group have the same values in its columns `keys` (none: all rows are one
    group), which are the `shown_keys` of the computed `columns`, in the same order. `query` is DuckDB SQL that computes
    these over the rows of some groups, `{rows}`, under `settings` of DuckDB. `label` names the computation for EXPLAIN.
    `single`: a group makes one row at most, as in an aggregate. With `sets`, a row belongs to a group of each.
    """

    table: str
    keys: tuple[str, ...]
    query: str
    columns: tuple[tuple[str, str], ...]
    shown_keys: tuple[str, ...] = ()
    label: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    single: bool = False
    sets: GroupingSets | None = None

    @property
    def groupings(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each grouping of the rows."""
        return self.sets.keys if self.sets is not None else (self.keys,)

    @property
    def tables(self) -> frozenset[str]:
        """What the groups are read from."""
        return frozenset((self.table,))

    @property
    def cost(self) -> Cost:
        return TOUCHED if all(self.groupings) else TOUCHED_WHOLE

    @property
    def output(self) -> Bound:
        """All rows of a group may change with one of them."""
        if self.single:
            return CONSTANT_BOUND
        return CONSTANT_BOUND.plus(TOUCHED_ROWS) if self.keys else LINEAR_BOUND

    @property
    def block(self) -> str:
        return f"the groups of {self.label}"

    @property
    def note(self) -> str:
        kept = "which are kept by group" if all(self.groupings) else "all rows being one group"
        return f"{self.label}: DuckDB computes the groups that a change touches, from their rows, {kept}"

    @property
    def one_shard(self) -> OneShard:
        return OneShard(
            f"shards do not compute {self.label}",
            "DuckDB computes the groups that a change touches, from rows that one process keeps",
            "leave it out of the sharded view, and compute it over the shards' rows",
        )

    def renamed(self, names: Mapping[str, str]) -> TouchedGroups:
        return replace(self, table=names.get(self.table, self.table))

    def under(self, settings: tuple[tuple[str, str], ...]) -> TouchedGroups:
        return replace(self, settings=settings)


@dataclass(frozen=True)
class TimeBound:
    """A comparison of a column with an expression of the clock: DuckDB computes `clock` in `type` from the clock's
    value, which is the column `"clock"` of `{rows}`. `label` is the comparison for people.

    `steady`: the expression never goes back. With months it may, and where clocks are put back in autumn.
    """

    column: str
    operator: str
    clock: str
    type: str
    label: str
    steady: bool = False


CLOCK = "clock"
"""What TemporalRows call their clock until a view has chosen one."""


@dataclass(frozen=True)
class TemporalRows:
    """The rows of a relation that pass comparisons with the clock, all of `bounds`: a temporal filter.

    `table` is the relation, `clock` the one that has the clock's value. `columns` are some of the relation's
    columns, by their names there. A comparison with NULL never passes.
    """

    table: str
    bounds: tuple[TimeBound, ...]
    columns: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...] = ()
    clock: str = CLOCK

    @property
    def label(self) -> str:
        return f"the temporal filter {' and '.join(bound.label for bound in self.bounds)}"

    @property
    def tables(self) -> frozenset[str]:
        """What the rows are read from."""
        return frozenset((self.table,))

    @property
    def cost(self) -> Cost:
        return TIMED

    @property
    def output(self) -> Bound:
        """A changed row passes or not."""
        return CONSTANT_BOUND

    @property
    def block(self) -> str:
        return self.label

    @property
    def note(self) -> str:
        return (
            f"{self.label}: rows wait in the order of the compared values; when time goes on, the rows between the old "
            "and the new bound come or go: O(log N), and a step for each of them"
        )

    @property
    def one_shard(self) -> OneShard:
        return OneShard(
            f"shards do not compute {self.label}",
            "the rows that come and go with time are kept by the process that has the clock",
            "leave the comparison out of the sharded view, and make it over the shards' rows",
        )

    def renamed(self, names: Mapping[str, str]) -> TemporalRows:
        return replace(self, table=names.get(self.table, self.table), clock=names.get(self.clock, self.clock))

    def under(self, settings: tuple[tuple[str, str], ...]) -> TemporalRows:
        return replace(self, settings=settings)


@dataclass(frozen=True)
class ConstantRows:
    """Rows that no table decides: DuckDB computes `query` under `settings` when a view is built. They never change.

    `label` names them for EXPLAIN.
    """

    query: str
    columns: tuple[tuple[str, str], ...]
    label: str = ""
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def tables(self) -> frozenset[str]:
        """None: the rows are read from nothing."""
        return frozenset()

    @property
    def cost(self) -> None:
        """No change reaches them."""

    @property
    def output(self) -> Bound:
        return CONSTANT_BOUND

    @property
    def block(self) -> str:
        return self.label

    @property
    def note(self) -> str:
        return f"{self.label}: the rows are constant; DuckDB computes them when the view is built"

    @property
    def one_shard(self) -> OneShard:
        return OneShard(
            f"shards do not read constant rows ({self.label})",
            "a shard gets all its rows from tables",
            "put the rows into a table, or join them with the shards' rows",
        )

    def renamed(self, names: Mapping[str, str]) -> ConstantRows:
        return self

    def under(self, settings: tuple[tuple[str, str], ...]) -> ConstantRows:
        return replace(self, settings=settings)

"""The islands of a relation's rows as plan data: groups of rows that follow one another in an order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.model.bound import CONSTANT_BOUND, LATER_ISLANDS, Bound
from sqlfront.planner.model.computed_rows import OneShard
from sqlfront.planner.model.cost import ISLANDS, NUMBERED_ISLANDS, RANGES_LOGARITHMIC, Cost
from sqlfront.planner.model.window_functions import OrderItem


@dataclass(frozen=True)
class IslandRows:
    """Groups of the rows of the relation `table`, each of rows that follow one another. See `ComputedRows`.

    The rows of a `partition` are in the order of `items`, and then of all other columns. DuckDB computes the `columns`
    by `query`, over the rows of whole islands and the rows around them: `before` rows before a row and `after` rows
    after it decide whether an island begins there. `{rows}` has a column more for each of RUN: the number of the run of
    adjacent islands, the row's place, the number of its peers, and whether the row is in the run or around it. The last
    column of the query is the place of the island's first row. The first `compared` items say where an island begins:
    rows that tie in them are peers, which have one number, unless each row has its own, `by_rows`.

    `keys` are the columns with the partition's values. `number` is the column with the island's number, if one has it.
    `label` names the islands for EXPLAIN. `single`: each row is an island of its own, whose values the rows around it
    decide.
    """

    table: str
    partition: tuple[str, ...]
    items: tuple[OrderItem, ...]
    compared: int
    before: int
    after: int
    query: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    number: str | None = None
    by_rows: bool = False
    label: str = "islands"
    single: bool = False
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def block(self) -> str:
        return self.label

    @property
    def tables(self) -> frozenset[str]:
        """What the rows are read from."""
        return frozenset((self.table,))

    @property
    def cost(self) -> Cost:
        if self.single:
            return RANGES_LOGARITHMIC
        return ISLANDS if self.number is None else NUMBERED_ISLANDS

    @property
    def output(self) -> Bound:
        """A row is in one island, and begins, splits or merges a few; the numbers of later ones change with it."""
        return CONSTANT_BOUND if self.number is None else CONSTANT_BOUND.plus(LATER_ISLANDS)

    @property
    def note(self) -> str:
        if self.single:
            return f"{self.label}: the rows are kept in order; DuckDB computes the rows around a changed row, O(log N)"
        found = (
            f"{self.label}: the rows are kept in order; a changed row finds its islands in O(log N), and DuckDB "
            "computes these from their rows"
        )
        if self.number is None:
            return found
        return f"{found}; the number of the islands is put out, so a new island changes all later ones of its partition"

    @property
    def one_shard(self) -> OneShard:
        return OneShard(
            f"shards do not compute {self.label}",
            "the rows that are neighbours in the order may be in several shards",
            "leave them out of the sharded view, and compute them over the shards' rows",
        )

    def renamed(self, names: Mapping[str, str]) -> IslandRows:
        return replace(self, table=names.get(self.table, self.table))

    def under(self, settings: tuple[tuple[str, str], ...]) -> IslandRows:
        return replace(self, settings=settings)


RUN = ("__run", "__place", "__peer", "__inside")
"""The columns that the rows have for the query beside those of the relation."""
RUN_TYPES = ("BIGINT", "BIGINT", "BIGINT", "BOOLEAN")

"""EXPLAIN of shards: what is hashed, what is sent where, and how the shards' rows become the view's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from planner.combination import combine
from planner.partitioning import Dimension, Partitioning, Stream
from planner.query import Definition
from planner.wording import table_name
from sqlfront.shards.plan import spread, table_sizes
from storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.database import Database
    from sqlfront.explanation import Explanation


@dataclass(frozen=True)
class Spread:
    """A view in at most `asked` shards: its partitioning and how rows are combined; or why it has none."""

    asked: int
    definition: Definition
    partitioning: Partitioning | None = None
    combined: str = ""
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """asked, used, hashed {column: shares}, the same by component in grids {atoms, hashed}, tables {table: copies,
        rows, ways}, communication, load, reason, combined; of a view that cannot be in shards, asked, used, reason."""
        found = self.partitioning
        if found is None:
            return {"asked": self.asked, "used": None, "reason": self.why}
        sent = found.rows_sent
        return {
            "asked": self.asked,
            "used": found.shards,
            "hashed": self._hashed(found.dimensions),
            "grids": [{"atoms": list(grid.atoms), "hashed": self._hashed(grid.dimensions)} for grid in found.grids],
            "tables": {
                table_name(table): {"copies": sent[table], "rows": size, "ways": self._ways(found, table)}
                for table, size in found.sizes
            },
            "communication": found.communication(),
            "load": found.load,
            "reason": found.reason,
            "combined": self.combined,
        }

    def lines(self) -> list[str]:
        data, found = self.to_dict(), self.partitioning
        if found is None:
            return [f"none: {self.why}"]
        spelled = [" x ".join(f"{column} in {n}" for column, n in grid["hashed"].items()) for grid in data["grids"]]
        grids = "; ".join(filter(None, spelled))
        lines = [
            f"{data['used']} of {self.asked}" + (f": {grids}" if grids else ""),
            f"{data['reason']}; {self.combined}",
        ]
        for table, sent in data["tables"].items():
            times = "to one shard" if sent["copies"] == 1 else f"to {sent['copies']} shards"
            lines.append(f"{table}: each changed row {times}" + (f", {sent['ways']} ways" if sent["ways"] > 1 else ""))
        mean = f"{data['communication']:.3g} rows sent for a changed row"
        total = sum(sent["rows"] for sent in data["tables"].values())
        share = f"where values are even, a shard holds {data['load'] / total:.3g} of all rows"
        if total > len(data["tables"]):
            stated = ", ".join(f"{table} {sent['rows']:,.0f}" for table, sent in data["tables"].items())
            share += f": {data['load']:,.0f} of {stated}"
        return [*lines, f"{mean}; {share}"]

    def _hashed(self, dimensions: Sequence[Dimension]) -> dict[str, int]:
        return {self._spelled(dimension): dimension.shares for dimension in dimensions}

    def _spelled(self, dimension: Dimension) -> str:
        return self.definition.label(dimension.variable) if dimension.variable else f"the row of {dimension.atom}"

    @staticmethod
    def _ways(found: Partitioning, table: str) -> int:
        streams: Sequence[Stream] = found.streams
        return sum(stream.table == table for stream in streams)


def in_shards(database: Database, con: Any, explained: Explanation, shards: int) -> Explanation:
    """The explanation of a view with that of its shards. ProgrammingError for a number of shards that is none."""
    definition = explained.definition
    if explained.blocks or explained.views:
        why = "it reads a view, or a block that is one of its own, whose changes would have to be sent on to shards"
        return replace(explained, spread=Spread(shards, definition, why=why))
    try:
        found = spread(definition, shards, table_sizes(database, con, definition))
    except NotSupportedError as error:
        return replace(explained, spread=Spread(shards, definition, why=error.why or ""))
    names = {atom: stream.name for stream in found.streams for atom in stream.atoms}
    note = combine(definition, found.hashed, names, found.product).note
    return replace(explained, spread=Spread(shards, definition, found, note))

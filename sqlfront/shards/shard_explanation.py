"""EXPLAIN of shards: what is hashed, what is sent where, and how the shards' rows become the view's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlfront.database.catalog import EngineCatalog
from sqlfront.define.build import bind, bind_stored
from sqlfront.planner.shards.blocks import Dimension
from sqlfront.planner.shards.partitioning import Partitioning, Stream
from sqlfront.planner.theory.wording import table_name
from sqlfront.shards.shard_plan import combined, spread, table_sizes, with_views

if TYPE_CHECKING:
    from sqlfront.database.database import Database


@dataclass(frozen=True)
class Spread:
    """A view in at most `asked` shards: its partitioning, and how rows are combined."""

    asked: int
    partitioning: Partitioning
    combined: str

    def to_dict(self) -> dict[str, Any]:
        """asked, used, hashed {column: shares}, the same by component in grids {atoms, hashed}, tables {table: copies,
        rows, ways}, communication, load, reason, combined."""
        found = self.partitioning
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
        data = self.to_dict()
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

    @staticmethod
    def _hashed(dimensions: Sequence[Dimension]) -> dict[str, int]:
        return {dimension.label: dimension.shares for dimension in dimensions}

    @staticmethod
    def _ways(found: Partitioning, table: str) -> int:
        streams: Sequence[Stream] = found.streams
        return sum(stream.table == table for stream in streams)


def spread_of(database: Database, con: Any, shards: int, written: str | Sequence[str]) -> Spread:
    """How a query as `written`, or a view by the parts of its name, is spread over shards.

    ProgrammingError for a number of shards that is none.
    """
    catalog = EngineCatalog(database, con)
    if isinstance(written, str):
        bound = bind(catalog, con, written, in_shards=True)
    else:
        bound = bind_stored(catalog, con, database.view(con, written), in_shards=True)
    definition = with_views(database, con, bound)
    found = spread(definition, shards, table_sizes(database, con, definition))
    return Spread(shards, found, combined(definition, found).note)

"""Shards run here, one after the other: the router, the engines and the combination that Spark uses, without Spark."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa

from sqlfront.shards import shard
from sqlfront.shards.log import Piece, ShardLog, pack
from sqlfront.shards.plan import ShardPlan
from sqlfront.shards.routes import Router

_queries = itertools.count()


class LocalShards:
    """The shards of a plan, and the rows that they have put out."""

    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.router = plan, Router(plan)
        self.query = f"local {next(_queries)}"
        self.logs: dict[int, ShardLog] = {}
        self.parts: dict[int, Counter] = {}
        self.sent: Counter = Counter()

    def pieces(self, changes: dict[str, pa.Table]) -> dict[int, list[Piece]]:
        """The changes of tables, by the names of the plan, as they arrive at shards."""
        found: dict[int, list[Piece]] = {}
        for table, rows in changes.items():
            for number, stream, routed in self.router.route(table, rows):
                self.sent[table] += routed.num_rows
                found.setdefault(number, []).append(pack(stream, routed))
        return found

    def apply(self, changes: dict[str, pa.Table]) -> None:
        for number, pieces in self.pieces(changes).items():
            log = self.logs.setdefault(number, ShardLog())
            self.take(number, shard.advance(self.plan, self.query, number, log, pieces))

    def take(self, number: int, change: pa.Table | None) -> None:
        """Add the rows that a shard has put out to those it has put out before."""
        if change is None:
            return
        own = self.parts.setdefault(number, Counter())
        for *row, weight in zip(*(column.to_pylist() for column in change.columns)):
            own[tuple(row)] += weight
            assert own[tuple(row)] >= 0, f"shard {number} takes back what it has not given: {row}"

    def rows(self) -> list[tuple[Any, ...]]:
        """The view's rows, as its combination makes them of the shards' rows in DuckDB."""
        con = duckdb.connect()
        names = ", ".join(f'"{name}" {type_}' for name, type_ in self.plan.columns)
        con.execute(f"CREATE TABLE parts ({names})")
        rows = [list(row) for own in self.parts.values() for row in own.elements()]
        if rows:
            con.executemany(f"INSERT INTO parts VALUES ({', '.join('?' * len(self.plan.columns))})", rows)
        found = con.execute(self.plan.combination.query("parts")).fetchall()
        con.close()
        return found

    def close(self) -> None:
        for key in [key for key in shard._hot if key[0] == self.query]:
            shard._hot.pop(key).close()

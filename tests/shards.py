"""Shards run here, one after the other: the router, the engines and the combination that Spark uses, without Spark;
and random changes of three tables for them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

import sqlfront
from sqlfront.shards import shard
from sqlfront.shards.routes import Router
from sqlfront.shards.shard_log import ShardDelta, ShardLog, pack
from sqlfront.shards.shard_plan import ShardPlan
from tests.definition_oracle import insert_rows
from tests.judges import judge

TABLES = {
    "r": {"a": "BIGINT", "b": "VARCHAR", "n": "INTEGER"},
    "s": {"b": "VARCHAR", "c": "BIGINT", "m": "DECIMAL(9,2)"},
    "e": {"x": "INTEGER", "y": "BIGINT"},
}
ARROW = {
    "BIGINT": pa.int64(), "VARCHAR": pa.string(), "INTEGER": pa.int32(), "DECIMAL(9,2)": pa.decimal128(9, 2),
}  # fmt: skip

_queries = itertools.count()


class LocalShards:
    """The shards of a plan, and the rows that they have put out."""

    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.router = plan, Router(plan)
        self.query = f"local {next(_queries)}"
        self.logs: dict[int, ShardLog] = {}
        self.parts: dict[int, Counter] = {}
        self.put_out: list[pa.Table] = []
        self.sent: Counter = Counter()

    def pieces(self, changes: dict[str, pa.Table]) -> dict[int, list[ShardDelta]]:
        """The changes of tables, by the names of the plan, as they arrive at shards."""
        found: dict[int, list[ShardDelta]] = {}
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
        self.put_out.append(change)
        own = self.parts.setdefault(number, Counter())
        for *values, weight in zip(*(column.to_pylist() for column in change.columns)):
            row = _hashable(values)
            own[row] += weight
            assert own[row] >= 0, f"shard {number} takes back what it has not given: {row}"

    def rows(self) -> list[tuple[Any, ...]]:
        """The view's rows, as its combination makes them of the shards' rows in DuckDB."""
        names = ", ".join(f'"{name}" {type_}' for name, type_ in self.plan.columns)
        own = ", ".join(f'"{name}"' for name, _ in self.plan.columns)
        with judge() as con:
            con.execute(f"CREATE TABLE changes ({names}, _weight BIGINT)")
            for change in self.put_out:
                con.register("change", change)
                con.execute(f"INSERT INTO changes SELECT {own}, _weight FROM change")
            netted = f"SELECT {own}, sum(_weight) AS _copies FROM changes GROUP BY ALL"
            con.execute(f"CREATE TABLE parts AS SELECT {own} FROM ({netted}), range(_copies::BIGINT)")
            return con.execute(self.plan.combination.query("parts")).fetchall()

    def close(self) -> None:
        for key in [key for key in shard._hot if key[0] == self.query]:
            shard._hot.pop(key).close()


def _hashable(value):
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return tuple(map(_hashable, value.items())) if isinstance(value, dict) else value


def declared():
    """A connection with the tables."""
    connection = sqlfront.connect()
    for table, columns in TABLES.items():
        types = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        connection.execute(f"CREATE CHANGE TABLE {table} ({types}) WITH (retain = false)")
    return connection


def row_of(rng, table):
    values = {"BIGINT": [0, 1, 2, 3, None], "INTEGER": [0, 1, 2, 3, None], "VARCHAR": ["x", "y", "z", "", None]}
    values["DECIMAL(9,2)"] = [Decimal("0.50"), Decimal("-1.25"), Decimal("3.00"), None]
    return tuple(rng.choice(values[type_]) for type_ in TABLES[table].values())


def stream(seed, steps=3):
    """Batches of changes by table, with their weights; rows of the step before come back or go."""
    rng, held = random.Random(seed), {table: Counter() for table in TABLES}
    for _ in range(steps):
        batch = {}
        for table, kept in held.items():
            old = sorted(kept.elements(), key=repr)
            gone = rng.sample(old, len(old) // 2)
            rows = [(row, -1) for row in gone] + [(row_of(rng, table), rng.choice([1, 1, 2])) for _ in range(9)]
            rows += [(row, 1) for row in gone[:2]]
            rng.shuffle(rows)
            for row, weight in rows:
                kept[row] += weight
            batch[table] = rows
        yield batch, held


def arrow(table, rows):
    arrays = {
        name: pa.array([row[place] for row, _ in rows], ARROW[type_])
        for place, (name, type_) in enumerate(TABLES[table].items())
    }
    return pa.table({**arrays, "_weight": pa.array([weight for _, weight in rows], pa.int64())})


def oracle(held, query):
    with judge() as con:
        for table, columns in TABLES.items():
            con.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {type_}' for name, type_ in columns.items())})")
            rows = [list(row) for row in held[table].elements()]
            if rows:
                insert_rows(con, table, rows)
        return con.execute(query).fetchall()

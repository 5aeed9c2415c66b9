"""The way of rows to their shards: one function that every sender runs, so that all agree where a row is.

A value is hashed by the MD5 of its text, which is the same on every machine and in every version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.database.loading import Evaluator
from sqlfront.planner.shards.partitioning import Hashed, Stream
from sqlfront.shards.shard_plan import ShardPlan
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

WEIGHT = "_weight"
MOST_ROWS = 1 << 16  # In one piece, which is one value in Spark's state store.


class Router:
    """Sends the changes of a plan's tables to shards. One thread at a time."""

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan
        self._evaluate = Evaluator()

    def route(self, table: str, rows: pa.Table) -> Iterator[tuple[int, int, pa.Table]]:
        """(shard, number of the stream, its rows) for changes of a table: its columns by name, and `_weight`.

        O(rows * copies). DataError for values that are none of the columns' types.
        """
        if not rows.num_rows:
            return
        for number, stream in enumerate(self._plan.streams):
            if stream.table == table:
                yield from self._send(number, rows)

    def _send(self, number: int, rows: pa.Table) -> Iterator[tuple[int, int, pa.Table]]:
        import pyarrow as pa

        stream, columns = self._plan.streams[number], self._plan.sent[number]
        names = {name.casefold(): name for name in rows.column_names}
        given = rows.select([names[column.name.casefold()] for column in columns])
        given = given.rename_columns([column.name for column in columns])
        values = [quote(column.name) for column in columns]
        parts = [_part(hashed, stream.shares[hashed.dimension]) for hashed in stream.hashed]
        tests = [" OR ".join(f"({test})" for test in stream.conditions)] if stream.conditions else []
        types = {column.name: column.type for column in columns}
        found = self._evaluate(given, types, [*values, *parts, *(f"({test}) IS TRUE" for test in tests)])
        own = found.select(range(len(columns))).rename_columns([column.name for column in columns])
        own = own.append_column(WEIGHT, rows.column(names[WEIGHT]).cast(pa.int64()))
        cells, strides = np.zeros(rows.num_rows, np.int64), _strides(stream.shares)
        for place, hashed in enumerate(stream.hashed, len(columns)):
            cells += found.column(place).to_numpy().astype(np.int64) * strides[hashed.dimension]
        kept = np.flatnonzero(found.column(found.num_columns - 1).to_numpy()) if tests else np.arange(rows.num_rows)
        offsets = _offsets(stream)
        shards = (cells[kept][:, None] + offsets).ravel()
        positions = np.repeat(kept, len(offsets))
        order = np.argsort(shards, kind="stable")
        yield from self._pieces(own, number, shards[order], positions[order])

    @staticmethod
    def _pieces(
        rows: pa.Table, number: int, shards: np.ndarray, positions: np.ndarray
    ) -> Iterator[tuple[int, int, pa.Table]]:
        import pyarrow as pa

        starts = np.flatnonzero(np.diff(shards, prepend=-1))
        for start, end in zip(starts, np.append(starts, len(shards))[1:], strict=True):
            for first in range(start, end, MOST_ROWS):
                picked = pa.array(positions[first : min(first + MOST_ROWS, end)])
                yield int(shards[start]), number, rows.take(picked).combine_chunks()


def _strides(shares: Sequence[int]) -> list[int]:
    """What the next coordinate adds to the number of a cell, by dimension."""
    return [prod(shares[number + 1 :]) for number in range(len(shares))]


def _offsets(stream: Stream) -> np.ndarray:
    """The cells that a row goes to, as differences from the one with 0 in the dimensions it does not decide."""
    offsets, decided = np.zeros(1, np.int64), {hashed.dimension for hashed in stream.hashed}
    for dimension, (share, stride) in enumerate(zip(stream.shares, _strides(stream.shares), strict=True)):
        if dimension not in decided:
            offsets = (offsets[:, None] + np.arange(share) * stride).ravel()
    return offsets


def _part(hashed: Hashed, share: int) -> str:
    """SQL for a coordinate: the hash of the values, salted by the dimension's number, as one of its shares."""
    texts = ", ".join(f"COALESCE({_text(value, type_)}, '')" for value, type_ in hashed.values)
    return f"CAST(md5_number_lower(concat_ws('|', '{hashed.dimension}', {texts})) % {share} AS BIGINT)"


def _text(value: str, type_: str) -> str:
    """The text of a value: equal for what SQL takes as equal."""
    cast = f"CAST({value} AS {type_})"
    if type_ in ("FLOAT", "DOUBLE"):  # Zeros, and NaNs, of both signs are equal.
        return f"CASE WHEN isnan({cast}) THEN 'nan' ELSE CAST({cast} + 0 AS VARCHAR) END"
    return f"CAST({cast} AS VARCHAR)"

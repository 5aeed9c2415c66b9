"""The rows of a table that keeps its own, by columns: what an UPDATE or a DELETE by key changes.

The table's own store is indexed by the columns at the first such statement: O(rows) once, then O(rows with the key).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.relation.base_relation import LeafStore, Relation
from sqlfront.maintenance.relation.filling import refill
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.encoding import codec_for
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

Codes = Mapping[str, tuple[int, ...]]
"""The codes of values by their columns' names."""


def index_by(machine: Machine, relation: Relation, key: Sequence[str]) -> bool:
    """Index a table's own rows by columns; False if they are already. Programs that change them are stale then."""
    store = _own(relation)
    old, index = store.table, tuple(map(quote, key))
    if index in store.indexes:
        return False
    relation.reindex(store, [index], [False])
    refill(machine, old, store)
    return True


def keyed_changes(
    relation: Relation, key: Sequence[str], codes: Codes, changed: Codes | None
) -> tuple[int, list[tuple[Codes, int]]]:
    """How many rows of an indexed table have these codes, those of `key` among them; and what changes, as rows with
    weights, if they get the changed ones, or go (None)."""
    count, rows = 0, list[tuple[Codes, int]]()
    for held, weight in rows_with(relation, key, codes):
        count += weight
        after = None if changed is None else {**held, **changed}
        if after != held:
            rows.append((held, -weight))
            rows += [] if after is None else [(after, weight)]
    return count, rows


def rows_with(relation: Relation, key: Sequence[str], codes: Codes) -> Iterator[tuple[Codes, int]]:
    """The rows that have these codes, all that a table keeps of them, with their weights, by an index on `key`."""
    store = _own(relation)
    names = {quote(column.name): column.name for column in relation.columns}
    number = store.indexes.index(tuple(map(quote, key)))
    for words in store.table.members_of(number, [word for name in key for word in codes[name]]):
        held, place = dict[str, tuple[int, ...]](), 0
        for column, width in zip(store.variables, store.widths, strict=True):
            held[names[column.expression]] = tuple(words[place : place + width])
            place += width
        if all(held[name] == code for name, code in codes.items()):
            yield held, int.from_bytes(np.array(words[place:], np.int64).tobytes(), "little", signed=True)


def decoded_rows(relation: Relation, rows: Sequence[Codes]) -> pa.RecordBatch:
    """Rows with codes of all their columns, as Arrow."""
    import pyarrow as pa

    arrays, names = [], [column.name for column in relation.columns]
    for column in relation.columns:
        words = zip(*(codes[column.name] for codes in rows), strict=True)
        codec = codec_for(column.type, relation.dictionaries)
        arrays.append(codec.decode([np.array(word, np.int64) for word in words]))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def held_code(codes: Codes, name: str, codec: Codec) -> tuple[int, ...]:
    """For `encode_row`: the code of a column of a row that is held."""
    return codes[name]


def new_code(values: Mapping[str, Any], name: str, codec: Codec) -> tuple[int, ...]:
    """For `encode_row`: the code of a column of a row that comes as Python values."""
    return codec.encode_value(values[name])


def _own(relation: Relation) -> LeafStore:
    assert relation.base is not None
    return relation.base

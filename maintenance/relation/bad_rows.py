"""Which row and expression make a change impossible: an error that says so, for a change that some view cannot take."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.relation.guards import evaluate_items, guard_of
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.codecs.sums import FactorRange, encode_factor
from sqlfront.storage.codecs.transport import is_carried
from sqlfront.storage.errors import DataError, IntegrityError
from sqlfront.storage.kernels import layout as at

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.program.machine import Machine
    from sqlfront.maintenance.relation.base_relation import Input, LeafStore, Relation
    from sqlfront.maintenance.relation.encoded import Encoded
    from sqlfront.planner.model.computed_rows import TouchedGroups
    from sqlfront.planner.model.island_rows import IslandRows

_LONGEST = 200
_RENAMED = re.compile(r'"((?:[^"]|"")*)" AS (c\d+)\b')  # How the query of groups calls the columns of its rows.
_WAYS_OUT = {
    "predicate": "correct the row, or give the condition a value for it (TRY_CAST, TRY, CASE), or leave the row out by "
    "another condition, joined with AND",
    "value": "correct the row, or give the expression a value for it (TRY_CAST, TRY, CASE), or leave the row out of "
    "the view or the aggregate: WHERE, FILTER (WHERE isfinite(x))",
}


def blamed(relation: Relation, rows: pa.Table | pa.RecordBatch, error: DataError) -> DataError:
    """The error with the views, the expression and the first row named; `error` itself where none is found.

    O(inputs + log rows) evaluations.
    """
    # A filter first: the items that it guards fail with it.
    for item in sorted(relation.inputs.values(), key=lambda item: item.kind != "predicate"):
        found = _failure(relation, item, rows)
        if found is None:
            continue
        first, count = 0, rows.num_rows
        while count > 1:
            half = count // 2
            if _failure(relation, item, rows.slice(first, half)) is None:
                first, half = first + half, count - half
            count = half
        row = rows.slice(first, 1)
        users = {view_of(user) for store in _needing(relation, item, row) for user in store.users if user}
        views = ", ".join(sorted(users))
        name = _of(relation)
        told = DataError(
            f"materialized view {views} cannot take a row of {name}"
            if views
            else f"a row of {name} is impossible here",
            where=f"{item.expression}\nwith {_shown(relation, row)}",
            why=found.why if found.what.startswith("a computed column") else f"{found.what}: {found.why}",
            hint=_WAYS_OUT["predicate" if item.kind == "predicate" else "value"],
        )
        told.views = frozenset(users)
        return told
    return error


def view_of(name: str) -> str:
    """The view, as people call it, to which a node of the epoch graph belongs."""
    return name.partition("#")[0].removeprefix("main.")


def _of(relation: Relation) -> str:
    """The relation whose row it is, as EXPLAIN calls it: a table, a view, or a block of the view that reads it."""
    name = table_name(relation.name)
    return f"{name} of its query" if "/" in relation.name.partition("#")[2] else name


def blamed_group(
    node: str,
    groups: TouchedGroups | IslandRows,
    tables: Sequence[str],
    relation: Relation,
    rows: pa.Table,
    compute: Callable[[pa.Table], pa.Table],
    error: DataError,
) -> DataError:
    """The error of touched groups over `tables` that DuckDB cannot `compute`, with the row of `relation` that is to
    blame; or with the first of a short run of rows that fail together. O(log rows) computations."""
    failures = [error]

    def fails(first: int, end: int) -> bool:
        try:
            compute(rows.slice(first, end - first))
        except DataError as failure:
            failures.append(failure)
            return True
        return False

    end = 1 + bisect_left(range(1, rows.num_rows), True, key=lambda end: fails(0, end))
    first = end - 1 - bisect_left(range(end - 1), True, key=lambda less: fails(end - 1 - less, end))
    row = rows.slice(first, 1).select([column.name for column in relation.columns])
    which = "with" if end - first == 1 else f"over {end - first:,} rows, the first of them with"
    named = {code: name for name, code in _RENAMED.findall(groups.query)}
    why = re.sub(r"(?<=source column )c\d+", lambda code: named.get(code[0], code[0]), failures[-1].why or "")
    what, where = f"a group of rows of {' and '.join(tables)}", f"{groups.label}\n{which} {_shown(relation, row)}"
    return _uncomputable(node, what, where, why)


def uncomputable(node: str, what: str, error: DataError) -> DataError:
    """The error of a node of the epoch graph that DuckDB cannot compute."""
    return _uncomputable(node, what, None, error.why)


def _uncomputable(node: str, what: str, where: str | None, why: str | None) -> DataError:
    hint = "correct the row, or change the query so that it has a value: TRY_CAST, TRY, CASE, max(...) in a subquery"
    return DataError(f"materialized view {view_of(node)} cannot compute {what}", where=where, why=why, hint=hint)


def _failure(relation: Relation, item: Input, rows: pa.Table | pa.RecordBatch) -> DataError | None:
    """What evaluating and summing an item over the rows raises."""
    try:
        if item.source is None or item.guards:
            (values,) = evaluate_items(relation, rows, [item])
        else:
            values = rows.column([column.name for column in relation.columns].index(item.source))
        if item.kind == "factor":
            encode_factor(values, item.type, item.limbs, item.shift)
    except FactorRange:
        return None  # It fits after a rescaling.
    except DataError as error:
        return error
    return None


def _needing(relation: Relation, item: Input, row: pa.Table | pa.RecordBatch) -> list[LeafStore]:
    """The stores that fail with the row: those whose filter lets the row through to the item."""
    found = [store for store in relation.stores.values() if any(item is other for other in store.inputs.values())]
    if not item.guards:
        return found
    return [store for store in found if _failure(relation, replace(item, guards=(guard_of(store),)), row) is not None]


def _shown(relation: Relation, row: pa.Table | pa.RecordBatch) -> str:
    types = {column.name: column.type for column in relation.columns}
    text = ", ".join(
        f"{name} = {_value(relation, column, types.get(name, ''))}"
        for name, column in zip(row.schema.names, row.columns, strict=True)
    )
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _value(relation: Relation, column: pa.Array | pa.ChunkedArray, type: str) -> str:
    import pyarrow as pa

    try:
        if is_carried(type) or pa.types.is_fixed_size_binary(column.type):
            column = relation.evaluate(pa.table({"x": column}), {"x": type}, ["CAST(x AS VARCHAR)"]).column(0)
        return repr(column[0].as_py())
    except (OverflowError, ValueError):  # An infinite timestamp, or one beyond the year 9999.
        return f"a {column.type} beyond Python's range"


def absent_row(machine: Machine, encoded: Sequence[Encoded]) -> IntegrityError:
    """The error that a row of these changes is deleted more often than it is there: the one that kernels have noted."""
    address, row = int(machine.scratch[at.BAD_TABLE]), int(machine.scratch[at.BAD_ROW])
    stores = [(item.relation, store) for item in encoded for store in item.relation.stores.values()]
    relation, store = next(found for found in stores if found[1].table.address == address)
    values, place = [], 0
    words = store.table.key_of(row)
    for column, width in zip(store.variables, store.widths, strict=True):
        codec = store.inputs["key " + column.expression].codec
        assert codec is not None
        code = [np.array([word], np.int64) for word in words[place : place + width]]
        values.append(f"{column.expression} = {_value(relation, codec.decode(code), column.type)}")
        place += width
    return IntegrityError(
        f"a row of {_of(relation)} is deleted more often than it is there",
        where="the row with " + ", ".join(values) if values else None,
        why="every view is exact only if no row occurs a negative number of times",
        hint="check the changes of this epoch; nothing of it has been applied",
    )

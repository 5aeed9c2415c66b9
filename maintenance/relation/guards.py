"""The rows on which a table's computed items are evaluated: rows that can enter a store that needs the item.

An item's *guards* are the filters of the stores that need the item. DuckDB evaluates the item where one of the guards
is true, and gives NULL elsewhere, so an expression that fails on a row outside all guards does not fail the epoch.
No store takes such a row, neither as an insert nor as a delete, so the NULL is never kept. The compiled program
(`Computation`) needs no guards: it never fails, but refuses, and then the batch is evaluated here.

The guards cost up to a third of the evaluation, so a table's items are evaluated without guards until an item fails.
Then that batch, and all later batches, are evaluated under guards. A filter is evaluated condition by condition, each
on the rows that the conditions before it let through. If a condition fails nevertheless, that batch is evaluated once
more, so that each condition guards each other: DuckDB's own order of the conditions in WHERE is not fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlfront.maintenance.relation.expressions import item_sql
from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Input, LeafStore, Relation


class Evaluate(Protocol):
    """Evaluates SQL expressions over rows under DuckDB's defaults but for `settings`; the expressions may name
    `filters`, which are evaluated before them, as columns.
    Without `filters`, DuckDB may evaluate what CASE, COALESCE or TRY guards on all rows."""

    def __call__(
        self,
        rows: pa.Table | pa.RecordBatch,
        types: Mapping[str, str],
        expressions: Sequence[str],
        filters: Mapping[str, str] | None = None,
        settings: Settings = (),
    ) -> pa.Table: ...

    def query(
        self, rows: pa.Table | pa.RecordBatch, types: Mapping[str, str], query: str, settings: Settings = ()
    ) -> pa.Table:
        """The rows of a query over `{rows}`, whose columns are cast to `types`."""
        ...


@dataclass(frozen=True)
class Guard:
    """The filter of a store: all `conditions` are true, and no column of `required` (quoted) is NULL."""

    conditions: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def encode_items(relation: Relation, rows: pa.Table | pa.RecordBatch, data: np.ndarray) -> None:
    """Fill in the words of all items of rows. DataError if an item has no value on a row that one of its guards
    lets through."""
    position = {column.name: i for i, column in enumerate(relation.columns)}
    left, brings_texts = [], relation.brings_texts(rows.num_rows, lambda name: rows.column(position[name]))
    for item in relation.inputs.values():
        if item.source is None:
            continue
        if brings_texts and not item.stored:
            data[:, item.place : item.place + item.words] = NULL_CODE
            continue
        try:
            relation.encode_item(item, rows.column(position[item.source]), data)
        except DataError:
            if not item.guards:
                raise
            left.append(item)  # The value may be that of a row that no store takes.
    # The program reads the words of columns: it must not run on words that have not been written.
    if not left and not brings_texts and relation.compute(data):
        return
    relation.guarded |= bool(left)
    left += [item for item in relation.inputs.values() if item.source is None]
    if not relation.guarded:
        try:
            for settings, items in _by_settings(left).items():
                _encode(relation, items, _evaluate(relation, rows, [item_sql(item) for item in items], settings), data)
            return
        except DataError:
            relation.guarded = True
    for items in _by_settings(left).values():
        _encode(relation, items, evaluate_items(relation, rows, items), data)


def evaluate_items(relation: Relation, rows: pa.Table | pa.RecordBatch, items: Sequence[Input]) -> Sequence[Any]:
    """The values of items with the same settings, as DuckDB computes them under the items' guards, NULL where no guard
    is true."""
    settings = items[0].settings
    filters = dict.fromkeys(item.conditions for item in items)
    filters |= dict.fromkeys(guard.conditions for item in items for guard in item.guards)
    filters.pop((), None)
    names = unused_names([column.name for column in relation.columns], len(filters))
    named = dict(zip(filters, names, strict=True))
    texts = [_guarded(item, named) for item in items]

    def evaluate(passing: Callable[[Sequence[str]], str]) -> Sequence[Any]:
        filters = {name: passing(conditions) for conditions, name in named.items()}
        return _evaluate(relation, rows, texts, settings, filters)

    try:
        return evaluate(in_order)
    except DataError:
        if all(len(conditions) == 1 for conditions in named):
            raise
        return evaluate(_in_any_order)


def guard_of(store: LeafStore) -> Guard:
    """The filter of a store. Computed columns that must not be NULL are left out: they are what guards protect."""
    items = [store.inputs["key " + expression] for expression in store.required]
    return Guard(store.conditions, tuple(item.expression for item in items if item.source is not None))


def set_guards(stores: Iterable[LeafStore]) -> None:
    """Give the items of all stores of a table their guards; none to those that some store needs of every row."""
    found: dict[int, tuple[Input, set[Guard]]] = {}
    for store in stores:
        guard = guard_of(store)
        for item in store.inputs.values():
            found.setdefault(id(item), (item, set()))[1].add(guard)
    for item, guards in found.values():
        every = Guard() in guards or item.kind == "predicate"
        item.guards = () if every else tuple(sorted(guards, key=repr))


def in_order(conditions: Sequence[str]) -> str:
    """SQL that is true where all conditions are, else false; each is evaluated where those before it are true.

    DuckDB evaluates AND and OR that way below WHEN, and both sides on all rows elsewhere.
    """
    return f"CASE WHEN {' AND '.join(f'({condition})' for condition in conditions)} THEN true ELSE false END"


def unused_names(taken: Iterable[str], count: int) -> list[str]:
    """Names for computed columns beside those that have these names."""
    known = {name.casefold() for name in taken}
    numbered = (f"filter {number}" for number in range(len(known) + count))
    return [name for name in numbered if name not in known][:count]


def _by_settings(items: Iterable[Input]) -> dict[Settings, list[Input]]:
    found: dict[Settings, list[Input]] = {}
    for item in items:
        found.setdefault(item.settings, []).append(item)
    return found


def _encode(relation: Relation, items: Sequence[Input], values: Sequence[Any], data: np.ndarray) -> None:
    for item, column in zip(items, values, strict=True):
        relation.encode_item(item, column, data)


def _evaluate(
    relation: Relation,
    rows: pa.Table | pa.RecordBatch,
    texts: Sequence[str],
    settings: Settings,
    filters: Mapping[str, str] | None = None,
) -> Sequence[Any]:
    types = {column.name: column.type for column in relation.columns}
    columns: Sequence[Any] = relation.evaluate(rows, types, texts, filters, settings).columns
    return columns


def _in_any_order(conditions: Sequence[str]) -> str:
    """As `in_order`, but a condition that is not true guards all others."""
    untrue = " OR ".join(f"TRY(({condition}) IS NOT TRUE)" for condition in conditions)
    return f"CASE WHEN {untrue} THEN false ELSE {in_order(conditions)} END"


def _guarded(item: Input, named: Mapping[tuple[str, ...], str]) -> str:
    """An item's SQL. `named` are the columns that hold the filters' values."""
    if item.kind == "predicate":
        return f'"{named[item.conditions]}"'
    guards = []
    for guard in item.guards:
        passing = [f'"{named[guard.conditions]}"'] if guard.conditions else []
        guards.append(" AND ".join([*passing, *(f"{column} IS NOT NULL" for column in guard.required)]))
    if not guards:
        return f"({item.expression})"
    return f"CASE WHEN {' OR '.join(f'({guard})' for guard in guards)} THEN ({item.expression}) END"

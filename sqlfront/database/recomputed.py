"""A view's query as DuckDB computes the view's own rows: ties decided, conditions guarded, known faults avoided.

CHECK compares these rows with the view's, and a transaction reads them where the view has moved on (older_reads.py).
They differ from the view's in floating sums alone: DuckDB adds up in the order in which it finds the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.binding.freeze import with_database
from sqlfront.binding.ties import with_deviations, with_guards, without_ties
from sqlfront.database.unpruned import is_pruned, unpruned
from sqlfront.database.view_time import value_at, view_clock
from sqlfront.planner.algebra.clock import FUNCTIONS
from sqlfront.planner.model.computed_rows import TemporalRows
from sqlfront.planner.model.query import Definition
from sqlfront.planner.model.raw_column import statistics_of
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one, printed

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry

_FLOATING = ("FLOAT", "DOUBLE")


def recomputed(database: Database, entry: ViewEntry) -> str:
    """DuckDB SQL for the rows of a view, to be run under the settings `entry.settled`."""
    blocks = [entry.definition, *(block for _, block in entry.definition.own_blocks)]
    deviating = any(statistics_of(block.raw) for block in blocks)
    tree, text = _recomputed(entry.select, database.name, deviating)
    now = _at_time(database, entry, tree)
    return text if now is tree and text else unpruned(database, now)


def sums_floats(definition: Definition) -> bool:
    """Whether a view's rows may depend on the order in which floating numbers are added up."""
    return any(
        column.specials is not None
        or column.statistic is not None
        or column.kind == "weight"
        or (column.kind == "window" and column.type in _FLOATING)
        for one in _all_within(definition)
        for column in one.raw
    ) or any(kind in _FLOATING for kind in _computed_types(definition))


def _all_within(definition: Definition) -> Iterator[Definition]:
    """A definition and all definitions in it."""
    yield definition
    inner = [block for _, block in definition.own_blocks]
    inner += [kept.definition for kept in definition.distinct_sets]
    inner += [branch.definition for branch in definition.branches]
    for one in inner:
        yield from _all_within(one)


def _computed_types(definition: Definition) -> Iterator[str]:
    """The types of the columns that DuckDB computes for nodes other than view trees."""
    for one in _all_within(definition):
        for _, block in one.derived:
            if not isinstance(block, Definition):
                yield from (kind for _, kind in block.columns)


@lru_cache(64)
def _recomputed(select: str, database: str, deviating: bool) -> tuple[exp.Expr, str]:
    """A view's query as DuckDB is to compute it, statistics from deviations if asked. Nobody may change the tree. With
    its text, empty where that is still to be `unpruned`."""
    tree = with_database(parse_one(select), database)
    tree = with_guards(without_ties(with_deviations(tree) if deviating else tree))
    return tree, "" if is_pruned(tree) else printed(tree)


def _at_time(database: Database, entry: ViewEntry, tree: exp.Expr) -> exp.Expr:
    """A view's query with the time of its clock in place of `now()`."""
    moment = database.engine.clocks.time(view_clock(entry))
    if moment is None or not any(isinstance(rows, TemporalRows) for _, rows in entry.definition.derived):
        return tree
    tree = tree.copy()
    for node in list(tree.walk()):
        if (name := _clock_function(node)) is not None:
            node.replace(parse_one(f"SELECT {value_at(moment, name)}").expressions[0])
    return tree


def _clock_function(node: exp.Expr) -> str | None:
    """The function of the clock that a node calls, perhaps without parentheses."""
    name = node.this
    is_word = isinstance(node, exp.Column) and len(node.parts) == 1
    if not isinstance(name, exp.Identifier) or name.quoted or not (is_word or isinstance(node, trees.Call)):
        return None
    found = name.name.lower()
    return found if found in FUNCTIONS else None

"""Rows of a view by values of some of its variables, as Python tuples: one hop to the tree, without DuckDB.

A look-up is made once for the variables, a walk that is begun anew for each set of values. It is there where the values
lead to the rows by a key or an index, and each of the view's columns is a raw one. O(1) where a key leads there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlfront.maintenance.output.aggregate_columns import SUMS
from sqlfront.maintenance.output.output import needed
from sqlfront.maintenance.output.python_values import Column, column_of
from sqlfront.maintenance.output.reading import rows_of
from sqlfront.maintenance.program.metering import Meter
from sqlfront.maintenance.program.rows import numbers
from sqlfront.maintenance.program.shapes import COUNT
from sqlfront.maintenance.ranked.exact import WHOLE, BeyondTypeError
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.stores.row_finder import RowFinder

MOST = 64
"""As many rows are read without DuckDB."""


class LookUp:
    """The rows of a view that have given values of some variables; `direct` finds one by whole numbers, if it is there.
    Valid while the view's tables are."""

    def __init__(self, view: MaintainedView, variables: Sequence[str], columns: list[Column], walk: Walk) -> None:
        self._variables, self._columns, self._walk = variables, columns, walk
        self._bag, self._scalar = view.definition.mode == "bag", view.definition.scalar
        self.direct = _direct(view, variables, walk)

    def rows(self, codes: Sequence[tuple[int, ...]]) -> list[tuple[Any, ...]] | None:
        """The rows whose variables have these codes; None where DuckDB has to read them: more than MOST rows, a value
        that DuckDB refuses, an aggregate without groups over no rows. The engine is locked."""
        walk, found = self._walk, list[tuple[Any, ...]]()
        if not self._variables and walk.levels[0].table.live > MOST:  # Each of its rows is one of the view's, or more.
            return None
        walk.again([word for code in codes for word in code])
        while walk.next(MOST + 1):
            if len(found) + walk.rows > MOST:
                return None
            for variable, code in zip(self._variables, codes, strict=True):
                for words, word in zip(walk.words(variable), code, strict=True):
                    if (words != word).any():  # The values have not led to all of the rows.
                        return None
            try:
                batch = list(zip(*[column(walk) for column in self._columns], strict=True))
            except BeyondTypeError:
                return None
            if self._bag and not walk.all_ones(COUNT):
                counts = numbers(walk, COUNT).tolist()
                if sum(counts) > MOST - len(found):
                    return None
                batch = [row for row, count in zip(batch, counts, strict=True) for _ in range(count)]
            found += batch
        return found if found or not self._scalar else None


class Direct:
    """A view's row as words of one row of a table: at `places`, NULL where the word that counts values is 0."""

    def __init__(
        self, finder: RowFinder, order: list[int], places: list[int], counted: list[tuple[int, int]], meter: Meter
    ) -> None:
        self._finder, self._order, self._places, self._counted, self._meter = finder, order, places, counted, meter

    def row(self, words: Sequence[int]) -> tuple[Any, ...] | None:
        """The row of a key, in the order of the look-up's variables."""
        self._meter.steps += 1
        found = self._finder.find([words[place] for place in self._order])
        if found is None:
            return None
        row: list[Any] = [found[place] for place in self._places]
        for column, present in self._counted:
            if not found[present]:
                row[column] = None
        return tuple(row)


def _direct(view: MaintainedView, variables: Sequence[str], walk: Walk) -> Direct | None:
    """The direct way, where one level has the whole key and all values, each of one word."""
    grouped = view.definition.mode == "group" and not view.distinct_sets
    if not variables or len(walk.levels) != 2 or len(walk.factors) != 1 or not grouped:
        return None
    table, (level, shape) = walk.levels[1].table, walk.factors[0]
    if level != 1 or sorted(shape.variables) != sorted(variables) or shape.limbs != 1 or set(shape.widths) != {1}:
        return None
    parts = [frozenset(measure.factors) for measure in view.definition.measures]
    raw, places, counted = {column.name: column for column in view.definition.raw}, list[int](), list[tuple[int, int]]()
    for expression in view.definition.projection:
        column = raw[expression.strip().strip('"')]
        if column.kind == "variable" and column.variable is not None and column.type in WHOLE:
            places.append(shape.places([column.variable])[0])
            continue
        if column.kind not in ("sum", "count") or column.type not in SUMS or column.specials is not None:
            return None
        if len(column.terms) != 1 or column.terms[0][0] != 1:
            return None
        if column.present is not None:
            counted.append((len(places), shape.keys + shape.parts.index(parts[column.present])))
        places.append(shape.keys + shape.parts.index(parts[column.terms[0][1]]))
    return Direct(
        RowFinder(table), [list(variables).index(name) for name in shape.variables], places, counted, view.reads
    )


def look_up_by(view: MaintainedView, variables: tuple[str, ...]) -> LookUp | None:
    """The look-up of a view by these variables, without any that of all its rows; None if there is none."""
    if variables not in view.look_ups:
        view.look_ups[variables] = _made(view, variables)
    found: LookUp | None = view.look_ups[variables]
    return found


def _made(view: MaintainedView, variables: tuple[str, ...]) -> LookUp | None:
    definition = view.definition
    if definition.having or definition.limit or definition.is_frozen:
        return None
    codes = {variable: (0,) * view.codecs[variable].words for variable in variables}
    if rows_of(view).single is None:
        return None
    raw = {column.name: column for column in definition.raw}
    columns: list[Column] = []
    for expression, (_, type_) in zip(definition.projection, definition.columns, strict=True):
        found = raw.get(expression.strip().strip('"'))
        column = None if found is None or found.type != type_ else column_of(view, found)
        if column is None:
            return None
        columns.append(column)
    names, parts = needed(view)
    walk = Walk(view.tree, codes, [*names, *variables], parts, view.reads)
    return None if (walk.scans and variables) or not columns else LookUp(view, variables, columns, walk)

"""Rows of a view by values of some of its variables, as Python tuples: one hop to the tree, without DuckDB.

A look-up is made once for the variables, a walk that is begun anew for each set of values. It is there where the values
lead to the rows by a key or an index, and each of the view's columns is a raw one. O(1) where a key leads there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlfront.maintenance.output.output import needed
from sqlfront.maintenance.output.python_values import Column, column_of
from sqlfront.maintenance.output.reading import merging
from sqlfront.maintenance.program.shapes import COUNT
from sqlfront.maintenance.ranked.exact import BeyondTypeError, numbers
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.maintenance.view.maintained_view import MaintainedView

MOST = 64
"""As many rows are read without DuckDB."""


class LookUp:
    """The rows of a view that have given values of some variables. Valid while the view's tables are."""

    def __init__(self, view: MaintainedView, variables: Sequence[str], columns: list[Column], walk: Walk) -> None:
        self._variables, self._columns, self._walk = variables, columns, walk
        self._bag = view.definition.mode == "bag"

    def rows(self, codes: Sequence[tuple[int, ...]]) -> list[tuple[Any, ...]] | None:
        """The rows whose variables have these codes; None if there are more than MOST, or a value that DuckDB must
        refuse. The engine is locked."""
        walk, found = self._walk, list[tuple[Any, ...]]()
        walk.again([word for code in codes for word in code])
        while walk.next(MOST):
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
                batch = [row for row, count in zip(batch, counts, strict=True) for _ in range(min(count, MOST + 1))]
            found += batch
            if len(found) > MOST:
                return None
        return found


def look_up_by(view: MaintainedView, variables: tuple[str, ...]) -> LookUp | None:
    """The look-up of a view by these variables; None if there is none."""
    if variables not in view.look_ups:
        view.look_ups[variables] = _made(view, variables)
    found: LookUp | None = view.look_ups[variables]
    return found


def _made(view: MaintainedView, variables: tuple[str, ...]) -> LookUp | None:
    definition = view.definition
    if definition.having or definition.limit or definition.is_frozen or definition.scalar or view.distinct_sets:
        return None
    codes = {variable: (0,) * view.codecs[variable].words for variable in variables}
    if view.plan.ranked_only or view.divided or not variables or merging(view, codes) is not None:
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
    return None if walk.scans or not columns else LookUp(view, variables, columns, walk)

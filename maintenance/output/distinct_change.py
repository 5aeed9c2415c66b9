"""Distinct values in a view's change: the groups in which they changed, and what they kept before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.reading import read
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.netting import net
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.shapes import COUNT, Part, shape_of
from sqlfront.maintenance.view.distinct_values import Groups, has_words
from sqlfront.maintenance.view.emission import OutputDelta
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels import layout as at

if TYPE_CHECKING:
    import pyarrow as pa


FEW = 32
"""Of so many rows, those that differ are found without sorting, which takes 50 us and more."""


class ChangedGroups:
    """The groups of a view that an epoch has changed, with what its distinct values tell after it."""

    def __init__(self, view: MaintainedView) -> None:
        self._touched = [_Touched(view, number) for number in range(len(view.distinct_sets))]

    def rows(self, delta: OutputDelta) -> np.ndarray:
        """The rows of the view's output delta in which something changed, and a row of zeros for each other group of
        which distinct values told something else before the epoch. To be called while they are as then. O(rows log
        rows); where only some of a group's columns decide what values it has, O(groups that have these columns)."""
        keys, rows = delta.shape.keys, [delta.changed()]
        for part in self._touched:
            words = part.groups(delta)
            groups = np.zeros((len(words), rows[0].shape[1]), np.int64)
            groups[:, :keys] = words
            rows.append(groups)
        found = np.concatenate(rows)
        return found[_first_places(found[:, :keys])]


class _Touched:
    """The values, of the group columns that decide what a view of distinct values keeps, for which it changed in an
    epoch; and what it tells for them after the epoch."""

    def __init__(self, view: MaintainedView, number: int) -> None:
        kept = view.distinct_sets[number]
        assert kept.distinct_set is not None and kept.delta is not None
        self._view, self._number, shape = view, number, kept.delta.shape
        changed, self._names = kept.delta.changed(), dict(kept.distinct_set.group)
        places = [place for name in self._names.values() for place in shape.places([name])]
        self._shape = shape_of(self._names, view.tree.widths, (COUNT,), 1)
        words = changed[:, np.array(places, np.int64)]
        self._keys = words[_first_places(words)]
        self._after = self._told()

    def words(self, variable: str) -> list[np.ndarray]:
        return [np.ascontiguousarray(self._keys[:, place]) for place in self._shape.places([variable])]

    def values(self, part: Part) -> np.ndarray:
        """A count for each: whether the view has such a group is not asked here."""
        return np.ones((len(self._keys), 1), np.int64)

    def _told(self) -> list[np.ndarray] | list[pa.Array] | None:
        """What the view of distinct values tells for each now, in words if all columns have words; None if that has no
        value for one, which the view may not have."""
        groups = Groups(self._view, self._number, self, len(self._keys))
        columns = [raw for raw in self._view.definition.raw if raw.distinct_set == self._number]
        if all(map(has_words, columns)):
            return [word for raw in columns for word in groups.words(raw)]
        try:
            return [groups.column(raw) for raw in columns]
        except DataError:
            return None

    def _differing(self) -> np.ndarray:
        """The positions for which it tells something else now than after the epoch; all, if that is not known."""
        import pyarrow as pa

        count, now, after = len(self._keys), self._told(), self._after
        if now is None or after is None:
            return np.arange(count)
        if all(isinstance(one, np.ndarray) for one in now):
            return np.flatnonzero(np.any([one != other for one, other in zip(now, after, strict=True)], axis=0))
        places = arrow_numbers(np.tile(np.arange(count), 2))
        columns = [pa.chunked_array([one, other]) for one, other in zip(now, after, strict=True)]
        positions, _ = net([places, *columns], np.repeat(np.array([-1, 1]), count))
        return np.unique(positions % max(count, 1))

    def groups(self, delta: OutputDelta) -> np.ndarray:
        """The key words, in the output delta, of the view's groups for which it tells something else, and maybe
        more."""
        positions = self._differing()
        if set(delta.variables) <= self._names.keys():
            return self._keys[np.ix_(positions, np.array(self._shape.places(delta.variables), np.int64))]
        found = [np.empty((0, delta.shape.keys), np.int64)]
        for position in positions:
            where = {v: tuple(int(words[position]) for words in self.words(v)) for v in self._names}
            rows = read(self._view, where, delta.variables)
            while rows.next():
                found.append(np.column_stack([word for v in delta.variables for word in rows.words(v)]))
        return np.concatenate(found)


def _first_places(rows: np.ndarray) -> np.ndarray:
    """The places of rows, in their order, without those that are equal to an earlier row."""
    if rows.shape[1] == 0:
        return np.arange(min(len(rows), 1))
    if len(rows) > FEW:
        return np.sort(np.unique(rows, axis=0, return_index=True)[1])
    first: dict[bytes, int] = {}
    for place, row in enumerate(rows):
        first.setdefault(row.tobytes(), place)
    return np.array(list(first.values()), np.int64)


@contextmanager
def rewound(view: MaintainedView, machine: Machine) -> Iterator[None]:
    """For the time of the body, the view's distinct values hold what they held before their deltas. O(rows of these).

    DataError if a value occurs too often to be taken back; nothing is rewound then.
    """
    deltas = [_weighted(kept) for kept in view.distinct_sets]
    for kept, rows in zip(view.distinct_sets, deltas, strict=True):
        _add(kept, rows, machine, -1)
    try:
        yield
    finally:
        for kept, rows in zip(view.distinct_sets, deltas, strict=True):
            _add(kept, rows, machine, 1)


def _weighted(kept: MaintainedView) -> np.ndarray:
    """The distinct values' changed rows: key words, then the change of their count in one word."""
    assert kept.delta is not None
    shape, rows = kept.delta.shape, kept.delta.changed()
    first = shape.keys + shape.parts.index(COUNT) * shape.limbs
    limbs = rows[:, first : first + shape.limbs]
    if (limbs[:, 1:] != limbs[:, :1] >> 63).any():
        raise DataError("a value's count has changed by more than BIGINT holds", hint="split the change")
    return np.ascontiguousarray(np.column_stack([rows[:, : shape.keys], limbs[:, 0]]))


def _add(kept: MaintainedView, rows: np.ndarray, machine: Machine, sign: int) -> None:
    """Add rows to the distinct values' values, or take them out. Nobody's steps."""
    table, delta = kept.tree.projection, kept.delta
    assert table is not None and delta is not None
    assembler, sweep = Assembler(), Assembler()
    keys = delta.shape.places(kept.tree.projection_shape().variables)
    assembler.lift(rows.shape[1], table.limbs, -1, [], keys, [])
    assembler.path(0)
    assembler.upsert(table)
    assembler.path_end()
    machine.run(assembler.program(), rows, len(rows), sign)
    sweep.finish(at.SWEEP, [table])
    machine.run_once(sweep.program())

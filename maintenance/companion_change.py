"""Companions in a view's change: the groups in which they changed, and what they kept before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from maintenance.emission import OutputDelta
from maintenance.machine import Machine
from maintenance.programs import Assembler
from maintenance.shapes import COUNT
from maintenance.view import MaintainedView
from storage import layout as at
from storage.errors import DataError


def changed_groups(view: MaintainedView, delta: OutputDelta) -> np.ndarray:
    """The rows of the view's output delta in which something changed, and a row of zeros for each other group in which
    a companion's values did. O(rows log rows), linear without companions."""
    if not view.companions:
        return np.ascontiguousarray(delta.changed())
    keys = delta.shape.keys
    rows = [delta.changed()]
    for kept in view.companions:
        assert kept.companion is not None and kept.delta is not None
        names = dict(zip(view.definition.free, kept.companion.group, strict=True))
        places = kept.delta.shape.places(names[variable] for variable in delta.variables)
        changed = kept.delta.changed()
        groups = np.zeros((len(changed), rows[0].shape[1]), np.int64)
        groups[:, :keys] = changed[:, list(places)]
        rows.append(groups)
    found = np.concatenate(rows)
    if keys == 0:
        return found[:1]
    _, first = np.unique(found[:, :keys], axis=0, return_index=True)
    return found[np.sort(first)]


@contextmanager
def rewound(view: MaintainedView, machine: Machine) -> Iterator[None]:
    """For the time of the body, the view's companions hold what they held before their deltas. O(rows of these).

    DataError if a value occurs too often to be taken back; nothing is rewound then.
    """
    deltas = [_weighted(kept) for kept in view.companions]
    for kept, rows in zip(view.companions, deltas, strict=True):
        _add(kept, rows, machine, -1)
    try:
        yield
    finally:
        for kept, rows in zip(view.companions, deltas, strict=True):
            _add(kept, rows, machine, 1)


def _weighted(kept: MaintainedView) -> np.ndarray:
    """A companion's changed rows: key words, then the change of their count in one word."""
    assert kept.delta is not None
    shape, rows = kept.delta.shape, kept.delta.changed()
    first = shape.keys + shape.parts.index(COUNT) * shape.limbs
    limbs = rows[:, first : first + shape.limbs]
    if (limbs[:, 1:] != limbs[:, :1] >> 63).any():
        raise DataError("a value's count has changed by more than BIGINT holds", hint="split the change")
    return np.ascontiguousarray(np.column_stack([rows[:, : shape.keys], limbs[:, 0]]))


def _add(kept: MaintainedView, rows: np.ndarray, machine: Machine, sign: int) -> None:
    """Add rows to a companion's values, or take them out. Nobody's steps."""
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

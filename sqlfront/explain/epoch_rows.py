"""SHOW EPOCHS: where the time of the last epochs went, part by part."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.epoch import shown_relation

if TYPE_CHECKING:
    from sqlfront.maintenance.epoch_work import Work

EPOCHS = {
    "epoch": "int64", "epochs": "int64", "view": "string", "part": "string", "rows_in": "int64", "rows_out": "int64",
    "steps": "int64", "seconds": "float64",
}  # fmt: skip
"""The columns of SHOW EPOCHS, with their Arrow types."""
_PART = re.compile(r"#\d+/(?:(union) )?(\d+)$")


def epoch_rows(last: Iterable[Work]) -> list[tuple[Any, ...]]:
    """One row per node of a view that an epoch reached, and per phase that is no view's; the columns of EPOCHS.

    The seconds of an epoch's rows add up to the epoch's. Single rows, several epochs in one entry, are not timed.
    """
    rows: list[tuple[Any, ...]] = []
    for work in last:
        head = work.number, work.epochs
        rows += [(*head, None, phase, None, None, None, seconds) for phase, seconds in work.phases.items()]
        for spent in work.spent():
            place = (None, "shared stores") if spent.node is None else _place(spent.node.name)
            rows.append((*head, *place, spent.rows_in, spent.rows_out, spent.steps, spent.seconds))
        if work.seconds is not None:
            rows.append((*head, None, "other", None, None, None, work.other_seconds()))
    return rows


def _place(name: str) -> tuple[str, str]:
    """The view and the part of it that a node is."""
    found = _PART.search(name)
    part = "view" if found is None else f"block {found[2]}"
    return shown_relation(name), part

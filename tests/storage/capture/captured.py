"""What the tests of change capture share: the table's name, and reading its captured changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlfront.storage.capture.capture import Capture, QualifiedName

T = QualifiedName("main", "t")


def take(capture: Capture, con: Any, own: bool | None = None) -> Counter[tuple[Any, ...]]:
    """Read and consume in one transaction (the open one if own is True); rows with their summed weights."""
    if own is not True:
        con.execute("BEGIN")
    pending = capture.pending(con, own=own)
    capture.consume(con, pending)
    if own is not True:
        con.execute("COMMIT")
    result: Counter[tuple[Any, ...]] = Counter()
    for batch in pending.tables.values():
        for row in zip(*batch.to_pydict().values(), strict=True):
            result[row[:-1]] += row[-1]
    return Counter({row: weight for row, weight in result.items() if weight})

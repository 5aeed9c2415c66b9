"""What a subscriber makes of a change feed: the view's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def take(feed: Iterable[pa.RecordBatch], rows: Counter[tuple[Any, ...]]) -> None:
    """Add what a feed tells to the rows that it has told before."""
    for batch in feed:
        for *row, kind, _, _ in zip(*batch.to_pydict().values(), strict=True):
            rows[tuple(row)] += 1 if kind in ("insert", "update_postimage") else -1

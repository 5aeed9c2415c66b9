"""Rows of a table drawn at random, for estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.words import words_at

if TYPE_CHECKING:
    from sqlfront.storage.stores.table import Table


def sampled_rows(table: Table, most: int, seed: int) -> np.ndarray:
    """The key words of all rows of a table that has at most so many places for rows, else of the live ones among
    `most` places drawn with this seed. O(most)."""
    h = table.header
    rows = words_at(h[at.ROWS], h[at.USED] * h[at.WIDTH]).reshape(-1, h[at.WIDTH])
    drawn = rows if len(rows) <= most else rows[np.random.default_rng(seed).integers(len(rows), size=most)]
    is_live = drawn[:, table.keys : table.keys + table.limbs].any(axis=1)
    found: np.ndarray = drawn[is_live, : table.keys]
    return found

"""First rows of sliding frames, against lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.ordered_rows import frame_firsts

LARGE = 2**63 - 1
numbers = st.lists(st.one_of(st.integers(-9, 9), st.sampled_from([LARGE, -LARGE])), max_size=20)
ORDER = np.array([0, 1, 0, at.ORDER_WORD | at.ORDER_DESCENDING, 0])


@st.composite
def frames(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Values, and pairs of bounds that never go back; a frame may be empty, or end before it starts."""
    values = draw(numbers)
    bounds = st.lists(st.integers(0, len(values)), min_size=6, max_size=6).map(sorted)
    return values, list(zip(draw(bounds), draw(bounds), strict=True))


@given(frames())
def test_first_rows(given: tuple[list[int], list[tuple[int, int]]]) -> None:
    """The greatest of each frame without those that are 0; the first of equal ones."""
    values, bounds = given
    starts, ends = np.array(bounds).T
    words = np.array([*values, 0], np.int64)
    rows = words.ctypes.data + 8 * np.arange(len(values))
    present = np.array([value != 0 for value in values], np.int64)
    expected = []
    for start, end in bounds:
        inside = [place for place in range(start, end) if values[place] != 0]
        expected.append(max(inside, key=lambda place: (values[place], -place), default=-1))
    assert frame_firsts(ORDER, rows, present, starts, ends).tolist() == expected

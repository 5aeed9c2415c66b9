"""Netting rows in Arrow against a count of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.maintenance.program.netting import net

SPAN = pa.MonthDayNano([1, 2, 3])
ROWS = [(1, "a", SPAN, {"x": 1}), (1, "a", None, {"x": 1}), (None, "b", SPAN, None), (2, "a", SPAN, {"x": None})]


@given(st.lists(st.tuples(st.sampled_from(ROWS), st.integers(-2, 2)), max_size=12))
def test_net_adds_up_the_weights_of_equal_rows(drawn):
    rows = [row for row, _ in drawn]
    types = [pa.int64(), pa.string(), pa.month_day_nano_interval(), pa.struct([("x", pa.int64())])]
    columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(types)]
    columns[1] = columns[1].dictionary_encode()
    positions, sums = net(columns, np.array([weight for _, weight in drawn], np.int64))
    expected: Counter = Counter()
    for row, weight in drawn:
        expected[repr(row)] += weight
    found = {repr(rows[position]): total for position, total in zip(positions, sums, strict=True)}
    assert found == {row: total for row, total in expected.items() if total}
    assert list(positions) == sorted(positions) and len(found) == len(positions)
    first = {repr(row): place for place, row in reversed(list(enumerate(rows)))}
    assert all(first[repr(rows[position])] == position for position in positions)

"""Netting rows in Arrow against a count of them."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.maintenance.program import netting
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


PLAIN = {
    "double": pa.array([0.0, -0.0, float("nan"), 1.5, None]),
    "float": pa.array([0.0, -0.0, float("nan"), 2.5, None], pa.float32()),
    "decimal": pa.array([Decimal("1.0"), Decimal("1.1"), None, Decimal("0.0"), Decimal("-1.0")], pa.decimal128(20, 1)),
    "nanoseconds": pa.array([1, 2, None, 3, 1_000], pa.timestamp("ns")),
    "zoned": pa.array([1, 2, None, 3, 1_000], pa.timestamp("us", "Europe/Berlin")),
    "date": pa.array([1, None, 2, 2, 1], pa.date32()),
    "time": pa.array([1, None, 2, 2, 1], pa.time64("us")),
    "bytes": pa.array([b"", b"a", None, b"\0", b"a"]),
    "texts": pa.array(["", "a", None, "A", "ä"]),
    "truth": pa.array([True, False, None, True, False]),
    "list": pa.array([[1], [], None, [None], [1, 2]]),
    "nothing": pa.nulls(5),
}


@pytest.mark.parametrize("name", PLAIN)
def test_few_rows_are_netted_as_many_are(name, monkeypatch):
    places = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 2, 0])
    columns = [pa.chunked_array([PLAIN[name].take(pa.array(places))]), pa.array(places % 2)]
    weights = np.array([1, 1, 1, 1, 1, -1, 2, 1, -3, 1, -2, 5])
    few = net(columns, weights)
    monkeypatch.setattr(netting, "_FEW", 0)
    many = net(columns, weights)
    assert [one.tolist() for one in few] == [one.tolist() for one in many] and len(few[0]) > 1

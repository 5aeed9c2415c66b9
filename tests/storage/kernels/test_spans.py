"""Spans of rows, and sums over them, against lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.storage.stores.spans import Spans, moved_within, running_sums, sums_between, words_within

LARGE = 2**62


@st.composite
def spans(draw: st.DrawFn) -> tuple[Spans, list[int]]:
    """Spans, some of them empty, and the number of the span of each row."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
    return Spans(np.append(0, np.cumsum(sizes))), numbers


@given(spans(), st.data())
def test_where_spans_start_and_end(given: tuple[Spans, list[int]], data: st.DataObject) -> None:
    """A slice of rows is read along, rows one by one are sought."""
    whole, numbers = given
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(numbers))] * 2)))
    starts = [numbers.index(number) for number in numbers]
    ends = [start + numbers.count(number) for start, number in zip(starts, numbers, strict=True)]
    expected = starts[first:last], ends[first:last]
    places = np.arange(first, last)
    for found in (whole.around(slice(first, last)), whole.around(places)):
        assert (found[0].tolist(), found[1].tolist()) == expected
    assert whole.numbers_of(places).tolist() == numbers[first:last]
    distance = data.draw(st.integers(-5, 5))
    nearest = [min(max(place + distance, starts[place]), ends[place]) for place in places]
    for given_places in (slice(first, last), places):
        assert moved_within(given_places, distance, *whole.around(places)).tolist() == nearest


@given(spans(), st.data())
def test_spans_of_equal_words(given: tuple[Spans, list[int]], data: st.DataObject) -> None:
    whole, numbers = given
    words = data.draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=len(numbers), max_size=len(numbers))
    )
    rows = list(zip(numbers, words, strict=True))
    parted = whole.parted([np.array([pair[side] for _, pair in rows], np.int64) for side in (0, 1)])
    changed = [place for place, row in enumerate(rows) if place == 0 or row != rows[place - 1]]
    assert parted.starts.tolist() == [*changed, len(rows)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), max_size=12))
def test_running_sums_fit_or_are_refused(numbers: list[int]) -> None:
    sums = [sum(numbers[:count]) for count in range(len(numbers) + 1)]
    found = running_sums(np.array(numbers, np.int64))
    if all(-LARGE <= total < LARGE for total in sums):
        assert found is not None
        assert found[:, 0].tolist() == sums
    else:
        assert found is None


@given(st.lists(st.integers(-(2**120), 2**120), min_size=1, max_size=9), st.data())
def test_sums_of_several_limbs(numbers: list[int], data: st.DataObject) -> None:
    """What running sums grow by, forwards and backwards."""
    sums = [sum(numbers[:count]) for count in range(len(numbers) + 1)]
    places = st.lists(st.integers(0, len(numbers)), min_size=3, max_size=3)
    firsts, lasts = np.array(data.draw(places)), np.array(data.draw(places))
    expected = [sums[last] - sums[first] for first, last in zip(firsts, lasts, strict=True)]
    limbs = np.frombuffer(b"".join(one.to_bytes(24, "little", signed=True) for one in sums), np.int64).reshape(-1, 3)
    found = sums_between(limbs, firsts, lasts)
    assert [int.from_bytes(row.tobytes(), "little", signed=True) for row in found] == expected


def test_words_of_places_within_bounds() -> None:
    words, places = np.array([10, 11, 12]), np.array([-1, 0, 1, 2, 3, 1])
    firsts, ends = np.array([0, 0, 0, 0, 0, 2]), np.array([3, 3, 3, 2, 3, 3])
    assert words_within(words, places, firsts, ends, -5).tolist() == [-5, 10, 11, -5, -5, -5]

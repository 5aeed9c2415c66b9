"""The dictionary against a plain dict with reference counts."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlfront.storage.codecs.dictionary import Dictionaries, Dictionary
from sqlfront.storage.errors import InternalError
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.tables import byte_strings as kernels
from tests.slices import LETTERS


def strings(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


def test_equal_strings_have_equal_codes():
    dictionary = Dictionary()
    array = strings(["a", "", None, "b", "a", "é", ""])
    codes = dictionary.encode(array)
    assert codes.dtype == np.int64
    assert codes[2] == NULL_CODE
    assert codes[0] == codes[4]
    assert codes[1] == codes[6]
    assert len(set(codes.tolist())) == 5
    assert np.array_equal(dictionary.encode(array.cast(pa.large_string())), codes)
    assert np.array_equal(dictionary.find(array.slice(2, 4)), codes[2:6])
    assert dictionary.decode(codes, pa.large_string()).equals(array.cast(pa.large_string()))
    assert dictionary.encode_one(b"a") == codes[0]
    assert dictionary.find_one("é".encode()) == codes[5]
    assert dictionary.find_one(b"c") is None
    assert dictionary.live() == 4
    assert dictionary.find(strings(["c", None])).tolist() == [kernels.ABSENT, NULL_CODE]
    assert len(dictionary.encode(strings([]))) == 0
    dictionary._check()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.text(LETTERS, max_size=30)), max_size=60), st.integers(0, 9), st.integers(0, 60)
)
def test_slices_roundtrip(values, start, length):
    array = strings(values).slice(min(start, len(values)), length)
    dictionary = Dictionary()
    codes = dictionary.encode(array)
    assert dictionary.decode(codes, pa.large_string()).to_pylist() == array.to_pylist()
    assert dictionary.live() == len(set(array.drop_null().to_pylist()))
    dictionary._check()


class Model:
    """What the dictionary has to do, with Python's own containers."""

    def __init__(self) -> None:
        self.codes: dict[bytes, int] = {}
        self.counts: dict[bytes, int] = {}

    def see(self, value: bytes, code: int) -> None:
        assert self.codes.setdefault(value, code) == code
        self.counts.setdefault(value, 0)

    def sweep(self) -> None:
        for value in [value for value, count in self.counts.items() if count == 0]:
            del self.counts[value], self.codes[value]


@pytest.mark.parametrize("seed", range(6))
def test_random_references(seed):
    rng = random.Random(seed)
    dictionary, model, reused = Dictionary(), Model(), 0
    seen_codes: dict[int, bytes] = {}
    for _ in range(150):
        universe = rng.choice([5, 200, 3000])
        values = [b"%d" % rng.randrange(universe) * rng.choice([1, 1, 1, 40]) for _ in range(rng.randrange(1, 300))]
        codes = dictionary.encode(pa.array(values, pa.binary()))
        for value, code in zip(values, codes.tolist(), strict=True):
            model.see(value, code)
            reused += seen_codes.setdefault(code, value) != value
            if rng.random() < 0.7:
                dictionary.refs[code] += 1
                model.counts[value] += 1
        drop_at = rng.random() * 1.3
        for value, count in model.counts.items():
            if count and rng.random() < drop_at:
                dictionary.refs[model.codes[value]] -= count
                model.counts[value] = 0
        if rng.random() < 0.3:
            dictionary.sweep()
            model.sweep()
        assert dictionary.live() == len(model.codes)
        assert len(set(model.codes.values())) == len(model.codes)
        dictionary._check()
    held = list(model.codes)
    assert dictionary.find(pa.array(held, pa.large_binary())).tolist() == [model.codes[value] for value in held]
    assert reused > 50
    dictionary.refs[:] = 0
    dictionary.sweep()
    dictionary._check()
    assert dictionary.live() == 0
    assert dictionary.bytes() == Dictionary().bytes()


def test_header_follows_the_reference_counts():
    dictionary = Dictionary()
    header = dictionary.header.ctypes.data
    codes = dictionary.encode(strings([f"s{i}" for i in range(5000)]))
    assert dictionary.header.ctypes.data == header
    address = ctypes.c_int64.from_address(header).value
    for code in codes.tolist():
        ctypes.c_int64.from_address(address + 8 * code).value += 1
    assert dictionary.refs[codes].min() == 1
    dictionary.sweep()
    assert dictionary.live() == 5000
    ctypes.memset(address, 0, 8 * 5000)
    dictionary.sweep()
    assert dictionary.live() == 0
    assert dictionary.header[0] == dictionary.refs.ctypes.data


def test_window_over_fresh_strings_is_flat():
    dictionary, window, peak = Dictionary(), [], 0
    for batch in range(300):
        codes = dictionary.encode(pa.array(np.arange(batch * 1000, (batch + 1) * 1000)).cast(pa.string()))
        np.add.at(dictionary.refs, codes, 1)
        window.append(codes)
        if len(window) > 10:
            np.subtract.at(dictionary.refs, window.pop(0), 1)
        if dictionary.needs_sweep():
            dictionary.sweep()
        peak = max(peak, dictionary.bytes())
        assert dictionary.live() <= 2 * 11_000
    dictionary._check()
    assert peak < 4_000_000


def test_draining_asks_for_a_sweep():
    dictionary = Dictionary()
    array = strings([f"s{i}" for i in range(20_000)])
    codes = dictionary.encode(array)
    dictionary.refs[codes] += 1
    assert not dictionary.needs_sweep()
    dictionary.encode(array)
    dictionary.refs[codes] -= 1
    assert dictionary.needs_sweep()
    dictionary.sweep()
    assert dictionary.live() == 0
    assert not dictionary.needs_sweep()


@pytest.mark.parametrize("length", [1, 4, 8, 9, 15, 16, 17, 40])
def test_equal_hashes_are_told_apart_by_bytes(length):
    dictionary, h = Dictionary(), 12345
    values = [b"-" * length] + [b"-" * i + b"x" + b"-" * (length - i - 1) for i in range(length)]
    codes = []
    for value in values:
        address = dictionary._place(value)
        dictionary._grow(length)
        assert kernels.find_one(dictionary._at, address, length, h) == kernels.ABSENT
        codes.append(kernels.insert_new(dictionary._at, address, length, h))
        assert kernels.find_one(dictionary._at, address, length, h) == codes[-1]
    assert len(set(codes)) == length + 1
    assert dictionary.decode(np.array(codes), pa.large_binary()).to_pylist() == values


@pytest.mark.parametrize("make", [lambda i: b"%d" % i, lambda i: i.to_bytes(8, "big"), lambda i: b"\0" * (i % 5000)])
def test_dense_strings_do_not_cluster(make):
    dictionary = Dictionary()
    values = {make(i) for i in range(60_000)}
    dictionary.encode(pa.array(list(values), pa.binary()))
    slots, mask = dictionary._slots, len(dictionary._slots) - 1
    taken = np.flatnonzero(slots)
    distances = (taken - (slots[taken] >> 32)) & mask
    assert distances.max() < 200
    assert distances.mean() < 2


def test_codes_that_were_freed_are_not_decoded():
    dictionary = Dictionary()
    codes = dictionary.encode(strings(["a", "b"]))
    dictionary.refs[codes[1]] = 1
    dictionary.sweep()
    for bad in (codes[0], 7, -1):
        with pytest.raises(InternalError):
            dictionary.decode(np.array([bad]), pa.large_string())


def test_long_strings():
    dictionary = Dictionary()
    values = ["x" * 100_000, "y" * 3_000_000, "x" * 99_999 + "z", ""]
    codes = dictionary.encode(strings(values))
    assert dictionary.decode(codes, pa.large_string()).to_pylist() == values
    assert [dictionary.find_one(value.encode()) for value in values] == codes.tolist()
    dictionary.sweep()
    assert dictionary.bytes() < 10_000_000
    assert dictionary.live() == 0


def test_all_dictionaries_are_swept():
    dictionaries = Dictionaries()
    for dictionary in dictionaries:
        dictionary.encode(pa.array([b"%d" % i for i in range(5000)], pa.binary()))
    for dictionary in dictionaries.due():
        dictionary.sweep()
    assert [dictionary.live() for dictionary in dictionaries] == [0, 0]

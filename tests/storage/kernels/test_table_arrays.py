"""Every kind of table: one that takes another's arrays equals it, and goes on as it does."""

from __future__ import annotations

import mmap
import random
from pathlib import Path

import numpy as np
import pytest

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.storage.codecs.dictionary import Dictionary
from sqlfront.storage.errors import InternalError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.mapped_memory import check_of, map_file
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.table_arrays import adopt, arrays_of, layout_of

BY_NUMBER = [(1, at.ORDER_WORD, 0)]
KINDS = {
    "plain": {},
    "grouped": {"indexes": [(0,), (1,), ()], "summed": [1, 0, 1]},
    "ordered": {"indexes": [(0,)], "order": (0, BY_NUMBER)},
    "ordered beside a group": {"indexes": [(1,), (0,)], "summed": [1, 0], "order": (1, BY_NUMBER)},
    "with ranges": {"indexes": [(0,)], "order": (0, BY_NUMBER), "ranges": True},
    "with summaries": {
        "indexes": [(0,)],
        "order": (0, BY_NUMBER),
        "summaries": [(at.SUMMARY_PEERS, BY_NUMBER), (0, BY_NUMBER)],
    },
}


def write(machine: Machine, table: Table, rows: list[tuple[int, ...]]) -> None:
    """Add rows of key words and a weight, and sweep."""
    width = table.keys + 1
    program, sweep = Assembler(), Assembler()
    program.lift(width, table.limbs, -1, [], range(table.keys), [])
    program.path(0)
    program.upsert(table)
    program.path_end()
    machine.run(program.program(), np.array(rows, np.int64).reshape(-1, width), len(rows))
    sweep.finish(at.SWEEP, [table])
    machine.run_once(sweep.program())


def batch(chance: random.Random, held: dict[tuple[int, int], int], rows: int) -> list[tuple[int, int, int]]:
    """Random rows that come, and some that go."""
    found = []
    for _ in range(rows):
        key = chance.randrange(5), chance.randrange(60)
        weight = -held[key] if held.get(key) and chance.random() < 0.5 else chance.randrange(1, 3)
        held[key] = held.get(key, 0) + weight
        found.append((*key, weight))
    return found


def taken(table: Table, into: Table) -> Table:
    """`into`, with copies of the table's arrays."""
    sizes, arrays = arrays_of(table)
    copies = {name: array.copy() for name, array in arrays.items()}
    adopt(into, sizes, lambda name, words: np.copyto(words, copies[name]))
    return into


def mapped(table: Table, into: Table, path: Path) -> Table:
    """`into`, with the table's arrays mapped from a file."""
    sizes, arrays = arrays_of(table)
    places, content = {}, b""
    for name, array in arrays.items():
        places[name] = len(content)
        content += array.tobytes() + bytes(-array.nbytes % mmap.PAGESIZE)
    path.write_bytes(content)
    with path.open("rb") as file:
        number = file.fileno()
        adopt(into, sizes, lambda *_: None, lambda name, size: map_file(0, number, places[name], size) if size else 0)
    return into


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("limbs", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 7, 400])
def test_a_table_that_takes_arrays_goes_on_as_the_other(kind, limbs, rows, is_mapped, tmp_path):
    machine, chance, held = Machine(), random.Random(rows), {}
    table = Table(2, 1, limbs, **KINDS[kind])
    write(machine, table, batch(chance, held, rows))
    write(machine, table, batch(chance, held, rows))
    other = Table(2, 1, limbs, **KINDS[kind])
    write(machine, other, [(9, 9, 1)])  # It goes.
    assert layout_of(other) == layout_of(table)
    path = tmp_path / "arrays"
    mapped(table, other, path) if is_mapped else taken(table, other)
    before = path.read_bytes() if is_mapped else b""
    assert bool(other.header[at.SLOTS_MAPPED]) is is_mapped
    for _ in range(2):
        assert other.rows() == table.rows() == {key: (count,) for key, count in held.items() if count}
        table._check()
        other._check()
        changes = batch(chance, held, max(1, rows))
        write(machine, table, changes)
        write(machine, other, changes)
    one, two = arrays_of(table), arrays_of(other)
    assert one[0] == two[0], "rows have other numbers"
    assert not is_mapped or path.read_bytes() == before, "the file has changed"
    other.compact(0 if other.indexes else -1)
    other.widen(limbs + 1)
    assert other.rows() == table.rows()
    other._check()


def test_a_table_without_key_words_goes_on():
    machine, table = Machine(), Table(0, 1)
    write(machine, table, [(3,)])
    other = taken(table, Table(0, 1))
    write(machine, other, [(-3,)])
    assert other.rows() == {}
    write(machine, other, [(2,)])
    assert (table.rows(), other.rows()) == ({(): (3,)}, {(): (2,)})


def test_layouts_tell_tables_apart():
    layouts = [layout_of(Table(2, 1, limbs, **kind)) for kind in KINDS.values() for limbs in (1, 2)]
    layouts += [layout_of(Table(2, 2)), layout_of(Table(3, 1)), layout_of(Table(2, 1, 1, [(1,)], [0]))]
    layouts.append(layout_of(Table(2, 1, 1, [(0,)], order=(0, [(1, at.ORDER_WORD + at.ORDER_DESCENDING, 0)]))))
    texts = list(map(repr, layouts))
    assert len(set(texts)) == len(texts)


def test_a_table_in_the_middle_of_an_epoch_gives_no_arrays():
    machine, table, program = Machine(), Table(1, 1), Assembler()
    program.lift(2, 1, -1, [], range(1), [])
    program.path(0)
    program.upsert(table)
    program.path_end()
    for weight in (1, -1):
        machine.run(program.program(), np.array([[5, weight]], np.int64), 1)
    with pytest.raises(InternalError, match="in the middle of an epoch"):
        arrays_of(table)


def words_in_order(words: Dictionary) -> Table:
    """A table of (group, word), each group in the order of the words, whose references are counted."""
    order = (0, [(1, at.ORDER_BYTES, words.state)])
    return Table(2, 1, 1, [(0,)], references=[(1, int(words.header.ctypes.data))], order=order)


def test_words_keep_their_codes_and_references():
    machine, words = Machine(), Dictionary()
    pinned = words.pin(b"pinned")
    codes = [words.encode_one(f"word {number}".encode()) for number in range(300)]
    table = words_in_order(words)
    write(machine, table, [(code % 3, code, 1) for code in codes[::2]])
    words.sweep()
    sizes, arrays = words.arrays()
    assert arrays["refs"][pinned] == 0 and words.refs[pinned] == 1
    copies = {name: array.copy() for name, array in arrays.items()}
    others = Dictionary()
    lengths = {name: len(array) for name, array in copies.items()}
    others.adopt(sizes, lengths, lambda name, array: np.copyto(array, copies[name]))
    assert others.pin(b"pinned") == pinned
    other = taken(table, words_in_order(others))
    assert layout_of(other) == layout_of(table)
    for one, store in ((words, table), (others, other)):
        assert [one.find_one(f"word {number}".encode()) for number in range(300)] == [
            code if code in codes[::2] else None for code in codes
        ]
        fresh = [one.encode_one(f"another {number}".encode()) for number in range(40)]
        write(
            machine, store, [(code % 3, code, 1) for code in fresh] + [(code % 3, code, -1) for code in codes[:100:2]]
        )
        one.sweep()
        one._check()
        store._check()
        assert one.refs.sum() == 1 + 150 + 40 - 50
    assert other.rows() == table.rows()
    with pytest.raises(InternalError, match="pinned"):
        others.adopt(sizes, lengths, lambda name, array: None)


def test_references_of_rows_that_go_are_taken_back():
    machine, words = Machine(), Dictionary()
    code = words.encode_one(b"it goes")
    empty, table = words_in_order(words), words_in_order(words)
    write(machine, table, [(1, code, 1)])
    assert words.refs[code] == 1
    taken(empty, table)
    assert words.refs[code] == 0
    assert table.rows() == {}


@pytest.mark.parametrize("count", [1, 3, 4, 7, 9])
def test_check_of_words_depends_on_each(count):
    words = np.arange(count, dtype=np.int64)
    found = {check_of(words.ctypes.data, count, 0), check_of(words.ctypes.data, count, 1)}
    for place in range(count):
        for bit in (0, 31, 63):
            changed = words.copy()
            changed[place] ^= np.int64(-(2**63)) if bit == 63 else np.int64(1 << bit)
            found.add(check_of(changed.ctypes.data, count, 0))
    assert len(found) == 2 + 3 * count
    assert check_of(words[::-1].copy().ctypes.data, count, 0) not in found or count == 1

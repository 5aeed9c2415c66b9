"""Groups that are sorted at once have the lists, trees and sums that one insertion after the other makes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.relation.filling import sweep
from sqlfront.storage.codecs.encoding import Dictionaries
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import sorted_groups
from sqlfront.storage.kernels.tables.delta import _LARGE, step_upsert
from sqlfront.storage.stores.table import Table

WORDS = Dictionaries().varchar
LEAST, GREATEST = at.NULL_CODE, -1 - at.NULL_CODE
NULLS_LAST, DESCENDING = at.ORDER_NULLS_LAST, at.ORDER_DESCENDING
NUMBERS = [LEAST, LEAST + 1, LEAST + 2, -3, 0, 5, GREATEST - 1, GREATEST]
ORDERS: dict[str, list[tuple[int, int, int]]] = {
    "numbers": [(1, at.ORDER_WORD, 0)],
    "numbers, NULL last": [(1, at.ORDER_WORD + NULLS_LAST, 0)],
    "greatest first": [(1, at.ORDER_WORD + DESCENDING, 0)],
    "greatest first, NULL last": [(1, at.ORDER_WORD + DESCENDING + NULLS_LAST, 0)],
    "a word for the least": [(1, at.ORDER_WORD, LEAST + 1)],
    "a word for the greatest": [(1, at.ORDER_HIGH, LEAST + 1)],
    "greatest first, a word for it": [(1, at.ORDER_HIGH + DESCENDING, LEAST + 1)],
    "without signs": [(1, at.ORDER_LOW_WORD, 0)],
    "two words": [(1, at.ORDER_HIGH, 0), (2, at.ORDER_LOW_WORD + DESCENDING, 0)],
    "text": [(1, at.ORDER_BYTES, WORDS.state), (2, at.ORDER_WORD, 0)],
}


def fill(machine: Machine, table: Table, rows: list[tuple[int, int, int, int]]) -> None:
    """Add rows (group, two words, count) with their count as a second value."""
    pad = [0] * (table.limbs - 1)
    signs = [-1] * (table.limbs - 1)
    words = [[*row, *(pad if row[3] >= 0 else signs), row[3], *(pad if row[3] >= 0 else signs)] for row in rows]
    data, program = np.array(words, np.int64), np.array([at.UPSERT, 3, table.address], np.int64)
    step_upsert(program.ctypes.data, machine.address, data.ctypes.data, len(rows))
    sweep(machine, table)


def image(table: Table) -> list[Any]:
    """All that an ordered index is: of each row its neighbours, its place in the tree, and the sums below it."""
    width, links, tail = table.width, int(table.header[at.LINKS]), int(table.header[at.TAIL])
    live = np.array([table._row(row) for row in table._live_rows()]).reshape(-1, width)
    numbers = {row + 1: tuple(table._row(row)[:3]) for row in table._live_rows()} | {0: None}
    halves = np.ascontiguousarray(live).view(np.int32).reshape(-1, 2 * width)
    near = [2 * links, 2 * links + 1, 2 * links + 3, 2 * tail, 2 * tail + 1]
    return sorted(
        (tuple(words[:3]), [numbers[int(half[place])] for place in near], words[tail + 1 :].tolist())
        for words, half in zip(live, halves, strict=True)
    )


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("name", ORDERS)
def test_sorting_at_once_is_inserting_one_after_the_other(name: str, ranges: bool) -> None:
    make, machine = random.Random(name), Machine()
    values = [WORDS.encode_one(f"{i % 7}é{i}".encode()) for i in range(60)] if name == "text" else NUMBERS
    for limbs, size in ((1, 0), (1, 1), (2, 9), (1, 40), (2, 700)):
        tables = [Table(3, 2, limbs, [(0,), (2,)], name="t", order=(0, ORDERS[name]), ranges=ranges) for _ in range(2)]
        rows = [
            (make.randrange(4) ** 3, make.choice([*values, LEAST]), make.choice([*NUMBERS, *range(40)]), 1)
            for _ in range(size)
        ]
        gone = [(*row[:3], -1) for row in rows[::3]]
        fill(machine, tables[0], rows + gone)
        with tables[1].unsorted():
            fill(machine, tables[1], rows)
            fill(machine, tables[1], gone)
        for table in tables:
            table._check()
        assert image(tables[0]) == image(tables[1]), (limbs, size)
        for table in tables:
            table.compact(0)
            fill(machine, table, [(*row[:3], 1) for row in rows[::2]])
            fill(machine, table, [(*row[:3], -1) for row in [*rows[::2], *rows[1::3], *rows[2::3]]])
            table._check()
            assert table.entries() == 0


@pytest.mark.parametrize("name", ["numbers, NULL last", "two words", "text"])
def test_a_batch_is_its_rows_one_after_the_other(name: str) -> None:
    """The table is so large that the places of a batch's rows are searched for side by side. That takes no steps."""
    make, taken, tables = random.Random(name), list[int](), list[Table]()
    rows = [(make.randrange(90), make.randrange(-9000, 9000), number, 1) for number in range(17_300)]
    rows[-9:] = [(90 + number, LEAST, number, 1) for number in range(9)]  # Groups that are new, and NULLs.
    if name == "text":
        rows = [(group, WORDS.encode_one(str(number).encode()), own, 1) for group, number, own, _ in rows]
    for batches in ([rows[17_000:]], [[row] for row in rows[17_000:]]):
        machine, table = Machine(), Table(3, 2, 1, [(0,)], name="t", order=(0, ORDERS[name]))
        fill(machine, table, rows[:17_000])
        assert table.used * table.width > _LARGE
        before = int(machine.scratch[at.STEPS])
        for batch in batches:
            fill(machine, table, batch)
        taken.append(int(machine.scratch[at.STEPS]) - before)
        tables.append(table)
    assert taken[0] == taken[1]
    assert image(tables[0]) == image(tables[1])
    tables[0]._check()


def test_only_empty_tables_that_sort_by_their_keys_wait() -> None:
    machine, calls = Machine(), list[int]()
    table = Table(3, 2, 1, [(0,)], name="t", order=(0, ORDERS["numbers"]))
    fill(machine, table, [(1, 2, 3, 1)])
    original, sorted_groups.sort_groups = sorted_groups.sort_groups, lambda *words: calls.append(words[0])
    try:
        for other in (table, Table(3, 2, 1, [(0,)], name="t")):
            with other.unsorted():
                fill(machine, other, [(1, 5, 6, 1)])
    finally:
        sorted_groups.sort_groups = original
    assert calls == []
    table._check()

"""The memory of a table as named arrays, for snapshots, and a table that takes them.

Rows, slots and links refer to each other by row numbers, so a table's memory means the same at any address. What holds
addresses stays with the table that takes the arrays: its header, the lists of its indexes, its order, and the
dictionaries whose references it counts. That the dictionaries have counted the references already is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from sqlfront.storage.errors import InternalError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import upkeep
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at

Read: TypeAlias = Callable[[str, np.ndarray], None]
"""Fills memory with the array of this name."""
Mapped: TypeAlias = Callable[[str, int], int]
"""The address of the array of this name and size, which belongs to who asks; 0 if it has to be read."""
_SIZES = {"used": at.USED, "free": at.FREE, "live": at.LIVE}
_LAYOUT = (at.KEYS, at.VALUES, at.LIMBS, at.WIDTH, at.INDEXES, at.TAIL, at.LINKS, at.REFERENCES, at.RANKS, at.SUMS)


def layout_of(table: Table) -> list[Any]:
    """What tables have in common that can take each other's arrays, as values of JSON."""
    words = [int(table.header[place]) for place in _LAYOUT]
    groups = [layout_of(group) for group in table.groups]
    orders = [_order(int(table.header[at.ORDER])), *_summaries(int(table.header[at.SUMMARIES]))]
    return [words, [list(places) for places in table.indexes], orders, groups]


def arrays_of(table: Table) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """The sizes of a table and its groups, and views of their memory, which are valid until the table changes. No epoch
    may be open."""
    sizes, arrays = dict[str, int](), dict[str, np.ndarray]()
    for prefix, one in _parts(table):
        header = one.header
        if header[at.DIRTY_USED] or header[at.TOUCHED_USED]:
            raise InternalError(f"table {one.name} is in the middle of an epoch")
        sizes |= {prefix + name: int(header[place]) for name, place in _SIZES.items()}
        sizes[prefix + "slots"] = int(header[at.MASK]) + 1
        arrays[prefix + "slots"] = words_at(header[at.SLOTS], sizes[prefix + "slots"])
        arrays[prefix + "rows"] = words_at(header[at.ROWS], int(header[at.USED] * header[at.WIDTH]))
    return sizes, arrays


def adopt(table: Table, sizes: Mapping[str, int], read: Read, mapped: Mapped = lambda name, size: 0) -> None:
    """Give a table of the same layout the contents that another one had, by its `arrays_of`. Mapped arrays are taken as
    they are, the others copied. The table's former rows go. If reading fails, the table is of no use."""
    table.release()
    for prefix, one in _parts(table):
        header = one.header
        for name, count, width, place, take in (
            ("slots", sizes[prefix + "slots"], 1, at.SLOTS, upkeep.take_slots),
            ("rows", sizes[prefix + "used"], one.width, at.ROWS, upkeep.take_rows),
        ):
            address = mapped(prefix + name, 8 * count * width)
            take(one.address, count, address)
            if address == 0:
                read(prefix + name, words_at(header[place], count * width))
        for name, place in _SIZES.items():
            header[place] = sizes[prefix + name]


def references_of(table: Table) -> Iterator[tuple[int, np.ndarray]]:
    """For each key word that is a dictionary's code, the address of the dictionary's header and the codes of live rows,
    without NULL. O(slots)."""
    header, count = table.header, int(table.header[at.REFERENCES])
    if not count:
        return
    slots = words_at(header[at.SLOTS], int(header[at.MASK]) + 1)
    rows = words_at(header[at.ROWS], table.used * table.width).reshape(table.used, table.width)
    live = rows[(slots[slots != 0] & 0xFFFFFFFF) - 1]
    for place, address in words_at(header[at.REFERENCE_LIST], 2 * count).reshape(count, 2):
        codes = live[:, place]
        yield int(address), codes[codes >= 0]


def _parts(table: Table) -> Iterator[tuple[str, Table]]:
    """The table and its groups, with what their arrays' names begin with."""
    yield "", table
    for number, group in enumerate(table.groups):
        yield f"{number} ", group


def _summaries(address: int) -> list[list[int]]:
    """The kinds of subtree summaries, each with how it compares rows."""
    count = int(words_at(address, 1)[0]) if address else 0
    words = words_at(address, at.SUMMARY_ENTRY + 2 * count)[at.SUMMARY_ENTRY :].reshape(count, 2)
    return [[int(kind), *_order(int(order))] for kind, order in words]


def _order(address: int) -> list[int]:
    """How rows are compared by the list at an address, without the addresses of dictionaries."""
    if not address:
        return []
    _, count = words_at(address, at.ORDER_ENTRY)
    words = words_at(address, at.ORDER_ENTRY + 3 * int(count)).copy()
    kinds, operands = words[at.ORDER_ENTRY + 1 :: 3], words[at.ORDER_ENTRY + 2 :: 3]
    operands[(kinds & at.ORDER_KIND) == at.ORDER_BYTES] = 0
    return [int(word) for word in words]

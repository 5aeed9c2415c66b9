"""The invariants of an ordered group: its list, its tree, and what rows know of those below them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import ordered_group as ordering
from sqlfront.storage.kernels.tables import subtree_summaries as summarised
from sqlfront.storage.kernels.tables.row_order import compare_rows

Row = Callable[[int], np.ndarray]
"""The words of a row by its number."""


def check_order(table: int, header: np.ndarray, row_of: Row, members: Sequence[int], link: int, root: int) -> None:
    """The list is sorted; the tree lists the same rows in the same order, is a heap, and its links agree."""
    order, first = int(header[at.ORDER]), ordering.compared_at(table)
    words = [row_of(row).ctypes.data + first for row in members]
    for one, other in itertools.pairwise(words):
        assert compare_rows(order, one, other) <= 0, "a list is not sorted"
    keys, sides, listed = int(header[at.KEYS]), int(header[at.TAIL]), []
    waiting: list[tuple[int, int, bool]] = [(root, 0, False)]
    while waiting:
        node, parent, visited = waiting.pop()
        if node == 0:
            continue
        if visited:
            listed.append(node - 1)
            continue
        row = row_of(node - 1)
        assert int(row[link + 1] >> 32) & 0xFFFFFFFF == parent, "a tree's parent link is wrong"
        if parent:
            above = row_of(parent - 1).ctypes.data
            heap = ordering.priority(above, keys) >= ordering.priority(row.ctypes.data, keys)
            assert heap, "a tree is no heap"
        left, right = int(row[sides] & 0xFFFFFFFF), int(row[sides] >> 32) & 0xFFFFFFFF
        below = [row_of(child - 1) for child in (left, right) if child]
        _check_sums(header, row, below)
        _check_extremes(table, row, below)
        waiting += [(right, node, False), (node, parent, True), (left, node, False)]
    assert listed == list(members), "a tree and its list disagree"
    _check_list(table, [row_of(row).ctypes.data for row in members])


def _check_sums(header: np.ndarray, row: np.ndarray, children: Sequence[np.ndarray]) -> None:
    """A row's subtree sums are its values and its children's sums."""
    keys, limbs, first = int(header[at.KEYS]), int(header[at.LIMBS]), int(header[at.TAIL]) + 1

    def number(words: np.ndarray, place: int, width: int) -> int:
        return int.from_bytes(words[place : place + width].tobytes(), "little", signed=True)

    for v in range(int(header[at.SUMS])):
        place = first + v * (limbs + 1)
        total = number(row, keys + v * limbs, limbs) + sum(number(child, place, limbs + 1) for child in children)
        assert number(row, place, limbs + 1) == total, "a subtree's sum is wrong"


def _check_extremes(table: int, row: np.ndarray, children: Sequence[np.ndarray]) -> None:
    """A row's subtree extremes are the last of its own and its children's."""
    for number in range(summarised.summaries(table)):
        if summarised.summary_kind(table, number) == at.SUMMARY_EXTREME:
            order = summarised.summary_order(table, number)
            extreme, *others = (summarised.extreme_below(table, one.ctypes.data, number) for one in (row, *children))
            for other in (row.ctypes.data, *others):
                assert compare_rows(order, extreme, other) >= 0, "a subtree's extreme is wrong"
            ties = [compare_rows(order, extreme, other) == 0 for other in (row.ctypes.data, *others)]
            assert any(ties), "a subtree's extreme is none of its rows"


def _check_list(table: int, rows: Sequence[int]) -> None:
    """The summaries of all rows of a list in order: extremes are rows of the list, and a row begins a group of peers
    where the row before it is none of them."""
    for number in range(summarised.summaries(table)):
        if summarised.summary_kind(table, number) == at.SUMMARY_EXTREME:
            extremes = {summarised.extreme_below(table, row, number) for row in rows}
            assert extremes <= set(rows), "a subtree's extreme is none of its rows"
            continue
        order = summarised.summary_order(table, number)
        differs = [int(compare_rows(order, one, other) != 0) for one, other in itertools.pairwise(rows)]
        begins = [summarised.begins_group(table, row, number) for row in rows]
        assert begins == [1, *differs], "a group of peers begins elsewhere"

"""A table that is copied has the rows and the groups that one insertion after the other makes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import sqlfront
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.parallel_fill import sweep
from sqlfront.maintenance.view import maintained_view
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.delta import step_upsert
from sqlfront.storage.stores.copied_tables import can_be_copied, copy
from sqlfront.storage.stores.table import Table


def fill(machine: Machine, table: Table, rows: list[tuple[int, int, int]]) -> None:
    data, program = np.array(rows, np.int64), np.array([at.UPSERT, 3, table.address], np.int64)
    step_upsert(program.ctypes.data, machine.address, data.ctypes.data, len(rows))


@pytest.mark.parametrize("size", [0, 1, 9, 5000])
@pytest.mark.parametrize("signs", [False, True])
def test_a_copy_has_all_rows_and_groups(size: int, signs: bool) -> None:
    make, machine = random.Random(size), Machine()
    source = Table(2, 1, 1, name="source")
    fill(machine, source, [(make.randrange(7), make.randrange(3000), 1 + make.randrange(3)) for _ in range(size)])
    table = Table(2, 1, 1, [(0,), (1,)], name="copy", order=(0, [(1, at.ORDER_WORD, 0)]))
    assert can_be_copied(table, source)
    with table.unsorted():
        copy(table, source, machine.address, signs=signs)
    rows = source.rows()
    assert table.rows() == {key: (1,) if signs else count for key, count in rows.items()}
    for word, index in ((0, 0), (1, 1)):
        for value in range(7):
            assert table.groups[index].size_of(np.array([value])) == sum(key[word] == value for key in rows)
    table._check()
    fill(machine, table, [(3, 5000 + number, 1) for number in range(20)])
    table._check()


def test_a_table_of_another_layout_or_with_freed_rows_is_not_copied() -> None:
    machine, source, table = Machine(), Table(2, 1, 1, name="source"), Table(2, 1, 1, name="copy")
    fill(machine, source, [(1, 1, 1), (2, 2, 1)])
    assert can_be_copied(table, source)
    for keys, values, limbs in ((3, 1, 1), (2, 2, 1), (2, 1, 2)):
        assert not can_be_copied(Table(keys, values, limbs, name="copy"), source)
    fill(machine, source, [(1, 1, -1)])
    sweep(machine, source)
    assert not can_be_copied(table, source)


@pytest.mark.parametrize(
    ("query", "copies"),
    [
        ("SELECT k, MIN(x) AS a, MAX(x) AS b FROM t GROUP BY k", 1),
        ("SELECT k, COUNT(DISTINCT s) AS a, MIN(x) AS b FROM t GROUP BY k", 2),
        ("SELECT t.k, MIN(u.x) AS a FROM t JOIN t AS u ON t.x = u.k GROUP BY t.k", 0),
    ],
)
def test_the_values_of_groups_are_copied_from_their_store(
    query: str, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = list[Table]()

    def noted(table: Table, other: Table, scratch: int, *, signs: bool) -> None:
        copied.append(table)
        copy(table, other, scratch, signs=signs)

    monkeypatch.setattr(maintained_view, "copy", noted)
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i % 9 AS k, i % 50 AS x, (i % 13)::VARCHAR AS s FROM range(300) AS r(i)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("DELETE FROM t WHERE x < 3 OR k = 4")
        con.execute("INSERT INTO t VALUES (1, -1, NULL), (NULL, 5, 'z')")
        assert sorted(map(repr, con.execute("FROM v").fetchall())) == sorted(map(repr, con.execute(query).fetchall()))
        for table in copied:
            table._check()
    assert len(copied) == copies

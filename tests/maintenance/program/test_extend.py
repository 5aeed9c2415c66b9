"""EXTEND: the candidates that all sides have, at the cost of the shortest list, whatever its length."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler, Join, Side
from sqlfront.maintenance.program.shapes import COUNT, Shape
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table


def shape(*variables: str, limbs: int = 1) -> Shape:
    return Shape(variables, (1,) * len(variables), (COUNT,), limbs)


def run(machine: Machine, program: Assembler, rows: list[tuple[int, ...]]) -> int:
    data = np.array(rows, np.int64).reshape(len(rows), -1)
    return machine.run(program.program(), data, len(data))


def fill(machine: Machine, table: Table, rows: list[tuple[int, ...]]) -> None:
    program = Assembler()
    program.lift(table.keys + 1, 1, -1, [], list(range(table.keys)), [])
    program.path(0)
    program.upsert(table)
    program.path_end()
    run(machine, program, [(*row, 1) for row in rows])
    table._check()


def ternary(machine: Machine, sides: list[tuple[Table, str]], out: Table) -> Assembler:
    """The path of a delta over (a, b): bind c, which each table, over (a or b, c), must have."""
    program = Assembler()
    program.lift(3, 1, -1, [], [0, 1], [])
    program.path(1)
    listed = [Side(table, table.groups[0], 0, ["ab".index(v)], ["ab".index(v), -1], [1]) for table, v in sides]
    first = sides[0][1]
    program.extend(listed, Join(shape("a", "b"), frozenset("d"), shape(first, "c"), shape("a", "b", "c")))
    program.upsert(out)
    program.path_end()
    return program


def pairs(generator: random.Random, keys: int, values: int, count: int) -> list[tuple[int, int]]:
    return sorted({(generator.randrange(keys), generator.randrange(values)) for _ in range(count)})


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_candidates_are_those_of_all_sides(count):
    generator = random.Random(count)
    machine = Machine()
    rows = [pairs(generator, 6, 30, 70) for _ in range(count)]
    sides = [(Table(2, 1, indexes=[(0,)], name="side"), generator.choice("ab")) for _ in range(count)]
    for (table, _), own in zip(sides, rows, strict=True):
        fill(machine, table, own)
    out = Table(3, 1, name="out")
    delta = [(a, b, n) for a, b in pairs(generator, 8, 8, 40) for n in (1, 2)]
    run(machine, ternary(machine, sides, out), delta)
    expected = {}
    for a, b, n in delta:
        for c in range(30):
            if all(({"a": a, "b": b}[v], c) in set(own) for (_, v), own in zip(sides, rows, strict=True)):
                expected[a, b, c] = (expected.get((a, b, c), (0,))[0] + n,)
    assert expected and out.rows() == expected


@pytest.mark.parametrize("longest", ["first", "second"])
def test_lists_longer_than_a_chunk_are_resumed(longest):
    """Of two hubs one has 5000 members, the other 3000; two small rows around them are not lost."""
    machine = Machine()
    sizes = (5000, 3000) if longest == "first" else (3000, 5000)
    tables = [Table(2, 1, indexes=[(0,)], name="side") for _ in sizes]
    for table, size in zip(tables, sizes, strict=True):
        fill(machine, table, [(0, c) for c in range(size)] + [(1, 7), (2, 8)])
    out = Table(3, 1, name="out")
    before = int(machine.scratch[at.STEPS])
    run(
        machine,
        ternary(machine, list(zip(tables, "ab", strict=True)), out),
        [(1, 1, 1), (0, 0, 1), (2, 2, 1), (0, 1, 1)],
    )
    assert set(out.rows()) == {(1, 1, 7), (2, 2, 8), (0, 1, 7)} | {(0, 0, c) for c in range(3000)}
    # Listing, looking up and writing of each of the 3000 of the shorter list; a look-up may meet other slots first.
    assert int(machine.scratch[at.STEPS]) - before < 5 * 3000


def test_the_work_is_that_of_the_shortest_list():
    machine = Machine()
    hub, few = (Table(2, 1, indexes=[(0,)], name="side") for _ in range(2))
    fill(machine, hub, [(0, c) for c in range(20_000)])
    fill(machine, few, [(b, c) for b in range(50) for c in range(3)])
    out = Table(3, 1, name="out")
    before = int(machine.scratch[at.STEPS])
    run(machine, ternary(machine, [(hub, "a"), (few, "b")], out), [(0, b, 1) for b in range(50)])
    assert out.live == 150 and int(machine.scratch[at.STEPS]) - before < 50 * 3 * 8


@pytest.mark.parametrize("limbs", [1, 2])
def test_scale_multiplies_every_value(limbs):
    machine = Machine()
    table, out = Table(1, 1, limbs, name="table"), Table(1, 1, limbs, name="out")
    program = Assembler()
    program.lift(2, limbs, -1, [], [0], [])
    program.path(0)
    program.project(Join(shape("x", limbs=limbs), frozenset("d"), None, shape("x", limbs=limbs)))
    program.scale(shape("x", limbs=limbs), 3)
    program.upsert(out)
    program.path_end()
    program.path(0)
    program.upsert(table)
    program.path_end()
    assert run(machine, program, [(1, 5), (2, -7)]) == 0
    assert out.rows() == {(1,): (15,), (2,): (-21,)} and table.rows() == {(1,): (5,), (2,): (-7,)}
    flags = run(machine, program, [(1, 2**62)])
    assert flags == (at.OVERFLOW if limbs == 1 else 0)


def test_clear_empties_a_table_and_its_groups():
    machine = Machine()
    table = Table(2, 1, indexes=[(0,), (1,)], summed=[1, 0], name="table")
    for size in (3, 400, 2):
        fill(machine, table, [(i % 5, i) for i in range(size)])
        assert table.live == size and table.groups[0].live == min(5, size)
        program = Assembler()
        program.clear(table)
        machine.run_once(program.program())
        assert table.entries() == 0
        table._check()

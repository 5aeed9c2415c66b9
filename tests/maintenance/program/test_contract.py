"""The runtime's contract, proven on plan data written by hand: nothing in it knows a query's shape.

Two plans the planner does not make yet run on the same driver: a triangle count over one edge table
(three equal atoms, intersections, reads as old and as new) and a per-group minimum (the first row of an
ordered group, a summary that is not a ring).
"""

from __future__ import annotations

import ctypes
import random
from collections import Counter

import numpy as np

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler, Join, Side
from sqlfront.maintenance.program.shapes import COUNT, Shape
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables.group_reads import ends
from sqlfront.storage.stores.table import Table


def shape(*variables: str) -> Shape:
    return Shape(variables, (1,) * len(variables), (COUNT,), 1)


def run(machine: Machine, program: Assembler, tables: list[Table], rows: list[tuple[int, ...]]) -> None:
    data = np.array(rows, np.int64).reshape(len(rows), -1)
    assert machine.run(program.program(), data, len(data)) == 0
    sweep = Assembler()
    sweep.finish(at.SWEEP, tables)
    machine.run_once(sweep.program())
    for table in tables:
        table._check()


def triangle_program(edges: tuple[Table, Table], total: Table) -> Assembler:
    """Directed triangles E(a,b), E(b,c), E(c,a) over one table.

    Three equal atoms need two copies of the store, so that each pair reads one as old and one as new:
    atoms 1 and 2 read copy 0 (before and after its update), atom 3 copy 1 (before its update).
    """
    first, second = edges
    program = Assembler()
    for copy, atoms in ((0, (1, 2)), (1, (3,))):
        program.lift(3, 1, -1, [], [0, 1], [])
        for position in (0, 1):
            for atom in atoms[position : position + 1]:
                # The delta's edge (x, y) needs z with (y, z) and (z, x); later atoms are read as old.
                forward = {1: first, 2: second, 3: first}[atom]
                backward = {1: second, 2: first, 3: first}[atom]
                program.path(atom)
                matched = Join(shape("x", "y"), frozenset("d"), shape("y", "z"), shape("x", "y", "z"))
                program.extend(
                    [
                        Side(forward, forward.groups[0], 0, [1], [1, -1], [1]),
                        Side(backward, backward.groups[1], 1, [0], [-1, 0], [0]),
                    ],
                    matched,
                )
                closed = Join(shape("x", "y", "z"), frozenset("d"), shape("z", "x"), shape())
                program.probe(backward, [2, 0], closed)
                program.upsert(total)
                program.path_end()
            if position == 0:
                program.path(0)
                program.upsert(edges[copy])
                program.path_end()
    return program


def count_triangles(edges: Counter) -> int:
    return sum(n * edges[y, z] * edges[z, x] for (x, y), n in edges.items() for z in {b for a, b in edges if a == y})


def test_triangle_count_by_hand_written_plan() -> None:
    generator = random.Random(7)
    machine = Machine()
    edges = tuple(Table(2, 1, indexes=[(0,), (1,)], name="edges") for _ in range(2))
    total = Table(0, 1, name="total")
    program = triangle_program(edges, total)
    bag: Counter = Counter()
    for _ in range(150):
        batch = []
        for _ in range(generator.choice([1, 1, 5, 40])):
            if bag and generator.random() < 0.45:
                row = generator.choice(sorted(bag))
                batch.append((*row, -1))
                bag[row] -= 1
                if not bag[row]:
                    del bag[row]
            else:
                row = (generator.randrange(7), generator.randrange(7))
                batch.append((*row, 1))
                bag[row] += 1
        run(machine, program, [*edges, total], batch)
        assert total.rows().get((), (0,))[0] == count_triangles(bag)
    run(machine, program, [*edges, total], [(*row, -n) for row, n in bag.items()])
    assert total.live == 0 and edges[0].entries() == 0 and edges[1].entries() == 0


def test_group_minimum_by_hand_written_plan() -> None:
    generator = random.Random(11)
    machine = Machine()
    rows = Table(2, 1, indexes=[(0,)], name="rows", order=(0, [(1, at.ORDER_WORD, 0)]))
    program = Assembler()
    program.lift(3, 1, -1, [], [0, 1], [])
    program.path(1)
    program.upsert(rows)
    program.path_end()
    bag: Counter = Counter()
    changed = 0
    for _ in range(300):
        batch = []
        for _ in range(generator.choice([1, 3, 20])):
            if bag and generator.random() < 0.5:
                row = generator.choice(sorted(bag))
                batch.append((*row, -1))
                bag[row] -= 1
                if not bag[row]:
                    del bag[row]
            else:
                row = (generator.randrange(5), generator.randrange(-20, 20))
                batch.append((*row, 1))
                bag[row] += 1
        before = least_of_groups(machine, rows)
        run(machine, program, [rows], batch)
        expected = {g: min(v for h, v in bag if h == g) for g in {g for g, _ in bag}}
        assert least_of_groups(machine, rows) == expected
        changed += before != expected
    assert changed > 100
    run(machine, program, [rows], [(*row, -n) for row, n in bag.items()])
    assert least_of_groups(machine, rows) == {} and rows.entries() == 0


def least_of_groups(machine: Machine, rows: Table) -> dict[int, int]:
    """The value of each ordered group's first row, read as MIN reads it."""
    group, found = rows.groups[0], {}
    for number in group._live_rows():
        out = np.zeros(1, np.int64)
        address = np.array([group._row(number).ctypes.data], np.int64)
        ends(rows.address, group.address, address.ctypes.data, 1, 0, machine.scratch.ctypes.data, out.ctypes.data)
        (key,), (_, value) = group.key_of(number), words(int(out[0]), 2)
        found[key] = value
    return found


def words(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address))


def test_expansion_of_a_hub_is_resumed_and_nested() -> None:
    """A delta row that meets 5000 x 3 members passes through two nested, bounded expansions."""
    machine = Machine()
    many = Table(2, 1, indexes=[(0,)], name="many")
    few = Table(2, 1, indexes=[(0,)], name="few")
    out = Table(3, 1, name="out")
    load = Assembler()
    load.lift(3, 1, -1, [], [0, 1], [])
    load.path(0)
    load.upsert(many)
    load.path_end()
    run(machine, load, [many], [(1, i, 1) for i in range(5000)])
    fill = Assembler()
    fill.lift(3, 1, -1, [], [0, 1], [])
    fill.path(0)
    fill.upsert(few)
    fill.path_end()
    run(machine, fill, [few], [(i, j, 2) for i in range(5000) for j in range(3)])
    program = Assembler()
    program.lift(2, 1, -1, [], [0], [])
    program.path(1)
    first, second = Side(many, many.groups[0], 0, [0]), Side(few, few.groups[0], 0, [1])
    program.extend([first], Join(shape("a"), frozenset("d"), shape("a", "b"), shape("a", "b")))
    program.extend([second], Join(shape("a", "b"), frozenset("d"), shape("b", "c"), shape("a", "b", "c")))
    program.upsert(out)
    program.path_end()
    run(machine, program, [out], [(1, 1), (2, 1), (1, 3)])
    assert out.live == 15000 and set(out.rows().values()) == {(8,)}

"""Triangles with heavy and light values: right after every step, partitioned as stated, at the stated cost."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.engine import Change
from sqlfront.maintenance.heavy_light.balance import Balance, fitting_base

THREE = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a")}
ONE = {"e": ("x", "y")}
JOIN = "FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"
SELF_JOIN = "FROM e r JOIN e s ON r.y = s.x JOIN e t ON s.y = t.x AND t.y = r.x"
EPSILONS = [0, 0.25, 0.5, 0.75, 1]
Rows = list[tuple[int, int, int, int]]


class Triangles:
    """The tables r, s and t, or e alone, each with a column w, and a view v of their triangles."""

    def __init__(self, epsilon: float, tables: dict[str, tuple[str, str]] = THREE, measures: str = "count(*) AS n"):
        self.tables, self.measures = tables, measures
        self.con = sqlfront.connect()
        self.engine = self.con.session.database.engine
        self.epsilon = epsilon
        for name, (x, y) in tables.items():
            self.con.execute(f"CREATE CHANGE TABLE {name} ({x} BIGINT, {y} BIGINT, w BIGINT) WITH (retain = true)")

    def create(self) -> Triangles:
        join = JOIN if len(self.tables) == 3 else SELF_JOIN
        options = f"WITH (epsilon = {self.epsilon})"
        self.con.execute(f"CREATE MATERIALIZED VIEW v {options} AS SELECT {self.measures} {join}")
        return self

    @property
    def view(self):
        return self.con.session.database.view(self.con.session.duck, ["v"]).maintained

    @property
    def balance(self) -> Balance:
        assert self.view.balance is not None
        return self.view.balance

    def batch(self, name: str, rows: Rows) -> pa.Table:
        names = (*self.tables[name], "w", "_weight")
        return pa.table({column: pa.array([row[i] for row in rows], pa.int64()) for i, column in enumerate(names)})

    def apply(self, changes: dict[str, Rows]) -> None:
        self.con.apply({name: self.batch(name, rows) for name, rows in changes.items()})

    def row(self, name: str, x: int, y: int, weight: int = 1, w: int = 1) -> int:
        """Change one row; the steps it took."""
        view = self.con.view("v")  # To look the name up takes as long as all else.
        before = view.cost()["steps"]
        self.con.apply_row(name, (x, y, w), weight)
        return view.cost()["steps"] - before

    def read(self) -> tuple[int | None, ...]:
        return self.con.execute("SELECT * FROM v").fetchone()

    def count(self) -> int:
        return self.read()[0]

    def check(self) -> None:
        if self.view.balance is not None:
            self.view.balance._check()


def naive(tables: list[Counter]) -> tuple[int, int | None]:
    """count(*) and sum(r.w * s.w * t.w) over bags of (x, y, w)."""
    found, total = 0, 0
    lists: dict[int, list] = {}
    for (b, c, v), m in tables[1].items():
        lists.setdefault(b, []).append((c, v, m))
    for (a, b, u), k in tables[0].items():
        for c, v, m in lists.get(b, ()):
            for w in (-2, 1, 3):
                n = k * m * tables[2].get((c, a, w), 0)
                found, total = found + n, total + n * u * v * w
    return found, total if found else None


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("tables", [THREE, ONE], ids=["three", "one"])
def test_random_streams(epsilon, tables):
    """Rows in ones and in batches, some of them several times, self-loops, and all deleted in the end."""
    generator = random.Random(f"{epsilon} {len(tables)}")
    triangles = Triangles(epsilon, tables, "count(*) AS n, sum(r.w * s.w * t.w) AS p").create()
    bags = {name: Counter() for name in tables}
    hubs = 0
    for step in range(80):
        changes: dict[str, Rows] = {}
        for _ in range(1 if step % 3 else generator.randrange(1, 25)):
            name = generator.choice(list(tables))
            bag = bags[name]
            if +bag and generator.random() < (0.25 if step < 60 else 0.9):
                row, weight = generator.choice(list(+bag)), -1
            else:
                # 0 is frequent as a first value, 2 as a second one, 1 as both.
                x, y = (
                    generator.choice((0, 1, generator.randrange(40))),
                    generator.choice((1, 2, generator.randrange(40))),
                )
                row, weight = (x, y, generator.choice((-2, 1, 3))), generator.choice((1, 1, 2))
            bag[row] += weight
            changes.setdefault(name, []).append((*row, weight))
        triangles.apply(changes)
        assert triangles.read() == naive([+bags[name] for name in [*tables] * (3 // len(tables))])
        if step % 2:
            triangles.check()
        if epsilon not in (0, 1):
            hubs = max(hubs, sum(sum(rows) for rows in triangles.balance.figures().views))
    triangles.apply({name: [(*row, -n) for row, n in (+bag).items()] for name, bag in bags.items() if +bag})
    assert triangles.read() == (0, None)
    triangles.check()
    balance = triangles.view.balance
    assert (balance is None) == (epsilon in (0, 1))
    if balance is not None:
        assert hubs > 0 or epsilon > 0.25
        assert all(table.entries() == 0 for table in balance.part_trees.all_tables())


def test_the_base_follows_the_size():
    trace = []
    triangles = Triangles(0.5).create()
    for i in range(16):
        triangles.row("r", i, i)
        trace.append((triangles.balance.size, triangles.balance.base))
    assert trace == [(1, 2), (2, 4), (3, 4)] + [(i, 8) for i in range(4, 8)] + [(i, 16) for i in range(8, 16)] + [
        (16, 32)
    ]
    trace.clear()
    for i in range(16):
        triangles.row("r", i, i, -1)
        trace.append((triangles.balance.size, triangles.balance.base))
    expected = [(i, 32) for i in range(15, 7, -1)] + [(i, 15) for i in range(7, 2, -1)] + [(2, 6), (1, 6), (0, 2)]
    assert trace == expected


@pytest.mark.parametrize(("base", "size", "fits"), [(1, 0, 1), (2, 100, 128), (128, 0, 2), (32, 8, 32), (32, 7, 15)])
def test_a_jump_of_the_size_is_one_step(base, size, fits):
    assert fitting_base(base, size) == fits


def test_the_micro_instance():
    triangles = Triangles(0.5)
    triangles.apply({
        "r": [(1, 1, 1, 2), (1, 2, 1, 1), (2, 1, 1, 1)],
        "s": [*((1, c, 1, 1) for c in range(1, 6)), (2, 1, 1, 3)],
        "t": [(1, 1, 1, 1), (1, 2, 1, 2), (2, 1, 1, 1)],
    })  # fmt: skip
    triangles.create()
    figures = triangles.balance.figures()
    assert triangles.count() == 9
    assert (figures.base, figures.threshold, figures.views) == (25, 5, ((0,),) * 3)
    assert [cells(sizes) for sizes in figures.parts] == [(0, 0, 0, 3), (0, 5, 0, 1), (0, 0, 0, 3)]
    triangles.check()


def cells(sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[cell] for cell in ("HH", "HL", "LH", "LL"))


def hub_rows() -> Rows:
    pairs = [(x, y) for x in range(20) for y in range(20) if x < 2 or y < 2 or x * y % 7 == 1]
    return [(x, y, 1, 2 if (x + 2 * y) % 3 == 0 else 1) for x, y in pairs]


def test_the_hub_instance():
    triangles = Triangles(0.45)
    triangles.apply({name: hub_rows() for name in THREE})
    triangles.create()
    figures = triangles.balance.figures()
    assert triangles.count() == 1368
    assert (figures.size, figures.base) == (360, 721)
    assert [cells(sizes) for sizes in figures.parts] == [(4, 36, 36, 44)] * 3
    products = [kept.tree.root.table for kept in triangles.balance.part_trees.trees]
    sums = [[values[0] for values in product.rows().values()] for product in products]
    assert [(len(own), sum(own)) for own in sums] == [(4, 132)] * 3
    triangles.check()


def test_the_hub_instance_row_by_row():
    triangles = Triangles(0.45).create()
    changes = [(name, row) for name in THREE for row in hub_rows()]
    random.Random(1).shuffle(changes)
    for name, (x, y, _, n) in changes:
        triangles.row(name, x, y, n)
    figures = triangles.balance.figures()
    assert triangles.count() == 1368 and (figures.base, figures.majors) == (512, 9)
    triangles.check()
    for name, (x, y, _, n) in changes:
        triangles.row(name, x, y, -n)
    assert triangles.count() == 0 and triangles.balance.base == 2
    assert all(table.entries() == 0 for table in triangles.balance.part_trees.all_tables())


@pytest.mark.parametrize("epsilon", [0.3, 0.5, 1])
def test_closed_forms(epsilon):
    n = 12
    complete = Triangles(epsilon, ONE).create()
    complete.apply({"e": [(x, y, 1, 1) for x in range(n) for y in range(n) if x != y]})
    assert complete.count() == n * (n - 1) * (n - 2)
    complete.row("e", 3, 3)
    assert complete.count() == n * (n - 1) * (n - 2) + 3 * (n - 1) + 1
    complete.row("e", 3, 3, -1)
    assert complete.count() == n * (n - 1) * (n - 2)
    complete.check()
    tripartite = Triangles(epsilon).create()
    tripartite.apply({name: [(x, y, 1, 1) for x in range(n) for y in range(n)] for name in THREE})
    assert tripartite.count() == n**3
    tripartite.check()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_vectors_times_a_matrix(epsilon):
    """Online vector-matrix-vector products: u M v is the number of triangles of R = {a} x u, S = M, T = v x {a}."""
    generator = np.random.default_rng(7)
    n = 8
    matrix = generator.random((n, n)) < 0.3
    triangles = Triangles(epsilon).create()
    triangles.apply({"s": [(i, j, 1, 1) for i, j in np.argwhere(matrix).tolist()]})
    u, v = np.zeros(n, int), np.zeros(n, int)
    for _ in range(n):
        left, right = (generator.random((2, n)) < 0.4).astype(int)
        triangles.apply({
            "r": [(0, i, 1, int(left[i] - u[i])) for i in np.flatnonzero(left - u).tolist()],
            "t": [(i, 0, 1, int(right[i] - v[i])) for i in np.flatnonzero(right - v).tolist()],
        })  # fmt: skip
        u, v = left, right
        assert triangles.count() == u @ matrix @ v
        triangles.check()


def test_rebalances_are_paid_for():
    """Majors lie at least N/4 updates apart, the changes of one value's status more than half a threshold."""
    generator = random.Random(5)
    triangles = Triangles(0.5).create()
    balance, present = triangles.balance, set()
    majors, since, lowest = 0, 0, math.inf
    touched: Counter = Counter()
    column = balance.part_trees.partitions[0].columns[0]
    heavy: set = set()
    for step in range(750):
        x, y = min(int(generator.paretovariate(0.4)), 40), generator.randrange(60)
        weight = -1 if (x, y) in present else 1
        if weight > 0 and step % 500 > 250 and present:
            x, y = generator.choice(sorted(present))
            weight = -1
        base, threshold = balance.base, balance.threshold
        triangles.row("r", x, y, weight)
        (present.add if weight > 0 else present.discard)((x, y))
        since += 1
        touched[x] += 1
        if balance.majors != majors:
            assert since >= base / 4 - 1
            majors, since, heavy = balance.majors, 0, set(column.heavy.rows())
            touched.clear()
            continue
        now = set(column.heavy.rows())
        for (value,) in now ^ heavy:
            lowest = min(lowest, touched[value] / threshold)
            assert touched[value] > threshold / 2 - 1
            touched[value] = 0
        heavy = now
    assert majors >= 5 and lowest < math.inf
    triangles.check()


def test_an_epoch_is_undone_after_it_was_rebalanced():
    triangles = Triangles(0.45)
    triangles.apply({name: hub_rows() for name in THREE})
    triangles.create()
    engine, balance = triangles.engine, triangles.balance
    key = next(name for name in engine.relations if name.endswith("r"))
    for rows in ([(5, y, 1, 1) for y in range(100, 125)], [(x, 19, 1, 1) for x in range(30, 900)]):
        before = balance.minors, balance.majors
        batch = triangles.batch("r", [*rows, (0, 0, 1, -1)]).drop_columns(["_weight"])
        weights = np.array([1] * len(rows) + [-1])
        applied = engine.apply({key: Change(batch, weights)})
        balance._check()
        assert (balance.minors, balance.majors) != before
        engine.undo(applied)
        assert triangles.count() == 1368
        balance._check()


def test_a_refused_epoch_leaves_the_partition():
    triangles = Triangles(0.45)
    triangles.apply({name: hub_rows() for name in THREE})
    triangles.create()
    with pytest.raises(sqlfront.Error):
        triangles.apply({"r": [(5, y, 1, 1) for y in range(100, 160)] + [(77, 77, 1, -1)]})
    assert triangles.count() == 1368
    triangles.check()


def test_a_value_changes_its_status_at_the_bounds():
    triangles = Triangles(0.5)
    triangles.apply({"s": [(i, i, 1, 1) for i in range(300)]})
    balance = triangles.create().balance
    threshold, heavy = balance.threshold, balance.part_trees.partitions[0].columns[0].heavy
    promoted = next(degree for degree in range(1, 100) if triangles.row("r", 7, degree) and heavy.live)
    triangles.check()
    assert promoted == math.ceil(1.5 * threshold)
    demoted = next(
        degree for degree in range(promoted - 1, 0, -1) if triangles.row("r", 7, degree + 1, -1) and not heavy.live
    )
    triangles.check()
    assert demoted == math.ceil(threshold / 2) - 1
    assert (balance.threshold, balance.minors, balance.majors) == (threshold, 2, 0)


BIG = 2**40
SUMS = "count(*) AS n, sum(r.w * s.w * t.w) AS p"


@pytest.mark.parametrize("path", ["partition", "change", "move"])
def test_products_widen_though_the_sum_does_not(path):
    """Sums of HL times LH beyond 64 bits: when a partition is made, by a change, and when a value becomes heavy."""
    triangles = Triangles(0.5, measures=SUMS)
    triangles.apply({"r": [(-i, -i, 1, 1) for i in range(1, 400)], "t": [(c, 0, BIG, 1) for c in range(60)]})
    known = {"partition": 60, "change": 40, "move": 20}[path]
    w = 0 if path == "change" else BIG
    triangles.apply({"s": [(0, c, w, 1) for c in range(known)]})
    triangles.create()
    narrow = triangles.view.limbs
    assert (narrow > 1) == (path == "partition")
    for c in range(known, 60):
        triangles.row("s", 0, c, 1, BIG)
    triangles.check()
    assert triangles.view.limbs > 1
    triangles.row("r", 0, 0, 1, 3)
    few = 0 if path == "change" else known
    assert triangles.read() == (60, 3 * BIG * BIG * (60 - known + few))
    triangles.check()


@pytest.mark.parametrize("type_", ["VARCHAR", "HUGEINT", "DECIMAL(30, 2)"])
def test_values_of_any_type(type_):
    con = sqlfront.connect()
    con.execute(f"CREATE CHANGE TABLE e (x {type_}, y {type_}, w BIGINT) WITH (retain = true)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n {SELF_JOIN}")
    rows = hub_rows()
    values = ", ".join(f"('{x}', '{y}', 1)" for x, y, _, n in rows for _ in range(n))
    con.execute(f"INSERT INTO e VALUES {values}")
    view = con.session.database.view(con.session.duck, ["v"]).maintained
    assert con.execute("SELECT n FROM v").fetchone() == (1368,)
    con.execute("INSERT INTO e SELECT CAST(7 AS BIGINT), i, 1 FROM range(20, 60) AS n(i)")
    assert view.balance.figures().minors + view.balance.figures().majors > 0
    view.balance._check()
    con.execute("DELETE FROM e WHERE CAST(y AS BIGINT) >= 2")
    con.execute("DELETE FROM e")
    assert con.execute("SELECT n FROM v").fetchone() == (0,)
    view.balance._check()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT r.x, count(*) AS n " + SELF_JOIN + " GROUP BY r.x",
        "SELECT count(*) AS n FROM e r, e s WHERE r.y = s.x",
    ],
    ids=["free variables", "acyclic"],
)
def test_other_views_are_not_partitioned(query):
    triangles = Triangles(0.5, ONE)
    triangles.con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert triangles.view.balance is None


# Costs ---------------------------------------------------------------------------------------------------------------


def toggled(triangles: Triangles, name: str, x: int, y: int) -> float:
    """The median steps of inserting and deleting a row."""
    return statistics.median(triangles.row(name, x, y, weight) for weight in (1, -1) * 5)


def slope(sizes: list[int], steps: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(steps), 1)[0])


def tight(epsilon: float, base: int) -> Triangles:
    """Two values with lists as long as they may be: light ones of just under N^eps tuples, or heavy ones of N^(1-eps)
    heavy partners. The rest of N/2 tuples meets nothing."""
    threshold = base**epsilon
    triangles = Triangles(epsilon)
    if epsilon >= 0.5:
        partners, width = math.ceil(threshold) - 1, 1
    else:
        width = math.floor(threshold) + 1
        partners = base // 2 // (width + 1)
    s = [(0, c, 1, 1) for c in range(partners)]
    t = [(c, a, 1, 1) for c in range(partners) for a in range(width)]
    rest = [(-1 - i, -1 - i, 1, 1) for i in range(base // 2 - len(s) - len(t))]
    triangles.apply({"s": s, "t": t, "r": rest})
    return triangles.create()


@pytest.mark.parametrize("epsilon", [0.25, 0.5, 0.75])
def test_an_update_costs_what_is_stated(epsilon):
    sizes = [1_000, 10_000, 100_000]
    steps = [toggled(tight(epsilon, size), "r", 0, 0) for size in sizes]
    assert abs(slope(sizes, steps) - max(epsilon, 1 - epsilon)) < 0.05


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_two_stars(epsilon):
    """S = {b} x C and T = C x {a}: linear in |C| without heavy values, constant with them."""
    sizes, steps = [1_000, 4_000, 16_000], []
    for size in sizes:
        triangles = Triangles(epsilon)
        triangles.apply({"s": [(0, c, 1, 1) for c in range(size)], "t": [(c, 0, 1, 1) for c in range(size)]})
        steps.append(toggled(triangles.create(), "r", 0, 0))
    if epsilon in (0, 1):
        assert abs(slope(sizes, steps) - 1) < 0.05
    else:
        assert max(steps) <= 30

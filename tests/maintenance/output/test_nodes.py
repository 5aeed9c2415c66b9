"""Every kind of node meets one contract: its output is the change of its rows, and undoing an epoch restores them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.clocks import MANUAL, clock_relation
from sqlfront.maintenance.engine import Applied, Change, Engine
from sqlfront.maintenance.output import computed_nodes
from sqlfront.maintenance.output.islands_node import IslandsNode
from sqlfront.maintenance.output.nearest_node import NearestRowsNode
from sqlfront.maintenance.output.node import Node, TreeNode
from sqlfront.maintenance.output.output_change import plain
from sqlfront.maintenance.output.touched_groups import TouchedGroupsNode
from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.computed_rows import ComputedRows, TemporalRows, TimeBound, TouchedGroups
from sqlfront.planner.model.island_rows import IslandRows
from sqlfront.planner.model.nearest_rows import ExtremeRows, NearestRows
from sqlfront.planner.model.window_functions import OrderItem
from tests.maintenance.output.naive_node import NaiveNode, NaiveRows

TABLES = "CREATE CHANGE TABLE r (a BIGINT, b BIGINT, s VARCHAR); CREATE CHANGE TABLE u (b BIGINT, c BIGINT)"
TREES = {
    "rows of a join": "SELECT r.a, u.c FROM r JOIN u USING (b)",
    "groups": "SELECT r.a, sum(u.c) AS s FROM r JOIN u USING (b) GROUP BY r.a",
    "distinct rows": "SELECT DISTINCT r.a, u.c FROM r JOIN u USING (b)",
    "distinct values": "SELECT r.s, min(u.c) AS m, count(DISTINCT u.c) AS n FROM r JOIN u USING (b) GROUP BY r.s",
    "ranked rows": "SELECT r.a, u.c FROM r JOIN u USING (b) ORDER BY r.a + u.c, r.a, u.c LIMIT 3",
    "a union of trees": "SELECT x.a, y.c, z.b FROM r x, r y0, u y, u z "
    "WHERE x.b = y.b AND x.b = z.b AND y0.b = x.b AND y0.a = x.a",
    "triangles over heavy and light parts": "WITH (epsilon = 0.5) AS SELECT x.a, count(*) AS n FROM r x, u y, r z "
    "WHERE x.b = y.b AND y.c = z.a AND z.b = x.a GROUP BY x.a",
    "a sum over triangles": "WITH (epsilon = 0.5) AS SELECT count(*) AS n FROM r x, u y, r z "
    "WHERE x.b = y.b AND y.c = z.a AND z.b = x.a",
    "a symmetric self-join": "SELECT count(*) AS n FROM r x, r y, r z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a",
    "stored joins": "WITH (strategy = 'materialize') AS SELECT r.a, u.c, t.a AS d FROM r, u, r t "
    "WHERE r.b = u.b AND u.c = t.b",
    "groups in order": "SELECT r.a, sum(u.c) AS s FROM r JOIN u USING (b) GROUP BY r.a ORDER BY s, r.a LIMIT 2",
    "first rows of each group": "SELECT r.a, u.c FROM r JOIN u USING (b) "
    "QUALIFY row_number() OVER (PARTITION BY r.a ORDER BY u.c) <= 1",
    "merged branches": "SELECT a, b FROM r UNION ALL SELECT b, c FROM u ORDER BY 1, 2 LIMIT 3",
    "an aggregate without GROUP BY": "SELECT sum(u.c) AS s, count(*) AS n FROM r JOIN u USING (b)",
}
_ISLANDS = """
    WITH flagged AS (
        SELECT *, b IS DISTINCT FROM lag(b) OVER (PARTITION BY __run ORDER BY __place) AS begins FROM {rows}
    ), numbered AS (
        SELECT *, sum(begins::INTEGER) OVER (PARTITION BY __run ORDER BY __peer FRAME) AS number
        FROM flagged WHERE __inside
    ) SELECT a, number::BIGINT, count(*), max(s), min(__place) FROM numbered GROUP BY __run, a, number"""
_SECONDS = 'epoch_ms("clock") // 1000'
GROUPS: dict[str, ComputedRows] = {
    "a kind that only tests know": NaiveRows(
        "main.u", (), "SELECT b, max(c) FROM {rows} GROUP BY b", (("b", "BIGINT"), ("m", "BIGINT")), (), "all"
    ),
    "touched groups": TouchedGroups(
        "main.u",
        ("b",),
        "SELECT b, median(c), list(c ORDER BY c)[1] FROM {rows} GROUP BY b",
        (("b", "BIGINT"), ("m", "DOUBLE"), ("f", "BIGINT")),
        ("b",),
        "median, list",
    ),
    "touched partitions": TouchedGroups(
        "main.r",
        ("a",),
        "SELECT a, s, row_number() OVER (PARTITION BY a ORDER BY b, s) FROM {rows}",
        (("a", "BIGINT"), ("s", "VARCHAR"), ("n", "BIGINT")),
        ("a",),
        "row_number() OVER",
    ),
    "a temporal filter": TemporalRows(
        "main.r",
        (
            TimeBound("a", "<=", _SECONDS, "BIGINT", "a <= epoch(now())"),
            TimeBound("b", "<", f"{_SECONDS} + 1", "BIGINT", "b < epoch(now()) + 1"),
            TimeBound("b", ">=", f"{_SECONDS} - 1", "BIGINT", "b >= epoch(now()) - 1"),
        ),
        (("b", "BIGINT"), ("s", "VARCHAR")),
        clock=clock_relation(MANUAL),
    ),
    "one touched group": TouchedGroups(
        "main.r",
        (),
        "SELECT quantile_disc(b, 0.5), count(*) FROM {rows}",
        (("q", "BIGINT"), ("n", "BIGINT")),
        label="quantile_disc",
    ),
    "islands of rows that tie": IslandRows(
        "main.r",
        ("a",),
        (OrderItem("b", descending=True), OrderItem("s")),
        1,
        1,
        0,
        _ISLANDS.replace("FRAME", "").replace("number::BIGINT, ", ""),
        (("a", "BIGINT"), ("n", "BIGINT"), ("m", "VARCHAR")),
        ("a",),
        None,
    ),
    "numbered islands of rows": IslandRows(
        "main.r",
        (),
        (OrderItem("s"), OrderItem("b", nulls_first=True), OrderItem("a")),
        3,
        1,
        0,
        _ISLANDS.replace("FRAME", "ROWS UNBOUNDED PRECEDING").replace("a, number", "number"),
        (("number", "BIGINT"), ("n", "BIGINT"), ("m", "VARCHAR")),
        (),
        "number",
        by_rows=True,
    ),
    "nearest rows": NearestRows(
        "main.r",
        "main.u",
        (("a", "b"),),
        ("b", "c"),
        ">=",
        (("a", "BIGINT"), ("b", "BIGINT"), ("s", "VARCHAR"), ("c", "BIGINT")),
        ("c",),
    ),
    "nearest rows or none": NearestRows(
        "main.r",
        "main.u",
        (),
        ("b", "c"),
        "<",
        (("a", "BIGINT"), ("b", "BIGINT"), ("s", "VARCHAR"), ("f", "BIGINT"), ("c", "BIGINT")),
        ("b", "c"),
        outer=True,
    ),
    "three nearest rows or none": NearestRows(
        "main.r",
        "main.u",
        (),
        ("b", "c"),
        "<",
        (("a", "BIGINT"), ("b", "BIGINT"), ("s", "VARCHAR"), ("f", "BIGINT"), ("c", "BIGINT")),
        ("b", "c"),
        outer=True,
        ties=(("b", (True, True)),),
        count=3,
    ),
    "the least value within a range": ExtremeRows(
        "main.r",
        "main.u",
        (),
        ("a", "b"),
        "<=",
        (("a", "BIGINT"), ("b", "BIGINT"), ("s", "VARCHAR"), ("m", "BIGINT")),
        ("c",),
        second=(("b", ">=", "b"),),
        by=("c",),
    ),
    "the greatest value within a box": ExtremeRows(
        "main.r",
        "main.u",
        (),
        ("a", "b"),
        "<=",
        (("a", "BIGINT"), ("b", "BIGINT"), ("s", "VARCHAR"), ("m", "BIGINT")),
        ("b",),
        outer=True,
        second=(("b", "<", "c"),),
        greatest=True,
        by=("b",),
    ),
}


@pytest.fixture(params=[*TREES, *GROUPS])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Engine, Node]]:
    monkeypatch.setitem(computed_nodes.NODES, NaiveRows, NaiveNode)
    con = sqlfront.connect()
    yield con.session.database.engine, make(con, request.param)
    con.close()


def make(con: sqlfront.Connection, kind: str) -> Node:
    """A node of a kind over empty tables."""
    con.execute(TABLES)
    engine = con.session.database.engine
    if kind in TREES:
        query = TREES[kind]
        con.execute(f"CREATE MATERIALIZED VIEW v {query if query.startswith('WITH') else f'AS {query}'}")
        name = con.session.database.views["main", "v"].maintained.name
    else:
        name = "groups"
        if isinstance(GROUPS[kind], TemporalRows):
            engine.clocks.start(MANUAL, 0)
        engine.create_computed(name, GROUPS[kind], lambda table: ((), 0))
    engine.expose(name, inner=True)  # Computed groups are a relation already.
    return engine.nodes[name]


class Stream:
    """Random epochs over the two tables: NULLs, duplicates, rows that go and return, and time that goes on.

    The right of nearest rows has no NULL in its keys and its times: the planner leaves such rows out."""

    def __init__(self, engine: Engine, seed: int, node: Node) -> None:
        self._engine, self._rng = engine, random.Random(seed)
        rows = node.rows if isinstance(node, NearestRowsNode) else None
        times = () if rows is None else [theirs for _, _, theirs in rows.compared]
        self._present = set[str]() if rows is None else {*(theirs for _, theirs in rows.keys), *times}
        self._rows: dict[str, Counter[tuple[object, ...]]] = {"main.r": Counter(), "main.u": Counter()}

    def epoch(self) -> Applied:
        rng = self._rng
        changes = dict[str, Change]()
        for table, kept in self._rows.items():
            rows: list[tuple[object, ...]] = []
            weights = []
            for _ in range(rng.randint(0, 4)):
                number = lambda: rng.choice([None, 1, 1, 2, 3])  # noqa: E731
                row = rng.choice(list(kept.elements())) if kept and rng.random() < 0.5 else None
                if row is None:
                    row = (number(), number(), rng.choice("xy")) if table == "main.r" else (number(), number())
                    while table == "main.u" and any(
                        name in self._present and value is None for name, value in zip("bc", row, strict=True)
                    ):
                        row = (number(), number())
                    weights.append(rng.choice([1, 1, 2]))
                else:
                    weights.append(-1)
                rows.append(row)
                kept[row] += weights[-1]
                self._rows[table] = kept = +kept
            if rows:
                changes[table] = self._change(table, rows, weights)
        now = self._engine.clocks.time(MANUAL)
        if now is not None and rng.random() < 0.5:
            changes |= self._engine.clocks.change(MANUAL, now + rng.randint(0, 500_000))
        return self._engine.apply(changes)

    def drain(self) -> Applied:
        """Everything is deleted."""
        changes = {}
        for table, kept in self._rows.items():
            if kept:
                changes[table] = self._change(table, list(kept), [-count for count in kept.values()])
                kept.clear()
        return self._engine.apply(changes)

    def _change(self, table: str, rows: list[tuple[object, ...]], weights: list[int]) -> Change:
        names = [column.name for column in self._engine.relations[table].columns]
        types = [pa.string() if name == "s" else pa.int64() for name in names]
        arrays = [pa.array(values, type_) for values, type_ in zip(zip(*rows), types)]
        return Change(pa.table(arrays, names=names), np.array(weights))


def rows_of(node: Node) -> Counter[tuple[object, ...]]:
    return sum((counted(pa.Table.from_batches([batch])) for batch in node.batches()), Counter())


def counted(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in plain(rows).to_pylist())


def output_of(applied: Applied, node: Node) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    if node.name in applied.changes:
        for row in applied.changes[node.name].weighted().to_pylist():
            *values, weight = row.values()
            found[tuple(values)] += weight
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_output_is_the_change_of_the_rows_and_undo_restores_them(made: tuple[Engine, Node], seed: int) -> None:
    engine, node = made
    stream, told, changed = Stream(engine, seed, node), rows_of(node), 0
    for _ in range(30):
        before = rows_of(node)
        applied = stream.epoch()
        change = output_of(applied, node)
        after = rows_of(node)
        if isinstance(node, TouchedGroupsNode | NearestRowsNode | IslandsNode):
            assert counted(node.compute_all()) == after
        assert +change == after - before
        assert -change == before - after
        engine.undo(applied)
        assert rows_of(node) == before
        engine.commit(engine.apply(_again(applied)))
        assert rows_of(node) == after
        for row, weight in change.items():
            told[row] += weight
        changed += bool(change)
    assert told == rows_of(node)
    assert changed >= 8
    empty = rows_of_empty(node)
    engine.commit(stream.drain())
    assert rows_of(node) == empty
    stores = [(relation, store) for relation in engine.relations.values() for store in relation.stores.values()]
    assert {store.table.live for relation, store in stores if relation.is_view} <= {empty.total()}
    tables = [store.table for relation, store in stores if not relation.is_view and relation.name.startswith("main.")]
    assert not any(table.live for table in tables)


def _again(applied: Applied) -> dict[str, Change]:
    tables = [item for item in applied.encoded if not item.relation.is_view]
    return {item.relation.name: Change(item.batch, item.weights) for item in tables}


def rows_of_empty(node: Node) -> Counter[tuple[object, ...]]:
    """The rows over empty tables: one, of an aggregate without GROUP BY."""
    names = [name for name, _ in node.columns]
    if names == ["n"]:
        return Counter([(0,)])
    return Counter([(None, 0)]) if names in (["s", "n"], ["q", "n"]) else Counter()


def test_a_description_is_what_the_node_is_and_keeps(made: tuple[Engine, Node]) -> None:
    """Its inputs and tables are the node's; the changes and steps are those of its inputs; without rows it is empty."""
    engine, node = made
    stream, before = Stream(engine, 3, node), node.describe()
    assert (before.name, set(before.inputs), before.runs) == (node.name, node.relations, True)
    assert isinstance(before.work, Bound) and isinstance(before.output, Bound) and before.kind and before.source
    changed: Counter[str] = Counter()
    for _ in range(12):
        applied = stream.epoch()
        engine.commit(applied)
        changed.update(
            {item.relation.name: item.rows for item in applied.encoded if item.relation.name in node.relations}
        )
    found = node.describe()
    assert Counter(found.changes) - Counter(before.changes) == changed
    assert found.steps == int(engine.machine.counters[node.number]) and found.steps > before.steps
    tables = {id(entry.table) for entry in found.state}
    assert len({(entry.node, entry.kind) for entry in found.state}) == len(found.state) or found.tree is not None
    if isinstance(node, TreeNode):
        own = [table for member in node.view.members for table in member.all_tables()]
        own += [store.table for member in node.view.members for store in member.stores()]
        assert tables == {id(table) for table in own} and found.tree is not None
    empty = rows_of_empty(node)
    engine.commit(stream.drain())
    assert sum(entry.table.live for entry in node.describe().state if entry.kind != "heavy values") <= empty.total()


def test_values_that_become_wider_change_no_row(made: tuple[Engine, Node]) -> None:
    """Sums of numbers near the bounds of BIGINT take more words: the epoch runs again, and is undone as any other."""
    engine, node = made
    rows = pa.table({"a": [1, 2, 1], "b": [1, 2, 2], "s": ["x", "y", "x"]})
    engine.commit(engine.apply({"main.r": Change(rows), "main.u": Change(pa.table({"b": [1, 2], "c": [1, 2]}))}))
    before, limbs = rows_of(node), _limbs(engine)
    large = [2**63 - number for number in range(1, 9)]
    applied = engine.apply({"main.u": Change(pa.table({"b": [1, 2] * 4, "c": large}))})
    assert (_limbs(engine) > limbs) == (("s", "HUGEINT") in node.columns)
    assert output_of(applied, node) == _difference(rows_of(node), before)
    engine.undo(applied)
    assert rows_of(node) == before


def _limbs(engine: Engine) -> int:
    return max((view.limbs for view in engine.views.values()), default=0)


def _difference(after: Counter[tuple[object, ...]], before: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    found = Counter(after)
    found.subtract(before)
    return Counter({row: count for row, count in found.items() if count})


def test_another_engine_takes_the_state_and_goes_on(made: tuple[Engine, Node], request: pytest.FixtureRequest) -> None:
    """What `arrays` gives, `adopt` takes: rows, widths and thresholds; from there on both engines do the same."""
    engine, node = made
    kind = request.node.callspec.params["made"]
    if kind == "a temporal filter":
        pytest.skip("a snapshot leaves nodes over a clock out")
    stream = Stream(engine, 4, node)
    for _ in range(20):
        engine.commit(stream.epoch())
    wide = pa.table({"b": [1, 1, 1], "c": [2**62, 2**62, 2**62]})
    engine.commit(engine.apply({"main.u": Change(wide)}))
    engine.pulled.catch_up_all()
    saved = engine.arrays(engine.nodes.keys(), {"main.r", "main.u"})
    facts, arrays = json.loads(json.dumps(saved.facts)), {name: array.copy() for name, array in saved.arrays.items()}

    def read(name: str, into: np.ndarray) -> None:
        np.copyto(into, arrays.pop(name))

    with sqlfront.connect() as con:
        other = con.session.database.engine
        other.prepare(facts, read)
        twin = make(con, kind)
        other.adopt(facts, read)
        assert not arrays, "an array has not been read"
        assert rows_of(twin) == rows_of(node)
        assert json.loads(json.dumps(other.arrays(other.nodes.keys(), {"main.r", "main.u"}).facts)) == facts
        for number in range(10):
            applied = stream.epoch() if number < 9 else stream.drain()
            again = other.apply(_again(applied))
            assert output_of(again, twin) == output_of(applied, node)
            if number % 3 == 0:
                other.undo(again)
                again = other.apply(_again(applied))
            engine.commit(applied)
            other.commit(again)
            assert rows_of(twin) == rows_of(node)
        for relation in other.relations.values():
            for store in relation.stores.values():
                store.table._check()
        for view in other.views.values():
            for table in (table for member in view.members for table in member.all_tables()):
                table._check()


def test_only_touched_groups_are_handed_to_duckdb() -> None:
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE u (b BIGINT, c BIGINT)")
    engine = con.session.database.engine
    node = engine.create_computed("groups", GROUPS["touched groups"], lambda table: ((), 0))
    rows = pa.table({"b": [group for group in range(100) for _ in range(10)], "c": list(range(1000))})
    engine.commit(engine.apply({"main.u": Change(rows)}))
    assert node.rows_computed == 1000
    steps = engine.machine.counters[node.number]
    change = Change(pa.table({"b": [7, 7, 8], "c": [1, 2, 80]}), np.array([1, 1, -1]))
    engine.commit(engine.apply({"main.u": change}))
    assert node.rows_computed - 1000 == 12 + 9
    assert engine.machine.counters[node.number] - steps >= node.rows_computed - 1000
    con.close()


def test_a_node_goes_with_the_last_reader_of_its_rows() -> None:
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE u (b BIGINT, c BIGINT)")
    engine = con.session.database.engine
    engine.create_computed("groups", GROUPS["touched groups"], lambda table: ((), 0))
    engine.drop_unread()
    assert not engine.nodes
    assert "groups" not in engine.relations
    assert [store.users for store in engine.relations["main.u"].stores.values()] == [{""}]
    con.close()

"""Replays a stream on sqlfront and on a model of its tables; after every step each view is what DuckDB says."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.epoch import shown_relation
from tests.streams.changes import Step, Stream, effect
from tests.streams.queries import FloatSum, Query
from tests.streams.schema import Column, Row, Table

_ARROW = {
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "SMALLINT": pa.int16(),
    "UBIGINT": pa.uint64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
}


class Replay:
    """One run. `changed` of `steps` changed a view's result; `shapes` are those of the views made."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.con = sqlfront.connect()
        self.other = self.con.cursor()
        self.judge = duckdb.connect()
        self.tables = {table.name: table for table in stream.tables}
        self.rows: dict[str, Counter[Row]] = {name: Counter() for name in self.tables}
        self.saved: dict[str, Counter[Row]] | None = None
        self.views: dict[str, Query] = {}
        self.results: dict[str, list[str]] = {}
        self.committed: dict[str, list[str]] = {}
        self.followers: dict[str, Follower] = {}
        self.steps = self.changed = 0
        self.shapes: set[str] = set()
        for table in stream.tables:
            self.con.execute(table.ddl())
            self.judge.execute(table.ddl(plain=True))

    def run(self) -> Replay:
        try:
            for step in self.stream.steps:
                self.step(step)
            self.drain()
        finally:
            self.con.close()
            self.other.close()
            self.judge.close()
        return self

    def step(self, step: Step) -> None:
        kind = step[0]
        if kind == "view":
            self.create(step[1], step[2])
        elif kind in ("drop", "check", "refresh"):
            self.catalog(kind, step[1])
        elif kind == "absent":
            self.absent(step)
        elif kind in ("begin", "commit", "rollback"):
            self.transact(kind)
        else:
            self.change(step)

    # Steps ---------------------------------------------------------------------------------------

    def create(self, name: str, query: Query) -> None:
        if not self.views.keys() >= set(query.reads):
            return
        try:
            self.con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (strategy = '{query.strategy}') AS {query.sql}")
        except sqlfront.DataError:
            with suppress(duckdb.Error):
                self.judge.execute(query.sql)
                raise
            return
        self.views[name] = query
        self.judge.execute(f"CREATE VIEW {name} AS {query.completed}")
        self.shapes.add(self.con.explain(name).to_dict()["shape"])
        if len(self.views) % 2:
            self.followers[name] = Follower(self.con, name)
        described = self.con.execute(f"DESCRIBE {name}").fetchall()
        assert [row[:2] for row in described] == [r[:2] for r in self.judge.execute(f"DESCRIBE {query.sql}").fetchall()]
        self.look()

    def catalog(self, kind: str, name: str) -> None:
        if name not in self.views or (kind == "drop" and any(name in query.reads for query in self.views.values())):
            return
        if kind == "drop":
            self.con.execute(f"DROP MATERIALIZED VIEW {name}")
            self.judge.execute(f"DROP VIEW {name}")
            del self.views[name]
            self.followers.pop(name, None)
            self.results.pop(name, None)
            self.committed.pop(name, None)
        elif kind == "refresh":
            self.con.execute(f"REFRESH MATERIALIZED VIEW {name}")
            self.followers = {follower: Follower(self.con, follower) for follower in self.followers}
        elif not self.views[name].floats:
            assert self.con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []
        self.look()

    def transact(self, kind: str) -> None:
        if (kind == "begin") != (self.saved is None):
            return
        self.con.execute(kind)
        if kind == "begin":
            self.saved = {name: Counter(rows) for name, rows in self.rows.items()}
            return
        if kind == "rollback":
            assert self.saved is not None
            self.rows = self.saved
        self.saved = None
        self.look()

    def absent(self, step: Step) -> None:
        """A delete of one copy more than there are fails, names the table, and changes nothing."""
        table = self.tables[step[2]]
        epoch = {**step[1], table.name: ((step[3], -self.rows[table.name][step[3]] - 1),)}
        with pytest.raises(sqlfront.IntegrityError, match=table.name):
            self.con.apply({name: self.arrow(self.tables[name], found, "weight") for name, found in epoch.items()})
        self.look()

    def change(self, step: Step) -> None:
        after = {name: effect(table, self.rows[name], step) for name, table in self.tables.items()}
        if any(n < 0 for rows in after.values() for n in rows.values()):
            return
        kind = step[0]
        if kind == "apply":
            epoch = {name: self.arrow(self.tables[name], found, step[2]) for name, found in step[1].items()}
            self.check_record(step, self.con.apply(epoch))
        elif kind == "rows":
            for row, n in step[2]:
                self.con.apply_row(step[1], tuple(map(_native, row)), n)
        else:
            self.execute(step)
        self.rows = after
        self.steps += 1
        self.look()

    def check_record(self, step: Step, epoch: Any) -> None:
        """An epoch tells how many rows of a table have changed."""
        if epoch is None:
            return
        said = {name.split(".")[-1].strip('"'): n for name, n in epoch.rows.items()}
        for name, changes in step[1].items():
            net: Counter[Row] = Counter()
            for row, n in changes:
                net[row] += n
            if self.tables[name].kind == "retained":
                assert said[name] == sum(n != 0 for n in net.values()), f"{said[name]} rows of {name}, {changes}"
        assert all(n >= 0 for n in epoch.steps.values())

    def execute(self, step: Step) -> None:
        table = self.tables[step[1]]
        cast = {column.name: f"CAST(? AS {column.type})" for column in table.columns}
        if step[0] == "insert":
            values = ", ".join(cast[column.name] for column in table.columns)
            parameters = [list(map(_native, row)) for row in step[2]]
            self.con.executemany(f"INSERT INTO {table.name} VALUES ({values})", parameters)
        elif step[0] == "delete":
            sql = f"DELETE FROM {table.name} WHERE {step[2]} IS NOT DISTINCT FROM {cast[step[2]]}"
            self.con.execute(sql, [_native(step[3])])
        else:
            sql = f"UPDATE {table.name} SET {step[2]} = {cast[step[2]]} WHERE {step[4]} IS NOT DISTINCT FROM "
            self.con.execute(sql + cast[step[4]], [_native(step[3]), _native(step[5])])

    def drain(self) -> None:
        """Delete everything: results are empty, and so is all state."""
        self.transact("rollback")
        for table in self.stream.tables:
            rows = self.rows[table.name]
            self.change(("apply", {table.name: tuple((row, -n) for row, n in rows.items())}, "weight"))
        engine = self.con.session.database.engine
        for dictionary in engine.dictionaries:
            dictionary.sweep()
            assert dictionary.live() == dictionary.pinned, "a dictionary is not empty"
        for table in self.engine_tables():
            assert table.entries() == 0, f"{table.name} is not empty"
            assert table.bytes() < 400_000, f"{table.name} keeps {table.bytes()} bytes"

    # Judgement -----------------------------------------------------------------------------------

    def look(self) -> None:
        """Compare every view with its query, and check the structures."""
        self.refill()
        changed = False
        for name, query in self.views.items():
            changed |= self.compare(name, query)
        self.changed += changed
        if self.stream.deep and self.saved is None:
            self.check_structures()

    def refill(self) -> None:
        for name, table in self.tables.items():
            rows = [row for row, n in self.rows[name].items() for _ in range(n)]
            self.judge.execute(f"DELETE FROM {name}")
            if rows:
                data = self.arrow(table, tuple((row, 1) for row in rows), "plain")
                self.judge.register("fresh", data)
                self.judge.execute(f"INSERT INTO {name} SELECT * FROM fresh")
                self.judge.unregister("fresh")

    def compare(self, name: str, query: Query) -> bool:
        try:
            expected = self.judge.execute(query.judged).fetchall()
        except duckdb.OutOfRangeException:
            return False
        found = self.con.execute(f"SELECT * FROM {name}").fetchall()
        assert_same_bag(query, found, expected)
        width = len(query.items)
        if self.saved is None:
            self.committed[name] = sorted(map(repr, found))
            if name in self.followers:
                self.followers[name].check(found)
        elif name in self.committed:
            others = sorted(map(repr, self.other.execute(f"SELECT * FROM {name}").fetchall()))
            assert others == self.committed[name], "another cursor sees what is not committed"
        view = self.con.view(name)
        if query.order and query.limit:  # As text: NaN is not itself.
            assert repr(found) == repr(expected), f"{found} is not in the order of {expected}"
        if query.order:
            assert repr(view.top(5)) == repr(expected[:5]), f"{view.top(5)} are not the first rows of {expected}"
        assert view.count() == len(expected), f"count {view.count()}, not {len(expected)}"
        for row in found[:2]:
            if not any(isinstance(value, float) for value in row):
                assert view.contains(row), f"{row} is said to be absent"
        result = sorted(repr(row[:width]) for row in expected)
        changed = self.results.get(name) != result
        self.results[name] = result
        return changed

    def engine_tables(self) -> list[Any]:
        engine = self.con.session.database.engine
        stores = [store.table for relation in engine.relations.values() for store in relation.stores.values()]
        return stores + [table for view in engine.views.values() for table in view.tables()]

    def check_structures(self) -> None:
        engine = self.con.session.database.engine
        for table in self.engine_tables():
            table._check()
        references: dict[int, Counter[int]] = {}
        for relation in engine.relations.values():
            for store in relation.stores.values():
                places, place = [], 0
                for column, width in zip(store.variables, store.widths, strict=True):
                    codec = store.inputs["key " + column.expression].codec
                    if codec.dictionary is not None:
                        places.append((place, id(codec.dictionary)))
                    place += width
                for words in store.table.rows():
                    for at, dictionary in places:
                        references.setdefault(dictionary, Counter())[words[at]] += words[at] >= 0
        for dictionary in engine.dictionaries:
            dictionary._check()
            held = {code: n for code, n in references.get(id(dictionary), Counter()).items() if n}
            refs = dictionary.refs
            assert {int(code): int(refs[code]) for code in np.flatnonzero(refs)} == held, "reference counts are wrong"

    # Values --------------------------------------------------------------------------------------

    def arrow(self, table: Table, changes: tuple[tuple[Row, int], ...], style: str) -> pa.Table | pa.RecordBatch:
        """Changes as Arrow data in one of the forms that apply takes."""
        if style == "change_type":
            changes = tuple((row, 1 if n > 0 else -1) for row, n in changes for _ in range(abs(n)))
        columns = {
            column.name: _array(column, [_native(row[i]) for row, _ in changes], as_text=style == "text")
            for i, column in enumerate(table.columns)
        }
        if style == "change_type":
            names = {1: ("insert", "update_postimage"), -1: ("delete", "update_preimage")}
            columns["_change_type"] = pa.array([names[n][i % 2] for i, (_, n) in enumerate(changes)], pa.string())
        elif style != "plain":
            columns["_weight"] = pa.array([n for _, n in changes], pa.int64())
        return pa.record_batch(columns) if style == "batch" else pa.table(columns)


class Follower:
    """Keeps a copy of a view from its changes alone."""

    def __init__(self, con: sqlfront.Connection, name: str) -> None:
        self.rows = Counter(map(repr, con.execute(f"SELECT * FROM {name}").fetchall()))
        self.problems: list[str] = []
        self.lost = False
        self._con = duckdb.connect()
        engine = con.session.database.engine
        engine.listen(next(known for known in engine.views if shown_relation(known) == name), self._hear)

    def check(self, found: list[Row]) -> None:
        assert not self.problems, self.problems
        if self.lost:  # Some sum was beyond its type for a while; a subscriber begins anew then.
            self.rows, self.lost = Counter(map(repr, found)), False
        assert self.rows == Counter(map(repr, found)), "the changes do not add up to the view"

    def _hear(self, _: int, change: Any) -> None:
        if isinstance(change, sqlfront.DataError):
            self.lost = True
            return
        changed = change.rows
        rows = list(map(repr, self._con.execute("FROM changed").fetchall())) if len(changed) else []
        if len(set(rows)) + list(change.kinds).count(3) < len(rows) or not all(change.weights):
            self.problems.append(f"not netted: {rows}, {change.weights}")
        for row, weight in zip(rows, change.weights.tolist(), strict=True):
            self.rows[row] += weight
            if self.rows[row] == 0:
                del self.rows[row]


def assert_same_bag(query: Query, found: list[Row], expected: list[Row]) -> None:
    """Bag equality; floating sums within their tolerance (see DESIGN 1(a)), other averages to the last bit."""
    width, floats = len(query.items), {item.place: item for item in query.floats}
    judged = []
    for row in expected:
        lists = dict(zip(floats, row[width:], strict=True))
        goal = {place: float_sum(floats[place], lists[place]) for place in floats}
        judged.append(tuple(goal.get(i, (value, 0.0)) for i, value in enumerate(row[:width])))
    found = sorted(found, key=lambda row: _order(row, floats))
    judged.sort(key=lambda row: _order(tuple(value for value, _ in row), floats))
    assert len(found) == len(judged), f"{len(found)} rows, not {len(judged)}: {found[:9]} / {judged[:9]}"
    for row, goal in zip(found, judged, strict=True):
        for i, (value, (wanted, tolerance)) in enumerate(zip(row, goal, strict=True)):
            if isinstance(value, float) and isinstance(wanted, float) and floats and i not in floats:
                tolerance = 3e-16 * abs(wanted)  # DuckDB's AVG differs in the last bit from one query to another.
            assert _equal(value, wanted, tolerance), f"column {i} is {value!r}, not {wanted!r} (±{tolerance}) in {row}"


def float_sum(item: FloatSum, values: list[float | None] | None) -> tuple[float | None, float]:
    """SUM or AVG of floating values, correctly rounded, and by how much another order of additions may miss it."""
    numbers = [value for value in values or [] if value is not None]
    if not numbers:
        return None, 0.0
    finite = [x for x in numbers if math.isfinite(x)]
    if len(finite) < len(numbers):
        return sum(x for x in numbers if not math.isfinite(x)), 0.0
    count = len(numbers) if item.function == "avg" else 1
    slack = 0.0 if item.plain else (len(numbers) + 2) * (2.0**-52 * math.fsum(map(abs, numbers)) + 5e-324)
    return math.fsum(numbers) / count, slack


def _order(row: Row, floats: dict[int, FloatSum]) -> tuple[list[str], list[float]]:
    exact = [repr(value) for i, value in enumerate(row) if not isinstance(value, float) or i not in floats]
    sums = [row[i] for i in floats if isinstance(row[i], float)]
    return exact, [-math.inf if math.isnan(x) else x for x in sums]


def _equal(value: Any, wanted: Any, tolerance: float) -> bool:
    if isinstance(value, float) and isinstance(wanted, float):
        if math.isnan(wanted) or math.isinf(wanted):
            return value == wanted or (math.isnan(value) and math.isnan(wanted))
        return abs(value - wanted) <= tolerance
    return type(value) is type(wanted) and value == wanted


def _native(value: Any) -> Any:
    return math.nan if isinstance(value, str) and value == "NaN" else value


def _array(column: Column, values: list[Any], *, as_text: bool) -> pa.Array:
    type_ = _ARROW.get(column.type)
    if column.type.startswith("DECIMAL"):
        width, scale = map(int, column.type[8:-1].split(","))
        type_ = pa.decimal128(width, scale)
    if type_ is None or (as_text and column.type not in ("BLOB", "VARCHAR")):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.array(values, type_)

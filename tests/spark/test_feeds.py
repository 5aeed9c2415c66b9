"""One random stream of changes through every source: the views are always those that con.apply gives."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet
import pytest

import sqlfront
from sqlfront.storage.outside.change_shapes import Wanted
from sqlfront.storage.outside.spark_source import changes_of

TABLES = {"r": "a BIGINT, b VARCHAR", "s": "b VARCHAR, c BIGINT"}
NAMES = {"r": ("a", "b"), "s": ("b", "c")}
SPARK_TYPES = {"r": "a BIGINT, b STRING", "s": "b STRING, c BIGINT"}
VIEWS = {
    "joined": "SELECT a, c FROM r JOIN s ON r.b = s.b",
    "totals": "SELECT r.b, sum(a)::BIGINT AS total, count(*) AS n FROM r JOIN s ON r.b = s.b WHERE c > 1 GROUP BY r.b",
    "kinds": "SELECT DISTINCT b FROM r",
    "most": "SELECT b, max(c) AS c FROM s WHERE b IN ('x', 'z') GROUP BY b",
}
STEPS = 3


def changes(seed: int) -> list[dict[str, list]]:
    """Per step and table the changed rows with their weights: duplicates, NULLs, deletes, and rows that are deleted
    and inserted again in one step."""
    rng = random.Random(seed)
    held: dict[str, Counter] = {name: Counter() for name in TABLES}
    steps = []
    for _ in range(STEPS):
        step = {}
        for name in TABLES:
            old = sorted(held[name].elements(), key=repr)
            gone = rng.sample(old, min(4, len(old)))
            texts, numbers = rng.choices(["x", "y", "z", None], k=6), rng.choices([0, 1, 2, 3, None], k=6)
            new = list(zip(numbers, texts) if name == "r" else zip(texts, numbers))
            step[name] = [*((row, -1) for row in gone), *((row, 1) for row in [*new, *gone[:1]])]
            rng.shuffle(step[name])
            for row, weight in step[name]:
                held[name][row] += weight
        steps.append(step)
    return steps


def columns(name: str, rows: list) -> dict[str, pa.Array]:
    """A table's columns of signed rows."""
    types = [pa.int64() if column in "ac" else pa.string() for column in NAMES[name]]
    return {
        column: pa.array([row[i] for row, _ in rows], type_)
        for i, (column, type_) in enumerate(zip(NAMES[name], types, strict=True))
    }


def signed(name: str, rows: list) -> pa.Table:
    return pa.table({**columns(name, rows), "_weight": pa.array([weight for _, weight in rows])})


def typed(name: str, rows: list) -> pa.Table:
    return pa.table({**columns(name, rows), "_change_type": ["insert" if w > 0 else "delete" for _, w in rows]})


def envelopes(name: str, rows: list) -> list[dict]:
    """Debezium's shape; a delete that meets an insert is told as an update."""
    before = [dict(zip(NAMES[name], row)) for row, weight in rows if weight < 0]
    after = [dict(zip(NAMES[name], row)) for row, weight in rows if weight > 0]
    both = min(len(before), len(after))
    found = [{"op": "u", "before": old, "after": new} for old, new in zip(before[:both], after[:both])]
    found += [{"op": "d", "before": old, "after": None} for old in before[both:]]
    return found + [{"op": "c", "before": None, "after": new} for new in after[both:]]


class Feed:
    """A way in: `set_up` makes the tables, `give` hands one step over."""

    def __init__(self, con, directory, spark, retain):
        self.con, self.directory, self.spark, self.retain = con, directory, spark, retain

    def set_up(self):
        for name, types in TABLES.items():
            self.con.execute(f"CREATE CHANGE TABLE {name} ({types}) WITH (retain = {self.retain}){self.source(name)}")

    def source(self, name):
        return ""

    def give(self, number, step):
        raise NotImplementedError


class Apply(Feed):
    def give(self, number, step):
        self.con.apply({name: signed(name, rows) for name, rows in step.items()})


class Capture(Feed):
    """Ordinary tables, written by a client that knows nothing of the views."""

    def set_up(self):
        for name, types in TABLES.items():
            self.con.execute(f"CREATE TABLE {name} ({types})")

    def give(self, number, step):
        client = self.con.session.database.root.cursor()
        for name, rows in step.items():
            first, second = NAMES[name]
            for row, weight in sorted(rows, key=lambda item: item[1]):
                if weight > 0:
                    client.execute(f"INSERT INTO {name} VALUES (?, ?)", row)
                    continue
                same = f"{first} IS NOT DISTINCT FROM ? AND {second} IS NOT DISTINCT FROM ?"
                client.execute(f"DELETE FROM {name} WHERE rowid = (SELECT min(rowid) FROM {name} WHERE {same})", row)
        client.close()


class Pulled(Feed):
    def give(self, number, step):
        for name, rows in step.items():
            self.put(number, name, rows)
        self.con.execute("REFRESH CHANGE TABLE r, s")


class DuckDBTable(Pulled):
    def source(self, name):
        self.con.execute(f"CREATE TABLE feed_{name} ({TABLES[name]}, _change_type VARCHAR, _commit_version BIGINT)")
        return f" FROM duckdb OPTIONS (table = 'feed_{name}')"

    def put(self, number, name, rows):
        data = typed(name, rows)
        self.con.register("given", data)
        self.con.execute(f"INSERT INTO feed_{name} SELECT *, {number} FROM given")


class Files(Pulled):
    kind = "parquet"

    def source(self, name):
        return f" FROM {self.kind} OPTIONS (path = '{self.directory}/{name}-*.{self.kind}')"

    def put(self, number, name, rows):
        self.write(str(self.directory / f"{name}-{number}.{self.kind}"), name, rows)

    def write(self, path, name, rows):
        pyarrow.parquet.write_table(typed(name, rows), path)


class Json(Files):
    """Debezium's envelopes; `read_json` takes the types of what it sees, so a first row shows them all."""

    kind = "json"

    def write(self, path, name, rows):
        with open(path, "w") as file:
            image = {column: 1 if column in "ac" else "" for column in NAMES[name]}
            for envelope in [{"op": None, "before": image, "after": image}, *envelopes(name, rows)]:
                file.write(json.dumps(envelope) + "\n")


class ArrowStream(Feed):
    def give(self, number, step):
        for name, rows in step.items():
            self.con.register_changes(name, [signed(name, rows)], name=f"step {number}")


class SparkTable(Pulled):
    def source(self, name):
        self.rows = getattr(self, "rows", {}) | {name: []}
        return f" FROM spark OPTIONS (table = 'feed_{name}')"

    def put(self, number, name, rows):
        self.rows[name].append(typed(name, rows).append_column("_commit_version", pa.array([number] * len(rows))))
        self.spark.createDataFrame(pa.concat_tables(self.rows[name])).createOrReplaceTempView(f"feed_{name}")


class SparkBatch(Feed):
    def give(self, number, step):
        for name, rows in step.items():
            images = f"struct<{SPARK_TYPES[name].replace(' ', ':').replace(',:', ',')}>"
            frame = self.spark.createDataFrame(envelopes(name, rows), f"op string, before {images}, after {images}")
            self.con.register_changes(name, frame, name=f"step {number}", shape="debezium")


class SparkStream(Feed):
    def give(self, number, step):
        for name, rows in step.items():
            place = self.directory / f"stream-{name}"
            place.mkdir(exist_ok=True)
            pyarrow.parquet.write_table(signed(name, rows), place / f"{number}.parquet")
            stream = self.spark.readStream.schema(f"{SPARK_TYPES[name]}, _weight BIGINT").parquet(str(place))
            query = self.con.register_changes(
                name, stream, checkpoint=str(self.directory / f"checkpoint-{name}"), trigger={"availableNow": True}
            )
            query.awaitTermination()


FEEDS = [Apply, Capture, DuckDBTable, Files, Json, ArrowStream]
SPARK_FEEDS = [SparkTable, SparkBatch, SparkStream]


SEEDS = {"true": 1, "false": 2}


def ways():
    """Every way in, into tables that keep their rows and tables that do not; each of the two has its own stream."""
    found = []
    for way, retain in itertools.product([*FEEDS, *SPARK_FEEDS], SEEDS):
        found.append(pytest.param(way, retain, id=f"{way.__name__}-{retain}"))
    return found


@functools.cache
def expected(seed):
    """What the views hold after each step, as con.apply has them."""
    found = []
    with sqlfront.connect() as oracle:
        plain = Apply(oracle, None, None, "true")
        set_up(plain)
        for number, step in enumerate(changes(seed), 1):
            plain.give(number, step)
            found.append(held(oracle))
    return found


def set_up(feed):
    feed.set_up()
    for view, query in VIEWS.items():
        feed.con.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")


def held(con):
    return [Counter(con.execute(f"FROM {view}").fetchall()) for view in VIEWS]


@pytest.mark.parametrize(("way", "retain"), ways())
def test_every_source_gives_the_same_views(way, retain, tmp_path, request):
    seed = SEEDS[retain]
    spark = request.getfixturevalue("spark") if way in SPARK_FEEDS else None
    path = str(tmp_path / "fed.duckdb")
    with sqlfront.connect(path) as con:
        con.session.database.spark = spark
        feed = way(con, tmp_path, spark, retain)
        set_up(feed)
        for number, step in enumerate(changes(seed), 1):
            feed.give(number, step)
            assert held(con) == expected(seed)[number - 1]
    with sqlfront.connect(path) as con:
        assert held(con) == expected(seed)[-1]


def test_the_streams_exercise_the_views():
    for seed in SEEDS.values():
        assert all(before != after for before, after in itertools.pairwise(expected(seed)))
        assert all(any(views) for views in [*expected(seed), *zip(*expected(seed))])


def test_spark_filters_projects_and_nets(spark):
    columns = (("a", "BIGINT"), ("b`s", "VARCHAR"))
    rows = [(1, "x", 2), (1, "y", -1), (2, "z", 1), (2, "z", -1), (7, "z", 1)]
    frame = spark.createDataFrame(rows, "a BIGINT, `b``s` STRING, _weight INT")

    def read(*wanted):
        return Counter(tuple(row.values()) for row in changes_of(frame, "auto", Wanted(columns, *wanted)).to_pylist())

    assert read() == Counter(rows)
    assert read(frozenset({"a"}), ("a = 1", "a > 5")) == {(1, 1): 1, (7, 1): 1}
    assert read(frozenset({"a"}), ("a < 5",), (frozenset({"a"}),)) == {(1, 2): 1, (1, -1): 1, (2, 1): 1, (2, -1): 1}
    assert read(frozenset({"b`s"})) == {("x", 2): 1, ("y", -1): 1, ("z", 1): 1}
    assert read(frozenset()) == {(2,): 1}

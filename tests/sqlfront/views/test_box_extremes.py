"""MIN and MAX over the rows within bounds of two columns: no pairs are kept, and a change takes O(log N) for each row
whose box has the changed row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.output.nearest_node import ExtremeRowsNode
from sqlfront.shards.shard_plan import plan_shards
from tests.definition_oracle import same_bag
from tests.slices import parts

PRICES = "SELECT o.id, max(p.v) AS m FROM o JOIN p ON o.x BETWEEN p.a AND p.b GROUP BY o.id"
DOMINATED = "SELECT o.id, {0} AS m FROM o JOIN p ON o.x < p.a AND o.y < p.b GROUP BY o.id"


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    yield connection
    connection.close()


def filled(con: sqlfront.Connection, rows: int, width: int | None = None) -> None:
    """Points and as many spans of this width, by default of any, in no order; each span has a value of its own."""
    con.execute(
        "CREATE CHANGE TABLE o (id BIGINT PRIMARY KEY, x BIGINT, y BIGINT);"
        "CREATE CHANGE TABLE p (a BIGINT NOT NULL, b BIGINT NOT NULL, v BIGINT NOT NULL)"
    )
    numbers = np.arange(rows)
    starts = numbers * 7919 % rows
    con.apply({"o": pa.table({"id": numbers, "x": numbers, "y": numbers * 4999 % rows})})
    ends = numbers * 3001 % rows if width is None else starts + width
    con.apply({"p": pa.table({"a": starts, "b": ends, "v": numbers * 6007 % rows})})


def nodes_of(con: sqlfront.Connection) -> list[ExtremeRowsNode]:
    return [one for one in con.session.database.engine.nodes.values() if isinstance(one, ExtremeRowsNode)]


def entries_of(con: sqlfront.Connection) -> int:
    relations = con.session.database.engine.relations.values()
    return sum(store.table.live for relation in relations for store in relation.stores.values())


def steps_of(con: sqlfront.Connection, table: str, row: dict[str, int], weight: int) -> int:
    changed = pa.table({**{name: [value] for name, value in row.items()}, "_weight": [weight]})
    return con.apply({table: changed}).steps["v"]


def test_steps_are_logarithmic_and_no_pairs_are_kept() -> None:
    """A point is in 20 spans and a span has 20 points, however many there are: old, new or between, and the extreme."""
    found = {rows: _most_steps(rows) for rows in (1_000, 16_000)}
    assert found[16_000] - found[1_000] < 600 and found[16_000] < 2_000


def _most_steps(rows: int) -> int:
    con = sqlfront.connect()
    filled(con, rows, 20)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {PRICES}")
    assert [node.rows.label for node in nodes_of(con)] == ["MAX within boxes"]
    assert entries_of(con) <= 8 * rows
    most = 0
    for place in (0, rows // 2, rows - 30):
        for value in (-1, rows // 2, 2 * rows):  # The last one is the extreme of all points that it has.
            row = {"a": place, "b": place + 20, "v": value}
            most = max(most, *(steps_of(con, "p", row, weight) for weight in (1, -1)))
        point = {"id": rows, "x": place, "y": 0}
        most = max(most, *(steps_of(con, "o", point, weight) for weight in (1, -1)))
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    con.close()
    return most


@pytest.mark.parametrize("group", ["o.y", "greatest(o.y, 3)", "o.y, o.x > 100"])
def test_a_group_of_several_rows_keeps_the_extreme_of_each(con: sqlfront.Connection, group: str) -> None:
    """No pairs are kept, nor values of pairs: a row that asks takes O(log N) and its group as much."""
    rows = 4_000
    filled(con, rows, 100)
    con.apply({"o": pa.table({"id": np.arange(rows, 2 * rows), "x": np.arange(rows), "y": np.arange(rows) % 7})})
    con.execute(f"CREATE MATERIALIZED VIEW v AS {PRICES.replace('o.id', group)}")
    assert len(nodes_of(con)) == 1 and entries_of(con) <= 15 * rows
    for x in (0, rows // 2):
        assert steps_of(con, "o", {"id": 2 * rows, "x": x, "y": 5}, 1) < 200
        assert steps_of(con, "o", {"id": 2 * rows, "x": x, "y": 5}, -1) < 200
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


@pytest.mark.parametrize(
    ("extreme", "most"), [("max(p.v)", 600), ("min(p.a)", 200), ("min(p.b)", 200), ("arg_min(p.v, p.b)", 300)]
)
def test_a_large_box_is_searched_along_the_extreme(con: sqlfront.Connection, extreme: str, most: int) -> None:
    """Boxes have up to all rows. A row that asks takes no step for most of them: none but O(log N) where the extreme is
    that of a column with a bound."""
    rows = 4_000
    filled(con, rows)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {DOMINATED.format(extreme)}")
    for x, y in ((-1, -1), (-1, rows // 2), (rows // 2, -1), (rows // 4, rows // 4), (3_500, 3_500), (3_000, 500)):
        assert steps_of(con, "o", {"id": rows, "x": x, "y": y}, 1) < most
        assert steps_of(con, "o", {"id": rows, "x": x, "y": y}, -1) < most


def test_rows_with_a_better_value_are_not_searched_for(con: sqlfront.Connection) -> None:
    """A row within 1,000 boxes is listed with each of them; their extremes are looked up where it is the extreme."""
    rows = 1_000
    filled(con, rows)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {DOMINATED.format('max(p.v)')}")
    everywhere = {"a": 2 * rows, "b": 2 * rows}
    assert steps_of(con, "p", everywhere | {"v": 2 * rows}, 1) > 20 * rows
    assert steps_of(con, "p", everywhere | {"v": rows}, 1) < 10 * rows
    assert steps_of(con, "p", everywhere | {"v": rows}, -1) < 10 * rows
    predicted = [node.describe().predicted for node in nodes_of(con)]
    [block] = [node.rows.right for node in nodes_of(con)]
    assert 1_000 < predicted[0][block] < 5_000  # A quarter of the boxes has a row, one of them as its extreme.


@pytest.mark.parametrize("seed", parts(8))
def test_views_survive_rollbacks_refreshes_and_reopening(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    queries = {
        "points": "SELECT o.id, max(p.v) AS m, min(p.v) AS n, count(*) AS c, sum(p.v) AS s "
        "FROM o JOIN p ON o.k = p.k AND o.x BETWEEN p.a AND p.b GROUP BY o.id",
        "left_joined": "SELECT o.id, o.x, min(p.v) FILTER (WHERE p.v > 2) AS m "
        "FROM o LEFT JOIN p ON o.x < p.a AND o.y < p.b GROUP BY o.id, o.x",
        "self_joined": "SELECT a.id, max(b.x) AS m FROM o AS a JOIN o AS b ON a.x < b.y AND b.x < a.y GROUP BY a.id",
        "filtered": "SELECT o.id, max(p.v) AS m FROM o JOIN p ON o.x >= p.a AND o.y > p.b "
        "GROUP BY o.id HAVING max(p.v) > 5",
        "parted": "SELECT o.k IS NULL AS r, max(p.v) AS m, min(p.v) FILTER (WHERE p.k = 0) AS n FROM o JOIN p "
        "ON o.x >= p.a AND o.x < coalesce(p.b, 99) GROUP BY r",
        "texts": "SELECT o.id, max(p.t) AS m, min(p.t) AS n FROM o JOIN p ON o.x < p.b AND o.y > p.a GROUP BY o.id",
        "asked": "SELECT o.id, (SELECT min(p.v) FROM p WHERE o.x BETWEEN p.a AND p.b) AS m FROM o",
    }
    path = str(tmp_path / "boxes.db")
    con = sqlfront.connect(path)
    con.execute("CREATE TABLE o (id INTEGER PRIMARY KEY, k INTEGER, x INTEGER, y INTEGER)")
    con.execute("CREATE TABLE p (k INTEGER, a INTEGER, b INTEGER, v INTEGER, t VARCHAR)")
    for name, query in queries.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    assert len({node.name for node in nodes_of(con)}) == 10
    ids = iter(range(10**6))
    number = lambda: rng.choice(["NULL", "NULL", *map(str, range(9))])  # noqa: E731
    text = lambda: rng.choice(["NULL", f"'{rng.randint(0, 99)} of many words'"])  # noqa: E731
    point = lambda: f"({next(ids)}, {rng.choice((0, 1, 1, 'NULL'))}, {number()}, {number()})"  # noqa: E731
    span = lambda: f"({rng.randint(0, 1)}, {number()}, {number()}, {number()}, {text()})"  # noqa: E731
    for round_ in range(40 if seed else 12):
        con.execute("BEGIN")
        for _ in range(rng.choice((1, 1, 3))):
            kind = rng.random() if round_ else 0
            if kind < 0.5:
                con.execute(f"INSERT INTO o VALUES {', '.join(point() for _ in range(12 if not round_ else 1))}")
                con.execute(f"INSERT INTO p VALUES {', '.join(span() for _ in range(12 if not round_ else 2))}")
            elif kind < 0.65:
                con.execute(f"UPDATE p SET v = {number()} WHERE a = {number()}")
            elif kind < 0.75:
                con.execute(f"DELETE FROM o WHERE x = {number()}")
            else:
                con.execute(f"DELETE FROM p WHERE v = (SELECT {rng.choice(('min', 'max'))}(v) FROM p)")
        con.execute(rng.choice(("COMMIT", "COMMIT", "ROLLBACK")))
        if round_ % 8 == 7:
            con.close()
            con = sqlfront.connect(path)
        if round_ % 7 == 5:
            con.execute("REFRESH MATERIALIZED VIEW points")
        for name, query in queries.items():
            assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall()), (name, round_)
    con.close()


def test_other_shapes_keep_their_values(con: sqlfront.Connection) -> None:
    """A third bound, one by texts, and a condition that is none, are none of a box. The groups of an equality have no
    more values than there are rows. The row of an extreme is not found by its value."""
    con.execute("CREATE TABLE o (id INTEGER PRIMARY KEY, x INTEGER, y INTEGER)")
    con.execute("CREATE TABLE p (a INTEGER, b INTEGER, v INTEGER, t VARCHAR)")
    con.execute("INSERT INTO o SELECT i, i % 7, i % 5 FROM range(30) t(i)")
    con.execute("INSERT INTO p SELECT i % 6, i % 8, i, chr(97 + i::INTEGER) FROM range(20) t(i)")
    joins = (
        ("o.id", "max(p.v)", "o.x < p.a AND o.id::VARCHAR < p.t"),
        ("o.id", "max(p.v)", "o.x < p.a AND o.y < p.b AND o.y < p.v"),
        ("o.id", "min(p.v)", "o.x < p.a AND o.y <> p.b"),
        ("o.y", "max(p.v)", "o.y = p.b AND o.x < p.a AND o.id < p.v"),
        ("o.y // (o.x + 1)", "max(p.v)", "o.x < p.a AND o.id < p.v"),
        ("o.y", "arg_max(p.a, p.v)", "o.x < p.a AND o.id < p.v"),
        ("o.id", "max(p.a)", "p.a < o.x AND o.id % 3 < p.b AND p.t > 'c'"),
    )
    for number, (group, extreme, condition) in enumerate(joins):
        query = f"SELECT {group}, {extreme} AS m FROM o JOIN p ON {condition} GROUP BY {group}"
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        con.execute("INSERT INTO p VALUES (6, 8, 50, 'z')")
        assert same_bag(con.execute(f"FROM v{number}").fetchall(), con.execute(query).fetchall())
        con.execute("DELETE FROM p WHERE v = 50")
        assert same_bag(con.execute(f"FROM v{number}").fetchall(), con.execute(query).fetchall())
    assert len(nodes_of(con)) == 1


def test_shards_keep_the_values_of_pairs(con: sqlfront.Connection) -> None:
    """A shard does not find extremes among rows of other shards."""
    con.execute("CREATE TABLE o (id INTEGER PRIMARY KEY, k INTEGER, x INTEGER)")
    con.execute("CREATE TABLE p (k INTEGER, a INTEGER, b INTEGER, v INTEGER)")
    plan = plan_shards(con.session, PRICES.replace("ON", "ON o.k = p.k AND"), 4)
    assert {table for table, _ in plan.tables} == {"main.o", "main.p"}


def test_explain_names_the_class_and_the_reason(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE o (id INTEGER PRIMARY KEY, x INTEGER, y INTEGER)")
    con.execute("CREATE TABLE p (a INTEGER, b INTEGER, v INTEGER)")
    explained = con.explain(PRICES).to_dict()
    assert (
        "MAX within boxes" in explained["reason"] and "lists the rows of the left in whose boxes" in explained["reason"]
    )
    assert "rows of a block within boxes * log N" in explained["cost"]["update"]
    assert explained["cost"]["space"] == "O(N)"
    assert "within boxes *" not in con.explain(DOMINATED.format("min(p.b)")).to_dict()["cost"]["update"]

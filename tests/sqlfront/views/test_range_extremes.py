"""MIN and MAX over the rows within a range or a box of each row equal their queries, for any type, in O(N) entries."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.output.nearest_node import ExtremeRowsNode
from tests.definition_oracle import same_bag
from tests.slices import parts

VALUES = {
    "INTEGER": ("0", "1", "2", "3", "4"),
    "DOUBLE": ("0", "-0.0", "1.5", "'nan'", "'inf'", "'-inf'"),
    "FLOAT": ("0", "1.5", "'nan'", "'-inf'", "2"),
    "DECIMAL(9, 2)": ("0", "1.25", "2", "-1"),
    "DATE": ("'2026-01-01'", "'2026-01-02'", "'2026-01-03'", "'2026-01-04'"),
    "BIGINT": ("0", "1", "-9223372036854775808", "9223372036854775807"),
    "HUGEINT": ("0", "-5", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105727"),
}
MORE_VALUES = {
    "VARCHAR": ("''", "'a'", "'b'", "'a text that is longer than others'", "'b text'"),
    "BLOB": ("''", "'a'", "'\\x80'", "'\\x7f'"),
    "BOOLEAN": ("true", "false"),
    "UUID": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-0000-4000-8000-000000000000'"),
}
RANGES = (
    "s.t BETWEEN r.a AND r.b", "s.t > r.a AND r.b > s.t", "r.a <= s.t AND s.t < r.b", "s.t <= r.a", "s.t > r.b",
    "s.k = r.k AND s.t BETWEEN r.a AND r.b", "s.k IS NOT DISTINCT FROM r.k AND s.t >= r.b",
)  # fmt: skip
BOXES = (
    "r.a BETWEEN s.t AND s.u", "r.a < s.t AND r.b < s.u", "r.a <= s.u AND s.t <= r.b", "s.u > r.a AND r.b >= s.t",
    "s.k = r.k AND r.a > s.t AND r.b >= s.u", "s.k IS NOT DISTINCT FROM r.k AND s.t < r.a AND s.u > r.a",
    "s.y < r.k AND s.t <= r.b",
)  # fmt: skip
AGGREGATES = (
    "min(s.x)", "max(s.x)", "min(s.t)", "max(s.t)", "max(s.x) FILTER (WHERE s.y > 2)", "min(s.y + s.k)", "count(*)",
    "sum(s.y)", "count(DISTINCT s.y)", "max(s.u)", "arg_max(s.x, s.y)", "arg_min(s.y, s.x)", "max_by(s.x, s.y - s.k)",
    "max(coalesce(s.y, 9))", "min(s.x IS NULL)", "last(s.x ORDER BY s.t)", "first(s.y ORDER BY s.t DESC NULLS FIRST)",
    "any_value(s.x ORDER BY s.t NULLS FIRST) FILTER (WHERE s.y > 1)",
)  # fmt: skip


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    yield connection
    connection.close()


class Tables:
    """Two tables with values of two types, and random changes of them."""

    def __init__(self, con: sqlfront.Connection, rng: random.Random) -> None:
        self._con, self._rng, self._ids = con, rng, iter(range(10**6))
        self.time, self.value = rng.choice([*VALUES]), rng.choice([*VALUES, *MORE_VALUES])
        con.execute(f"CREATE TABLE r (id INTEGER PRIMARY KEY, k INTEGER, a {self.time}, b {self.time})")
        con.execute(f"CREATE TABLE s (k INTEGER, t {self.time}, u {self.time}, x {self.value}, y INTEGER NOT NULL)")

    def change(self) -> None:
        rng, con, kind = self._rng, self._con, self._rng.random()
        if kind < 0.3:
            con.execute(f"INSERT INTO r VALUES ({next(self._ids)}, {self._key()}, {self._time()}, {self._time()})")
        elif kind < 0.65:
            con.execute(f"INSERT INTO s VALUES {', '.join([self._row()] * rng.choice((1, 2)) + [self._row()])}")
        elif kind < 0.75:
            con.execute(f"DELETE FROM r WHERE a IS NOT DISTINCT FROM {self._time()}")
        elif kind < 0.85:
            con.execute(f"DELETE FROM s WHERE x IS NOT DISTINCT FROM {self._one_of(self.value)}")
        elif kind < 0.95:
            con.execute("BEGIN")
            con.execute(f"UPDATE s SET x = {self._one_of(self.value)} WHERE y = {rng.randint(0, 5)}")
            con.execute(f"UPDATE r SET a = {self._time()} WHERE k = 1")
            con.execute(f"INSERT INTO s VALUES {self._row()}")
            con.execute(rng.choice(("COMMIT", "ROLLBACK")))
        else:
            con.execute(f"DELETE FROM {rng.choice('rs')}")

    def _row(self) -> str:
        times = f"{self._time()}, {self._time()}"
        return f"({self._key()}, {times}, {self._one_of(self.value)}, {self._rng.randint(0, 5)})"

    def _key(self) -> str:
        return self._rng.choice(("NULL", "0", "1"))

    def _time(self) -> str:
        return self._one_of(self.time)

    def _one_of(self, type_: str) -> str:
        return self._rng.choice(("NULL", *(VALUES | MORE_VALUES)[type_]))


def decided(query: str) -> str:
    """The query for DuckDB: of rows that tie in arg_max, the one with the greatest value is taken; and in arg_min the
    one with the least. Orders end with the argument."""
    query = re.sub(r"(\w+)\((s\.\w) ORDER BY ([^)]*)\)", r"\1(\2 ORDER BY \3, \2)", query)
    named = r"(arg_max|arg_min|max_by)\((s\.\w), (s\.\w(?: - s\.k)?)\)"
    return re.sub(named, r"\1(\2, row(\3, \2)) FILTER (WHERE \2 NOTNULL AND (\3) NOTNULL)", query)


@pytest.mark.parametrize("seed", parts(30))
@pytest.mark.parametrize("bounds", [RANGES, BOXES], ids=["ranges", "boxes"])
def test_views_are_their_queries_after_each_change(
    con: sqlfront.Connection, bounds: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(seed)
    tables = Tables(con, rng)
    for _ in range(12):
        tables.change()
    queries = {}
    for number in range(3):
        made = [rng.choice((*AGGREGATES[:5], *AGGREGATES[-7:])), *rng.sample(AGGREGATES, rng.choice((0, 0, 1, 2)))]
        groups = rng.choice(("r.id", "r.id, r.b", "r.k, r.a, r.b", "r.k", "r.b"))
        shown = ", ".join(f"{one} AS g{place}" for place, one in enumerate(made))
        join = f"FROM r {rng.choice(('', 'LEFT '))}JOIN s ON {rng.choice(bounds)}"
        queries[f"v{number}"] = f"SELECT {groups}, {shown} {join} GROUP BY {groups}"
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {queries[f'v{number}']}")
    for _ in range(25 if seed else 12):
        tables.change()
        for name, query in queries.items():
            assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(decided(query)).fetchall()), query
    for name, query in queries.items():
        assert not con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall(), query


@pytest.mark.parametrize("first", ["last(s.t ORDER BY s.u DESC)", "last(s.x ORDER BY s.t)", "first(s.t ORDER BY s.u)"])
@pytest.mark.parametrize("bounds", ["s.t <= r.a AND s.u > r.b", "s.t >= r.b", "s.t <= r.a", "r.a BETWEEN s.t AND s.u"])
def test_first_values_that_tie(con: sqlfront.Connection, first: str, bounds: str) -> None:
    """The order goes on by the argument, in the same direction or the other one, and NULL has its place in it."""
    con.execute("CREATE TABLE r (id INT PRIMARY KEY, a INT, b INT); CREATE TABLE s (t INT, u INT, x INT)")
    query = f"SELECT r.id, {first} AS first FROM r JOIN s ON {bounds} GROUP BY r.id"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO r VALUES (1, 1, 0), (2, 0, 0)")
    con.execute("INSERT INTO s VALUES (0, 1, 1), (1, 1, NULL), (1, 2, 3), (1, NULL, 2), (0, 2, NULL), (0, 2, 5)")
    assert same_bag(con.execute("FROM v").fetchall(), con.execute(decided(query)).fetchall())
    con.execute("DELETE FROM s WHERE x = 3 OR x = 5")
    assert same_bag(con.execute("FROM v").fetchall(), con.execute(decided(query)).fetchall())


def test_steps_are_logarithmic_and_no_pairs_are_kept() -> None:
    """A range has a tenth of all rows. A changed row of either side takes O(log N), and so much for each range that has
    it: here none, as its value lies outside of all."""
    found = [_steps_and_entries(rows) for rows in (500, 4_000, 32_000)]
    steps, entries = zip(*found, strict=True)
    assert steps[2] - steps[1] < 80 and steps[2] < 2 * steps[0]
    assert entries == (500 * 12, 4_000 * 12, 32_000 * 12)


def _steps_and_entries(rows: int) -> tuple[int, int]:
    """The most steps of one changed row, and the entries of all stores."""
    con = sqlfront.connect()
    con.execute(
        "CREATE CHANGE TABLE r (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT); CREATE CHANGE TABLE s (t BIGINT, x BIGINT)"
    )
    numbers = np.arange(rows)
    con.apply({"r": pa.table({"id": numbers, "a": numbers, "b": numbers + rows // 10})})
    con.apply({"s": pa.table({"t": numbers, "x": (numbers * 7919) % rows})})
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT r.id, MIN(s.x) AS least, MAX(s.x) AS greatest "
        "FROM r JOIN s ON s.t BETWEEN r.a AND r.b GROUP BY r.id"
    )
    engine = con.session.database.engine
    assert sum(isinstance(node, ExtremeRowsNode) for node in engine.nodes.values()) == 2
    entries = sum(store.table.live for relation in engine.relations.values() for store in relation.stores.values())
    most = 0
    for weight in (1, -1):
        for time in (-5, 10 * rows):
            change = pa.table({"t": [time], "x": [-1], "_weight": [weight]})
            most = max(most, con.apply({"s": change}).steps["v"])
        for first in (0, rows // 2, rows - 1):
            change = pa.table({"id": [rows], "a": [first], "b": [first + rows // 10], "_weight": [weight]})
            most = max(most, con.apply({"r": change}).steps["v"])
    con.close()
    return most, entries


def test_the_row_of_an_extreme_is_found_without_pairs(con: sqlfront.Connection) -> None:
    """By another column than the one that is compared; ties are decided by the value, NULLs are left out."""
    con.execute("CREATE TABLE r (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER)")
    con.execute("CREATE TABLE s (t INTEGER, x INTEGER, y INTEGER)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT r.id, arg_max(s.x, s.y) AS x, arg_min(s.x, s.y) AS z "
        "FROM r JOIN s ON s.t BETWEEN r.a AND r.b GROUP BY r.id"
    )
    nodes = con.session.database.engine.nodes.values()
    assert [node.rows.label for node in nodes if isinstance(node, ExtremeRowsNode)] == [
        "ARG_MAX within ranges",
        "ARG_MIN within ranges",
    ]
    con.execute("INSERT INTO r VALUES (1, 0, 5), (2, 3, 9)")
    con.execute("INSERT INTO s VALUES (1, 7, 4), (4, 8, 4), (4, NULL, 9), (6, 5, NULL), (5, 6, 2), (5, 9, 2)")
    assert same_bag(con.execute("FROM v").fetchall(), [(1, 8, 6), (2, 8, 6)])
    con.execute("DELETE FROM s WHERE x = 8")
    assert same_bag(con.execute("FROM v").fetchall(), [(1, 7, 6), (2, 9, 6)])
    con.execute("UPDATE s SET x = NULL WHERE t = 5")
    assert same_bag(con.execute("FROM v").fetchall(), [(1, 7, 7), (2, None, None)])
    explained = str(con.explain("v"))
    assert "ARG_MAX within ranges" in explained and "the row of the greatest" in explained


def test_a_changed_row_lists_all_ranges_that_have_it(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE r (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER); CREATE TABLE s (t INTEGER, x INTEGER)")
    con.execute("INSERT INTO r SELECT i, i * 7 % 40, i * 7 % 40 + i * 11 % 9 FROM range(40) t(i)")
    query = "SELECT r.id, max(s.x) AS m FROM r JOIN s ON s.t BETWEEN r.a AND r.b GROUP BY r.id"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for time in range(0, 48, 5):
        con.execute(f"INSERT INTO s VALUES ({time}, {time})")
        assert same_bag(con.execute("FROM v").fetchall(), con.execute(query).fetchall())


@pytest.mark.parametrize("bound", ["s.t BETWEEN r.a AND r.b", "r.a <= s.t AND r.b < s.u"])
def test_a_row_without_a_partner_has_what_the_aggregate_makes_of_nulls(con: sqlfront.Connection, bound: str) -> None:
    con.execute("CREATE TABLE r (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER)")
    con.execute("CREATE TABLE s (t INTEGER, u INTEGER, x INTEGER)")
    con.execute("INSERT INTO r VALUES (1, 0, 5), (2, 70, 90); INSERT INTO s VALUES (3, 9, NULL), (4, 8, -2)")
    made = ("max(coalesce(s.x, 0))", "min(s.x IS NULL)", "max(s.x + 1)", "arg_max(coalesce(s.x, 3), coalesce(s.t, 4))")
    for number, one in enumerate(made):
        query = f"SELECT r.id, {one} AS m FROM r LEFT JOIN s ON {bound} GROUP BY r.id"
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        assert same_bag(con.execute(f"FROM v{number}").fetchall(), con.execute(query).fetchall())

"""DISTINCT and COUNT(DISTINCT) over joins by inequalities: equal to their queries, in O(N) entries where no equality of
hidden columns remains."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from tests.definition_oracle import same_bag
from tests.slices import parts

VALUES = {
    "INTEGER": ("0", "1", "2", "3", "-2147483648", "2147483647"),
    "UTINYINT": ("0", "1", "2", "255"),
    "BIGINT": ("0", "1", "2", "-9223372036854775808", "9223372036854775807"),
    "HUGEINT": ("0", "-5", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728"),
    "DOUBLE": ("0", "-0.0", "1.5", "'nan'", "'inf'", "'-inf'"),
    "DECIMAL(9, 2)": ("0", "1.25", "2", "-1"),
    "DATE": ("'2026-01-01'", "'2026-01-02'", "'2026-01-03'", "'infinity'", "'-infinity'"),
    "TIMESTAMP": ("'2026-01-01'", "'2026-01-02'", "'infinity'", "'-infinity'"),
    "VARCHAR": ("''", "'a'", "'b'"),
}
QUERIES = (
    "SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE r.a {0} s.d AND s.d {1} t.g",
    "SELECT DISTINCT r.b, s.e FROM r, s WHERE r.a {0} s.d",
    "SELECT r.b, s.e, t.h FROM r, s, t WHERE s.d {0} r.a AND s.d {1} t.g AND r.k = s.k GROUP BY ALL",
    "SELECT DISTINCT r.b, r.k, s.e, t.h FROM r, s, t WHERE r.a {0} s.d AND s.d {1} t.g AND r.k = s.k AND t.k = r.k",
    "SELECT DISTINCT x.h, y.h AS other, z.h AS last FROM t x, t y, t z WHERE x.g {0} y.g AND y.g {1} z.g",
    "SELECT DISTINCT r.b, x.h, y.h AS other FROM r, t x, t y WHERE r.a {0} x.g AND x.g {1} y.g AND y.g {2} r.c",
    "SELECT DISTINCT r.c, s.e FROM r, s WHERE r.a {0} s.d AND s.d {1} r.c",
    "SELECT count(*) AS n FROM "
    "(SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE r.a {0} s.d AND t.g {1} s.d AND s.e > 0)",
    "SELECT r.a, r.c, count(DISTINCT s.e) AS n FROM r JOIN s ON s.d BETWEEN r.a AND r.c GROUP BY r.a, r.c",
    "SELECT r.id, count(DISTINCT s.e) AS n, sum(DISTINCT s.e) AS m FROM r, s "
    "WHERE r.a {0} s.d AND s.d {1} r.c GROUP BY r.id",
    "SELECT count(DISTINCT s.e) AS n FROM r, s WHERE r.a {0} s.d",
    "SELECT r.k, count(DISTINCT s.e) AS n FROM r, s WHERE r.k = s.k AND r.a {0} s.d GROUP BY r.k",
    "SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE r.a {0} s.d AND s.d {1} t.g AND s.k = t.k",
    "SELECT DISTINCT r.b, x.h, s.e, y.h AS o FROM r, t x, s, t y WHERE r.a {0} s.d AND s.k = x.k AND s.k = y.k",
    "SELECT r.b, count(DISTINCT t.h) AS n FROM r, s, t WHERE r.a {0} s.d AND s.k = t.k AND s.e > 0 GROUP BY r.b",
)  # fmt: skip

TWO = "CREATE CHANGE TABLE s (k BIGINT, d BIGINT, e BIGINT); CREATE CHANGE TABLE t (k BIGINT, g BIGINT, h BIGINT)"


class Tables:
    """Three tables, and random changes of them: the compared values of one type, or of two."""

    def __init__(self, con: sqlfront.Connection, rng: random.Random) -> None:
        self._con, self._rng, self._ids = con, rng, iter(range(10**6))
        self.kind = rng.choice([*VALUES])
        self._other = rng.choice(("INTEGER", "DOUBLE")) if self.kind == "BIGINT" and rng.random() < 0.5 else self.kind
        con.execute(f"CREATE TABLE r (id INTEGER PRIMARY KEY, k INTEGER, a {self.kind}, b INTEGER, c {self.kind})")
        con.execute(f"CREATE TABLE s (k INTEGER, d {self._other}, e INTEGER)")
        con.execute(f"CREATE TABLE t (k INTEGER, g {self.kind}, h INTEGER)")

    def change(self) -> None:
        con, rng, table = self._con, self._rng, self._rng.choice("rst")
        kind, compared = rng.random(), {"r": "a", "s": "d", "t": "g"}[table]
        if kind < 0.6:
            rows = [self._row(table)] * rng.choice((1, 1, 2)) if table != "r" else [self._row(table)]
            con.execute(f"INSERT INTO {table} VALUES {', '.join([*rows, self._row(table)])}")
        elif kind < 0.8:
            con.execute(f"DELETE FROM {table} WHERE {compared} IS NOT DISTINCT FROM {self._value(table)}")
        elif kind < 0.95:
            con.execute("BEGIN")
            con.execute(f"UPDATE {table} SET {compared} = {self._value(table)} WHERE k = {rng.randint(0, 1)}")
            con.execute(f"INSERT INTO {table} VALUES {self._row(table)}")
            con.execute(rng.choice(("COMMIT", "ROLLBACK")))
        else:
            con.execute(f"DELETE FROM {table}")

    def _row(self, table: str) -> str:
        key, shown = (self._rng.choice(("NULL", "0", "1")) for _ in range(2))
        if table == "r":
            return f"({next(self._ids)}, {key}, {self._value('r')}, {shown}, {self._value('r')})"
        return f"({key}, {self._value(table)}, {shown})"

    def _value(self, table: str) -> str:
        return self._rng.choice(("NULL", *VALUES[self._other if table == "s" else self.kind][:5]))


@pytest.mark.parametrize("seed", parts(60))
def test_views_are_their_queries_after_each_change(seed: int) -> None:
    con, rng = sqlfront.connect(), random.Random(seed)
    tables = Tables(con, rng)
    for _ in range(10):
        tables.change()
    queries = {}
    for number in range(3):
        operators = [rng.choice(("<", "<=", "<", "<=", ">", ">=")) for _ in range(3)]
        query = queries[f"v{number}"] = rng.choice(QUERIES).format(*operators)
        con.execute(f"CREATE MATERIALIZED VIEW v{number} WITH (at_worst = 'O(N^9)') AS {query}")
    for _ in range(25 if seed else 12):
        tables.change()
        for name, query in queries.items():
            assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall()), (tables.kind, query)
    for name, query in queries.items():
        assert not con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall(), query
    con.close()


@pytest.mark.parametrize("query", [QUERIES[0], QUERIES[8]])
def test_no_combinations_are_kept(query: str) -> None:
    """Three groups, whose combinations have most rows of the tables, keep a constant number of entries per row."""
    con, rows = sqlfront.connect(), 400
    con.execute("CREATE CHANGE TABLE r (id BIGINT, k BIGINT, a BIGINT, b BIGINT, c BIGINT)")
    con.execute(TWO)
    rng = np.random.default_rng(5)
    made = {table: {name: rng.integers(0, rows, rows) for name in names} for table, names in
            (("r", ("id", "k", "a", "b", "c")), ("s", "kde"), ("t", "kgh"))}  # fmt: skip
    con.apply({table: pa.table(columns) for table, columns in made.items()})
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^9)') AS {query.format('<', '<')}")
    entries = sum(con.execute("SHOW STATE").to_arrow_table().to_pydict()["entries"])
    assert entries < 10 * 3 * rows
    con.close()


def test_tables_with_an_equality_of_hidden_columns_keep_their_pairs() -> None:
    """Two hundred rows of ten keys have some two thousand pairs, and a hundred thousand combinations with the third."""
    con, rows = sqlfront.connect(), 200
    con.execute("CREATE CHANGE TABLE r (id BIGINT, k BIGINT, a BIGINT, b BIGINT, c BIGINT)")
    con.execute(TWO)
    rng = np.random.default_rng(5)
    made = {table: {name: rng.integers(0, 10 if name == "k" else rows, rows) for name in names} for table, names in
            (("r", ("id", "k", "a", "b", "c")), ("s", "kde"), ("t", "kgh"))}  # fmt: skip
    con.apply({table: pa.table(columns) for table, columns in made.items()})
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^9)') AS {QUERIES[12].format('<', '<')}")
    entries = sum(con.execute("SHOW STATE").to_arrow_table().to_pydict()["entries"])
    assert entries < 25 * 3 * rows and con.view("v").count() > 4 * entries
    before = con.view("v").cost()["steps"]
    con.apply_row("r", (0, 0, 100, -1, 0))
    assert con.view("v").cost()["steps"] - before < 100
    for table in "st":
        con.apply_row(table, (3, 100, -1))
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    con.close()


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_as_spelled_over_ties_and_duplicates(query: str) -> None:
    """Few values, so that all comparisons meet equal ones, groups have them twice, and keys are shared by some."""
    con, rng = sqlfront.connect(), np.random.default_rng(3)
    con.execute("CREATE CHANGE TABLE r (id BIGINT PRIMARY KEY, k BIGINT, a BIGINT, b BIGINT, c BIGINT)")
    con.execute(TWO)
    queries = {
        f"v{place}": query.format(*signs) for place, signs in enumerate((("<",) * 3, ("<=",) * 3, ("<", "<=", ">")))
    }
    for name, one in queries.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (at_worst = 'O(N^9)') AS {one}")
    for epoch in range(4):
        for table, names in (("r", "kabc"), ("s", "kde"), ("t", "kgh")):
            made = {"id": np.arange(6 * epoch, 6 * epoch + 6)} if table == "r" else {}
            con.apply({table: pa.table(made | {name: rng.integers(0, 4, 6) for name in names})})
        for name, one in queries.items():
            assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(one).fetchall()), one
    con.close()

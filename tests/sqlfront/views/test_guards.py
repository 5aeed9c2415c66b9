"""An expression that fails on a row fails the change only if the view needs the expression of that row."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from tests.guarded_queries import COLUMNS, Query, random_query, random_row

TYPES = (pa.int32(), pa.int32(), pa.string(), pa.float64(), pa.int32())
NAMES = ("g", "k", "s", "d", "w")
KINDS = ("TABLE", "CHANGE TABLE")


def _table(rows: list[tuple], weights: list[int]) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(TYPES)]
    return pa.table([*columns, pa.array(weights, pa.int64())], names=[*NAMES, "_weight"])


# A query, its oracle where DuckDB fails on the query itself; over t, and u with x = 1, 2, 3.
GUARDED = {
    "division": ("SELECT 10 // k AS e, count(*) AS n FROM t WHERE k <> 0 GROUP BY 1", None),
    "cast": ("SELECT CAST(s AS INTEGER) AS e FROM t WHERE s IN ('3', '12')", None),
    "last condition": ("SELECT k FROM t WHERE CAST(s AS INTEGER) > 2 AND k + w = 3 AND 10 // w > 0", "SELECT 2 AS k"),
    "filter": (
        "SELECT w, sum(CAST(s AS INTEGER)) FILTER (WHERE k = 2) AS z FROM t GROUP BY w",
        "SELECT w, sum(CASE WHEN k = 2 THEN CAST(s AS INTEGER) END) AS z FROM t GROUP BY w",
    ),
    "floating filter": (
        "SELECT sum(CAST(s AS DOUBLE)) FILTER (WHERE k = 2) AS z, count(s::DATE) FILTER (WHERE k = 0) AS n FROM t",
        "SELECT 3::DOUBLE AS z, 1 AS n",
    ),
    "extremum": ("SELECT max(CAST(s AS INTEGER)) FILTER (WHERE k = 2) AS z FROM t", "SELECT 3 AS z"),
    "key": ("SELECT w, x FROM t JOIN u ON CAST(s AS INTEGER) = x AND k = 2", None),
    "no key": ("SELECT x, CAST(s AS INTEGER) AS e FROM t JOIN u ON k = x WHERE w <> 0", None),
    "other side": ("SELECT CAST(s AS INTEGER) AS e FROM t JOIN u ON k = x WHERE x = 2", None),
    "infinity": ("SELECT sum(d * x) AS z FROM t JOIN u ON w = x WHERE isfinite(d)", None),
    "computed infinity": ("SELECT sum((d * 2) * x) AS z FROM t JOIN u ON w = x WHERE isfinite(d)", None),
    "self-join": ("SELECT a.w, b.s::INTEGER AS e FROM t AS a, t AS b WHERE a.k = b.k AND a.k = 2 AND b.k = 2", None),
    "block": ("SELECT e + 1 AS e FROM (SELECT CAST(s AS INTEGER) AS e, k FROM t) AS q WHERE k = 2", None),
    "groups": ("SELECT 10 // n AS e FROM (SELECT w, sum(k) AS n FROM t GROUP BY w) AS q WHERE n <> 0", None),
    "having": ("SELECT w, 10 // (sum(k) - 2) AS e FROM t GROUP BY w HAVING sum(k) <> 2", None),
    "union": ("SELECT 10 // k AS e FROM t WHERE k <> 0 UNION ALL SELECT s::INTEGER FROM t WHERE k = 2", None),
}
ROWS = [(1, 2, "3", 1.5, 1), (1, 0, "2024-02-29", float("inf"), 0), (1, None, "abc", None, 2)]


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize(("first", "kind"), [("rows", KINDS[0]), ("view", KINDS[1])])
def test_rows_that_the_query_leaves_out(name: str, kind: str, first: str) -> None:
    """The rows are there when the view is created, or come later, one by one; they go, cross the filter and return."""
    query, oracle = GUARDED[name]
    plain = duckdb.connect()
    with sqlfront.connect() as con:
        con.execute(f"CREATE {kind} t ({COLUMNS}); CREATE TABLE u (x INTEGER); INSERT INTO u VALUES (1), (2), (3)")
        plain.execute(f"CREATE TABLE t ({COLUMNS}); CREATE TABLE u AS FROM (VALUES (1), (2), (3)) AS u(x)")
        plain.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", ROWS)
        expected = _bag(plain.execute(oracle or query).fetchall())
        create = f"CREATE MATERIALIZED VIEW v AS {query}"
        if first == "rows":
            con.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", ROWS)
            con.execute(create)
        else:
            con.execute(create)
            empty = con.execute("FROM v").fetchall()
            for row in ROWS:
                con.apply_row("t", row)
            con.view("v").subscribe()
            con.execute("DELETE FROM t")
            assert con.execute("FROM v").fetchall() == empty
            con.execute("BEGIN")
            con.apply({"t": _table(ROWS[::-1], [1, 1, 1])})
            assert _bag(con.execute("FROM v").fetchall()) == expected
            con.execute("ROLLBACK")
            con.apply({"t": _table(ROWS, [1, 1, 1])})
        assert _bag(con.execute("FROM v").fetchall()) == expected
        con.execute("UPDATE t SET k = 0, s = '2024-02-29', w = 0 WHERE k = 2")
        con.execute("UPDATE t SET k = 2, s = '3', w = 1 WHERE d = 1.5")
        assert _bag(con.execute("FROM v").fetchall()) == expected
        if name != "last condition":  # DuckDB fails on the query.
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_views_with_other_filters_share_the_expression() -> None:
    """Only the view that needs the expression of the row is named; without that view, the row is taken."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (k INTEGER, w INTEGER)")
        con.execute("CREATE MATERIALIZED VIEW a AS SELECT 10 // k AS e FROM t WHERE k <> 0")
        con.execute("CREATE MATERIALIZED VIEW b AS SELECT 10 // k AS e, w FROM t WHERE k <> 0 OR w = 1")
        con.execute("INSERT INTO t VALUES (0, 0), (5, 0)")
        for way in (lambda: con.execute("INSERT INTO t VALUES (2, 2), (0, 1)"), lambda: con.apply_row("t", (0, 1))):
            with pytest.raises(sqlfront.DataError) as caught:
                way()
            assert caught.value.what == "materialized view b cannot take a row of t"
            assert caught.value.where == "(10 // k)\nwith k = 0, w = 1"
            assert con.execute("FROM a").fetchall() == con.execute("SELECT e FROM b").fetchall() == [(2,)]
        with pytest.raises(sqlfront.DataError, match="c cannot be built"):
            con.execute("CREATE MATERIALIZED VIEW c AS SELECT 10 // k AS e FROM t")
        con.execute("DROP MATERIALIZED VIEW b; INSERT INTO t VALUES (0, 1), (2, 1)")
        assert sorted(con.execute("FROM a").fetchall()) == [(2,), (5,)]


def test_a_condition_that_fails_advises_no_where() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (s VARCHAR, k INTEGER)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT 10 // k AS e FROM t WHERE k <> 0 AND CAST(s AS INTEGER) > 0")
        con.execute("INSERT INTO t VALUES ('x', 0)")
        with pytest.raises(sqlfront.DataError) as caught:
            con.execute("INSERT INTO t VALUES ('y', 0), ('x', 1)")
        assert "CAST(s AS INTEGER) > 0" in caught.value.where and "s = 'x', k = 1" in caught.value.where
        assert "another condition" in caught.value.hint and "WHERE" not in caught.value.hint


@pytest.mark.parametrize("text", ["coalesce(CASE WHEN k IS NULL OR k = 0 THEN 5 END, 10 // k)", "TRY(10 // k)"])
def test_an_expression_is_not_moved_out_of_its_guard(text: str) -> None:
    """DuckDB evaluates an expression that occurs twice on all rows, even if COALESCE or TRY guards the expression."""
    with sqlfront.connect() as con:
        con.execute(f"CREATE TABLE t ({COLUMNS}); CREATE MATERIALIZED VIEW v AS SELECT {text} AS e FROM t")
        con.execute("CREATE MATERIALIZED VIEW other AS SELECT 10 // k AS e FROM t WHERE k <> 0")
        con.apply({"t": _table(ROWS, [1, 1, 1])})
        assert _bag(con.execute("FROM v").fetchall()) == _bag(
            [(5,), (5,) if "5" in text else (None,), (5,) if "co" in text else (None,)]
        )
        assert con.execute("FROM other").fetchall() == [(5,)]


def _bag(rows: list[tuple]) -> Counter:
    return Counter(map(repr, rows))


class Replay:
    """Random views over t and u; random changes of t, each compared with DuckDB over the rows that t must have."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.plain = duckdb.connect()
        self.plain.execute(
            f"CREATE TABLE t ({COLUMNS}); CREATE TABLE u (x INTEGER); INSERT INTO u VALUES (1), (2), (3)"
        )
        self.con = sqlfront.connect()
        self.con.execute(f"CREATE {self.dice.choice(KINDS)} t ({COLUMNS}); CREATE TABLE u (x INTEGER)")
        self.con.execute("INSERT INTO u VALUES (1), (2), (3)")
        self.rows: list[tuple] = []
        self.views: dict[str, Query] = {}
        self.refused = 0

    def run(self, changes: int) -> None:
        for number in range(changes):
            if number in (0, changes // 3):
                self.create(f"v{number}a")
                self.create(f"v{number}b")
            self.change()
            self.compare()

    def create(self, name: str) -> None:
        query = random_query(self.dice)
        text = f"CREATE MATERIALIZED VIEW {name} AS {query.text}"
        if self.fails(query, self.rows):
            with pytest.raises(sqlfront.DataError, match=f"{name} cannot be built"):
                self.con.execute(text)
            return
        self.con.execute(text)
        self.views[name] = query

    def change(self) -> None:
        """Insert, delete or update some rows, which is refused just if a view needs what fails."""
        gone = self.dice.sample(self.rows, min(len(self.rows), self.dice.randrange(4)))
        come = [random_row(self.dice) for _ in range(self.dice.choice([1, 1, 2, 40]))]
        way = self.dice.choice([self.by_apply, self.by_row, self.by_sql, self.in_transaction])
        kept = list((Counter(self.rows) - Counter(gone)).elements())
        if way == self.by_row:
            kept, gone, come = self.rows, [], come[:1]
        if any(self.fails(query, come) for query in self.views.values()):
            self.refused += 1
            with pytest.raises(sqlfront.DataError, match="cannot take a row of t"):
                way(gone, come)
            self.con.rollback()
            return
        way(gone, come)
        self.rows = [*kept, *come]

    def by_apply(self, gone: list[tuple], come: list[tuple]) -> None:
        self.con.apply({"t": _table([*gone, *come], [-1] * len(gone) + [1] * len(come))})

    def by_row(self, gone: list[tuple], come: list[tuple]) -> None:
        self.con.apply_row("t", come[0])

    def by_sql(self, gone: list[tuple], come: list[tuple]) -> None:
        self.con.execute("BEGIN")
        self.by_apply(gone, [])
        self.con.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", come)
        self.con.execute("COMMIT")

    def in_transaction(self, gone: list[tuple], come: list[tuple]) -> None:
        """The rows come and go once in vain; then they come."""
        self.con.execute("BEGIN")
        self.by_apply(gone, come)
        for name in self.views:
            self.con.execute(f"FROM {name}").fetchall()
        self.con.execute("ROLLBACK")
        self.by_apply(gone, come)

    def compare(self) -> None:
        self.set_plain(self.rows)
        for name, query in self.views.items():
            found = self.con.execute(f"FROM {name}").fetchall()
            assert _bag(found) == _bag(self.plain.execute(query.oracle).fetchall()), query.text

    def fails(self, query: Query, rows: list[tuple]) -> bool:
        if query.needed is None:
            return False
        self.set_plain(rows)
        try:
            self.plain.execute(query.needed).fetchall()
        except duckdb.Error:
            return True
        return False

    def set_plain(self, rows: list[tuple]) -> None:
        held = _table(rows, [1] * len(rows))  # noqa: F841
        self.plain.execute("TRUNCATE t; INSERT INTO t SELECT * EXCLUDE (_weight) FROM held")


@pytest.mark.parametrize("seed", range(6))
def test_random_guards(seed: int) -> None:
    Replay(seed).run(6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 400))
def test_many_random_guards(seed: int) -> None:
    Replay(seed).run(12)

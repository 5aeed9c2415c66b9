"""WITH (strategy = 'linear space'): DISTINCT rows that no table has are those of the query, in O(N) space."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.explain import explanation
from sqlfront.maintenance.output.reading import read
from sqlfront.maintenance.program.rows import BATCH
from tests.slices import parts

VALUES = {
    "INTEGER": ("0", "1", "2", "3", "-2147483648"),
    "UTINYINT": ("0", "1", "2", "255"),
    "BIGINT": ("0", "1", "-9223372036854775808", "-9223372036854775807", "9223372036854775807"),
    "UBIGINT": ("0", "1", "2", "18446744073709551615", "18446744073709551614"),
    "DOUBLE": ("0", "-0.0", "1.5", "'nan'", "'-inf'"),
    "DECIMAL(9, 2)": ("0", "1.25", "2", "-1"),
    "TIMESTAMP": ("'2026-01-01'", "'2026-01-02'", "'infinity'", "'-infinity'"),
}
PAIRS = "SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE r.a {0} s.d AND s.d {1} t.g AND s.k = t.k"
QUERIES = (
    PAIRS,
    "SELECT DISTINCT r.b, r.c, s.e, s.l, t.h, t.n FROM r, s, t WHERE r.a {0} s.d AND s.d {1} t.g AND s.k = t.k",
    "SELECT DISTINCT s.e, t.h FROM s, t WHERE s.k = t.k",
    "SELECT s.e + 1 AS f, t.n FROM s, t WHERE s.k = t.k AND t.g IS NOT NULL GROUP BY s.e, t.n",
    "SELECT DISTINCT s.e, t.n FROM s, t WHERE s.k = t.k AND s.l = t.h AND s.d {0} t.g",
    "SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE r.a {0} t.g AND s.d {0} t.g AND s.k = t.k",
    "SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE s.d {0} r.a AND s.k = t.k",
    "SELECT DISTINCT r.b, s.e, t.h, t.g FROM r, s, t WHERE s.d {0} t.g AND s.k = t.k AND r.c = t.h",
    "SELECT DISTINCT r.b, s.e, t.n FROM r, s, t WHERE r.a {0} s.d AND s.d {1} t.g AND s.k = t.k AND r.c = s.e",
    "SELECT DISTINCT r.b, q.c, s.e, t.h FROM r, r AS q, s, t WHERE r.a {0} s.d AND q.a {0} s.d AND s.k = t.k",
    "SELECT DISTINCT s.e, t.h, u.h AS o FROM s, t, t AS u WHERE s.k = t.k AND u.n = t.h AND s.d {0} t.g",
    "SELECT DISTINCT s.e, t.h FROM s, t, r WHERE s.k = t.k AND r.b = s.l AND s.d {0} t.g",
    "SELECT DISTINCT s.e, t.h FROM s, t, r WHERE s.k = t.k AND r.a {0} t.g",
    "SELECT DISTINCT s.e, s.l, t.h, r.c FROM s, t, r WHERE s.k = t.k AND r.c {0} s.e AND r.b = s.l",
    "SELECT DISTINCT s.e, t.h, t.g, r.a FROM s, t, r WHERE s.k = t.k AND r.a {0} t.g",
    "SELECT DISTINCT x.h, y.h AS o FROM t AS x, t AS y WHERE x.k = y.k AND x.g {0} y.g",
    "SELECT DISTINCT x.n, y.n AS o FROM t AS x, t AS y WHERE x.k = y.k",
    "SELECT DISTINCT s.e, t.w, r.b FROM s, (SELECT k, h, max(n) AS w FROM t GROUP BY k, h) t, r "
    "WHERE s.k = t.k AND r.a {0} s.d",
)  # fmt: skip
IN_TURN = "distinct rows of outer groups in turn"


class Tables:
    """Three tables with few values, NULLs and copies, and random changes of them."""

    def __init__(self, con: sqlfront.Connection, rng: random.Random) -> None:
        self._con, self._rng, self.kind = con, rng, rng.choice([*VALUES])
        con.execute(f"CREATE TABLE r (a {self.kind}, b VARCHAR, c INTEGER)")
        con.execute(f"CREATE TABLE s (k INTEGER, l VARCHAR, d {self.kind}, e INTEGER)")
        con.execute(f"CREATE TABLE t (k INTEGER, g {self.kind}, h INTEGER, n HUGEINT)")

    def fill(self, rows: int) -> None:
        """Add so many rows to each table."""
        for table in "rst":
            self._con.execute(f"INSERT INTO {table} VALUES {', '.join(self._row(table) for _ in range(rows))}")

    def change(self) -> None:
        con, rng, table = self._con, self._rng, self._rng.choice("rst")
        kind, compared = rng.random(), {"r": "a", "s": "d", "t": "g"}[table]
        if kind < 0.7:
            rows = [self._row(table)] * rng.choice((1, 1, 2))
            con.execute(f"INSERT INTO {table} VALUES {', '.join([*rows, self._row(table)])}")
        elif kind < 0.8:
            con.execute(f"DELETE FROM {table} WHERE {compared} IS NOT DISTINCT FROM {self._value()}")
        elif kind < 0.95:
            con.execute("BEGIN")
            con.execute(f"UPDATE {table} SET {compared} = {self._value()} WHERE {compared} = {self._value()}")
            con.execute(f"INSERT INTO {table} VALUES {self._row(table)}")
            con.execute(rng.choice(("COMMIT", "ROLLBACK")))
        else:
            con.execute(f"DELETE FROM {table}")

    def _row(self, table: str) -> str:
        small = iter([self._rng.choice(("NULL", "0", "1", "2")) for _ in range(3)])
        if table == "r":
            return f"({self._value()}, {next(small)}, {next(small)})"
        if table == "s":
            return f"({next(small)}, {next(small)}, {self._value()}, {next(small)})"
        return f"({next(small)}, {self._value()}, {next(small)}, {next(small)})"

    def _value(self) -> str:
        return self._rng.choice(("NULL", *VALUES[self.kind]))


def _create(con: sqlfront.Connection, query: str, name: str = "v") -> None:
    con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (strategy = 'linear space') AS {query}")


def _is_query(con: sqlfront.Connection, query: str, name: str = "v") -> bool:
    rows, wanted = con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall()
    return Counter(map(repr, rows)) == Counter(map(repr, wanted))


@pytest.mark.parametrize("query", QUERIES)
def test_rows_of_each_query_are_found_in_turn(query: str) -> None:
    """With `<` and `<=`, over few values; by the planner's own choice no strategy has this name."""
    con = sqlfront.connect()
    tables = Tables(con, random.Random(query))
    for number, signs in enumerate((("<", "<"), ("<=", "<="), (">", "<"))):
        _create(con, query.format(*signs), f"v{number}")
        assert con.explain(f"v{number}").to_dict()["strategy"].endswith(IN_TURN)
    found = set()
    for _ in range(4):
        tables.fill(6)
        for number, signs in enumerate((("<", "<"), ("<=", "<="), (">", "<"))):
            assert _is_query(con, query.format(*signs), f"v{number}")
            found.add(con.view(f"v{number}").count())
            assert con.view(f"v{number}").count() == len(con.execute(f"FROM v{number}").fetchall())
    assert len(found) > 1
    con.close()


@pytest.mark.parametrize("seed", parts(60))
def test_views_are_their_queries_after_each_change(seed: int) -> None:
    con, rng = sqlfront.connect(), random.Random(seed)
    tables = Tables(con, rng)
    tables.fill(6)
    queries = {}
    for number in range(3):
        signs = [rng.choice(("<", "<=", ">", ">=")) for _ in range(2)]
        query = queries[f"v{number}"] = rng.choice(QUERIES).format(*signs)
        _create(con, query, f"v{number}")
    seen = 0
    for _ in range(25):
        tables.change()
        for name, query in queries.items():
            assert _is_query(con, query, name), (tables.kind, query)
            seen += con.view(name).count() > 1
    assert seen
    for name, query in queries.items():
        assert not con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall(), query
    con.close()


@pytest.mark.parametrize("kind", ["BIGINT", "UBIGINT", "DOUBLE", "DECIMAL(9, 2)", "TIMESTAMP"])
def test_reserved_and_extreme_values_are_compared_in_their_order(kind: str) -> None:
    con = sqlfront.connect()
    con.execute(f"CREATE TABLE x (k INTEGER, g {kind}, h INTEGER)")
    queries = {
        f"v{number}": f"SELECT DISTINCT x.h, y.h AS o, z.h AS p FROM x, x AS y, x AS z "
        f"WHERE x.k = y.k AND x.g {sign} y.g AND z.g {other} y.g"
        for number, (sign, other) in enumerate((("<", "<"), ("<=", "<="), (">", ">="), ("<", ">")))
    }
    for name, query in queries.items():
        _create(con, query, name)
    for number, value in enumerate((*VALUES[kind], "NULL")):
        con.execute(f"INSERT INTO x VALUES ({number % 2}, {value}, {number}), (2, {value}, {number})")
    for name, query in queries.items():
        assert con.view(name).count() > 3 and _is_query(con, query, name)
    con.close()


@pytest.mark.parametrize("rows", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("kinds", [10**6, 1])
def test_entries_changes_and_delay_by_steps(rows: int, kinds: int) -> None:
    """An entry a row, a few steps a change, and 4 N steps to a row and from row to row, though each group of inner rows
    may put out one row (`kinds` 1); a batch may be on its way."""
    con = _large(rows, kinds)
    state = con.execute("SHOW STATE FOR v").to_arrow_table().to_pydict()
    assert sum(state["entries"]) <= 3 * rows
    for table, row in (("r", (-1, 7, 7)), ("s", (0, rows, 5, 5)), ("t", (0, rows, 5, 5)), ("r", (rows, 8, 8))):
        before = con.view("v").cost()["steps"]
        con.apply_row(table, row)
        assert con.view("v").cost()["steps"] - before <= 40
    view = con.session.database.view(con.session.duck, ("v",)).maintained
    walk = read(view, None, view.definition.free)
    taken = [0, *(walk.steps for _ in range(30) if walk.next(1))]
    assert len(taken) == 31 and max(after - before for before, after in pairwise(taken)) <= 4 * rows + 2 * BATCH
    con.close()


def _large(rows: int, kinds: int = 10**6) -> sqlfront.Connection:
    """Three tables, whose result has nearly all combinations of r with pairs of s and t. Inner rows, and those of r,
    show as many different values as there are `kinds`."""
    con = sqlfront.connect()
    con.execute("CREATE TABLE r (a BIGINT, b BIGINT, c BIGINT)")
    con.execute("CREATE TABLE s (k BIGINT, d BIGINT, e BIGINT, f BIGINT)")
    con.execute("CREATE TABLE t (k BIGINT, g BIGINT, h BIGINT, i BIGINT)")
    rng = np.random.default_rng(3)
    for table, names in (("r", "abc"), ("s", "kdef"), ("t", "kghi")):
        most = dict.fromkeys("bcef", min(rows, kinds)) | {"k": 3}
        made = {name: rng.integers(0, most.get(name, rows), rows) for name in names}
        con.apply({table: pa.table(made)})
    _create(con, "SELECT DISTINCT b, c, e, f, h, i FROM r, s, t WHERE a < d AND d < g AND s.k = t.k")
    return con


def test_a_group_without_rows_costs_nothing() -> None:
    """Of 1,000 groups the last alone has inner rows that join it and that something joins: it comes first."""
    con = sqlfront.connect()
    Tables(con, random.Random(1)).change()
    con.execute("DELETE FROM r; DELETE FROM s; DELETE FROM t")
    con.execute("ALTER TABLE r DROP a; ALTER TABLE r ADD a BIGINT; ALTER TABLE s DROP d; ALTER TABLE s ADD d BIGINT")
    con.execute("ALTER TABLE t DROP g; ALTER TABLE t ADD g BIGINT; INSERT INTO r (a, b) VALUES (990, 'x')")
    con.execute("INSERT INTO s (k, d, e) SELECT 0, range, range % 7 FROM range(1000)")
    con.execute("INSERT INTO t (k, g, h) SELECT 0, range, range FROM range(993)")
    _create(con, PAIRS.format("<", "<"))
    before = con.view("v").cost()["read_steps"]
    assert con.execute("FROM v").fetchall() == [("x", 991 % 7, 992)]
    assert con.view("v").cost()["read_steps"] - before < 1 + 1000 + 993 + 1000
    con.close()


def test_subscribers_and_views_over_the_view_hear_of_all_changes() -> None:
    con, rng = sqlfront.connect(), random.Random(4)
    tables, query = Tables(con, rng), PAIRS.format("<=", "<")
    _create(con, query)
    con.execute("CREATE MATERIALIZED VIEW over AS SELECT b, count(*) AS n FROM v GROUP BY b")
    feed, found = con.view("v").subscribe(), Counter()
    for _ in range(60):
        tables.change()
        for row in (row for change in iter(feed.poll, None) for row in zip(*(c.to_pylist() for c in change.columns))):
            found[row[:3]] += 1 if row[3] == "insert" else -1
        assert +found == Counter(con.execute(query).fetchall()) and not -found
        assert _is_query(con, f"SELECT b, count(*) FROM ({query}) GROUP BY b", "over")
    con.execute("DROP MATERIALIZED VIEW over")
    con.close()


def test_transactions_read_their_own_rows_and_their_own_time() -> None:
    con = sqlfront.connect()
    Tables(con, random.Random(0)).change()
    con.execute("DELETE FROM r; DELETE FROM s; DELETE FROM t")
    _create(con, "SELECT DISTINCT s.e, t.h FROM s, t WHERE s.k = t.k")
    con.execute("INSERT INTO s (k, e) VALUES (1, 5); INSERT INTO t (k, h) VALUES (1, 6), (2, 7)")
    con.execute("BEGIN; INSERT INTO s (k, e) VALUES (2, 8)")
    assert sorted(con.execute("FROM v").fetchall()) == [(5, 6), (8, 7)]
    other = con.cursor()
    assert other.execute("FROM v").fetchall() == [(5, 6)]
    con.execute("ROLLBACK")
    assert con.execute("FROM v").fetchall() == [(5, 6)]
    con.execute("BEGIN")
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(1,)]
    other.execute("INSERT INTO t (k, h) VALUES (1, 9)")
    assert con.execute("FROM v").fetchall() == [(5, 6)]
    con.execute("COMMIT")
    assert sorted(con.execute("FROM v").fetchall()) == [(5, 6), (5, 9)]
    con.close()


def test_pages_look_ups_and_open_readers() -> None:
    con = _large(1_000)
    rows = con.execute("FROM v LIMIT 5000").fetchall()
    assert len(set(rows)) == 5000 and con.execute("SELECT EXISTS (FROM v)").fetchall() == [(True,)]
    names = ("b", "c", "e", "f", "h", "i")
    assert con.view("v").contains(dict(zip(names, rows[7], strict=True)))
    assert not con.view("v").contains(dict(zip(names, (*rows[7][:5], -1), strict=True)))
    b, _, e, *_, h, i = rows[0]
    wanted = f"SELECT * FROM v WHERE b = {b} AND e = {e} AND h = {h} AND i = {i}"
    assert rows[0] in con.execute(wanted).fetchall()
    reader = con.execute(f"SELECT * FROM v WHERE b = {b}").to_arrow_reader(100)
    first = reader.read_next_batch().num_rows
    expected = con.cursor().execute(f"SELECT count(*) FROM v WHERE b = {b}").fetchall()
    con.cursor().execute("DELETE FROM r") if first else None
    assert [(first + sum(batch.num_rows for batch in reader),)] == expected
    assert con.execute("FROM v").fetchall() == [] and con.view("v").count() == 0
    con.close()


def test_the_view_comes_back_with_its_file(tmp_path) -> None:
    path, query = str(tmp_path / "turns.duckdb"), PAIRS.format("<", "<=")
    with sqlfront.connect(path) as con:
        tables = Tables(con, random.Random(6))
        for _ in range(40):
            tables.change()
        _create(con, query)
        assert con.view("v").count()
    with sqlfront.connect(path) as con:
        assert _is_query(con, query)
        assert con.explain("v").to_dict()["strategy"].endswith(IN_TURN)
        con.execute("INSERT INTO t SELECT k, g, h + 5, n FROM t")
        assert _is_query(con, query) and not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
        con.execute("ALTER MATERIALIZED VIEW v SET (strategy = 'auto'); REFRESH MATERIALIZED VIEW v")
        assert not con.explain("v").to_dict()["strategy"].endswith(IN_TURN) and _is_query(con, query)
        con.execute("ALTER MATERIALIZED VIEW v SET (strategy = 'linear space'); REFRESH MATERIALIZED VIEW v")
        assert con.explain("v").to_dict()["strategy"].endswith(IN_TURN) and _is_query(con, query)


@pytest.mark.parametrize("query", [
    "SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE r.a < s.d AND s.d < t.g AND s.k = t.k ORDER BY 1, 2, 3 LIMIT 5",
    "SELECT DISTINCT r.b, q.c, s.e, t.h FROM r, r AS q, s, t WHERE r.a < s.d AND q.a > s.d AND s.k = t.k",
    "SELECT DISTINCT s.e, t.h, u.h AS o FROM s, t, t AS u WHERE s.k = t.k AND u.g = t.g",
    "SELECT count(*) AS n FROM (SELECT DISTINCT s.e, t.h FROM s, t WHERE s.k = t.k)",
])  # fmt: skip
def test_other_views_are_refused_if_they_take_more(query: str) -> None:
    con = sqlfront.connect()
    Tables(con, random.Random(2))
    with pytest.raises(sqlfront.NotSupportedError, match="has no plan"):
        _create(con, query)
    with pytest.raises(sqlfront.Error):
        con.execute("FROM v")
    con.close()


def test_views_of_linear_space_are_planned_as_ever() -> None:
    """And a view that would come to take more cannot be altered to do so."""
    con = sqlfront.connect()
    Tables(con, random.Random(2))
    _create(con, "SELECT s.e, count(*) AS n FROM s, t WHERE s.k = t.k GROUP BY s.e")
    assert "turn" not in con.explain("v").to_dict()["strategy"]
    query = "SELECT DISTINCT s.e, t.h, u.h AS o FROM s, t, t AS u WHERE s.k = t.k AND u.g = t.g"
    con.execute(f"CREATE MATERIALIZED VIEW w AS {query}")
    with pytest.raises(sqlfront.NotSupportedError, match="has no plan"):
        con.execute("ALTER MATERIALIZED VIEW w SET (strategy = 'linear space')")
    _create(con, PAIRS.format("<", "<"), "x")
    with pytest.raises(sqlfront.Error, match="epsilon"):
        con.execute("ALTER MATERIALIZED VIEW x SET (epsilon = 0.3)")
    with pytest.raises(sqlfront.NotSupportedError, match="has no plan"):
        con.execute("CREATE INDEX ordered ON x (e)")
    con.execute("INSERT INTO s (k, e) VALUES (1, 2)")
    assert con.execute("FROM w").fetchall() == con.execute("FROM x").fetchall() == []
    con.close()


def test_explain_says_what_a_read_costs_before_the_first_row_and_between_rows() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (k INT, a INT); CREATE TABLE s (k INT, b INT)")
        option = "WITH (strategy = 'linear space')"
        con.execute(f"CREATE MATERIALIZED VIEW v {option} AS SELECT DISTINCT r.a, s.b FROM r JOIN s USING (k)")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT r.a, s.b FROM r JOIN s ON r.a < s.b ORDER BY a, b LIMIT 2")
        lines = dict(con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall())
        assert lines["read all"].endswith("here O(1) per change, O(N) between rows, O(N log N) to the first row")
        assert lines["exists"].endswith("then O(N log N)") and lines["membership"].endswith("then O(N log N)")
        order = next(line for _, line in con.execute("EXPLAIN MATERIALIZED VIEW w").fetchall() if "sorted when" in line)
        assert order.endswith("O(1) per change, O(rows log rows) to the first row, O(1) space")


def test_explain_offers_the_strategy_where_pairs_are_stored() -> None:
    con = sqlfront.connect()
    Tables(con, random.Random(2))
    con.execute(f"CREATE MATERIALIZED VIEW v AS {PAIRS.format('<', '<')}")
    offers = [one["sql"] for one in con.explain("v").to_dict()["rewrites"]]
    assert any("strategy = 'linear space'" in sql for sql in offers)
    assert not con.explain(PAIRS.format("<", "<").replace(" AND s.k = t.k", "")).to_dict()["rewrites"]
    con.close()


def test_only_distinct_rows_are_planned_for_linear_space(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(explanation, "_without_combinations", lambda *given: asked.append(given) or ())
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INT, b INT); CREATE TABLE s (b INT, c INT)")
        con.explain("SELECT r.a, s.c, count(*) AS n FROM r JOIN s USING (b) GROUP BY ALL")
        assert asked == []
        con.explain("SELECT r.a, s.c FROM r JOIN s USING (b) GROUP BY ALL")
        con.explain("SELECT DISTINCT r.a, s.c FROM r JOIN s USING (b)")
        assert len(asked) == 2

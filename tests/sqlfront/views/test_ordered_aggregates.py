"""Quantiles, lists, texts, histograms and modes: read from a group's sorted values, beside DuckDB's own answers."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest

import sqlfront

MIXED = """SELECT g, mode({mode}) AS m, list({listed}) AS u, histogram(s) AS h,
list(x ORDER BY y DESC NULLS FIRST, x) AS l,
string_agg(s, '-' ORDER BY y, s) AS t, median(x) AS q, sum(y) AS n FROM t GROUP BY g"""
QUERIES = {
    "lists": """SELECT g, list(x ORDER BY y, x) AS a, array_agg(s ORDER BY s DESC) FILTER (WHERE y > 1) AS b,
        list(DISTINCT s ORDER BY s DESC NULLS FIRST) AS c, list(x + 1 ORDER BY s, y, x + 1) AS d FROM t GROUP BY g""",
    "one row": """SELECT list(f ORDER BY f DESC, y) AS a, string_agg(s, '' ORDER BY x, s) AS b,
        string_agg(DISTINCT s ORDER BY s) AS c, histogram(f) AS h, median(f) AS m FROM t""",
    "histograms": "SELECT g, histogram(x) AS a, histogram(d) AS b, histogram(y > 1) AS c FROM t GROUP BY g",
    "mixed": MIXED,
    "quantiles": """SELECT g, median(x) AS a, quantile_cont(x, 0.95) AS b, quantile_disc(x, 0.9) AS c,
        quantile_cont(x, [0.25, 0.3, 0.99]) AS e, quantile_disc(s, [0.5, 0.1]) AS h, median(s) AS i, median(d) AS j,
        quantile(y, 0.21) AS k, quantile_cont(x, 0.75::DOUBLE) FILTER (WHERE y > 0) AS l FROM t GROUP BY g""",
    "ordered sets": """SELECT percentile_cont(0.3) WITHIN GROUP (ORDER BY x DESC) AS a,
        percentile_disc(0.3) WITHIN GROUP (ORDER BY x DESC) AS b, percentile_disc(0.5) WITHIN GROUP (ORDER BY d) AS c,
        percentile_cont(0.3) WITHIN GROUP (ORDER BY d DESC) AS o, percentile_cont([0.2, 0.7]) WITHIN GROUP (
        ORDER BY (x * 1.37)::DECIMAL(18, 4) DESC) AS p,
        quantile_cont(f, 0.37) AS e, quantile_disc(f, 0.7) AS h FROM t""",
    "types": """SELECT g, quantile_cont((x * 1.37)::DECIMAL(18, 4), 0.43) AS a,
        quantile_cont(x::DECIMAL(4, 1), 0.81) AS b,
        quantile_cont((x * 1e14)::DECIMAL(18, 3), 0.77) AS c, quantile_cont(f::FLOAT, 0.3) AS e,
        quantile_cont(TIMESTAMP '2020-01-01 10:11:12.345' + to_minutes(x), 0.67) AS h, quantile_cont(d, 0.1) AS i,
        quantile_cont(TIME '10:00:00.123456' + to_seconds(abs(x)), 0.3) AS j, median(x > 3) AS k,
        quantile_cont(d::TIMESTAMPTZ, [0.5, 0.2, 0.9]) AS l, quantile_cont((x * 1e15)::BIGINT, 0.6) AS n
        FROM t GROUP BY g""",
    "deviations": """SELECT g, mad(x) AS a, mad(f) AS b, mad(f::FLOAT) AS c, mad((x * 1.37)::DECIMAL(18, 4)) AS e,
        mad(x::DECIMAL(4, 1)) AS h, mad(d) AS i, mad(x) FILTER (WHERE y > 0) AS j, mad(d::TIMESTAMPTZ) AS k,
        mad(TIMESTAMP '2020-01-01 10:11:12.345' + to_microseconds(x * x)) AS l, mad((x * 1e15)::BIGINT) AS n,
        mad(TIME '10:00:00.123456' + to_microseconds(x * x)) AS o, mad(d)::VARCHAR AS p FROM t GROUP BY g""",
    "one deviation": "SELECT mad(x) AS a, mad(f) AS b, median(x) AS c FROM t",
    "a join": """SELECT t.g, list(t.x ORDER BY u.z, t.x) AS a, mode({mode_of_join}) AS b, histogram(u.z) AS c,
        median(t.x) AS e FROM t JOIN u ON t.x = u.x GROUP BY t.g""",
    "several tables": """SELECT t.g, quantile_cont(t.x + u.z, 0.9) AS a, median(u.z) FILTER (WHERE t.y > 1) AS b
        FROM t JOIN u ON t.x = u.x GROUP BY t.g HAVING median(t.x) > 0""",
    "missing rows": """SELECT t.g, list(u.z ORDER BY u.z) AS a, median(u.z) AS b FROM t LEFT JOIN u ON t.x = u.x
        GROUP BY t.g""",
    "firsts": """SELECT g, first(x ORDER BY y{then_x}) AS a, last(x ORDER BY y{then_x}) AS b, sum(y) AS n,
        any_value(s ORDER BY y DESC, d, s) AS c, last(f ORDER BY y DESC NULLS FIRST, s{then_f}) AS e, max(x) AS m,
        last(d ORDER BY s{then_d}) FILTER (WHERE x > 0) AS h, arbitrary(DISTINCT x ORDER BY x DESC) AS j,
        first(f ORDER BY f NULLS FIRST) AS k FROM t GROUP BY g""",
    "structs": """SELECT g, list({{'x': x, 'l': [s, NULL]}} ORDER BY y, {{'x': x, 'l': [s, NULL]}}) AS a,
        last({{'d': d, 'f': f}} ORDER BY x, {{'d': d, 'f': f}}) AS b, list(DISTINCT [x, y] ORDER BY [x, y]) AS c,
        histogram({{'y': y}}) AS h, string_agg(to_json(s), ',' ORDER BY y, to_json(s)) AS j FROM t GROUP BY g""",
    "one first": "SELECT first(s ORDER BY x % 3{then_s}) AS a, last(x ORDER BY f{then_x}) AS b, count(*) AS n FROM t",
    "firsts of a join": """SELECT t.g, last(u.z ORDER BY t.y, t.s, u.z) AS a, first(t.s ORDER BY u.z DESC, t.s) AS b
        FROM t JOIN u ON t.x = u.x GROUP BY t.g""",
    "firsts within a range": """SELECT t.g, last(u.z ORDER BY u.x, u.z) AS a, first(t.s ORDER BY t.d, t.s) AS b
        FROM t JOIN u ON t.x >= u.x GROUP BY t.g""",
    "its own rows": """SELECT a.g, list(b.s ORDER BY b.s) AS l, median(b.x) AS m FROM t a JOIN t b ON a.x = b.y
        GROUP BY a.g""",
}
TOUCHED = {
    "distinct": "SELECT g, median(DISTINCT x) AS m FROM t GROUP BY g",
    "wide decimals": "SELECT g, quantile_cont(x::DECIMAL(30, 2), 0.3) AS m FROM t GROUP BY g",
    "wide deviations": "SELECT g, mad(x::DECIMAL(30, 2)) AS m, mad(x::HUGEINT) AS n FROM t GROUP BY g",
    "rounded ranks": "SELECT g, quantile_disc(x, 0.1::DOUBLE) AS m FROM t GROUP BY g",
    "types that Arrow has otherwise in lists": "SELECT g, list(x::HUGEINT ORDER BY x) AS l FROM t GROUP BY g",
}
ORDERS = {"mode": ("s", "s ORDER BY s"), "listed": ("x", "x ORDER BY x"), "mode_of_join": ("t.x", "t.x ORDER BY t.x")}
ORDERS |= {f"then_{name}": ("", f", {name}") for name in "xsfd"}
"""Orders that the views leave open, and how the oracle completes them."""
PLAIN, COMPLETED = ({name: orders[place] for name, orders in ORDERS.items()} for place in (0, 1))
WORDS = ("a", "b", "B", "", "é", "zz", "a string that is longer than a few bytes")
NUMBERS = ("0.0", "-1.5", "1e30", "'nan'", "'inf'", "'-inf'", "5e-324", "0.1", "7.25")


class Rows:
    """Random changes of the two tables."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def row(self) -> str:
        chance = self.chance
        values = (
            chance.randint(0, 2), chance.randint(-6, 6), chance.randint(0, 3), repr(chance.choice(WORDS)),
            chance.choice(NUMBERS), f"'20{chance.randint(10, 12)}-0{chance.randint(1, 9)}-1{chance.randint(0, 9)}'",
        )  # fmt: skip
        return "(" + ", ".join("NULL" if chance.random() < 0.12 else str(value) for value in values) + ")"

    def statement(self) -> str:
        chance, kind = self.chance, self.chance.random()
        if kind < 0.55:
            rows = [self.row() for _ in range(chance.randint(1, 6))]
            return f"INSERT INTO t VALUES {', '.join(rows + rows[: chance.randint(0, 1)])}"
        if kind < 0.75:
            return f"DELETE FROM t WHERE x = {chance.randint(-6, 6)} OR y IS NULL"
        if kind < 0.85:
            return f"UPDATE t SET x = x + 1, y = {chance.randint(0, 3)} WHERE g = {chance.randint(0, 2)} AND x < 5"
        if kind < 0.95:
            return f"INSERT INTO u VALUES ({chance.randint(-6, 6)}, {chance.choice(('NULL', chance.randint(0, 99)))})"
        return f"DELETE FROM u WHERE x = {chance.randint(-6, 6)}"


@pytest.fixture
def con():
    with sqlfront.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE t (g INT, x INT, y INT, s VARCHAR, f DOUBLE, d DATE)")
        connection.execute("CREATE TABLE u (x INT, z BIGINT)")
        yield connection


def check(con):
    for name, query in (QUERIES | TOUCHED).items():
        expected = sorted(map(repr, con.session.duck.execute(query.format(**COMPLETED)).fetchall()))
        for view in (name, f"over {name}"):
            assert sorted(map(repr, con.execute(f'FROM "{view}"').fetchall())) == expected, view


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 25))])
def test_every_epoch_has_duckdbs_answer(con, seed):
    """Values and types, to the last bit, after changes, undone transactions and emptying; a view over each follows."""
    rows, epochs = Rows(Random(seed)), 5 if seed == 0 else 24
    for name, query in (QUERIES | TOUCHED).items():
        plain = query.format(**PLAIN)
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {plain}')
        con.execute(f'CREATE MATERIALIZED VIEW "over {name}" AS FROM "{name}"')
        update = con.explain(f'"{name}"').to_dict()["cost"]["update"]
        assert ("touched groups" in update) == (name in TOUCHED), (name, update)
        types = con.session.duck.execute(f"DESCRIBE {query.format(**COMPLETED)}").fetchall()
        assert [row[:2] for row in con.execute(f'DESCRIBE "{name}"').fetchall()] == [row[:2] for row in types]
    for epoch in range(epochs):
        if epoch % 4 == 3:
            con.execute("BEGIN")
            con.execute(rows.statement())
            con.execute("ROLLBACK")
        for _ in range(rows.chance.randint(1, 4)):
            con.execute(rows.statement())
        check(con)
    for name in QUERIES:
        assert con.execute(f'CHECK MATERIALIZED VIEW "{name}"').fetchall() == []
    con.execute("DELETE FROM t")
    check(con)


RANKS = "median(x) AS m, quantile_cont(x, 0.95) AS a, quantile_disc(x, 0.99) AS b, mode(x) AS o"


@pytest.mark.parametrize(("aggregates", "logs", "slope"), [(RANKS, 1, 0.2), ("mad(x) AS m", 2, 0.3)])
def test_a_change_and_a_look_up_take_logarithmic_steps(con, aggregates, logs, slope):
    """One row into a group, and the group's values read, at 1,000 and at 64,000 rows of the group."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT g, {aggregates} FROM t GROUP BY g")
    assert con.explain("v").to_dict()["cost"]["delay"] == ("O(log N)" if logs == 1 else "O(log^2 N)")
    steps = {}
    for size in (1_000, 64_000):
        have = con.execute("SELECT count(*) FROM t").fetchall()[0][0]
        con.execute(f"INSERT INTO t (g, x) SELECT 0, hash(i) % 1000000007 FROM range({have}, {size}) r(i)")
        view, taken, read = con.view("v"), [], []
        for number in range(20):
            before = view.cost()
            con.execute("INSERT INTO t (g, x) VALUES (0, ?)", [number * 12_345_677])
            middle = view.cost()
            con.execute("SELECT * FROM v WHERE g = 0").fetchall()
            taken.append(middle["steps"] - before["steps"])
            read.append(view.cost()["read_steps"] - middle["read_steps"])
        steps[size] = (sum(taken), sum(read))
    for small, large in zip(steps[1_000], steps[64_000]):
        assert 0 < large < 20 * 40 * math.log2(64_000) ** logs, steps
        assert math.log(large / small) / math.log(64) < slope, steps


def test_deviations_of_all_small_groups_of_odd_numbers(con):
    numbers = ("-inf", "-1e30", "0", "5e-324", "2", "inf", "nan")
    groups = [group for size in range(1, 5) for group in itertools.combinations_with_replacement(numbers, size)]
    rows = [f"({number}, '{one}')" for number, group in enumerate(groups) for one in group]
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, mad(f) AS m, mad(f::FLOAT) AS n FROM t GROUP BY g")
    con.execute(f"INSERT INTO t (g, f) VALUES {', '.join(rows)}")
    expected = con.session.duck.execute("SELECT g, mad(f), mad(f::FLOAT) FROM t GROUP BY g").fetchall()
    found = dict(zip(map(repr, sorted(con.execute("FROM v").fetchall())), groups, strict=True))
    assert {one: group for one, group in found.items() if one not in set(map(repr, expected))} == {}


def test_deviations_of_times_round_halves_up_and_refuse_infinity(con):
    con.execute("CREATE TABLE times (g INT, ts TIMESTAMP)")
    query = "SELECT g, mad(ts) AS m, mad(ts)::VARCHAR AS s FROM times GROUP BY g"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    times = [1, 4, 4, 5, 8, 8, 13]
    for number, micros in enumerate(times):
        con.execute(
            "INSERT INTO times SELECT g, make_timestamp((? * 10 ** g + ?)::BIGINT) FROM range(3) r(g)",
            [micros, number % 2],
        )
        assert sorted(con.execute("FROM v").fetchall()) == sorted(con.session.duck.execute(query).fetchall())
    con.execute("INSERT INTO times VALUES (9, 'infinity'), (9, '2020-01-01'), (9, 'infinity')")
    with pytest.raises(sqlfront.Error, match="the median absolute deviation of infinite times"):
        con.execute("FROM v").fetchall()


def test_check_completes_orders_for_rows_that_tie(con):
    """DuckDB leaves open which of such rows comes first; a view takes the least, and CHECK asks for that."""
    con.execute("""CREATE MATERIALIZED VIEW v AS SELECT g, mode(x) AS m, list(x) AS l, string_agg(s) AS t,
        array_agg(x ORDER BY y) AS a FROM t GROUP BY g""")
    con.execute("INSERT INTO t (g, x, y, s) VALUES (1, 9, 1, 'z'), (1, 3, 1, 'b'), (1, 9, 2, 'a'), (1, 3, 0, 'b')")
    assert con.execute("FROM v").fetchall() == [(1, 3, [3, 3, 9, 9], "a,b,b,z", [3, 3, 9, 9])]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []

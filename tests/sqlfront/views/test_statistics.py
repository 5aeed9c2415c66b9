"""STDDEV, CORR, SKEWNESS and the like: exact sums, rounded once, against fractions and against DuckDB."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from random import Random
from typing import Any

import pytest

import sqlfront

Value = float | None
Rows = Sequence[tuple[Any, ...]]

ONE = ("var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev", "sem")
HIGH = ("skewness", "kurtosis", "kurtosis_pop")
TWO = (
    *("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_sxy", "regr_syy"),
    *("regr_avgx", "regr_avgy", "regr_count"),
)


def root(value: Fraction) -> float:
    """The square root, by decimals of 90 digits."""
    with localcontext() as context:
        context.prec = 90
        return float((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def of_one(name: str, values: Sequence[Fraction]) -> Value:
    """A statistic of finite values by its definition: the mean first, then the powers of the deviations."""
    n = len(values)
    if not n:
        return None
    mean = sum(values) / n
    second, third, fourth = (sum(((value - mean) ** power for value in values), Fraction()) for power in (2, 3, 4))
    if name in ("skewness", "kurtosis", "kurtosis_pop"):
        least = {"skewness": 3, "kurtosis": 4, "kurtosis_pop": 2}[name]
        if n < least or not second:
            return None
        if name == "skewness":
            found = root(third**2 * n**2 * (n - 1) / ((n - 2) ** 2 * second**3))
            return -found if third < 0 else found
        excess = n * fourth / second**2 - 3
        if name == "kurtosis_pop":
            return rounded(excess)
        return rounded(Fraction(n - 1, (n - 2) * (n - 3)) * ((n + 1) * (excess + 3) - 3 * (n - 1)))
    if name in ("var_samp", "variance", "stddev_samp", "stddev"):
        if n == 1:
            return None
        found = second / (n - 1)
    else:
        found = second / n / (n if name == "sem" else 1)
    return rounded(found) if name.startswith("var") else root(found)


def of_two(name: str, pairs: Sequence[tuple[Fraction, Fraction]]) -> Value:
    n = len(pairs)
    if not n:
        return 0 if name == "regr_count" else None
    mean_y, mean_x = (sum(values) / n for values in zip(*pairs, strict=True))
    sxx = sum(((x - mean_x) ** 2 for _, x in pairs), Fraction())
    syy = sum(((y - mean_y) ** 2 for y, _ in pairs), Fraction())
    sxy = sum(((x - mean_x) * (y - mean_y) for y, x in pairs), Fraction())
    match name:
        case "regr_count":
            return n
        case "regr_avgx" | "regr_avgy":
            return rounded(mean_x if name == "regr_avgx" else mean_y)
        case "covar_pop":
            return rounded(sxy / n)
        case "covar_samp":
            return rounded(sxy / (n - 1)) if n > 1 else None
        case "regr_sxx" | "regr_sxy" | "regr_syy":
            return rounded({"regr_sxx": sxx, "regr_sxy": sxy, "regr_syy": syy}[name])
        case "corr":
            found = root(sxy**2 / (sxx * syy)) if sxx and syy else math.nan
            return -found if sxy < 0 else found
        case "regr_slope":
            return rounded(sxy / sxx) if sxx else math.nan
        case "regr_intercept":
            return rounded(mean_y - sxy / sxx * mean_x) if sxx else None
    if not sxx:
        return None
    return rounded(sxy**2 / (sxx * syy)) if syy else 1.0


def grouped(rows: Rows) -> dict[Any, Rows]:
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for group, *values in rows:
        found.setdefault(group, []).append(tuple(values))
    return found


def is_same(found: Any, expected: Any, bits: int = 0) -> bool:
    """Whether two values are one, or but for the last `bits` of their digits."""
    if isinstance(found, float) and isinstance(expected, float):
        if math.isnan(found) or math.isnan(expected):
            return math.isnan(found) and math.isnan(expected)
        return found == expected or abs(found - expected) <= 2.0 ** (bits - 53) * max(abs(found), abs(expected))
    return type(found) is type(expected) and found == expected


TABLE = """
CREATE TABLE r (g INTEGER, i INTEGER, b BIGINT, h HUGEINT, d DECIMAL(15, 2), w DECIMAL(30, 3), f DOUBLE, e FLOAT);
"""
VALUES: dict[str, list[str]] = {
    "i": ["0", "1", "-7", "100", "2147483647", "-2147483648"],
    "b": ["0", "3", "-5", "9223372036854775807", "-9223372036854775808", "1000000007"],
    "h": ["0", "1", "-12345678901234567890123", "170141183460469231731687303715884105727"],
    "d": ["0", "0.01", "-1234567890123.89", "99.99"],
    "w": ["0", "0.001", "-123456789012345678901234567.891", "5.5"],
    "f": ["0.0", "0.1", "-2.5", "1e300", "-1e-300", "5e-324", "3.0", "1e16"],
    "e": ["0.0", "0.1", "-2.5", "3e38", "1e-45"],
}


def inserted(con: sqlfront.Connection, random: Random, rows: int, only: dict[str, list[str]] = VALUES) -> None:
    made = []
    for _ in range(rows):
        values = [random.choice([*only[column], "NULL"]) for column in VALUES]
        made.append(f"({random.choice(['0', '1', '2', 'NULL'])}, {', '.join(values)})")
    con.execute(f"INSERT INTO r VALUES {', '.join(made)}")


def changed(con: sqlfront.Connection, random: Random, only: dict[str, list[str]] = VALUES) -> None:
    """Some statement, or one that is undone: by an error, or by ROLLBACK."""
    match random.randrange(7):
        case 0 | 1:
            inserted(con, random, random.choice([1, 4]), only)
        case 2:
            con.execute(f"DELETE FROM r WHERE g = {random.randrange(3)} AND i > {random.choice([0, 50])}")
        case 3:
            con.execute(
                f"UPDATE r SET i = CAST(i / 2 AS INTEGER), f = f * 3, d = -d, g = {random.randrange(3)} WHERE b > 0"
            )
        case 4:
            con.execute("BEGIN")
            inserted(con, random, 3, only)
            con.execute("DELETE FROM r WHERE g = 1")
            con.execute("ROLLBACK")
        case 5:
            con.execute("CREATE MATERIALIZED VIEW u AS SELECT count(CASE WHEN i = 77 THEN error('77') END) AS n FROM r")
            with pytest.raises(sqlfront.Error):
                con.execute("INSERT INTO r VALUES (1, 77, 1, 1, 1, 1, 1, 1), (2, 77, 2, 2, 2, 2, 2, 2)")
            con.execute("DROP MATERIALIZED VIEW u")
        case _:
            con.execute(f"DELETE FROM r WHERE g IS NOT DISTINCT FROM {random.choice(['0', '1', '2', 'NULL'])}")


def exact(con: sqlfront.Connection, columns: str) -> dict[Any, Rows]:
    """The values of columns by group, as fractions."""
    rows = con.execute(f"SELECT g, {', '.join(columns)} FROM r").fetchall()
    return grouped([(g, *(None if value is None else Fraction(value) for value in values)) for g, *values in rows])


def checked(
    con: sqlfront.Connection,
    view: str,
    names: Sequence[str],
    expected: Callable[[str, Rows], Value],
    groups: dict[Any, Rows],
) -> None:
    found = {row[0]: row[1:] for row in con.execute(f"FROM {view}").fetchall()}
    assert found.keys() == groups.keys()
    for group, rows in groups.items():
        for name, value in zip(names, found[group], strict=True):
            bits = 2 if name.startswith("regr_avg") else 0  # AVG divides as DuckDB does.
            assert is_same(value, expected(name, rows), bits), (view, group, name, value, expected(name, rows), rows)


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    with sqlfront.connect() as opened:
        opened.execute(TABLE)
        yield opened


@pytest.mark.parametrize("column", VALUES)
def test_statistics_of_one_column_are_rounded_once(con: sqlfront.Connection, column: str) -> None:
    random, names = Random(column), (*ONE, *HIGH)
    items = ", ".join(f"{name}({column})" for name in names)
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(1)') AS SELECT g, {items} FROM r GROUP BY g")

    def expected(name: str, rows: Rows) -> Value:
        return of_one(name, [value for (value,) in rows if value is not None])

    for _ in range(10):
        changed(con, random)
        checked(con, "v", names, expected, exact(con, column))
    con.execute("DELETE FROM r")
    assert con.execute("FROM v").fetchall() == []


@pytest.mark.parametrize("columns", ["ib", "bb", "hi", "dd", "id", "wd", "ff", "fe", "fi"])
def test_statistics_of_two_columns_are_rounded_once(con: sqlfront.Connection, columns: str) -> None:
    random, (y, x) = Random(columns), columns
    items = ", ".join(f"{name}({y}, {x})" for name in TWO)
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(1)') AS SELECT g, {items} FROM r GROUP BY g")

    def expected(name: str, rows: Rows) -> Value:
        return of_two(name, [pair for pair in rows if None not in pair])

    for _ in range(10):
        changed(con, random)
        checked(con, "v", TWO, expected, exact(con, columns))
    con.execute("DELETE FROM r")
    assert con.execute("FROM v").fetchall() == []


TAME = {
    "i": ["0", "1", "-7", "100"], "b": ["0", "3", "-5"], "h": ["0", "1"], "d": ["0", "0.01", "-7.89", "99.99"],
    "w": ["0", "5.5", "-0.125"], "f": ["0.0", "0.1", "-2.5", "3.0"], "e": ["0.0", "0.5", "-2.5"],
}  # fmt: skip
WILD = TAME | {"f": ["1.0", "-2.5", "'nan'", "'inf'", "'-inf'"], "e": ["1.0", "0.5", "'nan'", "'inf'"]}
QUERIES = {
    "filters": "SELECT g, stddev(i) FILTER (WHERE b > 0) AS s, corr(f, d) FILTER (WHERE i <> 1) AS c, "
    "var_pop(CASE WHEN i > 0 THEN f END) AS v FROM r GROUP BY g HAVING count(*) > 1",
    "scalar": "SELECT stddev(i) AS s, regr_slope(i, b) AS m, kurtosis(d) AS k, count(*) AS n FROM r",
    "join": "SELECT r.g, stddev(r.i * t.y) AS s, covar_pop(r.i, t.y) AS c, skewness(r.b + t.y) AS k, "
    "var_samp(t.z) AS z, corr(r.f, t.z) AS q FROM r JOIN t ON r.b = t.b GROUP BY r.g",
    "self": "SELECT x.g, stddev(x.i) AS s, covar_samp(x.i, y.d) AS c FROM r x JOIN r y ON x.b = y.b GROUP BY x.g",
    "outer": "SELECT r.g, stddev(t.y) AS s, var_pop(t.z) AS z, regr_sxy(r.i, t.y) AS c "
    "FROM r LEFT JOIN t ON r.b = t.b GROUP BY r.g",
    "sets": "SELECT g, b, var_pop(i) AS s, regr_r2(f, i) AS q FROM r GROUP BY ROLLUP (g, b)",
    "mixed": "SELECT g, stddev(i) AS s, sum(i) AS t, avg(f) AS a, max(d) AS m FROM r GROUP BY g",
    "above": "SELECT s > 1 AS much, count(*) AS n FROM (SELECT g, stddev(f) AS s FROM r GROUP BY g) GROUP BY 1",
    "first": "SELECT g, stddev(f) AS s FROM r GROUP BY g ORDER BY s DESC NULLS LAST, g LIMIT 2",
}


def is_close(found: Any, expected: Any) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        if not math.isfinite(found) or not math.isfinite(expected):
            return is_same(found, expected)
        return abs(found - expected) <= 1e-9 * max(abs(found), abs(expected), 1)
    return type(found) is type(expected) and found == expected


def by_key(rows: Rows) -> list[tuple[Any, ...]]:
    """Rows sorted by what is no DOUBLE first: groups are told apart by it."""

    def key(row: tuple[Any, ...]) -> tuple[list[Any], list[str]]:
        exact = [value for value in row if not isinstance(value, float)]
        return [(value is None, str(value)) for value in exact], [repr(value) for value in row]

    return sorted(rows, key=key)


def assert_alike(found: Rows, expected: Rows, what: str) -> None:
    assert len(found) == len(expected), (what, found, expected)
    for one, other in zip(by_key(found), by_key(expected), strict=True):
        assert all(map(is_close, one, other)), (what, one, other)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("values", [TAME, WILD], ids=["tame", "wild"])
def test_native_statistics_equal_duckdbs(con: sqlfront.Connection, name: str, values: dict[str, list[str]]) -> None:
    query = QUERIES[name]
    if values is WILD and ("skewness" in query or "kurtosis" in query):
        query = query.replace("skewness", "stddev").replace("kurtosis", "var_samp")
    random = Random(f"{name} {len(values['f'])}")
    con.execute("CREATE TABLE t (b BIGINT, y INTEGER, z DOUBLE)")
    inserted(con, random, 20, values)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert "touched" not in str(con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall())
    for _ in range(9):
        changed(con, random, values)
        if random.random() < 0.5:
            z = random.choice(values["f"])
            con.execute(f"INSERT INTO t VALUES ({random.choice('035')}, {random.choice('1479')}, {z}), (3, NULL, 2)")
        elif random.random() < 0.5:
            con.execute(f"DELETE FROM t WHERE y = {random.choice('1479')}")
        assert_alike(con.execute("FROM v").fetchall(), con.execute(query).fetchall(), query)
    con.execute("DELETE FROM r")
    con.execute("DELETE FROM t")
    assert_alike(con.execute("FROM v").fetchall(), con.execute(query).fetchall(), query)


def test_the_statistics_of_one_infinite_row_are_duckdbs(con: sqlfront.Connection) -> None:
    shown = ", ".join(f"{function}(y, x) AS {function}" for function in TWO)
    query = f"SELECT g, {shown}, var_pop(x) AS var_pop FROM one GROUP BY g"
    con.execute(f"CREATE TABLE one (g INTEGER, y DOUBLE, x DOUBLE); CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO one VALUES (1, 'inf', 1), (2, 1, 'inf'), (3, 'inf', '-inf'), (4, 'nan', 1), (5, 1, 2)")
    kept, expected = (sorted(map(str, con.execute(asked).fetchall())) for asked in ("FROM v", query))
    assert kept == expected


def test_an_error_of_duckdbs_is_one_of_the_view(con: sqlfront.Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, skewness(f) AS s FROM r GROUP BY g")
    con.execute("INSERT INTO r (g, f) VALUES (1, 1), (1, 2), (1, 'nan'), (2, 1)")
    with pytest.raises(sqlfront.DataError, match="SKEWNESS of NaN or an infinity"):
        con.execute("FROM v").fetchall()
    con.execute("UPDATE r SET f = 4 WHERE isnan(f)")
    assert dict(con.execute("FROM v").fetchall()) == {1: pytest.approx(0.9352195295828246), 2: None}


@pytest.mark.parametrize(
    "query", ["SELECT kurtosis(i), skewness(i) FROM r", "SELECT g, kurtosis_pop(d) FROM r GROUP BY g"]
)
def test_digits_do_not_cancel(con: sqlfront.Connection, query: str) -> None:
    """DuckDB adds up fourth powers of 1,000,000,000; CHECK makes it take the deviations from the mean."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO r (g, i, d) SELECT k % 3, 1_000_000_000 + k % 7, 1e9 + k % 5 FROM range(60) AS t(k)")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert con.execute("FROM v").fetchone() != con.execute(query).fetchone()


def test_a_row_costs_the_same_in_a_large_group(con: sqlfront.Connection) -> None:
    steps = []
    for rows in (100, 10_000):
        con.execute("CREATE OR REPLACE CHANGE TABLE c (g INTEGER, i INTEGER, f DOUBLE)")
        con.execute(
            "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT g, stddev(i), kurtosis(f), bit_or(i) FROM c GROUP BY g"
        )
        con.execute(f"INSERT INTO c SELECT 1, k, k / 8 FROM range({rows}) AS t(k)")
        engine = con.session.database.engine
        [view] = engine.views.values()
        before = engine.describe(view)[-1].steps
        con.apply_row("c", (1, 5, 0.5))
        con.apply_row("c", (1, 5, 0.5), -1)
        steps.append(engine.describe(view)[-1].steps - before)
        con.execute("DROP MATERIALIZED VIEW v")
    assert steps[0] == steps[1] <= 10


def test_subscribers_are_told_the_groups_that_change(con: sqlfront.Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, stddev_pop(i) AS s, bool_or(i > 1) AS b FROM r GROUP BY g")
    con.execute("INSERT INTO r (g, i) VALUES (1, 1), (1, 3), (2, 5)")
    feed = con.cursor().execute("SUBSCRIBE TO v")
    assert len(feed.fetchall()) == 2
    con.execute("INSERT INTO r (g, i) VALUES (1, 5)")
    con.execute("DELETE FROM r WHERE g = 2")
    told = sorted(row[:4] for row in feed.fetchall())
    assert told == [
        (1, 1.0, True, "update_preimage"), (1, pytest.approx(1.632993161855452), True, "update_postimage"),
        (2, 0.0, True, "delete"),
    ]  # fmt: skip


def test_check_takes_what_duckdb_rounds_for_no_difference(con: sqlfront.Connection) -> None:
    """All pairs of a group: the correlation is 0, which DuckDB's updates miss."""
    con.execute("CREATE TABLE t (g INTEGER, y INTEGER)")
    query = "SELECT r.g, corr(r.i, t.y) AS c FROM r JOIN t ON r.g = t.g GROUP BY r.g"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO r (g, i) SELECT k % 2, k * 7 % 11 FROM range(20) AS s(k)")
    con.execute("INSERT INTO t SELECT k % 2, k * 5 % 13 FROM range(10) AS s(k)")
    assert con.execute("FROM v").fetchall() == [(0, 0.0), (1, 0.0)] != con.execute(query).fetchall()
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []

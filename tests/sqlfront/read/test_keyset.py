"""Keyset pagination: a page after given values begins where these are in the order, and is what DuckDB gives."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from sqlfront.maintenance.ranked.keyset_start import KeysetBound, KeysetStart
from sqlfront.read import lookups


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each query has been answered by the first rows of an order."""
    found: list[bool] = []
    scan = lookups._ordered_scan
    monkeypatch.setattr(lookups, "_ordered_scan", lambda *a: found.append((got := scan(*a)) is not None) or got)
    return found


VALUES = {
    "i": ("INTEGER", ["-3", "0", "1", "2", "7"]),
    "b": ("BIGINT NOT NULL", ["-9223372036854775808", "-1", "0", "9223372036854775807"]),
    "s": ("VARCHAR", ["''", "'a'", "'ab'", "'é'", "'b'", "'zz top'"]),
    "d": ("DATE", ["DATE '1969-05-05'", "DATE '2020-01-01'", "DATE '2020-01-02'"]),
    "n": ("DECIMAL(12, 2)", ["-1.50", "0", "2.25", "1234567890.12"]),
    "f": ("DOUBLE NOT NULL", ["0.1::DOUBLE", "-2.5::DOUBLE", "'inf'::DOUBLE", "1e300::DOUBLE"]),
    "u": ("UBIGINT", ["0", "18446744073709551615", "9223372036854775808"]),
    "h": ("HUGEINT", ["-170141183460469231731687303715884105728", "5", "18446744073709551616"]),
    "c": ("TIMESTAMP", [f"TIMESTAMP '{day} 10:00:00'" for day in ("2020-01-01", "1969-12-31", "2020-01-02")]),
}
ABSENT = {"i": "5", "s": "'absent'", "d": "DATE '2019-12-31'", "n": "1.99", "b": "77", "f": "3.0::DOUBLE"}


def after(items: list[tuple[str, str]], values: list[str], *, inclusive: bool, in_row: bool) -> str:
    """WHERE for the rows behind some values in an order of (column, direction)."""
    equal = "=" if inclusive else ""
    ways = ["<" if "DESC" in direction else ">" for _, direction in items]
    if in_row:
        columns = ", ".join(column for column, _ in items)
        return f"({columns}) {ways[0]}{equal} ({', '.join(values)})"
    found = []
    for place, ((column, _), way, value) in enumerate(zip(items, ways, values, strict=True)):
        same = [f"{other} = {known}" for (other, _), known in zip(items[:place], values[:place], strict=True)]
        last = equal if place == len(items) - 1 else ""
        found.append(" AND ".join([*same, f"{column} {way}{last} {value}"]))
    return " OR ".join(found)


@pytest.mark.parametrize("seed", range(6))
def test_pages_are_those_of_the_query(con: Any, served: list[bool], seed: int) -> None:
    """Random orders of columns with ties and NULLs, mixed directions, bounds of some of the columns, while rows change;
    where DuckDB has a total order, the pages are compared in order."""
    choose = random.Random(seed)
    con.execute(f"CREATE TABLE r ({', '.join(f'{name} {kind}' for name, (kind, _) in VALUES.items())})")

    def insert(count: int) -> None:
        rows = []
        for _ in range(count):
            row = [
                "NULL" if "NOT" not in kind and choose.random() < 0.2 else choose.choice(values)
                for kind, values in VALUES.values()
            ]
            rows.append(f"({', '.join(row)})")
        con.execute(f"INSERT INTO r VALUES {', '.join(rows)}")

    insert(150)
    ordered = choose.sample(list(VALUES), 4)
    mixed = seed % 2 == 0
    ways, places = (["ASC", "DESC"], ["FIRST", "LAST"]) if mixed else ([choose.choice(["ASC", "DESC"])], ["LAST"])
    items = [(name, f"{choose.choice(ways)} NULLS {choose.choice(places)}") for name in ordered]
    order = ", ".join(f"{name} {direction}" for name, direction in items)
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {', '.join(ordered)} FROM r ORDER BY {order}")
    used, some = 0, 0
    for _ in range(30):
        if choose.random() < 0.2:
            con.execute(f"DELETE FROM r WHERE {ordered[0]} = {choose.choice(VALUES[ordered[0]][1])} AND b < 0")
            insert(8)
        parts = items[: choose.randint(1, 4)]
        values = [
            ABSENT[name] if name in ABSENT and choose.random() < 0.2 else choose.choice(VALUES[name][1])
            for name, _ in parts
        ]
        in_row = not mixed and choose.random() < 0.5
        where = after(parts, values, inclusive=choose.random() < 0.5, in_row=in_row)
        query = f"SELECT * FROM v WHERE {where} ORDER BY {order} LIMIT {choose.choice([1, 4, 20, 500])}"
        served.clear()
        found = con.execute(query).fetchall()
        expected = con.session.duck.execute(
            query.replace("FROM v", f"FROM (SELECT {', '.join(ordered)} FROM r)")
        ).fetchall()
        assert found == expected, query
        used += served == [True]
        some += bool(found)
    assert used >= 8 and some >= 8, (used, some)


@pytest.mark.parametrize(
    ("query", "items"),
    [
        ("SELECT b, x, k FROM r", [("b", "DESC"), ("x", "ASC"), ("k", "DESC")]),
        ("SELECT r.b, k, y FROM r JOIN s ON r.b = s.b", [("b", "DESC"), ("k", "ASC"), ("y", "DESC")]),
    ],
)
def test_a_whole_view_is_paged_through(con: Any, served: list[bool], query: str, items: list[tuple[str, str]]) -> None:
    """Each page begins behind the last row of the one before, which others equal in the leading columns."""
    con.execute("CREATE TABLE r (b INT, x INT, k INT); CREATE TABLE s (b INT, y INT)")
    con.execute("INSERT INTO r SELECT range % 7, range % 3, range FROM range(120)")
    con.execute("INSERT INTO s SELECT range % 9, range FROM range(40)")
    order = ", ".join(f"{name} {way}" for name, way in items)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} ORDER BY {order}")
    expected = con.session.duck.execute(f"SELECT * FROM ({query}) AS q ORDER BY {order}").fetchall()
    page = found = con.execute(f"SELECT * FROM v ORDER BY {order} LIMIT 7").fetchall()
    served.clear()
    while page:
        where = after(items, [str(value) for value in found[-1]], inclusive=False, in_row=False)
        page = con.execute(f"SELECT * FROM v WHERE {where} ORDER BY {order} LIMIT 7").fetchall()
        found += page
    assert found == expected and all(served) and len(served) == -(-len(expected) // 7) + (len(expected) % 7 == 0)


def test_pages_of_the_rows_with_given_values(con: Any, served: list[bool], walks: list[RankedWalk]) -> None:
    """They end where others come, and cost what a page of all rows does."""
    con.execute("CREATE TABLE r (g VARCHAR, t INT, k INT)")
    con.execute("INSERT INTO r SELECT 'g' || range % 5, nullif(range % 70, 3), range FROM range(2000)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM r ORDER BY g, t DESC, k")
    for where in ("g = 'g3'", "g = 'none'", "g = 'g4' AND t = 9", "g = 'g3' AND t <= 13", "'g0' = g AND t < 1",
                  "g = 'g3' AND (t < 13 OR (t = 13 AND k > 400))", "g = 'g4' AND t = 9 AND k > 1500"):  # fmt: skip
        for limit in (2, 12, 500):
            for order in ("g, t DESC, k", "t DESC, k"):
                walks.clear()
                query = f"SELECT * FROM v WHERE {where} ORDER BY {order} LIMIT {limit}"
                expected = con.session.duck.execute(query.replace("FROM v", "FROM r")).fetchall()
                assert con.execute(query).fetchall() == expected, query
                assert [walk.steps < 60 + 6 * limit for walk in walks] == [True], query
    assert all(served)
    [view] = con.session.database.engine.views.values()
    bound = KeysetBound((("g", "g3"),), inclusive=True, nulls=False, fixed=1)
    walk = RankedWalk(view.ranked[0], KeysetStart(view.ranked[0], bound, bound.codes(view.codecs)))
    assert [walk.next(1000), walk.next(1000)] == [400, 0]


def test_sums_behind_the_bound_may_be_null(con: Any, served: list[bool]) -> None:
    """Rows whose sum is NULL are sorted among themselves, behind a start as well."""
    con.execute("CREATE TABLE r (b INT, x INT); CREATE TABLE s (b INT, y INT)")
    con.execute("INSERT INTO r SELECT i % 9, CASE WHEN i % 3 > 0 THEN i % 5 END FROM range(80) t(i)")
    con.execute("INSERT INTO s SELECT i % 11, i FROM range(40) t(i)")
    order = "b DESC, z NULLS FIRST, y"
    query = "SELECT r.b, x + y AS z, y FROM r JOIN s ON r.b = s.b"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} ORDER BY {order}")
    for bound in range(-1, 11):
        for limit in (3, 50):
            asked = f"SELECT * FROM v WHERE b <= {bound} ORDER BY {order} LIMIT {limit}"
            expected = con.session.duck.execute(asked.replace("FROM v", f"FROM ({query}) AS v")).fetchall()
            assert con.execute(asked).fetchall() == expected
    assert all(served) and len(served) == 24


def make_sums(con: Any, choose: random.Random, rows: int) -> None:
    con.execute("CREATE TABLE r (b INT, x BIGINT, n DECIMAL(9, 2)); CREATE TABLE s (b INT, y INT NOT NULL, k INT)")
    for table, row in (("r", "{0}, {1}, {2} / 4"), ("s", "{0}, {3}, {2}")):
        for _ in range(rows):
            values = [
                choose.randrange(6),
                choose.choice(["NULL", *range(-3, 4)]),
                choose.randrange(9),
                choose.randrange(5),
            ]
            con.execute(f"INSERT INTO {table} VALUES ({row.format(*values)})")


SUMS = {
    "b DESC, z, k": "SELECT r.b, x + y AS z, k, x FROM r JOIN s ON r.b = s.b",
    "z DESC, k, x": "SELECT x - y AS z, k, x, y FROM r JOIN s ON r.b = s.b",
    "z DESC, k DESC, b DESC": "SELECT n * 2 - y + 7 AS z, k, r.b, x FROM r JOIN s ON r.b = s.b",
    "z NULLS FIRST, k": "SELECT x + 3 * y AS z, k, n FROM r JOIN s ON r.b = s.b",
    "k, z DESC, x": "SELECT n + y AS z, k, x FROM r JOIN s ON r.b = s.b",
    "z, b, k": "SELECT n + y + 0.125 AS z, k, r.b FROM r JOIN s ON r.b = s.b",
}
BOUNDS = {"z": ["-1", "2", "3.5", "0.75", "7.125", "10", "4"], "k": ["1", "4", "7"], "b": ["1", "3"], "x": ["-1", "2"]}


@pytest.mark.parametrize("order", SUMS)
def test_pages_after_sums_are_those_of_the_query(con: Any, served: list[bool], order: str) -> None:
    """Sums over several tables, of decimals, NULLs and constants, beside values that they may not have."""
    choose, query, used, some = random.Random(order), SUMS[order], 0, 0
    make_sums(con, choose, 30)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} ORDER BY {order}")
    assert con.explain("v").to_dict()["orders"][0]["strategy"] == "ranked enumeration"
    items = [(item.split()[0], item) for item in order.split(", ")]
    for number in range(60):
        if number % 10 == 9:
            con.execute(f"DELETE FROM s WHERE b = {choose.randrange(6)} AND y = {choose.randrange(5)}")
            con.execute(f"INSERT INTO r VALUES ({choose.randrange(6)}, {choose.randrange(-3, 4)}, 1.25)")
        parts = items[: choose.randint(1, 3)]
        values = [choose.choice(BOUNDS[name]) for name, _ in parts]
        in_row = len({"DESC" in way for _, way in parts}) == 1 and choose.random() < 0.5
        where = after(parts, values, inclusive=choose.random() < 0.5, in_row=in_row)
        served.clear()
        asked = f"SELECT * FROM v WHERE {where} ORDER BY {order} LIMIT {choose.choice([1, 4, 20, 500])}"
        found = con.execute(asked).fetchall()
        plain = con.session.duck.execute(asked.replace("FROM v", f"FROM ({query}) AS v"))
        places = [[column[0] for column in plain.description].index(name) for name, _ in items]
        keys = [[tuple(row[place] for place in places) for row in rows] for rows in (found, plain.fetchall())]
        behind = con.session.duck.execute(f"SELECT * FROM ({query}) AS v WHERE {where}").fetchall()
        assert keys[0] == keys[1] and not Counter(found) - Counter(behind), asked
        used += served == [True]
        some += bool(found)
    assert used >= 15 and some >= 15, (used, some)


def test_rows_whose_sum_is_null_are_not_counted_behind_a_bound(con: Any, served: list[bool]) -> None:
    con.execute("CREATE TABLE r (b INT, x INT)")
    con.execute("INSERT INTO r VALUES (1, 1), (1, 2), (1, NULL), (1, NULL), (0, 5), (0, 6)")
    con.execute("CREATE TABLE s (b INT, y INT); INSERT INTO s VALUES (0, 0), (1, 0)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT r.b, x + y AS z FROM r JOIN s ON r.b = s.b ORDER BY b DESC, z")
    page = "FROM v WHERE b < 1 OR (b = 1 AND z > 1) ORDER BY b DESC, z LIMIT 3"
    assert con.execute(page).fetchall() == [(1, 2), (0, 5), (0, 6)] and served == [True]


def test_a_page_after_a_sum_costs_what_it_would_with_offset(con: Any, walks: list[RankedWalk]) -> None:
    """Rows before the bound are passed over, as long as that is sooner than to read all."""
    con.execute("CREATE TABLE r (b INT, x INT); CREATE TABLE s (b INT, y INT)")
    con.execute("INSERT INTO r SELECT range % 20, range FROM range(1000)")
    con.execute("INSERT INTO s SELECT range % 20, 1000 * range FROM range(1000)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT x + y AS z, x FROM r JOIN s ON r.b = s.b ORDER BY z DESC, x DESC")
    rows = con.session.duck.execute("SELECT x + y AS z, x FROM r, s WHERE r.b = s.b ORDER BY z DESC, x DESC").fetchall()
    spent = []
    for place in (0, 100, 1000, 2000):
        walks.clear()
        z, x = rows[place]
        page = con.execute(f"FROM v WHERE (z, x) < ({z}, {x}) ORDER BY z DESC, x DESC LIMIT 10").fetchall()
        assert page == rows[place + 1 : place + 11]
        spent.append(walks[0].steps)
    assert spent[0] < spent[1] < spent[2] < spent[3] < 40 * 2000, spent
    z, x = rows[40000]
    walks.clear()
    page = con.execute(f"FROM v WHERE (z, x) < ({z}, {x}) ORDER BY z DESC, x DESC LIMIT 10").fetchall()
    assert page == rows[40001:40011] and walks[0].steps < 2 * spent[3]


@pytest.mark.parametrize("epsilon", ["", "WITH (epsilon = 0.4) "])
def test_merged_trees_are_paged_through(con: Any, served: list[bool], epsilon: str) -> None:
    choose = random.Random(epsilon)
    for table in "rstu":
        con.execute(f"CREATE TABLE {table} (a INT, b INT, w INT)")
        pairs = choose.sample([(a, b) for a in range(5) for b in range(5)], 16)
        con.execute(f"INSERT INTO {table} VALUES {', '.join(f'({a}, {b}, {choose.randrange(5)})' for a, b in pairs)}")
    query = (
        "SELECT r.a, r.b, t.a AS c, t.b AS d, r.w + t.w AS z FROM r, s, t, u "
        "WHERE r.b = s.a AND s.b = t.a AND t.b = u.a AND u.b = r.a"
    )
    order = "z DESC, a, b, c, d"
    con.execute(f"CREATE MATERIALIZED VIEW v {epsilon}AS {query} ORDER BY {order}")
    expected = con.session.duck.execute(f"{query} ORDER BY {order}").fetchall()
    items = [(item.split()[0], item) for item in order.split(", ")]
    found = con.execute(f"FROM v ORDER BY {order} LIMIT 9").fetchall()
    while len(found) < len(expected):
        last = [str(found[-1][place]) for place in (4, 0, 1, 2, 3)]
        where = after(items, last, inclusive=False, in_row=False)
        page = con.execute(f"FROM v WHERE {where} ORDER BY {order} LIMIT 9").fetchall()
        assert page
        found += page
    assert found == expected and all(served) and len(expected) > 50


def test_a_late_page_costs_what_the_first_does(con: Any, walks: list[RankedWalk]) -> None:
    """Page 1,000 of a view, by steps; of many rows that are equal to the bound none is looked at where it excludes
    them; in a join, the root's columns are sought and what comes before the bound in others is passed over."""
    con.execute("CREATE TABLE r (t INT, a INT); INSERT INTO r SELECT range // 4, range % 4 FROM range(40000)")
    con.execute("INSERT INTO r SELECT 10000, range FROM range(5000); CREATE TABLE s (t INT, c INT)")
    con.execute("INSERT INTO s SELECT range, range % 3 FROM range(10001)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT t, a FROM r ORDER BY t DESC, a DESC")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT r.t, a, c FROM r JOIN s ON r.t = s.t ORDER BY t DESC, a DESC")

    def steps(view: str, where: str) -> int:
        walks.clear()
        query = f"SELECT t, a FROM {view} {where} ORDER BY t DESC, a DESC LIMIT 10"
        rows = con.execute(query).fetchall()
        assert rows == con.session.duck.execute(query.replace(f"FROM {view}", "FROM r")).fetchall() and len(rows) == 10
        [walk] = walks
        return walk.steps

    for view in "vw":
        first = steps(view, "")
        for t, a in ((9999, 2), (7500, 1), (20, 3)):
            assert steps(view, f"WHERE (t, a) < ({t}, {a})") < first + 90
            assert steps(view, f"WHERE t < {t} OR (t = {t} AND a < {a})") < first + 90
        assert steps(view, "WHERE t < 10000") < first + 90
    assert steps("v", "WHERE (t, a) < (10000, 9)") < 100
    assert steps("w", "WHERE (t, a) < (10000, 9)") > 2000
    assert [order["after"] for order in con.explain("v").to_dict()["orders"]] == [["t", "a"]]
    assert [order["after"] for order in con.explain("w").to_dict()["orders"]] == [["t"]]
    assert "The rows after given values of t are found without those before them." in str(con.explain("w"))


def test_what_is_no_place_in_the_order_is_read_in_full(con: Any, served: list[bool]) -> None:
    con.execute("CREATE TABLE r (t INT, a INT, s VARCHAR, f FLOAT, d DATE); CREATE TABLE q (a INT, x INT)")
    values = "i % 9, nullif(i % 5, 3), 'x' || (i % 3), i / 3, '2020-01-0' || (1 + i % 7)"
    con.execute(f"INSERT INTO r SELECT {values} FROM range(99) x(i)")
    con.execute("INSERT INTO q SELECT range % 5, range FROM range(9)")
    orders = "s, t; f; d DESC, t, a, s; a NULLS FIRST, t"
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (order_by = '{orders}') AS FROM r ORDER BY t DESC, a")
    con.execute("CREATE MATERIALIZED VIEW j AS SELECT t, r.a, x FROM r JOIN q ON r.a = q.a ORDER BY t + x, t")
    con.execute("CREATE MATERIALIZED VIEW l AS SELECT t, a FROM r ORDER BY t LIMIT 20")
    for view, where, order, kept in [
        ("v", "t < 5", "t DESC, a", True),
        ("v", "5 > t", "t DESC", True),
        ("v", "t < 5 OR (t = 5 AND a > 1)", "t DESC, a", True),
        ("v", "t < 5 OR (a > 1 AND 5 = t)", "t DESC, a", True),
        ("v", "s > 'x0' OR s = 'x0' AND t >= 3", "s, t", True),
        ("v", "(s, t) > ('x0', 3)", "s, t", True),
        ("v", "d < '2020-01-03'", "d DESC", True),
        ("v", "t = 5", "t DESC, a", True),
        ("v", "t = 5 AND a > 1", "a", True),
        ("v", "a >= 1 AND t = 5", "t, a", True),
        ("v", "d = '2020-01-03' AND t = 4 AND a > 1", "a, s", True),
        ("v", "t = 5 AND d < '2020-01-03'", "t DESC, d", False),
        ("v", "t = 5 AND t = 6", "t DESC", False),
        ("v", "t = 5 AND a > 1 AND s > 'x0'", "t DESC, a", False),
        ("v", "a = 1 AND t < 5", "t DESC", False),
        ("j", "t = 5", "t", False),
        ("v", "(d, t) < (DATE '2020-01-03', 4)", "d DESC, t", False),
        ("v", "d < TIMESTAMP '2020-01-03 10:00:00'", "d DESC", False),
        ("v", "(a, t) < (2, 7)", "a NULLS FIRST, t", False),
        ("v", "(a, t) > (2, 7)", "a NULLS FIRST, t", False),
        ("v", "(t, a) < (5, 1)", "t DESC, a", False),
        ("v", "t > 5", "t DESC", False),
        ("v", "t < 5.5", "t DESC", False),
        ("v", "t < 5 AND a > 1", "t DESC, a", False),
        ("v", "t < 5 OR (t = 4 AND a > 1)", "t DESC, a", False),
        ("v", "t < 5 OR (t = 5 AND s > 'x0')", "t DESC, a", False),
        ("v", "t <= 5 OR (t = 5 AND a > 1)", "t DESC, a", False),
        ("v", "t < 5 OR a > 1", "t DESC, a", False),
        ("v", "t < NULL", "t DESC", False),
        ("v", "t < a", "t DESC", False),
        ("v", "t < (SELECT 5)", "t DESC", False),
        ("v", "NOT t >= 5", "t DESC", False),
        ("v", "f > 7.1", "f", False),
        ("j", "t + x > 5", "t + x, t", False),
        ("l", "t > 1", "t", False),
    ]:
        served.clear()
        sorted_by = [item.split()[0] for item in order.split(", ")]
        found = con.execute(f"SELECT * FROM {view} WHERE {where} ORDER BY {order} LIMIT 17").df()[sorted_by]
        con.session.duck.execute(f"CREATE OR REPLACE TEMP TABLE plain AS FROM {view}")
        expected = con.session.duck.execute(f"SELECT * FROM plain WHERE {where} ORDER BY {order} LIMIT 17").df()[
            sorted_by
        ]
        assert found.equals(expected) and served == [kept], where


def test_a_greater_row_has_null_behind_it(con: Any, served: list[bool]) -> None:
    """DuckDB compares rows with NULL as the greatest value, and values with it as neither."""
    con.execute(
        "CREATE TABLE r (t INT, a INT); INSERT INTO r VALUES (1, 1), (1, NULL), (NULL, 1), (NULL, NULL), (1, 5)"
    )
    con.execute("CREATE MATERIALIZED VIEW v AS FROM r ORDER BY t, a")
    con.execute("CREATE MATERIALIZED VIEW w AS FROM r ORDER BY t DESC NULLS FIRST, a DESC NULLS FIRST")
    assert con.execute("FROM v WHERE (t, a) > (1, 1) ORDER BY t, a LIMIT 9").fetchall() == [
        (1, 5), (1, None), (None, 1), (None, None),
    ]  # fmt: skip
    assert con.execute("FROM v WHERE t > 1 OR (t = 1 AND a > 1) ORDER BY t, a LIMIT 9").fetchall() == [(1, 5)]
    down = "ORDER BY t DESC NULLS FIRST, a DESC NULLS FIRST LIMIT 9"
    assert con.execute(f"FROM w WHERE (t, a) <= (1, 5) {down}").fetchall() == [(1, 5), (1, 1)]
    assert served == [True] * 3


def test_parameters_transactions_and_strings_that_no_row_has(con: Any, served: list[bool]) -> None:
    con.execute("CREATE TABLE r (s VARCHAR, k INT); INSERT INTO r SELECT 's' || range % 5, range FROM range(20)")
    con.execute("CREATE MATERIALIZED VIEW v AS FROM r ORDER BY s, k DESC")
    page = "SELECT k FROM v WHERE s > ? OR (s = ? AND k < ?) ORDER BY s, k DESC LIMIT ?"
    assert con.execute(page, ["s3", "s3", 8, 3]).fetchall() == [(3,), (19,), (14,)]
    named = "SELECT k FROM v WHERE s > $s OR (s = $s AND k < $k) ORDER BY s, k DESC LIMIT 2"
    assert con.execute(named, {"s": "s22", "k": 8}).fetchall() == [(18,), (13,)]
    con.execute("BEGIN; INSERT INTO r VALUES ('s22', 100), ('s23', 101)")
    assert con.execute(named, {"s": "s22", "k": 101}).fetchall() == [(100,), (101,)]
    con.execute("ROLLBACK")
    assert con.execute(named, {"s": "s22", "k": 101}).fetchall() == [(18,), (13,)]
    assert served == [True] * 4


def test_under_a_collation_no_order_is_served(con: Any, served: list[bool]) -> None:
    con.execute("CREATE TABLE r (s VARCHAR); INSERT INTO r VALUES ('A'), ('a'), ('B'), ('b'), ('C')")
    con.execute("CREATE MATERIALIZED VIEW v AS FROM r ORDER BY s")
    con.execute("SET default_collation = 'nocase'")
    assert con.execute("FROM v WHERE s > 'b' ORDER BY s LIMIT 2").fetchall() == [("C",)]
    assert {s.lower() for (s,) in con.execute("FROM v ORDER BY s LIMIT 2").fetchall()} == {"a"}
    con.execute("RESET default_collation")
    assert con.execute("FROM v WHERE s > 'B' ORDER BY s LIMIT 2").fetchall() == [("C",), ("a",)]
    assert served == [False, False, True]

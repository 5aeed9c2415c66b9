"""ORDER BY GREATEST, LEAST and products of several tables' columns, in ranked trees."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import sqlfront
from sqlfront.cut.composed_items import natural_columns
from tests.following import is_query
from tests.sqlfront.views.test_ranked import check, joined, ranked, steps_read

JOIN = "FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c"
COLUMNS = "r.a, s.v, t.d"

# ORDER BY, and what settles it before the output columns: the second greatest, the factor beside a 0.
ORDERS = [
    ("greatest(r.w, s.w) DESC", "least(r.w, s.w) DESC"),
    ("least(r.w, t.w)", "greatest(r.w, t.w)"),
    ("greatest(r.w, s.w, t.w)", "list_sort([r.w, s.w, t.w])[2], list_sort([r.w, s.w, t.w])[1]"),
    ("r.a DESC, least(r.w, s.w, t.w, 3) DESC", ", ".join(f"list_sort([r.w, s.w, t.w])[{i}] DESC" for i in (1, 2, 3))),
    ("greatest(r.w, t.p) DESC", "least(r.w, t.p) DESC"),
    ("least(r.day, t.day) DESC", "greatest(r.day, t.day) DESC"),
    ("r.w * t.w DESC", "CASE WHEN r.w * t.w = 0 THEN r.w + t.w END DESC"),
    ("s.w * t.w", "CASE WHEN s.w * t.w = 0 THEN s.w + t.w END"),
    ("r.w * t.p DESC", "CASE WHEN r.w * t.p = 0 THEN r.w + t.p END DESC"),
]
NULLS = [
    ("greatest(r.a, s.v) DESC", "CASE WHEN r.a IS NOT NULL AND s.v IS NOT NULL THEN least(r.a, s.v) END DESC"),
    ("least(s.v, t.d)", "CASE WHEN s.v IS NOT NULL AND t.d IS NOT NULL THEN greatest(s.v, t.d) END"),
    (
        "greatest(r.a, t.d) NULLS FIRST",
        "CASE WHEN r.a IS NOT NULL AND t.d IS NOT NULL THEN least(r.a, t.d) END NULLS FIRST",
    ),
]


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


def make_tables(con: Any) -> None:
    con.execute("CREATE TABLE r (a INT, b INT, w INT NOT NULL CHECK (w >= 0), day DATE NOT NULL)")
    con.execute("CREATE TABLE s (b INT, c INT, v INT, w UTINYINT NOT NULL)")
    con.execute(
        "CREATE TABLE t (c INT, d INT, w BIGINT NOT NULL, p DECIMAL(7, 2) NOT NULL, day DATE NOT NULL, "
        "CHECK (w BETWEEN 0 AND 100 AND 0 <= p))"
    )


def change(rng: random.Random) -> str:
    def value(below: int) -> str:
        return "NULL" if rng.random() < 0.15 else str(rng.randrange(below))

    table, w, day = rng.choice("rst"), rng.randrange(4), f"DATE '2026-01-0{rng.randrange(1, 4)}'"
    if rng.random() < 0.65:
        row = {
            "r": f"{value(4)}, {value(2)}, {w}, {day}",
            "s": f"{value(2)}, {value(2)}, {value(4)}, {w}",
            "t": f"{value(2)}, {value(4)}, {w}, {rng.choice(['0', '0.5', '2', '3.25'])}, {day}",
        }[table]
        return f"INSERT INTO {table} VALUES " + ", ".join([f"({row})"] * rng.choice([1, 1, 2]))
    if rng.random() < 0.5:
        return f"DELETE FROM {table} WHERE rowid IN (SELECT min(rowid) FROM {table} WHERE w = {w})"
    return f"UPDATE {table} SET w = {w} WHERE {'c' if table == 't' else 'b'} = {rng.randrange(2)}"


@pytest.mark.parametrize("number", range(len(ORDERS) + len(NULLS)))
def test_random_streams_against_duckdb(con: Any, number: int) -> None:
    """After every change the view is what DuckDB's ORDER BY gives, ties settled, and its feed follows."""
    rng = random.Random(number)
    make_tables(con)
    for _ in range(25):
        con.execute(change(rng))
    order, ties = [*ORDERS, *NULLS][number]
    limit = rng.choice(["LIMIT 7", "LIMIT 5 OFFSET 2"])
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {COLUMNS} {JOIN} ORDER BY {order} {limit}")
    assert con.explain("v").to_dict()["orders"][0]["strategy"] == "ranked enumeration"
    feed, replayed, seen = con.view("v").subscribe(), Counter[Any](), set()
    for step in range(14):
        con.execute(change(rng) if step < 11 else f"DELETE FROM {'rst'[step - 11]}")
        expected = con.session.duck.execute(
            f"SELECT {COLUMNS} {JOIN} ORDER BY {order}, {ties}, 1, 2, 3 {limit}"
        ).fetchall()
        assert con.execute("SELECT * FROM v").fetchall() == expected, step
        assert con.view("v").top(3) == expected[:3]
        while (told := feed.poll()) is not None:
            for row in told.to_pylist():
                replayed[tuple(row.values())[:-3]] += 1 if row["_change_type"] == "insert" else -1
        assert +replayed == Counter(expected)
        if step % 5 == 0:
            assert is_query(con)
        check(con)
        seen.add(tuple(expected))
    assert len(seen) > 2


# Queries whose text cannot have the tie-breakers as they are written, or is printed from the term.
FIRST = "SELECT r.a, s.v, t.d, r.w, greatest(r.w, s.w, t.w) AS most FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c"
COMPUTED = [
    f"SELECT * FROM ({FIRST}) AS q ORDER BY most DESC LIMIT 4 OFFSET 1",
    f"SELECT *, median(d) OVER (PARTITION BY a) FROM ({FIRST} ORDER BY least(r.w, t.w), s.v LIMIT 5) AS q",
    f"SELECT *, median(d) OVER (PARTITION BY a) FROM ({FIRST} ORDER BY least(r.w, t.w) LIMIT 5) AS q",
    f"SELECT a, list(w ORDER BY w, d, v) FROM ({FIRST} ORDER BY r.w * t.w DESC LIMIT 6) AS q GROUP BY a",
    f"SELECT *, median(d) OVER (PARTITION BY a) FROM ({FIRST} QUALIFY row_number() OVER (PARTITION BY r.a "
    "ORDER BY greatest(r.w, t.w)) <= 2) AS q",
    f"SELECT v, median(w) FROM (SELECT * FROM ({FIRST} WHERE r.w > 0) AS p ORDER BY most LIMIT 7) AS q GROUP BY v",
]


@pytest.mark.parametrize("number", range(len(COMPUTED)))
def test_the_stored_query_settles_ties_as_the_view_does(con: Any, number: int) -> None:
    rng, seen = random.Random(number), set()
    make_tables(con)
    for _ in range(30):
        con.execute(change(rng))
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^2)') AS {COMPUTED[number]}")
    for _ in range(4):
        con.execute(change(rng))
        con.execute(change(rng))
        assert is_query(con)
        seen.add(str(con.execute("FROM v").fetchall()))
    assert len(seen) > 1


def test_a_self_join_and_extreme_values(con: Any) -> None:
    """Codes that stand for others, NaN and infinity are in DuckDB's order; groups of a QUALIFY too."""
    con.execute("CREATE TABLE e (k INT, w BIGINT NOT NULL, f DOUBLE NOT NULL)")
    con.execute(
        f"INSERT INTO e VALUES (1, {-(2**63)}, 'nan'), (1, {-(2**63) + 1}, 'inf'), (1, 0, '-inf'), (2, {2**63 - 1}, -1)"
    )
    con.execute("INSERT INTO e VALUES (1, -1, 0.0), (2, 5, 1e-300), (1, 0, 2.5)")
    for column in "wf":
        for form, other in (("greatest", "least"), ("least", "greatest")):
            for way in ("", "DESC"):
                query = f"SELECT a.{column}, b.{column} AS o FROM e a JOIN e b USING (k)"
                order = f"{form}(a.{column}, b.{column}) {way}"
                settled = f"{order}, {other}(a.{column}, b.{column}) {way}, 1, 2"
                con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query} ORDER BY {order} LIMIT 9")
                assert con.explain("v").to_dict()["strategy"] == "ranked enumeration"
                expected = con.session.duck.execute(f"{query} ORDER BY {settled} LIMIT 9").fetchall()
                assert repr(con.execute("FROM v").fetchall()) == repr(expected)
    window = "row_number() OVER (PARTITION BY a.k ORDER BY greatest(a.w, b.w) DESC{}) <= 2"
    query = "SELECT a.w, b.w AS o FROM e a JOIN e b USING (k) QUALIFY "
    con.execute(f"CREATE MATERIALIZED VIEW q AS {query}{window.format('')}")
    settled = query + window.format(", least(a.w, b.w) DESC, 1, 2".replace("1, 2", "a.w, b.w"))
    assert con.execute("FROM q ORDER BY ALL").fetchall() == sorted(con.session.duck.execute(settled).fetchall())
    assert con.execute("CHECK MATERIALIZED VIEW q").fetchall() == []


def test_large_products(con: Any) -> None:
    """Beyond 64 bits, as their factors say."""
    con.execute("CREATE TABLE r (k INT, p BIGINT NOT NULL CHECK (p > 0)); CREATE TABLE s (k INT, q UINTEGER NOT NULL)")
    big = 2**63 - 1
    con.execute(f"INSERT INTO r VALUES (1, {big}), (1, {big - 1}), (1, 3), (1, 1); INSERT INTO s VALUES (1, 0), (1, 1)")
    con.execute(f"INSERT INTO s VALUES (1, {2**32 - 1}), (1, {2**32 - 2})")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT p, q FROM r, s WHERE r.k = s.k ORDER BY p * q DESC LIMIT 16")
    pairs = [(p, q) for p in (big, big - 1, 3, 1) for q in (0, 1, 2**32 - 1, 2**32 - 2)]
    assert con.view("v").top(16) == sorted(pairs, key=lambda pair: (-pair[0] * pair[1], -pair[0] if not pair[1] else 0))


def test_it_is_kept_over_reopening(tmp_path: Any) -> None:
    path = str(tmp_path / "orders.duckdb")
    with sqlfront.connect(path) as con:
        make_tables(con)
        for table, rest in (("r", "DATE '2026-01-01'"), ("t", "2, DATE '2026-01-01'")):
            con.execute(f"INSERT INTO {table} SELECT range % 3, range % 2, range, {rest} FROM range(9)")
        con.execute(
            "CREATE MATERIALIZED VIEW g AS SELECT r.a, t.d FROM r, t WHERE r.b = t.c "
            "ORDER BY greatest(r.w + 1, t.w) LIMIT 9"
        )
        con.execute(
            "CREATE MATERIALIZED VIEW p AS SELECT r.a, r.w * t.w AS m FROM r, t WHERE r.b = t.c ORDER BY m LIMIT 9"
        )
        before = {view: con.view(view).top(9) for view in "gp"}
    with sqlfront.connect(path) as con:
        for view in "gp":
            assert con.view(view).top(9) == before[view]
            assert con.explain(view).to_dict()["strategy"] == "ranked enumeration"
            assert is_query(con, view)


@pytest.mark.parametrize("order", ["greatest(r.w, s.w, t.w) DESC", "least(r.w, s.w, t.w)", "r.w * t.w DESC"])
def test_reads_do_not_feel_the_size_of_the_join(order: str) -> None:
    reads = []
    for groups in (400, 90):
        with joined(groups, order, "UINTEGER NOT NULL") as con:
            assert ranked(con, "v").order.terms
            reads.append([steps_read(con, "v", k) for k in (10, 100, 1000)])
    for small, large in zip(*reads, strict=True):
        assert large <= 3 * small, reads


SORTED = {
    "r.w * s.v": "s.v is not known to be 0 or more (declare CHECK (column >= 0) or an unsigned type)",
    "r.w * t.w, r.a": "rows that tie in (r.w * t.w) are ordered by what comes after it",
    "greatest(r.a, s.v)": "NULL in a GREATEST is not in its place part by part (declare the columns NOT NULL)",
    "least(r.a, s.v) DESC": "NULL in a LEAST is not in its place part by part (declare the columns NOT NULL)",
    "greatest(r.w, s.w), t.w": "rows that tie in greatest(r.w, s.w) are ordered by what comes after it",
    "greatest(r.w + s.w, t.w)": "(r.w + s.w) in it is over several tables",
    "greatest(r.a::VARCHAR, s.v::VARCHAR) DESC": "compared as VARCHAR, of which no such order is kept",
    "r.w * s.w * t.w": "(r.w * s.w) in it is over several tables",
}


@pytest.mark.parametrize("order", SORTED)
def test_what_is_sorted_says_why(con: Any, order: str) -> None:
    make_tables(con)
    con.execute("INSERT INTO r SELECT range % 3, 1, range % 4, DATE '2026-01-01' FROM range(9)")
    con.execute("INSERT INTO s SELECT 1, 1, 2 - range, range FROM range(4)")
    con.execute("INSERT INTO t SELECT 1, range, range, range, DATE '2026-01-01' FROM range(4)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {COLUMNS} {JOIN} ORDER BY {order} LIMIT 9")
    [told] = con.explain("v").to_dict()["orders"]
    assert told["strategy"] == "sorted when read" and SORTED[order] in told["reason"]
    expected = con.session.duck.execute(f"SELECT {COLUMNS} {JOIN} ORDER BY {order}, 1, 2, 3 LIMIT 9").fetchall()
    assert con.execute("FROM v").fetchall() == expected


def test_which_columns_a_check_keeps_from_being_negative() -> None:
    assert natural_columns(["(x >= 0)", "((y > 1.5) AND (0 <= z))", "(W BETWEEN 0 AND 9)"]) == {"x", "y", "z", "w"}
    assert natural_columns(["(x >= -1)", "(x <= 5)", "((x > 0) OR (y > 0))", "(x > y)", "(x > 'a')"]) == frozenset()

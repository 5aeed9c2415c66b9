"""Rows without a partner: what a change costs, what refuses it, what EXPLAIN says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import sqlfront

LEFT = "SELECT l.k, l.x, r.y FROM l LEFT JOIN r ON l.k = r.k"
STATEMENTS = (
    "INSERT INTO l VALUES (1, 1), (1, 1), (2, 5), (NULL, 3), (3, NULL)",
    "INSERT INTO r VALUES (1, 2)",
    "INSERT INTO r VALUES (NULL, 4)",
    "INSERT INTO r VALUES (1, 0), (2, NULL), (4, 4)",
    "DELETE FROM r WHERE k IS NULL",
    "DELETE FROM l WHERE k = 2",
    "UPDATE r SET k = NULL WHERE k = 1",
    "DELETE FROM r",
    "INSERT INTO r VALUES (NULL, NULL)",
    "DELETE FROM l",
)
SCALAR = "SELECT x, (SELECT y FROM r WHERE r.k = l.k) AS y FROM l"


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    connection.execute("CREATE TABLE l (k INTEGER, x INTEGER); CREATE TABLE r (k INTEGER, y INTEGER)")
    yield connection
    connection.close()


def agree(con: sqlfront.Connection, query: str) -> bool:
    expected = con.session.duck.execute(query).fetchall()
    return Counter(con.execute("SELECT * FROM v").fetchall()) == Counter(expected)


@pytest.mark.parametrize(
    "query",
    [
        LEFT,
        "SELECT l.k, l.x, r.k AS rk, r.y FROM l FULL JOIN r ON l.k = r.k",
        "SELECT * FROM l ANTI JOIN r ON l.k = r.k",
        "SELECT * FROM l WHERE k NOT IN (SELECT k FROM r)",
        "SELECT k, k IN (SELECT k FROM r) AS m FROM l",
        "SELECT k, (k, x) IN (SELECT k, y FROM r) AS m FROM l",
        "SELECT k FROM l WHERE (k, x) NOT IN (SELECT k, y FROM r)",
        "SELECT k, x > ANY (SELECT y FROM r) AS m FROM l",
        "SELECT k, x, (SELECT max(y) FROM r WHERE r.k = l.k AND r.y < l.x) AS m FROM l",
        "SELECT k, x, NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.y < l.x) AS m FROM l",
        "SELECT k FROM l EXCEPT SELECT k FROM r",
        "SELECT k FROM l EXCEPT ALL SELECT k FROM r",
        "SELECT k FROM l INTERSECT ALL SELECT k FROM r",
        "SELECT * FROM l WHERE x >= ALL (SELECT y FROM r WHERE r.k = l.k)",
    ],
)
def test_null_keys_empty_sides_and_copies(con: sqlfront.Connection, query: str) -> None:
    """Each NULL, each first and each last partner: the worked cases of three-valued logic."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for statement in STATEMENTS:
        con.execute(statement)
        assert agree(con, query), statement


@pytest.mark.parametrize(
    "query",
    [
        f"{LEFT} AND r.y <= l.x",
        "SELECT l.x, r.y FROM l LEFT JOIN r ON l.k IS NOT DISTINCT FROM r.k AND r.y + l.x > 4 AND r.y > 1",
        "SELECT l.x, r.y FROM l FULL JOIN r ON l.k = r.k AND r.y > l.x",
        "SELECT l.k, l.x FROM l ANTI JOIN r ON l.k = r.k AND r.y + l.x > 4",
    ],
)
def test_partners_by_comparisons(con: sqlfront.Connection, query: str) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert "looks its partners up by the compared values" in con.explain("v").to_dict()["reason"]
    for statement in STATEMENTS:
        con.execute(statement)
        assert agree(con, query), statement


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM l WHERE 1 IN (SELECT sum(k) FROM r)",
        "SELECT min(1) AS m, 1 * 2 AS two FROM l WHERE 1 IN (SELECT sum(k) FROM r) GROUP BY 1 * 2",
        "SELECT k FROM l LEFT JOIN (SELECT sum(k) FROM r HAVING sum(k) = 1) ON true",
        "WITH w AS (SELECT sum(k) FROM r HAVING sum(k) = 1) SELECT k FROM l, w, w AS w2",
        "SELECT count(*) AS n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE k = 1 GROUP BY y)",
        "SELECT min(1) AS m FROM l JOIN r ON l.x + r.y > 2",
        "SELECT DISTINCT 1 AS one FROM l, r WHERE l.k = r.k OR l.x = r.y",
        "SELECT median(1) AS m FROM l, r WHERE l.k = r.k OR l.x IS NULL",
    ],
)
def test_blocks_of_which_no_column_is_read(con: sqlfront.Connection, query: str) -> None:
    con.execute("INSERT INTO l VALUES (1, 1), (2, 2), (2, 2)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for statement in ("INSERT INTO r VALUES (1, 1)", "INSERT INTO r VALUES (3, 1)", "DELETE FROM r WHERE k = 3",
                      "DELETE FROM l WHERE k = 1", "DELETE FROM r", "DELETE FROM l"):  # fmt: skip
        assert agree(con, query)
        con.execute(statement)
    assert agree(con, query)


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_change_costs_what_it_changes(con: sqlfront.Connection, size: int) -> None:
    con.execute(
        f"INSERT INTO l SELECT i, i FROM range({size}) t(i); INSERT INTO r SELECT i, i FROM range({size // 2}) t(i)"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {LEFT}")
    before = con.view("v").cost()["steps"]
    for statement in ("INSERT INTO l VALUES (1, 7)", "INSERT INTO r VALUES (99, 7)", "DELETE FROM r WHERE k = 1"):
        con.execute(statement)
    assert con.view("v").cost()["steps"] - before < 250


def test_a_scalar_subquery_of_two_rows_refuses_the_change_that_asks_for_them(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {SCALAR}")
    con.execute("INSERT INTO l VALUES (1, 1); INSERT INTO r VALUES (1, 5), (2, 6), (2, 7)")
    for statement in ("INSERT INTO r VALUES (1, 6)", "INSERT INTO l VALUES (2, 2)"):
        with pytest.raises(sqlfront.DataError, match=r"materialized view v cannot compute a row"):
            con.execute(statement)
        assert agree(con, SCALAR)
    con.execute("DELETE FROM r WHERE y = 7; INSERT INTO l VALUES (2, 2)")
    assert agree(con, SCALAR)


def test_one_row_within_bounds(con: sqlfront.Connection) -> None:
    query = "SELECT k, x, (SELECT y FROM r WHERE r.k = l.k AND r.y < l.x) AS y FROM l"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO l VALUES (1, 5), (1, 9), (2, NULL); INSERT INTO r VALUES (1, 4), (1, 10), (1, NULL)")
    assert agree(con, query)
    with pytest.raises(sqlfront.DataError, match="More than one row returned by a subquery"):
        con.execute("INSERT INTO r VALUES (1, 8)")
    con.execute("DELETE FROM l WHERE x = 9; INSERT INTO r VALUES (1, 8)")
    assert agree(con, query)


def test_check_knows_which_of_tied_rows_are_first(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {SCALAR.replace(' FROM l', ', k FROM l')} ORDER BY k LIMIT 3")
    con.execute("INSERT INTO l SELECT 1, 9 - i FROM range(9) t(i)")
    assert con.execute("SELECT x FROM v ORDER BY x").fetchall() == [(1,), (2,), (3,)]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_a_subquery_that_means_any_of_its_rows_is_refused(con: sqlfront.Connection) -> None:
    con.execute("SET scalar_subquery_error_on_multiple_rows = false")
    with pytest.raises(sqlfront.NotSupportedError, match="which of several rows it means is left open"):
        con.execute(f"CREATE MATERIALIZED VIEW v AS {SCALAR}")


def test_rows_of_many_values_that_may_be_null_are_refused(con: sqlfront.Connection) -> None:
    query = "SELECT (k, x, k) IN (SELECT k, y, y FROM r) AS m FROM l"
    with pytest.raises(sqlfront.NotSupportedError, match="more than two of its comparisons may be NULL"):
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")


def test_sides_are_compared_as_duckdb_compares_them(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE d (a DECIMAL(18, 3)); CREATE TABLE f (b DOUBLE)")
    query = "SELECT a, b FROM d FULL JOIN f ON a = b"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO d VALUES (0.1), (100000000000000.001), (NULL); INSERT INTO f VALUES (0.1), (1e14), (NULL)")
    assert agree(con, query)


def test_explain_tells_how_rows_without_partners_are_kept(con: sqlfront.Connection) -> None:
    told: dict[str, Any] = {
        LEFT: "a left join is an optional child: a row without a partner meets a row of NULLs, which is not stored",
        f"{LEFT} AND l.x < r.y": "looks its partners up by the compared values of its left side",
        "SELECT k FROM l ANTI JOIN r USING (k)": "an anti join is an absent child",
        "SELECT k FROM l EXCEPT SELECT k FROM r": "those stay that the second has not",
        "SELECT l.k FROM l, r WHERE l.x * r.y > 3": "is computed for the changed rows of their join",
    }
    for query, words in told.items():
        assert words in con.explain(query).to_dict()["reason"]


def test_explain_names_ranges_for_alternatives_that_are_none(con: sqlfront.Connection) -> None:
    either = "SELECT l.k FROM l, r WHERE l.x < r.y OR l.x < r.k"
    assert "`t < greatest(a, b)`" in con.explain(either).to_dict()["reason"]
    one = con.explain("SELECT l.k FROM l, r WHERE l.x < greatest(r.y, r.k)").to_dict()
    assert "no combinations of rows of both sides are stored" in one["reason"] and one["cost"]["space"] == "O(N)"
    many = " OR ".join(f"l.k < r.k + {one}" for one in range(9))
    assert "UNION ALL" in con.explain(f"SELECT l.k FROM l, r WHERE {many} OR l.x = r.y").to_dict()["reason"]


def test_explain_names_ranges_for_differences_that_are_rounded(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE d (x DOUBLE); CREATE TABLE f (y DOUBLE)")
    for condition in ("d.x - f.y < 5", "abs(d.x - f.y) <= 5", "2 >= abs(f.y - d.x)", "d.x - f.y BETWEEN 1 AND 2"):
        told = con.explain(f"SELECT d.x FROM d, f WHERE {condition}").to_dict()["reason"]
        assert "`a < b + c`" in told, condition
    for condition in ("d.x * f.y < 5", "d.x - 1 < f.y * d.x"):
        assert "`a < b + c`" not in con.explain(f"SELECT d.x FROM d, f WHERE {condition}").to_dict()["reason"]
    one = con.explain("SELECT d.x FROM d, f WHERE d.x BETWEEN f.y - 5 AND f.y + 5").to_dict()
    assert "no combinations of rows of both sides are stored" in one["reason"]


def test_an_open_end_is_an_alternative_of_its_own(con: sqlfront.Connection) -> None:
    """The pairs without an end, and those before it, are each a range: no rows of the join are met and left out."""
    query = "SELECT l.k, {} FROM l, r WHERE l.k >= r.k AND (r.y IS NULL OR l.k < r.y)"
    rows = con.explain(query.format("r.y")).to_dict()["reason"]
    assert "the parts have nothing in common" in rows and "computed for the changed rows" not in rows
    other = con.explain("SELECT l.k FROM l, r WHERE r.k IS NULL OR l.k < r.y").to_dict()["reason"]
    assert "the parts have nothing in common" in other  # Both alternatives may be met.
    counts = con.explain(f"{query.format('count(*) AS n')} GROUP BY l.k").to_dict()
    assert "the parts have nothing in common" in counts["reason"] and "a block's result" not in counts["cost"]["space"]

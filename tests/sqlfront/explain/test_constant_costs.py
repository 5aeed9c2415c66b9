"""What EXPLAIN states of views that join constant rows: the changes of their tables, as counted steps show."""

from __future__ import annotations

import warnings

import pytest

import sqlfront

V = "(VALUES (1, 2), (2, 3), (1, 5)) v(k, x)"
QUERIES = {
    "groups": (f"SELECT x, count(*) AS n FROM t JOIN {V} ON v.k = t.a GROUP BY x", "O(1)"),
    "distinct": (f"SELECT DISTINCT t.b, v.x FROM t JOIN {V} ON v.k = t.a", "O(1)"),
    "range": ("SELECT i, count(*) AS n FROM t, range(20) r(i) WHERE t.a <= i GROUP BY i", "O(log N)"),
    "greatest": (f"SELECT v.x, max(t.b) AS n FROM t, {V} WHERE v.k = t.a GROUP BY v.x", "O(log N)"),
    "first rows": (f"SELECT t.b, v.x FROM t, {V} WHERE v.k = t.a ORDER BY v.x + t.b LIMIT 3", "O(log N)"),
    "a block": (
        f"SELECT t.b, q.m FROM t JOIN (SELECT k, max(x) AS m FROM {V} GROUP BY k) q ON q.k = t.a WHERE t.a > 0", "O(1)"
    ),
}  # fmt: skip


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute("CREATE CHANGE TABLE t (a BIGINT, b BIGINT); CREATE CHANGE TABLE u (a BIGINT)")
        yield connection


def steps(con, rows, query):
    """The steps of ten changes of the view over so many rows."""
    con.execute(f"TRUNCATE t; INSERT INTO t SELECT i % 3, i FROM range({rows}) s(i)")
    con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
    for number in range(10):
        con.apply_row("t", (1, rows + number))
    return con.view("v").cost()["steps"]


@pytest.mark.parametrize("name", QUERIES)
def test_counted_steps_are_what_explain_states(con, name):
    query, update = QUERIES[name]
    assert con.explain(query).to_dict()["cost"]["update"] == update
    few, many = steps(con, 30, query), steps(con, 3000, query)
    assert many <= (1.2 if update == "O(1)" else 3) * few
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_at_worst_and_the_warning_leave_constant_rows_out(con):
    query = f"SELECT v.x, max(t.b) AS n FROM t, {V} WHERE v.k = t.a GROUP BY v.x"
    con.execute("INSERT INTO t SELECT i % 3, i FROM range(20000) s(i)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute(f"CREATE MATERIALIZED VIEW w WITH (at_worst = 'O(log N)') AS {query}")
    assert list(con.explain("v").to_dict()["steps"]["by table"]) == ["t"]


def test_tables_beside_constant_rows_still_cost_what_they_did(con):
    query = f"SELECT v.x, count(*) AS n FROM t, u, {V} WHERE v.k = t.a AND u.a = t.b GROUP BY v.x"
    assert con.explain(query).to_dict()["cost"]["update"] == "O(N)"
    with pytest.raises(sqlfront.NotSupportedError, match="at_worst"):
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(1)') AS {query}")


def test_explain_says_why(con):
    text = str(con.explain(QUERIES["groups"][0]))
    assert "the rows of v never change, and the query fixes their number" in text


def test_keys_are_enough_beside_constant_rows(con):
    """A customer's row, an order's and an item's each meet one row of the others, however many items an order has."""
    con.execute("CREATE CHANGE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR)")
    con.execute("CREATE CHANGE TABLE orders (oid BIGINT PRIMARY KEY, id BIGINT)")
    con.execute("CREATE CHANGE TABLE items (oid BIGINT, p BIGINT, a BIGINT)")
    joined = f"items JOIN orders USING (oid) JOIN customers USING (id) JOIN {V} ON v.k = items.a"
    query = f"SELECT name, sum(p) AS s FROM {joined} GROUP BY name"
    assert con.explain(query).to_dict()["cost"]["update"] == "O(1)"
    found = []
    for rows in (100, 10_000):
        con.execute("TRUNCATE customers; TRUNCATE orders; TRUNCATE items")
        con.execute("INSERT INTO customers VALUES (1, 'Ada'); INSERT INTO orders VALUES (1, 1)")
        con.execute(f"INSERT INTO items SELECT 1, i, i % 4 FROM range({rows}) t(i)")
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        for table, row in (("customers", (1, "Ada")), ("orders", (1, 1)), ("items", (1, 2, 2))):
            con.apply_row(table, row, weight=-1)
            con.apply_row(table, row)
        found.append(con.view("v").cost()["steps"])
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    assert found[1] <= 1.2 * found[0], found

"""EXPLAIN (ALGEBRA): the term of a query after each rule that changed it."""

from __future__ import annotations

import re
from typing import Any

import pytest

import sqlfront


@pytest.fixture
def con() -> Any:
    with sqlfront.connect() as found:
        found.execute("CREATE TABLE orders (o BIGINT PRIMARY KEY, customer VARCHAR)")
        found.execute("CREATE TABLE items (o BIGINT, price INTEGER)")
        yield found


def steps(con: Any, query: str) -> dict[str, str]:
    result = con.execute(f"EXPLAIN (ALGEBRA) {query}")
    assert [column[0] for column in result.description] == ["rule", "term"]
    return dict(result.fetchall())


def test_each_rule_shows_its_term(con: Any) -> None:
    found = steps(con, "SELECT o, sum(price) AS total FROM orders LEFT JOIN items USING (o) WHERE price > 3 GROUP BY o")
    assert list(found) == ["as written", "turn outer into inner", "prune columns", "push filters"]
    assert found["as written"].splitlines() == [
        "MAP o#1, sum AS total",
        "  AGGREGATE sum(price) AS sum BY o#1",
        "    FILTER price > 3",
        "      LEFT JOIN ON o#1 = o#3",
        "        SCAN main.orders(o AS o#1, customer)",
        "        SCAN main.items(o AS o#3, price)",
    ]
    assert found["push filters"].splitlines()[2:] == [
        "    INNER JOIN ON o#1 = o#3",
        "      SCAN main.orders(o AS o#1)",
        "      FILTER price > 3",
        "        SCAN main.items(o AS o#3, price)",
    ]


def test_keys_of_tables_are_known(con: Any) -> None:
    assert "DISTINCT" in steps(con, "SELECT DISTINCT o FROM orders")["as written"]
    assert "DISTINCT" not in steps(con, "SELECT DISTINCT o FROM orders")["remove distinct"]
    assert "remove distinct" not in steps(con, "SELECT DISTINCT o FROM items")


def test_subqueries_are_unnested(con: Any) -> None:
    found = steps(con, "SELECT customer FROM orders WHERE EXISTS (FROM items WHERE items.o = orders.o)")
    assert "DEPENDENT SEMI JOIN" in found["as written"]
    assert "  SEMI JOIN ON o#3 = o#1" in found["unnest dependent joins"].splitlines()


def test_a_materialized_view_that_selects_is_read_as_its_text(con: Any) -> None:
    con.execute("CREATE MATERIALIZED VIEW cheap AS SELECT o, price FROM items WHERE price < 3")
    assert "SCAN main.items" in steps(con, "SELECT o FROM cheap")["as written"]


@pytest.mark.parametrize(
    ("query", "error", "message", "place"),
    [
        ("SELECT nope FROM items", sqlfront.ProgrammingError, '"nope" not found', "nope FROM items\n"),
        ("SELECT o FRM items", sqlfront.ProgrammingError, "Expected the end of the statement", "items\n"),
        ("SELECT o FROM items WHERE o = ?", sqlfront.NotSupportedError, "A parameter is not supported", "?\n"),
        ("SELECT o FROM items, glob('*')", sqlfront.NotSupportedError, "The table function glob is not", "glob('*')\n"),
        ("SELECT o FROM items TABLESAMPLE 10%", sqlfront.NotSupportedError, "SAMPLE is not", "10%\n"),
    ],
)
def test_bad_queries_are_refused_with_a_caret(
    con: Any, query: str, error: type[Exception], message: str, place: str
) -> None:
    with pytest.raises(error, match=re.escape(message)) as raised:
        con.execute(f"EXPLAIN (ALGEBRA) {query}")
    assert place in str(raised.value)
    assert "^" in str(raised.value)

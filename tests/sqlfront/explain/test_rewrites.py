"""The rewrites that EXPLAIN offers, as rules over trees: before and after."""

from __future__ import annotations

from functools import partial

import pytest
from sqlglot import exp

from sqlfront.explain.rewrites import counted, with_columns, without_distinct
from sqlfront.sql.dialect import parse_one, printed
from tests.rewriting import rewritten

COLUMNS = [exp.column("a", table="t"), exp.column("select", table="my u")]
ADDED = 't.a, "my u"."select"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SELECT DISTINCT b FROM t ORDER BY b LIMIT 3", f"SELECT DISTINCT b, {ADDED} FROM t ORDER BY b LIMIT 3"),
        ("SELECT b, (SELECT 1 FROM u) FROM t", f"SELECT b, (SELECT 1 FROM u), {ADDED} FROM t"),
        ("FROM t SELECT b", f"SELECT b, {ADDED} FROM t"),
        (
            "SELECT b, sum(c) FROM t GROUP BY b HAVING sum(c) > 1",
            f"SELECT b, sum(c), {ADDED} FROM t GROUP BY b, {ADDED} HAVING sum(c) > 1",
        ),
        ("SELECT b, sum(c) FROM t GROUP BY ALL", f"SELECT b, sum(c), {ADDED} FROM t GROUP BY ALL"),
    ],
)
def test_columns_are_added(before: str, after: str) -> None:
    assert rewritten(before, partial(with_columns, columns=COLUMNS)) == after


def test_distinct_is_dropped_from_the_query_alone() -> None:
    query = "WITH w AS (SELECT DISTINCT a FROM t) SELECT DISTINCT count(DISTINCT a) FROM w"
    assert rewritten(query, without_distinct) == query.replace("SELECT DISTINCT count", "SELECT count")


@pytest.mark.parametrize("head", ["SELECT DISTINCT b", "SELECT b, sum(c)"])
@pytest.mark.parametrize(
    "tail", ["", " GROUP BY b HAVING sum(c) > 1", " QUALIFY row_number() OVER (ORDER BY b) = 1 ORDER BY b LIMIT 3"]
)
def test_joined_rows_are_counted(head: str, tail: str) -> None:
    join = "FROM t JOIN u USING (a) WHERE t.d > (SELECT max(d) FROM u ORDER BY 1)"
    tree = parse_one(f"{head} {join}{tail}")
    assert printed(counted(tree)) == f"SELECT count(*) {join}"
    assert printed(tree) == f"{head} {join}{tail}"

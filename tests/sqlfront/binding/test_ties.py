"""The rules that make DuckDB give a view's answer: before and after."""

from __future__ import annotations

import duckdb
import pytest

from sqlfront.binding.ties import with_guards, without_ties
from tests.rewriting import rewritten


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("arg_min(p, q)", "arg_min(p, row(q, p)) FILTER (WHERE q IS NOT NULL)"),
        ("(p).max_by(q)", "max_by((p), row(q, (p))) FILTER (WHERE q IS NOT NULL)"),
        (
            "ARGMAX(p, q) FILTER (WHERE a OR b)",
            "ARGMAX(p, row(q, p)) FILTER (WHERE (a OR b) AND (q IS NOT NULL))",
        ),
        ("(SELECT min_by(p, q) FROM u)", "(SELECT min_by(p, row(q, p)) FILTER (WHERE q IS NOT NULL) FROM u)"),
        ("arg_min(p, q, 3)", "arg_min(p, q, 3)"),
        ("arg_min(p, q) OVER ()", "arg_min(p, q) OVER ()"),
        ("min(q)", "min(q)"),
    ],
)
def test_ties_of_extremes_are_broken_by_the_value(before: str, after: str) -> None:
    assert rewritten(f"SELECT {before} FROM t", without_ties) == f"SELECT {after} FROM t"


WHEN = "CASE WHEN c THEN TRUE ELSE FALSE END"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum(1 / x) FILTER (WHERE c)", f"sum(CASE WHEN {WHEN} THEN 1 / x END) FILTER (WHERE {WHEN})"),
        ("count(*) FILTER (WHERE c)", f"count(*) FILTER (WHERE {WHEN})"),
        (
            "quantile_cont(x, 0.5) FILTER (WHERE c)",
            f"quantile_cont(CASE WHEN {WHEN} THEN x END, 0.5) FILTER (WHERE {WHEN})",
        ),
        ("sum(1 / x)", "sum(1 / x)"),
        ("sum(x) FILTER (WHERE c) OVER ()", "sum(x) FILTER (WHERE c) OVER ()"),
        (
            "list(DISTINCT s ORDER BY s DESC) FILTER (WHERE c)",
            f"list(DISTINCT CASE WHEN {WHEN} THEN s END ORDER BY CASE WHEN {WHEN} THEN s END DESC) "
            f"FILTER (WHERE {WHEN})",
        ),
    ],
)
def test_a_filter_guards_the_argument(before: str, after: str) -> None:
    assert rewritten(f"SELECT {before} FROM t", with_guards) == f"SELECT {after} FROM t"


def test_duckdb_computes_under_the_guard_alone() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT unnest(['x', '5']) AS s, unnest([false, true]) AS c")
    query = "SELECT sum(s::INTEGER) FILTER (WHERE c) FROM t"
    with pytest.raises(duckdb.ConversionException):
        con.execute(query)
    assert con.execute(rewritten(query, with_guards)).fetchall() == [(5,)]

"""Options of a Spark read become one clause each, whatever they hold."""

from __future__ import annotations

import duckdb
import pytest

from sqlfront.spark.clauses import clauses
from sqlfront.storage.errors import ProgrammingError


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 5),
        ({"where": "a > 1 AND s IN ('x', 'y') -- a remark"}, 3),
        ({"where": "a = 1 OR s = 'y'", "order_by": "s DESC NULLS LAST, a + 1", "limit": "2"}, 2),
        ({"order_by": "lower(s) -- by text", "limit": 4}, 4),
    ],
)
def test_clauses_are_run(options, rows):
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE v AS SELECT i AS a, CASE WHEN i % 2 = 0 THEN 'x' ELSE 'y' END AS s FROM range(5) r(i)"
        )
        assert len(con.execute(f"SELECT a FROM v{clauses(options)}").fetchall()) == rows


def test_a_clause_is_printed_from_its_tree():
    options = {"where": "s = ')--' /* a) */ OR a>1", "order_by": "a DESC, lower(s) NULLS FIRST -- x", "limit": 3}
    assert clauses(options) == " WHERE (s = ')--' OR a > 1) ORDER BY a DESC, lower(s) NULLS FIRST LIMIT 3"


@pytest.mark.parametrize("options", [
    {"where": "a = (SELECT max(a) FROM secret)"},
    {"where": "true) UNION ALL SELECT * FROM secret WHERE (true"},
    {"where": "true) ORDER BY (a"},
    {"where": "true); COPY secret TO 'file'; SELECT (1"},
    {"where": "EXISTS (FROM secret)"},
    {"where": "a IN (VALUES (1))"},
    {"where": "a IN (TABLE secret)"},
    {"where": "a = ANY (DESCRIBE secret)"},
    {"where": "true) LIMIT (3"},
    {"where": "a ="},
    {"order_by": "a LIMIT 3"},
    {"order_by": "(SELECT 1)"},
    {"order_by": "a; DROP TABLE t"},
    {"limit": "1; DROP TABLE t"},
    {"limit": "(SELECT 3)"},
    {"limit": -1},
])  # fmt: skip
def test_anything_else_is_refused(options):
    with pytest.raises(ProgrammingError, match="option"):
        clauses(options)

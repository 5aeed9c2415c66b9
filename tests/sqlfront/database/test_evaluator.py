"""SQL over a few rows and over many: the same values, whether DuckDB's optimizer sees the query or not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sqlfront.database.loading import _FEW, Evaluator, _Rows
from sqlfront.storage.errors import DataError

EXPRESSIONS = (
    "x % 7 = 0 OR error('x')::BOOLEAN OR true",
    "false AND error('x')::BOOLEAN",
    "CASE WHEN x < 0 THEN error('x')::INTEGER ELSE x END",
    "coalesce(x, error('x')::INTEGER)",
    "100.00 * x / (x - 1)",
    "x::DOUBLE / 3 + 0.1 + 0.2",
    "x IN (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)",
    "strftime(DATE '2020-01-31' + x::INTEGER, '%d %B')",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_few_rows_and_many_have_the_same_values(expression: str) -> None:
    evaluate, many = Evaluator(), pa.table({"x": range(_FEW + 1)})
    found = evaluate(many, {"x": "INTEGER"}, [expression])
    for first in (0, 700, _FEW - 50):
        few = evaluate(many.slice(first, 51), {"x": "INTEGER"}, [expression])
        assert str(few) == str(found.slice(first, 51).combine_chunks())


def test_a_value_that_cannot_be_computed_is_an_error_however_many_rows_there_are() -> None:
    evaluate = Evaluator()
    for rows in (1, _FEW + 1):
        with pytest.raises(DataError, match="computed column"):
            evaluate(pa.table({"x": ["a"] * rows}), {"x": "VARCHAR"}, ["x::INTEGER"])


def test_a_query_is_bound_once_however_many_are_prepared_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB asks for the columns of what a query scans each time that it binds the query."""
    asked = []
    scan = _Rows.__arrow_c_stream__
    monkeypatch.setattr(_Rows, "__arrow_c_stream__", lambda self, wanted=None: (asked.append(1), scan(self, wanted))[1])
    evaluate, rows = Evaluator(), pa.table({"x": [1, 2]})
    for expression in ("x + 1", "x + 2", "x + 3"):
        evaluate(rows, {"x": "INTEGER"}, [expression])
    for expression in ("x + 1", "x + 2", "x + 3"):
        for scans in (2, 1):
            asked.clear()
            found = evaluate(rows, {"x": "INTEGER"}, [expression])
            assert found.column(0).to_pylist() == [1 + int(expression[-1]), 2 + int(expression[-1])]
            assert len(asked) <= scans

"""The queries of TPC-H as Spark's users write them: the views equal Spark's answers over rows of Spark's DataFrames."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.spark.spark_answers import same
from tests.sqlfront.standard_rows import queries_of
from tests.sqlfront.tpch_refreshes import KEYS, TpchRefreshes, completed

QUERIES = queries_of("tpch")
SLICE = ("q01", "q13", "q22")


def follow(spark: Any, names: tuple[str, ...], epochs: int, seed: int) -> None:
    both = TpchRefreshes(0.01, seed, True)
    try:
        for name in names:
            both.con.execute(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}", dialect="spark")
        for epoch in range(epochs + 1):
            if epoch:
                changes = {change.table: change for change in map(both.change, KEYS)}
                found = {name: both.plain.sql(one.signed_rows()).to_arrow_table() for name, one in changes.items()}
                both.con.apply({name: spark.createDataFrame(rows).toArrow() for name, rows in found.items()})
                for change in changes.values():
                    both.plain.execute(change.statement())
            for table in KEYS:
                spark.createDataFrame(both.plain.sql(f"FROM {table}").to_arrow_table()).createOrReplaceTempView(table)
            for name in names:
                found = sorted(both.con.execute(f"FROM {name}").fetchall(), key=_place)
                query = completed(QUERIES[name], len(both.con.execute(f"DESCRIBE {name}").fetchall()))
                expected = sorted((tuple(row) for row in spark.sql(query).collect()), key=_place)
                assert len(found) == len(expected), f"{name}, epoch {epoch}"
                wrong = [pair for pair in zip(found, expected, strict=True) if not same(*pair)]
                assert wrong == [], f"{name}, epoch {epoch}"
    finally:
        both.close()


def _place(row: tuple[Any, ...]) -> list[str]:
    """Rows in an order that the last digits of a number do not decide."""
    return [f"{float(v):.4f}" if isinstance(v, (int, float, Decimal)) else str(v) for v in row]


def test_a_slice_equals_sparks_answers(spark):
    follow(spark, SLICE, 1, 3)


@pytest.mark.slow
def test_all_queries_equal_sparks_answers(spark):
    follow(spark, tuple(QUERIES), 6, 4)

"""Expressions of tests/fixtures/dialect over edge values: Spark's answers, and those of DuckDB after translation."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "fixtures" / "dialect"
COLUMNS = (
    "k INTEGER, i INTEGER, j INTEGER, b BIGINT, x DOUBLE, m DECIMAL(15, 2), s VARCHAR, n VARCHAR, d DATE, e DATE, "
    "t TIMESTAMP, f BOOLEAN"
)
ROWS = """
    (1, 7, 2, 7, 2.5, 2.50, 'abcabc', '12', '2024-02-29', '2024-01-31', '2024-02-29 13:14:15', true),
    (2, -7, 2, -7, -2.5, -2.50, 'a,b,,c', '-7', '2023-12-31', '2024-02-29', '2023-12-31 23:59:59', false),
    (3, 7, -2, 3000000000, 0.5, 0.05, '', '0', '1970-01-01', '1969-12-31', '1970-01-01 00:00:00', true),
    (4, 0, 3, 0, -0.5, -0.05, ' Ab c ', '5', '2000-03-31', '2000-02-28', '2000-03-31 01:02:03', false),
    (5, 2, 5, 12, 1.5, 1.15, 'a.b.c%_', '100', '2026-01-05', '2025-12-29', '2026-01-05 12:00:00', true),
    (6, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (7, -1, 4, -12, 1234567.891, 99999.99, 'äöü ß', '007', '1999-12-31', '2001-01-01', '1999-12-31 00:00:01', false),
    (8, 3, 1, 1, 3.0, 100.00, 'ABC', '1', '2021-01-03', '2020-02-29', '2021-01-03 10:20:30', true)"""
EDGE = f"CREATE TABLE edge ({COLUMNS}); INSERT INTO edge VALUES {ROWS};"


def expressions(name: str) -> list[str]:
    """The expressions of a fixture, one a line."""
    return [line for line in (FIXTURES / name).read_text().splitlines() if line and not line.startswith("#")]


def make_edge(spark: Any) -> None:
    """The rows of EDGE as Spark's view `edge`."""
    types = COLUMNS.replace("VARCHAR", "STRING")
    columns = [column.split(maxsplit=1) for column in types.replace("15, 2", "15;2").split(", ")]
    casts = ", ".join(f"CAST({name} AS {kind.replace(';', ', ')}) AS {name}" for name, kind in columns)
    names = ", ".join(name for name, _ in columns)
    spark.sql(f"SELECT {casts} FROM VALUES {ROWS} AS v({names})").cache().createOrReplaceTempView("edge")


def spark_answers(spark: Any, asked: list[str], query: str) -> dict[str, list[Any]]:
    """What Spark answers to each expression, in `query` with {} for the items; none for those it refuses."""
    from pyspark.errors import PySparkException

    items = ", ".join(f"{one} AS c{number}" for number, one in enumerate(asked))
    try:
        rows = spark.sql(query.format(items)).collect()
    except PySparkException:
        if len(asked) == 1:
            return {}
        half = len(asked) // 2
        return spark_answers(spark, asked[:half], query) | spark_answers(spark, asked[half:], query)
    return {one: [row[number] for row in rows] for number, one in enumerate(asked)}


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal: numbers up to the last bits of a double, anything else of one kind exactly."""
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, (int, float, Decimal)) and isinstance(theirs, (int, float, Decimal)):
        if isinstance(ours, float) or isinstance(theirs, float):
            rounded = 5e-7 if isinstance(theirs, Decimal) else 1e-300
            return math.isclose(ours, theirs, rel_tol=1e-13, abs_tol=rounded) or (ours != ours and theirs != theirs)
        return ours == theirs
    if isinstance(ours, datetime.datetime) or isinstance(theirs, datetime.datetime):
        return str(ours) == str(theirs)
    return type(ours) is type(theirs) and ours == theirs

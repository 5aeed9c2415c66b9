"""Which expressions of the clock surely never go back: DuckDB computes the others again at each tick."""

from __future__ import annotations

import datetime

import duckdb
import pytest

from sqlfront.planner.algebra.clock import is_steady

ZONED = "TIMESTAMP WITH TIME ZONE"
STEADY = {
    '"clock"': (ZONED, True, True),
    '("clock" - (INTERVAL 1 HOUR))': (ZONED, True, True),
    "(\"clock\" - (2 * (INTERVAL '3 hours')))": (ZONED, True, True),
    '("clock" - (INTERVAL 7 DAY))': (ZONED, True, False),
    '(CAST("clock" AS DATE) - 7)': ("DATE", True, False),
    'CAST("clock" AS TIMESTAMP)': ("TIMESTAMP", True, False),
    "date_trunc('month', \"clock\")": (ZONED, True, False),
    '("clock" - (INTERVAL 1 MONTH))': (ZONED, False, False),
    '("clock" - to_months(3))': (ZONED, False, False),
    "(\"clock\" - CAST('1 month' AS INTERVAL))": (ZONED, False, False),
    "(\"clock\" AT TIME ZONE 'Europe/Berlin')": ("TIMESTAMP", False, False),
}


@pytest.mark.parametrize("value", STEADY)
def test_what_never_goes_back(value: str) -> None:
    type_, *expected = STEADY[value]
    assert [is_steady(value, type_, fixed_zone=True), is_steady(value, type_, fixed_zone=False)] == expected


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_duckdb_agrees(zone: str) -> None:
    """Over a year no steady expression goes back."""
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    with duckdb.connect() as con:
        con.execute(f"SET TimeZone = '{zone}'")
        times = "SELECT ?::TIMESTAMPTZ + i * INTERVAL 30 MINUTE AS clock FROM range(20000) t(i)"
        con.execute(f"CREATE TABLE times AS {times}", [start])
        for value, (type_, *_) in STEADY.items():
            values = (
                f"SELECT v < lag(v) OVER (ORDER BY clock) AS goes_back FROM (SELECT clock, {value} AS v FROM times)"
            )
            [(count,)] = con.execute(f"SELECT count(*) FROM ({values}) WHERE goes_back").fetchall()
            assert not (is_steady(value, type_, fixed_zone=zone == "UTC") and count), value

"""NaN and infinities in sums of DOUBLEs of several tables: what DuckDB makes of them, at the cost of a plain sum."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import sqlfront

SUMS = {
    "a branch of either table": "sum(CASE WHEN r.i = 1 THEN r.x ELSE s.x END)",
    "a value decides": "sum(CASE WHEN r.x > 1 THEN r.x ELSE s.x END)",
    "a branch without a value": "sum(CASE WHEN s.i = 1 THEN r.x END)",
    "a difference": "sum(r.x - s.x)",
    "a difference times a whole number": "sum((r.x - s.x) * r.i)",
    "a negated difference times a fraction": "sum(-(r.x - s.x) * -0.3)",
    "a product": "sum(r.x * s.x)",
    "a product of three": "sum(r.x * s.x * r.y)",
    "a product with a whole number": "sum(r.i * s.x)",
    "a product with a FLOAT": "sum(CAST(r.f AS DOUBLE) * s.x)",
    "a product over a number below 0": "sum(r.x * s.x / -2.5)",
    "a product times 0": "sum(r.x * s.x * 0)",
    "a product less a value": "sum(r.x * s.x - s.y)",
    "a product with a branch": "sum(r.x * CASE WHEN s.i = 1 THEN s.x ELSE r.y END)",
    "an average of a product": "avg(r.x * s.x)",
    "an average beside its sum": "avg(r.x * s.x) + sum(r.x * s.x)",
    "a filtered product": "sum(r.x * s.x) FILTER (WHERE r.i > 0 AND s.y < 2)",
    "one table": "sum(r.x)",
    "a sum times an infinity": "sum((r.x + s.x) * r.y)",
}
DOUBLES = ["1.5", "-2.25", "0", "'-0'", "3", "-1"]
SPECIAL = ["'nan'", "'inf'", "'-inf'", "NULL"]


def _same(found: Any, expected: Any) -> bool:
    if not isinstance(found, float) or not isinstance(expected, float):
        return bool(found == expected)
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(found) and math.isnan(expected))


def _row(rng: random.Random) -> str:
    def double() -> str:
        return rng.choice(DOUBLES if rng.random() < 0.6 else SPECIAL)

    return f"({rng.randrange(3)}, {rng.choice(['0', '1', '-2', 'NULL'])}, {double()}, {double()}, {double()})"


@pytest.mark.parametrize("tables", ["r JOIN s ON r.k = s.k", "r LEFT JOIN s ON r.k = s.k", "r, s"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_those_of_duckdb(name: str, tables: str) -> None:
    rng, special = random.Random(name + tables), 0
    with sqlfront.connect() as con:
        for table in "rs":
            con.execute(f"CREATE TABLE {table} (k INT, i INT, x DOUBLE, y DOUBLE, f FLOAT)")
        query = f"SELECT r.k, {SUMS[name]} AS t, count(*) AS n FROM {tables} GROUP BY r.k"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        for turn in range(40):
            table = rng.choice("rs")
            if turn % 20 == 19:
                con.execute(f"DELETE FROM {table}")
            elif rng.random() < 0.4:
                con.execute(f"DELETE FROM {table} WHERE hash(k, i, x, y, {turn}) % 2 = 0")
            else:
                con.execute(f"INSERT INTO {table} VALUES {_row(rng)}, {_row(rng)}")
            expected = {row[0]: row[1:] for row in con.session.duck.execute(query).fetchall()}
            found = {row[0]: row[1:] for row in con.execute("FROM v").fetchall()}
            assert found.keys() == expected.keys(), turn
            assert all(all(map(_same, found[key], expected[key])) for key in found), (turn, found, expected)
            special += sum(row[0] is not None and not math.isfinite(row[0]) for row in expected.values())
    assert special > 1, special


@pytest.mark.parametrize("name", [name for name in SUMS if name != "a sum times an infinity"])
def test_sums_keep_no_joined_rows(name: str) -> None:
    """The steps of a change do not grow with the rows that it joins."""
    steps = []
    for rows in (10, 1000):
        with sqlfront.connect() as con:
            for table in "rs":
                con.execute(f"CREATE CHANGE TABLE {table} (k INT, i INT, x DOUBLE, y DOUBLE, f FLOAT)")
            con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {SUMS[name]} AS t FROM r JOIN s ON r.k = s.k")
            for table in "rs":
                con.execute(f"INSERT INTO {table} SELECT 1, i % 3, i % 7, i % 5, i % 2 FROM range({rows}) AS x(i)")
            before = con.view("v").cost()["steps"]
            con.execute("INSERT INTO s VALUES (1, 1, 'nan', 'inf', 0)")
            steps.append(con.view("v").cost()["steps"] - before)
    assert steps[0] == steps[1] < 40, steps

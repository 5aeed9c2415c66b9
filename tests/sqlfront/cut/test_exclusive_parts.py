"""ORs of comparisons as alternatives: each pair of rows is in exactly one, the steps of a change, what EXPLAIN says."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.cut.expressions.disjoint_ranges import alternatives
from sqlfront.cut.expressions.exclusive_parts import MOST_PARTS, exclusive_parts
from sqlfront.planner.algebra.scalars import (
    Column,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Ref,
    Scalar,
    columns_of,
    conjunction,
)
from sqlfront.planner.algebra.to_sql import scalar_sql

COLUMNS = [Column(number, name, "INTEGER") for number, name in enumerate(("r_a", "r_b", "s_a", "s_b"))]
OVERLAP = "(r.a BETWEEN s.a AND s.b OR s.a BETWEEN r.a AND r.b)"
LATER = "(r.a < s.a OR (r.a = s.a AND r.b < s.b))"


def atoms_of(value: Scalar) -> list[str]:
    return sorted({column.name[0] for column in columns_of(value)})


def random_condition(choose: random.Random, depth: int) -> Scalar:
    """An AND or OR of comparisons of columns, of tests for NULL, and of comparisons with a constant."""
    if depth and choose.random() < 0.8:
        parts = tuple(random_condition(choose, depth - 1) for _ in range(choose.choice((2, 2, 3))))
        return Logic(choose.choice(("AND", "OR", "OR")), parts)
    left, right = map(Ref, choose.sample(COLUMNS, 2))
    if choose.random() < 0.15:
        return choose.choice((IsNull(left), Not(IsNull(left))))
    other = Constant("1", "INTEGER") if choose.random() < 0.15 else right
    return Compare(choose.choice(("<", "<=", "=", ">=", ">", "<>")), left, other)


@pytest.mark.parametrize("seed", range(4))
def test_each_pair_of_rows_is_in_one_part(seed: int) -> None:
    """Of all values of four columns, NULL and equal ones too; of columns that are never NULL, if that is said."""
    choose, taken = random.Random(seed), 0
    with duckdb.connect() as con:
        values = "(SELECT unnest([NULL, 0, 1, 2]) AS {})"
        con.execute(f"CREATE TABLE t AS FROM {', '.join(values.format(column) for column in COLUMNS)}")
        for _ in range(150):
            conditions = [random_condition(choose, choose.choice((0, 1, 2))) for _ in range(choose.choice((1, 2, 3)))]
            known = frozenset(choose.sample(COLUMNS, choose.choice((0, 0, 2))))
            parts = exclusive_parts(conditions, atoms_of, known)
            if parts is None:
                continue
            taken += 1
            assert len(parts) <= MOST_PARTS
            met = " + ".join(f"coalesce({scalar_sql(conjunction(part))}, false)::INT" for part in parts)
            rows = " AND ".join(["true", *(f"{column} IS NOT NULL" for column in known)])
            wanted = f"coalesce({scalar_sql(conjunction(conditions))}, false)::INT"
            wrong = con.execute(f"FROM t WHERE {rows} AND {met} <> {wanted}").fetchall()
            assert not wrong, (conditions, parts)
            assert not any(alternatives(one) and len(atoms_of(one)) > 1 for part in parts for one in part)
    assert taken > 40


@pytest.mark.parametrize(
    ("condition", "update", "select"),
    [
        (OVERLAP, "O(N log N)", "r.id, s.id AS other"),
        (OVERLAP, "O(log^2 N) amortised", "r.k, count(*) AS n"),
        (OVERLAP, "O(N log N + change of a block's result * log N)", "r.id, max(s.b) AS last"),
        (LATER, "O(log N)", "r.id, s.id AS other"),
        (LATER, "O(log N)", "r.k, count(*) AS n"),
        ("NOT (s.a < r.a - 3 OR s.a > r.a + 3)", "O(log N)", "r.k, count(*) AS n"),
        ("s.a IN (r.a, r.a + 10)", "O(1)", "r.k, count(*) AS n"),
        ("s.a IN (r.a, r.b)", "O(1)", "r.k, count(*) AS n"),
        ("(s.a < r.a OR s.a < r.b)", "O(log N)", "r.k, count(*) AS n"),
        # Several ORs, of which each alternative of one fixes those of the others.
        ("(s.a < r.a AND s.b < r.b OR s.a > r.a AND s.b > r.b)", "O(log^2 N) amortised", "r.k, count(*) AS n"),
    ],
)
def test_a_change_meets_the_rows_of_the_parts_alone(condition: str, update: str, select: str) -> None:
    """The changes are the first, a middle and the last row of both tables. Each row overlaps a few rows. No pairs are
    stored."""
    groups = "" if "other" in select else f" GROUP BY {select.split(',')[0]}"
    query, most = f"SELECT {select} FROM r JOIN s ON r.k = s.k AND {condition}{groups}", []
    for rows in (1000, 8000):
        with sqlfront.connect() as con:
            for table in "rs":
                con.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, k INTEGER, a INTEGER, b INTEGER)")
                con.execute(f"INSERT INTO {table} SELECT i, 0, i * 10, i * 10 + i * 7 % 30 FROM range({rows}) AS t(i)")
            con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
            assert con.explain("v").to_dict()["cost"]["update"] == update
            steps = []
            for table in "rs":
                for at in (-1, rows * 5 + 3, rows * 10):
                    row = pa.table({"id": [rows + 1], "k": [0], "a": [at], "b": [at + 5]})
                    steps.append(con.apply({table: row}).steps["v"])
                    steps.append(con.apply({table: row.append_column("_weight", pa.array([-1]))}).steps["v"])
            most.append(max(steps))
            assert sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist()) < 20 * rows
            assert rows > 1000 or not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    assert most[1] < 400 and most[1] < 2.5 * most[0]


def test_alternatives_of_another_form_are_computed() -> None:
    """More parts than are worth a join each, a product of two tables, and a condition that may fail."""
    many = " OR ".join(f"(r.a < s.a + {one} AND r.b > s.b + {one})" for one in range(9))
    with sqlfront.connect() as con:
        for table in "rs":
            con.execute(f"CREATE TABLE {table} (a INTEGER, b INTEGER)")
        reason = lambda text: con.explain(f"SELECT r.a FROM r JOIN s ON {text}").to_dict()["reason"]  # noqa: E731
        for condition in (many, "r.a < s.a OR r.a * s.b > 3", "r.a < s.a OR s.b::VARCHAR::DATE > DATE '2026-01-01'"):
            assert "computed for the changed rows" in reason(condition)
        assert "without those of the alternatives before it" in reason("r.a < s.a OR r.b > s.b")

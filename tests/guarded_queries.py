"""Random queries whose expressions fail on rows that the query leaves out, and rows that are left out or not.

Each query comes with its oracle, in which a CASE around the expression says where it is needed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

COLUMNS = "g INTEGER, k INTEGER, s VARCHAR, d DOUBLE, w INTEGER"
_BIG = [2_000_000_000, -(2**31)]
_TEXTS = ["3", "12", "abc", "", "2024-02-29", "2023-02-29", "1,2", "x,7", None]
_NUMBERS = [0.0, 1.0, 2.5, -1.0, 1e300, float("inf"), float("-inf"), float("nan"), None]

# A condition, and an expression that fails only on rows that do not meet it.
PAIRS = [
    ("k <> 0", "10 // k"),
    ("k <> 0", "17 % k"),
    ("abs(k::BIGINT) < 1000", "CAST(k AS SMALLINT)"),
    ("k BETWEEN -100 AND 100", "k * 2000000"),
    ("k > -100 AND k < 100", "k * k * 10"),
    ("regexp_full_match(s, '[0-9]+')", "CAST(s AS INTEGER)"),
    ("s IN ('3', '12')", "CAST(s AS INTEGER) + g"),
    ("s LIKE '2024-%'", "year(CAST(s AS DATE))"),
    ("s = '2024-02-29'", "CAST(day(strptime(s, '%Y-%m-%d')) AS INTEGER)"),
    ("s LIKE '%,%' AND k = 2", "CAST(string_split(s, ',')[k] AS INTEGER)"),
    ("d > 0 AND d < 100", "CAST(ln(d) * 1000 AS INTEGER)"),
    ("d BETWEEN 0 AND 1000", "CAST(sqrt(d) AS INTEGER)"),
    ("isfinite(d) AND abs(d) < 1e9", "CAST(d AS INTEGER)"),
    ("k <> 0 AND s = '3'", "CAST(s AS INTEGER) // k"),
]

# {c}: the condition, {e}: the expression, {b}: a condition on the expression. u (x INTEGER) is joined.
SHAPES = [
    "SELECT k, {e} AS e FROM t WHERE {c}",
    "SELECT DISTINCT {e} AS e FROM t WHERE {c}",
    "SELECT {e} AS e, count(*) AS n, sum(w) AS z FROM t WHERE {c} GROUP BY ALL",
    "SELECT g, k FROM t WHERE {c} AND {b}",
    "SELECT g, k FROM t WHERE {b} AND {c} AND w > 0",
    "SELECT g, {e} AS e FROM t WHERE ({c}) AND ({b} OR w = 1)",
    "SELECT g, w FROM t WHERE ({c}) IS NOT TRUE OR {b}",
    "SELECT g, w FROM t WHERE CASE WHEN {c} THEN {b} ELSE w = 1 END",
    "SELECT g, sum({e}) FILTER (WHERE {c}) AS z, count({e}) FILTER (WHERE {c}) AS n, avg({e}) FILTER (WHERE {c}) AS v "
    "FROM t GROUP BY g",
    "SELECT max({e}) FILTER (WHERE {c}) AS z, count(DISTINCT {e}) FILTER (WHERE {c}) AS n FROM t",
    "SELECT g, arg_max({e}, {e}) FILTER (WHERE {c}) AS z FROM t GROUP BY g",
    "SELECT g, sum(CASE WHEN {c} THEN {e} ELSE 0 END) AS z FROM t GROUP BY g",
    "SELECT g, CASE WHEN NOT ({c}) THEN 1 WHEN {c} THEN {e} END AS e FROM t",
    "SELECT g, coalesce(CASE WHEN ({c}) IS NOT TRUE THEN 5 END, {e}) AS e FROM t",
    "SELECT t.g, u.x, {e} AS e FROM t JOIN u ON t.g = u.x AND {c}",
    "SELECT count(*) AS n, sum(t.w * u.x) AS z FROM t JOIN u ON {e} = u.x WHERE {c}",
    "SELECT t.g, sum({e} * u.x) FILTER (WHERE {c}) AS z FROM t JOIN u ON t.g = u.x GROUP BY t.g",
    "SELECT t.g, u.x FROM t, u WHERE {e} < u.x AND {c}",
    "SELECT e, count(*) AS n FROM (SELECT {e} AS e, g FROM t WHERE {c}) AS q WHERE g > 0 GROUP BY e",
    "WITH a AS (SELECT * FROM t WHERE {c}), b AS (SELECT {e} AS e, w FROM a) SELECT e FROM b WHERE e > 1",
    "SELECT {e} AS e FROM t WHERE {c} UNION ALL SELECT w FROM t WHERE {c} AND {b}",
    "SELECT e FROM (SELECT max({e}) AS e, g FROM t WHERE {c} GROUP BY g) AS q WHERE e > 0",
    "SELECT a.g, b.w FROM t AS a, t AS b WHERE a.g = b.k AND a.w IN (SELECT {e} FROM t WHERE {c})",
    "SELECT g, {e} AS e FROM t WHERE {c} ORDER BY e DESC, g LIMIT 3",
    "SELECT g, 100 // (sum(w) - 2) AS e FROM t WHERE {c} GROUP BY g HAVING sum(w) <> 2",
]


@dataclass(frozen=True)
class Query:
    """A query, the oracle of its rows, and the expression that fails where the query needs it on a bad row."""

    text: str
    oracle: str
    needed: str | None = None


def random_query(dice: random.Random) -> Query:
    """A guarded query mostly; sometimes the expression alone, which refuses bad rows."""
    condition, value = dice.choice(PAIRS)
    if dice.random() < 0.1:
        text = f"SELECT g, {value} AS e FROM t WHERE w > 0"
        return Query(text, text, f"SELECT {value} FROM t WHERE w > 0")
    shape, bound = dice.choice(SHAPES), f"{{e}} > {dice.randrange(-1, 4)}"
    parts = {"c": condition}
    guarded = f"(CASE WHEN {condition} THEN {value} END)"
    text = shape.format(e=f"({value})", b=bound.format(e=f"({value})"), **parts)
    return Query(text, shape.format(e=guarded, b=bound.format(e=guarded), **parts))


def random_row(dice: random.Random) -> tuple[object, ...]:
    k = dice.choice([0, 0, 1, 2, 3, -2, 50, 40_000, None, *_BIG])
    return dice.randrange(4), k, dice.choice(_TEXTS), dice.choice(_NUMBERS), dice.randrange(3)

"""Conditions above DISTINCT, groups, unions, windows and CTEs reach the tables below these."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from sqlfront.cut.view_query import bind_view

PAIRS = "SELECT DISTINCT a.x, b.z FROM a JOIN b USING (y)"
GROUPS = "SELECT a.x, b.z, count(*) AS n FROM a JOIN b USING (y) GROUP BY a.x, b.z"
PUSHED = [
    f"SELECT * FROM ({PAIRS}) WHERE x = 3",
    f"SELECT * FROM ({PAIRS}) WHERE x IN (3, 4)",
    f"SELECT * FROM ({GROUPS}) WHERE x = 3",
    f"{GROUPS} HAVING a.x = 3",
    f"SELECT * FROM ({PAIRS} UNION SELECT a.x, a.y FROM a) WHERE x = 3",
    f"SELECT * FROM ({PAIRS} UNION ALL SELECT a.x, a.y FROM a) WHERE x = 3",
    "SELECT x, z FROM (SELECT a.x, b.z, row_number() OVER (PARTITION BY a.x ORDER BY b.z) AS n "
    "FROM a JOIN b USING (y)) WHERE x = 3 AND n <= 2",
    "SELECT * FROM (SELECT a.x, b.z FROM a JOIN b USING (y) "
    "QUALIFY row_number() OVER (PARTITION BY a.x ORDER BY b.z) <= 2) WHERE x = 3",
    f"SELECT * FROM (SELECT DISTINCT x, z FROM ({GROUPS}) WHERE n > 2) WHERE x = 3",
    f"SELECT * FROM (SELECT * FROM ({PAIRS}) WHERE z < 20) WHERE x = 3",
    f"WITH c AS ({PAIRS}) SELECT * FROM c WHERE x = 3",
    f"WITH c AS ({PAIRS}), d AS (SELECT x, count(*) AS n FROM c GROUP BY x) SELECT * FROM d WHERE x = 3",
    f"SELECT * FROM ({PAIRS}) d JOIN a USING (x) WHERE a.x = 3",
    f"SELECT * FROM ({GROUPS}) d JOIN a USING (x) WHERE a.x IN (3, 4)",
    f"SELECT * FROM ({GROUPS}) d JOIN a USING (x) WHERE a.x BETWEEN 3 AND 4",
    f"WITH k AS (SELECT 3 AS x) SELECT d.* FROM ({PAIRS}) d, k WHERE d.x = k.x",
    "SELECT * FROM (SELECT DISTINCT a.x + 1 AS w, b.z FROM a JOIN b USING (y)) WHERE w = 3",
    "SELECT * FROM (SELECT a.x AS w, sum(b.z) AS s FROM a JOIN b USING (y) GROUP BY 1 ORDER BY s LIMIT 9) WHERE w = 3",
]
KEPT_ABOVE = len(PUSHED) - 1


@pytest.fixture(scope="module")
def con() -> Any:
    with duckdb.connect(config={"threads": 1}) as found:
        found.execute("CREATE TABLE a (x BIGINT, y BIGINT); CREATE TABLE b (y BIGINT, z BIGINT)")
        yield found


@pytest.mark.parametrize("number", range(len(PUSHED)))
def test_the_condition_reaches_the_table(con: Any, number: int) -> None:
    """Every use of table `a` has a condition, but below a LIMIT, of whose rows it selects."""
    definition = bind_view(PUSHED[number], con).definition
    blocks = [definition, *(block for _, block in definition.own_blocks)]
    uses = [atom.predicate for block in blocks for atom in block.atoms if atom.table == "main.a"]
    assert uses and (not any(uses) if number == KEPT_ABOVE else all(uses)), uses

"""What a DISTINCT does not see: rows that come once more, or for no time at all, meet no others (laws by counting)."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from tests.maintenance.test_emission import Heard

TABLES = {"e": "x y", "t": "y z", "u": "z w"}
QUERIES = [
    "SELECT COUNT(DISTINCT (e.x, e.y)) AS n FROM e JOIN t USING (y)",
    "SELECT e.y, MIN(e.x) AS m FROM e JOIN t USING (y) GROUP BY e.y",
    "SELECT e.y, COUNT(DISTINCT e.x) AS n, MAX(e.x) AS m FROM e JOIN t USING (y) GROUP BY e.y",
    "SELECT DISTINCT e.x, t.z FROM e JOIN t USING (y)",
    "SELECT e.y, ARG_MIN(e.x, e.x) AS m FROM e JOIN t USING (y) JOIN u USING (z) GROUP BY e.y",
]


def loaded(query: str, size: int) -> Heard:
    heard = Heard(TABLES, query)
    heard.load("e", [(x, x % 3) for x in range(size)])
    heard.load("u", [(1, 1)])
    heard.load("t", [(0, 1), (1, 1), (2, 1)])
    return heard


@pytest.mark.parametrize("query", QUERIES)
def test_a_row_that_comes_once_more_meets_no_others(query: str) -> None:
    steps = {}
    for size in (100, 3000):
        heard = loaded(query, size)
        more = [heard.steps(t=Counter({(1, 1): weight})) for weight in (1, 5, -4)]
        more += [heard.steps(u=Counter({(1, 1): 2})), heard.steps(u=Counter({(1, 1): -1}))]
        steps[size] = sum(more)
        assert heard.con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        heard.con.close()
    assert steps[3000] <= steps[100] + 20 < 200


def test_another_way_in_another_table_changes_nothing() -> None:
    """Beyond t there is one more z for each y, but some z was there."""
    query = "SELECT e.y, COUNT(DISTINCT e.x) AS n FROM e JOIN t USING (y) JOIN u USING (z) GROUP BY e.y"
    steps = {}
    for size in (100, 3000):
        heard = loaded(query, size)
        heard.load("u", [(2, 2), (3, 3)])
        steps[size] = heard.steps(t=Counter({(1, 2): 1, (1, 3): 1})) + heard.steps(t=Counter({(1, 1): -1}))
        assert heard.con.execute("SELECT n FROM v WHERE y = 1").fetchall() == [(size // 3,)]
        assert heard.steps(t=Counter({(1, 2): -1, (1, 3): -1})) >= size // 3
        assert heard.con.execute("SELECT n FROM v WHERE y = 1").fetchall() == []
        heard.con.close()
    assert steps[3000] <= steps[100] + 20 < 200


@pytest.mark.parametrize("query", ["SELECT DISTINCT e.x FROM e JOIN t USING (y)", QUERIES[3],
                                   "SELECT e.x, COUNT(*) AS n FROM e JOIN t USING (y) GROUP BY e.x"])  # fmt: skip
def test_what_cancels_within_an_epoch_meets_no_others(query: str) -> None:
    heard = loaded(query, 1000)
    con, before = heard.con, heard.con.execute("FROM v ORDER BY ALL").fetchall()
    taken = con.view("v").cost()["steps"]
    con.execute("BEGIN")
    for y, weight in [(1, 3), (2, 1), (1, -2), (2, -1), (1, -1)]:
        con.apply_row("t", (y, 7), weight)
    con.execute("COMMIT")
    assert con.view("v").cost()["steps"] == taken
    assert con.execute("FROM v ORDER BY ALL").fetchall() == before
    con.apply({"t": pa.table({"y": [1, 1, 2, 1], "z": [7, 7, 8, 7], "_weight": [1, -1, 1, 2]})})
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert con.execute("FROM v ORDER BY ALL").fetchall() != before or "COUNT" not in query

"""What a DISTINCT does not see: rows that come once more, or for no time at all, meet no others (laws by counting)."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from sqlfront.maintenance.output import distinct_change as distinct_set_change
from sqlfront.maintenance.output.reading import read
from tests.maintenance.view.test_emission import Heard

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
    query = "SELECT COUNT(DISTINCT (e.x, e.y)) AS n FROM e JOIN t USING (y) JOIN u USING (z)"
    steps = {}
    for size in (100, 3000):
        heard = loaded(query, size)
        heard.load("u", [(2, 2), (3, 3)])
        steps[size] = heard.steps(t=Counter({(1, 2): 1, (1, 3): 1})) + heard.steps(t=Counter({(1, 1): -1}))
        assert heard.con.execute("SELECT n FROM v").fetchall() == [(size,)]
        assert heard.steps(t=Counter({(1, 2): -1, (1, 3): -1})) >= size // 3
        assert heard.con.execute("SELECT n FROM v").fetchall() == [(size - size // 3,)]
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


GROUPED = [
    "SELECT e.y, t.z, MIN(e.x) AS m FROM e JOIN t USING (y) GROUP BY e.y, t.z",
    "SELECT e.y, t.z, MAX(e.x) AS m, COUNT(DISTINCT e.x) AS n FROM e JOIN t USING (y) GROUP BY e.y, t.z",
    "SELECT e.y, t.z FROM e JOIN t USING (y) GROUP BY e.y, t.z",
    "SELECT e.x, t.z, MIN(e.y) AS m FROM e JOIN t USING (y) GROUP BY e.x, t.z",
    "SELECT e.x, u.w, ARG_MAX(t.z, t.y) AS m FROM e JOIN t USING (y) JOIN u USING (z) GROUP BY e.x, u.w",
]


PARTLY = [
    "SELECT e.x, u.w, MIN(e.y) AS lo, MAX(u.z) AS hi, COUNT(DISTINCT t.z) AS n FROM e, t, u GROUP BY e.x, u.w",
    "SELECT MIN(e.x) AS lo, COUNT(DISTINCT u.w) AS n, SUM(DISTINCT t.y) AS s FROM e, t, u",
    "SELECT COUNT(*) AS k, MAX(u.w) AS hi, AVG(e.x)::BIGINT AS mean FROM e, u",
    "SELECT e.y, MIN(u.w) AS lo FROM e, u GROUP BY e.y",
    "SELECT e.y, u.z, MIN(e.x) FILTER (WHERE u.w > 1) AS lo FROM e, u GROUP BY e.y, u.z",
    "SELECT e.y, u.z, MAX(e.x) FILTER (WHERE e.y = u.z) AS hi FROM e, u GROUP BY e.y, u.z",
    "SELECT e.y, u.z, MIN(e.x) FILTER (WHERE 1 = 0) AS lo, COUNT(DISTINCT u.w) AS n FROM e, u GROUP BY e.y, u.z",
    "SELECT e.y, ARG_MIN(u.w, e.x) AS m FROM e, u GROUP BY e.y",
    "SELECT e.y, t.z, MIN(e.y) AS m, COUNT(DISTINCT (e.x, e.y)) AS n FROM e JOIN t USING (y) GROUP BY e.y, t.z",
    "SELECT e.y, u.z, MIN(u.w) AS m FROM e, u WHERE e.x < u.w GROUP BY e.y, u.z",
    "SELECT t.y, t.z, MAX(e.x) AS m FROM e JOIN t USING (y) JOIN u USING (z) GROUP BY t.y, t.z HAVING MIN(u.w) > 0",
    "SELECT a.x, b.x AS z, MIN(a.y) AS m FROM e AS a JOIN t USING (y), e AS b GROUP BY a.x, b.x",
]


@pytest.mark.parametrize("query", GROUPED)
def test_groups_that_only_count_more_rows_are_not_touched(query: str) -> None:
    """With a subscriber too: no group's row changes when a row comes once more, however many groups it belongs to."""
    steps = {}
    for size in (100, 3000):
        heard = Heard(TABLES, query)
        heard.load("u", [(z, z) for z in range(size)])
        heard.load("t", [(1, z) for z in range(size)])
        heard.load("e", [(x, x % 3) for x in range(5)])
        heard.listen()
        steps[size] = sum(heard.steps(e=Counter({(1, 1): weight})) for weight in (1, 5, -4, -2))
        assert heard.told == {}
        assert len(heard.apply(e=Counter({(1, 1): -1, (4, 1): -1}))) >= size
        assert len(heard.apply(e=Counter({(-1, 1): 1, (9, 1): 1}))) >= size
        assert heard.con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        heard.con.close()
    assert steps[3000] <= steps[100] + 20 < 200


@pytest.mark.parametrize(
    "query",
    [
        *GROUPED,
        "SELECT t.z, MAX(e.x) AS m FROM e JOIN t USING (y) GROUP BY t.z HAVING MAX(e.x) > 1",
        "SELECT MIN(e.x) AS lo, COUNT(DISTINCT t.z) AS n FROM e JOIN t USING (y)",
        "SELECT EXISTS (SELECT 1 FROM e JOIN t USING (y) WHERE t.z > 1) AS found",
        "SELECT a.y, MIN(b.x) AS m FROM e AS a JOIN e AS b ON a.x = b.y GROUP BY a.y",
        *PARTLY,
    ],
)
def test_what_is_told_adds_up_to_the_view(query: str) -> None:
    """Random changes of both signs in all tables at once, rows more than once among them."""
    choose, heard = random.Random(len(query)), Heard(TABLES, query)
    heard.listen()
    held = {name: Counter[tuple[int | None, int | None]]() for name in TABLES}
    view = Counter(heard.con.execute("FROM v").fetchall())
    for _ in range(16):
        changes = {}
        for name in choose.sample(list(TABLES), choose.choice([1, 2, 3])):
            rows = {(choose.choice([0, 1, 2, None]), choose.choice([0, 1, 2, None])) for _ in range(3)}
            changes[name] = Counter({row: choose.randint(-held[name][row], 2) for row in rows})
            held[name].update(changes[name])
        told = heard.apply(**changes)
        view = Counter({row: view[row] + told[row] for row in {*view, *told} if view[row] + told[row]})
        assert view == Counter(tuple(map(int_or_none, row)) for row in heard.con.execute("FROM v").fetchall())
        assert heard.con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    heard.con.close()


def int_or_none(value: object) -> object:
    return value if value is None else int(value)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT e.y, u.w, MIN(e.x) AS lo, MAX(u.z) AS hi, COUNT(DISTINCT e.x) AS n FROM e, u GROUP BY e.y, u.w",
        "SELECT e.y, t.z, MAX(e.x) AS hi FROM e JOIN t USING (y) GROUP BY e.y, t.z",
        "SELECT e.x, MIN(u.w) AS lo FROM e, u GROUP BY e.x",
    ],
)
def test_values_are_kept_for_what_decides_them(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each group: they are as many as the table's rows, and a value that changes no group's output meets none
    of the groups, with a subscriber either."""
    steps, walks = {}, []
    monkeypatch.setattr(distinct_set_change, "read", lambda *arguments: walks.append(arguments) or read(*arguments))
    for size in (100, 3000):
        heard = Heard(TABLES, query)
        heard.load("u", [(z, z) for z in range(size)])
        heard.load("t", [(1, z) for z in range(size)])
        heard.load("e", [(x, 1) for x in range(size)])
        kept = [row[3] for row in heard.con.execute("SHOW STATE FOR v").fetchall() if row[2] == "values"]
        assert kept and max(kept) == size
        steps[size] = 0
        for listens in (False, True):
            if listens:
                heard.listen()
            steps[size] += heard.steps(e=Counter({(50, 1): 1})) + heard.steps(e=Counter({(50, 1): -1}))
            steps[size] += heard.steps(t=Counter({(7, 7): 1}), u=Counter({(50, 50): 1}))
            if "MAX(e.x)" in query:
                steps[size] += heard.steps(e=Counter({(60 + listens, 1): -1}))
        assert not walks
        assert len(heard.apply(u=Counter({(-1, -1): 1, (9999, -1): 1}), e=Counter({(9999, 1): 1}))) >= 2 * size
        assert size > 100 or heard.con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        heard.con.close()
        assert walks
        walks.clear()
    assert steps[3000] <= steps[100] + 60 < 400

"""Every kind of view that a snapshot may have comes back from it at the first opening, as it was planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlfront
from sqlfront.maintenance import replanning
from sqlfront.maintenance.view import observation
from sqlfront.planner.heavy_light.division import divide_unasked
from sqlfront.planner.heavy_light.strategies import RULES
from sqlfront.planner.model.query import Definition
from sqlfront.snapshots import plan_values
from sqlfront.storage.canonical_text import canonical
from sqlfront.storage.errors import InternalError
from tests.sqlfront.snapshots.test_snapshots import check, check_tables, is_adopted, manifest, rows

TABLES = """
    CREATE TABLE t (a BIGINT, s VARCHAR, f DOUBLE, l BIGINT[], at_time TIMESTAMP);
    CREATE TABLE u (a BIGINT PRIMARY KEY, d DECIMAL(18, 2), c VARCHAR COLLATE NOCASE);
    CREATE TABLE e (a BIGINT, b BIGINT)"""
WRITES = [
    "INSERT INTO t SELECT i % 7, 'text ' || i % 4, i % 5 / 2, [i % 3, i], TIMESTAMP '2026-01-01' + i * INTERVAL 1 HOUR "
    "FROM range(60) x(i)",
    "INSERT INTO u SELECT i, i * 1.25, 'Name ' || i % 3 FROM range(9) x(i)",
    "INSERT INTO e SELECT i % 6, (i * 5 + 1) % 6 FROM range(40) x(i)",
]
VIEWS = {
    "numbered over ties": "SELECT a, s, row_number() OVER (PARTITION BY a ORDER BY f) AS n FROM t",
    "numbered without order": "SELECT a, row_number() OVER () AS n FROM t",
    "a window without order": "SELECT a, sum(f) OVER (PARTITION BY s) AS f FROM t",
    "tiles": "SELECT a, f, ntile(3) OVER (ORDER BY f) AS n FROM t",
    "neighbours": "SELECT a, lag(s) OVER w AS before, lead(s) OVER w AS after FROM t WINDOW w AS (ORDER BY f)",
    "frames of rows": "SELECT a, sum(a) OVER (ORDER BY f ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS n FROM t",
    "ranges": "SELECT a, count(*) OVER (ORDER BY f RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM t",
    "ranks": "SELECT a, s, rank() OVER (PARTITION BY a ORDER BY f) AS n FROM t",
    "first numbers": "SELECT a, s FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY f) <= 2",
    "groups over windows": "SELECT n, count(*) AS k FROM (SELECT row_number() OVER (PARTITION BY a ORDER BY f) AS n "
    "FROM t) AS numbered GROUP BY n",
    "islands": "SELECT a, min(at_time) AS first, count(*) AS n FROM (SELECT *, sum(flag) OVER (PARTITION BY a ORDER BY "
    "at_time) AS number FROM (SELECT *, CASE WHEN f <> lag(f) OVER (PARTITION BY a ORDER BY at_time) THEN 1 ELSE 0 END "
    "AS flag FROM t) AS flagged) AS numbered GROUP BY a, number",
    "distinct on": "SELECT DISTINCT ON (a) a, s, f FROM t ORDER BY a, f",
    "lateral": "SELECT u.a, x.s FROM u, LATERAL (SELECT s FROM t WHERE t.a = u.a ORDER BY f LIMIT 2) AS x",
    "limit inside": "SELECT s, count(*) AS n FROM (SELECT s FROM t ORDER BY f LIMIT 20) AS x GROUP BY s",
    "asof": "SELECT t.a, u.d FROM t ASOF JOIN u ON t.f >= u.a",
    "lists": "SELECT a, unnest(l) AS one FROM t",
    "computed lists": "SELECT a, unnest([a, a + 1]) AS one FROM t",
    "split texts": "SELECT unnest(string_split(s, ' ')) AS word, count(*) AS n FROM t GROUP BY word",
    "medians": "SELECT a, median(f) AS m, mode(s) AS often, string_agg(s, ',' ORDER BY f) AS names FROM t GROUP BY a",
    "extremes": "SELECT a, min(s) AS low, arg_max(s, f) AS last, count(DISTINCT s) AS n FROM t GROUP BY a",
    "moments": "SELECT s, stddev(f) AS d, avg(f) AS f, corr(a, f) AS c FROM t GROUP BY s",
    "grouping sets": "SELECT a, s, sum(f) AS f FROM t GROUP BY ROLLUP (a, s)",
    "collated": "SELECT c, count(*) AS n FROM u GROUP BY c",
    "outer": "SELECT t.a, u.d FROM t FULL JOIN u USING (a)",
    "missing": "SELECT a, s FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND d > 3)",
    "compared": "SELECT t.a, u.a AS b FROM t JOIN u ON t.a < u.a",
    "sums of ranges": "SELECT u.a, sum(t.f) AS f FROM u JOIN t ON t.a <= u.a GROUP BY u.a",
    "extremes in boxes": "SELECT u.a, max(t.f) AS f FROM u JOIN t ON t.a <= u.a AND t.f < u.a GROUP BY u.a",
    "first rows": "SELECT t.a, u.d, f + d AS sum FROM t JOIN u USING (a) ORDER BY f + d DESC LIMIT 7",
    "first of a union": "SELECT a, f FROM t UNION ALL SELECT a, d::DOUBLE FROM u ORDER BY f DESC, a LIMIT 5",
    "either": "SELECT a FROM t UNION SELECT a FROM u",
    "both": "SELECT a FROM t INTERSECT SELECT a FROM e",
    "triangles": "SELECT count(*) AS n FROM e x, e y, e z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a",
    "rows of triangles": "SELECT x.a, y.a AS b, z.a AS c FROM e x, e y, e z "
    "WHERE x.b = y.a AND y.b = z.a AND z.b = x.a",
    "paths": "SELECT DISTINCT x.a, y.b FROM e x JOIN e y ON x.b = y.a",
    "pairs in turn": "SELECT DISTINCT x.a, y.s, u.d FROM e x JOIN t y ON x.b = y.a JOIN u ON u.a < y.a",
    "constant rows": "SELECT t.a, v.name FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS v(a, name) USING (a)",
    "alone": "SELECT sum(f) AS f, count(*) AS n FROM t",
    "above": 'SELECT n, count(*) AS k FROM "numbered over ties" GROUP BY n',
    "text of another": "SELECT a, one + 1 AS next FROM lists WHERE one > 1",
}
CORNERS = "SELECT x.a, count(*) AS n FROM e x, e y, e z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a GROUP BY x.a"
OPTIONS = {
    "rows of triangles": "epsilon = 0.33",
    "paths": "strategy = 'materialize'",
    "pairs in turn": "strategy = 'linear space'",
    "alone": "apply = 'on read'",
    "first rows": "on_error = 'null'",
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data.duckdb")


def created(con: sqlfront.Connection) -> None:
    con.execute(TABLES)
    for name, query in VIEWS.items():
        options = f"WITH ({OPTIONS[name]})" if name in OPTIONS else ""
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" {options} AS {query}')


def planned(con: sqlfront.Connection) -> dict[str, str]:
    """The nodes of all views, each with all of its definition and plan."""
    database = con.session.database
    found = (node for entry in database.views.values() for node in database.engine.nodes_of(entry.maintained))
    return {
        node.name: canonical((node.view.definition, node.view.plan) if hasattr(node, "view") else node.rows)
        for node in found
    }


def test_every_kind_of_view_comes_back_at_the_first_opening(path: str) -> None:
    with sqlfront.connect(path) as con:
        created(con)
        plans = planned(con)
        for write in WRITES:
            con.execute(write)
        expected = {name: repr(rows(con, f'"{name}"')) for name in VIEWS}
    described = json.loads(manifest(path).read_text().partition("\n")[2])
    assert described["left out"] == {} and len(described["views"]) == len(VIEWS)
    for changes in (True, False):
        with sqlfront.connect(path) as con:
            assert is_adopted(con)
            assert planned(con) == plans
            assert {name: repr(rows(con, f'"{name}"')) for name in VIEWS} == expected
            if not changes:
                break
            con.execute(
                "INSERT INTO t SELECT i % 5, 'new ' || i, i / 3, [i], TIMESTAMP '2026-02-01' FROM range(9) x(i)"
            )
            con.execute("DELETE FROM u WHERE a = 3; UPDATE e SET b = a WHERE a = 4; DELETE FROM t WHERE a = 2")
            con.execute("INSERT INTO u VALUES (3, 7, 'name 1')")
            check(con)
            check_tables(con)
            expected = {name: repr(rows(con, f'"{name}"')) for name in VIEWS}


def test_views_that_were_planned_anew_come_back_by_their_plans(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their stored queries, and their options, lead to the former plans."""
    monkeypatch.setattr(observation, "LEAST_CHANGES", 40)
    monkeypatch.setattr(replanning, "OFTEN", 10)
    monkeypatch.setattr(replanning.Replanning, "next_look", 10)
    with sqlfront.connect(path) as con:
        for table in ("r (x BIGINT)", "s (x BIGINT, y BIGINT)", "t (y BIGINT)"):
            con.execute(f"CREATE CHANGE TABLE {table} WITH (durable = true)")
        con.execute(
            "CREATE TABLE e (a BIGINT, b BIGINT); INSERT INTO e SELECT i % 6, (i * 5 + 1) % 6 FROM range(40) x(i)"
        )
        con.execute("CREATE MATERIALIZED VIEW dead AS SELECT count(*) AS n FROM r JOIN s USING (x) JOIN t USING (y)")
        con.execute(f"CREATE MATERIALIZED VIEW turned WITH (epsilon = 0.33) AS {VIEWS['triangles']}")
        built = planned(con)
        con.execute(
            "INSERT INTO r SELECT 2 * i FROM range(300) x(i); INSERT INTO s SELECT 2 * i + 1, 7 FROM range(300) x(i)"
        )
        for _ in range(60):
            con.execute("INSERT INTO t VALUES (7)")
            con.execute("DELETE FROM t WHERE y = 7")
        con.execute("ALTER MATERIALIZED VIEW turned SET (epsilon = 0.67)")
        plans = planned(con)
        dead = con.session.database.views["main", "dead"].maintained.name
        assert plans[dead] != built[dead]
    with sqlfront.connect(path) as con:
        assert is_adopted(con) and planned(con) == plans
        database = con.session.database
        turned = database.views["main", "turned"].maintained
        assert turned.epsilon == 0.67
        con.execute("INSERT INTO t VALUES (7); INSERT INTO r VALUES (3); DELETE FROM e WHERE a = 1")
        check(con)
        check_tables(con)


def test_a_view_that_was_divided_is_watched_on(path: str) -> None:
    """Else it would never be one tree again."""
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {CORNERS}")
        con.execute(WRITES[2])
        database = con.session.database
        view = database.views["main", "v"].maintained
        plan, epsilon = divide_unasked(view.definition, view.plan)
        database.engine.replan(view.name, plan, epsilon)
        view.observation.divides = True
        plans = planned(con)
    with sqlfront.connect(path) as con:
        assert is_adopted(con) and planned(con) == plans
        view = con.session.database.views["main", "v"].maintained
        assert view.observation.divides and view.part_trees is not None
        con.execute("INSERT INTO e VALUES (1, 1), (7, 1)")
        assert view.observation.end(view, 0) is None
        check(con)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE u ALTER d SET NOT NULL",
        "ALTER TABLE u ALTER c TYPE VARCHAR COLLATE NOACCENT",
        "ALTER TABLE t ADD PRIMARY KEY (at_time)",
    ],
)
def test_a_table_that_is_declared_otherwise_has_views_built(path: str, change: str, caplog: Any) -> None:
    """Plans rest on keys, NOT NULL and collations. Another program may take the triggers off and put them back."""
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT t.s, u.c, count(*) AS n FROM t JOIN u USING (a) GROUP BY ALL")
        for write in WRITES:
            con.execute(write)
    table = change.split()[2]
    with duckdb.connect(path) as plain:
        triggers = plain.execute(
            f"SELECT trigger_name, sql FROM duckdb_triggers() WHERE table_name = '{table}'"
        ).fetchall()
        for name, _ in triggers:
            plain.execute(f'DROP TRIGGER "{name}" ON {table}')
        plain.execute(change)
        for _, definition in triggers:
            plain.execute(definition)
    with sqlfront.connect(path) as con:
        assert not is_adopted(con)
        check(con)
    assert f'table "main"."{table}" has been altered since' in caplog.text


def test_a_table_may_get_columns_and_defaults(path: str) -> None:
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE r (a BIGINT NOT NULL, b BIGINT); INSERT INTO r VALUES (1, 2)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS b FROM r GROUP BY a")
    with duckdb.connect(path) as plain:
        plain.execute("ALTER TABLE r ADD COLUMN c BIGINT; ALTER TABLE r ALTER b SET DEFAULT 7")
        plain.execute("INSERT INTO r (a) VALUES (1); CREATE TABLE other (x BIGINT PRIMARY KEY)")
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        assert rows(con, "v") == [(1, 9)]


def test_plans_are_written_as_they_are() -> None:
    with sqlfront.connect() as con:
        created(con)
        database = con.session.database
        kinds = set[type]()
        for entry in database.views.values():
            for node in database.engine.nodes_of(entry.maintained):
                value = (node.view.definition, node.view.plan) if hasattr(node, "view") else node.rows
                found = plan_values.read(json.loads(json.dumps(plan_values.written(value))))
                assert found == value and canonical(found) == canonical(value)
                kinds.add(type(value))
    assert len(kinds) >= 5


def test_one_object_stays_one_object() -> None:
    shared = Definition((), ("a",), "bag")
    one, other, equal = plan_values.read(plan_values.written((shared, shared, Definition((), ("a",), "bag"))))
    assert one is other and equal is not one and equal == one
    assert plan_values.read(plan_values.written(RULES[0])) is RULES[0]


@pytest.mark.parametrize(
    "foreign",
    [
        ["value", "query.re", 1],
        ["value", "os.Path", "x"],
        ["value", "..sql.Query", "x"],
        ["enum", "plan.Plan", "TREE"],
        ["call", "query.Definition"],
    ],
)
def test_foreign_values_call_nothing(foreign: list[Any]) -> None:
    with pytest.raises((InternalError, ImportError, TypeError)):
        plan_values.read(foreign)
    with pytest.raises(InternalError):
        plan_values.written(object())

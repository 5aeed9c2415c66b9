"""CREATE OR REPLACE of views that others read: these are built anew over the new one, or nothing changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import sqlfront
from sqlfront.database import stored_views
from sqlfront.maintenance.engine import Engine
from tests.slices import parts
from tests.sqlfront.snapshots.test_snapshots import copy_of

TABLES = "CREATE TABLE r (a INTEGER, b INTEGER, t VARCHAR); CREATE TABLE s (a INTEGER, c INTEGER);"
VIEWS = {
    "base": "SELECT a, sum(b) AS b, count(*) AS n FROM r GROUP BY a",
    "plain": "SELECT a, b, t FROM r WHERE b > 0",
    "left_side": "SELECT a, b + 1 AS b FROM base WHERE n > 0",
    "right_side": "SELECT n, sum(b) AS b, max(a) AS a FROM base GROUP BY n",
    "of_plain": "SELECT x.a, x.t, base.n FROM plain AS x JOIN base ON x.a = base.a",
    "diamond": "SELECT l.a, l.b, q.n FROM left_side AS l JOIN right_side AS q ON l.a = q.a",
    "blocks": "SELECT d.n, q.k FROM diamond AS d JOIN (SELECT a, count(*) AS k FROM base GROUP BY a) AS q ON q.a = d.a",
    "tip": "SELECT n, count(*) AS k, min(b) AS lo FROM diamond GROUP BY n",
    "joined": "SELECT tip.k, s.c FROM tip JOIN s ON s.a = tip.n",
    "first_rows": "SELECT a, t FROM of_plain ORDER BY a DESC, t LIMIT 3",
}
OTHERS = {
    "base": [
        "SELECT a, max(c) AS b, count(DISTINCT c) AS n FROM s GROUP BY a",
        "SELECT a, b, a AS n FROM r WHERE t <> 'x'",
        "SELECT r.a, sum(c) AS b, count(*) AS n, min(t) AS more FROM r JOIN s ON r.a = s.a GROUP BY r.a",
    ],
    "plain": [
        "SELECT DISTINCT a, b, t FROM r",
        "SELECT t, c AS b, r.a FROM r JOIN s ON r.a = s.a",
        "SELECT base.a, s.c AS b, 'x' AS t FROM base JOIN s ON s.a = base.a",
    ],
    "left_side": ["SELECT a, n AS b FROM base", "SELECT x.a, y.b FROM plain AS x JOIN base AS y ON x.a = y.a"],
    "right_side": ["SELECT b AS n, sum(a) AS b, min(a) AS a FROM plain GROUP BY b"],
    "diamond": ["SELECT a, count(*) AS n, min(b) AS b FROM left_side GROUP BY a"],
    "tip": ["SELECT n, max(b) AS lo, count(DISTINCT b) AS k FROM diamond GROUP BY n"],
}


def results(con: Any, names: Any = tuple(VIEWS)) -> dict[str, list[str]]:
    return {name: sorted(map(repr, con.execute(f"FROM {name}").fetchall())) for name in names}


def everything(con: sqlfront.Connection) -> Any:
    """What a statement that is refused must leave as it was."""
    engine = con.session.database.engine
    return (
        results(con), list(engine.views), sorted(engine.relations),
        sorted(str(table) for table in con.session.database.capture.tables()),
        con.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY 1").fetchall(),
        con.execute("SELECT * FROM __sqlfront.views ORDER BY name").fetchall(),
    )  # fmt: skip


def right(con: sqlfront.Connection) -> bool:
    return all(con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == [] for name in VIEWS)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("template") / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        for name, query in VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        con.execute("INSERT INTO r VALUES (1, 2, 'x'), (1, 3, 'y'), (2, 4, 'x'); INSERT INTO s VALUES (1, 5), (2, 1)")
    return path


@pytest.fixture
def con(template: str, tmp_path: Any) -> Iterator[sqlfront.Connection]:
    copy_of(template, str(tmp_path / "data.duckdb"))
    with sqlfront.connect(str(tmp_path / "data.duckdb")) as con:
        yield con


@pytest.mark.parametrize("seed", parts(4))
def test_all_that_read_it_follow(con: sqlfront.Connection, tmp_path: Any, seed: int) -> None:
    """Replaced at random between changes, in one transaction after another, and after the file is opened again."""
    choose, judge = random.Random(seed), duckdb.connect()
    judge.execute(TABLES)
    judge.execute("INSERT INTO r VALUES (1, 2, 'x'), (1, 3, 'y'), (2, 4, 'x'); INSERT INTO s VALUES (1, 5), (2, 1)")
    for name, query in VIEWS.items():
        judge.execute(f"CREATE VIEW {name} AS {query}")
    for number in range(5):
        name = choose.choice(list(OTHERS)) if number else "base"
        query = choose.choice([*OTHERS[name], VIEWS[name]])
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}")
        judge.execute(f"CREATE OR REPLACE VIEW {name} AS {query}")
        assert results(con) == results(judge), (name, query)
        a, b, t = choose.choice([1, 2, 3]), choose.choice([-1, 1, 2, 5]), choose.choice("xyz")
        for change in (
            f"INSERT INTO r VALUES ({a}, {b}, '{t}'), ({b}, {a}, '{t}')",
            f"INSERT INTO s VALUES ({a}, {b}), ({b}, 1)",
            f"DELETE FROM r WHERE a = {b}",
        ):
            con.execute(change)
            judge.execute(change)
        assert results(con) == results(judge), (name, query)
    assert right(con)
    con.close()
    with sqlfront.connect(str(tmp_path / "data.duckdb")) as again:
        assert results(again) == results(judge)
        for one, kind in ((again, "MATERIALIZED VIEW"), (judge, "VIEW")):
            one.execute("INSERT INTO r VALUES (3, 3, 'x')")
            one.execute(f"CREATE OR REPLACE {kind} base AS SELECT a, c AS b, 1 AS n FROM s")
        assert results(again) == results(judge) and right(again)
        again.execute("DROP TABLE r CASCADE; DROP TABLE s CASCADE")
        assert (again.session.database.engine.views, again.session.database.engine.relations) == ({}, {})


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT a, b FROM r", r"left_side reads it.*no column n any more"),
        ("SELECT a, t AS b, 1 AS n FROM r", r"left_side reads it.*VARCHAR"),
        ("SELECT a, NULL::STRUCT(x INTEGER) AS b, count(*) AS n FROM r GROUP BY a", r"left_side reads it"),
        ("SELECT a, 'x' || sum(b) AS b, count(*) AS n FROM r GROUP BY a", r"left_side reads it.*'\+"),
        ("SELECT a, b, n FROM base", r"would read itself\n"),
        ("SELECT a, lo AS b, n FROM tip JOIN r ON r.a = n", r"would read itself through tip"),
    ],
)
def test_what_a_reader_misses_is_named(con: sqlfront.Connection, query: str, named: str) -> None:
    before = everything(con)
    with pytest.raises(sqlfront.Error, match=named):
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {query}")
    assert everything(con) == before
    con.execute("INSERT INTO r VALUES (2, 7, 'x')")
    assert right(con)


def test_a_column_that_nobody_reads_may_go(con: sqlfront.Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW wide AS SELECT a, b, t, 1 AS extra FROM r")
    readers = {
        "counted": "SELECT a, count(*) AS k FROM wide GROUP BY a",
        "starred": "SELECT * FROM wide WHERE a > 0",
        "naturally": "SELECT k FROM wide NATURAL JOIN counted",
        "outer_name": "SELECT a FROM r WHERE a IN (SELECT t.n FROM (SELECT a AS n FROM wide) AS t)",
    }
    for name, query in readers.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for name in ("starred", "naturally"):
        with pytest.raises(sqlfront.IntegrityError, match=f"{name} reads it.*no column extra"):
            con.execute("CREATE OR REPLACE MATERIALIZED VIEW wide AS SELECT a, b, t FROM r")
        con.execute(f"DROP MATERIALIZED VIEW {name}")
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW wide AS SELECT a, b, t FROM r")
    with pytest.raises(sqlfront.IntegrityError, match=r"counted reads it.*no column a any more"):
        con.execute("CREATE OR REPLACE MATERIALIZED VIEW wide AS SELECT b, t FROM r")
    con.execute("INSERT INTO r VALUES (7, 7, 'x')")
    assert results(con, ["outer_name"])["outer_name"][-1] == "(7,)"
    assert con.execute("CHECK MATERIALIZED VIEW counted").fetchall() == []


@pytest.mark.parametrize("failing", [2, 5, 8])
def test_a_failure_half_way_changes_nothing(con: sqlfront.Connection, monkeypatch: Any, failing: int) -> None:
    before, build, calls = everything(con), Engine.create_view, []

    def fails(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments[1])
        if len(calls) == failing:
            raise ZeroDivisionError
        return build(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "create_view", fails)
        with pytest.raises(ZeroDivisionError):
            con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {OTHERS['base'][0]}")
    with monkeypatch.context() as patch:
        patch.setattr(stored_views, "_save_definition", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {OTHERS['base'][0]}")
    assert everything(con) == before
    con.execute("INSERT INTO r VALUES (2, 7, 'x'); DELETE FROM r WHERE a = 1")
    assert right(con)
    con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {OTHERS['base'][0]}")
    assert right(con)


def test_a_transaction_refuses_it_and_rolls_back(con: sqlfront.Connection) -> None:
    before = everything(con)
    con.execute("BEGIN; INSERT INTO r VALUES (9, 9, 'z')")
    with pytest.raises(sqlfront.Error, match="COMMIT"):
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {OTHERS['base'][0]}")
    con.execute("ROLLBACK")
    assert everything(con) == before and right(con)


def test_subscriptions_end_as_those_of_the_view_itself(con: sqlfront.Connection) -> None:
    names = {"base": "dropped or replaced", "tip": r"dropped or replaced\nWhy: base, which it reads, was replaced"}
    feeds = {name: con.view(name).subscribe(snapshot=False) for name in names}
    kept = con.view("plain").subscribe(snapshot=False)
    con.execute("INSERT INTO r VALUES (2, 7, 'x')")
    con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {OTHERS['base'][0]}")
    con.execute("INSERT INTO r VALUES (2, 9, 'x')")
    for name, told in names.items():
        assert feeds[name].poll() is not None
        with pytest.raises(sqlfront.OperationalError, match=told):
            feeds[name].poll()
    table = kept.poll()
    assert table is not None and table.num_rows == 2
    with con.view("tip").subscribe() as again:
        con.execute("INSERT INTO s VALUES (2, 11)")
        assert again.poll() is not None


def test_changes_past_sqlfront_are_taken_in(con: sqlfront.Connection) -> None:
    """A writer commits while the views are built: it is in all of them, once."""
    other = con.session.database.root.cursor()
    build = Engine.create_view
    written: list[str] = []

    def writes(self: Any, name: str, *arguments: Any, **named: Any) -> Any:
        made = build(self, name, *arguments, **named)
        if not written and "base" in name:
            written.append(name)
            other.execute("INSERT INTO r VALUES (2, 100, 'w'); INSERT INTO s VALUES (2, 50)")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "create_view", writes)
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW base AS {OTHERS['base'][0]}")
    assert written and right(con)
    con.execute("INSERT INTO r VALUES (2, 101, 'w')")
    assert right(con)

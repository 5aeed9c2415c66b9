"""ALTER TABLE ... ADD COLUMN of tables and change tables leaves views be."""

from __future__ import annotations

import datetime

import duckdb
import pytest

import sqlfront

VIEWS = {
    "v": "SELECT b, count(*) AS n, sum(a)::BIGINT AS s FROM c GROUP BY b",
    "later": "SELECT count(*) AS n FROM v",
    "starred": "SELECT c.*, t.x FROM c JOIN t ON t.a = c.a",
}
KINDS = ["CREATE TABLE c", "CREATE CHANGE TABLE c", "CREATE CHANGE TABLE c WITH (retain = false)"]


def made(path, kind):
    con = sqlfront.connect(path)
    head, with_, options = kind.partition(" WITH")
    con.execute(
        f"CREATE TABLE t AS SELECT 1 AS a, 'x' AS x; {head} (a BIGINT, b VARCHAR DEFAULT 'none'){with_}{options}"
    )
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    deferred = "" if "false" in kind else "WITH (apply = 'on read')"
    con.execute(f"CREATE MATERIALIZED VIEW deferred {deferred} AS SELECT b, count(*) AS n FROM c GROUP BY b")
    con.execute("INSERT INTO c VALUES (1, 'one'), (1, 'one'), (2, NULL)")
    return con


def rows(con, *names):
    return [sorted(con.execute(f"FROM {name}").fetchall(), key=str) for name in names or (*VIEWS, "deferred")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", [":memory:", "data.duckdb"])
def test_views_stay_as_they_are(tmp_path, monkeypatch, kind, path):
    monkeypatch.chdir(tmp_path)
    keeps = "false" not in kind
    with made(path, kind) as con:
        before = rows(con)
        maintained = [con.session.database.views["main", view].maintained for view in VIEWS]
        feed = con.view("v").subscribe(snapshot=False, timeout=0)
        con.execute("ALTER TABLE c ADD COLUMN day DATE DEFAULT DATE '2024-01-02'; ALTER TABLE c ADD COLUMN s VARCHAR[]")
        con.execute("ALTER TABLE c ADD COLUMN IF NOT EXISTS day INTEGER")
        assert rows(con) == before
        assert [con.session.database.views["main", view].maintained for view in VIEWS] == maintained
        con.execute("INSERT INTO c (a) VALUES (3); INSERT INTO c VALUES (1, 'x', NULL, ['s'])")
        con.apply_row("c", (4, "x", datetime.date(2025, 1, 1), []))
        assert sum(len(table) for table in feed) > 3
        assert rows(con, "v") == [[("none", 1, 3), ("one", 2, 2), ("x", 2, 5), (None, 1, 2)]]
        assert rows(con, "deferred") == [[("none", 1), ("one", 2), ("x", 2), (None, 1)]]
        assert len(con.execute("FROM starred").fetchall()) == 3
        if keeps:
            old = datetime.date(2024, 1, 2)
            new = datetime.date(2025, 1, 1)
            assert rows(con, "c") == [
                [
                    (1, "one", old, None),
                    (1, "one", old, None),
                    (1, "x", None, ["s"]),
                    (2, None, old, None),
                    (3, "none", old, None),
                    (4, "x", new, []),
                ]
            ]
            con.execute("UPDATE c SET day = NULL WHERE a = 1 AND b = 'one'; DELETE FROM c WHERE a = 2")
            con.execute("CREATE MATERIALIZED VIEW days AS SELECT day, count(*) AS n FROM c GROUP BY day")
            assert rows(con, "days") == [[(None, 3), (old, 1), (new, 1)]]
            assert all(not con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() for view in (*VIEWS, "days"))
        after = rows(con)
    if path != ":memory:":
        with duckdb.connect(path) as plain:
            assert rows(plain) == after
        with sqlfront.connect(path) as con:
            assert rows(con) == after
            con.execute("INSERT INTO c VALUES (1, 'one', NULL, NULL); CHECKPOINT")
            assert ("one", 3, 3) in rows(con, "v")[0]


def test_what_is_no_column_is_refused(tmp_path):
    with made(tmp_path / "data.duckdb", KINDS[1]) as con:
        before = rows(con, "c", *VIEWS)
        for statement, why in (
            ("ALTER TABLE c ADD COLUMN a INTEGER", 'Column with name "a" already exists'),
            ("ALTER TABLE c ADD COLUMN q nonsense", "Type with name nonsense"),
            ("ALTER TABLE main.c ADD COLUMN q INTEGER NOT NULL", r"NOT NULL constraint failed: c\.q"),
            ("ALTER TABLE c DROP COLUMN b", "is a change table"),
            ("BEGIN; ALTER TABLE c ADD COLUMN q INTEGER", "inside a transaction"),
        ):
            with pytest.raises(sqlfront.Error, match=why):
                con.execute(statement)
        con.execute("ROLLBACK")
        assert rows(con, "c", *VIEWS) == before
        con.execute("ALTER TABLE c ADD COLUMN q INTEGER DEFAULT 7 NOT NULL")
        with pytest.raises(sqlfront.IntegrityError):
            con.execute("INSERT INTO c VALUES (1, 'x', NULL)")
        assert con.execute("SELECT DISTINCT q FROM c").fetchall() == [(7,)]


def test_a_failure_leaves_the_table_as_it_was(tmp_path, monkeypatch):
    from sqlfront.define import persistence

    with made(tmp_path / "data.duckdb", KINDS[1]) as con:
        before = rows(con, "c", *VIEWS)
        monkeypatch.setattr(persistence, "save_change_table", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            con.execute("ALTER TABLE c ADD COLUMN q INTEGER")
        monkeypatch.undo()
        con.execute("INSERT INTO c VALUES (9, 'x'); DELETE FROM c WHERE a = 9")
        assert rows(con, "c", *VIEWS) == before
    with duckdb.connect(str(tmp_path / "data.duckdb")) as plain:
        assert rows(plain, "c", *VIEWS) == before

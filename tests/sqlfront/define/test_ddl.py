"""DDL of views, and DDL of DuckDB's on the tables that they read."""

from __future__ import annotations

import pytest

import sqlfront
from sqlfront.database import stored_views


@pytest.fixture
def con():
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a BIGINT, b VARCHAR, c INTEGER)")
    con.execute("CREATE TABLE u (a BIGINT, d INTEGER)")
    con.execute("INSERT INTO t VALUES (1, 'x', 3), (2, 'y', 4)")
    con.execute("INSERT INTO u VALUES (1, 10), (2, 20)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT t.a, sum(d) AS s, c FROM t JOIN u ON t.a = u.a GROUP BY t.a, c")
    yield con
    con.close()


def rows(con, query):
    return sorted(con.execute(query).fetchall(), key=str)


def right(con, name="v"):
    assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []
    return True


def test_an_added_column_is_transparent_and_a_later_view_reads_it(con):
    con.execute("ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 7")
    con.execute("INSERT INTO t VALUES (1, 'x', 3, 8)")
    assert rows(con, "FROM v") == [(1, 20, 3), (2, 20, 4)]
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT e, count(*) AS n FROM t GROUP BY e")
    con.execute("INSERT INTO t VALUES (2, 'x', 3, 9)")
    con.execute("DELETE FROM t WHERE e = 8")
    assert rows(con, "FROM w") == [(7, 2), (9, 1)]
    assert right(con) and right(con, "w")


@pytest.mark.parametrize(
    "create", ["CREATE TEMP TABLE", "create or replace -- one's own\n temporary table", "CREATE/**/TEMP/* t */TABLE"]
)
def test_a_temporary_table_of_the_name_concerns_no_view(con, create):
    con.execute(f"{create} t AS SELECT 5 AS a; {create} v (a INTEGER)")
    con.execute("DROP TABLE temp.v")
    assert rows(con, "FROM v") == [(1, 10, 3), (2, 20, 4)] and rows(con, "FROM t") == [(5,)]


def test_select_star_keeps_the_columns_it_had(con):
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT * FROM u")
    con.execute("ALTER TABLE u ADD COLUMN e INTEGER DEFAULT 7")
    con.execute("INSERT INTO u VALUES (3, 30, 8)")
    con.execute("REFRESH MATERIALIZED VIEW w")
    con.execute("INSERT INTO u VALUES (4, 40, 9)")
    assert rows(con, "FROM w") == [(1, 10), (2, 20), (3, 30), (4, 40)]
    assert right(con, "w")
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT * FROM u")
    assert rows(con, "FROM w") == [(1, 10, 7), (2, 20, 7), (3, 30, 8), (4, 40, 9)]


def test_a_renamed_column_is_followed(con):
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT c FROM t WHERE c > 3")
    con.execute("ALTER TABLE t RENAME COLUMN c TO cc")
    con.execute("INSERT INTO t (a, b, cc) VALUES (2, 'x', 5)")
    assert rows(con, "SELECT a, s, c FROM v") == [(1, 10, 3), (2, 20, 4), (2, 20, 5)]
    assert rows(con, "SELECT c FROM w") == [(4,), (5,)]
    assert right(con) and right(con, "w")


def test_a_renaming_that_is_no_sql_is_refused(con):
    with pytest.raises(sqlfront.IntegrityError, match="is not known"):
        con.execute("ALTER TABLE t RENAME COLUMN c (SELECT 1 AS index TO d")
    assert right(con)


def test_a_renamed_table_is_followed(con):
    con.execute("ALTER TABLE t RENAME TO tt")
    con.execute("INSERT INTO tt VALUES (2, 'x', 5)")
    con.execute("DELETE FROM u WHERE a = 1")
    assert rows(con, "FROM v") == [(2, 20, 4), (2, 20, 5)]
    assert right(con)
    with pytest.raises(sqlfront.IntegrityError, match="read the table: v"):
        con.execute("DROP TABLE tt")


@pytest.mark.parametrize(
    ("query", "before"),
    [
        ("SELECT a, d FROM t JOIN u USING (a)", [(1, 10), (2, 20)]),
        ("SELECT * FROM t NATURAL JOIN u", [(1, "x", 3, 10), (2, "y", 4, 20)]),
        ("SELECT x.a, y.b FROM t AS x JOIN t AS y ON x.a = y.a", [(1, "x"), (2, "y")]),
        ("SELECT c AS a, count(*) AS n FROM t WHERE t.a > 0 GROUP BY c", [(3, 1), (4, 1)]),
    ],
)
def test_a_renamed_column_is_followed_wherever_the_query_uses_it(con, query, before):
    con.execute(f"CREATE MATERIALIZED VIEW w AS {query}")
    names = [column[0] for column in con.execute("FROM w").description]
    con.execute("ALTER TABLE t RENAME COLUMN a TO aa")
    con.execute("ALTER TABLE t RENAME TO tt")
    assert rows(con, "FROM w") == before
    assert [column[0] for column in con.execute("FROM w").description] == names
    con.execute("INSERT INTO tt (aa, b, c) VALUES (2, 'z', 9)")
    assert len(rows(con, "FROM w")) > len(before)
    assert right(con) and right(con, "w")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP COLUMN c",
        "ALTER TABLE t ALTER c TYPE VARCHAR",
        "DROP TABLE t",
        "CREATE OR REPLACE TABLE t (a INTEGER)",
        "DROP SCHEMA main CASCADE",
    ],
)
def test_what_would_change_a_views_input_is_refused_naming_the_view(con, statement):
    with pytest.raises(sqlfront.IntegrityError, match=r"refused(.|\n)*\bv\b"):
        con.execute(statement)
    assert rows(con, "FROM v") == [(1, 10, 3), (2, 20, 4)]
    con.execute("INSERT INTO t VALUES (1, 'z', 3)")
    assert rows(con, "FROM v") == [(1, 20, 3), (2, 20, 4)]


def test_cascade_drops_the_views_with_the_table(con):
    con.execute("DROP TABLE t CASCADE")
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []
    con.execute("INSERT INTO u VALUES (3, 30)")
    con.execute("CREATE TABLE t (a BIGINT)")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


def state(con):
    """Everything that a refused statement must leave alone."""
    shown = [row[0] for row in rows(con, "SHOW MATERIALIZED VIEWS")]
    captured = (
        sorted(con.session.database.capture.tables()),
        rows(con, "SELECT table_name, trigger_name FROM duckdb_triggers()"),
    )
    stored = rows(con, "SELECT * FROM __sqlfront.views"), rows(con, "SELECT * FROM __sqlfront.captures")
    return shown, captured, stored, sorted(con.session.database.engine.relations)


def test_cascade_drops_everything_or_nothing(con):
    con.execute("CREATE TABLE p (a BIGINT PRIMARY KEY)")
    con.execute("CREATE TABLE k (a BIGINT PRIMARY KEY)")
    con.execute("CREATE TABLE child (a BIGINT REFERENCES k (a))")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k.a, p.a AS b FROM k, p WHERE k.a = p.a")
    con.execute("CREATE MATERIALIZED VIEW x AS SELECT count(*) AS n FROM k")
    before = state(con)
    for statement, why in (
        ("DROP TABLE k CASCADE", "main key table"),
        ("DROP TABLE u, k CASCADE", "one object at a time"),
    ):
        with pytest.raises(sqlfront.Error, match=why):
            con.execute(statement)
        assert state(con) == before
    con.execute("INSERT INTO k VALUES (1)")
    con.execute("INSERT INTO p VALUES (1)")
    con.execute("INSERT INTO u VALUES (1, 100)")
    assert rows(con, "FROM w") == [(1, 1)] and rows(con, "FROM x") == [(1,)]
    assert right(con) and right(con, "w") and right(con, "x")
    con.execute("DROP TABLE child")
    con.execute("DROP TABLE k CASCADE")
    assert [row[0] for row in rows(con, "SHOW MATERIALIZED VIEWS")] == ["v"]
    assert rows(con, "SELECT table_name FROM duckdb_tables() WHERE table_name IN ('k', 'p')") == [("p",)]


def test_a_failure_inside_drop_or_replace_leaves_everything(con, monkeypatch):
    con.execute("CREATE CHANGE TABLE c (a BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT t.a, t.b FROM t, c WHERE t.a = c.a")
    con.apply_row("c", (1,))
    before = state(con)
    with monkeypatch.context() as patch:
        patch.setattr(stored_views, "_save_definition", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            con.execute("CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT b FROM t")
    uninstall = type(con.session.database.capture).uninstall
    with monkeypatch.context() as patch:
        patch.setattr(type(con.session.database.capture), "uninstall", lambda *a, **k: (uninstall(*a, **k), 1 / 0))
        for statement in ("DROP TABLE t CASCADE", "DROP MATERIALIZED VIEW v"):
            with pytest.raises(ZeroDivisionError):
                con.execute(statement)
    assert state(con) == before
    con.execute("INSERT INTO t VALUES (1, 'z', 3)")
    assert rows(con, "FROM w") == [(1, "x"), (1, "z")]
    assert right(con) and right(con, "w")
    con.execute("DROP CHANGE TABLE c CASCADE")
    assert [row[0] for row in rows(con, "SHOW MATERIALIZED VIEWS")] == ["v"]


def test_a_refused_view_leaves_no_table_captured(con):
    con.execute("CREATE TABLE a (k BIGINT)")
    con.execute("CREATE TABLE b (k BIGINT, _weight BIGINT)")
    con.execute("CREATE CHANGE TABLE c (k BIGINT) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW over AS SELECT k FROM c")
    con.apply_row("c", (1,))
    before = state(con)
    for query in ("SELECT a.k FROM a, b WHERE a.k = b.k", "SELECT a.k FROM a, c WHERE a.k = c.k"):
        with pytest.raises(sqlfront.Error, match=r"_weight|passed already"):
            con.execute(f"CREATE MATERIALIZED VIEW w AS {query}")
        assert state(con) == before


def test_a_schema_with_views_or_change_tables_is_not_dropped(con):
    con.execute("CREATE SCHEMA s")
    con.execute("CREATE CHANGE TABLE s.ct (a BIGINT)")
    with pytest.raises(sqlfront.IntegrityError, match=r"s.ct"):
        con.execute("DROP SCHEMA s CASCADE")
    con.execute("DROP CHANGE TABLE s.ct")
    con.execute("DROP SCHEMA s")


def test_or_replace_swaps_or_leaves_the_old_view(con):
    for query in ("SELECT nosuch FROM t", "SELECT a FROM nosuch", "SELECT a + random() AS r FROM t"):
        with pytest.raises(sqlfront.Error):
            con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        assert rows(con, "FROM v") == [(1, 10, 3), (2, 20, 4)]
    con.execute("INSERT INTO t VALUES (1, 'z', 3)")
    assert rows(con, "FROM v") == [(1, 20, 3), (2, 20, 4)]
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT b, count(*) AS n FROM t GROUP BY b")
    con.execute("INSERT INTO t VALUES (1, 'z', 3)")
    assert rows(con, "FROM v") == [("x", 1), ("y", 1), ("z", 2)]


def test_if_exists_and_if_not_exists(con):
    con.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT nosuch FROM nosuch")
    con.execute("DROP MATERIALIZED VIEW IF EXISTS nosuch")
    with pytest.raises(sqlfront.ProgrammingError, match="exists already"):
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    with pytest.raises(sqlfront.ProgrammingError, match="a table named u"):
        con.execute("CREATE MATERIALIZED VIEW u AS SELECT a FROM t")
    with pytest.raises(sqlfront.ProgrammingError, match="known materialized views: v"):
        con.execute("DROP MATERIALIZED VIEW nosuch")
    assert rows(con, "FROM v") == [(1, 10, 3), (2, 20, 4)]


def test_a_duckdb_view_over_a_dropped_view_says_so(con):
    con.execute("CREATE VIEW over AS SELECT a FROM v")
    assert rows(con, "FROM over") == [(1,), (2,)]
    con.execute("DROP MATERIALIZED VIEW v")
    with pytest.raises(sqlfront.ProgrammingError, match="v does not exist"):
        con.execute("FROM over")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM u")
    assert rows(con, "FROM over") == [(1,), (2,)]


def test_duckdb_ddl_on_a_materialized_view_is_refused_with_ours(con):
    for statement in ("DROP VIEW v", "CREATE OR REPLACE VIEW v AS SELECT 1", "ALTER VIEW v RENAME TO w"):
        with pytest.raises(sqlfront.ProgrammingError, match="materialized view"):
            con.execute(statement)
    assert rows(con, "FROM v") == [(1, 10, 3), (2, 20, 4)]


def test_refresh_rebuilds(con):
    con.execute("REFRESH MATERIALIZED VIEW v")
    con.execute("INSERT INTO t VALUES (1, 'z', 3)")
    assert rows(con, "FROM v") == [(1, 20, 3), (2, 20, 4)]


def test_a_sum_beyond_its_type_raises_when_it_is_read_not_when_it_is_written(con):
    con.execute("CREATE TABLE big (g INTEGER, x HUGEINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT g, sum(x) AS s FROM big GROUP BY g")
    largest = 2**127 - 1
    con.execute(f"INSERT INTO big VALUES (1, {largest}), (2, 5)")
    con.execute(f"INSERT INTO big VALUES (1, {largest})")
    with pytest.raises(sqlfront.DataError, match="HUGEINT"):
        con.execute("FROM w").fetchall()
    con.execute("INSERT INTO big VALUES (1, -3)")
    con.execute(f"DELETE FROM big WHERE x = {largest}")
    assert rows(con, "FROM w") == [(1, -3), (2, 5)]

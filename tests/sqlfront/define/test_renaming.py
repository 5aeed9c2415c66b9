"""ALTER MATERIALIZED VIEW ... RENAME TO: the view goes on under its new name, everywhere, or nothing has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sqlfront

QUERIES = {
    "groups": "SELECT a, count(*) AS n, sum(b) AS total FROM t GROUP BY a",
    "join": "SELECT t.a, u.b FROM t JOIN u USING (a)",
    "blocks": "SELECT a, count(*) AS n FROM (SELECT DISTINCT a, b FROM t) GROUP BY a HAVING count(*) > 1",
    "computed": "SELECT a, median(b) AS m FROM t GROUP BY a",
    "first rows": "SELECT a, b FROM t ORDER BY b DESC LIMIT 2",
    "union": "SELECT a FROM t UNION SELECT b FROM u",
}


@pytest.fixture
def con() -> Iterator[Any]:
    with sqlfront.connect() as connection:
        make_tables(connection)
        yield connection


def make_tables(con: Any) -> None:
    con.execute("CREATE TABLE t (a INT, b INT); CREATE TABLE u (a INT, b INT)")
    con.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, NULL); INSERT INTO u VALUES (1, 7), (1, 7)")


def change(con: Any, turn: int) -> None:
    con.execute(f"INSERT INTO t VALUES ({turn % 3}, {turn}), (NULL, 4); INSERT INTO u VALUES ({turn % 2}, 1)")
    con.execute(f"DELETE FROM t WHERE b = {turn - 2}; UPDATE u SET b = b + 1 WHERE a = 1")


def check(con: Any, view: str, query: str) -> None:
    rows = con.session.duck.execute(query).fetchall()
    assert Counter(con.execute(f"FROM {view}").fetchall()) == Counter(rows)
    assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []


def names(con: Any) -> list[str]:
    return [row[0] for row in con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]


@pytest.mark.parametrize("name", QUERIES)
def test_a_renamed_view_goes_on(con: Any, name: str) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES[name]}")
    change(con, 1)
    con.execute("ALTER MATERIALIZED VIEW v RENAME TO w")
    change(con, 2)
    check(con, "w", QUERIES[name])
    with pytest.raises(sqlfront.ProgrammingError, match="v"):
        con.execute("FROM v")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")  # The old name is free.
    change(con, 3)
    check(con, "w", QUERIES[name])
    check(con, "v", "SELECT a FROM t")
    assert str(con.explain("w")) and "w" in str(con.execute("EXPLAIN MATERIALIZED VIEW w").fetchall())
    con.execute("DROP MATERIALIZED VIEW v; DELETE FROM t; DELETE FROM u")
    check(con, "w", QUERIES[name])
    con.execute("DROP MATERIALIZED VIEW w")
    assert con.execute("SHOW STATE").fetchall() == [] or not con.session.database.engine.views


@pytest.mark.parametrize("persistent", [True, False])
def test_the_new_name_is_that_of_the_file(tmp_path: Path, persistent: bool) -> None:
    """With a snapshot of the view, and without."""
    file, query = tmp_path / "f.duckdb", QUERIES["groups"]
    with sqlfront.connect(file) as con:
        make_tables(con)
        con.execute(f"CREATE SCHEMA s; CREATE MATERIALIZED VIEW s.v WITH (order_by = 'total DESC') AS {query}")
        con.execute("CREATE INDEX i ON s.v (n DESC)")
        if persistent:
            con.execute("CHECKPOINT")
        con.execute('ALTER MATERIALIZED VIEW s.v RENAME TO "W w"')
        change(con, 1)
    with sqlfront.connect(file) as con:
        assert con.execute("SHOW MATERIALIZED VIEWS").fetchall()[0][0] in ('s."W w"', "W w", "s.W w")
        change(con, 2)
        check(con, 's."W w"', query)
        assert con.execute('FROM s."W w" ORDER BY total DESC, a LIMIT 1').fetchall()
        con.execute('DROP INDEX i; ALTER MATERIALIZED VIEW s."w W" RENAME TO v')
        check(con, "s.v", query)


def test_only_the_case_of_a_name_may_change(con: Any) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES['groups']}")
    con.execute("ALTER MATERIALIZED VIEW v RENAME TO V")
    change(con, 1)
    check(con, "v", QUERIES["groups"])
    assert con.view("v").name == '"V"' and "V" in names(con)


def test_a_subscription_ends_with_the_new_name(con: Any) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES['groups']}")
    view = con.view("v")
    with view.subscribe(timeout=5, snapshot=False) as changes:
        con.execute("ALTER MATERIALIZED VIEW v RENAME TO w")
        with pytest.raises(sqlfront.OperationalError, match="v was renamed to w"):
            next(changes)
    with pytest.raises(sqlfront.ProgrammingError, match="get it anew"):
        view.count()
    with con.view("w").subscribe(timeout=5) as changes:
        change(con, 1)
        assert next(changes).num_rows


def test_other_connections_know_the_new_name(con: Any) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES['groups']}")
    with con.cursor() as other:
        assert other.execute("FROM v").fetchall()
        con.execute("ALTER MATERIALIZED VIEW v RENAME TO w")
        check(other, "w", QUERIES["groups"])
        with pytest.raises(sqlfront.ProgrammingError):
            other.execute("FROM v")


@pytest.mark.parametrize(
    ("before", "to", "error", "hint"),
    [
        ("CREATE MATERIALIZED VIEW over AS SELECT n FROM v", "w", "read it by this name: over", "drop them"),
        ("CREATE MATERIALIZED VIEW over AS SELECT count(*) AS c FROM v", "w", "read it by this name: over", "drop"),
        ("CREATE MATERIALIZED VIEW w AS SELECT a FROM t", "w", "w exists already", "another name"),
        ("CREATE VIEW w AS SELECT a FROM t", "w", "w exists already", "another name"),
        ("SELECT 1", "T", '"T" exists already', "another name"),
        ("SELECT 1", "v", "a view named v exists already", "another name"),
        ("SELECT 1", "__sqlfront_x", "__sqlfront", None),
        ("BEGIN", "w", "cannot change inside a transaction", "COMMIT"),
    ],
)
def test_a_rename_is_refused(con: Any, before: str, to: str, error: str, hint: str | None) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES['groups']}")
    con.execute(before)
    with pytest.raises(sqlfront.Error, match=error) as caught:
        con.execute(f"ALTER MATERIALIZED VIEW v RENAME TO {to}")
    assert hint is None or hint in (caught.value.hint or "")
    con.rollback()
    change(con, 1)
    check(con, "v", QUERIES["groups"])


def test_a_view_of_rows_that_are_not_kept_is_not_renamed(con: Any) -> None:
    con.execute("CREATE CHANGE TABLE c (a INT) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM c GROUP BY a")
    con.execute("INSERT INTO c VALUES (1)")
    with pytest.raises(sqlfront.ProgrammingError, match="keeps no rows"):
        con.execute("ALTER MATERIALIZED VIEW v RENAME TO w")
    assert con.execute("FROM v").fetchall() == [(1, 1)]


def test_a_view_that_is_not_there_is_not_renamed(con: Any) -> None:
    with pytest.raises(sqlfront.ProgrammingError, match="there is no materialized view v"):
        con.execute("ALTER MATERIALIZED VIEW v RENAME TO w")


def test_a_failed_rename_has_changed_nothing(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlfront.define import ddl

    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES['blocks']}")
    before = con.execute("SHOW STATE").fetchall()

    def failing(*_: object) -> None:
        raise sqlfront.OperationalError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(ddl, "store_view", failing)
        with pytest.raises(sqlfront.OperationalError, match="disk is full"):
            con.execute("ALTER MATERIALIZED VIEW v RENAME TO w")
    assert con.execute("SHOW STATE").fetchall() == before and "w" not in names(con)
    change(con, 1)
    check(con, "v", QUERIES["blocks"])


def test_a_view_may_be_spelled_in_british(con: Any) -> None:
    con.execute("CREATE OR REPLACE MATERIALISED VIEW v AS SELECT a AS materialised FROM t")
    con.execute("ALTER Materialised VIEW v RENAME TO materialised; REFRESH MATERIALISED VIEW materialised")
    check(con, "materialised", "SELECT a FROM t")
    assert con.execute("SELECT materialised FROM materialised LIMIT 1").description[0][0] == "materialised"
    con.execute("EXPLAIN MATERIALISED VIEW materialised; SHOW MATERIALISED VIEWS; DROP MATERIALISED VIEW materialised")
    assert names(con) == []


@pytest.mark.parametrize(
    ("names_", "query", "why"),
    [
        ("x, y", "SELECT a FROM t", r"v has 2 column names, and its query 1 column\b"),
        ("x, y, z", "SELECT a, b FROM t", "v has 3 column names, and its query 2 columns"),
        ("x, y", "VALUES (1)", "2 column names, and its query 1 column"),
        ("x, y", "SELECT nowhere FROM t", "nowhere"),
    ],
)
def test_more_names_than_columns_are_refused(con: Any, names_: str, query: str, why: str) -> None:
    with pytest.raises(sqlfront.ProgrammingError, match=why) as caught:
        con.execute(f"CREATE MATERIALIZED VIEW v ({names_}) AS {query}")
    if "nowhere" not in why:
        assert "names" in (caught.value.hint or "") and names_ in (caught.value.why or "")
    con.execute("CREATE MATERIALIZED VIEW v (x) AS SELECT a, b FROM t")
    assert [column[0] for column in con.execute("FROM v").description] == ["x", "b"]

"""A read of a view looks for other writers' changes unless all sessions of a database in memory have told theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sqlfront
from sqlfront.database import sessions

LOOK_UP = "SELECT * FROM v WHERE g = 1"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each look."""
    found: list[int] = []
    catch_up = sessions.catch_up
    monkeypatch.setattr(sessions, "catch_up", lambda database: found.append(1) or catch_up(database))
    return found


def opened(path: str = ":memory:") -> Any:
    con = sqlfront.connect(path)
    con.execute("CREATE TABLE t (g BIGINT, x BIGINT); INSERT INTO t VALUES (1, 1)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, sum(x) AS s FROM t GROUP BY g")
    con.execute("CREATE MATERIALIZED VIEW r AS SELECT x, g FROM t ORDER BY x DESC, g LIMIT 5")
    con.execute(LOOK_UP)
    return con


def test_writes_that_tell_their_changes_need_no_look(looks: list[int]) -> None:
    con = opened()
    other, view = con.cursor(), con.view("v")
    other.execute(LOOK_UP)
    con.execute(LOOK_UP)
    looks.clear()
    for number, statement in enumerate(
        (
            "INSERT INTO t VALUES (1, 10)",
            "UPDATE t SET x = 5 WHERE x = 1",
            "DELETE FROM t WHERE x = 5",
            "INSERT INTO t SELECT 1, 20",
            "SELECT 1",
        )
    ):
        con.execute(statement)
        expected = [(1, [11, 15, 10, 30, 30][number])]
        assert con.execute(LOOK_UP).fetchall() == other.execute(LOOK_UP).fetchall() == expected
        greatest = [(10, 1), (10, 1), (10, 1), (20, 1), (20, 1)][number]
        assert con.execute("SELECT * FROM r ORDER BY x DESC LIMIT 1").fetchall() == [greatest]
        assert view.get(1) == expected[0]
    assert looks == []


def test_any_query_and_a_handle_need_no_look(looks: list[int]) -> None:
    con = opened()
    con.execute(LOOK_UP)
    query = "SELECT max(s) FROM v JOIN t USING (g)"
    looks.clear()
    for expected in (11, 21, 31):
        con.execute("INSERT INTO t VALUES (1, 10)")
        assert con.execute(query).fetchall() == [(expected,)]
        assert con.view("v").count() == 1 and con.view("main.v").get(1) == (1, expected)
    assert looks == []
    con.execute("WITH q AS (INSERT INTO t VALUES (1, 1) RETURNING x) SELECT x FROM q").fetchall()
    assert con.execute(query).fetchall() == [(32,)]
    assert looks
    with con.cursor() as other:
        other.execute("PREPARE later AS INSERT INTO t VALUES (1, 5); EXECUTE later")
    assert con.execute(query).fetchall() == [(37,)]


@pytest.mark.parametrize(
    "statement",
    [
        "PREPARE later AS INSERT INTO t VALUES ($1, $2); EXECUTE later(1, 2)",
        "BEGIN; INSERT INTO t VALUES (1, 2); COMMIT",
        "EXPLAIN ANALYZE INSERT INTO t VALUES (1, 2)",
        "WITH q AS (INSERT INTO t VALUES (1, 2) RETURNING x) SELECT x FROM q",
    ],
)
def test_other_statements_of_any_session_are_looked_for(statement: str) -> None:
    con = opened()
    other, third = con.cursor(), con.cursor()
    for session in (con, other):
        session.execute(LOOK_UP)
    other.execute(statement)
    assert con.execute(LOOK_UP).fetchall() == [(1, 3)]
    assert con.execute(LOOK_UP).fetchall() == [(1, 3)]  # The other has not looked since.
    third.execute("PREPARE more AS INSERT INTO t VALUES ($1, $2)")
    third.execute("EXECUTE more(1, 4)")
    third.close()
    assert con.execute(LOOK_UP).fetchall() == [(1, 7)]
    assert con.view("v").get(1) == (1, 7)


def test_an_insert_into_a_table_of_no_view_may_fire_triggers_of_the_user(looks: list[int]) -> None:
    con = opened()
    con.execute("CREATE TABLE u (x BIGINT)")
    con.execute("CREATE TRIGGER tr AFTER INSERT ON u FOR EACH STATEMENT INSERT INTO t VALUES (1, 2)")
    con.execute(LOOK_UP)
    con.execute("INSERT INTO u VALUES (7)")
    looks.clear()
    assert con.execute(LOOK_UP).fetchall() == [(1, 3)]
    assert con.execute(LOOK_UP).fetchall() == [(1, 3)]
    assert looks == [1]


def test_others_can_reach_a_file_and_whom_the_root_is_given(tmp_path: Path, looks: list[int]) -> None:
    con = opened(str(tmp_path / "x.duckdb"))
    con.execute(LOOK_UP)
    looks.clear()
    con.execute(LOOK_UP)
    assert looks == [1]
    con = opened()
    con.execute(LOOK_UP)
    con.session.database.root.cursor().execute("INSERT INTO t VALUES (1, 5)")
    for _ in range(2):
        assert con.execute(LOOK_UP).fetchall() == [(1, 6)]


def test_a_session_whose_statement_has_ended_is_looked_at_once(looks: list[int]) -> None:
    con = opened()
    reader, other = con.cursor(), con.cursor()
    for statement in ("CREATE MATERIALIZED VIEW w AS SELECT x FROM t", "SELECT max(s) FROM v", "SHOW STATE"):
        other.execute(statement)
        reader.execute(LOOK_UP)
        looks.clear()
        assert reader.execute(LOOK_UP).fetchall() == reader.execute(LOOK_UP).fetchall() == [(1, 1)]
        assert looks == []
    other.execute("PREPARE later AS INSERT INTO t VALUES ($1, $2)")
    other.execute("EXECUTE later(1, 2)").fetchall()
    assert reader.execute(LOOK_UP).fetchall() == [(1, 3)]

"""Writes of a few rows of a change table in literals give what DuckDB gives on a table, short ones and others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlfront
from sqlfront.write import short_writes

COLUMNS = "(a BIGINT, b VARCHAR NOT NULL, c DOUBLE, d DATE, e SMALLINT DEFAULT 3)"
QUERY = "SELECT b, sum(a) AS s, count(*) AS n, max(e) AS top FROM {} GROUP BY b"


@pytest.fixture(params=["memory", "file"])
def con(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A connection with a change table, which is durable in a file."""
    con = sqlfront.connect(":memory:" if request.param == "memory" else tmp_path / "c.db")
    keys = "PRIMARY KEY (a, e), UNIQUE (b)"
    con.execute(f"CREATE CHANGE TABLE c {COLUMNS[:-1]}, {keys}) WITH (retain = true)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY.format('c')}")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT * FROM c WHERE c > 1")
    yield con
    con.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each write was a short one."""
    found: list[bool] = []

    def noting(write: Any) -> Any:
        def noted(session: Any, text: str, params: Any) -> bool:
            found.append(write(session, text, params))
            return found[-1]

        return noted

    monkeypatch.setattr(short_writes, "write_shortly", noting(short_writes.write_shortly))
    monkeypatch.setattr(short_writes, "write_many", noting(short_writes.write_many))
    return found


def statement(random: random.Random) -> tuple[str, list[Any] | None]:
    pick = random.choice
    a, e, b = random.randrange(-4, 5), pick([1, 2, 300, -2]), pick(["'x'", "'it''s'", "''", "NULL"])
    c, d = pick(["1.5", "2", "NULL", "-3", "'nan'"]), pick(["NULL", "'2024-02-29'", "DATE '2020-01-01'"])
    name = pick(["c", "C", "main.c", '"c"'])
    chosen: list[tuple[str, list[Any] | None]] = [
        (f"INSERT INTO {name} VALUES ({a}, {b}, {c}, {d}, {e})", None),
        (f"INSERT INTO {name} VALUES ({a}, 'x', {c}, NULL, {e}), ({a}, 'y', NULL, NULL, 1);", None),
        (f"insert into {name} (e, d, c, b, a) values ({e}, NULL, NULL, {b}, {a})", None),
        (f"INSERT INTO {name} (a, b) VALUES ({a}, 'z')", None),
        (f"INSERT INTO {name} VALUES (?, ?, ?, NULL, {e})", [a, "x", pick([None, 1.5, 2])]),
        (f"INSERT INTO {name} VALUES ({a}, 'x', NULL, NULL, {pick([70000, 2.5, True])})", None),
        (f"UPDATE {name} SET c = {c}, b = 'u' WHERE a = {a} AND e = {e}", None),
        (f"UPDATE {name} SET a = {a} WHERE b = {b}", None),
        (f"UPDATE {name} SET a = ?, e = 1 WHERE b = ? AND a = 2", [a, "x"]),
        (f"UPDATE {name} SET e = 99999 WHERE b = 'x'", None),
        (f"UPDATE {name} SET a = a + 1 WHERE b = 'x'", None),
        (f"UPDATE {name} SET b = NULL WHERE b = 'x'", None),
        (f"DELETE FROM {name} WHERE b = {b}", None),
        (f"DELETE FROM {name} WHERE e = {e} AND a = {a}", None),
        (f"DELETE FROM {name} WHERE a = {a} AND e = '1'", None),
        (f"DELETE FROM {name} WHERE a = {a} AND e = 1.4", None),
        (f"DELETE FROM {name} WHERE a = {a}", None),
    ]
    return pick(chosen)


def batch(random: random.Random) -> tuple[str, list[list[Any]]]:
    """A statement with several sets of parameters."""
    a, name = random.randrange(-4, 5), random.choice(["c", "main.c"])
    chosen: list[tuple[str, list[list[Any]]]] = [
        (f"INSERT INTO {name} VALUES (?, 'm', ?, NULL, 2)", [[a + i, i / 2] for i in range(4)]),
        (f"INSERT INTO {name} (b, a) VALUES ('n', -?), (?, 5)", [[1, "o"], [2, "p"]]),
        (f"INSERT INTO {name} VALUES (?, 'm', NULL, NULL, ?)", [[a, 1], [a, random.choice([2, 70000, "5", None])]]),
        (f"UPDATE {name} SET a = ? WHERE b = ?", [[a, "x"], [7, "m"]]),
        (f"DELETE FROM {name} WHERE b = ?", [["m"], ["u"]]),
    ]
    return random.choice(chosen)


def write(con: Any, text: str, params: Any) -> Any:
    """The result of a write, with parameters or with several sets of them."""
    if params and isinstance(params[0], list):
        con.executemany(text, params)
    else:
        con.execute(text, params)
    return con.fetchall()


@pytest.mark.parametrize("seed", range(2))
def test_every_write_is_what_duckdb_writes(con: Any, short: list[bool], seed: int) -> None:
    """In transactions too, which end either way; an error ends one."""
    plain, choice, failed, inside = duckdb.connect(), random.Random(seed), 0, False
    plain.execute(f"CREATE TABLE c {COLUMNS}")
    for step in range(110):
        text, params = batch(choice) if choice.random() < 0.15 else statement(choice)
        if choice.random() < 0.25:
            word = choice.choice(["COMMIT", "COMMIT", "ROLLBACK"]) if inside else "BEGIN"
            both(con, plain, word)
            inside = not inside
        try:
            if not inside:  # The sets of one statement are one epoch, and DuckDB's are several.
                plain.execute("BEGIN")
            expected = write(plain, text, params)
            if not inside:
                plain.execute("COMMIT")
        except duckdb.Error:
            failed += 1
            with pytest.raises(sqlfront.Error):
                write(con, text, params)
            plain.execute("ROLLBACK")
            if inside:
                con.execute("ROLLBACK")
            inside = False
        else:
            assert write(con, text, params) == expected, text
        if step % 6 == 0:
            agree(con, plain)
    agree(con, plain)
    if inside:
        both(con, plain, "COMMIT")
    assert short.count(True) > 10 and short.count(False) > 20 and failed > 3
    con.session.database.engine.relations["main.c"].base.table._check()
    if not con.session.database.in_memory:
        path = con.session.database.path
        con.close()
        con = sqlfront.connect(path)
        agree(con, plain)
    con.execute("DELETE FROM c")
    assert all(row["entries"] == 0 for view in ("v", "w") for row in con.view(view).state())
    con.close()


def both(con: Any, plain: Any, word: str) -> None:
    con.execute(word)
    plain.execute(word)


def agree(con: Any, plain: Any) -> None:
    for query in ("SELECT * FROM c", QUERY.format("c")):
        assert rows(con, query) == rows(plain, query)
    for view, query in (("v", QUERY.format("c")), ("w", "SELECT * FROM c WHERE c > 1")):
        assert rows(con, f"SELECT * FROM {view}") == rows(plain, query)


def rows(con: Any, query: str) -> list[str]:
    return sorted(map(repr, con.execute(query).fetchall()))


def test_a_write_in_a_transaction_joins_it(con: Any, short: list[bool]) -> None:
    con.execute("INSERT INTO c VALUES (1, 'x', NULL, NULL, 1)")
    con.execute("BEGIN")
    con.execute("INSERT INTO c VALUES (2, 'y', NULL, NULL, 1)")
    con.execute("UPDATE c SET a = 9 WHERE b = 'x'")
    con.execute("UPDATE c SET a = 5 WHERE b = 'y'")
    assert con.execute("SELECT sum(s) FROM v").fetchall() == [(14,)]
    con.execute("ROLLBACK")
    assert con.execute("SELECT a, b FROM c").fetchall() == [(1, "x")]
    assert short == [True] * 4


def test_no_write_in_a_transaction_that_an_error_has_aborted(con: Any) -> None:
    con.execute("INSERT INTO c VALUES (1, 'x', NULL, NULL, 1)")
    con.execute("BEGIN")
    with pytest.raises(sqlfront.Error):
        con.execute("SELECT 1 / 'x'")
    with pytest.raises(sqlfront.Error, match="aborted"):
        con.execute("INSERT INTO c VALUES (2, 'y', NULL, NULL, 1)")
    con.execute("ROLLBACK")
    assert con.execute("SELECT a FROM c").fetchall() == [(1,)]


def test_subscribers_hear_of_short_writes(con: Any, short: list[bool]) -> None:
    with con.view("v").subscribe(snapshot=False, timeout=0) as feed:
        con.execute("INSERT INTO c VALUES (1, 'x', NULL, NULL, 1)")
        con.execute("UPDATE c SET a = 5 WHERE b = 'x'")
        con.execute("UPDATE c SET a = 5 WHERE b = 'x'")
        con.execute("DELETE FROM c WHERE b = 'x'")
        changes = [change.select(["s", "_change_type"]).to_pylist() for change in feed]
    assert [[(row["s"], row["_change_type"]) for row in change] for change in changes] == [
        [(1, "insert")],
        [(1, "update_preimage"), (5, "update_postimage")],
        [(5, "delete")],
    ]
    assert short == [True] * 4


def test_a_plan_ends_with_its_table(con: Any, short: list[bool]) -> None:
    text = "INSERT INTO c VALUES (1, 'x', NULL, NULL, 1)"
    con.execute(text)
    con.execute("CREATE TEMP TABLE c (a INT, b VARCHAR, c INT, d INT, e INT)")
    con.execute(text)
    assert con.execute("SELECT count(*) FROM temp.c").fetchall() == [(1,)]
    con.execute("DROP TABLE temp.c; DROP CHANGE TABLE c CASCADE")
    with pytest.raises(sqlfront.Error, match="c does not exist"):
        con.execute(text)
    assert short == [True, False]

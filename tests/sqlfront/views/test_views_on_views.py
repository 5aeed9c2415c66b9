"""Materialized views over materialized views, of any shape: an epoch goes through all of them, or through none."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlfront

TABLES = "CREATE TABLE r (a INTEGER, b INTEGER, t VARCHAR); CREATE TABLE s (a INTEGER, c INTEGER);"
CHANGE_TABLE = "TABLE k (a INTEGER, w INTEGER)"
VIEWS = {
    "sums": "SELECT a, sum(b) AS b, count(*) AS n FROM r GROUP BY a",
    "repeated": "SELECT a, sum(c) AS c FROM s GROUP BY a HAVING count(*) > 1",
    "texts": "SELECT DISTINCT upper(t) AS t FROM r JOIN s ON r.a = s.a",
    "plain": "SELECT a, b + 1 AS b, t || '!' AS t FROM r WHERE b > 0",
    "edges": "SELECT a, min(b) AS lo, max(t) AS hi, count(DISTINCT b) AS n FROM r GROUP BY a",
    "of_plain": "SELECT t, sum(b) AS b, count(*) AS n FROM plain GROUP BY t",
    "by_sum": "SELECT b % 3 AS m, count(*) AS n, sum(a) AS a FROM sums GROUP BY b % 3",
    "by_count": "SELECT n, count(*) AS k, sum(a) AS a FROM by_sum GROUP BY n",
    "total": "SELECT count(*) AS n, sum(b) AS b, avg(n) AS mean FROM sums",
    "diamond": "SELECT x.a, x.b, y.c, k.w FROM sums AS x JOIN repeated AS y ON x.a = y.a JOIN k ON k.a = y.a",
    "tip": "SELECT sum(b * c) AS s, count(w) AS n FROM diamond",
    "twins": "SELECT x.a, y.a AS other FROM sums AS x JOIN sums AS y ON x.n = y.n WHERE x.b > 0",
    "twin_count": "SELECT x.a, count(*) AS n FROM twins AS x JOIN twins AS y ON x.a = y.other GROUP BY x.a",
    "with_base": "SELECT x.a, r.t, x.n, e.lo FROM sums AS x JOIN r ON x.a = r.a JOIN edges AS e ON e.a = r.a",
    "of_base": "SELECT t, sum(n) AS n, min(lo) AS lo FROM with_base GROUP BY t",
    "of_texts": "SELECT x.t, o.n * 2 AS n, length(o.t) AS l FROM texts AS x JOIN of_base AS o ON x.t = upper(o.t)",
    "of_total": "SELECT r.a, total.n FROM r, total WHERE r.b > 1",
    "kinds": "SELECT DISTINCT m, n FROM by_sum",
    "blocks": "SELECT x.b, q.n FROM sums AS x JOIN (SELECT a, count(*) AS n FROM diamond GROUP BY a) AS q ON x.a = q.a",
    "chosen": "SELECT b, t FROM plain WHERE a IN (SELECT a FROM repeated)",
}


def create(con: Any, kind: str) -> None:
    for name, query in VIEWS.items():
        con.execute(f"CREATE {kind} {name} AS {query}")


def result(con: Any, name: str) -> list[str]:
    return sorted(map(repr, con.execute(f"FROM {name}").fetchall()))


def results(con: Any) -> dict[str, list[Any]]:
    """The sorted rows of all views, by one statement."""
    lists = ", ".join(f"(SELECT list(q ORDER BY q) FROM {name} AS q)" for name in VIEWS)
    return {name: rows or [] for name, rows in zip(VIEWS, con.execute(f"SELECT {lists}").fetchone())}


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    with sqlfront.connect() as con:
        con.execute(f"{TABLES} CREATE CHANGE {CHANGE_TABLE}")
        yield con


@pytest.fixture
def judge() -> Any:
    judge = duckdb.connect()
    judge.execute(f"{TABLES} CREATE {CHANGE_TABLE}")
    create(judge, "VIEW")
    return judge


def random_statement(choose: random.Random, verb: str = "") -> str:
    a, b, t = choose.choice([1, 2, 3, 4]), choose.choice([-2, 1, 2, 5, None]), choose.choice(["'x'", "'X'", "'yy'"])
    value = "NULL" if b is None else str(b)
    statements = (
        f"INSERT INTO r VALUES ({a}, {value}, {t}), ({choose.choice([1, 2, 'NULL'])}, {a}, {t})",
        f"INSERT INTO r SELECT a + 1, c, {t} FROM s",
        f"DELETE FROM r WHERE a = {a} AND b IS NOT DISTINCT FROM {value}",
        f"UPDATE r SET b = {value}, a = {a} WHERE t = {t}",
        f"INSERT INTO s VALUES ({a}, {value}), ({a}, 1)",
        f"DELETE FROM s WHERE c = {value}",
        f"UPDATE s SET a = a % 4 + 1 WHERE c <> {a}",
        f"INSERT INTO k VALUES ({a}, {value}), ({a}, {a})",
        f"DELETE FROM k WHERE a = {a}",
        f"UPDATE k SET w = a WHERE a > {a}",
    )
    return choose.choice([statement for statement in statements if statement.startswith(verb)])


@pytest.mark.parametrize("seed", range(2))
def test_views_follow_random_changes(con: sqlfront.Connection, judge: Any, seed: int) -> None:
    """After every statement, in transactions too, each view is what DuckDB computes from plain views."""
    choose = random.Random(seed)
    other = con.cursor()
    filled = choose.choice([0, 3])
    for number in range(4):
        if number == filled:
            create(con, "MATERIALIZED VIEW")
        statement = random_statement(choose, "INSERT")
        con.execute(statement)
        judge.execute(statement)
    changed = set()
    for _ in range(6):
        before = results(con)
        epoch = con.session.database.engine.epoch
        if choose.random() < 0.4:
            end = choose.choice(["COMMIT", "ROLLBACK"])
            statements = [random_statement(choose) for _ in range(choose.choice([1, 2, 3]))]
            for statement in ["BEGIN", *statements]:
                con.execute(statement)
                judge.execute(statement)
            assert results(con) == results(judge), statements
            assert results(other) == before
            con.execute(end)
            judge.execute(end)
            if end == "ROLLBACK":
                assert results(con) == before
        else:
            statement = random_statement(choose, choose.choice(["INSERT", ""]))
            con.execute(statement)
            judge.execute(statement)
        found = results(con)
        assert found == results(judge)
        assert con.session.database.engine.epoch <= epoch + 1
        changed |= {name for name in VIEWS if found[name] != before[name]}
    assert len(changed) > len(VIEWS) // 2
    for name in VIEWS:
        assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []
    con.execute("DELETE FROM r; DELETE FROM s; DELETE FROM k")
    assert {name: len(rows) for name, rows in results(con).items() if rows} == {"total": 1, "tip": 1}
    con.execute("DROP TABLE r CASCADE; DROP TABLE s CASCADE; DROP CHANGE TABLE k CASCADE")
    engine = con.session.database.engine
    assert (engine.views, engine.relations) == ({}, {})
    for dictionary in engine.dictionaries:
        assert dictionary.live() == 0


def test_one_epoch_changes_all(con: sqlfront.Connection, judge: Any) -> None:
    create(con, "MATERIALIZED VIEW")
    rows = {
        "r": pa.table({"a": [1, 1, 2], "b": [2, 3, 4], "t": ["x", "y", "x"]}),
        "s": pa.table({"a": [1, 1], "c": [5, 6]}),
    }
    epoch = con.session.database.engine.epoch
    assert con.apply({**rows, "k": pa.table({"a": [1], "w": [9]})}).number == epoch + 1
    for name, table in rows.items():
        judge.register("new", table)
        judge.execute(f"INSERT INTO {name} SELECT * FROM new")
    judge.execute("INSERT INTO k VALUES (1, 9)")
    assert results(con) == results(judge)
    assert con.execute("FROM diamond").fetchall() == [(1, 5, 11, 9)]


def test_what_is_read_cannot_be_dropped(con: sqlfront.Connection) -> None:
    create(con, "MATERIALIZED VIEW")
    con.execute("INSERT INTO r VALUES (1, 2, 'x'), (1, 3, 'y')")
    before = results(con)
    readers = {
        "sums": "by_sum, by_count, total, diamond, tip, twins, twin_count, with_base, of_base, of_texts, of_total,",
        "diamond": "tip",
        "plain": "of_plain",
    }
    for name, names in readers.items():
        with pytest.raises(sqlfront.IntegrityError, match=rf"{name} is refused\nWhy: .* read it: {names}"):
            con.execute(f"DROP MATERIALIZED VIEW {name}")
    assert results(con) == before
    con.execute("DROP MATERIALIZED VIEW with_base CASCADE")
    left = {row[0] for row in con.execute("SHOW MATERIALIZED VIEWS").fetchall()}
    assert left == VIEWS.keys() - {"with_base", "of_base", "of_texts"}
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW tip AS SELECT count(*) AS n FROM diamond")
    con.execute("DROP MATERIALIZED VIEW sums CASCADE; INSERT INTO r VALUES (1, 2, 'x')")
    left = {row[0] for row in con.execute("SHOW MATERIALIZED VIEWS").fetchall()}
    assert left == {"repeated", "texts", "plain", "edges", "of_plain", "chosen"}
    assert result(con, "of_plain") == ["('x!', 6, 2)", "('y!', 4, 1)"]


def test_refresh_and_renaming_carry_on(con: sqlfront.Connection, judge: Any) -> None:
    create(con, "MATERIALIZED VIEW")
    steps = [
        "INSERT INTO r VALUES (1, 2, 'x'), (1, 3, 'y'), (2, 2, 'x')",
        "INSERT INTO s VALUES (1, 2), (1, 3); INSERT INTO k VALUES (1, 5)",
        "REFRESH MATERIALIZED VIEW sums",
        "INSERT INTO r VALUES (2, 3, 'yy')",
        "REFRESH MATERIALIZED VIEW plain; REFRESH MATERIALIZED VIEW tip",
        "DELETE FROM r WHERE a = 1 AND b = 2",
    ]
    for sql in steps:
        con.execute(sql)
        if "REFRESH" not in sql:
            judge.execute(sql)
        assert results(con) == results(judge), sql
    con.execute("ALTER TABLE r RENAME COLUMN b TO bb; ALTER TABLE s RENAME TO ss; ALTER TABLE r ADD COLUMN b VARCHAR")
    con.execute("INSERT INTO r VALUES (1, 2, 'x', 'new'); INSERT INTO ss VALUES (2, 7), (2, 8)")
    judge.execute("INSERT INTO r VALUES (1, 2, 'x'); INSERT INTO s VALUES (2, 7), (2, 8)")
    assert results(con) == results(judge)
    for name in VIEWS:
        assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []


def test_a_file_brings_all_of_them_back(tmp_path: Any, judge: Any) -> None:
    path = str(tmp_path / "data.duckdb")
    tables = f"{TABLES} CREATE {CHANGE_TABLE}"
    with sqlfront.connect(path) as con:
        con.execute(tables)
        create(con, "MATERIALIZED VIEW")
        change = "INSERT INTO r VALUES (1, 2, 'x'), (2, 3, 'y'); INSERT INTO s VALUES (1, 1), (1, 4)"
        con.execute(change)
        judge.execute(change)
    for change in ("INSERT INTO k VALUES (1, 7)", "UPDATE r SET b = b + 1", "DELETE FROM s WHERE c = 4"):
        with sqlfront.connect(path) as con:
            assert results(con) == results(judge)
            con.execute(change)
            judge.execute(change)
            assert results(con) == results(judge)


def test_over_a_table_that_keeps_no_rows() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE c (a INTEGER, b INTEGER) WITH (retain = false)")
        con.execute("CREATE MATERIALIZED VIEW g AS SELECT a, sum(b) AS b FROM c GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW gg AS SELECT b, count(*) AS n FROM g GROUP BY b")
        con.execute("INSERT INTO c VALUES (1, 1), (2, 2), (3, 2)")
        con.apply({"c": pa.table({"a": [2], "b": [2], "_weight": [-1]})})
        con.apply_row("c", (4, 1))
        assert sorted(con.execute("FROM gg").fetchall()) == [(1, 2), (2, 1)]
        con.execute("CREATE MATERIALIZED VIEW late AS SELECT sum(n) AS n FROM gg")
        con.apply_row("c", (5, 9))
        assert con.execute("FROM late").fetchall() == [(4,)]
        for view in ("g", "gg", "late"):
            with pytest.raises(sqlfront.ProgrammingError, match="retain = true"):
                con.execute(f"CHECK MATERIALIZED VIEW {view}")


@pytest.mark.parametrize(
    "statement",
    ["REFRESH MATERIALIZED VIEW g", "ALTER TABLE r RENAME COLUMN b TO c", "ALTER TABLE r RENAME TO q"],
)
def test_what_would_rebuild_a_view_that_cannot_be_is_refused(statement: str) -> None:
    """A view above reads a table that keeps no rows."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER, b INTEGER); CREATE CHANGE TABLE p (a INTEGER) WITH (retain = false)")
        con.execute("CREATE MATERIALIZED VIEW g AS SELECT a, sum(b) AS b FROM r GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW alike AS SELECT a, sum(b) AS b FROM r GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW joined AS SELECT a, b FROM g JOIN p USING (a)")
        con.execute("INSERT INTO r VALUES (1, 2), (2, 3); INSERT INTO p VALUES (1)")
        with pytest.raises(sqlfront.DatabaseError, match=r"change table p .*keeps no rows, and joined reads it"):
            con.execute(statement)
        con.execute("REFRESH MATERIALIZED VIEW alike; INSERT INTO r VALUES (1, 5)")
        assert result(con, "joined") == ["(1, 7)"]
        con.execute("ALTER TABLE r ADD COLUMN d INTEGER; DROP MATERIALIZED VIEW joined")
        con.execute(statement)
        assert con.execute("FROM g ORDER BY a").fetchall() == con.execute("FROM alike ORDER BY a").fetchall()


def test_sums_widen_in_a_later_stage() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER, b HUGEINT)")
        con.execute("CREATE MATERIALIZED VIEW g AS SELECT a, sum(b) AS b FROM r GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW gg AS SELECT sum(b) AS b, count(*) AS n FROM g")
        con.execute("CREATE MATERIALIZED VIEW ggg AS SELECT sum(x.b - y.b) AS d, sum(x.b) AS b FROM gg AS x, gg AS y")
        big = 2**125
        for a, b in ((1, big), (2, big), (3, big - 1), (4, -big), (5, -big), (6, -big)):
            con.execute("INSERT INTO r VALUES (?, ?)", [a, b])
        assert con.execute("FROM gg").fetchall() == [(-1, 6)]
        assert con.execute("FROM ggg").fetchall() == [(0, -1)]
        con.execute("UPDATE r SET b = -b; DELETE FROM r WHERE a > 3")
        assert con.execute("FROM gg").fetchall() == [(-3 * big + 1, 3)]
        with pytest.raises(sqlfront.Error, match="SUM is beyond HUGEINT"):
            con.execute("INSERT INTO r VALUES (7, ?), (8, ?)", [-big, -big])
            con.execute("FROM gg").fetchall()


def test_float_sums_are_rescaled_in_a_later_stage() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER, f DOUBLE)")
        con.execute("CREATE MATERIALIZED VIEW g AS SELECT a, sum(f) AS f FROM r GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW gg AS SELECT sum(f) AS f, avg(f) AS m FROM g")
        groups: dict[int, list[float]] = {}
        for a, value in ((1, 3.0), (2, 0.1), (1, 1e-80), (3, 1e80), (2, 5e-324), (3, -1e80), (4, 0.3), (4, 1e-300)):
            con.execute("INSERT INTO r VALUES (?, ?)", [a, value])
            groups.setdefault(a, []).append(value)
            sums = [math.fsum(values) for values in groups.values()]
            [(total, mean)] = con.execute("FROM gg").fetchall()
            assert total == math.fsum(sums)
            assert mean == pytest.approx(math.fsum(sums) / len(sums), rel=1e-12)
        con.execute("DELETE FROM r WHERE a <> 2")
        assert con.execute("SELECT f FROM gg").fetchall() == [(math.fsum([0.1, 5e-324]),)]


@pytest.mark.parametrize(
    "change", ["INSERT INTO r VALUES (1, -2)", "UPDATE r SET b = 0 WHERE a = 2", "DELETE FROM r WHERE b = 3"]
)
def test_a_failing_column_of_a_source_undoes_the_epoch(change: str) -> None:
    """A view that others read computes its columns in the epoch: it fails there, whole."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER, b INTEGER); INSERT INTO r VALUES (1, 2), (2, 5), (3, 3), (3, 0)")
        con.execute("CREATE MATERIALIZED VIEW g AS SELECT a, 10 // sum(b) AS q FROM r GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW gg AS SELECT q, count(*) AS n FROM g GROUP BY q")
        con.execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM r")
        views = ("g", "gg", "n")
        before, epoch = [result(con, view) for view in views], con.session.database.engine.epoch
        for begin in ("", "BEGIN; "):
            with pytest.raises(sqlfront.DataError, match=r"(?i)division by zero"):
                con.execute(f"{begin}{change}")
                con.execute("COMMIT")
            con.rollback()
            assert [result(con, view) for view in views] == before
            assert con.session.database.engine.epoch == epoch
            assert con.execute("SELECT count(*) FROM r").fetchall() == [(4,)]
        con.execute("INSERT INTO r VALUES (1, 3), (4, 5)")
        assert result(con, "gg") == ["(2, 3)", "(3, 1)"]
        for view in views:
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []


def test_explain_says_how_a_view_is_read(con: sqlfront.Connection) -> None:
    create(con, "MATERIALIZED VIEW")
    text = str(con.explain("diamond"))
    for name in ("sums", "repeated"):
        assert f"{name} is read through its changes, which are computed at each epoch; its rows are stored here" in text
    text = str(con.explain("of_plain"))
    assert "plain is read as its text" in text and "through its changes" not in text
    text = str(con.explain("SELECT t, a FROM plain JOIN kinds ON plain.b = kinds.n"))
    assert "plain is read as its text" in text and "kinds is read through its changes" in text


@pytest.mark.parametrize("query", ["SELECT a % 2 AS odd FROM c", "SELECT count(*) AS n FROM c GROUP BY a"])
def test_rows_that_cancel_in_an_epoch_are_no_change(query: str) -> None:
    with sqlfront.connect() as con:
        con.execute(f"CREATE CHANGE TABLE c (a INTEGER); CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO c VALUES (1), (2)")
        with con.view("v").subscribe(snapshot=False, timeout=0) as feed:
            epoch = con.apply({"c": pa.table({"a": [1, 3], "_weight": [-1, 1]})})
            assert epoch is not None
            assert epoch.changes["v"].num_rows == 0
            assert list(feed) == []

"""Single INSERTs, UPDATEs and DELETEs tell their changes: what that spares, and where the triggers must do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.database.transactions import Transaction
from sqlfront.storage.capture import setup
from sqlfront.storage.capture.trigger_sql import trigger_ddl
from sqlfront.storage.errors import DataError, IntegrityError
from sqlfront.write import apply, returned, told_writes


@pytest.fixture
def con() -> Any:
    con = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, g VARCHAR DEFAULT 'd', n BIGINT, m BIGINT AS (n + 1))")
    con.execute("INSERT INTO t (k, g, n) VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, 30)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, sum(m) AS s, count(*) AS c FROM t GROUP BY g")
    con.execute("CREATE TABLE log (x INTEGER)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS c FROM log")
    con.execute("SELECT * FROM v").fetchall()  # It looks at the triggers.
    return con


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each write has told, by RETURNING or as values of its text."""
    counts: list[int] = []
    commit, insert, few = Transaction.commit_told, told_writes.insert_known, told_writes.write_few

    def noted(self: Transaction, relation: str, rows: Any, weights: Any, *, returned: bool) -> None:
        if returned:
            counts.append(sum(weights))
        commit(self, relation, rows, weights, returned=returned)

    def inserted(*arguments: Any) -> int:
        counts.append(insert(*arguments))
        return counts[-1]

    def deleted(session: Any, relation: Any, telling: Any) -> int | None:
        count = few(session, relation, telling)
        counts.extend([] if count is None else [0 if telling.before else count * telling.sign])
        return count

    monkeypatch.setattr(told_writes, "write_few", deleted)
    monkeypatch.setattr(Transaction, "commit_told", noted)
    monkeypatch.setattr(told_writes, "insert_known", inserted)
    return counts


def check(con: Any, *views: str) -> None:
    for view in views or ("v",):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []


@pytest.mark.parametrize(
    ("statement", "params", "changed"),
    [
        ("INSERT INTO t (k, n) VALUES (4, 40)", None, 1),
        ("INSERT INTO t BY NAME SELECT 5 AS k, 7 AS n  -- a comment", None, 1),
        ("INSERT INTO t (k, g, n) SELECT k + $1, g, n FROM t WHERE n > $2;", [10, 10], 2),
        ("WITH q AS (SELECT 9 AS k) INSERT INTO t (k) SELECT k FROM q", None, 1),
        ("INSERT INTO t (k) SELECT k FROM t WHERE false", None, 0),
        ("DELETE FROM t WHERE k = ?", [2], -1),
        ("DELETE FROM t AS x USING (SELECT 1 AS k UNION ALL SELECT 3) q WHERE x.k = q.k", None, -2),
        ("DELETE FROM t", None, -3),
    ],
)
def test_a_write_tells_its_changes(con: Any, told: list[int], statement: str, params: Any, changed: int) -> None:
    assert con.execute(statement, params).fetchall() == [(abs(changed),)]
    assert told == [changed]
    assert con.session.database.capture.pending(con.session.duck).tables == {}
    check(con)


@pytest.mark.parametrize(
    ("statement", "params", "changed"),
    [
        ("UPDATE t SET n = n + 1 WHERE k < 3", None, 2),
        ("update t as x set n = ?, g = 'it''s' where x.k = 1 and (g = 'a' or n in (?, 3)) ;", [7, 20], 1),
        ("UPDATE t SET k = 20 + k, g = NULL", None, 3),
        ("UPDATE t SET n = 5 WHERE g = 'a' AND k = ?", [9], 0),
        ("UPDATE t SET n = CASE WHEN (SELECT count(*) FROM log) = 0 THEN 1 END WHERE NOT (k BETWEEN 2 AND 9)", None, 1),
        ('UPDATE "t" SET "g" = \'?\' WHERE "t"."k" <> 2', None, 2),
    ],
)
def test_an_update_asks_for_the_rows_as_they_were(
    con: Any, told: list[int], statement: str, params: Any, changed: int
) -> None:
    plain = duckdb.connect()
    plain.execute("CREATE TABLE log (x INTEGER); CREATE TABLE t (k INTEGER PRIMARY KEY, g VARCHAR, n BIGINT)")
    plain.execute("INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, 30)")
    plain.execute(statement, params)
    for _ in range(2):  # The second one has the plan of the first.
        con.execute("BEGIN; DELETE FROM t; INSERT INTO t (k, g, n) VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, 30)")
        con.execute("COMMIT; FROM v")
        assert con.execute(statement, params).fetchall() == [(changed,)]
        assert (
            con.execute("SELECT k, g, n FROM t ORDER BY k").fetchall() == plain.execute("FROM t ORDER BY k").fetchall()
        )
        assert con.session.database.capture.pending(con.session.duck).tables == {}
        check(con)
    assert told == [0, 0]


def test_an_update_of_a_few_rows_is_one_query(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_writes, "write_told", None)
    assert con.execute("UPDATE t AS x SET n = x.n + 1, g = ? WHERE x.k > ?", ["z", 1]).fetchall() == [(2,)]
    assert con.execute("UPDATE t SET k = 7 WHERE k = 3;").fetchall() == [(1,)]
    assert con.execute("UPDATE t SET k = 7 WHERE k = 3").fetchall() == [(0,)]
    assert con.execute("SELECT k, g, n FROM t ORDER BY k").fetchall() == [(1, "a", 10), (2, "z", 21), (7, "z", 31)]
    check(con)


def test_an_update_of_a_table_with_a_column_rowid(con: Any, told: list[int]) -> None:
    con.execute("CREATE TABLE r (k INTEGER, rowid INTEGER)")
    con.execute("CREATE MATERIALIZED VIEW of_r AS SELECT k, sum(rowid) AS s FROM r GROUP BY k")
    con.execute("INSERT INTO r VALUES (1, 5), (2, 5)")
    assert con.execute("UPDATE r SET k = 3 WHERE k = 2").fetchall() == [(1,)]
    assert con.execute("FROM of_r ORDER BY k").fetchall() == [(1, 5), (3, 5)]
    check(con, "of_r")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET n = 1 WHERE random() < 0.5",
        "UPDATE t SET n = 1 WHERE abs(k) < 3",
        "UPDATE t SET n = 1 WHERE k IN (SELECT k FROM t WHERE n > 10)",
        "UPDATE t SET n = q.n FROM (SELECT 1 AS k, 2 AS n) AS q WHERE t.k = q.k",
        "WITH q AS (SELECT 1) UPDATE t SET n = 1 WHERE k = 1",
        "UPDATE t SET n = 1 WHERE k = 1 RETURNING n",
    ],
)
def test_an_update_whose_rows_are_not_known_before_is_captured_by_triggers(
    con: Any, told: list[int], statement: str
) -> None:
    con.execute(statement)
    assert told == []
    check(con)


def test_an_update_that_fails_changes_nothing(con: Any, told: list[int]) -> None:
    before = con.execute("SELECT * FROM v ORDER BY ALL").fetchall()
    for statement, message in [
        ("UPDATE t SET k = 1", "duplicate key"),
        ("UPDATE t SET nope = 1 WHERE k = 1", "nope"),
        ("UPDATE t SET n = 1 WHERE nope = 1", "nope"),
        ("UPDATE t SET n = 1 WHERE k = 'x'", "Could not convert"),
    ]:
        with pytest.raises(sqlfront.Error, match=message):
            con.execute(statement)
    assert con.execute("SELECT * FROM v ORDER BY ALL").fetchall() == before
    check(con)


def test_other_writes_are_captured_by_triggers(con: Any, told: list[int]) -> None:
    con.execute("UPDATE t SET n = n + 1 WHERE abs(k) < 3")
    con.execute("INSERT INTO t (k, n) VALUES (1, 5) ON CONFLICT DO UPDATE SET n = 6")
    assert con.execute("INSERT INTO t (k, n) VALUES (6, 1) RETURNING k").fetchall() == [(6,)]
    con.executemany("INSERT INTO t (k, n) VALUES (?, ?)", [(7, 1), (8, 2)])
    con.execute("BEGIN")
    con.execute("DELETE FROM t WHERE k = 7")
    con.execute("UPDATE t SET g = 'z' WHERE k = 8")
    con.execute("COMMIT")
    assert told == []
    check(con)


def test_a_failing_write_changes_nothing(con: Any, told: list[int]) -> None:
    before = con.execute("SELECT * FROM v ORDER BY ALL").fetchall()
    for statement, message in [
        ("INSERT INTO t (k, n) VALUES (1, 5)", "Duplicate key"),
        ("INSERT INTO t (k, nope) VALUES (9, 5)", 'does not have a column with name "nope"'),
        ("INSERT INTO t (k, n) SELECT 20 + k, (g || 'x')::INTEGER FROM t", "Could not convert"),
    ]:
        with pytest.raises(sqlfront.Error, match=message):
            con.execute(statement)
    assert con.execute("SELECT * FROM v ORDER BY ALL").fetchall() == before
    con.execute("INSERT INTO t (k, n) VALUES (30, 5)")
    assert told == [1]
    check(con)


def test_types_that_arrow_does_not_restore_by_itself(told: list[int]) -> None:
    con = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE t (h HUGEINT, u UUID, b BIT, z TIMETZ, i INTERVAL, e ENUM ('x', 'y'))")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT h, u, b, i, e, z::VARCHAR AS z FROM t")
    con.execute("SELECT * FROM v").fetchall()
    row = f"({2**100}, '{'12345678' * 4}', '0101', '10:00:00+02', INTERVAL 3 MONTH, 'y')"
    con.execute(f"INSERT INTO t VALUES {row}, {row}, (NULL, NULL, NULL, NULL, NULL, NULL)")
    check(con)
    con.execute("DELETE FROM t WHERE h IS NOT NULL")
    check(con)
    assert told == [3, -2]


def test_a_row_of_another_writer_is_deleted(con: Any, told: list[int]) -> None:
    other = con.session.database.root.cursor()
    other.execute("INSERT INTO t (k, g, n) VALUES (50, 'o', 1), (51, 'o', 2)")
    con.execute("DELETE FROM t WHERE k = 50")
    con.execute("INSERT INTO t (k, g, n) VALUES (52, 'o', 3)")
    assert told == [-1, 1]
    assert con.execute("SELECT s, c FROM v WHERE g = 'o'").fetchall() == [(7, 2)]
    check(con)


def test_rows_of_an_insert_are_known_before_duckdb_has_them(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns that the views read stand in the text, as values that DuckDB keeps as they are."""
    con.execute(
        "CREATE TABLE r (a BIGINT, b VARCHAR NOT NULL, c DATE, d DECIMAL(4, 1) CHECK (d < 90), e TINYINT UNIQUE)"
    )
    con.execute(
        "CREATE MATERIALIZED VIEW x AS SELECT b, sum(a) AS s, sum(d) AS d, max(e) AS e FROM r GROUP BY b; FROM x"
    )
    asked = list[bool]()
    insert = told_writes.insert_known
    monkeypatch.setattr(told_writes, "insert_known", lambda *given: asked.append(True) or insert(*given))
    plain = duckdb.connect()
    plain.execute(
        "CREATE TABLE r (a BIGINT, b VARCHAR NOT NULL, c DATE, d DECIMAL(4, 1) CHECK (d < 90), e TINYINT UNIQUE)"
    )
    for statement, params, known in [
        ("INSERT INTO r VALUES (1, 'it''s', NULL, 7, 1), (-2, '', NULL, NULL, NULL);", None, True),
        ("insert into R (e, d, b, c, a) values (?, 3, ?, null, -5)", [2, "y"], True),
        ("INSERT INTO r VALUES (1, 'y', NULL, 7, 2)", None, True),  # A duplicate.
        ("INSERT INTO r VALUES (1, 'y', NULL, 95, 4)", None, True),  # The check.
        ("INSERT INTO r VALUES (1, NULL, NULL, 5, 4)", None, False),
        ("INSERT INTO r VALUES (1, 'x', NULL, 5, 400)", None, None),
        ("INSERT INTO r VALUES (1, 'x', NULL, 12345, 5)", None, None),
        ("INSERT INTO r VALUES ('7', 'x', NULL, 5, 5)", None, False),
        ("INSERT INTO r VALUES (1, 5, NULL, 5, 6)", None, False),
        ("INSERT INTO r VALUES (?, 'x', NULL, 5, 7)", [2.5], False),
        ("INSERT INTO r (a, b, d, e) VALUES (1, 'x', 5, 8)", None, False),
        ("INSERT INTO r VALUES (1, 'x', '2024-02-29', 1, 9)", None, False),
        ("INSERT INTO r VALUES (1, 'x', NULL, 1.25, 9)", None, False),
        ("INSERT INTO r VALUES (9223372036854775808, 'x', NULL, 1, 10)", None, False),
        ("INSERT INTO r VALUES (1, 'x', NULL, 1, 11), (1, 'x', NULL, 1)", None, False),
    ]:
        asked.clear()
        answers = []
        for one in (con, plain):
            try:
                answers.append(one.execute(statement, params).fetchall())
            except (sqlfront.Error, duckdb.Error) as error:
                answers.append(str(error).partition("\n")[0][:50])
        assert answers[0] == answers[1], statement
        assert known is None or bool(asked) == known, statement
        assert con.execute("FROM r ORDER BY ALL").fetchall() == plain.execute("FROM r ORDER BY ALL").fetchall()
        check(con, "x")
    assert con.session.database.capture.pending(con.session.duck).tables == {}


@pytest.mark.parametrize("statement", ["DELETE FROM t WHERE k = 2", "INSERT INTO t (k, n) VALUES (9, 1)"])
def test_a_few_rows_are_committed_after_the_views_have_them(
    con: Any, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB commits when it is asked for a row behind the last: no other cursor sees the rows before."""
    other = con.session.database.root.cursor()
    rows, ran = other.execute("FROM t ORDER BY k").fetchall(), list[str]()
    apply, few = returned.apply_first, told_writes.write_few

    def applied(*arguments: Any) -> Any:
        assert other.execute("FROM t ORDER BY k").fetchall() == rows
        ran.append("applied")
        if len(ran) == 1:
            raise sqlfront.DataError("a view refuses the epoch")
        return apply(*arguments)

    def first(*arguments: Any) -> Any:
        count = few(*arguments)
        ran.append(f"few: {count}")
        return count

    monkeypatch.setattr(returned, "apply_first", applied)
    monkeypatch.setattr(told_writes, "write_few", first)
    with pytest.raises(sqlfront.DataError, match="refuses"):
        con.execute(statement)
    assert other.execute("FROM t ORDER BY k").fetchall() == rows
    check(con)
    assert con.execute(statement).fetchall() == [(1,)]
    assert other.execute("FROM t ORDER BY k").fetchall() != rows
    assert ran == ["applied", "applied", "few: 1"]
    check(con)


def test_a_question_mark_in_a_name_is_no_parameter(told: list[int]) -> None:
    with sqlfront.connect() as con:
        con.execute('CREATE TABLE asked (k BIGINT, "x?" BIGINT); INSERT INTO asked VALUES (1, 1), (2, 2)')
        con.execute('CREATE MATERIALIZED VIEW known AS SELECT k, sum("x?") AS s FROM asked GROUP BY k')
        con.execute("FROM known")
        con.execute('UPDATE asked SET "x?" = ? WHERE "x?" = ?', [7, 2])
        assert con.execute("FROM known ORDER BY k").fetchall() == [(1, 1), (2, 7)]
        assert told == [0]


def test_rows_without_their_order_are_captured_all_the_same() -> None:
    with sqlfront.connect() as con:
        con.execute("SET preserve_insertion_order = false")
        con.execute("CREATE TABLE big (k BIGINT); INSERT INTO big SELECT range FROM range(200000)")
        con.execute("CREATE MATERIALIZED VIEW many AS SELECT count(*) AS n, sum(k) AS s FROM big")
        for first in range(10):
            con.execute(f"DELETE FROM big WHERE k IN ({first}, {first + 70000}, {first + 150000})")
        assert con.execute("SELECT n FROM many").fetchall() == [(199970,)]
        assert con.execute("CHECK MATERIALIZED VIEW many").fetchall() == []


@pytest.mark.parametrize("rows", [7, 8, 9, 40])
def test_more_than_a_few_rows(con: Any, told: list[int], rows: int) -> None:
    con.execute("INSERT INTO t (k, n) SELECT 10 + i, i FROM range(100) r(i)")
    told.clear()
    for begin in (10, 10 + rows):  # The plan of the second one expects as many.
        assert con.execute(f"DELETE FROM t WHERE k >= {begin} AND k < {begin + rows}").fetchall() == [(rows,)]
        check(con)
    values = ", ".join(f"({10 + i}, 1.5)" for i in range(rows))
    assert con.execute(f"INSERT INTO t (k, n) VALUES {values}").fetchall() == [(rows,)]
    assert con.execute(f"UPDATE t SET n = 4 WHERE k < {10 + rows} AND k >= 10").fetchall() == [(rows,)]
    check(con)


def test_a_view_by_a_name_that_is_not_known_is_read_all_the_same(con: Any) -> None:
    con.session.duck.execute("CREATE VIEW hidden AS SELECT 70 + c AS k, s FROM v WHERE g = 'a'")
    assert con.execute("INSERT INTO t (k, n) SELECT k, s FROM hidden").fetchall() == [(1,)]
    con.session.duck.execute("CREATE VIEW more AS SELECT 70 + c AS k FROM v WHERE g = 'a'")
    assert con.execute("DELETE FROM t WHERE k IN (SELECT k FROM more)").fetchall() == [(1,)]
    check(con)


def test_triggers_of_the_user_change_more_than_is_returned(con: Any, told: list[int]) -> None:
    con.execute("CREATE TRIGGER more AFTER INSERT ON t FOR EACH STATEMENT INSERT INTO log VALUES (1)")
    con.execute("INSERT INTO t (k, n) VALUES (60, 1)")
    check(con, "v", "w")
    con.execute("INSERT INTO t (k, n) VALUES (61, 1)")
    check(con, "v", "w")
    con.execute("DROP TRIGGER more ON t")
    assert told == []
    for k in (62, 63):  # Before the first of them, somebody looks for triggers.
        con.execute(f"INSERT INTO t (k, n) VALUES ({k}, 1)")
        check(con, "v", "w")
    assert told == [1, 1]
    check(con)


def test_the_first_write_of_a_new_view_tells_its_changes(told: list[int]) -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (n BIGINT); CREATE MATERIALIZED VIEW v AS SELECT sum(n) AS s FROM t")
        con.execute("INSERT INTO t VALUES (1)")
        assert told == [1]
        assert con.execute("SELECT * FROM v").fetchall() == [(1,)]


def test_a_trigger_made_past_us_is_noticed(con: Any, told: list[int]) -> None:
    other = con.session.database.root.cursor()
    other.execute("CREATE TRIGGER more AFTER INSERT ON t FOR EACH STATEMENT INSERT INTO log VALUES (1)")
    con.execute("INSERT INTO t (k, n) VALUES (60, 1)")
    assert told == [1]
    with pytest.raises(sqlfront.Error, match="other triggers were made past sqlfront"):
        con.execute("SELECT * FROM w")
    con.execute("REFRESH MATERIALIZED VIEW v; REFRESH MATERIALIZED VIEW w")
    con.execute("INSERT INTO t (k, n) VALUES (61, 1)")
    assert told == [1]
    check(con, "v", "w")


def test_triggers_of_an_older_file_are_renewed(tmp_path: Path, told: list[int], monkeypatch: Any) -> None:
    path = str(tmp_path / "old.duckdb")

    def older(*arguments: Any) -> list[str]:
        return [text.partition(" WHERE getvariable")[0] for text in trigger_ddl(*arguments)]

    with monkeypatch.context() as patch:
        patch.setattr(setup, "trigger_ddl", older)
        con = sqlfront.connect(path)
        con.execute("CREATE TABLE t (n BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(n) AS s FROM t")
        con.close()
    con = sqlfront.connect(path)
    con.execute("SELECT * FROM v").fetchall()
    con.execute("INSERT INTO t VALUES (1)")
    assert told == [1]
    assert con.execute("SELECT * FROM v").fetchall() == [(1,)]
    con.close()


def test_batches_of_rows_that_come_are_one_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other batches are netted first. Columns that are not given have their DEFAULT."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, x BIGINT DEFAULT 7, y BIGINT GENERATED ALWAYS AS (x + 1))")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s, sum(y) AS t, count(*) AS n FROM t")
        with monkeypatch.context() as patched:
            patched.setattr(apply, "net_changes", None)
            for number, rows in enumerate((1, 3, 100), 1):
                made = pa.table({"k": [1_000 * number + row for row in range(rows)]})
                assert con.apply({"t": made}).number == number
            with pytest.raises(IntegrityError):
                con.apply({"t": pa.table({"k": [5, 5]})})
            with pytest.raises(DataError, match="does not fit"):
                con.apply({"t": pa.table({"k": [2**40]})})
            with pytest.raises(TypeError):
                con.apply({"t": pa.table({"k": [1_000], "x": [7], "_weight": [-1]})})
        assert con.execute("FROM v").fetchall() == [(104 * 7, 104 * 8, 104)]
        con.apply({"t": pa.table({"k": [1_000], "x": [7], "_weight": [-1]})})
        assert con.execute("FROM v").fetchall() == [(103 * 7, 103 * 8, 103)]


@pytest.mark.parametrize("weight", [1, 2, -1])
@pytest.mark.parametrize("is_viewed", [True, False])
def test_a_stream_is_read_once_whichever_way_its_rows_go(weight: int, is_viewed: bool) -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (k INTEGER)")
        con.execute("INSERT INTO t VALUES (1), (1)")
        if is_viewed:
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
        rows = pa.table({"k": pa.array([1], pa.int32()), "_weight": [weight]})
        con.apply({"t": pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())})
        read = "FROM v" if is_viewed else "SELECT k, count(*) FROM t GROUP BY k"
        assert con.execute(read).fetchall() == [(1, 2 + weight)]

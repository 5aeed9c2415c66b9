"""In a transaction, views and tables are of one epoch, or the view refuses; our results keep no transaction open."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import sqlfront

SETUP = """
CREATE TABLE r (a INTEGER);
CREATE TABLE q (a INTEGER);
CREATE CHANGE TABLE c (a INTEGER);
CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM r;
CREATE MATERIALIZED VIEW over_m AS SELECT sum(n) AS n FROM m;
CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM q;
CREATE MATERIALIZED VIEW of_c AS SELECT count(*) AS n FROM c;
CREATE VIEW plain AS SELECT n FROM m;
PREPARE p AS SELECT n FROM m;
"""


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    with sqlfront.connect() as connection:
        connection.execute(SETUP)
        yield connection


READS = [
    "SELECT (SELECT n FROM m), (SELECT count(*) FROM r)",
    "FROM m",
    "FROM plain",
    "EXECUTE p",
    "FROM over_m",
    "SELECT * FROM m WHERE n = 12345",
    "CHECK MATERIALIZED VIEW m",
    "INSERT INTO q SELECT n FROM m",
    "UPDATE q SET a = (SELECT n FROM m)",
    "INSERT INTO c SELECT n FROM m",
]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("sql", READS)
def test_a_view_is_not_mixed_with_older_tables(con: sqlfront.Connection, sql: str, own: bool) -> None:
    con.execute("INSERT INTO q VALUES (7)")
    con.execute("BEGIN; SELECT 1 FROM r")
    if own:
        con.execute("INSERT INTO r VALUES (2)")
    con.cursor().execute("INSERT INTO r VALUES (1)")
    with pytest.raises(sqlfront.StaleRead, match=r"(?s)newer than what this transaction sees.*r changed.*ROLLBACK"):
        con.execute(sql).fetchall()
    con.rollback()
    con.execute(sql).fetchall()
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1)]


def test_what_others_changed_before_or_elsewhere_is_read(con: sqlfront.Connection) -> None:
    other = con.cursor()
    con.execute("BEGIN")
    other.execute("INSERT INTO r VALUES (1)")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1)]
    other.execute("INSERT INTO q VALUES (1)")
    con.execute("INSERT INTO r VALUES (2)")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM over_m").fetchall() == [(2, 2)]
    assert con.execute("CHECK MATERIALIZED VIEW m").fetchall() == []
    assert con.view("m").rows() == [(2,)]
    other.apply({"c": pa.table({"a": [1]})})
    assert con.execute("FROM of_c").fetchall() == [(1,)]
    con.execute("COMMIT")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(2, 2)]
    assert con.execute("SELECT n, (SELECT count(*) FROM q) FROM other").fetchall() == [(1, 1)]


def test_handles_refuse_too(con: sqlfront.Connection) -> None:
    con.execute("BEGIN; SELECT 1 FROM r")
    con.cursor().execute("INSERT INTO r VALUES (1)")
    view = con.view("m")
    for read in (view.count, view.rows, lambda: view.contains((0,)), lambda: view.contains((99,))):
        with pytest.raises(sqlfront.StaleRead, match="r changed"):
            read()
        con.rollback()
        con.execute("BEGIN; SELECT 1 FROM r")
        con.cursor().execute("INSERT INTO r VALUES (1)")


def test_writers_past_us_count_too(con: sqlfront.Connection) -> None:
    raw = con.session.database.root.cursor()
    raw.execute("INSERT INTO r VALUES (1)")
    con.execute("BEGIN; SELECT 1 FROM r")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1)]
    raw.execute("INSERT INTO r VALUES (2)")
    for sql in ("INSERT INTO q SELECT n FROM m", "FROM m"):
        with pytest.raises(sqlfront.StaleRead):
            con.execute(sql).fetchall()
        con.rollback()
        con.execute("BEGIN; SELECT 1 FROM r")
        raw.execute("INSERT INTO r VALUES (2)")


def test_a_view_that_was_built_anew_is_refused(con: sqlfront.Connection) -> None:
    other = con.cursor()
    con.execute("BEGIN; SELECT 1 FROM r")
    other.execute("REFRESH MATERIALIZED VIEW m")
    with pytest.raises(sqlfront.StaleRead, match="the view was built after"):
        con.execute("FROM m")


@pytest.mark.parametrize("begun", [False, True])
def test_a_stream_inside_a_transaction_is_stale_after_another_commit(con: sqlfront.Connection, begun: bool) -> None:
    con.execute("INSERT INTO r SELECT range FROM range(300000); CREATE MATERIALIZED VIEW all_r AS SELECT a FROM r")
    if begun:
        con.execute("BEGIN")
    con.execute("FROM all_r")
    con.cursor().execute("INSERT INTO r VALUES (1)")
    if begun:
        with pytest.raises(sqlfront.StaleRead):
            con.fetchall()
    else:
        assert len(con.fetchall()) == 300001


RESULTS = ["INSERT INTO r VALUES (1) RETURNING a", "SHOW MATERIALIZED VIEWS", "CHECK MATERIALIZED VIEW m"]


@pytest.mark.parametrize("sql", ["INSERT INTO r VALUES (1)", *RESULTS])
@pytest.mark.parametrize("fetched", [False, True])
def test_a_result_of_ours_is_not_in_the_way(con: sqlfront.Connection, sql: str, fetched: bool) -> None:
    other = con.cursor()
    other.execute(sql)
    if fetched:
        other.fetchone()
    con.execute("CREATE TABLE w (a INTEGER); CREATE MATERIALIZED VIEW of_w AS SELECT a FROM w; CHECKPOINT")
    assert con.execute("FROM of_w").fetchall() == []


def test_our_results_are_fetched_as_any(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO r VALUES (1), (2), (3) RETURNING a, a::HUGEINT AS h")
    assert [column[0] for column in con.description or ()] == ["a", "h"]
    assert con.fetchone() == (1, 1)
    assert con.to_arrow_table().column("a").to_pylist() == [2, 3]
    assert (con.fetchall(), con.fetchone()) == ([], None)
    con.execute("DELETE FROM r RETURNING a")
    assert (con.fetchmany(2), con.df()["a"].tolist(), con.fetchmany(2)) == ([(1,), (2,)], [3], [])
    con.execute("INSERT INTO r VALUES (4) RETURNING a")
    assert con.to_arrow_reader().read_all().to_pylist() == [{"a": 4}]
    con.execute("SELECT 1")
    assert con.fetchall() == [(1,)]


def test_many_rows_of_ours_are_fetched_in_slices(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO r SELECT range FROM range(150000) RETURNING a")
    assert con.fetchone() == (0,)
    assert con.fetchmany(100000)[-1] == (100000,)
    assert con.to_arrow_table().column("a").to_pylist() == list(range(100001, 150000))
    assert con.fetchall() == []
    con.execute("DELETE FROM r RETURNING a")
    found = [con.fetchone() for _ in range(70000)]
    assert sorted(found + con.fetchall()) == [(number,) for number in range(150000)]

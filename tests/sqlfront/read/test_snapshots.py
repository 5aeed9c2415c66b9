"""In a transaction, views and tables are of one epoch, whatever others commit; our results keep no transaction open."""

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
    ("SELECT (SELECT n FROM m), (SELECT count(*) FROM r)", (0, 0), (1, 1)),
    ("FROM m", (0,), (1,)),
    ("SELECT count(*) FROM m", (1,), (1,)),
    ("FROM plain", (0,), (1,)),
    ("EXECUTE p", (0,), (1,)),
    ("FROM over_m", (0,), (1,)),
    ("SELECT count(*) FROM m WHERE n = 0", (1,), (0,)),
    ("FROM m ORDER BY n LIMIT 1", (0,), (1,)),
    ("INSERT INTO q SELECT n FROM m; FROM q WHERE a < 7", (0,), (1,)),
    ("UPDATE q SET a = (SELECT n FROM m); FROM q", (0,), (1,)),
    ("INSERT INTO c SELECT n FROM m; FROM c", (0,), (1,)),
]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("sql", "before", "with_own"), READS)
def test_a_view_is_that_of_the_transaction(
    con: sqlfront.Connection, sql: str, before: tuple[int, ...], with_own: tuple[int, ...], own: bool
) -> None:
    con.execute("INSERT INTO q VALUES (7)")
    con.execute("BEGIN; SELECT 1 FROM r")
    if own:
        con.execute("INSERT INTO r VALUES (2)")
    con.cursor().execute("INSERT INTO r VALUES (1), (3)")
    assert con.execute(sql).fetchall() == [with_own if own else before]
    con.cursor().execute("DELETE FROM r WHERE a = 1")
    assert con.execute("FROM m").fetchall() == [(int(own),)]
    con.execute("COMMIT")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1 + own, 1 + own)]


def test_a_read_without_duckdb_fixes_what_a_transaction_sees(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO r VALUES (2)")
    for read in ("SELECT n FROM m WHERE n = 1", "SELECT count(*) FROM m"):
        con.execute(read)  # Its names are known from now on: nothing but the pin asks DuckDB.
        con.execute("BEGIN")
        con.execute(read)
        con.cursor().execute("INSERT INTO r VALUES (1)")
        assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1)]
        con.execute("ROLLBACK")
        con.execute("DELETE FROM r WHERE a = 1")


def test_own_deletes_of_what_others_have_taken(con: sqlfront.Connection) -> None:
    """The present rows are not those that the transaction has deleted."""
    con.execute("INSERT INTO r VALUES (1), (2)")
    con.execute("BEGIN; DELETE FROM r WHERE a = 1; INSERT INTO q VALUES (9)")
    other = con.cursor()
    other.execute("INSERT INTO r VALUES (3); BEGIN; INSERT INTO r VALUES (4)")
    assert con.execute("SELECT n, (FROM other), (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1, 1)]
    assert other.execute("FROM m").fetchall() == [(4,)]
    con.execute("COMMIT")
    assert other.execute("FROM m").fetchall() == [(4,)]
    other.execute("ROLLBACK")
    assert con.execute("FROM m").fetchall() == [(2,)]


def test_a_view_is_refused_where_duckdb_would_answer_otherwise(con: sqlfront.Connection) -> None:
    con.execute("""
        CREATE TABLE f (x DOUBLE);
        CREATE MATERIALIZED VIEW of_f AS SELECT sum(x) AS s, count(*) AS n FROM f;
        CREATE MATERIALIZED VIEW mixed AS SELECT count(*) AS n FROM r, c;
        CREATE MATERIALIZED VIEW zoned AS SELECT (DATE '2020-01-01' + a)::TIMESTAMPTZ::VARCHAR AS t FROM r;
    """)
    reads = ["FROM of_f", "FROM mixed", "CHECK MATERIALIZED VIEW m", "SET TimeZone = 'Asia/Tokyo'; FROM zoned"]
    for sql in reads:
        con.execute("BEGIN; SELECT 1 FROM r")
        con.cursor().execute("INSERT INTO r VALUES (1)")
        con.cursor().execute("INSERT INTO f VALUES (0.5)")
        with pytest.raises(sqlfront.StaleRead, match=r"(?s)newer than what this transaction sees.* changed.*ROLLBACK"):
            con.execute(sql).fetchall()
        con.rollback()


def test_a_setting_that_changes_in_a_transaction_takes_the_answer_back(con: sqlfront.Connection) -> None:
    con.execute("BEGIN; SELECT 1 FROM r")
    con.cursor().execute("INSERT INTO r VALUES (1)")
    assert con.execute("FROM m").fetchall() == [(0,)]
    con.execute("SET integer_division = true")
    with pytest.raises(sqlfront.StaleRead):
        con.execute("FROM m").fetchall()
    con.rollback()
    assert con.execute("RESET integer_division; FROM m").fetchall() == [(1,)]


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


def test_handles_read_the_transaction_too(con: sqlfront.Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW g AS SELECT a, count(*) AS n FROM r GROUP BY a")
    con.execute("BEGIN; SELECT 1 FROM r")
    con.cursor().execute("INSERT INTO r VALUES (1)")
    view, groups = con.view("m"), con.view("g")
    assert (view.count(), view.rows(), view.contains((0,)), view.contains((1,))) == (1, [(0,)], True, False)
    assert (groups.count(), groups.get(1), groups.get_many([(1,), (2,)])) == (0, None, [None, None])
    con.execute("COMMIT")
    assert (view.rows(), groups.get(1), groups.count()) == ([(1,)], (1, 1), 1)


def test_writers_past_us_count_too(con: sqlfront.Connection) -> None:
    raw = con.session.database.root.cursor()
    raw.execute("INSERT INTO r VALUES (1)")
    con.execute("BEGIN; SELECT 1 FROM r")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1)]
    raw.execute("INSERT INTO r VALUES (2)")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1)]
    con.execute("INSERT INTO q SELECT n FROM m")
    con.execute("COMMIT")
    assert con.execute("SELECT n, (SELECT count(*) FROM r), (FROM q) FROM m").fetchall() == [(2, 2, 1)]


def test_a_view_that_was_built_anew_is_that_of_the_transaction(con: sqlfront.Connection) -> None:
    other = con.cursor()
    con.execute("BEGIN; SELECT 1 FROM r")
    other.execute("REFRESH MATERIALIZED VIEW m; INSERT INTO r VALUES (1)")
    assert con.execute("FROM m").fetchall() == [(0,)]
    con.execute("COMMIT; BEGIN; SELECT 1 FROM r")
    other.execute("ALTER TABLE r ADD COLUMN b INTEGER; INSERT INTO r VALUES (1, 2)")
    assert con.execute("SELECT n, (SELECT count(*) FROM r) FROM m").fetchall() == [(1, 1)]


@pytest.mark.parametrize("begun", [False, True])
def test_a_result_inside_a_transaction_is_that_of_the_transaction(con: sqlfront.Connection, begun: bool) -> None:
    con.execute("INSERT INTO r SELECT range FROM range(300000); CREATE MATERIALIZED VIEW all_r AS SELECT a FROM r")
    if begun:
        con.execute("BEGIN")
    con.execute("FROM all_r")
    con.cursor().execute("INSERT INTO r VALUES (1)")
    assert len(con.fetchall()) == 300001 - begun


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

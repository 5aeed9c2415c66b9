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


REWOUND = """
CREATE TABLE f (k INTEGER, x DOUBLE);
CREATE TABLE z (a INTEGER, t TIMESTAMPTZ);
CREATE MATERIALIZED VIEW of_f AS SELECT k, sum(x) AS s, count(*) AS n FROM f GROUP BY k ORDER BY s, k;
CREATE MATERIALIZED VIEW middle AS SELECT quantile_cont(x, 0.5) AS q FROM f;
CREATE MATERIALIZED VIEW mixed AS SELECT r.a, count(*) AS n FROM r JOIN c ON r.a = c.a GROUP BY r.a;
CREATE MATERIALIZED VIEW zoned AS SELECT (DATE '2020-01-01' + a)::TIMESTAMPTZ::VARCHAR AS t FROM r;
CREATE MATERIALIZED VIEW timed WITH (clock = 'manual') AS SELECT a FROM z WHERE t > now();
CREATE MATERIALIZED VIEW later WITH (apply = 'on read') AS SELECT k, sum(x) AS s FROM f GROUP BY k;
INSERT INTO f VALUES (1, 0.1), (1, 1e20), (2, 0.3);
INSERT INTO r VALUES (1), (2);
INSERT INTO z VALUES (1, '2020-01-02 00:00:00+00'), (2, '2020-01-09 00:00:00+00');
INSERT INTO c VALUES (1), (1);
"""
REWOUND_READS = [
    "FROM of_f", "FROM middle", "FROM mixed", "FROM timed", "FROM later", "FROM c", "SELECT count(*) FROM c",
    "WITH x AS (FROM of_f) FROM x WHERE k = 1", "SELECT m.n, s, (SELECT count(*) FROM r) FROM m, of_f",
    "SET TimeZone = 'Asia/Tokyo'; FROM zoned", "CHECK MATERIALIZED VIEW m", "CHECK MATERIALIZED VIEW of_f",
    "CHECK MATERIALIZED VIEW timed", "DELETE FROM q; INSERT INTO q SELECT n FROM of_f; FROM q",
    "PREPARE o AS FROM of_f; EXECUTE o",
]  # fmt: skip


@pytest.fixture
def rewound() -> Iterator[sqlfront.Connection]:
    with sqlfront.connect(config={"threads": 1}) as con:
        con.execute(SETUP)
        con.advance_time("2020-01-01 00:00:00+00")
        con.execute(REWOUND)
        yield con


def change_all(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO f VALUES (1, -1e20), (3, 5); DELETE FROM f WHERE k = 2; INSERT INTO r VALUES (1), (3)")
    con.execute("UPDATE c SET a = 2; INSERT INTO c VALUES (3)")
    for _ in range(3):  # The first row of a session finds the way of the others.
        con.apply_row("c", (1,))
    con.advance_time("2020-01-02 12:00:00+00")


@pytest.mark.parametrize("own", ["", "INSERT INTO f VALUES (1, 0.7); INSERT INTO c VALUES (2)"])
def test_a_view_of_which_duckdb_has_no_snapshot_is_rewound(rewound: sqlfront.Connection, own: str) -> None:
    con, other = rewound, rewound.cursor()
    con.execute(f"BEGIN; SELECT 1 FROM r; {own}")
    before = [con.execute(sql).fetchall() for sql in REWOUND_READS]
    con.rollback()
    con.execute(f"BEGIN; SELECT 1 FROM r; {own}")
    outside = other.execute("FROM of_f").fetchall()
    told = other.view("of_f").subscribe(timeout=0)
    for sql, rows in zip(REWOUND_READS, before, strict=True):
        change_all(other)
        assert sorted(con.execute(sql).fetchall()) == sorted(rows), sql
    con.rollback()
    changed = list(told)
    database = con.session.database
    assert 0 < len(changed) <= database.engine.epoch
    assert other.execute("FROM of_f").fetchall() != outside
    for view in ("of_f", "mixed", "timed", "later"):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
    assert not database.engine.kept.pinned


def test_first_rows_and_streams_are_rewound(rewound: sqlfront.Connection) -> None:
    con, view = rewound, rewound.view("of_f")
    con.execute("BEGIN")
    before = view.top(2), view.rows(), view.get(1), view.count(), view.contains((2, 0.3, 1))
    change_all(con.cursor())
    assert (view.top(2), view.rows(), view.get(1), view.count(), view.contains((2, 0.3, 1))) == before
    con.execute("FROM of_f")
    change_all(con.cursor())
    assert con.to_arrow_reader().read_all().num_rows == len(before[1])
    con.execute("UPDATE c SET a = a + 10 WHERE a = 1")  # Of the two rows that the transaction sees.
    assert sorted(con.execute("FROM c").fetchall()) == [(11,), (11,)]
    con.rollback()


def test_transactions_of_several_epochs_are_each_rewound_to_their_own(rewound: sqlfront.Connection) -> None:
    readers, seen = [rewound.cursor() for _ in range(4)], {}
    for place in [0, 1, 2, 0, 3, 1, 2, 2, 0]:
        reader = readers[place]
        if reader in seen:
            reader.execute("ROLLBACK")
        reader.execute("BEGIN")
        seen[reader] = reader.execute("FROM of_f").fetchall(), reader.execute("FROM mixed").fetchall()
        change_all(rewound)
        for one, (sums, counts) in seen.items():
            assert one.execute("FROM of_f").fetchall() == sums
            assert sorted(one.execute("FROM mixed").fetchall()) == sorted(counts)
    for reader in readers:
        reader.close()
    assert not rewound.session.database.engine.kept.pinned


def test_changes_beyond_the_memory_limit_are_given_up(
    rewound: sqlfront.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlfront.maintenance.kept_changes._FIRST_LOOK", 0)
    con, other = rewound, rewound.cursor()
    kept = con.session.database.engine.kept
    kept._next_look = 0
    con.execute("BEGIN; SELECT 1 FROM r")
    before = con.execute("FROM of_f").fetchall()
    for _ in range(20):
        other.execute("INSERT INTO f SELECT 9, range FROM range(1000); DELETE FROM f WHERE k = 9")
    assert kept.bytes() < 1000  # They are netted.
    assert con.execute("FROM of_f").fetchall() == before
    kept._limit = lambda: 10_000
    other.execute("INSERT INTO f SELECT 9, range FROM range(1000)")
    assert kept.bytes() == 0
    with pytest.raises(
        sqlfront.StaleRead, match=r"(?s)newer than .*f changed.*of 41 epochs since.*beyond memory_limit"
    ):
        con.execute("FROM of_f").fetchall()
    con.rollback()
    con.execute("BEGIN")
    before = con.execute("FROM of_f").fetchall()
    other.execute("INSERT INTO f VALUES (1, 1)")
    assert con.execute("FROM of_f").fetchall() == before
    con.rollback()


def test_a_setting_that_changes_in_a_transaction_takes_the_answer_back(con: sqlfront.Connection) -> None:
    con.execute("BEGIN; SELECT 1 FROM r")
    con.cursor().execute("INSERT INTO r VALUES (1)")
    assert con.execute("FROM m").fetchall() == [(0,)]
    con.execute("SET integer_division = true")
    assert con.execute("FROM m").fetchall() == [(0,)]
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
    assert con.execute("FROM of_c").fetchall() == [(0,)]
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

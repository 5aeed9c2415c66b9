"""Reading views in any SQL: names, streams, one epoch per statement, and look-ups that go to the tree."""

from __future__ import annotations

import datetime
import gc
import weakref
from decimal import Decimal

import pyarrow as pa
import pytest

import sqlfront

SETUP = """
CREATE TABLE a(k BIGINT, x BIGINT);
CREATE TABLE b(k BIGINT, name VARCHAR, day DATE, price DECIMAL(10, 2), ratio DOUBLE);
INSERT INTO a SELECT r.range % 1000, r.range FROM range(3000) r;
INSERT INTO b SELECT r.range, 'n' || r.range, DATE '2020-01-01' + r.range::INTEGER, r.range / 4, r.range / 2
    FROM range(1000) r;
CREATE MATERIALIZED VIEW v AS
    SELECT k, name, day, price, ratio, sum(x) AS s, count(*) AS n FROM a JOIN b USING (k) GROUP BY ALL;
"""


@pytest.fixture(scope="module")
def shared():
    with sqlfront.connect() as connection:
        connection.execute(SETUP)
        yield connection


@pytest.fixture
def con(shared):
    with shared.cursor() as cursor:
        yield cursor


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT count(*) FROM v", [(1000,)]),
        ('SELECT n FROM "main"."V" WHERE k = 3', [(3,)]),
        ("SELECT n FROM memory.main.v WHERE k = 3", [(3,)]),
        ("SELECT main.v.n FROM main.v WHERE main.v.k = 3", [(3,)]),
        ("SELECT main.v.n FROM main.v WHERE k = 3", [(3,)]),
        ("SELECT w.n FROM w: v WHERE w.k = 3", [(3,)]),
        ("SELECT n FROM `v` WHERE k = 3", [(3,)]),
        ("SELECT x.n FROM v AS x(price, name, day, k, n) WHERE k = 3 AND price = 12", [(6.0,)]),
        ("WITH v AS (SELECT 1 AS one) SELECT * FROM v WHERE one = 1", [(1,)]),
        ("WITH w AS (SELECT * FROM v) SELECT count(*) FROM w WHERE k < 10", [(10,)]),
        ("WITH v AS (SELECT k FROM main.v WHERE k = 1) SELECT count(*) FROM v", [(1,)]),
        ("SELECT count(*) FROM v AS p JOIN v AS q ON p.k = q.k + 1", [(999,)]),
        ("SELECT count(*) FROM v p, v q WHERE p.k = 1 AND q.k = 2", [(1,)]),
        ("SELECT (SELECT n FROM v WHERE k = a.k) FROM a WHERE x = 5", [(3,)]),
        ("SELECT count(*) FROM a WHERE k IN (SELECT k FROM v WHERE name = 'n7')", [(3,)]),
        ("SELECT k FROM v WHERE k = 1 UNION ALL SELECT k FROM v WHERE k = 2 ORDER BY 1", [(1,), (2,)]),
        ("FROM v SELECT n WHERE k = 1", [(3,)]),
        ("SELECT x.n FROM v AS x(kk, nn) WHERE kk = 1", [(3,)]),
        ("SELECT max(c) FROM (SELECT count(*) OVER () AS c FROM v WHERE k < 5)", [(5,)]),
    ],
)
def test_any_sql(con, sql, expected):
    assert con.execute(sql).fetchall() == expected


def test_prepared_described_and_listed(con):
    con.execute("PREPARE p AS SELECT n FROM v WHERE k = ?")
    assert con.execute("EXECUTE p(3)").fetchall() == [(3,)]
    assert con.execute("DESCRIBE v").fetchall()[0][:2] == ("k", "BIGINT")
    assert [row[0] for row in con.execute("SHOW TABLES").fetchall()] == ["a", "b", "v"]
    listed = con.execute("SELECT table_type FROM information_schema.tables WHERE table_name = 'v'").fetchall()
    assert listed == [("VIEW",)]
    columns = con.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'v'").fetchall()
    assert ("price",) in columns
    assert con.execute("EXPLAIN SELECT * FROM v").fetchall()
    assert all(
        not name.startswith("__sqlfront")
        for *_, name in con.execute(
            "SELECT schema, name FROM (SHOW ALL TABLES) WHERE schema = 'main' AND NOT temporary"
        ).fetchall()
    )


def test_plain_views_over_views(con):
    con.execute("CREATE OR REPLACE VIEW dv AS SELECT k, n FROM v")
    assert con.execute("SELECT n FROM dv WHERE k = 4").fetchall() == [(3,)]
    con.execute("DROP VIEW dv")


def test_temporary_tables_hide_views(con):
    con.execute("CREATE TEMP TABLE v AS SELECT 1 AS k, 'mine' AS name")
    assert con.execute("SELECT name FROM v WHERE k = 1").fetchall() == [("mine",)]
    con.execute("INSERT INTO v VALUES (2, 'mine')")
    assert con.execute("SELECT name FROM main.v WHERE k = 1").fetchall() == [("mine",)]  # temp.main is a main, too.
    assert con.execute("SELECT name FROM memory.main.v WHERE k = 1").fetchall() == [("n1",)]
    con.execute("CREATE OR REPLACE TEMP TABLE v(k INT)")
    con.execute("DROP TABLE temp.v; CREATE TEMP TABLE a AS SELECT 1 AS one; CREATE OR REPLACE TEMP TABLE a(one INT)")
    con.execute("DROP TABLE temp.a")
    for statement in ("CREATE OR REPLACE TABLE a AS SELECT 1 AS k", "CREATE OR REPLACE TABLE a(k INT)"):
        with pytest.raises(sqlfront.IntegrityError, match="materialized view v reads the table"):
            con.execute(statement)
    con.execute("CREATE TABLE IF NOT EXISTS a AS SELECT 1 AS k")
    assert con.execute("SELECT name FROM v WHERE k = 1").fetchall() == [("n1",)]


def test_schemas_and_quoting():
    con = sqlfront.connect()
    con.execute('CREATE SCHEMA "My Schema"; CREATE TABLE "My Schema"."T t"("a b" BIGINT, "select" VARCHAR)')
    con.execute('INSERT INTO "My Schema"."T t" VALUES (1, \'x\'), (1, NULL)')
    con.execute(
        'CREATE MATERIALIZED VIEW "My Schema"."the ""view""" AS '
        'SELECT "a b", count("select") AS "n n" FROM "My Schema"."T t" GROUP BY "a b"'
    )
    assert con.execute('SELECT * FROM "my schema"."the ""view""" WHERE "a b" = 1').fetchall() == [(1, 1)]
    con.execute('INSERT INTO "my schema"."t t" VALUES (1, \'y\')')
    con.execute("SET search_path = '\"My Schema\",main'")
    assert con.execute('SELECT "n n" FROM "The ""View""" v WHERE v."a b" = 1').fetchall() == [(2,)]
    assert con.view('"the ""view"""').count() == 1
    con.execute('CREATE TABLE main.other(i INT); USE "My Schema"')
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT i FROM main.other")
    assert con.execute('SELECT count(*) FROM "My Schema".w').fetchall() == [(0,)]
    con.execute("ATTACH ':memory:' AS elsewhere; CREATE TABLE elsewhere.w(i INT); USE elsewhere")
    con.execute("INSERT INTO w VALUES (5)")
    assert con.execute("SELECT * FROM w").fetchall() == [(5,)]
    assert con.execute('SELECT count(*) FROM memory."My Schema".w').fetchall() == [(0,)]


def test_a_limit_over_a_huge_view_reads_no_more():
    """All rows would be 24 GB."""
    con = sqlfront.connect()
    con.execute("CREATE TABLE x AS FROM range(1000) t(i); CREATE TABLE y AS FROM range(1000) t(j)")
    con.execute("CREATE TABLE z AS FROM range(1000) t(k); CREATE MATERIALIZED VIEW huge AS SELECT i, j, k FROM x, y, z")
    assert len(con.execute("SELECT * FROM huge LIMIT 3").fetchall()) == 3
    assert con.view("huge").count() == 10**9
    reader = con.execute("SELECT * FROM huge").to_arrow_reader(1000)
    assert reader.read_next_batch().num_rows > 0
    con.execute("SELECT 1")
    with pytest.raises(sqlfront.InterfaceError, match="another statement"):
        reader.read_next_batch()


def big(con, name, rows=500):
    con.execute(f"CREATE CHANGE TABLE {name}(i BIGINT)")
    con.execute(f"CREATE MATERIALIZED VIEW {name}_pairs AS SELECT p.i, q.i AS j FROM {name} p, {name} q")
    con.apply({name: pa.table({"i": range(rows)})})
    return f"SELECT * FROM {name}_pairs"


def test_streams_keep_their_epoch(con):
    query = big(con, "pinned")
    other = con.cursor()
    reader = con.execute(query).to_arrow_reader(1000)
    first = reader.read_next_batch().num_rows
    other.apply_row("pinned", (5000,))
    assert first + sum(batch.num_rows for batch in reader) == 500 * 500
    con.execute(query)
    assert len(con.fetchmany(10)) == 10
    other.apply_row("pinned", (5000,), weight=-1)
    assert len(con.fetchall()) == 501 * 501 - 10
    relation = con.sql(query).to_arrow_reader(1000)
    first = relation.read_next_batch().num_rows
    other.execute("INSERT INTO pinned VALUES (1)")
    assert first + sum(batch.num_rows for batch in relation) == 500 * 500
    reader = con.execute(query).to_arrow_reader(1000)
    other.execute("DROP CHANGE TABLE pinned CASCADE")
    assert sum(batch.num_rows for batch in reader) == 501 * 501


def test_a_statement_scans_relations_of_views_without_waiting_for_itself(con):
    """DuckDB's threads open and read relations: none waits for a lock that the thread of the statement holds."""
    every = con.sql("SELECT a.k FROM a, (FROM range(300))")
    sums = con.sql("SELECT sum(n) AS n, max(k) AS k FROM v")
    b = con.sql("SELECT 1 AS one")  # The table of the name goes first.
    assert [one.columns for one in (every, sums, b)] == [["k"], ["n", "k"], ["one"]]
    for _ in range(5):
        assert con.sql("FROM sums").fetchall() == [(3000, 999)]
        assert con.execute("SELECT sums.n, v.n FROM sums JOIN v USING (k)").fetchone() == (3000, 3)
        assert con.sql("SELECT count(*) FROM every JOIN v USING (k)").to_arrow_table()[0].to_pylist() == [900_000]
        assert con.sql("SELECT count(*) FROM v JOIN b USING (k), sums").fetchall() == [(1000,)]
        assert con.sql("FROM sums, v").to_arrow_reader().read_all().num_rows == 1000
    k = con.sql("SELECT error('a column of the name is no scan') AS k FROM v")
    assert k.columns == ["k"] and con.sql("SELECT max(k) FROM v").fetchall() == [(999,)]
    con.execute("CREATE TABLE from_sums AS SELECT k FROM sums JOIN v USING (k); DROP TABLE from_sums")
    del k
    con.execute("BEGIN; INSERT INTO a VALUES (0, 1)")
    assert con.execute("SELECT sums.n, v.n FROM sums, v WHERE v.k = 0").fetchall() == [(3001, 4)]
    con.execute("ROLLBACK")


@pytest.mark.parametrize("partly", [False, True])
def test_a_result_begins_with_its_first_row(con, partly):
    query = "SELECT k, s, 1::UHUGEINT AS u, [k] AS ks FROM v ORDER BY k LIMIT 20"
    other = con.cursor()
    expected = con.execute(query).fetchall()
    con.execute(query)
    if partly:
        assert con.fetchone() == expected[0]
    other.execute("BEGIN; DELETE FROM a; FROM v")
    rest = con.fetchall()
    other.execute("ROLLBACK")
    assert rest == expected[partly:]
    assert con.fetchone() is None


def test_a_first_row_is_of_the_present_epoch(con):
    other = con.cursor()
    con.execute("SELECT k, s, 1::UHUGEINT AS u FROM v ORDER BY k LIMIT 20")
    other.execute("INSERT INTO a VALUES (0, 5)")
    assert con.fetchone()[:2] == (0, 3005)
    other.execute("DELETE FROM a WHERE k = 0 AND x = 5")


def test_a_rest_beyond_the_memory_limit_is_refused(con, monkeypatch):
    other, engine = con.cursor(), con.session.database.engine
    query = big(con, "many")
    readers = [con.execute(query).to_arrow_reader(1000), con.sql(query).to_arrow_reader(1000)]
    epoch = engine.epoch
    monkeypatch.setattr(engine, "memory_limit", lambda: 1e6)
    for reader in readers[1:]:
        reader.read_next_batch()
    other.apply_row("many", (5000,))
    with pytest.raises(sqlfront.StaleRead, match=f"(?s)began at epoch {epoch} is too large.*memory_limit, 1 MiB"):
        list(readers[1])
    cursor = con.cursor()
    cursor.execute(query)
    cursor.fetchone()
    other.apply_row("many", (5001,))
    with pytest.raises(sqlfront.StaleRead, match="too large to be held"):
        cursor.fetchone()
    assert cursor.execute("SELECT count(*) FROM many").fetchone() == (502,)
    other.execute("DROP CHANGE TABLE many CASCADE")


def test_a_rest_that_fails_is_its_readers_error(con):
    other = con.cursor()
    big(con, "failing", rows=1500)
    con.execute("SELECT CASE WHEN i = 1499 THEN error('no such row') ELSE i END FROM failing_pairs")
    con.fetchone()
    other.apply_row("failing", (5000,))
    with pytest.raises(sqlfront.Error, match="no such row"):
        con.fetchall()
    assert other.execute("SELECT count(*) FROM failing").fetchone() == (1501,)
    other.execute("DROP CHANGE TABLE failing CASCADE")


def test_look_ups_leave_no_scan_of_a_dropped_view_behind(con):
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k, x FROM a")
    scans = "SELECT count(*) FROM duckdb_views(), (SELECT k FROM v LIMIT 1) WHERE view_name LIKE '%sqlfront_scan%'"
    assert con.execute("SELECT x FROM w WHERE k = 3 ORDER BY x").fetchall() == [(3,), (1003,), (2003,)]
    view = weakref.ref(con.session.database.views["main", "w"].maintained)
    con.execute("DROP MATERIALIZED VIEW w")
    con.execute("SELECT 1").fetchall()
    gc.collect()
    assert view() is None
    assert con.execute(scans).fetchall() == [(1,)]


def test_whole_results_are_of_one_epoch(con):
    query = big(con, "whole")
    other = con.cursor()
    con.execute(query)
    other.apply_row("whole", (5000,))
    assert con.to_arrow_table().num_rows in (500 * 500, 501 * 501)
    other.execute("DROP CHANGE TABLE whole CASCADE")


def steps_of(con, monkeypatch, sql, params=None):
    """The rows of a statement, and how many rows the engine gave to DuckDB for it."""
    from sqlfront.maintenance.output.output import Reader

    given = []
    original = Reader._batch

    def counted(self, rows):
        batch = original(self, rows)
        given.append(batch.num_rows)
        return batch

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "_batch", counted)
        found = con.execute(sql, params).fetchall()
    return found, sum(given)


@pytest.mark.parametrize(
    ("sql", "params"),
    [
        ("SELECT k FROM v WHERE k = 7", None),
        ("SELECT k FROM v WHERE 7 = k AND n > 0", None),
        ("SELECT k FROM v WHERE k = ?", [7]),
        ("SELECT k FROM v WHERE n > ? AND k = ?", [0, 7]),
        ("SELECT k FROM v WHERE k = $key", {"key": 7}),
        ("SELECT q.k FROM v AS q WHERE q.k = 7", None),
        ("SELECT k FROM main.v WHERE name = 'n7' AND k = 7", None),
        ("SELECT v.k FROM (SELECT 7 AS key) JOIN v ON v.k = 7", None),
        ("SELECT k FROM (SELECT * FROM v WHERE k = 7)", None),
        ("SELECT k FROM v WHERE k = 7::SMALLINT", None),
        ("SELECT k FROM v WHERE k = 7.0", None),
        ("FROM v SELECT k WHERE (k) = ($1)", [7]),
    ],
)
def test_look_ups_go_to_the_tree(con, monkeypatch, sql, params):
    found, given = steps_of(con, monkeypatch, sql, params)
    assert found == [(7,)]
    assert given <= 2


@pytest.mark.parametrize(
    ("sql", "params", "expected"),
    [
        ("SELECT count(*) FROM v WHERE k = 1.5", None, 0),
        ("SELECT count(*) FROM v WHERE k = NULL", None, 0),
        ("SELECT count(*) FROM v WHERE k = ?", [None], 0),
        ("SELECT count(*) FROM v WHERE k IS NOT DISTINCT FROM NULL", None, 0),
        ("SELECT count(*) FROM v WHERE k = 7 OR k = 8", None, 2),
        ("SELECT count(*) FROM v WHERE (k = 7) OR name = 'n9'", None, 2),
        ("SELECT count(*) FROM v WHERE NOT (k = 7)", None, 999),
        ("SELECT count(*) FROM v WHERE k = 7 AND k = 8", None, 0),
        ("SELECT count(*) FROM b LEFT JOIN v ON b.k = v.k AND v.k = 7", None, 1000),
        ("SELECT count(v.k) FROM b LEFT JOIN v ON b.k = v.k AND v.k = 7", None, 1),
        ("SELECT count(*) FROM v LEFT JOIN b ON v.k = 7 AND b.k = v.k", None, 1000),
        ("SELECT count(*) FROM v FULL JOIN b ON v.k = b.k AND v.k = 7", None, 1999),
        ("SELECT count(*) FROM b LEFT JOIN v ON b.k = v.k WHERE v.k = 7", None, 1),
        ("SELECT count(*) FROM b SEMI JOIN v ON b.k = v.k AND v.k = 7", None, 1),
        ("SELECT count(*) FROM b ANTI JOIN v ON b.k = v.k AND v.k = 7", None, 999),
        ("SELECT count(*) FROM v WHERE name = 'absent'", None, 0),
        ("SELECT count(*) FROM v WHERE k = 7 AND name = 'n8'", None, 0),
        ("SELECT count(*) FROM v WHERE name = 'n8' AND k = 7", None, 0),
        ("SELECT count(*) FROM v WHERE day = DATE '2020-01-08' AND name = 'n8'", None, 0),
        ("SELECT min(name) FROM v WHERE k = 7 AND ratio = 3.5", None, "n7"),
        ("SELECT count(*) FROM v WHERE name = ?", ["n7"], 1),
        ("SELECT count(*) FROM v WHERE name = 'N7'", None, 0),
        ("SELECT count(*) FROM v WHERE k = '7'", None, 1),
        ("SELECT count(*) FROM v WHERE k = 7::DOUBLE", None, 1),
        ("SELECT count(*) FROM v WHERE k = ?", [7.0], 1),
        ("SELECT count(*) FROM v WHERE k = ?", [True], 1),
        ("SELECT count(*) FROM v WHERE k = 99999999999999999999999", None, 0),
        ("SELECT count(*) FROM v WHERE day = '2020-01-08'", None, 1),
        ("SELECT count(*) FROM v WHERE day = ?", [datetime.date(2020, 1, 8)], 1),
        ("SELECT count(*) FROM v WHERE day = TIMESTAMP '2020-01-08 12:00:00'", None, 0),
        ("SELECT count(*) FROM v WHERE day = TIMESTAMP '2020-01-08 00:00:00'", None, 1),
        ("SELECT count(*) FROM v WHERE price = 1.75", None, 1),
        ("SELECT count(*) FROM v WHERE price = 1.7500", None, 1),
        ("SELECT count(*) FROM v WHERE price = 1.754", None, 0),
        ("SELECT count(*) FROM v WHERE price = ?", [Decimal("1.75")], 1),
        ("SELECT count(*) FROM v WHERE ratio = 3.5", None, 1),
        ("SELECT count(*) FROM v WHERE ratio = 3.5::FLOAT", None, 1),
        ("SELECT count(*) FROM v WHERE k = -(-7)", None, 1),
        ("SELECT count(*) FROM (SELECT k AS n, n AS k FROM v) WHERE n = 7", None, 1),
        ("SELECT count(*) FROM v WHERE EXISTS (SELECT 1 FROM v AS w WHERE w.k = 7 AND v.k = 8)", None, 1),
        ("SELECT count(*) FROM v, (VALUES (7)) AS t(k) WHERE v.k = t.k", None, 1),
    ],
)
def test_look_ups_are_right(con, sql, params, expected):
    assert con.execute(sql, params).fetchall() == [(expected,)]


def test_a_text_is_read_once_and_only_if_it_names_a_view(con, monkeypatch):
    from sqlfront.sql import query_trees

    read = []
    parse = query_trees.parse
    monkeypatch.setattr(query_trees, "parse", lambda text: read.append(text) or parse(text))
    for key in (7, 8):
        assert con.execute("SELECT k /* once */ FROM v WHERE k = ?", [key]).fetchall() == [(key,)]
        assert con.execute("SELECT count(*) /* vv */ FROM b WHERE k = ?", [key]).fetchall() == [(1,)]
    assert read == ["SELECT k /* once */ FROM v WHERE k = ?"]


def test_absent_texts_read_nothing(con, monkeypatch):
    found, given = steps_of(con, monkeypatch, "SELECT * FROM v WHERE k = 7 AND name = 'never seen'")
    assert found == []
    assert given == 0


def test_text_look_ups_where_duckdb_compares_numbers(con):
    con.execute("CREATE OR REPLACE TABLE t(s VARCHAR)")
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW texts AS SELECT s, count(*) AS n FROM t GROUP BY s")
    con.execute("INSERT INTO t VALUES ('1'), ('01'), (NULL)")
    assert con.execute("SELECT count(*) FROM texts WHERE s = 1").fetchall() == [(2,)]
    assert con.execute("SELECT count(*) FROM texts WHERE s = ?", [1]).fetchall() == [(2,)]
    assert con.execute("SELECT count(*) FROM texts WHERE s = '1'").fetchall() == [(1,)]
    con.execute("BEGIN; INSERT INTO t VALUES ('new'), ('it''s')")
    assert con.execute("SELECT n FROM texts WHERE s = 'new'").fetchall() == [(1,)]
    assert con.execute("SELECT n FROM texts WHERE s = 'it''s'").fetchall() == [(1,)]
    con.execute("ROLLBACK")
    assert con.execute("SELECT n FROM texts WHERE s = 'new'").fetchall() == []
    con.execute("DROP MATERIALIZED VIEW texts; DROP TABLE t")


def test_contains_compares_every_column():
    con = sqlfront.connect()
    con.execute("CREATE TABLE l(k BIGINT, name VARCHAR); CREATE TABLE r(k BIGINT, y BIGINT)")
    con.execute("INSERT INTO l VALUES (1, 'a'), (2, 'b'), (NULL, NULL); INSERT INTO r VALUES (1, 10), (2, 20)")
    con.execute("CREATE MATERIALIZED VIEW joined AS SELECT k, name, y FROM l JOIN r USING (k)")
    con.execute("CREATE MATERIALIZED VIEW plain AS SELECT DISTINCT k, name FROM l")
    joined, plain = con.view("joined"), con.view("plain")
    assert joined.contains((1, "a", 10))
    assert not joined.contains((1, "b", 10))
    assert not joined.contains((1, "a", 20))
    assert not joined.contains((1, "never", 10))
    assert plain.contains((None, None))
    assert plain.contains((1, "a"))
    assert not plain.contains((1, "b"))
    assert not plain.contains((1, None))

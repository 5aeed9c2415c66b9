"""Reading views: in any SQL, of one epoch, lazily, by look-ups; and nothing printed when Python ends."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings

import pyarrow as pa
import pytest

import sqlfront
from maintenance.output import Reader

SETUP = """
CREATE SCHEMA other;
CREATE TABLE a(k BIGINT, x BIGINT, t VARCHAR);
CREATE TABLE b(k BIGINT, y BIGINT);
INSERT INTO a SELECT range % 1000, range, 'text' || (range % 10) FROM range(5000);
INSERT INTO a VALUES (NULL, 1, NULL);
INSERT INTO b SELECT range, range * 10 FROM range(1000);
CREATE MATERIALIZED VIEW v AS SELECT a.k, a.x, a.t, b.y FROM a JOIN b ON a.k = b.k;
CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS n FROM a GROUP BY k;
CREATE MATERIALIZED VIEW t AS SELECT t, count(*) AS n, sum(x) AS s FROM a GROUP BY t;
CREATE MATERIALIZED VIEW other."My View" AS SELECT k, sum(y) AS "S" FROM b GROUP BY k;
CREATE VIEW over_v AS SELECT k, x FROM v;
"""
VIEWS = {
    "v": "(SELECT a.k, a.x, a.t, b.y FROM a JOIN b ON a.k = b.k)",
    "n": "(SELECT k, count(*) AS n FROM a GROUP BY k)",
    "t": "(SELECT t, count(*) AS n, sum(x) AS s FROM a GROUP BY t)",
    "mine": '(SELECT k, sum(y) AS "S" FROM b GROUP BY k)',
}


@pytest.fixture(scope="module")
def shared():
    with sqlfront.connect() as con:
        con.execute(SETUP)
        yield con


@pytest.fixture
def con(shared):
    with shared.cursor() as cursor:
        yield cursor


def same(con, sql, params=None):
    """The rows of a query over {v}, {n}, {t}, {mine}: the same over the views as over their definitions."""
    views = {**{name: name for name in VIEWS}, "mine": 'other."My View"'}
    found = con.execute(sql.format(**views), params).fetchall()
    expected = con._duck.sql(sql.format(**VIEWS), params=params).fetchall()
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    return found


QUERIES = (
    "SELECT * FROM {v} AS v",
    "SELECT count(*), sum(v.x) FROM {v} AS v",
    "SELECT k, 'S' FROM {mine} AS q WHERE \"S\" > 9000",
    "WITH c AS (SELECT k FROM {v} AS v WHERE x < 9) SELECT * FROM c JOIN {n} AS n USING (k)",
    "SELECT p.x, q.x FROM {v} AS p JOIN {v} AS q ON p.k = q.k AND p.x < q.x WHERE p.k < 9",
    "SELECT (SELECT max(n) FROM {n} AS n), (SELECT min(n) FROM {n} AS m)",
    "SELECT k FROM {n} AS n WHERE EXISTS (SELECT 1 FROM {v} AS v WHERE v.k = n.k AND v.x > 4990)",
    "SELECT k, n FROM {n} AS n UNION ALL SELECT k, x FROM {v} AS v WHERE k = 3",
    "SELECT b.k, n.n FROM b LEFT JOIN {n} AS n ON b.k = n.k AND n.k = 7 WHERE b.k < 10",
    "SELECT t, n, s FROM {t} AS t ORDER BY n DESC, t LIMIT 100",
    "SELECT k, sum(x) OVER (PARTITION BY k ORDER BY x) FROM {v} AS v WHERE k IN (1, 2)",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_views_in_any_query(con, sql):
    assert same(con, sql)


LOOKUPS = (
    ("SELECT * FROM {v} AS v WHERE k = 7", None, True),
    ("SELECT * FROM {v} AS v WHERE v.k = 7 AND x > 1000", None, True),
    ("SELECT * FROM {v} AS v WHERE k = ?", [7], True),
    ("SELECT * FROM {v} AS v WHERE k = $k AND x > $x", {"k": 7, "x": 100}, True),
    ("SELECT * FROM {n} AS n WHERE n.k = 7", None, True),
    ("SELECT * FROM {t} AS t WHERE t = 'text3'", None, True),
    ("SELECT * FROM {t} AS t WHERE t = ?", ["text3"], True),
    ("SELECT * FROM {v} AS v WHERE k = 7 OR x = 4", None, False),
    ("SELECT b.k, n.n FROM b LEFT JOIN {n} AS n ON b.k = n.k WHERE b.k = 7", None, False),
    ("SELECT count(*) FROM b LEFT JOIN {n} AS n ON n.k = 7 AND b.k = n.k", None, False),
    ("SELECT b.k FROM {n} AS n RIGHT JOIN b ON b.k = n.k WHERE n.k = 7 OR n.k IS NULL", None, False),
    ("SELECT count(*) FROM {n} AS n WHERE NOT (k = 7)", None, False),
    ("SELECT k FROM b WHERE k IN (SELECT k FROM {n} AS n WHERE n.k = 7)", None, True),
    ("SELECT p.x, q.n FROM {v} AS p JOIN {n} AS q ON p.k = q.k WHERE p.k = 7", None, True),
    ("SELECT count(*) FROM {n} AS n WHERE k = NULL", None, None),
    ("SELECT count(*) FROM {n} AS n WHERE k = ?", [None], None),
    ("SELECT count(*) FROM {n} AS n WHERE k IS NULL", None, None),
    ("SELECT * FROM {n} AS n WHERE k = '7'", None, None),
    ("SELECT * FROM {n} AS n WHERE k = 7.0", None, None),
    ("SELECT count(*) FROM {n} AS n WHERE k = 7.5", None, None),
    ("SELECT count(*) FROM {n} AS n WHERE k = 9223372036854775808", None, None),
    ("SELECT count(*) FROM {n} AS n WHERE k = ?", [7.5], None),
    ("SELECT count(*) FROM {n} AS n WHERE k = ?", ["7"], None),
    ("SELECT count(*) FROM {t} AS t WHERE t = 'absent'", None, None),
    ("SELECT count(*) FROM {t} AS t WHERE t = ?", ["absent"], None),
    ("SELECT count(*) FROM {v} AS v WHERE k = 7 AND k = 8", None, None),
    ("SELECT count(*) FROM {v} AS v WHERE k = -1", None, None),
)


@pytest.mark.parametrize(("sql", "params", "short"), LOOKUPS)
def test_lookups(con, monkeypatch, sql, params, short):
    """`short`: whether the tree itself finds the rows, which then costs few steps; None: either way."""
    readers, start = [], Reader.__init__

    def note(reader, view, where=None):
        start(reader, view, where)
        readers.append((reader, where))

    monkeypatch.setattr(Reader, "__init__", note)
    assert same(con, sql, params)
    if short is not None:
        assert readers
        assert any(where and reader.steps < 60 for reader, where in readers) is short


def test_cte_of_the_same_name(con):
    assert con.execute("WITH n AS (SELECT 1 AS k) SELECT * FROM n WHERE k = 1").fetchall() == [(1,)]
    assert con.execute("WITH n AS (SELECT count(*) AS c FROM main.n) SELECT * FROM n").fetchall() == [(1001,)]


def test_prepared_statements(con):
    con.execute("PREPARE p AS SELECT n FROM n WHERE k = ?")
    assert con.execute("EXECUTE p(7)").fetchall() == [(5,)]
    con.execute("INSERT INTO a VALUES (7, -7, 'text3')")
    assert con.execute("EXECUTE p(7)").fetchall() == [(6,)]
    con.execute("DELETE FROM a WHERE x = -7")
    assert con.execute("EXECUTE p(7)").fetchall() == [(5,)]


def test_names(con, tmp_path):
    for name in ("N", '"n"', "main.n", 'memory.main."N"'):
        assert con.execute(f"SELECT count(*) FROM {name} WHERE k = 7").fetchall() == [(1,)]
    con.execute("USE other")
    assert con.execute('SELECT * FROM "my view" WHERE K = 7').fetchall() == [(7, 70)]
    con.execute("USE main")
    assert con.execute("SELECT count(*) FROM over_v WHERE k = 7").fetchall() == [(5,)]
    con.execute(f"COPY (SELECT * FROM n WHERE k = 7) TO '{tmp_path / 'n.csv'}'")
    assert (tmp_path / "n.csv").read_text().split() == ["k,n", "7,5"]
    con.execute("CREATE TEMP TABLE kept AS SELECT * FROM n WHERE k = 7")
    assert con.execute("FROM kept").fetchall() == [(7, 5)]


def test_catalog(con):
    tables = {row[0] for row in con.execute("SHOW TABLES").fetchall()}
    assert {"a", "b", "v", "n", "t", "over_v"} == tables
    assert con.execute("DESCRIBE n").fetchall()[1][:2] == ("n", "BIGINT")
    columns = con.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'My View' ORDER BY ordinal_position"
    ).fetchall()
    assert columns == [("k",), ("S",)]
    assert ("v",) in con.execute("SELECT table_name FROM information_schema.tables").fetchall()


def test_cursors_made_before_and_after():
    with sqlfront.connect() as con:
        before = con.cursor()
        con.execute("CREATE TABLE a(k BIGINT); CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM a GROUP BY k")
        after = con.cursor()
        before.execute("INSERT INTO a VALUES (1)")
        assert before.execute("FROM v").fetchall() == after.execute("FROM v").fetchall() == [(1, 1)]
        con.execute("DROP MATERIALIZED VIEW v; CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM a")
        assert before.execute("FROM v").fetchall() == after.execute("FROM v").fetchall() == [(1,)]


def test_streams_never_mix_epochs(con):
    other = con.cursor()
    con.execute("SELECT p.x, q.n FROM v AS p, n AS q")
    con.fetchmany(10)
    other.execute("INSERT INTO a VALUES (1, -1, 'new')")
    with pytest.raises(sqlfront.StaleRead, match="read again"):
        while con.fetchmany(100_000):
            pass
    reader = con.sql("SELECT p.x, q.n FROM v AS p, n AS q").to_arrow_reader(1000)
    assert reader.read_next_batch().num_rows == 1000
    other.execute("DELETE FROM a WHERE x = -1")
    with pytest.raises((sqlfront.StaleRead, pa.ArrowException), match="read again"):
        reader.read_all()


@pytest.mark.parametrize("fetch", ["fetchall", "df", "to_arrow_table"])
def test_whole_results_are_of_one_epoch(con, fetch):
    """Also when another cursor commits between the statement and the fetch."""
    other = con.cursor()
    con.execute("SELECT x FROM v WHERE x >= 0 OR x = -1")
    other.execute("INSERT INTO a VALUES (1, -1, 'new')")
    assert len(getattr(con, fetch)()) in (5000, 5001)
    other.execute("DELETE FROM a WHERE x = -1")


def test_the_first_rows_of_a_billion_come_at_once():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE p AS SELECT range AS i FROM range(1000)")
        con.execute("CREATE TABLE q AS FROM p; CREATE TABLE r AS FROM p")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT p.i AS x, q.i AS y, r.i AS z FROM p, q, r")
        assert con.view("v").count() == 10**9
        con.execute("SELECT * FROM v LIMIT 3").fetchall()
        started = time.perf_counter()
        assert len(con.execute("SELECT * FROM v LIMIT 3").fetchall()) == 3
        assert len(con.execute("SELECT * FROM v").fetchmany(5)) == 5
        assert time.perf_counter() - started < 1


def test_no_warnings(con):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        con.execute("SELECT * FROM n").to_arrow_table()
        con.execute("SELECT * FROM n").to_arrow_reader().read_all()
        con.sql("SELECT * FROM n").to_arrow_table()
        con.begin().execute("INSERT INTO a VALUES (5, 5, NULL)")
        con.executemany("INSERT INTO a VALUES (?, 5, NULL)", [[1], [2]])
        con.execute("SELECT * FROM n").to_arrow_table()
        con.rollback()


SCRIPT = """
import sqlfront
con = sqlfront.connect({path!r})
other = con.cursor()
con.execute("CREATE TABLE r(a BIGINT); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM r GROUP BY a")
con.execute("INSERT INTO r VALUES (1), (2)")
reader = con.sql("SELECT * FROM v").to_arrow_reader()
print(con.execute("SELECT * FROM v WHERE a = 1").fetchall(), other.execute("SELECT * FROM v").fetchone())
"""


@pytest.mark.parametrize("path", [":memory:", "file.db"])
def test_nothing_is_printed_at_exit(path, tmp_path):
    path = path if path == ":memory:" else str(tmp_path / path)
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", SCRIPT.format(path=path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("[(1, 1)] (")
    assert [line for line in done.stderr.splitlines() if "compiling" not in line] == []

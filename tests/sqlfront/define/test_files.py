"""The file is a good DuckDB file: plain DuckDB computes what sqlfront maintains, under any name and after any move."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import duckdb
import pytest

import sqlfront

FIXTURES = Path(__file__).parents[2] / "fixtures" / "files"
BEFORE = """
    CREATE SCHEMA s; CREATE SCHEMA a; CREATE TYPE mood AS ENUM ('glad', 'sad');
    CREATE TABLE t (a INTEGER, b VARCHAR, c DECIMAL(9, 2), m mood);
    INSERT INTO t VALUES (1, 'x', 1.5, 'glad'), (2, 'y', 2.5, 'sad'), (1, 'x', NULL, NULL), (3, NULL, 4, 'sad');
    CREATE TABLE s."odd ""table" (a INTEGER, tags VARCHAR[]); INSERT INTO s."odd ""table" VALUES (1, ['p', 'q'])"""
VIEWS = {
    "main.sums": "SELECT b, sum(c) AS s, avg(a) AS mean, max(m) AS most FROM t GROUP BY b",
    'a."of kept"': "SELECT b, count(*) AS n FROM kept GROUP BY b",
    "a.above": "SELECT n, count(*) AS k FROM (SELECT s, count(*) AS n FROM sums GROUP BY s) GROUP BY n",
    "s.twice": 'SELECT x.b, y.k FROM sums x, a.above y, sums z, a."of kept" o WHERE x.b = z.b AND o.b = x.b',
    "main.of_passed": "SELECT b, sum(a) AS s FROM passed GROUP BY b",
    "main.best": "SELECT a, b FROM t ORDER BY a DESC, b LIMIT 2",
    "main.joined": 'SELECT t.b, o.tags, t.m FROM t LEFT JOIN s."odd ""table" o ON o.a = t.a',
    "main.folded": "SELECT b COLLATE NOCASE AS b, count(*) AS n FROM t GROUP BY 1",
    "main.nothing": "SELECT DISTINCT a FROM t WHERE false",
}
PLAIN = {"main.aa": "SELECT b, s FROM sums", "s.zz": 'SELECT n FROM main.aa JOIN a."of kept" o ON o.b = aa.b'}
NAMES = (*VIEWS, *PLAIN, "main.kept", "main.t")


@pytest.fixture
def path(tmp_path, written):
    return Path(shutil.copy(written, tmp_path))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "data.duckdb"
    with sqlfront.connect(path) as con:
        con.execute(BEFORE)
        con.execute("CREATE CHANGE TABLE kept (a BIGINT, b VARCHAR)")
        con.execute("CREATE CHANGE TABLE passed (a BIGINT, b VARCHAR, unread BIGINT) WITH (retain = false)")
        con.execute("CREATE CHANGE TABLE volatile_ (a BIGINT) WITH (durable = false)")
        for name, query in VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        con.execute("CREATE MATERIALIZED VIEW of_volatile AS SELECT a FROM volatile_")
        for name, query in PLAIN.items():
            con.execute(f"CREATE VIEW {name} AS {query}")
        con.execute("INSERT INTO kept VALUES (1, 'x'), (1, 'x'), (2, NULL), (3, 'z'); DELETE FROM kept WHERE a = 3")
        con.execute("INSERT INTO passed VALUES (5, 'x', 1), (6, 'x', 2), (7, 'y', 3); INSERT INTO volatile_ VALUES (1)")
        con.execute("INSERT INTO t VALUES (2, 'X', 1, 'glad'); DELETE FROM t WHERE b = 'y'")
    return path


def rows(con, database=""):
    """The rows of all views and tables, by names as the current schema needs them or in a database."""
    names = {name: f"{database}.{name}" if database else name for name in NAMES}
    return {name: sorted(map(str, con.execute(f"FROM {whole}").fetchall())) for name, whole in names.items()}


def answers(path, statement="SELECT 1"):
    """What sqlfront answers after a statement; each view is checked."""
    with sqlfront.connect(path) as con:
        con.execute(statement)
        for name in VIEWS.keys() - {"main.of_passed"}:  # Its change table keeps no rows to compare with.
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == [], name
        return rows(con)


def test_plain_duckdb_computes_what_is_maintained(path):
    expected = answers(path)
    assert expected["main.sums"][0] == "('X', Decimal('1.00'), 2.0, 'glad')" and len(expected["main.sums"]) == 3
    assert expected["main.kept"] == ["(1, 'x')", "(1, 'x')", "(2, None)"] and len(expected["s.twice"]) == 1
    with duckdb.connect(str(path)) as con:
        assert rows(con) == rows(con, "data") == expected
        con.execute("PREPARE p AS SELECT mean FROM sums WHERE b = ?; USE s")
        assert con.execute("EXECUTE p('x')").fetchall() == [(1.0,)]
        assert rows(con) == expected
        for name, why in (("passed", "does not keep its rows"), ("volatile_", "in memory only"), ("of_volatile", "in")):
            for query in (f"FROM main.{name}", f"SELECT count(*) FROM main.{name}"):
                with pytest.raises(duckdb.Error, match=why):
                    con.execute(query).fetchall()


def test_what_plain_duckdb_writes_is_taken_in(path):
    with duckdb.connect(str(path)) as con:
        con.execute("INSERT INTO t VALUES (9, 'x', 7, 'sad'); UPDATE t SET a = a + 1 WHERE b IS NULL")
        expected = rows(con)
    assert "('x', Decimal('8.50'), 3.6666666666666665, 'sad')" in expected["main.sums"]
    assert answers(path) == expected
    shutil.copy(path, path.with_name("renamed.db"))
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path.with_name('renamed.db')}' AS \"another name\"")
        assert rows(con, '"another name"') == expected
        con.execute("USE \"another name\"; DELETE FROM t WHERE b = 'x'; INSERT INTO t SELECT * FROM t")
        expected = rows(con)
    assert len(expected["main.sums"]) == 2
    assert answers(path.with_name("renamed.db")) == expected


def test_a_plain_cursor_of_the_same_process_computes_what_is_committed(path):
    with sqlfront.connect(path) as con, con.session.database.root.cursor() as plain:
        before = rows(plain)
        con.execute("BEGIN; INSERT INTO t VALUES (5, 'x', 5, 'glad'); INSERT INTO kept VALUES (5, 'x')")
        assert rows(con) != before == rows(plain)
        con.execute("COMMIT")
        assert rows(plain) == rows(con)
        plain.execute("DELETE FROM t WHERE a = 5")
        assert rows(plain) == rows(con)


def test_another_sqlfront_connection_reads_the_attached_file(path, tmp_path):
    expected = answers(path)
    with sqlfront.connect(tmp_path / "other.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT 77 AS a, 'q' AS b, 1 AS c; CREATE CHANGE TABLE kept (a BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT a FROM t")
        con.execute(f"ATTACH '{path}' AS f")
        assert rows(con, "f") == expected
        con.execute("USE f")
        assert rows(con) == expected
        con.execute("INSERT INTO t VALUES (9, 'x', 7, 'sad')")
        expected = rows(con)
        assert con.execute("FROM other.sums").fetchall() == [(77,)]
    assert answers(path) == expected


@pytest.mark.parametrize(("exported_by", "options"), [(sqlfront, ""), (duckdb, "(FORMAT parquet)")])
@pytest.mark.parametrize("imported_by", [sqlfront, duckdb])
def test_an_export_is_whole(path, tmp_path, exported_by, imported_by, options):
    expected = answers(path)
    with exported_by.connect(str(path)) as con:
        if exported_by is duckdb:  # DuckDB writes views by name, and would not find what these read.
            con.execute("DROP VIEW s.zz; DROP VIEW aa")
        con.execute(f"EXPORT DATABASE '{tmp_path}/export' {options}")
    copy = tmp_path / "copy.duckdb"
    with imported_by.connect(str(copy)) as con:
        con.execute(f"IMPORT DATABASE '{tmp_path}/export'")
        if exported_by is duckdb:
            for name, query in PLAIN.items():
                con.execute(f"CREATE VIEW {name} AS {query}")
        assert rows(con) == expected
        con.execute("INSERT INTO t VALUES (9, 'x', 7, 'sad'); DELETE FROM t WHERE b IS NULL")
        expected = rows(con)
    assert len(expected["main.sums"]) == 2
    change = "INSERT INTO kept VALUES (3, 'y'); INSERT INTO passed VALUES (1, 'x', 1); INSERT INTO t FROM t"
    assert answers(copy, change)["main.of_passed"] == ["('x', 12)", "('y', 7)"]


def test_copy_from_database_is_whole(path, tmp_path):
    expected = answers(path)
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS f; ATTACH '{tmp_path}/copy.duckdb' AS c; COPY FROM DATABASE f TO c")
        assert rows(con, "c") == expected
    assert answers(tmp_path / "copy.duckdb") == expected


def test_a_replaced_or_dropped_view_leaves_no_query_behind(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE OR REPLACE MATERIALIZED VIEW sums AS SELECT b, count(*) AS s FROM t GROUP BY b")
        con.execute("REFRESH MATERIALIZED VIEW best; ALTER TABLE t RENAME COLUMN m TO mood")
        expected = rows(con)
    with duckdb.connect(str(path)) as con:
        assert rows(con) == expected
    with sqlfront.connect(path) as con:
        con.execute("DROP MATERIALIZED VIEW sums CASCADE; DROP CHANGE TABLE passed CASCADE")
        left = con.execute("SHOW MATERIALIZED VIEWS").fetchall()
    with duckdb.connect(str(path)) as con:
        found = con.execute("SELECT count(*) FROM duckdb_views() WHERE starts_with(view_name, '!')").fetchall()
    assert found == [(len(left) + 2,)]


def test_a_temporary_table_of_the_creator_is_not_in_the_file(tmp_path):
    with sqlfront.connect(tmp_path / "data.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT 'x' AS a; CREATE TEMP TABLE t AS SELECT 5 AS a, 6 AS b")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM data.main.t; REFRESH MATERIALIZED VIEW v")
    with duckdb.connect(str(tmp_path / "data.duckdb")) as con:
        assert con.execute("FROM v").fetchall() == [("x",)]


# Files of earlier releases ---------------------------------------------------------------------------

OF_RELEASE = {
    "sums": ["('x', 2, 1.5, 1)", "('y', 6, 5.25, 4)", "(None, 3, 4.0, 3)"],
    "counts": ["(2, 1)", "(3, 1)", "(6, 1)"],
    "rows_": ["(1, 'x', 'glad')", "(1, 'x', None)", "(2, 'y', 'sad')"],
    's."two best"': ["(3, None)", "(4, 'y')"],
    "kept": ["(1, 'x')", "(1, 'x')", "(2, 'y')"],
    "of_kept": ["('x', 2)", "('y', 1)"],
    "of_passed": ["('x', 11)"],
    "plain": ["('x', 4)", "('y', 12)", "(None, 6)"],
}


@pytest.fixture
def earlier(tmp_path):
    path = tmp_path / "earlier.duckdb"
    path.write_bytes(gzip.decompress((FIXTURES / "registered_scans.duckdb.gz").read_bytes()))
    return path


def read(con, names=tuple(OF_RELEASE)):
    return {name: sorted(map(str, con.execute(f"FROM {name}").fetchall())) for name in names}


def test_a_file_of_an_earlier_release_is_converted(earlier, capsys):
    with duckdb.connect(str(earlier)) as con, pytest.raises(duckdb.Error, match="__sqlfront_scan"):
        con.execute("FROM sums")
    for _ in range(2):
        with sqlfront.connect(earlier) as con:
            assert read(con) == OF_RELEASE
            assert [str(day) for day, _ in con.execute("FROM days").fetchall()] == ["2024-07-01"]  # As of Tokyo.
            with pytest.raises(sqlfront.OperationalError, match="unbuilt cannot be trusted"):
                con.execute("FROM unbuilt")
        with duckdb.connect(str(earlier)) as con:
            assert read(con) == OF_RELEASE
            with pytest.raises(duckdb.Error, match="Table with name u does not exist"):
                con.execute("FROM unbuilt").fetchall()
    with duckdb.connect(str(earlier)) as con:
        con.execute("CREATE TABLE u AS SELECT 3 AS a; INSERT INTO t VALUES (5, 'x', 1, 'sad')")
    with sqlfront.connect(earlier) as con:
        assert con.execute("FROM unbuilt").fetchall() == [(3,)]
        assert con.execute("SELECT s FROM sums WHERE b = 'x'").fetchall() == [(7,)]
    assert "unbuilt could not be rebuilt" in capsys.readouterr().err


def test_a_failed_conversion_leaves_the_file_as_it_was(earlier, monkeypatch):
    from sqlfront.define import earlier_files

    def bodies():
        with duckdb.connect(str(earlier)) as con:
            query = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
            return con.execute(query).fetchall()

    before = bodies()
    put_views = earlier_files.put_views
    monkeypatch.setattr(
        earlier_files, "put_views", lambda *given: put_views(*given[:-1], given[-1].replace("main.u", "main.nowhere u"))
    )
    monkeypatch.setattr(earlier_files, "_query", lambda database, con, view, query: query)
    with pytest.raises(sqlfront.OperationalError, match=r"could not be converted(.|\n)*nothing has changed"):
        sqlfront.connect(earlier)
    assert bodies() == before
    monkeypatch.undo()
    with sqlfront.connect(earlier) as con:
        assert read(con) == OF_RELEASE


def test_an_earlier_file_is_not_converted_by_one_who_may_only_read(earlier):
    with pytest.raises(sqlfront.OperationalError, match="read-only"):
        sqlfront.connect(earlier, config={"access_mode": "READ_ONLY"})
    with sqlfront.connect(earlier):
        pass
    with sqlfront.connect(earlier, config={"access_mode": "READ_ONLY"}) as con:
        assert read(con) == OF_RELEASE


@pytest.mark.parametrize("is_new", [True, False])
def test_the_macros_of_a_new_file_are_not_looked_for(tmp_path: Path, is_new: bool) -> None:
    path = str(tmp_path / "data.duckdb")
    if not is_new:
        with duckdb.connect(path) as plain:
            plain.execute("CREATE MACRO twice(a) AS 2 * a")
    with sqlfront.connect(path) as con:
        assert con.session.database.macros == ({} if is_new else None)
        con.execute("CREATE MACRO thrice(a) AS 3 * a; CREATE TABLE n (a BIGINT); INSERT INTO n VALUES (5)")
        called = "thrice" if is_new else "twice"
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {called}(a) AS b FROM n")
        assert con.execute("FROM v").fetchall() == [(15 if is_new else 10,)]

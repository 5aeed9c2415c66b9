"""Names mean what they mean to DuckDB: the search path, schemas and databases of one name, temporary tables."""

from contextlib import contextmanager, suppress

import pytest

import sqlfront
from sqlfront import dispatch
from sqlfront.sql.search_path import search_path

PATHS = [
    "RESET search_path",
    "USE sc",
    "USE memory.sc",
    "SET search_path = 'sc,main'",
    "SET search_path = 'main,sc'",
    "SET search_path = 'SC'",
    "SET search_path = 'other.main,memory.sc'",
    "SET search_path = 'other.sc,memory.main'",
    "SET search_path = 'sc,other.main'",
    'USE memory."Sc, 2"',
    'USE "q""q.x"',
    "SET search_path = '\"my schema\",main'",
]
NAMES = ["t", "main.t", "sc.t", "memory.t", "memory.sc.t", "other.t", "other.sc.t", "temp.t", "only_main", "Only_Other"]


@pytest.fixture
def con():
    with connected() as connection:
        yield connection


@pytest.fixture(scope="module")
def unchanged():
    with connected() as connection:
        yield connection


@contextmanager
def connected():
    with sqlfront.connect() as connection:
        connection.execute(
            "ATTACH ':memory:' AS other; CREATE SCHEMA sc; CREATE SCHEMA other.sc; CREATE SCHEMA \"Sc, 2\""
        )
        connection.execute('CREATE SCHEMA "q""q.x"; CREATE SCHEMA "My Schema"')
        places = ("main", "sc", '"Sc, 2"', '"q""q.x"', '"My Schema"')
        for place in (*(f"memory.{schema}" for schema in places), "other.main", "other.sc"):
            connection.execute(f"CREATE TABLE {place}.t AS SELECT '{place}' AS a")
        connection.execute("CREATE TABLE only_main AS SELECT 'memory.main' AS a")
        connection.execute("CREATE TABLE other.only_other AS SELECT 'other.main' AS a")
        yield connection


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_name_is_found_where_duckdb_finds_it(unchanged, path, temporary):
    from sqlfront.sql.search_path import look_up

    con = unchanged.cursor()
    if temporary:
        con.execute("CREATE TEMP TABLE t AS SELECT 'temp.main' AS a")
    con.execute(path)
    for name in NAMES:
        try:
            expected = con.execute(f"SELECT a FROM {name}").fetchall()[0][0]
            expected = expected.replace('""', "''").replace('"', "").replace("''", '"')
        except sqlfront.ProgrammingError:
            expected = None
        found = look_up(con.session.duck, name.split(".")).first()
        assert (found and f"{found.database}.{found.schema}") == expected, name
    con.close()


def test_a_view_reads_the_table_that_its_query_reads(con):
    for path in ("USE sc", "SET search_path = 'sc,main'", 'USE "Sc, 2"', "USE main"):
        con.execute(path)
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
        assert con.execute("FROM v").fetchall() == con.execute("SELECT a FROM t").fetchall()
        con.execute("INSERT INTO t VALUES ('more')")
        assert sorted(con.execute("FROM v").fetchall()) == sorted(con.execute("SELECT a FROM t").fetchall())
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        con.execute("DROP MATERIALIZED VIEW v")


def test_writes_go_to_the_table_that_the_path_means(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM main.t")
    con.execute("USE sc")
    con.execute("INSERT INTO t VALUES ('in sc')")
    con.apply({"main.t": _rows("in main")})
    assert con.execute("FROM main.v").fetchall() == [(2,)]
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_point_look_ups_read_what_the_path_means(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM main.t")
    con.execute("CREATE MATERIALIZED VIEW sc.v AS SELECT a FROM sc.t")
    con.execute("SET search_path = 'sc,main'")
    assert con.execute("SELECT a FROM v WHERE a = 'memory.sc'").fetchall() == [("memory.sc",)]
    assert con.execute("SELECT a FROM main.v WHERE a = 'memory.main'").fetchall() == [("memory.main",)]
    assert con.view("v").contains(("memory.sc",))


def _rows(text):
    import pyarrow as pa

    return pa.table({"a": [text]})


def test_definitions_change_only_where_the_current_database_is_theirs(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM main.t")
    con.execute("USE other")
    for statement in (
        "CREATE MATERIALIZED VIEW memory.w AS SELECT a FROM memory.t",
        "CREATE MATERIALIZED VIEW w AS SELECT a FROM t",
        "CREATE CHANGE TABLE memory.c (a INT)",
        "REFRESH MATERIALIZED VIEW memory.v",
        "CHECK MATERIALIZED VIEW memory.v",
        "DROP MATERIALIZED VIEW memory.v",
    ):
        with pytest.raises(sqlfront.NotSupportedError, match=r"other.*\n.*memory(.|\n)*USE memory"):
            con.execute(statement)
    con.apply({"memory.t": _rows("more")})
    assert con.execute("SELECT count(*) FROM memory.v").fetchall() == [(2,)]
    assert con.view("memory.v").count() == 2
    assert con.view("memory.v").rows() == con.execute("FROM memory.main.v").fetchall()
    con.execute("USE memory; CHECK MATERIALIZED VIEW v")
    assert con.fetchall() == []
    con.execute("DROP MATERIALIZED VIEW v")


def test_temporary_tables_are_in_nobodys_way(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM main.t")
    con.execute("CREATE TEMP TABLE t AS SELECT 5 AS a, 6 AS b; CREATE TEMP TABLE v AS SELECT 7 AS a")
    with pytest.raises(sqlfront.NotSupportedError, match="temporary"):
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT a FROM main.t")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a FROM memory.main.t")
    con.execute("CREATE MATERIALIZED VIEW over_v AS SELECT a, count(*) AS n FROM memory.main.v GROUP BY a")
    con.execute("INSERT INTO memory.main.t VALUES ('more')")
    for view in ("v", "w", "over_v"):
        con.execute(f"REFRESH MATERIALIZED VIEW {view}")
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
        assert con.execute(f"SELECT count(*) FROM memory.main.{view}").fetchall() == [(2,)]
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM memory.main.t")
    con.execute("DROP MATERIALIZED VIEW over_v; DROP MATERIALIZED VIEW v")
    assert con.execute("SELECT n FROM w").fetchall() == [(2,)] and con.execute("FROM v").fetchall() == [(7,)]


HIDES = {
    "table": ("CREATE TEMP TABLE v AS SELECT 7 AS a, 1 AS n", "DROP TABLE temp.v"),
    "view": ("CREATE TEMP VIEW v AS SELECT 7 AS a, 1 AS n", "DROP VIEW temp.v"),
    "renamed": ("CREATE TEMP TABLE x AS SELECT 7 AS a, 1 AS n; ALTER TABLE temp.x RENAME TO v", "DROP TABLE temp.v"),
    "table of ours": ("CREATE TEMP TABLE v AS SELECT 7 AS a, n - 1 AS n FROM v WHERE a = 5", "DROP TABLE temp.v"),
    "half way": (
        "CREATE TEMP TABLE v AS SELECT 7 AS a, 1 AS n FROM v WHERE a = 5; FROM nothing",
        "DROP TABLE temp.v",
    ),
    "path": ("CREATE TABLE sc.v AS SELECT 7 AS a, 1 AS n; SET search_path = 'sc,main'", "RESET search_path"),
    "current": ("CREATE TABLE sc.v AS SELECT 7 AS a, 1 AS n; USE sc", "USE memory.main"),
    "analyzed": ("EXPLAIN ANALYZE CREATE TEMP TABLE v AS SELECT 7 AS a, 1 AS n", "DROP TABLE temp.v"),
    "undone": ("BEGIN; CREATE TEMP TABLE v AS SELECT 7 AS a, 1 AS n", "ROLLBACK"),
}
READS = ("SELECT count(*) FROM v", "SELECT n FROM v WHERE a = 7", "SELECT n FROM v ORDER BY n DESC LIMIT 1")


def read_all(con):
    return [con.execute(query).fetchall() for query in READS]


@pytest.mark.parametrize("hides", HIDES)
def test_a_name_is_looked_up_again_when_it_may_mean_something_else(con, hides):
    con.execute("CREATE TABLE r (a INT); INSERT INTO r VALUES (5), (5), (6)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM r GROUP BY a ORDER BY n DESC")
    ours, other = [[(2,)], [], [(2,)]], [[(1,)], [(1,)], [(1,)]]
    hide, show = HIDES[hides]
    assert read_all(con) == read_all(con) == ours
    with suppress(sqlfront.ProgrammingError):
        con.execute(hide)
    assert read_all(con) == read_all(con) == other
    con.execute(show)
    assert read_all(con) == read_all(con) == ours


def test_what_a_name_hid_is_there_again_when_its_transaction_fails(con):
    con.execute("CREATE TABLE r (a INT); INSERT INTO r VALUES (5), (5), (6)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM r GROUP BY a ORDER BY n DESC")
    con.execute("CREATE TABLE k (a INT PRIMARY KEY); CREATE TEMP TABLE v AS SELECT 7 AS a, 1 AS n")
    con.execute("BEGIN; DROP TABLE temp.v; INSERT INTO k VALUES (1)")
    assert read_all(con) == [[(2,)], [], [(2,)]]
    con.cursor().execute("INSERT INTO k VALUES (1)")
    with pytest.raises(sqlfront.Error):
        con.execute("COMMIT")
    assert read_all(con) == [[(1,)], [(1,)], [(1,)]]


def test_a_registered_name_hides_a_table_from_writes(con):
    con.execute(
        "CREATE CHANGE TABLE c (a VARCHAR); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM c GROUP BY a"
    )
    con.execute("INSERT INTO c VALUES ('x')")
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(1,)]
    con.register("c", _rows("more")).register("v", _rows("more").slice(0, 0))
    with pytest.raises(sqlfront.Error):
        con.execute("INSERT INTO c VALUES ('y')")
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(0,)]
    con.unregister("c").unregister("v").execute("INSERT INTO c VALUES ('z')")
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(2,)]


def test_a_table_made_of_the_one_it_hides_is_written(con):
    con.execute("CREATE CHANGE TABLE c (a INT) WITH (retain = true)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM c GROUP BY a; INSERT INTO c VALUES (5)")
    con.execute("CREATE TEMP TABLE c AS SELECT a FROM c WHERE a = 5; INSERT INTO c VALUES (8)")
    assert con.execute("SELECT a FROM temp.c ORDER BY a").fetchall() == [(5,), (8,)]
    assert con.execute("FROM v").fetchall() == [(5, 1)]


def test_a_view_is_read_after_one_of_its_name_was_not_made(con):
    con.execute("CREATE TABLE r (a INT); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM r GROUP BY a")
    con.execute("INSERT INTO r VALUES (5)")
    assert con.execute("SELECT n FROM v WHERE a = 5").fetchall() == [(1,)]
    con.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT a FROM r")
    assert con.execute("SELECT n FROM v WHERE a = 5").fetchall() == [(1,)]


def test_what_another_connection_makes_earlier_on_the_path_hides_ours(con):
    con.execute("CREATE TABLE r (a INT); INSERT INTO r VALUES (5), (5), (6)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM r GROUP BY a ORDER BY n DESC")
    con.execute("SET search_path = 'sc,main'")
    assert read_all(con) == [[(2,)], [], [(2,)]]
    con.session.duck.cursor().execute("CREATE TABLE sc.v AS SELECT 7 AS a, 1 AS n")
    assert read_all(con) == [[(1,)], [(1,)], [(1,)]]


def test_a_database_attached_by_another_connection_makes_a_name_ambiguous(con):
    con.execute("CREATE SCHEMA w; CREATE TABLE r (a INT); USE memory.w")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM main.r GROUP BY a; USE memory.main")
    assert con.execute("SELECT count(*) FROM w.v").fetchall() == [(0,)]
    con.session.duck.cursor().execute("ATTACH ':memory:' AS w; CREATE TABLE w.main.v AS SELECT 7 AS a, 1 AS n")
    with pytest.raises(sqlfront.ProgrammingError, match="Ambiguous"):
        con.execute("SELECT count(*) FROM w.v")


def test_ddl_of_a_table_asks_for_no_setting_again_and_that_of_a_schema_does(monkeypatch):
    with sqlfront.connect() as con:
        con.execute("CREATE SCHEMA sc; USE sc; CREATE TABLE t (a BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS s FROM t")
        forgotten = []
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "forget_settings", lambda: forgotten.append(True))
            con.execute("CREATE TABLE u (a BIGINT); ALTER TABLE u ADD COLUMN b INT; DROP TABLE u")
        assert forgotten == []
        con.execute("DROP MATERIALIZED VIEW v; DROP TABLE t; DROP SCHEMA sc")  # DuckDB goes to main.
        con.execute("CREATE TABLE t (a BIGINT); CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS s FROM t")
        assert con.execute("FROM main.v").fetchall() == [(None,)]
        assert search_path(con.session.duck) == ("memory", "main")

"""Names mean what they mean to DuckDB: the search path, schemas and databases of one name, temporary tables."""

import pytest

import sqlfront

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
def test_a_name_is_found_where_duckdb_finds_it(con, path, temporary):
    from sqlfront.search_path import look_up

    if temporary:
        con.execute("CREATE TEMP TABLE t AS SELECT 'temp.main' AS a")
    con.execute(path)
    for name in NAMES:
        try:
            expected = con.execute(f"SELECT a FROM {name}").fetchall()[0][0]
            expected = expected.replace('""', "''").replace('"', "").replace("''", '"')
        except sqlfront.ProgrammingError:
            expected = None
        found = look_up(con._duck, name.split(".")).first()
        assert (found and f"{found.database}.{found.schema}") == expected, name


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

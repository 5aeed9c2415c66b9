"""DML on change tables gives what the same statement gives on an ordinary table, and errors name the change table."""

import pytest

import sqlfront

COLUMNS = "(a INT, b INT DEFAULT 7, c VARCHAR NOT NULL, PRIMARY KEY (a), UNIQUE (b, c))"
STATEMENTS = [
    "INSERT INTO u VALUES (3, 30, 'z')",
    "INSERT INTO u (c, a) SELECT c || a, a + 10 FROM u",
    "INSERT INTO main.u AS x BY NAME SELECT 9 AS a, 'q' AS c",
    "INSERT INTO u VALUES (1, 11, 'new') ON CONFLICT (a) DO UPDATE SET b = u.b + excluded.b, c = excluded.c",
    "INSERT INTO main.u VALUES (1, 11, 'new') ON CONFLICT (a) DO UPDATE SET b = u.b + excluded.b WHERE main.u.a = 1",
    "INSERT INTO u AS x VALUES (1, 11, 'new'), (5, 1, 'w') ON CONFLICT (a) DO UPDATE SET b = x.b + 1",
    "INSERT INTO u VALUES (1, 0, 'no'), (4, 40, 'yes') ON CONFLICT DO NOTHING",
    "INSERT INTO u VALUES (9, 20, 'y') ON CONFLICT (b, c) DO UPDATE SET a = 9",
    "INSERT OR IGNORE INTO u VALUES (2, 0, 'no'), (4, 40, 'yes')",
    "UPDATE u SET b = u.b + 1 WHERE u.a = 1",
    "UPDATE main.u SET b = main.u.b + 1 WHERE main.u.a = 1 AND c = 'x'",
    "UPDATE memory.main.u SET b = 0 WHERE memory.main.u.a IN (SELECT max(a) FROM main.u)",
    "UPDATE u AS x SET b = 5 FROM s WHERE x.a = s.a",
    "DELETE FROM main.u WHERE main.u.a = 2",
    "DELETE FROM u USING s WHERE u.a = s.a",
    "DELETE FROM u",
    "MERGE INTO u USING s ON u.a = s.a WHEN MATCHED THEN UPDATE SET b = u.b * 2 "
    "WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.d, 'm')",
    "MERGE INTO main.u USING s ON main.u.a = s.a WHEN MATCHED AND main.u.b > 10 THEN DELETE",
    "MERGE INTO u AS x USING (SELECT 2 AS a) AS y USING (a) WHEN MATCHED THEN DELETE",
    "TRUNCATE u",
    "WITH w AS (SELECT 1 AS a) DELETE FROM u WHERE a IN (FROM w)",
    "EXPLAIN ANALYZE DELETE FROM u WHERE u.a = 1",
]


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute("CREATE TABLE s (a INT, d INT); INSERT INTO s VALUES (1, 10), (6, 60)")
        yield connection


def _ordinary(con, statements):
    """What the statements leave in an ordinary table of the same declaration."""
    import duckdb

    with duckdb.connect() as plain:
        plain.execute(f"CREATE TABLE s (a INT, d INT); INSERT INTO s VALUES (1, 10), (6, 60); CREATE TABLE u {COLUMNS}")
        for statement in statements:
            plain.execute(statement)
        return sorted(plain.execute("FROM u").fetchall())


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_changes_what_it_changes_in_an_ordinary_table(con, statement):
    con.execute(f"CREATE CHANGE TABLE u {COLUMNS}")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(b) AS b FROM u")
    first = "INSERT INTO u VALUES (1, 10, 'x'), (2, 20, 'y')"
    con.execute(first)
    con.execute(statement)
    assert sorted(con.execute("FROM u").fetchall()) == _ordinary(con, [first, statement])
    assert con.execute("FROM v").fetchall() == con.execute("SELECT count(*), sum(b) FROM u").fetchall()


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("INSERT INTO u VALUES (1, 2, NULL)", sqlfront.IntegrityError, "u.c"),
        ("UPDATE u SET c = NULL", sqlfront.IntegrityError, "u.c"),
        ("INSERT INTO u (nosuch) VALUES (1)", sqlfront.ProgrammingError, '"u".*nosuch'),
        ("INSERT INTO u VALUES (1)", sqlfront.ProgrammingError, '"u" has 3 columns'),
        ("INSERT INTO u VALUES (1, 2, 'x') ON CONFLICT (c) DO NOTHING", sqlfront.ProgrammingError, "conflict target"),
        ("PREPARE p AS INSERT INTO u VALUES (1, 2, 'x')", sqlfront.NotSupportedError, "PREPARE .*change table u "),
        ("EXPLAIN INSERT INTO u VALUES (1, 2, 'x')", sqlfront.NotSupportedError, "EXPLAIN .*change table u "),
        ("EXPLAIN DELETE FROM main.u", sqlfront.NotSupportedError, "EXPLAIN .*change table main.u "),
        ("DELETE FROM u RETURNING a", sqlfront.NotSupportedError, "RETURNING on change table"),
    ],
)
def test_errors_name_the_change_table_and_change_nothing(con, statement, error, message):
    con.execute(f"CREATE CHANGE TABLE u {COLUMNS}; INSERT INTO u VALUES (1, 10, 'x'), (2, 20, 'y')")
    with pytest.raises(error, match=message) as caught:
        con.execute(statement)
    assert "__sqlfront" not in str(caught.value)
    assert con.execute("SELECT count(*), sum(b) FROM u").fetchall() == [(2, 30)]
    con.execute("DELETE FROM u WHERE a = 1")
    assert con.execute("FROM u").fetchall() == [(2, 20, "y")]


@pytest.mark.parametrize("clause", ["ON CONFLICT DO NOTHING", "ON CONFLICT (a) DO UPDATE SET b = 0"])
def test_a_conflict_clause_needs_the_rows(con, clause):
    con.execute(f"CREATE CHANGE TABLE u {COLUMNS} WITH (retain = false)")
    with pytest.raises(sqlfront.ProgrammingError, match=r"conflict clause on change table(.|\n)*retain = true"):
        con.execute(f"INSERT INTO u VALUES (1, 10, 'x') {clause}")


def test_a_conflict_clause_on_rows_that_violate_their_key(con):
    con.execute("CREATE CHANGE TABLE u (a INT PRIMARY KEY, b INT); INSERT INTO u VALUES (1, 1), (1, 2)")
    with pytest.raises(sqlfront.IntegrityError, match=r"change table u violate a key(.|\n)*MERGE"):
        con.execute("INSERT INTO u VALUES (2, 2) ON CONFLICT DO NOTHING")
    con.execute("DELETE FROM u WHERE b = 2; INSERT OR REPLACE INTO u VALUES (1, 7)")
    assert con.execute("FROM u").fetchall() == [(1, 7)]
    con.execute("INSERT INTO u VALUES (1, 3) ON CONFLICT (a) DO UPDATE SET b = 3")
    assert con.execute("FROM u").fetchall() == [(1, 3)]


def test_explain_of_a_write_to_an_ordinary_table(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM s")
    assert con.execute("EXPLAIN INSERT INTO s VALUES (1, 1)").fetchall()
    with pytest.raises(sqlfront.ProgrammingError, match="materialized view"):
        con.execute("EXPLAIN INSERT INTO v VALUES (1)")
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(2,)]

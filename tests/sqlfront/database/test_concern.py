"""What concerns us: every statement that the classifier would act on is seen, all others go to DuckDB as they are."""

from __future__ import annotations

import ast
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sqlfront
from sqlfront.database.concern import concerning
from sqlfront.sql.recognise import plain_kind, words
from sqlfront.sql.statements import PassThrough, parse_statement
from sqlfront.sql.tokens import tokenize
from tests.slices import LETTERS

ROOT = Path(__file__).parents[3]
PLAIN_KINDS = {"select", "insert", "update", "delete", "merge", "truncate"}
CATALOG_WORDS = ("information_schema", "duckdb_", "pg_", "sqlite_", "show", "describe")
ACTING = """
    BEGIN|COMMIT|ROLLBACK|START TRANSACTION|END|ABORT|CHECKPOINT|FORCE CHECKPOINT|SET x = 1|RESET x|PRAGMA show_tables
    USE s|ATTACH 'f' AS d|DETACH d|DROP SCHEMA s CASCADE|CREATE TEMP TABLE z (a INT)|CREATE VIEW z AS SELECT 1
    CREATE TABLE z AS SELECT 1|CREATE MACRO z() AS 1|ALTER TABLE z RENAME TO y|DROP TABLE z|DROP VIEW z|VACUUM|ANALYZE
    EXPORT DATABASE 'd'|IMPORT DATABASE 'd'|COPY FROM DATABASE d TO e|COPY z TO 'f'|COPY z FROM 'f'|EXECUTE p|CALL z()
    PREPARE p AS SELECT 1|DEALLOCATE p|SHOW TABLES|DESCRIBE z|SUMMARIZE z|EXPLAIN SELECT 1|EXPLAIN ANALYZE SELECT 1
    LOAD json|INSTALL json|COMMENT ON TABLE z IS 'x'|CREATE TRIGGER r AFTER INSERT ON z FOR EACH STATEMENT SELECT 1
    FROM query('FROM ' || getvariable('x'))|SELECT * FROM query_table(?)|FROM "query"($1)|FROM duckdb_tables()
    SELECT * FROM information_schema.tables|FROM pg_catalog.pg_class|SELECT * FROM sqlite_master|FROM (SHOW TABLES)
    FROM (DESCRIBE z)|FROM json_execute_serialized_sql(?)|DELETE FROM __sqlfront.views|SELECT * FROM "__sqlfront_scan_1"
    CREATE MATERIALIZED VIEW z AS SELECT 1|REFRESH MATERIALIZED VIEW z|CHECK MATERIALIZED VIEW z|SUBSCRIBE TO z
    SELECT 1; COMMIT|SELECT 1;;SELECT 2|/* a */ COMMIT|-- a|;SELECT 1; COMMIT|/* /* /* */ */ */ COMMIT||;|SELECT 1; -- a
    WITH a AS (INSERT INTO z VALUES (1) RETURNING *) FROM a|WITH a AS (SELECT 1)/* */DELETE FROM z
"""


def corpus() -> set[str]:
    """Every text of the tests that the statement parser reads."""
    found = set()
    for path in (ROOT / "tests" / "sqlfront").rglob("*.py"):
        constants = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
        found |= {value for value in constants if isinstance(value, str) and "\ud800" not in value}
    return found


def statements(text: str) -> tuple[sqlfront.sql.statements.Statement, ...]:
    try:
        return parse_statement(text)
    except sqlfront.ProgrammingError:
        return ()


def is_sql(text: str) -> bool:
    """Whether DuckDB's parser takes the text: the tests hold parts of statements, and prose."""
    try:
        return bool(duckdb.extract_statements(text))
    except duckdb.Error:
        return False


def test_what_the_classifier_acts_on_concerns_us():
    seen = named = 0
    for text in corpus():
        kind = plain_kind(text)
        if kind is None or not is_sql(text):
            continue
        seen, found = seen + 1, statements(text)
        assert len(found) == 1, text
        [one] = found
        assert isinstance(one, PassThrough) and one.kind in PLAIN_KINDS, text
        assert not any(t.is_name and t.name.lower().startswith(CATALOG_WORDS) for t in tokenize(text)), text
        assert kind == "write" or one.kind == "select", text
        for part in [*one.targets, *(one.references or ())]:
            named += 1
            assert words(part.parts[-1]) <= words(text), text
    assert seen > 1000
    assert named > 1000


@pytest.mark.parametrize("text", [one.strip() for line in ACTING.strip().splitlines() for one in line.split("|")])
def test_words_that_act_without_a_name(text):
    assert plain_kind(text) is None
    assert plain_kind(f"  {text.lower()}") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT 1", "query"),
        (" -- a\n/* b /* c */ */ select 1 ;  ", "query"),
        ("(SELECT 1) UNION (SELECT 2)", "query"),
        ("FROM t", "query"),
        ("VALUES (1)", "query"),
        ("WITH a AS (SELECT 1) FROM a", "query"),
        ("INSERT INTO t VALUES (1)", "write"),
        ("update t set a = 1", "write"),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "write"),
    ],
)
def test_plain_statements(text, kind):
    assert plain_kind(text) == kind


letters = st.text(LETTERS.filter(lambda letter: letter != "\0"), min_size=1, max_size=5)


@given(letters, letters, st.sampled_from([str, str.upper, str.lower]), st.sampled_from(" \n\u00a0\u3000,(."))
def test_a_spelled_name_has_its_words(before, name, spelled, gap):
    ascii_only = "".join(spelled(letter) if letter.isascii() else letter for letter in name)
    quoted = ascii_only.replace('"', '""')
    assert words(name) <= words(f'SELECT "{before}" FROM "{quoted}"{gap}WHERE')
    if name.isidentifier():
        assert words(name) <= words(f"SELECT * FROM{gap if gap.isspace() else ' '}{ascii_only}{gap}'x'")


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        con.execute("""
            CREATE TABLE t (k BIGINT, x BIGINT); CREATE TABLE other (a BIGINT PRIMARY KEY, b VARCHAR);
            CREATE CHANGE TABLE fed (k BIGINT);
            CREATE MATERIALIZED VIEW v AS SELECT k, sum(x) AS s FROM t GROUP BY k;
            CREATE MATERIALIZED VIEW "My ""V" AS SELECT count(*) AS n FROM fed;
            INSERT INTO t VALUES (1, 2)""")
        yield con


def passes(con, text):
    return plain_kind(text) is not None and con.session.is_unconcerned(text)


def test_names_of_ours_concern_us_in_any_spelling(con):
    for name in ("v", "V", '"v"', "main.v", "memory.main.v", '"my ""v"', "'v'", "`v`", "t", "FED", "(FROM v)"):
        assert not passes(con, f"SELECT * FROM {name}")
        assert not passes(con, f"WITH a AS (FROM {name}) SELECT * FROM a")
    assert passes(con, "SELECT * FROM vv, other, tt, v_, fed1")


def test_a_name_without_words_makes_every_text_concern_us(con):
    con.execute('CREATE MATERIALIZED VIEW "+" AS SELECT count(*) AS n FROM t')
    assert concerning(con.session.database, con.session.duck).names is None
    assert con.execute('SELECT n FROM "+"').fetchall() == [(1,)]
    assert not passes(con, "SELECT 1")
    con.execute('DROP MATERIALIZED VIEW "+"')
    assert passes(con, "SELECT 1")


def test_what_depends_on_ours_concerns_us(con):
    con.execute("CREATE VIEW p AS SELECT * FROM v; CREATE TEMP VIEW pp AS SELECT s + 1 AS s FROM P")
    con.execute("CREATE MACRO top() AS (SELECT max(s) FROM pp); CREATE MACRO all_of() AS TABLE SELECT top() AS s")
    con.execute("CREATE VIEW free AS SELECT 1 AS one")
    for text in ("FROM p", "FROM pp", "SELECT top()", "FROM all_of()"):
        assert not passes(con, text)
        con.execute("BEGIN; INSERT INTO t VALUES (1, 5)")
        assert con.execute(text).fetchone()[-1] in (7, 8)  # The transaction's own changes count.
        con.execute("ROLLBACK")
    assert passes(con, "FROM free")
    con.execute("DROP VIEW free; CREATE VIEW free AS SELECT * FROM v")
    assert not passes(con, "FROM free")
    con.execute("ALTER VIEW free RENAME TO renamed")
    assert not passes(con, "FROM renamed")


def test_names_that_other_cursors_commit(con):
    other = con.cursor()
    assert passes(other, "FROM p")
    con.execute("BEGIN; CREATE VIEW p AS SELECT * FROM v")
    assert not passes(con, "FROM p")
    assert passes(other, "SELECT 1")
    con.execute("COMMIT")
    assert not passes(other, "FROM p")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k FROM t")
    assert not passes(other, "FROM w")


@pytest.fixture
def past(con):
    """Defines things in DuckDB past us."""
    assert passes(con, "SELECT 1")
    with con.cursor() as cursor:
        cursor.session.ready()
        yield cursor.session.duck


def test_a_name_made_past_us_is_noticed_by_its_first_scan(con, past):
    for definition, text in (("VIEW p AS", "FROM p"), ("MACRO m() AS TABLE", "SELECT * FROM m()")):
        past.execute(f"CREATE {definition} SELECT * FROM v")
        assert passes(con, text)
        assert con.execute(text).fetchall() == [(1, 2)]
        assert not passes(con, text)
    past.execute("CREATE VIEW q AS SELECT k FROM v")
    assert passes(con, "INSERT INTO other SELECT k, 'x' FROM q")
    con.execute("INSERT INTO other SELECT k, 'x' FROM q")
    assert con.execute("FROM other").fetchall() == [(1, "x")]


def test_a_name_made_past_us_in_a_transaction(con, past):
    past.execute("CREATE VIEW p AS SELECT * FROM v")
    con.execute("BEGIN")
    assert con.execute("FROM p").fetchall() == [(1, 2)]
    con.execute("COMMIT")
    past.execute("CREATE VIEW q AS SELECT * FROM v")
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (1, 5)")
    with pytest.raises(sqlfront.StaleRead, match="by another name"):
        con.execute("FROM q").fetchall()
    con.execute("ROLLBACK; BEGIN; INSERT INTO t VALUES (1, 5)")
    assert con.execute("FROM q").fetchall() == [(1, 7)]
    con.execute("COMMIT")


def test_a_users_trigger_writes_a_table_of_ours(con):
    con.execute("CREATE TRIGGER r AFTER INSERT ON other FOR EACH STATEMENT INSERT INTO t VALUES (7, 7)")
    text = "INSERT INTO other VALUES (?, 'a')"
    assert passes(con, text)
    con.execute(text, [1])
    assert con.execute("FROM v ORDER BY k").fetchall() == [(1, 2), (7, 7)]
    con.execute("BEGIN").execute(text, [2])
    assert con.execute("FROM v ORDER BY k").fetchall() == [(1, 2), (7, 14)]
    con.execute("ROLLBACK")
    assert con.execute("FROM v ORDER BY k").fetchall() == [(1, 2), (7, 7)]


@pytest.mark.parametrize("table", ["t", "unread"])
def test_a_query_that_writes_is_run_to_its_end(con, table):
    text = f"WITH q AS (INSERT INTO {table} VALUES (1, 5) RETURNING k) SELECT * FROM q"
    con.execute("CREATE TABLE unread AS FROM t")
    sums = "FROM v" if table == "t" else "SELECT 1, sum(x)::BIGINT FROM unread"
    con.execute("BEGIN").execute(text)
    assert con.execute(sums).fetchall() == [(1, 7)]
    con.execute("ROLLBACK").execute(text)
    assert con.execute(sums).fetchall() == [(1, 7)]
    assert con.execute(text).to_arrow_reader().read_all().to_pylist() == [{"k": 1}]
    assert con.execute(sums).fetchall() == [(1, 12)]


def test_a_query_that_writes_where_no_view_is():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a INTEGER)")
        con.execute("WITH q AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM q")
        assert con.execute("FROM t").fetchall() == [(1,)]


def test_the_state_of_the_connection_is_that_of_any_statement(con):
    con.execute("SELECT k, s FROM v")
    assert passes(con, "SELECT 1 AS one, 'a' AS two")
    con.execute("SELECT 1 AS one, 'a' AS two")
    assert [column[0] for column in con.description] == ["one", "two"]
    assert (con.fetchone(), con.fetchone()) == ((1, "a"), None)
    assert con.execute("INSERT INTO other VALUES ($a, $b)", {"a": 1, "b": "x"}).fetchall() == [(1,)]
    con.executemany("INSERT INTO other VALUES (?, ?)", iter([(2, "y"), (3, "z")]))
    con.execute("SELECT * FROM other ORDER BY a")
    with pytest.raises(sqlfront.IntegrityError, match="Duplicate key"):
        con.execute("INSERT INTO other VALUES (1, 'x')")
    with pytest.raises(sqlfront.InterfaceError, match="no result"):
        con.fetchall()
    with pytest.raises(sqlfront.ProgrammingError, match="nothing"):
        con.execute("SELECT nothing FROM other")
    frame = con.execute("SELECT a FROM other").to_arrow_table()  # noqa: F841
    assert con.execute("SELECT sum(a) FROM frame").fetchall() == [(6,)]
    assert con.execute("SELECT range AS r FROM range(5000)").to_arrow_reader(1000).read_all().num_rows == 5000
    assert con.execute("  ").fetchall() == []


def test_temporary_tables_hide_ours(con):
    con.execute("CREATE TEMP TABLE v (k BIGINT); INSERT INTO v VALUES (9)")
    assert con.execute("FROM v").fetchall() == [(9,)]
    con.execute("DROP TABLE v")
    assert con.execute("FROM v").fetchall() == [(1, 2)]

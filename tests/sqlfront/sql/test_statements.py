"""The statement head: our statements are parsed, DuckDB's are classified, the text is split as DuckDB splits it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from sqlfront.errors import ProgrammingError
from sqlfront.sql.carets import caret
from sqlfront.sql.dialect import printed
from sqlfront.sql.query_trees import parameter_name
from sqlfront.sql.statements import (
    AlterMaterializedView,
    CheckMaterializedView,
    ColumnDefinition,
    CreateChangeTable,
    CreateMaterializedView,
    DropChangeTable,
    DropMaterializedView,
    ExplainCreation,
    ExplainMaterialized,
    ExplainMaterializedView,
    PassThrough,
    RefreshMaterializedView,
    RenameMaterializedView,
    ShowChangeTables,
    ShowEpochs,
    ShowErrors,
    ShowMaterializedViews,
    ShowState,
    Subscribe,
    parse_statement,
)
from sqlfront.sql.tokens import split, tokenize


def one(sql: str) -> Any:
    statements = parse_statement(sql)
    assert len(statements) == 1, statements
    return statements[0]


# -- splitting -------------------------------------------------------------------------------------------------------

PIECES = [
    "select 1",
    "select 'a;b''c;'",
    'select 1 as "x;""y;"',
    "select $$a;'b$$",
    "select $tag$ ; $$ ; $tag$",
    "select /* ; /* ; */ ; */ 2",
    "select 3 -- ; '\n",
    "select e'a\\';b'",
    "select E'\\\\'",
    "select 'a\\'",
    "select -1 - -2 / 3",
    "begin",
    "select '--', '/*', 'it''s'",
    "select ['a;', $$;$$]",
    "select 1 as a$b",
    "create table if not exists q (a integer default 5 /* ; */)",
    "select 'ü;', 1 as ü",
]


@given(st.lists(st.sampled_from([*PIECES, "", " ", "\n-- only a comment;\n", "/* ; */"]), max_size=6))
def test_split_is_duckdbs(part_trees: list[str]) -> None:
    sql = ";".join(part_trees)
    expected = [statement.query for statement in duckdb.extract_statements(sql)]
    found = [sql[start:end] for start, end in split(sql)]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert significant(ours) == significant(theirs)


def significant(sql: str) -> list[str]:
    return [token.text for token in tokenize(sql) if token.text != ";"]


def test_unterminated_text_is_one_statement() -> None:
    assert split("select 'a; select 1") == [(0, 19)]
    assert split("select /* ; select 1") == [(0, 20)]


def test_positions() -> None:
    sql = "  select 1 ; -- note\n DROP MATERIALIZED VIEW v ;"
    assert [(s.start, s.text) for s in parse_statement(sql)] == [(2, "select 1"), (22, "DROP MATERIALIZED VIEW v")]


def test_long_values_list_is_not_tokenised() -> None:
    """200 000 values are scanned: the text may be copied, but no object is made for each."""
    rows = ", ".join(f"({i}, 'it''s; {i}')" for i in range(100_000))
    tracemalloc.start()
    try:
        statement = one(f"INSERT INTO s.t (a, b) VALUES {rows}")
        assert tracemalloc.get_traced_memory()[1] < 5 * len(rows)
    finally:
        tracemalloc.stop()
    assert (statement.kind, statement.targets[0].parts, statement.returning) == ("insert", ("s", "t"), False)
    assert statement.references == ()


@pytest.mark.parametrize("tail", ["RETURNING a", "ON CONFLICT (a) DO UPDATE SET b = 1"])
def test_tail_of_a_long_values_list(tail: str) -> None:
    rows = ", ".join(f"({i}, 'returning')" for i in range(2000))
    statement = one(f"INSERT INTO t VALUES {rows} {tail}")
    assert (statement.returning, statement.upsert) == (tail.startswith("RETURNING"), tail.startswith("ON"))


# -- our statements --------------------------------------------------------------------------------------------------


def test_create_materialized_view() -> None:
    sql = (
        'create OR replace Materialized VIEW s."My ""V" (a, "B") WITH (epsilon = 0.5, x = \'y\', n = -3, f = off) AS\n'
        "WITH c AS (SELECT 1) SELECT * FROM c;"
    )
    view = one(sql)
    assert isinstance(view, CreateMaterializedView)
    assert view.name.parts == ("s", 'My "V')
    assert view.columns == ("a", "B")
    assert dict(view.options) == {"epsilon": 0.5, "x": "y", "n": -3, "f": False}
    assert view.query == "WITH c AS (SELECT 1) SELECT * FROM c"
    assert sql[view.query_start :].startswith("WITH c")
    assert (view.or_replace, view.if_not_exists) == (True, False)


def test_create_change_table() -> None:
    table = one(
        "CREATE CHANGE TABLE IF NOT EXISTS t (a BIGINT NOT NULL, b DECIMAL(10, 2) DEFAULT (1 + 2) NULL, c INTEGER[], "
        "d STRUCT(x INTEGER), PRIMARY KEY (a, c), UNIQUE (b), e VARCHAR UNIQUE DEFAULT 'x, y') "
        "WITH (retain = true) FROM kafka OPTIONS (topic = 'x')"
    )
    assert isinstance(table, CreateChangeTable)
    assert table.columns == (
        ColumnDefinition("a", "BIGINT", True),
        ColumnDefinition("b", "DECIMAL(10, 2)", False, "(1 + 2)"),
        ColumnDefinition("c", "INTEGER[]", True),
        ColumnDefinition("d", "STRUCT(x INTEGER)"),
        ColumnDefinition("e", "VARCHAR", False, "'x, y'"),
    )
    assert (table.primary_key, table.unique) == (("a", "c"), (("b",), ("e",)))
    assert (table.options, table.source, table.source_options) == ((("retain", True),), "kafka", (("topic", "x"),))
    assert (table.if_not_exists, table.or_replace) == (True, False)


@pytest.mark.parametrize(
    ("sql", "kind", "name"),
    [
        ("DROP MATERIALIZED VIEW v", DropMaterializedView, "v"),
        ("refresh materialized view a.b.v", RefreshMaterializedView, "a.b.v"),
        ("ALTER MATERIALIZED VIEW v SET (epsilon = 1)", AlterMaterializedView, "v"),
        ("alter materialised view v rename to w", RenameMaterializedView, "v"),
        ("DROP CHANGE TABLE s.t", DropChangeTable, "s.t"),
        ("SHOW CHANGE TABLES", ShowChangeTables, None),
        ("SHOW MATERIALIZED VIEWS", ShowMaterializedViews, None),
        ("SHOW STATE", ShowState, "None"),
        ("show epochs", ShowEpochs, None),
        ("SHOW ERRORS FOR v", ShowErrors, "v"),
        ("SHOW STATE FOR v", ShowState, "v"),
        ("EXPLAIN MATERIALIZED VIEW v", ExplainMaterializedView, "v"),
        ("EXPLAIN (MATERIALIZED) SELECT 1", ExplainMaterialized, None),
        ("EXPLAIN /* c */ ( MATERIALIZED ) FROM t", ExplainMaterialized, None),
        ("EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1", ExplainCreation, None),
        ("CHECK MATERIALIZED VIEW v", CheckMaterializedView, "v"),
        ("SUBSCRIBE TO v", Subscribe, "v"),
    ],
)
def test_our_statements(sql: str, kind: type, name: str | None) -> None:
    statement = one(sql)
    assert type(statement) is kind
    assert name is None or str(statement.name) == name


def test_drop_flags() -> None:
    for sql in ("DROP MATERIALIZED VIEW IF EXISTS v CASCADE", "DROP CHANGE TABLE IF EXISTS v CASCADE"):
        statement = one(sql)
        assert (statement.if_exists, statement.cascade) == (True, True)
    assert not one("DROP MATERIALIZED VIEW v RESTRICT").cascade


@pytest.mark.parametrize(
    ("sql", "message", "under"),
    [
        ("CREATE MATERIALIZED VIEW v SELECT 1", "Expected AS", "SELECT"),
        ("CREATE MATERIALIZED VIEW v AS INSERT INTO t VALUES (1)", "Expected SELECT", "INSERT"),
        ("CREATE MATERIALIZED VIEW AS", "Expected AS", ""),
        ("CREATE MATERIALIZED v AS SELECT 1", "Expected VIEW", "v"),
        ("CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1", "exclude each other", "v"),
        ("CREATE MATERIALIZED VIEW v WITH (a = 1, A = 2) AS SELECT 1", "given twice", "A"),
        ("CREATE MATERIALIZED VIEW v WITH (a) AS SELECT 1", "Expected =", ")"),
        ("CREATE MATERIALIZED VIEW a.b.c.d AS SELECT 1", "at most a database", "d"),
        ("DROP MATERIALIZED VIEW v w", "Expected the end", "w"),
        ("DROP MATERIALIZED VIEW", "the end of the statement", ""),
        ("REFRESH v", "Expected MATERIALIZED", "v"),
        ("ALTER MATERIALIZED VIEW v RENAME COLUMN a TO b", "Expected TO", "COLUMN"),
        ("ALTER MATERIALIZED VIEW v ADD COLUMN a INT", "Expected SET (option = value) or RENAME TO name", "ADD"),
        ("ALTER MATERIALIZED VIEW v SET (a = )", "Expected a value", ")"),
        ("CREATE CHANGE TABLE t (a INTEGER, a VARCHAR)", "declared twice", "a"),
        ("CREATE CHANGE TABLE t (a INTEGER, PRIMARY KEY (b))", "does not have", "b"),
        ("CREATE CHANGE TABLE t (a INTEGER PRIMARY KEY, PRIMARY KEY (a))", "one primary key", "PRIMARY"),
        ("CREATE CHANGE TABLE t (a INTEGER CHECK (a > 1))", "Expected NOT NULL", "CHECK"),
        ("CREATE CHANGE TABLE t (a, b INTEGER)", "Expected a type", ","),
        ("CREATE CHANGE TABLE t ()", "Expected a column's name", ")"),
        ("EXPLAIN CREATE MATERIALIZED VIEW v SELECT 1", "Expected AS", "SELECT"),
        ("SHOW STATE v", "Expected the end", "v"),
        ("SHOW EPOCHS FOR v", "Expected the end", "FOR"),
        ("SHOW ERRORS v", "Expected FOR", "v"),
        ("SUBSCRIBE v", "Expected TO", "v"),
    ],
)
def test_syntax_errors_point_at_the_token(sql: str, message: str, under: str) -> None:
    with pytest.raises(ProgrammingError) as caught:
        parse_statement("SELECT 1; " + sql)
    assert message in caught.value.what
    line, carets = (caught.value.where or "").split("\n")
    begin = carets.index("^")
    assert line[begin : begin + carets.count("^")] == under


def test_our_words_elsewhere_are_not_ours() -> None:
    for sql in ("SELECT materialized FROM change", "SHOW TABLES", "CREATE VIEW change AS SELECT 1", "EXPLAIN SELECT 1"):
        assert isinstance(one(sql), PassThrough)


# -- DuckDB's statements ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "kind", "targets"),
    [
        ("SELECT 1", "select", ""),
        ("(SELECT 1) UNION (SELECT 2)", "select", ""),
        ("FROM t", "select", ""),
        ("WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM a, b", "select", ""),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "insert", "t"),
        ("WITH a AS MATERIALIZED (SELECT 1) DELETE FROM s.t WHERE x IN (FROM a)", "delete", "s.t"),
        ('INSERT INTO "A b".t (x) VALUES (1)', "insert", "A b.t"),
        ("INSERT OR IGNORE INTO t BY NAME SELECT 1", "insert", "t"),
        ("UPDATE t AS x SET a = 1 WHERE b = 2", "update", "t"),
        ("DELETE FROM t", "delete", "t"),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "merge", "t"),
        ("TRUNCATE TABLE t", "truncate", "t"),
        ("TRUNCATE t", "truncate", "t"),
        ("COPY t (a) FROM 'x.csv' (HEADER)", "copy_from", "t"),
        ("COPY t TO 'x.csv'", "copy_to", ""),
        ("COPY (SELECT a FROM t) TO 'x.csv'", "copy_to", ""),
        ("CREATE OR REPLACE TEMP TABLE t AS FROM s", "create_table_as", "t"),
        ("CREATE TABLE IF NOT EXISTS t (a INTEGER)", "ddl", "t"),
        ("CREATE VIEW w AS SELECT 1", "ddl", "w"),
        ("CREATE UNIQUE INDEX i ON s.t (a)", "ddl", "s.t"),
        ("DROP TABLE IF EXISTS a, s.b CASCADE", "ddl", "a s.b"),
        ("ALTER TABLE IF EXISTS t ADD COLUMN x INTEGER", "ddl", "t"),
        ("BEGIN TRANSACTION", "begin", ""),
        ("START TRANSACTION", "begin", ""),
        ("COMMIT", "commit", ""),
        ("END", "commit", ""),
        ("ROLLBACK", "rollback", ""),
        ("ABORT", "rollback", ""),
        ("CHECKPOINT", "checkpoint", ""),
        ("FORCE CHECKPOINT", "checkpoint", ""),
        ("SHOW TABLES", "show_tables", ""),
        ("SHOW ALL TABLES", "show_tables", ""),
        ("DESCRIBE t", "describe", ""),
        ("EXPLAIN INSERT INTO t VALUES (1)", "explain", "t"),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (1)", "insert", "t"),
        ("PREPARE p AS DELETE FROM t WHERE a = $1", "prepare", "t"),
        ("EXECUTE p (1)", "execute", ""),
        ("ATTACH 'x' AS y", "attach", ""),
        ("USE s", "use", ""),
        ("SET threads = 1", "set", ""),
        ("LOAD json", "other", ""),
        ("INSTALL", "other", ""),
    ],
)
def test_kinds_and_targets(sql: str, kind: str, targets: str) -> None:
    statement = one(sql)
    assert statement.kind == kind
    assert " ".join(map(str, statement.targets)) == targets


@pytest.mark.parametrize(
    ("sql", "upsert", "returning"),
    [
        ("INSERT OR REPLACE INTO t VALUES (1)", True, False),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING RETURNING *", False, True),
        ("INSERT INTO t SELECT a FROM s ON CONFLICT (a) DO UPDATE SET a = excluded.a", True, False),
        ("INSERT INTO t SELECT a FROM s JOIN u ON s.a = u.a", False, False),
        ("INSERT INTO t VALUES ('returning')", False, False),
        ("UPDATE t SET a = 1 RETURNING a", False, True),
        ("DELETE FROM t RETURNING a", False, True),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE RETURNING merge_action", False, True),
    ],
)
def test_upsert_and_returning(sql: str, upsert: bool, returning: bool) -> None:
    statement = one(sql)
    assert (statement.upsert, statement.returning) == (upsert, returning)


@pytest.mark.parametrize(
    ("sql", "verb", "what", "action", "cascade"),
    [
        ("ALTER TABLE t ADD COLUMN x INTEGER", "alter", "table", "add column", False),
        ("ALTER TABLE t ADD x INTEGER", "alter", "table", "add column", False),
        ("ALTER TABLE t RENAME TO s", "alter", "table", "rename to", False),
        ("ALTER TABLE t RENAME a TO b", "alter", "table", "rename column", False),
        ("ALTER TABLE t RENAME COLUMN a TO b", "alter", "table", "rename column", False),
        ("ALTER TABLE t DROP a CASCADE", "alter", "table", "drop column", True),
        ("ALTER TABLE t ALTER a TYPE BIGINT", "alter", "table", "alter column", False),
        ("DROP SCHEMA s CASCADE", "drop", "schema", "", True),
        ("CREATE TRIGGER x AFTER INSERT ON t FOR EACH STATEMENT SELECT 1", "create", "trigger", "", False),
        ("DROP TRIGGER x ON t", "drop", "trigger", "", False),
    ],
)
def test_ddl(sql: str, verb: str, what: str, action: str, cascade: bool) -> None:
    statement = one(sql)
    assert (statement.kind, statement.verb, statement.object) == ("ddl", verb, what)
    assert (statement.action, statement.cascade) == (action, cascade)


@pytest.mark.parametrize(
    ("sql", "references"),
    [
        ("SELECT * FROM v", "v"),
        ('SELECT * FROM s.v AS w, d.s.x y, "Q r"', 's.v>w d.s.x>y "Q r"'),
        ("WITH v AS (SELECT * FROM t) SELECT * FROM v", "t"),
        ("WITH v AS (SELECT * FROM v) SELECT * FROM v", "v"),
        ("SELECT * FROM s.v, (WITH v AS (SELECT 1) SELECT * FROM v) x", "s.v"),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT a FROM r JOIN v USING (a)) SELECT * FROM r", "v"),
        ("SELECT (SELECT max(a) FROM v), EXISTS (FROM w) FROM t WHERE a IN (SELECT a FROM x)", "v w t x"),
        ("SELECT * FROM a LEFT JOIN b ON a.i = b.i AND b.j IN (SELECT j FROM c)", "a b c"),
        ("SELECT a FROM v UNION ALL SELECT b FROM w EXCEPT SELECT c FROM x", "v w x"),
        ("SELECT * FROM (FROM v LIMIT 1), LATERAL (SELECT 1 FROM w)", "v w"),
        ("SELECT 'ü', * FROM v", "v"),
        ("INSERT INTO t SELECT * FROM v ON CONFLICT DO NOTHING", "v"),
        ("INSERT INTO t VALUES ((SELECT max(a) FROM v))", "v"),
        ("WITH q AS (FROM v) INSERT INTO t SELECT * FROM q, w", "v w"),
        ("UPDATE t SET a = (SELECT max(a) FROM v) FROM w WHERE t.b = w.b RETURNING a", "v w"),
        ("DELETE FROM t USING w WHERE t.a = w.a", "w"),
        ("DELETE FROM t WHERE a IN (FROM v)", "v"),
        ("DELETE FROM t", ""),
        ("MERGE INTO t AS x USING s AS y ON x.a = y.a WHEN MATCHED THEN DELETE", "s>y"),
        ("MERGE INTO t USING x ON t.a = x.a WHEN NOT MATCHED THEN INSERT VALUES (1)", "x"),
        ("COPY v TO 'x'", "v"),
        ("COPY (SELECT * FROM v) TO 'x'", "v"),
        ("CREATE TABLE t AS SELECT * FROM v WITH NO DATA", "v"),
        ("CREATE VIEW t AS SELECT * FROM v", "v"),
        ("EXPLAIN ANALYZE SELECT * FROM v", "v"),
        ("PREPARE p AS SELECT * FROM v WHERE a = ?", "v"),
        ("TABLE v", "v"),
        ("WITH q AS (TABLE s.v) SELECT * FROM q UNION ALL TABLE w", "s.v w"),
        ("DESCRIBE v", "v"),
        ("SUMMARIZE SELECT * FROM v", "v"),
        ("SELECT * FROM range(3)", ""),
        ("SELECT * FROM range((SELECT a FROM v))", "v"),
        ("SELECT * FROM w: v WHERE w.a = 1", "v>w"),
        ("SELECT 1 UNION SELECT 2 ORDER BY (SELECT a FROM v)", "v"),
        ("WITH RECURSIVE v AS (SELECT * FROM v) SELECT * FROM v", "v"),
        ("SELECT * FROM (a JOIN b ON true), c LEFT JOIN (d JOIN e USING (i)) USING (i)", "a b c d e"),
        ("FROM v PIVOT (sum(b) FOR a IN (1, 2)), w UNPIVOT (x FOR y IN (a, b))", "v w"),
    ],
)
def test_references(sql: str, references: str) -> None:
    found = one(sql).references
    assert found is not None
    shown = [sql[r.start : r.end] + (f">{r.alias}" if r.alias else "") for r in found]
    assert " ".join(shown) == references


def test_references_that_cannot_be_known() -> None:
    for sql in (
        "PIVOT v ON a USING sum(b)",
        "FROM (PIVOT v ON a USING sum(b))",
        "FROM (DESCRIBE v)",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET a = (SELECT 1 FROM v)",
        "SELECT FROM WHERE",
    ):
        assert one(sql).references is None


@pytest.mark.parametrize(
    ("sql", "equalities"),
    [
        ("SELECT * FROM v WHERE a = 1 AND 'x' = v.b AND c > 2", ["a=1", "b='x'"]),
        ("SELECT * FROM v WHERE a = ? AND b = $2", ["a:1", "b:2"]),
        ("SELECT ? FROM v WHERE a = ?", ["a:2"]),
        ("SELECT * FROM v WHERE a = $name", ["a:name"]),
        ("SELECT * FROM v WHERE a = 1 OR b = 2", []),
        ("SELECT * FROM v WHERE NOT a = 1", []),
        ("SELECT * FROM v AS w WHERE w.a = DATE '2020-01-01' AND b = -5", ["a=CAST('2020-01-01' AS DATE)", "b=-5"]),
        ("SELECT * FROM v JOIN w ON v.a = 1 AND v.b = w.b WHERE c = 3", ["a=1"]),
        ("SELECT * FROM v LEFT JOIN w ON v.a = 1 WHERE v.b = 2", []),
        ("SELECT * FROM (SELECT * FROM v WHERE a = 1) x WHERE x.b = 2", ["a=1"]),
        ("SELECT * FROM v WHERE a = b AND a = c + 1", []),
        ("SELECT * FROM v WHERE a = 1 + 1", []),
        ("UPDATE t SET z = ? FROM v WHERE v.a = ?", ["a:2"]),
        ("SELECT a FROM v GROUP BY a HAVING a = 1", []),
        ("SELECT $2, ?, $1 FROM v WHERE a = ?", ["a:4"]),
        ("FROM v SELECT ? WHERE (a) == (?) AND (b = 2 AND (c = -(-3)))", ["a:2", "b=2", "c=-(-3)"]),
        ("SELECT * FROM v, (w JOIN x ON v.c = 3) WHERE v.a = 1 AND b = 2", ["a=1", "c=3"]),
        ("SELECT * FROM v, w LEFT JOIN x ON v.c = 3 WHERE v.a = 1", ["a=1"]),
        ("SELECT * FROM w LEFT JOIN (x JOIN v ON v.c = 3) ON w.a = v.a WHERE v.a = 1", []),
        ("SELECT * FROM w JOIN v USING (a) NATURAL JOIN x CROSS JOIN y WHERE v.a = 1", ["a=1"]),
        ("SELECT * FROM v POSITIONAL JOIN w WHERE v.a = 1", []),
        ("SELECT * FROM v ASOF JOIN w ON v.b > w.b AND v.c = 3 WHERE v.a = 1", []),
        ("SELECT * FROM v SEMI JOIN w ON v.c = 3 WHERE v.a = 1", []),
        ("SELECT * FROM v, VALUES (7) AS t(a) WHERE a = 1 AND v.b = 2", ["b=2"]),
        ("SELECT * FROM v AS w(b, a) WHERE a = 1 AND w.b = 2", []),
        ("SELECT * FROM v TABLESAMPLE 10% WHERE a = 1", []),
        ("SELECT * FROM v WHERE a = 1 USING SAMPLE 10%", []),
        ("SELECT * FROM v PIVOT (sum(b) FOR c IN (1, 2)) WHERE a = 1", []),
        ("SELECT * FROM v WHERE a = CAST(? AS INT)", []),
        ("SELECT main.v.b FROM main.w, main.v WHERE v.a = 1", []),
    ],
)
def test_equalities(sql: str, equalities: list[str]) -> None:
    reference = next(r for r in one(sql).references if r.parts[-1] == "v")
    assert [f"{e.column}{_shown(e.value)}" for e in reference.equalities] == equalities


def _shown(value: exp.Expr) -> str:
    return f":{parameter_name(value)}" if isinstance(value, exp.Placeholder) else f"={printed(value)}"


# -- carets ----------------------------------------------------------------------------------------------------------


def test_caret_names_line_and_column() -> None:
    assert caret("select a,\n\tb\nfrom t", 11, 12) == "line 2, column 2:  b\n" + " " * 19 + "^"


def test_caret_in_a_long_line_is_shown() -> None:
    sql = "select " + "x, " * 200 + "oops" + ", y" * 200
    at = sql.index("oops")
    line, carets = caret(sql, at, at + 4).split("\n")
    assert len(line) < 140
    assert line.endswith("...")
    assert line[carets.index("^") :].startswith("oops")
    assert carets.count("^") == 4


def test_caret_past_the_end() -> None:
    assert caret("drop", 4, 5).split("\n")[1].endswith("^")
    assert caret("", 0, 1).count("^") == 1

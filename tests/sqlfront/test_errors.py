"""Bad input: a clear error with a way out, and nothing changed."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.database.failures import translate


@pytest.fixture(scope="module")
def con():
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a BIGINT, b VARCHAR, c INTEGER)")
    con.execute("CREATE TABLE u (a BIGINT, b VARCHAR, d INTEGER)")
    con.execute("CREATE CHANGE TABLE c (a BIGINT, k SMALLINT)")
    con.execute("INSERT INTO t VALUES (1, 'x', 3), (2, NULL, 4)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT t.b, sum(c) AS s FROM t JOIN c ON t.a = c.a GROUP BY t.b")
    con.apply({"c": pa.table({"a": [1, 1, 2], "k": [1, 2, 3]})})
    yield con
    con.close()


def everything(con):
    tables = [sorted(con.execute(f"FROM {name}").fetchall(), key=str) for name in ("t", "u", "c", "v")]
    catalog = [con.execute(f"SHOW {what}").fetchall() for what in ("TABLES", "MATERIALIZED VIEWS", "CHANGE TABLES")]
    schema = con.execute("SELECT table_name, column_name, data_type FROM duckdb_columns() ORDER BY ALL").fetchall()
    state = [row[:5] for row in con.execute("SHOW STATE").fetchall()]
    return tables, catalog, schema, state


def change(**data):
    return pa.table(data)


APPLIED = {
    "an absent row of a change table": ({"c": change(a=[1], k=[9], _weight=[-1])}, "IntegrityError", '"k" = 9'),
    "an absent row of a table": ({"t": change(a=[1], b=["z"], c=[3], _weight=[-1])}, "IntegrityError", "b = 'z'"),
    "too many copies": ({"c": change(a=[1], k=[1], _weight=[-2])}, "IntegrityError", '"k" = 1'),
    "an unknown column": ({"c": change(a=[1], k=[1], z=[1])}, "ProgrammingError", "no column z"),
    "an unknown table": ({"nosuch": change(a=[1])}, "ProgrammingError", "no table nosuch"),
    "a view": ({"v": change(b=["x"], s=[1])}, "ProgrammingError", "is a view"),
    "a wrong type": ({"c": change(a=["word"], k=[1])}, "DataError", "word"),
    "a value out of range": ({"c": change(a=[1], k=[40000])}, "DataError", "40000"),
    "an integer out of range of a table": ({"t": change(a=[1], b=["x"], c=[2**31])}, "DataError", "2147483648"),
    "one bad table among good ones": (
        {"t": change(a=[5], b=["x"], c=[1]), "c": change(a=[1], k=["x"])}, "DataError", "x",
    ),
    "no mapping": ([("c", change(a=[1], k=[1]))], "ProgrammingError", "mapping"),
}  # fmt: skip


@pytest.mark.parametrize("what", APPLIED)
def test_apply(con, what):
    changes, kind, words = APPLIED[what]
    before = everything(con)
    with pytest.raises(getattr(sqlfront, kind), match=words) as raised:
        con.apply(changes)
    assert raised.value.hint
    assert everything(con) == before


STATEMENTS = {
    "CREATE MATERIALIZED VIEW w AS SELECT a FROM nosuch": "nosuch",
    "CREATE MATERIALIZED VIEW w AS SELECT nosuch FROM t": "nosuch",
    "CREATE MATERIALIZED VIEW w AS SELECT a FROM": "Syntax error|syntax error",
    "CREATE MATERIALIZED VIEW w AS SELEC a FROM t": "Expected SELECT",
    "CREATE MATERIALIZED VIEW AS SELECT a FROM t": "line 1",
    "CREATE MATERIALIZED VIEW w AS SELECT a, random() AS r FROM t": "random",
    "CREATE MATERIALIZED VIEW w WITH (nosuch = 1) AS SELECT a FROM t": "nosuch",
    "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT nosuch FROM t": "nosuch",
    "ALTER MATERIALIZED VIEW v SET (nosuch = 1)": "nosuch",
    "REFRESH MATERIALIZED VIEW nosuch": "known materialized views: v",
    "DROP MATERIALIZED VIEW nosuch": "known materialized views: v",
    "SHOW STATE FOR nosuch": "known materialized views: v",
    "CHECK MATERIALIZED VIEW nosuch": "known materialized views: v",
    "DROP TABLE t": "read the table: v",
    "DROP CHANGE TABLE c": "read the table: v",
    "ALTER TABLE t DROP COLUMN c": "read the table: v",
    "INSERT INTO v VALUES ('x', 1)": "materialized view",
    "DELETE FROM v": "materialized view",
    "INSERT INTO t VALUES (1, 'x', 3000000000)": "3000000000",
    "INSERT INTO t VALUES ('word', 'x', 3)": "word",
    "INSERT INTO t VALUES (1)": "(?i)values",
    "INSERT INTO c VALUES (1, 40000)": "40000",
    "INSERT INTO c SELECT a, 1 / (a - a) FROM nosuch": "nosuch",
    "UPDATE c SET k = 40000": "40000",
    "UPDATE t SET nosuch = 1": "nosuch",
    "SELECT nosuch FROM v": "nosuch",
    "SELEC 1": "(?i)syntax",
    "SUBSCRIBE TO v WITH (after = 1000)": "epoch 1000",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements(con, statement):
    before = everything(con)
    with pytest.raises(sqlfront.Error, match=STATEMENTS[statement]):
        con.execute(statement)
    assert everything(con) == before


@pytest.mark.parametrize(
    ("row", "weight"), [((1,), 1), ((1, 2, 3), 1), (("x", 1), 1), ((1, 40000), 1), ((1, 1), "1"), ((1, 9), -1)]
)
def test_rows(con, row, weight):
    before = everything(con)
    with pytest.raises((sqlfront.DataError, sqlfront.IntegrityError)) as raised:
        con.apply_row("c", row, weight=weight)
    assert raised.value.hint
    assert everything(con) == before


def test_a_statement_is_located_by_a_caret(con):
    with pytest.raises(sqlfront.ProgrammingError) as raised:
        con.execute("CREATE MATERIALIZED VIEW w AS\nSELECT a, nosuch FROM t")
    lines = str(raised.value).splitlines()
    at = next(i for i, line in enumerate(lines) if "^" in line)
    assert lines[at - 1][lines[at].index("^") :].startswith("nosuch")


def test_definitions_within_a_transaction_are_refused(con):
    before = everything(con)
    con.execute("BEGIN")
    for statement in (
        "CREATE MATERIALIZED VIEW w AS SELECT a FROM t",
        "DROP MATERIALIZED VIEW v",
        "DROP TABLE t CASCADE",
    ):
        with pytest.raises(sqlfront.NotSupportedError, match="COMMIT first"):
            con.execute(statement)
    con.execute("ROLLBACK")
    assert everything(con) == before


SHORT = r"(?s)^DuckDB needs more memory than memory_limit, {}\nWhy: it .* are in use\nTry: allow more: SET"


@pytest.mark.parametrize(("limit", "shown"), [("1KB", "1000 bytes"), ("100KB", "97.6 KiB")])
def test_a_memory_limit_that_is_too_small_is_named(limit, shown):
    with pytest.raises(sqlfront.OperationalError, match=SHORT.format(shown)):
        sqlfront.connect(config={"memory_limit": limit}).execute("CREATE TABLE t (a BIGINT)")


def test_a_memory_limit_may_be_raised_again():
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a BIGINT)")
    query = "SELECT a, count(*) AS n FROM t GROUP BY a"
    # DuckDB refuses a limit that is below what is in use already.
    refused = "^memory_limit cannot be 100,000 bytes\nWhy: more is in use: DuckDB could not .*\nTry: allow more: SET"
    with pytest.raises(sqlfront.OperationalError, match=f"{SHORT.format('97.6 KiB')}|{refused}"):
        con.execute("SET memory_limit = '100KB'").execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("SET memory_limit = '1GB'")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO t VALUES (1), (1)")
    assert con.execute("FROM v").fetchall() == [(1, 2)]


def test_memory_that_the_system_does_not_give_is_no_matter_of_the_limit():
    found = translate(duckdb.OutOfMemoryException("Out of Memory Error: Failed to allocate block of 2048 bytes\n"))
    assert isinstance(found, sqlfront.OperationalError)
    assert "DuckDB is out of memory\nWhy: Failed to allocate block of 2048 bytes\n" in str(found)
    text = "Out of Memory Error: Failed to change memory limit to 1000: could not free up enough memory\n\nSee also"
    assert str(translate(duckdb.OutOfMemoryException(text))).startswith("memory_limit cannot be 1,000 bytes\nWhy: more")

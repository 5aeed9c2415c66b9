"""What DuckDB tells of tables and views in the text of their CREATE statements alone."""

from __future__ import annotations

import duckdb
import pytest

from sqlfront.binding.table_catalog import DuckDBCatalog


@pytest.mark.parametrize(
    ("create", "names", "select"),
    [
        ("CREATE VIEW v AS SELECT 1 AS a", [], "SELECT 1 AS a"),
        ('CREATE OR REPLACE VIEW s."v as" ("a)b", "select") AS SELECT 1, 2', ["a)b", "select"], "SELECT 1, 2"),
        ("CREATE TEMP VIEW v AS SELECT ') AS ;'", [], "SELECT ') AS ;'"),
        (
            "CREATE VIEW IF NOT EXISTS v (n) AS WITH x AS (SELECT 3) FROM x;",
            ["n"],
            "WITH x AS (SELECT 3) SELECT * FROM x",
        ),
    ],
)
def test_a_plain_view_is_its_columns_and_its_query(create: str, names: list[str], select: str) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE SCHEMA s; {create}")
    [(database, schema, name)] = con.execute(
        "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    catalog = DuckDBCatalog(con, database)
    assert catalog.inlined(catalog.resolve([database, schema, name]) or "") == (names, select)


def test_collations_of_columns() -> None:
    con = duckdb.connect()
    con.execute(
        """CREATE TABLE t (a VARCHAR COLLATE nocase, "B, c" VARCHAR COLLATE nocase.noaccent NOT NULL,
        d VARCHAR DEFAULT '(a VARCHAR COLLATE x', e INTEGER, f VARCHAR, CHECK (f COLLATE noaccent > 'b'))"""
    )
    catalog = DuckDBCatalog(con)
    assert catalog.columns(catalog.resolve(["t"]) or "") == [
        ("a", "VARCHAR", False),
        ("B, c", "VARCHAR", True),
        ("d", "VARCHAR", False),
        ("e", "INTEGER", False),
        ("f", "VARCHAR", False),
    ]


@pytest.mark.parametrize(
    ("create", "keys", "references", "checks"),
    [
        ("a INT, b INT", [], [], []),
        ("a INT PRIMARY KEY, b INT UNIQUE, UNIQUE (b, a)", [("a",), ("b",), ("b", "a")], [], []),
        ("a INT REFERENCES s, b INT", [], [(("a",), "main.s", ("k",))], []),
        ("a INT, b INT CHECK (b > 0)", [], [], ["(b > 0)"]),
        ('a INT, "CHECK" INT', [], [], []),
        ('a INT, "B" INT, PRIMARY KEY ("B")', [("B",)], [], []),
        ("a INT, b INT, PRIMARY KEY (b, a)", [("b", "a")], [], []),
        ('a INT, "PRIMARY KEY" INT', [], [], []),
        ("a INT PRIMARY KEY, b VARCHAR DEFAULT 'UNIQUE'", [("a",)], [], []),
    ],
)
def test_declared_constraints(create: str, keys: list, references: list, checks: list) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE s (k INT PRIMARY KEY); CREATE TABLE t ({create})")
    catalog = DuckDBCatalog(con)
    assert catalog.keys(catalog.resolve(["s"]) or "") == [("k",)]
    table = catalog.resolve(["t"]) or ""
    assert catalog.keys(table) == keys and catalog.references(table) == references
    assert [check.strip("()") for check in catalog.checks(table)] == [check.strip("()") for check in checks]


def test_a_key_that_is_added_later_is_known() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INT); ALTER TABLE t ADD PRIMARY KEY (a)")
    catalog = DuckDBCatalog(con)
    assert catalog.keys(catalog.resolve(["t"]) or "") == [("a",)]


def test_a_key_alone_is_not_looked_for_among_all_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(DuckDBCatalog, "_read_constraints")
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL)")
    catalog = DuckDBCatalog(con)
    assert catalog.keys(catalog.resolve(["t"]) or "") == [("a",)]

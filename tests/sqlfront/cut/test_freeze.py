"""Stored queries: what they mean does not depend on columns that their tables get later, or on the search path."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import sqlfront
from sqlfront.binding.freeze import frozen_tree, qualified_query, renamed_query, without_columns
from sqlfront.binding.table_catalog import DuckDBCatalog
from sqlfront.cut.view_query import bind_view
from sqlfront.planner.model.computed_rows import TemporalRows, TouchedGroups
from sqlfront.planner.model.query import BlockRows, Definition
from sqlfront.sql.dialect import parse_one, printed
from sqlfront.storage.capture.capture import QualifiedName
from tests.catalogs import catalog_of
from tests.sqlfront.cut.test_binder import SUPPORTED, statements

_NUMBERED = re.compile(r"\bc\d+\b")


@pytest.fixture(scope="module")
def con() -> Any:
    con = duckdb.connect(config={"threads": 1})
    for statement in statements("schema"):
        con.execute(statement)
    yield con
    con.close()


def _unlabelled(definition: BlockRows) -> object:
    """A definition without what the user wrote, as a frozen query is printed, and without the numbers of columns and
    the names of atoms that are blocks."""
    if isinstance(definition, TouchedGroups):
        numbers = {name: f"c_{place}" for place, name in enumerate(dict.fromkeys(_NUMBERED.findall(definition.query)))}
        return replace(definition, query=_NUMBERED.sub(lambda name: numbers[name.group()], definition.query))
    if isinstance(definition, TemporalRows):
        return replace(definition, bounds=tuple(replace(bound, label="") for bound in definition.bounds))
    if not isinstance(definition, Definition):
        return definition
    kept = tuple(replace(one, label="", definition=_bare(one.definition)) for one in definition.distinct_sets)
    orders = tuple(replace(one, label="", obstacle=bool(one.obstacle)) for one in definition.orders)
    derived = tuple((table, _unlabelled(block)) for table, block in definition.derived)
    branches = tuple((one.table, one.columns, _unlabelled(one.definition)) for one in definition.branches)
    text = repr(replace(_bare(definition), distinct_sets=kept, orders=orders, columns=(), derived=(), branches=()))
    for number, atom in enumerate(definition.atoms):
        if atom.table.startswith('"__'):
            text = re.sub(rf"'{re.escape(atom.name)}(?=_|')", f"'block {number}", text)
    return text, definition.columns, derived, branches


def _bare(definition: Definition) -> Definition:
    return replace(definition, labels=(), notes=())


QUERIES = [query for name in SUPPORTED if name != "computed" for query in statements(name)]


def frozen_query(query: str, catalog: DuckDBCatalog) -> str:
    return printed(frozen_tree(parse_one(query), catalog))


@pytest.mark.parametrize(
    "query", [*QUERIES[::2], *(pytest.param(query, marks=pytest.mark.slow) for query in QUERIES[1::2])]
)
def test_a_frozen_query_has_the_same_definition(con: Any, query: str) -> None:
    definition = bind_view(query, con, catalog_of(query, con)).definition
    names = tuple(name for name, _ in definition.columns)
    frozen = frozen_query(query, DuckDBCatalog(con))
    bound = bind_view(frozen, con, catalog_of(frozen, con), column_names=names).definition
    assert _unlabelled(bound) == _unlabelled(definition)
    assert frozen_query(frozen, DuckDBCatalog(con)) != query


def test_renaming_changes_the_table_and_its_columns_alone() -> None:
    con = duckdb.connect()
    con.execute('CREATE TABLE t (a INTEGER, "b c" INTEGER); CREATE TABLE u (a INTEGER); CREATE SCHEMA s')
    con.execute("CREATE TABLE s.t (a INTEGER)")
    query = "SELECT t.a, \"B C\" AS a1, 'a main.t' AS x FROM t JOIN u USING (a) JOIN s.t AS t2 USING (a)"
    frozen = frozen_query(query, DuckDBCatalog(con))
    key = QualifiedName("main", "T").key
    renamed = renamed_query(frozen, {key: QualifiedName("main", "new")}, {key: {"A": 'q"', "b C": "a"}})
    assert frozen == (
        "SELECT t.a, \"B C\" AS a1, 'a main.t' AS x FROM "
        '(SELECT "a" AS "a", "b c" AS "b c" FROM main.t AS "t") AS "t" '
        'JOIN (SELECT "a" AS "a" FROM main.u AS "u") AS "u" USING (a) '
        'JOIN (SELECT "a" AS "a" FROM s.t AS "t2") AS t2 USING (a)'
    )
    assert renamed == frozen.replace(
        '"a" AS "a", "b c" AS "b c" FROM main.t', '"q""" AS "a", "a" AS "b c" FROM main.new'
    )


FROZEN = 'SELECT t.* FROM (SELECT "a" AS "a", "b" AS "b" FROM main.v AS "t") AS "t" '


@pytest.mark.parametrize(
    ("tail", "gone", "missed"),
    [
        ("WHERE t.a > 1", ["B"], []),
        ("WHERE t.a > 1", ["B", "a"], ["a"]),
        ("WHERE 'b' = t.a", ["b"], []),
        ('JOIN (SELECT "b" AS "b" FROM main.u AS "u") AS "u" ON TRUE', ["b"], []),
        ('JOIN (SELECT "b" AS "b" FROM main.u AS "u") AS "u" ON u.b = 1', ["b"], ["b"]),
        ('NATURAL JOIN (SELECT "d" AS "d" FROM main.u AS "u") AS "u"', ["b"], ["b"]),
    ],
)
def test_columns_go_that_nothing_else_names(tail: str, gone: list[str], missed: list[str]) -> None:
    without = '"b" AS "b"' if "a" in gone and "B" not in gone else '"a" AS "a"'
    expected = FROZEN.replace('"a" AS "a", "b" AS "b"', "1" if {"B", "a"} <= set(gone) else without) + tail
    assert without_columns(FROZEN + tail, QualifiedName("main", "V"), gone) == (expected, missed)
    assert without_columns(FROZEN + tail, QualifiedName("other", "v"), gone) == (FROZEN + tail, [])


def test_a_qualified_query_names_the_database_of_tables_alone() -> None:
    frozen = f"WITH w AS ({FROZEN.strip()}) SELECT a FROM w WHERE EXISTS ({FROZEN.strip()} CROSS JOIN range(3))"
    assert qualified_query(frozen, 'my "db') == frozen.replace("main.v", '"my ""db".main.v')


@pytest.fixture
def path(tmp_path: Any) -> str:
    return str(tmp_path / "data.duckdb")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT u.*, t.b FROM t JOIN u ON t.a = u.a",
        "SELECT * EXCLUDE (b) REPLACE (a + 1 AS a) FROM t",
        "SELECT COLUMNS('a|b|new') FROM t",
        "FROM t",
        "WITH q AS (TABLE t) SELECT * FROM q",
        "SELECT * FROM t NATURAL JOIN u",
        "SELECT * FROM t JOIN u USING (a)",
        "SELECT t.a, d FROM t JOIN u ON t.a = u.a",
        "SELECT a + 10 AS new, count(*) AS n FROM t GROUP BY new",
        "SELECT a + 10 AS new FROM t WHERE new > 11",
        "SELECT main.t.a, data.main.u.d FROM main.t JOIN data.main.u ON main.t.a = u.a",
        "SELECT p.* FROM plain AS p JOIN u ON p.x = u.a",
        "SELECT * FROM plain",
        "WITH t AS (SELECT * FROM t) SELECT * FROM t NATURAL JOIN u",
        "SELECT * FROM (SELECT * FROM t) AS q",
        "SELECT x.* FROM t AS x (k) JOIN u ON k = u.a",
    ],
)
def test_added_columns_never_change_a_view(path: str, query: str) -> None:
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a INTEGER, b VARCHAR)")
        con.execute("CREATE TABLE u (a INTEGER, d INTEGER)")
        con.execute("CREATE VIEW plain (x) AS SELECT * FROM t")
        con.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        con.execute("INSERT INTO u VALUES (1, 10), (2, 20)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert con.execute("FROM v").to_arrow_table().equals(con.execute(query).to_arrow_table())
        before = con.execute("DESCRIBE v").fetchall(), sorted(con.execute("FROM v").fetchall(), key=str)
        for table, columns in (("t", ("new INTEGER DEFAULT 1", "d INTEGER")), ("u", ("new INTEGER", "b VARCHAR"))):
            for column in columns:
                con.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        con.execute("CREATE OR REPLACE VIEW plain AS SELECT 1 AS other")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    with sqlfront.connect(path) as con:
        assert (con.execute("DESCRIBE v").fetchall(), sorted(con.execute("FROM v").fetchall(), key=str)) == before
        con.execute("INSERT INTO t (a, b) VALUES (2, 'z')")
        assert sorted(con.execute("FROM v").fetchall(), key=str) != before[1]
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        assert con.execute("SHOW MATERIALIZED VIEWS").fetchall()[0][-1] == query


def test_a_view_reads_the_tables_it_was_created_over_whatever_the_search_path(path: str) -> None:
    with sqlfront.connect(path) as con:
        con.execute("CREATE SCHEMA s")
        con.execute("CREATE TABLE s.t AS SELECT 1 AS a")
        con.execute("CREATE TABLE t AS SELECT 2 AS b")
        con.execute("USE s")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM t")
        con.execute("USE main")
        con.execute("REFRESH MATERIALIZED VIEW s.v")
        con.execute("INSERT INTO s.t VALUES (1)")
        con.execute("INSERT INTO t VALUES (3)")
        assert con.execute("FROM s.v").fetchall() == [(1,), (1,)]
        assert con.execute("CHECK MATERIALIZED VIEW s.v").fetchall() == []
    with sqlfront.connect(path) as con:
        assert con.execute("FROM s.v").fetchall() == [(1,), (1,)]


def test_main_is_searched_last(path: str) -> None:
    with sqlfront.connect(path) as con:
        con.execute("CREATE SCHEMA s")
        con.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
        con.execute("USE s")
        con.execute("INSERT OR REPLACE INTO t VALUES (1)")
        con.begin()
        con.execute("INSERT INTO t VALUES (2)")
        assert sorted(con.execute("FROM v").fetchall()) == [(1,), (2,)]
        con.commit()
        with pytest.raises(sqlfront.IntegrityError, match="read the table"):
            con.execute("DROP TABLE t")
        con.execute("CREATE TABLE t (b INTEGER)")
        con.execute("DROP TABLE t")
        assert con.execute("FROM v").fetchall() == [(1,), (2,)]


def test_two_tables_of_one_name_need_aliases(path: str) -> None:
    with sqlfront.connect(path) as con:
        con.execute("CREATE SCHEMA s")
        con.execute("CREATE TABLE s.t AS SELECT 1 AS a")
        con.execute("CREATE TABLE t AS SELECT 1 AS a")
        with pytest.raises(sqlfront.NotSupportedError, match="alias"):
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT main.t.a FROM main.t JOIN s.t ON main.t.a = s.t.a")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT x.a FROM main.t AS x JOIN s.t AS y ON x.a = y.a")
        assert con.execute("FROM v").fetchall() == [(1,)]

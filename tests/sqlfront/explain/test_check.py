"""CHECK compares whatever the columns are called, with the tables that the view reads."""

import pytest

import sqlfront
from sqlfront.database.recomputed import recomputed
from sqlfront.database.unpruned import unpruned
from sqlfront.explain import check
from sqlfront.sql.dialect import parse_one


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        yield connection


def _break(con, view, scans="SELECT * FROM (VALUES (7, 7.5::DOUBLE)) AS t"):
    """Make the DuckDB view answer something else than what is maintained."""
    con.session.duck.execute(f"CREATE OR REPLACE VIEW {view} AS {scans}")


def test_a_query_is_printed_once_unless_its_limit_is_hidden(con):
    con.execute("CREATE TABLE r (b INT); CREATE MATERIALIZED VIEW v AS SELECT b, count(*) AS n FROM r GROUP BY b")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT b FROM r ORDER BY b LIMIT 3")
    v, w = (con.session.database.views["main", name] for name in "vw")
    assert recomputed(con.session.database, v) is recomputed(con.session.database, v)
    assert "LIMIT (SELECT 3)" in recomputed(con.session.database, w)


@pytest.mark.parametrize("name", ["e", "f", "s", "n", "q", "c0", "c1", "a", "one", "_difference", "order", 'x"y'])
def test_a_floating_column_may_have_any_name(con, name):
    quoted = '"' + name.replace('"', '""') + '"'
    con.execute(f"CREATE TABLE r (b INT, {quoted} DOUBLE); INSERT INTO r VALUES (1, 0.5), (1, 0.25), (2, NULL)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT b, {quoted} FROM r")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    _break(con, "v")
    result = con.execute("CHECK MATERIALIZED VIEW v").to_arrow_table()
    assert result.column_names == ["_difference", "b", "_difference_1" if name == "_difference" else name]
    rows = [tuple(column[i].as_py() for column in result.columns) for i in range(result.num_rows)]
    missing = [("missing", 1, 0.25), ("missing", 1, 0.5), ("missing", 2, None)]
    assert sorted(rows, key=str) == [("extra", 7, 7.5), *missing]


@pytest.mark.parametrize("type_", ["INT", "DOUBLE"])
@pytest.mark.parametrize("name", ["b", "more", "_difference"])
def test_a_row_stands_once_per_copy(con, type_, name):
    con.execute(
        f"CREATE TABLE r (a INT, {name} {type_}); INSERT INTO r VALUES (1, 1), (1, 1), (1, 1), (2, NULL), (3, 4)"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT a, {name} FROM r")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    _break(con, "v", f"SELECT a, x::{type_} FROM (VALUES (1, 1), (2, NULL), (2, NULL), (5, NULL), (3, 4)) AS t(a, x)")
    result = con.execute("CHECK MATERIALIZED VIEW v")
    names = [column[0] for column in result.description]
    assert names == ["_difference", "a", "_difference_1" if name == "_difference" else name]
    missing, extra = [("missing", 1, 1)] * 2, [("extra", 2, None), ("extra", 5, None)]
    found = result.fetchall()
    assert found[:2] == missing and sorted(found[2:], key=str) == extra


def test_values_of_other_types_are_compared(con):
    con.execute(
        "CREATE TABLE r (a UNION(n INT, s VARCHAR), b MAP(INT, INT), c HUGEINT, d INTERVAL, e DOUBLE[], f UUID)"
    )
    row = "1, MAP {1: 2}, 3, INTERVAL 1 MONTH, [4], '00000000-0000-0000-0000-000000000005'"
    con.execute(f"INSERT INTO r VALUES ({row}), ({row})")
    con.execute("CREATE MATERIALIZED VIEW v AS FROM r")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    _break(con, "v", "SELECT a, b, c, d, [4, NULL]::DOUBLE[] AS e, f FROM r LIMIT 1")
    found = con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    wanted = [("missing", *values) for values in con.execute("FROM r").fetchall()]
    assert found == [*wanted, ("extra", *wanted[0][1:5], [4, None], wanted[0][6])]


def test_a_temporary_table_does_not_stand_in_for_the_tables_of_a_view(con):
    con.execute("CREATE TABLE r AS SELECT 1 AS a; CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
    con.execute("CREATE TEMP TABLE r AS SELECT 5 AS a; CREATE TEMP TABLE v AS SELECT 6 AS a")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


BEFORE = """CREATE TABLE pruned (a INTEGER, b INTEGER);
INSERT INTO pruned SELECT i, i FROM range(10) r(i);
INSERT INTO pruned VALUES (NULL, 1);"""
AFTER = "INSERT INTO pruned SELECT 100 + i, i FROM range(3) r(i); INSERT INTO pruned VALUES (NULL, 1);"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM pruned ORDER BY a DESC LIMIT 1 OFFSET 1",
        "SELECT count(*) AS n FROM (SELECT a FROM pruned ORDER BY a DESC LIMIT 1 OFFSET 1)",
    ],
)
def test_check_is_not_misled_by_duckdb_pruning_row_groups(query):
    """DuckDB's optimizer row_group_pruner counts deleted rows: here it finds no second row, though there are nine."""
    with sqlfront.connect() as con:
        con.execute(BEFORE)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")  # The rows before are a row group.
        con.execute(AFTER)
        con.execute("DELETE FROM pruned WHERE b < 2")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        con.execute("BEGIN; DELETE FROM pruned WHERE a = 9")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        con.execute("ROLLBACK")
        con.execute("SET disabled_optimizers = 'row_group_pruner'")
        assert con.execute("FROM v").fetchall() == con.execute(query).fetchall()


def test_limits_are_hidden_from_the_optimizer_where_duckdb_lets_them():
    with sqlfront.connect() as con:
        con.execute(BEFORE + AFTER)
        inner = "SELECT p.a, (SELECT q.a FROM pruned AS q WHERE q.b > p.b ORDER BY q.a LIMIT 1) AS n FROM pruned AS p"
        for query, expected in (
            ("SELECT a FROM pruned ORDER BY a LIMIT 2 OFFSET 1", "LIMIT (SELECT 2) OFFSET (SELECT 1)"),
            (f"{inner} ORDER BY p.a LIMIT 3", "LIMIT 1) AS n FROM pruned AS p ORDER BY p.a LIMIT (SELECT 3)"),
            (inner, "LIMIT 1) AS n"),
            ("SELECT 'limit 1' AS s FROM pruned LIMIT 50%", "LIMIT 50 PERCENT"),
        ):
            text = unpruned(con.session.database, parse_one(query))
            assert expected in text
            assert sorted(con.execute(text).fetchall(), key=str) == sorted(con.execute(query).fetchall(), key=str)


def test_an_interrupt_between_statements_stops_a_check(monkeypatch):
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
        con.execute("INSERT INTO t FROM range(100)")

        def interrupting(*arguments):
            con.interrupt()
            return recomputed(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(check, "recomputed", interrupting)
            with pytest.raises(sqlfront.OperationalError, match="interrupted"):
                con.execute("CHECK MATERIALIZED VIEW v")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []

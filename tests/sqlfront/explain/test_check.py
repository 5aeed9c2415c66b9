"""CHECK compares whatever the columns are called, with the tables that the view reads."""

import pytest

import sqlfront


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        yield connection


def _break(con, view, scans="SELECT * FROM (VALUES (7, 7.5::DOUBLE)) AS t"):
    """Make the DuckDB view answer something else than what is maintained."""
    con.session.duck.execute(f"CREATE OR REPLACE VIEW {view} AS {scans}")


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


def test_a_temporary_table_does_not_stand_in_for_the_tables_of_a_view(con):
    con.execute("CREATE TABLE r AS SELECT 1 AS a; CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
    con.execute("CREATE TEMP TABLE r AS SELECT 5 AS a; CREATE TEMP TABLE v AS SELECT 6 AS a")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []

"""Rows over which a view cannot be computed: the view is named, nothing else is harmed, and there is a way out."""

from __future__ import annotations

import shutil
from typing import Any

import duckdb
import pytest

import sqlfront

BAD = {
    "cast": ("s VARCHAR", "('x')", "SELECT CAST(s AS INTEGER) AS a FROM z", "Could not convert string 'x'"),
    "group": ("s VARCHAR", "('x')", "SELECT CAST(s AS INTEGER) AS a, count(*) FROM z GROUP BY 1", "'x'"),
    "overflow": ("a INTEGER", "(2000000000)", "SELECT a * 2000000000 AS b FROM z", "Overflow in multiplication"),
    "division": ("a INTEGER", "(0)", "SELECT 10 // a AS b FROM z", "Division by zero"),
    "late row": ("s VARCHAR", "(CASE i WHEN 199999 THEN 'x' ELSE '1' END)", "SELECT s::INTEGER AS a FROM z", "'x'"),
    "infinite": ("c DOUBLE", "(1e200)", "SELECT sum(c * x * c) AS s FROM z, (SELECT x FROM y)", "met NaN"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_view_over_a_bad_row_is_refused_and_leaves_nothing(name: str) -> None:
    column, value, query, reason = BAD[name]
    with sqlfront.connect() as con:
        con.execute(f"CREATE TABLE z ({column}); CREATE TABLE y AS SELECT 2.0 AS x")
        con.execute(f"INSERT INTO z SELECT {value} FROM range({200000 if name == 'late row' else 1}) AS r(i)")
        create = f"CREATE MATERIALIZED VIEW m AS {query}"
        with pytest.raises(sqlfront.DataError, match=rf"(?s)materialized view m cannot be built.*{reason}.*TRY_CAST"):
            con.execute(create)
        assert con.execute("SELECT count(*) FROM y").fetchall() == [(1,)]
        con.execute("INSERT INTO z SELECT * FROM z LIMIT 1")
        assert con.session.database.engine.relations == con.session.database.engine.views == {}
        assert con.session.database.capture.tables() == []
        con.execute(f"DELETE FROM z; {create}; CREATE TABLE other (a INTEGER)")
        assert con.execute("CHECK MATERIALIZED VIEW m").fetchall() == []


def test_a_view_that_cannot_be_replaced_stays(tmp_path: Any) -> None:
    with sqlfront.connect(str(tmp_path / "data.duckdb")) as con:
        con.execute("CREATE TABLE z (s VARCHAR); INSERT INTO z VALUES ('x'); CREATE MATERIALIZED VIEW m AS FROM z")
        with pytest.raises(sqlfront.DataError, match="m cannot be built"):
            con.execute("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT s::INTEGER AS s FROM z")
        con.execute("INSERT INTO z VALUES ('y')")
        assert sorted(con.execute("FROM m").fetchall()) == [("x",), ("y",)]


@pytest.mark.parametrize("kept", [True, False])
def test_one_bad_row_does_not_lock_a_file(tmp_path: Any, capsys: Any, kept: bool) -> None:
    """Whether views come back from a snapshot or are built from their tables."""
    path = str(tmp_path / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE z (s VARCHAR); INSERT INTO z VALUES ('1')")
        con.execute("CREATE MATERIALIZED VIEW m AS SELECT s::INTEGER AS a FROM z")
        con.execute("CREATE MATERIALIZED VIEW over_m AS SELECT a, count(*) AS n FROM m GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW fine AS SELECT s FROM z")
    with duckdb.connect(path) as plain:
        plain.execute("INSERT INTO z VALUES ('x')")
    if not kept:
        shutil.rmtree(f"{path}.sqlfront")
    with sqlfront.connect(path) as con:
        assert ("materialized view m could not be rebuilt" in capsys.readouterr().err) is not kept
        con.execute("INSERT INTO z VALUES ('2')")
        assert sorted(con.execute("FROM fine").fetchall()) == [("1",), ("2",), ("x",)]
        for _ in range(2):
            with pytest.raises(sqlfront.OperationalError, match=r"(?s)m cannot be trusted.*'x'.*REFRESH"):
                con.execute("FROM m")
            with pytest.raises(sqlfront.DataError, match=r"(?s)m cannot be built.*'x'"):
                con.execute("REFRESH MATERIALIZED VIEW m")
        way_out = r"(?s)over_m cannot be built.*'x'" if kept else r"REFRESH MATERIALIZED VIEW m$"
        with pytest.raises(sqlfront.DatabaseError, match=way_out):
            con.execute("REFRESH MATERIALIZED VIEW over_m")
        con.execute("DELETE FROM z WHERE s = 'x'")
        con.execute("REFRESH MATERIALIZED VIEW m; REFRESH MATERIALIZED VIEW over_m; INSERT INTO z VALUES ('2')")
        assert sorted(con.execute("FROM over_m").fetchall()) == [(1, 1), (2, 2)]
    with sqlfront.connect(path) as con:
        assert sorted(con.execute("FROM over_m").fetchall()) == [(1, 1), (2, 2)]
        assert con.execute("CHECK MATERIALIZED VIEW over_m").fetchall() == []


def test_a_refresh_that_meets_a_bad_row_leaves_the_connection_usable() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE z (s VARCHAR); CREATE MATERIALIZED VIEW m AS SELECT s::INTEGER AS a FROM z")
        raw = con.session.database.root.cursor()
        for name in ("insert", "delete", "update"):
            raw.execute(f"DROP TRIGGER __sqlfront_{name} ON z")
        raw.execute("INSERT INTO z VALUES ('x')")
        with pytest.raises(sqlfront.DataError, match="m cannot be built"):
            con.execute("REFRESH MATERIALIZED VIEW m")
        con.execute("UPDATE z SET s = '5'; REFRESH MATERIALIZED VIEW m; INSERT INTO z VALUES ('6')")
        assert sorted(con.execute("FROM m").fetchall()) == [(5,), (6,)]

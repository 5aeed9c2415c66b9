"""Plain views under materialized views: those keep the text that the plain views had when they were created."""

from __future__ import annotations

from typing import Any

import pytest

import sqlfront

SETUP = """
CREATE TABLE t (a INTEGER, b INTEGER);
INSERT INTO t VALUES (1, 10), (2, 20), (2, 21);
CREATE VIEW inner_view AS SELECT a AS x, b AS y FROM t WHERE b > 10;
CREATE VIEW outer_view (p, q) AS SELECT x, y + 1 FROM inner_view;
CREATE MATERIALIZED VIEW v AS SELECT p, count(*) AS n, sum(q) AS s FROM outer_view GROUP BY p;
CREATE MATERIALIZED VIEW w AS SELECT v.p, o.q FROM v JOIN outer_view AS o ON v.p = o.p WHERE n > 1;
"""
CHANGES = {
    "inner replaced": "CREATE OR REPLACE VIEW inner_view AS SELECT 5 AS x, 6 AS y",
    "outer replaced": "CREATE OR REPLACE VIEW outer_view (q, p) AS SELECT a, b FROM t",
    "outer dropped": "DROP VIEW outer_view",
    "both dropped": "DROP VIEW outer_view; DROP VIEW inner_view",
    "renamed": "ALTER VIEW outer_view RENAME TO other",
    "a table instead": "DROP VIEW outer_view; CREATE TABLE outer_view AS SELECT 7 AS p, 8 AS q",
}


def right(con: Any, v: list[Any], w: list[Any]) -> bool:
    assert sorted(con.execute("FROM v").fetchall()) == v
    assert sorted(con.execute("FROM w").fetchall()) == w
    for view in ("v", "w"):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
    return True


@pytest.mark.parametrize("change", CHANGES)
def test_materialized_views_keep_what_plain_views_were(tmp_path: Any, change: str) -> None:
    path = str(tmp_path / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute(SETUP)
        assert right(con, [(2, 2, 43)], [(2, 21), (2, 22)])
        con.execute(CHANGES[change])
        assert right(con, [(2, 2, 43)], [(2, 21), (2, 22)])
        con.execute("INSERT INTO t VALUES (1, 11), (1, 12)")
        assert right(con, [(1, 2, 25), (2, 2, 43)], [(1, 12), (1, 13), (2, 21), (2, 22)])
        con.execute("REFRESH MATERIALIZED VIEW v")
        con.execute("DELETE FROM t WHERE a = 2")
        assert right(con, [(1, 2, 25)], [(1, 12), (1, 13)])
    with sqlfront.connect(path) as con:
        assert right(con, [(1, 2, 25)], [(1, 12), (1, 13)])
        con.execute("ALTER TABLE t RENAME COLUMN b TO c; INSERT INTO t VALUES (1, 13)")
        assert right(con, [(1, 3, 39)], [(1, 12), (1, 13), (1, 14)])


def test_a_materialized_view_that_is_replaced_reads_the_plain_view_anew() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a; CREATE VIEW p AS SELECT a FROM t")
        con.execute("CREATE MATERIALIZED VIEW v AS FROM p")
        con.execute("CREATE OR REPLACE VIEW p AS SELECT a + 1 AS a FROM t")
        assert con.execute("FROM v").fetchall() == [(1,)]
        con.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS FROM p")
        assert con.execute("FROM v").fetchall() == [(2,)]


def test_what_a_plain_view_read_stays_in_use() -> None:
    with sqlfront.connect() as con:
        con.execute(SETUP)
        con.execute("CREATE VIEW p AS SELECT n FROM v; CREATE MATERIALIZED VIEW x AS SELECT sum(n) AS n FROM p")
        con.execute("DROP VIEW p; DROP VIEW outer_view")
        with pytest.raises(sqlfront.IntegrityError, match=r"(?s)DROP TABLE t is refused.*v, w, x"):
            con.execute("DROP TABLE t")
        with pytest.raises(sqlfront.IntegrityError, match="materialized views read it: w, x"):
            con.execute("DROP MATERIALIZED VIEW v")
        assert con.execute("FROM x").fetchall() == [(2,)]

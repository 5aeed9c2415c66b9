"""CREATE INDEX and DROP INDEX on a materialized view: more orders that it is kept in."""

from __future__ import annotations

from typing import Any

import pytest

import sqlfront

SETUP = """
CREATE TABLE r (a BIGINT, b BIGINT, w BIGINT NOT NULL);
CREATE TABLE s (b BIGINT, c BIGINT, w BIGINT NOT NULL);
INSERT INTO r SELECT i, i % 7, i * 5 % 13 FROM range(40) t(i);
INSERT INTO s SELECT i % 7, i, i * 3 % 11 FROM range(30) t(i);
CREATE MATERIALIZED VIEW v AS SELECT r.a, s.c, r.w AS x, s.w AS y FROM r JOIN s ON r.b = s.b;
"""
FIRST = "SELECT * FROM v ORDER BY x + y DESC, a, c LIMIT 5"


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        connection.execute(SETUP)
        yield connection


def orders(con: Any) -> dict[str, str]:
    return {one["order"]: one["strategy"] for one in con.explain("v").to_dict()["orders"]}


def test_an_index_keeps_an_order(con: Any) -> None:
    expected = con.execute(FIRST).fetchall()
    con.execute("CREATE INDEX best ON v (x + y DESC, a, c)")
    assert list(orders(con).values()) == ["ranked enumeration"]
    assert con.execute(FIRST).fetchall() == expected
    assert con.view("v").top(5) == expected
    con.execute("CREATE INDEX IF NOT EXISTS best ON v (a)")
    con.execute("CREATE INDEX other ON main.v (y, x DESC NULLS LAST)")
    assert len(orders(con)) == 2
    con.execute("INSERT INTO r VALUES (99, 1, 100); DELETE FROM s WHERE c = 1")
    top = con.execute(FIRST).fetchall()
    assert top[0][0] == 99
    assert top == con.execute("SELECT * FROM (SELECT * FROM v) AS q ORDER BY x + y DESC, a, c LIMIT 5").fetchall()
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    con.execute("DROP INDEX best")
    assert len(orders(con)) == 1
    con.execute("DROP INDEX other")
    assert orders(con) == {}
    assert con.execute(FIRST).fetchall() == top


def test_indexes_stand_beside_order_by_and_survive(tmp_path: Any) -> None:
    path = str(tmp_path / "kept.db")
    with sqlfront.connect(path) as con:
        con.execute(SETUP)
        con.execute("ALTER MATERIALIZED VIEW v SET (order_by = 'y DESC')")
        con.execute("CREATE INDEX best ON v (x + y DESC)")
        assert len(orders(con)) == 2
    with sqlfront.connect(path) as con:
        assert len(orders(con)) == 2
        con.execute("REFRESH MATERIALIZED VIEW v; DROP INDEX BEST")
        assert len(orders(con)) == 1


def test_indexes_of_tables_are_duckdbs(con: Any) -> None:
    con.execute("CREATE TABLE plain (k BIGINT); CREATE INDEX own ON plain (k)")
    assert con.execute("SELECT index_name FROM duckdb_indexes()").fetchall() == [("own",)]
    con.execute("DROP INDEX own")
    with pytest.raises(sqlfront.Error, match="own"):
        con.execute("DROP INDEX own")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE UNIQUE INDEX i ON v (a)", "order, not a constraint"),
        ("CREATE INDEX i ON v USING art (a)", "one kind of index"),
        ("CREATE INDEX i ON v (nothing)", "nothing"),
        ("CREATE INDEX i ON v (a) WITH (x = 1)", "end of the statement"),
        ("CREATE INDEX kept ON v (a)", "exists already"),
        ("BEGIN; CREATE INDEX i ON v (a)", "COMMIT first"),
    ],
)
def test_refusals_change_nothing(con: Any, statement: str, reason: str) -> None:
    con.execute("CREATE INDEX kept ON v (y)")
    before = con.execute("SHOW MATERIALIZED VIEWS").fetchall(), orders(con)
    with pytest.raises(sqlfront.Error, match=reason):
        con.execute(statement)
    con.rollback()
    assert (con.execute("SHOW MATERIALIZED VIEWS").fetchall(), orders(con)) == before


def test_a_view_that_cannot_be_rebuilt_keeps_its_orders() -> None:
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT) WITH (retain = false)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM c")
        con.apply_row("c", (1,))
        with pytest.raises(sqlfront.ProgrammingError, match="retain"):
            con.execute("CREATE INDEX i ON v (a)")
        assert orders(con) == {}
        assert con.execute("FROM v").fetchall() == [(1,)]

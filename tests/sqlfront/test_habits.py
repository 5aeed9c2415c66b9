"""What a user of DuckDB's Python connection is used to."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sqlfront


@pytest.fixture
def con() -> Any:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a INTEGER, b VARCHAR); INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, sum(a) AS s FROM t GROUP BY b")
    return con


def test_a_connection_and_a_relation_are_iterable(con: Any) -> None:
    assert list(con.execute("SELECT a FROM t ORDER BY a")) == [(1,), (2,)]
    assert list(con.execute("SELECT s FROM v WHERE b = 'x'")) == [(1,)]
    assert [row for (row,) in con.sql("SELECT a FROM t ORDER BY a")] == [1, 2]


def test_append_inserts_by_position_or_by_name(con: Any) -> None:
    con.append("t", pa.table({"p": [3, 4], "q": ["x", "y"]}))
    con.append("main.t", pa.table({"b": ["z"], "a": [5]}), by_name=True)
    assert con.execute("SELECT * FROM v ORDER BY s, b").fetchall() == [(None, 2), ("x", 4), ("y", 4), ("z", 5)]
    con.execute("CREATE CHANGE TABLE c (a INTEGER); CREATE MATERIALIZED VIEW w AS SELECT sum(a) AS s FROM c")
    con.append("c", pa.table({"a": [1, 2, 3]}))
    assert con.execute("FROM w").fetchall() == [(6,)]
    con.execute("BEGIN")
    with pytest.raises(sqlfront.Error, match="Could not convert"):
        con.append("t", pa.table({"p": ["no"], "q": ["x"]}))
    con.execute("ROLLBACK")
    with pytest.raises(sqlfront.Error, match="nowhere"):
        con.append("nowhere", pa.table({"a": [1]}))


def test_numpy_and_polars(con: Any) -> None:
    for text in ("SELECT s FROM v WHERE b = 'x'", "SELECT sum(s)::BIGINT AS s FROM v WHERE s = 1"):
        assert con.execute(text).fetchnumpy()["s"].tolist() == [1]
        assert con.sql(text).fetchnumpy()["s"].tolist() == [1]
    assert sorted(con.execute("SUBSCRIBE TO v").fetchnumpy()["s"].tolist()) == [1, 2]
    if importlib.util.find_spec("polars") is None:
        with pytest.raises(sqlfront.InterfaceError, match=r"pl\(\) needs polars"):
            con.execute("FROM t").pl()
    else:
        assert con.execute("SELECT a FROM t ORDER BY a").pl()["a"].to_list() == [1, 2]


def test_read_only(tmp_path: Path) -> None:
    path = tmp_path / "file.duckdb"
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (7)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS s FROM t")
    with sqlfront.connect(path, read_only=True) as con:
        assert con.execute("FROM v").fetchall() == [(7,)]
        with pytest.raises(sqlfront.Error, match="read-only"):
            con.execute("INSERT INTO t VALUES (1)")


def test_a_function_of_the_user_declares_whether_it_is_deterministic(con: Any) -> None:
    con.create_function("twice", lambda a: 2 * a, ["BIGINT"], "BIGINT", deterministic=True)
    con.create_function("drawn", lambda a: a, ["BIGINT"], "BIGINT", deterministic=False)
    assert con.execute("SELECT twice(s::BIGINT) FROM v WHERE b = 'x'").fetchall() == [(2,)]
    con.execute("INSERT INTO t SELECT twice(a), b FROM t WHERE drawn(a) > 1")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    con.execute("CREATE TABLE empty (a BIGINT)")
    for name in ("twice", "drawn"):
        for query in ("SELECT {}(a) AS x", "SELECT a", "SELECT a, {}(count(*)) AS n"):
            tail = "GROUP BY a" if "count" in query else "WHERE {}(a) > 1"
            with pytest.raises(sqlfront.NotSupportedError, match=name):
                con.execute(f"CREATE MATERIALIZED VIEW w AS {query} FROM empty {tail}".replace("{}", name))
        con.remove_function(name)
    with pytest.raises(sqlfront.ProgrammingError, match="declare whether it is deterministic"):
        con.create_function("other", lambda a: a, ["BIGINT"], "BIGINT")
    assert con.query_progress() == -1.0

"""All rows of a view as an Arrow table, without DuckDB: what DuckDB would export, whatever has happened in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.output import output
from sqlfront.read import whole_views

ROWS = 200
EXPORTED = {
    "BOOLEAN": "i % 2 = 0", "TINYINT": "i % 100 - 50", "SMALLINT": "i - 100", "INTEGER": "-i", "BIGINT": "-2^62 + i",
    "UTINYINT": "i % 256", "USMALLINT": "i", "UINTEGER": "i", "UBIGINT": "18446744073709551615 - i::UBIGINT",
    "HUGEINT": "170141183460469231731687303715884105727::HUGEINT - i", "FLOAT": "i / 7", "DOUBLE": "-i / 7",
    "DECIMAL(4,1)": "i / 10", "DECIMAL(18,3)": "i * 1.5", "DECIMAL(38,2)": "10^33 * i", "VARCHAR": "'é' || i",
    "DATE": "DATE '1960-01-01' + i::INTEGER", "TIMESTAMP": "TIMESTAMP '1960-01-01' + i * INTERVAL 1 SECOND",
}  # fmt: skip
OTHERS = {
    "UHUGEINT": "i", "TIME": "TIME '10:00' + i * INTERVAL 1 SECOND", "TIMESTAMP_S": "TIMESTAMP '1960-01-01'",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ '1960-01-01 00:00:00+00'", "BLOB": "('b' || i)::BLOB",
    "UUID": "'00000000-0000-0000-0000-000000000001'", "INTERVAL": "i * INTERVAL 1 DAY", "ENUM('a', 'b')": "'b'",
    "DECIMAL(9,2)[]": "[i]", "STRUCT(a INTEGER)": "{'a': i}",
}  # fmt: skip


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    yield connection
    connection.close()


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each table of all rows was made without DuckDB."""
    found: list[bool] = []
    table = whole_views.WholeView.table

    def noted(whole: Any, session: Any) -> Any:
        made = table(whole, session)
        found.append(made is not None)
        return made

    monkeypatch.setattr(whole_views.WholeView, "table", noted)
    return found


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether tables have the same columns and, by their first one, the same rows."""
    first = expected.column_names[0]
    assert found.schema.equals(expected.schema, check_metadata=True)
    return bool(found.sort_by(first).combine_chunks().equals(expected.sort_by(first).combine_chunks()))


@pytest.mark.parametrize("kind", [*EXPORTED, *OTHERS])
def test_types_as_duckdb_exports_them(con: sqlfront.Connection, direct: list[bool], kind: str) -> None:
    """NULL is among the values; the types of `OTHERS` are left to DuckDB."""
    value = (EXPORTED | OTHERS)[kind]
    con.execute(f"CREATE TABLE t (i INTEGER, x {kind})")
    con.execute(f"INSERT INTO t SELECT i, CASE WHEN i % 9 <> 0 THEN {value} END FROM range({ROWS}) r(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT i, x FROM t")
    for columns in ("*", "i, x", "i AS n, X AS other, x"):
        expected = con.execute(f"SELECT {columns} FROM t").to_arrow_table()
        assert same(con.execute(f"SELECT {columns} FROM v").to_arrow_table(), expected)
        assert same(con.sql(f"SELECT {columns} FROM v").to_arrow_table(), expected)
    assert direct == [True] * 6 if kind in EXPORTED else not direct


QUERIES = {
    "sums": "SELECT i, sum(x) AS s, count(x) AS n, avg(x) AS a, sum(x * 1.5) AS d, min(x) AS m FROM t GROUP BY i",
    "joined": "SELECT t.i, t.x, u.y FROM t JOIN u USING (x)",
    "windows": "SELECT i, x, sum(x) OVER w AS s, avg(x) OVER w AS a, rank() OVER w AS r, lag(x, 2) OVER w AS l, "
    "percent_rank() OVER w AS p, max(x) OVER w AS m FROM t WINDOW w AS (PARTITION BY x % 3 ORDER BY i)",
    "counted": "SELECT x % 100 AS x, count(*) AS n FROM t GROUP BY ALL",
}
QUERIES |= {
    "having": "SELECT i, count(*) AS n FROM t GROUP BY i HAVING sum(x) > 5",
    "first": "SELECT i, x FROM t ORDER BY i LIMIT 150",
    "computed": "SELECT i, sum(x) + 1 AS s FROM t GROUP BY i",
    "constant": "SELECT i, x, TRUE AS b FROM t",
    "one": "SELECT 100.0 * sum(x) / sum(x + 1) AS share, count(*) > 5 AS many FROM t",
    "dates": "SELECT i, DATE '2020-01-01' + count(*)::INTEGER AS d, 'a' || sum(x) AS s FROM t GROUP BY i",
    "sorted": "SELECT i, sum(x) OVER (ORDER BY i) AS s FROM t ORDER BY s DESC, i LIMIT 4",
}


@pytest.mark.parametrize("query", [QUERIES["joined"], QUERIES["sums"], QUERIES["windows"], "SELECT i, x FROM t"])
def test_many_batches(con: sqlfront.Connection, direct: list[bool], query: str) -> None:
    """No batch shares its memory with the next one."""
    con.execute("CREATE TABLE t (i INTEGER, x BIGINT); CREATE TABLE u (x BIGINT, y VARCHAR)")
    con.execute("INSERT INTO t SELECT i, i % 1000 FROM range(5000) r(i)")
    con.execute("INSERT INTO u SELECT i, 'y' || i FROM range(1000) r(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert same(con.sql("SELECT * FROM v").to_arrow_table(), con.sql(query).to_arrow_table())
    assert direct == [True]


def fill(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE t (i INTEGER, x BIGINT); CREATE TABLE u (x BIGINT, y VARCHAR)")
    con.execute(f"INSERT INTO t SELECT i, CASE WHEN i % 7 <> 0 THEN i END FROM range({ROWS}) r(i)")
    con.execute("INSERT INTO u SELECT i, 'y' || i FROM range(150) r(i)")


@pytest.mark.parametrize("name", QUERIES)
def test_columns_that_are_computed(con: sqlfront.Connection, direct: list[bool], name: str) -> None:
    """Columns that the core has are read off it, others are computed from these."""
    fill(con)
    query = QUERIES[name]
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for change in ("INSERT INTO t VALUES (1000, 5), (1001, NULL)", "DELETE FROM t WHERE i % 4 = 0", "DELETE FROM t"):
        con.execute(change)
        assert same(con.sql("SELECT * FROM v").to_arrow_table(), con.sql(query).to_arrow_table())
    assert all(direct) and direct


def test_a_result_that_nobody_has_fetched_from(con: sqlfront.Connection, direct: list[bool]) -> None:
    """Each fetch gives what the query gives when it is fetched; the rest is empty after the whole."""
    fill(con)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT i, x FROM t")
    con.execute("SELECT * FROM t")
    described, rows = con.description, con.fetchall()
    other = con.cursor()
    for fetch in (
        lambda: con.fetchall(),
        lambda: list(con),
        lambda: con.fetchmany(1000),
        lambda: list(zip(*con.to_arrow_table().to_pydict().values(), strict=True)),
        lambda: list(zip(*con.to_arrow_reader().read_all().to_pydict().values(), strict=True)),
        lambda: [(i, None if pd.isna(x) else x) for i, x in con.df().itertuples(index=False)],
    ):
        con.execute("SELECT * FROM v")
        assert con.description == described
        other.execute("INSERT INTO t VALUES (500, 500)")
        assert sorted(fetch(), key=str) == sorted([*rows, (500, 500)], key=str)
        other.execute("DELETE FROM t WHERE i = 500")
        assert con.execute("SELECT * FROM v").fetchone() is not None
        assert con.to_arrow_table().num_rows == ROWS - 1
    con.execute("SELECT * FROM v").to_arrow_table()
    assert con.fetchall() == []
    assert con.description == described
    assert con.to_arrow_table().num_rows == 0
    assert direct == [True] * 2


def test_settings_of_the_export(con: sqlfront.Connection, direct: list[bool]) -> None:
    fill(con)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT i, sum(x) AS s FROM t GROUP BY i")
    for setting in ("arrow_lossless_conversion = true", "arrow_large_buffer_size = true"):
        con.execute(f"SET {setting}")
        expected = con.execute("SELECT i, sum(x) AS s FROM t GROUP BY i").to_arrow_table()
        assert same(con.execute("SELECT * FROM v").to_arrow_table(), expected)
        con.execute(f"RESET {setting.split()[0]}")
    assert direct == [False] * 2


def test_settings_of_the_session_that_has_made_the_view(con: sqlfront.Connection, direct: list[bool]) -> None:
    """What depends on them is computed under those of CREATE, whatever the reader's are."""
    fill(con)
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    query = "SELECT i, CAST(TIMESTAMPTZ '2020-01-01 00:00:00+00' + i * INTERVAL 1 DAY AS VARCHAR) AS t FROM t"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    expected = con.execute(query).to_arrow_table()
    con.execute("SET TimeZone = 'UTC'")
    assert same(con.execute("SELECT * FROM v").to_arrow_table(), expected)
    assert direct == [True]


def test_many_computed_rows_are_left_to_duckdb(con: sqlfront.Connection, direct: list[bool]) -> None:
    query = "SELECT i, sum(x) + 1 AS s FROM t GROUP BY i"
    fill(con)
    con.execute(f"INSERT INTO t SELECT i, i FROM range({whole_views._FEW + 1}) r(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for few in (False, True):
        assert same(con.execute("SELECT * FROM v").to_arrow_table(), con.execute(query).to_arrow_table())
        assert direct.pop() is few
        con.execute("DELETE FROM t WHERE i > 5")


def test_a_value_that_cannot_be_computed(con: sqlfront.Connection, direct: list[bool]) -> None:
    """The error is that of any other fetch."""
    fill(con)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT i, CAST(sum(x) AS TINYINT) AS s FROM t GROUP BY i")
    errors = []
    for fetch in ("fetchall", "to_arrow_table"):
        with pytest.raises(sqlfront.Error) as caught:
            getattr(con.execute("SELECT * FROM v"), fetch)()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert direct == [False]


def test_a_transaction_reads_its_epoch(con: sqlfront.Connection, direct: list[bool]) -> None:
    fill(con)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT i, x FROM t")
    con.execute("BEGIN")
    con.execute("SELECT * FROM v")
    con.cursor().execute("INSERT INTO t VALUES (500, 500)")
    assert con.to_arrow_table().num_rows == ROWS
    assert con.execute("SELECT * FROM v").to_arrow_table().num_rows == ROWS
    con.execute("COMMIT")
    assert not direct
    assert con.execute("SELECT * FROM v").to_arrow_table().num_rows == ROWS + 1


def test_a_view_that_is_another_one_by_the_time_of_the_fetch(con: sqlfront.Connection) -> None:
    fill(con)
    other = con.cursor()
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT i, x FROM t")
    con.execute("SELECT * FROM v")
    other.execute("DROP MATERIALIZED VIEW v; CREATE MATERIALIZED VIEW v AS SELECT x FROM t")
    assert con.to_arrow_table().column_names == ["x"]
    con.execute("SELECT * FROM v")
    other.execute("DROP MATERIALIZED VIEW v")
    with pytest.raises(sqlfront.Error, match="does not exist"):
        con.to_arrow_table()


@pytest.mark.parametrize("query", [
    "SELECT g, sum(h) AS s FROM t GROUP BY g",
    "SELECT g, h, sum(h) OVER (ORDER BY g) AS s FROM t",
])  # fmt: skip
def test_a_sum_beyond_its_type(con: sqlfront.Connection, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of any other fetch, also from another thread, and the next read has the rows."""
    monkeypatch.setattr(output, "_SHARED", 8)
    con.execute("SET sqlfront_threads = 3; CREATE TABLE t (g INTEGER, h HUGEINT)")
    con.execute("INSERT INTO t SELECT i, 1 FROM range(100) r(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    huge = "170141183460469231731687303715884105727"
    con.execute(f"INSERT INTO t VALUES (50, {huge})")
    errors = []
    for fetch in ("fetchall", "to_arrow_table"):
        with pytest.raises(sqlfront.DataError, match="beyond HUGEINT") as caught:
            getattr(con.execute("SELECT * FROM v"), fetch)()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    con.execute(f"DELETE FROM t WHERE h = {huge}")
    assert con.execute("SELECT * FROM v").to_arrow_table().num_rows == 100


def test_windows_on_several_threads(con: sqlfront.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with copies, partitions larger and smaller than a batch, and values computed of all rows at once."""
    monkeypatch.setattr(output, "_SHARED", 16)
    con.execute("SET sqlfront_threads = 4; CREATE TABLE t (g INTEGER, o INTEGER, x BIGINT, s VARCHAR)")
    con.execute("INSERT INTO t SELECT i % 5 * (i % 2), i, 1 + i % 3, 's' || i % 11 FROM range(700) r(i)")
    con.execute("INSERT INTO t SELECT g, o, x, s FROM t WHERE o % 3 = 0")
    query = (
        "SELECT g, o, x, s, sum(x) OVER w AS total, min(s) OVER w AS least, dense_rank() OVER w AS place FROM t "
        "WINDOW w AS (PARTITION BY g ORDER BY o)"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    expected = sorted(con.execute(query).fetchall())
    for _ in range(20):
        found = con.sql("SELECT * FROM v").to_arrow_table()
        assert sorted(zip(*found.to_pydict().values(), strict=True)) == expected


@pytest.mark.parametrize("read", ["rows", "relation", "arrow"])
def test_an_interrupt_of_the_connection_stops_the_read_of_a_relation(read: str) -> None:
    """It runs on a cursor of its own, which is not the connection's."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
        con.execute("INSERT INTO t FROM range(300_000)")
        query = "SELECT count(*) FROM v, range(1_000_000_000)"
        con.execute("CREATE VIEW endless AS " + query)
        reads: dict[str, Callable[[], object]] = {
            "rows": lambda: [con.view("v").rows() for _ in range(100)],
            "relation": lambda: con.sql(query).fetchall(),
            "arrow": lambda: con.sql("FROM endless").to_arrow_table(),
        }
        stopped = threading.Event()

        def interrupt() -> None:
            while not stopped.wait(0.2):  # Again: one that comes between two reads stops neither.
                con.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(sqlfront.OperationalError, match=r"(?i)interrupted"):
                reads[read]()
        finally:
            stopped.set()
            thread.join()
        assert con.running == [] and con.view("v").count() == 300_000 == len(con.view("v").rows())


def test_an_interrupt_stops_a_read_between_batches(
    con: sqlfront.Connection, direct: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE t (a BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    con.execute("INSERT INTO t FROM range(200_000)")
    exported, read = whole_views._exported, list[int]()

    def interrupting(array: pa.Array, kind: pa.DataType) -> pa.Array:
        read.append(len(array))
        con.interrupt()
        return exported(array, kind)

    with monkeypatch.context() as patched:
        patched.setattr(whole_views, "_exported", interrupting)
        with pytest.raises(sqlfront.OperationalError, match="interrupted"):
            con.execute("FROM v").to_arrow_table()
    assert len(read) == 1 and read[0] < 200_000
    assert con.execute("FROM v").to_arrow_table().num_rows == 200_000 and direct == [True]

"""Change tables and `apply`: what comes in, how it is netted, what is refused."""

from __future__ import annotations

import datetime
import decimal
from collections import namedtuple

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sqlfront


@pytest.fixture
def con():
    con = sqlfront.connect()
    yield con
    con.close()


@pytest.fixture(params=["retain = true", "retain = false", "ordinary"])
def fed(request, con):
    """A table k of one of the three kinds, and a view n over it that shows its rows."""
    columns = "(a BIGINT, b VARCHAR DEFAULT 'none')"
    if request.param == "ordinary":
        con.execute(f"CREATE TABLE k {columns}")
    else:
        con.execute(f"CREATE CHANGE TABLE k {columns} WITH ({request.param})")
    con.execute("CREATE MATERIALIZED VIEW n AS SELECT a, b, count(*) AS n FROM k GROUP BY a, b")
    return con


def rows(con, query="FROM n"):
    return sorted(con.execute(query).fetchall(), key=str)


def changes(*weighted, weight="_weight"):
    a, b, w = zip(*weighted, strict=True)
    return pa.table({"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.string()), weight: w})


def test_rows_are_netted_whatever_their_order(fed):
    epoch = fed.apply({"k": changes((1, "x", -2), (2, "y", 1), (1, "x", 3), (3, None, 1), (2, "y", -1))})
    assert rows(fed) == [(1, "x", 1), (3, None, 1)]
    assert epoch.rows == {"k": 2} and epoch.number >= 1
    assert fed.apply({"k": changes((3, None, -1), (1, "x", -1))}).number > epoch.number
    assert rows(fed) == []


def test_n_copies_are_deleted_and_no_more(fed):
    fed.apply({"k": changes((1, "x", 5), (None, None, 3))})
    fed.apply({"k": changes((1, "x", -2), (None, None, -1))})
    assert rows(fed) == [(1, "x", 3), (None, None, 2)]
    with pytest.raises(sqlfront.IntegrityError, match=r"deleted more often(.|\n)*= 1(.|\n)*'x'"):
        fed.apply({"k": changes((1, "x", -4), (7, "new", 1))})
    assert rows(fed) == [(1, "x", 3), (None, None, 2)]


def test_change_types(fed):
    fed.apply({"k": changes((1, "x", "insert"), (2, "y", "insert"), weight="_change_type")})
    images = ((2, "z", "update_postimage"), (2, "y", "update_preimage"), (1, "x", "delete"))
    fed.apply({"k": changes(*images, weight="_change_type")})
    assert rows(fed) == [(2, "z", 1)]


BAD = {
    "both control columns": (pa.table({"a": [1], "b": ["x"], "_weight": [1], "_change_type": ["insert"]}), "both"),
    "a NULL weight": (pa.table({"a": [1], "b": ["x"], "_weight": pa.array([None], pa.int64())}), "NULL"),
    "a fractional weight": (pa.table({"a": [1], "b": ["x"], "_weight": [0.5]}), "double"),
    "an unknown change type": (pa.table({"a": [1], "b": ["x"], "_change_type": ["upsert"]}), "upsert"),
    "a NULL change type": (pa.table({"a": [1], "b": ["x"], "_change_type": pa.array([None], pa.string())}), "None"),
    "an extra column": (pa.table({"a": [1], "b": ["x"], "z": [1]}), "no column z"),
    "a missing column without default": (pa.table({"b": ["x"]}), "miss column a"),
    "a doubled column": (pa.table([[1], [2], ["x"]], names=["a", "A", "b"]), "two columns"),
    "a value of no use": (pa.table({"a": ["one"], "b": ["x"]}), "not fit"),
    "a value out of range": (pa.table({"a": [1e30], "b": ["x"]}), "not fit"),
    "no Arrow data": ([(1, "x")], "Arrow"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_changes_are_refused_and_change_nothing(fed, what):
    fed.apply({"k": changes((1, "x", 1))})
    data, words = BAD[what]
    with pytest.raises(sqlfront.Error, match=words):
        fed.apply({"k": data})
    assert rows(fed) == [(1, "x", 1)]


def test_a_missing_column_takes_its_default(fed):
    fed.apply({"k": pa.table({"A": [1, 2], "_weight": [1, 2]})})
    assert rows(fed) == [(1, "none", 1), (2, "none", 2)]
    fed.apply({"k": pa.table({"a": [2], "_weight": [-1]})})
    assert rows(fed) == [(1, "none", 1), (2, "none", 1)]


def test_values_are_cast_as_an_insert_casts(con):
    types = "v VARCHAR, d DATE, i INTEGER, m DECIMAL(6, 2), t TIMESTAMP"
    con.execute(f"CREATE TABLE o ({types})")
    con.execute(f"CREATE CHANGE TABLE c ({types})")
    con.execute("CREATE MATERIALIZED VIEW vo AS SELECT v, d, i, m, t FROM o")
    con.execute("CREATE MATERIALIZED VIEW vc AS SELECT v, d, i, m, t FROM c")
    data = pa.table({"v": [7], "d": ["2024-02-29"], "i": ["12"], "m": [1.5], "t": ["2024-01-01 10:00"]})
    con.apply({"o": data, "c": data})
    expected = ("7", datetime.date(2024, 2, 29), 12, decimal.Decimal("1.50"), datetime.datetime(2024, 1, 1, 10))
    assert rows(con, "FROM vo") == rows(con, "FROM vc") == rows(con, "FROM c") == [expected]
    for column, value in (("d", "2023-02-29"), ("i", 2**31), ("m", 100000.0)):
        bad = data.set_column(data.schema.get_field_index(column), column, pa.array([value]))
        for table in ("o", "c"):
            with pytest.raises(sqlfront.DataError):
                con.apply({table: bad})
    assert rows(con, "FROM vo") == rows(con, "FROM vc") == [expected]


def test_names_are_identifiers(con):
    con.execute("CREATE SCHEMA s")
    con.execute('CREATE CHANGE TABLE s."Odd name" ("Key one" BIGINT)')
    con.execute('CREATE MATERIALIZED VIEW n AS SELECT "Key one" FROM s."Odd name"')
    for number, name in enumerate(('s."Odd name"', 'S."odd NAME"', '"s"."Odd name"')):
        con.apply({name: pa.table({"KEY ONE": [number]})})
        con.apply_row(name, (number + 10,))
    assert rows(con) == [(0,), (1,), (10,), (11,), (12,), (2,)]
    for name in ("nosuch", "s.nosuch", "a b", "", "n"):
        with pytest.raises(sqlfront.ProgrammingError):
            con.apply({name: pa.table({"Key one": [1]})})
        with pytest.raises(sqlfront.ProgrammingError):
            con.apply_row(name, (1,))
    with pytest.raises(sqlfront.ProgrammingError, match="one table"):
        con.apply({'s."Odd name"': pa.table({"Key one": [1]}), 'S."ODD NAME"': pa.table({"Key one": [1]})})
    assert len(rows(con)) == 6


def test_sources(fed):
    table = pa.table({"a": pa.array([1], pa.int64()), "b": ["x"]})
    batch = table.to_batches()[0]
    frame = pd.DataFrame({"a": [1], "b": ["x"]})
    relation = duckdb.sql("SELECT 1::BIGINT AS a, 'x' AS b")
    reader = pa.RecordBatchReader.from_batches(table.schema, [batch, batch])
    for source in (table, batch, frame, relation, reader):
        fed.apply({"k": source})
    assert rows(fed) == [(1, "x", 6)]
    fed.apply({"k": table.slice(0, 0)})
    assert rows(fed) == [(1, "x", 6)]


def test_single_rows(fed):
    first = fed.apply_row("k", (1, "x"))
    assert fed.apply_row("k", (1, None), weight=2) > first
    fed.apply_row("k", (1, "x"), weight=-1)
    assert rows(fed) == [(1, None, 2)]
    for row, weight in (((1,), 1), ((1, "x", 2), 1), (("one", "x"), 1), ((2**63, "x"), 1), ((1, "x"), 0.5)):
        with pytest.raises(sqlfront.DataError):
            fed.apply_row("k", row, weight=weight)
    with pytest.raises(sqlfront.IntegrityError, match="more often"):
        fed.apply_row("k", (1, "absent"), weight=-1)
    assert rows(fed) == [(1, None, 2)]


@pytest.mark.parametrize("types", [("BIGINT", "BIGINT"), ("BIGINT", "VARCHAR")])
def test_a_row_is_a_sequence_of_values(con, types):
    """Whether it goes the short way or not: the first row opens that."""
    con.execute(f"CREATE CHANGE TABLE k (a {types[0]}, b {types[1]}); CREATE MATERIALIZED VIEW v AS SELECT a, b FROM k")
    second = 2 if types[1] == "BIGINT" else "2"
    for _ in range(2):
        for row in ({1: 3, 2: 4}, {1, 2}, "12", b"12", 12, None, iter((1, 2))):
            with pytest.raises(sqlfront.DataError, match="is no row of k"):
                con.apply_row("k", row)
        con.apply_row("k", (1, second))
    con.apply_row("k", [np.int64(1), second])
    con.apply_row("k", namedtuple("Row", "a b")(True, second))
    con.apply_row("k", np.array([1, 2]))
    with pytest.raises(sqlfront.DataError):
        con.apply_row("k", (np.array([1, 2]), second))
    assert con.execute("FROM v").fetchall() == [(1, second)] * 5


def test_ordinary_and_change_tables_in_one_epoch(con):
    con.execute("CREATE TABLE o (a BIGINT PRIMARY KEY, x INTEGER)")
    con.execute("CREATE CHANGE TABLE c (a BIGINT, y INTEGER)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT x, sum(y) AS s FROM o JOIN c ON o.a = c.a GROUP BY x")
    epoch = con.apply({"o": pa.table({"a": [1, 2], "x": [5, 6]}), "c": pa.table({"a": [1, 2], "y": [10, 20]})})
    assert rows(con, "FROM v") == [(5, 10), (6, 20)] and epoch.rows == {"o": 2, "c": 2}
    assert set(epoch.steps) == {"v"} and 0 < sum(epoch.view_seconds.values()) < epoch.seconds
    for bad in ({"a": [9], "y": [1], "_weight": [-1]}, {"a": ["z"], "y": [1]}):
        with pytest.raises(sqlfront.Error):
            con.apply({"o": pa.table({"a": [3], "x": [7]}), "c": pa.table(bad)})
    with pytest.raises(sqlfront.IntegrityError, match=r"(?i)duplicate key"):
        con.apply({"c": pa.table({"a": [1], "y": [1]}), "o": pa.table({"a": [1], "x": [9]})})
    assert rows(con, "FROM v") == [(5, 10), (6, 20)] and rows(con, "FROM o") == [(1, 5), (2, 6)]
    con.apply({"o": pa.table({"a": [1, 1], "x": [5, 50], "_weight": [-1, 1]})})
    assert rows(con, "FROM v") == [(50, 10), (6, 20)]


def test_a_transaction_takes_changes_and_a_refused_batch_leaves_it_as_it_was(fed):
    fed.apply({"k": changes((1, "x", 1))})
    fed.execute("BEGIN")
    assert fed.apply({"k": changes((2, "y", 1), (1, "x", -1))}) is None
    assert fed.apply_row("k", (3, "z")) is None
    assert rows(fed) == [(2, "y", 1), (3, "z", 1)]
    with pytest.raises(sqlfront.ProgrammingError):
        fed.apply({"k": pa.table({"nosuch": [1]})})
    assert rows(fed) == [(2, "y", 1), (3, "z", 1)]
    fed.execute("ROLLBACK")
    assert rows(fed) == [(1, "x", 1)]
    fed.begin()
    fed.apply({"k": changes((2, "y", 1))})
    fed.commit()
    assert rows(fed) == [(1, "x", 1), (2, "y", 1)]


def test_not_null_defaults_and_keys(con):
    con.execute("CREATE CHANGE TABLE c (a BIGINT PRIMARY KEY, b INTEGER NOT NULL DEFAULT 3, d VARCHAR)")
    con.execute("CREATE MATERIALIZED VIEW n AS SELECT a, b, d FROM c")
    con.execute("INSERT INTO c (a) VALUES (1)")
    con.execute("INSERT INTO c VALUES (2, 4, 'x')")
    con.apply({"c": pa.table({"a": [5], "d": ["y"]})})
    for data in (
        {"a": pa.array([None], pa.int64()), "d": ["x"]},
        {"a": [1], "b": pa.array([None], pa.int32()), "d": ["x"]},
    ):
        with pytest.raises(sqlfront.IntegrityError, match="NOT NULL"):
            con.apply({"c": pa.table(data)})
    with pytest.raises(sqlfront.IntegrityError):
        con.apply_row("c", (1, None, "x"))
    with pytest.raises(sqlfront.IntegrityError):
        con.execute("INSERT INTO c VALUES (7, NULL, 'x')")
    assert rows(con) == rows(con, "FROM c") == [(1, 3, None), (2, 4, "x"), (5, 3, "y")]


def test_statements_on_a_table_that_keeps_its_rows(con):
    con.execute("CREATE CHANGE TABLE c (a BIGINT, b VARCHAR)")
    con.execute("CREATE MATERIALIZED VIEW n AS SELECT b, count(*) AS n FROM c GROUP BY b")
    con.executemany("INSERT INTO c VALUES (?, ?)", [(1, "x"), (1, "x"), (2, "y")])
    con.execute("UPDATE c SET b = 'z' WHERE a = 2")
    con.execute("DELETE FROM c WHERE a = 1")
    con.execute("INSERT INTO c SELECT a + 1, b FROM c")
    assert rows(con) == [("z", 2)] and rows(con, "FROM c") == [(2, "z"), (3, "z")]
    con.execute("CREATE MATERIALIZED VIEW late AS SELECT a FROM c")
    assert rows(con, "FROM late") == [(2,), (3,)]
    assert con.execute("CHECK MATERIALIZED VIEW n").fetchall() == []
    con.execute("REFRESH MATERIALIZED VIEW n")
    con.execute("TRUNCATE c")
    assert rows(con) == rows(con, "FROM late") == rows(con, "FROM c") == []


def test_a_table_that_keeps_no_rows_refuses_what_would_need_them(con):
    con.execute("CREATE CHANGE TABLE c (a BIGINT, b VARCHAR) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW n AS SELECT b, count(*) AS n FROM c GROUP BY b")
    con.execute("INSERT INTO c VALUES (1, 'x')")
    for statement in (
        "UPDATE c SET b = 'z'",
        "DELETE FROM c",
        "TRUNCATE c",
        "FROM c",
        "CREATE MATERIALIZED VIEW late AS SELECT a FROM c",
        "CHECK MATERIALIZED VIEW n",
        "REFRESH MATERIALIZED VIEW n",
    ):
        with pytest.raises(sqlfront.ProgrammingError, match="retain"):
            con.execute(statement)
    assert rows(con) == [("x", 1)]


REFUSED = {
    "CREATE CHANGE TABLE x (a BIGINT) WITH (durable = true)": "no file to keep it in",
    "CREATE CHANGE TABLE x (a BIGINT) WITH (nosuch = 1)": "its options: durable, retain",
    "CREATE CHANGE TABLE x (a BIGINT) WITH (retain = 7)": "takes a bool",
    "CREATE CHANGE TABLE x (a BIGINT) FROM spark OPTIONS (path = 'p')": "has no option 'path'",
    "CREATE CHANGE TABLE x (a NOSUCH)": "NOSUCH",
    "CREATE CHANGE TABLE x (a BIGINT DEFAULT nosuch())": "nosuch",
    "CREATE CHANGE TABLE x (a BIGINT, PRIMARY KEY (b))": "b",
    "CREATE CHANGE TABLE c (a BIGINT)": "exists already",
    "CREATE CHANGE TABLE o (a BIGINT)": "a table named o",
    "CREATE OR REPLACE CHANGE TABLE c (z BIGINT)": "read the table: n",
    "CREATE OR REPLACE CHANGE TABLE c (z NOSUCH)": "NOSUCH",
    "DROP CHANGE TABLE c": "read the table: n",
    "DROP CHANGE TABLE nosuch": "no change table",
    "DROP TABLE c": "change table",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_refused_definitions_change_nothing(con, statement):
    con.execute("CREATE TABLE o (a BIGINT)")
    con.execute("CREATE CHANGE TABLE c (a BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW n AS SELECT a FROM c")
    before = con.execute("SHOW CHANGE TABLES").fetchall()
    with pytest.raises(sqlfront.Error, match=REFUSED[statement]):
        con.execute(statement)
    assert con.execute("SHOW CHANGE TABLES").fetchall() == before == [("c", "a BIGINT", True, False, 0, "ready")]
    con.apply_row("c", (1,))
    assert rows(con) == [(1,)]


def test_definitions(con):
    con.execute("CREATE CHANGE TABLE IF NOT EXISTS c (a BIGINT)")
    con.execute("CREATE CHANGE TABLE IF NOT EXISTS c (zzz BIGINT)")
    con.apply_row("c", (1,))
    con.execute("CREATE OR REPLACE CHANGE TABLE c (a BIGINT, b VARCHAR)")
    con.apply_row("c", (2, "x"))
    assert rows(con, "FROM c") == [(2, "x")]
    con.execute("CREATE MATERIALIZED VIEW n AS SELECT b FROM c")
    con.execute("DROP CHANGE TABLE c CASCADE")
    con.execute("DROP CHANGE TABLE IF EXISTS c")
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == con.execute("SHOW CHANGE TABLES").fetchall() == []
    with pytest.raises(sqlfront.ProgrammingError):
        con.apply_row("c", (1, "x"))


def test_the_short_way_in_follows_the_search_path() -> None:
    con = sqlfront.connect()
    con.execute("CREATE SCHEMA other; CREATE CHANGE TABLE t (a BIGINT); CREATE CHANGE TABLE other.t (a BIGINT)")
    for _ in range(2):
        con.apply({"t": pa.record_batch({"a": pa.array([1], pa.int64())})})
        con.apply_row("t", (2,))
    con.execute("USE other")
    con.apply({"t": pa.record_batch({"a": pa.array([3], pa.int64())})})
    con.apply_row("t", (4,))
    assert con.execute("SELECT a FROM main.t ORDER BY a").fetchall() == [(1,), (1,), (2,), (2,)]
    assert con.execute("SELECT a FROM other.t ORDER BY a").fetchall() == [(3,), (4,)]
    con.close()


@pytest.mark.parametrize("way", ["row", "batch"])
def test_the_short_way_in_ends_with_its_reasons(way) -> None:
    con = sqlfront.connect()
    other = con.cursor()

    def add(value: int) -> None:
        if way == "row":
            con.apply_row("t", (value,))
        else:
            con.apply({"t": pa.record_batch({"a": pa.array([value], pa.int64())})})

    con.execute("CREATE CHANGE TABLE t (a BIGINT); CREATE MATERIALIZED VIEW n AS SELECT a FROM t")
    add(1)
    add(2)
    con.execute("BEGIN")
    add(3)
    assert other.execute("SELECT count(*) FROM n").fetchall() == [(2,)]
    con.execute("ROLLBACK")
    add(4)
    add(5)
    other.execute("DROP CHANGE TABLE t CASCADE; CREATE CHANGE TABLE t (a BIGINT)")
    add(6)
    add(7)
    assert other.execute("SELECT a FROM t ORDER BY a").fetchall() == [(6,), (7,)]
    con.close()
    with pytest.raises(sqlfront.InterfaceError, match="closed"):
        add(8)
    assert other.execute("SELECT a FROM t ORDER BY a").fetchall() == [(6,), (7,)]
    other.close()

"""Change sources by themselves: shapes of changes, versions, files, what is pushed down, and what is refused."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

import sqlfront
from sqlfront.feeds.table_sources import news
from sqlfront.storage.outside.change_shapes import Wanted, shape_of, signed_rows
from sqlfront.storage.outside.sources import DUCKDB, ChangeSource, DuckDBSource, FileSource
from sqlfront.storage.outside.spark_source import SPARK, spark_conditions

COLUMNS = (("a", "BIGINT"), ("s", "VARCHAR"))


def rows(con, relation, shape, wanted=None):
    sql = signed_rows(relation, shape, wanted or Wanted(COLUMNS), DUCKDB)
    return sorted(con.execute(sql).fetchall(), key=repr)


@pytest.fixture
def duck():
    with duckdb.connect() as con:
        yield con


def test_each_shape_is_read_as_signed_rows(duck):
    duck.execute(
        "CREATE TABLE weights AS FROM (VALUES (1, 'x', 2), (1, 'x', -1), (2, NULL, 1), (2, NULL, -1)) t(a, s, _weight)"
    )
    assert rows(duck, "weights", "weight") == [(1, "x", 1)]
    duck.execute(
        "CREATE TABLE kinds AS FROM (VALUES (1, 'x', 'insert'), (1, 'x', 'update_preimage'), "
        "(1, 'y', 'update_postimage'), (2, 'z', 'delete')) t(a, s, _change_type)"
    )
    assert rows(duck, "kinds", "change_type") == [(1, "y", 1), (2, "z", -1)]
    duck.execute(
        "CREATE TABLE envelopes AS FROM (VALUES ('c', NULL, {a: 1, s: 'x'}), ('u', {a: 1, s: 'x'}, {a: 1, s: 'y'}), "
        "('d', {a: 3, s: 'q'}, NULL), ('r', NULL, {a: 4, s: NULL}), (NULL, NULL, NULL)) t(op, before, after)"
    )
    assert rows(duck, "envelopes", "debezium") == [(1, "y", 1), (3, "q", -1), (4, None, 1)]
    assert rows(duck, "(VALUES (1, 'x'), (1, 'x')) AS t(a, s)", "plain") == [(1, "x", 2)]


@pytest.mark.parametrize(("query", "shape", "what"), [
    ("SELECT 1 AS a, 'x' AS s, 'truncate' AS _change_type", "change_type", "_change_type is not known: truncate"),
    ("SELECT 1 AS a, 'x' AS s, NULL::INTEGER AS _weight", "weight", "_weight is not known: NULL"),
    ("SELECT 't' AS op, {a: 1, s: ''} AS before, {a: 1, s: ''} AS after", "debezium", "op is not known: t"),
])  # fmt: skip
def test_what_a_shape_does_not_have_fails(duck, query, shape, what):
    with pytest.raises(duckdb.Error, match=rf"(?s){what}\nWhy: .*\nTry: "):
        rows(duck, f"({query})", shape)


def test_only_what_is_read_is_selected_and_netted(duck):
    duck.execute("CREATE TABLE t AS FROM (VALUES (1, 'x', 1), (1, 'y', 1), (5, 'z', 1)) t(a, s, _weight)")
    wanted = Wanted(COLUMNS, frozenset({"a"}), ("a < 3", "a = 4"))
    assert rows(duck, "t", "weight", wanted) == [(1, 2)]
    assert rows(duck, "t", "weight", Wanted(COLUMNS, frozenset())) == [(3,)]


def test_rows_repeat_where_columns_are_left_out_and_no_key_is_read():
    keys = (frozenset({"a"}),)
    assert not Wanted(COLUMNS).repeats
    assert not Wanted(COLUMNS, frozenset({"a", "s"})).repeats
    assert Wanted(COLUMNS, frozenset({"a"})).repeats and Wanted(COLUMNS, frozenset()).repeats
    assert not Wanted(COLUMNS, frozenset({"a"}), None, keys).repeats
    assert Wanted(COLUMNS, frozenset({"s"}), None, keys).repeats


def test_shapes_go_by_the_columns():
    wanted = Wanted(COLUMNS)
    assert shape_of("auto", ["A", "s"], wanted) == "plain"
    assert shape_of("auto", ["a", "s", "_weight"], wanted) == "weight"
    assert shape_of("auto", ["a", "s", "_CHANGE_TYPE", "_commit_version"], wanted) == "change_type"
    assert shape_of("auto", ["op", "before", "after", "ts_ms"], wanted) == "debezium"
    assert shape_of("auto", ["a", "s", "op", "before", "after"], Wanted((*COLUMNS, ("op", "VARCHAR")))) == "plain"
    for shape, columns, what in [
        ("weight", ["a", "s"], "no column _weight"),
        ("auto", ["a"], "no column s"),
        ("csv", ["a"], "no shape 'csv'"),
    ]:
        with pytest.raises(sqlfront.ProgrammingError, match=what):
            shape_of(shape, columns, wanted)


def test_versions_are_taken_once(duck):
    duck.execute("CREATE TABLE feed (a BIGINT, s VARCHAR, v VARCHAR)")
    duck.execute("INSERT INTO feed VALUES (1, 'x', '001'), (2, 'y', '002'), (9, 'never', NULL)")
    source = DuckDBSource("feed", duck.cursor, "feed", version="V")
    assert isinstance(source, ChangeSource)
    [(first, at)] = source.read(None, Wanted(COLUMNS))
    assert (first.num_rows, at) == (2, "002")
    assert list(source.read(at, Wanted(COLUMNS))) == []
    duck.execute("INSERT INTO feed VALUES (3, 'z', '003')")
    [(second, at)] = source.read(at, Wanted(COLUMNS))
    assert (second.column("a").to_pylist(), at) == ([3], "003")
    with pytest.raises(sqlfront.ProgrammingError, match="no column nosuch"):
        list(DuckDBSource("feed", duck.cursor, "feed", version="nosuch").read(None, Wanted(COLUMNS)))


def test_files_are_taken_once(tmp_path):
    source = FileSource("files", "csv", str(tmp_path / "*.csv"))
    with pytest.raises(sqlfront.OperationalError, match="no file matches"):
        list(source.read(None, Wanted(COLUMNS)))
    (tmp_path / "it's one.csv").write_text("s,a\nx,1\n")
    [(first, at)] = source.read(None, Wanted(COLUMNS))
    assert first.to_pylist() == [{"a": 1, "s": "x", "_weight": 1}]
    assert list(source.read(at, Wanted(COLUMNS))) == []
    (tmp_path / "2.csv").write_text("a,s\n2,y\n")
    [(second, at)] = source.read(at, Wanted(COLUMNS))
    assert second.column("a").to_pylist() == [2] and len(at) == 2


def test_conditions_go_to_spark_only_if_they_mean_the_same():
    types = {"a": "bigint", "S": "string"}
    same = ["a > 1", "s IN ('x', 'it''s')", "(a = 1) OR (s IS NOT NULL)", "a BETWEEN 1 AND 9"]
    for text in same:
        assert spark_conditions(Wanted(COLUMNS, None, (text,)), types) is not None, text
    for text in ["a / 2 > 1", "s LIKE 'x%'", "lower(s) = 'x'", "a = s", "b = 1", "CAST(a AS VARCHAR) = '1'"]:
        assert spark_conditions(Wanted((*COLUMNS, ("b", "BIGINT")), None, (text,)), types) is None, text
    assert spark_conditions(Wanted(COLUMNS, None, ("a > 1",)), {"a": "double", "s": "string"}) is None
    assert spark_conditions(Wanted(COLUMNS, None, ("a > 1", "s || 'x' = 'yx'")), types) is None
    assert SPARK.quote("a`b") == "`a``b`"


def test_sources_of_sql_are_checked():
    with sqlfront.connect() as con:
        for source, what in [
            ("kafka OPTIONS (topic = 'x')", "no source 'kafka'"),
            ("parquet OPTIONS (table = 'x')", "has no option 'table'"),
            ("duckdb OPTIONS (file = 'x')", "needs the option 'table'"),
            ("duckdb OPTIONS (table = 3)", "is a string"),
        ]:
            with pytest.raises(sqlfront.ProgrammingError, match=what):
                con.execute(f"CREATE CHANGE TABLE t (a BIGINT) FROM {source}")
        con.execute("CREATE CHANGE TABLE t (a BIGINT)")
        with pytest.raises(sqlfront.ProgrammingError, match="has no source"):
            con.execute("REFRESH CHANGE TABLE t")
        with pytest.raises(sqlfront.ProgrammingError, match="no change table nosuch"):
            con.execute("REFRESH CHANGE TABLE nosuch")
        with pytest.raises(sqlfront.InterfaceError, match="a str is no source"):
            con.register_changes("t", "orders.parquet")
        con.execute("BEGIN")
        with pytest.raises(sqlfront.ProgrammingError, match="inside a transaction"):
            con.execute("REFRESH CHANGE TABLE t")
        con.execute("ROLLBACK")
        con.execute("CREATE CHANGE TABLE u (a BIGINT) FROM spark OPTIONS (table = 'feed')")
        with pytest.raises(sqlfront.OperationalError, match="no Spark session"):
            con.execute("REFRESH CHANGE TABLE u")


def test_a_refused_batch_leaves_the_offset(tmp_path):
    with sqlfront.connect(str(tmp_path / "fed.duckdb")) as con:
        con.execute("CREATE TABLE feed (a BIGINT, _weight BIGINT, _commit_version BIGINT)")
        con.execute("INSERT INTO feed VALUES (1, 1, 1), (2, -1, 2)")
        con.execute("CREATE CHANGE TABLE t (a BIGINT) FROM duckdb OPTIONS (table = 'feed')")
        with pytest.raises(sqlfront.IntegrityError, match="deleted more often"):
            con.execute("REFRESH CHANGE TABLE t")
        assert con.execute("FROM t").fetchall() == [] and con.session.database.offsets == {}
        con.execute("UPDATE feed SET _weight = 1")
        con.execute("REFRESH CHANGE TABLE t")
        assert sorted(con.execute("FROM t").fetchall()) == [(1,), (2,)]


def test_another_file_is_a_source(tmp_path):
    with duckdb.connect(str(tmp_path / "other.duckdb")) as other:
        other.execute("CREATE TABLE feed AS SELECT i AS a, i AS _commit_version FROM range(3) r(i)")
    with sqlfront.connect() as con:
        con.execute(
            "CREATE CHANGE TABLE t (a BIGINT) FROM duckdb "
            f"OPTIONS (table = 'feed', file = '{tmp_path / 'other.duckdb'}')"
        )
        con.execute("REFRESH CHANGE TABLE t")
        assert sorted(con.execute("FROM t").fetchall()) == [(0,), (1,), (2,)]


def test_a_source_of_ones_own():
    class Counter:
        name = "counter"

        def read(self, after, wanted):
            start = after or 0
            yield pa.table({"a": [start, start + 1]}), start + 2

    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT)")
        con.register_changes("t", Counter())
        con.execute("REFRESH CHANGE TABLE t")
        assert sorted(con.execute("FROM t").fetchall()) == [(0,), (1,), (2,), (3,)]


def test_tables_refreshed_together_are_one_epoch(tmp_path):
    pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "1.parquet")
    with sqlfront.connect() as con:
        for name in ("t", "u"):
            con.execute(f"CREATE CHANGE TABLE {name} (a BIGINT) FROM parquet OPTIONS (path = '{tmp_path}/*.parquet')")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT t.a FROM t JOIN u ON t.a = u.a")
        before = con.session.database.engine.epoch
        con.execute("REFRESH CHANGE TABLE t, u")
        assert con.session.database.engine.epoch == before + 1
        assert sorted(con.execute("FROM v").fetchall()) == [(1,), (2,)]


def test_triggers_in_another_file_see_all_its_clients(tmp_path):
    path, fed = str(tmp_path / "other.duckdb"), str(tmp_path / "fed.duckdb")

    def client(*statements):
        with duckdb.connect(path) as other:
            for statement in statements:
                other.execute(statement)

    def take():
        with sqlfront.connect(fed) as con:
            con.execute("REFRESH CHANGE TABLE t")
            return sorted(con.execute("FROM t").fetchall(), key=repr)

    client("CREATE TABLE t (a BIGINT, s VARCHAR)", "INSERT INTO t VALUES (1, 'x'), (1, 'x')")
    with sqlfront.connect(fed) as con:
        con.execute(f"CREATE CHANGE TABLE t (a BIGINT, s VARCHAR) FROM triggers OPTIONS (table = 't', file = '{path}')")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
    assert take() == [(1, "x"), (1, "x")] == take()
    client("INSERT INTO t VALUES (2, NULL)", "UPDATE t SET s = 'y' WHERE a = 1", "BEGIN", "DELETE FROM t", "ROLLBACK")
    assert take() == [(1, "y"), (1, "y"), (2, None)] == take()
    client("DELETE FROM t WHERE a = 1")
    with sqlfront.connect(fed) as con:  # A reader that dies after it has read: the same batch comes again.
        table = con.session.database.change_tables["main", "t"]
        assert [rows.num_rows for rows, _ in news(con.session.database, table)] == [1]
    client("TRUNCATE t", "INSERT INTO t VALUES (7, 'z')")
    assert take() == [(2, None)]
    assert take() == [(7, "z")] == take()
    client("DROP TRIGGER __sqlfront_source_insert ON t")
    with pytest.raises(sqlfront.OperationalError, match="may have been missed"):
        take()


def test_a_second_stream_of_tables_needs_a_name():
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE given (a BIGINT)")
        con.register_changes("given", [pa.table({"a": [1]})])
        with pytest.raises(sqlfront.ProgrammingError, match=r"name='\.\.\.'"):
            con.register_changes("given", [pa.table({"a": [2]})])
        con.register_changes("given", [pa.table({"a": [2]})], name="second")
        assert con.execute("SELECT a FROM given ORDER BY a").fetchall() == [(1,), (2,)]

"""Maintained views read from Spark: as tables, point by point, and as streams of changes; and Spark's dialect."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import sqlfront
import sqlfront.spark


@pytest.fixture(scope="module")
def con(spark, tmp_path_factory):
    con = sqlfront.connect(str(tmp_path_factory.mktemp("served") / "served.duckdb"))
    con.execute("CREATE CHANGE TABLE t (a BIGINT, s VARCHAR, d DATE, u UUID, x DOUBLE, h HUGEINT)")
    con.execute("CREATE MATERIALIZED VIEW totals AS SELECT s, sum(a) AS total, count(*) AS n FROM t GROUP BY s")
    con.execute("CREATE MATERIALIZED VIEW everything AS SELECT a, s, d, u, x, h FROM t")
    con.execute(
        "INSERT INTO t SELECT i, 's' || (i % 3), DATE '2024-01-01' + i::INTEGER, "
        "('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))::UUID, i / 4, i * 10::HUGEINT FROM range(200) r(i)"
    )
    con.execute("INSERT INTO t VALUES (NULL, NULL, NULL, NULL, NULL, NULL), (1, 's1', NULL, NULL, 'NaN', -1)")
    sqlfront.spark.register(spark, con)
    yield con
    sqlfront.spark.unregister(con)
    con.close()


@pytest.fixture(scope="module")
def whole(spark, con):
    """The rows of the view `everything` in Spark itself."""
    frame = load(spark, "everything")
    return spark.createDataFrame(frame.collect(), frame.schema)


def load(spark, view, **options):
    return spark.read.format("sqlfront").options(view=view, **options).load()


def same(frame, con, query):
    expected = Counter(map(repr, con.execute(query).fetchall()))
    assert Counter(repr(tuple(row)) for row in frame.collect()) == expected


def test_views_are_tables_of_spark(spark, con):
    same(spark.sql("SELECT s, total, n FROM totals"), con, "SELECT s, total::DECIMAL(38, 0), n FROM totals")
    same(
        spark.sql("SELECT * FROM everything"),
        con,
        "SELECT a, s, d, u::VARCHAR, x, h::DECIMAL(38, 0) FROM everything",
    )
    assert dict(spark.table("everything").dtypes) == {
        "a": "bigint", "s": "string", "d": "date", "u": "string", "x": "double", "h": "decimal(38,0)",
    }  # fmt: skip
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW named USING sqlfront OPTIONS (view 'totals')")
    [row] = spark.sql("SELECT sum(n) AS n FROM named JOIN VALUES ('s1'), ('s2') AS k(s) USING (s)").collect()
    assert row.n == 134


@pytest.mark.parametrize("where", [
    "a = 3", "a <=> NULL", "a IN (1, 2, 999)", "s > 's1'", "s <> 's1'", "a IS NULL", "a IS NOT NULL AND a < 5",
    "u = '00000000-0000-0000-0000-000000000007'", "u = 'nonsense'", "d >= DATE '2024-03-01'", "x = 0.25", "h = 20",
    "a = 1 OR s = 's2'", "x > 1e9",
])  # fmt: skip
def test_filters_mean_the_same(spark, con, whole, where):
    """Pushed or not, a filter gives what Spark itself makes of the whole view."""
    expected = Counter(map(repr, whole.where(where).collect()))
    assert Counter(map(repr, load(spark, "everything").where(where).collect())) == expected


def test_only_wanted_rows_and_columns_travel(spark, con):
    from sqlfront.spark import _servers

    server = _servers[con.session.database]
    before = len(server.snapshots.held())
    assert load(spark, "everything", where="a = 3 AND s = 's0'").select("a").collect() == [(3,)]
    narrow = spark.read.format("sqlfront").schema("total DECIMAL(38,0)").option("view", "totals").load()
    same(narrow, con, "SELECT total::DECIMAL(38, 0) FROM totals")
    tables = server.snapshots.held()[before:]
    assert [table.num_rows for table in tables] == [1, 4]
    assert tables[1].column_names == ["total"]


def test_the_first_rows_are_found_by_the_tree(spark, con, monkeypatch):
    from sqlfront.read import lookups

    led, scan = [], lookups._ordered_scan
    monkeypatch.setattr(lookups, "_ordered_scan", lambda *a: led.append((found := scan(*a)) is not None) or found)
    con.execute("CREATE MATERIALIZED VIEW ranked WITH (order_by = 'a DESC') AS SELECT a, h, s FROM t")
    found = load(spark, "ranked", order_by="a DESC", limit="3").collect()
    assert sorted((row.a, int(row.h)) for row in found) == [(197, 1970), (198, 1980), (199, 1990)]
    assert led[-1]
    assert load(spark, "ranked", where="a < 5", order_by="s", limit="2").count() == 2
    assert sorted(row.s for row in load(spark, "totals", order_by="n DESC, s", limit="2").collect()) == ["s0", "s1"]
    con.execute("DROP MATERIALIZED VIEW ranked")
    with pytest.raises(Exception, match="many"):
        load(spark, "totals", limit="many").collect()


def test_a_frame_follows_its_view_and_its_filters_do_not_stay(spark, con):
    frame = load(spark, "everything", partitions="3")
    assert frame.rdd.getNumPartitions() == 3
    before = frame.count()
    assert frame.where("a < 3").count() == 4
    assert frame.count() == before == spark.table("everything").count()
    con.execute("INSERT INTO t (a) VALUES (5000)")
    assert frame.count() == before + 1 == spark.table("everything").count()
    con.execute("DELETE FROM t WHERE a = 5000")
    assert frame.count() == before == spark.table("everything").count()


def test_the_parts_of_an_execution_are_of_one_epoch(spark, con, monkeypatch):
    from sqlfront.spark import _servers

    server = _servers[con.session.database]

    def part(i, execution, view="everything"):
        request = {"view": view, "columns": ["a"], "execution": execution, "session": "s", "part": [i, 2]}
        return server._slice(request).num_rows

    whole = con.view("everything").count()
    assert part(0, "1") == whole // 2
    con.execute("INSERT INTO t (a) SELECT 9000 FROM range(10)")
    assert part(0, "1") + part(1, "1") == whole
    assert part(0, "2") + part(1, "2") == whole + 10
    con.execute("DELETE FROM t WHERE a = 9000")
    monkeypatch.setattr("sqlfront.spark.snapshots.HELD_BYTES", 0)
    assert part(0, "3") + part(1, "3") == whole
    with pytest.raises(sqlfront.OperationalError, match="not held any more"):
        part(1, "2")


BOTH = "SELECT (SELECT count(*) FROM everything) AS rows, (SELECT sum(n) FROM totals) AS counted"


@pytest.fixture
def commits_between(spark, con, monkeypatch):
    """A writer that commits a row after each first read of a view by an execution, and is undone after the test."""
    from sqlfront.spark import _servers

    server, seen, turn = _servers[con.session.database], set(), threading.Lock()
    answer = server._slice

    def slice_(request):
        found = answer(request)
        read = (request["execution"], request["stage"], request["view"], request.get("where"))
        with turn, con.cursor() as writer:
            if read not in seen:
                seen.add(read)
                writer.execute("INSERT INTO t (a) VALUES (9100)")
        return found

    monkeypatch.setattr(server, "_slice", slice_)
    yield seen
    con.execute("DELETE FROM t WHERE a = 9100")


def cached(spark):
    """By the execution that fills the cache."""
    frame = spark.sql(BOTH).cache()
    try:
        return frame.collect()
    finally:
        frame.unpersist()


def joined(spark):
    """Columns of one view and rows of the other, each with a filter or a schema of its own."""
    rows = spark.read.format("sqlfront").schema("a BIGINT").option("view", "everything").load()
    new = load(spark, "everything", where="a = 9100").selectExpr("count(*) + 202")
    return rows.selectExpr("count(a) + 1").crossJoin(new).collect()


@pytest.mark.parametrize("read", [
    lambda spark: spark.sql(BOTH).collect(), lambda spark: list(spark.sql(BOTH).toLocalIterator()), joined, cached,
], ids=["subqueries", "iterator", "join", "cached"])  # fmt: skip
def test_all_that_an_execution_reads_is_of_one_epoch(spark, con, commits_between, read):
    [(rows, counted)] = read(spark)
    assert len(commits_between) > 1
    assert int(rows) == int(counted)
    [(rows, again)] = read(spark)
    assert int(rows) == int(again) > int(counted)


def test_a_read_that_no_plan_shows_never_mixes_epochs(spark, con, commits_between):
    first, second = load(spark, "everything", partitions="1").rdd, load(spark, "totals", partitions="1").rdd
    assert first.count() > 200
    with pytest.raises(Exception, match=r"(?s)cannot be read at the epoch that this execution reads.*DataFrames"):
        first.union(second).coalesce(1).count()


def test_the_changes_of_a_view_are_a_stream(spark, con, tmp_path):
    seen = []
    changes = spark.readStream.format("sqlfront_changes").option("view", "totals").load()

    def start():
        writer = changes.writeStream.foreachBatch(lambda frame, number: seen.extend(frame.collect()))
        return writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()

    start().awaitTermination()
    con.execute("INSERT INTO t (a, s) VALUES (7, 'new')")
    con.execute("UPDATE t SET a = 8 WHERE s = 'new'")
    start().awaitTermination()
    told = [(row.s, int(row.total), row._change_type) for row in seen]
    assert told == [("new", 7, "insert"), ("new", 7, "update_preimage"), ("new", 8, "update_postimage")]
    con.execute("DELETE FROM t WHERE s = 'new'")
    start().awaitTermination()
    assert [(row.s, row._change_type) for row in seen[3:]] == [("new", "delete")]
    assert [row._commit_version for row in seen] == sorted(row._commit_version for row in seen)


def test_spark_reads_a_copy(spark, con, tmp_path):
    with con.view("everything").copy_to(str(tmp_path), format="parquet"):
        con.execute("INSERT INTO t (a) VALUES (7000), (7000)")
        con.execute("DELETE FROM t WHERE a = 3")
    copied, served = spark.read.parquet(str(tmp_path / "current")), load(spark, "everything")
    assert copied.dtypes == served.dtypes
    assert Counter(map(repr, copied.collect())) == Counter(map(repr, served.collect()))
    con.execute("DELETE FROM t WHERE a = 7000")


def test_a_view_is_made_in_sparks_dialect(spark, con):
    made = 'CREATE MATERIALIZED VIEW `by kind` AS SELECT `s`, max(a) AS m FROM t WHERE s <> "s0" GROUP BY `s`'
    assert sqlfront.spark.sql(spark, con, made) is None
    same(sqlfront.spark.sql(spark, con, "SELECT * FROM `by kind`"), con, 'SELECT * FROM "by kind"')
    shown = sqlfront.spark.sql(spark, con, "SHOW MATERIALIZED VIEWS")
    assert '"by kind"' in {row.name for row in shown.collect()}
    sqlfront.spark.sql(spark, con, "DROP MATERIALIZED VIEW `by kind`")
    assert "by kind" not in {table.name for table in spark.catalog.listTables()}


def test_a_table_of_the_source_is_a_temporary_view(spark, con):
    """Spark forgets the options of CREATE TABLE, so ours makes a view; Spark's own table says so when it is read."""
    made = "CREATE TABLE {} of_totals USING sqlfront OPTIONS (view 'totals')"
    sqlfront.spark.sql(spark, con, made.format(""))
    sqlfront.spark.sql(spark, con, made.format("IF NOT EXISTS"))
    same(sqlfront.spark.sql(spark, con, "SELECT s, n FROM of_totals"), con, "SELECT s, n FROM totals")
    spark.catalog.dropTempView("of_totals")
    with pytest.raises(Exception, match=r"(?s)no view is named.*sqlfront.spark.sql\(spark, con, "):
        spark.sql(made.format(""))
        spark.table("of_totals").collect()
    spark.sql("DROP TABLE IF EXISTS of_totals")


def test_an_ordinary_view_is_read_too(spark, con):
    """As the one is that `into` makes over what shards put out."""
    con.execute("CREATE VIEW doubled AS SELECT s, total * 2 AS twice FROM totals WHERE n > 1")
    same(load(spark, "doubled"), con, "SELECT s, twice::DECIMAL(38, 0) FROM doubled")
    assert load(spark, "doubled", where="s = 's1'").count() == 1
    con.execute("DROP VIEW doubled")


def test_what_is_wrong_is_said(spark, con):
    with pytest.raises(Exception, match="there is no materialized view nosuch"):
        load(spark, "nosuch").collect()
    with pytest.raises(Exception, match="no view is named"):
        spark.read.format("sqlfront").load().collect()
    with sqlfront.connect() as other, pytest.raises(sqlfront.ProgrammingError, match="not registered"):
        sqlfront.spark.sql(spark, other, "SHOW MATERIALIZED VIEWS")


def test_only_who_has_the_secret_is_served(spark, con):
    import pyarrow.flight as flight

    from sqlfront.spark import _servers

    with (
        flight.connect(_servers[con.session.database].address) as client,
        pytest.raises(flight.FlightUnauthenticatedError),
    ):
        list(client.do_action(flight.Action("epoch", b'{"secret": "guessed"}')))


@pytest.mark.parametrize(("options", "told"), [
    ({"partitions": "0"}, "option partitions is '0'.*from 1 on"),
    ({"partitions": "many"}, "option partitions is 'many'"),
    ({"partition": "2"}, "unknown option partition of sqlfront.*partitions"),
])  # fmt: skip
def test_options_that_mean_nothing_are_refused(spark, con, options, told):
    with pytest.raises(Exception, match=rf"(?s){told}"):
        load(spark, "totals", **options).collect()


@pytest.mark.parametrize(("options", "told"), [
    ({"buffer": "some"}, "option buffer is 'some'.*from 1 on"), ({"buffer": "0"}, "option buffer is '0'"),
    ({"after": "now"}, "option after is 'now'.*from 0 on"),
])  # fmt: skip
def test_options_of_a_stream_that_mean_nothing_are_refused(spark, con, tmp_path, options, told):
    changes = spark.readStream.format("sqlfront_changes").options(view="totals", **options).load()
    writer = changes.writeStream.format("memory").queryName("refused").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match=rf"(?s){told}"):
        writer.trigger(availableNow=True).start().awaitTermination()


def test_a_schema_with_another_column_is_refused(spark, con):
    wanted = spark.read.format("sqlfront").schema("total DECIMAL(38,0), sum INT").option("view", "totals").load()
    with pytest.raises(Exception, match=r"(?s)totals has no column sum.*its columns are s, total, n"):
        wanted.collect()


def test_a_source_under_another_name_serves_new_views(spark, con):
    sqlfront.spark.register(spark, con, name="second")
    try:
        sqlfront.spark.sql(spark, con, "CREATE MATERIALIZED VIEW later AS SELECT count(*) AS n FROM t")
        assert spark.table("later").columns == ["n"]
        assert spark.read.format("second").option("view", "later").load().count() == 1
        sqlfront.spark.sql(spark, con, "DROP MATERIALIZED VIEW later")
    finally:
        sqlfront.spark.register(spark, con)


def test_a_stream_of_a_replaced_view_fails_and_a_new_one_works(spark, con, tmp_path):
    def start(place, seen):
        changes = spark.readStream.format("sqlfront_changes").option("view", "replaced").load()
        writer = changes.writeStream.foreachBatch(lambda frame, number: seen.extend(frame.collect()))
        return writer.option("checkpointLocation", str(tmp_path / place)).trigger(availableNow=True).start()

    con.execute("CREATE MATERIALIZED VIEW replaced AS SELECT s, count(*) AS n FROM t GROUP BY s")
    old, new = [], []
    start("old", old).awaitTermination()
    con.execute(
        "CREATE OR REPLACE MATERIALIZED VIEW replaced AS SELECT s, count(*) AS n FROM t WHERE a >= 0 GROUP BY s"
    )
    con.execute("INSERT INTO t (a, s) VALUES (7, 'again')")
    with pytest.raises(Exception, match="was dropped or replaced"):
        start("old", old).awaitTermination()
    start("new", new).awaitTermination()
    con.execute("DELETE FROM t WHERE s = 'again'")
    start("new", new).awaitTermination()
    assert old == [] and [(row.s, row._change_type) for row in new] == [("again", "delete")]
    con.execute("DROP MATERIALIZED VIEW replaced")


def test_instants_are_read(spark, con):
    con.execute("CREATE CHANGE TABLE instants (i TIMESTAMPTZ)")
    con.execute("INSERT INTO instants VALUES (TIMESTAMPTZ '2024-05-06 07:08:09+00'), (NULL)")
    con.execute("CREATE MATERIALIZED VIEW moments AS SELECT i FROM instants")
    sqlfront.spark.refresh(spark, con)
    found = spark.sql("SELECT unix_timestamp(i) AS i FROM moments ORDER BY i NULLS FIRST").collect()
    assert [row.i for row in found] == [None, 1714979289]
    con.execute("DROP MATERIALIZED VIEW moments")


def test_a_second_frame_needs_a_name(spark, con):
    con.execute("CREATE CHANGE TABLE given (a BIGINT)")
    con.register_changes("given", spark.range(3).selectExpr("id AS a"))
    with pytest.raises(sqlfront.ProgrammingError, match=r"name='\.\.\.'"):
        con.register_changes("given", spark.range(5).selectExpr("id AS a"))
    con.register_changes("given", spark.range(5).selectExpr("id AS a"), name="second")
    assert con.execute("SELECT count(*) FROM given").fetchone() == (8,)


def test_temporary_views_of_others_are_left_alone(spark, con):
    spark.range(2).createOrReplaceTempView("mine")
    con.execute("CREATE SCHEMA IF NOT EXISTS other")
    con.execute("CREATE MATERIALIZED VIEW Mine AS SELECT count(*) AS n FROM t")
    con.execute("CREATE MATERIALIZED VIEW other.totals AS SELECT count(*) AS n FROM t")
    con.execute("CREATE MATERIALIZED VIEW going AS SELECT count(*) AS n FROM t")
    with pytest.warns(UserWarning, match="its name is taken") as told:
        sqlfront.spark.refresh(spark, con)
    assert [str(warning.message).split()[0] for warning in told] == ['"Mine"', "other.totals"]
    assert spark.table("mine").columns == ["id"] and "total" in spark.table("totals").columns
    assert spark.table("going").columns == ["n"]
    for view in ("Mine", "other.totals", "going"):
        con.execute(f"DROP MATERIALIZED VIEW {view}")
    sqlfront.spark.refresh(spark, con)
    assert not spark.catalog.tableExists("going") and spark.table("mine").columns == ["id"]
    spark.catalog.dropTempView("mine")

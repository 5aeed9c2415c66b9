"""The DB-API surface, lazy relations, parameters, and how Python and SQL see each other's data."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

import sqlfront

SETUP = """
CREATE TABLE orders(o BIGINT, c BIGINT);
CREATE TABLE items(o BIGINT, i BIGINT, p BIGINT);
INSERT INTO orders VALUES (1, 1), (2, 1), (3, 2);
INSERT INTO items VALUES (1, 1, 10), (1, 2, 20), (2, 3, 30), (3, 4, 5);
CREATE MATERIALIZED VIEW v AS SELECT c, sum(p) AS s, count(*) AS n FROM orders JOIN items USING (o) GROUP BY c;
"""
ROWS = [(1, 60, 3), (2, 5, 1)]
GLOBAL_ROWS = pa.table({"x": [1, 2, 3]})


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute(SETUP)
        yield connection


def test_fetching(con):
    assert con.execute("SELECT * FROM v ORDER BY c") is con
    assert [column[0] for column in con.description] == ["c", "s", "n"]
    assert con.fetchone() == ROWS[0]
    assert con.fetchmany(5) == ROWS[1:]
    assert con.fetchall() == []
    assert con.fetchone() is None
    assert con.rowcount == -1
    assert con.execute("SELECT * FROM v ORDER BY c").df().values.tolist() == [list(row) for row in ROWS]
    table = con.execute("SELECT c, n FROM v ORDER BY c").to_arrow_table()
    assert table.to_pydict() == {"c": [1, 2], "n": [3, 1]}
    reader = con.execute("SELECT c, n FROM v ORDER BY c").to_arrow_reader()
    assert pa.Table.from_batches(list(reader), reader.schema) == table


def test_fetching_without_a_result(con):
    con.execute("BEGIN")
    assert con.description is None
    with pytest.raises(sqlfront.InterfaceError, match="no result"):
        con.fetchall()
    con.rollback()
    with pytest.raises(sqlfront.InterfaceError, match="no result"):
        con.fetchone()


def test_results_of_writes(con):
    assert con.execute("INSERT INTO items VALUES (3, 5, 1), (3, 6, 1)").fetchall() == [(2,)]
    assert con.execute("UPDATE items SET p = 7 WHERE i = 5 RETURNING i, p").fetchall() == [(5, 7)]
    assert con.execute("DELETE FROM items WHERE i >= 5").fetchone() == (2,)
    assert con.execute("SELECT * FROM v ORDER BY c").fetchall() == ROWS


def test_parameters(con):
    assert con.execute("SELECT s FROM v WHERE c = ?", [2]).fetchall() == [(5,)]
    assert con.execute("SELECT s FROM v WHERE c = $1", [2]).fetchall() == [(5,)]
    assert con.execute("SELECT s FROM v WHERE c = $c", {"c": 1}).fetchall() == [(60,)]
    con.execute("INSERT INTO items VALUES ($o, $i, $p)", {"o": 3, "i": 7, "p": 100})
    assert con.execute("SELECT s FROM v WHERE c = 2").fetchone() == (105,)
    with pytest.raises(sqlfront.Error):
        con.execute("SELECT s FROM v WHERE c = ?", [])


def test_executemany_may_read_views():
    """Its scans wait for nobody."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a INTEGER); CREATE TABLE found (a INTEGER)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
        con.execute("INSERT INTO t VALUES (1), (2), (2)")
        con.executemany("INSERT INTO found SELECT a FROM v WHERE n >= ?", [[1], [2], [3]])
        assert sorted(con.execute("FROM found").fetchall()) == [(1,), (2,), (2,)]


def test_many_statements_and_executemany(con):
    con.execute("INSERT INTO items VALUES (3, 8, 1); SELECT 'x;y' AS a; SELECT n FROM v WHERE c = ?", [2])
    assert con.fetchall() == [(2,)]
    before = con.session.database.engine.epoch
    con.executemany("INSERT INTO items VALUES (?, ?, ?)", [(3, 9, 1), (3, 10, 2)])
    assert con.session.database.engine.epoch == before + 1
    assert con.execute("SELECT n FROM v WHERE c = 2").fetchall() == [(4,)]
    con.executemany("UPDATE items SET p = ? WHERE i = ?", [(10, 9), (20, 10)])
    assert con.execute("SELECT s FROM v WHERE c = 2").fetchall() == [(36,)]
    assert con.execute("  -- nothing\n ; ") is con
    with pytest.raises(sqlfront.ProgrammingError, match="one statement"):
        con.executemany("SELECT 1; SELECT 2", [[]])


def test_relations_are_lazy(con):
    relation = con.sql("SELECT * FROM v ORDER BY c")
    assert relation.fetchall() == ROWS
    con.execute("INSERT INTO items VALUES (3, 8, 1)")
    assert relation.fetchall() == [ROWS[0], (2, 6, 2)]
    assert relation.columns == ["c", "s", "n"]
    assert relation.types == ["BIGINT", "HUGEINT", "BIGINT"]
    assert relation.fetchone() == ROWS[0]
    assert relation.to_arrow_table().num_rows == 2
    assert len(relation.df()) == 2
    assert pa.table(relation).num_rows == 2
    assert sqlfront.connect().execute("SELECT count(*) FROM relation").fetchall() == [(2,)]


def test_relation_show(con, capsys):
    con.sql("SELECT * FROM v ORDER BY c").show()
    shown = capsys.readouterr().out
    assert "hugeint" in shown
    assert "60" in shown


def test_a_relation_leaves_an_open_result_alone(con):
    con.execute("SELECT * FROM range(100000)")
    assert con.fetchone() == (0,)
    assert con.sql("SELECT 1").fetchall() == [(1,)]
    assert con.fetchone() == (1,)


def test_replacement_scans_see_the_users_frames(con):
    pandas = pytest.importorskip("pandas")

    def user():
        frame = pandas.DataFrame({"o": [3, 3], "i": [50, 51], "p": [1, 2]})
        con.execute("INSERT INTO items SELECT * FROM frame")
        return con.execute("SELECT count(*) FROM frame JOIN v ON v.c = 2").fetchall(), len(frame)

    assert user() == ([(2,)], 2)
    assert con.execute("SELECT s FROM v WHERE c = 2").fetchall() == [(8,)]
    assert con.execute("SELECT count(*) FROM GLOBAL_ROWS").fetchall() == [(3,)]
    con.execute("BEGIN; INSERT INTO items VALUES (3, 60, 1)")
    assert con.execute("SELECT count(*) FROM GLOBAL_ROWS, v").fetchall() == [(6,)]
    con.rollback()
    with pytest.raises(sqlfront.ProgrammingError):
        con.execute("SELECT * FROM statement")


def test_register(con):
    con.register("data", pa.table({"o": [3], "i": [60], "p": [1000]}))
    con.execute("INSERT INTO items FROM data")
    assert con.execute("SELECT s FROM v WHERE c = 2").fetchall() == [(1005,)]
    con.unregister("data")
    with pytest.raises(sqlfront.Error, match="data"):
        con.execute("FROM data")


def test_cursors(con):
    before = con.cursor()
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT DISTINCT c FROM orders")
    after = con.cursor()
    for cursor in (con, before, after, before.cursor()):
        assert cursor.execute("SELECT count(*) FROM w").fetchall() == [(2,)]
    after.close()
    with pytest.raises(sqlfront.InterfaceError, match="closed"):
        after.execute("SELECT 1")
    with pytest.raises(sqlfront.InterfaceError, match="closed"):
        after.fetchall()
    after.close()
    con.execute("DROP MATERIALIZED VIEW w")
    with pytest.raises(sqlfront.ProgrammingError):
        before.execute("SELECT * FROM w")


def test_commit_and_rollback_methods(con):
    assert con.commit() is con
    assert con.rollback() is con
    con.begin()
    con.execute("INSERT INTO items VALUES (3, 9, 9)")
    con.rollback()
    assert con.execute("SELECT * FROM v ORDER BY c").fetchall() == ROWS
    con.begin().execute("INSERT INTO items VALUES (3, 9, 9)").commit()
    assert con.execute("SELECT s FROM v WHERE c = 2").fetchall() == [(14,)]


def test_closing_rolls_back():
    con = sqlfront.connect()
    con.execute(SETUP)
    other = con.cursor()
    other.execute("BEGIN; INSERT INTO items VALUES (3, 9, 9)")
    other.close()
    assert con.execute("SELECT * FROM v ORDER BY c").fetchall() == ROWS


def test_errors_are_ours(con):
    for sql, kind in (
        ("SELEC 1", sqlfront.ProgrammingError),
        ("SELECT * FROM nothing", sqlfront.ProgrammingError),
        ("SELECT 'x'::INT", sqlfront.DataError),
        ("INSERT INTO items VALUES ('x', 1, 1)", sqlfront.DataError),
        ("INSERT INTO items VALUES (1)", sqlfront.ProgrammingError),
    ):
        with pytest.raises(kind):
            con.execute(sql)
    assert con.execute("SELECT * FROM v ORDER BY c").fetchall() == ROWS


def test_view_handle(con):
    view = con.view("v")
    assert view.count() == 2
    assert view.rows() == con.execute("SELECT * FROM v").fetchall()
    assert view.contains((2, 5, 1))
    assert not view.contains((2, 6, 1))
    assert view.contains({"c": 2, "s": 5, "n": 1})
    with pytest.raises(sqlfront.ProgrammingError):
        view.contains((1,))
    assert view.state()
    assert view.cost()["steps"] >= 0
    assert view.explain().to_dict()["shape"] == "free-connex"
    with pytest.raises(sqlfront.ProgrammingError, match="no materialized view"):
        con.view("orders")
    con.execute("BEGIN; INSERT INTO items VALUES (2, 9, 1); INSERT INTO orders VALUES (9, 9), (10, 9)")
    assert view.contains((1, 61, 4))
    assert con.cursor().view("v").contains((1, 60, 3))
    con.rollback()


def test_explanations(con):
    explained = con.explain("v")
    assert str(explained).startswith("shape")
    assert set(explained.to_dict()) >= {"shape", "strategy", "cost", "reason", "witness", "suggestion", "tree"}
    assert con.explain("SELECT DISTINCT c FROM orders").to_dict()["shape"] == "q-hierarchical"


def test_ctrl_c_while_duckdb_asks_an_object_for_its_schema():
    class Interrupted:
        def __arrow_c_schema__(self):
            raise KeyboardInterrupt

        def __arrow_c_stream__(self, requested_schema=None):
            raise KeyboardInterrupt

    with sqlfront.connect() as con:
        rows = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            con.execute("FROM rows").fetchall()
        assert rows is not None and con.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("given", [5, None, True, b"x.duckdb", ["x"], object()])
def test_only_a_path_is_opened(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sqlfront.InterfaceError, match="argument database is"):
        sqlfront.connect(given)
    assert list(tmp_path.iterdir()) == []


def test_neither_duckdb_nor_our_connection_is_a_path(con, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (duckdb.connect(), con):
        with pytest.raises(sqlfront.InterfaceError, match="argument database is"):
            sqlfront.connect(given)
    assert list(tmp_path.iterdir()) == []


def test_a_path_object_is_opened(tmp_path):
    with sqlfront.connect(tmp_path / "data.duckdb") as con, sqlfront.connect(str(tmp_path / "data.duckdb")) as same:
        con.execute("CREATE TABLE t AS SELECT 1 AS a")
        assert same.execute("FROM t").fetchall() == [(1,)]


def test_sql_runs_a_statement_that_is_no_query_once(con):
    assert con.sql("CREATE TABLE t (a BIGINT)") is None
    assert con.sql("CREATE MATERIALIZED VIEW w AS SELECT sum(a) AS s FROM t") is None
    assert con.sql("INSERT INTO t VALUES (1), (2)") is None
    held = con.sql("INSERT INTO t VALUES (7) RETURNING a, a::HUGEINT AS h")
    assert (held.columns, held.types[0]) == (["a", "h"], "BIGINT")
    assert held.fetchall() == held.fetchall() == [(7, 7)]
    assert held.to_arrow_table().num_rows == 1
    assert con.sql("UPDATE t SET a = 3 WHERE a = 2; SELECT s::INTEGER FROM w").fetchall() == [(11,)]
    assert con.sql("BEGIN") is None
    assert con.sql("DELETE FROM t") is None
    assert con.sql("ROLLBACK") is None
    assert con.sql("PREPARE p AS INSERT INTO t VALUES (100)") is None
    assert con.sql("EXECUTE p").fetchall() == [(1,)]
    assert con.sql("SELECT s::INTEGER FROM w").fetchall() == [(111,)]
    assert con.sql("DROP MATERIALIZED VIEW w") is None
    assert con.sql("") is None
    with pytest.raises(sqlfront.ProgrammingError):
        con.sql("DROP TABLE nowhere")


def test_sql_stays_lazy_where_a_statement_only_looks(con):
    n = con.sql("SELECT sum(n)::INTEGER FROM v")
    listed = con.sql("SHOW MATERIALIZED VIEWS")
    con.execute("INSERT INTO items VALUES (3, 5, 1)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT o FROM orders")
    assert n.fetchall() == [(5,)]
    assert len(listed.fetchall()) == 2
    assert con.sql("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert con.sql("PRAGMA table_info('orders')").fetchall() == con.execute("PRAGMA table_info('orders')").fetchall()


def test_relations_are_read_in_threads_and_end_with_their_connection(tmp_path) -> None:
    path = str(tmp_path / "read.duckdb")
    con = sqlfront.connect(path)
    con.execute(
        "CREATE TABLE t AS SELECT 1 AS a; CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a"
    )
    con.execute("BEGIN; INSERT INTO t VALUES (1)")
    assert con.sql("FROM v").fetchall() == [(1, 2)]
    con.execute("ROLLBACK")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: con.sql("FROM v").fetchall(), range(40)))
    assert found == [[(1, 1)]] * 40
    pending = con.execute("SELECT a FROM t UNION ALL SELECT 2")
    assert con.sql("FROM v").fetchone() == (1, 1) and len(pending.fetchall()) == 2
    with pytest.raises(sqlfront.Error):
        con.sql("SELECT error('no') FROM v").fetchall()
    assert con.sql("FROM v").df()["n"].tolist() == [1]
    con.close()
    duckdb.connect(path).close()  # Nothing holds the file.

"""SHOW, EXPLAIN, CHECK and the View object: what they say is what there is."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sqlfront


@pytest.fixture
def con():
    con = sqlfront.connect()
    con.execute("CREATE SCHEMA s")
    con.execute("CREATE TABLE t (a BIGINT, b VARCHAR)")
    con.execute("CREATE CHANGE TABLE c (a BIGINT, n INTEGER)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, sum(n) AS s FROM t JOIN c ON t.a = c.a GROUP BY b")
    con.execute('CREATE MATERIALIZED VIEW s."W x" AS SELECT t.a, n FROM t JOIN c ON t.a = c.a')
    con.execute("INSERT INTO t VALUES (1, 'x'), (1, 'y'), (2, 'x'), (NULL, 'n')")
    con.apply({"c": pa.table({"a": [1, 1, 2, 3], "n": [5, 5, 7, 9]})})
    yield con
    con.close()


def named(con, statement):
    return con.execute(statement).to_arrow_table().to_pylist()


def test_show_materialized_views(con):
    views = {row["name"]: row for row in named(con, "SHOW MATERIALIZED VIEWS")}
    assert set(views) == {"v", 's."W x"'}
    assert views["v"]["rows"] == 2 and views['s."W x"']["rows"] == 5
    assert views["v"]["bytes"] > 0 and views["v"]["query"].startswith("SELECT b, sum(n)")
    assert views["v"]["shape"] == con.explain("v").to_dict()["shape"]


def test_show_change_tables(con):
    [row] = named(con, "SHOW CHANGE TABLES")
    assert row == {
        "name": "c",
        "columns": "a BIGINT, n INTEGER",
        "retain": True,
        "durable": False,
        "rows": 3,
        "status": "ready",
    }


def test_show_state_counts_what_is_stored(con):
    state = named(con, "SHOW STATE FOR v")
    assert {row["view"] for row in state} == {"v", None}
    leaves = {row["node"]: row["rows"] for row in state if row["kind"] == "leaf"}
    assert leaves == {"t": 4, "c": 3} or leaves == {"t": 3, "c": 3}
    everything = named(con, "SHOW STATE")
    assert {row["view"] for row in everything} == {"v", 's."W x"', None}
    assert all(row["bytes"] > 0 and row["entries"] >= row["rows"] for row in everything)
    con.execute("DELETE FROM t")
    con.execute("DELETE FROM c")
    assert [row for row in named(con, "SHOW STATE") if row["rows"]] == []


def test_show_state_tells_load_and_longest_probe(con):
    con.execute("INSERT INTO t SELECT i % 7, 'k' || i FROM range(3000) r(i)")
    stored = [row for row in named(con, "SHOW STATE") if row["rows"] and row["kind"] != "dictionary"]
    assert all(0 <= row["load"] <= 1 and row["longest_probe"] >= 1 for row in stored)
    view = con.session.database.view(con.session.duck, ["v"]).maintained
    for atom, source in view.sources.items():
        hashed = [source.store.table, *source.store.table.groups]
        [row] = [row for row in stored if row["view"] == "v" and row["node"] == atom]
        assert row["longest_probe"] == max(table.longest_probe() for table in hashed)
    assert any(source.store.table.groups for source in view.sources.values()), "an index must take part"


def test_explain_says_the_same_in_every_form(con):
    view = con.explain("v").to_dict()
    query = con.explain("SELECT b, sum(n) AS s FROM t JOIN c ON t.a = c.a GROUP BY b").to_dict()
    assert {key: view[key] for key in ("shape", "strategy", "cost", "reason")} == {
        key: query[key] for key in ("shape", "strategy", "cost", "reason")
    }
    assert {"shape", "strategy", "cost", "reason", "witness", "suggestion", "tree"} <= set(view)
    assert set(view["cost"]) == {"preprocessing", "update", "delay", "space"}
    rows = con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall()
    assert ("shape", view["shape"]) in rows and any("t(" in value for _, value in rows)
    rows = con.execute("EXPLAIN (MATERIALIZED) SELECT a FROM t").fetchall()
    assert ("shape", "q-hierarchical") in rows
    assert str(con.explain('s."W x"')).startswith("shape")
    assert con.execute("SHOW MATERIALIZED VIEWS").to_arrow_table().num_rows == 2


TRIANGLE = "SELECT count(*) AS n FROM c AS r, c AS s, c AS u WHERE r.n = s.a AND s.n = u.a AND u.n = r.a"


@pytest.mark.parametrize("options", ["", "WITH (epsilon = 0.25) ", "WITH (apply = 'on read') "])
def test_explain_of_a_create_is_that_of_the_view(con, options):
    create = f"CREATE MATERIALIZED VIEW w {options}AS {TRIANGLE}"
    before = con.execute(f"EXPLAIN {create}").fetchall()
    assert con.execute(f"EXPLAIN {create}").fetchall() == before, "a statement is remembered"
    assert "w" not in {row["name"] for row in named(con, "SHOW MATERIALIZED VIEWS")}
    asked = con.explain(create).to_dict()
    con.execute(create)
    told = con.explain("w").to_dict()
    assert all(asked[key] == told[key] for key in ("shape", "strategy", "cost", "reason"))
    assert ("strategy", told["strategy"]) in before
    assert (options != "") == (told["strategy"] != con.explain(TRIANGLE).to_dict()["strategy"]) or "apply" in options


def test_explain_of_a_create_raises_what_the_create_raises(con):
    for create in (
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM t",
        "CREATE MATERIALIZED VIEW t AS SELECT a FROM c",
        "CREATE MATERIALIZED VIEW w WITH (epslon = 1) AS SELECT a FROM t",
        f"CREATE MATERIALIZED VIEW w WITH (at_worst = 'O(1)') AS {TRIANGLE}",
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT b FROM v",
        "CREATE MATERIALIZED VIEW w AS SELECT random() AS x FROM t",
    ):
        with pytest.raises(sqlfront.Error) as explained:
            con.execute(f"EXPLAIN {create}")
        with pytest.raises(sqlfront.Error) as created:
            con.execute(create)
        assert type(explained.value) is type(created.value)
        assert (explained.value.what, explained.value.why) == (created.value.what, created.value.why)


def test_explain_of_a_create_that_leaves_or_replaces_a_view(con):
    left = con.execute("EXPLAIN CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT a FROM t").fetchall()
    assert left == con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall()
    other = con.execute(f"EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW v AS {TRIANGLE}").fetchall()
    assert ("shape", "cyclic") in other and con.execute("FROM v").fetchall() != []
    assert con.explain("v").to_dict()["shape"] == "free-connex"


def test_explain_under_a_key(con):
    con.execute("CREATE CHANGE TABLE o (o_id BIGINT PRIMARY KEY, c_id BIGINT) WITH (retain = false)")
    con.execute("CREATE CHANGE TABLE i (i_id BIGINT, o_id BIGINT, price BIGINT) WITH (retain = false)")
    query = "SELECT c_id, sum(price) AS s, count(*) AS n FROM o JOIN i ON o.o_id = i.o_id GROUP BY c_id"
    keyed = con.explain(query).to_dict()
    assert keyed["cost"]["update"].startswith("O(1)") and "o_id" in str(con.explain(query))
    con.execute("CREATE CHANGE TABLE p (o_id BIGINT, c_id BIGINT) WITH (retain = false)")
    assert con.explain(query.replace("FROM o JOIN", "FROM p AS o JOIN")).to_dict()["shape"] == "free-connex"


def test_check_finds_a_row_that_is_wrong(con):
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    corrupt(con.session.database.engine)
    differences = con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    assert sorted(differences) == [("extra", "x", 18), ("missing", "x", 17)]
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert con.execute("CHECK MATERIALIZED VIEW v").to_arrow_table().column_names == ["_difference", "b", "s"]


def corrupt(engine):
    """Put a row into the stores of views alone, not into the table's own rows."""
    from sqlfront.maintenance.engine import Change

    relation = engine.relations["main.c"]
    kept = dict(relation.stores)
    relation.stores = {key: store for key, store in kept.items() if store is not relation.base}
    engine._assemble()
    engine.apply({"main.c": Change(pa.table({"a": pa.array([2], pa.int64()), "n": pa.array([1], pa.int32())}))})
    relation.stores = kept
    engine._assemble()


def test_view_object(con):
    view = con.view("V")
    assert view.name == "v" and con.view('S."w X"').name == 's."W x"'
    assert view.count() == 2 and con.view('s."W x"').count() == 5
    assert sorted(view.rows()) == [("x", 17), ("y", 10)]
    assert view.contains(("x", 17)) and view.contains({"b": "y", "s": 10})
    assert not view.contains(("x", 18)) and not view.contains(("z", 0)) and not view.contains((None, 9))
    bag = con.view('s."W x"')
    assert bag.contains((1, 5)) and not bag.contains((3, 9)) and not bag.contains((None, None))
    assert {row["node"] for row in view.state()} >= {"t", "c"}
    before = view.cost()["steps"]
    con.apply_row("c", (2, 1))
    assert view.cost()["steps"] > before and view.contains(("x", 18))
    assert view.explain().to_dict() == con.explain("v").to_dict()
    for bad in (("x",), ("x", 1, 2), {"b": "x"}, {"b": "x", "z": 1}):
        with pytest.raises(sqlfront.ProgrammingError):
            view.contains(bad)
    with pytest.raises(sqlfront.ProgrammingError, match="no order"):
        view.top(3)
    with pytest.raises(sqlfront.ProgrammingError, match="known materialized views"):
        con.view("nosuch")


def test_a_view_object_sees_its_transaction(con):
    view = con.view("v")
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (3, 'z')")
    assert view.count() == 3 and view.contains(("z", 9)) and ("z", 9) in view.rows()
    assert con.cursor().view("v").count() == 2
    con.execute("ROLLBACK")
    assert view.count() == 2 and not view.contains(("z", 9))


def test_an_epoch_calls_views_as_users_do(con):
    epoch = con.apply({"c": pa.table({"a": [1, 2], "n": [1, 1]}), "T": pa.table({"a": [7], "b": ["q"]})})
    assert set(epoch.steps) == {"v", 's."W x"'} and epoch.rows == {"c": 2, "t": 1}
    assert set(epoch.view_seconds) == set(epoch.steps) and 0 < epoch.seconds < 60
    assert 0 < sum(epoch.view_seconds.values()) < epoch.seconds

"""A new kind of node touches two files besides its own: with these it runs from SQL to EXPLAIN."""

from __future__ import annotations

import random

import pytest

import sqlfront
from sqlfront.cut import computed_groups
from sqlfront.maintenance.output import computed_nodes
from tests.maintenance.output.naive_node import NaiveNode, NaiveRows

QUERY = "SELECT a, bit_xor(b) OVER (PARTITION BY a ORDER BY b) AS n FROM r"


@pytest.fixture
def con(monkeypatch):
    monkeypatch.setitem(computed_nodes.NODES, NaiveRows, NaiveNode)
    monkeypatch.setattr(computed_groups, "TouchedGroups", NaiveRows)
    with sqlfront.connect() as connection:
        connection.execute("CREATE TABLE r (a BIGINT, b BIGINT)")
        yield connection


def test_a_node_of_this_folder_alone_runs_and_is_explained(con):
    planned = con.explain(QUERY)
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N)') AS {QUERY}")
    generator = random.Random(5)
    for step in range(20):
        con.execute(f"INSERT INTO r VALUES ({generator.randrange(3)}, {step})")
        if step % 3 == 2:
            con.execute(f"DELETE FROM r WHERE b = {generator.randrange(step)}")
        assert sorted(con.execute("FROM v").fetchall()) == sorted(con.session.duck.execute(QUERY).fetchall())
    explained = con.explain("v")
    for found in (planned, explained):
        data = found.to_dict()
        assert [node["kind"] for node in data["nodes"]] == ["view tree", "naive rows", "view tree"]
        assert data["shape"] == "dataflow" and data["cost"]["update"] == "O(N)"
        assert "everything is computed anew" in data["reason"]
        assert {"naive": "bit_xor() OVER"} in data["blocks"].values()
        assert any("naive: bit_xor() OVER" in line for line in found.drawing())
        assert "naive: bit_xor()" in found.svg()
    state = con.execute("SHOW STATE FOR v").fetchall()
    assert {row[1]: row[3] for row in state if row[2] == "naive"} == dict.fromkeys(
        ("naive input", "naive"), con.view("v").count()
    )
    assert con.execute("SHOW MATERIALIZED VIEWS").to_arrow_table().to_pylist()[0]["bytes"] >= sum(
        row[5] for row in state
    )
    con.execute("DELETE FROM r")
    assert not any(row[3] for row in con.execute("SHOW STATE FOR v").fetchall())
    con.execute("DROP MATERIALIZED VIEW v")
    assert not con.session.database.engine.nodes


def test_what_it_costs_and_where_it_runs_is_asked_of_its_rows(con):
    with pytest.raises(sqlfront.NotSupportedError, match=r"the naive rows: O\(N\)"):
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(1)') AS {QUERY}")
    with pytest.raises(sqlfront.NotSupportedError, match=r"(?s)naive rows are not computed in shards.*do without"):
        con.explain(QUERY, shards=4)
    with pytest.warns(sqlfront.CostWarning, match=r"OVER: computed from all rows at each change, O\(N\)"):
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY}")

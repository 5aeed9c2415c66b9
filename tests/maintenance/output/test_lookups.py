"""Walks narrowed to constants: no matching row is missed, and a whole row is found in O(1)."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.program.rows import FIRST_BATCH
from sqlfront.maintenance.tree.walk import Walk

QUERIES = {
    "one atom": ("SELECT k, a FROM r", "ka"),
    "hub": ("SELECT r.k, a, b FROM r JOIN s ON r.k = s.k", "kab"),
    "chain": ("SELECT r.k, a, s.b, t.c FROM r JOIN s ON r.k = s.k JOIN t ON s.b = t.b", "kabc"),
    "bound below": ("SELECT DISTINCT r.k, a FROM r JOIN s ON r.k = s.k", "ka"),
    "product": ("SELECT r.k, a, t.c FROM r, t", "kac"),
    "projection": ("SELECT DISTINCT a, b FROM r JOIN s ON r.k = s.k", "ab"),
}


def maintained(query, rows):
    con = sqlfront.connect()
    for name, columns in (("r", "ka"), ("s", "kb"), ("t", "bc")):
        con.execute(f"CREATE CHANGE TABLE {name} ({columns[0]} BIGINT, {columns[1]} BIGINT)")
        data = {column: pa.array([row[i] for row in rows[name]], pa.int64()) for i, column in enumerate(columns)}
        con.apply({name: pa.table(data)})
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    view = next(iter(con.session.database.engine.views.values()))
    return con, view


def narrowed(view, where):
    """The tuples of a narrowed walk, and its steps."""
    names = list(dict.fromkeys(view.definition.free))
    walk = Walk(view.tree, where, names)
    found = []
    while walk.next(FIRST_BATCH):
        found += zip(*(walk.words(name)[0].tolist() for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in found], walk.steps


@pytest.mark.parametrize("name", QUERIES)
def test_any_constants_keep_every_row_that_has_them(name):
    choose = random.Random(name)
    rows = {table: [(choose.randint(0, 4), choose.randint(0, 4)) for _ in range(15)] for table in "rst"}
    query, columns = QUERIES[name]
    con, view = maintained(query, rows)
    everything = con.execute("FROM v").fetchall()
    free = dict(zip(columns, view.definition.free, strict=True))
    for count in range(1, len(columns) + 1):
        for given in itertools.combinations(columns, count):
            for value in range(6):
                where = {free[column]: (value,) for column in given}
                found = {tuple(row[v] for v in view.definition.free) for row in narrowed(view, where)[0]}
                wanted = {row for row in everything if all(row[columns.index(column)] == value for column in given)}
                kept = {row for row in found if all(row[columns.index(column)] == value for column in given)}
                assert kept == wanted, f"{given} = {value}"
    con.close()


@pytest.mark.parametrize("name", QUERIES)
def test_a_whole_row_is_found_in_constant_steps(name):
    """Also where every key is a hub, and the result grows with the square or the cube of the rows."""
    steps = []
    for size in (10, 100, 1000):
        rows = {table: [(i % 2, i) for i in range(size)] for table in "rs"}
        rows["t"] = [(i, i % 3) for i in range(size)]
        con, view = maintained(QUERIES[name][0], rows)
        row = con.execute("FROM v LIMIT 1").fetchone()
        found, taken = narrowed(view, {v: (x,) for v, x in zip(view.definition.free, row, strict=True)})
        assert found == [dict(zip(view.definition.free, row, strict=True))]
        steps.append(taken)
        con.close()
    assert max(steps) <= steps[0] + 6, steps


def test_contains_and_point_queries_agree_with_the_rows():
    con = sqlfront.connect()
    con.execute("CREATE TABLE r (k BIGINT, a BIGINT); CREATE TABLE s (k BIGINT, b VARCHAR)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT r.k, a, b, a + 1 AS c FROM r JOIN s ON r.k = s.k")
    con.execute("CREATE MATERIALIZED VIEW g AS SELECT k, a, count(*) AS n FROM r GROUP BY k, a")
    con.execute("INSERT INTO r SELECT i % 3, i % 7 FROM range(40) t(i); INSERT INTO r VALUES (NULL, NULL)")
    con.execute("INSERT INTO s SELECT i % 3, 'b' || i % 5 FROM range(20) t(i)")
    rows = con.execute("FROM v").fetchall()
    for k, a, b in itertools.product(range(4), range(8), ("b0", "b4", "x")):
        wanted = [row for row in rows if row[:3] == (k, a, b)]
        assert con.execute("FROM v WHERE k = ? AND a = ? AND b = ?", [k, a, b]).fetchall() == wanted
        assert con.view("v").contains((k, a, b, a + 1)) == bool(wanted)
        assert not con.view("v").contains((k, a, b, a))
    assert con.view("g").contains((None, None, 1)) and not con.view("g").contains((None, None, 2))
    assert np.all([con.view("g").contains(row) for row in con.execute("FROM g").fetchall()])

"""`View.cost()` counts the steps of reads, by every way a view is read, and apart from those of changes (law 4)."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sqlfront

SIZES = (500, 8_000)


def loaded(query: str, size: int) -> sqlfront.Connection:
    """r(a, b) and s(b, c) of `size` rows each, four of r and four of s for each b; and the view v."""
    con = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE r (a BIGINT, b BIGINT); CREATE TABLE s (b BIGINT, c BIGINT)")
    con.execute(f"INSERT INTO r SELECT i, i // 4 FROM range({size}) AS x(i)")
    con.execute(f"INSERT INTO s SELECT i // 4, i FROM range({size}) AS x(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.view("v").cost()["read_steps"] == 0
    return con


def spent(con, act, expected=None) -> int:
    """The steps of reads that `act` takes, which takes none of changes and gives what is expected, if that is told."""
    before = con.view("v").cost()
    found = act()
    assert expected is None or found == expected
    after = con.view("v").cost()
    assert after["steps"] == before["steps"]
    return after["read_steps"] - before["read_steps"]


JOINED = "SELECT r.a, r.b, s.c FROM r, s WHERE r.b = s.b"


def test_a_scan_of_a_q_hierarchical_view_takes_constant_steps_a_row() -> None:
    per_row = []
    for size in SIZES:
        con = loaded(JOINED, size)
        steps = spent(con, lambda con=con: len(con.view("v").rows()), 4 * size)
        per_row.append(steps / (4 * size))
        con.close()
    assert min(per_row) >= 1 and max(per_row) <= 4 and max(per_row) <= 1.1 * min(per_row)


def test_a_look_up_takes_constant_steps() -> None:
    by_size = []
    for size in SIZES:
        con = loaded(JOINED, size)
        view = con.view("v")
        found = [
            spent(con, lambda con=con: con.execute("FROM v WHERE b = 77").fetchall()),
            spent(con, lambda view=view: view.contains((308, 77, 310)), True),
            spent(con, lambda view=view: view.contains((308, 77, 9)), False),
        ]
        assert all(found)
        by_size.append(sum(found))
        con.close()
    assert by_size[1] <= by_size[0] + 8 <= 200


def test_the_first_rows_of_an_order_take_logarithmic_steps_each() -> None:
    per_row = []
    for size in SIZES:
        con = loaded(f"{JOINED} ORDER BY r.a + s.c, r.a LIMIT 5000", size)
        view = con.view("v")
        per_row.append(spent(con, lambda view=view: len(view.top(100)), 100) / 100)
        assert spent(con, lambda view=view: next(view.ordered())) > 0
        assert spent(con, lambda con=con: con.execute("FROM v ORDER BY a + c, a LIMIT 3").fetchall()) > 0
        con.close()
    assert per_row[0] >= 1 and per_row[1] <= 2 * per_row[0] <= 200


READERS = {
    "rows": lambda con: con.view("v").rows(),
    "count": lambda con: con.view("v").count(),
    "SQL count": lambda con: con.execute("SELECT count(*) FROM v").fetchall(),
    "SQL": lambda con: con.execute("SELECT sum(hash(v)) FROM v").fetchall(),
    "relation": lambda con: con.sql("FROM v").to_arrow_table(),
    "joined": lambda con: con.execute("SELECT count(*) FROM v AS x, v AS y, r").fetchall(),
    "check": lambda con: con.execute("CHECK MATERIALIZED VIEW v").fetchall(),
    "copied": lambda con: con.execute("CREATE OR REPLACE TABLE t AS FROM v"),
    "subscription": lambda con: next(iter(con.view("v").subscribe(snapshot=True))),
    "in a transaction": lambda con: con.execute("BEGIN; FROM v").fetchall() and con.execute("COMMIT"),
}
VIEWS = {
    "join": JOINED,
    "distinct": "SELECT DISTINCT r.a, s.c FROM r, s WHERE r.b = s.b",
    "groups": "SELECT r.b, min(s.c) AS lo, sum(DISTINCT s.c) AS x FROM r, s WHERE r.b = s.b GROUP BY r.b",
    "first rows": f"{JOINED} ORDER BY r.a, s.c LIMIT 10",
    "union": "SELECT a FROM r UNION SELECT c FROM s",
    "block": "SELECT r.a, x.n FROM r, (SELECT b, count(*) AS n FROM s GROUP BY b) AS x WHERE x.b = r.b",
    "triangles": "SELECT x.a, y.a AS b FROM r AS x, r AS y, r AS z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a",
    "divided": "SELECT DISTINCT x.a, z.c FROM r AS x, s AS z WHERE x.b = z.b ORDER BY x.a LIMIT 9",
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_reader_is_counted(name: str) -> None:
    con = loaded(VIEWS[name], 40)
    con.execute("INSERT INTO r VALUES (1, 1)")
    for reader, read in READERS.items():
        steps = con.view("v").cost()["read_steps"]
        read(con)
        assert con.view("v").cost()["read_steps"] > steps, reader
    con.close()


def test_what_a_subscriber_is_told_costs_the_change() -> None:
    con = loaded("SELECT r.b, min(s.c) AS lo FROM r, s WHERE r.b = s.b GROUP BY r.b", 40)
    with con.view("v").subscribe(snapshot=False, timeout=0) as changes:
        before = con.view("v").cost()
        con.execute("INSERT INTO s VALUES (3, -1)")
        table = pa.concat_tables(list(changes))
        assert table.column("lo").to_pylist() == [12, -1]
        after = con.view("v").cost()
    assert after["read_steps"] == before["read_steps"] and after["steps"] > before["steps"]
    con.close()

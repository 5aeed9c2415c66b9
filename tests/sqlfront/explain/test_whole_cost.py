"""The headline of EXPLAIN covers the blocks of a query, and what changes cost and views store obeys it (law 4)."""

from __future__ import annotations

import pytest

import sqlfront

HOPS = """SELECT r.a, r.b FROM r WHERE EXISTS (
    SELECT 1 FROM e AS x, e AS y, e AS z WHERE x.b = y.a AND y.b = z.a AND x.a = r.a AND z.b = r.b)"""
VIEWS = {
    HOPS: "distinct rows over x, y, z",
    "SELECT x.a, count(*) AS n FROM (SELECT DISTINCT r.a, s.c FROM r, s WHERE r.b = s.b) AS x GROUP BY x.a":
        "distinct rows over r, s",
    "SELECT a, b FROM r UNION SELECT r.a, s.c FROM r, s WHERE r.b = s.b": "rows over r, s",
    "SELECT a, b FROM r UNION ALL SELECT x.a, y.b FROM e AS x, e AS y WHERE x.b = y.a": "rows over x, y",
}  # fmt: skip
ALONE = [
    "SELECT r.a, x.n FROM r, (SELECT b, count(*) AS n FROM s GROUP BY b) AS x WHERE x.b = r.b",
    "SELECT a FROM r UNION SELECT b FROM s",
    "SELECT a FROM r WHERE b IN (SELECT b FROM s)",
]
FIRST = {
    "SELECT x.a FROM (SELECT r.a, s.c FROM r, s WHERE r.b = s.b ORDER BY r.a + s.c LIMIT 5) AS x, r WHERE x.a = r.a":
        ("O(log N)", "O(N)"),
    "SELECT r.b, max(r.a + s.c) AS m FROM r, s WHERE r.b = s.b GROUP BY r.b": ("O(log N)", "O(N)"),
    "SELECT r.a, max(r.a + s.c) AS m FROM r, s WHERE r.b = s.b GROUP BY r.a":
        ("O((N + change of the values kept) log N)", "O(N)"),
}  # fmt: skip


@pytest.fixture
def con():
    con = sqlfront.connect()
    con.execute("CREATE TABLE r (a BIGINT, b BIGINT); CREATE TABLE s (b BIGINT, c BIGINT)")
    con.execute("CREATE TABLE e (a BIGINT, b BIGINT)")
    yield con
    con.close()


@pytest.mark.parametrize("query", VIEWS)
def test_the_headline_is_that_of_the_worst_block(con, query: str) -> None:
    """The same for the query and the view, for machines and for people, in SHOW and in every form of EXPLAIN."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for explained in (con.explain(query), con.explain("v")):
        data, lines = explained.to_dict(), dict(reversed(explained.lines()))
        assert "change of a block's" in data["cost"]["update"] and "a block's" in data["cost"]["space"]
        assert "a block's" in data["cost"]["preprocessing"] and data["cost"]["delay"] == "O(1)"
        assert data["decided by"]["update"] == data["decided by"]["space"] == f"the block of {VIEWS[query]}"
        assert data["decided by"]["delay"] is None
        assert {name: lines[name] for name in data["cost"]} == data["cost"]
        assert lines["decided by"] == f"the block of {VIEWS[query]}: preprocessing, update, space"
        assert data["tasks"]["read all"]["here"].startswith(data["cost"]["update"])
        assert (
            data["cost"]["update"].replace("'", "&#x27;") in explained.svg()
            or data["cost"]["update"] in explained.svg()
        )
    [row] = con.execute("SHOW MATERIALIZED VIEWS").fetchall()
    assert data["cost"]["update"] in row


@pytest.mark.parametrize("query", ALONE)
def test_a_block_that_is_no_worse_changes_nothing(con, query: str) -> None:
    data = con.explain(query).to_dict()
    assert data["cost"] == {"preprocessing": "O(N)", "update": "O(1)", "delay": "O(1)", "space": "O(N)"}
    assert set(data["decided by"].values()) == {None}


@pytest.mark.parametrize("query", FIRST)
def test_first_rows_are_few(con, query: str) -> None:
    """A block of first rows has a constant number for each group, and there are as many groups as rows at most."""
    cost = con.explain(query).to_dict()["cost"]
    assert (cost["update"], cost["space"]) == FIRST[query]


def test_what_is_stored_and_what_a_change_takes_obey_the_headline(con) -> None:
    """A complete graph's paths: entries and steps grow faster than N, which a headline of O(N) and O(1) denies; and
    with a block within O(1) they do not."""
    entries, steps = {}, {}
    for query, name in ((HOPS, "hops"), (ALONE[0], "flat")):
        for size in (60, 240):
            for table in "rse":
                con.execute(f"DELETE FROM {table}")
                con.execute(f"INSERT INTO {table} SELECT i, 0 FROM range(1, {size // 2}) AS x(i)")
                con.execute(f"INSERT INTO {table} SELECT 0, i FROM range({size // 2}) AS x(i)")
            con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
            before = con.view("v").cost()["steps"]
            table = "e" if name == "hops" else "s"
            con.apply_row(table, (0, 1000))
            con.apply_row(table, (0, 1000), -1)
            steps[name, size] = con.view("v").cost()["steps"] - before
            entries[name, size] = sum(row["rows"] for row in con.view("v").state())
        cost = con.explain("v").to_dict()["cost"]
        assert ("a block's" in cost["space"], cost["update"] != "O(1)") == ((name == "hops"),) * 2
    assert entries["hops", 240] > 8 * entries["hops", 60] and steps["hops", 240] > 3 * steps["hops", 60]
    assert entries["flat", 240] <= 5 * entries["flat", 60] and steps["flat", 240] <= 1.2 * steps["flat", 60] + 10


def test_the_rows_that_a_block_puts_out_each_take_the_work_of_the_view(con) -> None:
    """One row changes all groups of a block, and each of these joins all rows of the view's own table: N * N steps,
    which neither node takes for one changed row. EXPLAIN names both on the way, with what each states."""
    query = (
        "SELECT r.a, sum(x.n * x.c) AS m FROM r, (SELECT r.b, s.c, count(*) AS n FROM r, s WHERE r.b = s.b "
        "GROUP BY r.b, s.c) AS x WHERE x.b = r.b GROUP BY r.a"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    steps = []
    for size in (10, 40):
        con.execute(f"DELETE FROM r; DELETE FROM s; INSERT INTO r SELECT i, 0 FROM range({size}) AS x(i)")
        con.execute(f"INSERT INTO s SELECT 0, i FROM range({size}) AS x(i)")
        before = con.view("v").cost()["steps"]
        con.apply_row("r", (1000, 0))
        steps.append(con.view("v").cost()["steps"] - before)
    assert steps[1] > 10 * steps[0]
    for explained in (con.explain(query), con.explain("v")):
        data = explained.to_dict()
        assert data["cost"]["update"] == "O(N + change of a block's result * N)"
        assert [(one["node"], one["rows"], one["work"]) for one in data["path"]] == [
            ("the block of groups over r, s", "O(1)", "O(1)"),
            (None, "O(1 + change of a block's result)", "O(N)"),
        ]
        assert data["nodes"][0]["output"] == "O(1 + change of the result)"
        lines = [value for key, value in explained.lines() if key in ("node", "path")]
        assert len(lines) == 3 and "; then the view itself: O(N) for each of" in lines[2]
    block, own = data["nodes"]
    assert block["observed"] and own["observed"] > block["observed"] and own["predicted"].keys() == {"r", "block 1"}
    with pytest.raises(sqlfront.NotSupportedError, match=r"the view itself: O\(N \+ change of a block's result"):
        con.execute(f"CREATE MATERIALIZED VIEW w WITH (at_worst = 'O(change)') AS {query}")

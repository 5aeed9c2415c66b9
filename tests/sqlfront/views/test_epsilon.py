"""WITH (epsilon = ...) and ALTER ... SET (epsilon = ...): for triangles, kept with the view, stated as it runs."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from contextlib import contextmanager

import pytest

import sqlfront
import sqlfront.database.transactions

SVG = "{http://www.w3.org/2000/svg}"
TABLES = {"r": "ab", "s": "bc", "t": "ca"}
JOIN = "FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"
TRIANGLES = f"SELECT count(*) AS n {JOIN}"
SELF_JOIN = "FROM e x JOIN e y ON x.b = y.a JOIN e z ON y.b = z.a AND z.b = x.a"
WIDE = "FROM (SELECT a::HUGEINT AS a, b FROM r) r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"


def tables(con):
    for name, (x, y) in TABLES.items():
        con.execute(f"CREATE TABLE {name} ({x} BIGINT, {y} BIGINT)")
    con.execute("CREATE TABLE e (a BIGINT, b BIGINT, w BIGINT)")
    return con


def fill(con, names="rst", hub=40):
    """A value in each column that has many rows, and many values that have one."""
    for name in names:
        weight = ", 1" if name == "e" else ""
        con.execute(
            f"INSERT INTO {name} SELECT 0, i{weight} FROM range({hub}) x(i) "
            f"UNION ALL SELECT i, 0{weight} FROM range(1, {hub}) x(i)"
        )


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        yield tables(connection)


def maintained(con, name="v"):
    return con.session.database.view(con.session.duck, [name]).maintained


def is_right(con):
    """The view is as its query says, and its partition as its epsilon does."""
    if maintained(con).balance is not None:
        maintained(con).balance._check()
    return con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize(
    ("written", "epsilon", "update", "space"),
    [
        ("0", 0, "O(N)", "O(N)"),
        ("0.1", 0.1, "O(N^0.9) amortised", "O(N^1.1)"),
        ("0.25", 0.25, "O(N^0.75) amortised", "O(N^1.25)"),
        (None, 0.5, "O(N^0.5) amortised", "O(N)"),
        ("0.50", 0.5, "O(N^0.5) amortised", "O(N)"),
        ("0.875", 0.875, "O(N^0.875) amortised", "O(N)"),
        ("1", 1, "O(N)", "O(N)"),
        ("1.0", 1, "O(N)", "O(N)"),
    ],
)
def test_epsilon_is_what_runs_and_what_is_stated(con, written, epsilon, update, space):
    options = "" if written is None else f"WITH (epsilon = {written})"
    con.execute(f"CREATE MATERIALIZED VIEW v {options} AS {TRIANGLES}")
    assert maintained(con).epsilon == epsilon
    assert (maintained(con).balance is None) == (epsilon in (0, 1))
    explained = con.explain("v").to_dict()
    assert (explained["cost"]["update"], explained["cost"]["space"]) == (update, space)
    assert explained["strategy"].startswith("IVM^eps" if 0 < epsilon < 1 else "bags")
    assert f"epsilon = {epsilon:g}" in explained["strategy"]
    assert all(task["here"].startswith(f"{update} per change") for task in explained["tasks"].values())
    (listed,) = con.execute("SHOW MATERIALIZED VIEWS").fetchall()
    assert listed[2] == update
    fill(con)
    assert is_right(con) and con.execute("SELECT n FROM v").fetchone()[0] > 0


@pytest.mark.parametrize("value", ["1.5", "-0.1", "'half'", "true", "1e400", "half"])
@pytest.mark.parametrize(
    "statement", ["CREATE MATERIALIZED VIEW w WITH ({}) AS " + TRIANGLES, "ALTER MATERIALIZED VIEW v SET ({})"]
)
def test_another_value_is_refused(con, statement, value):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {TRIANGLES}")
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)epsilon cannot be .*from 0 to 1.*epsilon = 0\.5"):
        con.execute(statement.format(f"epsilon = {value}"))
    assert maintained(con).epsilon == 0.5 and len(con.session.database.views) == 1


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT a FROM r", "three tables"),
        ("SELECT count(*) AS n FROM r, s WHERE r.b = s.b", "three tables"),
        (f"SELECT q.n FROM (SELECT count(*) AS n {JOIN}) q JOIN r AS x ON x.a = q.n", "a view of its own"),
        (f"SELECT count(*) AS n {SELF_JOIN} AND x.w < y.w", r"compares \S+ < \S+ across tables"),
        # The table that has both has one in a wider type.
        (f"SELECT count(*) AS n {WIDE} AND t.a < s.b", "compares a < b across tables"),
    ],
)
def test_it_is_refused_for_a_view_whose_values_are_not_told_apart(con, query, why):
    with pytest.raises(sqlfront.ProgrammingError, match=f"(?s)epsilon does not apply .* view w.*{why}"):
        con.execute(f"CREATE MATERIALIZED VIEW w WITH (epsilon = 0.5) AS {query}")
    assert not con.session.database.views
    con.execute(f"CREATE MATERIALIZED VIEW w AS {query}")
    assert maintained(con, "w").balance is None and con.explain("w").to_dict()["heavy"] is None
    with pytest.raises(sqlfront.ProgrammingError, match=f"(?s)epsilon does not apply .* view w.*{why}"):
        con.execute("ALTER MATERIALIZED VIEW w SET (epsilon = 0.5)")


GROUPED = {
    1: f"SELECT r.a, count(*) AS n {JOIN} GROUP BY r.a",
    2: f"SELECT r.a, r.b, count(*) AS n {JOIN} GROUP BY r.a, r.b",
    3: f"SELECT DISTINCT r.a, r.b, s.c {JOIN}",
}


@pytest.mark.parametrize("free", GROUPED)
def test_with_output_columns_epsilon_is_by_request(con, free):
    """One output is kept without the option; with it, after REFRESH, trees over parts; then it changes at once."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {GROUPED[free]}")
    explained = con.explain("v").to_dict()
    assert maintained(con).balance is None and explained["heavy"] is None and explained["cost"]["update"] == "O(N)"
    fill(con)
    con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.4)")
    assert maintained(con).balance is None and is_right(con)
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert maintained(con).tree.is_shared and maintained(con).epsilon == 0.4 and is_right(con)
    for epsilon in (0.75, 1, 0):
        con.execute(f"ALTER MATERIALIZED VIEW v SET (epsilon = {epsilon})")
        assert maintained(con).tree.is_shared and is_right(con)
        assert con.explain("v").to_dict()["heavy"]["epsilon"] == epsilon
        con.execute(f"INSERT INTO s SELECT {int(4 * epsilon)}, i FROM range(100, 120) x(i)")
        con.execute(f"DELETE FROM r WHERE a = {int(4 * epsilon)}")
        assert is_right(con)


@pytest.mark.parametrize(
    ("free", "delay", "space"), [(1, "O(N^0.5)", "O(N^1.25)"), (2, "O(N^0.25)", "O(N^1.25)"), (3, "O(1)", "O(N^1.5)")]
)
def test_explain_tells_of_the_part_trees(con, free, delay, space):
    query, option = GROUPED[free], "WITH (epsilon = 0.25)"
    con.execute(f"CREATE MATERIALIZED VIEW v {option} AS {query}")
    fill(con)
    explained = con.explain("v").to_dict()
    cost = explained["cost"]
    assert (cost["update"], cost["delay"], cost["space"]) == ("O(N^0.75) amortised", delay, space)
    assert explained["strategy"].startswith("IVM^eps with epsilon = 0.25")
    part_trees, figures = explained["heavy"]["part_trees"], explained["heavy"]["figures"]
    assert len(part_trees) == (5 if free == 3 else 7) and figures["part_trees"].keys() == {
        p["name"] for p in part_trees
    }
    text = str(con.explain("v"))
    assert all(f"part tree {part_tree['name']}, {part_tree['reading']}" in text for part_tree in part_trees)
    assert re.search(r"0\.5 +O\(N\^0\.5\) amortised +O\(N", text) and ("next row" in text) == (free != 3)
    assert con.explain("v").svg().count("part tree ") == len(part_trees)
    kinds = [row["kind"] for row in con.view("v").state()]
    assert kinds.count("part_tree") == sum(map(len, figures["part_trees"].values())) > 0


@pytest.mark.parametrize(
    ("free", "reads", "divided"),
    [
        (1, 1, False),
        (1, 0.0001, False),
        (1, 0, True),
        (2, 0.1, False),
        (2, 0.0001, True),
        (3, 1, False),
        (3, 0.5, True),
    ],
)
def test_the_planner_chooses_by_the_share_of_reads(con, free, reads, divided):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (reads = {reads}) AS {GROUPED[free]}")
    fill(con)
    assert maintained(con).tree.is_shared == divided and is_right(con)


def test_reads_is_for_triangles(con):
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)reads does not apply .* view w.*three tables"):
        con.execute("CREATE MATERIALIZED VIEW w WITH (reads = 0) AS SELECT a FROM r")
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)reads cannot be .*from 0 to 1"):
        con.execute(f"CREATE MATERIALIZED VIEW w WITH (reads = 2) AS {GROUPED[1]}")
    with pytest.raises(sqlfront.ProgrammingError, match="every join"):
        con.execute(f"CREATE MATERIALIZED VIEW w WITH (reads = 0, strategy = 'materialize') AS {GROUPED[1]}")


def test_a_union_is_rolled_back_and_read_inside_a_transaction(con):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.4) AS {GROUPED[2]}")
    fill(con)
    before = sorted(con.execute("SELECT * FROM v").fetchall())
    con.execute("BEGIN")
    con.execute("INSERT INTO r SELECT 7, i FROM range(200) x(i)")
    con.execute("INSERT INTO s SELECT i, 9 FROM range(200) x(i)")
    con.execute("INSERT INTO t VALUES (9, 7), (0, 7)")
    inside = sorted(con.execute("SELECT * FROM v").fetchall())
    assert len(inside) > len(before)
    con.execute("ROLLBACK")
    assert sorted(con.execute("SELECT * FROM v").fetchall()) == before and is_right(con)


def test_values_kept_beside_a_union(con):
    """MIN and COUNT(DISTINCT) of a group, HAVING, and a filter, over trees over parts."""
    query = (
        f"SELECT r.a, min(s.c) AS least, count(DISTINCT r.b) AS d, count(*) AS n {JOIN} AND s.c > 0 "
        "GROUP BY r.a HAVING count(*) > 1"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.4) AS {query}")
    for name in "rst":
        con.execute(f"INSERT INTO {name} SELECT i % 7, (i * i) % 11 FROM range(90) x(i)")
    fill(con)
    assert maintained(con).tree.is_shared and is_right(con) and con.execute("SELECT count(*) FROM v").fetchone()[0] > 3
    con.execute("DELETE FROM s WHERE c % 3 = 1")
    assert is_right(con)


def test_epsilon_and_every_join_stored_exclude_each_other(con):
    both = "epsilon = 0.5, strategy = 'materialize'"
    with pytest.raises(sqlfront.ProgrammingError, match="every join"):
        con.execute(f"CREATE MATERIALIZED VIEW v WITH ({both}) AS {TRIANGLES}")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {TRIANGLES}")
    with pytest.raises(sqlfront.ProgrammingError, match="every join"):
        con.execute("ALTER MATERIALIZED VIEW v SET (strategy = 'materialize')")
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert maintained(con).epsilon == 0.25
    con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v WITH (strategy = 'materialize') AS {TRIANGLES}")
    with pytest.raises(sqlfront.ProgrammingError, match="every join"):
        con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.5)")


@pytest.mark.parametrize(("query", "names"), [(TRIANGLES, "rst"), (f"SELECT count(*) AS n {SELF_JOIN}", "e")])
def test_alter_partitions_anew_once(con, query, names, monkeypatch):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {query}")
    fill(con, names)
    calls = []
    build = type(maintained(con).balance)._rebuild
    monkeypatch.setattr(
        "sqlfront.maintenance.heavy_light.balance.Balance._rebuild", lambda *a: (calls.append(1), build(*a))[1]
    )
    for epsilon, partitions in [(0.75, 1), (0.75, 1), (0, 1), (0.5, 2), (1, 2), (0.25, 3)]:
        con.execute(f"ALTER MATERIALIZED VIEW v SET (epsilon = {epsilon})")
        assert len(calls) == partitions and maintained(con).epsilon == epsilon and is_right(con)
        explained = con.explain("v").to_dict()
        assert explained["heavy"]["epsilon"] == epsilon and f"epsilon = {epsilon:g}" in explained["strategy"]
        assert maintained(con).plan.cost.update.power == max(epsilon, 1 - epsilon)
        con.execute(f"DELETE FROM {names[0]} WHERE a = {int(4 * epsilon)}")
        assert is_right(con)


def test_nothing_changes_when_alter_fails(con, monkeypatch):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {TRIANGLES}")
    fill(con)
    before, balance = str(con.explain("v")), maintained(con).balance

    def fail(*_):
        raise MemoryError("no room for a partition")

    with monkeypatch.context() as patch:
        patch.setattr("sqlfront.maintenance.heavy_light.balance.Balance._rebuild", fail)
        with pytest.raises((MemoryError, sqlfront.Error), match="no room"):
            con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.75)")
    assert maintained(con).balance is balance and str(con.explain("v")) == before
    con.execute("INSERT INTO r VALUES (0, 0)")
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert maintained(con).epsilon == 0.25 and is_right(con)


def test_epsilon_is_taken_back_when_it_cannot_be_written_down(con, monkeypatch):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {TRIANGLES}")
    fill(con)
    before = str(con.explain("v")).splitlines()[:8]
    committing = sqlfront.database.transactions.committing

    @contextmanager
    def refused(own):
        with committing(own) as undo:
            yield undo
            assert maintained(con).epsilon == 0.75
            raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("sqlfront.database.transactions.committing", refused)
        with pytest.raises((RuntimeError, sqlfront.Error), match="disk is full"):
            con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.75)")
    assert maintained(con).epsilon == 0.25 and con.session.database.view(con.session.duck, ["v"]).options == {
        "epsilon": 0.25
    }
    assert str(con.explain("v")).splitlines()[:8] == before and is_right(con)
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert maintained(con).epsilon == 0.25


def test_epsilon_is_kept_with_the_view(tmp_path):
    path = str(tmp_path / "kept.db")
    with sqlfront.connect(path) as con:
        tables(con)
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {TRIANGLES}")
        fill(con)
    with sqlfront.connect(path) as con:
        assert maintained(con).epsilon == 0.25 and is_right(con)
        assert con.explain("v").to_dict()["cost"]["update"] == "O(N^0.75) amortised"
        con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 1)")
    with sqlfront.connect(path) as con:
        assert maintained(con).epsilon == 1 and maintained(con).balance is None
        con.execute("REFRESH MATERIALIZED VIEW v")
        assert maintained(con).epsilon == 1
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v WITH (epsilon = 0.75) AS {TRIANGLES}")
        assert maintained(con).epsilon == 0.75
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {TRIANGLES}")
        assert maintained(con).epsilon == 0.5


def test_a_query_is_explained_as_its_view_would_run(con):
    for query in (TRIANGLES, f"SELECT count(*) AS n {SELF_JOIN}", f"SELECT r.a, count(*) AS n {JOIN} GROUP BY r.a"):
        asked = con.explain(query).to_dict()
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        built = con.explain("v").to_dict()
        assert [asked[key] for key in ("strategy", "cost", "reason")] == [
            built[key] for key in ("strategy", "cost", "reason")
        ]
        runs = maintained(con).balance is not None
        assert runs == (asked["heavy"] is not None) == asked["strategy"].startswith("IVM^eps")
        if runs:
            assert asked["heavy"]["figures"] is None and asked["heavy"]["choices"] == built["heavy"]["choices"]


def test_values_kept_for_an_extremum_cost_what_they_did(con):
    query = f"SELECT count(*) AS n, min(r.a) AS m {JOIN}"
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {query}")
    assert maintained(con).balance is not None
    explained = con.explain("v").to_dict()
    assert explained["cost"]["update"] == "O(N + change of the values kept * log N)"
    assert {choice["update"] for choice in explained["heavy"]["choices"]} == {explained["cost"]["update"]}
    assert explained["reason"].count("are kept per group, sorted") == 1
    con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.5)")
    assert con.explain("v").to_dict()["reason"].count("are kept per group, sorted") == 1
    told = con.explain("v").to_dict()
    assert f"With them a change costs {told['cost']['update']}. Without them the query is" in told["reason"]


def test_the_figures_are_those_of_the_partition(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {TRIANGLES}")
    fill(con)
    explained = con.explain("v")
    figures = explained.to_dict()["heavy"]["figures"]
    kept = maintained(con).balance.figures()
    assert (figures["N"], figures["size"], figures["threshold"]) == (kept.base, kept.size, kept.threshold)
    assert (figures["minor"], figures["major"]) == (kept.minors, kept.majors) and kept.minors > 0
    assert figures["size"] == 3 * 79 and figures["tables"]["s"] == {
        "heavy": {"s.b": 1, "s.c": 1},
        "parts": {"HH": 1, "HL": 39, "LH": 39, "LL": 0},
    }
    assert figures["part_trees"] == {"r HL * s LH": (1,), "s HL * t LH": (1,), "t HL * r LH": (1,)}
    text = str(explained)
    assert "s: 1 of s.b, 1 of s.c are heavy; rows by the two: HH 1, HL 39, LH 39, LL 0" in text
    table = [line.split("  ") for line in text.splitlines() if "amortised" in line or "one change" in line]
    cells = [[cell.strip() for cell in line if cell.strip() not in ("", "heavy")] for line in table]
    assert ["0.25", "O(N^0.75) amortised", "O(N^1.25)"] in cells
    assert ["0.5 (now)", "O(N^0.5) amortised", "O(N)"] in cells


def test_other_epsilons_are_drawn(con):
    """The lines of the picture are max(eps, 1 - eps) and max(1, min(1 + eps, 2 - 2 eps))."""
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.75) AS {TRIANGLES}")
    picture = xml.fromstring(con.explain("v").svg())
    lines = picture.findall(f"{SVG}polyline")
    named = {text.text for text in picture.findall(f"{SVG}text")}
    assert len(lines) == 2 and {"one change", "memory", "exponent of N by epsilon"} <= named
    for line, stated in zip(lines, (lambda e: max(e, 1 - e), lambda e: max(1, min(1 + e, 2 - 2 * e))), strict=True):
        places = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        (left, base), (right, _), (_, third) = places[0], places[-1], places[len(places) // 3]
        scale = (third - base) / (stated(1 / 3) - stated(0))
        assert scale < 0  # The greater the exponent, the higher the point.
        for x, y in places:
            assert y == pytest.approx(base + scale * (stated((x - left) / (right - left)) - stated(0)), abs=1)
    assert not xml.fromstring(con.explain("SELECT a FROM r").svg()).findall(f"{SVG}polyline")


def test_show_state_counts_all_that_is_kept(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {TRIANGLES}")
    fill(con)
    rows = con.view("v").state()
    heavy = {row["node"]: row["rows"] for row in rows if row["kind"] == "heavy values"}
    assert heavy == dict.fromkeys(["r.a", "r.b", "s.b", "s.c", "t.c", "t.a"], 1)
    assert {row["node"]: row["rows"] for row in rows if row["kind"] == "part"}["t LH"] == 39
    kinds = [row["kind"] for row in rows]
    assert [kinds.count(kind) for kind in ("part", "product", "pending values")] == [9, 3, 6]
    (listed,) = con.execute("SHOW MATERIALIZED VIEWS").fetchall()
    assert listed[5] == sum(row["bytes"] for row in rows)


def test_steps_are_observed_not_predicted_where_heavy_values_are_apart():
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE e (src INTEGER, dst INTEGER)")
        con.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM e a, e b, e c "
            "WHERE a.dst = b.src AND b.dst = c.src AND c.dst = a.src"
        )
        con.execute("INSERT INTO e VALUES (1, 2), (2, 3), (3, 1)")
        steps = con.explain("v").to_dict()["steps"]
        assert steps["predicted"] is None and steps["observed"] > 0
        assert "observed" in str(con.explain("v")) and "predicted" not in str(con.explain("v"))


@pytest.mark.parametrize("query", [TRIANGLES, f"SELECT count(*) AS n, sum(x.w * y.w) AS s {SELF_JOIN}"])
@pytest.mark.parametrize("epsilon", [None, 0, 0.3, 1])
def test_tables_may_be_partitioned_by_one_column(con, query, epsilon):
    fill(con, "rste", hub=12)
    option = "partition = 'single'" + (f", epsilon = {epsilon}" if epsilon is not None else "")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH ({option}) AS {query}")
    for name in "rste":
        con.execute(f"DELETE FROM {name} WHERE 1 < {TABLES.get(name, 'ab')[0]} AND {TABLES.get(name, 'ab')[1]} < 9")
        assert is_right(con)
    explained, view = con.explain("v").to_dict(), maintained(con)
    assert explained["cost"]["space"] == {None: "O(N^1.5)", 0.3: "O(N^1.3)"}.get(epsilon, "O(N)")
    assert {part_tree["name"] for part_tree in explained["heavy"]["part_trees"]} == {"HHH", "LLL", "*HL", "L*H", "HL*"}
    assert view.tree.is_shared and all(len(one.columns) == 1 for one in view.balance.part_trees.partitions)
    con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.6)")
    assert len(maintained(con).plan.union.part_trees) == 5 and is_right(con)
    con.execute("ALTER MATERIALIZED VIEW v SET (partition = 'double')")
    assert len(maintained(con).plan.union.part_trees) == 5
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert maintained(con).plan.union.covers and maintained(con).epsilon == 0.6 and is_right(con)


def test_a_partition_by_one_column_is_kept_with_the_view(tmp_path):
    path = str(tmp_path / "one.duckdb")
    with sqlfront.connect(path) as con:
        fill(tables(con))
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (partition = 'single') AS {TRIANGLES}")
    with sqlfront.connect(path) as con:
        assert len(maintained(con).plan.union.part_trees) == 5 and is_right(con)


@pytest.mark.parametrize("query", [*GROUPED.values(), "SELECT count(*) AS n FROM r, s WHERE r.b = s.b"])
def test_a_partition_is_chosen_for_sums_over_triangles_alone(con, query):
    for option in ("partition = 'single'", "partition = 'double', epsilon = 0.5"):
        with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)does not apply .* view v.*triangles"):
            con.execute(f"CREATE MATERIALIZED VIEW v WITH ({option}) AS {query}")
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)partition cannot be 'treble'.*'single', 'double'"):
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (partition = 'treble') AS {TRIANGLES}")

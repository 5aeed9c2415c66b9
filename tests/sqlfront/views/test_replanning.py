"""Views that are planned anew while they run: when, to what plan, and that nobody notices but by the steps."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from benchmarks import skew
from sqlfront.maintenance import replanning
from sqlfront.maintenance.view import choices, observation
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.alternatives import alternative_trees
from sqlfront.planner.heavy_light.division import divide_unasked
from tests.following import is_query, take
from tests.slices import parts

QUERY = "SELECT count(*) AS n FROM r JOIN s USING (x) JOIN t USING (y)"


@pytest.fixture
def soon(monkeypatch):
    """Views are looked at after 40 changes."""
    monkeypatch.setattr(observation, "LEAST_CHANGES", 40)
    monkeypatch.setattr(replanning, "OFTEN", 10)
    monkeypatch.setattr(replanning.Replanning, "next_look", 10)


def maintained(con, name="v"):
    return con.session.database.view(con.session.duck, [name]).maintained


def replans(con, name="v"):
    return [row["node"] for row in con.view(name).state() if row["kind"] == "replan"]


def stores(con):
    """The stores of each table, with their indexes."""
    relations = con.session.database.engine.relations
    return {name: {key: store.indexes for key, store in one.stores.items()} for name, one in relations.items()}


def dead(options="", size=300, y=7):
    """Rows of s that meet no row of r, all with one y."""
    con = sqlfront.connect()
    kind = "VARCHAR" if isinstance(y, str) else "BIGINT"
    for table, columns in (("r", "x BIGINT"), ("s", f"x BIGINT, y {kind}"), ("t", f"y {kind}")):
        con.execute(f"CREATE CHANGE TABLE {table} ({columns})")
    con.execute(f"CREATE MATERIALIZED VIEW v {options} AS {QUERY}")
    odd = np.arange(size) * 2 + 1
    con.apply(
        {"r": pa.table({"x": odd - 1}), "s": pa.table({"x": odd, "y": [y] * size}), "t": pa.table({"y": [2 * y]})}
    )
    return con


def toggle(con, table, row, times):
    """The steps of the last change of a row that comes and goes."""
    if times > 2:
        skew.steps(con, [(table, row)], times - 2)
    return skew.steps(con, [(table, row)], 2)["v"]


@pytest.mark.parametrize("name", skew.DEAD)
def test_changes_that_meet_large_groups_in_vain_take_few_steps_once_they_are_observed(name):
    found = skew.dead(name, 1_000)
    assert found["first changes"] > 1_000, "the instance is not adverse"
    assert found["after 1,000 changes"] < 100, found


def test_a_change_in_a_bag_is_joined_first_with_the_table_that_has_few_of_its_rows():
    con = sqlfront.connect()
    for table in ("many", "few", "pairs"):
        con.execute(f"CREATE CHANGE TABLE {table} (x BIGINT, y BIGINT)")
    con.execute("CREATE CHANGE TABLE hub (x BIGINT, y BIGINT, z BIGINT)")
    query = (
        "hub JOIN many ON many.x = hub.x JOIN few ON few.x = hub.y JOIN pairs ON pairs.x = many.y AND pairs.y = few.y"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT z, count(*) AS n FROM {query} GROUP BY z")
    rows = np.arange(2_000)
    con.apply({"many": pa.table({"x": rows * 0, "y": rows}), "pairs": pa.table({"x": rows, "y": rows % 5})})
    con.apply({"few": pa.table({"x": rows[:5], "y": rows[:5]})})
    before = skew.steps(con, [("hub", (0, 1, 7))], 2)["v"]
    skew.steps(con, [("hub", (0, 1, 7))], 1_500)
    assert "another tree" in replans(con)[0]
    assert 4 * skew.steps(con, [("hub", (0, 1, 7))], 2)["v"] < before
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_explain_and_show_state_tell_what_runs_and_why():
    con = dead()
    before = con.explain("v").to_dict()
    assert before["replans"] == [] and before["steps"]["weights"] == {"r": 1, "s": 1, "t": 1}
    assert toggle(con, "t", (7,), 900) > 300 and not replans(con)
    assert toggle(con, "t", (7,), 600) < 10
    [reason] = replans(con)
    after = con.explain("v").to_dict()
    assert after["replans"] == [reason] and "planned anew after epoch" in reason and "were observed" in reason
    assert ("replanned", reason) in con.explain("v").lines()
    assert after["steps"]["weights"]["t"] > 900 and after["steps"]["weights"]["r"] == 0
    assert after["steps"]["observed"] < 10 and after["steps"]["changes"]["t"] < 600, "since the plan runs"
    assert before["tree"] != after["tree"] and before["cost"] == after["cost"]
    fresh = dead("WITH (updates = 't: 1')")
    assert stores(con) == stores(fresh), "nothing is left of the former plan"
    assert con.view("v").cost()["steps"] > 300 * 900, "the counter goes on"


def test_a_hub_of_the_middle_table_is_seen_though_its_groups_are_small_on_average():
    con = skew.opened(skew.chain(400), {"v": ""})
    dear = toggle(con, "r", (0, -1), 2)
    cheap = toggle(con, "t", (-1, 0), 2)
    table, row = ("r", (0, -1)) if dear > cheap else ("t", (-1, 0))
    assert max(dear, cheap) > 400
    assert toggle(con, table, row, 1_300) < 20 and "another tree" in replans(con)[0]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize("options", ["updates = 's: 1'", "epsilon = 1", "replan = false", "strategy = 'materialize'"])
def test_a_plan_that_was_chosen_by_hand_stays(options):
    con = dead(f"WITH ({options})")
    plan = maintained(con).plan
    toggle(con, "t", (7,), 1_300)
    assert maintained(con).plan is plan and not replans(con)
    con.execute("ALTER MATERIALIZED VIEW v SET (replan = false)")
    assert maintained(con).observation is None


def test_alter_lets_a_view_be_planned_anew_or_not():
    con = dead("WITH (replan = false)")
    con.execute("ALTER MATERIALIZED VIEW v SET (replan = true)")
    toggle(con, "t", (7,), 1_300)
    assert len(replans(con)) == 1
    con.execute("ALTER MATERIALIZED VIEW v SET (updates = 's: 1')")
    assert maintained(con).observation is None


def test_changes_of_another_table_are_reason_enough_to_look_though_they_take_few_steps(soon):
    con = skew.opened(skew.chain(60), {"v": "", "w": "updates = 'r: 1'", "x": "updates = 't: 1'"})
    skew.steps(con, [("t", (-1, 0))], 60)
    assert len(replans(con)) == 1
    rows = [("r", (1, value)) for value in range(50)]
    before = skew.steps(con, rows, 100)
    assert before["w"] < before["v"] == before["x"] < 20, "a tree for t, which is not dear"
    skew.steps(con, rows, 300)
    after = skew.steps(con, rows, 100)
    assert after["v"] < 2 * after["w"] < before["v"] and len(replans(con)) == 2


def test_epochs_of_a_stream_are_observed_too(soon):
    con, rows = dead(), pa.table({"y": [7] * 60, "_weight": [1, -1] * 30})
    con.apply_each(rows, table="t", rows=1)
    assert not replans(con), "the first epochs load the table"
    con.apply_each(rows, table="t", rows=1)
    assert len(replans(con)) == 1 and toggle(con, "t", (7,), 2) < 10


def test_a_load_is_no_observation():
    con = dead()
    toggle(con, "t", (7,), 700)
    con.apply({"t": pa.table({"y": np.full(1_000, 8)})})
    toggle(con, "t", (7,), 700)
    assert not replans(con), "700 changes before the load and 700 behind it"
    toggle(con, "t", (7,), 700)
    assert len(replans(con)) == 1


def test_a_view_is_planned_anew_once_in_as_many_changes_as_its_stores_have_rows():
    con = skew.opened(skew.chain(600), {"v": ""})
    ends = [("r", (0, -1)), ("t", (-1, 0))]
    first, second = sorted(ends, key=lambda end: -toggle(con, *end, 2))
    toggle(con, *first, 1_300)
    assert len(replans(con)) == 1
    assert toggle(con, *second, 1_600) > 600 and len(replans(con)) == 1, "the stores have 2,400 rows"
    assert toggle(con, *second, 1_600) < 20
    epochs = [int(text.split("epoch ")[1].split(":")[0]) for text in replans(con)]
    assert len(epochs) == 2 and epochs[1] - epochs[0] >= 2_400


def test_a_search_for_plans_in_vain_is_made_ever_more_seldom_until_changes_are_others(soon, monkeypatch):
    con, searched, search = sqlfront.connect(), [], choices.better_plan
    monkeypatch.setattr(choices, "better_plan", lambda *given: searched.append(1) or search(*given))
    for table in "rst":
        con.execute(f"CREATE CHANGE TABLE {table} (x BIGINT, y BIGINT)")
    joined = "r JOIN s ON r.x = s.x JOIN t ON s.y = t.x"
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT r.y, t.y AS z, count(*) AS n FROM {joined} GROUP BY ALL")
    con.apply({table: pa.table({"x": [1] * 75, "y": list(range(75))}) for table in "st"})
    assert toggle(con, "r", (1, 7), 50 * 150) > 100
    assert 4 <= len(searched) <= 6, "after N, 3 N, 7 N, 15 N and 31 N changes"
    before = len(searched)
    toggle(con, "t", (1, 500), 2 * 150)
    assert len(searched) > before, "most changes are of another table now"


def test_where_a_plan_cannot_be_built_the_running_one_stays(monkeypatch):
    con = dead(y="why")
    con.execute("CREATE MATERIALIZED VIEW w WITH (replan = false) AS SELECT x, count(*) AS n FROM s GROUP BY x")
    build, plan, tree, before = MaintainedView.build, maintained(con).plan, maintained(con).tree, stores(con)

    def fail(view, machine, room=None):
        build(view, machine, room)
        raise MemoryError("no room")

    monkeypatch.setattr(MaintainedView, "build", fail)
    assert toggle(con, "t", ("why",), 1_300) > 300
    [reason] = replans(con)
    assert reason.startswith("not planned anew") and "MemoryError: no room" in reason
    assert maintained(con).plan is plan and maintained(con).tree is tree and stores(con) == before
    monkeypatch.undo()
    con.apply({"r": pa.table({"x": [1, 3]}), "t": pa.table({"y": ["why"]})})
    assert con.execute("FROM v").fetchall() == [(2,)]
    assert not any(con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() for name in "vw")
    for name in "vw":
        con.execute(f"DROP MATERIALIZED VIEW {name}")
    for table in "rst":
        con.execute(f"TRUNCATE {table}")
    assert not con.session.database.engine.nodes
    assert "dictionary" not in con.execute("SHOW STATE").df()["kind"].tolist(), "a text is referred to still"


@pytest.mark.parametrize("work", [skew.hub_edge, skew.grouped_hub_edge])
def test_heavy_values_are_told_apart_where_skew_pays_and_not_for_longer(work):
    con = skew.opened(work(1_500), {"v": ""})
    assert toggle(con, "r", (-1, -1), 1_300) < 100
    assert maintained(con).balance is not None and len(replans(con)) == 1
    assert con.explain("v").to_dict()["heavy"]["figures"]["tables"]["s"]["heavy"]
    con.apply({"s": pa.table({"b": np.full(1_500, -1), "c": np.arange(1_500), "_weight": np.full(1_500, -1)})})
    con.apply({"t": pa.table({"c": np.arange(1_500) + 15_000, "a": np.full(1_500, -1), "_weight": np.full(1_500, -1)})})
    toggle(con, "r", (5, 6), 1_600)
    assert maintained(con).balance is None and "no value is heavy" in replans(con)[-1]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_heavy_values_are_not_told_apart_where_reads_would_wait_for_more_than_changes_save(soon):
    con = skew.opened(skew.grouped_hub_edge(1_500), {"v": ""})
    con.apply(
        {
            "s": pa.table({"b": np.arange(400), "c": np.arange(400)}),
            "t": pa.table({"c": np.arange(400), "a": np.arange(400) - 1}),
        }
    )
    view = con.view("v")
    for _ in range(30):
        toggle(con, "r", (-1, -1), 2)
        for _ in range(4):
            assert len(view.rows()) > 300
    assert maintained(con).balance is None


def test_heavy_and_light_parts_that_would_take_too_much_memory_are_not_built(monkeypatch):
    monkeypatch.setattr(choices, "SPACE", 1e-6)
    con = skew.opened(skew.grouped_hub_edge(1_500), {"v": ""})
    toggle(con, "r", (-1, -1), 1_300)
    assert maintained(con).balance is None and replans(con)[0].startswith("not planned anew")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_subscribers_and_views_over_the_view_follow_a_new_plan(soon):
    con = dead()
    con.execute("CREATE MATERIALIZED VIEW over AS SELECT sum(n) AS n, count(*) AS rows FROM v")
    rows, feed = Counter[tuple[int, ...]](), con.view("v").subscribe(timeout=0)
    con.apply({"r": pa.table({"x": [1, 3]})})
    toggle(con, "t", (7,), 70)
    assert len(replans(con)) == 1
    con.apply_row("t", (7,))
    con.apply_row("s", (0, 14))
    take(feed, rows)
    assert +rows == Counter(con.view("v").rows()) and con.execute("FROM over").fetchall() == [(3, 1)]


def test_a_transaction_may_be_taken_back_before_and_after_a_new_plan(soon):
    con = dead()
    con.execute("CREATE TABLE plain (y BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM r JOIN s USING (x) JOIN plain USING (y)")
    other = con.cursor()
    other.execute("BEGIN")
    assert other.execute("FROM w").fetchall() == [(0,)]
    for _ in range(35):
        con.execute("BEGIN")
        con.execute("INSERT INTO plain VALUES (7)")
        assert con.execute("FROM w").fetchall() == [(0,)]
        con.execute("ROLLBACK")
        con.apply_row("t", (7,))
        con.apply_row("t", (7,), -1)
        with pytest.raises(sqlfront.IntegrityError):
            con.apply({"t": pa.table({"y": [7, 9], "_weight": [1, -1]})})
    assert len(replans(con)) == 1
    other.execute("ROLLBACK")
    assert not any(con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() for name in "vw")


def test_a_deferred_view_and_a_file(tmp_path, soon):
    con = sqlfront.connect(str(tmp_path / "skew.db"))
    con.execute("CREATE CHANGE TABLE t (y BIGINT) WITH (durable = true)")
    con.execute("CREATE TABLE r AS SELECT 2 * i AS x FROM range(300) q(i)")
    con.execute("CREATE TABLE s AS SELECT 2 * i + 1 AS x, 7 AS y FROM range(300) q(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    con.execute(f"CREATE MATERIALIZED VIEW late WITH (apply = 'on read') AS {QUERY}")
    for _ in range(70):
        con.apply({"t": pa.table({"y": [7]})})
        con.execute("FROM late").fetchall()
    assert len(replans(con)) == len(replans(con, "late")) == 1
    con.execute("INSERT INTO r VALUES (1), (3)")
    assert con.execute("FROM v").fetchall() == con.execute("FROM late").fetchall() == [(140,)]
    con.close()
    con = sqlfront.connect(str(tmp_path / "skew.db"))
    assert con.execute("FROM v").fetchall() == con.execute("FROM late").fetchall() == [(140,)]
    assert not any(con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() for name in ("v", "late"))
    con.close()


PATH = "FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c"
TRIANGLE = "FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.d = r.a"
QUERIES = {
    "path": f"SELECT count(*) AS n, sum(r.w) AS w {PATH}",
    "ends": f"SELECT r.a, t.d, count(*) AS n {PATH} GROUP BY r.a, t.d",
    "listed": f"SELECT r.a, s.c, t.d {PATH}",
    "starts": "SELECT DISTINCT r.a FROM r JOIN s ON r.b = s.b",
    "greatest": f"SELECT s.c, max(r.a) AS m, count(DISTINCT t.d) AS k {PATH} GROUP BY s.c",
    "triangles": f"SELECT r.a, r.b, s.c {TRIANGLE}",
    "corners": f"SELECT r.a, count(*) AS n, sum(r.w) AS w {TRIANGLE} GROUP BY r.a",
    "turns": "SELECT x.b, count(*) AS n FROM s AS x JOIN s AS y ON x.c = y.b JOIN s AS z ON y.c = z.b GROUP BY x.b",
    "band": "SELECT r.a, s.c FROM r JOIN s ON r.b = s.b AND r.w <= s.c",
    "optional": "SELECT r.a, s.c, t.d FROM r LEFT JOIN s ON r.b = s.b LEFT JOIN t ON r.b = t.c",
    "blocks": f"SELECT q.b, q.n, t.d FROM (SELECT r.b, count(*) AS n {PATH} GROUP BY r.b) q JOIN t ON t.c = q.b",
    "names": f"SELECT r.name, count(*) AS n {PATH} GROUP BY r.name",
}
"""Queries of all classes whose plan may change."""

COLUMNS = {"r": "a BIGINT, b BIGINT, w BIGINT, name VARCHAR", "s": "b BIGINT, c BIGINT", "t": "c BIGINT, d BIGINT"}


class Shifting:
    """A stream whose changes favour another table and another hub from time to time, over views that change their plans
    at random times and by themselves."""

    def __init__(self, seed, names):
        self.random, self.con = random.Random(seed), sqlfront.connect()
        self.hub, self.table = 0, "r"
        for table, columns in COLUMNS.items():
            kind = "CHANGE TABLE" if table != "t" else "TABLE"
            self.con.execute(f"CREATE {kind} {table} ({columns})")
        self.held = {table: [] for table in COLUMNS}
        for _ in range(3):
            self.change(25)
        for name in names:
            self.con.execute(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}")
        self.feeds = {name: (self.con.view(name).subscribe(timeout=0), Counter()) for name in names[::2]}
        self.names, self.swaps = names, 0

    def value(self):
        found = self.random.random()
        return None if found < 0.05 else self.hub if found < 0.5 else self.random.randrange(6)

    def row(self, table):
        row = [self.value() for _ in COLUMNS[table].split(",")]
        return (*row[:3], self.random.choice([None, "x", "y"])) if table == "r" else tuple(row)

    def change(self, size=4):
        """A few rows of the favourite table, or of another, come or go."""
        table = self.table if self.random.random() < 0.8 else self.random.choice(list(COLUMNS))
        held, rows, weights = self.held[table], [], []
        for _ in range(self.random.randint(1, size)):
            if held and self.random.random() < 0.45:
                rows.append(held.pop(self.random.randrange(len(held))))
                weights.append(-1)
            else:
                rows.append(self.row(table))
                weights.append(1)
        names = [column.split()[0] for column in COLUMNS[table].split(", ")]
        held += [row for row, weight in zip(rows, weights) if weight > 0]
        types = [pa.string() if name == "name" else pa.int64() for name in names]
        columns = {name: pa.array(column, type) for name, type, column in zip(names, types, zip(*rows))}
        self.con.apply({table: pa.table(columns | {"_weight": weights})})

    def fail(self):
        """An epoch that is undone."""
        with pytest.raises(sqlfront.IntegrityError):
            self.con.apply({"s": pa.table({"b": [0, 99], "c": [0, 99], "_weight": [2, -1]}), "r": self.one("r")})

    def one(self, table):
        names = [column.split()[0] for column in COLUMNS[table].split(", ")]
        return pa.table({name: pa.array([value]) for name, value in zip(names, (0, 0, 0, "x"))})

    def swap(self):
        """Another plan for some view or block."""
        engine = self.con.session.database.engine
        view = self.random.choice(list(engine.views.values()))
        if not observation.may_change(view) and not (view.observation is not None and view.observation.divides):
            return
        rates = {table: self.random.choice([0, 1, 50]) for table in view.definition.tables}
        options = [(plan, 0.5) for plan in alternative_trees(view.definition, rates)]
        if (
            view.observation is not None
            and not view.observation.divides
            and (divided := divide_unasked(view.definition, view.plan))
        ):
            options += [divided] * len(options)
        plan, epsilon = self.random.choice(options)
        engine.replan(view.name, plan, epsilon)
        if view.observation is not None:
            view.observation.divides = view.balance is not None
        self.swaps += 1

    def rows(self, name):
        return [tuple(row) for row in self.con.execute(f"FROM {name}").fetchall()]

    def check(self):
        for name in self.names:
            assert is_query(self.con, name), name
            balance = maintained(self.con, name).balance
            if balance is not None:
                balance._check()
        for name, (feed, rows) in self.feeds.items():
            take(feed, rows)
            assert all(count >= 0 for count in rows.values()) and +rows == Counter(self.rows(name)), name

    def step(self, number):
        if number % 12 == 0:
            self.hub, self.table = self.random.randrange(6), self.random.choice(list(COLUMNS))
        kind = self.random.random()
        if kind < 0.1:
            self.fail()
        elif kind < 0.3:
            self.con.execute("BEGIN")
            self.con.execute(f"INSERT INTO t VALUES (0, {self.random.randrange(6)})")
            self.con.execute(f"FROM {self.random.choice(self.names)}").fetchall()
            self.con.execute("ROLLBACK")
        if self.random.random() < 0.5:
            self.swap()
        self.change()

    def drain(self):
        """Nothing is left when all rows and views have gone."""
        for table in COLUMNS:
            self.con.execute(f"DELETE FROM {table}" if table == "t" else f"TRUNCATE {table}")
        self.check()
        for feed, _ in self.feeds.values():
            feed.close()
        for name in self.names:
            self.con.execute(f"DROP MATERIALIZED VIEW {name}")
        engine = self.con.session.database.engine
        assert not engine.nodes and not any(
            relation.stores for relation in engine.relations.values() if not relation.base
        )


@pytest.mark.parametrize("seed", parts(60))
def test_views_are_right_whatever_plans_take_each_others_places(seed, monkeypatch):
    monkeypatch.setattr(observation, "LEAST_CHANGES", 12)
    monkeypatch.setattr(replanning, "APART", 1.1)
    monkeypatch.setattr(replanning, "OFTEN", 3)
    for module in (choices, observation):
        monkeypatch.setattr(module, "GAIN", 1.0)
    names = random.Random(seed).sample(sorted(QUERIES), 4)
    stream = Shifting(seed, names)
    for number in range(25 if seed == 0 else 50):
        stream.step(number)
        stream.check()
    assert stream.swaps
    stream.drain()

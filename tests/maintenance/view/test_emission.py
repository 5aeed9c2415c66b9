"""Delta enumeration: exact, in steps proportional to the update and to the rows that changed (law 9, by counting)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.epoch import shown_relation
from sqlfront.maintenance.view.emission import OutputDelta
from sqlfront.storage.kernels.layout import CHUNK

Rows = list[tuple[int, ...]]


class Heard:
    """Change tables of integers, a view over them, and the changes that its listener is told."""

    def __init__(self, tables: dict[str, str], query: str) -> None:
        self.con = sqlfront.connect()
        self.columns = {name: columns.split() for name, columns in tables.items()}
        for name, columns in self.columns.items():
            self.con.execute(f"CREATE CHANGE TABLE {name} ({', '.join(f'{column} BIGINT' for column in columns)})")
        self.con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        self.engine = self.con.session.database.engine
        self.name = next(name for name in self.engine.views if shown_relation(name) == "v")
        self.told: Counter = Counter()

    def load(self, table: str, rows: Rows) -> None:
        self.apply(**{table: Counter(rows)})

    def apply(self, **changes: Counter) -> Counter:
        """The change of the view's rows that is told for one epoch."""
        self.told = Counter()
        data = {}
        for table, rows in changes.items():
            columns = dict(zip(self.columns[table], zip(*rows), strict=True))
            data[table] = pa.table({**columns, "_weight": list(rows.values())})
        self.con.apply(data)
        return self.told

    def listen(self) -> None:
        self.engine.listen(self.name, self._hear)

    def forget(self) -> None:
        self.engine.forget(self.name, self._hear)

    def steps(self, **changes: Counter) -> int:
        view = self.con.view("v")
        before = view.cost()["steps"]
        self.apply(**changes)
        return view.cost()["steps"] - before

    def _hear(self, _: int, change) -> None:
        table = change.weighted()
        columns = [[None if value is None else int(value) for value in column.to_pylist()] for column in table.columns]
        for *row, weight in zip(*columns, strict=True):
            self.told[tuple(row)] += weight


# Exactness ---------------------------------------------------------------------------------------


def test_example_4_13_of_idris_et_al_2017():
    """The second oracle of Dynamic Yannakakis: twelve tuples of multiplicity 42 in all, of which eight are new."""
    query = "SELECT r.x, r.y, r.z, s.u, t.v, t.w, u.p FROM r JOIN s USING (x, y) JOIN t USING (y) JOIN u USING (y, v)"
    heard = Heard({"r": "x y z", "s": "x y u", "t": "y v w", "u": "y v p"}, query)
    heard.apply(r=Counter({(1, 5, 6): 1, (1, 5, 7): 1, (2, 5, 6): 1, (3, 8, 1): 2}))
    heard.apply(s=Counter({(2, 5, 1): 3, (3, 8, 4): 1}))
    heard.apply(t=Counter({(5, 1, 1): 1, (5, 1, 2): 1, (5, 2, 1): 2, (9, 1, 1): 1}))
    heard.apply(u=Counter({(5, 1, 1): 1, (5, 2, 7): 1, (5, 2, 8): 1}))
    before = Counter(heard.con.execute("FROM v").fetchall())
    assert sorted(before.values()) == [3, 3, 6, 6]
    heard.listen()
    ends = {(1, 1, 1): 2, (1, 2, 1): 2, (2, 1, 7): 4, (2, 1, 8): 4}
    expected = {(1, 5, z, 9, *end): n for z in (6, 7) for end, n in ends.items()}
    assert heard.apply(s=Counter({(1, 5, 9): 2})) == expected
    after = Counter(heard.con.execute("FROM v").fetchall())
    assert len(after) == 12 and after.total() == 42 and after - before == expected
    assert heard.apply(s=Counter({(1, 5, 9): -2})) == {row: -n for row, n in expected.items()}


def test_changes_of_both_signs_on_one_relation():
    """The counterexample to enumerating from the updated path: its delta at [y] is 0, yet two tuples change."""
    heard = Heard({"r": "x y", "s": "y z"}, "SELECT r.x, r.y, s.z FROM r JOIN s USING (y)")
    heard.load("s", [(5, 9)])
    heard.load("r", [(2, 5)])
    heard.listen()
    assert heard.apply(r=Counter({(1, 5): 1, (2, 5): -1})) == {(1, 5, 9): 1, (2, 5, 9): -1}


def test_what_cancels_between_relations_is_not_told():
    heard = Heard({"r": "a b", "s": "a c"}, "SELECT r.a, count(*) AS n FROM r JOIN s USING (a) GROUP BY r.a")
    heard.load("r", [(1, 1), (1, 2), (2, 1), (2, 2)])
    heard.load("s", [(1, 1), (2, 1)])
    heard.listen()
    assert heard.apply(r=Counter({(1, 1): -1}), s=Counter({(1, 2): 1})) == {}
    assert heard.apply(r=Counter({(2, 1): -1}), s=Counter({(2, 2): 2})) == {(2, 2): -1, (2, 3): 1}


# Steps -------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A query, rows for n, and a change after which `rows(n)` rows of the view are others."""

    tables: dict[str, str]
    query: str
    load: dict[str, Callable[[int], Rows]]
    change: dict[str, Counter]
    rows: Callable[[int], int]
    shape: str = "q-hierarchical"


CASES = {
    "q-tree": Case(
        {"r": "a b", "s": "a c"},
        "SELECT r.a, r.b, s.c FROM r JOIN s USING (a)",
        {"s": lambda n: [(i % 2, i) for i in range(2 * n)]},
        {"r": Counter({(0, 1): 1})},
        lambda n: n,
    ),
    "free-connex": Case(  # s has ten times as many rows without a partner in t as with one.
        {"r": "a b", "s": "b c", "t": "c d"},
        "SELECT r.a, r.b, s.c, t.d FROM r JOIN s USING (b) JOIN t USING (c)",
        {"s": lambda n: [(0, i) for i in range(11 * n)], "t": lambda n: [(i, i) for i in range(n)]},
        {"r": Counter({(1, 0): 1})},
        lambda n: n,
        "free-connex",
    ),
    "partner missing": Case(
        {"r": "a b", "s": "b c", "t": "b d"},
        "SELECT r.a, r.b, s.c, t.d FROM r JOIN s USING (b) JOIN t USING (b)",
        {"s": lambda n: [(0, i) for i in range(n)], "t": lambda n: [(1, i) for i in range(n)]},
        {"r": Counter({(1, 0): 1})},
        lambda n: 0,
    ),
    "cross product": Case(
        {"r": "a b", "s": "a c"},
        "SELECT DISTINCT r.b, s.c FROM r, s",
        {"s": lambda n: [(i, i) for i in range(n)], "r": lambda n: [(i, -1) for i in range(n)]},
        {"r": Counter({(1, 0): 1})},
        lambda n: n,
    ),
    "self-join": Case(
        {"r": "a b"},
        "SELECT p.a, p.b, q.b AS c FROM r AS p JOIN r AS q ON p.b = q.a",
        {"r": lambda n: [(0, i + 1) for i in range(n)]},
        {"r": Counter({(-1, 0): 1})},
        lambda n: n,
    ),
    "bound parts": Case(
        {"r": "a b", "s": "b c"},
        "SELECT DISTINCT r.a FROM r JOIN s USING (b)",
        {"r": lambda n: [(i, i % 2) for i in range(2 * n)]},
        {"s": Counter({(0, 1): 1})},
        lambda n: n,
        "free-connex",
    ),
    "nothing new": Case(
        {"r": "a b", "s": "b c"},
        "SELECT DISTINCT r.a FROM r JOIN s USING (b)",
        {"r": lambda n: [(i, 0) for i in range(n)], "s": lambda n: [(0, 0)]},
        {"s": Counter({(0, 1): 1})},
        lambda n: 0,
        "free-connex",
    ),
    "projection": Case(
        {"r": "a b", "s": "b c"},
        "SELECT DISTINCT r.a, s.c FROM r JOIN s USING (b)",
        {"s": lambda n: [(i % 2, i) for i in range(2 * n)]},
        {"r": Counter({(7, 0): 1})},
        lambda n: n,
        "acyclic",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_the_update_and_of_the_rows_that_changed(name):
    """No probe is dead: with n up to 10,000 rows around, a change costs O(its update + rows told), nothing else."""
    case = CASES[name]
    for n in (100, 1_000, 10_000):
        heard = Heard(case.tables, case.query)
        assert heard.con.explain("v").to_dict()["shape"] == case.shape
        for table, rows in case.load.items():
            heard.load(table, rows(n))
        back = {table: Counter({row: -n for row, n in rows.items()}) for table, rows in case.change.items()}
        update = heard.steps(**case.change)
        heard.apply(**back)
        heard.listen()
        steps = heard.steps(**case.change)
        assert len(heard.told) == case.rows(n)
        assert steps - update <= 4 * len(heard.told) + 2 * update + 8
        assert heard.steps(**back) - update <= 4 * case.rows(n) + 2 * update + 8
        assert len(heard.told) == case.rows(n)


@pytest.mark.parametrize("facts", [1_000, 100_000])
def test_a_huge_change_is_not_made_when_nobody_listens(facts):
    heard = Heard({"f": "k x", "d": "k name"}, "SELECT k, name, x FROM f JOIN d USING (k)")
    heard.load("f", [(0, x) for x in range(facts)])
    heard.load("d", [(0, 1)])
    change = Counter({(0, 1): -1, (0, 2): 1})
    assert heard.steps(d=change) <= 40
    heard.listen()
    assert heard.apply(d=Counter({(0, 2): -1, (0, 3): 1})).total() == 0
    assert len(heard.told) == 2 * facts
    heard.forget()
    assert heard.steps(d=Counter({(0, 3): -1, (0, 4): 1})) <= 40


@pytest.mark.parametrize("select", ["DISTINCT a, c", "a, c, sum(b) AS b"])
def test_leaf_changes_of_one_key_are_added_up_before_they_are_extended(select):
    """1,000 rows of r on one key meet 1,000 of s: 1,000 + 1,000 steps, not 1,000 * 1,000."""
    groups = "" if "DISTINCT" in select else "GROUP BY a, c"
    heard = Heard({"r": "a b", "s": "a c"}, f"SELECT {select} FROM r JOIN s USING (a) {groups}")
    heard.load("s", [(0, c) for c in range(1_000)])
    heard.listen()
    assert heard.steps(r=Counter({(0, b): 1 for b in range(1_000)})) <= 10 * (1_000 + 1_000)
    assert len(heard.told) == 1_000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT a, c FROM r JOIN s USING (a)",
        "SELECT DISTINCT x.b, s.c FROM r AS x JOIN r AS y ON x.b = y.b JOIN s ON s.a = x.b",
    ],
)
def test_another_derivation_of_the_same_rows_changes_nothing_and_costs_nothing(query):
    """DISTINCT: the thousand rows that a second row of r derives again are not listed, nor when it goes."""
    heard = Heard({"r": "a b", "s": "a c"}, query)
    heard.load("s", [(0, c) for c in range(1_000)])
    heard.listen()
    assert len(heard.apply(r=Counter({(0, 0): 1}))) == 1_000
    for weight in (1, -1):
        assert heard.steps(r=Counter({(0, 0): weight})) <= 60
        assert heard.told == Counter()
    assert heard.apply(r=Counter({(0, 0): -1})).total() == -1_000


# Listed rows -------------------------------------------------------------------------------------

LEFT = "SELECT f.k, name, x FROM f LEFT JOIN d ON f.k = d.k"
MANY = 3000


def changes_of(heard: Heard, **changes: Counter) -> Counter:
    """The change of the view's rows in one epoch, which the listener is told."""
    before = Counter(heard.con.execute("FROM v").fetchall())
    told = heard.apply(**changes)
    after = Counter(heard.con.execute("FROM v").fetchall())
    difference = {row: after[row] - before[row] for row in before | after if after[row] != before[row]}
    assert told == difference
    return told


def test_runs_of_listed_rows_are_added_up_where_they_meet():
    """A dimension row takes rows away and puts others out, in two runs: those of a name that is NULL are the same."""
    heard = Heard({"f": "k x", "d": "k name"}, LEFT)
    heard.load("f", [(k, x) for k in (0, 1) for x in range(MANY)])
    heard.listen()
    assert len(changes_of(heard, d=Counter({(0, 7): 1}))) == 2 * MANY
    assert changes_of(heard, d=Counter({(1, None): 1})) == {}
    assert set(changes_of(heard, d=Counter({(0, 7): 1, (1, None): 1})).values()) == {1}
    assert set(changes_of(heard, d=Counter({(0, 7): -1}), f=Counter({(0, -1): 1})).values()) == {1, -1}
    changes_of(
        heard, d=Counter({(0, 7): -1, (0, 8): 1, (1, None): -2}), f=Counter({(0, 0): -1, (1, MANY): 2, (2, 0): 1})
    )


def test_runs_of_many_chunks_are_added_up():
    """More runs than are noted: each chunk of a batch is one."""
    heard = Heard({"f": "k x", "d": "k name"}, LEFT)
    heard.load("d", [(0, 7)])
    heard.listen()
    rows = Counter({(0, x): 1 for x in range(65 * CHUNK + 1)})
    assert len(heard.apply(f=rows)) == len(rows)


def test_rows_that_go_on_both_sides_of_a_join_are_told_as_they_are_listed(monkeypatch):
    heard = Heard({"r": "k x", "s": "k y"}, "SELECT r.x, s.y FROM r JOIN s ON r.k < s.k")
    heard.load("r", [(0, x) for x in range(40)])
    heard.load("s", [(1, y) for y in range(40)])
    heard.listen()
    monkeypatch.setattr(OutputDelta, "_add_up", lambda delta: pytest.fail("the rows are added up"))
    gone = {"r": Counter({(0, x): -1 for x in range(30)}), "s": Counter({(1, y): -1 for y in range(20)})}
    assert len(changes_of(heard, **gone)) == 40 * 40 - 10 * 20


def test_an_undone_epoch_leaves_no_listed_rows():
    heard = Heard({"f": "k x", "d": "k name"}, LEFT)
    heard.load("f", [(0, x) for x in range(MANY)])
    heard.listen()
    with pytest.raises(sqlfront.Error):
        heard.apply(d=Counter({(0, 7): 1}), f=Counter({(1, 1): -1}))
    assert heard.told == {}
    assert len(changes_of(heard, d=Counter({(0, 7): 1}))) == 2 * MANY


def test_listed_rows_join_those_that_are_added_up():
    """A row of s puts rows of r out, which are listed; a row of r is put out itself."""
    heard = Heard({"r": "k x", "s": "k"}, "SELECT r.k, r.x FROM r JOIN s USING (k)")
    heard.load("r", [(0, x) for x in range(MANY)])
    heard.load("s", [(5,)])
    heard.listen()
    assert len(changes_of(heard, s=Counter({(0,): 1}), r=Counter({(5, 5): 1, (0, 0): -1, (0, MANY): 1}))) == MANY + 1
    assert len(changes_of(heard, s=Counter({(0,): -1, (5,): -1}), r=Counter({(0, 1): -1}))) == MANY + 1


def test_rows_that_two_paths_list_cancel_within_an_epoch():
    """A row of r comes while one of its partners goes."""
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE r (x BIGINT, k BIGINT); CREATE CHANGE TABLE s (k BIGINT, y BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, x, y FROM r JOIN s USING (k)")
        con.apply({"s": pa.table({"k": [1, 1], "y": [5, 6]})})
        with con.view("v").subscribe(snapshot=False) as feed:
            added = pa.table({"x": [7], "k": [1]})
            con.apply({"r": added, "s": pa.table({"k": [1], "y": [5], "_weight": [-1]})})
            assert feed.poll().select(["x", "y", "_change_type"]).to_pylist() == [
                {"x": 7, "y": 6, "_change_type": "insert"}
            ]

"""Views in a transaction stay as they were, while another connection goes on: two reads of one transaction agree."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import pytest

import sqlfront
from tests.definition_oracle import same_bag
from tests.sqlfront.fuzz.replay import Replay
from tests.sqlfront.random_selects import SCHEMA, change, select

Rows = dict[str, Counter[Any]]


REWOUND = {
    "floats": "SELECT a, sum(d / 3) AS s, avg(d / 7) AS m FROM t GROUP BY a",
    "middle": "SELECT s, quantile_cont(d, 0.5) AS q FROM t GROUP BY s",
    "mixed": "SELECT r.b, count(*) AS n, sum(c.x / 3) AS s FROM r JOIN c ON r.a = c.a GROUP BY r.b",
    "changes": "SELECT a, sum(x / 3) AS s FROM c GROUP BY a",
    "first": "SELECT a, d / 3 AS x FROM t ORDER BY x, a LIMIT 5",
}
"""Views without DuckDB's answer: it has no snapshot of their tables, or sums them to other last bits."""


class Transactions:
    """Views of random queries over three tables. One cursor reads in transactions, between which and in which another
    one writes; the reader writes, too, and its views are then those of DuckDB's own snapshot."""

    def __init__(self, seed: int, views: int, seen: Counter[str]) -> None:
        self.random, self.seed, self.seen = Random(seed), seed, seen
        self.con = sqlfront.connect(":memory:", config={"threads": 1})
        self.con.execute(SCHEMA)
        self.con.execute("CREATE CHANGE TABLE c (a BIGINT, x DOUBLE)")
        self.other = self.con.cursor()
        self.write(self.con)
        self.queries: dict[str, str] = {}
        while len(self.queries) < views:
            self._create(f"v{len(self.queries)}", select(self.random))
        for name, query in REWOUND.items():
            self.con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")

    def _create(self, name: str, query: str) -> None:
        try:
            self.con.session.duck.execute(query).fetchall()
            self.con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        except (duckdb.Error, sqlfront.NotSupportedError):
            return
        self.queries[name] = query

    def write(self, con: Any) -> None:
        for statement in change(self.random):
            con.execute(statement)
        a, x = self.random.randint(0, 3), self.random.choice([0.1, 1e20, -1e20, 3.3])
        changes = f"INSERT INTO c VALUES ({a}, {x}), (1, {x})", f"UPDATE c SET x = {x} WHERE a = {a}"
        con.execute(self.random.choice([*changes, f"DELETE FROM c WHERE a = {a}"]))

    def read(self) -> Rows:
        """All views, some by a name that only DuckDB knows."""
        read = "SELECT * FROM {}", "WITH x AS (FROM {}) FROM x", "SELECT * FROM {} WHERE true"
        return {
            name: Counter(self.con.execute(self.random.choice(read).format(name)).fetchall())
            for name in (*self.queries, *REWOUND)
        }

    def assert_computed(self, rows: Rows, label: str) -> None:
        """The rows are those that DuckDB computes, where it has the same."""
        for name, found in self.computed().items():
            assert rows[name] == found, f"{label}, {name}"
        name = self.random.choice(["floats", "middle", "first"])
        assert self.con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == [], f"{label}, {name}"

    def computed(self) -> Rows:
        return {name: Counter(self.con.session.duck.execute(text).fetchall()) for name, text in self.queries.items()}

    def run(self, trials: int) -> None:
        with self.con:
            for trial in range(trials):
                self.transaction(f"seed {self.seed}, transaction {trial}")
            self.assert_computed(self.read(), f"seed {self.seed}")

    def transaction(self, label: str) -> None:
        random, con = self.random, self.con
        con.execute("BEGIN")
        before = self.read()
        for _ in range(random.choice([1, 1, 2])):
            self.write(self.other)
            after = self.read()
            assert after == before, label
            self.assert_computed(after, label)
            self.seen["trials"] += len(after)
            self.seen["changed"] += sum(self.outside(name) != rows for name, rows in after.items())
            if random.random() < 0.3:
                con.execute(f"INSERT INTO {random.choice(['r', 't'])} VALUES (1, 2, 1, 'a'), (1, 1, NULL, 'b')")
                before = self.read()
                self.assert_computed(before, label)
        con.execute(random.choice(["COMMIT", "ROLLBACK"]))

    def outside(self, name: str) -> Counter[Any]:
        return Counter(self.other.execute(f"SELECT * FROM {name}").fetchall())


def run(seeds: range, views: int, trials: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        Transactions(seed, views, seen).run(trials)
    return seen


def test_two_reads_of_a_transaction_agree() -> None:
    seen = run(range(2), 3, 3)
    assert seen["changed"] >= 0.2 * seen["trials"]


@pytest.mark.slow
def test_two_reads_of_a_transaction_agree_at_length() -> None:
    seen = run(range(100, 170), 8, 16)
    assert seen["trials"] >= 10_000
    assert seen["changed"] >= 0.2 * seen["trials"]


class TypedTransactions(Replay):
    """Views of random terms over all types, read in a transaction before and after another connection's change."""

    def _rolled_back(self) -> None:
        other = self.con.cursor()
        self._execute("BEGIN")
        before = {name: self._rows(name) for name in self.views}
        self.script += ["-- another connection", *self.tables.change(other)]
        other.close()
        for name, rows in before.items():
            found = self._rows(name)
            if not same_bag(found, rows):
                raise AssertionError(f"{name}: {self.views[name]}\nfound    {found}\nbefore {rows}")
            self.seen["reads"] += 1
        self._execute("ROLLBACK")
        self._compare()

    def _rows(self, name: str) -> list[Any]:
        return self.con.execute(f"SELECT * FROM {name}").fetchall()


@pytest.mark.slow
def test_two_reads_of_a_transaction_agree_over_all_types() -> None:
    seen: Counter[str] = Counter()
    for seed in range(500, 540):
        TypedTransactions(seed, seen).run()
    assert seen["reads"] >= 500

"""One run of the fuzzer: views of random terms through random epochs, until the tables and the state are empty."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import sqlfront
from sqlfront.explain.state_rows import state_rows
from sqlfront.planner.algebra.to_sql import to_sql
from sqlfront.planner.model.computed_rows import ConstantRows, TouchedGroups
from sqlfront.planner.model.query import Definition, raw_places
from tests.definition_oracle import same_bag
from tests.sqlfront.fuzz.random_tables import RandomTables, answer
from tests.sqlfront.fuzz.typed_terms import TypedTerms

MOST_ANSWERS = 2000
KINDS = ("view tree", "union", "touched groups", "row-wise block", "distinct values", "ranked", "constant rows")


class Replay:
    """`seen` counts epochs of views, by kinds of nodes and rules that changed the query, and refusals by construct."""

    def __init__(self, seed: int, seen: Counter[str], views: int = 8, epochs: int = 12) -> None:
        self.places, self.epochs = range(views), epochs
        self.seed, self.seen, self.random = seed, seen, Random(seed)
        self.tables = RandomTables(self.random)
        self.terms = TypedTerms(self.random, self.tables.columns)
        self.con = sqlfront.connect(":memory:", config={"threads": 1})
        # DuckDB 2.0.1 takes NaN for the least value there: ORDER BY y LIMIT 1 of (NaN) and (1.5) in two row groups.
        self.con.execute("SET disabled_optimizers = 'row_group_pruner'")
        self.script: list[str] = []
        self.views: dict[str, str] = {}
        self.kinds: dict[str, list[str]] = {}

    def run(self) -> None:
        """Raises AssertionError, with the script that led there, for a difference or an error."""
        try:
            self._run()
        except Exception as error:
            script = ";\n".join([*self.script, ""])
            raise AssertionError(f"seed {self.seed}: {type(error).__name__}: {error}\n{script}") from error
        finally:
            self.con.close()

    def _run(self) -> None:
        for statement in ["SET TimeZone = 'UTC'", *self.tables.ddl()]:
            self._execute(statement)
        half = len(self.places) // 2
        for number in self.places[:half]:
            self._create(f"v{number}")
        fresh = self._state()
        for _ in range(6):
            self.script += self.tables.change(self.con)
        for number in self.places[half:]:
            self._create(f"v{number}")
        self._compare()
        for epoch in range(self.epochs - 1):
            if epoch % 3 == 2:
                self._rolled_back()
            self.script += self.tables.change(self.con)
            self._compare()
        self._check()
        self.script += self.tables.empty(self.con)
        self._compare()
        self._check()
        for number in self.places[half:]:
            self._drop(f"v{number}")
        kept = self._state()
        assert kept == fresh, f"beyond views over empty tables: {kept - fresh}, less: {fresh - kept}"
        for name in list(self.views):
            self._drop(name)
        self._nothing_is_kept()

    # Views ---------------------------------------------------------------------------------------------

    def _create(self, name: str) -> None:
        """A view of a random term that DuckDB answers itself; none if it is refused."""
        query = self._query()
        self.seen["queries"] += 1
        self.script.append(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        try:
            self.con.execute(self.script[-1])
        except sqlfront.NotSupportedError as error:
            assert "^" in (error.where or ""), error
            self.seen["refused"] += 1
            self.seen[f"refused: {error.what}"] += 1
            self.script.pop()
            return
        self.views[name] = query
        definition = self.con.session.database.views["main", name].definition
        steps = self.con.execute(f"EXPLAIN (ALGEBRA) {query}").fetchall()
        self.kinds[name] = sorted(kinds_of(definition) | {rule for rule, _ in steps[1:]})

    def _query(self) -> str:
        while True:
            term = self.terms.query()
            query = to_sql(term, [(column, f"o{place}") for place, column in enumerate(term.columns)])
            rows = answer(self.con, query)
            if rows is not None and len(rows) < MOST_ANSWERS:
                return query

    def _drop(self, name: str) -> None:
        if name in self.views:
            self._execute(f"DROP MATERIALIZED VIEW {name}")
            del self.views[name]

    # Epochs --------------------------------------------------------------------------------------------

    def _rolled_back(self) -> None:
        """A transaction whose reads see its changes, and which leaves nothing."""
        self._execute("BEGIN")
        for _ in range(2):
            self.script += self.tables.change(self.con)
        self._compare()
        self._execute("ROLLBACK")
        self._compare()

    def _execute(self, statement: str) -> None:
        self.script.append(statement)
        self.con.execute(statement)

    # Judgement -----------------------------------------------------------------------------------------

    def _compare(self) -> None:
        for name, query in self.views.items():
            expected = answer(self.con, query)
            if expected is None:
                self.seen["unanswered"] += 1
                continue
            found = self.con.execute(f"SELECT * FROM {name}").fetchall()
            if not same_bag(found, expected):
                raise AssertionError(f"{name}: {query}\nfound    {found}\nexpected {expected}")
            self.seen["view-epochs"] += 1
            self.seen["rows"] += bool(found)
            self.seen.update(self.kinds[name])

    def _check(self) -> None:
        for name in self.views:
            differing = self.con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall()
            assert differing == [], f"CHECK {name}: {differing}"

    def _state(self) -> Counter[Any]:
        """How many rows each part of the state has, and how many values of rows the dictionaries."""
        database = self.con.session.database
        with database.engine.lock:
            rows = state_rows(database, database.views.values())
        found = Counter({(view, node, kind): count for view, node, kind, count, *_ in rows if kind != "dictionary"})
        # Constants of expressions are pinned for good.
        found.update({number: one.live() - one.pinned for number, one in enumerate(database.engine.dictionaries)})
        return +found

    def _nothing_is_kept(self) -> None:
        engine = self.con.session.database.engine
        assert not engine.nodes and not engine.relations and not engine.views
        for dictionary in engine.dictionaries:
            dictionary.sweep()
            assert dictionary.live() == dictionary.pinned, "a dictionary is not empty"


def kinds_of(definition: Definition) -> set[str]:
    """The kinds of nodes that a view and the blocks below it are."""
    found = {"union"} if definition.unions or definition.branches else set()
    for block in (definition, *(block for _, block in definition.derived)):
        match block:
            case TouchedGroups():
                found.add("touched groups")
            case ConstantRows():
                found.add("constant rows")
            case Definition():
                found.add("view tree")
                if block is not definition and block.mode == "bag" and raw_places(block) is None:
                    found.add("row-wise block")
                if block.distinct_sets:
                    found.add("distinct values")
                if block.limit is not None:
                    found.add("ranked")
    return found

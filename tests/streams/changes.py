"""Random streams: tables, views and steps as plain data, which a seed or a fixture gives back.

A step is a tuple whose first item is its kind:

    ("view", name, query)                    ("drop", name)         ("check", name)       ("refresh", name)
    ("apply", {table: ((row, weight), ...)}, style)   one epoch; style: weight, batch, change_type, text
    ("rows", table, ((row, weight), ...))    one epoch each, through apply_row
    ("insert", table, rows)                  ("delete", table, column, value)
    ("update", table, column, value, column of the condition, its value)
    ("absent", {table: ((row, weight), ...)}, table, row)     one delete too many of `row`: must fail whole
    ("begin",) ("commit",) ("rollback",)
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from tests.streams.queries import Query, random_query
from tests.streams.schema import Row, Table, random_row, random_tables, random_value

Step = tuple[Any, ...]
# The most rows a table holds, by the number of atoms: a cross product of five must stay small.
MOST_ROWS = {1: 60, 2: 28, 3: 13, 4: 8, 5: 6}


@dataclass(frozen=True)
class Stream:
    """A reproducible run. `deep`: the invariants of every structure are checked after each step."""

    tables: tuple[Table, ...]
    steps: tuple[Step, ...]
    deep: bool = False

    @property
    def features(self) -> set[str]:
        found = {f"{table.kind} table" for table in self.tables} | {"key" for table in self.tables if table.key}
        for step in self.steps:
            found.add(step[0])
            if step[0] == "view":
                found |= step[2].features
            if step[0] == "apply" and len(step[1]) > 1:
                found.add("several tables at once")
        return found


class _Builder:
    """Grows a stream, keeping count of the rows that will be there."""

    def __init__(self, seed: int, steps: int) -> None:
        self.choose = random.Random(seed)
        self.tables = random_tables(self.choose)
        self.measures = self.choose.choice(["small", "small", "wide", "special"])
        self.most_atoms = self.choose.choice([1, 2, 3, 3, 4, 5, 5])
        self.rows: dict[str, Counter[Row]] = {table.name: Counter() for table in self.tables}
        self.saved: dict[str, Counter[Row]] | None = None
        self.steps: list[Step] = []
        self.views: dict[str, Query] = {}
        self.left = steps

    def build(self) -> tuple[Step, ...]:
        choose = self.choose
        if any(t.kind != "passing" for t in self.tables) and choose.random() < 0.3:
            self.add_apply([t for t in self.tables if t.kind != "passing"], 6)
        for _ in range(choose.choice([1, 1, 2, 2])):
            self.add_view()
        kinds = [self.add_batch] * 12 + [self.add_rows] * 3 + [self.add_sql] * 4 + [self.add_absent] * 2
        kinds += [self.add_transaction] * 2 + [self.add_drain] * 2 + [self.add_catalog] * 2
        while len(self.steps) < self.left:
            choose.choice(kinds)()
        return tuple(self.steps)

    @property
    def most(self) -> int:
        return MOST_ROWS[self.most_atoms]

    def add_view(self) -> None:
        known = [t for t in self.tables if t.kind != "passing" or not self.rows_passed(t)]
        if not known:
            return
        name = f"v{sum(step[0] == 'view' for step in self.steps)}"
        sources = self.sources(known)
        if sources and self.choose.random() < 0.6:
            query = self.over_views(sources, known)
        else:
            query = random_query(self.choose, tuple(known), self.most_atoms, products=self.measures != "special")
        if self.choose.random() < 0.2:
            query = replace(query, strategy="materialize", features=query.features | {"materialized joins"})
        self.views[name] = query
        self.steps.append(("view", name, query))

    def sources(self, known: list[Table]) -> list[Table]:
        """Views as tables for other views: small ones, without what DuckDB computes inexactly or may overflow."""
        found = []
        for name, query in self.views.items():
            small = query.mode == "group" or "1 atoms" in query.features
            inlined = query.mode == "bag" and not set(query.tables) <= {table.name for table in known}
            if self.measures == "small" and query.columns and small and not inlined:
                found.append(Table(name, "view", query.columns))
        return found

    def over_views(self, sources: list[Table], known: list[Table]) -> Query:
        """A query that reads a view, perhaps joined with itself, another, or a table."""
        pool = [self.choose.choice(sources)]
        if self.choose.random() < 0.6:
            pool.append(self.choose.choice([*known, *known, *sources]))
        while True:
            query = random_query(self.choose, tuple(pool), 2)
            reads = tuple(name for name in query.tables if name in self.views)
            if len(set(query.tables)) == len(set(pool)):
                break
        tables = [name for read in reads for name in self.views[read].tables]
        tables += [name for name in query.tables if name not in self.views]
        features = query.features | {"view on view"} | ({"view and table"} if len(reads) < len(query.tables) else set())
        return replace(query, tables=tuple(dict.fromkeys(tables)), reads=reads, features=frozenset(features))

    def rows_passed(self, table: Table) -> bool:
        return any(
            (step[0] in ("apply", "absent") and table.name in step[1])
            or (step[0] in ("rows", "insert") and table.name == step[1])
            for step in self.steps
        )

    def random_changes(self, table: Table, count: int) -> tuple[tuple[Row, int], ...]:
        """Inserts, deletes and updates that keep every row's count from falling below 0."""
        rows, changes = self.rows[table.name], []
        for _ in range(count):
            present = list(rows)
            full = rows.total() >= self.most
            if present and (full or self.choose.random() < 0.42):
                row = self.choose.choice(present)
                n = rows[row] if self.choose.random() < 0.5 else 1
                self.count(changes, rows, row, -n)
                if self.choose.random() < 0.4:
                    self.count(changes, rows, self.updated(table, row), n)
            elif not full:
                row = self.choose.choice(present) if present and self.choose.random() < 0.2 else None
                row = row or random_row(self.choose, table, self.measures)
                self.count(changes, rows, row, min(self.choose.choice([1, 1, 1, 1, 2, 3]), self.most - rows.total()))
        self.choose.shuffle(changes)
        return tuple(changes)

    def count(self, changes: list[tuple[Row, int]], rows: Counter[Row], row: Row, n: int) -> None:
        changes.append((row, n))
        rows[row] += n
        if not rows[row]:
            del rows[row]

    def updated(self, table: Table, row: Row) -> Row:
        place = self.choose.randrange(len(row))
        column = table.columns[place]
        to_null = row[place] is not None and not column.not_null and self.choose.random() < 0.4
        value = None if to_null else random_value(self.choose, column, self.measures)
        return (*row[:place], value, *row[place + 1 :])

    def add_apply(self, tables: list[Table], size: int, kind: str = "weight") -> None:
        changes = {table.name: self.random_changes(table, size) for table in tables}
        self.steps.append(("apply", {name: found for name, found in changes.items() if found}, kind))

    def add_batch(self) -> None:
        read = {name for query in self.views.values() for name in query.tables}
        wanted = [t for t in self.tables if t.name in read or self.choose.random() < 0.2] or list(self.tables)
        tables = self.choose.sample(wanted, min(len(wanted), self.choose.choice([1, 1, 2, 3])))
        style = self.choose.choice(["weight", "batch", "batch", "change_type", "text"])
        self.add_apply(tables, self.choose.choice([1, 2, 4, 10]), style)

    def add_rows(self) -> None:
        table = self.choose.choice(self.tables)
        changes = sorted(self.random_changes(table, self.choose.choice([1, 3])), key=lambda change: -change[1])
        self.steps.append(("rows", table.name, tuple(changes)))

    def add_sql(self) -> None:
        table = self.choose.choice(self.tables)
        kind = "insert" if table.kind == "passing" else self.choose.choice(["insert", "delete", "update", "update"])
        rows = self.rows[table.name]
        if kind == "insert":
            room = max(0, self.most - rows.total())
            new = tuple(
                random_row(self.choose, table, self.measures) for _ in range(min(room, self.choose.choice([1, 3])))
            )
            rows.update(new)
            self.steps += [("insert", table.name, new)] if new else []
            return
        where = self.choose.choice(table.columns)
        value = self.choose.choice([row[table.place(where.name)] for row in rows] or [None])
        if kind == "delete":
            self.steps.append(("delete", table.name, where.name, value))
        else:
            column = self.choose.choice(table.columns)
            new_value = random_value(self.choose, column, self.measures)
            self.steps.append(("update", table.name, column.name, new_value, where.name, value))
        self.rows[table.name] = effect(table, rows, self.steps[-1])

    def add_absent(self) -> None:
        caught = [t for t in self.tables if t.kind != "passing"]
        if self.saved is not None or not caught:
            return
        table = self.choose.choice(caught)
        row = self.choose.choice(list(self.rows[table.name]) or [random_row(self.choose, table, self.measures)])
        kept = {name: Counter(rows) for name, rows in self.rows.items()}
        others = {t.name: self.random_changes(t, 2) for t in self.tables if t is not table}
        self.rows = kept
        self.steps.append(("absent", {name: found for name, found in others.items() if found}, table.name, row))

    def add_transaction(self) -> None:
        if self.saved is not None:
            return
        self.steps.append(("begin",))
        self.saved = {name: Counter(rows) for name, rows in self.rows.items()}
        for _ in range(self.choose.choice([1, 2, 3])):
            self.choose.choice([self.add_batch, self.add_sql, self.add_rows])()
        end = self.choose.choice(["commit", "commit", "rollback"])
        self.steps.append((end,))
        if end == "rollback":
            self.rows = self.saved
        self.saved = None

    def add_drain(self) -> None:
        """Delete all rows of a table, or bring one back."""
        table = self.choose.choice(self.tables)
        rows = self.rows[table.name]
        if rows:
            self.steps.append(("apply", {table.name: tuple((row, -n) for row, n in rows.items())}, "weight"))
            rows.clear()

    def add_catalog(self) -> None:
        if not self.views or self.choose.random() < 0.5:
            return self.add_view()
        name = self.choose.choice(list(self.views))
        kept = all(t.kind != "passing" for t in self.tables if t.name in self.views[name].tables)
        kind = self.choose.choice(["drop", "drop", "check", "refresh"] if kept else ["drop"])
        if kind == "drop" and (len(self.views) == 1 or any(name in query.reads for query in self.views.values())):
            return self.add_view()
        if kind == "drop":
            del self.views[name]
        self.steps.append((kind, name))
        return None


def effect(table: Table, rows: Counter[Row], step: Step) -> Counter[Row]:
    """The rows of a table after a step that concerns it, with negative counts where it deletes too much."""
    after = Counter(rows)
    if step[0] in ("apply", "absent"):
        for row, n in step[1].get(table.name, ()):
            after[row] += n
    elif step[0] == "rows" and step[1] == table.name:
        for row, n in step[2]:
            after[row] += n
    elif step[0] == "insert" and step[1] == table.name:
        after.update(step[2])
    elif step[0] == "delete" and step[1] == table.name:
        place = table.place(step[2])
        after = Counter({row: n for row, n in rows.items() if row[place] != step[3]})
    elif step[0] == "update" and step[1] == table.name:
        place, where = table.place(step[2]), table.place(step[4])
        after = Counter()
        for row, n in rows.items():
            changed = row[where] == step[5]
            after[(*row[:place], step[3], *row[place + 1 :]) if changed else row] += n
    return Counter({row: n for row, n in after.items() if n})


def random_stream(seed: int, steps: int = 16) -> Stream:
    """The stream of a seed."""
    builder = _Builder(seed, steps)
    made = builder.build()
    return Stream(builder.tables, made, deep=seed % 3 == 0)


def hub_stream(seed: int, hub: int = 5200) -> Stream:
    """Few steps around a key with thousands of rows: batches of several chunks, expansions that are resumed."""
    choose = random.Random(f"hub {seed}")
    while True:
        tables = random_tables(choose)
        big = tables[0]
        query = random_query(choose, tables, 3, products=False)
        is_read_once = query.body.count(f"{big.name} AS ") == 1
        joins = {"2 atoms": 1, "3 atoms": 2}
        simple = any(f in query.features and query.body.count(" = ") == n for f, n in joins.items())
        if is_read_once and simple and not query.features & {"cross product", "predicate", "having"}:
            break
    key = choose.choice(big.columns)
    value = next(v for v in (random_value(choose, key, "small") for _ in range(99)) if v is not None)

    def rows_at_the_hub(table: Table, count: int) -> Counter[Row]:
        rows: Counter[Row] = Counter()
        for i in range(count):
            row = random_row(choose, table, "small")
            numbered = zip(table.columns, row, strict=True)
            row = tuple(i % 1500 if c.name == "i" and c.type in ("BIGINT", "INTEGER") else v for c, v in numbered)
            is_joined = [c.type == key.type and c.role == key.role and choose.random() < 0.9 for c in table.columns]
            rows[tuple(value if j else v for j, v in zip(is_joined, row, strict=True))] += 1
        return rows

    few = {table.name: rows_at_the_hub(table, 3) for table in tables if table is not big}
    many = rows_at_the_hub(big, hub)
    half = tuple(choose.sample(list(many.items()), len(many) // 2))
    early, late = (("view", "v0", query), ("view", "v1", query))
    later = [] if any(table.kind == "passing" for table in tables) else [late]
    steps: list[Step] = [
        early,
        ("apply", {name: tuple(rows.items()) for name, rows in few.items()}, "weight"),
        ("apply", {big.name: tuple(many.items())}, "weight"),
        ("apply", {name: tuple((row, -n) for row, n in rows.items()) for name, rows in few.items()}, "weight"),
        *later,
        ("apply", {name: tuple(rows.items()) for name, rows in few.items()}, "change_type"),
        ("apply", {big.name: tuple((row, -n) for row, n in half)}, "weight"),
        ("apply", {big.name: half, **{n: tuple((row, 1) for row in rows) for n, rows in few.items()}}, "weight"),
    ]
    return Stream(tables, tuple(step for step in steps if step[0] != "apply" or any(step[1].values())))

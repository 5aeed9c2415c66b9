"""Random queries with outer and anti joins, EXISTS and IN over three small tables of integers, and random changes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sqlfront import Connection

TABLES = {"a": ("k", "x", "u"), "b": ("k", "y", "v"), "c": ("k", "z", "w")}
KEYS = (1, 2, 3, None)
KINDS = (
    *("LEFT JOIN",) * 3, *("FULL JOIN",) * 2, "RIGHT JOIN", "ANTI JOIN", "NOT EXISTS", "NOT IN",
)  # fmt: skip


@dataclass
class OuterQuery:
    """A query in the making: `aliases` are tables in sight by their aliases, `required` those that are always there,
    `joined` the keys of left joins, `merged` the key of a full join."""

    chance: random.Random
    aliases: dict[str, str] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    merged: str = ""

    def text(self) -> str:
        """The next query."""
        chance = self.chance
        self.aliases, self.required, self.joined, self.merged = {}, [], [], ""
        joins = [self._table("", chance.choice("abc"))]
        if chance.random() < 0.35:
            joins.append(self._join("JOIN", chance.choice("abc")))
        conditions = []
        for _ in range(chance.choice((1, 1, 2, 2, 3))):
            kind = chance.choice(KINDS)
            if kind == "NOT EXISTS":
                conditions.append(self._exists("NOT "))
            elif kind == "NOT IN":
                conditions.append(self._in(kind))
            else:
                joins.append(self._join(kind, chance.choice("abc")))
        if chance.random() < 0.3:
            column = self._column(chance.choice(self.required or list(self.aliases)))
            conditions.append(f"{column} {chance.choice(('> 1', 'IS NOT NULL'))}")
        if self.joined and chance.random() < 0.2:
            conditions.append(f"{chance.choice(self.joined)} IS NULL")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {self._items()} FROM {' '.join(joins)}{where}{self._groups}"

    def _table(self, kind: str, table: str) -> str:
        alias = f"t{len(self.aliases)}"
        self.aliases[alias] = table
        if not kind or kind == "JOIN":
            self.required.append(alias)
        return f"{table} {alias}"

    def _join(self, kind: str, table: str) -> str:
        chains = not self.required or (kind != "JOIN" and self.chance.random() < 0.25)
        outer = self.chance.choice(list(self.aliases) if chains else self.required)
        shown = self._table(kind, table)
        alias = shown.split()[1]
        side = shown
        if kind != "JOIN" and self.chance.random() < 0.15:
            rest = ", ".join(f"max({column}) AS {column}" for column in TABLES[table][1:])
            side = f"(SELECT k, {rest} FROM {table} GROUP BY k) {alias}"
        on = self._on(outer, alias, kind)
        if kind in ("LEFT JOIN", "FULL JOIN") and side == shown and self.chance.random() < 0.2:
            inner = self._table("BESIDE", self.chance.choice("abc"))
            word = self.chance.choice(("JOIN", "JOIN", "LEFT JOIN"))
            side = f"({shown} {word} {inner} ON {self._on(alias, inner.split()[1], 'JOIN')})"
        if kind == "ANTI JOIN":
            del self.aliases[alias]
        if kind in ("RIGHT JOIN", "FULL JOIN"):
            self.required = [alias] if kind == "RIGHT JOIN" else []
        return f"{kind} {side} ON {on}"

    def _on(self, outer: str, alias: str, kind: str) -> str:
        mine, theirs = f"{outer}.{self._key(outer)}", f"{alias}.{self._key(alias)}"
        parts = [f"{mine} {'=' if self.chance.random() < 0.85 else 'IS NOT DISTINCT FROM'} {theirs}"]
        if kind == "LEFT JOIN":
            self.joined.append(theirs)
        if kind == "FULL JOIN":
            self.merged = f"coalesce({mine}, {theirs})"
        if self.chance.random() < 0.25:
            parts.append(f"{self._column(outer)} = {self._column(alias)}")
        if kind != "JOIN" and self.chance.random() < 0.15:
            word = self.chance.choice(("<", "<=", ">", ">=", "<>", "IS DISTINCT FROM"))
            parts.append(f"{self._column(outer)} {word} {self._column(alias)}")
        if kind != "JOIN" and self.chance.random() < 0.25:
            parts.append(f"{self._column(alias)} {self.chance.choice(('> 1', 'IS NULL', '< 3'))}")
        if kind != "JOIN" and self.chance.random() < 0.2:
            parts.append(f"{self._column(outer)} {self.chance.choice(('> 1', 'IS NULL', '< 3'))}")
        return " AND ".join(parts)

    def _exists(self, no: str = "") -> str:
        outer = self.chance.choice(self.required or list(self.aliases))
        alias = self._table("EXISTS", self.chance.choice("abc")).split()[1]
        on, table = self._on(outer, alias, "EXISTS"), self.aliases.pop(alias)
        return f"{no}EXISTS (SELECT 1 FROM {table} {alias} WHERE {on})"

    def _in(self, word: str) -> str:
        outer = self.chance.choice(self.required or list(self.aliases))
        alias = self._table("EXISTS", self.chance.choice("abc")).split()[1]
        mine, theirs = self._column(outer), self._column(alias)
        conditions = []
        if self.chance.random() < 0.3:
            conditions.append(f"{alias}.k = {outer}.k")
        if self.chance.random() < 0.3:
            conditions.append(f"{self._column(alias)} {self.chance.choice(('> 1', 'IS NOT NULL'))}")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"{mine} {word} (SELECT {theirs} FROM {self.aliases.pop(alias)} {alias}{where})"

    def _mark(self) -> str:
        """A subquery in an expression."""
        return self._exists() if self.chance.random() < 0.4 else self._in(self.chance.choice(("IN", "NOT IN")))

    def _key(self, alias: str) -> str:
        return "k" if self.chance.random() < 0.85 else self.chance.choice(TABLES[self.aliases[alias]])

    def _column(self, alias: str) -> str:
        return f"{alias}.{self.chance.choice(TABLES[self.aliases[alias]])}"

    def _any(self) -> str:
        if self.merged and self.chance.random() < 0.3:
            return self.merged
        return self._column(self.chance.choice(list(self.aliases)))

    def _items(self) -> str:
        chance, self._groups = self.chance, ""
        form = chance.choice(("rows", "rows", "groups", "groups", "sums", "distinct"))
        if form in ("rows", "distinct"):
            items = [self._any() for _ in range(chance.choice((1, 2, 3, 4)))]
            if chance.random() < (0.3 if form == "rows" else 0.1):
                items.append(self._mark())
            if form == "rows" and chance.random() < 0.3:
                items.append(f"coalesce({self._any()}, 7) + {self._any()}")
            shown = ", ".join(f"{item} AS o{i}" for i, item in enumerate(items))
            return ("DISTINCT " if form == "distinct" else "") + shown
        groups = [] if form == "sums" else list(dict.fromkeys(self._any() for _ in range(chance.choice((1, 1, 2)))))
        if form == "groups":
            self._groups = f" GROUP BY {', '.join(groups)}"
        sums = chance.sample(
            ["count(*)", f"count({self._any()})", f"sum({self._any()})", f"sum({self._any()} * {self._any()})",
             f"avg({self._any()})", f"sum({self._any()} + {self._any()})", f"sum(coalesce({self._any()}, 0))",
             f"count(*) FILTER (WHERE {self._any()} > 1)", f"max({self._any()})", f"count(DISTINCT {self._any()})",
             f"max(coalesce({self._any()}, 0))", f"count(DISTINCT coalesce({self._any()}, 7))"],
            chance.choice((0, 1, 2, 3)) if groups else chance.choice((1, 2)),
        )  # fmt: skip
        return ", ".join(f"{item} AS o{i}" for i, item in enumerate([*groups, *sums]))


def ordered_query(queries: OuterQuery) -> tuple[str, str]:
    """A query for rows in a random order, for the first of them or the first of each group, and one that DuckDB answers
    with the same rows, in their order."""
    chance, query = queries.chance, ""
    while not query or "GROUP BY" in query or any(f"{word}(" in query for word in ("count", "sum", "avg", "max")):
        query = queries.text()
    names = [f"o{number}" for number in range(query.count(" AS o"))]
    items = chance.sample(names, chance.choice(range(1, min(3, len(names)) + 1)))
    ways = [f"{way} NULLS {place}" for way in ("ASC", "DESC") for place in ("FIRST", "LAST")]
    order = ", ".join(f"{one} {chance.choice(ways)}" for one in items)
    whole = ", ".join([order, *names])
    if "DISTINCT" not in query and chance.random() < 0.3:
        groups = chance.choice(["", *(f"PARTITION BY {name} " for name in names)])
        clause = f"QUALIFY row_number() OVER ({groups}ORDER BY {whole}) <= {chance.choice((1, 2))}"
        return f"{query} {clause}", f"SELECT * FROM ({query}) {clause}"
    limit = chance.choice(("", *(f" LIMIT {rows}" for rows in (1, 2, 4)), " LIMIT 3 OFFSET 1"))
    return f"{query} ORDER BY {order}{limit}", f"SELECT * FROM ({query}) ORDER BY {whole}{limit}"


class RandomRows:
    """The rows of the tables, as a random stream changes them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}

    def epoch(self) -> dict[str, pa.Table]:
        """The changes of one epoch, of one table or several."""
        names = self.chance.sample(list(TABLES), self.chance.choice((1, 1, 2, 3)))
        return {name: self._changes(name) for name in names}

    def emptying(self) -> dict[str, pa.Table]:
        """The epoch that deletes all rows."""
        found = {name: table_of(name, [(row, -1) for row in rows]) for name, rows in self.rows.items() if rows}
        self.rows = {table: [] for table in TABLES}
        return found

    def _changes(self, name: str) -> pa.Table:
        chance, rows, changes = self.chance, self.rows[name], list[tuple[tuple[Any, ...], int]]()
        for _ in range(chance.choice((1, 1, 2, 4))):
            if rows and chance.random() < (0.5 if len(rows) < 6 else 0.7):
                row = rows.pop(chance.randrange(len(rows)))
                changes.append((row, -1))
            else:
                row = tuple(chance.choice(KEYS) for _ in TABLES[name])
                copies = chance.choice((1, 1, 1, 2))
                rows += [row] * copies
                changes.append((row, copies))
        return table_of(name, changes)


def table_of(name: str, changes: list[tuple[tuple[Any, ...], int]]) -> pa.Table:
    """Signed rows of a table as Arrow."""
    columns = {
        column: pa.array([row[place] for row, _ in changes], pa.int32()) for place, column in enumerate(TABLES[name])
    }
    return pa.table({**columns, "_weight": pa.array([weight for _, weight in changes], pa.int64())})


def create_tables(con: Connection) -> None:
    for name, columns in TABLES.items():
        con.execute(f"CREATE TABLE {name} ({', '.join(f'{column} INTEGER' for column in columns)})")


def rows_of(con: Connection, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(con.execute(query).fetchall())

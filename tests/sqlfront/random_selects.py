"""Random SELECTs over three small tables: nested queries, all kinds of joins, set operations, groups, first rows, CTEs.

Each order is total over the output columns, so that DuckDB's answer to a query is the view's. Some forms are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

SCHEMA = """
CREATE TABLE r (a BIGINT, b BIGINT, c BIGINT, s VARCHAR);
CREATE TABLE t (a BIGINT, b BIGINT, d BIGINT, s VARCHAR);
CREATE TABLE u (k BIGINT PRIMARY KEY, b BIGINT, s VARCHAR);
"""
TABLES = {"r": "abcs", "t": "abds", "u": "kbs"}
FORMS = {
    "where": " WHERE ", "group": " GROUP BY ", "having": " HAVING ", "distinct": "SELECT DISTINCT",
    "order and limit": " LIMIT ", "union": " UNION ", "intersect or except": ("INTERSECT", "EXCEPT"),
    "nested": "FROM (", "cte": "WITH ", "outer join": ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN"),
    "subquery in WHERE": ("EXISTS (", "IN (SELECT"), "qualify": " QUALIFY ",
}  # fmt: skip
"""Words that show which forms a query has."""

Name = tuple[str, bool]
"""A column as it is written where it is visible, and whether it is text."""


def change(random: Random) -> list[str]:
    """The statements of one epoch: inserts of copies and NULLs, deletes, updates that cross NULL."""
    found = []
    for _ in range(random.choice([1, 2, 3, 4])):
        table = random.choice("rrttu")
        kind = random.random()
        if kind < 0.6 and table != "u":
            rows = [
                ", ".join(_value(random, column == "s") for column in TABLES[table])
                for _ in range(random.randint(3, 9))
            ]
            rows += rows[:1] if random.random() < 0.4 else []
            found.append(f"INSERT INTO {table} VALUES {', '.join(f'({row})' for row in rows)}")
        elif kind < 0.6:
            row = f"{random.randint(0, 4)}, {_value(random, False)}, {_value(random, True)}"
            found.append(f"INSERT OR IGNORE INTO u VALUES ({row})")
        else:
            column = random.choice(TABLES[table].replace("k", "b"))
            where = f"{random.choice(TABLES[table][:2])} {random.choice(['= 1', '= 2', 'IS NULL', '> 1', '= 0'])}"
            update = f"UPDATE {table} SET {column} = {_value(random, column == 's')} WHERE {where}"
            found.append(update if kind < 0.75 else f"DELETE FROM {table} WHERE {where}")
    return found


def select(random: Random, depth: int = 2) -> str:
    """One query; a nested one has at most `depth` levels below it."""
    return _Selects(random).query(depth, None)[0]


def forms_of(query: str) -> set[str]:
    return {
        name
        for name, words in FORMS.items()
        if any(word in query for word in ([words] if isinstance(words, str) else words))
    }


def _value(random: Random, text: bool) -> str:
    return random.choice(["NULL", "'x'", "'y'", "'y'"] if text else ["NULL", "0", "1", "1", "1", "2", "2", "3"])


@dataclass
class _Selects:
    """Queries with names of their own: `q1`, `q2`, ... for FROM and `c1`, ... for columns."""

    random: Random
    numbers: int = 0
    common: list[tuple[str, list[Name]]] = field(default_factory=list)

    def query(self, depth: int, wanted: list[bool] | None) -> tuple[str, list[Name]]:
        """A query with columns of the wanted types, or any; its columns by name."""
        chance = self.random.random()
        if depth and chance < 0.12:
            return self._set_operation(depth, wanted)
        if depth and chance < 0.22:
            return self._with(depth, wanted)
        return self._select(depth, wanted)

    def _new(self, prefix: str) -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def _with(self, depth: int, wanted: list[bool] | None) -> tuple[str, list[Name]]:
        name = self._new("w")
        text, columns = self.query(depth - 1, None)
        self.common.append((name, columns))
        body, names = self.query(depth - 1, wanted)
        self.common.pop()
        return f"WITH {name} AS ({text}) {body}", names

    def _set_operation(self, depth: int, wanted: list[bool] | None) -> tuple[str, list[Name]]:
        kinds = ["UNION", "UNION", "UNION ALL", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"]
        kind = self.random.choice(kinds)
        left, names = self.query(depth - 1, wanted)
        right, _ = self.query(depth - 1, [text for _, text in names])
        tail = self._first(names) if self.random.random() < 0.3 else ""
        return f"(({left}) {kind} ({right})){tail}" if not tail else f"({left}) {kind} ({right}){tail}", names

    def _select(self, depth: int, wanted: list[bool] | None) -> tuple[str, list[Name]]:
        random = self.random
        sources, visible, conditions = self._from(depth)
        conditions += [self._condition(visible, depth) for _ in range(random.choice([0, 0, 0, 1, 1, 2]))]
        tail = f" FROM {sources}" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
        wanted = wanted or [random.random() < 0.25 for _ in range(random.randint(1, 3))]
        mode = random.choice(["bag", "bag", "set", "group", "group", "group", "scalar"])
        having = ""
        if mode in ("group", "scalar") and not all(wanted):
            keys = (
                [place for place, text in enumerate(wanted) if text or random.random() < 0.5] if mode == "group" else []
            )
            items = [
                self._value(visible, text) if place in keys else self._aggregate(visible, text)
                for place, text in enumerate(wanted)
            ]
            more = [self._name(visible, False)] if mode == "group" and random.random() < 0.3 else []
            by = [*(items[place] for place in keys), *more]
            tail += f" GROUP BY {', '.join(by)}" if by else ""
            having = random.choice([" HAVING count(*) > 1", f" HAVING {self._aggregate(visible, False)} >= 1"])
            tail += having if random.random() < 0.3 else ""
        else:
            items = [self._value(visible, text) for text in wanted]
        names = [(self._new("c"), text) for text in wanted]
        shown = ", ".join(f"{item} AS {name}" for item, (name, _) in zip(items, names))
        query = f"SELECT {'DISTINCT ' if mode == 'set' else ''}{shown}{tail}"
        chance = random.random()
        if chance < 0.3:
            query += self._first(names)
        elif chance < 0.4 and mode != "set":
            parts = f"PARTITION BY {random.choice(names)[0]} " if random.random() < 0.7 else ""
            number = f"row_number() OVER ({parts}ORDER BY {self._order(names)})"
            query += f" QUALIFY {number} <= {random.randint(1, 2)}"
        elif chance < 0.45:
            query += f" ORDER BY {self._order(names)}"
        return query, names

    def _order(self, names: list[Name]) -> str:
        picked = self.random.sample([name for name, _ in names], len(names))
        ends = ["", " DESC", " ASC NULLS FIRST", " DESC NULLS LAST", " DESC NULLS FIRST"]
        return ", ".join(name + self.random.choice(ends) for name in picked)

    def _first(self, names: list[Name]) -> str:
        offset = self.random.choice(["", "", " OFFSET 1"])
        return f" ORDER BY {self._order(names)} LIMIT {self.random.choice([0, 1, 2, 3, 4, 6])}{offset}"

    def _source(self, depth: int) -> tuple[str, list[Name]]:
        random, name = self.random, self._new("q")
        if depth and random.random() < 0.35:
            text, columns = self.query(depth - 1, None)
            return f"({text}) AS {name}", [(f"{name}.{column}", is_text) for column, is_text in columns]
        if self.common and random.random() < 0.6:
            table, columns = random.choice(self.common)
            return f"{table} AS {name}", [(f"{name}.{column}", is_text) for column, is_text in columns]
        table = random.choice("rrttu")
        return f"{table} AS {name}", [(f"{name}.{column}", column == "s") for column in TABLES[table]]

    def _from(self, depth: int) -> tuple[str, list[Name], list[str]]:
        random = self.random
        text, visible = self._source(depth)
        conditions: list[str] = []
        for _ in range(random.choice([0, 0, 1, 1, 1, 2])):
            more, columns = self._source(depth)
            tie = self._tie(visible, columns)
            style = random.random()
            if style < 0.45:
                text += f" JOIN {more} ON {tie}"
            elif style < 0.88:
                text += f", {more}"
                conditions.append(tie)
            elif style < 0.96:
                text += f" {random.choice(['LEFT', 'LEFT', 'RIGHT', 'FULL'])} JOIN {more} ON {tie}"
            else:
                text += f" {random.choice(['SEMI', 'ANTI'])} JOIN {more} ON {tie}"
                continue
            visible = [*visible, *columns]
        return text, visible, conditions

    def _tie(self, left: list[Name], right: list[Name]) -> str:
        pairs = [(one, other) for one, is_text in left for other, other_text in right if is_text == other_text]
        if not pairs:
            return "1 = 1"
        one, other = self.random.choice(pairs)
        return f"{one} {self.random.choice(['='] * 8 + ['<', '>='])} {other}"

    def _name(self, visible: list[Name], text: bool) -> str:
        names = [name for name, is_text in visible if is_text == text]
        return self.random.choice(names) if names else ("'x'" if text else "1")

    def _value(self, visible: list[Name], text: bool) -> str:
        name = self._name(visible, text)
        if text:
            return self.random.choice([name] * 4 + [f"{name} || 'z'", f"coalesce({name}, 'n')"])
        forms = [f"{name} + 1", f"coalesce({name}, 0)", f"abs({name})", f"{name} * 2", "1"]
        forms.append(f"CASE WHEN {name} > 1 THEN {self._name(visible, False)} ELSE 0 END")
        return name if self.random.random() < 0.7 else self.random.choice(forms)

    def _aggregate(self, visible: list[Name], text: bool) -> str:
        if text:
            return f"{self.random.choice(['min', 'max'])}({self._name(visible, True)})"
        name, other = self._name(visible, False), self._name(visible, True)
        calls = ["count(*)", f"count({name})", f"sum({name})", f"sum({self._value(visible, False)})", f"min({name})"]
        calls += [
            f"max({name})",
            f"count(DISTINCT {name})",
            f"sum({name}) FILTER (WHERE {other} = 'x')",
            f"sum({name}) + 1",
        ]
        return self.random.choice(calls)

    def _condition(self, visible: list[Name], depth: int) -> str:
        random = self.random
        name, text = self._name(visible, False), self._name(visible, True)
        simple: list[Callable[[], str]] = [
            lambda: f"{name} = {random.randint(0, 2)}",
            lambda: f"{name} {random.choice(['>', '<=', '<>'])} 1",
            lambda: f"{name} IS {random.choice(['', 'NOT '])}NULL",
            lambda: f"{name} IN (0, 1)",
            lambda: f"{text} = 'x'",
            lambda: f"({name} = 1 OR {text} = 'y')",
            lambda: f"NOT ({name} = 1 AND {text} = 'y')",
            lambda: f"{name} = {self._name(visible, False)}",
            lambda: f"{name} IS NOT DISTINCT FROM {self._name(visible, False)}",
        ]
        if depth and random.random() < 0.2:
            return self._subquery(visible, name)
        return random.choice(simple)()

    def _subquery(self, visible: list[Name], name: str) -> str:
        random = self.random
        kind = random.random()
        if kind < 0.5:
            inner, _ = self.query(0, [False])
            return f"{name} {random.choice(['', '', '', 'NOT '])}IN ({inner})"
        text, columns = self._source(0)
        tie = self._tie(visible, columns)
        if kind < 0.9:
            also = f" AND {self._condition(columns, 0)}" if random.random() < 0.5 else ""
            return f"{random.choice(['', '', '', 'NOT '])}EXISTS (SELECT 1 FROM {text} WHERE {tie}{also})"
        return f"{name} >= (SELECT {self._aggregate(columns, False)} FROM {text} WHERE {tie})"

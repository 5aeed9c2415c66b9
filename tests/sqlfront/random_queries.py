"""Random queries of the grammar that views support, over three small tables with NULLs and duplicates."""

from __future__ import annotations

from random import Random
from typing import Any

SCHEMA = """
CREATE TABLE r (a INTEGER, b INTEGER, c BIGINT, d DECIMAL(6, 2), s VARCHAR, f DOUBLE);
CREATE TABLE t (a BIGINT NOT NULL, b SMALLINT, e DATE, d DECIMAL(8, 3) NOT NULL, s VARCHAR, f FLOAT);
CREATE TABLE u (k INTEGER PRIMARY KEY, b INTEGER, c INTEGER, s VARCHAR, bo BOOLEAN);
"""
INTEGERS = {"r": "abc", "t": "ab", "u": "kbc"}
NUMBERS = {"r": "abcd", "t": "abd", "u": "kbc"}
COLUMNS = {"r": ["a", "b", "c", "d", "s"], "t": ["a", "b", "e", "d", "s"], "u": ["k", "b", "c", "s", "bo"]}
FLOATS = ("r", "t")

Item = tuple[str, str]


def fill(con: Any, random: Random) -> None:
    """New rows in all tables: 0 to 8 each, a fifth of the values NULL, values from small domains."""
    number = lambda: random.choice(["NULL", "0", "1", "1", "2"])  # noqa: E731
    text = lambda: random.choice(["NULL", "'x'", "'y'", "'xy'"])  # noqa: E731
    real = lambda: random.choice(["NULL", "0.1", "0.2", "3.5", "-2", "'nan'", "'inf'", "'-inf'"])  # noqa: E731
    rows: dict[str, list[str]] = {"r": [], "t": [], "u": []}
    for _ in range(random.choice([0, 4, 6, 8])):
        decimal = random.choice(["NULL", "0.5", "1.25", "-2"])
        rows["r"].append(f"({number()}, {number()}, {number()}, {decimal}, {text()}, {real()})")
    for _ in range(random.choice([0, 4, 6, 8])):
        date = random.choice(["NULL", "'2020-01-01'", "'2021-05-05'"])
        decimal = random.choice(["1.5", "2.125", "-3"])
        rows["t"].append(f"({random.randint(0, 2)}, {number()}, {date}, {decimal}, {text()}, {real()})")
    for key in random.sample(range(4), random.randint(1, 4)):
        rows["u"].append(f"({key}, {number()}, {number()}, {text()}, {random.choice(['NULL', 'true', 'false'])})")
    for table, values in rows.items():
        con.execute(f"DELETE FROM {table}")
        if values:
            con.execute(f"INSERT INTO {table} VALUES {', '.join(values)}")


def query(random: Random, atoms: int = 5) -> str:
    """One query over up to `atoms` tables; valid in DuckDB, except that a rare literal may overflow."""
    items: list[Item] = [(f"x{i}", random.choice("rtu")) for i in range(random.randint(1, atoms))]
    source, conditions = _from(random, items)
    conditions += [predicate(random, *random.choice(items)) for _ in range(random.choice([0, 0, 1, 2]))]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    tail = f" FROM {source}{where}"
    mode = random.choice(["bag", "set", "group", "group", "scalar"])
    if mode == "bag":
        if random.random() < 0.1:
            return "SELECT *" + tail
        pick = [lambda: _column(random, items), lambda: arithmetic(random, items), lambda: "1"]
        return f"SELECT {', '.join(random.choice(pick)() for _ in range(random.randint(1, 4)))}" + tail
    if mode == "set":
        return f"SELECT DISTINCT {', '.join(_column(random, items) for _ in range(random.randint(1, 3)))}" + tail
    return _aggregated(random, items, tail, mode == "scalar")


def predicate(random: Random, alias: str, table: str) -> str:
    """A condition on one table."""
    number = f"{alias}.{random.choice(INTEGERS[table])}"
    return random.choice(
        [
            f"{number} = {random.randint(0, 2)}",
            f"{number} >= 1",
            f"{alias}.s LIKE 'x%'",
            f"{number} IN (1, 2)",
            f"{alias}.{random.choice(COLUMNS[table])} IS NOT NULL",
            f"{number} = {alias}.{random.choice(INTEGERS[table])}",
            f"NOT ({number} = 1 OR {alias}.s = 'y')",
            f"CASE WHEN {alias}.s = 'x' THEN {number} > 1 ELSE true END",
            f"{number} BETWEEN 0 AND 2",
            "1 = 1",
        ]
    )


def arithmetic(random: Random, items: list[Item], depth: int = 2) -> str:
    """A number computed from any of the tables."""
    if depth == 0 or random.random() < 0.3:
        return _number(random, *random.choice(items)) if random.random() < 0.8 else random.choice(["1", "2", "0.5"])
    left, right = (arithmetic(random, items, depth - 1) for _ in range(2))
    case = f"(CASE WHEN {predicate(random, *random.choice(items))} THEN {left} ELSE {right} END)"
    forms = [f"({left} * {right})"] * 4 + [f"({left} + {right})"] * 2 + [f"({left} - {right})"] * 2
    return random.choice([*forms, f"(-({left}))", f"({left} / 4)", case])


def _from(random: Random, items: list[Item]) -> tuple[str, list[str]]:
    """FROM, connected by equalities in ON, USING or WHERE; rarely not connected at all."""
    source, conditions = f"{items[0][1]} AS {items[0][0]}", []
    for i, (alias, table) in enumerate(items[1:], 1):
        other, other_table = random.choice(items[:i])
        left, right = f"{other}.{random.choice(INTEGERS[other_table])}", f"{alias}.{random.choice(INTEGERS[table])}"
        if random.random() < 0.15:
            left = f"({left} + 1)"
        elif random.random() < 0.15:
            left, right = f"{other}.s", f"{alias}.s"
        style = random.random()
        if style < 0.4:
            source += f" JOIN {table} AS {alias} ON {left} = {right}"
        elif style < 0.5 and i == 1:
            source += f" JOIN {table} AS {alias} USING (b)"
        elif style < 0.97:
            source += f", {table} AS {alias}"
            conditions.append(f"{right} = {left}")
        else:
            source += f" CROSS JOIN {table} AS {alias}"
    if len(items) > 1 and random.random() < 0.2:
        (one, first), (two, second) = random.sample(items, 2)
        conditions.append(f"{one}.{random.choice(INTEGERS[first])} = {two}.{random.choice(INTEGERS[second])}")
    return source, conditions


def _number(random: Random, alias: str, table: str) -> str:
    integer, number = f"{alias}.{random.choice(INTEGERS[table])}", f"{alias}.{random.choice(NUMBERS[table])}"
    return random.choice([integer, f"{integer} + 1", number, f"abs({number})", f"coalesce({number}, 0)", f"-{number}"])


def _column(random: Random, items: list[Item]) -> str:
    alias, table = random.choice(items)
    plain = f"{alias}.{random.choice(COLUMNS[table])}"
    return plain if random.random() < 0.7 else _number(random, alias, table)


def _aggregate(random: Random, items: list[Item]) -> str:
    alias, table = random.choice(items)
    floats = [f"{name}.f" for name, kind in items if kind in FLOATS] or [f"{alias}.b"]
    conditions = " AND ".join(predicate(random, *random.choice(items)) for _ in range(random.randint(1, 2)))
    call = random.choice(
        [
            "count(*)",
            f"count({alias}.{random.choice(COLUMNS[table])})",
            f"sum({arithmetic(random, items)})",
            f"sum({arithmetic(random, items)})",
            f"avg({arithmetic(random, items)})",
            f"sum({random.choice(floats)})",
            f"avg({random.choice(floats)})",
            f"sum({predicate(random, alias, table)})",
            f"count_if({predicate(random, alias, table)})",
            f"{random.choice(['min', 'max'])}({_column(random, items)})",
            f"{random.choice(['min', 'max'])}({random.choice(floats)})",
            f"count(DISTINCT {_column(random, items)})",
            f"{random.choice(['sum', 'avg'])}(DISTINCT {_number(random, alias, table)})",
            f"sum(DISTINCT {random.choice(floats)})",
            f"{random.choice(['arg_min', 'arg_max'])}({_column(random, items)}, {_column(random, items)})",
        ]
    )
    return call + (f" FILTER (WHERE {conditions})" if random.random() < 0.3 else "")


def _aggregated(random: Random, items: list[Item], tail: str, scalar: bool) -> str:
    aggregates = [_aggregate(random, items) for _ in range(random.randint(1, 3))]
    having = random.choice([" HAVING count(*) > 1", " HAVING sum(1) >= 2", f" HAVING {aggregates[0]} IS NOT NULL"])
    having = having if random.random() < 0.3 else ""
    if random.random() < 0.3:
        aggregates.append(f"{random.choice(aggregates)} * 2 + count(*)")
    if scalar:
        return f"SELECT {', '.join(aggregates)}{tail}{having}"
    groups = [_column(random, items) for _ in range(random.randint(1, 3))]
    positions = ", ".join(str(i + 1) for i in range(len(groups)))
    by = random.choice([", ".join(groups), positions, "ALL"])
    return f"SELECT {', '.join([*groups, *aggregates])}{tail} GROUP BY {by}{having}"

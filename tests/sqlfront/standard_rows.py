"""Random rows for the tables of standard benchmarks, in which the conditions of the queries are often true.

A column's values are the literals that some query compares it with; keys and other columns have few values, so rows
join, and groups have several rows.
"""

from __future__ import annotations

import datetime
import random
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlfront.connection import Connection
from sqlfront.sql.dialect import parse_one

STANDARD = Path(__file__).parents[1] / "fixtures" / "standard"
_FEW = 4


def queries_of(benchmark: str) -> dict[str, str]:
    """The queries of a benchmark by their names."""
    paths = sorted((STANDARD / benchmark).glob("*[0-9].sql"))
    return {path.stem: path.read_text().strip().rstrip(";") for path in paths}


class StandardRows:
    """The tables of one benchmark, with random rows for them."""

    def __init__(self, benchmark: str, seed: int) -> None:
        self.schema = (STANDARD / benchmark / "schema.sql").read_text()
        self._random = random.Random(seed)
        self._literals = _literals(benchmark)

    def tables_of(self, con: Connection, query: str) -> list[str]:
        """The tables that a query names."""
        known = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        return sorted({table.name.lower() for table in parse_one(query).find_all(exp.Table)} & known)

    def change(self, con: Connection, table: str) -> None:
        """One statement: rows go in, or some go out."""
        columns = con.execute(f"DESCRIBE {table}").fetchall()
        if self._random.random() < 0.3:
            name, kind = self._random.choice(columns)[:2]
            con.execute(f"DELETE FROM {table} WHERE {name} IS NOT DISTINCT FROM ?", [self._value(name, kind, True)])
            return
        rows = [
            [self._value(name, kind, nullable == "YES") for name, kind, nullable, *_ in columns]
            for _ in range(self._random.randint(1, 6))
        ]
        marks = ", ".join("?" for _ in columns)
        con.execute(
            f"INSERT INTO {table} VALUES {', '.join(f'({marks})' for _ in rows)}", [one for row in rows for one in row]
        )

    def _value(self, name: str, kind: str, nullable: bool) -> Any:
        choose = self._random
        if nullable and choose.random() < 0.05:
            return None
        known = self._literals[name.lower()]
        if known and choose.random() < (0.5 if kind == "DATE" else 0.8):
            return _fitted(choose.choice(known), kind, choose)
        if kind == "DATE":
            return datetime.date(1993, 10, 1) + datetime.timedelta(days=choose.randrange(700))
        if kind == "VARCHAR":
            return choose.choice(["a", "b", "13-555", "special requests"])
        if name.lower().endswith(("key", "_sk", "_id")) or "INT" in kind:
            return choose.randint(1, _FEW)
        return round(choose.uniform(0, 400), 2)


def _fitted(literal: str, kind: str, choose: random.Random) -> Any:
    """A literal as a value of a column's type, or one near it."""
    if kind == "DATE":
        try:
            return datetime.date.fromisoformat(literal) + datetime.timedelta(days=choose.randint(-3, 60))
        except ValueError:
            return None
    if kind == "VARCHAR":
        return literal.replace("%", "x").replace("_", "y")
    return float(literal) if re.fullmatch(r"-?\d+(\.\d+)?", literal) else choose.randint(1, _FEW)


@cache
def _literals(benchmark: str) -> defaultdict[str, list[str]]:
    """The literals that each column is compared with in the queries of a benchmark."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for query in queries_of(benchmark).values():
        for node in parse_one(query).walk():
            if isinstance(node, exp.Predicate) and not node.find(exp.Select):
                columns = list(node.find_all(exp.Column))
                for column in columns if len(columns) == 1 else ():
                    found[column.name.lower()] += [literal.this for literal in node.find_all(exp.Literal)]
    return found

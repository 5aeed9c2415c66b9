"""Random tables: types with small domains, so that values meet, vanish and return."""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

Value = Any
Row = tuple[Value, ...]

# NaN is written "NaN": a value must equal itself to be counted.
DOMAINS: dict[str, list[Value]] = {
    "BIGINT": [1, 2, 3, -(2**63) + 1],
    "INTEGER": [1, 2, 3, -(2**31)],
    "SMALLINT": [1, 2, 3],
    "HUGEINT": [1, 2, 2**100, -(2**127) + 1],
    "UBIGINT": [1, 2, 2**64 - 1],
    "VARCHAR": ["x", "y", "", "a text of more than twelve bytes"],
    "BLOB": [b"", b"\x00\xff", b"more than twelve bytes"],
    "UUID": [UUID(int=n) for n in (0, 1, 2**127)],
    "DATE": [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(2001, 1, 1)],
    "TIMESTAMP": [datetime.datetime(2024, 2, 29, 1, 2, 3, 4), datetime.datetime(1969, 1, 1)],
    "BOOLEAN": [True, False],
    "DECIMAL(5,1)": [Decimal("1.0"), Decimal("1.5"), Decimal("-9999.9")],
    "DECIMAL(38,2)": [Decimal("1.00"), Decimal("1.50"), Decimal("-999999999999999999999999999999999999.99")],
    "DOUBLE": [1.0, 1.5, -2.5e300, "NaN"],
}
# Types that join with each other, cast by DuckDB to the wider one.
FAMILIES = [
    ["BIGINT"], ["BIGINT"], ["BIGINT"], ["VARCHAR"], ["VARCHAR"], ["HUGEINT"], ["UUID"], ["DECIMAL(38,2)"],
    ["INTEGER", "BIGINT"], ["SMALLINT", "INTEGER", "HUGEINT"],
    ["DATE"], ["DATE", "TIMESTAMP"], ["DOUBLE"], ["BLOB"], ["UBIGINT"],
    ["DECIMAL(5,1)", "DECIMAL(38,2)"],
]  # fmt: skip
INTEGERS, DECIMALS = ["BIGINT", "INTEGER", "SMALLINT", "BOOLEAN"], ["DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(4,1)"]
KINDS = ["retained", "retained", "retained", "passing", "ordinary", "ordinary"]


@dataclass(frozen=True)
class Column:
    """`role` is "one" or "two" for key columns of the first and second join family, else "int", "decimal", "float"."""

    name: str
    type: str
    role: str
    not_null: bool = False


@dataclass(frozen=True)
class Table:
    """`kind`: a change table that is "retained" or only "passing", an "ordinary" one, or a "view" that others read."""

    name: str
    kind: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    def ddl(self, *, plain: bool = False) -> str:
        """CREATE TABLE; `plain` is for the database that judges."""
        items = [f"{c.name} {c.type}" + (" NOT NULL" if c.not_null else "") for c in self.columns]
        if plain or self.kind == "ordinary":
            return f"CREATE TABLE {self.name} ({', '.join(items)})"
        if self.key:
            items.append(f"PRIMARY KEY ({', '.join(self.key)})")
        retain = "true" if self.kind == "retained" else "false"
        return f"CREATE CHANGE TABLE {self.name} ({', '.join(items)}) WITH (retain = {retain})"

    def place(self, name: str) -> int:
        return next(i for i, c in enumerate(self.columns) if c.name == name)


def random_tables(choose: random.Random) -> tuple[Table, ...]:
    """One to four tables over two join families."""
    families = {"one": choose.choice(FAMILIES), "two": choose.choice(FAMILIES)}
    tables = []
    for name in "rstu"[: choose.choice([1, 2, 2, 3, 3, 3, 4])]:
        keyed = choose.random() < 0.12
        columns = [Column("a", choose.choice(families["one"]), "one", keyed)]
        columns += [
            Column(n, choose.choice(families[f]), f) for n, f in (("b", "one"), ("c", "two")) if choose.random() < 0.8
        ]
        measures = [("i", INTEGERS, "int"), ("d", DECIMALS, "decimal"), ("f", ["DOUBLE"], "float")]
        columns += [Column(n, choose.choice(types), role) for n, types, role in measures if choose.random() < 0.55]
        kind = choose.choice(KINDS)
        key = ("a",) if keyed and kind != "ordinary" else ()
        tables.append(Table(name, kind, tuple(choose.sample(columns, len(columns))), key))
    return tuple(tables)


def random_value(choose: random.Random, column: Column, measures: str) -> Value:
    """A value of the column; `measures` are "small", "wide" (near the limits of 64 bits, doubles of very different
    magnitudes) or "special" (NaN and infinities among the doubles)."""
    wide = measures == "wide"
    if not column.not_null and choose.random() < 0.12:
        return None
    if column.role in ("one", "two") or column.type == "BOOLEAN":
        return choose.choice(DOMAINS[column.type])
    if column.role == "int":
        limit = {"BIGINT": 2**62, "INTEGER": 2**31 - 1, "SMALLINT": 2**15 - 1}[column.type] if wide else 4
        return choose.choice([-limit, limit, limit - 1, 1, 0]) if wide else choose.randint(-limit, limit)
    if column.role == "decimal":
        width, scale = map(int, column.type[8:-1].split(","))
        limit = 10**width - 1 if wide else 999
        return Decimal(choose.randint(-limit, limit)).scaleb(-scale)
    if wide:
        return choose.choice([1e80, -1e80, 1e-80, 0.1, -0.1, 3.0, 5e-324, 0.0])
    if measures == "special" and choose.random() < 0.4:
        return choose.choice(["NaN", float("inf"), float("-inf")])
    return choose.choice([0.1, -0.1, 0.25, 3.0, -1e10, 0.0])


def random_row(choose: random.Random, table: Table, measures: str) -> Row:
    return tuple(random_value(choose, column, measures) for column in table.columns)

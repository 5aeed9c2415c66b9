"""TPC-H at a scale factor under random refresh epochs of all its tables, in sqlfront and in a plain DuckDB beside it.

A change is one statement over rows that hashes of a table's key select. Plain DuckDB runs the statement. sqlfront runs
the statement too, or takes the rows that the statement changes by `con.apply`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

import sqlfront
from sqlfront.demo.tpch import generate
from tests.sqlfront.standard_rows import STANDARD

KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
MATCHING = "UPDATE part SET p_brand = 'Brand#23', p_container = 'MED BOX' WHERE p_partkey % 100 = 0"
"""Without this change no part of scale 0.01 is one of query 17's."""


@dataclass(frozen=True)
class Change:
    """One statement over some rows of a table: `values` are what an update or a copy sets, as SQL."""

    kind: str
    table: str
    condition: str
    values: tuple[tuple[str, str], ...] = ()

    def statement(self) -> str:
        if self.kind == "delete":
            return f"DELETE FROM {self.table} WHERE {self.condition}"
        if self.kind == "update":
            sets = ", ".join(f"{name} = {value}" for name, value in self.values)
            return f"UPDATE {self.table} SET {sets} WHERE {self.condition}"
        return f"INSERT INTO {self.table} {self.new_rows()}"

    def new_rows(self) -> str:
        """The rows that go in: those of a change of values, or more of the generated ones."""
        items = ", ".join(f"{value} AS {name}" for name, value in self.values)
        source = self.table if self.kind == "update" else f"all_{self.table}"
        return f"SELECT *{f' REPLACE ({items})' if items else ''} FROM {source} WHERE {self.condition}"

    def signed_rows(self) -> str:
        """A query for the rows that change, with `_change_type`."""
        sides = {"delete": ["delete"], "insert": ["insert"], "update": ["update_preimage", "update_postimage"]}
        old = f"SELECT * FROM {self.table} WHERE {self.condition}"
        rows = {"delete": old, "update_preimage": old, "insert": self.new_rows(), "update_postimage": self.new_rows()}
        return " UNION ALL ".join(
            f"SELECT *, '{side}' AS _change_type FROM ({rows[side]})" for side in sides[self.kind]
        )


class TpchRefreshes:
    """Both databases, filled. Each epoch changes every table once or more; without keys, rows come several times."""

    def __init__(self, scale: float, seed: int, keys: bool) -> None:
        self.random = random.Random(seed)
        self.keys = keys
        self.con = sqlfront.connect(config={"sqlfront_progress": False})
        self.plain = duckdb.connect()
        directory = generate(scale)
        for run in (self.con.execute, self.plain.execute):
            for statement in filter(None, (STANDARD / "tpch" / "schema.sql").read_text().split(";\n")):
                run(_with_key(statement) if keys else statement)
            for table in KEYS:
                run(f"CREATE TABLE all_{table} AS SELECT * FROM '{directory / table}.parquet'")
                run(f"INSERT INTO {table} SELECT * FROM all_{table}")
            run(MATCHING)
        self.columns = {table: _columns(self.plain, table) for table in KEYS}

    def close(self) -> None:
        self.con.close()
        self.plain.close()

    def epoch(self) -> Any:
        """One epoch of each kind in turn, at random; `apply` gives its record, SQL gives none."""
        changes = [self.change(table) for table in KEYS]
        self.random.shuffle(changes)
        kind = self.random.choice(["apply", "apply", "transaction", "statements"])
        if kind == "apply":
            return self.apply(changes)
        if kind == "transaction":
            self.con.execute("BEGIN")
        for change in changes:
            self.con.execute(change.statement())
            self.plain.execute(change.statement())
        if kind == "transaction":
            self.con.execute("COMMIT")
        return None

    def apply(self, changes: list[Change]) -> Any:
        """One epoch of `con.apply`; the same statements in plain DuckDB."""
        batches: dict[str, pa.Table] = {}
        for change in changes:
            batches[change.table] = self.plain.sql(change.signed_rows()).to_arrow_table()
            self.plain.execute(change.statement())
        return self.con.apply(batches)

    def change(self, table: str) -> Change:
        """A random change of a few rows of a table, or of one in four of a table that has a few rows only."""
        choose = self.random
        kind = choose.choice(["insert", "delete", "update", "update"])
        every = max(4, self._count(table) // choose.choice([2, 20, 200]))
        key = ", ".join(KEYS[table])
        condition = f"hash({key}, {choose.randrange(1000)}) % {every} = {choose.randrange(every)}"
        values: tuple[tuple[str, str], ...] = ()
        if kind == "update":
            free = [name for name in self.columns[table] if not (self.keys and name in KEYS[table])]
            values = tuple((name, self.value(table, name)) for name in choose.sample(free, min(2, len(free))))
        if kind == "insert" and self.keys:
            columns = ", ".join(f"{table}.{name}" for name in KEYS[table])
            columns_all = ", ".join(f"all_{table}.{name}" for name in KEYS[table])
            condition += f" AND NOT EXISTS (FROM {table} WHERE ({columns}) = ({columns_all}))"
        return Change(kind, table, condition, values)

    def value(self, table: str, name: str) -> str:
        """A value of another row, or with keys often the row's first one, as SQL; sometimes NULL."""
        if self.random.random() < 0.05:
            return "NULL"
        if self.keys and self.random.random() < 0.6:
            ours, generated = (", ".join(f"{one}.{key}" for key in KEYS[table]) for one in (table, "generated"))
            return f"(SELECT {name} FROM all_{table} AS generated WHERE ({generated}) = ({ours}))"
        at = self.random.randrange(self._count(table))
        found = self.plain.execute(f"SELECT {name}, typeof({name}) FROM all_{table} LIMIT 1 OFFSET {at}").fetchall()
        return f"CAST('{found[0][0]}' AS {found[0][1]})"

    def _count(self, table: str) -> int:
        """How many rows were generated for a table."""
        return self.plain.execute(f"SELECT count(*) FROM all_{table}").fetchall()[0][0]

    def differs(self, view: str, query: str) -> str:
        """What tells a view from plain DuckDB's answer: types, rows, multiplicities; empty if nothing does."""
        ours = [row[:2] for row in self.con.execute(f"DESCRIBE {view}").fetchall()]
        theirs = [row[:2] for row in self.plain.execute(f"DESCRIBE {query}").fetchall()]
        if ours != theirs:
            return f"{view}: {ours}, not {theirs}"
        judged = completed(query, len(ours))
        found = Counter(map(_comparable, self.con.execute(f"FROM {view}").fetchall()))
        expected = Counter(map(_comparable, self.plain.execute(judged).fetchall()))
        if found == expected:
            return ""
        return (
            f"{view}: missing {list((expected - found).items())[:3]}, too many {list((found - expected).items())[:3]}"
        )

    def empty(self) -> None:
        """Delete all rows of all tables, in a random order."""
        for table in self.random.sample(list(KEYS), len(KEYS)):
            self.con.execute(f"DELETE FROM {table}")
            self.plain.execute(f"DELETE FROM {table}")


def completed(query: str, columns: int) -> str:
    """A query whose LIMIT breaks ties by the output columns, left to right, as views do."""
    head, limit, tail = query.rpartition("\nLIMIT ")
    ties = ", ".join(str(number + 1) for number in range(columns))
    return f"{head}, {ties}{limit}{tail}" if limit else query


def _comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row whose floating numbers are cut to what the order of additions cannot change."""
    return tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in row)


def _columns(con: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    return [name for name, *_ in con.execute(f"DESCRIBE {table}").fetchall()]


def _with_key(statement: str) -> str:
    table = statement.split(" (")[0].split()[-1]
    return f"{statement.removesuffix(')')}, PRIMARY KEY ({', '.join(KEYS[table])}))"

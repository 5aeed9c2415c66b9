"""Random tables with columns of all types, and random changes of them by every way to write."""

from __future__ import annotations

from random import Random

import duckdb

import sqlfront
from tests.sqlfront.fuzz.typed_values import MOODS, NUMBER, TYPES, value_sql

MOST_ROWS = 8


class RandomTables:
    """Tables `r`, `s` and `t`, a table `k` with a key, and `f`, which refers to it; `columns` are their types by table.

    Types recur in the tables, so that columns can be joined.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        one, two, three, four = random.sample(TYPES, 4)
        self.columns = {
            "r": {"a": NUMBER, "b": NUMBER, "x": one, "y": two},
            "s": {"b": NUMBER, "x": one, "z": three},
            "t": {"a": NUMBER, "y": two, "z": three},
            "k": {"id": NUMBER, "v": one},
            "f": {"k_id": NUMBER, "w": four},
        }

    def ddl(self) -> list[str]:
        more = {("k", "id"): " PRIMARY KEY", ("k", "v"): " NOT NULL", ("f", "k_id"): " REFERENCES k (id)"}
        made = {
            table: ", ".join(f"{name} {type}{more.get((table, name), '')}" for name, type in columns.items())
            for table, columns in self.columns.items()
        }
        return [MOODS, *(f"CREATE TABLE {table} ({columns})" for table, columns in made.items())]

    def change(self, con: sqlfront.Connection) -> list[str]:
        """What one statement, or one call of apply, has done: as SQL, or as a comment."""
        table = self.random.choice(("r", "r", "s", "t", "k", "f"))
        if table == "k":
            return self._run(con, self._keyed())
        chance = self.random.random()
        full = self._count(con, table) >= MOST_ROWS
        if full or chance < 0.25:
            return self._run(con, f"DELETE FROM {table} WHERE {self._where(table)}")
        if chance < 0.45:
            column, type = self.random.choice([pair for pair in self.columns[table].items() if pair[0] != "k_id"])
            return self._run(
                con, f"UPDATE {table} SET {column} = {value_sql(type, self.random)} WHERE {self._where(table)}"
            )
        rows = [self._row(con, table) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.3:
            rows.append(rows[0])
        if chance < 0.7:
            return self._apply(con, table, rows)
        return self._run(con, f"INSERT INTO {table} VALUES {', '.join(rows)}")

    def empty(self, con: sqlfront.Connection) -> list[str]:
        """Delete all rows."""
        return [done for table in ("f", "k", "r", "s", "t") for done in self._run(con, f"DELETE FROM {table}")]

    def _keyed(self) -> str:
        number = self.random.randrange(4)
        if self.random.random() < 0.75:
            return f"INSERT OR IGNORE INTO k VALUES ({number}, {value_sql(self.columns['k']['v'], self.random, 0)})"
        return f"DELETE FROM k WHERE id = {number} AND id NOT IN (SELECT k_id FROM f WHERE k_id IS NOT NULL)"

    def _apply(self, con: sqlfront.Connection, table: str, rows: list[str]) -> list[str]:
        """New rows, and a row that goes, as one batch."""
        names = ", ".join(self.columns[table])
        query = (
            f"SELECT *, CAST(1 AS BIGINT) AS _weight FROM (VALUES {', '.join(rows)}) AS new({names}) "
            f"UNION ALL SELECT * FROM (SELECT *, -1 FROM {table} ORDER BY ALL LIMIT 1)"
        )
        con.session.duck.execute("SET arrow_lossless_conversion = true")
        changes = con.session.duck.execute(query).to_arrow_table()
        con.session.duck.execute("SET arrow_lossless_conversion = false")
        con.apply({table: changes})
        gone = f"DELETE FROM {table} WHERE rowid = (SELECT rowid FROM {table} ORDER BY COLUMNS(*) LIMIT 1)"
        return [f"-- apply: {gone}", f"INSERT INTO {table} VALUES {', '.join(rows)}"]

    def _run(self, con: sqlfront.Connection, statement: str) -> list[str]:
        con.execute(statement)
        return [statement]

    def _row(self, con: sqlfront.Connection, table: str) -> str:
        values = [value_sql(type, self.random) for type in self.columns[table].values()]
        if table == "f":
            ids = [f"{row[0]}" for row in con.session.duck.execute("SELECT id FROM k").fetchall()]
            values[0] = self.random.choice(["NULL", *ids])
        return f"({', '.join(values)})"

    def _where(self, table: str) -> str:
        column, type = self.random.choice(list(self.columns[table].items()))
        operator = self.random.choice(("IS NOT DISTINCT FROM", "IS NOT DISTINCT FROM", "<>"))
        return f"{column} {operator} {value_sql(type, self.random)}"

    def _count(self, con: sqlfront.Connection, table: str) -> int:
        found = con.session.duck.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found is not None
        return int(found[0])


def answer(con: sqlfront.Connection, query: str) -> list[tuple[object, ...]] | None:
    """DuckDB's own answer; None if it fails for DuckDB's own reasons."""
    try:
        return con.session.duck.execute(query).fetchall()
    except duckdb.Error:
        return None

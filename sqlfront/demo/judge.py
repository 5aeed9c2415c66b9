"""The judge: a plain DuckDB database that takes the same changes and computes each view from its query."""

from __future__ import annotations

import re
import time
from typing import Any

from sqlfront.demo.tpch import STREAMED, Refresh

_CHANGE_TABLE = re.compile(r"CREATE CHANGE TABLE (.*?)\) WITH \([^)]*\)\Z", re.DOTALL)


class Judge:
    """DuckDB without sqlfront, with the same tables and rows."""

    def __init__(self, schema: list[str], views: dict[str, str]) -> None:
        import duckdb

        self.con = duckdb.connect(":memory:")
        self.views = views
        for statement in schema:
            # Without keys: maintaining DuckDB's key indexes would slow the judge's side down.
            self.con.execute(_without_keys(_CHANGE_TABLE.sub(r"CREATE TABLE \1)", statement)))

    def load(self, table: str, rows: Any) -> None:
        """Fill a table."""
        self.con.register("rows", rows)
        self.con.execute(f"INSERT INTO {table} SELECT * FROM rows")
        self.con.unregister("rows")

    def apply(self, refresh: Refresh) -> float:
        """Make the changes of a refresh; returns the seconds that took."""
        start = time.perf_counter()
        self.con.execute("BEGIN")
        for table, rows in (("orders", refresh.orders), ("lineitem", refresh.lineitem)):
            self.con.register("rows", rows)
            if refresh.weight > 0:
                self.con.execute(f"INSERT INTO {table} SELECT * FROM rows")
            else:
                key = STREAMED[table]
                self.con.execute(f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM rows)")
            self.con.unregister("rows")
        self.con.execute("COMMIT")
        return time.perf_counter() - start

    def recompute(self) -> dict[str, float]:
        """Compute every view anew into a table, as one does without maintained views; returns seconds per view."""
        seconds = {}
        for name, query in self.views.items():
            start = time.perf_counter()
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
            seconds[name] = time.perf_counter() - start
        return seconds

    def differences(self, name: str, rows: Any) -> tuple[int, int, int]:
        """Rows of the query, rows it has that `rows` lack, and rows that it lacks; EXCEPT ALL both ways.

        DOUBLE columns are compared to 15 digits: DuckDB has two ways to compute the AVG of a DECIMAL, which
        differ in the last bit, and chooses by its column statistics.
        """
        query = self.views[name]
        types = [row[:2] for row in self.con.execute(f"DESCRIBE {query}").fetchall()]
        self.con.register("maintained", rows)
        if types != [row[:2] for row in self.con.execute("DESCRIBE FROM maintained").fetchall()]:
            raise AssertionError(f"{name}: its columns or their types are not the query's")
        columns = ", ".join(
            f'format(\'{{:.14e}}\', "{column}") AS "{column}"' if kind == "DOUBLE" else f'"{column}"'
            for column, kind in types
        )
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE expected AS SELECT {columns} FROM ({query})")
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE got AS SELECT {columns} FROM maintained")
        self.con.unregister("maintained")
        counted = "SELECT COUNT(*) FROM ({})"
        total, missing, extra = (
            self.con.execute(counted.format(part)).fetchall()[0][0]
            for part in ("FROM expected", "FROM expected EXCEPT ALL FROM got", "FROM got EXCEPT ALL FROM expected")
        )
        return total, missing, extra


def _without_keys(statement: str) -> str:
    return re.sub(r",\s*PRIMARY KEY \([^)]*\)|\sPRIMARY KEY", "", statement)

"""The TPC-H streams of Idris et al. (2017): the first two thirds of each table, rows in random order, in batches.

A phase is one Arrow IPC stream per table with one record batch, perhaps empty, per epoch: a side reads the epochs one
by one, so that its memory is its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlfront.demo.tpch import generate

SIZE = 1000
"""Changed rows per epoch."""

DELETED = 10
"""The second phase deletes one row in this many."""

KEYS = {
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey, ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey, l_linenumber",
}
PRELOADED = {"FQ2": ("nation",), "Q9": ("nation",), "Q16'": ("supplier",)}
"""The tables of a query that are loaded before the stream begins."""
PHASES = ("insert", "delete")


@dataclass(frozen=True)
class Workload:
    """One query's streams in `directory`; `rows` per table, `epochs` per phase ("insert", "delete")."""

    name: str
    sql: str
    directory: Path
    rows: Mapping[str, int]
    epochs: Mapping[str, int]
    preloaded: tuple[str, ...] = ("nation",)

    @property
    def full(self) -> bool:
        """Whether the query is a full join, without aggregates."""
        return self.name.startswith("FQ")

    @property
    def streamed(self) -> int:
        """Rows inserted by the first phase."""
        return sum(count for table, count in self.rows.items() if table not in self.preloaded)

    def ddl(self, *, plain: bool) -> list[str]:
        """The tables, for DuckDB (`plain`) or as change tables of which nothing but the view is kept."""
        import pyarrow.ipc

        found = []
        for table in self.rows:
            with pyarrow.ipc.open_stream(self._file("insert", table)) as reader:
                columns = [f"{field.name} {_sql_type(field.type)}" for field in reader.schema]
            if plain:
                found.append(f"CREATE TABLE {table} ({', '.join(columns)})")
            else:
                columns.append(f"PRIMARY KEY ({KEYS[table]})")
                found.append(f"CREATE CHANGE TABLE {table} ({', '.join(columns)}) WITH (retain = false)")
        return found

    def updates(self) -> str:
        """The update mix, for the option `updates`."""
        return ", ".join(f"{table}: {count}" for table, count in self.rows.items())

    def preload(self) -> dict[str, Any]:
        """The rows of the tables that are not streamed."""
        import pyarrow.ipc

        found = {}
        for table in self.rows:
            if table in self.preloaded:
                with pyarrow.ipc.open_stream(self._file("insert", table)) as reader:
                    found[table] = reader.read_all()
        return found

    def phase(self, kind: str) -> Iterator[dict[str, Any]]:
        """The epochs of a phase: record batches by table, without empty ones."""
        import pyarrow.ipc

        with ExitStack() as open_files:
            readers = {
                table: open_files.enter_context(pyarrow.ipc.open_stream(self._file(kind, table)))
                for table in self.rows
                if table not in self.preloaded
            }
            for _ in range(self.epochs[kind]):
                batches = {table: reader.read_next_batch() for table, reader in readers.items()}
                yield {table: batch for table, batch in batches.items() if batch.num_rows}

    def save(self) -> Path:
        """Write this description beside the streams, for another process."""
        path = self.directory / "workload.json"
        path.write_text(json.dumps({**asdict(self), "directory": str(self.directory)}))
        return path

    def _file(self, kind: str, table: str) -> str:
        return str(self.directory / f"{table}.{kind}.arrows")


def queries() -> dict[str, str]:
    """The queries of tpch_queries.sql: name to SQL."""
    text = Path(__file__).with_name("tpch_queries.sql").read_text()
    found = {}
    for block in text.split("-- name: ")[1:]:
        name, _, sql = block.partition("\n")
        found[name.strip()] = sql.strip().rstrip(";")
    return found


def read_workload(path: Path) -> Workload:
    """What `Workload.save` wrote."""
    given = json.loads(path.read_text())
    preloaded = tuple(given.get("preloaded", ("nation",)))
    return Workload(**{**given, "directory": Path(given["directory"]), "preloaded": preloaded})


def write_workload(name: str, scale: float, directory: Path) -> Workload:
    """Write the streams of a query at a scale factor. Deterministic."""
    import duckdb

    sql, preloaded = queries()[name], PRELOADED.get(name, ())
    tables = [table for table in KEYS if re.search(rf"\b{table}\b", sql)]
    source = generate(scale)
    con = duckdb.connect()
    for table in tables:
        con.execute(f"CREATE VIEW {table} AS SELECT * FROM '{source / table}.parquet' {_prefix(table, source)}")
    con.execute("CREATE TABLE ranks (tab VARCHAR, id BIGINT)")
    rows = {}
    for table in tables:
        con.execute(f"CREATE TABLE own_{table} AS SELECT row_number() OVER () AS id, * FROM {table}")
        con.execute(f"INSERT INTO ranks SELECT '{table}', id FROM own_{table}")
        rows[table] = con.sql(f"SELECT count(*) FROM own_{table}").fetchall()[0][0]
    streamed = ", ".join(f"'{table}'" for table in tables if table not in preloaded)
    epochs = {}
    for kind, where, salt in (("insert", "true", 1), ("delete", f"hash(tab, id, 3) % {DELETED} = 0", 2)):
        con.execute(
            f"CREATE OR REPLACE TABLE places AS SELECT tab, id, (row_number() OVER (ORDER BY hash(tab, id, {salt}), id)"
            f" - 1) // {SIZE} AS epoch FROM ranks WHERE tab IN ({streamed}) AND {where}"
        )
        epochs[kind] = con.sql("SELECT coalesce(max(epoch) + 1, 0) FROM places").fetchall()[0][0]
        for table in tables:
            streams = None if table in preloaded else epochs[kind]
            _write(con, table, kind, streams, directory / f"{table}.{kind}.arrows")
    con.close()
    return Workload(name, sql, directory, rows, epochs, preloaded)


def _prefix(table: str, source: Path) -> str:
    """The first two thirds of a table; of lineitem and partsupp, the rows that belong to those orders and parts."""
    if table == "nation":
        return ""
    owner = {"lineitem": "orders", "partsupp": "part"}.get(table, table)
    key = KEYS[owner]
    count = f"(SELECT 2 * count(*) // 3 FROM '{source / owner}.parquet')"
    last = f"SELECT max({key}) FROM (SELECT {key} FROM '{source / owner}.parquet' ORDER BY {key} LIMIT {count})"
    return f"WHERE {KEYS[table].partition(',')[0]} <= ({last})"


def _write(con: Any, table: str, kind: str, epochs: int | None, path: Path) -> None:
    """A table's rows of one phase, one record batch per epoch; of a table that is not streamed (None), all in one."""
    import numpy as np
    import pyarrow
    import pyarrow.ipc

    if epochs is None:
        found = con.sql(f"SELECT * EXCLUDE (id) FROM own_{table}").to_arrow_table()
        bounds = np.array([0, len(found)])
    else:
        found = con.sql(
            f"SELECT epoch, rows.* EXCLUDE (id) FROM places JOIN own_{table} AS rows USING (id)"
            f" WHERE tab = '{table}' ORDER BY epoch, hash(id)"
        ).to_arrow_table()
        bounds = np.searchsorted(found["epoch"].to_numpy(), np.arange(epochs + 1))
        found = found.drop_columns("epoch")
    if kind == "delete":
        found = found.append_column("_weight", pyarrow.repeat(pyarrow.scalar(-1), len(found)))
    with pyarrow.ipc.new_stream(str(path), found.schema) as writer:
        for first, last in pairwise(bounds):
            part = found.slice(first, last - first).combine_chunks()
            batches = part.to_batches() or [pyarrow.RecordBatch.from_pylist([], schema=found.schema)]
            writer.write_batch(batches[0])


def _sql_type(kind: Any) -> str:
    import pyarrow

    if pyarrow.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    names = {pyarrow.int64(): "BIGINT", pyarrow.int32(): "INTEGER", pyarrow.date32(): "DATE"}
    return names.get(kind, "VARCHAR")

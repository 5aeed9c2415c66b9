"""tpch: the 22 queries of TPC-H as maintained views, beside DuckDB that runs each query again.

`python -m benchmarks.tpch [--scale 1] [--queries q01 q02]` takes each query in a fresh process. An epoch has 100
changes: 95 % are orders that come or go with their lineitems, 5 % give a row of customer, part, partsupp or supplier
another value. sqlfront takes an epoch by `con.apply`, and the view is read whole after every tenth; a view's time is
that of its epochs and reads. DuckDB takes the changes of ten epochs before them, which is not timed, and then runs the
query, which is: so neither meets caches that the other has filled between two epochs. A view
that should be right after each change costs DuckDB a run for each epoch: so an epoch is compared with a run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from tests.sqlfront.tpch_refreshes import KEYS, completed

STANDARD = Path(__file__).parents[1] / "tests" / "fixtures" / "standard" / "tpch"
UPDATED = ("customer", "part", "partsupp", "supplier")
CHANGES, OF_ORDERS, READ_EVERY = 100, 95, 10
LOADED = 1_000_000
"""Rows of one `apply` while the tables are loaded."""

Batch = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--epochs", type=int, default=100, help="timed ones, after a fifth as many")
    parser.add_argument("--queries", nargs="+", default=[path.stem for path in sorted(STANDARD.glob("q*.sql"))])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one, options.scale, options.epochs)))
        return
    rows = [_in_fresh_process(query, options.scale, options.epochs) for query in options.queries]
    times = [row["times as fast"] for row in rows]
    notes = [
        f"times as fast: median {statistics.median(times):.1f}, least {min(times):.2f}.",
        f"An epoch has about {CHANGES} changes; `epoch ms` includes a tenth of `read ms`. DuckDB has 2 threads.",
        "Each view equals DuckDB's answer after the last epoch.",
        "view MiB: what SHOW STATE counts. tables MiB: the tables of the query in DuckDB's memory.",
    ]
    harness.report("tpch", f"TPC-H at scale factor {options.scale:g}, epochs of 100 changes", rows, notes=notes)


def measure(query: str, scale: float, epochs: int) -> dict[str, Any]:
    """One query, in this process."""
    import duckdb

    import sqlfront

    text = (STANDARD / f"{query}.sql").read_text().strip().rstrip(";")
    stream = Stream(scale, seed=7)
    plain = stream.con
    con = sqlfront.connect(config={"sqlfront_progress": False})
    for statement in stream.declarations():
        con.execute(statement)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    started = time.perf_counter()
    for batch in stream.loads():
        con.apply(batch)
    built = time.perf_counter() - started
    warm = max(READ_EVERY, epochs // 5)
    applied, read, ran = [], [], []
    for number in range(0, warm + epochs, READ_EVERY):
        batches = list(stream.epochs(READ_EVERY))
        spent = [_seconds(partial(con.apply, batch)) for batch in batches]
        reading = _seconds(lambda: con.execute("FROM v").to_arrow_table())
        running = _seconds(lambda: plain.sql(text).to_arrow_table())
        if number >= warm:
            applied += spent
            read.append(reading)
            ran.append(running)
    assert isinstance(plain, duckdb.DuckDBPyConnection)
    _compare(con, plain, text, query)
    epoch = (sum(applied) + sum(read)) / len(applied)
    state = con.execute("SHOW STATE").to_arrow_table().to_pydict()
    [(memory,)] = plain.execute(
        "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag IN ('BASE_TABLE', 'IN_MEMORY_TABLE')"
    ).fetchall()
    found = {
        "query": query,
        "update": con.execute("SHOW MATERIALIZED VIEWS").to_arrow_table().to_pydict()["update"][0],
        "build s": built,
        "epoch ms": 1000 * epoch,
        "worst ms": 1000 * max(applied),
        "read ms": 1000 * statistics.mean(read),
        "DuckDB ms": 1000 * statistics.median(ran),
        "times as fast": statistics.median(ran) / epoch,
        "view MiB": sum(state["bytes"]) / 2**20,
        "tables MiB": float(memory) / 2**20,
    }
    con.close()
    return found


class Stream:
    """The generated tables in a DuckDB of their own, without the orders that come later, and the epochs."""

    def __init__(self, scale: float, seed: int) -> None:
        import duckdb

        from sqlfront.demo.tpch import generate

        self._random = random.Random(seed)
        self.con = duckdb.connect(config={"threads": 2})
        directory = generate(scale)
        self._schema = [one for one in (STANDARD / "schema.sql").read_text().split(";\n") if one.strip()]
        for statement in self._schema:
            self.con.execute(statement)
        for table in KEYS:
            self.con.execute(f"INSERT INTO {table} SELECT * FROM '{directory / table}.parquet'")
        keys = [
            key for (key,) in self.con.execute("SELECT o_orderkey FROM orders ORDER BY hash(o_orderkey)").fetchall()
        ]
        held = len(keys) // 10
        self._coming, self._present = keys[:held], keys[held:]
        self.con.execute("CREATE TABLE coming (key BIGINT)")
        self.con.execute("INSERT INTO coming SELECT unnest(?)", [self._coming])
        for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            self.con.execute(
                f"CREATE TABLE held_{table} AS FROM {table} SEMI JOIN coming ON key = {key} ORDER BY {key}"
            )
            self.con.execute(f"DELETE FROM {table} WHERE {key} IN (FROM coming)")
        self._sizes = {table: self.con.table(table).count("*").fetchall()[0][0] for table in UPDATED}

    def declarations(self) -> Iterator[str]:
        """The tables as change tables that keep nothing but what the view needs."""
        for statement in self._schema:
            table = statement.split(" (")[0].split()[-1]
            columns, key = statement[statement.index("(") : statement.rindex(")")], ", ".join(KEYS[table])
            yield f"CREATE CHANGE TABLE {table} {columns}, PRIMARY KEY ({key})) WITH (retain = false)"

    def loads(self) -> Iterator[Batch]:
        for table in KEYS:
            for batch in self.con.sql(f"FROM {table}").to_arrow_reader(LOADED):
                yield {table: batch}

    def epochs(self, count: int) -> Iterator[Batch]:
        """Epochs, each already in DuckDB's tables when it is given."""
        for _ in range(count):
            batch = self._orders()
            for _ in range(CHANGES - OF_ORDERS):
                self._update(batch)
            yield batch

    def _orders(self) -> Batch:
        """Orders that come and orders that go, in turn, until there are enough changes."""
        coming: list[int] = []
        going: list[int] = []
        size = 0
        while size < OF_ORDERS:
            comes = len(coming) <= len(going)
            keys = self._coming if comes else self._present
            key = keys.pop(self._random.randrange(len(keys)))
            (coming if comes else going).append(key)
            lineitem = "held_lineitem" if comes else "lineitem"
            size += (
                1 + self.con.execute(f"SELECT count(*) FROM {lineitem} WHERE l_orderkey = ?", [key]).fetchall()[0][0]
            )
        batch: Batch = {}
        for table, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            new, old = (
                f"SELECT * FROM held_{table} WHERE {column} IN {_listed(coming)}",
                (f"SELECT * FROM {table} WHERE {column} IN {_listed(going)}"),
            )
            batch[table] = self._signed(insert=new, delete=old)
            self.con.execute(f"DELETE FROM {table} WHERE {column} IN {_listed(going)}")
            self.con.execute(f"INSERT INTO {table} {new}")
        return batch

    def _update(self, batch: Batch) -> None:
        """Give one row of a table another row's value of a column."""
        import pyarrow

        table = self._random.choice(UPDATED)
        names = [name for name, *_ in self.con.execute(f"DESCRIBE {table}").fetchall()]
        column = self._random.choice([name for name in names if name not in KEYS[table]])
        at, other = (self._random.randrange(self._sizes[table]) for _ in range(2))
        keys = ", ".join(KEYS[table])
        [key] = self.con.execute(f"SELECT {keys} FROM {table} LIMIT 1 OFFSET {at}").fetchall()
        [(value,)] = self.con.execute(f"SELECT {column} FROM {table} LIMIT 1 OFFSET {other}").fetchall()
        this = f"({keys}) = ({', '.join(map(str, key))})"
        before = self.con.sql(f"SELECT * FROM {table} WHERE {this}").to_arrow_table()
        self.con.execute(f"UPDATE {table} SET {column} = ? WHERE {this}", [value])
        after = self.con.sql(f"SELECT * FROM {table} WHERE {this}").to_arrow_table()
        changed = [_with_kind(before, "delete"), _with_kind(after, "insert")]
        batch[table] = pyarrow.concat_tables([*([batch[table]] if table in batch else []), *changed])

    def _signed(self, **rows: str) -> Any:
        sides = [f"SELECT *, '{kind}' AS _change_type FROM ({query})" for kind, query in rows.items()]
        return self.con.sql(" UNION ALL ".join(sides)).to_arrow_table()


def _with_kind(table: Any, kind: str) -> Any:
    import pyarrow

    return table.append_column("_change_type", pyarrow.repeat(pyarrow.scalar(kind), len(table)))


def _listed(keys: Sequence[int]) -> str:
    return f"({', '.join(map(str, keys)) or 'NULL'})"


def _compare(con: Any, plain: Any, text: str, query: str) -> None:
    """Stop unless the view's rows are DuckDB's; floating numbers may differ in their last digits."""
    found = con.execute("FROM v").fetchall()
    judged = completed(text, len(con.execute("DESCRIBE v").fetchall()))
    ours, theirs = (sorted(map(_rounded, rows)) for rows in (found, plain.execute(judged).fetchall()))
    if ours != theirs:
        raise SystemExit(f"{query}: the view has {len(ours)} rows, DuckDB {len(theirs)}; they differ")


def _rounded(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{value:.9g}" if isinstance(value, float) else str(value) for value in row)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _in_fresh_process(query: str, scale: float, epochs: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.tpch", "--scale", str(scale), "--epochs", str(epochs), "--one", query]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{query} failed:\n{done.stderr}")
    row = json.loads(done.stdout.splitlines()[-1])
    print(row, file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    main()

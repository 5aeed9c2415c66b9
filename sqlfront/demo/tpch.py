"""TPC-H data: generated once per scale factor into the user's cache, and a stream of refreshes made of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlfront.errors import OperationalError
from sqlfront.sql.tokens import split

if TYPE_CHECKING:
    import pyarrow

TABLES = ("nation", "customer", "part", "partsupp", "orders", "lineitem")
GENERATED = ("region", "supplier", *TABLES)
STREAMED = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
# A TPC-H refresh inserts or deletes 0.1 % of the orders with their lineitems.
SHARE = 0.001


@dataclass(frozen=True)
class Refresh:
    """One epoch: new orders with their lineitems (RF1), or old orders deleted with theirs (RF2)."""

    name: str
    orders: pyarrow.Table
    lineitem: pyarrow.Table
    weight: int

    @property
    def size(self) -> int:
        return len(self.orders) + len(self.lineitem)

    def changes(self) -> dict[str, Any]:
        """The epoch as `con.apply` takes it."""
        kind = "insert" if self.weight > 0 else "delete"
        return {name: _with_kind(table, kind) for name, table in (("orders", self.orders), ("lineitem", self.lineitem))}


class Source:
    """The generated rows, each order with a random rank: by it orders are loaded, held back, or due to be deleted.

    `refreshes` pairs of refreshes are prepared. Every order of a refresh takes its lineitems along.
    """

    def __init__(self, scale: float, refreshes: int) -> None:
        import duckdb

        self.directory = generate(scale)
        self.con = duckdb.connect(":memory:")
        self.con.execute("SET preserve_insertion_order = false")
        orders = self._count("orders")
        self.size = max(1, round(orders * SHARE))
        self.refreshes = min(refreshes, orders // (4 * self.size))
        self.con.execute(
            "CREATE TABLE ranks AS SELECT o_orderkey AS key, row_number() OVER (ORDER BY hash(o_orderkey)) - 1 AS rank"
            f" FROM '{self._file('orders')}'"
        )
        for table, key in STREAMED.items():
            self.con.execute(
                f"CREATE TABLE refresh_{table} AS SELECT rank, rows.* FROM '{self._file(table)}' AS rows"
                f" JOIN ranks ON key = {key} WHERE rank < {2 * self.refreshes * self.size}"
            )

    def initial(self, table: str) -> pyarrow.Table:
        """The rows to start with: all but the orders held back for insertion, and their lineitems."""
        held = self.refreshes * self.size
        kept = f"SEMI JOIN (FROM ranks WHERE rank >= {held}) ON key = {STREAMED[table]}" if table in STREAMED else ""
        return self.con.sql(f"SELECT * FROM '{self._file(table)}' {kept}").to_arrow_table()

    def stream(self) -> Iterator[Refresh]:
        """Pairs of RF1 and RF2; RF2 deletes orders that were there from the start."""
        held = self.refreshes * self.size
        for number in range(self.refreshes):
            for name, first, weight in (("RF1", 0, 1), ("RF2", held, -1)):
                start = first + number * self.size
                orders, lineitem = (self._ranked(table, start) for table in STREAMED)
                yield Refresh(name, orders, lineitem, weight)

    def _ranked(self, table: str, start: int) -> pyarrow.Table:
        some = f"rank >= {start} AND rank < {start + self.size}"
        return self.con.sql(f"SELECT * EXCLUDE (rank) FROM refresh_{table} WHERE {some}").to_arrow_table()

    def _count(self, table: str) -> int:
        row = self.con.execute(f"SELECT COUNT(*) FROM '{self._file(table)}'").fetchone()
        return row[0] if row else 0

    def _file(self, table: str) -> str:
        return str(self.directory / f"{table}.parquet").replace("'", "''")


def generate(scale: float) -> Path:
    """The directory with the Parquet files of a scale factor, generated at first use by tpchgen-cli."""
    cache = Path(os.environ.get("SQLFRONT_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "sqlfront" / "tpch" / f"sf{scale:g}"
    if all((directory / f"{table}.parquet").exists() for table in GENERATED):
        return directory
    program = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or shutil.which("tpchgen-cli")
    if program is None:
        raise OperationalError("tpchgen-cli, which generates the TPC-H data, is not installed", hint="script/demo")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as partial:
        tables = f"--tables={','.join(GENERATED)}"
        command = [program, "parquet", "-s", f"{scale:g}", tables, "--output-dir", partial, "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise OperationalError("tpchgen-cli failed", where=done.stderr.strip())
        directory.mkdir(exist_ok=True)
        for table in GENERATED:  # Another process may have been faster, and be reading: its files are the same.
            os.replace(Path(partial, f"{table}.parquet"), directory / f"{table}.parquet")
    return directory


def views() -> dict[str, str]:
    """The views of views.sql: name to query."""
    text = _read("views.sql")
    found = {}
    for block in text.split("-- name: ")[1:]:
        name, _, query = block.partition("\n")
        found[name.strip()] = query.strip().rstrip(";")
    return found


def schema() -> list[str]:
    """The CREATE statements of schema.sql."""
    text = _read("schema.sql")
    return [text[start:end] for start, end in split(text)]


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def _with_kind(table: pyarrow.Table, kind: str) -> pyarrow.Table:
    import pyarrow

    return table.append_column("_change_type", pyarrow.repeat(pyarrow.scalar(kind), len(table)))

"""What a snapshot depends on: it is adopted only where all of this is as it was when the snapshot was written."""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import SCHEMA
from sqlfront.define.parts import Part, Parts
from sqlfront.maintenance.output.node import Node, TreeNode
from sqlfront.storage.canonical_text import digest
from sqlfront.storage.capture import setup
from sqlfront.storage.capture.trigger_sql import delta_sql, table_sql
from sqlfront.storage.native.native_file import fingerprint_of

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.maintenance.view.maintained_view import MaintainedView

_HERE = Path(__file__).parents[1]
_HEADER = 1 << 12
"""The bytes of a DuckDB file that hold its random identifier, and do not change while the file exists."""
MEANINGS = {
    "code": "another release of sqlfront has written it",
    "duckdb": "another version of DuckDB has written it",
    "byteorder": "a machine of another kind has written it",
    "file": "it is the snapshot of another file",
    "rows": "rows of a table have changed unseen",
    "change tables": "change tables have been made, altered or dropped since",
}
"""Why a snapshot is refused, by the part of its key that differs."""
_WORDING = {"label", "notes", "reason", "witness", "suggestion", "obstacle", "cost", "total", "blocks", "inputs"}
"""Fields of definitions and plans that only people read: their words change when a query has been stored."""


def key_of(path: str, con: Any) -> dict[str, Any]:
    """What all of a file's snapshot depends on, but for its views. `con` is a connection to the file."""
    import duckdb

    tables = con.execute(f"SELECT * FROM {SCHEMA}.change_tables ORDER BY ALL").fetchall()
    return {
        "code": code_fingerprint(),
        "duckdb": duckdb.__version__,
        "byteorder": sys.byteorder,
        "file": file_identity(path),
        "rows": settled_rows(con),
        "change tables": digest(tables),
    }


def settled_rows(con: Any) -> dict[str, int | None]:
    """How many rows each captured table has, without the changes that wait to be taken in; None if it is gone."""
    import duckdb

    [(name,)] = con.execute("SELECT current_database()").fetchall()
    found = dict[str, int | None]()
    for captured in setup.booked(con, name):
        table, delta = table_sql(name, captured.table), delta_sql(name, captured)
        query = f"SELECT (SELECT count(*) FROM {table}) - (SELECT coalesce(sum(w), 0) FROM {delta})"
        try:
            found[str(captured.table)] = int(con.execute(query).fetchall()[0][0])
        except duckdb.CatalogException:
            found[str(captured.table)] = None
    return found


@functools.cache
def code_fingerprint() -> str:
    """A hash of the sources of all packages: what words stand for is up to them."""
    packages = (_HERE, *(_HERE / name for name in ("maintenance", "planner", "storage")))
    return hashlib.sha256(" ".join(fingerprint_of(one.resolve()) for one in packages).encode()).hexdigest()[:20]


def file_identity(path: str) -> str:
    """A hash of the identifier that DuckDB gives a file when it makes the file: a copy has the same, an import not."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(_HEADER)).hexdigest()[:20]


def stored_views(con: Any) -> dict[int, str]:
    """The views of the file by their scans, each with a hash of all that the file says of it."""
    found = con.execute(f"SELECT * FROM {SCHEMA}.views")
    place = [column[0] for column in found.description].index("scan")
    return {row[place]: digest(row) for row in found.fetchall()}


def node_digests(database: Database, view: MaintainedView) -> dict[str, str]:
    """The nodes of a view, each with a hash of how its rows are defined and planned."""
    return {node.name: digest(_planned(node), _WORDING) for node in database.engine.nodes_of(view)}


def part_digests(parts: Parts) -> dict[str, str]:
    """As `node_digests`, of parts from which nodes would be made."""
    planned = {part.name: (part.definition, part.plan) if isinstance(part, Part) else part.rows for part in parts}
    return {name: digest(one, _WORDING) for name, one in planned.items()}


def weights_of(database: Database, view: MaintainedView) -> dict[str, dict[str, float]]:
    """How often the tables of a view's nodes change, relative to each other, as the nodes have been planned for."""
    nodes = database.engine.nodes_of(view)
    return {node.name: dict(node.view.plan.weights) for node in nodes if isinstance(node, TreeNode)}


def _planned(node: Node) -> Any:
    return (node.view.definition, node.view.plan) if isinstance(node, TreeNode) else getattr(node, "rows", None)

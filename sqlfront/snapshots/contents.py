"""What the tables of a snapshot hold, as a number of rows and a sum of their hashes, and the proof that a log is whole.

The rows of a multiset have one sum of hashes, in whatever order, and changes add to it. So a log has all changes since
a snapshot if the sum of the snapshot and that of the log make the sum of the tables. The same question decides whether
the last epoch of a killed process was committed. Captured changes that wait to be taken in do not count.

Cost: DuckDB scans the columns that views read. Other rows with the same sum: a chance of about 1 in 2^64.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlfront.database.database import SCHEMA
from sqlfront.database.user_settings import lossless
from sqlfront.maintenance.relation.reach import columns_read
from sqlfront.sql.keywords import quoted
from sqlfront.storage.capture import setup
from sqlfront.storage.capture.trigger_sql import delta_sql, table_sql
from sqlfront.storage.codecs.transport import arrived_sql, exported
from sqlfront.storage.errors import OperationalError
from sqlfront.storage.outside.epoch_log import EpochLog, Record
from sqlfront.storage.sql_text import exact, quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Relation

Sum: TypeAlias = tuple[int, int]
"""A number of rows, and the sum of their hashes."""
Described: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Relations by their names, as `describe` makes them: values of JSON."""
LOG_FROM, LOG_SHARE = 1 << 26, 0.25
"""A log may have so many bytes, or this share of its snapshot: to read a longer one would take long."""
_LOGGED, _WEIGHT = "__sqlfront_logged", "_weight"


@dataclass(frozen=True)
class _Part:
    """Rows of a table that count `weight` (SQL) each, with the SQL of columns by their names, casefolded."""

    table: str
    weight: str
    columns: Mapping[str, str]


def in_the_file(con: Any) -> set[str]:
    """The relations whose rows are in the file."""
    return {name for name, _ in _sources(con)}


def describe(relation: Relation) -> dict[str, Any]:
    """The columns of a relation with their types, and the names of those from which its state is computed."""
    columns = [[column.name, column.type] for column in relation.columns]
    read = None if relation.base is not None else columns_read(relation)
    return {"columns": columns, "read": [name for name, _ in columns if read is None or name.casefold() in read]}


def open_log(path: Path, relations: Described, size: int, end: int = 0) -> EpochLog:
    """The log of a snapshot of this size: a new one, or what there is up to `end`."""
    widths = {name: len(described["columns"]) for name, described in relations.items()}
    return EpochLog(path, widths, max(LOG_FROM, int(LOG_SHARE * size)), end)


def sums(con: Any, relations: Described) -> dict[str, Sum]:
    """What relations hold in the file, as the transaction of `con` sees it. One query for all of them."""
    sources, parts = dict(_sources(con)), list[tuple[str, str]]()
    for name, described in relations.items():
        if name not in sources:
            raise _unproved(f"changes of {name} are not captured any more")
        parts += [(name, _sum_query(part.table, part.weight, described, part.columns)) for part in sources[name]]
    numbered = (f"SELECT {number}, * FROM ({query})" for number, (_, query) in enumerate(parts))
    found: dict[str, list[Sum]] = {name: [] for name in relations}
    for number, rows, total in con.execute(" UNION ALL ".join(numbered)).fetchall() if parts else ():
        found[parts[number][0]].append((int(rows), int(total)))
    return {name: _total(sums) for name, sums in found.items()}


def changes_since(con: Any, relations: Described, records: Sequence[Record]) -> tuple[dict[str, pa.Table], int]:
    """The changes that lead from a snapshot to the present tables, as rows and `_weight`, and how many of the records
    of its log these are: the last may not have been committed. OperationalError if the log does not lead there."""
    present = sums(con, relations)
    former, last = _changes(con, relations, records[:-1]), _changes(con, relations, records[-1:])
    reached = {name: (int(described["rows"]), int(described["hash"])) for name, described in relations.items()}
    reached = _after(con, relations, reached, former)
    if reached == present:
        return former, max(0, len(records) - 1)
    reached = _after(con, relations, reached, last)
    for name in relations:
        if reached[name] != present[name]:
            raise _unproved(f"rows of {name} have changed unseen")
    return _changes(con, relations, records), len(records)


def _after(
    con: Any, relations: Described, before: Mapping[str, Sum], changes: Mapping[str, pa.Table]
) -> dict[str, Sum]:
    """What relations hold after changes."""
    found = dict(before)
    for name, rows in changes.items():
        columns = {
            column.casefold(): arrived_sql(column, type_, rows.schema.field(column).type)
            for column, type_ in relations[name]["columns"]
        }
        with _given(con, rows):
            found[name] = _total([before[name], _sum(con, _LOGGED, _WEIGHT, relations[name], columns)])
    return found


def _changes(con: Any, relations: Described, records: Iterable[Record]) -> dict[str, pa.Table]:
    """The changes of records by relation, as DuckDB exports rows of these types."""
    import pyarrow as pa

    groups: dict[str, dict[Any, list[pa.Table]]] = defaultdict(lambda: defaultdict(list))
    for part in (part for record in records for part in record.parts):
        names = [name for name, _ in relations[part.relation]["columns"]]
        rows = part.rows
        if isinstance(rows, list):
            rows = pa.table([pa.array(values, pa.string()) for values in zip(*rows, strict=True)], names=names)
        rows = rows.rename_columns(names).append_column(_WEIGHT, pa.array(part.weights))
        groups[part.relation][rows.schema].append(rows)
    found = dict[str, pa.Table]()
    for relation, tables in groups.items():
        columns = relations[relation]["columns"]
        found[relation] = pa.concat_tables([_typed(con, columns, pa.concat_tables(each)) for each in tables.values()])
    return found


def _typed(con: Any, columns: Sequence[Sequence[str]], rows: pa.Table) -> pa.Table:
    """Rows of texts, or as they have left DuckDB, as they leave DuckDB."""
    values = [f"{arrived_sql(name, type_, rows.schema.field(name).type)} AS {quote(name)}" for name, type_ in columns]
    with _given(con, rows), lossless(con):
        return exported(con.sql(f"SELECT {', '.join([*values, _WEIGHT])} FROM {_LOGGED}")).to_arrow_table()


@contextmanager
def _given(con: Any, rows: pa.Table) -> Iterator[None]:
    """Rows that SQL reads as `_LOGGED`."""
    con.register(_LOGGED, rows)
    try:
        yield
    finally:
        con.unregister(_LOGGED)


def _sum(con: Any, table: str, weight: str, described: Mapping[str, Any], columns: Mapping[str, str]) -> Sum:
    """What rows hold: see `_sum_query`."""
    [(rows, total)] = con.execute(_sum_query(table, weight, described, columns)).fetchall()
    return int(rows), int(total)


def _sum_query(table: str, weight: str, described: Mapping[str, Any], columns: Mapping[str, str]) -> str:
    """SQL for what rows hold, `columns` being the SQL of columns by their names, casefolded."""
    types = dict(described["columns"])
    values = ", ".join(exact(columns[name.casefold()], types[name]) for name in described["read"])
    # Hashed twice: the hash of several values is a linear function of that of the last.
    hashed = f"hash(hash({values}))::HUGEINT" if values else "0::HUGEINT"
    return f"SELECT coalesce(sum({weight}), 0), coalesce(sum({weight} * {hashed}), 0) FROM {table}"


def _total(sums: Iterable[Sum]) -> Sum:
    rows, hashes = zip(*sums, strict=True)
    return sum(rows), sum(hashes)


def _sources(con: Any) -> Iterator[tuple[str, list[_Part]]]:
    """The relations whose rows are in the file, each with the tables whose rows add up to its own."""
    [(name,)] = con.execute("SELECT current_database()").fetchall()
    for captured in setup.booked(con, name):
        table = captured.table
        own = {column.casefold(): quote(column) for column in captured.columns}
        delta = {column.casefold(): f"c{place}" for place, column in enumerate(captured.columns)}
        yield (
            f"{quoted(table.schema)}.{quoted(table.name)}",
            [
                _Part(table_sql(name, table), "1", own),
                _Part(delta_sql(name, captured), "-w::BIGINT", delta),
            ],
        )
    for schema, table, columns, number in con.execute(
        f"SELECT schema, name, columns, scan FROM {SCHEMA}.change_tables"
    ).fetchall():
        logged = {column[0].casefold(): f"c{place}" for place, column in enumerate(json.loads(columns))}
        yield f"{quoted(schema)}.{quoted(table)}", [_Part(f"{quote(name)}.{SCHEMA}.log_{number}", "weight", logged)]


def _unproved(why: str) -> OperationalError:
    return OperationalError("the snapshot is not used", why=why)

"""CHECK MATERIALIZED VIEW: recompute by DuckDB and compare both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlfront.loading import lossless
from sqlfront.names import shown
from storage.capture_sql import quote
from storage.errors import ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.connection import Connection
    from sqlfront.database import ViewEntry


def check_view(connection: Connection, entry: ViewEntry) -> pa.Table:
    """The rows that differ, with `_difference` "missing" or "extra" and how many copies; no row: the view is right.

    Floating columns are compared after pairing rows on the other columns, within 1e-9 of the largest value.
    """
    database, con = connection._database, connection._duck
    for table in database.change_tables.values():
        if database.relation_key(table.name) in entry.tables and not table.retain:
            raise ProgrammingError(
                f"materialized view {shown(entry.name)} cannot be checked",
                why=f"change table {shown(table.name)} was created WITH (retain = false) and keeps no rows",
                hint="create the change table WITH (retain = true)",
            )
    names = ", ".join(quote(name) for name, _ in entry.definition.columns)
    renamed = f"SELECT * FROM ({entry.select}\n) AS q({names})"
    session = connection._current_session()
    with session.holding():
        con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_expected AS {renamed}")
        con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_found AS SELECT * FROM {entry.name}")
        with lossless(con):
            result = con.sql(_difference(entry)).to_arrow_table()
        con.execute("DROP TABLE temp.__sqlfront_expected; DROP TABLE temp.__sqlfront_found")
    return result


def _difference(entry: ViewEntry) -> str:
    """SQL for the rows of one side that have no partner on the other, copies counted."""
    columns = [(quote(name), type_) for name, type_ in entry.definition.columns]
    floats = {name for name, type_ in columns if type_ in ("FLOAT", "DOUBLE")}
    exact = [name for name, _ in columns if name not in floats]
    order = ", ".join([*exact, *sorted(floats)])
    partition = ", ".join(exact) or "1"
    number = f"row_number() OVER (PARTITION BY {partition} ORDER BY {order}) AS __copy"
    scales = ", ".join(f"coalesce(max(abs({name})) FILTER (isfinite({name})), 0) AS {name}" for name in sorted(floats))
    same = [f"e.{name} IS NOT DISTINCT FROM f.{name}" for name in exact]
    same += [
        f"(e.{name} IS NOT DISTINCT FROM f.{name} OR abs(e.{name} - f.{name}) <= 1e-9 * s.{name})"
        for name in sorted(floats)
    ]
    matched = " AND ".join([*same, "e.__copy = f.__copy"])
    scale = f"(SELECT {scales or '1 AS one'} FROM temp.__sqlfront_expected) AS s"
    sides = []
    for label, one, other in (("missing", "expected", "found"), ("extra", "found", "expected")):
        sides.append(
            f"SELECT '{label}' AS _difference, * EXCLUDE (__copy) FROM "
            f"(SELECT *, {number} FROM temp.__sqlfront_{one}) AS e WHERE NOT EXISTS (SELECT 1 FROM "
            f"(SELECT *, {number} FROM temp.__sqlfront_{other}) AS f, {scale} WHERE {matched})"
        )
    return " UNION ALL ".join(sides)

"""CHECK MATERIALIZED VIEW: recompute by DuckDB and compare both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.database.names import shown
from sqlfront.database.recomputed import recomputed
from sqlfront.database.user_settings import frozen, lossless
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.codecs.moments import UNITLESS
from sqlfront.storage.errors import ProgrammingError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session


def check_view(session: Session, entry: ViewEntry) -> pa.Table:
    """The rows that differ, with `_difference` "missing" or "extra"; a row stands there once per copy.

    DuckDB recomputes the view, and compares, under the view's settings. Of the rows that tie in an ARG_MIN or ARG_MAX,
    it is made to take the one that the view takes; what an aggregate has under FILTER, it computes under the filter.
    Floating columns are compared after pairing rows on the other columns, within 1e-9 of the largest value; of what has
    no unit, such as CORR, within 1e-9 of 1 too: where it is 0, DuckDB's has the rounding errors of its sums.
    """
    database, con = session.database, session.duck
    for table in database.change_tables.values():
        if database.relation_key(table.name) in entry.tables and not table.retain:
            raise ProgrammingError(
                f"materialized view {shown(entry.name)} cannot be checked",
                why=f"change table {shown(table.name)} was created WITH (retain = false) and keeps no rows",
                hint="create the change table WITH (retain = true)",
            )
    # Numbered: a user's column could be called as anything we write here.
    names = [f"c{i}" for i in range(len(entry.definition.columns))]
    expected = recomputed(database, entry)
    # Columns without collations, which would hide that another of several equal texts is shown.
    typed = ", ".join(f"{name} {type_}" for name, (_, type_) in zip(names, entry.definition.columns, strict=True))
    reading = session.current_reading()
    with reading.holding():
        for name in ("found", "expected"):
            con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_{name} ({typed})")
        reading.check()
        con.execute(f"INSERT INTO temp.__sqlfront_found FROM {table_sql(database.name, entry.name)}")
        reading.check()
        with frozen(con, entry.settled):
            con.execute(f"INSERT INTO temp.__sqlfront_expected FROM ({expected}\n)")
            with lossless(con):
                result = _differing(con, entry, names)
        con.execute("DROP TABLE temp.__sqlfront_expected; DROP TABLE temp.__sqlfront_found")
    return result


def _differing(con: Any, entry: ViewEntry, names: Sequence[str]) -> pa.Table:
    """The rows of one side that have no partner on the other, a row once per copy, with `_difference`."""
    columns = list(zip(names, entry.definition.columns, strict=True))
    outputs = ", ".join(f"{name} AS {quote(column)}" for name, (column, _) in columns)
    found = _once_per_copy(con.sql(_counted(names, outputs)).to_arrow_table())
    floats = [name for name, (_, type_) in columns if type_ in ("FLOAT", "DOUBLE")]
    if found.num_rows and floats:
        return con.sql(_unpaired(entry, names, floats, outputs)).to_arrow_table()
    return found


def _counted(names: Sequence[str], outputs: str) -> str:
    """SQL for the rows of different number, and how many more are expected than found.

    Counting takes half the time of pairing, and a quarter where columns are floating. Equal rows have partners.
    """
    return (
        f"SELECT '' AS _difference, {outputs}, more FROM (SELECT {', '.join(names)}, sum(sign)::BIGINT AS more FROM "
        "(SELECT *, 1 AS sign FROM temp.__sqlfront_expected UNION ALL SELECT *, -1 FROM temp.__sqlfront_found) "
        "GROUP BY ALL HAVING sum(sign) <> 0)"
    )


def _once_per_copy(counted: pa.Table) -> pa.Table:
    """The rows of `_counted`: those missing before those that are extra."""
    import numpy as np
    import pyarrow as pa

    more = counted.column(counted.num_columns - 1).to_numpy()
    order = np.argsort(-more, kind="stable")
    places = np.repeat(order, abs(more)[order])
    labels = np.where(more[places] > 0, "missing", "extra")
    rows = counted.remove_column(counted.num_columns - 1).take(places)
    return rows.set_column(0, rows.field(0), pa.array(labels, pa.string()))


def _unpaired(entry: ViewEntry, names: Sequence[str], floats: Sequence[str], outputs: str) -> str:
    """SQL for the rows without a partner, where rows are paired by their order in floating columns."""
    exact = [name for name in names if name not in floats]
    number = f"row_number() OVER (PARTITION BY {', '.join(exact) or '1'} ORDER BY {', '.join([*exact, *floats])}) AS n"
    # One row whatever the columns: an aggregate is always there.
    unitless = [raw.name for raw in entry.definition.raw if raw.statistic in UNITLESS]
    least = {
        name: int(any(raw in expression for raw in unitless))
        for name, expression in zip(names, entry.definition.projection, strict=True)
    }
    scales = "".join(
        f", greatest(coalesce(max(abs({name})) FILTER (isfinite({name})), 0), {least[name]}) AS {name}"
        for name in floats
    )
    same = [f"e.{name} IS NOT DISTINCT FROM f.{name}" for name in exact]
    same += [
        f"(e.{name} IS NOT DISTINCT FROM f.{name} OR abs(e.{name} - f.{name}) <= 1e-9 * s.{name})" for name in floats
    ]
    matched = " AND ".join([*same, "e.n = f.n"])
    scale = f"(SELECT count(*) AS n{scales} FROM temp.__sqlfront_expected) AS s"
    sides = []
    for label, one, other in (("missing", "expected", "found"), ("extra", "found", "expected")):
        sides.append(
            f"SELECT '{label}' AS _difference, {outputs} FROM "
            f"(SELECT *, {number} FROM temp.__sqlfront_{one}) AS e WHERE NOT EXISTS (SELECT 1 FROM "
            f"(SELECT *, {number} FROM temp.__sqlfront_{other}) AS f, {scale} WHERE {matched})"
        )
    return " UNION ALL ".join(sides)

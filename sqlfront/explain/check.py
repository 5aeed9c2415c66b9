"""CHECK MATERIALIZED VIEW: recompute by DuckDB and compare both ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.binding.freeze import with_database
from sqlfront.binding.ties import with_guards, without_ties
from sqlfront.database.names import shown
from sqlfront.database.user_settings import frozen, lossless
from sqlfront.explain.unpruned import unpruned
from sqlfront.sql.dialect import parse_one
from sqlfront.storage.capture.trigger_sql import table_sql
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
    Floating columns are compared after pairing rows on the other columns, within 1e-9 of the largest value.
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
    expected = unpruned(database, _recomputed(entry.select, database.name))
    columns, types = ", ".join(names), [type_ for _, type_ in entry.definition.columns]
    # A collation must not hide that another of several equal texts is shown.
    exact = (f'{one} COLLATE "binary" AS {one}' if type_ == "VARCHAR" else one for one, type_ in zip(names, types))
    shown_exactly = ", ".join(exact)
    with session.current_reading().holding():
        made = f"CREATE OR REPLACE TEMP TABLE __sqlfront_{{}} AS SELECT {shown_exactly} FROM {{}} AS q({{}})"
        con.execute(made.format("found", table_sql(database.name, entry.name), columns))
        with frozen(con, entry.settings):
            con.execute(made.format("expected", f"({expected}\n)", columns))
            with lossless(con):
                result = con.sql(_difference(entry, names)).to_arrow_table()
        con.execute("DROP TABLE temp.__sqlfront_expected; DROP TABLE temp.__sqlfront_found")
    return result


@lru_cache(64)
def _recomputed(select: str, database: str) -> exp.Expr:
    """A view's query as DuckDB is to compute it. The tree is shared, so it must not be changed."""
    return with_guards(without_ties(with_database(parse_one(select), database)))


def _difference(entry: ViewEntry, names: Sequence[str]) -> str:
    """SQL for the rows of one side that have no partner on the other, copies counted."""
    types = [type_ for _, type_ in entry.definition.columns]
    floats = [name for name, type_ in zip(names, types, strict=True) if type_ in ("FLOAT", "DOUBLE")]
    exact = [name for name in names if name not in floats]
    number = f"row_number() OVER (PARTITION BY {', '.join(exact) or '1'} ORDER BY {', '.join([*exact, *floats])}) AS n"
    # One row whatever the columns: an aggregate is always there.
    scales = "".join(f", coalesce(max(abs({name})) FILTER (isfinite({name})), 0) AS {name}" for name in floats)
    same = [f"e.{name} IS NOT DISTINCT FROM f.{name}" for name in exact]
    same += [
        f"(e.{name} IS NOT DISTINCT FROM f.{name} OR abs(e.{name} - f.{name}) <= 1e-9 * s.{name})" for name in floats
    ]
    matched = " AND ".join([*same, "e.n = f.n"])
    scale = f"(SELECT count(*) AS n{scales} FROM temp.__sqlfront_expected) AS s"
    outputs = ", ".join(
        f"{name} AS {quote(column)}" for name, (column, _) in zip(names, entry.definition.columns, strict=True)
    )
    sides = []
    for label, one, other in (("missing", "expected", "found"), ("extra", "found", "expected")):
        sides.append(
            f"SELECT '{label}' AS _difference, {outputs} FROM "
            f"(SELECT *, {number} FROM temp.__sqlfront_{one}) AS e WHERE NOT EXISTS (SELECT 1 FROM "
            f"(SELECT *, {number} FROM temp.__sqlfront_{other}) AS f, {scale} WHERE {matched})"
        )
    return " UNION ALL ".join(sides)

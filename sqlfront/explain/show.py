"""SHOW, EXPLAIN and CHECK: what the engine keeps, how, at what cost, and whether it is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlfront.database.names import shown, view_named
from sqlfront.define.options import check_options
from sqlfront.explain.check import check_view
from sqlfront.explain.epoch_rows import EPOCHS, epoch_rows
from sqlfront.explain.explanation import Explanation, explain_creation, explain_query, explain_view
from sqlfront.explain.state_rows import STATE, state_rows
from sqlfront.sql import statements as own
from sqlfront.storage.errors import InternalError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.database import Database
    from sqlfront.database.sessions import Session


def show(session: Session, statement: own.Statement) -> pa.Table:
    """The result of a SHOW, EXPLAIN or CHECK statement as an Arrow table."""

    database, con = session.database, session.duck
    match statement:
        case own.ShowMaterializedViews():
            unbuilt = [(shown(view.name), *[None] * 5, view.written) for view in database.unbuilt.values()]
            return _table(_VIEWS, [*(_view_row(database, entry) for entry in database.views.values()), *unbuilt])
        case own.ShowChangeTables():
            return _table(_CHANGE_TABLES, [_change_table_row(database, t) for t in database.change_tables.values()])
        case own.ShowState(name=name):
            entries = [database.view(con, name.parts)] if name else list(database.views.values())
            with database.lock:
                return _table(STATE, state_rows(database, entries))
        case own.ShowErrors(name=name):
            from sqlfront.explain.error_rows import ERRORS, error_rows

            return _table(ERRORS, error_rows(session, database.view(con, name.parts)))
        case own.ShowEpochs():
            return _table(EPOCHS, epoch_rows(database.engine.last_work()) if not database.keeps_nothing else [])
        case own.ExplainMaterializedView(name=name, options=options):
            explained = explain_view(database, con, name.parts)
            return _explained(database, con, explained, options, name.parts)
        case own.ExplainMaterialized(query=query, query_start=start, options=options):
            explained = explain_query(database, con, query, statement.text, start)
            return _explained(database, con, explained, options, query)
        case own.ExplainCreation(creation=creation):
            return _explained(database, con, explain_creation(database, con, creation), (), creation.query)
        case own.ExplainAlgebra(query=query, query_start=start):
            from sqlfront.explain.algebra_steps import algebra_steps

            return _table(_STEPS, algebra_steps(database, con, query, statement.text, start))
        case own.CheckMaterializedView(name=name):
            return check_view(session, view_named(session, name.parts))
    raise InternalError(f"no handler for {type(statement).__name__}")


_STEPS = {"rule": "string", "term": "string"}
_VIEWS = {
    "name": "string", "shape": "string", "update": "string", "delay": "string", "rows": "int64", "bytes": "int64",
    "query": "string",
}  # fmt: skip
_CHANGE_TABLES = {
    "name": "string", "columns": "string", "retain": "bool_", "durable": "bool_", "rows": "int64", "status": "string",
}  # fmt: skip


def _explained(
    database: Database, con: Any, explained: Explanation, options: Sequence[tuple[str, Any]], written: Any
) -> pa.Table:
    """The rows of EXPLAIN, over shards if the options ask for them."""
    import pyarrow as pa

    shards = check_options("EXPLAIN", options).get("shards")
    if shards is not None:
        from sqlfront.shards.shard_explanation import spread_of

        explained = replace(explained, spread=spread_of(database, con, shards, written))
    return _table({"property": pa.string(), "value": pa.string()}, explained.lines())


def _view_row(database: Any, entry: Any) -> tuple[Any, ...]:
    from sqlfront.maintenance.output.output import row_count

    view = entry.maintained
    tables = (one.table for node in database.engine.describe(view) for one in node.state)
    size = sum(table.bytes() for table in {id(table): table for table in tables}.values())
    cost = view.plan.stated_cost
    return (
        shown(entry.name),
        view.plan.stated_shape,
        str(cost.update),
        str(cost.delay),
        None if database.engine.deferred.rows(view.name) else row_count(view),
        size,
        entry.written,
    )


def _change_table_row(database: Any, table: Any) -> tuple[Any, ...]:
    relation = database.engine.relations[database.relation_key(table.name)]
    rows = relation.base.table.live if relation.base is not None else None
    status = "ready" if table.lost is None else f"lost at epoch {table.lost}"
    columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
    return shown(table.name), columns, table.retain, bool(table.options.get("durable")), rows, status


def _table(columns: dict[str, Any], rows: list[tuple[Any, ...]]) -> pa.Table:
    import pyarrow as pa

    types = [getattr(pa, kind)() if isinstance(kind, str) else kind for kind in columns.values()]
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    return pa.table(arrays, names=list(columns))

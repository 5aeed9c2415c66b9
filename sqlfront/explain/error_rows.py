"""SHOW ERRORS FOR v: the rows on which an expression of the view fails, and is NULL by TRY.

Nothing is kept of them: DuckDB looks for them in the tables as they are, O(rows of each FROM with such an expression).
So a row is listed until it goes away, or its values change. An expression fails on a row if DuckDB cannot say whether
its value is NULL. Where its columns are of one table, rows of that table are listed that pass the table's own
conditions; else the columns of the expression, for the rows of the whole FROM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.binding.freeze import with_database
from sqlfront.database.names import shown
from sqlfront.database.user_settings import frozen, lossless
from sqlfront.define.row_errors import is_try
from sqlfront.sql.dialect import parse_one, printed
from sqlfront.storage.errors import DataError, ProgrammingError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session

ERRORS = {"table": "string", "row": "string", "expression": "string", "message": "string"}
"""The columns of SHOW ERRORS, with their Arrow types."""
MOST_ROWS = 1000
"""How many different rows are listed for an expression."""
_PLAIN = {"expressions", "from_"}
_SOURCE = re.compile(r"__column(\d+)")


def error_rows(session: Session, entry: ViewEntry) -> list[tuple[Any, ...]]:
    """The rows of SHOW ERRORS, at most MOST_ROWS for each expression."""
    database = session.database
    for table in database.change_tables.values():
        if database.relation_key(table.name) in entry.tables and not table.retain:
            raise ProgrammingError(
                f"the errors of materialized view {shown(entry.name)} cannot be listed",
                why=f"change table {shown(table.name)} was created WITH (retain = false) and keeps no rows",
                hint="create the change table WITH (retain = true)",
            )
    tree = with_database(parse_one(entry.select), database.name)
    found: dict[tuple[Any, ...], None] = {}
    with session.current_reading().holding(), frozen(session.duck, entry.settings), lossless(session.duck):
        for node in tree.find_all(exp.Anonymous):
            if is_try(node) and (select := _computing(node)) is not None:
                found |= dict.fromkeys(_failures(session, entry, select, node.expressions[0]))
    return list(found)


@dataclass(frozen=True)
class _Place:
    """Where an expression is computed: what stands in FROM there, as SQL, the tables' names, the conditions on the
    rows, and how a row is shown."""

    tried: exp.Expr
    source: str
    tables: str
    conditions: tuple[str, ...]
    row: str


def _failures(session: Session, entry: ViewEntry, select: exp.Select, tried: exp.Expr) -> Iterator[tuple[Any, ...]]:
    """The rows of a FROM on which an expression fails, and what DuckDB says of each."""
    import duckdb

    place = _place(select, tried)
    columns = list(dict.fromkeys(map(printed, place.tried.find_all(exp.Column))))
    held = {column: f"__column{number}" for number, column in enumerate(columns)}
    values = "".join(f", {column} AS {name}" for column, name in held.items())
    tests = " AND ".join([f"TRY(({printed(place.tried)}) IS NULL) IS NULL", *place.conditions])
    query = (
        f'SELECT DISTINCT {place.row} AS "row"{values} FROM {place.source} WHERE {tests} ORDER BY ALL LIMIT {MOST_ROWS}'
    )
    try:
        found = session.duck.sql(f"{_ctes(select)}{query}")
    except duckdb.BinderException:
        yield None, None, printed(place.tried), "its rows cannot be listed: it reads columns of an outer query"
        return
    types = {name: str(type_) for name, type_ in zip(found.columns, found.types, strict=True)}
    failing, settings = found.to_arrow_table(), tuple(entry.settings.items())
    alone = place.tried.transform(
        lambda node: exp.column(held[printed(node)]) if isinstance(node, exp.Column) else node
    )
    for number, row in enumerate(failing.column(0).to_pylist()):
        try:  # Not in the user's transaction, which an error would end.
            session.database.evaluate(failing.slice(number, 1), types, [printed(alone)], settings=settings)
        except DataError as error:
            said = _SOURCE.sub(lambda found: columns[int(found[1])], str(error.why).partition("\n")[0])
            yield place.tables, row, printed(place.tried), said


def _computing(node: exp.Expr) -> exp.Select | None:
    """The SELECT whose FROM has the columns of an expression: its own, or, in a correlated subquery, an outer one."""
    own = select = node.find_ancestor(exp.Select)
    names = {column.table for column in node.find_all(exp.Column)}
    while select is not None:
        if "" in names or names <= _sources(select).keys():
            return select
        select = select.find_ancestor(exp.Select)
    return own


def _place(select: exp.Select, tried: exp.Expr) -> _Place:
    sources, where = _sources(select), select.args.get("where")
    parts = list(where.this.flatten()) if where and isinstance(where.this, exp.And) else [where.this] if where else []
    conditions = [one for one in parts if not any(node is tried for node in one.walk())]
    only = next(iter(sources)) if len(sources) == 1 else ""
    used = {column.table or only for column in tried.find_all(exp.Column)}
    if used <= sources.keys() and len(used) == 1:
        [name] = used
        conditions = [one for one in conditions if _is_about(one, name, alone=name == only)]
        return _innermost(sources[name], tried, conditions)
    tables = ", ".join(_table_name(source) for name, source in sources.items() if name in used or "" in used)
    source = printed(select.args["from_"]).removeprefix("FROM ") if sources else "(SELECT 1)"
    source += "".join(f" {printed(join)}" for join in select.args.get("joins") or [])
    columns = {printed(column): column for column in tried.find_all(exp.Column)}
    values = (f"{quote('.'.join(part.name for part in one.parts))} := {text}" for text, one in columns.items())
    row = f"CAST(struct_pack({', '.join(values)}) AS VARCHAR)"
    return _Place(tried, source, tables, tuple(f"({printed(one)})" for one in conditions), row)


def _innermost(source: exp.Expr, tried: exp.Expr, conditions: Sequence[exp.Expr]) -> _Place:
    """An expression over one source, in the columns of the table behind subqueries that only give columns names."""
    while isinstance(source, exp.Subquery) and (names := _renamed(source)) is not None:
        tried, *conditions = [
            one.transform(lambda node: names.get(node.name, node) if isinstance(node, exp.Column) else node)
            for one in (tried, *conditions)
        ]
        source = source.this.args["from_"].this
    alias = source.alias_or_name
    text = printed(source) if alias else f"{printed(source)} AS rows"
    row = f"CAST({quote(alias or 'rows')} AS VARCHAR)"
    return _Place(tried, text, _table_name(source), tuple(f"({printed(one)})" for one in conditions), row)


def _renamed(source: exp.Subquery) -> dict[str, exp.Expr] | None:
    """The columns that a subquery over another subquery gives other names, by these; None if it does more."""
    select = source.this
    if not isinstance(select, exp.Select) or any(select.args[key] for key in select.args.keys() - _PLAIN):
        return None
    inner = select.args.get("from_")
    if inner is None or not isinstance(inner.this, exp.Subquery):
        return None
    if not all(isinstance(item, exp.Alias) and isinstance(item.this, exp.Column) for item in select.expressions):
        return None
    return {item.alias: item.this for item in select.expressions}


def _sources(select: exp.Select) -> dict[str, exp.Expr]:
    """What stands in FROM, by the names that columns are qualified with."""
    first = select.args.get("from_")
    found = [first.this] if first is not None else []
    found += [join.this for join in select.args.get("joins") or []]
    return {source.alias_or_name: source for source in found}


def _is_about(condition: exp.Expr, name: str, *, alone: bool) -> bool:
    """Whether a condition reads no other source than this one."""
    if condition.find(exp.Query):
        return False
    return all(column.table == name or (alone and not column.table) for column in condition.find_all(exp.Column))


def _table_name(source: exp.Expr) -> str:
    """The table that a source is, or stands for; else the source's name."""
    tables = list(source.find_all(exp.Table))
    return tables[0].name if len(tables) == 1 else source.alias_or_name


def _ctes(select: exp.Select) -> str:
    """The CTEs that a SELECT can name."""
    node: exp.Expr | None = select
    ctes: list[str] = []
    while node is not None:
        own = node.args.get("with_")
        if own is not None:
            ctes = [printed(cte) for cte in own.expressions] + ctes
        node = node.parent
    return f"WITH {', '.join(ctes)} " if ctes else ""

"""SHOW ERRORS FOR v: the rows on which an expression of the view fails, and is NULL by TRY.

Nothing is kept of them: DuckDB looks for them in the tables as they are, O(rows of each FROM with such an expression).
So a row is listed until it goes away, or its values change. An expression fails on a row if DuckDB cannot say whether
its value is NULL. Where its columns are of one table, rows of that table are listed that pass the table's own
conditions; else the columns of the expression, for the rows of the whole FROM. An expression over aggregates, windows,
UNNEST or items of the SELECT is looked for among the rows of the whole SELECT, by the values that it is computed from.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.binding.freeze import frozen_tree, with_database
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.names import shown
from sqlfront.database.user_settings import frozen, lossless
from sqlfront.define.row_errors import ROW, is_try
from sqlfront.sql.dialect import parse_one, printed
from sqlfront.sql.guard import query_columns
from sqlfront.storage.errors import DataError, Error, ProgrammingError
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
    found: dict[tuple[Any, ...], None] = {}
    with session.current_reading().holding(), frozen(session.duck, entry.settings), lossless(session.duck):
        for node in _query(session, entry).find_all(exp.Anonymous):
            if is_try(node) and (select := _computing(node)) is not None:
                found |= dict.fromkeys(_failures(session, entry, select, node.expressions[0]))
    return list(found)


def _query(session: Session, entry: ViewEntry) -> exp.Expr:
    """The view's query in the user's words, where these mean what they meant at CREATE; else as it is stored."""
    import duckdb

    database = session.database
    with contextlib.suppress(Error, duckdb.Error):
        frozen = frozen_tree(parse_one(entry.written), EngineCatalog(database, session.duck))
        tree = with_database(frozen, database.name)
        types = [type_ for _, type_ in query_columns(session.duck, printed(tree))]
        if types == [type_ for _, type_ in entry.definition.columns]:
            return tree
    return with_database(parse_one(entry.select), database.name)


@dataclass(frozen=True)
class _Place:
    """Where an expression is computed: a query of the rows, with the values that the expression is computed from, and
    the tables' names. `values` are these as people read them, `alone` is the expression over them."""

    query: str
    tables: str
    values: tuple[str, ...]
    alone: str
    text: str


def _failures(session: Session, entry: ViewEntry, select: exp.Select, tried: exp.Expr) -> Iterator[tuple[Any, ...]]:
    """The rows on which an expression fails, and what DuckDB says of each."""
    import duckdb

    ways = (_among_rows, _among_results)
    for way in reversed(ways) if _operands(tried) else ways:
        place = way(select, tried)
        # A hash is never NULL. DuckDB answers `a + b IS NULL` from a and b, without the sum that overflows.
        query = f"{_ctes(select)}SELECT DISTINCT * FROM ({place.query}) WHERE TRY(hash({place.alone})) IS NULL"
        try:
            found = session.duck.sql(f"{query} ORDER BY ALL LIMIT {MOST_ROWS}")
        except duckdb.BinderException:
            continue
        break
    else:
        yield None, None, place.text, "its rows cannot be listed: it reads columns of an outer query"
        return
    types = {name: str(type_) for name, type_ in zip(found.columns, found.types, strict=True)}
    failing, settings = found.to_arrow_table(), tuple(entry.settings.items())
    for number, row in enumerate(failing.column(0).to_pylist()):
        try:  # Not in the user's transaction, which an error would end.
            session.database.evaluate(failing.slice(number, 1), types, [place.alone], settings=settings)
        except DataError as error:
            said = _SOURCE.sub(lambda found: place.values[int(found[1])], str(error.why).partition("\n")[0])
            yield place.tables, row, place.text, said


def _among_rows(select: exp.Select, tried: exp.Expr) -> _Place:
    """The rows of a FROM."""
    held, conditions, source, tables, row = _origin(select, tried)
    values = [printed(value) for value in held.values]
    items = "".join(f", {value} AS __column{number}" for number, value in enumerate(values))
    tests = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f'SELECT {row or held.row()} AS "row"{items} FROM {source}{tests}'
    return _Place(query, tables, tuple(values), held.alone, held.text)


def _among_results(select: exp.Select, tried: exp.Expr) -> _Place:
    """The rows of a SELECT, with the values of an expression as further items."""
    held, whole = _held(tried), select.copy()
    [same] = [new for old, new in zip(select.walk(), whole.walk(), strict=True) if old is tried]
    for clause in ("where", "having", "qualify"):
        if (node := whole.args.get(clause)) is not None and any(one is same for one in node.walk()):
            whole.set(clause, None)
    for clause in ("distinct", "order", "limit", "offset", "with_"):
        whole.set(clause, None)
    names = [exp.to_identifier(f"__column{number}") for number in range(len(held.values))]
    for value, name in zip(held.values, names, strict=True):
        whole.append("expressions", exp.Alias(this=value.copy(), alias=name))
    row = held.row([name.name for name in names])
    query = f'SELECT {row} AS "row", {", ".join(name.name for name in names)} FROM ({printed(whole)})'
    tables = ", ".join(_table_name(source) for source in _sources(select).values())
    return _Place(query, tables, tuple(map(printed, held.values)), held.alone, held.text)


@dataclass(frozen=True)
class _Held:
    """The values that an expression is computed from: columns, and the operands of its TRY."""

    values: tuple[exp.Expr, ...]
    alone: str
    text: str

    def row(self, names: Sequence[str] = ()) -> str:
        """The values as one text, in SQL."""
        texts = list(names) or list(map(printed, self.values))
        labels = (
            ".".join(part.name for part in value.parts) if isinstance(value, exp.Column) else printed(value)
            for value in self.values
        )
        return f"CAST(struct_pack({', '.join(f'{quote(a)} := {b}' for a, b in zip(labels, texts))}) AS VARCHAR)"


def _held(tried: exp.Expr) -> _Held:
    operands = _operands(tried)
    values = dict[str, exp.Expr]()

    def value(node: exp.Expr) -> exp.Expr | None:
        if isinstance(node, exp.Bracket) and node.this.unnest().name == ROW:
            return operands[node.expressions[0].name]
        return node if isinstance(node, exp.Column) and node.name != ROW else None

    def numbered(node: exp.Expr) -> exp.Expr:
        if (found := value(node)) is None:
            return node
        values.setdefault(printed(found), found)
        return exp.column(f"__column{list(values).index(printed(found))}")

    alone = tried.transform(numbered)
    text = tried.transform(lambda node: value(node) or node)
    return _Held(tuple(values.values()), printed(alone), printed(text))


def _operands(tried: exp.Expr) -> dict[str, exp.Expr]:
    """The operands of a TRY in a lambda of ours, by their names."""
    around = tried.find_ancestor(exp.Lambda)
    if around is None or ROW not in [parameter.name for parameter in around.expressions]:
        return {}
    call = around.find_ancestor(exp.Anonymous)
    assert call is not None
    pack = next(node for node in call.find_all(exp.Anonymous) if node.name.lower() == "struct_pack")
    return {entry.name: entry.expression.copy() for entry in pack.expressions}


def _computing(node: exp.Expr) -> exp.Select | None:
    """The SELECT whose FROM has the columns of an expression: its own, or, in a correlated subquery, an outer one."""
    own = select = node.find_ancestor(exp.Select)
    names = {column.table for column in node.find_all(exp.Column)}
    while select is not None:
        if "" in names or names <= _sources(select).keys():
            return select
        select = select.find_ancestor(exp.Select)
    return own


def _origin(select: exp.Select, tried: exp.Expr) -> tuple[_Held, list[str], str, str, str]:
    """The values of an expression; the conditions on its rows, what stands in FROM, as SQL, the tables' names, and the
    row as SQL: none if the values are shown for it."""
    sources, where = _sources(select), select.args.get("where")
    parts = list(where.this.flatten()) if where and isinstance(where.this, exp.And) else [where.this] if where else []
    conditions = [one for one in parts if not any(node is tried for node in one.walk())]
    only = next(iter(sources)) if len(sources) == 1 else ""
    held = _held(tried)
    used = {column.table or only for value in held.values for column in value.find_all(exp.Column)}
    if used <= sources.keys() and len(used) == 1 and not _operands(tried):
        [name] = used
        conditions = [one for one in conditions if _is_about(one, name, alone=name == only)]
        return _innermost(sources[name], tried, conditions)
    tables = ", ".join(_table_name(source) for name, source in sources.items() if name in used or "" in used)
    source = printed(select.args["from_"]).removeprefix("FROM ") if sources else "(SELECT 1)"
    source += "".join(f" {printed(join)}" for join in select.args.get("joins") or [])
    return held, [f"({printed(one)})" for one in conditions], source, tables, ""


def _innermost(
    source: exp.Expr, tried: exp.Expr, conditions: Sequence[exp.Expr]
) -> tuple[_Held, list[str], str, str, str]:
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
    return _held(tried), [f"({printed(one)})" for one in conditions], text, _table_name(source), row


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

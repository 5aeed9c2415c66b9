"""A view's query made independent of what its tables get later, and of the search path.

`ALTER TABLE ADD COLUMN` changes what `*`, NATURAL and USING mean, makes bare names ambiguous, and lets a
column take the place of an alias. So a stored query reads each table through a subquery that names
its present columns, `FROM t` becomes `FROM (SELECT "a" AS "a" FROM main.t AS "t") AS "t"`, and plain
views are replaced by their text. A renaming then changes the subqueries alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlfront.binding.table_catalog import CatalogView, view_parts
from sqlfront.sql.parse_tree import Tree, span, try_parse_select
from sqlfront.sql.passthrough import classify
from sqlfront.sql.statements import TableReference
from sqlfront.sql.tokens import Token, tokenize
from sqlfront.storage.capture.trigger_sql import QualifiedName
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.sql_text import quote

Edit = tuple[int, int, str]


def frozen_query(query: str, catalog: CatalogView) -> str:
    """The query with each table and plain view replaced by a subquery over what it is now; `query` has been bound."""
    edits: list[Edit] = []
    qualified: list[tuple[str, ...]] = []
    for reference in _references(query):
        table = catalog.resolve(reference.parts)
        if table is None:
            continue
        name = reference.alias or reference.parts[-1]
        subquery = _subquery(table, name, catalog)
        edits.append(_replacement(query, reference, subquery if reference.alias else f"{subquery} AS {quote(name)}"))
        if not reference.alias:
            schema = tokenize(table)[0].name
            qualified += [(schema, name), *([reference.parts] if len(reference.parts) > 2 else [])]
    tree = try_parse_select(query)
    edits += [edit for column in _columns(tree) for edit in _unqualified(query, column, qualified)]
    return _edited(query, edits)


def renamed_query(frozen: str, table: QualifiedName, new: str, columns: dict[str, str]) -> str:
    """A frozen query after a renaming: `table` is called `new` (SQL text), and `columns` of it have new names."""
    tokens = tokenize(frozen)
    columns = {old.casefold(): name for old, name in columns.items()}
    edits: list[Edit] = []
    for reference in _references(frozen):
        if QualifiedName(*reference.parts).key == table.key:
            at = next(i for i, token in enumerate(tokens) if token.start == reference.start)
            edits.append((reference.start, reference.end, new))
            edits += [
                (token.start, token.end, quote(columns[token.name.casefold()]))
                for token in _source_columns(tokens, at)
                if token.name.casefold() in columns
            ]
    return _edited(frozen, edits)


def without_columns(frozen: str, table: QualifiedName, gone: Collection[str]) -> tuple[str, list[str]]:
    """A frozen query after columns of `table` have gone, and those of them that it cannot go without.

    What is named nowhere but in the subqueries can go. Anything else is missed, even where it is another table's column
    of the name: left out, the name could come to mean that one, or an alias. NATURAL names all columns.
    """
    tokens = tokenize(frozen)
    listed: set[int] = set()
    edits: list[Edit] = []
    lost = {name.casefold() for name in gone}
    for reference in _references(frozen):
        at = next(i for i, token in enumerate(tokens) if token.start == reference.start)
        columns = list(_source_columns(tokens, at))[::-1]
        aliases = [tokens[tokens.index(column) + 2] for column in columns]
        listed |= {token.start for token in [*columns, *aliases]}
        if columns and QualifiedName(*reference.parts).key == table.key:
            kept = [column for column in columns if column.name.casefold() not in lost]
            text = ", ".join(f"{quote(column.name)} AS {quote(column.name)}" for column in kept)
            edits.append((columns[0].start, aliases[-1].end, text or "1 AS one"))
    natural = any(token.keyword == "natural" for token in tokens)
    named = {token.name.casefold() for token in tokens if token.is_name and token.start not in listed}
    missed = [name for name in gone if edits and (natural or name.casefold() in named)]
    return _edited(frozen, edits) if gone else frozen, missed


def qualified_query(frozen: str, database: str) -> str:
    """A frozen query with the database before each table: no temporary table of the session takes its place."""
    places = [reference.start for reference in _references(frozen)]
    return _edited(frozen, [(place, place, f"{quote(database)}.") for place in places])


def _references(query: str) -> tuple[TableReference, ...]:
    found = classify(query, 0).references
    if found is None:
        raise NotSupportedError(
            "this query cannot be stored", why="it does not show where it names its tables", hint="name them in FROM"
        )
    return found


def _subquery(table: str, name: str, catalog: CatalogView) -> str:
    sql = None if catalog.is_change_table(table) else catalog.view_sql(table)
    if sql is not None:
        names, select = view_parts(sql)
        renaming = f"({', '.join(map(quote, names))})" if names else ""
        return f"(SELECT * FROM ({frozen_query(select, catalog)}\n) AS {quote(name)}{renaming})"
    columns = (quote(column[0]) for column in catalog.columns(table) or ())
    return f"(SELECT {', '.join(f'{column} AS {column}' for column in columns)} FROM {table} AS {quote(name)})"


def _replacement(query: str, reference: TableReference, text: str) -> Edit:
    """TABLE t takes no subquery: it becomes FROM."""
    before = tokenize(query[: reference.start])
    if before and before[-1].keyword == "table":
        return before[-1].start, reference.end, f"FROM {text}"
    return reference.start, reference.end, text


def _source_columns(tokens: Sequence[Token], at: int) -> Iterator[Token]:
    """The columns in `SELECT a AS b, c AS d FROM`, which ends before the token `at`."""
    at -= 2
    while tokens[at].is_name and tokens[at - 1].keyword == "as":
        yield tokens[at - 2]
        at -= 4


def _columns(tree: Any) -> Iterator[Tree]:
    """All column references, those of subqueries too."""
    if isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield tree
        for value in tree.values():
            yield from _columns(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _columns(value)


def _unqualified(query: str, column: Tree, qualified: Sequence[tuple[str, ...]]) -> Iterator[Edit]:
    """schema.t.a as t.a: a subquery has no schema."""
    names, place = [name.casefold() for name in column["column_names"]], span(column)
    for parts in sorted(qualified, key=len, reverse=True):
        if place is not None and len(names) > len(parts) and names[: len(parts)] == [p.casefold() for p in parts]:
            tokens = tokenize(query[place[0] : place[1]])
            yield place[0], place[0] + tokens[2 * (len(parts) - 1)].start, ""
            return


def _edited(text: str, edits: list[Edit]) -> str:
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text

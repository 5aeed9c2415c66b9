"""The tables that a statement reads, with their places in its text and the look-ups its conditions allow.

Every query inside a statement is read into a tree. UPDATE, DELETE and MERGE are first turned into a SELECT of the same
length, so that each place stays what it is in the user's text. The answer for a text is remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.query_trees import connected, is_constant, query_tree
from sqlfront.sql.statements import Equality, PassThrough, TableReference

_SHORT = 20_000
_UNKNOWN = (trees.PivotQuery, trees.Describe)


def table_references(statement: PassThrough) -> tuple[TableReference, ...] | None:
    """All tables read, in text order; None when a query in the statement cannot be analysed."""
    text = statement.text
    found = [TableReference(name.parts, name.start, name.end) for name in statement.named_reads]
    for read in statement.reads:
        references = (_remembered if len(text) <= _SHORT else _read)(text, *read)
        if references is None:
            return None
        found += references
    placeholder = "x" if statement.kind == "merge" or statement.inner == "merge" else None
    kept = [reference for reference in found if not _is_placeholder(reference, text, placeholder)]
    return tuple(sorted(kept, key=lambda reference: reference.start))


def _read(text: str, begin: int, end: int, edit: str) -> tuple[TableReference, ...] | None:
    """The references of the query at text[begin:end]."""
    query = _query_text(text, begin, end, edit)
    tree = None if query is None else query_tree(query)
    return None if tree is None else _references(tree)


_remembered = functools.lru_cache(maxsize=512)(_read)


def _query_text(text: str, begin: int, end: int, edit: str) -> str | None:
    """text[:end] with everything that is no query blanked; same positions as in `text`."""
    if edit == "unknown":
        return None
    query = " " * begin + text[begin:end]
    if edit:
        first, last, replacement = edit.split(":", 2)
        width = int(last) - int(first)
        if len(replacement) > width:
            return None
        query = query[: int(first)] + replacement.ljust(width) + query[int(last) :]
    return query


def _is_placeholder(reference: TableReference, text: str, placeholder: str | None) -> bool:
    """Whether this is the name that stands for MERGE's target in the rewritten text."""
    written = text[reference.start : reference.end]
    return placeholder is not None and reference.parts == (placeholder,) and written != placeholder


def _references(tree: exp.Expr) -> tuple[TableReference, ...] | None:
    """The references of a query; None with DESCRIBE of a table or a PIVOT that DuckDB runs as several statements.

    A common table expression hides tables where its name is in sight.
    """
    found = []
    schemed = {column.table.lower() for column in tree.find_all(exp.Column) if column.args.get("db") is not None}
    equalities: dict[int, tuple[Equality, ...]] = {}
    rest: list[tuple[exp.Expr, frozenset[str]]] = [(tree, frozenset())]
    while rest:
        node, ctes = rest.pop()
        if isinstance(node, trees.PivotQuery) or (isinstance(node, trees.Describe) and node.find(exp.Table)):
            return None
        if isinstance(node, exp.Select):
            equalities |= _equalities(node)
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            replaceable = node.alias_or_name.lower() not in schemed  # No look-up answers to `main.v.k`.
            reference = _reference(node, equalities.get(id(node), ()) if replaceable else ())
            if len(reference.parts) > 1 or reference.parts[0].lower() not in ctes:
                found.append(reference)
        with_ = node.args.get("with_")
        if with_ is not None:
            inside, ctes = _ctes(with_, ctes)
            rest += inside
        rest += [(child, ctes) for child in node.iter_expressions() if child is not with_]
    return tuple(found)


def _ctes(with_: exp.With, ctes: frozenset[str]) -> tuple[list[tuple[exp.Expr, frozenset[str]]], frozenset[str]]:
    """The queries of a WITH, each with the names that it sees, and the names that are in sight behind the WITH.

    A query sees those before it; a recursive one sees itself.
    """
    inside = []
    for cte in with_.expressions:
        name = cte.alias.lower()
        recursive = with_.args.get("recursive") and isinstance(cte.this.unnest(), exp.Union)
        inside.append((cte, ctes | {name} if recursive else ctes))
        ctes |= {name}
    return inside, ctes


def _reference(table: exp.Table, equalities: tuple[Equality, ...]) -> TableReference:
    outer = [part for key in ("catalog", "db") if (part := table.args.get(key)) is not None]
    names = [name for part in (*outer, table.this) for name in part.find_all(exp.Identifier, bfs=False)]
    places = [trees.span(name) or (0, 0) for name in names]
    return TableReference(
        tuple(name.name for name in names), places[0][0], places[-1][1], table.alias or None, equalities
    )


def _equalities(select: exp.Select) -> dict[int, tuple[Equality, ...]]:
    """The look-ups of the tables in a SELECT's own FROM, by the identity of their nodes."""
    from_, where = select.args.get("from_"), select.args.get("where")
    if from_ is None or select.args.get("sample") is not None:  # A sample is drawn before WHERE, from all rows.
        return {}
    conditions = list(connected(where.this if where is not None else None, exp.And))
    sources = list(_sources(from_.this, select.args.get("joins") or (), True, conditions))
    return {
        id(source): tuple(_of_table(source, conditions, alone=len(sources) == 1))
        for source, inner in sources
        if inner and isinstance(source, exp.Table)
    }


def _sources(
    first: exp.Expr, joins: Sequence[exp.Expr], inner: bool, conditions: list[exp.Expr]
) -> Iterator[tuple[exp.Expr, bool]]:
    """The tables and queries in FROM, and whether all joins around each are inner; ON adds to the conditions then."""
    among = inner and all(_is_comma(join) or _is_inner(join) for join in joins)
    enclosed = first.this if isinstance(first, exp.Subquery) else None
    if isinstance(enclosed, exp.Table | exp.Subquery) and enclosed.args.get("joins"):
        yield from _sources(enclosed, enclosed.args["joins"], among, conditions)
    else:
        yield first, among
    for join in joins:
        if isinstance(join, exp.Join):
            if among:
                conditions += connected(join.args.get("on"), exp.And)
            nested = join.this.args.get("joins") or ()
            yield from _sources(join.this, nested, inner if _is_comma(join) else among, conditions)


def _is_comma(join: exp.Expr) -> bool:
    return isinstance(join, exp.Join) and not any(value for key, value in join.args.items() if key != "this")


def _is_inner(join: exp.Expr) -> bool:
    """Whether a condition may be decided before the join, on either side."""
    return (
        isinstance(join, exp.Join)
        and not join.side
        and join.kind in ("", "INNER", "CROSS")
        and join.method in ("", "NATURAL")
        and join.args.get("nearest") is None
    )


def _of_table(table: exp.Table, conditions: Sequence[exp.Expr], *, alone: bool) -> Iterator[Equality]:
    """`column = constant` or parameter, for columns that surely are the table's, by their own names."""
    alias = table.args.get("alias")
    if any(table.args.get(key) for key in ("sample", "when", "ordinality")) or (alias and alias.args.get("columns")):
        return
    for condition in conditions:
        if not isinstance(condition, exp.EQ):
            continue
        left, right = condition.this.unnest(), condition.expression.unnest()
        for column, value in ((left, right), (right, left)):
            if isinstance(column, exp.Column) and _is_of(column, table, alone) and _is_value(value):
                yield Equality(column.name, value.copy())


def _is_of(column: exp.Column, table: exp.Table, alone: bool) -> bool:
    if not isinstance(column.this, exp.Identifier) or column.args.get("db") is not None:
        return False
    return alone if not column.table else column.table.lower() == table.alias_or_name.lower()


def _is_value(node: exp.Expr) -> bool:
    return isinstance(node, exp.Placeholder) or is_constant(node)

"""PIVOT over listed values and UNPIVOT, as the SELECTs that they stand for.

PIVOT is one aggregate with FILTER for each value. DuckDB compares the texts of values, so 1.0 does not meet 1. UNPIVOT
unfolds a list of names beside a list of values, and leaves out the rows with a NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one, printed
from sqlfront.sql.guard import query_columns

Value = tuple[str, str]
"""A name, and the condition or the columns that it stands for, as SQL."""


def without_pivots(tree: exp.Expr, con: Any) -> exp.Expr:
    """A query with the pivots replaced whose columns do not depend on rows. The tree is changed; others stay in it.

    `con` tells the columns of what UNPIVOT reads.
    """
    for node in list(tree.find_all(trees.PivotQuery)):
        select = _unpivoted(node, con) if node.args.get("unpivot") else _pivoted(node, con)
        if select is not None:
            for key in ("with_", "order", "limit", "offset"):
                select.set(key, node.args.get(key))
            tree = _replaced(tree, node, select)
    for pivot in list(tree.find_all(trees.Pivot)):
        _replace_in_from(pivot, con)
    return tree


def reads_values(node: exp.Expr) -> bool:
    """Whether DuckDB reads rows to tell the columns of a PIVOT: its values are not listed."""
    fields = node.args.get("on") or node.args.get("fields") or []
    is_told = (isinstance(field, trees.PivotField) and not field.args.get("query") for field in fields)
    return not node.args.get("unpivot") and not all(is_told)


def _replaced(tree: exp.Expr, node: exp.Expr, select: exp.Expr) -> exp.Expr:
    if node is tree:
        return select
    node.replace(select)
    return tree


def _replace_in_from(node: trees.Pivot, con: Any) -> None:
    """Put a subquery in the place of a table and the pivot behind it."""
    around = node.parent
    joins = around.args.get("joins") if around is not None else None
    is_query = isinstance(around, exp.Select)
    if around is None or not joins or not (joins[0] is node or is_query):
        return
    place = next(place for place, one in enumerate(joins) if one is node)
    source = around.args["from_"].this if is_query else around
    whole: exp.Expr = source.copy()
    if place:  # It pivots what is joined.
        from_, before = exp.From(this=whole), [one.copy() for one in joins[:place]]
        whole = exp.Subquery(this=exp.Select(expressions=[exp.Star()], from_=from_, joins=before))
    else:
        whole.set("joins", None)
    fields, group = node.args["fields"], node.args.get("group")
    if node.args.get("unpivot"):
        [header], [field] = node.expressions, fields
        values = header.expressions if isinstance(header, exp.Tuple) else [header]
        kept = node.args.get("nulls") == "INCLUDE"
        select = _unpivot(whole, field.expressions, field.this, values, _Columns(whole, node, con), nulls=kept)
    else:
        select = _pivot(whole, fields, node.expressions, group, con)
    if select is None:
        return
    subquery = exp.Subquery(this=select, alias=node.args.get("alias"))
    rest = joins[place + 1 :]
    if is_query:
        around.args["from_"].set("this", subquery)
        around.set("joins", rest)
    else:
        subquery.set("joins", rest)
        around.replace(subquery)


def _pivoted(node: trees.PivotQuery, con: Any) -> exp.Select | None:
    return _pivot(node.this, node.args.get("on") or [], node.args.get("using") or [], node.args.get("group"), con)


def _pivot(
    source: exp.Expr, fields: Sequence[exp.Expr], using: Sequence[exp.Expr], group: Sequence[exp.Expr] | None, con: Any
) -> exp.Select | None:
    """The aggregates of a pivot; None if its values are not listed."""
    listed = [_values(field, con) for field in fields]
    if not listed or None in listed:
        return None
    items = [(one.this, one.alias) if isinstance(one, exp.Alias) else (one, "") for one in using]
    items = items or [(parse_one("SELECT count(*)").expressions[0], "")]
    shown = []
    for values in product(*(one or [] for one in listed)):
        name, condition = "_".join(name for name, _ in values), " AND ".join(test for _, test in values)
        for item, alias in items:
            tail = alias or (printed(item) if len(items) > 1 else "")
            shown.append(f"{_filtered(item, condition, con)} AS {_quoted(f'{name}_{tail}' if tail else name)}")
    if group:
        keys = ", ".join(_quoted(one.name) for one in group)
        head = by = keys
    else:
        read = [column.name for one in (*fields, *using) for column in one.find_all(exp.Column)]
        head, by = f"* EXCLUDE ({_listed(read)})", "ALL"
    return _over(source, f"SELECT {head}, {', '.join(shown)} FROM source GROUP BY {by}")


def _filtered(item: exp.Expr, condition: str, con: Any) -> str:
    """An expression of an aggregate, of the rows that meet a condition."""
    item = exp.Paren(this=item.copy())
    calls = [call for call in item.find_all(trees.Call) if _is_aggregate(call.name, con)]
    for call in calls:
        own = call.args.get("filter")
        met = f"({printed(own.this)}) AND {condition}" if own is not None else condition
        call.set("filter", parse_one(f"SELECT 1 WHERE {met}").args["where"])
    return printed(item.this)


def _is_aggregate(name: str, con: Any) -> bool:
    query = "SELECT count(*) FROM duckdb_functions() WHERE function_type = 'aggregate' AND function_name = ?"
    return bool(con.execute(query, [name.casefold()]).fetchall()[0][0])


def _values(field: exp.Expr, con: Any) -> list[Value] | None:
    """The listed values of a pivoted column, each with its name and the condition that a row has it."""
    if not isinstance(field, trees.PivotField) or not isinstance(field.this, exp.Column) or not field.expressions:
        return None
    found = []
    for item in field.expressions:
        value, alias = (item.this, item.alias) if isinstance(item, exp.Alias) else (item, "")
        if value.find(exp.Column, exp.Query) is not None:
            return None
        name = alias or (value.name if isinstance(value, exp.Literal) else _shown(value, con))
        text = f"CAST({printed(field.this)} AS VARCHAR) IS NOT DISTINCT FROM CAST({printed(value)} AS VARCHAR)"
        found.append((name, text))
    return found


def _shown(value: exp.Expr, con: Any) -> str:
    """A constant as text, by which DuckDB calls its column."""
    [(text,)] = con.execute(f"SELECT CAST({printed(value)} AS VARCHAR)").fetchall()
    return "NULL" if text is None else str(text)


def _unpivoted(node: trees.PivotQuery, con: Any) -> exp.Select | None:
    name = node.args.get("into") or exp.to_identifier("name")
    values = node.args.get("values") or [exp.to_identifier("value")]
    return _unpivot(node.this, node.args["on"], name, values, _Columns(node.this, node, con))


def _unpivot(
    source: exp.Expr,
    listed: Sequence[exp.Expr],
    name: exp.Expr,
    values: Sequence[exp.Expr],
    columns: _Columns,
    *,
    nulls: bool = False,
) -> exp.Select | None:
    """The rows of an unpivot; None unless each item is of one column, as many for each row as it names values."""
    names, groups, gone = [], [], list[str]()
    for item in listed:
        for one in columns.written_out(item):
            inner, alias = (one.this, one.alias) if isinstance(one, exp.Alias) else (one, "")
            parts = inner.expressions if isinstance(inner, exp.Tuple) else [inner.unnest()]
            read = [column for part in parts if (column := _only_column(part)) is not None]
            if not len(parts) == len(read) == len(values):
                return None
            names.append(alias or "_".join(map(columns.spelled, read)))
            groups.append([printed(part) for part in parts])
            gone += read
    texts = ", ".join("'" + one.replace("'", "''") + "'" for one in names)
    lists = [(f"[{texts}]", name.name)]
    lists += [(f"[{', '.join(group[place] for group in groups)}]", value.name) for place, value in enumerate(values)]
    shown = ", ".join(f"unnest({text}) AS {_quoted(called)}" for text, called in lists)
    rows = f"SELECT * EXCLUDE ({_listed(gone)}), {shown} FROM source"
    if nulls:
        return _over(source, rows)
    condition = " AND ".join(f"{_quoted(value.name)} IS NOT NULL" for value in values)
    return _over(source, f"SELECT * FROM ({rows}) AS unpivoted WHERE {condition}")


class _Columns:
    """The columns of a FROM item of an unpivot, whose queries are those of the nearest WITH around."""

    def __init__(self, source: exp.Expr, pivot: exp.Expr, con: Any) -> None:
        above: exp.Expr | None = pivot
        while above is not None and not above.args.get("with_"):
            above = above.parent
        self._with = printed(above.args["with_"]) if above is not None else ""
        self._source, self._con = printed(source), con
        self._spelled = {name.casefold(): name for name in self._names("*")}

    def spelled(self, name: str) -> str:
        """A column's name as the table has it."""
        return self._spelled.get(name.casefold(), name)

    def written_out(self, item: exp.Expr) -> list[exp.Expr]:
        """An item of the list; for one with a star or COLUMNS, an item for each column."""
        star = next((node for node in item.walk() if isinstance(node, exp.Star) or _is_columns(node)), None)
        names = self._names(printed(star)) if star is not None else []
        columns = [exp.column(exp.to_identifier(name, quoted=True)) for name in names]
        return [item.transform(lambda node, new=new: new if node == star else node) for new in columns] or [item]

    def _names(self, shown: str) -> list[str]:
        """None where DuckDB does not know the FROM item: a WITH further out has it."""
        import duckdb

        try:
            return [name for name, _ in query_columns(self._con, f"{self._with} SELECT {shown} FROM {self._source}")]
        except duckdb.Error:
            return []


def _over(source: exp.Expr, text: str) -> exp.Select:
    """A SELECT of ours, which has no place in the user's text, over a FROM item of the user's."""
    select = parse_one(text)
    for part in select.walk():
        part.meta.pop(trees.SPAN, None)
    placeholder = next(table for table in select.find_all(exp.Table) if table.name == "source")
    placeholder.replace(source.copy())
    assert isinstance(select, exp.Select)
    return select


def _only_column(item: exp.Expr) -> str | None:
    """The column whose values an expression computes, if there is just one."""
    columns = list(item.find_all(exp.Column))
    is_one = len({column.name.casefold() for column in columns}) == 1 and len(columns[0].parts) == 1
    return columns[0].name if is_one and isinstance(columns[0].this, exp.Identifier) else None


def _is_columns(node: exp.Expr) -> bool:
    return isinstance(node, trees.Call) and node.name.casefold() == "columns"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_quoted(one) for one in {name.casefold(): name for name in names}.values())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

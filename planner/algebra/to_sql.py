"""Any term as DuckDB SQL: what rules are tested by, and what EXPLAIN (ALGEBRA) and fallbacks run.

Each operator is a SELECT over its inputs' SELECTs, with columns called c1, c2, ... by their numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from sqlfront.planner.algebra.rewriting import walk_once
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Ref,
    Scalar,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Common,
    Distinct,
    Filter,
    Join,
    Map,
    Recursion,
    Recursive,
    Scan,
    SetOperation,
    Sort,
    Term,
    Top,
    Unnest,
    Values,
    Window,
    Windowed,
)

_TEXTS = re.compile(r"'[^']*'|\"[^\"]*\"")
_ENCLOSED = re.compile(r"[^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*")  # Parentheses within, two levels deep.
NOTHING = "0 AS none"  # DuckDB has no rows without columns.


def to_sql(term: Term, names: Sequence[tuple[Column, str]] = ()) -> str:
    """A query with the rows of a term; with `names`, of these columns by these names, in this order."""
    # A shared term may use others, which WITH must name before it.
    commons = {part.name: part for part in walk_once(term) if isinstance(part, Common)}
    query = _select(term)
    if names:
        query = f"SELECT {_list(f'{column} AS {quoted(name)}' for column, name in names)} FROM ({query})"
    if not commons:
        return query
    shared = _list(f"{quoted(name)} AS MATERIALIZED ({_select(one.term)})" for name, one in commons.items())
    return f"WITH {shared} {query}"


def scalar_sql(scalar: Scalar) -> str:
    """An expression as DuckDB SQL, in parentheses where it is more than one word."""
    match scalar:
        case Ref(column=column):
            return str(column)
        case Constant(sql=sql):
            return sql
        case Call(form=form, arguments=arguments):
            text = _filled(form, arguments)
            return text if is_closed(form) else f"({text})"
        case Compare(operator=operator, left=left, right=right):
            return f"({scalar_sql(left)} {operator} {scalar_sql(right)})"
        case Logic(word=word, parts=parts):
            return f"({f' {word} '.join(map(scalar_sql, parts))})"
        case Not(part=part):
            return f"(NOT {scalar_sql(part)})"
        case IsNull(part=part):
            return f"({scalar_sql(part)} IS NULL)"


@functools.cache
def is_closed(form: str) -> bool:
    """Whether a form sets itself apart: it is one call f(...), or one list, with nothing around it."""
    if form.startswith("[") and form.endswith("]") and "[" not in form[1:]:
        return True
    name, opening, rest = form.partition("(")
    if not opening or not name.replace("_", "a").replace(".", "a").isalnum() or not rest.endswith(")"):
        return False
    return _ENCLOSED.fullmatch(_TEXTS.sub("", rest[:-1])) is not None


def quoted(name: str) -> str:
    """A name as an identifier of SQL, in quotes."""
    return '"' + name.replace('"', '""') + '"'


def _select(term: Term) -> str:
    match term:
        case Scan(table=table, read=read, alias=alias):
            called = f" AS {quoted(alias)}" if alias not in ("", table[-1]) else ""
            columns = _list(f"{quoted(name)} AS {c}" for name, c in read)
            return f"SELECT {columns} FROM {'.'.join(map(quoted, table))}{called}"
        case Values():
            return _values(term)
        case Filter(input=input, condition=condition):
            return f"SELECT * FROM ({_select(input)}) WHERE {scalar_sql(condition)}"
        case Map(input=input, made=made):
            return f"SELECT {_list(f'{scalar_sql(one.value)} AS {one.column}' for one in made)} FROM ({_select(input)})"
        case Join():
            return _join(term)
        case Aggregate():
            return _aggregate(term)
        case Distinct():
            return _distinct(term)
        case SetOperation(kind=kind, all=all, left=left, right=right, columns=columns):
            both = (f"SELECT {_list(map(str, side.columns))} FROM ({_select(side)})" for side in (left, right))
            word = f" {kind.upper()}{' ALL' if all else ''} "
            return f"SELECT * FROM ({word.join(both)}) AS u({_names(columns)})"
        case Window(input=input, functions=functions):
            return f"SELECT *, {_list(f'{_window(one)} AS {one.column}' for one in functions)} FROM ({_select(input)})"
        case Top(input=input, order=order, limit=limit, offset=offset, percent=percent):
            bound = f" LIMIT {scalar_sql(limit)}{' %' if percent else ''}" if limit is not None else ""
            skipped = f" OFFSET {scalar_sql(offset)}" if offset is not None else ""
            return f"SELECT * FROM ({_select(input)}){_order(order)}{bound}{skipped}"
        case Unnest():
            return _unnest(term)
        case Recursion():
            return _recursion(term)
        case Recursive(name=name, columns=columns, whole=whole):
            source = f"recurring.{quoted(name)}" if whole else quoted(name)
            return f"SELECT * FROM {source} AS r({_names(columns)})"
        case Common(name=name, columns=columns):
            return f"SELECT * FROM {quoted(name)} AS w({_names(columns)})"


def _values(term: Values) -> str:
    if not term.rows:
        made = _list(f"CAST(NULL AS {column.type}) AS {column}" for column in term.columns)
        return f"SELECT {made} WHERE false"
    rows = _list(f"({_list(map(scalar_sql, row)) if row else '0'})" for row in term.rows)
    return f"SELECT * FROM (VALUES {rows}) AS v({_names(term.columns)})"


def _join(term: Join) -> str:
    left, right, condition = f"({_select(term.left)})", f"({_select(term.right)})", scalar_sql(term.condition)
    match term.kind:
        case "semi" | "anti":
            word = "EXISTS" if term.kind == "semi" else "NOT EXISTS"
            return f"SELECT * FROM {left} WHERE {word} (SELECT 1 FROM {right} WHERE {condition})"
        case "mark":
            # Inside a SELECT of its own: SQL takes an aggregate of outer columns alone for the outer query's.
            found = f"SELECT {condition} AS met FROM {right}"
            some, unknown = "count(*) FILTER (WHERE met) > 0", "count(*) FILTER (WHERE met IS NULL) > 0"
            mark = f"(SELECT CASE WHEN {some} THEN true WHEN {unknown} THEN NULL ELSE false END FROM ({found}))"
            return f"SELECT *, {mark} AS {term.mark} FROM {left}"
        case "single":
            values = (f"(SELECT {column} FROM {right} WHERE {condition}) AS {column}" for column in term.right.columns)
            return f"SELECT {_list(['*', *values])} FROM {left}"
        case "inner" | "left" | "full":
            words, lateral = f"{term.kind.upper()} JOIN", "LATERAL " if term.dependent else ""
        case "as-of" | "as-of left" if term.order:
            words, lateral = ("LEFT" if term.kind == "as-of left" else "INNER") + " JOIN", "LATERAL "
            first = f"{_order(term.order)} LIMIT {term.count}"
            right, condition = f"(SELECT * FROM {right} WHERE {condition}{first})", "true"
        case "as-of" | "as-of left":
            words, lateral = "ASOF LEFT JOIN" if term.kind == "as-of left" else "ASOF JOIN", ""
    columns = _list(map(str, term.columns)) if term.columns else NOTHING
    return f"SELECT {columns} FROM {left} AS l {words} {lateral}{right} AS r ON {condition}"


def _aggregate(term: Aggregate) -> str:
    made = [*map(str, term.groups), *(f"{_aggregated(one)} AS {one.column}" for one in term.aggregates)]
    made += [f"grouping({_list(map(str, columns))}) AS {column}" for column, columns in term.grouping]
    if not made:  # One row without columns.
        made = ["count(*) AS none"]
    query = f"SELECT {_list(made)} FROM ({_select(term.input)})"
    if term.sets is None:
        return f"{query} GROUP BY {', '.join(map(str, term.groups))}" if term.groups else query
    sets = (f"({', '.join(str(column) for column in term.groups if column in one)})" for one in term.sets)
    return f"{query} GROUP BY GROUPING SETS ({', '.join(sets)})"


def _aggregated(one: Aggregated) -> str:
    filtered = "" if one.filter == TRUE else f" FILTER (WHERE {scalar_sql(one.filter)})"
    return _filled(one.form, one.arguments, "DISTINCT " if one.distinct else "", _order(one.order)) + filtered


def _window(one: Windowed) -> str:
    call = _filled(one.form, one.arguments, "DISTINCT " if one.distinct else "", _order(one.argument_order))
    filtered = "" if one.filter == TRUE else f" FILTER (WHERE {scalar_sql(one.filter)})"
    by = f"PARTITION BY {', '.join(map(scalar_sql, one.partition))}" if one.partition else ""
    return f"{call}{filtered} OVER ({' '.join(filter(None, (by, _order(one.order).strip(), one.frame)))})"


def _distinct(term: Distinct) -> str:
    if term.on is None:
        return f"SELECT DISTINCT {_list(map(str, term.columns))} FROM ({_select(term.input)})"
    return f"SELECT DISTINCT ON ({', '.join(map(str, term.on))}) * FROM ({_select(term.input)}){_order(term.order)}"


def _unnest(term: Unnest) -> str:
    lists = [scalar_sql(one.value) for one in term.elements]
    longest = f"greatest({', '.join(f'coalesce(len({one}), 0)' for one in lists)})"
    length = f"greatest(1, {longest})" if term.outer else longest
    made = [f"list_extract({text}, i.i) AS {one.column}" for text, one in zip(lists, term.elements)]
    made += [f"i.i AS {term.position}"] if term.position is not None else []
    return (
        f"SELECT {_list([f'l.{column}' for column in term.input.columns] + made)} FROM ({_select(term.input)}) AS l, "
        f"LATERAL (SELECT unnest(range(1, {length} + 1)) AS i) AS i"
    )


def _recursion(term: Recursion) -> str:
    parts = (f"SELECT {_list(map(str, part.columns))} FROM ({_select(part)})" for part in (term.base, term.step))
    key = f" USING KEY ({', '.join(map(str, term.keys))})" if term.keys else ""
    both, name = f" UNION {'ALL ' if term.all else ''}".join(parts), quoted(term.name)
    return f"WITH RECURSIVE {name}({_list(map(str, term.columns))}){key} AS ({both}) SELECT * FROM {name}"


def _order(order: Sequence[Sort]) -> str:
    items = (
        f"{scalar_sql(one.value)} {'DESC' if one.descending else 'ASC'} NULLS {'FIRST' if one.nulls_first else 'LAST'}"
        for one in order
    )
    return f" ORDER BY {', '.join(items)}" if order else ""


def _filled(form: str, arguments: Sequence[Scalar], before: str = "", behind: str = "") -> str:
    """A form with its arguments in it; {before} and {behind} stand for what an aggregate has around them."""
    return form.format(*map(scalar_sql, arguments), before=before, behind=behind)


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(map(str, columns)) or "none"


def _list(parts: Iterable[str]) -> str:
    return ", ".join(parts) or NOTHING

"""A term as lines that a person can read: one operator a line, its inputs indented below it, in the words of SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from sqlfront.planner.algebra.scalars import TRUE, Call, Column, Compare, Constant, IsNull, Logic, Not, Ref, Scalar
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Common,
    Distinct,
    Filter,
    Join,
    Made,
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
    inputs_of,
    walk,
)

Name = Callable[[Column], str]


def lines(term: Term) -> list[str]:
    """The lines of a term, outermost operator first. A column whose name another one has too gets its number."""
    columns = {column for part in walk(term) for column in part.columns}
    counts = Counter(column.name for column in columns)

    def name(column: Column) -> str:
        return column.name if counts[column.name] == 1 else f"{column.name}#{column.number}"

    return list(_lines(term, name, 0))


def scalar_text(scalar: Scalar, name: Name) -> str:
    """An expression in the words of SQL, without parentheses around the whole."""
    match scalar:
        case Ref(column=column):
            return name(column)
        case Constant(sql=sql):
            return sql
        case Call(form=form, arguments=arguments):
            return form.format(*(_inner(one, name) for one in arguments))
        case Compare(operator=operator, left=left, right=right):
            return f"{_inner(left, name)} {operator} {_inner(right, name)}"
        case Logic(word=word, parts=parts):
            return f" {word} ".join(_inner(one, name) for one in parts)
        case Not(part=IsNull(part=part)):
            return f"{_inner(part, name)} IS NOT NULL"
        case Not(part=part):
            return f"NOT {_inner(part, name)}"
        case IsNull(part=part):
            return f"{_inner(part, name)} IS NULL"


def _lines(term: Term, name: Name, depth: int) -> Iterator[str]:
    yield "  " * depth + _head(term, name)
    for part in inputs_of(term):
        yield from _lines(part, name, depth + 1)


def _head(term: Term, name: Name) -> str:
    """The operator itself."""

    def text(scalar: Scalar) -> str:
        return scalar_text(scalar, name)

    match term:
        case Scan(table=table, read=read):
            columns = (name(c) if name(c) == known else f"{known} AS {name(c)}" for known, c in read)
            return f"SCAN {'.'.join(table)} ({', '.join(columns)})"
        case Values(rows=rows, columns=columns):
            shown = ", ".join(f"({', '.join(map(text, row))})" for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
            return f"VALUES {shown or 'none'} AS ({', '.join(map(name, columns))})"
        case Filter(condition=condition):
            return f"FILTER {text(condition)}"
        case Map(made=made):
            return f"MAP {_made(made, name)}"
        case Join(kind=kind, condition=condition, dependent=dependent, mark=mark):
            word = f"{'DEPENDENT ' if dependent else ''}{kind.upper()} JOIN"
            marked = f" AS {name(mark)}" if mark is not None else ""
            return word + marked + ("" if condition == TRUE else f" ON {text(condition)}")
        case Aggregate():
            return _aggregate(term, name)
        case Distinct(on=on, order=order):
            return "DISTINCT" if on is None else f"DISTINCT ON {', '.join(map(name, on))}{_order(order, name)}"
        case SetOperation(kind=kind, all=all, columns=columns):
            return f"{kind.upper()}{' ALL' if all else ''} AS ({', '.join(map(name, columns))})"
        case Window(functions=functions):
            return f"WINDOW {', '.join(_window(one, name) for one in functions)}"
        case Top(order=order, limit=limit, offset=offset, percent=percent):
            bound = f" LIMIT {text(limit)}{'%' if percent else ''}" if limit is not None else ""
            return f"TOP{_order(order, name)}{bound}" + (f" OFFSET {text(offset)}" if offset is not None else "")
        case Unnest(elements=elements, position=position, outer=outer):
            numbered = f", position AS {name(position)}" if position is not None else ""
            return f"{'OUTER ' if outer else ''}UNNEST {_made(elements, name)}{numbered}"
        case Recursion(name=own, all=all, columns=columns):
            return f"RECURSION {own} UNION{' ALL' if all else ''} AS ({', '.join(map(name, columns))})"
        case Recursive(name=own, columns=columns):
            return f"RECURSIVE {own} AS ({', '.join(map(name, columns))})"
        case Common(name=own, columns=columns):
            return f"SHARED {own} AS ({', '.join(map(name, columns))})"


def _aggregate(term: Aggregate, name: Name) -> str:
    made = [_aggregated(one, name) for one in term.aggregates]
    made += [f"grouping({', '.join(map(name, columns))}) AS {name(column)}" for column, columns in term.grouping]
    by = f" BY {', '.join(map(name, term.groups))}" if term.groups else ""
    if term.sets is not None:
        sets = (f"({', '.join(name(column) for column in term.groups if column in one)})" for one in term.sets)
        by = f" BY GROUPING SETS ({', '.join(sets)})"
    return f"GROUP{by}" + (f": {', '.join(made)}" if made else "")


def _aggregated(one: Aggregated, name: Name) -> str:
    arguments = (_inner(part, name) for part in one.arguments)
    call = one.form.format(*arguments, before="DISTINCT " if one.distinct else "", behind=_order(one.order, name))
    kept = "" if one.filter == TRUE else f" FILTER (WHERE {scalar_text(one.filter, name)})"
    return f"{call}{kept} AS {name(one.column)}"


def _window(one: Windowed, name: Name) -> str:
    arguments = (_inner(part, name) for part in one.arguments)
    ordered = _order(one.argument_order, name)
    call = one.form.format(*arguments, before="DISTINCT " if one.distinct else "", behind=ordered)
    kept = "" if one.filter == TRUE else f" FILTER (WHERE {scalar_text(one.filter, name)})"
    by = f"PARTITION BY {', '.join(scalar_text(part, name) for part in one.partition)}" if one.partition else ""
    over = " ".join(filter(None, (by, _order(one.order, name).strip(), one.frame)))
    return f"{call}{kept} OVER ({over}) AS {name(one.column)}"


def _made(made: Sequence[Made], name: Name) -> str:
    """Computed columns, and the names of those that go on unchanged."""
    return ", ".join(
        name(one.column) if one.value == Ref(one.column) else f"{scalar_text(one.value, name)} AS {name(one.column)}"
        for one in made
    )


def _order(order: Sequence[Sort], name: Name) -> str:
    items = (
        f"{scalar_text(one.value, name)}{' DESC' if one.descending else ''}{' NULLS FIRST' if one.nulls_first else ''}"
        for one in order
    )
    return f" ORDER BY {', '.join(items)}" if order else ""


def _inner(scalar: Scalar, name: Name) -> str:
    """An expression inside another: in parentheses if it is an operator."""
    text = scalar_text(scalar, name)
    called = isinstance(scalar, Call) and text.endswith(")") and text[0].isalpha()
    return text if called or isinstance(scalar, Ref | Constant) else f"({text})"

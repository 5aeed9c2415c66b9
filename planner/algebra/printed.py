"""Terms as lines that a person can read: one operator a line, its inputs indented below it.

A column is printed by its name; where two columns of the query have one name, by its name and number (`b#4`).
"""

from __future__ import annotations

from collections import defaultdict
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
    columns_of,
    conjuncts,
)
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
    scalars_of,
)


def lines(term: Term) -> list[str]:
    """A term as lines, its shared terms first, in the order in which they build on each other."""
    printer = _Printer(term)
    shared = {part.name: part for part in walk_once(term) if isinstance(part, Common)}
    found = []
    for number, one in enumerate(shared.values(), 1):
        printer.shared[one.name] = f"w{number}"
        found += [f"WITH w{number}({printer.names(one.term.columns)}) AS", *printer.lines(one.term, 1)]
    return [*found, *printer.lines(term, 0)]


class _Printer:
    """The names of columns and shared terms of one query."""

    def __init__(self, term: Term) -> None:
        numbers: dict[str, set[int]] = defaultdict(set)
        for part in walk_once(term):
            for column in (*part.columns, *columns_of(*scalars_of(part))):
                numbers[column.name].add(column.number)
        self._ambiguous = {name for name, found in numbers.items() if len(found) > 1}
        self.shared: dict[str, str] = {}

    def lines(self, term: Term, depth: int) -> list[str]:
        inputs = () if isinstance(term, Common) else inputs_of(term)
        below = [line for part in inputs for line in self.lines(part, depth + 1)]
        return ["  " * depth + self._line(term), *below]

    def names(self, columns: Iterable[Column]) -> str:
        return ", ".join(map(self._name, columns))

    def _name(self, column: Column) -> str:
        return f"{column.name}#{column.number}" if column.name in self._ambiguous else column.name

    def _line(self, term: Term) -> str:
        match term:
            case Scan(table=table, read=read):
                return f"SCAN {'.'.join(table[-2:])}({', '.join(self._read(*one) for one in read)})"
            case Values(columns=columns, rows=rows):
                return f"VALUES ({self.names(columns)}) {', '.join(f'({self._list(row)})' for row in rows)}".rstrip()
            case Filter(condition=condition):
                return f"FILTER {self._condition(condition)}"
            case Map(made=made):
                return f"MAP {', '.join(map(self._made, made))}"
            case Join():
                return self._join(term)
            case Aggregate():
                return self._aggregate(term)
            case Distinct(on=on, order=order):
                return "DISTINCT" + (f" ON {self.names(on)}" if on is not None else "") + self._order(order)
            case SetOperation(kind=kind, all=all, columns=columns):
                return f"{kind.upper()}{' ALL' if all else ''} AS ({self.names(columns)})"
            case Window(functions=functions):
                return f"WINDOW {', '.join(map(self._windowed, functions))}"
            case Top():
                return self._top(term)
            case Unnest(elements=made, position=position, outer=outer):
                numbered = f", position AS {self._name(position)}" if position is not None else ""
                return f"UNNEST{' OUTER' if outer else ''} {', '.join(map(self._made, made))}{numbered}"
            case Recursion(name=name, columns=columns, all=all, keys=keys):
                key = f" USING KEY ({self.names(keys)})" if keys else ""
                return f"RECURSION {name}({self.names(columns)}){' ALL' if all else ''}{key}"
            case Recursive(name=name, columns=columns, whole=whole):
                return f"ROWS {'SO FAR ' if whole else ''}OF {name}({self.names(columns)})"
            case Common(name=name, columns=columns):
                return f"SHARED {self.shared[name]}({self.names(columns)})"

    def _join(self, term: Join) -> str:
        dependent = "DEPENDENT " if term.dependent else ""
        mark = f" {self._name(term.mark)}" if term.mark is not None else ""
        on = "" if term.condition == TRUE else f" ON {self._condition(term.condition)}"
        first = f"{self._order(term.order)} LIMIT {term.count}" if term.order else ""
        return f"{dependent}{term.kind.upper()} JOIN{mark}{on}{first}"

    def _aggregate(self, term: Aggregate) -> str:
        made = [self._aggregated(one) for one in term.aggregates]
        made += [f"grouping({self.names(of)}) AS {self._name(column)}" for column, of in term.grouping]
        if term.sets is None:
            by = f" BY {self.names(term.groups)}" if term.groups else ""
        else:
            sets = (self.names(column for column in term.groups if column in one) for one in term.sets)
            by = f" BY SETS {', '.join(f'({one})' for one in sets)}"
        return f"AGGREGATE {', '.join(made)}".rstrip() + by

    def _top(self, term: Top) -> str:
        percent = "%" if term.percent else ""
        limit = f" LIMIT {self._scalar(term.limit)}{percent}" if term.limit is not None else ""
        offset = f" OFFSET {self._scalar(term.offset)}" if term.offset is not None else ""
        return f"TOP{self._order(term.order)}{limit}{offset}"

    def _read(self, name: str, column: Column) -> str:
        shown = self._name(column)
        return shown if shown == name else f"{name} AS {shown}"

    def _made(self, one: Made) -> str:
        value, name = self._scalar(one.value), self._name(one.column)
        return value if value == name else f"{value} AS {name}"

    def _aggregated(self, one: Aggregated) -> str:
        call = self._filled(one.form, one.arguments, "DISTINCT " if one.distinct else "", self._order(one.order))
        return f"{call}{self._filter(one.filter)} AS {self._name(one.column)}"

    def _windowed(self, one: Windowed) -> str:
        call = self._filled(one.form, one.arguments, "DISTINCT " if one.distinct else "", "")
        by = f"PARTITION BY {self._list(one.partition)}" if one.partition else ""
        over = " ".join(filter(None, (by, self._order(one.order).strip(), one.frame)))
        return f"{call}{self._filter(one.filter)} OVER ({over}) AS {self._name(one.column)}"

    def _filter(self, condition: Scalar) -> str:
        return "" if condition == TRUE else f" FILTER ({self._condition(condition)})"

    def _order(self, order: Sequence[Sort]) -> str:
        items = (
            f"{self._scalar(one.value)}{' DESC' if one.descending else ''}{' NULLS FIRST' if one.nulls_first else ''}"
            for one in order
        )
        return f" ORDER BY {', '.join(items)}" if order else ""

    def _list(self, scalars: Iterable[Scalar]) -> str:
        return ", ".join(map(self._scalar, scalars))

    def _condition(self, condition: Scalar) -> str:
        """A condition without the parentheses around the whole."""
        parts = conjuncts(condition)
        return " AND ".join(self._scalar(part, len(parts) > 1) for part in parts) or "true"

    def _scalar(self, scalar: Scalar, inside: bool = False, nested: bool = False) -> str:
        """An expression; `inside`: as part of AND or OR; `nested`: as part of a comparison."""
        match scalar:
            case Ref(column=column):
                return self._name(column)
            case Constant(sql=sql):
                return sql
            case Call(form=form, arguments=arguments):
                text = self._filled(form, arguments)
                return f"({text})" if nested and not _is_function(form) else text
            case Compare(operator=operator, left=left, right=right):
                text = f"{self._scalar(left, True, True)} {operator} {self._scalar(right, True, True)}"
                return f"({text})" if nested else text
            case Logic(word=word, parts=parts):
                text = f" {word} ".join(self._scalar(part, True) for part in parts)
                return f"({text})" if inside else text
            case Not(part=IsNull(part=part)):
                return f"{self._scalar(part, True, True)} IS NOT NULL"
            case Not(part=part):
                return f"NOT ({self._scalar(part)})"
            case IsNull(part=part):
                return f"{self._scalar(part, True, True)} IS NULL"

    def _filled(self, form: str, arguments: Sequence[Scalar], before: str = "", behind: str = "") -> str:
        nested = not _is_function(form)
        return form.format(*(self._scalar(one, nested, nested) for one in arguments), before=before, behind=behind)


def _is_function(form: str) -> bool:
    """Whether a form sets its arguments apart by itself: f(...) or [...]."""
    return form.partition("(")[0].isidentifier() or form.startswith("[")

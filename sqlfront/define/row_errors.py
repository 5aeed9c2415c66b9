"""The option `on_error = 'null'`: an expression that fails on a row is NULL there, by TRY(...) around it.

TRY is put into the text of the query before the query is bound. So the view, CHECK and the stored query have it at the
same places. Each expression that can fail is put into one TRY as a whole. A condition is not: NULL for the whole
condition would hide an equality, so its sides are. DuckDB takes no aggregate, window, subquery or UNNEST inside TRY:
a TRY with such *operands* stands inside a lambda, whose one argument is the struct of the operands' values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sqlfront.binding.function_catalog import Functions
from sqlfront.binding.macros import Macros
from sqlfront.binding.notes import Notes
from sqlfront.sql import trees
from sqlfront.sql.carets import caret
from sqlfront.sql.dialect import parse_query, printed
from sqlfront.sql.guard import query_columns
from sqlfront.sql.statements import CreateMaterializedView
from sqlfront.storage.errors import NotSupportedError

ROW = "__operands"
"""The parameter of the lambda around a TRY with operands."""
_CONNECTIVES = (
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.Between, exp.In, exp.Exists, exp.Alias, exp.Ordered, exp.Paren),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
)
"""What cannot fail by itself, and is a condition or names a value: what is inside is looked at."""
_OPERANDS = (exp.Query, exp.Exists, exp.Window, exp.Filter, exp.WithinGroup)
"""What TRY cannot have inside, besides calls that make one value of several rows, or several rows of one value."""
_CERTAIN = frozenset(
    (
        *("coalesce", "ifnull", "nullif", "greatest", "least", "typeof", "isnan", "isfinite", "isinf", "hash", "md5"),
        *("lower", "upper", "length", "strlen", "concat", "concat_ws", "trim", "ltrim", "rtrim", "replace", "contains"),
        *("starts_with", "ends_with", "prefix", "suffix", "list_value", "struct_pack", "row", "struct_extract", "try"),
        *("year", "quarter", "month", "week", "day", "dayofweek", "isodow", "dayofyear", "hour", "minute", "second"),
    )
)
"""Functions that fail on no row."""
_FALLIBLE = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Interval, trees.Factorial),
    trees.KeywordCall,
)
"""Operators that fail on some row: of numbers, by overflow. The binder takes TRY away from sums of DOUBLEs."""
_TEXT = ("TEXT", "VARCHAR", "CHAR", "NVARCHAR")


def null_on_error(con: Any, statement: CreateMaterializedView, query: exp.Expr) -> CreateMaterializedView:
    """The statement with TRY around what can fail in its query. The view's columns are called as those of the query.

    NotSupportedError where a macro stays in an expression that can fail: its text is not known.
    """
    import duckdb

    try:
        names = tuple(name for name, _ in query_columns(con, statement.query))
    except duckdb.Error:
        return statement  # The binder says what is wrong, and where.
    functions = Functions(con)
    if functions.has_macros:
        text = statement.text[: statement.query_start] + printed(Macros(con).put_in(query, Notes(statement.text)))
        statement = replace(statement, text=text, query=text[statement.query_start :])
        query = parse_query(statement.query, text, statement.query_start)
    text = with_try(statement.text, query, functions)
    columns = (*statement.columns, *names[len(statement.columns) :])
    return replace(statement, text=text, query=text[statement.query_start :], columns=columns)


def with_try(text: str, query: exp.Expr, functions: Functions) -> str:
    """The text in which each expression of a query that can fail stands in TRY(...)."""
    return (writer := _Writer(text, functions)).written((0, len(text)), writer.edits(query))


def is_try(node: exp.Expr) -> bool:
    return isinstance(node, trees.Call) and node.name.lower() == "try"


_Edit = tuple[trees.Span, str]


@dataclass(frozen=True)
class _Writer:
    """Puts TRY into a text. `keys` are those of the SELECT's GROUP BY: a TRY inside a TRY keeps a key whole."""

    text: str
    functions: Functions
    keys: Set[str] = frozenset()

    def edits(self, node: exp.Expr) -> Iterator[_Edit]:
        """What takes the place of the outermost expressions that can fail."""
        if is_try(node):
            return
        if isinstance(node, exp.Select):
            yield from replace(self, keys=self._keys(node))._inside(node)
        elif (span := trees.span(node)) is not None and self._is_whole(node):
            yield span, self._tried(node, span)
        else:
            yield from self._inside(node)

    def written(self, span: trees.Span, edits: Iterable[_Edit]) -> str:
        """A part of the text with its edits."""
        start, end = span
        found = self.text[start:end]
        for (first, last), new in sorted(edits, reverse=True):
            found = f"{found[: first - start]}{new}{found[last - start :]}"
        return found

    def _inside(self, node: exp.Expr) -> Iterator[_Edit]:
        children = node.args.get("joins") or [] if isinstance(node, exp.Table) else node.iter_expressions()
        for child in children:  # Of a table function, the arguments are no row's.
            yield from self.edits(child)

    def _is_whole(self, node: exp.Expr) -> bool:
        """Whether an expression is one of a row, as a whole, and can fail apart from its operands."""
        if not isinstance(node, exp.Condition) or isinstance(node, (*_CONNECTIVES, *_OPERANDS, exp.Lambda)):
            return False
        if self._is_operand(node) or (isinstance(node.parent, exp.Window) and node.arg_key == "this"):
            return False
        if not any(_can_fail(one) for one in node.walk(prune=lambda one: is_try(one) or self._is_operand(one))):
            return False
        return any(map(_reads, node.walk())) and not any(map(self._is_volatile, node.walk()))

    def _tried(self, node: exp.Expr, span: trees.Span) -> str:
        """An expression in TRY, its operands outside of the TRY."""
        operands = [] if printed(node) in self.keys else list(self._operands(node))
        outside = [one for one in operands if self._is_operand(one)]
        if not outside:
            return f"TRY({self.written(span, (edit for one in operands for edit in self.edits(one)))})"
        places = [(place, trees.span(one), one) for place, one in enumerate(operands)]
        named = [(span, f"{ROW}['p{place}']") for place, span, _ in places if span is not None]
        values = (
            f"p{place} := {self.written(span, self.edits(one))}" for place, span, one in places if span is not None
        )
        tried = f"TRY({self.written(span, named)})"
        return f"list_transform([struct_pack({', '.join(values)})], lambda {ROW}: {tried})[1]"

    def _operands(self, node: exp.Expr) -> Iterator[exp.Expr]:
        """The outermost operands inside an expression, and keys that can fail."""
        for child in node.iter_expressions():
            if is_try(child):
                continue
            if self._is_operand(child) or (printed(child) in self.keys and any(map(_can_fail, child.walk()))):
                yield child
            else:
                yield from self._operands(child)

    def _keys(self, select: exp.Select) -> Set[str]:
        """The expressions of GROUP BY, and the items that it names by number or alias, or by ALL."""
        group = select.args.get("group")
        if group is None:
            return frozenset()
        keys = set(map(printed, group.find_all(exp.Condition)))
        for place, item in enumerate(select.expressions, start=1):
            named = {str(place), printed(exp.column(item.args.get("alias") or ""))} & keys
            if named or (group.args.get("all") and not any(map(self._is_operand, item.walk()))):
                keys.add(printed(item.unalias()))
        return keys

    def _is_operand(self, node: exp.Expr) -> bool:
        if (
            isinstance(node, _OPERANDS)
            or node.args.get("query")
            or any(isinstance(child, exp.Any | exp.All) for child in node.iter_expressions())
        ):
            return True
        if not isinstance(node, trees.Call):
            return False
        name = node.name.lower()
        if self.functions.is_user_macro(name):
            raise self._unknown(node)
        gathers = self.functions.is_aggregate(name) or self.functions.unfolds(name)
        return gathers or name in ("grouping", "grouping_id")

    def _is_volatile(self, node: exp.Expr) -> bool:
        return isinstance(node, trees.Call) and self.functions.is_unstable(node.name, len(node.expressions))

    def _unknown(self, node: trees.Call) -> NotSupportedError:
        span = trees.span(node)
        return NotSupportedError(
            f"on_error = 'null' does not cover the macro {node.name}",
            where=caret(self.text, *span) if span is not None else None,
            why="DuckDB does not tell what the macro stands for without a value for each of its parameters",
            hint="give each parameter a value, or write the macro's expression",
        )


def _reads(node: exp.Expr) -> bool:
    """Whether a node stands for columns."""
    return isinstance(node, exp.Column | exp.Star) or (isinstance(node, trees.Call) and node.name.lower() == "columns")


def _can_fail(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return not isinstance(node, exp.TryCast) and node.to.sql().upper() not in _TEXT
    if isinstance(node, trees.Call):
        return node.name.lower() not in _CERTAIN
    return isinstance(node, _FALLIBLE)

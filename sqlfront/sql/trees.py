"""Node classes that sqlglot does not have: what DuckDB writes in its own way, and our own statements.

A tree holds the text's facts: the function's name, the operator and the NULL order as they were written. `span`
says where a node stands in its text.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

Span = tuple[int, int]
SPAN = "span"


def span(node: exp.Expr) -> Span | None:
    """The text range (start, end) of a node, end exclusive; of its descendants where a rewrite created the node."""
    noted = node.meta.get(SPAN)
    if noted is not None:
        start, end = noted
        return start, end
    inner = [found for child in node.iter_expressions() if (found := span(child)) is not None]
    return (min(start for start, _ in inner), max(end for _, end in inner)) if inner else None


class Infix(exp.Expression, exp.Binary):
    """An operator that sqlglot has no faithful class for, as written: `||`, `->`, `**`, `<<`, `@>`, ..."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "operator": True}


class Match(exp.Expression, exp.Binary, exp.Predicate):
    """LIKE and its relatives, by the word or sign that was written; NOT is an `Unlike` around it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "operator": True, "escape": False}


class Prefix(exp.Unary):
    """A sign before its operand: `+`, `~`, `@`, or the star of `*COLUMNS(...)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "operator": True}


class Factorial(exp.Unary):
    """The sign `!` after its operand."""


class Unlike(exp.Not):
    """NOT inside a predicate: `x NOT IN (...)`, `NOT BETWEEN`, `NOT LIKE`, `IS NOT NULL`."""


class EscapedText(exp.Expression, exp.Condition):
    """A string with a letter before it (e'...', x'...', b'...'), as written."""


class Call(exp.Anonymous):
    """A function's call under the name that was written; `method` is x in `x.f(...)`."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": False,
        "qualifier": False,
        "method": False,
        "distinct": False,
        "order": False,
        "nulls": False,
        "within": False,
        "filter": False,
        "export": False,
    }


class KeywordCall(exp.Expression, exp.Condition):
    """A call with words between its arguments: EXTRACT(a FROM b), TRIM(BOTH a FROM b). `words` go before each."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True, "words": True}


class Window(exp.Window):
    """OVER; `bare` is the form without parentheses, which also takes the frame of the window it names."""

    arg_types: ClassVar[dict[str, bool]] = {**exp.Window.arg_types, "bare": False}


class ListOf(exp.Expression, exp.Condition):
    """A list in brackets; `word` is ARRAY where it was written, which the result's name shows."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False, "word": False}


class MapOf(exp.Expression, exp.Condition):
    """MAP {key: value, ...}: the entries are PropertyEQ."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


class Star(exp.Star):
    """`*` with EXCLUDE, REPLACE and RENAME."""


class Sample(exp.Expression):
    """TABLESAMPLE or USING SAMPLE: the text after these words, which no rewrite reads."""


class At(exp.Expression):
    """AT (VERSION => x) or AT (TIMESTAMP => x) after a table."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class Pivot(exp.Expression):
    """PIVOT (...) or UNPIVOT (...) after a table; it stands among the joins, in their order."""

    arg_types: ClassVar[dict[str, bool]] = {
        "expressions": True,
        "fields": True,
        "group": False,
        "alias": False,
        "unpivot": False,
        "nulls": False,
    }


class PivotField(exp.Expression):
    """`column IN (values)` of a pivot; `enum` names a type instead of values."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False, "enum": False, "query": False}


class PivotQuery(exp.Expression, exp.Query):
    """The statements PIVOT t ON ... USING ... GROUP BY ... and UNPIVOT t ON ... INTO ...."""

    arg_types: ClassVar[dict[str, bool]] = {
        **exp.QUERY_MODIFIERS,
        "with_": False,
        "this": True,
        "on": False,
        "using": False,
        "group": False,
        "unpivot": False,
        "into": False,
        "values": False,
    }


class Describe(exp.Expression, exp.Query):
    """DESCRIBE, SHOW and SUMMARIZE; `word` is the one that was written, `this` a query, a table or words."""

    arg_types: ClassVar[dict[str, bool]] = {**exp.QUERY_MODIFIERS, "with_": False, "this": False, "word": True}


class Own(exp.Expression):
    """A statement of ours."""


class Option(exp.Expression):
    """`name = value` of WITH (...) and OPTIONS (...); `this` is the name in lower case."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class CreateMaterializedView(Own):
    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "query": True,
        "columns": False,
        "options": False,
        "or_replace": False,
        "if_not_exists": False,
    }


class Drop(Own):
    """DROP of a materialized view, a change table or an index; `kind` says which."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "if_exists": False, "cascade": False}


class Refresh(Own):
    """REFRESH MATERIALIZED VIEW v, or REFRESH CHANGE TABLE t, ...: `kind` says which."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True, "kind": True}


class AlterMaterializedView(Own):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class RenameMaterializedView(Own):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "to": True}


class SetOwn(Own):
    """SET of a setting of ours, which all connections of a database share."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class CreateViewIndex(Own):
    """CREATE INDEX on a view, or on any table: its name tells nothing of what it indexes."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "table": True,
        "expressions": True,
        "if_not_exists": False,
        "unique": False,
        "using": False,
    }


class ChangeColumn(exp.Expression):
    """A column of CREATE CHANGE TABLE."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "not_null": False, "default": False}


class CreateChangeTable(Own):
    """CREATE CHANGE TABLE; `primary_key` is a Tuple, `unique` a list of them, `source` the kind after FROM."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": True,
        "primary_key": False,
        "unique": False,
        "options": False,
        "or_replace": False,
        "if_not_exists": False,
        "source": False,
        "source_options": False,
    }


class ShowOwn(Own):
    """SHOW CHANGE TABLES, SHOW MATERIALIZED VIEWS, SHOW EPOCHS, SHOW STATE [FOR v] or SHOW ERRORS FOR v."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class ExplainMaterializedView(Own):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": False}


class ExplainMaterialized(Own):
    """EXPLAIN (MATERIALIZED [, SHARDS n]) query."""

    arg_types: ClassVar[dict[str, bool]] = {"query": True, "options": False}


class ExplainCreation(Own):
    """EXPLAIN, and the statement that would create a view."""


class ExplainAlgebra(Own):
    """EXPLAIN (ALGEBRA) query."""

    arg_types: ClassVar[dict[str, bool]] = {"query": True}


class CheckMaterializedView(Own):
    pass


class Subscribe(Own):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": False}

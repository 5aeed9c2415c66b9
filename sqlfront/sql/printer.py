"""Prints trees as DuckDB's SQL text with the same meaning: names, operators and orders as the tree holds them.

Operands get parentheses unless DuckDB's grammar makes them superfluous beyond doubt, so the text's structure is the
tree's: a tree that was read wrongly, or rewritten, prints as what it is, and the guard can see a difference.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.keywords import OPERATORS, RESERVED, UNLABELLED, words
from sqlfront.sql.query_printer import LEVELS
from sqlfront.sql.statement_printer import StatementPrinter

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BARRED = RESERVED | OPERATORS | UNLABELLED | words("COLUMNS VALUES MAP STRUCT INTERVAL ROW EXISTS TRY_CAST")
_SIGNS: dict[type[exp.Expr], str] = {
    exp.Or: "OR",
    exp.And: "AND",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.GT: ">",
    exp.LTE: "<=",
    exp.GTE: ">=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_CHAINED = (1, 2, 6, 7)
_BASES = (exp.Column, exp.Dot, exp.Identifier, exp.Paren, exp.Bracket, exp.Subquery, trees.Call, trees.ListOf)


class Printer(StatementPrinter):
    """sqlglot's generator with every node of ours, and every node it would respell, printed as the tree has it."""

    def infix(self, node: exp.Expr) -> str:
        """An operator of a level; the left operands of a chain are printed in a loop, however long it is."""
        level = LEVELS.get(type(node), 99)
        tail: list[str] = []
        while True:
            right = self.operand(node.args["expression"], level, isinstance(node, exp.And | exp.Or))
            tail.append(f" {_SIGNS[type(node)]} {right}")
            if level not in _CHAINED or LEVELS.get(type(node.this)) != level:
                break
            node = node.this
        return self.operand(node.this, level) + "".join(reversed(tail))

    def operator(self, node: trees.Infix) -> str:
        operator, tail = node.args["operator"], []
        while True:
            tail.append(f" {operator} {self.operand(node.expression)}")
            if not isinstance(node.this, trees.Infix) or node.this.args["operator"] != operator:
                break
            node = node.this
        return self.operand(node.this) + "".join(reversed(tail))

    def negated(self, node: exp.Not) -> str:
        return f"NOT {self.operand(node.this, 3, left=True)}"

    def unlike(self, node: trees.Unlike) -> str:
        """NOT x IN (...) with the NOT where it was written; what a rewrite put inside is negated as a whole."""
        inner = node.this
        if isinstance(inner, exp.In | exp.Between | trees.Match | exp.Is):
            return self._predicate(inner, "NOT ")
        return f"NOT {self.operand(inner)}"

    def _predicate(self, node: exp.Expr, negation: str) -> str:
        this = self.operand(node.this)
        if isinstance(node, exp.Is):
            negation = "NOT " if node.args.get("negate") else negation
            return f"{this} IS {negation}{self.sql(node, 'expression')}"
        if isinstance(node, exp.Between):
            return f"{this} {negation}BETWEEN {self.operand(node.args['low'])} AND {self.operand(node.args['high'])}"
        if isinstance(node, trees.Match):
            escape = node.args.get("escape")
            tail = f" ESCAPE {self.operand(escape)}" if escape is not None else ""
            return f"{this} {negation}{node.args['operator']} {self.operand(node.expression)}{tail}"
        self.only(node, "this", "query", "field", "expressions")
        query, field = node.args.get("query"), node.args.get("field")
        if field is not None:
            return f"{this} {negation}IN {self.operand(field)}"
        return f"{this} {negation}IN {self.sql(query) if query is not None else self.enclosed(node.expressions)}"

    def predicate(self, node: exp.Expr) -> str:
        return self._predicate(node, "")

    def prefix(self, node: trees.Prefix) -> str:
        gap = "" if isinstance(node.this, trees.Call) and node.args["operator"] == "*" else " "
        return f"{node.args['operator']}{gap}{self.operand(node.this)}"

    def negative(self, node: exp.Neg) -> str:
        text = self.operand(node.this)
        return f"-{text}" if not text.startswith("-") else f"-({text})"

    def factorial(self, node: trees.Factorial) -> str:
        return f"{self.operand(node.this)}!"

    def quantified(self, node: exp.Expr) -> str:
        word = "ALL" if isinstance(node, exp.All) else "ANY"
        text = self.sql(node, "this")
        return f"{word} {text}" if text.startswith("(") else f"{word} ({text})"

    def paren(self, node: exp.Paren) -> str:
        return f"({self.sql(node, 'this')})"

    def name(self, node: exp.Identifier) -> str:
        text = str(node.this)
        if not node.args.get("quoted") and _SIMPLE.match(text) and text.upper() not in _BARRED:
            return text
        return '"' + text.replace('"', '""') + '"'

    def literal(self, node: exp.Literal) -> str:
        text = str(node.this)
        return "'" + text.replace("'", "''") + "'" if node.is_string else text

    def constant(self, node: exp.Expr) -> str:
        return "NULL" if isinstance(node, exp.Null) else ("TRUE" if node.this else "FALSE")

    def text(self, node: exp.Expr) -> str:
        return str(node.this)

    def placeholder(self, node: exp.Placeholder) -> str:
        return str(node.this) if node.this else "?"

    def positional(self, node: exp.PositionalColumn) -> str:
        return f"#{self.sql(node, 'this')}"

    def data_type(self, node: exp.DataType) -> str:
        kind = node.args.get("kind")
        return kind if isinstance(kind, str) else super().datatype_sql(node)

    def cast(self, node: exp.Cast) -> str:
        self.only(node, "this", "to", "safe", "requires_string")
        word = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        return f"{word}({self.sql(node, 'this')} AS {self.sql(node, 'to')})"

    def interval(self, node: exp.Interval) -> str:
        unit = node.args.get("unit")
        return f"INTERVAL {self.operand(node.this)}{' ' + self.sql(unit) if unit is not None else ''}"

    def column(self, node: exp.Column) -> str:
        return ".".join(self.sql(node.args[key]) for key in ("catalog", "db", "table", "this") if node.args.get(key))

    def dot(self, node: exp.Dot) -> str:
        text = self.operand(node.this)
        return f"{text if isinstance(node.this, _BASES) else '(' + text + ')'}.{self.sql(node, 'expression')}"

    def bracket(self, node: exp.Bracket) -> str:
        text = self.operand(node.this)
        return f"{text if isinstance(node.this, _BASES) else '(' + text + ')'}[{self.listed(node.expressions)}]"

    def slice(self, node: exp.Slice) -> str:
        step = node.args.get("step")
        tail = f" : {self.sql(step)}" if step is not None else ""
        return f"{self.sql(node, 'this')} : {self.sql(node, 'expression')}{tail}"

    def star(self, node: exp.Star) -> str:
        self.only(node, "except_", "replace", "rename")
        text = "*"
        for word, key in (("EXCLUDE", "except_"), ("REPLACE", "replace"), ("RENAME", "rename")):
            if node.args.get(key):
                text += f" {word} {self.enclosed(node.args[key])}"
        return text

    def call(self, node: trees.Call) -> str:
        name = ".".join(self._function_name(part) for part in [*node.args.get("qualifier", []), node.this])
        method = node.args.get("method")
        if method is not None:
            text = self.operand(method)
            bare = isinstance(method, _BASES) and not isinstance(method, exp.Column | exp.Dot)
            name = f"{text if bare else '(' + text + ')'}.{name}"
        inside = self.listed(node.expressions)
        if node.args.get("distinct"):
            inside = f"DISTINCT {inside}"
        if node.args.get("order") is not None:
            inside = f"{inside} {self.sql(node, 'order')}".strip()
        if node.args.get("nulls"):
            inside = f"{inside} {node.args['nulls']} NULLS"
        text = f"{name}({inside})"
        if node.args.get("within") is not None:
            text += f" WITHIN GROUP ({self.sql(node, 'within')})"
        if node.args.get("filter") is not None:
            text += f" FILTER ({self.sql(node, 'filter').strip()})"
        return f"{text} EXPORT_STATE" if node.args.get("export") else text

    def _function_name(self, node: Any) -> str:
        text = str(node.this) if isinstance(node, exp.Identifier) else str(node)
        quoted = isinstance(node, exp.Identifier) and node.args.get("quoted")
        return text if not quoted and _SIMPLE.match(text) else '"' + text.replace('"', '""') + '"'

    def keyword_call(self, node: trees.KeywordCall) -> str:
        inside = ""
        for word, operand in zip(node.args["words"], node.expressions):
            text = self.operand(operand) if node.this == "POSITION" else self.sql(operand)
            inside += f", {text}" if word == "," else f" {word} {text}" if word else f" {text}"
        return f"{node.this}({inside.strip()})"

    def argument(self, node: exp.Kwarg) -> str:
        return f"{self.sql(node, 'this')} := {self.sql(node, 'expression')}"

    def case(self, node: exp.Case) -> str:
        text = f"CASE {self.sql(node, 'this')}".rstrip()
        for branch in node.args["ifs"]:
            text += f" WHEN {self.sql(branch, 'this')} THEN {self.sql(branch, 'true')}"
        default = node.args.get("default")
        return f"{text}{f' ELSE {self.sql(default)}' if default is not None else ''} END"

    def exists(self, node: exp.Exists) -> str:
        return f"EXISTS {self.query_in_parentheses(node.this)}"

    def list_of(self, node: trees.ListOf) -> str:
        return f"{node.args.get('word') or ''}[{self.listed(node.expressions)}]"

    def struct(self, node: exp.Struct) -> str:
        return "{" + ", ".join(f"{self._key(f.this)}: {self.sql(f, 'expression')}" for f in node.expressions) + "}"

    def _key(self, node: exp.Expr) -> str:
        return "'" + node.name.replace("'", "''") + "'"

    def map_of(self, node: trees.MapOf) -> str:
        entries = (f"{self.operand(e.this)}: {self.sql(e, 'expression')}" for e in node.expressions)
        return "MAP {" + ", ".join(entries) + "}"

    def comprehension(self, node: exp.Comprehension) -> str:
        condition = node.args.get("condition")
        tail = f" IF {self.sql(condition)}" if condition is not None else ""
        names = self.listed(node.expression.expressions)
        return f"[{self.sql(node, 'this')} FOR {names} IN {self.sql(node, 'iterator')}{tail}]"

    def function(self, node: exp.Lambda) -> str:
        return f"LAMBDA {self.listed(node.expressions)} : {self.sql(node, 'this')}"

    def tuple(self, node: exp.Tuple) -> str:
        return (
            self.enclosed(node.expressions) if len(node.expressions) != 1 else f"ROW{self.enclosed(node.expressions)}"
        )

    def alias(self, node: exp.Alias) -> str:
        return f"{self.operand(node.this, 0)} AS {self.sql(node, 'alias')}"

    def collate(self, node: exp.Collate) -> str:
        return f"{self.operand(node.this)} COLLATE {self.sql(node, 'expression')}"

    def zoned(self, node: exp.AtTimeZone) -> str:
        return f"{self.operand(node.this)} AT TIME ZONE {self.operand(node.args['zone'])}"


Printer.TRANSFORMS = {
    **StatementPrinter.TRANSFORMS,
    **dict.fromkeys(_SIGNS, Printer.infix),
    **dict.fromkeys((exp.In, exp.Between, exp.Is, trees.Match), Printer.predicate),
    **dict.fromkeys((exp.Cast, exp.TryCast), Printer.cast),
    **dict.fromkeys((exp.Null, exp.Boolean), Printer.constant),
    **dict.fromkeys((exp.Any, exp.All), Printer.quantified),
    **dict.fromkeys((exp.Star, trees.Star), Printer.star),
    **dict.fromkeys((trees.EscapedText, exp.Var), Printer.text),
    trees.Infix: Printer.operator,
    trees.Unlike: Printer.unlike,
    trees.Prefix: Printer.prefix,
    trees.Factorial: Printer.factorial,
    trees.Call: Printer.call,
    trees.KeywordCall: Printer.keyword_call,
    trees.ListOf: Printer.list_of,
    trees.MapOf: Printer.map_of,
    exp.Not: Printer.negated,
    exp.Neg: Printer.negative,
    exp.Paren: Printer.paren,
    exp.Identifier: Printer.name,
    exp.Literal: Printer.literal,
    exp.Placeholder: Printer.placeholder,
    exp.PositionalColumn: Printer.positional,
    exp.DataType: Printer.data_type,
    exp.Interval: Printer.interval,
    exp.Column: Printer.column,
    exp.Dot: Printer.dot,
    exp.Bracket: Printer.bracket,
    exp.Slice: Printer.slice,
    exp.Kwarg: Printer.argument,
    exp.Case: Printer.case,
    exp.Exists: Printer.exists,
    exp.Struct: Printer.struct,
    exp.Comprehension: Printer.comprehension,
    exp.Lambda: Printer.function,
    exp.Tuple: Printer.tuple,
    exp.Alias: Printer.alias,
    exp.Collate: Printer.collate,
    exp.AtTimeZone: Printer.zoned,
}

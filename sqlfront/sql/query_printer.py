"""Prints queries and their clauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp
from sqlglot.generators.duckdb import DuckDBGenerator

from sqlfront.sql import trees
from sqlfront.storage.errors import InternalError

_CLAUSES = ("joins", "where", "group", "having", "windows", "qualify", "sample")
_MODIFIERS = ("with_", "order", "limit", "offset")
_GROUPINGS = ("grouping_sets", "cube", "rollup")
_SET_WORDS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}

LEVELS: dict[type[exp.Expr], int] = {
    exp.Or: 1,
    exp.And: 2,
    exp.Not: 3,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.GT, exp.LTE, exp.GTE), 4),
    **dict.fromkeys((exp.Add, exp.Sub), 6),
    **dict.fromkeys((exp.Mul, exp.Div, exp.IntDiv, exp.Mod), 7),
}
"""Levels at which an operand needs no parentheses below a weaker operator: those that all SQL agrees on."""

_OPERATORS = (
    exp.Binary,
    exp.Unary,
    exp.Between,
    exp.In,
    exp.AtTimeZone,
    exp.Lambda,
    exp.Alias,
)
_CLOSED = (exp.Paren, exp.Dot, exp.Subquery, exp.Bracket)


class QueryPrinter(DuckDBGenerator):
    """The part of `Printer` above expressions."""

    def operand(self, node: Any, level: int = 99, left: bool = False) -> str:
        """An operand's text, in parentheses unless it binds tighter than `level` (or as tight, on the left)."""
        text = self.sql(node)
        if not isinstance(node, _OPERATORS) or isinstance(node, _CLOSED):
            return text
        own = LEVELS.get(type(node), 0)
        return text if own > level or (left and own == level) else f"({text})"

    def listed(self, nodes: Sequence[Any]) -> str:
        return ", ".join(self.sql(node) for node in nodes)

    def enclosed(self, nodes: Sequence[Any]) -> str:
        return f"({self.listed(nodes)})"

    def only(self, node: exp.Expr, *keys: str) -> None:
        """Raise if a node of another dialect's tree has more than these: nothing is dropped without a word."""
        more = sorted(key for key, value in node.args.items() if value and key not in keys)
        if more:
            raise InternalError(
                "a tree cannot be printed as DuckDB's SQL",
                where=type(node).__name__,
                why=f"the printer has no words for its {', '.join(more)}.",
                hint="read the text with the dialect Sqlfront, or translate it to DuckDB's first",
            )

    def query_in_parentheses(self, node: exp.Expr) -> str:
        """A query in parentheses, of which a subquery without name brings its own."""
        return self.sql(node) if isinstance(node, exp.Subquery) and self._is_bare(node) else f"({self.sql(node)})"

    def _is_bare(self, node: exp.Subquery) -> bool:
        return not any(value for key, value in node.args.items() if key != "this")

    def clause(self, node: exp.Expr, key: str) -> str:
        """A clause with a space before it; nothing where there is none."""
        return f" {self.sql(node, key)}" if node.args.get(key) is not None else ""

    def _modified(self, node: exp.Expr, body: str) -> str:
        """A query's body between its WITH and its ORDER BY and LIMIT."""
        with_ = f"{self.sql(node, 'with_')} " if node.args.get("with_") is not None else ""
        return with_ + body + "".join(self.clause(node, key) for key in ("order", "limit", "offset"))

    def select(self, node: exp.Select) -> str:
        self.only(node, "distinct", "expressions", "from_", *_CLAUSES, *_MODIFIERS)
        words = "SELECT "
        distinct = node.args.get("distinct")
        if distinct is not None:
            on = distinct.args.get("on")
            words += f"DISTINCT ON {self.enclosed(on.expressions)} " if on is not None else "DISTINCT "
        body = words + self.listed(node.expressions) + self.clause(node, "from_")
        body += "".join(self.sql(join) for join in node.args.get("joins") or [])
        body += "".join(self.clause(node, key) for key in ("where", "group", "having"))
        if node.args.get("windows"):
            body += f" WINDOW {self.listed(node.args['windows'])}"
        body += self.clause(node, "qualify")
        if node.args.get("sample") is not None:
            body += f" USING SAMPLE {self.sql(node, 'sample')}"
        return self._modified(node, body)

    def set_operation(self, node: exp.SetOperation) -> str:
        """A set operation; the left operands of a chain are printed in a loop, however long it is."""
        outer: exp.Expr = node
        tail: list[str] = []
        while True:
            self.only(node, "this", "expression", "distinct", "by_name", *_MODIFIERS)
            word = _SET_WORDS[type(node)] + ("" if node.args.get("distinct") else " ALL")
            word += " BY NAME" if node.args.get("by_name") else ""
            tail.append(f" {word} {self._set_operand(node.expression)}")
            if not isinstance(node.this, exp.SetOperation) or isinstance(node, exp.Intersect) or self._has(node.this):
                break
            node = node.this
        return self._modified(outer, self._set_operand(node.this) + "".join(reversed(tail)))

    def _has(self, node: exp.Expr) -> bool:
        """Whether a query has a WITH, an ORDER BY or a LIMIT of its own."""
        return any(node.args.get(key) is not None for key in _MODIFIERS)

    def _set_operand(self, node: exp.Expr) -> str:
        bare = isinstance(node, exp.Subquery) or not (isinstance(node, exp.SetOperation) or self._has(node))
        return self.sql(node) if bare else f"({self.sql(node)})"

    def subquery(self, node: exp.Subquery) -> str:
        self.only(node, "this", "alias", "joins", "sample", "ordinality", "when", *_MODIFIERS)
        return self._placed(node, self._modified(node, f"({self.sql(node, 'this')})"))

    def _placed(self, node: exp.Expr, text: str) -> str:
        """A table reference with all that may follow it."""
        text += " WITH ORDINALITY" if node.args.get("ordinality") else ""
        alias = node.args.get("alias")
        text += f" AS {self.sql(alias)}" if alias is not None else ""
        text += self.clause(node, "when")
        if node.args.get("sample") is not None:
            text += f" TABLESAMPLE {self.sql(node, 'sample')}"
        return text + "".join(self.sql(join) for join in node.args.get("joins") or [])

    def table(self, node: exp.Table) -> str:
        self.only(node, "this", "db", "catalog", "alias", "joins", "sample", "ordinality", "when")
        if isinstance(node.this, exp.Identifier | str):
            text = ".".join(self.sql(node.args[key]) for key in ("catalog", "db", "this") if node.args.get(key))
        else:
            text = self.sql(node, "this")
        return self._placed(node, text)

    def lateral(self, node: exp.Lateral) -> str:
        return self._placed(node, f"LATERAL {self.sql(node, 'this')}")

    def values(self, node: exp.Values) -> str:
        rows = ", ".join(self.enclosed(row.expressions) for row in node.expressions)
        return self._placed(node, self._modified(node, f"VALUES {rows}"))

    def table_alias(self, node: exp.TableAlias) -> str:
        columns = node.args.get("columns")
        return self.sql(node, "this") + (f"{self.enclosed(columns)}" if columns else "")

    def from_(self, node: exp.From) -> str:
        return f"FROM {self.sql(node, 'this')}"

    def join(self, node: exp.Join) -> str:
        self.only(node, "this", "method", "side", "kind", "on", "using", "nearest")
        parts = [node.args.get(key) for key in ("method", "side", "kind")]
        words = " ".join(part for part in parts if part)
        conditioned = any(node.args.get(key) is not None for key in ("on", "using", "nearest"))
        if not words and not conditioned:
            return f", {self.sql(node, 'this')}"
        text = f" {words} JOIN {self.sql(node, 'this')}" if words else f" JOIN {self.sql(node, 'this')}"
        if node.args.get("on") is not None:
            text += f" ON {self.sql(node, 'on')}"
        elif node.args.get("using"):
            text += f" USING {self.enclosed(node.args['using'])}"
        return text + self.clause(node, "nearest")

    def nearest(self, node: exp.Nearest) -> str:
        word = "APPROX NEAREST" if node.args.get("approximate") else "NEAREST"
        measure = "SIMILARITY" if node.args.get("similarity") else "DISTANCE"
        return f"{word} {self.sql(node, 'count')} BY {measure} {self.sql(node, 'this')}"

    def at(self, node: trees.At) -> str:
        return f"AT ({node.this} => {self.sql(node, 'expression')})"

    def text_of(self, node: exp.Expr) -> str:
        return str(node.this)

    def with_clause(self, node: exp.With) -> str:
        return f"WITH {'RECURSIVE ' if node.args.get('recursive') else ''}{self.listed(node.expressions)}"

    def common_table(self, node: exp.CTE) -> str:
        keys = node.args.get("key_expressions")
        text = self.sql(node, "alias") + (f" USING KEY {self.enclosed(keys)}" if keys else "") + " AS "
        if node.args.get("materialized") is not None:
            text += "MATERIALIZED " if node.args["materialized"] else "NOT MATERIALIZED "
        return f"{text}({self.sql(node, 'this')})"

    def condition(self, node: exp.Expr) -> str:
        """WHERE, HAVING, QUALIFY"""
        return f"{type(node).__name__.upper()} {self.sql(node, 'this')}"

    def group(self, node: exp.Group) -> str:
        self.only(node, "all", "expressions", *_GROUPINGS)
        if node.args.get("all"):
            return "GROUP BY ALL"
        grouped = [grouping for key in _GROUPINGS for grouping in node.args.get(key) or []]
        return f"GROUP BY {self.listed([*node.expressions, *grouped])}"

    def grouping(self, node: exp.Expr) -> str:
        return f"{type(node).__name__.upper()} {self.enclosed(node.expressions)}"

    def grouping_set(self, node: exp.GroupingSets) -> str:
        return f"GROUPING SETS ({', '.join(self._grouping_item(item) for item in node.expressions)})"

    def _grouping_item(self, node: exp.Expr) -> str:
        return self.enclosed(node.expressions) if isinstance(node, exp.Tuple) else self.sql(node)

    def order(self, node: exp.Order) -> str:
        return f"ORDER BY {self.listed(node.expressions)}"

    def ordered(self, node: exp.Ordered) -> str:
        self.only(node, "this", "desc", "nulls_first")
        desc, nulls_first = node.args.get("desc"), node.args.get("nulls_first")
        text = self.sql(node, "this")
        text += "" if desc is None else " DESC" if desc else " ASC"
        return text + ("" if nulls_first is None else " NULLS FIRST" if nulls_first else " NULLS LAST")

    def limit(self, node: exp.Limit) -> str:
        self.only(node, "expression", "limit_options")
        options = node.args.get("limit_options")
        amount = self.sql(node, "expression")
        if options is None or not options.args.get("percent"):
            return f"LIMIT {amount}"
        return f"LIMIT {amount} PERCENT" if isinstance(node.expression, exp.Literal) else f"LIMIT ({amount})%"

    def offset(self, node: exp.Offset) -> str:
        return f"OFFSET {self.sql(node, 'expression')}"

    def window(self, node: exp.Window) -> str:
        self.only(node, "this", "partition_by", "order", "spec", "alias", "over", "bare")
        if node.args.get("bare"):
            return f"{self.sql(node, 'this')} OVER {self.sql(node, 'alias')}"
        parts = [self.sql(node, "alias")]
        if node.args.get("partition_by"):
            parts.append(f"PARTITION BY {self.listed(node.args['partition_by'])}")
        parts += [self.sql(node, "order").strip(), self.sql(node, "spec")]
        definition = f"({' '.join(part for part in parts if part)})"
        word = "AS" if isinstance(node.this, exp.Identifier) else "OVER"
        return f"{self.sql(node, 'this')} {word} {definition}"

    def frame(self, node: exp.WindowSpec) -> str:
        text = self._bound(node, "start")
        if node.args.get("end"):
            text = f"BETWEEN {text} AND {self._bound(node, 'end')}"
        exclude = f" EXCLUDE {self.sql(node, 'exclude')}" if node.args.get("exclude") else ""
        return f"{node.args['kind']} {text}{exclude}"

    def _bound(self, node: exp.WindowSpec, key: str) -> str:
        side = node.args.get(f"{key}_side")
        return self.sql(node, key) + (f" {side}" if side else "")

    def pivot(self, node: trees.Pivot) -> str:
        nulls = node.args.get("nulls")
        word = (f"UNPIVOT {nulls} NULLS" if nulls else "UNPIVOT") if node.args.get("unpivot") else "PIVOT"
        fields = " ".join(self.sql(field) for field in node.args["fields"])
        group = node.args.get("group")
        tail = f" GROUP BY {self.listed(group)}" if group else ""
        alias = node.args.get("alias")
        named = f" AS {self.sql(alias)}" if alias is not None else ""
        return f" {word} ({self.listed(node.expressions)} FOR {fields}{tail}){named}"

    def pivot_field(self, node: trees.PivotField) -> str:
        source = node.args.get("enum") or node.args.get("query")
        return f"{self.sql(node, 'this')} IN {self.sql(source) if source else self.enclosed(node.expressions)}"

    def pivot_query(self, node: trees.PivotQuery) -> str:
        text = f"{'UNPIVOT' if node.args.get('unpivot') else 'PIVOT'} {self.sql(node, 'this')}"
        for word, key in (("ON", "on"), ("USING", "using"), ("GROUP BY", "group")):
            if node.args.get(key):
                text += f" {word} {self.listed(node.args[key])}"
        if node.args.get("into") is not None:
            text += f" INTO NAME {self.sql(node, 'into')} VALUE {self.listed(node.args['values'])}"
        return self._modified(node, text)

    def describe(self, node: trees.Describe) -> str:
        this = node.this
        inside = f"TABLES FROM {self.listed(this.expressions)}" if isinstance(this, exp.Tuple) else self.sql(this)
        return self._modified(node, f"{node.args['word']} {inside}".strip())


QueryPrinter.TRANSFORMS = {
    **DuckDBGenerator.TRANSFORMS,
    **dict.fromkeys(_SET_WORDS, QueryPrinter.set_operation),
    **dict.fromkeys((exp.Where, exp.Having, exp.Qualify), QueryPrinter.condition),
    **dict.fromkeys((exp.Rollup, exp.Cube), QueryPrinter.grouping),
    **dict.fromkeys((exp.Window, trees.Window), QueryPrinter.window),
    exp.Select: QueryPrinter.select,
    exp.Subquery: QueryPrinter.subquery,
    exp.Table: QueryPrinter.table,
    exp.Lateral: QueryPrinter.lateral,
    exp.Values: QueryPrinter.values,
    exp.TableAlias: QueryPrinter.table_alias,
    exp.From: QueryPrinter.from_,
    exp.Join: QueryPrinter.join,
    exp.Nearest: QueryPrinter.nearest,
    exp.With: QueryPrinter.with_clause,
    exp.CTE: QueryPrinter.common_table,
    exp.Group: QueryPrinter.group,
    exp.GroupingSets: QueryPrinter.grouping_set,
    exp.Order: QueryPrinter.order,
    exp.Ordered: QueryPrinter.ordered,
    exp.Limit: QueryPrinter.limit,
    exp.Offset: QueryPrinter.offset,
    exp.WindowSpec: QueryPrinter.frame,
    trees.At: QueryPrinter.at,
    trees.Sample: QueryPrinter.text_of,
    trees.Pivot: QueryPrinter.pivot,
    trees.PivotField: QueryPrinter.pivot_field,
    trees.PivotQuery: QueryPrinter.pivot_query,
    trees.Describe: QueryPrinter.describe,
}

"""Calls: functions, aggregates, windows, lambdas, COLUMNS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.binding.bound_calls import (
    GroupingCall,
    aggregate_call,
    form,
    replaced,
    slot,
    window_call,
)
from sqlfront.binding.scalar_types import PARAMETER
from sqlfront.planner.algebra.scalars import Call, Constant, Scalar, walk
from sqlfront.planner.algebra.terms import Sort
from sqlfront.planner.algebra.to_sql import quoted, scalar_sql
from sqlfront.sql import trees
from sqlfront.sql.dialect import printed

if TYPE_CHECKING:
    from sqlfront.binding.select_block import SelectBlock

# How the names of the functions that take a lambda end: list_transform, array_filter, apply, ...
_TAKE_LAMBDAS = ("transform", "filter", "reduce", "apply")
_STRICT = frozenset(
    (
        *("abs", "lower", "upper", "length", "len", "substring", "substr", "trim", "ltrim", "rtrim", "round", "floor"),
        *("ceil", "ceiling", "sqrt", "year", "month", "day", "hour", "minute", "date_part", "date_trunc", "contains"),
        *("starts_with", "replace", "left", "right", "sign", "strlen", "reverse"),
    )
)
_CAN_FAIL = frozenset(("error", "abs", "sqrt", "ln", "log", "log10", "log2", "strptime", "factorial", "pow", "power"))


class CallBinder:
    """Binds calls; `bind` is that of the binder of expressions."""

    def __init__(self, block: SelectBlock) -> None:
        self.block = block
        self.parameters: frozenset[str] = frozenset()
        self.starred: Scalar | None = None

    def bind(self, node: exp.Expr) -> Scalar:
        raise NotImplementedError

    def call(self, node: trees.Call) -> Scalar:
        name = node.name.casefold()
        if name == "columns" and self.starred is not None:
            return self.starred
        if isinstance(node.this, exp.Identifier) and name == "array" and isinstance(node.expressions[0], exp.Query):
            return self.block.subquery("array", node, (), "=")
        if name in ("unnest", "unlist"):
            from sqlfront.binding.unfolded import unfolded

            return unfolded(node, self.block)[0]
        if name in ("grouping", "grouping_id"):
            arguments = tuple(self.bind(one) for one in node.expressions)
            slots = ", ".join(f"{{{place}}}" for place in range(len(arguments)))
            return GroupingCall(f"CAST(hash({slots}) AS BIGINT)", arguments, "BIGINT", can_fail=False)
        if self.block.functions.is_user_macro(name):
            why = "it is called with DISTINCT, an order or a FILTER of its own, or with values that fit no definition"
            hint = "write the macro's expression"
            raise self.block.notes.refusal(f"The macro {name}", node, why, hint)
        if self.block.functions.is_aggregate(name) or node.args.get("within") is not None:
            with self.block.columns_first():
                template, values = self._called(node)
                order, condition = self._order_of(node), self._condition(node)
            return aggregate_call(template, values, order, bool(node.args.get("distinct")), condition)
        if self.block.functions.unfolds(name):
            why = "one row becomes many, which the counts of a join do not show"
            raise self.block.notes.refusal("unnest", node, why, "store the elements as rows of a table and join it")
        template, values = self._called(node)
        text = template.format(*map(slot, range(len(values))), before="", behind="")
        return Call(form(text), tuple(values), "", strict=name in _STRICT, can_fail=name in _CAN_FAIL)

    def over(self, node: trees.Window) -> Scalar:
        called = node.this
        template, values = self._called(called)
        if called.args.get("nulls"):
            template = template.replace("{behind})", f"{{behind}} {called.args['nulls']} NULLS)")
        definition = self.defined(node)
        partition = [self.bind(one) for one in definition.args.get("partition_by") or ()]
        order = self.block.sorts(definition.args.get("order"), self.bind)
        frame = printed(definition.args["spec"]) if definition.args.get("spec") is not None else ""
        bound = window_call(
            template, values, partition, order, frame, bool(called.args.get("distinct")),
            self._order_of(called), self._condition(called),
        )  # fmt: skip
        self.block.definitions.append(definition)
        return replace(bound, number=len(self.block.definitions) - 1)

    def comprehension(self, node: exp.Comprehension) -> Scalar:
        """[body FOR x IN list IF condition]"""
        names = [one.name for one in node.expression.expressions]
        values: list[Scalar] = [self.bind(node.args["iterator"])]
        with self._with_parameters(names):
            body = self._inlined(self.bind(node.this), values)
            condition = node.args.get("condition")
            tail = f" IF {self._inlined(self.bind(condition), values)}" if condition is not None else ""
        return Call(form(f"[{body} FOR {', '.join(names)} IN {slot(0)}{tail}]"), tuple(values), "", can_fail=False)

    def _called(self, node: trees.Call) -> tuple[str, list[Scalar]]:
        """A call's template, with {before} and {behind} for what an aggregate has around its arguments, and these."""
        name = node.name.casefold()
        nodes = [*([node.args["method"]] if node.args.get("method") is not None else []), *node.expressions]
        values: list[Scalar] = []
        texts: list[str] = []
        for one in nodes:
            texts += self._argument(one, name, values)
        # DuckDB's functions are called the same in any case and with or without quotes.
        names = [one.name for one in node.args.get("qualifier") or []]
        head = ".".join(part if part.isidentifier() else quoted(part) for part in (*names, name))
        inside = ", ".join(texts)
        if node.args.get("within") is not None:
            text = f"{head}({inside}) WITHIN GROUP ({_BEHIND})"
        else:
            text = f"{head}({_BEFORE}{inside}{_BEHIND})"
        return form(text).replace(_BEFORE, "{before}").replace(_BEHIND, "{behind}"), values

    def _argument(self, node: exp.Expr, function: str, values: list[Scalar]) -> Iterator[str]:
        """The texts of an argument, whose values are added: one, or those of *COLUMNS(...)."""
        if isinstance(node, exp.Kwarg):
            for text in self._argument(node.expression, function, values):
                yield f"{node.name} := {text}"
        elif isinstance(node, exp.Lambda):
            yield self._lambda([one.name for one in node.expressions], node.this, values)
        elif isinstance(node, trees.Infix) and node.args["operator"] == "->" and function.endswith(_TAKE_LAMBDAS):
            left = node.this
            while isinstance(left, exp.Paren):
                left = left.this
            inner = left.expressions if isinstance(left, exp.Tuple) else [left]
            yield self._lambda([one.name for one in inner], node.expression, values)
        elif isinstance(node, trees.Prefix) and node.args["operator"] == "*":
            for value in self.block.chosen(node.this):
                values.append(value)
                yield slot(len(values) - 1)
        elif isinstance(node, exp.Star):
            yield from () if function == "count" else ["*"]
        else:
            values.append(self.bind(node))
            yield slot(len(values) - 1)

    def _lambda(self, names: Sequence[str], body: exp.Expr, values: list[Scalar]) -> str:
        with self._with_parameters(names):
            return f"LAMBDA {', '.join(names)} : {self._inlined(self.bind(body), values)}"

    @contextmanager
    def _with_parameters(self, names: Sequence[str]) -> Iterator[None]:
        before, self.parameters = self.parameters, self.parameters | {name.casefold() for name in names}
        try:
            yield
        finally:
            self.parameters = before

    def _inlined(self, body: Scalar, values: list[Scalar]) -> str:
        """The text of an expression over parameters; what reads none is one of the values."""

        def change(part: Scalar) -> Scalar | None:
            if isinstance(part, Constant):
                return part
            if any(isinstance(one, Constant) and one.type == PARAMETER for one in walk(part)):
                return None
            values.append(part)
            return Constant(slot(len(values) - 1), PARAMETER)

        return scalar_sql(replaced(body, change))

    def defined(self, node: trees.Window) -> trees.Window:
        """The definition of OVER with that of the window it names."""
        name = node.args.get("alias")
        if name is None:
            return node
        named = self.block.window(name.name)
        if named is None:
            raise self.block.notes.refusal(f"The window {name.name}", node, "it is not defined", "define it in WINDOW")
        base = self.defined(named) if named.args.get("alias") is not None else named
        merged = {key: node.args.get(key) or base.args.get(key) for key in ("partition_by", "order", "spec")}
        return trees.Window(this=node.this.copy(), **{key: _copied(value) for key, value in merged.items()})

    def _order_of(self, node: trees.Call) -> tuple[Sort, ...]:
        return self.block.sorts(node.args.get("order") or node.args.get("within"), self.bind)

    def _condition(self, node: trees.Call) -> Scalar | None:
        filtered = node.args.get("filter")
        return self.bind(filtered.this) if filtered is not None else None


_BEFORE, _BEHIND = "\x03", "\x04"


def _copied(value: exp.Expr | list[exp.Expr] | None) -> exp.Expr | list[exp.Expr] | None:
    if isinstance(value, list):
        return [one.copy() for one in value]
    return value.copy() if value is not None else None

"""Expressions: from sqlglot's nodes to scalars of the algebra, names resolved, types left open."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from sqlfront.binding.bound_calls import form, slot
from sqlfront.binding.calls import CallBinder
from sqlfront.binding.function_catalog import SESSION_WORDS
from sqlfront.binding.scalar_types import BETWEEN, PARAMETER, canonical
from sqlfront.planner.algebra.scalars import (
    NEGATED,
    Call,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Operator,
    Scalar,
    walk,
)
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.sql import trees
from sqlfront.sql.dialect import printed
from sqlfront.sql.keywords import quoted

COMPARISONS: Mapping[type[exp.Expr], Operator] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_ARITHMETIC: Mapping[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
}
_LITERALS = (exp.Literal, exp.Null, exp.Boolean, trees.EscapedText)
# The session's time zone decides their values, so they are looked at apart.
_ZONED = re.compile(r"time\s+zone|timestamptz", re.IGNORECASE)


class ExpressionBinder(CallBinder):
    """Binds the expressions of one block."""

    def bind(self, node: exp.Expr) -> Scalar:
        """The value of an expression, whose place is noted."""
        bound = self._bind(node)
        self.block.notes.note(bound, node)
        return bound

    def _bind(self, node: exp.Expr) -> Scalar:
        kind = type(node)
        if isinstance(node, exp.Column):
            return self._column(node)
        if kind in _LITERALS:
            return Constant(printed(node), "")
        compare = COMPARISONS.get(kind)
        if compare is not None:
            return self._comparison(compare, node)
        if kind in _ARITHMETIC:
            return self._arithmetic(node, _ARITHMETIC[kind])
        binder = self._BINDERS.get(kind)
        return binder(self, node) if binder is not None else self._by_text(node)

    def _column(self, node: exp.Column) -> Scalar:
        names = [part.name for part in node.parts]
        if names[0].casefold() in self.parameters:
            return Constant(printed(node), PARAMETER)
        if isinstance(node.this, exp.Star):
            if (values := self.starred) is not None:
                return values
            hint = "write the expression for each column"
            raise self.block.notes.refusal("A star here", node, "it stands for several columns", hint)
        if len(names) == 1 and names[0].casefold() in SESSION_WORDS and not node.this.args.get("quoted"):
            found = self.block.name(names, node) if self.block.sees(names) else None
            return found if found is not None else Call(names[0].lower(), (), "", can_fail=False)
        return self.block.name(names, node)

    def _paren(self, node: exp.Paren) -> Scalar:
        return self._bind(node.this)

    def _logic(self, node: exp.Connector) -> Scalar:
        """AND and OR, however long the chain."""
        kind, waiting, parts = type(node), [node], []
        while waiting:
            one = waiting.pop()
            if type(one) is kind:
                waiting += [one.expression, one.this]
            else:
                parts.append(self.bind(one))
        return Logic("AND" if kind is exp.And else "OR", tuple(parts))

    def _not(self, node: exp.Not) -> Scalar:
        return Not(self.bind(node.this))

    def _is(self, node: exp.Is) -> Scalar:
        this = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return IsNull(this)
        return Call(f"{{0}} IS {printed(node.expression)}", (this,), "BOOLEAN", can_fail=False)

    def _comparison(self, operator: Operator, node: exp.Expr) -> Scalar:
        quantified = node.expression
        if isinstance(quantified, exp.Any | exp.All):
            query = quantified.this
            if isinstance(query, exp.Subquery):
                return self._quantified(operator, node, query)
            values = self._bind(query)
            if isinstance(quantified, exp.Any) and operator == "=":
                return Call("{0} IN {1}", (self.bind(node.this), values), "BOOLEAN", can_fail=False)
            return Call(
                f"{{0}} {operator} {type(quantified).__name__.upper()} ({{1}})", (self.bind(node.this), values), ""
            )
        return Compare(operator, self.bind(node.this), self.bind(quantified))

    def _quantified(self, operator: Operator, node: exp.Expr, query: exp.Subquery) -> Scalar:
        values = self._row_values(node.this)
        if isinstance(node.expression, exp.All):
            return Not(self.block.subquery("any", query, values, NEGATED[operator]))
        return self.block.subquery("any", query, values, operator)

    def _arithmetic(self, node: exp.Expr, sign: str) -> Scalar:
        """A chain of operators of one level is as deep as it is long, so its left side is not a recursion."""
        tail = []
        while type(node) in _ARITHMETIC:
            tail.append((_ARITHMETIC[type(node)], node))
            node = node.this
        bound = self.bind(node)
        for sign, one in reversed(tail):
            bound = _folded(Call(f"{{0}} {sign} {{1}}", (bound, self.bind(one.expression)), "", strict=True))
            self.block.notes.note(bound, one)
        return bound

    def _negative(self, node: exp.Neg) -> Scalar:
        return _folded(Call("-{0}", (self.bind(node.this),), "", strict=True))

    def _between(self, node: exp.Between) -> Scalar:
        parts = tuple(self.bind(node.args[key]) for key in ("this", "low", "high"))
        return Call(BETWEEN, parts, "BOOLEAN", can_fail=False)

    def _in(self, node: exp.In) -> Scalar:
        query, field = node.args.get("query"), node.args.get("field")
        if query is not None:
            return self.block.subquery("any", query, self._row_values(node.this), "=")
        this = self.bind(node.this)
        if field is not None:
            return Call("{0} IN {1}", (this, self.bind(field)), "BOOLEAN", can_fail=False)
        items = tuple(self.bind(item) for item in node.expressions)
        if len(items) == 1:
            return Compare("=", this, items[0])
        text = ", ".join(slot(place) for place in range(1, len(items) + 1))
        return Call(form(f"{slot(0)} IN ({text})"), (this, *items), "BOOLEAN", can_fail=False)

    def _row_values(self, node: exp.Expr) -> list[Scalar]:
        """(a, b) as its values, anything else as one."""
        while isinstance(node, exp.Paren):
            node = node.this
        called = isinstance(node, trees.Call) and node.name.casefold() == "row"
        items = node.expressions if isinstance(node, exp.Tuple) or called else [node]
        return [self.bind(item) for item in items]

    def _exists(self, node: exp.Exists) -> Scalar:
        return self.block.subquery("exists", node, (), "=")

    def _subquery(self, node: exp.Subquery) -> Scalar:
        return self.block.subquery("single", node, (), "=")

    def _case(self, node: exp.Case) -> Scalar:
        this = self.bind(node.this) if node.this is not None else None
        parts: list[Scalar] = []
        for branch in node.args["ifs"]:
            condition = self.bind(branch.this)
            parts += [condition if this is None else Compare("=", this, condition), self.bind(branch.args["true"])]
        text = " ".join(f"WHEN {slot(at)} THEN {slot(at + 1)}" for at in range(0, len(parts), 2))
        default = node.args.get("default")
        if default is not None:
            text += f" ELSE {slot(len(parts))}"
            parts.append(self.bind(default))
        return Call(form(f"CASE {text} END"), tuple(parts), "", can_fail=False)

    def _cast(self, node: exp.Cast) -> Scalar:
        is_strict = not isinstance(node, exp.TryCast)
        type_ = canonical(printed(node.args["to"]), self.block.environment.con)
        text = form(f"{'CAST' if is_strict else 'TRY_CAST'}({slot(0)} AS {type_})")
        return _folded(Call(text, (self.bind(node.this),), "", strict=is_strict, can_fail=is_strict))

    def _collate(self, node: exp.Collate) -> Scalar:
        self.block.notes.collates = True
        return self._by_text(node)

    def _match(self, node: trees.Match) -> Scalar:
        bound = self._by_text(node)
        assert isinstance(bound, Call)
        return Call(bound.form, bound.arguments, "BOOLEAN", strict=True, can_fail=False)

    def _tuple(self, node: exp.Tuple) -> Scalar:
        items = tuple(self.bind(item) for item in node.expressions)
        return Call(f"row({', '.join(f'{{{place}}}' for place in range(len(items)))})", items, "", can_fail=False)

    def _interval(self, node: exp.Interval) -> Scalar:
        return _folded(self._by_text(node))

    def _field(self, node: exp.Dot) -> Scalar:
        """A field of a STRUCT or VARIANT, a member of a UNION: DuckDB tells by the type."""
        if isinstance(node.expression, exp.Identifier):
            written = form(f"({slot(0)}).{quoted(node.expression.name)}")
            return Call(written, (self.bind(node.this),), "", strict=True, can_fail=False)
        return self._by_text(node)

    def _positional(self, node: exp.PositionalColumn) -> Scalar:
        """#n: the n-th column of FROM, whose tables are counted with all of their columns."""
        values = [value for source in self.block.sight.sources for _, value in source.columns]
        return values[int(node.name) - 1]

    def _parameter(self, node: exp.Placeholder) -> Scalar:
        why = "a view's query is fixed when it is created"
        hint = "write the value, or keep the column in the view and filter when you read it"
        raise self.block.notes.refusal("A parameter", node, why, hint)

    def _by_text(self, node: exp.Expr) -> Scalar:
        """Any other node: its own words, with slots for the values inside."""
        values: list[Scalar] = []
        copy = node.copy()
        for inner in _values_inside(copy):
            values.append(self.bind(inner))
            inner.replace(exp.Placeholder(this=slot(len(values) - 1)))
        return Call(form(printed(copy)), tuple(values), "", can_fail=False)

    _BINDERS: Mapping[type[exp.Expr], Callable[..., Scalar]] = {
        exp.Paren: _paren, exp.And: _logic, exp.Or: _logic, exp.Not: _not, trees.Unlike: _not, exp.Is: _is,
        exp.Neg: _negative, exp.Between: _between, exp.In: _in, exp.Exists: _exists, exp.Subquery: _subquery,
        exp.Case: _case, exp.Cast: _cast, exp.TryCast: _cast, trees.Match: _match, exp.Collate: _collate,
        exp.Tuple: _tuple, exp.Interval: _interval, exp.Dot: _field, exp.PositionalColumn: _positional,
        exp.Placeholder: _parameter, trees.Call: CallBinder.call, trees.Window: CallBinder.over,
        exp.Comprehension: CallBinder.comprehension,
    }  # fmt: skip


def _values_inside(node: exp.Expr) -> list[exp.Expr]:
    """The nearest values inside a node; what only holds values, as an entry of a struct, is looked into."""
    found: list[exp.Expr] = []
    for child in node.iter_expressions():
        if isinstance(child, exp.PropertyEQ):
            keyed = isinstance(node, trees.MapOf)
            found += [child.this, child.expression] if keyed else [child.expression]
        elif isinstance(child, exp.Slice):
            found += _values_inside(child)
        elif not isinstance(child, exp.Identifier | exp.DataType | exp.Var | exp.DataTypeParam) and not (
            isinstance(node, exp.Collate) and child is node.expression
        ):
            found.append(child)
    return found


def _folded(called: Scalar) -> Scalar:
    """A call of constants as one constant."""
    parts = list(walk(called))[1:]
    if not parts or not all(isinstance(part, Constant) and part.type != PARAMETER for part in parts):
        return called
    text = scalar_sql(called)
    return called if _ZONED.search(text) else Constant(text, "")

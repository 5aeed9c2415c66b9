"""Rules that make DuckDB give a view's answer, over the trees of queries.

DuckDB leaves open which of several rows wins in ARG_MIN and ARG_MAX, and which ANY_VALUE and FIRST take; a view takes
the least or the greatest value. DuckDB's SKEWNESS and KURTOSIS add up powers of the values, whose digits cancel where
the mean is far from 0; a view's are exact. DuckDB computes the argument of an aggregate on all rows, even on rows that
FILTER leaves out; a view does not.
Each rule changes the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from sqlfront.planner.algebra.total_orders import FIRSTS
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one, printed

ARGUMENT_OF_EXTREMUM = ("arg_min", "argmin", "min_by", "arg_max", "argmax", "max_by")
_LISTING = ("list", "array_agg", "string_agg", "group_concat", "listagg", "mode")
_CANCELLING = ("skewness", "kurtosis", "kurtosis_pop")


def without_ties(query: exp.Expr) -> exp.Expr:
    """The query with arg_min(p, q) as arg_min(p, row(q, p)), over the rows where q is not NULL, as before, and with
    any_value(x) as any_value(x ORDER BY x). Orders inside FIRST, LAST, LIST, STRING_AGG and MODE end with their
    argument."""
    for call in _aggregates(query):
        open_order = call.name.casefold() in (*FIRSTS, *_LISTING) and not isinstance(call.parent, exp.WithinGroup)
        if open_order and (arguments := _arguments(call)):
            _end_with(call, arguments[0])
        if call.name.casefold() in ARGUMENT_OF_EXTREMUM and len(arguments := _arguments(call)) == 2:
            value, by = arguments
            present: exp.Expr = trees.Unlike(this=exp.Is(this=by.copy(), expression=exp.Null()))
            if call.args.get("filter") is not None:
                present = exp.And(this=call.args["filter"].this, expression=present)
            pair = trees.Call(this=exp.to_identifier("row"), expressions=[by.copy(), value.copy()])
            _set(call, [value, pair], present)
    return query


def with_deviations(query: exp.Expr) -> exp.Expr:
    """The query with skewness(x) as that of the list of all x less their average."""
    for call in _aggregates(query):
        if call.name.casefold() in _CANCELLING and len(_arguments(call)) == 1:
            values = call.copy()
            values.set("this", exp.to_identifier("list"))
            text = printed(values)
            deviations = f"list_transform({text}, lambda value: value - list_avg({text}))"
            call.replace(parse_one(f"SELECT list_{call.name}({deviations})").expressions[0])
    return query


def with_guards(query: exp.Expr) -> exp.Expr:
    """The query with sum(x) FILTER (WHERE c) as sum(CASE WHEN c THEN x END) FILTER (WHERE c): c guards x. WHEN
    evaluates the conditions of c one after the other, which FILTER does not."""
    for call in _aggregates(query):
        if call.args.get("filter") is not None:
            condition = _case(call.args["filter"].this, exp.true(), exp.false())
            arguments, order = _arguments(call), call.args.get("order")
            guarded = [_case(condition.copy(), one.copy()) if one.find(exp.Column) else one for one in arguments]
            for item in order.expressions if order is not None else ():
                if item.this in arguments:  # DISTINCT takes no other orders than its arguments.
                    item.set("this", guarded[arguments.index(item.this)].copy())
            _set(call, guarded, condition)
    return query


def _case(condition: exp.Expr, then: exp.Expr, default: exp.Expr | None = None) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=condition, true=then)], default=default)


def _arguments(call: trees.Call) -> list[exp.Expr]:
    """The arguments; x is the first of `x.f(...)`."""
    method = call.args.get("method")
    return [*([method] if method is not None else []), *call.expressions]


def _end_with(call: trees.Call, value: exp.Expr) -> None:
    """Order the rows of an aggregate last by a value."""
    order = call.args.get("order")
    items = [] if order is None else list(order.expressions)
    if not isinstance(value, exp.Literal) and not any(isinstance(item.this, exp.Var) for item in items):
        items.append(exp.Ordered(this=value.copy(), desc=False, nulls_first=False))
        call.set("order", exp.Order(expressions=items))


def _set(call: trees.Call, arguments: Sequence[exp.Expr], condition: exp.Expr) -> None:
    call.set("method", None)
    call.set("expressions", list(arguments))
    call.set("filter", exp.Where(this=condition))


def _aggregates(tree: exp.Expr) -> Iterator[trees.Call]:
    """The calls outside windows, those in subqueries too, each after those within it."""
    calls = [call for call in tree.find_all(trees.Call) if not isinstance(call.parent, exp.Window)]
    return reversed(calls)

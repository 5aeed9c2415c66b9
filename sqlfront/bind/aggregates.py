"""Aggregates become measures, sums over the join of products of leaf factors; those that are no sums, distinct
values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from sqlfront.bind.distinct_arguments import DistinctArguments, Extremum
from sqlfront.bind.leaves import Leaves
from sqlfront.bind.polynomials import ONE, Expander, Monomial, Part, Polynomial, is_floating
from sqlfront.bind.refusals import refusal
from sqlfront.bind.result_types import Typing, decimal_parts, is_exact_number
from sqlfront.planner.model.query import Measure, RawColumn
from sqlfront.sql.parse_tree import (
    SourceText,
    Tree,
    arguments,
    atoms_of,
    call,
    column_ref,
    conjuncts,
    expression,
    key,
    span,
)
from sqlfront.storage.errors import NotSupportedError

COUNTS = ("count", "count_star")
"""The spellings of COUNT that DuckDB knows. Others are rewritten before DuckDB reads the query: `build.rewritten`."""
SUMS = ("sum", "count_if", "countif")
AVERAGES = ("avg", "mean")
LEAST = ("min", "bool_and", "arg_min", "argmin", "min_by")
GREATEST = ("max", "bool_or", "arg_max", "argmax", "max_by")
ARGUMENT_OF_EXTREMUM = (*LEAST[2:], *GREATEST[2:])


class SummedArguments:
    """Which averages DuckDB computes as SUM / COUNT: those without FILTER, if there is no GROUP BY or the query
    also has an unfiltered SUM or COUNT of the same argument (up to integer casts and added constants, which
    its optimizer takes out of sums)."""

    def __init__(self, aggregates: Sequence[Tree], scalar: bool) -> None:
        self._scalar = scalar
        plain = [tree for tree in aggregates if not tree["filter"] and not tree["distinct"]]
        self._summed = {
            key(_bare(arguments(tree)[0]))
            for tree in plain
            if tree["function_name"] in ("sum", "count") and arguments(tree)
        }

    def averages_by_sum(self, average: Tree) -> bool:
        return not average["filter"] and (self._scalar or key(arguments(average)[0]) in self._summed)


def _bare(tree: Tree) -> Tree:
    while True:
        if tree["class"] == "CAST" and not tree["try_cast"] and "INT" in tree["type_expr"]["type_name"].upper():
            tree = tree["child"]
        elif tree.get("function_name") in ("+", "-") and len(arguments(tree)) == 2 and not atoms_of(arguments(tree)[1]):
            tree = arguments(tree)[0]
        else:
            return tree


class Aggregates:
    """Binds aggregate calls; equal calls share a raw column, equal sums a measure, equal factors a leaf column."""

    def __init__(
        self,
        con: Any,
        typing: Typing,
        leaves: Leaves,
        distinct_sets: DistinctArguments,
        source: SourceText,
        first_atom: str,
        summed: SummedArguments,
    ) -> None:
        self._typing, self._leaves, self._source, self._summed = typing, leaves, source, summed
        self._distinct_sets = distinct_sets
        self._expander = Expander(con, typing, leaves.never_null, source, first_atom)
        self._raw: dict[str, RawColumn] = {}
        self._measures: dict[Measure, int] = {}
        self._factors: dict[tuple[object, ...], Tree] = {}

    @property
    def measures(self) -> tuple[Measure, ...]:
        return tuple(self._measures)

    @property
    def raw(self) -> tuple[RawColumn, ...]:
        return tuple(self._raw.values())

    def value(self, aggregate: Tree) -> Tree:
        """The aggregate's value, as read from the raw column that holds it. Raises NotSupportedError."""
        known = self._raw.get(key(aggregate))
        if known is None:
            known = self._raw[key(aggregate)] = self._bind(aggregate)
        value, type_ = column_ref(known.name), self._typing.type_of(aggregate)
        return value if known.type == type_ else expression(f"CAST(v AS {type_})", v=value)

    def _bind(self, aggregate: Tree) -> RawColumn:
        self._check(aggregate)
        name = aggregate["function_name"]
        if name in (*LEAST, *GREATEST):
            return self._extremum(aggregate, "least" if name in LEAST else "greatest")
        kind = "count" if name in COUNTS else "avg" if name in AVERAGES else "sum"
        if aggregate["distinct"]:
            return self._distinct(aggregate, kind)
        return self._count(aggregate, kind) if kind == "count" else self._sum(aggregate, kind)

    def count_rows(self) -> int:
        """The measure that counts the rows of the join."""
        return self._measure(ONE[0], False)

    def _check(self, aggregate: Tree) -> None:
        name, source, at = aggregate["function_name"], self._source, span(aggregate)
        if name not in (*COUNTS, *AVERAGES, *SUMS, *LEAST, *GREATEST):
            why = "it is neither a sum over rows, to which a change can be added, nor the first of them in an order"
            hint = "use COUNT, SUM, AVG, MIN or MAX, or keep the rows in the view and aggregate when you read it"
            raise refusal(f"The aggregate {name}", source, at, why, hint)
        if aggregate["distinct"] and name in ("count_if", "countif"):
            hint = "leave DISTINCT out, or use bool_or"
            raise refusal(f"{name}(DISTINCT ...)", source, at, "it can only be 0 or 1", hint)
        if aggregate["order_bys"]["orders"]:
            why = "its result does not depend on an order"
            raise refusal(f"ORDER BY inside {name}", source, at, why, "leave it out")

    def _count(self, aggregate: Tree, kind: str) -> RawColumn:
        operands = arguments(aggregate)
        rows: Polynomial = ONE
        if operands:
            rows = self._expander.presence(operands[0])
        rows = self._filtered(aggregate, rows)
        terms = tuple((int(one.coefficient), self._measure(one, False)) for one in rows)
        return self._column(aggregate, "count", terms=terms or ((0, self.count_rows()),))

    def _sum(self, aggregate: Tree, kind: str) -> RawColumn:
        argument_type = self._typing.type_of(arguments(aggregate)[0])
        argument = self._number(arguments(aggregate)[0], kind, aggregate)
        floating = is_floating(argument_type)
        value, presence = self._expander.expand(argument, floating)
        value, presence = self._filtered(aggregate, value), self._filtered(aggregate, presence)
        present = self._presence(presence, aggregate)
        if floating and len(atoms_of(argument)) == 1:
            return self._floating_leaf(aggregate, kind, value[0], present, argument_type)
        scale = 0 if floating else (decimal_parts(argument_type) or (0, 0))[1]
        return self._column(
            aggregate,
            kind,
            terms=tuple(
                (self._coefficient(one, scale, floating, aggregate), self._measure(one, floating)) for one in value
            ),
            present=present,
            scale=scale,
            argument_type=argument_type,
            from_sum=kind == "avg" and self._summed.averages_by_sum(aggregate),
        )

    def _floating_leaf(
        self, aggregate: Tree, kind: str, value: Monomial, present: int, argument_type: str
    ) -> RawColumn:
        """A floating column of one table: the finite values are summed, the others counted by kind."""
        atom, name = value.values[0]
        tree = expression("CAST(v AS DOUBLE)", v=self._expander.trees[name])
        tree = self._expander.trees[name] if argument_type == "DOUBLE" else tree
        implied = (atom, key(expression("v IS NOT NULL", v=self._expander.trees[name])))
        others = tuple(condition for condition in value.guarding if condition != implied)

        def where(test: str, values: tuple[Part, ...] = ()) -> int:
            condition = self._expander.part(expression(test, v=tree), atom)
            return self._measure(Monomial(Fraction(1), values, others).where(condition), True)

        specials = (
            where("isnan(v)"),
            where("v = CAST('inf' AS DOUBLE)"),
            where("v = CAST('-inf' AS DOUBLE)"),
        )
        total = where("isfinite(v)", (self._expander.part(tree, atom),))
        return self._column(
            aggregate,
            kind,
            terms=((1, total),),
            present=present,
            specials=specials,
            argument_type=argument_type,
            from_sum=kind == "avg" and self._summed.averages_by_sum(aggregate),
        )

    def _distinct(self, aggregate: Tree, kind: str) -> RawColumn:
        """COUNT, SUM or AVG of the distinct values that a view of distinct values keeps; those of a row may have
        NULLs."""
        argument = arguments(aggregate)[0]
        if kind == "count":
            is_row = argument["class"] == "FUNCTION" and argument["function_name"] == "row"
            parts = arguments(argument) if is_row else [argument]
            kept = self._distinct_sets.keep(aggregate, parts, nulls=is_row)
            return self._column(aggregate, kind, distinct_set=kept.number)
        argument = self._number(argument, kind, aggregate)
        kept = self._distinct_sets.keep(aggregate, [argument])
        type_, own = kept.type(0), self._typing.type_of(argument)
        if type_ != own and decimal_parts(type_):
            why = f"it joins columns of type {type_}, and DuckDB adds it up as {own}"
            raise refusal("This sum", self._source, span(aggregate), why, "cast the columns to one type")
        scale = (decimal_parts(own) or (0, 0))[1]
        fields = {"variable": kept.argument[0], "scale": scale, "argument_type": own, "distinct_set": kept.number}
        return self._column(aggregate, kind, **fields)

    def _extremum(self, aggregate: Tree, kind: Extremum) -> RawColumn:
        """MIN(x) is the first of the values x; ARG_MIN(p, q) is p of the first of the values (q, p)."""
        name, operands = aggregate["function_name"], arguments(aggregate)
        expected = 1 if name in ("min", "max", "bool_and", "bool_or") else 2
        if len(operands) != expected:
            why, hint = "its result is a list, which a view cannot hold yet", f"use {name} without a number"
            raise refusal(f"{name} of the first n", self._source, span(aggregate), why, hint)
        if name.startswith("bool_") and self._typing.type_of(operands[0]) != "BOOLEAN":
            operands = [expression("CAST(v AS BOOLEAN)", v=operands[0])]
        argument = operands[::-1]
        kept = self._distinct_sets.keep(aggregate, argument, extremum=kind)
        for position, tree in enumerate(argument):
            self._check_order(kept.type(position), tree, aggregate)
        field = self._column(aggregate, kind, variable=kept.argument[-1], distinct_set=kept.number)
        return replace(field, type=kept.type(len(argument) - 1))

    def _check_order(self, kept: str, tree: Tree, aggregate: Tree) -> None:
        """Refuse types whose codes are in another order than the values."""
        own = self._typing.type_of(tree)
        joined_to_text = own.startswith("ENUM") and kept != own
        if joined_to_text or own in ("BIT", "BIGNUM", "TIME WITH TIME ZONE"):
            why = "the codes under which its values are kept are not in their order"
            what = f"{aggregate['function_name']} over {'an ENUM joined to text' if joined_to_text else own}"
            raise refusal(what, self._source, span(aggregate), why, "cast it to a number or to VARCHAR")

    def _number(self, argument: Tree, kind: str, aggregate: Tree) -> Tree:
        """An argument that DuckDB sums; BOOLEAN as INTEGER."""
        type_ = self._typing.type_of(argument)
        if type_ == "BOOLEAN" and kind == "sum":  # COUNT_IF is this sum: a HUGEINT, NULL without rows
            return expression("CAST(v AS INTEGER)", v=argument)
        if not is_exact_number(type_) and not is_floating(type_):
            what = f"{kind} of {type_}"
            raise refusal(what, self._source, span(aggregate), "only numbers are summed", "cast it to a number")
        return argument

    def _column(self, aggregate: Tree, kind: Any, **fields: Any) -> RawColumn:
        name = self._leaves.unused_name(f"{kind}_{len(self._raw) + 1}")
        return RawColumn(name, kind, self._typing.type_of(aggregate), **fields)

    def _filtered(self, aggregate: Tree, polynomial: Polynomial) -> Polynomial:
        if not aggregate["filter"] or not conjuncts(aggregate["filter"]):
            return polynomial
        indicator = self._expander.indicator(aggregate["filter"])
        return tuple(indicator.times(one) for one in polynomial)

    def _presence(self, presence: Polynomial, aggregate: Tree) -> int:
        if len(presence) == 1 and presence[0].coefficient == 1 and not presence[0].values:
            return self._measure(presence[0], False)
        if not presence:
            raise refusal("A sum of NULL", self._source, span(aggregate), "it is always NULL", "write NULL")
        what = "A sum whose CASE branches are NULL in different rows"
        why = "the number of non-NULL values must itself be a product of one-table counts"
        hint = "declare the columns NOT NULL, use coalesce(column, 0), or write FILTER (WHERE ...) instead of CASE"
        raise refusal(what, self._source, span(aggregate), why, hint)

    def _coefficient(self, monomial: Monomial, scale: int, floating: bool, aggregate: Tree) -> int:
        """The integer that brings a term's product to the decimal scale of the result; DOUBLE factors have none."""
        scales = 0
        for atom, name in () if floating else monomial.values:
            parts = decimal_parts(self._typing.type_of(self._expander.trees[name])) if atom else None
            scales += parts[1] if parts else 0
        coefficient = monomial.coefficient * Fraction(10) ** (scale - scales)
        if coefficient.denominator != 1:
            raise self._inexact(aggregate)
        return int(coefficient)

    def _inexact(self, aggregate: Tree) -> NotSupportedError:
        why = "a term has more decimal digits than the result type"
        return refusal("This sum", self._source, span(aggregate), why, "cast the columns to wider decimals")

    def _measure(self, monomial: Monomial, floating: bool) -> int:
        atoms = {atom for atom, _ in (*monomial.values, *monomial.conditions) if atom}
        scalers = [self._expander.trees[name] for atom, name in monomial.values if not atom]
        if scalers and not atoms:  # A constant's sum: any atom may carry it.
            atoms = {self._expander.first_atom}
        factors = []
        for i, atom in enumerate(sorted(atoms)):
            tree = self._shared_factor(atom, monomial, scalers if i == 0 else [], floating)
            factors.append((atom, self._leaves.factor(tree, atom)))
        return self._measures.setdefault(Measure(tuple(factors)), len(self._measures))

    def _shared_factor(self, atom: str, monomial: Monomial, scalers: list[Tree], floating: bool) -> Tree:
        """The factor of an atom; that of an equal product, in whatever order its conditions came, if there is one."""
        values = tuple(name for owner, name in monomial.values if owner == atom)
        conditions = frozenset(name for owner, name in monomial.conditions if owner == atom)
        identity = (atom, values, conditions, tuple(map(key, scalers)), floating)
        if identity not in self._factors:
            self._factors[identity] = self._factor(atom, monomial, scalers, floating)
        return self._factors[identity]

    def _factor(self, atom: str, monomial: Monomial, scalers: list[Tree], floating: bool) -> Tree:
        """CASE WHEN conditions THEN product END, without the conditions that the product's own NULL implies."""
        trees = self._expander.trees
        values = [trees[name] for owner, name in monomial.values if owner == atom]
        implied = {key(expression("v IS NOT NULL", v=value)) for value in values}
        conditions = [trees[name] for owner, name in monomial.guarding if owner == atom and name not in implied]
        product = self._product(values, floating)
        for scaler in scalers:
            product = expression_with_value(scaler, product or expression("CAST(1 AS DOUBLE)"))
        if not conditions:
            return product or expression("1")
        condition = conditions[0]
        for other in conditions[1:]:
            condition = expression("a AND b", a=condition, b=other)
        return expression("CASE WHEN c THEN v END", c=condition, v=product or expression("1"))

    def _product(self, values: list[Tree], floating: bool) -> Tree | None:
        """The values multiplied in a type that holds the product."""
        if floating:
            values = [
                v if self._typing.type_of(v) == "DOUBLE" else expression("CAST(v AS DOUBLE)", v=v) for v in values
            ]
        elif len(values) > 1:
            values = [expression(f"CAST(v AS {self._wide_type(v)})", v=v) for v in values]
        product: Tree | None = None
        for value in values:
            product = value if product is None else call("*", product, value, operator=True)
        return product

    def _wide_type(self, value: Tree) -> str:
        parts = decimal_parts(self._typing.type_of(value))
        return f"DECIMAL(38,{parts[1]})" if parts else "HUGEINT"


def expression_with_value(scaler: Tree, value: Tree) -> Tree:
    """A scaler (`v * c`, `v / c`) applied to `value`."""
    left, right = arguments(scaler)
    return call(scaler["function_name"], value if left.get("column_names") == ["v"] else left, right, operator=True)

"""The output columns that rows give by themselves, without DuckDB, and what gives each where they are ordered."""

from __future__ import annotations

from dataclasses import dataclass

from sqlfront.planner.model.query import Definition, Order, RawColumn


@dataclass(frozen=True)
class OrderColumn:
    """An output column: the value of a variable, or else the order's term of this number, which is a sum, or else a raw
    column that the order has no term of."""

    type: str
    variable: str | None = None
    term: int = -1
    raw: RawColumn | None = None


def order_columns(definition: Definition, order: Order) -> list[OrderColumn] | None:
    """The output columns of a view as rows of the order give them; None if DuckDB has to compute one."""
    raw = {column.name: column for column in definition.raw}
    sums = {text: number for text, number in order.places if order.terms[number].form in ("sum", "rounded")}
    found = []
    for expression, (_, type_) in zip(definition.projection, definition.columns, strict=True):
        plain = raw.get(expression.strip().strip('"'))
        if plain is not None and plain.type == type_ and plain.variable is not None and plain.window is None:
            found.append(OrderColumn(type_, plain.variable))
        elif expression in sums:
            found.append(OrderColumn(type_, term=sums[expression]))
        elif plain is not None and plain.type == type_:
            found.append(OrderColumn(type_, raw=plain))
        else:
            return None
    return found

"""The naive oracle: terms over lists of rows, operator by operator; DuckDB computes the expressions, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby
from statistics import fmean
from typing import Any

import duckdb

from sqlfront.planner.algebra.scalars import TRUE, Column, Scalar
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Common,
    Distinct,
    Filter,
    Join,
    Map,
    Scan,
    SetOperation,
    Sort,
    Term,
    Top,
    Unnest,
    Values,
    Window,
    Windowed,
)
from sqlfront.planner.algebra.to_sql import scalar_sql

Row = dict[Column, Any]
PLACE = Column(0, "place", "BIGINT")


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


class Interpreter:
    """Evaluates terms over tables given as rows by column name."""

    def __init__(self, tables: Mapping[tuple[str, ...], Sequence[Mapping[str, Any]]]) -> None:
        self._tables = tables
        self._con = _duckdb()

    def run(self, term: Term, outer: Row | None = None) -> list[Row]:
        """The rows of a term; `outer` is the row of the dependent join around it."""
        rows = getattr(self, f"_{type(term).__name__.lower()}")(term, outer or {})
        return [{column: row[column] for column in term.columns} for row in rows]

    def value(self, scalar: Scalar, row: Row) -> Any:
        names = [f"CAST(? AS {column.type}) AS {column}" for column in row] or ["0 AS none"]
        query = f"SELECT {scalar_sql(scalar)} FROM (SELECT {', '.join(names)})"
        return self._con.execute(query, list(row.values())).fetchall()[0][0]

    def _scan(self, term: Scan, outer: Row) -> list[Row]:
        return [{column: row[name] for name, column in term.read} for row in self._tables[term.table]]

    def _values(self, term: Values, outer: Row) -> list[Row]:
        return [{c: self.value(one, outer) for c, one in zip(term.columns, row)} for row in term.rows]

    def _filter(self, term: Filter, outer: Row) -> list[Row]:
        return [row for row in self.run(term.input, outer) if self.value(term.condition, outer | row)]

    def _map(self, term: Map, outer: Row) -> list[Row]:
        rows = self.run(term.input, outer)
        return [{one.column: self.value(one.value, outer | row) for one in term.made} for row in rows]

    def _join(self, term: Join, outer: Row) -> list[Row]:
        left = self.run(term.left, outer)
        found, met = [], set()
        for row in left:
            right = self.run(term.right, outer | row if term.dependent else outer)
            truths = [self.value(term.condition, outer | row | other) for other in right]
            partners = [(place, other) for place, (other, truth) in enumerate(zip(right, truths)) if truth]
            met |= {place for place, _ in partners}
            found += self._joined(term, row, [other for _, other in partners], None in truths)
        if term.kind == "full":
            missing = dict.fromkeys(term.left.columns)
            right = self.run(term.right, outer)
            found += [missing | other for place, other in enumerate(right) if place not in met]
        return found

    @staticmethod
    def _joined(term: Join, row: Row, partners: list[Row], unknown: bool) -> list[Row]:
        missing = dict.fromkeys(term.right.columns)
        match term.kind:
            case "semi" | "anti":
                return [row] if bool(partners) == (term.kind == "semi") else []
            case "mark":
                assert term.mark is not None
                return [row | {term.mark: True if partners else None if unknown else False}]
            case "single":
                assert len(partners) < 2
                return [row | (partners[0] if partners else missing)]
            case "inner":
                return [row | other for other in partners]
        return [row | other for other in partners or [missing]]

    def _aggregate(self, term: Aggregate, outer: Row) -> list[Row]:
        rows, found = self.run(term.input, outer), []
        for keys in [frozenset(term.groups)] if term.sets is None else term.sets:
            groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
            for row in rows:
                groups.setdefault(tuple(row[c] for c in term.groups if c in keys), []).append(row)
            for members in groups.values():
                key = {c: members[0][c] if c in keys else None for c in term.groups}
                found.append(key | {one.column: self._sum(one, members, outer) for one in term.aggregates})
        return found

    def _common(self, term: Common, outer: Row) -> list[Row]:
        return [dict(zip(term.columns, row.values())) for row in self.run(term.term)]

    def _window(self, term: Window, outer: Row) -> list[Row]:
        rows = self.run(term.input, outer)
        made = [self._windowed(one, rows, outer) for one in term.functions]
        return [
            row | {one.column: values[place] for one, values in zip(term.functions, made)}
            for place, row in enumerate(rows)
        ]

    def _windowed(self, one: Windowed, rows: list[Row], outer: Row) -> list[Any]:
        """row_number(), or a sum without order."""
        keys = [tuple(self.value(part, outer | row) for part in one.partition) for row in rows]
        values: list[Any] = [None] * len(rows)
        for key in set(keys):
            places = [place for place, other in enumerate(keys) if other == key]
            if one.order:
                numbered = [{PLACE: place} | rows[place] for place in places]
                for number, row in enumerate(self._sorted(numbered, one.order, outer)):
                    values[row[PLACE]] = number + 1
            else:
                total = self._sum(
                    Aggregated(one.column, one.form, one.arguments, filter=one.filter),
                    [rows[place] for place in places],
                    outer,
                )
                values = [total if other == key else value for other, value in zip(keys, values)]
        return values

    def _sum(self, one: Aggregated, rows: list[Row], outer: Row) -> Any:
        """count(*), or count, sum, min, max and average of one argument."""
        kept = [row for row in rows if one.filter == TRUE or self.value(one.filter, outer | row)]
        if not one.arguments:
            return len(kept)
        values = [self.value(one.arguments[0], outer | row) for row in kept]
        values = [value for value in values if value is not None]
        values = list(dict.fromkeys(values)) if one.distinct else values
        functions: dict[str, Callable[[list[Any]], Any]] = {
            "count": len, "sum": sum, "min": min, "max": max, "favg": fmean
        }  # fmt: skip
        name = one.form.partition("(")[0]
        return functions[name](values) if values or name == "count" else None

    def _distinct(self, term: Distinct, outer: Row) -> list[Row]:
        rows = self._sorted(self.run(term.input, outer), term.order, outer)
        on, first = term.columns if term.on is None else term.on, {}
        for row in rows:
            first.setdefault(tuple(row[column] for column in on), row)
        return list(first.values())

    def _setoperation(self, term: SetOperation, outer: Row) -> list[Row]:
        left, right = (
            Counter(tuple(row[c] for c in side.columns) for row in self.run(side, outer))
            for side in (term.left, term.right)
        )
        if not term.all:
            left, right = Counter(dict.fromkeys(left, 1)), Counter(dict.fromkeys(right, 1))
        if term.kind == "union":
            found = left + right if term.all else left | right
        else:
            found = left & right if term.kind == "intersect" else left - right
        return [dict(zip(term.columns, row)) for row in found.elements()]

    def _top(self, term: Top, outer: Row) -> list[Row]:
        rows = self._sorted(self.run(term.input, outer), term.order, outer)
        first = 0 if term.offset is None else self.value(term.offset, {})
        return rows[first:] if term.limit is None else rows[first : first + self.value(term.limit, {})]

    def _unnest(self, term: Unnest, outer: Row) -> list[Row]:
        found = []
        for row in self.run(term.input, outer):
            lists = [self.value(one.value, outer | row) or [] for one in term.elements]
            for place in range(max([1 if term.outer else 0, *map(len, lists)])):
                made = {
                    one.column: some[place] if place < len(some) else None for one, some in zip(term.elements, lists)
                }
                found.append(row | made | ({term.position: place + 1} if term.position is not None else {}))
        return found

    def _sorted(self, rows: list[Row], order: Sequence[Sort], outer: Row) -> list[Row]:
        for item in reversed(order):
            keyed = [(self.value(item.value, outer | row), row) for row in rows]
            known = sorted(((value, row) for value, row in keyed if value is not None), key=lambda one: one[0])
            groups = [[row for _, row in group] for _, group in groupby(known, key=lambda one: one[0])]
            present = [row for group in (reversed(groups) if item.descending else groups) for row in group]
            missing = [row for value, row in keyed if value is None]
            rows = missing + present if item.nulls_first else present + missing
        return rows

"""LIMIT in percent, or with a number that a subquery has: rows are numbered, and those up to the number stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlfront.binding.environment import Numbers
from sqlfront.planner.algebra.rewriting import projected
from sqlfront.planner.algebra.scalars import TRUE, Call, Ref, Scalar, conjunction
from sqlfront.planner.algebra.terms import Filter, Sort, Term, Window, Windowed


class NumberedRows:
    """The rows of a term, numbered in an order that leaves nothing open."""

    def __init__(self, term: Term, order: Sequence[Sort], written: int, numbers: Numbers) -> None:
        self._number, self._count = (numbers.column(name, "BIGINT") for name in ("row_number", "count"))
        numbered = Windowed(self._number, "row_number()", order=tuple(order), written=written)
        self._columns = term.columns
        self._rows = Window(term, (numbered, Windowed(self._count, "count_star()")))

    def share(self, percent: Scalar) -> Scalar:
        """How many rows a percentage is: DuckDB divides first, in DOUBLE, and cuts off what is behind the point."""
        form = "CAST(trunc(CAST({0} AS DOUBLE) / 100 * {1}) AS BIGINT)"
        return Call(form, (percent, Ref(self._count)), "BIGINT")

    def between(self, attached: Callable[[Term], Term], limit: Scalar | None, offset: Scalar | None) -> Term:
        """The rows behind `offset`, at most `limit`; NULL is no bound. `attached` joins what the bounds read."""
        number = Ref(self._number)
        tests: list[Scalar] = [TRUE]
        if offset is not None:
            tests.append(Call("coalesce({0} > {1}, true)", (number, offset), "BOOLEAN"))
        if limit is not None and offset is not None:
            tests.append(Call("coalesce({0} <= {1} + coalesce({2}, 0), true)", (number, limit, offset), "BOOLEAN"))
        elif limit is not None:
            tests.append(Call("coalesce({0} <= {1}, true)", (number, limit), "BOOLEAN"))
        return projected(Filter(attached(self._rows), conjunction(tests)), self._columns)

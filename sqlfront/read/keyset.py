"""WHERE as a place in an order: `(t, a) < (1900, 500)`, which pages of rows begin with (keyset pagination)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.read.comparing import orders_as, output_variables
from sqlfront.read.constants import MISSING
from sqlfront.sql import trees
from sqlfront.sql.query_trees import clauses, column_name, connected
from sqlfront.storage.errors import DataError

if TYPE_CHECKING:
    from sqlfront.database.entries import ViewEntry
    from sqlfront.maintenance.ranked.keyset_start import KeysetBound
    from sqlfront.planner.model.query import Term

ValueOf = Callable[[exp.Expr], Any]
_WAYS: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.LT: (False, False),
    exp.LTE: (False, True),
    exp.GT: (True, False),
    exp.GTE: (True, True),
}


@dataclass(frozen=True)
class Bound:
    """Rows beyond values of columns, the first of which that differs decides: (column, value, whether greater ones are
    beyond). `in_row`: compared by DuckDB as rows, in which NULL is the greatest value. In `fixed` columns they have
    the values."""

    values: tuple[tuple[str, Any, bool], ...]
    inclusive: bool
    in_row: bool
    fixed: Mapping[str, Any] = field(default_factory=dict)


def read_bound(where: exp.Expr, value_of: ValueOf) -> Bound | None:
    """WHERE as one bound: a comparison, of rows or of values, or `t < x OR (t = x AND a < y)` and so on, to which AND
    may connect equalities; None if it is none. `value_of` gives constants, or MISSING."""
    fixed: dict[str, Any] = {}
    rest = []
    for part in connected(where, exp.And):
        pair = _equality(part, value_of)
        if pair is None or pair[0] in fixed:
            rest.append(part)
        else:
            fixed[pair[0]] = pair[1]
    bound = _read([rest], value_of) if rest else Bound((), inclusive=True, in_row=False)
    return None if bound is None else replace(bound, fixed=fixed)


def after_bound(bound: Bound, entry: ViewEntry, number: int) -> KeysetBound | None:
    """The rows beyond a bound as those after values in one of the view's orders; None if they are not, or if equalities
    of the bound name columns by which no walk can begin."""
    from sqlfront.maintenance.ranked.keyset_start import KeysetBound, sought

    order = entry.definition.orders[number]
    if entry.definition.limit is not None or len(sought(entry.maintained.ranked[number])) < len(bound.fixed):
        return None
    places, items = dict(order.places), list(zip(order.served, order.sorting, strict=True))
    fixed = [(name, bound.fixed.get(name or ""), None) for name in order.served[: len(bound.fixed)]]
    found = []
    for place, (column, value, greater) in enumerate([*fixed, *bound.values]):
        if column is None or place >= len(items) or items[place][0] != column:
            return None
        text, direction = items[place][1]
        term = order.terms[place] if places.get(text) == place else None
        if term is None or greater is term.descending or (bound.in_row and greater and "NULLS FIRST" in direction):
            return None
        given = _in_term(entry, term, column, value, in_row=bound.in_row and greater is not None)
        if given is None:
            return None
        found.append(given)
    return KeysetBound(tuple(found), bound.inclusive, bound.in_row and bound.values[0][2], len(fixed))


def _in_term(entry: ViewEntry, term: Term, column: str, value: Any, *, in_row: bool) -> tuple[str | None, Any] | None:
    """A term's variable and a value for it, or None and what a sum's rank words hold for the value; None if `column`
    is another one or DuckDB may compare it with the value otherwise."""
    from sqlfront.maintenance.ranked.exact import sums_in

    if term.form == "sum":
        type_ = next(kind for name, kind in entry.definition.columns if name.casefold() == column)
        if sums_in(0, term, type_) is None or not orders_as(type_, value, in_row=in_row):
            return None
        scaled = Fraction(value) * term.whole - term.constant
        return (None, int(scaled)) if scaled.denominator == 1 and abs(scaled) < 2**127 else None
    variable = output_variables(entry).get(column)
    if term.form != "value" or variable is None or term.parts[0][1] != variable:
        return None
    codec = entry.maintained.codecs[variable]
    return (variable, value) if orders_as(codec.type, value, in_row=in_row) and _fits(codec, value) else None


def _read(ways: list[list[exp.Expr]], value_of: ValueOf) -> Bound | None:
    """The bound that one of several conjunctions meets."""
    if len(ways) == 1:
        [parts] = ways
        if len(parts) == 1 and isinstance(parts[0], exp.Or):
            return _read([list(connected(part, exp.And)) for part in connected(parts[0], exp.Or)], value_of)
        return _compared(parts[0], value_of) if len(parts) == 1 else None
    heads = [parts for parts in ways if len(parts) == 1]
    head = _compared(heads[0][0], value_of) if len(heads) == 1 else None
    if head is None or head.inclusive or head.in_row:
        return None
    [(column, value, _)] = head.values
    rest = []
    for parts in ways:
        if parts is not heads[0]:
            others = [part for part in parts if not _is_same(_equality(part, value_of), (column, value))]
            if len(others) != len(parts) - 1:
                return None
            rest.append(others)
    tail = _read(rest, value_of)
    return None if tail is None or tail.in_row else replace(tail, values=(*head.values, *tail.values))


def _compared(node: exp.Expr, value_of: ValueOf) -> Bound | None:
    """A comparison with constants by <, <=, > or >=."""
    if type(node) not in _WAYS:
        return None
    greater, inclusive = _WAYS[type(node)]
    left, right = node.this.unnest(), node.expression.unnest()
    pairs = _pairs(left, right, value_of)
    if pairs is None:
        pairs, greater = _pairs(right, left, value_of), not greater
    if pairs is None:
        return None
    return Bound(tuple((*pair, greater) for pair in pairs), inclusive, bool(_row(left)))


def _equality(node: exp.Expr, value_of: ValueOf) -> tuple[str, Any] | None:
    """The column and the value of `column = constant`."""
    if not isinstance(node, exp.EQ):
        return None
    left, right = node.this.unnest(), node.expression.unnest()
    pairs = _pairs(left, right, value_of) or _pairs(right, left, value_of)
    return pairs[0] if pairs is not None and len(pairs) == 1 and not _row(left) else None


def _is_same(found: tuple[str, Any] | None, wanted: tuple[str, Any]) -> bool:
    return found == wanted and found is not None and type(found[1]) is type(wanted[1])


def _pairs(columns: exp.Expr, values: exp.Expr, value_of: ValueOf) -> list[tuple[str, Any]] | None:
    """Columns beside constants, one or those of rows."""
    names = [column_name(column) for column in _row(columns) or [columns]]
    constants = _row(values) if _row(columns) else [values]
    if len(names) != len(constants) or None in names:
        return None
    found = [value_of(constant) for constant in constants]
    if any(value is MISSING for value in found):
        return None
    return [(name, value) for name, value in zip(names, found, strict=True) if name is not None]


def _row(node: exp.Expr) -> list[exp.Expr]:
    """The values of a row, (a, b) or row(a, b); none of anything else."""
    called = isinstance(node, trees.Call) and node.name.lower() == "row" and clauses(node) == {"this", "expressions"}
    return node.expressions if called or isinstance(node, exp.Tuple) else []


def _fits(codec: Any, value: Any) -> bool:
    try:
        codec.find_value(value)
    except DataError:
        return False
    return True

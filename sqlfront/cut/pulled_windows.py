"""Window functions at the top of a query as values that are computed when the view is read, from rows kept in order.

The rows below them are those of one table, or a block of their own. Each order, by PARTITION BY and ORDER BY, is kept
once, whatever the number of functions over it. All columns of the rows decide between rows that tie. A function or a
frame that no ordered rows answer makes the whole operator one of touched groups (computed_groups.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlfront.binding.bound_calls import replaced
from sqlfront.binding.notes import Notes
from sqlfront.binding.select_items import unique_names
from sqlfront.cut.block_shape import PulledRows, Shape, with_numbers
from sqlfront.cut.computed_groups import kept_rows, label_of
from sqlfront.cut.expressions.scalar_forms import call, evaluated, guarded
from sqlfront.cut.leaf_columns import Leaves, named
from sqlfront.cut.measures_of import AVERAGES, COUNTS, SUMS, Aggregates
from sqlfront.cut.windows.counted_frames import NotPulledError, frame_of
from sqlfront.planner.algebra.clock import BETWEEN
from sqlfront.planner.algebra.first_of_groups import FirstRows, compared, first_rows
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Constant,
    Ref,
    Scalar,
    cast,
    columns_of,
    conjuncts,
    function_name,
)
from sqlfront.planner.algebra.terms import (
    Aggregated,
    Common,
    Filter,
    Map,
    Scan,
    Sort,
    Term,
    Window,
    Windowed,
    walk,
)
from sqlfront.planner.algebra.total_orders import with_rows_order
from sqlfront.planner.model.query import Definition, RawColumn
from sqlfront.planner.model.window_functions import (
    OrderItem,
    RankBound,
    Side,
    WindowOrder,
    Windows,
)
from sqlfront.planner.model.window_functions import WindowValue as Value
from sqlfront.storage.codecs.moments import MOMENTS
from sqlfront.storage.codecs.order import is_orderable
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.cut.join_core import JoinCore
    from sqlfront.cut.query_blocks import Blocks

EXTREMES = ("min", "max")
SHARES = ("percent_rank", "cume_dist")
RANKS = ("row_number", "rank", "dense_rank", *SHARES)
NEIGHBOURS, ENDS = ("lag", "lead"), ("first_value", "last_value", "nth_value", "first", "last")
AGGREGATES = (*COUNTS, *SUMS, *AVERAGES, *MOMENTS)
_MOST_ROWS = 2**62
"""No partition has so many rows."""
_MOST_PARTITIONS = 15
"""An index has 32 words, and a value up to two."""
_SIDES: Mapping[str, tuple[Side, ...]] = {"=": ("<=", ">="), "<": ("<",), "<=": ("<=",), ">": (">",), ">=": (">=",)}


def add_windows(term: Filter | Window, core: JoinCore, blocks: Blocks, read: frozenset[Column] | None) -> bool:
    """Make window functions, with the filter above them, an atom of a join: a view of its own, whose changed rows are
    those that a change reaches. Only columns that are `read` are put out. False, and nothing changed, if one of the
    functions has no such form."""
    columns, kept = [column for column in term.columns if read is None or column in read], blocks.state()
    columns = columns or list(term.columns[:1])
    try:
        table = _view_of(term, columns, blocks)
    except (NotPulledError, NotSupportedError) as why:
        blocks.restore(kept)
        blocks.told[computed_by_partition(why)] = None
        return False
    blocks.add_atom(table, columns, core, blocks.alias_of(columns, first_table(term)))
    return True


def are_pulled(window: Window, blocks: Blocks) -> bool:
    """Whether all functions have such a form; nothing is changed."""
    kept = blocks.state()
    try:
        _view_of(window, window.columns, blocks)
    except (NotPulledError, NotSupportedError):
        return False
    finally:
        blocks.restore(kept)
    return True


def _view_of(term: Filter | Window, columns: Sequence[Column], blocks: Blocks) -> str:
    """Window functions as a view of its own, with these columns. NotPulledError, NotSupportedError if it cannot be."""
    names = unique_names([column.name or f"c{column.number}" for column in columns])
    shape = _pulled(Shape(term, list(map(Ref, columns))), blocks)
    return blocks.add_view(blocks.binder.bind(shape, names, names, natively=True))


def computed_by_partition(why: Exception) -> str:
    """What EXPLAIN says of window functions that are not computed from ordered rows."""
    return f"window functions are computed by partition: {str(why).partition(chr(10))[0]}"


def first_table(term: Term) -> str:
    """What the first table of a term is called."""
    return next((part.alias for part in walk(term) if isinstance(part, Scan) and part.alias), "subquery")


def pulled_shape(shape: Shape, blocks: Blocks) -> Shape | None:
    """The shape of a query whose uppermost operators are window functions, QUALIFY included; None of any other. The
    rows below are one table, or become a block. NotPulledError if one of the functions has no such form."""
    if shape.first is not None and not is_kept_by_tree(shape.first):
        shape = with_numbers(shape, shape.first)
    window = shape.core.input if isinstance(shape.core, Filter) else shape.core
    if not isinstance(window, Window) or shape.mode != "bag" or shape.first is not None:
        return None
    if isinstance(shape.core, Filter) and _shows_no_numbers(shape, shape.core):
        return None
    return _pulled(shape, blocks)


def _pulled(shape: Shape, blocks: Blocks) -> Shape:
    window = shape.core
    condition: Scalar | None = None
    if isinstance(window, Filter):
        condition, window = window.condition, window.input
    assert isinstance(window, Window)
    if blocks.notes.collates_texts and any("VARCHAR" in column.type for column in window.input.columns):
        raise NotPulledError("texts with a collation are compared by DuckDB")
    written = [_as_written(one, blocks.notes) for one in window.functions]
    for one in written:
        _check(one, blocks)
    functions = tuple(with_rows_order(one, window.input.columns) for one in written)
    rows = window.input if _is_one_table(window.input) else kept_rows(window, blocks)
    core = rows if _is_one_table(rows) else blocks.common(rows)
    blocks.completed[window] = replace(window, functions=functions)
    read = PulledRows(tuple(written), core.columns)
    return replace(shape, core=core, having=condition, windows=read)


def _shows_no_numbers(shape: Shape, filtered: Filter) -> bool:
    """Whether QUALIFY leaves first rows of each group that a view tree keeps, without their numbers."""
    first = first_rows(filtered)
    if first is None or not is_kept_by_tree(first):
        return False
    values = [*shape.items, *(one.value for order in shape.orders for one in order), *first.rest]
    return first.numbering.column not in columns_of(*values)


def is_kept_by_tree(first: FirstRows) -> bool:
    """Whether a view tree keeps first rows: those of joins, and one row of each group. Several rows of one table are a
    range of positions, whose changes are told in O(log N) each."""
    return first.is_best or not _is_one_table(first.input)


def _as_written(one: Windowed, notes: Notes) -> Windowed:
    """A function in the order that is written: that of ROW_NUMBER has been completed by the output columns."""
    if one.written < 0 or function_name(one.form) != "row_number":
        return one
    return replace(one, order=one.order[: len(notes.orders[one.written].items)])


def _limit(value: Value, number: object) -> int | float | None:
    """A number that bounds a function of positions; None if it is none that can be found in an order."""
    if not isinstance(number, int | float | Decimal) or not math.isfinite(number):
        return None
    if value.function in SHARES:
        return float(number)
    return int(number) if number == int(number) and -_MOST_ROWS < number < _MOST_ROWS else None


def _comparisons(condition: Scalar) -> Iterator[Scalar]:
    """The comparisons that BETWEEN makes; another condition as it is."""
    if isinstance(condition, Call) and condition.form == BETWEEN:
        value, least, most = condition.arguments
        yield from (Compare(">=", value, least), Compare("<=", value, most))
    else:
        yield condition


def _is_one_table(term: Term) -> bool:
    """Whether a term is rows of one table, or of a shared block, filtered and computed."""
    parts = list(walk(term))
    if isinstance(term, Common):
        return True
    return all(isinstance(part, Filter | Map | Scan) for part in parts) and bool(term.columns)


def _check(one: Windowed, blocks: Blocks) -> None:
    """NotPulledError for a function that ordered rows do not answer."""
    name = function_name(one.form)
    if name not in (*RANKS, "ntile", *NEIGHBOURS, *ENDS, *EXTREMES, *AGGREGATES) or (
        name in EXTREMES and one.arguments[1:]
    ):
        raise NotPulledError(f"{name} is no function of positions and sums in an order")
    if " NULLS" in one.form:
        raise NotPulledError(f"{name} passes over NULLs, which no order counts")
    if one.distinct:
        raise NotPulledError(f"{name}(DISTINCT ...) is no sum over the rows of a frame")
    if one.argument_order:
        raise NotPulledError(f"{name} has an order of its own inside its brackets")
    if one.filter != TRUE and name not in (*EXTREMES, *AGGREGATES):
        raise NotPulledError(f"{name} with FILTER counts other rows than its order")
    frame_of(one, blocks.con)


class PulledWindows:
    """Binds the window functions of a block: equal orders are kept once, equal functions are one raw column.

    `columns` are all variables of the rows.
    """

    def __init__(
        self, rows: PulledRows, core: JoinCore, leaves: Leaves, aggregates: Aggregates, blocks: Blocks
    ) -> None:
        self._core, self._leaves, self._aggregates, self._blocks = core, leaves, aggregates, blocks
        self._functions = {one.column: one for one in rows.functions}
        if len(core.atoms) != 1 or core.outer or core.atoms[0].copies is not None:
            raise NotPulledError("its rows are no rows of one table")
        self._held: dict[str, None] = {}
        self._all = self._over_atoms([Ref(column) for column in rows.columns])
        self._rest = tuple(dict.fromkeys(map(self._variable, self._all)))
        self._orders: dict[tuple[tuple[str, ...], tuple[OrderItem, ...]], WindowOrder] = {}
        self._raw: dict[tuple[Value, str | None, RawColumn | None], RawColumn] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._held)

    @property
    def raw(self) -> tuple[RawColumn, ...]:
        return tuple(self._raw.values())

    def over(self, definition: Definition, condition: Scalar | None) -> Definition:
        """The definition of the block with its window functions, of which QUALIFY leaves the rows that meet a
        condition: its table keeps no sums."""
        [atom] = definition.atoms
        if atom.required or definition.comparisons:
            raise NotPulledError("its rows are compared with one another")
        label = label_of(Window(Scan((), ()), tuple(self._functions.values())))
        qualified = tuple(self._qualified(condition)) if condition is not None else ()
        windows = Windows(tuple(self._orders.values()), atom.factors, definition.measures, label, qualified)
        note = f"{label}: computed when the view is read, from rows kept in order"
        notes = (*definition.notes, note)
        return replace(definition, atoms=(replace(atom, factors=()),), measures=(), windows=windows, notes=notes)

    def _qualified(self, condition: Scalar) -> Iterator[RankBound]:
        """The bounds of ranks that a condition sets, all over one order."""
        order: int | None = None
        for one in conjuncts(condition):
            for bound in itertools.chain.from_iterable(map(self._bounds, _comparisons(one))):
                if order in (None, bound.value.order):
                    order = bound.value.order
                    yield bound

    def _bounds(self, condition: Scalar) -> Iterator[RankBound]:
        """The bounds that a comparison of a function of positions with a constant sets."""
        found = compared(condition)
        if found is None or found[0] not in self._functions:
            return
        column, operator, limit = found
        one = self._functions[column]
        value = self._rank(one)
        if value is None or (number := _limit(value, evaluated(self._blocks.con, limit))) is None:
            return
        for side in _SIDES.get(operator, ()):
            yield RankBound(value, side, number)

    def _rank(self, one: Windowed) -> Value | None:
        """A function of positions; None for another one."""
        name = function_name(one.form)
        if name in RANKS:
            return Value(name, *self._order(one))
        return Value(name, *self._order(one), number=self._number(one, 0, 1)) if name == "ntile" else None

    def ties(self, sorts: Sequence[Sort]) -> list[Sort]:
        """What tells rows apart that tie in an order: these columns but for window functions, and all of the rows'."""
        shown = [one for one in sorts if not self.reads(one.value)]
        return [*shown, *(self._blocks.defaults.sort(value) for value in self._all)]

    def reads(self, value: Scalar) -> bool:
        """Whether an expression reads a window function."""
        return not columns_of(value).isdisjoint(self._functions)

    def value(self, part: Scalar) -> Scalar | None:
        """A window function as read from raw columns; None for anything else."""
        if not isinstance(part, Ref) or part.column not in self._functions:
            return None
        one = self._functions[part.column]
        return cast(self._value(one), one.column.type)

    def _value(self, one: Windowed) -> Scalar:
        if (rank := self._rank(one)) is not None:
            return self._column(rank, "DOUBLE" if rank.function in SHARES else "BIGINT")
        name, order, frame = function_name(one.form), self._order(one), frame_of(one, self._blocks.con)
        if frame.unit == "RANGE" and {frame.start, frame.end} - {None, 0} and order[1] != 1:
            raise NotPulledError("the distances of its frame are between values that are the same in a partition")
        if name in NEIGHBOURS:
            return self._neighbour(one, name, order)
        if name in ENDS:
            number = self._number(one, 1, 1) if name == "nth_value" else 0
            name = name if name.endswith("_value") else f"{name}_value"
            return self._read(one, Value(name, *order, frame, number))
        if name in EXTREMES:
            return self._read(one, Value(name, *order, frame))
        return self._aggregate(one, Value("aggregate", *order, frame))

    def _neighbour(self, one: Windowed, name: str, order: tuple[int, int]) -> Scalar:
        """LAG and LEAD; a default stands where the partition has no such row."""
        distance = self._number(one, 1) if one.arguments[1:] else 1
        back = distance if name == "lag" else -distance
        found = self._read(one, Value("lag" if back >= 0 else "lead", *order, number=abs(back)))
        if not one.arguments[2:]:
            return found
        default = replaced(self._core.over_atoms(one.arguments[2]), self._row_value)
        there = self._column(Value("has_lag" if back >= 0 else "has_lead", *order, number=abs(back)), "BIGINT")
        inside = Compare("=", there, Constant("1", "BIGINT"))
        kind = one.column.type
        return call("CASE WHEN {0} THEN {1} ELSE {2} END", kind, inside, cast(found, kind), cast(default, kind))

    def _row_value(self, part: Scalar) -> Scalar | None:
        if not self._core.atoms_of(part):
            return None
        self._variable(part)
        return self._leaves.reference(part)

    def _read(self, one: Windowed, value: Value) -> Scalar:
        """The function's argument in another row."""
        argument = one.arguments[0] if one.filter == TRUE else guarded(one.filter, one.arguments[0])
        argument = self._core.over_atoms(argument)
        if not columns_of(argument):
            raise NotPulledError(f"{value.function} of a constant")
        return self._column(value, self._leaves.variable_type(self._variable(argument)), self._variable(argument))

    def _aggregate(self, one: Windowed, value: Value) -> Scalar:
        arguments = tuple(map(self._core.over_atoms, one.arguments))
        aggregated = Aggregated(one.column, one.form, arguments, filter=self._core.over_atoms(one.filter))
        return self._framed(self._aggregates.value(aggregated), value)

    def _framed(self, scalar: Scalar, value: Value) -> Scalar:
        """An expression over aggregates' raw columns, as one over those of a frame."""
        known = {named(raw.name, raw.type): raw for raw in self._aggregates.raw}

        def change(part: Scalar) -> Scalar | None:
            raw = known.get(part) if isinstance(part, Constant) else None
            return None if raw is None else self._column(value, raw.type, over=raw)

        return replaced(scalar, change)

    def _column(self, value: Value, type_: str, variable: str | None = None, over: RawColumn | None = None) -> Scalar:
        key = value, variable, over
        if key not in self._raw:
            name = self._leaves.unused_name(f"{value.function}_over")
            self._raw[key] = RawColumn(name, "window", type_, variable, window=value, over=over)
        return named(self._raw[key].name, type_)

    def _number(self, one: Windowed, place: int, least: int | None = None) -> int:
        """An argument that is a whole number."""
        value: Any = None
        if not columns_of(one.arguments[place]):
            value = evaluated(self._blocks.con, one.arguments[place])
        if type(value) is not int or (least is not None and value < least) or abs(value) >= 2**62:
            raise NotPulledError(f"an argument of {function_name(one.form)} is no whole number that all rows share")
        return value

    def _order(self, one: Windowed) -> tuple[int, int]:
        """The number of a function's order, and how many of its items are written: those of peers."""
        partition = tuple(sorted(dict.fromkeys(self._variables(one.partition))))
        if len(partition) > _MOST_PARTITIONS:
            raise NotPulledError(f"PARTITION BY has more than {_MOST_PARTITIONS} columns, and an index fewer")
        items: dict[str, OrderItem] = {}
        for item in one.order:
            for variable in self._variables([item.value]):
                if variable not in partition:
                    items.setdefault(variable, OrderItem(variable, item.descending, item.nulls_first))
        written = len(items)
        for variable in self._rest:
            if variable not in partition:
                items.setdefault(variable, OrderItem(variable))
        for variable in (*partition, *items):
            kind = self._leaves.variable_type(variable)
            if not is_orderable(kind):
                raise NotPulledError(f"{kind} has no order that is kept")
        key = partition, tuple(items.values())
        self._orders.setdefault(key, WindowOrder(*key, self._label(one)))
        return list(self._orders).index(key), written

    def _label(self, one: Windowed) -> str:
        spelled, over = self._core.spelled, self._core.over_atoms
        by = ", ".join(spelled(over(value)) for value in one.partition)
        items = ", ".join(spelled(over(item.value)) + " DESC" * item.descending for item in one.order)
        return " ".join(filter(None, (by and f"PARTITION BY {by}", items and f"ORDER BY {items}"))) or "all rows"

    def _variables(self, values: Sequence[Scalar]) -> list[str]:
        return list(map(self._variable, self._over_atoms(values)))

    def _over_atoms(self, values: Sequence[Scalar]) -> list[Scalar]:
        """Expressions over the table's columns, without those that are constant."""
        return [value for value in map(self._core.over_atoms, values) if columns_of(value)]

    def _variable(self, value: Scalar) -> str:
        found = self._leaves.variable(value)
        self._held[found] = None
        return found

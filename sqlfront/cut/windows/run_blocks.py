"""Windows below other operators become blocks of runs: islands, and functions of a few rows around each row.

The rows below the windows are a block of their own, which is kept in order. The windows, and the aggregate of islands
above them, are printed as SQL over runs of these rows. Ties are decided by all columns of the rows, for all windows
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from sqlfront.binding.notes import Notes
from sqlfront.planner.algebra.column_use import Columns, columns_read
from sqlfront.planner.algebra.islands import Islands, islands_of
from sqlfront.planner.algebra.neighbours import Neighbours, Place, neighbours_of
from sqlfront.planner.algebra.rewriting import NewColumns, extended, passed, with_changed
from sqlfront.planner.algebra.scalars import Call, Column, Constant, Ref, Scalar, cast, function_name
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Filter,
    Made,
    Map,
    Scan,
    Sort,
    Term,
    Top,
    Window,
    Windowed,
    inputs_of,
)
from sqlfront.planner.algebra.to_sql import to_sql
from sqlfront.planner.algebra.total_orders import with_total_orders
from sqlfront.planner.model.island_rows import RUN, RUN_TYPES, IslandRows
from sqlfront.planner.model.query import BlockRows
from sqlfront.planner.model.window_functions import OrderItem
from sqlfront.planner.theory.wording import enumerate_words
from sqlfront.storage.codecs.order import is_orderable

_ROWS = "__rows"


class Blocks(Protocol):
    """What runs need of the blocks of a query."""

    notes: Notes
    new: NewColumns
    definitions: dict[str, BlockRows]
    shared: dict[str, str]
    completed: dict[Term, Term]
    told: dict[str, None]

    def table_of(self, term: Term) -> str: ...

    def add_view(self, definition: BlockRows) -> str: ...


def with_runs(term: Term, blocks: Blocks, are_pulled: Callable[[Window], bool]) -> Term:
    """A term whose aggregates of islands, and whose windows over a few rows around each row, are blocks. Windows that
    `are_pulled` are left: ordered rows tell their values and changes. So is one at the top."""
    shared: dict[str, Term] = {}

    def visit(part: Term, needed: Columns, is_top: bool = False) -> Term:
        if isinstance(part, Common):
            if part.name not in shared:
                shared[part.name] = visit(part.term, frozenset(part.term.columns))
            return with_changed(part, (shared[part.name],))
        islands = islands_of(part) if isinstance(part, Aggregate) else None
        if islands is not None and _is_ordered(islands.rows, islands.place, blocks):
            islands = islands.on(visit(islands.rows, frozenset(islands.rows.columns)))
            return _islands_block(islands, needed, blocks)
        read, below = columns_read(part, needed), is_top and isinstance(part, Map | Top | Filter)
        part = with_changed(part, [visit(*one, below) for one in zip(inputs_of(part), read, strict=True)])
        neighbours = neighbours_of(part) if isinstance(part, Window) and not is_top else None
        if neighbours is None or are_pulled(neighbours.window):
            return part
        if _is_ordered(neighbours.rows, neighbours.place, blocks):
            return _neighbours_block(neighbours, needed, blocks)
        return part

    return visit(term, frozenset(term.columns), is_top=True)


def _is_ordered(rows: Term, place: Place, blocks: Blocks) -> bool:
    """Whether rows can be kept in order; EXPLAIN says why not."""
    types = [one.type for one in (*(item.value for item in place.order), *rows.columns)]
    loose = next((one for one in types if "INTERVAL" in one or not is_orderable(one)), None)
    if blocks.notes.collates_texts and any("VARCHAR" in one for one in types):
        loose = "VARCHAR with a collation"
    if loose is not None:
        told = f"window functions are computed by partition: values of {loose} are in no order in which rows are kept"
        blocks.told[told] = None
    return loose is None


def _islands_block(islands: Islands, needed: Columns, blocks: Blocks) -> Term:
    """Islands as a block, with the columns that are needed, at least. The number of an island is a BIGINT there."""
    aggregate, number, runs = islands.aggregate, islands.number, _Runs(islands.rows, islands.place, blocks)
    shown = [one for one in aggregate.columns if one != number and (one in needed or one in islands.keys)]
    made, counted = list(passed(shown)), blocks.new.column(number.name, "BIGINT")
    if number in needed:
        made.append(Made(counted, cast(Ref(number), "BIGINT")))
    elif not made:  # A relation has a column.
        made.append(Made(blocks.new.column("one", "INTEGER"), Constant("1", "INTEGER")))
    blocks.completed[aggregate] = _completed_islands(islands, runs)
    planned = replace(
        runs.planned(_computed_islands(islands, runs), made, islands.keys, (islands.before, islands.after)),
        compared=len(runs.order()) if islands.by_rows else len({item.value for item in islands.place.order}),
        by_rows=islands.by_rows,
        number=f"c{len(shown)}" if number in needed else None,
        label=f"islands{runs.spelled()}",
    )
    found = runs.block(planned, aggregate, made)
    return extended(found, [Made(number, cast(Ref(counted), number.type))]) if number in needed else found


def _completed_islands(islands: Islands, runs: _Runs) -> Aggregate:
    """The islands with orders that leave nothing open: all windows take the copies of a row in one order, too."""
    place = Windowed(runs.place, "row_number()", (), islands.place.partition, islands.place.order)

    def change(one: Windowed) -> Windowed:
        follows_rows = one != islands.numbering or islands.by_rows
        return replace(one, order=(Sort(Ref(runs.place)),)) if follows_rows else one

    over = islands.over(Window(islands.rows, (runs.completed(place),)), change)
    return with_total_orders(replace(islands.aggregate, input=over), islands.rows.columns)


def _computed_islands(islands: Islands, runs: _Runs) -> Aggregate:
    """The islands of runs, each with the place of its first row. A NULL and a 0 may both number the first island."""

    def change(one: Windowed) -> Windowed:
        return runs.within(one, runs.peer if one == islands.numbering else runs.place)

    number = islands.numbering.column
    within = (Ref(runs.run), Call("coalesce({0}, 0)", (Ref(number),), number.type))
    begun = Windowed(runs.first, "min({0})", (Ref(runs.place),), within)
    numbered = Window(islands.over(runs.scan, change, runs.without_others), (begun,))
    groups = (*islands.aggregate.groups, runs.first)
    return with_total_orders(replace(islands.aggregate, input=numbered, groups=groups), islands.rows.columns)


def _neighbours_block(neighbours: Neighbours, needed: Columns, blocks: Blocks) -> Term:
    """Windows over a few rows around each row as a block, with the columns that are needed, at least."""
    window, runs = neighbours.window, _Runs(neighbours.rows, neighbours.place, blocks)
    values = {column: value for value, column in runs.columns.items()}
    keys = [runs.columns[value] for value in neighbours.place.partition]
    shown = [one for one in window.columns if one in needed or one in keys]
    more = [one for one in keys if one not in shown]
    made = [*passed(shown), *(Made(one, values[one]) for one in more)]
    blocks.completed[window] = Window(window.input, tuple(map(runs.completed, window.functions)))
    functions = tuple(runs.within(one, runs.place) for one in window.functions)
    rows = runs.without_others(Window(runs.scan, functions))
    computed = Map(rows, (*passed((*shown, *more)), Made(runs.first, Ref(runs.place))))
    reach = (neighbours.before, neighbours.after)
    names = dict.fromkeys(f"{function_name(one.form)}() OVER" for one in window.functions)
    label = f"{', '.join(names)}{runs.spelled()}"
    planned = replace(
        runs.planned(computed, passed((*shown, *more)), keys, reach), label=label, by_rows=True, single=True
    )
    return runs.block(planned, window, made)


class _Runs:
    """Rows in order as a block, of which runs are computed: `scan` are the rows of runs. A row has its `run` and its
    `place` there, its number among `peer` rows, and whether it is `inside`. `columns` are those of the values by which
    the rows are kept, `first` is that of the place of the first row of what is computed."""

    def __init__(self, rows: Term, place: Place, blocks: Blocks) -> None:
        self._blocks, self._place, self._written = blocks, place, rows.columns
        values = dict.fromkeys((*place.partition, *(item.value for item in place.order)))
        self.columns = {value: self._column(value) for value in values}
        made = [Made(column, value) for value, column in self.columns.items() if value != Ref(column)]
        rows = extended(rows, made) if made else rows
        self._table = blocks.table_of(rows)
        named = zip(rows.columns, blocks.definitions[self._table].columns, strict=True)
        self._names = {column: name for column, (name, _) in named}
        more = [blocks.new.column(name, kind) for name, kind in zip(RUN, RUN_TYPES, strict=True)]
        self.run, self.place, self.peer, self._inside = more
        self.first = blocks.new.column("first", "BIGINT")
        self.scan = Scan((_ROWS,), tuple(zip((*self._names.values(), *RUN), (*self._names, *more), strict=True)))

    def _column(self, value: Scalar) -> Column:
        return value.column if isinstance(value, Ref) else self._blocks.new.column("part", value.type)

    def planned(
        self, computed: Term, made: Sequence[Made], keys: Sequence[Column], reach: tuple[int, int]
    ) -> IslandRows:
        """The rows `made` of what is `computed` of runs, with the values of the partition in the columns `keys`."""
        called = _called(made)
        shown = Map(computed, (*made, *passed((self.first,))))
        query = to_sql(shown, [*called.items(), (self.first, "first")]).replace(f'"{_ROWS}"', "{rows}")
        order = self.order()
        return IslandRows(
            self._table,
            tuple(self._names[self.columns[value]] for value in self._place.partition),
            order,
            len(order),
            *reach,
            query,
            tuple((name, column.type) for column, name in called.items()),
            tuple(called[key] for key in keys),
        )

    def block(self, planned: IslandRows, written: Term, made: Sequence[Made]) -> Common:
        """The block of planned rows: those `made` of the term that is `written`."""
        name = self._blocks.add_view(planned)
        self._blocks.shared[name] = name
        return Common(name, Map(written, tuple(made)), tuple(one.column for one in made))

    def order(self) -> tuple[OrderItem, ...]:
        """The items of the order, and then all columns that may differ within a partition."""
        found: dict[Column, OrderItem] = {}
        for item in self._place.order:
            column = self.columns[item.value]
            found.setdefault(column, OrderItem(self._names[column], item.descending, item.nulls_first))
        keys = {self.columns[value] for value in self._place.partition}
        rest = {one: OrderItem(name) for one, name in self._names.items() if one not in found and one not in keys}
        return (*found.values(), *rest.values())

    def spelled(self) -> str:
        """The partition and the order, for people."""
        written = self._blocks.notes.written
        partition = [written(value) or self.columns[value].name for value in self._place.partition]
        order = [written(item.value) or self.columns[item.value].name for item in self._place.order]
        return f"{f' of each {enumerate_words(partition)}' if partition else ''} in order {', '.join(order)}"

    def completed(self, one: Windowed) -> Windowed:
        """A window function whose order leaves nothing open."""
        known = [item.value for item in one.order]
        ties = (Sort(Ref(column)) for column in self._written if Ref(column) not in known)
        return replace(one, order=(*one.order, *ties))

    def within(self, one: Windowed, by: Column) -> Windowed:
        """A window function over the rows of a run, in the order of a number."""
        return replace(one, partition=(Ref(self.run),), order=(Sort(Ref(by)),))

    def without_others(self, rows: Term) -> Term:
        """The rows of runs without those around the runs."""
        return Filter(rows, Ref(self._inside))


def _called(made: Sequence[Made]) -> dict[Column, str]:
    """The names of computed columns."""
    return {one.column: f"c{place}" for place, one in enumerate(made)}

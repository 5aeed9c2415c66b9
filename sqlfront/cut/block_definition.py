"""One block as a Definition: its atoms, measures, projection and orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.binding.bound_calls import replaced
from sqlfront.binding.select_items import printed_by_duckdb, unique_names
from sqlfront.cut.block_shape import Shape, group_columns, groups_below, has_distinct_rows, over_groups
from sqlfront.cut.composed_items import Composing, Obstacle, natural_columns
from sqlfront.cut.computed_forms import computed_forms, has_windows
from sqlfront.cut.expressions.value_types import INTEGER_BITS
from sqlfront.cut.join_core import OUTER_FORMS, JoinCore, OuterChildError
from sqlfront.cut.kept_values import KeptValues, null_together, without_null_values
from sqlfront.cut.leaf_columns import Leaves
from sqlfront.cut.measures_of import Aggregates, SummedArguments
from sqlfront.cut.pulled_windows import PulledWindows
from sqlfront.cut.range_forms import over_ranges
from sqlfront.cut.session_values import depends_on_session
from sqlfront.cut.split_conditions import split_conditions
from sqlfront.cut.term_orders import OrderContext, Ordering, bind_orders, completed, direction
from sqlfront.planner.algebra.first_of_groups import FirstRows
from sqlfront.planner.algebra.scalars import Column, Constant, Ref, Scalar, columns_of
from sqlfront.planner.algebra.terms import ONE_ROW, Aggregated, Sort
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.planner.classify import outer_obstacle
from sqlfront.planner.model.query import Definition, Limit, RawColumn
from sqlfront.planner.theory.group_changes import spreading_atom
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks


class BlockBinder:
    """Binds the blocks of one query."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._notes, self._con = blocks, blocks.notes, blocks.con

    def bind(
        self, shape: Shape, names: Sequence[str], columns: Sequence[str], in_order: bool = False, natively: bool = False
    ) -> Definition:
        """The definition of a block, whose outer joins have the first form that all can have; `in_order`: with an
        order by all its columns, `natively`: as a sum over its join."""
        blocks = self._blocks
        kept, before = blocks.state(), (blocks.outer_form, blocks.no_children, blocks.distinct)
        try:
            for form in OUTER_FORMS[:-1]:
                blocks.outer_form = form
                try:
                    return self._bind(shape, names, columns, in_order, natively)
                except OuterChildError as error:
                    blocks.restore(kept)
                    blocks.no_children = str(error)
            blocks.outer_form = OUTER_FORMS[-1]
            return self._bind(shape, names, columns, in_order, natively)
        finally:
            blocks.outer_form, blocks.no_children, blocks.distinct = before

    def _bind(
        self, shape: Shape, names: Sequence[str], columns: Sequence[str], in_order: bool, natively: bool
    ) -> Definition:
        """The definition of a block whose outer joins have one form.

        What is no sum over the join is computed row by row first, in a block below; else DuckDB computes the groups. A
        refusal of what is below the block is final: the blocks there have tried these forms."""
        blocks, kept, core = self._blocks, self._blocks.state(), self._joined(shape)
        bind = lambda form: self._bound(form, self._joined(form), names, columns, in_order)  # noqa: E731
        try:
            return over_ranges(self._bound(shape, core, names, columns, in_order), shape, blocks, bind)
        except NotSupportedError as refused:
            error = refused
        for other in () if natively else computed_forms(shape, blocks):
            blocks.restore(kept)
            try:
                return bind(other())
            except NotSupportedError as refused:
                error = refused
        raise error

    def _joined(self, shape: Shape) -> JoinCore:
        """The join that a block is over; row numbers are columns of it if they are more than places of first rows."""
        kept, core = self._blocks.state(), JoinCore()
        self._blocks.distinct = shape.read if has_distinct_rows(shape, self._blocks.facts) else None
        try:
            self._blocks.collect(shape.core, core, shape.read)
        except NotSupportedError:
            if self._blocks.computes_windows or not has_windows(shape):
                raise
            self._blocks.restore(kept)
            self._blocks.computes_windows, core = True, JoinCore()
            self._blocks.collect(shape.core, core, shape.read)
        return core

    def _bound(
        self, shape: Shape, core: JoinCore, names: Sequence[str], columns: Sequence[str], in_order: bool
    ) -> Definition:
        shape = replace(shape, mode="set") if core.has_copies else shape
        if not core.atoms:
            self._blocks.add_constant(ONE_ROW, core)
        if not core.outer:
            return self._bound_inside(shape, core, names, columns, in_order)
        try:
            return self._bound_inside(shape, core, names, columns, in_order)
        except NotSupportedError as error:
            raise OuterChildError("its block is no sum over a join with such rows") from error

    def _bound_inside(
        self, shape: Shape, core: JoinCore, names: Sequence[str], columns: Sequence[str], in_order: bool
    ) -> Definition:
        ranked = self._over_groups(shape, core)
        if ranked is None:
            return _Block(self._blocks, shape, core).definition(names, columns, in_order)
        definition = _Block(self._blocks, over_groups(shape), ranked).definition(names, columns, in_order)
        note = "a changed group leaves its place in the order and enters another, O(log N)"
        return replace(definition, notes=(note,))

    def _over_groups(self, shape: Shape, core: JoinCore) -> JoinCore | None:
        """A view of the groups as the join of a block of first rows; None if there are none whose order can be kept, or
        a changed row may move more of them than its update visits."""
        groups = groups_below(shape)
        if groups is None:
            return None
        blocks, known = self._blocks, dict(self._blocks.definitions)
        found = group_columns(groups)
        names = unique_names([column.name or f"c{column.number}" for column in found])
        definition = _Block(blocks, groups, core).definition(names, names, False)
        if spreading_atom(definition) is not None:
            blocks.definitions = known  # The block is bound again, with what its aggregates keep.
            return None
        ranked = JoinCore()
        blocks.add_atom(blocks.add_view(definition), found, ranked, "groups")
        return ranked

    def best(
        self, inner: JoinCore, groups: Sequence[Scalar], values: Sequence[Scalar], labels: Sequence[str], *,
        descending: bool,
    ) -> tuple[JoinCore, list[Scalar]]:  # fmt: skip
        """The first row of each group of a join, in the order of values none of which is NULL, as a join of that view
        alone; its columns are the groups' and the values. A group without such a row has no row, or a NULL."""
        blocks = self._blocks

        def first_by(compared: Sequence[Scalar]) -> Definition:
            shape = Shape(ONE_ROW, [*groups, *compared])
            return _Block(blocks, shape, inner).best(groups, compared, labels, descending)

        definition, obstacle = without_null_values(first_by(values), labels)
        if obstacle is not None:
            definition = first_by(null_together(values))
            [order] = definition.orders
            definition = replace(definition, orders=(replace(order, obstacle=obstacle),))
        return self._over(definition, "best")

    def counts(self, inner: JoinCore, values: Sequence[Scalar]) -> tuple[JoinCore, list[Scalar]]:
        """How often values come about together in a join, as a join of that view alone; its columns are the values and
        the count."""
        blocks, core = self._blocks, inner.narrowed()
        made = [blocks.new.column(f"v{number}", value.type) for number, value in enumerate(values)]
        core.values |= dict(zip(made, values, strict=True))
        count = Aggregated(blocks.new.column("count", "BIGINT"), "count({before}{behind})")
        items: list[Scalar] = [*map(Ref, made), Ref(count.column)]
        shape = Shape(ONE_ROW, items, mode="group", groups=tuple(made), aggregates=(count,))
        names = [f"c{number}" for number in range(len(items))]
        return self._over(_Block(blocks, shape, core).definition(names, names, False), "counts")

    def _over(self, definition: Definition, alias: str) -> tuple[JoinCore, list[Scalar]]:
        """A join of a view of its own alone, and its columns."""
        core = JoinCore()
        columns = [self._blocks.new.column(name, type_) for name, type_ in definition.columns]
        self._blocks.add_atom(self._blocks.add_view(definition), columns, core, alias)
        return core, [Ref(column) for column in columns]


class _Block:
    """One block in the making."""

    def __init__(self, blocks: Blocks, shape: Shape, core: JoinCore) -> None:
        self._blocks, self._shape, self._core = blocks, shape, core
        self._notes, self._con = blocks.notes, blocks.con
        self._leaves = Leaves(core, split_conditions(core, blocks.types, self._notes), blocks.types, self._notes)
        self._composing = Composing(core, self._is_natural)
        self._groups = {column: core.over_atoms(Ref(column)) for column in shape.groups}
        self._aggregated = {one.column: self._over_atoms(one) for one in shape.aggregates}
        values = list(self._groups.values())
        self._kept = KeptValues(core, values, self._leaves, blocks.types, self._notes, blocks.binder)
        summed = SummedArguments(list(self._aggregated.values()), shape.scalar)
        self._aggregates = Aggregates(self._con, core, self._leaves, self._kept, self._notes, summed)
        self._free: list[str] = []
        self._windows: PulledWindows | None = None
        if shape.windows is not None:
            self._windows = PulledWindows(shape.windows, core, self._leaves, self._aggregates, blocks)

    def definition(self, names: Sequence[str], columns: Sequence[str], in_order: bool) -> Definition:
        """The definition with columns of these names; those of orders are told by `columns`."""
        shape, core = self._shape, self._core
        if shape.mode == "group":
            self._bind_groups()
        items = [self._whole(value) for value in shape.items]
        shown = len(names)
        sorts = [[replace(one, value=self._whole(one.value)) for one in order] for order in shape.orders]
        partition = [self._whole(value) for value in shape.first.numbering.partition] if shape.first else []
        orderings = self._orderings(items[:shown], sorts, in_order)
        hidden = [item.value for ordering in orderings for item in ordering.items]
        items = _with_hidden(items, [*hidden, *partition])
        projection = [self._projected(value, place < shown) for place, value in enumerate(items)]
        having = self._projected(self._whole(shape.having), False) if shape.having is not None else None
        if shape.mode == "group" and not self._aggregates.measures:
            self._aggregates.count_rows()
        texts = [scalar_sql(value) for value in projection]
        places = _first_of(items, texts)
        seen = _first_of(items, columns)
        context = OrderContext(self._con, core, self._leaves, self._composing)
        orders = bind_orders(orderings, shape.mode, places, seen, context, self._spelled)
        limit = self._limit(partition, places, orderings)
        windows = self._windows
        free = tuple(dict.fromkeys([*self._free, *(windows.columns if windows is not None else ())]))
        types = [value.type for value in shape.items]
        found = Definition(
            atoms=self._leaves.build(),
            free=free,
            mode=shape.mode,
            measures=self._aggregates.measures,
            raw=(*self._variables(free), *(self._aggregates.raw if windows is None else windows.raw)),
            projection=tuple(texts[:shown]),
            having=scalar_sql(having) if having is not None else None,
            columns=tuple(zip(names, types, strict=False)),
            scalar=shape.scalar,
            labels=self._leaves.labels(),
            distinct_sets=self._kept.build(),
            orders=orders,
            limit=limit,
            boolean=shape.boolean,
            is_frozen=self._is_frozen(projection, having, limit is not None),
        )
        if windows is not None:
            return windows.over(found, shape.having)
        found = self._leaves.compared(found)
        if core.outer and (obstacle := outer_obstacle(found)) is not None:
            raise OuterChildError(obstacle)
        return found

    def best(
        self, groups: Sequence[Scalar], values: Sequence[Scalar], labels: Sequence[str], descending: bool
    ) -> Definition:
        """The first row of each group in the order of values, NULL last, and then by what settles it."""
        core = self._core
        if core.outer:
            raise OuterChildError("only the first rows of groups are kept")
        try:
            composed = self._composing.read(values[-1])
        except Obstacle:
            composed = None
        settled = composed.tie_breakers if composed is not None else ()
        shown = [*groups, *values]
        unique = {one: Sort(one, descending, False) for one in (*values, *settled, *shown)}
        label = ", ".join(text + descending * " DESC" for text in labels)
        ordering = Ordering(tuple(unique.values()), label)
        items = _with_hidden(shown, list(unique))
        projection = [self._projected(value, False) for value in items]
        texts = [scalar_sql(value) for value in projection]
        places = _first_of(items, texts)
        context = OrderContext(self._con, core, self._leaves, self._composing)
        names = [*(f"g{number}" for number in range(len(groups))), *(f"best{number}" for number in range(len(values)))]
        seen = _first_of(shown, names)
        orders = bind_orders([ordering], "bag", places, seen, context, self._spelled)
        apart = (
            None
            if any(len(core.atoms_of(value)) != 1 for value in groups)
            else tuple(dict.fromkeys(map(self._leaves.variable, groups)))
        )
        by = tuple(places[value] for value in groups)
        limit = Limit(1, clause="first of each group" if groups else None, by=by, variables=apart)
        free = tuple(dict.fromkeys(self._free))
        return self._leaves.compared(Definition(
            atoms=self._leaves.build(), free=free, mode="bag", raw=self._variables(free),
            projection=tuple(texts[: len(shown)]), columns=tuple(zip(names, (value.type for value in shown))),
            labels=self._leaves.labels(), orders=orders, limit=limit,
        ))  # fmt: skip

    # Values -----------------------------------------------------------------------------------------

    def _whole(self, value: Scalar) -> Scalar:
        """An item over the columns of atoms; of groups, over theirs and the aggregates'."""
        return value if self._shape.mode == "group" else self._core.over_atoms(value)

    def _over_atoms(self, one: Aggregated) -> Aggregated:
        arguments = tuple(map(self._core.over_atoms, one.arguments))
        order = tuple(replace(item, value=self._core.over_atoms(item.value)) for item in one.order)
        return replace(one, arguments=arguments, order=order, filter=self._core.over_atoms(one.filter))

    def _bind_groups(self) -> None:
        for column, value in self._groups.items():
            atoms = self._core.atoms_of(value)
            if len(atoms) > 1:
                why = "a group column must be computed from one table's row"
                hint = "group by the columns it uses and compute it when you read the view"
                place = self._notes.place_of(value) or self._notes.place(column)
                raise self._notes.refusal("GROUP BY an expression over several tables", place, why, hint)
            if atoms:
                self._free.append(self._leaves.variable(value))

    @staticmethod
    def _is_frozen(projection: Sequence[Scalar], having: Scalar | None, limited: bool) -> bool:
        """Whether a reader's settings could change what is computed from raw columns, or in which order."""
        values = [*projection, *([having] if having is not None else [])]
        return any(depends_on_session(value, ordered=limited) for value in values)

    def _projected(self, value: Scalar, shown: bool) -> Scalar:
        """An item over raw columns."""
        if self._shape.mode == "group":
            return self._lowered(value)
        if self._shape.mode == "set" and shown and len(self._core.atoms_of(value)) > 1:
            why = "which combinations of rows give equal values cannot be followed row by row"
            hint = "SELECT DISTINCT the columns it uses, and compute the expression when you read the view"
            what, place = "DISTINCT over an expression of several tables", self._notes.place_of(value)
            raise self._notes.refusal(what, place, why, hint)
        return replaced(value, self._row_value)

    def _row_value(self, part: Scalar) -> Scalar | None:
        """An expression of one table as its variable; None to look inside."""
        if self._windows is not None and self._windows.reads(part):
            return self._windows.value(part)
        atoms = self._core.atoms_of(part)
        if len(atoms) != 1:
            return None
        outer = self._core.outer.get(atoms[0])
        if outer is not None and self._shape.mode == "bag" and not outer.missing.is_null(part):
            return None
        self._free.append(self._leaves.variable(part))
        return self._leaves.reference(part)

    def _lowered(self, value: Scalar) -> Scalar:
        """An expression over groups and aggregates, over the raw columns that hold them."""

        def change(part: Scalar) -> Scalar | None:
            if not isinstance(part, Ref):
                return None
            if part.column in self._aggregated:
                return self._aggregates.value(self._aggregated[part.column])
            group = self._groups[part.column]
            return self._leaves.reference(group) if self._core.atoms_of(group) else group

        return replaced(value, change)

    def _variables(self, free: Sequence[str]) -> tuple[RawColumn, ...]:
        return tuple(RawColumn(name, "variable", self._leaves.variable_type(name), variable=name) for name in free)

    # Orders -----------------------------------------------------------------------------------------

    def _orderings(self, shown: Sequence[Scalar], sorts: list[list[Sort]], in_order: bool) -> list[Ordering]:
        """The orders that the block is asked for, completed."""
        shape, notes = self._shape, self._notes
        if in_order and not sorts:
            by_columns = {value: Sort(value) for value in shown if self._core.atoms_of(value)}
            return [] if shape.mode == "group" else [Ordering(tuple(by_columns.values()), "all columns")]
        found = []
        for number, order in enumerate(sorts):
            origin = shape.labels[number] if number < len(shape.labels) else -1
            written = notes.orders[origin] if origin >= 0 else None
            ranks = shape.first is not None and shape.first.name != "row_number"
            items, rest = (order, []) if written is None else (order[: len(written.items)], order[len(written.items) :])
            if self._windows is not None and shape.top is None:
                rest = self._windows.ties([*rest, *map(self._blocks.defaults.sort, shown)])
            ties = rest or [self._blocks.defaults.sort(value) for value in shown]
            ending, settled = completed(items, [] if ranks else ties, self._core, shape.mode, self._composing)
            if written is not None and settled:
                self._blocks.settled[origin] = settled
            label = self._core.spelled_order(items) if written is None else written.label
            label = label if number < len(shape.labels) else self._blocks.more_labels.pop(0)
            found.append(Ordering(tuple(item for item in ending if self._varies(item.value)), label))
        return found

    def _varies(self, value: Scalar) -> bool:
        """Whether a value is no constant, as a group by one is."""
        constant = {column for column, group in self._groups.items() if not self._core.atoms_of(group)}
        return not columns_of(value) <= constant

    def _limit(
        self, partition: Sequence[Scalar], places: dict[Scalar, str], orders: Sequence[Ordering]
    ) -> Limit | None:
        shape = self._shape
        if shape.first is not None:
            return self._first_of_groups(shape.first, partition, places, orders[0])
        if shape.top is None:
            return None
        top = shape.top
        written = self._notes.orders[top.written] if top.written >= 0 else None
        place = self._notes.place(("top", top.written))
        if written is not None and written.moved is not None:
            self._blocks.completed[top] = top  # The text is a plain view's: the query is printed from its term.
        rows, offset = (self._number(value, place) for value in (top.limit, top.offset))
        return Limit(rows, offset or 0)

    def _first_of_groups(
        self, first: FirstRows, partition: Sequence[Scalar], places: dict[Scalar, str], order: Ordering
    ) -> Limit:
        shape, core = self._shape, self._core
        written = self._notes.orders[first.numbering.written] if first.numbering.written >= 0 else None
        if written is None or written.moved is not None:
            self._blocks.completed[first.input] = first.input
        by = [value for value in dict.fromkeys(partition) if core.atoms_of(value) or shape.mode == "group"]
        whole = shape.mode == "group" or any(len(core.atoms_of(value)) != 1 for value in by)
        apart = None if whole else tuple(dict.fromkeys(map(self._leaves.variable, by)))
        texts = tuple(places[value] for value in by)
        names = ", ".join(core.spelled(value) for value in by)
        items = ", ".join(f"{core.spelled(item.value)} {direction(item)}" for item in order.items)
        parts = f"PARTITION BY {names} " if names else ""
        ordered = f"ORDER BY {items}" if items else ""
        clause = f"QUALIFY {first.name}() OVER ({parts}{ordered}) <= {first.rows}"
        return Limit(first.rows, first.offset, clause=clause, by=texts, variables=apart, numbering=first.name)

    def _number(self, value: Scalar | None, place: tuple[int, int] | None) -> int | None:
        if value is None:
            return None
        if not isinstance(value, Constant):
            why, hint = "a view's query is fixed when it is created", "write a number"
            raise self._notes.refusal("LIMIT with an expression", place, why, hint)
        found = self._con.execute(f"SELECT CAST({value.sql} AS BIGINT)").fetchall()[0][0]
        return None if found is None else int(found)

    def _is_natural(self, column: Column) -> bool:
        """Whether a column is declared to be 0 or more."""
        kind = column.type
        if kind in INTEGER_BITS and not INTEGER_BITS[kind][0]:
            return True
        table = self._core.atom(self._core.owner(column)).table
        return self._core.name_of(column).lower() in natural_columns(self._blocks.catalog.checks(table))

    def _spelled(self, texts: list[str]) -> list[str]:
        """Expressions as DuckDB prints them."""
        return printed_by_duckdb(texts, self._con)


def _with_hidden(items: list[Scalar], more: Sequence[Scalar]) -> list[Scalar]:
    """The items, and behind them those of `more` that are not among them."""
    known = set(items)
    found = list(items)
    for value in more:
        if value not in known:
            known.add(value)
            found.append(value)
    return found


def _first_of(values: Sequence[Scalar], texts: Sequence[str]) -> dict[Scalar, str]:
    """The text of each value, of equal ones the first's."""
    return dict(reversed(list(zip(values, texts))))

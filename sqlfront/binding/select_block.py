"""One SELECT: FROM, WHERE, groups, windows, the SELECT list, DISTINCT, ORDER BY, LIMIT, in the order of their meaning.

All expressions are bound first and typed together. Then the operators are put on each other, and each expression reads
the columns that the operator below it gives: a group's, an aggregate's, a window's, a subquery's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sqlfront.binding.bound_calls import ElementCall, WindowCall, outermost, replaced
from sqlfront.binding.environment import Environment, Output
from sqlfront.binding.expression_binder import ExpressionBinder
from sqlfront.binding.from_tables import bind_from
from sqlfront.binding.grouping import Grouping, read_groups
from sqlfront.binding.query_binder import limited, position, projected_to
from sqlfront.binding.select_items import Item, chosen_columns, items_of, unique_names
from sqlfront.binding.sight import Sight
from sqlfront.binding.subqueries import Subqueries
from sqlfront.planner.algebra.scalars import (
    Column,
    Operator,
    Ref,
    Scalar,
    columns_of,
)
from sqlfront.planner.algebra.terms import Distinct, Made, Map, Sort, Term, Unnest, Window, Windowed
from sqlfront.sql import trees


@dataclass
class Selected:
    """The expressions of a SELECT: typed when all are bound."""

    where: Scalar | None = None
    items: list[Item] = field(default_factory=list)
    having: Scalar | None = None
    qualify: Scalar | None = None
    order: list[Sort] = field(default_factory=list)
    on: list[Scalar] | None = None


class SelectBlock:
    """What the expressions of one block see, and what they need: subqueries, windows, aliases."""

    def __init__(self, environment: Environment, sight: Sight | None = None, select: exp.Select | None = None) -> None:
        self.environment, self.notes, self.functions = environment, environment.notes, environment.functions
        self.sight = sight if sight is not None else Sight(outer=environment.outer)
        self.expressions = ExpressionBinder(self)
        self.subqueries = Subqueries(environment)
        self.windows_written: dict[Scalar, exp.Expr] = {}
        self._aliases = _alias_nodes(select) if select is not None else {}
        self._bound_aliases: dict[str, Scalar] = {}
        self._windows = {one.name.casefold(): one for one in (select.args.get("windows") if select else None) or ()}
        self.grouped: frozenset[Scalar] | None = None

    def name(self, names: Sequence[str], node: exp.Column) -> Scalar:
        """A column of FROM, else an alias of the SELECT list, else a column of a query around."""
        alias = names[0].casefold() if len(names) == 1 else ""
        found = replace(self.sight, outer=None).find(names)
        prefers_alias = self.grouped is not None and found not in self.grouped
        if alias in self._aliases and (found is None or prefers_alias):
            return self.alias(alias)
        if found is None and self.sight.outer is not None:
            found = self.sight.outer.find(names)
        if found is None:
            raise self.notes.refusal(
                f'"{".".join(names)}" here', node,
                "it is no column of this FROM clause: a pseudo column such as rowid, a whole row, "
                "or a column of an outer query (a lateral join)",
                "name a column of a table in this FROM clause",
            )  # fmt: skip
        return found

    def sees(self, names: Sequence[str]) -> bool:
        return self.sight.find(names) is not None or names[0].casefold() in self._aliases

    def alias(self, name: str) -> Scalar:
        """The value that the SELECT list calls so."""
        if name not in self._bound_aliases:
            node = self._aliases.pop(name)  # Inside of itself a name is a column's.
            with self.columns_first():
                self._bound_aliases[name] = self.expressions.bind(node)
            self._aliases[name] = node
        return self._bound_aliases[name]

    @contextmanager
    def columns_first(self, grouped: frozenset[Scalar] | None = None) -> Iterator[None]:
        """Inside, a bare name is a column before it is an alias; with `grouped` only if it is one of these."""
        before, self.grouped = self.grouped, grouped
        try:
            yield
        finally:
            self.grouped = before

    def is_alias_of(self, node: exp.Alias) -> bool:
        """Whether an item of the SELECT list is what its name means."""
        return self._aliases.get(node.alias.casefold()) is node.this

    def has_alias(self, name: str) -> bool:
        return name in self._aliases

    def subquery(self, kind: str, node: exp.Expr, values: Sequence[Scalar], operator: Operator) -> Scalar:
        return self.subqueries.add(kind, node, values, operator, self.sight)

    def window(self, name: str) -> trees.Window | None:
        return self._windows.get(name.casefold())

    def chosen(self, node: exp.Expr) -> list[Scalar]:
        """The columns of COLUMNS(...)."""
        return [value for _, value in chosen_columns(node, self)]

    def sorts(self, order: exp.Order | None, bind: Callable[[exp.Expr], Scalar]) -> tuple[Sort, ...]:
        """The items of ORDER BY inside a call or a window."""
        if order is None:
            return ()
        defaults = self.environment.defaults
        return tuple(defaults.written(bind(item.this), item) for item in order.expressions)

    def refuse_subqueries(self, node: exp.Expr) -> None:
        if self.subqueries.waiting:
            why, hint = "its value is not known when the query is planned", "write the value"
            raise self.notes.refusal("A subquery here", node, why, hint)


def bind_select(tree: exp.Select, environment: Environment) -> Output:
    """The term of a SELECT with all its clauses."""
    _check(tree, environment)
    term, sight = bind_from(tree, environment)
    block = SelectBlock(environment, sight, tree)
    selected = Selected()
    where = tree.args.get("where")
    if where is not None:
        selected.where = block.expressions.bind(where.this)
    selected.items = items_of(tree, block)
    groups = read_groups(tree, block, selected.items)
    _read_rest(tree, block, selected, groups)
    _type(block, selected, groups)
    return _put_together(tree, block, term, selected, groups)


def _check(tree: exp.Select, environment: Environment) -> None:
    if tree.args.get("sample") is not None:
        why, hint = "its result is random", "leave it out"
        raise environment.notes.refusal("SAMPLE", tree.args["sample"], why, hint)


def _read_rest(tree: exp.Select, block: SelectBlock, selected: Selected, groups: Grouping) -> None:
    having, qualify, distinct = (tree.args.get(key) for key in ("having", "qualify", "distinct"))
    if having is not None:
        with block.columns_first(frozenset(groups.values)):
            selected.having = block.expressions.bind(having.this)
    if qualify is not None:
        selected.qualify = block.expressions.bind(qualify.this)
    if distinct is not None and distinct.args.get("on") is not None:
        selected.on = [_item(node, block, selected.items) for node in distinct.args["on"].expressions]
    order = tree.args.get("order")
    for item in order.expressions if order is not None else ():
        defaults = block.environment.defaults
        if isinstance(item.this, exp.Var) and item.this.name.upper() == "ALL":
            selected.order += [defaults.written(one.value, item) for one in selected.items]
        else:
            selected.order.append(defaults.written(_item(item.this, block, selected.items), item))


def _item(node: exp.Expr, block: SelectBlock, items: Sequence[Item]) -> Scalar:
    """An item of ORDER BY: a position, an alias, else an expression, whose names are columns first."""
    place = position(node)
    if place is not None:
        return items[place - 1].value
    if isinstance(node, exp.Column) and len(node.parts) == 1 and not isinstance(node.this, exp.Star):
        name = node.name.casefold()
        if block.has_alias(name):
            return block.alias(name)
    return block.expressions.bind(node)


def _type(block: SelectBlock, selected: Selected, groups: Grouping) -> None:
    """Give all expressions their types, by one question."""
    single = [one for one in (selected.where, selected.having, selected.qualify) if one is not None]
    values = [
        *single, *(one.value for one in selected.items), *(one.value for one in selected.order),
        *(selected.on or ()), *groups.values, *block.subqueries.untyped(),
    ]  # fmt: skip
    typed = iter(block.environment.types.typed(values))
    known = dict(zip(values, typed))
    for scalar, new in known.items():
        place = block.notes.place(scalar)
        if place is not None and new is not scalar:
            block.notes.move(scalar, new)
    selected.where, selected.having, selected.qualify = (
        known[one] if one is not None else None for one in (selected.where, selected.having, selected.qualify)
    )
    selected.items = [Item(one.name, known[one.value], one.is_named) for one in selected.items]
    selected.order = [Sort(known[one.value], one.descending, one.nulls_first) for one in selected.order]
    selected.on = [known[one] for one in selected.on] if selected.on is not None else None
    groups.values = [known[one] for one in groups.values]
    block.subqueries.retype(known)


def _put_together(tree: exp.Select, block: SelectBlock, term: Term, selected: Selected, groups: Grouping) -> Output:
    numbers, subqueries = block.environment.numbers, block.subqueries
    if selected.where is not None:
        term = subqueries.filtered(term, selected.where)
    shown = [one.value for one in selected.items]
    rest = [one for one in (selected.having, selected.qualify) if one is not None]
    every = [*shown, *rest, *(one.value for one in selected.order), *(selected.on or ())]
    own = frozenset(term.columns) | subqueries.waiting.keys()
    term, lower = groups.apply(term, every, tree, block, own)
    if selected.having is not None:
        term = subqueries.filtered(term, lower(selected.having))
    values = [lower(value) for value in [*shown, *(one.value for one in selected.order), *(selected.on or ())]]
    qualify = lower(selected.qualify) if selected.qualify is not None else None
    term, values, qualify = _with_windows(term, values, qualify, len(shown), block)
    if qualify is not None:
        term = subqueries.filtered(term, qualify)
    term = subqueries.attached(term, values)
    term, values = _with_elements(term, values, block)
    items = [Item(one.name, value, one.is_named) for one, value in zip(selected.items, values)]
    order = [Sort(v, o.descending, o.nulls_first) for v, o in zip(values[len(shown) :], selected.order)]
    on = values[len(shown) + len(order) :] if selected.on is not None else None
    return _output(tree, block, term, items, order, on, numbers.column)


def _with_windows(
    term: Term, values: list[Scalar], qualify: Scalar | None, shown: int, block: SelectBlock
) -> tuple[Term, list[Scalar], Scalar | None]:
    """The columns of window functions; what ROW_NUMBER leaves open the output columns without windows settle."""
    every = [*values, *([qualify] if qualify is not None else [])]
    calls = list(dict.fromkeys(call for value in every for call in outermost(value, WindowCall)))
    if not calls:
        return term, values, qualify
    term = block.subqueries.attached(term, [part for call in calls for part in call.arguments])
    ties = [value for value in values[:shown] if not any(True for _ in outermost(value, WindowCall))]
    columns: dict[Scalar, Scalar] = {}
    functions = []
    for call in calls:
        assert isinstance(call, WindowCall)
        column = block.environment.numbers.column(_word(call.template), call.type)
        one = call.windowed(column)
        if call.template.casefold().startswith("row_number("):
            one = _settled(one, ties, block.environment)
        functions.append(one)
        columns[call] = Ref(column)
        block.notes.note_at(column, block.notes.place(call))
    replaced_all = [replaced(value, columns.get) for value in every]
    kept = replaced_all[: len(values)]
    return Window(term, tuple(functions)), kept, replaced_all[-1] if qualify is not None else None


def _settled(one: Windowed, ties: Sequence[Scalar], environment: Environment) -> Windowed:
    known = {item.value for item in one.order}
    more = (environment.defaults.sort(value) for value in ties if value not in known and columns_of(value))
    return replace(one, order=(*one.order, *more))


def _word(template: str) -> str:
    return template.partition("(")[0]


def _with_elements(term: Term, values: list[Scalar], block: SelectBlock) -> tuple[Term, list[Scalar]]:
    """The columns of unnest()."""
    calls = list(dict.fromkeys(call for value in values for call in outermost(value, ElementCall)))
    if not calls:
        return term, values
    made = []
    for call in calls:
        if call.arguments[0].type.startswith(("STRUCT", "ROW")):
            why, hint = "it makes several columns of one", "name the fields"
            raise block.notes.refusal("unnest of a struct", block.notes.place(call), why, hint)
        made.append(Made(block.environment.numbers.column("unnest", call.type), call.arguments[0]))
    columns: dict[Scalar, Scalar] = {call: Ref(one.column) for call, one in zip(calls, made)}
    return Unnest(term, tuple(made)), [replaced(value, columns.get) for value in values]


def _output(
    tree: exp.Select, block: SelectBlock, term: Term, items: Sequence[Item], order: Sequence[Sort],
    on: Sequence[Scalar] | None, new: Callable[[str, str], Column],
) -> Output:  # fmt: skip
    """The SELECT list as a Map, with what ORDER BY and DISTINCT ON compare besides; then these, and LIMIT."""
    made = _made(items, term, block)
    outputs = tuple(one.column for one in made)
    shown = {one.value: one.column for one in reversed(made)}
    distinct = tree.args.get("distinct")
    hidden: list[Made] = []

    def over_outputs(value: Scalar) -> Scalar:
        """A value over the output columns, or a column beside them."""
        found = replaced(value, lambda part: Ref(shown[part]) if part in shown else None)
        if columns_of(found) <= set(outputs):
            return found
        if distinct is not None and on is None:
            why = "DISTINCT leaves open which row's value a result row is ordered by"
            hint = "put the expression out, or group and order by an aggregate"
            what = "ORDER BY of what DISTINCT does not put out"
            raise block.notes.refusal(what, block.notes.place_of(value), why, hint)
        column = new("", value.type)
        hidden.append(Made(column, value))
        shown[value] = column
        block.notes.note_at(column, block.notes.place_of(value))
        return Ref(column)

    sorts = [Sort(over_outputs(one.value), one.descending, one.nulls_first) for one in order]
    first = [over_outputs(value) for value in on or ()]
    keys = []
    for value in first:
        if not isinstance(value, Ref):
            column = new("", value.type)
            hidden.append(
                Made(column, replaced(value, lambda part: next((v for v, c in shown.items() if Ref(c) == part), None)))
            )
            value = Ref(column)
        keys.append(value.column)
    term = Map(term, (*made, *hidden))
    sorts = [one for one in sorts if columns_of(one.value)]
    if on is not None:
        ties = tuple(block.environment.defaults.sort(Ref(column)) for column in outputs)
        known = {one.value for one in sorts}
        term = Distinct(term, tuple(keys), (*sorts, *(one for one in ties if one.value not in known)))
    elif distinct is not None:
        term = Distinct(term)
    term = limited(tree, term, sorts, outputs, block.environment)
    names = unique_names([item.name for item in items])
    return Output(projected_to(term, outputs), tuple(names))


def _made(items: Sequence[Item], term: Term, block: SelectBlock) -> list[Made]:
    """The columns of the SELECT list; a column that is put out under its own name stays the same one."""
    made: list[Made] = []
    taken: set[Column] = set()
    for item in items:
        value = item.value
        column = value.column if isinstance(value, Ref) else None
        if column is None or column in taken or column.name != item.name or column not in term.columns:
            column = block.environment.numbers.column(item.name, value.type)
            block.notes.note_at(column, block.notes.place_of(value))
        taken.add(column)
        made.append(Made(column, value))
    return made


def _alias_nodes(select: exp.Select) -> dict[str, exp.Expr]:
    """What the SELECT list calls by a name; the first of a name wins."""
    found: dict[str, exp.Expr] = {}
    for item in select.expressions:
        if isinstance(item, exp.Alias):
            found.setdefault(item.alias.casefold(), item.this)
    return found

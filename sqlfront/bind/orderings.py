"""ORDER BY and LIMIT: a total order of the view's rows, and its terms where rows of the join compare part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any

from sqlfront.bind.composed_orders import SUMMABLE, Composed, Composing, Obstacle, form_of, tie_breakers
from sqlfront.bind.from_clause import Environment
from sqlfront.bind.leaves import Leaves
from sqlfront.bind.refusals import check_expression, keyword, refusal
from sqlfront.bind.result_types import Typing, is_lossless
from sqlfront.bind.rounded_orders import read_rounded
from sqlfront.bind.scope import Scope, resolve
from sqlfront.bind.select_list import Selection, item_aliases, position_of
from sqlfront.planner.model.query import Limit, Order, Rounding, Term
from sqlfront.sql.parse_tree import (
    SourceText,
    Tree,
    arguments,
    atoms_of,
    column_ref,
    key,
    relocate,
    render,
    render_all,
    span,
    transform,
    try_parse_select,
)
from sqlfront.storage.codecs.order import is_orderable
from sqlfront.storage.errors import ProgrammingError

STRICT = ("sum", "product", "rounded")
"""The forms of terms whose value is NULL if one of theirs is."""


@dataclass(frozen=True)
class Item:
    """One expression of ORDER BY, resolved, with its direction."""

    tree: Tree
    descending: bool
    nulls_first: bool

    @property
    def direction(self) -> str:
        return f"{'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True)
class Defaults:
    """What ORDER BY means where it does not say: the session's settings at CREATE, which the view keeps. `collated`:
    strings compare by a collation."""

    descending: bool
    nulls: str
    collated: bool

    def item(self, tree: Tree, direction: str = "ORDER_DEFAULT", nulls: str = "ORDER_DEFAULT") -> Item:
        descending = direction == "DESCENDING" or (direction == "ORDER_DEFAULT" and self.descending)
        if nulls != "ORDER_DEFAULT":
            return Item(tree, descending, nulls == "NULLS FIRST")
        by_direction = "first_on_desc" if descending else "first_on_asc"
        return Item(tree, descending, self.nulls == "nulls_first" or by_direction in self.nulls)


@dataclass(frozen=True)
class Ordering:
    """One order that a view is asked for: ORDER BY's items and, behind them, what settles its last item (as text, with
    directions, in `tie_breakers`) and the output columns."""

    items: tuple[Item, ...]
    label: str
    directions: tuple[str, ...]
    tie_breakers: tuple[str, ...] = ()


def defaults_of(con: Any) -> Defaults:
    """The session's default_order, default_null_order and default_collation."""
    settings = ("default_order", "default_null_order", "default_collation")
    asked = ", ".join(f"current_setting('{name}')" for name in settings)
    [(order, nulls, collation)] = con.execute(f"SELECT {asked}").fetchall()
    return Defaults(str(order).upper().startswith("DESC"), str(nulls).lower(), bool(collation))


def take_modifiers(node: Tree) -> tuple[Tree, list[Tree], Tree | None]:
    """A query node without its ORDER BY and LIMIT; the items of the one, and the other."""
    modifiers = node["modifiers"]
    orders = [one for modifier in modifiers if modifier["type"] == "ORDER_MODIFIER" for one in modifier["orders"]]
    limits = [modifier for modifier in modifiers if modifier["type"].startswith("LIMIT")]
    rest = [m for m in modifiers if m["type"] != "ORDER_MODIFIER" and not m["type"].startswith("LIMIT")]
    return node | {"modifiers": rest}, orders, limits[0] if limits else None


def read_orderings(
    node: Tree,
    orders: Sequence[Tree],
    limited: bool,
    more: Sequence[str],
    selection: Selection,
    scope: Scope,
    environment: Environment,
    defaults: Defaults,
    composing: Composing,
) -> list[Ordering]:
    """The orders of a view: that of ORDER BY (or, for a bare LIMIT, of the columns), and `more`, as texts.

    Raises NotSupportedError.
    """
    found = []
    if orders or limited:
        found.append(ordering_of(node, orders, selection, scope, environment, defaults, composing))
    for text in more:
        parsed = try_parse_select(f"SELECT 1 ORDER BY {text}")
        modifiers = [m for m in (parsed or {"modifiers": []})["modifiers"] if m["type"] == "ORDER_MODIFIER"]
        if parsed is None or len(modifiers) != 1 or len(parsed["modifiers"]) != 1:
            raise ProgrammingError(f"order_by = '{text}' is no ORDER BY list", hint="for example 'a + b DESC, c'")
        nowhere = replace(environment, source=SourceText(text))
        items = [relocate(one, None) for one in modifiers[0]["orders"]]
        found.append(ordering_of(node, items, selection, scope, nowhere, defaults, composing))
    return found


def with_hidden(selection: Selection, orderings: Sequence[Ordering], partition: Sequence[Tree] = ()) -> Selection:
    """The selection with what orders compare, and groups have in common, at the end of its items if it is not there."""
    items = list(selection.items)
    known = {key(tree) for _, tree in items}
    for tree in [*(item.tree for ordering in orderings for item in ordering.items), *partition]:
        if key(tree) not in known:
            known.add(key(tree))
            items.append((render(tree), tree))
    return replace(selection, items=items, hidden=len(items) - len(selection.items))


def bind_orders(
    orderings: Sequence[Ordering],
    selection: Selection,
    projection: Sequence[str],
    columns: Sequence[str],
    leaves: Leaves,
    typing: Typing,
    composing: Composing,
    evaluate: Callable[[Tree], Any],
) -> tuple[Order, ...]:
    """The orders over the items of a bound selection, whose projection this is; `columns` are the view's names."""
    places = {key(tree): place for place, (_, tree) in reversed(list(enumerate(selection.items)))}
    found = []
    for ordering in orderings:
        sorting = tuple((projection[places[key(item.tree)]], item.direction) for item in ordering.items)
        terms: tuple[Term, ...] = ()
        numbers: dict[str, int] = {}
        obstacle = None
        if selection.mode != "group":
            try:
                terms, numbers = _terms(ordering.items, leaves, typing, composing, evaluate)
            except Obstacle as why:
                obstacle = str(why)
        shown = {key(tree): name for (_, tree), name in reversed(list(zip(selection.items, columns, strict=False)))}
        served = tuple(_served(item.tree, shown) for item in ordering.items)
        texts = zip(sorting, ordering.items, strict=True)
        compared = tuple((text, numbers[key(item.tree)]) for (text, _), item in texts if key(item.tree) in numbers)
        directions, tie_breakers = ordering.directions, ordering.tie_breakers
        found.append(Order(terms, sorting, served, ordering.label, directions, obstacle, compared, tie_breakers))
    return tuple(found)


def read_limit(limit: Tree | None, con: Any, source: SourceText) -> Limit | None:
    """LIMIT and OFFSET as numbers. Raises NotSupportedError for what is no constant."""
    if limit is None:
        return None
    at = keyword(source, ("limit", "offset", "fetch"))
    if limit["type"] != "LIMIT_MODIFIER" or limit.get("limit_type", "ROW_COUNT") != "ROW_COUNT":
        why = "how many rows it keeps changes with the number of all rows"
        raise refusal("LIMIT with a percentage", source, at, why, "write a number of rows")
    values: list[int | None] = []
    for name in ("limit", "offset"):
        tree = limit.get(name)
        if tree is None:
            values.append(None)
            continue
        if tree["class"] != "CONSTANT":
            why = "a view's query is fixed when it is created"
            raise refusal(f"{name.upper()} with an expression", source, span(tree) or at, why, "write a number")
        values.append(con.execute(f"SELECT CAST({render(tree)} AS BIGINT)").fetchone()[0])
    return Limit(values[0], values[1] or 0)


def spelled(tree: Tree) -> str:
    """An expression over a view's columns, as orders are told apart by."""
    return str(tree["column_names"][-1] if tree["class"] == "COLUMN_REF" else render(tree)).casefold()


def _served(tree: Tree, shown: dict[str, str]) -> str | None:
    """An item over the view's columns; None if they do not give it."""
    found = transform(tree, lambda part: column_ref(shown[key(part)]) if key(part) in shown else None)
    return None if atoms_of(found) else spelled(found)


# Items ---------------------------------------------------------------------------------------------


def ordering_of(
    node: Tree,
    orders: Sequence[Tree],
    selection: Selection,
    scope: Scope,
    environment: Environment,
    defaults: Defaults,
    composing: Composing,
    inside: bool = False,
    total: bool = True,
) -> Ordering:
    """ORDER BY's items, or those `inside` a window, and, to be `total`, behind them the output columns. Raises
    NotSupportedError."""
    items: list[Item] = []
    for one in orders:
        tree = one["expression"]
        if tree["class"] == "STAR":  # ORDER BY ALL
            items += [defaults.item(shown, one["type"], one["null_order"]) for _, shown in selection.items]
            continue
        resolved = resolved_item(tree, node, selection, scope, environment, inside)
        items.append(defaults.item(resolved, one["type"], one["null_order"]))
    written = tuple(item.direction for item in items)
    names = [_spelled(one, item, environment.source) for one, item in zip(orders, items, strict=False)]
    tie_breakers: tuple[str, ...] = ()
    if total and items and len(atoms_of(items[-1].tree)) > 1 and selection.mode != "group":
        last = items[-1]
        known = _tie_breakers(last, _written(orders[-1]["expression"], node), composing)
        tie_breakers = tuple(f"{text} {last.direction}" for text, _ in known)
        items += [replace(last, tree=tree) for _, tree in known]
    if total:
        items += [defaults.item(tree) for _, tree in selection.items]
    first: dict[str, Item] = {}
    for item in items:
        if atoms_of(item.tree) or selection.mode == "group":
            first.setdefault(key(item.tree), item)
    if any(one["expression"]["class"] == "STAR" for one in orders):
        return Ordering(tuple(first.values()), "all columns", written[:1])
    directions = (*written, defaults.item({}).direction)
    return Ordering(tuple(first.values()), ", ".join(names) or "all columns", directions, tie_breakers)


def ordering_by(
    trees: Sequence[Tree],
    shown: Sequence[tuple[str, Tree]],
    labels: Sequence[str],
    composing: Composing,
    *,
    descending: bool,
) -> Ordering:
    """The order by resolved expressions, NULL last, and then by the output columns."""
    try:
        composed = composing.read(trees[-1])
    except Obstacle:
        composed = None
    settled = composed.tie_breakers if composed is not None else ()
    every = (*trees, *settled, *(one for _, one in shown))
    unique = {key(one): Item(one, descending, nulls_first=False) for one in every}
    return Ordering(tuple(unique.values()), ", ".join(label + descending * " DESC" for label in labels), ())


def _tie_breakers(item: Item, written: Tree | None, composing: Composing) -> list[tuple[str, Tree]]:
    """What settles the last item of ORDER BY, as text and resolved; nothing if it needs none, or has no parts."""
    try:
        composed = composing.read(item.tree)
    except Obstacle:
        return []
    if composed is None or written is None or form_of(written) != composed.form:
        return []
    return list(zip(render_all(tie_breakers(written)), composed.tie_breakers, strict=True))


def _written(tree: Tree, node: Tree) -> Tree | None:
    """An item as it is written, in the SELECT list if it names one of its columns; None if a star is."""
    shown, place = node["select_list"], position_of(tree)
    if place is not None:
        return shown[place - 1] if not any(one["class"] == "STAR" for one in shown[:place]) else None
    if tree["class"] == "COLUMN_REF" and len(tree["column_names"]) == 1:
        name = tree["column_names"][0].lower()
        return next((one for one in shown if (one.get("alias") or "").lower() == name), None)
    return None if tree["class"] == "STAR" else tree


def _spelled(one: Tree, item: Item, source: SourceText) -> str:
    text = source.text(span(one["expression"])) or render(one["expression"])
    return text + (" DESC" if item.descending else "")


def resolved_item(
    tree: Tree, node: Tree, selection: Selection, scope: Scope, environment: Environment, inside: bool = False
) -> Tree:
    """An item: a position, an alias or an output column's name, else an expression, whose names are columns first.

    `inside` a window an item is always such an expression.
    """
    position = position_of(tree)
    if position is not None and not inside:
        return selection.items[position - 1][1]
    check_expression(tree, environment.source)
    aliases = item_aliases(node, selection.items)
    if tree["class"] == "COLUMN_REF" and len(tree["column_names"]) == 1 and not inside:
        named = aliases.get(tree["column_names"][0].lower())
        if named is not None:
            return named

    def change(part: Tree) -> Tree | None:
        if part["class"] == "COLUMN_REF" and len(part["column_names"]) == 1:
            name = part["column_names"][0]
            if scope.column(name) is None and name.lower() in aliases:
                return aliases[name.lower()]
        return resolve(part, scope, environment.source, {}) if part["class"] == "COLUMN_REF" else None

    resolved: Tree = transform(tree, change)
    shown = {key(tree): name for name, tree in selection.items}
    if selection.mode == "set" and _served(resolved, shown) is None:
        why = "DISTINCT leaves open which row's value a result row is ordered by"
        hint = "put the expression out, or group and order by an aggregate"
        raise refusal("ORDER BY of what DISTINCT does not put out", environment.source, span(tree), why, hint)
    return resolved


# Terms ---------------------------------------------------------------------------------------------


def _terms(
    items: Sequence[Item], leaves: Leaves, typing: Typing, composing: Composing, evaluate: Callable[[Tree], Any]
) -> tuple[tuple[Term, ...], dict[str, int]]:
    """The terms of a list of items, and which of them each item is, by its key."""
    terms: list[Term] = []
    numbers: dict[str, int] = {}
    compared: dict[str, int] = {}
    settled = 0
    for place, item in enumerate(items):
        atoms = atoms_of(item.tree)
        if place < settled or not atoms:
            continue
        numbers[key(item.tree)] = len(terms)
        if len(atoms) == 1:
            variable = leaves.variable(item.tree)
            kind = leaves.variable_type(variable)
            if typing.type_of(item.tree).startswith("ENUM") and not kind.startswith("ENUM"):
                raise Obstacle(f"{render(item.tree)} is an ENUM that joins text, in whose order it is kept")
            if not is_orderable(kind):
                raise Obstacle(f"{kind} has no order that is kept")
            numbers[key(item.tree)] = compared.setdefault(variable, len(terms))
            if compared[variable] == len(terms):
                terms.append(Term(((1, variable),), "value", item.descending, item.nulls_first))
        elif (composed := composing.read(item.tree)) is not None:
            terms.append(_composed(composed, item, leaves))
            settled = place + 1 + len(composed.tie_breakers)
            following = [(key(one.tree), one.direction) for one in items[place + 1 : settled]]
            if following != [(key(tree), item.direction) for tree in composed.tie_breakers]:
                hint = "write it out, as the last item of ORDER BY"
                raise Obstacle(f"rows that tie in {render(item.tree)} are ordered by what comes after it ({hint})")
        elif (rounded := read_rounded(item.tree, typing, evaluate)) is not None:
            terms.append(_rounded(*rounded, item, leaves))
        else:
            parts, whole, constant = _codes(_linear(item.tree, typing, evaluate), leaves)
            terms.append(Term(parts, "sum", item.descending, item.nulls_first, whole, constant))
    return tuple(terms), numbers


def _composed(composed: Composed, item: Item, leaves: Leaves) -> Term:
    """The term of a greatest, a least or a product; its variables' codes are in one unit."""
    variables = [leaves.variable(tree) for tree in composed.operands]
    kinds = [leaves.variable_type(variable) for variable in variables]
    if len({"BIGINT" if kind in SUMMABLE else kind.partition(",")[2] or kind for kind in kinds}) > 1:
        raise Obstacle(f"{render(item.tree)} compares columns that join as other types")
    parts = tuple((1, variable) for variable in variables)
    return Term(parts, composed.form, item.descending, item.nulls_first)


def _rounded(parts: Sequence[tuple[Tree, str]], rounding: Rounding, item: Item, leaves: Leaves) -> Term:
    """The term of a sum of floating numbers."""
    variables = [(leaves.variable(tree), type_) for tree, type_ in parts]
    if any(leaves.variable_type(variable) != type_ for variable, type_ in variables):
        raise Obstacle(f"{render(item.tree)} adds columns that join as other types")
    added = tuple((1, variable) for variable, _ in variables)
    return Term(added, "rounded", item.descending, item.nulls_first, rounding=rounding)


def _linear(tree: Tree, typing: Typing, evaluate: Callable[[Tree], Any]) -> list[tuple[Fraction, Tree | None]]:
    """An exact number as a sum of coefficients times expressions of one table (None: 1). Obstacle if it is none."""
    atoms = atoms_of(tree)
    kind = typing.type_of(tree)
    if tree["class"] == "CAST" and not tree["try_cast"] and is_lossless(typing.type_of(tree["child"]), kind):
        return _linear(tree["child"], typing, evaluate)
    if kind not in {*SUMMABLE, "HUGEINT"} and not kind.startswith("DECIMAL"):
        raise Obstacle(f"{render(tree)} is no number that is added: it is {kind}")
    if not atoms:
        value = evaluate(tree)
        if value is None:
            raise Obstacle(f"{render(tree)} is NULL")
        return [(Fraction(value), None)]
    if len(atoms) == 1:
        return [(Fraction(1), tree)]
    name, operands = tree.get("function_name"), arguments(tree) if tree["class"] == "FUNCTION" else []
    if name in ("+", "-") and operands:
        last = [(-c if name == "-" else c, part) for c, part in _linear(operands[-1], typing, evaluate)]
        return last if len(operands) == 1 else [*_linear(operands[0], typing, evaluate), *last]
    if name == "*" and len(operands) == 2:
        for factor, other in (operands, reversed(operands)):
            value = evaluate(factor) if not atoms_of(factor) else None
            if isinstance(value, (int, Decimal)):
                return [(Fraction(value) * c, part) for c, part in _linear(other, typing, evaluate)]
    raise Obstacle(f"{render(tree)} is no sum of one table's columns each")


def _codes(
    linear: Sequence[tuple[Fraction, Tree | None]], leaves: Leaves
) -> tuple[tuple[tuple[int, str], ...], int, int]:
    """The sum over the variables' codes: whole coefficients, by what they have been multiplied, and the constant."""
    total: dict[str, Fraction] = {}
    constant = Fraction(0)
    for coefficient, tree in linear:
        if tree is None:
            constant += coefficient
            continue
        variable = leaves.variable(tree)
        kind = leaves.variable_type(variable)
        digits, _, scale = kind.removeprefix("DECIMAL(").removesuffix(")").partition(",")
        if kind.startswith("DECIMAL") and int(digits) > 18:
            raise Obstacle(f"{render(tree)} is {kind}, of which no sums are kept in order: cast it to DECIMAL(18, s)")
        if not kind.startswith("DECIMAL") and kind not in SUMMABLE:
            raise Obstacle(f"{render(tree)} is {kind}, of which no sums are kept in order: cast it to BIGINT")
        unit = Fraction(1, 10 ** int(scale)) if kind.startswith("DECIMAL") else Fraction(1)
        total[variable] = total.get(variable, Fraction(0)) + coefficient * unit
    whole = lcm(constant.denominator, *(c.denominator for c in total.values()))
    parts = tuple((int(c * whole), variable) for variable, c in total.items() if c)
    if any(abs(c) >= 2**60 for c, _ in parts):
        raise Obstacle("its coefficients are too far apart")
    return parts, whole, int(constant * whole)

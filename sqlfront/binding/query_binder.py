"""Queries: WITH, set operations, recursion, VALUES, ORDER BY and LIMIT around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.binding.environment import Environment, Named, Numbers, Output, defaults_of
from sqlfront.binding.function_catalog import Functions
from sqlfront.binding.interval_lengths import compares_intervals
from sqlfront.binding.macros import Macros
from sqlfront.binding.notes import Notes
from sqlfront.binding.numbered_rows import NumberedRows
from sqlfront.binding.scalar_types import WHOLE, Types
from sqlfront.binding.select_items import unique_names
from sqlfront.binding.session_settings import Settings, settings_of
from sqlfront.binding.table_catalog import CatalogView
from sqlfront.planner.algebra.rewriting import passed
from sqlfront.planner.algebra.scalars import Call, Column, Constant, Ref, Scalar
from sqlfront.planner.algebra.terms import (
    Common,
    Made,
    Map,
    Recursion,
    Recursive,
    SetOperation,
    Sort,
    Term,
    Top,
    Values,
    walk,
)
from sqlfront.sql import trees
from sqlfront.sql.dialect import printed
from sqlfront.sql.pivots import without_pivots
from sqlfront.sql.trees import Span, span

if TYPE_CHECKING:
    from sqlfront.binding.select_block import SelectBlock


@dataclass(frozen=True)
class Bound:
    """A query as a term of the algebra: its first columns are `outputs`, by their names, in order.

    `tree` is what was bound: that of the query, with macros and listed pivots as what they stand for.
    `settings` are those of the session; `more` are further orders of its rows, over its columns.
    """

    term: Term
    names: tuple[str, ...]
    notes: Notes
    functions: Functions
    settings: Settings
    tree: exp.Expr
    more: tuple[tuple[Sort, ...], ...] = ()

    @property
    def outputs(self) -> tuple[tuple[Column, str], ...]:
        return tuple(zip(self.term.columns, self.names))


def bind_query(tree: exp.Expr, text: str, con: Any, catalog: CatalogView, orders: Sequence[exp.Order] = ()) -> Bound:
    """The term of a query that DuckDB has accepted, and further `orders` of its rows.

    `tree` is what `dialect.parse` read, `text` what it was read from, for carets. `con` is a DuckDB cursor without an
    open result: it tells types, no table is read. Raises NotSupportedError for a query that the algebra does not have.
    """
    functions = Functions(con, catalog.has_macros())
    notes, types = Notes(text), Types(con)
    settings = settings_of(con)
    environment = Environment(con, catalog, functions, types, notes, Numbers(), defaults_of(settings))
    called = {call.name.casefold() for call in tree.find_all(trees.Call)}
    if called and (functions.has_macros or called & functions.written_out):
        tree = Macros(con, functions.written_out).put_in(tree, notes)
    if tree.find(trees.Pivot, trees.PivotQuery) is not None:
        tree = without_pivots(tree, con)
    output = bind(tree, environment, orders)
    families = " ".join(types.found | environment.numbers.types)
    compares = "INTERVAL" in families and compares_intervals(output.term)
    notes.collates |= bool(settings["default_collation"])
    notes.collates_texts = notes.collates
    notes.collates |= compares
    if notes.collates:
        from sqlfront.binding.collations import without_collations

        output = without_collations(output, notes, con, settings["default_collation"])
    if "UNION(" in families:
        from sqlfront.binding.union_comparisons import with_explicit_comparisons

        output = replace(output, term=with_explicit_comparisons(output.term, notes))
    return Bound(output.term, output.names, notes, functions, settings, tree, output.more)


def bind(tree: exp.Expr, environment: Environment, more: Sequence[exp.Order] = ()) -> Output:
    """A query, or one inside another; `more` are further orders of its rows."""
    while isinstance(tree, exp.Subquery) and _is_bare(tree):
        tree = tree.this
    environment = _with_ctes(tree, environment)
    match tree:
        case exp.Select():
            from sqlfront.binding.select_block import bind_select

            return bind_select(tree, environment, more)
        case exp.SetOperation():
            return _ordered(tree, _set_operation(tree, environment), environment, more)
        case exp.Subquery():
            return _ordered(tree, bind(tree.this, environment), environment, more)
        case exp.Values():
            return _ordered(tree, bind_values(tree, environment), environment, more)
        case trees.PivotQuery():
            if tree.args.get("unpivot"):
                why, hint = "it does not name the columns of one table", "write a list of their names behind ON"
                raise environment.notes.refusal("UNPIVOT", tree, why, hint)
            why, hint = "its columns come from its rows", "write an aggregate with FILTER for each column"
            raise environment.notes.refusal("PIVOT", tree, why, hint)
    why, hint = "its rows do not come from a table whose changes can be followed", "put the rows into a table"
    raise environment.notes.refusal(str(tree.args.get("word", "This query")), tree, why, hint)


def bind_values(tree: exp.Values, environment: Environment) -> Output:
    """VALUES (...), (...)"""
    from sqlfront.binding.select_block import SelectBlock

    block = SelectBlock(environment)
    rows = [tuple(block.expressions.bind(value) for value in row.expressions) for row in tree.expressions]
    block.refuse_subqueries(tree)
    types = environment.types.rows(rows)
    columns = tuple(environment.numbers.column(f"col{place}", type_) for place, type_ in enumerate(types))
    flat = environment.types.typed([value for row in rows for value in row])
    width = len(columns)
    typed = tuple(tuple(flat[start : start + width]) for start in range(0, len(flat), width))
    for column in columns:
        environment.notes.note(column, tree)
    return Output(Values(columns, typed), tuple(column.name for column in columns))


def limited(
    node: exp.Expr, term: Term, order: Sequence[Sort], columns: Sequence[Column], environment: Environment
) -> Term:
    """ORDER BY and LIMIT of a query's node; where rows are left out, the output columns settle what ties."""
    from sqlfront.binding.select_block import SelectBlock

    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is None and offset is None and not order:
        return term
    ties = tuple(environment.defaults.sort(Ref(column)) for column in columns)
    places = [str(place) for place in range(1, len(columns) + 1)]
    label = label_of(node.args.get("order"), environment)
    written = environment.notes.add_order(node, order, label, ties, places)
    if limit is None and offset is None:
        return Top(term, tuple(order), written=written)
    percent = limit is not None and limit.args.get("limit_options") is not None
    known = {item.value for item in order}
    whole = (*order, *(item for item in ties if item.value not in known))
    environment.notes.note(("top", written), limit if limit is not None else offset)
    block = SelectBlock(replace(environment, outer=None))
    rows, skipped = (_bound(one, block) if one is not None else None for one in (limit, offset))
    if not percent and not block.subqueries.waiting:
        return Top(term, whole, rows, skipped, written=written)
    numbered = NumberedRows(term, whole, written, environment.numbers)
    if percent and rows is not None:
        rows = numbered.share(rows)
    read = [one for one in (rows, skipped) if one is not None]
    kept = numbered.between(lambda rows: block.subqueries.attached(rows, read), rows, skipped)
    return Top(kept, tuple(order), written=written)


def label_of(order: exp.Order | None, environment: Environment) -> str:
    """ORDER BY as it is written, for people."""
    items = order.expressions if order is not None else []
    if not items or any(isinstance(item.this, exp.Var) for item in items):
        return "all columns"
    texts = []
    for item in items:
        sort = environment.defaults.written(Constant("", ""), item)
        text = environment.notes.source(item.this) or printed(item.this)
        texts.append(text + (" DESC" if sort.descending else ""))
    return ", ".join(texts)


def _bound(node: exp.Expr, block: SelectBlock) -> Scalar | None:
    """The number of LIMIT or OFFSET; None for ALL."""
    tree = node.expression
    if isinstance(tree, exp.Var):
        return None
    [typed] = block.environment.types.typed([block.expressions.bind(tree)])
    return typed


def _is_bare(tree: exp.Subquery) -> bool:
    return not any(tree.args.get(key) for key in ("alias", "order", "limit", "offset", "with_", "joins"))


def _ordered(tree: exp.Expr, output: Output, environment: Environment, more: Sequence[exp.Order] = ()) -> Output:
    """ORDER BY and LIMIT over a whole query, whose items are output columns, or expressions over them."""
    order = tree.args.get("order")
    sorts = _sorts_by_output(tree, order, output, environment) if order is not None else []
    further = tuple(tuple(_sorts_by_output(tree, one, output, environment)) for one in more)
    return replace(output, term=limited(tree, output.term, sorts, output.columns, environment), more=further)


def _sorts_by_output(tree: exp.Expr, order: exp.Order, output: Output, environment: Environment) -> list[Sort]:
    from sqlfront.binding.select_block import SelectBlock
    from sqlfront.binding.sight import Sight, Source

    source = Source("", (), tuple((name, Ref(column)) for name, column in zip(output.names, output.columns)))
    block = SelectBlock(environment, Sight((source,), outer=environment.outer))
    written = _written_lists(tree)
    found: list[Sort] = []
    for item in order.expressions:
        this = item.this
        if isinstance(this, exp.Var) and this.name.upper() == "ALL":
            found += [environment.defaults.written(Ref(column), item) for column in output.columns]
            continue
        place = position(this)
        if place is None:
            place = next((names[key] for names in written if (key := _spelled(this)) in names), None)
        if place is not None:
            found.append(environment.defaults.written(Ref(output.columns[place - 1]), item))
            continue
        [value] = environment.types.typed([block.expressions.bind(this)])
        found.append(environment.defaults.written(value, item))
    return [item for item in found if not isinstance(item.value, Constant)]


def position(node: exp.Expr) -> int | None:
    """The position that a number in GROUP BY or ORDER BY names."""
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return int(node.name) if is_number else None


def _written_lists(tree: exp.Expr) -> list[dict[str, int]]:
    """Of each branch of a set operation, the places of what it puts out, as it is written or called."""
    found: list[dict[str, int]] = []
    waiting = [tree]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, exp.SetOperation):
            waiting[:0] = [one.this, one.expression]
        elif isinstance(one, exp.Subquery):
            waiting.insert(0, one.this)
        elif isinstance(one, exp.Select):
            if any(isinstance(item, exp.Star) or item.is_star for item in one.expressions):
                break
            places: dict[str, int] = {}
            for place, item in enumerate(one.expressions, 1):
                places.setdefault(item.alias.casefold() or _spelled(item), place)
                places.setdefault(_spelled(item), place)
            found.append(places)
    return found


def _spelled(node: exp.Expr) -> str:
    inner = node.this if isinstance(node, exp.Alias) else node
    return printed(inner).casefold()


# Set operations -------------------------------------------------------------------------------------


def _set_operation(tree: exp.SetOperation, environment: Environment) -> Output:
    """UNION, INTERSECT and EXCEPT. A long chain is no deep recursion."""
    chain: list[exp.SetOperation] = []
    node: exp.Expr = tree
    while isinstance(node, exp.SetOperation) and not (chain and _is_closed(node)):
        chain.append(node)
        node = node.this  # In parentheses it is a union of its own, with types of its own.
    output = bind(node, environment)
    operations = chain[::-1]
    while operations:
        length = _alike(operations)
        rights = [bind(operation.expression, environment) for operation in operations[:length]]
        output = _combined(operations[:length], [output, *rights], environment)
        del operations[:length]
    return output


def _is_closed(node: exp.Expr) -> bool:
    return any(node.args.get(key) for key in ("order", "limit", "offset", "with_"))


def _alike(operations: Sequence[exp.SetOperation]) -> int:
    """How many of the operations are one UNION of several branches, whose types DuckDB finds together."""
    first = operations[0]
    if not isinstance(first, exp.Union) or first.args.get("by_name"):
        return 1
    kind = (type(first), first.args["distinct"], None)
    kinds = [(type(one), one.args["distinct"], one.args.get("by_name")) for one in operations]
    return next((place for place, one in enumerate(kinds) if one != kind), len(kinds))


def _combined(nodes: Sequence[exp.SetOperation], branches: list[Output], environment: Environment) -> Output:
    names = branches[0].names
    if nodes[0].args.get("by_name"):
        left, right = branches
        names = (*left.names, *(name for name in right.names if name.casefold() not in _folded(left.names)))
        branches = [_by_name(side, names, environment) for side in branches]
    types = environment.types.union([[column.type for column in one.columns] for one in branches])
    if len(branches) > 2:
        branches = [_cast(one, types, environment) for one in branches]
    kind: dict[type[exp.Expr], Any] = {exp.Union: "union", exp.Except: "except", exp.Intersect: "intersect"}

    def united(first: int, last: int) -> Term:
        """The branches from `first` to before `last`, as a balanced tree: rules recurse as deep as its height."""
        if last - first == 1:
            return branches[first].term
        middle = (first + last + 1) // 2
        node, left, right = nodes[middle - 1], united(first, middle), united(middle, last)
        columns = tuple(environment.numbers.column(name, type_) for name, type_ in zip(names, types, strict=True))
        environment.notes.note_at(columns, _operator(node, environment))
        return SetOperation(kind[type(node)], not node.args["distinct"], left, right, columns)

    return Output(united(0, len(branches)), tuple(names))


def _operator(node: exp.SetOperation, environment: Environment) -> Span | None:
    """The words between the branches."""
    whole, right = span(node), span(node.expression)
    left = span(node.this)
    if environment.notes.is_moved or whole is None or left is None or right is None:
        return environment.notes.span(node)
    between = environment.notes.text[left[1] : right[0]]
    start = left[1] + len(between) - len(between.lstrip(" \n\t\r)"))
    return start, left[1] + len(between.rstrip(" \n\t\r("))


def _cast(branch: Output, types: Sequence[str], environment: Environment) -> Output:
    """A branch with the types of the whole union; integers are the same in two steps."""
    pairs = [(column.type, type_) for column, type_ in zip(branch.columns, types, strict=True)]
    if all(own == wanted or {own, wanted} <= WHOLE for own, wanted in pairs):
        return branch
    made = []
    for column, type_ in zip(branch.columns, types, strict=True):
        if column.type == type_:
            made.append(Made(column, Ref(column)))
        else:
            value = Call(f"CAST({{0}} AS {type_})", (Ref(column),), type_, strict=True)
            made.append(Made(environment.numbers.column(column.name, type_), value))
    return Output(Map(branch.term, tuple(made)), branch.names)


def _by_name(side: Output, names: Sequence[str], environment: Environment) -> Output:
    """A side with all columns, in one order, NULL for those that it lacks."""
    own = dict(zip(_folded(side.names), side.columns))
    made = []
    for name in names:
        column = own.get(name.casefold())
        if column is None:
            made.append(Made(environment.numbers.column(name, '"NULL"'), Constant("NULL", '"NULL"')))
        else:
            made.append(Made(column, Ref(column)))
    return Output(Map(side.term, tuple(made)), tuple(names))


def _folded(names: Sequence[str]) -> list[str]:
    return [name.casefold() for name in names]


# WITH -----------------------------------------------------------------------------------------------


def _with_ctes(tree: exp.Expr, environment: Environment) -> Environment:
    with_ = tree.args.get("with_")
    if with_ is None:
        return environment
    for cte in with_.expressions:
        recursive = bool(with_.args.get("recursive")) and isinstance(_bare(cte.this), exp.Union)
        named = _recursive(cte, environment) if recursive else None
        if named is None:
            named = _common(cte, environment)
        environment = replace(environment, ctes={**environment.ctes, cte.alias.casefold(): named})
    return environment


def _bare(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, exp.Subquery) and _is_bare(tree):
        tree = tree.this
    return tree


def _common(cte: exp.CTE, environment: Environment) -> Named:
    """A query of WITH, bound where it is first used."""
    name = f"{cte.alias} {environment.numbers.next()}"
    known: list[Output] = []

    def use() -> Output:
        if not known:
            known.append(bind(cte.this, environment))
        [output] = known
        return Output(Common(name, output.term, _fresh(output.columns, environment)), _renamed(output.names, cte))

    return Named(use)


def _fresh(columns: Sequence[Column], environment: Environment) -> tuple[Column, ...]:
    return tuple(environment.numbers.column(column.name, column.type) for column in columns)


def _renamed(names: Sequence[str], cte: exp.CTE) -> tuple[str, ...]:
    written = [column.name for column in cte.args["alias"].args.get("columns") or ()]
    return (*written, *unique_names(names)[len(written) :])


def _recursive(cte: exp.CTE, environment: Environment) -> Named | None:
    """base UNION [ALL] step that names itself; None for a union that does not."""
    union = _bare(cte.this)
    assert isinstance(union, exp.Union)
    base = bind(union.this, environment)
    names = _renamed(base.names, cte)
    name = f"{cte.alias} {environment.numbers.next()}"
    columns = tuple(
        environment.numbers.column(called, column.type) for called, column in zip(names, base.columns, strict=True)
    )

    def again(whole: bool) -> Output:
        return Output(Recursive(name, _fresh(columns, environment), whole), names)

    inner = {
        cte.alias.casefold(): Named(lambda: again(False)),
        f"recurring.{cte.alias.casefold()}": Named(lambda: again(True)),
    }
    step = bind(union.expression, replace(environment, ctes={**environment.ctes, **inner}))
    if not any(isinstance(part, Recursive) and part.name == name for part in walk(step.term)):
        return None
    folded = _folded(names)
    keys = tuple(columns[folded.index(key.name.casefold())] for key in cte.args.get("key_expressions") or ())
    recursion = Recursion(name, base.term, step.term, columns, not union.args["distinct"], keys)
    output = _ordered(union, Output(recursion, names), environment)
    environment.notes.note(columns, union)

    def use() -> Output:
        return Output(Common(f"{name} rows", output.term, _fresh(columns, environment)), names)

    return Named(use)


def projected_to(term: Term, columns: Sequence[Column]) -> Term:
    """A term with these of its columns alone."""
    return term if term.columns == tuple(columns) else Map(term, passed(columns))

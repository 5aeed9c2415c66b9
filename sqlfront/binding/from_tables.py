"""FROM: tables, views, WITH queries, subqueries, VALUES and unnest, joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.binding.environment import Environment, Output
from sqlfront.binding.select_items import unique_names
from sqlfront.binding.sight import Sight, Source
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Ref,
    Scalar,
    columns_of,
    conjunction,
    conjuncts,
)
from sqlfront.planner.algebra.terms import (
    ONE_ROW,
    Common,
    Filter,
    Join,
    JoinKind,
    Made,
    Map,
    Scan,
    Term,
    Unnest,
    free_columns,
)
from sqlfront.sql import trees
from sqlfront.storage.errors import InternalError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.binding.select_block import SelectBlock

_NO_CHANGES = (
    "its rows do not come from a table whose changes can be followed",
    "put the rows into a table and name that",
)

_LISTS = ("range", "generate_series")


def named_tables(tree: exp.Expr) -> list[list[str]]:
    """The names that a query reads from; also those of WITH queries."""
    tables = (table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier))
    return [[part.name for part in table.parts] for table in tables]


def bind_from(select: exp.Select, environment: Environment) -> tuple[Term, Sight]:
    """The rows of FROM and what may be named of them; one row without columns where there is no FROM."""
    from_ = select.args.get("from_")
    outer = environment.outer
    if from_ is None:
        return ONE_ROW, Sight(outer=outer)
    term, sight = _item(from_.this, environment)
    for join in select.args.get("joins") or ():
        term, sight = _with_join(term, sight, join, environment)
    return term, replace(sight, outer=outer)


def _item(node: exp.Expr, environment: Environment) -> tuple[Term, Sight]:
    """One FROM item with the joins inside its parentheses."""
    sample = node.args.get("sample")
    if sample is not None:
        raise environment.notes.refusal("SAMPLE", node, "its result is random", "leave it out")
    if _encloses(node):
        term, sight = _item(node.this, environment)
        sight = _realiased(sight, node) if isinstance(node, exp.Subquery) else sight
    else:
        term, sight = _source(node, environment)
    for join in node.args.get("joins") or ():
        term, sight = _with_join(term, sight, join, environment)
    return term, sight


def _encloses(node: exp.Expr) -> bool:
    """Whether a FROM item is another one in parentheses, with what is joined to it."""
    inner = node.this
    if isinstance(node, exp.Table):
        return isinstance(inner, exp.Table | exp.Subquery | exp.Lateral | exp.Values)
    aliased = isinstance(inner, exp.Subquery) and (inner.args.get("alias") or inner.args.get("joins"))
    return isinstance(node, exp.Subquery) and (isinstance(inner, exp.Table | exp.Lateral) or bool(aliased))


def _source(node: exp.Expr, environment: Environment) -> tuple[Term, Sight]:
    if node.args.get("when") is not None:
        raise environment.notes.refusal("AT", node, "it reads an old state of the table", "leave AT out")
    inner = node.this if isinstance(node, exp.Lateral) else node
    if isinstance(inner, exp.Subquery):
        return _query(inner, node, environment)
    if isinstance(inner, exp.Values):
        from sqlfront.binding.query_binder import bind_values

        return _one(bind_values(inner, environment), "valueslist", (), node, environment)
    called = inner if isinstance(inner, trees.Call) else inner.this
    if isinstance(called, trees.Call):
        return _function(called, node, environment)
    if isinstance(inner, exp.Table) and isinstance(inner.this, exp.Identifier):
        return _name(inner, environment)
    raise environment.notes.refusal("This FROM item", node, *_NO_CHANGES)


def _query(query: exp.Subquery, node: exp.Expr, environment: Environment) -> tuple[Term, Sight]:
    from sqlfront.binding.query_binder import bind

    return _one(bind(query.this, environment), "unnamed_subquery", (), node, environment)


def _one(
    output: Output, name: str, qualifiers: tuple[str, ...], node: exp.Expr, environment: Environment
) -> tuple[Term, Sight]:
    """A query's rows under its alias."""
    alias = node.args.get("alias") or (node.this.args.get("alias") if isinstance(node.this, exp.Expr) else None)
    written = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
    if alias is not None and alias.this is not None:
        name, qualifiers = alias.name, ()
    names = unique_names(output.names)
    names = [*written, *names[len(written) :]]
    if not isinstance(output.term, Scan):
        _call(output.term, output.columns, name, environment)
    columns = tuple((called, Ref(column)) for called, column in zip(names, output.columns, strict=True))
    return output.term, Sight((Source(name, qualifiers, columns),))


def _call(term: Term, columns: Sequence[Column], name: str, environment: Environment) -> None:
    """Note what FROM calls the query whose columns these are, and those that they only rename."""
    environment.notes.aliases |= dict.fromkeys(columns, name)
    while isinstance(term, Map | Common):
        if isinstance(term, Map):
            values = [one.value for one in term.made if one.column in columns]
            columns = [value.column for value in values if isinstance(value, Ref)]
        else:
            columns = [old for old, use in zip(term.term.columns, term.columns) if use in columns]
        environment.notes.aliases |= dict.fromkeys(columns, name)
        term = term.input if isinstance(term, Map) else term.term


def _name(node: exp.Table, environment: Environment) -> tuple[Term, Sight]:
    """A table, a query of WITH, or a view by its name."""
    parts = [part.name for part in node.parts]
    named = environment.ctes.get(".".join(parts).casefold())
    if named is not None:
        return _one(named.use(), parts[-1], (), node, environment)
    catalog, notes = environment.catalog, environment.notes
    table = catalog.resolve(parts)
    if table is None:
        raise notes.refusal(
            f'"{".".join(parts)}"', node,
            "it is no table of this database: a DataFrame, a file, a temporary or an attached table cannot be followed",
            "create a table from it, or a change table and feed it with con.apply",
        )  # fmt: skip
    view = catalog.inlined(table)
    if view is not None:
        return _view(table, *view, node, environment)
    columns = catalog.columns(table)
    if columns is None:
        raise ProgrammingError(f"Table {table} does not exist", where=notes.where(node))
    read: list[tuple[str, Column]] = []
    for name, type_, _ in columns:
        read.append((name, environment.numbers.column(name, type_)))
    if collations := catalog.collations(table):
        from sqlfront.binding.collation_types import Collation

        notes.collates = True
        notes.collated |= {
            column: Collation(collations[name.lower()]) for name, column in read if name.lower() in collations
        }
    scan = Scan(catalog.parts(table), tuple(read), node.alias_or_name)
    for _, column in read:
        notes.note(("table", column), node)
    schema = scan.table[-2]
    qualifiers = (parts[0], schema) if len(parts) == 3 else (schema,)
    return _one(Output(scan, tuple(name for name, _ in read)), parts[-1], qualifiers, node, environment)


def _view(
    table: str, names: Sequence[str], select: str, node: exp.Table, environment: Environment
) -> tuple[Term, Sight]:
    """A view's query in its place; its own column list renames."""
    from sqlfront.binding.query_binder import bind
    from sqlfront.sql.dialect import parse_one
    from sqlfront.sql.pivots import without_pivots

    if table in environment.views:
        raise InternalError(f"View {table} reads itself")
    inside = replace(environment.apart(), views=environment.views | {table})
    with environment.notes.moved_to(node):
        output = bind(without_pivots(parse_one(select), environment.con), inside)
    called = unique_names(output.names)
    renamed = (*names, *called[len(names) :])
    return _one(Output(output.term, renamed), node.name, (environment.catalog.parts(table)[-2],), node, environment)


def _function(called: trees.Call, node: exp.Expr, environment: Environment) -> tuple[Term, Sight]:
    """unnest(list), whose rows are the elements, and the functions that make a list of numbers or times."""
    from sqlfront.binding.select_block import SelectBlock

    name = called.name.casefold()
    if name not in (*_LISTS, "unnest", "unlist") or (name not in _LISTS and len(called.expressions) != 1):
        raise environment.notes.refusal(f"The table function {name}", node, *_NO_CHANGES)
    block = SelectBlock(environment)
    bound = block.expressions.bind(called if name in _LISTS else called.expressions[0])
    block.refuse_subqueries(node)
    element = Call("list_extract({0}, 1)", (bound,), "", can_fail=False)
    values, typed = environment.types.typed([bound, element])
    if values.type.startswith(("STRUCT", "MAP")):
        why, hint = "it makes several columns of one", "name the fields"
        raise environment.notes.refusal("unnest of a struct", node, why, hint)
    made = Made(environment.numbers.column(name, typed.type), values)
    position = environment.numbers.column("ordinality", "BIGINT") if node.args.get("ordinality") else None
    term = Unnest(ONE_ROW, (made,), position)
    names = (name if name in _LISTS else "unnest", "ordinality")[: len(term.columns)]
    return _one_column(*_one(Output(term, names), names[0], (), node, environment), names[0])


def _one_column(term: Term, sight: Sight, name: str) -> tuple[Term, Sight]:
    """A function's rows. Their one column has the name of the alias, and can be named as the function, too."""
    [source] = sight.sources
    [(called, value), *rest] = source.columns
    if rest or called != name or source.name == name:
        return term, sight
    columns = ((source.name, value), (name, value))
    return term, Sight((replace(source, columns=columns),), frozenset({(0, name)}))


def _realiased(sight: Sight, node: exp.Subquery) -> Sight:
    """Joined tables in parentheses under one alias."""
    alias = node.args.get("alias")
    if alias is None:
        return sight
    visible = sight.visible()
    written = [column.name for column in alias.args.get("columns") or ()]
    names = unique_names([name for _, name, _ in visible])
    names = [*written, *names[len(written) :]]
    return Sight((Source(alias.name, (), tuple((name, value) for name, (_, _, value) in zip(names, visible))),))


# Joins ----------------------------------------------------------------------------------------------


def _with_join(left: Term, sight: Sight, node: exp.Expr, environment: Environment) -> tuple[Term, Sight]:
    notes = environment.notes
    if isinstance(node, trees.Pivot):
        word = "UNPIVOT" if node.args.get("unpivot") else "PIVOT"
        raise notes.refusal(word, node, *_NO_CHANGES)
    kind, right_first = _kind(node, environment)
    beside = replace(environment, outer=replace(sight, outer=environment.outer))
    right, other = _item(node.this, beside)
    both = sight.joined(other)
    names = _using(node, sight, other)
    merged, pairs = _merged(names, sight, other, both, kind, right_first)
    block, on = _on(node, merged, environment)
    condition = conjunction([*pairs, on])
    dependent = bool(free_columns(right) & frozenset(left.columns))
    if kind == "as-of" or kind == "as-of left":
        condition = _inequality_last(condition, frozenset(left.columns))
    if right_first and dependent:
        why, hint = "its left side depends on its right one", "write it as LEFT JOIN"
        raise notes.refusal("A RIGHT JOIN with LATERAL", node, why, hint)
    if block.subqueries.waiting and kind != "inner":
        left, right = _with_subqueries(left, right, dependent, block)
    if block.subqueries.waiting and kind in ("left", "full", "semi", "anti") and not dependent:
        from sqlfront.binding.paired_rows import joined_through_pairs

        sides = (right, left) if right_first else (left, right)
        term: Term = joined_through_pairs(kind, *sides, condition, block.subqueries, environment)
    elif block.subqueries.waiting and kind != "inner":
        why, hint = "whether rows pair depends on the rows of another query", "compute its value in one side first"
        raise notes.refusal("A subquery in ON over both sides", node.args["on"], why, hint)
    elif right_first:
        term = Join(kind, right, left, condition)
    elif block.subqueries.waiting:
        term = block.subqueries.filtered(Join(kind, left, right, TRUE, dependent), condition)
    elif dependent and kind == "inner" and condition != TRUE:
        term = Filter(Join(kind, left, right, TRUE, True), condition)
    else:
        term = Join(kind, left, right, condition, dependent)
    for column in (left if right_first else right).columns:
        notes.note(("join", column), node)
    return term, (sight if kind in ("semi", "anti") else merged)


def _with_subqueries(left: Term, right: Term, dependent: bool, block: SelectBlock) -> tuple[Term, Term]:
    """The sides of a join with the columns of those subqueries in its condition that read one side, which is there."""
    subqueries = block.subqueries
    for column, one in list(subqueries.waiting.items()):
        read = {*free_columns(one.term), *columns_of(one.condition)} - {*one.term.columns, *subqueries.waiting}
        if read <= set(left.columns):
            left = subqueries.attached(left, [Ref(column)])
        elif read <= set(right.columns) and not dependent:
            right = subqueries.attached(right, [Ref(column)])
    return left, right


def _kind(node: exp.Expr, environment: Environment) -> tuple[JoinKind, bool]:
    """The kind of a join, and whether its sides change places."""
    side, kind, method = (str(node.args.get(key) or "").upper() for key in ("side", "kind", "method"))
    if kind == "POSITIONAL" or node.args.get("nearest") is not None:
        what = "POSITIONAL JOIN" if kind == "POSITIONAL" else "A NEAREST JOIN"
        why = "it pairs rows by position, order or outer columns"
        raise environment.notes.refusal(what, node, why, "join on equal columns")
    if method == "ASOF":
        if side in ("RIGHT", "FULL"):
            why, hint = "a row of the right has no nearest one", "write it as ASOF LEFT JOIN"
            raise environment.notes.refusal(f"ASOF {side} JOIN", node, why, hint)
        return ("as-of left" if side == "LEFT" else "as-of"), False
    if kind in ("SEMI", "ANTI"):
        return ("semi" if kind == "SEMI" else "anti"), False
    return ("full" if side == "FULL" else "left" if side else "inner"), side == "RIGHT"


def _using(node: exp.Expr, left: Sight, right: Sight) -> list[str]:
    if str(node.args.get("method") or "").upper() == "NATURAL":
        names = {name.casefold() for _, name, _ in right.visible()}
        return [name for _, name, _ in left.visible() if name.casefold() in names]
    return [one.name for one in node.args.get("using") or ()]


def _merged(
    names: Sequence[str], left: Sight, right: Sight, both: Sight, kind: JoinKind, right_first: bool
) -> tuple[Sight, list[Scalar]]:
    """USING: the equalities, and one column of each two in sight."""
    pairs: list[Scalar] = []
    hidden, merged = set(both.hidden), dict(both.merged)
    for name in names:
        folded = name.casefold()
        one, other = left.column(folded), right.column(folded)
        if one is None or other is None:
            raise InternalError(f"DuckDB joins USING ({name}), which one side does not have")
        # The last column of an as-of join is the one in order.
        is_last = kind in ("as-of", "as-of left") and name == names[-1]
        pairs.append(Compare(">=" if is_last else "=", one, other))
        shift = len(left.sources)
        for place, source in enumerate(right.sources):
            if source.column(folded) is not None and (place, folded) not in right.hidden:
                hidden.add((place + shift, folded))
        if kind == "full":
            merged[folded] = Call("coalesce({0}, {1})", (one, other), "", can_fail=False)
        elif right_first:
            merged[folded] = other
        else:
            merged.pop(folded, None)
            if left.column(folded) != both.column(folded):
                merged[folded] = one
    return replace(both, hidden=frozenset(hidden), merged=tuple(merged.items())), pairs


def _on(node: exp.Expr, sight: Sight, environment: Environment) -> tuple[SelectBlock, Scalar]:
    """The condition of ON, and the block whose subqueries it reads."""
    from sqlfront.binding.select_block import SelectBlock

    on = node.args.get("on")
    block = SelectBlock(environment, replace(sight, outer=environment.outer))
    if on is None:
        return block, TRUE
    values = [block.expressions.bind(on), *block.subqueries.untyped()]
    known = dict(zip(values, environment.types.typed(values), strict=True))
    block.subqueries.retype(known)
    return block, known[values[0]]


def _inequality_last(condition: Scalar, left: frozenset[Column]) -> Scalar:
    """The condition of an as-of join with the inequality of its two sides at the end."""
    parts = conjuncts(condition)
    nearest = [one for one in parts if _tells_nearest(one, left)]
    return conjunction([*(one for one in parts if one not in nearest), *nearest])


def _tells_nearest(one: Scalar, left: frozenset[Column]) -> bool:
    if not isinstance(one, Compare) or one.operator not in ("<", "<=", ">", ">="):
        return False
    ours, others = columns_of(one.left), columns_of(one.right)
    return bool(ours and others) and (ours <= left) != (others <= left)

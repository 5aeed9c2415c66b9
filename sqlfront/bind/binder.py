"""From a SELECT to the planner's Definition: DuckDB parses, names and types; this decides what is maintained how.

The steps, one file each: sql/parse_tree.py reads DuckDB's tree. from_clause.py inlines FROM and WHERE into atoms and
conditions. conditions.py finds the equality classes. select_list.py and aggregates.py turn the SELECT list into free
variables, measures and a projection. leaves.py writes the expressions that each table's leaf computes. Blocks that are
no part of the join become views of their own in blocks_of.py, and unions relations of several views in
set_operations.py. Text is rewritten before binding by `define/build.py: rewritten`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlfront.bind.aggregates import Aggregates, SummedArguments
from sqlfront.bind.blocks_of import DerivedBlocks
from sqlfront.bind.branch_orders import with_branches
from sqlfront.bind.conditions import split_conditions
from sqlfront.bind.distinct_arguments import DistinctArguments
from sqlfront.bind.exists import count_for_exists
from sqlfront.bind.from_clause import Environment, JoinCore, bind_block, select_items
from sqlfront.bind.functions import Functions, check_functions, check_projection, check_rows
from sqlfront.bind.leaves import Leaves
from sqlfront.bind.orderings import bind_orders, with_hidden
from sqlfront.bind.refusals import EXPRESSIONS, refusal
from sqlfront.bind.requested_order import NOTHING, RequestedOrder, composing_over, read_requested, take_requested
from sqlfront.bind.result_types import Typing
from sqlfront.bind.select_list import Selection, aggregates_of, bind_output, leaf_expressions, read_selection
from sqlfront.bind.set_operations import as_select, typed_select, uneven_branch
from sqlfront.bind.table_catalog import CatalogView, DuckDBCatalog
from sqlfront.planner.model.query import Definition
from sqlfront.sql.parse_tree import (
    SourceText,
    Tree,
    atoms_of,
    columns_of,
    key,
    parse_select,
    quoted,
    render,
    render_all,
    span,
)
from sqlfront.sql.tokens import tokenize
from sqlfront.storage.errors import InternalError, NotSupportedError, ProgrammingError


def bind_view(
    sql_select: str,
    con: Any,
    catalog: CatalogView | None = None,
    *,
    column_names: tuple[str, ...] = (),
    order_by: tuple[str, ...] = (),
    statement: str | None = None,
    offset: int = 0,
) -> Definition:
    """The definition of the view that `sql_select` describes.

    `con` is a DuckDB cursor without an open result: it binds names and types, no table is read.
    `catalog` defaults to DuckDB's own. `column_names` rename the first output columns, as in
    CREATE VIEW v (a, b); `order_by` are orders besides that of ORDER BY. For carets, `statement` is what the
    user wrote and `offset` where the SELECT stands in it.

    Raises ProgrammingError when DuckDB refuses the query, NotSupportedError when it is valid SQL
    that views do not support: the message names the construct, the place, the reason and a rewrite.
    """
    source = SourceText(statement if statement is not None else sql_select, offset)
    catalog = catalog if catalog is not None else DuckDBCatalog(con)
    functions = Functions(con, catalog.has_macros())
    written = parse_select(sql_select, source)
    parsed, modifiers = take_requested(as_select(written), source)
    node, unread = count_for_exists(parsed, functions.is_aggregate, source)
    columns = _describe(sql_select, con, source, column_names, written)
    blocks = DerivedBlocks(con, partial(_bind_core, con, functions))
    environment = Environment(catalog, source, functions.is_aggregate, blocks)
    core = JoinCore()
    scope, environment = bind_block(node, environment, core)
    if not core.atoms:
        why = "there is no table whose changes could be followed"
        at = (source.start, source.start + len(sql_select))
        raise refusal("A query without a table", source, at, why, "create a table or an ordinary view")
    selection = read_selection(node, scope, environment)
    asked = read_requested(con, node, modifiers, order_by, selection, scope, environment, core)
    inner = [tree for _, tree in select_items(node | {"select_list": unread}, scope, environment)]
    names = [name for name, _ in columns]
    definition = _bind_core(con, functions, core, selection, environment, inner, asked, names)
    if [kind for _, kind in definition.columns] != [kind for _, kind in columns]:
        raise InternalError(f"The view's projection has types {definition.columns}, the query has {columns}")
    derived, unions = tuple(blocks.definitions.items()), tuple(blocks.unions.items())
    definition = with_branches(definition, blocks.branches)
    return replace(definition, columns=columns, derived=derived, unions=unions, boolean=node is not parsed)


def _bind_core(
    con: Any,
    functions: Functions,
    core: JoinCore,
    selection: Selection,
    environment: Environment,
    unread: list[Tree] | None = None,
    asked: RequestedOrder = NOTHING,
    columns: Sequence[str] = (),
) -> Definition:
    """The definition of one query block, whose columns are called as in its selection."""
    source, names = environment.source, [name for name, _ in selection.items]
    selection = with_hidden(selection, asked.orderings, asked.partition)
    typing = Typing(con, core.atoms)
    _check_values(core, selection, unread or [], typing, functions, con, source)
    conditions = split_conditions(core, typing, source)
    leaves = Leaves(core.atoms, conditions, typing, source)
    summed = SummedArguments(aggregates_of(selection, functions.is_aggregate), selection.scalar)
    distinct_sets = DistinctArguments(con, core, selection.groups, leaves, typing, environment)
    aggregates = Aggregates(con, typing, leaves, distinct_sets, source, core.atoms[0].name, summed)
    output = bind_output(selection, leaves, aggregates, typing, functions.is_aggregate, source)
    if selection.mode == "group":
        computed = [*output.projection, *([output.having] if output.having else [])]
        check_projection(computed, {raw.name: raw.type for raw in output.raw}, con, functions, source)
    projection = render_all(output.projection)
    orders = bind_orders(
        asked.orderings,
        selection,
        projection,
        columns,
        leaves,
        typing,
        composing_over(core, typing, environment),
        lambda tree: _constant(con, tree),
    )
    places = {key(tree): place for place, (_, tree) in reversed(list(enumerate(selection.items)))}
    by = tuple(projection[places[key(tree)]] for tree in asked.partition)
    whole = selection.mode == "group" or any(len(atoms_of(tree)) != 1 for tree in asked.partition)
    apart = None if whole else tuple(dict.fromkeys(map(leaves.variable, asked.partition)))
    definition = Definition(
        atoms=leaves.build(),
        free=tuple(output.free),
        mode=selection.mode,
        measures=aggregates.measures,
        raw=tuple(output.raw),
        projection=tuple(projection[: len(names)]),
        having=render(output.having) if output.having else None,
        scalar=selection.scalar,
        labels=leaves.labels(),
        distinct_sets=distinct_sets.build(),
        orders=orders,
        limit=None if asked.limit is None else replace(asked.limit, by=by, variables=apart),
        comparisons=leaves.comparisons,
    )
    types = _output_types(definition, con)
    return replace(definition, columns=tuple(zip(names, types, strict=True)))


def _describe(
    sql: str, con: Any, source: SourceText, column_names: tuple[str, ...], node: Tree
) -> tuple[tuple[str, str], ...]:
    """Names and types as CREATE VIEW would have them: a second column `a` is called a_1."""
    import duckdb

    try:
        con.execute(f"{_DESCRIBE}{sql}")
        names = f" ({', '.join(map(quoted, column_names))})" if column_names else ""
        rows = con.execute(f"{_DESCRIBE}SELECT * FROM ({sql}\n) AS query{names}").fetchall()
    except duckdb.Error as error:
        raise _refused_by_duckdb(error, sql, source, node) from error
    return tuple((row[0], row[1]) for row in rows)


_DESCRIBE = "DESCRIBE "


def _refused_by_duckdb(
    error: Exception, sql: str, source: SourceText, node: Tree
) -> ProgrammingError | NotSupportedError:
    """DuckDB's own words, with the place in the user's statement."""
    message, _, where = str(error).partition("\n\nLINE ")
    if "Values were not provided" in message:
        at = next(((t.start, t.end) for t in tokenize(source.statement, source.start) if t.kind == "parameter"), None)
        return refusal("A parameter", source, at, *EXPRESSIONS["PARAMETER"][1:])
    lines = where.split("\n")
    number, _, text = lines[0].partition(": ")
    if len(lines) < 2 or not number.isdigit():
        uneven = "same number of result columns" in message
        return ProgrammingError(message, where=source.where(uneven_branch(node, source)) if uneven else None)
    shown = text.removeprefix("...").removesuffix("...")
    asked = _DESCRIBE + sql
    begin = sum(len(line) + 1 for line in asked.split("\n")[: int(number) - 1])
    place = asked.find(shown, begin) + lines[1].find("^") - lines[0].index(shown) - len("LINE ") - len(_DESCRIBE)
    place += source.start
    return ProgrammingError(message, where=source.where((place, place + lines[1].count("^"))))


def _check_values(
    core: JoinCore,
    selection: Selection,
    unread: list[Tree],
    typing: Typing,
    functions: Functions,
    con: Any,
    source: SourceText,
) -> None:
    """Refuse collations and everything whose value the session decides; `unread` is computed and not put out."""
    if con.execute("SELECT current_setting('default_collation')").fetchone()[0]:
        raise NotSupportedError(
            "A view under a default_collation is not supported",
            why="equality under a collation is not equality of values, which joins and groups rely on.",
            hint="RESET default_collation",
        )
    collated = {(a.name, c[0]) for a in core.atoms for c in a.columns if " COLLATE " in c[1].upper()}
    trees = [*core.conditions, *leaf_expressions(selection, functions.is_aggregate), *unread]
    for tree in trees:
        if columns_of(tree) & collated:
            why = "equality under a collation is not equality of values, which joins and groups rely on"
            raise refusal("A collated column", source, span(tree), why, "use a column without a collation")
    opaque = {(a.name, c[0]): c[1] for a in core.atoms for c in a.columns if _OPAQUE.search(c[1])}
    for tree in trees:
        for column in sorted(columns_of(tree) & set(opaque) if tree["class"] != "COLUMN_REF" else ()):
            why = "DuckDB cannot read its values back from the changed rows, so the expression cannot be computed"
            what = f"An expression over a column of type {opaque[column]}"
            raise refusal(what, source, span(tree), why, "store its value in a column of a plain type")
    typing.learn(trees)
    typing.types_of(aggregates_of(selection, functions.is_aggregate))
    outputs = [tree for _, tree in selection.items] + ([selection.having] if selection.having else [])
    check_functions(trees, outputs, typing, functions, source)
    own = {atom.name for atom in core.atoms}
    check_rows([tree for tree in core.inlined if atoms_of(tree) <= own], typing, source)


_OPAQUE = re.compile(r"\b(VARIANT|GEOMETRY)\b")


def _constant(con: Any, tree: Tree) -> Any:
    return con.execute(f"SELECT {render(tree)}").fetchone()[0]


def _output_types(definition: Definition, con: Any) -> list[str]:
    """The types of the projection over the raw columns."""
    return [row[1] for row in con.execute(f"DESCRIBE {typed_select(definition)}").fetchall()]

"""A view's query, from its text to the planner's Definition: parsed, guarded, bound, normalised, cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sqlfront.binding.catalog_facts import facts_of
from sqlfront.binding.from_tables import named_tables
from sqlfront.binding.notes import Notes
from sqlfront.binding.query_binder import Bound, bind_query
from sqlfront.binding.session_settings import Pairs, Settings
from sqlfront.binding.table_catalog import CatalogView, DuckDBCatalog
from sqlfront.cut.completed_orders import are_written, complete_orders, complete_term
from sqlfront.cut.computed_groups import with_temporal_filters
from sqlfront.cut.pulled_windows import are_pulled
from sqlfront.cut.query_blocks import Blocks
from sqlfront.cut.session_values import check_session
from sqlfront.cut.union_branches import with_branches
from sqlfront.cut.windows.run_blocks import with_runs
from sqlfront.planner.algebra.clock import mark_clock
from sqlfront.planner.algebra.rewriting import walk_once
from sqlfront.planner.algebra.rules.all_rules import normalise
from sqlfront.planner.algebra.scalars import TRUE, Compare, Constant, Ref, substitute
from sqlfront.planner.algebra.terms import (
    ONE_ROW,
    Aggregate,
    Aggregated,
    Join,
    Made,
    Map,
    SetOperation,
    Term,
    Top,
    Window,
)
from sqlfront.planner.algebra.to_sql import to_sql
from sqlfront.planner.model.query import Definition
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one, parse_query, printed
from sqlfront.sql.guard import Shown, check_same_meaning, described
from sqlfront.sql.pivots import reads_values
from sqlfront.storage.errors import InternalError, NotSupportedError, ProgrammingError

MOST_COLUMNS, MOST_BRANCHES, DEEPEST = 1_000, 500, 64
"""The limits of a view's query: output columns, branches of set operations, levels of subqueries and of brackets."""
_BRACKETS = (exp.Paren, exp.Case, exp.Cast, exp.Not, exp.Neg, exp.Bracket, exp.Tuple, exp.Lambda, exp.Anonymous)

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ViewQuery:
    """A view's definition, the tree of its query, and the session's settings. The tree's orders decide every tie."""

    definition: Definition
    tree: exp.Expr
    settings: Settings

    @property
    def completed(self) -> str:
        """The query's text."""
        return printed(self.tree)


def bind_view(
    sql_select: str,
    con: Any,
    catalog: CatalogView | None = None,
    *,
    column_names: tuple[str, ...] = (),
    order_by: tuple[str, ...] = (),
    statement: str | None = None,
    offset: int = 0,
    tree: exp.Expr | None = None,
    saves_space: bool = False,
    in_shards: bool = False,
) -> ViewQuery:
    """The definition of the view that `sql_select` describes.

    `con` is a DuckDB cursor without an open result: it binds names and types, no table is read.
    `catalog` defaults to DuckDB's own. `column_names` rename the first output columns, as in
    CREATE VIEW v (a, b); `order_by` are orders besides that of ORDER BY; if the view `saves_space`, it is to store no
    rows of several tables; or it is computed `in_shards`. For carets, `statement` is what the
    user wrote and `offset` where the SELECT stands in it. `tree` is what `parse_query` read, if that has been done and
    the catalog expects its names; it is changed.

    Raises ProgrammingError when DuckDB refuses the query, NotSupportedError when it is valid SQL
    that views do not support: the message names the construct, the place, the reason and a rewrite.
    """
    whole = statement if statement is not None else sql_select
    catalog = catalog if catalog is not None else DuckDBCatalog(con)
    if tree is None:
        tree = parse_query(sql_select, whole, offset)
        catalog.expect(named_tables(tree))
    if not isinstance(tree, exp.Query | exp.Values):
        raise ProgrammingError("A view's query must be a SELECT")
    _check_tree(tree, Notes(whole))
    if statement is not None:  # A stored query is deeper: its tables are subqueries.
        _check_limits(tree, Notes(whole))
    shown = Shown(whole, offset)
    text = printed(tree)
    if text != sql_select:
        check_same_meaning(con, sql_select, text, shown)
    columns = described(con, sql_select, column_names, shown)
    if statement is not None and len(columns) > MOST_COLUMNS:
        raise _too_many_columns(len(columns), Notes(whole), tree)
    orders = [_order(one) for one in order_by]
    bound = bind_query(tree, whole, con, catalog, orders)
    marked, clock = mark_clock(bound.term)
    bound = replace(bound, term=marked)
    settings = check_session(bound, con, reads_clock=bool(clock))
    facts = replace(facts_of(catalog), is_eager=True, saves_space=saves_space, in_shards=in_shards)
    term, boolean = _counted(normalise(bound.term, facts), bound)
    blocks = Blocks(bound, con, catalog, facts, term)
    blocks.more_labels = list(order_by)
    if clock:
        term = with_temporal_filters(term, clock, blocks)
    if any(isinstance(part, Window) for part in walk_once(term)):
        term = with_runs(term, blocks, lambda window: are_pulled(window, blocks))
    definition = blocks.definition(term, bound.names, bound.more, [name for name, _ in columns])
    if [kind for _, kind in definition.columns] != [kind for _, kind in columns]:
        raise InternalError(f"The view's projection has types {definition.columns}, the query has {columns}")
    definition = with_branches(definition, blocks.branches)
    derived, unions = tuple(blocks.definitions.items()), tuple(blocks.unions.items())
    notes = (*definition.notes, *blocks.told)
    definition = replace(definition, columns=columns, derived=derived, unions=unions, boolean=boolean, notes=notes)
    definition = replace(_under(definition, settings), collations=_collations(bound.term, columns, bound.notes))
    return ViewQuery(definition, _completed(bound, term, blocks, columns), bound.settings)


def _completed(bound: Bound, term: Term, blocks: Blocks, columns: Columns) -> exp.Expr:
    """The query with its orders completed: the text as it is written, or printed from the term where it cannot be."""
    collates = bound.notes.collates
    computed = blocks.completed and any(part in blocks.completed for part in walk_once(term))
    if not collates and not computed and are_written(bound.notes, blocks.settled):
        complete_orders(bound.tree, bound.notes, blocks.settled)
        return bound.tree
    settled = complete_term(term, bound.notes, blocks.settled, blocks.completed, blocks.new)
    if collates:
        settled = _over_tables(settled, bound)
    named = [(column, name) for column, (name, _) in zip(settled.columns, columns, strict=False)]
    return parse_one(to_sql(settled, named))


def _collations(term: Term, columns: Columns, notes: Notes) -> Columns:
    """The collations of a view's columns, by their names: those who read the view compare its texts by them."""
    found = ((name, notes.collated.get(column)) for column, (name, _) in zip(term.columns, columns, strict=False))
    return tuple((name, one.name) for name, one in found if one is not None and not one.parts)


def _over_tables(term: Term, bound: Bound) -> Term:
    from sqlfront.binding.collations import over_tables

    return over_tables(term, bound.term, bound.notes)


def _under(definition: Definition, settings: Pairs) -> Definition:
    """The definition and all inside it, computed under settings."""
    return replace(
        definition,
        settings=settings,
        derived=tuple(
            (table, _under(block, settings) if isinstance(block, Definition) else block.under(settings))
            for table, block in definition.derived
        ),
        distinct_sets=tuple(replace(s, definition=_under(s.definition, settings)) for s in definition.distinct_sets),
        branches=tuple(replace(one, definition=_under(one.definition, settings)) for one in definition.branches),
    )


def _check_tree(tree: exp.Expr, notes: Notes) -> None:
    """Refuse what DuckDB would refuse without a place."""
    parameter = tree.find(exp.Placeholder)
    if parameter is not None:
        why = "a view's query is fixed when it is created"
        hint = "write the value, or keep the column in the view and filter when you read it"
        raise notes.refusal("A parameter", parameter, why, hint)
    for pivot in tree.find_all(trees.PivotQuery, trees.Pivot):
        if reads_values(pivot):  # DuckDB would read rows of ours, and wait for the lock that CREATE holds.
            why, hint = "its columns come from its rows", "list the values in IN (...)"
            raise notes.refusal("PIVOT", pivot, why, hint)
    for operation in tree.find_all(exp.SetOperation):
        lists = [_listed(side) for side in (operation.this, operation.expression)]
        if None not in lists and not operation.args.get("by_name") and len(lists[0] or ()) != len(lists[1] or ()):
            places = [place for item in lists[1] or () if (place := notes.span(item))]
            where = notes.where((places[0][0], places[-1][1])) if places else None
            raise ProgrammingError(
                "Set operations can only apply to expressions with the same number of result columns", where=where
            )


def _check_limits(tree: exp.Expr, notes: Notes) -> None:
    """NotSupportedError for a query with too many branches, or nested too deeply. A chain is one level."""
    branches, last = 1, tree
    waiting: list[tuple[exp.Expr, int, int]] = [(tree, 0, 0)]
    while waiting:
        node, queries, brackets = waiting.pop()
        if isinstance(node, exp.SetOperation):
            last = node.expression if branches == 1 else last
            branches += 1
        if branches > MOST_BRANCHES:
            why = f"its set operations have more than {MOST_BRANCHES} branches, and each is a view of its own"
            hint = f"make views of some branches, at most {MOST_BRANCHES} each, and a UNION ALL of these"
            raise notes.refusal("A query of this many branches", last, why, hint)
        is_query = isinstance(node, exp.Select | exp.SetOperation) and node is not tree
        if is_query and not isinstance(node.parent, exp.SetOperation):
            queries, brackets = queries + 1, 0
        brackets += isinstance(node, _BRACKETS)
        if queries > DEEPEST or brackets > DEEPEST:
            what = "A subquery" if queries > DEEPEST else "An expression"
            hint = (
                "make a view of an inner part, and read that"
                if queries > DEEPEST
                else ("compute an inner part in a subquery, WITH, or a view, and name its column here")
            )
            raise notes.refusal(f"{what} nested this deeply", node, f"it stands more than {DEEPEST} levels deep", hint)
        waiting += [(child, queries, brackets) for child in node.iter_expressions(reverse=True)]


def _too_many_columns(count: int, notes: Notes, tree: exp.Expr) -> NotSupportedError:
    """The error for a view of more than MOST_COLUMNS columns."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    item = (tree.expressions or [tree])[min(MOST_COLUMNS, len(tree.expressions) - 1)]
    why = f"it has {count:,} columns, and a view has at most {MOST_COLUMNS:,}"
    return notes.refusal("A query of this many columns", item, why, "make several views, each with the key columns")


def _listed(tree: exp.Expr) -> list[exp.Expr] | None:
    """The items of a branch; None if a star hides how many there are."""
    while isinstance(tree, exp.Subquery | exp.SetOperation):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        return None
    hidden = any(item.is_star or isinstance(item, exp.Star) or item.find(trees.Star) for item in tree.expressions)
    return None if hidden else list(tree.expressions)


def _order(text: str) -> exp.Order:
    """The items of an order besides that of ORDER BY."""
    hint = "for example 'a + b DESC, c'"
    try:
        tree = parse_one(f"SELECT 1 ORDER BY {text}")
    except ProgrammingError:
        tree = exp.Null()
    order = tree.args.get("order")
    if order is None or any(tree.args.get(key) for key in ("limit", "offset")):
        raise ProgrammingError(f"order_by = '{text}' is no ORDER BY list", hint=hint)
    found: exp.Order = order
    return found


def _counted(term: Term, bound: Bound) -> tuple[Term, bool]:
    """`SELECT EXISTS (SELECT ...)` as a count of the inner query's rows, and whether the query is that."""
    below = term.input if isinstance(term, Map) else term
    if not isinstance(term, Map) or not isinstance(below, Join) or below.kind != "mark":
        return term, False
    if below.left != ONE_ROW or below.condition != TRUE or below.dependent:
        return term, False
    inner = below.right
    if isinstance(inner, Top) and inner.offset is None and isinstance(inner.limit, Constant) and inner.limit.sql != "0":
        inner = inner.input
    if isinstance(inner, SetOperation) and inner.kind == "union":
        inner = replace(inner, all=True)
    assert below.mark is not None
    count = replace(below.mark, name="count", type="BIGINT")
    bound.notes.note_at(count, bound.notes.place(below.mark))
    counted = Aggregate(inner, (), (Aggregated(count, "count({before}{behind})"),))
    exists = Compare(">", Ref(count), Constant("0", "INTEGER"))
    made = tuple(Made(one.column, substitute(one.value, {below.mark: exists})) for one in term.made)
    return Map(counted, made), True

"""The SELECT list: which variables are free, which aggregates are kept, and the projection the user sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlfront.bind.aggregates import Aggregates
from sqlfront.bind.from_clause import Environment, select_items
from sqlfront.bind.leaves import Leaves
from sqlfront.bind.refusals import check_expression, keyword, refusal
from sqlfront.bind.result_types import Typing
from sqlfront.bind.scope import Scope, resolve
from sqlfront.planner.model.query import Mode, RawColumn
from sqlfront.sql.parse_tree import SourceText, Tree, atoms_of, children, key, span, transform, walk
from sqlfront.storage.errors import InternalError


@dataclass
class Selection:
    """A query's output before it is bound to leaves: resolved trees.

    `groups` is None without grouping; `having` may use aggregates. `scalar` marks aggregation of everything.
    The last `hidden` items are compared by orders and not put out.
    """

    mode: Mode
    items: list[tuple[str, Tree]]
    groups: list[Tree] = field(default_factory=list)
    having: Tree | None = None
    scalar: bool = False
    hidden: int = 0


@dataclass
class Output:
    """The projection over raw columns, as trees whose columns are raw column names."""

    free: list[str]
    raw: list[RawColumn]
    projection: list[Tree]
    having: Tree | None = None


def read_selection(node: Tree, scope: Scope, environment: Environment) -> Selection:
    """What the SELECT list, GROUP BY, HAVING and DISTINCT ask for. Raises NotSupportedError."""
    items = select_items(node, scope, environment)
    is_aggregate = environment.is_aggregate
    distinct = any(modifier["type"] == "DISTINCT_MODIFIER" for modifier in node["modifiers"])
    group_all = node["aggregate_handling"] != "STANDARD_HANDLING"
    groups = _groups(node, items, scope, environment) if not group_all else _all_groups(items, is_aggregate)
    having = _having(node, items, groups, scope, environment)
    aggregated = any(_aggregates(tree, is_aggregate) for _, tree in items) or having is not None
    if not (groups or aggregated or node["group_sets"]):
        return Selection("set" if distinct else "bag", items)
    if distinct:
        why = "it is a second grouping over the groups"
        hint = "leave DISTINCT out when the group columns are put out, else apply it when you read the view"
        raise refusal(
            "SELECT DISTINCT with GROUP BY or aggregates",
            environment.source,
            keyword(environment.source, ("distinct",)),
            why,
            hint,
        )
    scalar = not node["group_expressions"] and not groups
    return Selection("group", items, groups, having, scalar)


def bind_output(
    selection: Selection,
    leaves: Leaves,
    aggregates: Aggregates,
    typing: Typing,
    is_aggregate: Callable[[str], bool],
    source: SourceText,
) -> Output:
    """Bind the selection to variables and measures. Raises NotSupportedError."""
    if selection.mode != "group":
        return _bind_rows(selection, leaves, source)
    free, replaced = [], {}
    for group in selection.groups:
        atoms = atoms_of(group)
        if len(atoms) > 1:
            why = "a group column must be computed from one table's row"
            hint = "group by the columns it uses and compute it when you read the view"
            raise refusal("GROUP BY an expression over several tables", source, span(group), why, hint)
        if atoms:
            free.append(leaves.variable(group))
            replaced[key(group)] = leaves.reference(group)
    free = list(dict.fromkeys(free))
    substitute = _Substitution(replaced, free, leaves, aggregates, is_aggregate, source)
    projection = [substitute(tree) for _, tree in selection.items]
    having = substitute(selection.having) if selection.having else None
    if not aggregates.measures:
        aggregates.count_rows()
    return Output(free, [*_variables(free, leaves), *aggregates.raw], projection, having)


def aggregates_of(selection: Selection, is_aggregate: Callable[[str], bool]) -> list[Tree]:
    """The aggregate calls of the output."""
    trees = [tree for _, tree in selection.items] + ([selection.having] if selection.having else [])
    return [aggregate for tree in trees for aggregate in _aggregates(tree, is_aggregate)]


def leaf_expressions(selection: Selection, is_aggregate: Callable[[str], bool]) -> list[Tree]:
    """The expressions of the output that rows are evaluated by: group columns, arguments, filters, plain items."""
    if selection.mode != "group":
        return [tree for _, tree in selection.items]
    arguments = [part for aggregate in aggregates_of(selection, is_aggregate) for part in children(aggregate)]
    return [*selection.groups, *arguments]


class _Substitution:
    """Replaces group columns and aggregates by the raw columns that hold them."""

    def __init__(
        self,
        groups: Mapping[str, Tree],
        free: list[str],
        leaves: Leaves,
        aggregates: Aggregates,
        is_aggregate: Callable[[str], bool],
        source: SourceText,
    ) -> None:
        self._groups, self._free, self._leaves, self._aggregates = groups, free, leaves, aggregates
        self._is_aggregate, self._source = is_aggregate, source

    def __call__(self, tree: Tree) -> Tree:
        result: Tree = transform(tree, self._change)
        return result

    def _change(self, node: Tree) -> Tree | None:
        group = self._groups.get(key(node))
        if group is not None:
            return group
        if node["class"] == "FUNCTION" and self._is_aggregate(node["function_name"]):
            return self._aggregates.value(node)
        if node["class"] == "COLUMN_REF" and len(node["column_names"]) == 2:
            if self._leaves.variable(node) in self._free:
                return self._leaves.reference(node)
            why = "it is neither grouped nor inside an aggregate that a view supports"
            raise refusal("This column", self._source, span(node), why, "group by it")
        return None


def _bind_rows(selection: Selection, leaves: Leaves, source: SourceText) -> Output:
    """SELECT without aggregates: one-table expressions are variables, the others are computed from variables."""
    free: list[str] = []

    def change(node: Tree) -> Tree | None:
        if len(atoms_of(node)) != 1 or any(len(n["column_names"]) == 1 for n in _column_refs(node)):
            return None
        free.append(leaves.variable(node))
        return leaves.reference(node)

    projection = []
    shown = len(selection.items) - selection.hidden
    for place, (_, tree) in enumerate(selection.items):
        if selection.mode == "set" and place < shown and len(atoms_of(tree)) > 1:
            why = "which combinations of rows give equal values cannot be followed row by row"
            hint = "SELECT DISTINCT the columns it uses, and compute the expression when you read the view"
            raise refusal("DISTINCT over an expression of several tables", source, span(tree), why, hint)
        projection.append(transform(tree, change))
    free = list(dict.fromkeys(free))
    return Output(free, _variables(free, leaves), projection)


def _column_refs(tree: Tree) -> list[Tree]:
    return [node for node in walk(tree) if node["class"] == "COLUMN_REF"]


def _variables(free: list[str], leaves: Leaves) -> list[RawColumn]:
    return [RawColumn(name, "variable", leaves.variable_type(name), variable=name) for name in free]


def _groups(node: Tree, items: list[tuple[str, Tree]], scope: Scope, environment: Environment) -> list[Tree]:
    """GROUP BY expressions; a number is a position, a bare name that is no column is an alias."""
    aliases = item_aliases(node, items)
    groups = []
    for tree in node["group_expressions"]:
        position = position_of(tree)
        if position is not None:
            if not 1 <= position <= len(items):
                raise InternalError("DuckDB accepted a GROUP BY position that does not exist")
            groups.append(items[position - 1][1])
            continue
        check_expression(tree, environment.source)
        groups.append(resolve(tree, scope, environment.source, aliases))
    return groups


def item_aliases(node: Tree, items: list[tuple[str, Tree]]) -> dict[str, Tree]:
    """Aliases written in the SELECT list; the first of a name wins."""
    written = {tree["alias"].lower() for tree in node["select_list"] if tree.get("alias")}
    aliases: dict[str, Tree] = {}
    for name, tree in items:
        if name.lower() in written:
            aliases.setdefault(name.lower(), tree)
    return aliases


def position_of(tree: Tree) -> int | None:
    """The position that a number in GROUP BY or ORDER BY names."""
    literal: dict[str, Any] = tree.get("literal") or {}
    return int(literal["text"]) if tree["class"] == "CONSTANT" and literal.get("kind") == "INTEGER" else None


def _all_groups(items: list[tuple[str, Tree]], is_aggregate: Callable[[str], bool]) -> list[Tree]:
    """GROUP BY ALL: every item without an aggregate, except constants."""
    return [tree for _, tree in items if atoms_of(tree) and not _aggregates(tree, is_aggregate)]


def _having(
    node: Tree, items: list[tuple[str, Tree]], groups: list[Tree], scope: Scope, environment: Environment
) -> Tree | None:
    """HAVING: outside aggregates a bare name is a group column, else an alias, else a column."""
    if not node["having"]:
        return None
    check_expression(node["having"], environment.source)
    aliases, grouped = item_aliases(node, items), {key(group) for group in groups}

    def change(tree: Tree) -> Tree | None:
        if tree["class"] == "FUNCTION" and environment.is_aggregate(tree["function_name"]):
            return resolve(tree, scope, environment.source, aliases)
        if tree["class"] != "COLUMN_REF":
            return None
        alias = aliases.get(tree["column_names"][0].lower()) if len(tree["column_names"]) == 1 else None
        if alias is not None and (column := scope.column(tree["column_names"][0])) is not None:
            alias = None if key(column) in grouped else alias
        return alias if alias is not None else resolve(tree, scope, environment.source, aliases)

    result: Tree = transform(node["having"], change)
    return result


def _aggregates(tree: Tree, is_aggregate: Callable[[str], bool]) -> list[Tree]:
    """The outermost aggregate calls."""
    if tree["class"] == "FUNCTION" and is_aggregate(tree["function_name"]):
        return [tree]
    return [found for child in children(tree) for found in _aggregates(child, is_aggregate)]

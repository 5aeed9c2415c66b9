"""FROM and WHERE: tables become atoms, everything that only selects, projects and joins is inlined.

Subqueries, CTEs and plain DuckDB views that select, project and join disappear: their columns are
substituted by the expressions they stand for, their conditions join the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlfront.bind.refusals import JOIN_KINDS, OUTER_JOINS, check_expression, check_query, refusal
from sqlfront.bind.scope import Scope, Source, expand_star, resolve
from sqlfront.bind.set_operations import as_select, is_alone
from sqlfront.bind.table_catalog import CatalogView, Column, ForeignKey
from sqlfront.sql.parse_tree import (
    SourceText,
    Span,
    Tree,
    column_ref,
    conjuncts,
    expression,
    parse_select,
    relocate,
    render,
    span,
    walk,
)
from sqlfront.storage.errors import InternalError, NotSupportedError, ProgrammingError


@dataclass(frozen=True)
class AtomTable:
    """A table at one place in FROM."""

    name: str
    table: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...]
    references: tuple[ForeignKey, ...]
    at: Span | None = None

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column[0] == name)


@dataclass
class JoinCore:
    """The atoms and the conditions of the join, in the order the query names them; names its atoms may not have.

    `inlined` are the columns of the blocks that disappeared in the join, whether anything reads them or not.
    """

    atoms: list[AtomTable] = field(default_factory=list)
    conditions: list[Tree] = field(default_factory=list)
    reserved: frozenset[str] = frozenset()
    inlined: list[Tree] = field(default_factory=list)


class Blocks(Protocol):
    """What becomes of query blocks that are no part of the join around them: blocks_of.py."""

    def block(self, node: Tree, alias: str, environment: Environment, core: JoinCore) -> list[tuple[str, Tree]]:
        """Make a block that groups, is DISTINCT or limited an atom of `core`; its columns."""

    def best(
        self,
        inner: JoinCore,
        groups: Sequence[Tree],
        values: Sequence[Tree],
        labels: Sequence[str],
        environment: Environment,
        core: JoinCore,
        *,
        descending: bool,
    ) -> list[tuple[str, Tree]]:
        """Make the first row of each group of a join, in the order of values, an atom of `core`; its columns."""

    def union(self, node: Tree, alias: str, environment: Environment, core: JoinCore) -> list[tuple[str, Tree]]:
        """Make the branches of a UNION ALL, together, an atom of `core`; its columns."""

    def semijoin(self, tree: Tree, scope: Scope, environment: Environment, core: JoinCore) -> None:
        """Make `IN (SELECT ...)` or EXISTS an atom of `core` and conditions on it."""


@dataclass(frozen=True)
class Environment:
    """What a query block can see: the catalog, the CTEs by name, the FROM items to its left (`outer`), the text.

    `is_aggregate` tells whether a function name is an aggregate's. `moved_to` is where the user named the
    view whose text is being read.
    """

    catalog: CatalogView
    source: SourceText
    is_aggregate: Callable[[str], bool]
    blocks: Blocks
    ctes: dict[str, tuple[Tree, Environment]] = field(default_factory=dict)
    views: frozenset[str] = frozenset()
    moved_to: Span | None = None
    outer: Scope = field(default_factory=Scope)


def bind_block(node: Tree, environment: Environment, core: JoinCore) -> tuple[Scope, Environment]:
    """The scope of a SELECT's FROM clause; atoms, join conditions and WHERE go into `core`.

    The environment returned holds the block's CTEs. Raises NotSupportedError.
    """
    check_query(node, environment.source)
    environment = _with_ctes(node, environment)
    scope = bind_from(node["from_table"], environment, core)
    aliases = _aliases(node, scope, environment) if node.get("where_clause") else {}
    for condition in conjuncts(node.get("where_clause")):
        if is_semijoin(condition):
            environment.blocks.semijoin(condition, scope, environment, core)
            continue
        check_expression(condition, environment.source)
        core.conditions += conjuncts(resolve(condition, scope.inside(environment.outer), environment.source, aliases))
    return scope, environment


def bind_from(item: Tree, environment: Environment, core: JoinCore) -> Scope:
    """The scope of one FROM item. Raises NotSupportedError for items that are no tables or inner joins."""
    binders = {"BASE_TABLE": _bind_name, "SUBQUERY": _bind_subquery, "JOIN": _bind_join, "EMPTY": _bind_nothing}
    if item.get("sample"):
        raise refusal("SAMPLE", environment.source, span(item), "its result is random", "leave it out")
    if item["type"] in binders:
        return binders[item["type"]](item, environment, core)
    names = {
        "TABLE_FUNCTION": "A table function",
        "EXPRESSION_LIST": "VALUES",
        "PIVOT": "PIVOT",
        "SHOW_REF": "DESCRIBE or SHOW in FROM",
    }
    raise refusal(
        names.get(item["type"], item["type"].replace("_", " ")),
        environment.source,
        span(item),
        "its rows do not come from a table whose changes can be followed",
        "put the rows into a table and name that",
    )


def select_items(node: Tree, scope: Scope, environment: Environment) -> list[tuple[str, Tree]]:
    """(name, resolved expression) of the SELECT list with its stars expanded and lateral aliases replaced."""
    items: list[tuple[str, Tree]] = []
    aliases: dict[str, Tree] = {}
    for tree in node["select_list"]:
        if tree["class"] == "STAR":
            items += expand_star(tree, scope, environment.source)
            continue
        _refuse_inner_star(tree, environment)
        check_expression(tree, environment.source)
        resolved = resolve(tree, scope.inside(environment.outer), environment.source, aliases)
        if tree.get("alias"):
            aliases.setdefault(tree["alias"].lower(), resolved)
        items.append((_output_name(tree), resolved))
    return items


def _aliases(node: Tree, scope: Scope, environment: Environment) -> dict[str, Tree]:
    """Aliases of the SELECT list, which WHERE may use."""
    aliases: dict[str, Tree] = {}
    for tree in node["select_list"]:
        if tree.get("alias") and tree["class"] not in ("STAR", "WINDOW", "SUBQUERY"):
            resolved = resolve(tree, scope.inside(environment.outer), environment.source, aliases)
            aliases.setdefault(tree["alias"].lower(), resolved)
    return aliases


def _refuse_inner_star(tree: Tree, environment: Environment) -> None:
    for node in walk(tree):
        if node["class"] == "STAR":
            why = "it repeats the expression for each column"
            hint = "write the expression for each column"
            raise refusal("COLUMNS inside an expression", environment.source, span(node), why, hint)


def _output_name(tree: Tree) -> str:
    if tree.get("alias"):
        return str(tree["alias"])
    return str(tree["column_names"][-1]) if tree["class"] == "COLUMN_REF" else render(tree)


def _with_ctes(node: Tree, environment: Environment) -> Environment:
    ctes = dict(environment.ctes)
    for entry in node["cte_map"]["map"]:
        inside = replace(environment, ctes=dict(ctes), outer=Scope())
        ctes[entry["key"].lower()] = (entry["value"], inside)
    return replace(environment, ctes=ctes)


def _bind_nothing(item: Tree, environment: Environment, core: JoinCore) -> Scope:
    return Scope()


def _bind_name(item: Tree, environment: Environment, core: JoinCore) -> Scope:
    """A table, a CTE or a view by name."""
    name, parts = item["table_name"], _name_parts(item)
    alias = item["alias"] or name
    if item.get("at_clause"):
        why, hint = "it reads an old state of the table", "leave AT out"
        raise refusal("AT", environment.source, span(item), why, hint)
    if len(parts) == 1 and name.lower() in environment.ctes:
        value, inside = environment.ctes[name.lower()]
        columns = _inline(value["query_node"], alias, inside, core)
        columns = _renamed(columns, value["aliases"])
        return _one_source(alias, (), columns, item)
    table = environment.catalog.resolve(parts)
    if table is None:
        raise _no_table(".".join(parts), item, environment)
    view = environment.catalog.inlined(table)
    if view is not None:
        columns = _inline_view(table, *view, item, environment, core)
        return _one_source(alias, (), columns, item)
    columns = _add_table(table, alias, item, environment, core)
    return _one_source(alias, () if item["alias"] else _qualifiers(parts, table), columns, item)


def _name_parts(item: Tree) -> list[str]:
    return [part for part in (item["catalog_name"], item["schema_name"], item["table_name"]) if part]


def _qualifiers(parts: list[str], table: str) -> tuple[str, ...]:
    """What may stand before an unaliased table's name: its schema, and the database when it was written."""
    schema = table.split(".", 1)[0].strip('"')
    return (parts[0], schema) if len(parts) == 3 else (schema,)


def _no_table(name: str, item: Tree, environment: Environment) -> NotSupportedError:
    return refusal(
        f'"{name}"',
        environment.source,
        environment.moved_to or span(item),
        "it is no table of this database: a DataFrame, a file, a temporary or an attached table cannot be followed",
        "create a table from it, or a change table and feed it with con.apply",
    )


def _add_table(table: str, alias: str, item: Tree, environment: Environment, core: JoinCore) -> list[tuple[str, Tree]]:
    columns = environment.catalog.columns(table)
    if columns is None:
        raise ProgrammingError(f"Table {table} does not exist", where=environment.source.where(span(item)))
    keys, references = environment.catalog.keys(table), environment.catalog.references(table)
    return add_atom(core, alias, table, columns, keys, references, span(item))


def add_atom(
    core: JoinCore,
    alias: str,
    table: str,
    columns: Sequence[Column],
    keys: Sequence[tuple[str, ...]],
    references: Sequence[ForeignKey],
    at: Span | None,
) -> list[tuple[str, Tree]]:
    """A new atom of the join, called by its alias if that is free; its columns."""
    taken = {atom.name for atom in core.atoms} | core.reserved
    wanted = alias.lower()
    name = next(n for i in range(len(taken) + 1) if (n := wanted if i == 0 else f"{wanted}_{i + 1}") not in taken)
    core.atoms.append(AtomTable(name, table, tuple(columns), tuple(keys), tuple(references), at))
    return [(column[0], column_ref(name, column[0])) for column in columns]


def _one_source(alias: str, qualifiers: tuple[str, ...], columns: list[tuple[str, Tree]], item: Tree) -> Scope:
    renamed = _renamed(columns, item.get("column_name_alias") or [])
    return Scope([Source(alias, qualifiers, tuple(renamed))])


def _renamed(columns: list[tuple[str, Tree]], names: list[str]) -> list[tuple[str, Tree]]:
    return [(names[i] if i < len(names) else name, tree) for i, (name, tree) in enumerate(columns)]


def _bind_subquery(item: Tree, environment: Environment, core: JoinCore) -> Scope:
    columns = _inline(item["subquery"]["node"], item["alias"] or "subquery", environment, core)
    return _one_source(item["alias"] or "unnamed_subquery", (), columns, item)


def _inline_view(
    table: str, names: Sequence[str], select: str, item: Tree, environment: Environment, core: JoinCore
) -> list[tuple[str, Tree]]:
    """A view's query, moved to where the view is named; its own column list renames."""
    if table in environment.views:
        raise InternalError(f"View {table} reads itself")
    place = span(item)
    node = relocate(parse_select(select, SourceText(select)), place)
    inside = replace(environment, ctes={}, views=environment.views | {table}, moved_to=place, outer=Scope())
    return _renamed(_inline(node, item["alias"] or item["table_name"], inside, core), list(names))


def view_parts(sql: str) -> tuple[list[str], str]:
    """The column names and the SELECT of DuckDB's own CREATE VIEW text."""
    from sqlfront.sql.tokens import tokenize

    tokens = tokenize(sql)
    depth = 0
    names: list[str] = []
    for i, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.keyword == "as":
            return names, sql[tokens[i + 1].start :].rstrip().rstrip(";")
        if depth == 1 and token.is_name:
            names.append(token.name)
    raise InternalError("A view's CREATE statement has no AS", where=sql)


def _inline(node: Tree, alias: str, environment: Environment, core: JoinCore) -> list[tuple[str, Tree]]:
    """The columns of a query block: one that only selects, projects and joins disappears in the join around it."""
    if is_alone(node):
        return environment.blocks.union(node, alias, environment, core)
    node = as_select(node)
    if not is_plain_block(node, environment):
        return environment.blocks.block(node, alias, environment, core)
    scope, environment = bind_block(node, environment, core)
    items = unique_names(select_items(node, scope, environment))
    core.inlined += [tree for _, tree in items]
    return items


def is_plain_block(node: Tree, environment: Environment) -> bool:
    """Whether a query block neither groups nor is DISTINCT nor keeps only first rows."""
    if node["type"] != "SELECT_NODE":
        return True  # Set operations but UNION are refused by their own name.
    if is_limited(node):
        return False
    if node["group_expressions"] or node["having"] or node["aggregate_handling"] != "STANDARD_HANDLING":
        return False
    distinct = any(modifier["type"] == "DISTINCT_MODIFIER" for modifier in node["modifiers"])
    return not distinct and not any(_has_aggregate(tree, environment) for tree in node["select_list"])


def is_limited(node: Tree) -> bool:
    """Whether a query block has a LIMIT or a QUALIFY."""
    return bool(node.get("qualify")) or any(modifier["type"].startswith("LIMIT") for modifier in node["modifiers"])


def is_semijoin(tree: Tree) -> bool:
    """Whether a condition is `IN (SELECT ...)`, `= ANY (SELECT ...)` or EXISTS."""
    if tree["class"] != "SUBQUERY":
        return False
    is_equal = tree["subquery_type"] == "ANY" and tree["comparison_type"] == "COMPARE_EQUAL"
    return is_equal or tree["subquery_type"] == "EXISTS"


def _has_aggregate(tree: Tree, environment: Environment) -> bool:
    return any(node["class"] == "FUNCTION" and environment.is_aggregate(node["function_name"]) for node in walk(tree))


def unique_names(columns: list[tuple[str, Tree]]) -> list[tuple[str, Tree]]:
    """A subquery's second column `a` is called a_1, as in DuckDB."""
    seen: dict[str, int] = {}
    result = []
    for name, tree in columns:
        while name.lower() in seen:
            base = name
            name = f"{base}_{seen[base.lower()]}"
            seen[base.lower()] += 1
        seen[name.lower()] = 1
        result.append((name, tree))
    return result


def _bind_join(item: Tree, environment: Environment, core: JoinCore) -> Scope:
    source = environment.source
    if item["join_type"] != "INNER" or item["ref_type"] in JOIN_KINDS:
        _refuse_join(item, source)
    left = bind_from(item["left"], environment, core)
    beside = replace(environment, outer=left.inside(environment.outer))
    right = bind_from(item["right"], beside, core)
    scope = left.joined(right)
    names = item["using_columns"]
    if item["ref_type"] == "NATURAL":
        visible = {name.lower() for _, name, _ in right.visible()}
        names = [name for _, name, _ in left.visible() if name.lower() in visible]
    for name in names:
        _merge(name, left, right, scope, core)
    for condition in conjuncts(item["condition"]):
        check_expression(condition, source)
        core.conditions += conjuncts(resolve(condition, scope.inside(environment.outer), source))
    return scope


def _merge(name: str, left: Scope, right: Scope, scope: Scope, core: JoinCore) -> None:
    """USING (name): an equality, and the right column no longer shows in `*`."""
    core.conditions.append(expression("a = b", a=left.column(name), b=right.column(name)))  # type: ignore[arg-type]
    shift = len(left.sources)
    for i, source in enumerate(right.sources):
        if source.column(name) is not None and (i, name.lower()) not in right.hidden:
            scope.hidden.add((shift + i, name.lower()))


def _refuse_join(item: Tree, source: SourceText) -> None:
    name = OUTER_JOINS.get(item["join_type"]) or JOIN_KINDS.get(item["ref_type"]) or f"{item['join_type']} JOIN"
    if item["ref_type"] in ("POSITIONAL", "ASOF"):
        name = JOIN_KINDS[item["ref_type"]]
    start = item.get("query_location")
    right = span(item["right"])
    at = (start, _last_word(source.statement, start, right[0])) if start is not None and right else span(item)
    why = {
        "SEMI": "whether a row has any partner is a count of its own, which comes later",
        "ANTI": "whether a row has no partner is a count of its own, which comes later",
    }.get(item["join_type"], "rows without a partner come and go with the other table, which comes later")
    if item["ref_type"] in JOIN_KINDS:
        why = "it pairs rows by position, order or outer columns, not by equal values"
    raise refusal(name, source, at, why, "use an inner join with equality conditions")


def _last_word(text: str, start: int, end: int) -> int:
    """Where the words from `start` to the next item end: an opening parenthesis is not part of the join."""
    return start + len(text[start:end].rstrip("( \t\r\n"))

"""Query blocks that are no part of the join around them: each becomes a view of its own, whose rows the join reads.

These are subqueries and CTEs in FROM that group, are DISTINCT or keep first rows, branches of a UNION, and semi-joins:
`x IN (SELECT ...)` and EXISTS among the conditions that AND connects, which are joins with the distinct partners. Some
z > x exists where the greatest z is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sqlfront.bind.branch_orders import by_columns
from sqlfront.bind.conditions import OPERATORS
from sqlfront.bind.distinct_arguments import without_nulls
from sqlfront.bind.from_clause import (
    Environment,
    JoinCore,
    add_atom,
    bind_block,
    is_limited,
    is_plain_block,
    select_items,
    unique_names,
)
from sqlfront.bind.orderings import STRICT, ordering_by
from sqlfront.bind.refusals import check_expression, refusal
from sqlfront.bind.requested_order import (
    NOTHING,
    RequestedOrder,
    block_text,
    composing_over,
    read_requested,
    take_requested,
)
from sqlfront.bind.result_types import Typing
from sqlfront.bind.scope import Scope, resolve
from sqlfront.bind.select_list import Selection, read_selection
from sqlfront.bind.set_operations import as_select, check_casts, united
from sqlfront.bind.table_catalog import Column
from sqlfront.planner.model.query import Definition, Limit, output_keys
from sqlfront.planner.passes.orders import may_be_null
from sqlfront.sql.parse_tree import (
    LOCATION_KEYS,
    SourceText,
    Tree,
    atoms_of,
    expression,
    parse_select,
    relocate,
    row_values,
    span,
)


class BindCore(Protocol):
    """How one block becomes a definition: binder.py."""

    def __call__(
        self,
        core: JoinCore,
        selection: Selection,
        environment: Environment,
        *,
        asked: RequestedOrder = ...,
        columns: Sequence[str] = ...,
    ) -> Definition: ...


class DerivedBlocks:
    """The views that a query's blocks have become, by the table name under which the join reads them.

    A later one may read those before it. `branches` are the unions' as they are bound, in order of their columns.
    """

    def __init__(self, con: Any, bind_core: BindCore) -> None:
        self._con, self._bind_core = con, bind_core
        self.definitions: dict[str, Definition] = {}
        self.unions: dict[str, tuple[str, ...]] = {}
        self.branches: dict[str, list[tuple[str, Definition]]] = {}

    def block(self, node: Tree, alias: str, environment: Environment, core: JoinCore) -> list[tuple[str, Tree]]:
        """Make a block that groups, is DISTINCT or limited an atom of `core`; its columns.

        The first rows of a block that equates something of its own with something to its left are those of each group
        that agrees in it: these groups become a view, joined by that.
        """
        bare = node | {"qualify": None, "modifiers": [m for m in node["modifiers"] if m["type"] == "DISTINCT_MODIFIER"]}
        if not (is_limited(node) and environment.outer.sources and is_plain_block(bare, environment)):
            return self._atom(self._derive(node, environment), alias, core)
        inner = JoinCore(reserved=frozenset(atom.name for atom in core.atoms) | core.reserved)
        table, pairs = self._first_rows(node, environment, inner, core)
        columns = self._atom(table, alias, core)
        shown = len(columns) - len(pairs)
        core.conditions += [_equal(theirs, column) for (_, column), theirs in zip(columns[shown:], pairs, strict=True)]
        return columns[:shown]

    def union(self, node: Tree, alias: str, environment: Environment, core: JoinCore) -> list[tuple[str, Tree]]:
        """Make the branches of a UNION ALL an atom of `core`, whose rows are those of all of them; its columns."""
        tables = [self._derive(as_select(branch), environment, in_order=True) for branch in node["children"]]
        bound = [self.definitions[table] for table in tables]
        branches = united([one if one.limit else replace(one, orders=()) for one in bound], self._con)
        check_casts(bound, branches[0], node, environment.source, self._con)
        self.definitions.update(zip(tables, branches, strict=True))
        name = f'"__union"."{len(self.unions) + 1}"'
        self.unions[name], self.branches[name] = tuple(tables), list(zip(tables, bound, strict=True))
        return add_atom(core, alias, name, _columns(branches[0]), (), (), None)

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
        """Make the first row of each group of a join, in the order of values none of which is NULL, an atom of `core`;
        its columns are the groups' and the values. A group without such a row has NULL for one of them, or no row."""
        composing = composing_over(inner, Typing(self._con, inner.atoms), environment)
        limit = Limit(1, clause="first of each group" if groups else None)

        def first_by(compared: Sequence[Tree]) -> str:
            items = [(f"g{number}", tree) for number, tree in enumerate(groups)]
            items += [(f"best{number}", tree) for number, tree in enumerate(compared)]
            ordering = ordering_by(compared, items, labels, composing, descending=descending)
            return self._add(inner, Selection("bag", items), environment, RequestedOrder([ordering], limit, groups))

        table = first_by(values)
        definition, obstacle = _without_null_values(self.definitions[table], labels)
        if obstacle is not None:
            del self.definitions[table]
            table = first_by(_null_together(values))
            [order] = self.definitions[table].orders
            definition = replace(self.definitions[table], orders=(replace(order, obstacle=obstacle),))
        self.definitions[table] = definition
        return self._atom(table, "best", core)

    def semijoin(self, tree: Tree, scope: Scope, environment: Environment, core: JoinCore) -> None:
        """Make `IN (SELECT ...)` or EXISTS an atom of `core` and conditions on it. Raises NotSupportedError."""
        node, source = as_select(tree["subquery"]["node"]), environment.source
        wanted = [] if tree["child"] is None else row_values(tree["child"]) or [tree["child"]]
        if not wanted and node is not tree["subquery"]["node"]:
            why = "its branches are followed by themselves, whatever the row around them"
            raise refusal("EXISTS over a UNION", source, span(tree), why, "write it with IN")
        for part in wanted:
            check_expression(part, source)
        wanted = [resolve(part, scope.inside(environment.outer), source) for part in wanted]
        if is_plain_block(node, environment):
            self._correlated(tree, node, wanted, scope, environment, core)
            return
        if not wanted:
            what, why = "EXISTS over a query that groups", "whether a group passes is an aggregate of its own"
            if is_limited(node):
                what, why = "EXISTS over a query with LIMIT", "LIMIT matters to it only if it skips rows"
            raise refusal(what, source, span(tree), why, "write it with IN, or leave LIMIT out")
        before = self.definitions.copy(), self.unions.copy()
        table = self._derive(node, environment)
        if not output_keys(self.definitions[table]):
            self.definitions, self.unions = before
            table = self._derive(_distinct(node), environment)
        columns = self._atom(table, "partners", core)
        core.conditions += [_equal(column, part) for (_, column), part in zip(columns, wanted, strict=True)]

    def _correlated(
        self, tree: Tree, node: Tree, wanted: Sequence[Tree], scope: Scope, environment: Environment, core: JoinCore
    ) -> None:
        """The block's conditions that equate something of its own with something outside, or compare its greatest or
        least, become conditions of the join around it, as does IN; the rest is its own."""
        inner = JoinCore(reserved=frozenset(atom.name for atom in core.atoms) | core.reserved)
        outside = replace(environment, outer=scope.inside(environment.outer))
        inside_scope, inside = bind_block(node, outside, inner)
        pairs: list[tuple[Tree, Tree]] = []
        if wanted:
            items = select_items(node, inside_scope, inside)
            _check_width(wanted, len(items), tree, environment.source)
            pairs += zip((item for _, item in items), wanted, strict=True)
        own = {atom.name for atom in inner.atoms}
        local: list[Tree] = []
        bounds: list[_Bound] = []
        for condition in inner.conditions:
            if atoms_of(condition) <= own:
                local.append(condition)
            elif condition["type"] in _MIRRORED:
                bounds.append(_bound(condition, own, environment.source, tree))
            else:
                pairs.append(_sides(condition, own, environment.source, tree)[:2])
        if len(bounds) > 1:
            raise _not_equal(bounds[1].condition, environment.source)
        for mine, theirs in pairs:
            if not atoms_of(mine) <= own or not atoms_of(mine) or atoms_of(theirs) & own:
                raise _not_equal(tree, environment.source)
        if not pairs and not bounds:
            why = "it does not depend on the row, so it keeps all rows or none"
            hint = "compare a column of the subquery with one of the query"
            raise refusal("An EXISTS of its own in WHERE", environment.source, span(tree), why, hint)
        inner.conditions = local
        items = [(_column_name(mine, number), mine) for number, (mine, _) in enumerate(pairs)]
        selection = Selection("set", items)
        if bounds:
            items = [*items, *(("bound", bound.best) for bound in bounds)]
            selection = Selection("group", items, [mine for mine, _ in pairs], scalar=not pairs)
        columns = [column for _, column in self._atom(self._add(inner, selection, inside), "partners", core)]
        core.conditions += [_equal(column, theirs) for column, (_, theirs) in zip(columns, pairs, strict=False)]
        core.conditions += [bound.over(columns[-1]) for bound in bounds]

    def _derive(self, node: Tree, environment: Environment, *, in_order: bool = False) -> str:
        """Bind a block as a view of its own, `in_order` of its columns; the name under which it is read."""
        alone = replace(environment, outer=Scope())
        if is_limited(node):
            return self._first_rows(node, alone, JoinCore(), JoinCore())[0]
        inner = JoinCore()
        scope, inside = bind_block(node, alone, inner)
        selection = read_selection(node, scope, inside)
        return self._add(inner, selection, inside, RequestedOrder(by_columns(selection)) if in_order else NOTHING)

    def _first_rows(
        self, node: Tree, environment: Environment, inner: JoinCore, around: JoinCore
    ) -> tuple[str, list[Tree]]:
        """Bind a block with a LIMIT or QUALIFY; the name under which it is read, and what the last of its columns, by
        which its rows are grouped, must equal around it. Conditions on what is around it become that join's."""
        source = environment.source
        node, modifiers = take_requested(node, source)
        scope, inside = bind_block(node, environment, inner)
        own = {atom.name for atom in inner.atoms}
        selection = read_selection(node, scope, inside)
        pairs = _tied(inner, around, source)
        for _, tree in selection.items:
            if not atoms_of(tree) <= own:
                why = "the block's first rows are kept for all rows around it at once"
                raise refusal("This column of a block with LIMIT", source, span(tree), why, "put it out outside")
        if environment.moved_to is not None:
            why = "which rows tie in it could not be settled in the view's text"
            hint = "write the view's query in its place, with WITH"
            raise refusal("LIMIT or QUALIFY inside a plain view", source, environment.moved_to, why, hint)
        shown = len(selection.items)
        keys = [(_column_name(mine, number), mine) for number, (mine, _) in enumerate(pairs)]
        selection = replace(selection, items=[*selection.items, *keys])
        asked = read_requested(self._con, node, modifiers, (), selection, scope, inside, inner)
        text = block_text(modifiers, asked, shown, source)
        assert asked.limit is not None
        limit = replace(asked.limit, text=text, clause=text[2] if pairs else asked.limit.clause)
        partition = [mine for mine, _ in pairs] or asked.partition
        table = self._add(inner, selection, inside, RequestedOrder(asked.orderings, limit, partition))
        return table, [theirs for _, theirs in pairs]

    def _add(
        self, inner: JoinCore, selection: Selection, environment: Environment, asked: RequestedOrder = NOTHING
    ) -> str:
        selection = replace(selection, items=unique_names(selection.items))
        if not inner.atoms:
            source, at = environment.source, span(selection.items[0][1])
            why, hint = "there is no table whose changes could be followed", "put its row into a table, and select that"
            raise refusal("A block without a table", source, at, why, hint)
        names = [name for name, _ in selection.items]
        definition = self._bind_core(inner, selection, environment, asked=asked, columns=names)
        table = f'"__derived"."{len(self.definitions) + 1}"'
        self.definitions[table] = definition
        return table

    def _atom(self, table: str, alias: str, core: JoinCore) -> list[tuple[str, Tree]]:
        definition = self.definitions[table]
        return add_atom(core, alias, table, _columns(definition), output_keys(definition), (), None)


def _columns(definition: Definition) -> list[Column]:
    return [(name, type_, False) for name, type_ in definition.columns]


def _without_null_values(definition: Definition, labels: Sequence[str]) -> tuple[Definition, str | None]:
    """A block of first rows in the order of its last columns, which have these labels, over the rows where none of
    these is NULL, and why it might yet begin with others; None if it does not. NULLs of a single column come last."""
    [order] = definition.orders
    if order.obstacle is not None:
        return definition, order.obstacle if labels[1:] else None
    numbers = dict(order.places)
    terms = [order.terms[numbers[text]] for text in definition.projection[-len(labels) :]]
    needed = frozenset(name for term in terms for _, name in term.parts if term.form in (*STRICT, "value"))
    filtered = replace(definition, atoms=tuple(without_nulls(atom, needed) for atom in definition.atoms))
    nullable = [label for term, label in zip(terms, labels, strict=True) if may_be_null(filtered, term)]
    if nullable and labels[1:]:
        return filtered, f"{nullable[0]} may be NULL though none of its columns must be (declare them NOT NULL)"
    return filtered, None


def _null_together(values: Sequence[Tree]) -> list[Tree]:
    """Values the first of which, by which rows are ordered, is NULL where another is."""
    first, *others = values
    for other in others:
        first = expression("CASE WHEN o IS NOT NULL THEN v END", o=other, v=first)
    return [first, *others]


def _column_name(tree: Tree, number: int) -> str:
    """The name of a block's column that the query does not write: that of the table's, if it is one."""
    return str(tree["column_names"][-1]) if tree["class"] == "COLUMN_REF" else f"c{number}"


def _tied(inner: JoinCore, around: JoinCore, source: SourceText) -> list[tuple[Tree, Tree]]:
    """Take out of a block's conditions those on what is around it, and the equalities with that; the sides of these,
    the block's first."""
    own = {atom.name for atom in inner.atoms}
    pairs, local = [], []
    for condition in inner.conditions:
        if atoms_of(condition) <= own:
            local.append(condition)
        elif not atoms_of(condition) & own:
            around.conditions.append(condition)
        elif condition["type"] == "COMPARE_EQUAL":
            pairs.append(_sides(condition, own, source, condition)[:2])
        else:
            why = "the rows that LIMIT counts must be those with an equal value, whatever the row around them"
            hint = "compare columns of both sides with =, or filter what the block puts out"
            raise refusal("This condition of a LATERAL block with LIMIT", source, span(condition), why, hint)
    inner.conditions = local
    return pairs


def _check_width(wanted: Sequence[Tree], columns: int, tree: Tree, source: SourceText) -> None:
    """Refuse what DuckDB takes for one column of rows."""
    if len(wanted) != columns:
        why = "rows are no values that a view keeps"
        hint = "select the values as columns: (a, b) IN (SELECT c, d ...)"
        raise refusal("IN over a column of rows", source, span(tree), why, hint)


def _distinct(node: Tree) -> Tree:
    """`SELECT DISTINCT *` over a query block."""
    outer: Tree = relocate(parse_select("SELECT DISTINCT * FROM (SELECT 1) AS grouped", SourceText("")), None)
    outer["from_table"]["subquery"]["node"] = node
    return outer


def _equal(left: Tree, right: Tree) -> Tree:
    found: Tree = expression("a = b", a=left, b=right)
    return found


_MIRRORED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}


@dataclass(frozen=True)
class _Bound:
    """A comparison between a block and what is around it; `best` is the block's value that meets it if any does."""

    condition: Tree
    best: Tree
    operator: str
    theirs: Tree

    def over(self, column: Tree) -> Tree:
        """The comparison of a column that holds the best."""
        place = {name: self.condition[name] for name in LOCATION_KEYS if name in self.condition}
        return expression(f"a {self.operator} b", a=column, b=self.theirs) | place


def _bound(condition: Tree, own: set[str], source: SourceText, block: Tree) -> _Bound:
    mine, theirs, is_left = _sides(condition, own, source, block)
    operator = OPERATORS[condition["type"] if is_left else _MIRRORED[condition["type"]]]
    best = expression(f"{'max' if operator in ('>', '>=') else 'min'}(v)", v=mine)
    return _Bound(condition, best, operator, theirs)


def _sides(condition: Tree, own: set[str], source: SourceText, block: Tree) -> tuple[Tree, Tree, bool]:
    """The sides of an equality or an order between the block and what is around it, the block's side first; whether
    that is the left one."""
    if condition["type"] == "COMPARE_EQUAL" or condition["type"] in _MIRRORED:
        left, right = condition["left"], condition["right"]
        for mine, theirs in ((left, right), (right, left)):
            if atoms_of(mine) and atoms_of(mine) <= own and not atoms_of(theirs) & own:
                return mine, theirs, mine is left
    raise _not_equal(condition if span(condition) else block, source)


def _not_equal(tree: Tree, source: SourceText) -> Exception:
    why = "only equalities and one <, <=, > or >= tie a subquery to the rows around it so that both can be followed"
    hint = "compare columns of both sides with =, at most one pair by its order"
    return refusal("This correlated condition", source, span(tree), why, hint)

"""ORDER BY, LIMIT and QUALIFY of a query or of a block inside it: in what order which rows are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlfront.bind.composed_orders import Composing, natural_columns
from sqlfront.bind.from_clause import Environment, JoinCore
from sqlfront.bind.orderings import Ordering, defaults_of, ordering_of, read_limit, read_orderings, take_modifiers
from sqlfront.bind.ranking import Ranking, qualify_text, read_partition, take_ranking
from sqlfront.bind.refusals import keyword
from sqlfront.bind.result_types import INTEGER_BITS, Typing
from sqlfront.bind.scope import Scope
from sqlfront.bind.select_list import Selection
from sqlfront.planner.model.query import Limit
from sqlfront.sql.parse_tree import SourceText, Tree, render, span
from sqlfront.sql.tokens import tokenize
from sqlfront.storage.errors import NotSupportedError


@dataclass(frozen=True)
class Modifiers:
    """The parsed ORDER BY and LIMIT of a query, or its QUALIFY."""

    orders: Sequence[Tree]
    limiting: Tree | None
    qualify: Tree | None
    ranking: Ranking | None


@dataclass(frozen=True)
class RequestedOrder:
    """What ORDER BY, LIMIT and QUALIFY ask for; `partition` are the resolved expressions that a group has in common."""

    orderings: Sequence[Ordering] = ()
    limit: Limit | None = None
    partition: Sequence[Tree] = ()


NOTHING = RequestedOrder()


def take_requested(node: Tree, source: SourceText) -> tuple[Tree, Modifiers]:
    """A query node without what it asks for, and that. NotSupportedError for a QUALIFY that is none of first rows."""
    bare, orders, limiting = take_modifiers(node)
    bare, ranking = take_ranking(bare, orders, limiting, source)
    return bare, Modifiers(orders, limiting, node.get("qualify"), ranking)


def read_requested(
    con: Any, node: Tree, modifiers: Modifiers, more: Sequence[str], selection: Selection,
    scope: Scope, environment: Environment, core: JoinCore,
) -> RequestedOrder:  # fmt: skip
    """What a query asks for, and the orders `more`. Raises NotSupportedError."""
    defaults, ranking = defaults_of(con), modifiers.ranking
    composing = composing_over(core, Typing(con, core.atoms), environment)
    if ranking is None:
        limit = read_limit(modifiers.limiting, con, environment.source)
        limited = limit is not None
        orderings = read_orderings(
            node, modifiers.orders, limited, more, selection, scope, environment, defaults, composing
        )
        return RequestedOrder(orderings, limit)
    if more:
        why = "its rows have an order in each group only"
        raise NotSupportedError("order_by of a view with QUALIFY", why=why, hint="leave it out, and order when reading")
    ordering = ordering_of(
        node, ranking.orders, selection, scope, environment, defaults, composing,
        inside=True, total=ranking.numbering == "row_number",
    )  # fmt: skip
    clause = qualify_text(node, ranking, ordering, scope, environment.source)
    partition = read_partition(node, ranking, selection, scope, environment)
    return RequestedOrder([ordering], Limit(ranking.rows, clause=clause, numbering=ranking.numbering), partition)


def composing_over(core: JoinCore, typing: Typing, environment: Environment) -> Composing:
    """What reads the ORDER BY items that several of the join's tables make together."""
    tables = {atom.name: atom for atom in core.atoms}

    def is_natural(atom: str, column: str) -> bool:
        kind = tables[atom].column(column)[1]
        if kind in INTEGER_BITS and not INTEGER_BITS[kind][0]:
            return True
        return column.lower() in natural_columns(environment.catalog.checks(tables[atom].table))

    return Composing(typing, is_natural)


def block_text(modifiers: Modifiers, asked: RequestedOrder, columns: int, source: SourceText) -> tuple[int, int, str]:
    """Where in the query a block of so many columns asks for rows, and how that reads when it leaves nothing open."""
    limit = asked.limit
    assert limit is not None
    start = _start(modifiers, source)
    depth, end = 0, start
    for token in tokenize(source.statement, start):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth < 0:
            break
        end = token.end
    if modifiers.ranking is not None:
        assert limit.clause is not None
        return start - source.start, end - source.start, limit.clause
    *written, last = asked.orderings[0].directions
    plain = [one["expression"] for one in modifiers.orders if one["expression"]["class"] != "STAR"]
    items = [f"{render(tree | {'alias': ''})} {way}" for tree, way in zip(plain, written, strict=False)]
    items += asked.orderings[0].tie_breakers
    items += [f"{place} {last}" for place in range(1, columns + 1)]
    rows = "" if limit.rows is None else f" LIMIT {limit.rows}"
    return start - source.start, end - source.start, f"ORDER BY {', '.join(items)}{rows} OFFSET {limit.offset}"


def _start(modifiers: Modifiers, source: SourceText) -> int:
    """Where the first word of what a block asks for stands."""
    if modifiers.ranking is not None:
        place = keyword(source, ("qualify",), modifiers.qualify)
    else:
        limiting = modifiers.limiting or {}
        trees = [tree for name in ("limit", "offset") if (tree := limiting.get(name)) is not None]
        before = min(trees, key=lambda tree: span(tree) or (0, 0))
        if not modifiers.orders:
            place = keyword(source, ("limit", "offset", "fetch"), before)
        else:
            first = modifiers.orders[0]["expression"]
            place = keyword(source, ("order",), first if span(first) else before)
    assert place is not None
    return place[0]

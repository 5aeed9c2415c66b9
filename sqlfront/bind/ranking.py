"""QUALIFY row_number() OVER (PARTITION BY ... ORDER BY ...) <= k: the first k rows of each group; by rank() those that
tie with the last of them too (WITH TIES), by dense_rank() the rows of the first k places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlfront.bind.from_clause import Environment
from sqlfront.bind.orderings import Ordering, resolved_item
from sqlfront.bind.refusals import keyword, refusal
from sqlfront.bind.scope import Scope, expand_star
from sqlfront.bind.select_list import Selection
from sqlfront.sql.parse_tree import SourceText, Tree, atoms_of, key, quoted, render, span

_UP_TO = {"COMPARE_LESSTHANOREQUALTO": 0, "COMPARE_LESSTHAN": -1}
_FROM_THE_LEFT = {
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}
NUMBERINGS = {"WINDOW_ROW_NUMBER": "row_number", "WINDOW_RANK": "rank", "WINDOW_RANK_DENSE": "dense_rank"}
_HINT = "QUALIFY row_number() OVER (PARTITION BY ... ORDER BY ...) <= 3 keeps the first 3 rows of each group"


@dataclass(frozen=True)
class Ranking:
    """The first `rows` rows of each group by `partitions`, as `numbering` counts them by `orders`: trees as parsed."""

    partitions: tuple[Tree, ...]
    orders: tuple[Tree, ...]
    rows: int
    numbering: str


def take_ranking(
    node: Tree, orders: Sequence[Tree], limiting: Tree | None, source: SourceText
) -> tuple[Tree, Ranking | None]:
    """A query node without its QUALIFY, and what that keeps. NotSupportedError for what is no row_number() up to k."""
    qualify = node.get("qualify")
    if not qualify:
        return node, None
    ranking = _ranking(qualify)
    if ranking is None:
        why = "a view keeps the first rows of each group, no other part of them"
        raise refusal("This QUALIFY", source, span(qualify), why, _HINT)
    if orders or limiting is not None:
        why = "the rows of a group have an order, the groups have none"
        raise refusal(
            "ORDER BY or LIMIT with QUALIFY", source, keyword(source, ("order", "limit", "offset")), why,
            "order and limit the rows when you read the view",
        )  # fmt: skip
    if any(modifier["type"] == "DISTINCT_MODIFIER" for modifier in node["modifiers"]):
        why = "QUALIFY numbers the rows before DISTINCT makes them one"
        raise refusal("SELECT DISTINCT with QUALIFY", source, span(qualify), why, "GROUP BY the columns instead")
    return node | {"qualify": None}, ranking


def _ranking(qualify: Tree) -> Ranking | None:
    if qualify["class"] != "COMPARISON":
        return None
    kind, window, number = qualify["type"], qualify["left"], qualify["right"]
    if window["class"] == "CONSTANT":
        kind, window, number = _FROM_THE_LEFT.get(kind), number, window
    literal = number.get("literal") or {}
    if window["class"] != "WINDOW" or window["type"] not in NUMBERINGS or literal.get("kind") != "INTEGER":
        return None
    count = int(literal["text"])
    if kind == "COMPARE_EQUAL" and count == 1:
        kind = "COMPARE_LESSTHANOREQUALTO"
    if kind not in _UP_TO or window["filter_expr"] or window["arg_orders"] or window["exclude_clause"] != "NO_OTHER":
        return None
    numbering = NUMBERINGS[window["type"]]
    return Ranking(tuple(window["partitions"]), tuple(window["orders"]), count + _UP_TO[kind], numbering)


def read_partition(
    node: Tree, ranking: Ranking, selection: Selection, scope: Scope, environment: Environment
) -> list[Tree]:
    """The expressions of PARTITION BY, resolved; constants part nothing."""
    trees = [resolved_item(tree, node, selection, scope, environment, inside=True) for tree in ranking.partitions]
    kept = {key(tree): tree for tree in trees if atoms_of(tree) or selection.mode == "group"}
    return list(kept.values())


def qualify_text(node: Tree, ranking: Ranking, ordering: Ordering, scope: Scope, source: SourceText) -> str:
    """The clause with an order that leaves nothing open: each item with its direction, and behind them the columns,
    unless rows that tie are to have one number."""
    *written, last = ordering.directions
    items = [f"{_text(one['expression'])} {direction}" for one, direction in zip(ranking.orders, written, strict=True)]
    if ranking.numbering == "row_number":
        items += [*ordering.tie_breakers, *(f"{text} {last}" for text in _columns(node, scope, source))]
    parts = ", ".join(_text(tree) for tree in ranking.partitions)
    partition = f"PARTITION BY {parts} " if parts else ""
    order = f"ORDER BY {', '.join(items)}" if items else ""
    return f"QUALIFY {ranking.numbering}() OVER ({partition}{order}) <= {ranking.rows}"


def _columns(node: Tree, scope: Scope, source: SourceText) -> list[str]:
    """The output columns as the window can name them: those of a star by their tables."""
    seen = {key(tree): f"{quoted(name)}.{quoted(column)}" for name, column, tree in reversed(scope.visible())}
    texts = []
    for item in node["select_list"]:
        if item["class"] != "STAR":
            texts.append(_text(item))
            continue
        for name, tree in expand_star(item, scope, source):
            if key(tree) not in seen:
                why = f"it replaces {name}, by which rows that tie are told apart"
                raise refusal("This star with QUALIFY", source, span(item), why, "write the columns out")
            texts.append(seen[key(tree)])
    return texts


def _text(tree: Tree) -> str:
    return render(tree | {"alias": ""})

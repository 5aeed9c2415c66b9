"""A query's text with its ORDER BY completed, or taken off."""

from __future__ import annotations

from sqlfront.planner.model.query import Definition, is_grouped
from sqlfront.sql.tokens import Token, tokenize


def without_order(query: str) -> str:
    """A query that has no LIMIT without its ORDER BY."""
    order, _, _ = _clauses(query)
    return query if order is None else query[: order.start]


def completed_blocks(query: str, definition: Definition) -> str:
    """The query whose blocks with LIMIT or QUALIFY leave nothing open, as the view's own."""
    found = {block.limit.text for _, block in definition.derived if block.limit is not None and block.limit.text}
    for start, end, text in sorted(found, reverse=True):
        query = query[:start] + text + query[end:]
    return query


def completed_query(query: str, definition: Definition, directions: list[str]) -> str:
    """The query ordered by its items, each with its direction, what settles the last of them, and every output column:
    what a view's rows are.

    `directions` are those of the items written, then one for columns. A query that asks for no order stays; a QUALIFY
    becomes the view's own.
    """
    if definition.limit is not None and is_grouped(definition):
        return f"{query[: _qualify(query).start].rstrip()}\n{definition.limit.clause}"
    order, limit, end = _clauses(query)
    if not definition.orders or (order is None and limit is None):
        return query
    *written, last = directions
    stop = limit.start if limit is not None else end
    items = [] if order is None else _items(query, order, stop)
    if [item.casefold() for item in items] == ["all"]:
        items = []
    ordered = [f"{item} {direction}" for item, direction in zip(items, written, strict=True)]
    ordered += definition.orders[0].tie_breakers
    ordered += [f"{place} {last}" for place in range(1, len(definition.columns) + 1)]
    head = query[: order.start if order is not None else stop].rstrip()
    return f"{head}\nORDER BY {', '.join(ordered)} {query[stop:]}".rstrip()


def _clauses(query: str) -> tuple[Token | None, Token | None, int]:
    """The words with which the query's own ORDER BY and LIMIT begin, and where its text ends."""
    depth, order, limit = 0, None, None
    tokens = tokenize(query)
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if depth == 0 and token.keyword == "order" and after is not None and after.keyword == "by":
            order, limit = token, None
        if depth == 0 and token.keyword in ("limit", "offset", "fetch") and limit is None:
            limit = token
    return order, limit, tokens[-1].end if tokens else 0


def _qualify(query: str) -> Token:
    """The word with which the query's own QUALIFY begins."""
    depth = 0
    found = []
    for token in tokenize(query):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if depth == 0 and token.keyword == "qualify":
            found.append(token)
    return found[-1]


def _items(query: str, order: Token, stop: int) -> list[str]:
    """The items' texts without their directions."""
    tokens = tokenize(query, order.start, stop)[2:]
    groups: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if depth == 0 and token.text == ",":
            groups.append([])
        else:
            groups[-1].append(token)
    return [_bare(query, group) for group in groups]


def _bare(query: str, tokens: list[Token]) -> str:
    if len(tokens) > 2 and tokens[-2].keyword == "nulls" and tokens[-1].keyword in ("first", "last"):
        tokens = tokens[:-2]
    if len(tokens) > 1 and tokens[-1].keyword in ("asc", "desc"):
        tokens = tokens[:-1]
    return query[tokens[0].start : tokens[-1].end]

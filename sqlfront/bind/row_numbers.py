"""The first rows of each group as a filter of a subquery's row numbers, written with QUALIFY instead.

    SELECT a, b FROM (SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM t) WHERE n <= 3

    SELECT a, b FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) <= 3

The same with WITH in the place of the subquery. What the outer query selects must be columns of the inner one, all of
them, or `* EXCLUDE (n)`: then both are the same query. Any other text stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlfront.sql.tokens import Token, tokenize
from sqlfront.storage.sql_text import quote

_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_CLAUSES = ("where", "group", "having", "window", "qualify", "order", "limit", "offset", "union", "intersect", "except")
_MIRRORED = {">=": "<=", ">": "<", "=": "="}
Tokens = Sequence[Token]


def with_qualify(query: str) -> str:
    """A query that filters the row numbers of a subquery, written with QUALIFY; any other as it is. O(text)."""
    tokens = tokenize(query)
    parts = _from_with(tokens) if tokens and tokens[0].keyword == "with" else _from_subquery(tokens)
    if parts is None:
        return query
    outer, inner, name, condition = parts
    numbered = _numbered(query, inner)
    if numbered is None:
        return query
    kept = _kept(query, condition, name, numbered.number)
    selected = _selected(query, outer, name, numbered)
    if kept is None or selected is None:
        return query
    return f"SELECT {', '.join(selected)} {numbered.rest} QUALIFY {numbered.window} {kept}"


@dataclass(frozen=True)
class _Numbered:
    """An inner query: its columns' expressions and names as given (None: their own) by lower-case name, in order, its
    stars, the name and the text of the row number, and the text from FROM on."""

    columns: dict[str, tuple[str, str | None]]
    stars: tuple[str, ...]
    number: str
    window: str
    rest: str

    @property
    def names(self) -> set[str]:
        """The names that the row number's text reads, in lower case."""
        return {token.name.casefold() for token in tokenize(self.window) if token.is_name}


def _from_subquery(tokens: Tokens) -> tuple[Tokens, Tokens, str, Tokens] | None:
    """SELECT outer FROM (inner) [AS] name WHERE condition, in pieces."""
    start = _find(tokens, "from")
    if not tokens or tokens[0].keyword != "select" or start is None or start + 1 >= len(tokens):
        return None
    end = _closing(tokens, start + 1)
    where = _find(tokens, "where")
    if end is None or where is None or where < end:
        return None
    name = [token for token in tokens[end + 1 : where] if token.keyword != "as"]
    if len(name) > 1 or not all(token.is_name for token in name):
        return None
    return tokens[1:start], tokens[start + 2 : end], name[0].name if name else "", tokens[where + 1 :]


def _from_with(tokens: Tokens) -> tuple[Tokens, Tokens, str, Tokens] | None:
    """WITH name AS (inner) SELECT outer FROM name WHERE condition, in pieces."""
    if len(tokens) < 4 or not tokens[1].is_name or tokens[2].keyword != "as":
        return None
    end = _closing(tokens, 3)
    if end is None:
        return None
    rest = tokens[end + 1 :]
    start, where = _find(rest, "from"), _find(rest, "where")
    if not rest or rest[0].keyword != "select" or start is None or where != start + 2:
        return None
    name = tokens[1].name
    if rest[start + 1].name.casefold() != name.casefold():
        return None
    return rest[1:start], tokens[4:end], name, rest[where + 1 :]


def _numbered(query: str, inner: Tokens) -> _Numbered | None:
    start = _find(inner, "from")
    if not inner or inner[0].keyword != "select" or start is None:
        return None
    if any(_find(inner, word) is not None for word in _CLAUSES if word not in ("where", "group", "having")):
        return None
    columns: dict[str, tuple[str, str | None]] = {}
    stars, windows = [], []
    for item in _split(inner[1:start]):
        if not item or item[0].keyword in ("distinct", "all"):
            return None
        if item[-1].text == "*":
            stars.append(_text(query, item))
            continue
        text, alias = _aliased(query, item)
        name = alias or (item[-1].name if _is_column(item) else None)
        if item[0].keyword in ("row_number", "rank", "dense_rank") and _find(item, "over") is not None:
            windows.append((alias, text))
        elif name is None or name.casefold() in columns:
            return None
        else:
            columns[name.casefold()] = text, alias
    if len(windows) != 1 or windows[0][0] is None:
        return None
    return _Numbered(columns, tuple(stars), windows[0][0], windows[0][1], _text(query, inner[start:]))


def _kept(query: str, condition: Tokens, name: str, number: str) -> str | None:
    """The comparison with the row number, which must be all of the condition; its operator and its bound."""
    places = [place for place, token in enumerate(condition) if token.text in "<>="]
    if not places or places != [*range(places[0], places[-1] + 1)]:
        return None
    left, right = condition[: places[0]], condition[places[-1] + 1 :]
    operator = "".join(condition[place].text for place in places)
    if len(left) == 1 and left[0].kind == "number":
        left, right, operator = right, left, _MIRRORED.get(operator, "")
    if operator not in _MIRRORED.values() or len(right) != 1 or not right[0].text.isdigit():
        return None
    return f"{operator} {right[0].text}" if _column(left, name) == number.casefold() else None


def _selected(query: str, outer: Tokens, name: str, numbered: _Numbered) -> list[str] | None:
    """The texts of the outer query's columns."""
    found: list[tuple[str, str | None]] = []
    for item in _split(outer):
        words = [token for token in item if token.text not in "()"]
        if words[-1:] and words[0].text == "*" and len(words) == 3 and words[1].keyword == "exclude":
            if words[2].name.casefold() != numbered.number.casefold() or len(numbered.stars) > 1:
                return None
            found += [*((star, None) for star in numbered.stars), *numbered.columns.values()]
            continue
        text, alias = _aliased(query, item) if item else ("", None)
        named = tokenize(text)
        column = _column(named, name)
        if column is None or column == numbered.number.casefold():
            return None
        if column in numbered.columns:
            expression, own = numbered.columns[column]
            found.append((expression, alias or own))
        elif numbered.stars:
            found.append((named[-1].text, alias))
        else:
            return None
    # In QUALIFY a name may mean a column of the output, in the subquery it means one of the tables.
    if any(alias is not None and alias.casefold() in numbered.names for _, alias in found):
        return None
    return [text if alias is None else f"{text} AS {quote(alias)}" for text, alias in found] or None


def _column(tokens: Tokens, table: str) -> str | None:
    """The column that the tokens name, of the table if they say of which; None if they are anything else."""
    if len(tokens) == 3 and tokens[1].text == "." and tokens[0].name.casefold() == table.casefold():
        tokens = tokens[2:]
    return tokens[0].name.casefold() if len(tokens) == 1 and tokens[0].is_name else None


def _aliased(query: str, item: Tokens) -> tuple[str, str | None]:
    """The text of an item's expression, and the name that it is given, with or without AS."""
    if len(item) > 2 and item[-2].keyword == "as":
        return _text(query, item[:-2]), item[-1].name
    plain = item[0].keyword not in ("not", "case", "interval") and item[-1].keyword != "end"
    if len(item) > 1 and plain and item[-1].is_name and (_is_column(item[:-1]) or item[-2].text == ")"):
        return _text(query, item[:-1]), item[-1].name
    return _text(query, item), None


def _is_column(item: Tokens) -> bool:
    """Whether an item is a column's name, perhaps behind its table's."""
    return all(token.is_name if place % 2 == 0 else token.text == "." for place, token in enumerate(item))


def _find(tokens: Tokens, word: str) -> int | None:
    """The place of the first such word outside parentheses."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += _DEPTH.get(token.text, 0)
        if depth == 0 and token.keyword == word:
            return place
    return None


def _closing(tokens: Tokens, start: int) -> int | None:
    """The place of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(tokens)):
        depth += _DEPTH.get(tokens[place].text, 0)
        if depth == 0:
            return place if tokens[start].text == "(" else None
    return None


def _split(tokens: Tokens) -> list[list[Token]]:
    """The pieces between commas outside parentheses."""
    pieces: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += _DEPTH.get(token.text, 0)
        if depth == 0 and token.text == ",":
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


def _text(query: str, tokens: Tokens) -> str:
    return query[tokens[0].start : tokens[-1].end]

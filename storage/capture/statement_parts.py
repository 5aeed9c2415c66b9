"""The parts of one INSERT or MERGE statement, cut out of its text.

The text is cut, never regenerated, along the tokens of DuckDB's own lexer: what is put together
again from the parts means what the user wrote. `dissect` returns None for every form it does not
know; the caller then needs no parts (capture_upsert.py compares the whole table).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import pairwise

_JOIN_TOKENS_BEFORE_PARENTHESIS = {"in", "and", "or", "not", "on", "cast"}
_QUERY_STARTS = {"values", "select", "from", "with"}
_QUERY_WORDS = {"select", "from", "exists", "case", "rowid"}


@dataclass(frozen=True)
class Token:
    """A token: its text, where it starts and ends (bytes), how deep in parentheses, whether it is a bare word."""

    text: str
    start: int
    end: int
    depth: int
    word: bool

    @property
    def lower(self) -> str:
        """The word in lower case; quoted identifiers and strings are no words."""
        return self.text.lower() if self.word else ""

    @property
    def name(self) -> str | None:
        """The identifier this token is, or None."""
        if self.text.startswith('"'):
            return self.text[1:-1].replace('""', '"')
        return self.text if self.word else None


@dataclass(frozen=True)
class Parts:
    """A dissected statement; `head + source + tail` is its text.

    kind: insert | merge. target: the target as FROM would name it, with its alias; target_name: what
    qualifies its columns. columns: the column list of INSERT, if any; by_name: INSERT BY NAME.
    source: of INSERT a query, of MERGE a FROM item without its alias at the end, which is
    source_alias. condition: ` ON ...` or ` USING (...)` of MERGE. conflict: the columns after ON CONFLICT,
    if any. by_source: the MERGE has a WHEN NOT MATCHED BY SOURCE.
    """

    kind: str
    head: str
    source: str
    tail: str
    target: str
    target_name: str
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    conflict: tuple[str, ...] | None = None
    source_alias: str = ""
    condition: str = ""
    by_source: bool = False


def dissect(statement: str) -> Parts | None:
    """The parts of the statement (its parameters numbered), or None if its form is not one of the plain ones."""
    text = statement.encode()
    tokens = tokenize(statement)
    if any(token.text == "?" for token in tokens):
        return None
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens:
        return None
    parts = {"insert": _insert, "merge": _merge}.get(tokens[0].lower, lambda *_: None)(text, tokens)
    return replace(parts, tail=" " + parts.tail) if parts else None


def tokenize(statement: str) -> list[Token]:
    """The tokens of the statement, without comments."""
    import duckdb

    text = statement.encode()
    marks = duckdb.tokenize(statement)
    ends = [*(start for start, _ in marks[1:]), len(text)]
    tokens, depth = [], 0
    for (start, kind), end in zip(marks, ends, strict=False):  # no marks: no tokens
        if kind == duckdb.token_type.comment:
            continue
        piece = text[start:end].rstrip().decode()
        depth -= piece == ")"
        word = (piece[:1].isalpha() or piece[:1] == "_") and kind != duckdb.token_type.string_const
        tokens.append(Token(piece, start, start + len(piece.encode()), depth, word))
        depth += piece == "("
    return tokens


def number_parameters(statement: str) -> str:
    """The statement with each `?` written as `$1`, `$2`, ..., so that its parts can be run apart.

    One that has numbers of its own (`?1`) is returned as it is.
    """
    text, tokens = statement.encode(), tokenize(statement)
    marks = [i for i, token in enumerate(tokens) if token.text == "?"]
    if any(tokens[i].end == after.start and after.text.isdigit() for i in marks for after in tokens[i + 1 : i + 2]):
        return statement
    out, last = [], 0
    for number, i in enumerate(marks, 1):
        out += [text[last : tokens[i].start], b"$%d " % number]
        last = tokens[i].end
    return b"".join([*out, text[last:]]).decode()


def parameter_names(fragment: str) -> set[str]:
    """The names of the `$` parameters in a fragment."""
    tokens = tokenize(fragment)
    return {b.text for a, b in pairwise(tokens) if a.text == "$" and a.end == b.start}


def _find(tokens: list[Token], start: int, *words: str) -> int:
    """The first position from `start` of one of the words outside parentheses, or the end."""
    return next(
        (i for i in range(start, len(tokens)) if tokens[i].depth == 0 and tokens[i].lower in words), len(tokens)
    )


def _cut(text: bytes, tokens: list[Token], start: int, stop: int) -> str:
    return text[tokens[start].start : tokens[stop - 1].end].decode() if start < stop else ""


def _name_list(tokens: list[Token], start: int) -> tuple[tuple[str, ...], int] | None:
    """The identifiers of a parenthesised list that begins at `start`, and the position after it."""
    if start >= len(tokens) or tokens[start].text != "(":
        return None
    names, i = [], start + 1
    while i + 1 < len(tokens) and tokens[i].name is not None and tokens[i + 1].text in (",", ")"):
        names.append(tokens[i].name or "")
        if tokens[i + 1].text == ")":
            return tuple(names), i + 2
        i += 2
    return None


def _dotted(tokens: list[Token], start: int) -> int:
    """The position after the dotted name that begins at `start`."""
    i = start + 1
    while i + 1 < len(tokens) and tokens[i].text == ".":
        i += 2
    return i


def _insert(text: bytes, tokens: list[Token]) -> Parts | None:
    into = _find(tokens, 0, "into")
    if into > 3 or into + 2 >= len(tokens) or tokens[into + 1].name is None:
        return None
    at = after_name = _dotted(tokens, into + 1)
    name = tokens[at - 1].text
    if tokens[at : at + 1] and tokens[at].lower == "as" and at + 1 < len(tokens):
        name, at = tokens[at + 1].text, at + 2
    target = f"{_cut(text, tokens, into + 1, after_name)} AS {name}"
    columns = None
    listed = _name_list(tokens, at)
    if listed:
        columns, at = listed
    by_name = [t.lower for t in tokens[at : at + 2]] == ["by", "name"]
    at += 2 if by_name or [t.lower for t in tokens[at : at + 2]] == ["by", "position"] else 0
    conflicts = [i for i in range(at, len(tokens) - 1) if [t.lower for t in tokens[i : i + 2]] == ["on", "conflict"]]
    stop = min([*conflicts, _find(tokens, at, "returning")])
    known = at < stop and (tokens[at].lower in _QUERY_STARTS or tokens[at].text == "(")
    if not known or len(conflicts) > 1 or any(t.lower == "default" for t in tokens[at:stop]):
        return None
    conflict = _name_list(tokens, stop + 2) if conflicts else None
    if conflicts and not conflict and tokens[stop + 2 : stop + 3] and tokens[stop + 2].lower != "do":
        return None
    head, tail = text[: tokens[at].start].decode(), _cut(text, tokens, stop, len(tokens))
    source = _cut(text, tokens, at, stop)
    return Parts("insert", head, source, tail, target, name, columns, by_name, conflict[0] if conflict else None)


def _merge(text: bytes, tokens: list[Token]) -> Parts | None:
    using = _find(tokens, 0, "using")
    if len(tokens) < 4 or tokens[1].lower != "into" or using >= len(tokens):
        return None
    name = tokens[using - 1].text  # the alias, or the last part of the dotted name
    join = _find(tokens, using + 1, "on", "using")
    when = _find(tokens, join, "when")
    source = _merge_source(tokens, using + 1, join)
    outside = {t.lower for t in (*tokens[:using], *tokens[join:])}
    if source is None or when >= len(tokens) or "rowid" in outside or not _plain(tokens[join:when]):
        return None
    stop, alias = source
    by_source = any(tokens[i].lower == "by" and tokens[i + 1].lower == "source" for i in range(when, len(tokens) - 1))
    return Parts(
        "merge",
        text[: tokens[using + 1].start].decode(),
        _cut(text, tokens, using + 1, stop),
        _cut(text, tokens, join, len(tokens)),
        _cut(text, tokens, 2, using),
        name,
        source_alias=alias,
        condition=_cut(text, tokens, join, when),
        by_source=by_source,
    )


def _merge_source(tokens: list[Token], start: int, stop: int) -> tuple[int, str] | None:
    """Where the source with alias and column aliases ends, and its alias; for `name`, `name alias`, `(...) alias`."""
    if start >= stop:
        return None
    if tokens[start].text == "(":
        at = next((i for i in range(start + 1, stop) if tokens[i].text == ")" and tokens[i].depth == 0), stop) + 1
        if at >= stop:
            return None
    elif tokens[start].name is not None:
        at = _dotted(tokens, start)
    else:
        return None
    if at == stop:
        return (stop, tokens[start].text) if at == start + 1 else None
    at += tokens[at].lower == "as"
    if at >= stop or tokens[at].name is None:
        return None
    listed = _name_list(tokens, at + 1)
    end = listed[1] if listed else at + 1
    return (stop, tokens[at].text) if end == stop else None


def _plain(condition: Collection[Token]) -> bool:
    """Whether a join condition surely means the same each time: operators and columns, no functions, no queries."""
    tokens = list(condition)
    if any(token.lower in _QUERY_WORDS for token in tokens):
        return False
    if tokens[0].lower == "using":
        return True
    calls = (a for a, b in pairwise(tokens) if b.text == "(" and a.name is not None)
    return all(a.lower in _JOIN_TOKENS_BEFORE_PARENTHESIS for a in calls)

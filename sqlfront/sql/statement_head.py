"""Recognise and parse our own statements from their first words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlfront.sql.carets import caret
from sqlfront.sql.statements import (
    AlterMaterializedView,
    CheckMaterializedView,
    ColumnDefinition,
    CreateChangeTable,
    CreateMaterializedView,
    DropChangeTable,
    DropMaterializedView,
    ExplainAlgebra,
    ExplainMaterialized,
    ExplainMaterializedView,
    Name,
    RefreshChangeTables,
    RefreshMaterializedView,
    ShowChangeTables,
    ShowMaterializedViews,
    ShowState,
    Statement,
    Subscribe,
)
from sqlfront.sql.tokens import Token, tokenize
from sqlfront.storage.errors import ProgrammingError

_HEAD = 400
_FIRST_WORDS = ("create", "drop", "refresh", "alter", "show", "explain", "check", "subscribe")
_QUERY_WORDS = ("select", "with", "from", "values")


def parse_own(text: str, start: int) -> Statement | None:
    """The statement if it is one of ours, else None. Raises ProgrammingError for a syntax error in ours."""
    parse = _parser(text)
    return parse(Reader(text), start) if parse is not None else None


def is_own(text: str) -> bool:
    """Whether a statement is one of ours by its first words."""
    return _parser(text) is not None


def _parser(text: str) -> Callable[[Reader, int], Statement] | None:
    head = tokenize(text[:_HEAD])[:6]
    if not head or head[0].keyword not in _FIRST_WORDS:
        return None
    words = [token.keyword or token.text for token in head]
    if words[:3] == ["create", "or", "replace"]:
        words = ["create", *words[3:]]
    for opening, parse in _STATEMENTS.items():
        if tuple(words[: len(opening)]) == opening:
            return parse
    return None


class Reader:
    """Walks the tokens of a statement; every failure is a ProgrammingError with a caret."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, tokenize(text), 0

    @property
    def token(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def skip(self, *words: str) -> bool:
        """Step over the words if they come next."""
        following = [token.keyword or token.text for token in self.tokens[self.at : self.at + len(words)]]
        if following != list(words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.skip(word):
                raise self.error(f"Expected {word.upper()}")

    def error(self, what: str, token: Token | None = None) -> ProgrammingError:
        token = token or self.token
        start, end = (token.start, token.end) if token else (len(self.text), len(self.text) + 1)
        found = f'found "{token.text}"' if token else "found the end of the statement"
        return ProgrammingError(f"Syntax error: {what}, {found}", where=caret(self.text, start, end))

    def identifier(self, what: str) -> Token:
        token = self.token
        if token is None or not token.is_name:
            raise self.error(f"Expected {what}")
        self.at += 1
        return token

    def name(self, what: str) -> Name:
        tokens = [self.identifier(what)]
        while self.skip("."):
            tokens.append(self.identifier(what))
        if len(tokens) > 3:
            raise self.error("A name has at most a database, a schema and a name", tokens[3])
        return Name(tuple(token.name for token in tokens), tokens[0].start, tokens[-1].end)

    def names(self, what: str) -> tuple[str, ...]:
        """(a, b, ...)"""
        self.expect("(")
        found = [self.identifier(what).name]
        while self.skip(","):
            found.append(self.identifier(what).name)
        self.expect(")")
        return tuple(found)

    def options(self) -> tuple[tuple[str, Any], ...]:
        """(key = value, ...): keys in lower case, values as Python values. Repeated keys are errors."""
        self.expect("(")
        found: dict[str, Any] = {}
        while True:
            token = self.identifier("an option's name")
            option = token.name.lower()
            if option in found:
                raise self.error("An option is given twice", token)
            self.expect("=")
            found[option] = self.value()
            if not self.skip(","):
                break
        self.expect(")")
        return tuple(found.items())

    def span_until(self, stops: Callable[[Token], bool]) -> tuple[int, int]:
        """The text up to the next token outside parentheses for which `stops` holds."""
        first, depth = self.at, 0
        while self.token is not None and (depth > 0 or not stops(self.token)):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(self.token.text, 0)
            if depth < 0:
                break
            self.at += 1
        if self.at == first:
            raise self.error("Something is missing here")
        return self.tokens[first].start, self.tokens[self.at - 1].end

    def end(self) -> None:
        if self.token is not None:
            raise self.error("Expected the end of the statement")

    def query(self) -> tuple[str, int]:
        """The rest of the statement, which must be a query."""
        token = self.token
        if token is None or (token.keyword not in _QUERY_WORDS and token.text != "("):
            raise self.error("Expected SELECT")
        return self.text[token.start :], token.start

    def value(self) -> Any:
        """A number, a text or a word, as an option has it."""
        negative = self.skip("-")
        token = self.token
        if token is None or token.kind not in ("number", "string", "word", "quoted"):
            raise self.error("Expected a value")
        self.at += 1
        if token.kind == "number":
            digits = token.text.replace("_", "")
            try:
                value = int(digits) if digits.isdigit() else float(digits)
            except ValueError:
                raise self.error("Expected a number", token) from None
            return -value if negative else value
        if negative:
            raise self.error("Expected a number", token)
        if token.kind == "string":
            return token.value
        return {"true": True, "false": False, "on": True, "off": False}.get(token.keyword, token.name)


def _create_view(reader: Reader, start: int) -> Statement:
    reader.expect("create")
    or_replace = reader.skip("or", "replace")
    reader.expect("materialized", "view")
    if_not_exists = reader.skip("if", "not", "exists")
    name = reader.name("the view's name")
    _refuse_both(reader, or_replace, if_not_exists, name)
    columns = reader.names("a column's name") if reader.token and reader.token.text == "(" else ()
    options = reader.options() if reader.skip("with") else ()
    reader.expect("as")
    query, query_start = reader.query()
    return CreateMaterializedView(
        reader.text, start, name, query, query_start, columns, options, or_replace, if_not_exists
    )


def _drop_view(reader: Reader, start: int) -> Statement:
    reader.expect("drop", "materialized", "view")
    return DropMaterializedView(reader.text, start, *_dropped(reader, "the view's name"))


def _dropped(reader: Reader, what: str) -> tuple[Name, bool, bool]:
    """[IF EXISTS] name [CASCADE | RESTRICT]"""
    if_exists = reader.skip("if", "exists")
    name = reader.name(what)
    cascade = reader.skip("cascade")
    if not cascade:
        reader.skip("restrict")
    reader.end()
    return name, if_exists, cascade


def _refresh(reader: Reader, start: int) -> Statement:
    reader.expect("refresh", "materialized", "view")
    return RefreshMaterializedView(reader.text, start, _last_name(reader))


def _refresh_tables(reader: Reader, start: int) -> Statement:
    reader.expect("refresh", "change", "table")
    names = [reader.name("the table's name")]
    while reader.skip(","):
        names.append(reader.name("the table's name"))
    reader.end()
    return RefreshChangeTables(reader.text, start, tuple(names))


def _alter_view(reader: Reader, start: int) -> Statement:
    reader.expect("alter", "materialized", "view")
    name = reader.name("the view's name")
    reader.expect("set")
    options = reader.options()
    reader.end()
    return AlterMaterializedView(reader.text, start, name, options)


def _create_table(reader: Reader, start: int) -> Statement:
    reader.expect("create")
    or_replace = reader.skip("or", "replace")
    reader.expect("change", "table")
    if_not_exists = reader.skip("if", "not", "exists")
    name = reader.name("the table's name")
    _refuse_both(reader, or_replace, if_not_exists, name)
    columns, primary_key, unique = _table_elements(reader)
    options = reader.options() if reader.skip("with") else ()
    source: str | None = None
    source_options: tuple[tuple[str, Any], ...] = ()
    source_at: tuple[int, int] | None = None
    if reader.skip("from"):
        token = reader.identifier("the kind of source")
        source, source_at = token.name.lower(), (token.start, token.end)
        reader.expect("options")
        source_options = reader.options()
    reader.end()
    return CreateChangeTable(
        reader.text,
        start,
        name,
        columns,
        primary_key,
        unique,
        options,
        or_replace,
        if_not_exists,
        source,
        source_options,
        source_at,
    )


def _table_elements(
    reader: Reader,
) -> tuple[tuple[ColumnDefinition, ...], tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """(column type constraints, ..., PRIMARY KEY (...), UNIQUE (...))"""
    columns: list[ColumnDefinition] = []
    keys: list[tuple[str, ...]] = []
    unique: list[tuple[str, ...]] = []
    reader.expect("(")
    while True:
        place = reader.token
        if reader.skip("primary", "key"):
            keys.append(reader.names("a column's name"))
        elif reader.token and reader.token.keyword == "unique" and _opens(reader, 1):
            reader.skip("unique")
            unique.append(reader.names("a column's name"))
        else:
            columns.append(_column(reader, keys, unique, columns))
        if len(keys) > 1:
            raise reader.error("A table has one primary key", place)
        if not reader.skip(","):
            break
    reader.expect(")")
    _check_keys(reader, columns, [*keys, *unique])
    in_key = set(keys[0]) if keys else set()
    final = tuple(ColumnDefinition(c.name, c.type, c.not_null or c.name in in_key, c.default) for c in columns)
    return final, keys[0] if keys else (), tuple(unique)


def _column(
    reader: Reader, keys: list[tuple[str, ...]], unique: list[tuple[str, ...]], known: list[ColumnDefinition]
) -> ColumnDefinition:
    """name type [NOT NULL | NULL | DEFAULT expression | PRIMARY KEY | UNIQUE] ..."""
    token = reader.identifier("a column's name")
    if token.name.lower() in {column.name.lower() for column in known}:
        raise reader.error("A column is declared twice", token)
    begin, end = reader.span_until(lambda t: t.text in ",)" or t.keyword in _COLUMN_WORDS)
    kind, not_null, default = reader.text[begin:end], False, None
    while reader.token is not None and reader.token.text not in (",", ")"):
        if reader.skip("not", "null"):
            not_null = True
        elif reader.skip("primary", "key"):
            keys.append((token.name,))
        elif reader.skip("unique"):
            unique.append((token.name,))
        elif reader.skip("default"):
            default = _default(reader)
        elif not reader.skip("null"):
            raise reader.error("Expected NOT NULL, DEFAULT, PRIMARY KEY or UNIQUE")
    return ColumnDefinition(token.name, kind, not_null, default)


def _default(reader: Reader) -> str:
    """The text of a DEFAULT expression; its first word may be NULL or NOT."""
    first = reader.at
    begin, end = reader.span_until(lambda t: t.text in ",)" or (t.keyword in _COLUMN_WORDS and reader.at > first))
    return reader.text[begin:end]


_COLUMN_WORDS = ("not", "default", "primary", "unique", "check", "references", "null")


def _opens(reader: Reader, ahead: int) -> bool:
    at = reader.at + ahead
    return at < len(reader.tokens) and reader.tokens[at].text == "("


def _check_keys(reader: Reader, columns: list[ColumnDefinition], keys: list[tuple[str, ...]]) -> None:
    if not columns:
        raise reader.error("A table needs a column", reader.tokens[reader.at - 1])
    names = {column.name.lower() for column in columns}
    for name in (name for columns_of_key in keys for name in columns_of_key):
        if name.lower() not in names:
            token = next(t for t in reversed(reader.tokens) if t.is_name and t.name == name)
            raise reader.error("A key names a column that the table does not have", token)


def _drop_table(reader: Reader, start: int) -> Statement:
    reader.expect("drop", "change", "table")
    return DropChangeTable(reader.text, start, *_dropped(reader, "the table's name"))


def _show_tables(reader: Reader, start: int) -> Statement:
    reader.expect("show", "change", "tables")
    reader.end()
    return ShowChangeTables(reader.text, start)


def _show_views(reader: Reader, start: int) -> Statement:
    reader.expect("show", "materialized", "views")
    reader.end()
    return ShowMaterializedViews(reader.text, start)


def _show_state(reader: Reader, start: int) -> Statement:
    reader.expect("show", "state")
    name = reader.name("the view's name") if reader.skip("for") else None
    reader.end()
    return ShowState(reader.text, start, name)


def _explain_view(reader: Reader, start: int) -> Statement:
    reader.expect("explain", "materialized", "view")
    name = reader.name("the view's name")
    options = reader.options() if reader.skip("with") else ()
    reader.end()
    return ExplainMaterializedView(reader.text, start, name, options)


def _explain_query(reader: Reader, start: int) -> Statement:
    reader.expect("explain", "(", "materialized")
    options = (("shards", reader.value()),) if reader.skip(",", "shards") else ()
    reader.expect(")")
    return ExplainMaterialized(reader.text, start, *reader.query(), options)


def _explain_algebra(reader: Reader, start: int) -> Statement:
    reader.expect("explain", "(", "algebra", ")")
    return ExplainAlgebra(reader.text, start, *reader.query())


def _check(reader: Reader, start: int) -> Statement:
    reader.expect("check", "materialized", "view")
    return CheckMaterializedView(reader.text, start, _last_name(reader))


def _subscribe(reader: Reader, start: int) -> Statement:
    reader.expect("subscribe", "to")
    name = reader.name("the view's name")
    options = reader.options() if reader.skip("with") else ()
    reader.end()
    return Subscribe(reader.text, start, name, options)


def _last_name(reader: Reader) -> Name:
    name = reader.name("the view's name")
    reader.end()
    return name


def _refuse_both(reader: Reader, or_replace: bool, if_not_exists: bool, name: Name) -> None:
    if or_replace and if_not_exists:
        where = caret(reader.text, name.start, name.end)
        raise ProgrammingError("Syntax error: OR REPLACE and IF NOT EXISTS exclude each other", where=where)


_STATEMENTS: dict[tuple[str, ...], Callable[[Reader, int], Statement]] = {
    ("create", "materialized"): _create_view,
    ("drop", "materialized"): _drop_view,
    ("refresh", "change"): _refresh_tables,
    ("refresh",): _refresh,
    ("alter", "materialized"): _alter_view,
    ("create", "change"): _create_table,
    ("drop", "change"): _drop_table,
    ("show", "change"): _show_tables,
    ("show", "materialized"): _show_views,
    ("show", "state"): _show_state,
    ("explain", "materialized"): _explain_view,
    ("explain", "(", "materialized"): _explain_query,
    ("explain", "(", "algebra"): _explain_algebra,
    ("check",): _check,
    ("subscribe",): _subscribe,
}

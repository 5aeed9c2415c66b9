"""The statements that a connection understands, as frozen data, and `parse_statement`, which recognises them.

Our own statements (materialized views, change tables) are parsed completely. All others are
DuckDB's: `PassThrough` says what the connection must know before it hands them on.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sqlfront.sql.recognise import is_own
from sqlfront.storage.errors import ProgrammingError

if TYPE_CHECKING:
    from sqlglot import exp

Kind = Literal[
    "select",
    "insert",
    "update",
    "delete",
    "merge",
    "truncate",
    "copy_from",
    "copy_to",
    "create_table_as",
    "ddl",
    "begin",
    "commit",
    "rollback",
    "checkpoint",
    "show_tables",
    "describe",
    "explain",
    "prepare",
    "execute",
    "attach",
    "use",
    "set",
    "other",
]


@dataclass(frozen=True)
class Name:
    """A possibly qualified name as written: its parts without quotes, and where it stands in the statement's text."""

    parts: tuple[str, ...]
    start: int
    end: int

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Statement:
    """One statement: its text without the semicolon, and where the text begins in the string that was executed."""

    text: str
    start: int


@dataclass(frozen=True)
class CreateMaterializedView(Statement):
    """CREATE MATERIALIZED VIEW; `query` is the SELECT, which begins at `query_start` of `text`."""

    name: Name
    query: str
    query_start: int
    columns: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    trees: list[exp.Expr] = field(default_factory=list, compare=False, repr=False)

    def take_tree(self) -> exp.Expr | None:
        """The query's tree, which who takes it may change; None for the next, as statements are remembered."""
        return self.trees.pop() if self.trees else None


@dataclass(frozen=True)
class DropMaterializedView(Statement):
    name: Name
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class RefreshMaterializedView(Statement):
    name: Name


@dataclass(frozen=True)
class AlterMaterializedView(Statement):
    """ALTER MATERIALIZED VIEW v SET (...)."""

    name: Name
    options: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class RenameMaterializedView(Statement):
    """ALTER MATERIALIZED VIEW v RENAME TO w."""

    name: Name
    to: str


@dataclass(frozen=True)
class SetOwn(Statement):
    """SET of a setting of ours."""

    name: str
    value: Any


@dataclass(frozen=True)
class CreateViewIndex(Statement):
    """CREATE INDEX on a materialized view; `order` is the text between the parentheses."""

    name: str
    view: Name
    order: str
    if_not_exists: bool = False
    unique: bool = False
    using: bool = False


@dataclass(frozen=True)
class DropViewIndex(Statement):
    name: Name


@dataclass(frozen=True)
class ColumnDefinition:
    """A column of CREATE CHANGE TABLE; `type` and `default` are SQL text."""

    name: str
    type: str
    not_null: bool = False
    default: str | None = None


@dataclass(frozen=True)
class CreateChangeTable(Statement):
    """CREATE CHANGE TABLE; `primary_key` is empty when none is declared, `source` is FROM kind OPTIONS (...)."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    source: str | None = None
    source_options: tuple[tuple[str, Any], ...] = ()
    source_at: tuple[int, int] | None = None


@dataclass(frozen=True)
class DropChangeTable(Statement):
    name: Name
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class RefreshChangeTables(Statement):
    """REFRESH CHANGE TABLE t, ...: take in what is new at their sources, as one epoch."""

    names: tuple[Name, ...]


@dataclass(frozen=True)
class ShowChangeTables(Statement):
    pass


@dataclass(frozen=True)
class ShowMaterializedViews(Statement):
    pass


@dataclass(frozen=True)
class ShowState(Statement):
    """SHOW STATE [FOR v]; no name means all views."""

    name: Name | None = None


@dataclass(frozen=True)
class ShowErrors(Statement):
    """SHOW ERRORS FOR v: the rows on which an expression of the view fails."""

    name: Name


@dataclass(frozen=True)
class ShowEpochs(Statement):
    """SHOW EPOCHS: where the time of the last epochs went."""


@dataclass(frozen=True)
class ExplainMaterializedView(Statement):
    """EXPLAIN MATERIALIZED VIEW v [WITH (shards = 8)]."""

    name: Name
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class ExplainMaterialized(Statement):
    """EXPLAIN (MATERIALIZED [, SHARDS 8]) SELECT ...: how the query would be kept, were it a view."""

    query: str
    query_start: int
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class ExplainCreation(Statement):
    """EXPLAIN CREATE [OR REPLACE] MATERIALIZED VIEW ...: how the view would be kept, with its options."""

    creation: CreateMaterializedView


@dataclass(frozen=True)
class ExplainAlgebra(Statement):
    """EXPLAIN (ALGEBRA) SELECT ...: the query's term after each rule that changed it."""

    query: str
    query_start: int


@dataclass(frozen=True)
class CheckMaterializedView(Statement):
    name: Name


@dataclass(frozen=True)
class Subscribe(Statement):
    """SUBSCRIBE TO v [WITH (...)]."""

    name: Name
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Equality:
    """`column = value` that a reference's rows must satisfy: `value` is the tree of a constant or of a parameter."""

    column: str
    value: exp.Expr


@dataclass(frozen=True)
class TableReference:
    """A table that a statement reads: the name at text[start:end], the alias that follows it if there is one.

    `equalities` are those of the WHERE and inner-join ON conditions of the reference's own SELECT.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str | None = None
    equalities: tuple[Equality, ...] = ()


@dataclass(frozen=True)
class PassThrough(Statement):
    """A statement of DuckDB's.

    kind          what it is; EXPLAIN ANALYZE and PREPARE of a statement keep that statement's targets
    targets       the tables written, dropped, altered or created
    upsert        ON CONFLICT DO UPDATE or INSERT OR REPLACE
    returning     it has a RETURNING clause
    verb, object  for ddl: ("alter", "table"), ("drop", "view"), ("create", "index"), ...
    action        for ALTER: the words after the name, such as "add column" or "rename to"
    inner         for explain and prepare: the kind of the statement inside
    prepared      for prepare, execute: the statement's name
    """

    kind: Kind
    targets: tuple[Name, ...] = ()
    upsert: bool = False
    returning: bool = False
    verb: str = ""
    object: str = ""
    action: str = ""
    if_exists: bool = False
    cascade: bool = False
    inner: Kind | None = None
    prepared: str = ""
    reads: tuple[tuple[int, int, str], ...] = field(default=(), repr=False)
    named_reads: tuple[Name, ...] = ()

    @functools.cached_property
    def references(self) -> tuple[TableReference, ...] | None:
        """The tables read, in order; None when the text could not be analysed. CTE names are no tables.

        Computed at first use: it parses the queries in the statement (about a millisecond for a new text), while
        recognising the statement only looks at its first words.
        """
        from sqlfront.sql.references import table_references

        return table_references(self)


def parse_statement(sql: str) -> tuple[Statement, ...]:
    """The statements in `sql`, split as DuckDB splits them; empty ones are left out. Short texts are remembered.

    Raises ProgrammingError for what is no text and, with a caret, for a syntax error in one of our own statements;
    errors in DuckDB's statements are left for DuckDB to report. Time linear in the text; a long INSERT ... VALUES
    list is scanned, not tokenised.
    """
    if not isinstance(sql, str):
        raise ProgrammingError(f"{sql!r} is no SQL", hint="give the statement as a str")
    return _remembered(sql) if len(sql) <= _REMEMBERED_LENGTH else _parsed(sql)


def _parsed(sql: str) -> tuple[Statement, ...]:
    from sqlfront.sql.passthrough import classify
    from sqlfront.sql.tokens import split

    found: list[Statement] = []
    for start, end in split(sql):
        text = sql[start:end]
        found.append(_read_own(text, start) if is_own(text) else classify(text, start))
    return tuple(found)


_REMEMBERED_LENGTH = 4000
_remembered = functools.lru_cache(maxsize=512)(_parsed)


def _read_own(text: str, start: int) -> Statement:
    from sqlfront.sql.own_statements import read_own  # With sqlglot, which a process without views does not load.

    return read_own(text, start)

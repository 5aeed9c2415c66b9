"""Single writes of captured tables, recognised by the shape of their text: they tell their changes themselves.

The kind, the table and the place of WHERE are found once for a shape and remembered (read/short_reads.py). For an
UPDATE the rows as they were are asked for by its own WHERE, in its transaction. So WHERE must give the same answer
twice: it compares columns of the table and constants, and calls no function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.database.elsewhere import bodies_found
from sqlfront.database.failures import translated
from sqlfront.database.names import captured_table
from sqlfront.read.short_reads import UNKNOWN, parameters_in, place_in
from sqlfront.sql.query_trees import query_tree
from sqlfront.sql.statements import PassThrough, parse_statement
from sqlfront.sql.tokens import Token, tokenize
from sqlfront.storage.capture.setup import columns
from sqlfront.storage.errors import StaleRead
from sqlfront.storage.sql_text import quote
from sqlfront.write.returned import (
    FEW,
    SIGNS,
    Telling,
    captured_relation,
    insert_batch,
    insert_known,
    names_interval,
    told_relation,
    write_few,
    write_told,
)
from sqlfront.write.value_rows import GivenRows, columns_named, exact_rows, given_rows

if TYPE_CHECKING:
    from sqlfront.database.names import Key
    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.relation.base_relation import Relation

_NEXT_ROW = re.compile(r"\)\s*,\s*\(")
_REPEATABLE = (
    exp.Select,
    exp.Star,
    exp.From,
    exp.Table,
    exp.TableAlias,
    exp.Where,
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Placeholder,
    exp.Boolean,
    exp.Null,
    exp.Paren,
    exp.Neg,
    exp.And,
    exp.Or,
    exp.Not,
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.Is,
    exp.Between,
    exp.In,
    exp.Tuple,
)
"""What WHERE may be made of."""


@dataclass(frozen=True)
class Tail:
    """The FROM of the query for an UPDATE's rows, and where its WHERE begins: a place in the shape, behind so many of
    its parameters. No place: there is no WHERE."""

    table: str
    place: int | None
    parameters: int

    def of(self, telling: Telling, literals: Sequence[Any]) -> Telling:
        """The UPDATE of a text of the shape, which has these literals."""
        text, params = telling.text, telling.params
        where = len(text) if self.place is None else place_in(text, self.place, self.parameters)
        first = literals[: self.parameters].count(UNKNOWN)
        before = f"{self.table} {text[where:]}"
        return replace(telling, before=before, before_params=params and params[first:], where=where)


@dataclass(frozen=True)
class ToldWrite:
    """An INSERT, an UPDATE or a DELETE of the captured table `key`.

    `rows` are those of an INSERT whose values in the relation are known, `into` its beginning if it gives no others.
    `few`: nothing is lost if it runs twice, as a write of more than a few rows may. `many`: it had them last time.
    """

    key: Key
    sign: int
    tail: Tail | None = None
    rows: GivenRows | None = None
    into: str | None = None
    few: bool = False
    many: bool = False

    def run(
        self, session: Session, text: str, literals: Sequence[Any], values: Sequence[Any], params: Any
    ) -> int | None:
        """How many rows the write has changed; None, with nothing done, if it has to go the general way."""
        relation = told_relation(session, self.key)
        if relation is None or not session.reads_nothing(text):
            return None
        rows = None if self.rows is None else exact_rows(self.rows, relation.columns, values)
        if rows is not None:
            with bodies_found(session):
                return insert_known(session, relation, text, params, rows)
        text = text.rstrip().removesuffix(";")
        telling = Telling(text, self.sign, params, many=self.many)
        if self.tail is not None:
            telling = self.tail.of(telling, literals)
        session.reading = None
        watched = session.database.progress.watch(text)
        try:
            with watched, bodies_found(session), session.passing_over(), translated(session.reading_error):
                count = write_few(session, relation, telling) if self.few and not self.many else None
                return write_told(session, relation, [telling]) if count is None else count
        except StaleRead:  # It reads one of ours by another name; nothing has been changed.
            session.reading = None
            return None

    def insert_many(self, session: Session, sets: Sequence[Sequence[Any]]) -> int | None:
        """Run an INSERT VALUES with all of these values as one INSERT; how many rows it brings. None, with nothing
        done, if it has to go the general way."""
        relation = told_relation(session, self.key)
        if relation is None or self.rows is None or self.into is None:
            return None
        rows = list[tuple[Any, ...]]()
        for values in sets:
            found = exact_rows(self.rows, relation.columns, values)
            if found is None:
                return None
            rows += found
        with bodies_found(session):
            return insert_batch(session, relation, self.into, rows)


def told_write(session: Session, statement: PassThrough, key: Key) -> ToldWrite | None:
    """The plan of a shape that is this statement."""
    relation = captured_relation(session, key)
    if relation is None or statement.upsert or statement.returning or statement.inner:
        return None
    if names_interval(statement, relation):
        return None
    if statement.kind == "insert":
        table = captured_table(session.database, key)
        names, generated = columns(session.duck, session.database.name, table)
        every = [name for name in names if name not in generated]
        rows = given_rows(statement.text, every, relation.columns)
        few = not statement.reads and len(_NEXT_ROW.findall(statement.text)) < FEW
        into = _into(statement, every, relation) if rows else None
        return ToldWrite(key, 1, rows=rows if few else None, into=into, few=few)
    if statement.kind in SIGNS:
        return ToldWrite(key, SIGNS[statement.kind], few=True)
    tail = _tail(statement) if statement.kind == "update" else None
    if tail is None:
        return None
    return ToldWrite(key, 1, tail=tail, few=tail.place is not None and "(" not in statement.text[: tail.place])


def _into(statement: PassThrough, every: Sequence[str], relation: Relation) -> str | None:
    """`INSERT INTO t (a, b)` with the relation's columns, if an INSERT VALUES gives just these."""
    text, target = statement.text, statement.targets[0]
    named = [name.casefold() for name in columns_named(text)] or [name.casefold() for name in every]
    if set(named) != {column.name.casefold() for column in relation.columns}:
        return None
    names = ", ".join(quote(column.name) for column in relation.columns)
    return f"INSERT INTO {text[target.start : target.end]} ({names})"


def _tail(statement: PassThrough) -> Tail | None:
    """Where the rows stand that an UPDATE of one table changes; None if only DuckDB can tell."""
    text, target = statement.text, statement.targets[0]
    words = {token.keyword: token for token in reversed(_outside(tokenize(text, target.end)))}
    if "set" not in words or "from" in words or text[: target.start].strip().casefold() != "update":
        return None
    table, where = f"FROM {text[target.start : words['set'].start]}", words.get("where")
    query = query_tree(f"SELECT * {table}{'' if where is None else text[where.start :]}")
    if query is None or not all(isinstance(node, _REPEATABLE) for node in query.walk()):
        return None
    return Tail(table, where.start if where else None, parameters_in(text[: where.start]) if where else 0)


def _outside(tokens: Sequence[Token]) -> list[Token]:
    """The tokens that are in no parentheses."""
    depth, found = 0, []
    for token in tokens:
        depth -= token.text == ")"
        if depth == 0:
            found.append(token)
        depth += token.text == "("
    return found


def the_write(shape: str) -> PassThrough | None:
    """The statement of a shape that is one write of one table."""
    found = parse_statement(shape)
    statement = found[0] if len(found) == 1 else None
    return statement if isinstance(statement, PassThrough) and len(statement.targets) == 1 else None

"""Writes that are recognised by the shape of their text; their plans are remembered as reads' (read/short_reads.py).

Writes of a few rows of a change table that say all in literals, INSERT VALUES, and UPDATE and DELETE by a key, go to
the engine as Python values, without DuckDB and without a look at the rest of the table. Those of a durable table, and
those in a transaction, are added to DuckDB's transaction as the changed rows. What casts a value, a key that is not
declared, and a conflict clause go the general way. Writes of captured tables are DuckDB's (told_writes.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.database.names import meant
from sqlfront.database.transactions import Transaction
from sqlfront.maintenance.relation.keyed_rows import decoded_rows, keyed_changes
from sqlfront.read.comparing import is_same
from sqlfront.read.order_defaults import defaults_of
from sqlfront.read.short_reads import UNKNOWN, given_values, shape_of
from sqlfront.sql.name_parts import NAME, TABLE, listed, split_name
from sqlfront.storage.codecs.encoding import codec_for
from sqlfront.storage.errors import DataError, NotSupportedError
from sqlfront.write.returned import FEW
from sqlfront.write.told_writes import ToldWrite, the_write, told_write
from sqlfront.write.value_rows import Given, GivenRows, exact_rows, given, given_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.entries import ChangeTable
    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.relation.base_relation import Column
    from sqlfront.maintenance.relation.keyed_rows import Codes
    from sqlfront.storage.codecs.codec import Codec

_LONGEST = 4000
_PAIR = rf"{NAME}\s*=\s*(?:-\s*)?\?"
_WHERE = rf"where\s+(?P<where>{_PAIR}(?:\s+and\s+{_PAIR})*)"
_UPDATE = re.compile(rf"\s*update\s+{TABLE}\s+set\s+(?P<sets>{listed(_PAIR)})\s+{_WHERE}\s*;?\s*", re.IGNORECASE)
_DELETE = re.compile(rf"\s*delete\s+from\s+{TABLE}\s+{_WHERE}\s*;?\s*", re.IGNORECASE)
_PAIRS = re.compile(rf"({NAME})\s*=\s*((?:-\s*)?\?)")


@dataclass(frozen=True)
class Insert:
    """Rows in the table's column order."""

    table: ChangeTable
    relation: str
    rows: GivenRows

    def run(self, session: Session, sets: Sequence[Sequence[Any]]) -> int | None:
        """How many rows come with all of these values; None, with nothing done, if they have to go the general way."""
        engine, rows = session.database.engine, list[tuple[Any, ...]]()
        for values in sets:
            found = exact_rows(self.rows, self.table.columns, values)
            if found is None:
                return None
            rows += found
        try:
            if _is_transactional(session, self.table):
                _note(session, self.table, engine.relations[self.relation].as_batch(rows), None)
                return len(rows)
            gate = engine.gates.get(self.relation) if len(rows) == 1 else None
            if gate is None or gate.run(rows[0], 1) is None:
                engine.apply_rows(self.relation, rows, [1] * len(rows))
            engine.relations[self.relation].passed = True
        except DataError:  # The general way says what is wrong, in DuckDB's words.
            return None
        return len(rows)


@dataclass(frozen=True)
class ByKey:
    """The rows that have values, among them those of `key`, get others, or go (`sets` is None)."""

    table: ChangeTable
    relation: str
    key: tuple[str, ...]
    where: tuple[tuple[Column, Codec, Given], ...]
    sets: tuple[tuple[Column, Codec, Given], ...] | None

    def run(self, session: Session, sets: Sequence[Sequence[Any]]) -> int | None:
        """How many rows the only set of values changes; None, with nothing done, if it has to go the general way."""
        [values], codes = sets, list[dict[str, tuple[int, ...]]]()
        for pairs, inserted in ((self.where, False), (self.sets or (), True)):
            codes.append({})
            for column, codec, item in pairs:
                value = item.value(values)
                if value is None or is_same(column.type, value) is not True:
                    return None
                try:
                    code = codec.encode_value(value) if inserted else codec.find_value(value)
                except DataError:
                    return None
                if code is None:
                    return 0  # No row has the value.
                codes[-1][column.name] = code
        where, changed = codes[0], None if self.sets is None else codes[1]
        if _is_transactional(session, self.table):
            return self._noted(session, where, changed)
        return session.database.engine.change_by_key(self.relation, self.key, where, changed)

    def _noted(self, session: Session, where: Codes, changed: Codes | None) -> int | None:
        """As the engine's `change_by_key`, in a transaction, whose own changes of the table count."""
        engine, transaction = session.database.engine, session.transaction
        if not engine.index_rows(self.relation, self.key):
            return None
        relation = engine.relations[self.relation]
        has_own = transaction is not None and transaction.has_changed(self.relation)
        is_older = has_own or session.is_newer(self.relation)
        with session.reading_own({self.relation}.intersection) if is_older else nullcontext():
            count, rows = keyed_changes(relation, self.key, where, changed)
        if rows:
            weights = np.array([weight for _, weight in rows], np.int64)
            _note(session, self.table, decoded_rows(relation, [codes for codes, _ in rows]), weights)
        return count


def write_shortly(session: Session, text: str, params: Any) -> bool:
    """Run such a write as one epoch and leave its count as the result; False, with nothing done, for any other."""
    found = _shape(text)
    values = None if found is None else given_values(found[1], params)
    if found is None or values is None:
        return False
    shape, literals = found
    with session.database.lock:
        plan = _plan_of(session, shape)
        rows = None if plan is None or isinstance(plan, ToldWrite) else _run(session, plan, [values])
    if isinstance(plan, ToldWrite) and session.transaction is None:
        rows = plan.run(session, text, literals, values, params)
        if rows is not None and plan.many != (rows > FEW):
            session.plans[shape] = replace(plan, many=rows > FEW)
    if rows is None:
        return False
    session.set_count(rows)
    return True


def write_many(session: Session, text: str, sets: Sequence[Any]) -> bool:
    """Run an INSERT VALUES with each set of parameters, as one epoch and one INSERT; False, with nothing done, for any
    other write."""
    found = _shape(text)
    values = [] if found is None else [given_values(found[1], one) for one in sets]
    if found is None or not sets or None in values:
        return False
    known = [one for one in values if one is not None]
    with session.database.lock:
        plan = _plan_of(session, found[0])
        rows = _run(session, plan, known) if isinstance(plan, Insert) else None
    if isinstance(plan, ToldWrite):
        rows = plan.insert_many(session, known)
    if rows is None:
        return False
    session.set_count(rows // len(sets))  # That of the last set, as DuckDB leaves it.
    return True


def _shape(text: str) -> tuple[str, tuple[Any, ...]] | None:
    return shape_of(text) if len(text) <= _LONGEST else None


def _plan_of(session: Session, shape: str) -> Insert | ByKey | ToldWrite | None:
    plan: Insert | ByKey | ToldWrite | None = session.plans.get(shape, UNKNOWN)
    return _planned(session, shape) if plan is UNKNOWN else plan


def _run(session: Session, plan: Insert | ByKey, sets: Sequence[Sequence[Any]]) -> int | None:
    if session.transaction is not None:
        session.duck.execute("SELECT 1").fetchall()  # It fails if an error has aborted the transaction.
    try:
        return None if plan.table.lost is not None else plan.run(session, sets)
    except TypeError:  # A minus before a string.
        return None


def _is_transactional(session: Session, table: ChangeTable) -> bool:
    """Whether changes of a table are part of a transaction of DuckDB's."""
    return table.durable or session.transaction is not None


def _note(session: Session, table: ChangeTable, rows: pa.RecordBatch, weights: np.ndarray | None) -> None:
    """Add changes to the open transaction, or commit them with their log."""
    with session.in_transaction(partial(Transaction.commit, alone=True)) as transaction:
        transaction.add(table, rows, weights)


def _planned(session: Session, shape: str) -> Insert | ByKey | ToldWrite | None:
    """The plan of a shape. It is remembered if its table's name is."""
    database, statement = session.database, the_write(shape)
    if statement is None:
        session.plans[shape] = None
        return None
    parts = statement.targets[0].parts
    key = meant(session, parts)
    if key is None or parts not in session.meant:
        return None
    table = database.change_tables.get(key)
    plan: Insert | ByKey | ToldWrite | None = None
    if table is None:
        plan = told_write(session, statement, key) if database.capture.named(key) is not None else None
    elif not (table.durable and database.read_only) and not defaults_of(session).collated:
        plan = _plan(session, shape, table)
    session.plans[shape] = plan
    return plan


def _plan(session: Session, shape: str, table: ChangeTable) -> Insert | ByKey | None:
    relation = session.database.relation_key(table.name)
    rows = given_rows(shape, [column.name for column in table.columns], table.columns)
    if rows is not None:
        return Insert(table, relation, rows)
    found, places = _UPDATE.fullmatch(shape) or _DELETE.fullmatch(shape), iter(range(len(shape)))
    if found is None:
        return None
    columns = {column.name.casefold(): column for column in table.columns}
    sets = None if found.re is _DELETE else _pairs(found["sets"], columns, places)
    where = _pairs(found["where"], columns, places)
    if not table.retain or where is None or (sets is None and found.re is _UPDATE):
        return None
    fixed = {column.name.casefold() for column, _ in where}
    key = next((key for key in table.keys if {name.casefold() for name in key} <= fixed), None)
    if key is None:
        return None
    try:
        matched, changed = _with_codecs(session, where), None if sets is None else _with_codecs(session, sets)
    except NotSupportedError:
        return None
    return ByKey(table, relation, tuple(columns[name.casefold()].name for name in key), matched, changed)


def _with_codecs(session: Session, pairs: Sequence[tuple[Column, Given]]) -> tuple[tuple[Column, Codec, Given], ...]:
    dictionaries = session.database.engine.dictionaries
    return tuple((column, codec_for(column.type, dictionaries), item) for column, item in pairs)


def _pairs(text: str, columns: dict[str, Column], places: Iterator[int]) -> tuple[tuple[Column, Given], ...] | None:
    """`column = value, ...`, each column once; None if a name is no column."""
    found = [(split_name(name)[0].casefold(), given(value, places)) for name, value in _PAIRS.findall(text)]
    if len({name for name, _ in found}) < len(found) or not all(name in columns for name, _ in found):
        return None
    return tuple((columns[name], item) for name, item in found)

"""The way of one CREATE MATERIALIZED VIEW through the code stays short: it can be read in an hour.

A function is *on the way* if a function on the way calls it and gives it one of the values in which the statement goes
on: the statement, its text, the query's tree, the term it is bound to, the definition, the plan, and what wraps these.
Texts, trees and terms are known by identity, first those of the statement, then those that a function on the way
returns; all else by its type. Constructors and the methods of a value itself are no steps. The planner and the engine
are entered and not followed inside. A *stay* is a run of steps in one file.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import groupby
from types import FrameType
from typing import Any

from sqlglot import exp

import sqlfront
from sqlfront.binding.query_binder import Bound as BoundQuery
from sqlfront.cut.view_query import ViewQuery
from sqlfront.define.build import Bound
from sqlfront.define.ddl import create_view
from sqlfront.define.drafts import Draft
from sqlfront.define.part import Part
from sqlfront.planner.algebra.terms import Term
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.sql.statements import CreateMaterializedView, parse_statement

MOST_STAYS, MOST_FILES = 49, 28
QUERY = "SELECT customer, SUM(price) AS total, COUNT(*) AS n FROM orders JOIN items USING (o_id) GROUP BY customer"
STATEMENT = f"CREATE MATERIALIZED VIEW v AS {QUERY}"
VALUES = Definition | Plan | Draft | Part | Bound | BoundQuery | ViewQuery
BELOW = ("planner", "maintenance", "storage")


class Trace:
    """The steps of the statement, each the file and the name of a function."""

    def __init__(self, statement: CreateMaterializedView) -> None:
        known = (statement, statement.text, statement.query, *statement.trees)
        self._known: dict[int, object] = {id(one): one for one in known}
        self._frames: list[FrameType] = []
        self._generators: list[FrameType] = []
        self.steps: list[tuple[str, str]] = []

    @contextmanager
    def following(self) -> Iterator[None]:
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and self._is_step(frame):
            self._frames.append(frame)
            self.steps.append((frame.f_globals["__name__"], frame.f_code.co_name))
        elif event == "return" and self._frames and frame is self._frames[-1]:
            self._frames.pop()
            self._learn(value)

    def _is_step(self, frame: FrameType) -> bool:
        module, code = frame.f_globals.get("__name__", ""), frame.f_code
        if not module.startswith("sqlfront.") or code.co_name == "__init__":
            return False
        if self._frames and (frame.f_back is not self._frames[-1] or _is_below(self._frames[-1])):
            return False
        if code.co_flags & inspect.CO_GENERATOR:
            if frame in self._generators:
                return False  # It goes on.
            self._generators.append(frame)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return any(self._is_known(frame.f_locals.get(name)) for name in names if name != "self")

    def _is_known(self, value: object) -> bool:
        first = value[0] if isinstance(value, list) and value else value
        return isinstance(first, VALUES) or id(first) in self._known

    def _learn(self, value: object) -> None:
        if isinstance(value, list | tuple):
            for item in value:
                self._learn(item)
        elif isinstance(value, exp.Expr | Term):
            self._known[id(value)] = value
        elif isinstance(value, BoundQuery | ViewQuery):
            self._learn([getattr(value, field.name) for field in fields(value)])

    @property
    def stays(self) -> list[tuple[str, list[str]]]:
        return [(file, [name for _, name in steps]) for file, steps in groupby(self.steps, lambda step: step[0])]


def _is_below(frame: FrameType) -> bool:
    return str(frame.f_globals["__name__"]).split(".")[1] in BELOW


def test_the_way_of_a_create_is_short() -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE orders (o_id BIGINT PRIMARY KEY, customer VARCHAR)")
    con.execute("CREATE TABLE items (o_id BIGINT, price DECIMAL(12, 2))")
    con.execute(f"CREATE MATERIALIZED VIEW warm AS {QUERY}")
    [statement] = parse_statement(STATEMENT)
    assert isinstance(statement, CreateMaterializedView)
    trace = Trace(statement)
    with trace.following():
        create_view(con.session.database, con.session.duck, statement)
    told = "\n".join(f"{file}: {', '.join(names)}" for file, names in trace.stays)
    files = {file for file, _ in trace.stays}
    assert {"sqlfront.define.ddl", "sqlfront.cut.view_query", "sqlfront.maintenance.state"} <= files, told
    assert len(trace.stays) <= MOST_STAYS, told
    assert len(files) <= MOST_FILES, told

"""Arguments of every kind to every public method: nothing but sqlfront.Error leaves a call."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sqlfront

VALUES = [
    None, True, 5, -1, 0, 10**30, 1.5, float("nan"), "", "t", "c", "v", "no such", "SELECT 1", "CREATE", "a\0b",
    "\ud800", b"x", [], [1], [[1], [2]], (1,), (1, 2, 3), {}, {"t": 1}, {"t": None}, {"t": [(1,)]}, {1: 2},
    {"a": object()}, {"c": pa.table({"a": [1]})}, {"c": pa.table({"b": ["x"]})}, pa.table({"a": [1]}), np.arange(3),
    object(), int, os, len, range(3), iter([1]),
]  # fmt: skip
SETUP = """
CREATE TABLE t (a INTEGER);
CREATE CHANGE TABLE c (a INTEGER);
CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY n, a;
"""
ENDING = ("close", "interrupt")


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def calls(con: Any) -> Iterator[tuple[str, Any]]:
    """The public methods of a connection, a view and a subscription, by name."""
    with con.view("v").subscribe(timeout=0.01) as subscription:
        for owner in (con, con.view("v"), subscription):
            for name, method in inspect.getmembers(owner, callable):
                if not name.startswith("_") and name not in ENDING:
                    yield f"{type(owner).__name__}.{name}", method
    yield "connect", sqlfront.connect


def given(method: Any, choose: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """Random arguments for a method; nothing waits longer than a moment."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        value = 0.01 if parameter.name == "timeout" else choose.choice(VALUES)
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            named[parameter.name] = value
        elif parameter.default is parameter.empty and not named:
            positional.append(value)
        elif parameter.name == "timeout" or choose.random() < 0.4:
            named[parameter.name] = value
    return positional, named


def run(seeds: range) -> int:
    """How many calls were refused; raises what else has left one."""
    refused = 0
    for seed in seeds:
        choose = random.Random(seed)
        with sqlfront.connect() as con:
            con.execute(SETUP)
            for name, method in calls(con):
                positional, named = given(method, choose)
                try:
                    found = method(*positional, **named)
                    if isinstance(found, sqlfront.Connection) and found is not con:
                        found.close()
                except sqlfront.Error:
                    refused += 1
                    con.rollback()
                except StopIteration:
                    assert name == "Subscription.__next__"
                except Exception as error:
                    error.add_note(f"seed {seed}: {name}(*{positional!r}, **{named!r})")
                    raise
    return refused


def test_only_our_errors_leave_a_call() -> None:
    assert run(range(12)) > 100


@pytest.mark.slow
def test_only_our_errors_leave_many_calls() -> None:
    run(range(12, 400))


@pytest.mark.parametrize(("call", "argument"), [
    (lambda con: con.explain(5), "view_or_sql"), (lambda con: sqlfront.connect(config=5), "config"),
    (lambda con: con.register(5, pa.table({"a": [1]})), "name"), (lambda con: con.view("v").top("3"), "k"),
    (lambda con: con.view("v").subscribe(buffer="many"), "buffer"), (lambda con: con.apply_row([], (1,)), "table"),
])  # fmt: skip
def test_the_error_names_the_argument(call: Any, argument: str) -> None:
    with sqlfront.connect() as con:
        con.execute(SETUP)
        with pytest.raises(sqlfront.InterfaceError, match=rf"argument {argument} is .*\nTry: give"):
            call(con)

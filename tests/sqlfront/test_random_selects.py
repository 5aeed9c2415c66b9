"""Random queries against DuckDB: a view equals its query after each epoch, or CREATE refuses it with its place."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import pytest

import sqlfront
from tests.sqlfront.random_selects import FORMS, SCHEMA, change, forms_of, select

VIEWS, EPOCHS = 8, 5


def run(seed: int, seen: Counter[str]) -> None:
    """Views of random queries over the same tables, through epochs, the last of which empties these."""
    random = Random(seed)
    with sqlfront.connect(":memory:", config={"threads": 1}) as con:
        con.execute(SCHEMA)
        for statement in [statement for _ in range(4) for statement in change(random)]:
            con.execute(statement)
        views = {f"v{number}": query for number in range(VIEWS) if (query := _created(con, random, number, seen))}
        before: dict[str, Counter[Any]] = {}
        for epoch in range(EPOCHS + 1):
            for name, query in views.items():
                expected = rows(con.session.duck.execute(query).fetchall())
                found = rows(con.execute(f"SELECT * FROM {name}").fetchall())
                assert found == expected, f"seed {seed}, epoch {epoch}: {query}"
                seen["changed"] += epoch > 0 and before[name] != expected
                before[name] = expected
            seen["epochs"] += len(views) * (epoch < EPOCHS)
            for statement in change(random) if epoch < EPOCHS - 1 else [f"DELETE FROM {table}" for table in "rtu"]:
                con.execute(statement)


def _created(con: Any, random: Random, number: int, seen: Counter[str]) -> str | None:
    """The query of a new view; None if DuckDB or CREATE refuses it."""
    query = select(random)
    try:
        con.session.duck.execute(query).fetchall()
    except duckdb.Error:
        return None
    seen["queries"] += 1
    try:
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    except sqlfront.Error as error:
        assert isinstance(error, sqlfront.NotSupportedError) and "^" in (error.where or ""), f"{query}\n{error}"
        return None
    seen["accepted"] += 1
    seen.update(forms_of(query))
    return query


def rows(found: list[Any]) -> Counter[Any]:
    return Counter(found)


def check_coverage(seen: Counter[str], share: float) -> None:
    print(dict(seen))
    assert seen["accepted"] >= 0.5 * seen["queries"]
    assert seen["changed"] >= 0.25 * seen["epochs"]
    for form in FORMS.keys() - {"intersect or except", "outer join"}:
        assert seen[form] >= share * seen["accepted"], form


def test_views_equal_their_queries() -> None:
    seen: Counter[str] = Counter()
    for seed in range(3):
        run(seed, seen)
    check_coverage(seen, 0.01)


@pytest.mark.slow
def test_views_equal_their_queries_at_length() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1000, 1300):
        run(seed, seen)
    check_coverage(seen, 0.03)

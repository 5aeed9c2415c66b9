"""Terms as SQL: DuckDB gives the rows that the naive interpreter gives, for every operator."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

from sqlfront.planner.algebra.terms import Term, walk
from sqlfront.planner.algebra.to_sql import to_sql
from tests.judges import judge
from tests.planner.algebra.interpreter import Interpreter
from tests.planner.algebra.random_terms import TABLES, RandomTerms

SEEDS, MANY = 60, 3000


Tables = dict[tuple[str, ...], list[dict[str, int | None]]]


def random_tables(seed: int) -> Tables:
    generator = random.Random(seed)
    tables: Tables = {
        table: [{name: generator.choice([None, 0, 1, 2, 3]) for name in names} for _ in range(generator.randrange(6))]
        for table, names in TABLES.items()
    }
    for number, row in enumerate(tables["k",]):
        row["id"] = number
    for row in tables["f",]:
        row["k_id"] = generator.choice([None, *range(len(tables["k",]))])
    return tables


def filled(tables: Tables, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A database with the tables."""
    for (name,), columns in TABLES.items():
        con.execute(f"CREATE TABLE {name} ({', '.join(f'{column} INTEGER' for column in columns)})")
        for row in tables[name,]:
            con.execute(f"INSERT INTO {name} VALUES (?, ?)", [row[column] for column in columns])
    return con


def answers(tables: Tables, term: Term, con: duckdb.DuckDBPyConnection | None = None) -> Counter[tuple[object, ...]]:
    if con is None:
        with judge() as own:
            return answers(tables, term, filled(tables, own))
    query = to_sql(term, [(column, f"column {column}") for column in term.columns])
    rows = con.execute(query).fetchall()
    assert [item[0] for item in con.description or ()] == [f"column {column}" for column in term.columns]
    return Counter(rows)


@pytest.mark.parametrize("seed", [*range(SEEDS), pytest.param(MANY, marks=pytest.mark.slow)])
def test_duckdb_answers_as_the_interpreter(seed: int) -> None:
    for number in [seed] if seed < SEEDS else range(SEEDS, MANY):
        tables, term = random_tables(number), RandomTerms(number).term(3)
        expected = Counter(tuple(row.values()) for row in Interpreter(tables).run(term))
        assert answers(tables, term) == expected, (number, to_sql(term))


def test_the_random_terms_have_every_operator_and_rows() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        term = RandomTerms(seed).term(3)
        seen.update({type(part).__name__ for part in walk(term)})
        seen["rows"] += bool(Interpreter(random_tables(seed)).run(term))
    wanted = {
        "Scan",
        "Values",
        "Filter",
        "Map",
        "Join",
        "Aggregate",
        "Distinct",
        "SetOperation",
        "Top",
        "Unnest",
        "Window",
        "Common",
        "rows",
    }
    assert {name for name, count in seen.items() if count >= SEEDS // 20} == wanted

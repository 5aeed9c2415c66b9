"""Random spellings of one query give one plan, and random garbage gives an error of ours, with a caret."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest
from sqlglot import exp
from sqlglot.tokens import TokenType

from sqlfront.cut.view_query import bind_view
from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.core import minimise
from sqlfront.sql.dialect import Sqlfront, parse_one
from sqlfront.sql.trees import span
from sqlfront.storage.errors import NotSupportedError, ProgrammingError
from tests.catalogs import catalog_of
from tests.support_matrix import FIXTURES, SUPPORTED, queries

QUERIES = [query for name in SUPPORTED for query in queries((FIXTURES / f"{name}.sql").read_text())]
SPELLINGS, GARBAGE, MANY = 90, 150, 3000
_SPACES = [" ", "\n", "\t", "  ", " /* a comment; (of ours) */ ", " -- to the line's end\n"]


@pytest.fixture(scope="module")
def con() -> Any:
    found = duckdb.connect()
    found.execute((FIXTURES / "schema.sql").read_text())
    return found


def respelled(query: str, chance: random.Random) -> str:
    """The same words: in other case, with other space and comments between, names with and without quotes."""
    names = {place for node in parse_one(query).find_all(exp.Identifier) if (place := span(node)) is not None}
    text, last = "", 0
    for token in Sqlfront().tokenize(query):
        between = query[last : token.start]
        text += chance.choice(_SPACES) if between.strip() == "" and between else between
        word, last = query[token.start : token.end + 1], token.end + 1
        is_name = (token.start, last) in names and token.token_type is TokenType.VAR and word.lower() != "columns"
        if is_name and chance.random() < 0.3:
            word = f'"{word}"'
        elif token.token_type is TokenType.VAR and not is_name:
            word = chance.choice([word.upper(), word.lower(), word.title()])
        text += word
    return text


def nested(query: str, chance: random.Random) -> str:
    """The query as the only rows of another."""
    forms = ["({})", "(({}))", "SELECT * FROM ({}) AS q9", "FROM ({}) q9", "WITH w9 AS ({}) SELECT * FROM w9"]
    return chance.choice(forms).format(query)


def plan(definition: Definition) -> tuple[object, ...]:
    """What tells two plans apart."""
    definition = minimise(definition)
    found = plan_view(definition)
    blocks = [plan_view(minimise(block)).shape for _, block in definition.own_blocks]
    atoms = sorted((atom.table, len(atom.conditions), len(atom.variables)) for atom in definition.atoms)
    types = [type_ for _, type_ in definition.columns]
    return found.shape, found.stated_cost, atoms, blocks, types, definition.limit, len(definition.measures)


def check_spelling(con: Any, seed: int) -> None:
    chance = random.Random(seed)
    query = chance.choice(QUERIES)
    other = respelled(query, chance)
    expected = bind_view(query, con, catalog_of(query, con)).definition
    found = bind_view(other, con, catalog_of(other, con)).definition
    assert plan(found) == plan(expected), other
    if not expected.orders and not expected.boolean:
        inside = nested(other, chance)
        assert plan(bind_view(inside, con, catalog_of(inside, con)).definition) == plan(expected), inside


def check_garbage(con: Any, seed: int) -> None:
    """Words left out, doubled, exchanged, or of another query."""
    chance = random.Random(seed)
    words = [query.split() for query in chance.sample(QUERIES, 2)]
    found, others = words
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(found))
        found[place : place + chance.randrange(3)] = chance.sample(others, min(len(others), chance.randrange(3)))
        found = found or [chance.choice(others)]
    text = " ".join(found)
    try:
        bind_view(text, con, catalog_of(text, con))
    except (ProgrammingError, NotSupportedError) as error:
        if error.what.startswith("Syntax error") or isinstance(error, NotSupportedError):
            assert "^" in (error.where or ""), (text, error)


@pytest.mark.parametrize("seed", range(SPELLINGS))
def test_one_query_has_one_plan(con: Any, seed: int) -> None:
    check_spelling(con, seed)


@pytest.mark.parametrize("seed", range(0, GARBAGE, 10))
def test_garbage_gives_an_error_of_ours(con: Any, seed: int) -> None:
    for one in range(seed, seed + 10):
        check_garbage(con, one)


@pytest.mark.slow
def test_many_spellings_and_much_garbage(con: Any) -> None:
    for seed in range(1000, 1000 + MANY):
        check_spelling(con, seed)
        check_garbage(con, seed)

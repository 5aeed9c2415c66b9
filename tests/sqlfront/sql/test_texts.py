"""Random spellings of queries keep their meaning, and random garbage is a syntax error with a caret."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlfront.sql.dialect import Sqlfront, parse, parse_one, printed
from sqlfront.sql.guard import check_same_meaning
from sqlfront.sql.token_reader import ESCAPED, TEXTS
from sqlfront.storage.errors import ProgrammingError
from tests.slices import LETTERS

FIXTURES = Path(__file__).parents[2] / "fixtures"
KEYWORDS = "select from where group by having order limit join on using and or not in is"
GAPS = (" ", "  ", "\n", "\t", " /* a /* b */ ; */ ", " -- it's\n", "\r\n", " /**/ ")


def lines(path: Path) -> list[str]:
    texts = [line.strip().rstrip(";") for line in path.read_text().splitlines()]
    return [text for text in texts if text and not text.startswith("--")]


BOUND = [sql for path in sorted((FIXTURES / "binder").glob("[a-q]*.sql")) for sql in lines(path)]
FREE = lines(FIXTURES / "dialect" / "queries.sql")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute((FIXTURES / "binder" / "schema.sql").read_text())
        con.execute("CREATE MACRO safe_divide(a, b) AS if(b = 0, NULL, a / b)")
        yield con


def respelled(sql: str, seed: int) -> str:
    """The text with other gaps, comments and, where DuckDB does not show it, other letters."""
    rng, text, end, before = random.Random(seed), "", 0, ""
    for token in Sqlfront().tokenize(sql):
        gap, piece = sql[end : token.start], sql[token.start : token.end + 1]
        if gap:
            text += "".join(rng.choice(GAPS) for _ in range(rng.randint(1, 2)))
        elif rng.random() < 0.2 and (piece in (",", ")") or text.endswith(("(", ","))):
            text += rng.choice(GAPS)
        named = before.lower() == "as"  # A keyword may be a name there.
        text += piece.upper() if keyword(piece) and not named and rng.random() < 0.5 else piece
        before = piece
        end = token.end + 1
        assert not (token.token_type in TEXTS | ESCAPED and piece[-1] not in "'$")
    return text + rng.choice(("", ";", " -- end", "\n;;"))


def keyword(piece: str) -> bool:
    return piece.lower() in KEYWORDS.split()


def agree(con: duckdb.DuckDBPyConnection, sql: str, seed: int) -> None:
    text = respelled(sql, seed)
    tree = parse_one(text)
    assert tree == parse_one(sql), text
    check_same_meaning(con, text, printed(tree))
    check_same_meaning(con, sql, printed(tree))


@settings(max_examples=200, deadline=None)
@given(index=st.integers(0, len(BOUND) + len(FREE) - 1), seed=st.integers(0, 2**32))
def test_other_spellings_keep_the_meaning(con, index, seed):
    agree(con, (BOUND + FREE)[index], seed)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(index=st.integers(0, len(BOUND) + len(FREE) - 1), seed=st.integers(0, 2**32))
def test_many_other_spellings_keep_the_meaning(con, index, seed):
    agree(con, (BOUND + FREE)[index], seed)


VOCABULARY = """select from where group by having order limit offset join left right on using and or not in is null as
    with recursive values union all except intersect distinct case when then else end cast exists between like a b t x 1
    "q" 2.5 'text' $$t$$ ( ) [ ] { } , . ; : :: + - * / // % ^ ** = < > <> != || -> ->> @> && ! ~ ? $1 # over partition
    rows preceding following unbounded current row filter within materialized view create change table primary key
    default refresh drop explain show state for check subscribe to interval day array map struct lambda pivot unpivot
    lateral sample tablesample percent fetch first only window qualify rollup cube grouping sets nulls last asc desc
    collate at time zone ' " $$ /* -- e' x'AB' é \u0000 ` \\"""
garbage = st.one_of(
    st.text(LETTERS, max_size=40),
    st.lists(st.sampled_from(VOCABULARY.split()), max_size=25).map(" ".join),
    st.tuples(st.sampled_from(BOUND + FREE), st.integers(0, 10_000), st.integers(0, 12)).map(
        lambda cut: cut[0][: cut[1] % (len(cut[0]) + 1)] + cut[0][cut[1] % (len(cut[0]) + 1) + cut[2] :]
    ),
)


def survives(con: duckdb.DuckDBPyConnection, text: str) -> None:
    """The text is read, or refused with a place; what is read prints as a text that reads the same."""
    try:
        found = parse(text)
    except ProgrammingError as error:
        assert min(text, default="") >= "\ud800" or "^" in str(error.where) or "half a character" in error.what
        return
    for tree in found:
        once = printed(tree)
        assert printed(parse_one(once)) == once, text


def test_a_sample_without_its_number_is_a_syntax_error(con):
    with pytest.raises(ProgrammingError, match=r"Expected \("):
        parse("SELECT x FROM r USING SAMPLE 5 ROWS REPEATABLE x")


@settings(max_examples=800, deadline=None)
@given(text=garbage)
def test_garbage_is_a_syntax_error_with_a_caret(con, text):
    survives(con, text)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None)
@given(text=garbage)
def test_much_garbage_is_a_syntax_error_with_a_caret(con, text):
    survives(con, text)

"""Small queries read off their words: the same as off their trees."""

from __future__ import annotations

import random

import duckdb
import pytest

from sqlfront.read.select_trees import select_of_tree
from sqlfront.read.short_select import Column, Item, ShortSelect, read_select

NAMES = ("v", "V1", "a", '"b c"', '"it""s?"', "day", "year", "total", "x_1", "ä")
PARTS = (
    *NAMES, "select", "from", "where", "and", "or", "as", ",", ".", "*", "=", "?", "(", ")", "order by", "limit", "not",
    "7.5", "count", "'s'", "current_date", "left", "using", "distinct", "null", "::int", "in",
)  # fmt: skip


def test_a_query_is_read_by_its_words() -> None:
    assert read_select('SELECT a, w."B" AS c, * FROM m.v AS w WHERE a = ? AND ? = w.b') == ShortSelect(
        ("m", "v"),
        "w",
        (Item(Column("", "a")), Item(Column("w", "b"), "c"), Item(None)),
        ((Column("", "a"), 0), (Column("w", "b"), 1)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM v LIMIT ?", "SELECT a FROM v, w", "SELECT a FROM v WHERE a > ?", "SELECT a FROM",
        "SELECT DISTINCT a FROM v", "SELECT count(*) FROM v", "SELECT a AS select FROM v", "SELECT a FROM v AS",
        "SELECT a FROM v WHERE a = ? OR b = ?", "SELECT a FROM v WHERE", "SELECT a FROM a.b.c.d", "SELECT a + b FROM v",
        "SELECT a FROM v WHERE a = b", "SELECT a FROM v WHERE ? = ?", "SELECT null FROM v", "SELECT FROM v", "FROM v",
    ],
)  # fmt: skip
def test_other_texts_are_left_to_the_tree(text: str) -> None:
    assert read_select(text) is None


def test_each_keyword_as_a_name_is_read_as_in_the_tree() -> None:
    keywords = [name for (name,) in duckdb.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()]
    read = 0
    for word in (*keywords, "current_date", "current_user", "user", "localtime", "rowid"):
        for text in (
            f"SELECT {word} FROM v", f"SELECT a AS {word} FROM v", f"SELECT a FROM {word}", f"SELECT a FROM v {word}",
            f"SELECT a FROM v AS {word} WHERE {word}.a = ?", f"SELECT a FROM v WHERE {word} = ?",
            f"SELECT a, {word}.a FROM s.{word}",
        ):  # fmt: skip
            read += _is_same(text)
    assert read > 2000


def test_random_words_are_read_as_in_the_tree() -> None:
    rng, read = random.Random(8), 0
    for _ in range(6000):
        column = lambda: rng.choice((rng.choice(NAMES), f"{rng.choice(NAMES)}.{rng.choice(NAMES)}"))  # noqa: E731
        items = ", ".join(
            rng.choice(("*", column(), f"{column()} AS {rng.choice(NAMES)}")) for _ in range(rng.randint(1, 3))
        )
        equal = " AND ".join(rng.choice((f"{column()} = ?", f"? = {column()}")) for _ in range(rng.randint(1, 3)))
        alias = rng.choice(("", f" AS {rng.choice(NAMES)}", f" {rng.choice(NAMES)}"))
        text = f"SELECT {items} FROM {column()}{alias}" + rng.choice(("", f" WHERE {equal}"))
        if rng.random() < 0.5:
            words = text.split()
            words[rng.randrange(len(words))] = rng.choice(PARTS)
            text = " ".join(words)
        read += _is_same(text)
    assert read > 2500


def _is_same(text: str) -> bool:
    """Whether a text is read by its words; then the tree says the same."""
    found = read_select(text)
    assert found is None or found == select_of_tree(text), text
    return found is not None

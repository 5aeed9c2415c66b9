"""The keywords are DuckDB's."""

from __future__ import annotations

import duckdb

from sqlfront.sql.keywords import CALLED, OPERATORS, RESERVED, quoted


def test_the_words_that_are_quoted_are_those_of_duckdb() -> None:
    query = "SELECT upper(keyword_name) FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    words = {row[0] for row in duckdb.connect().execute(query).fetchall()}
    assert words == RESERVED | OPERATORS | CALLED


def test_quoted() -> None:
    assert [quoted(name) for name in ("a_1", "A", "select", "time", 'a"b', "")] == [
        "a_1", '"A"', '"select"', '"time"', '"a""b"', '""',
    ]  # fmt: skip

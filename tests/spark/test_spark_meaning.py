"""Every rule for Spark's functions, casts and operators, held against Spark itself over edge values."""

from __future__ import annotations

import duckdb
import pytest

from sqlfront.sql import spark_meaning
from sqlfront.sql.dialects import transpiled
from sqlfront.storage.errors import NotSupportedError
from tests.slices import parts
from tests.spark.spark_answers import EDGE, expressions, make_edge, same, spark_answers

FIXTURES = [
    ("spark_expressions.txt", "SELECT {} FROM edge ORDER BY k"),
    ("spark_aggregates.txt", "SELECT {} FROM edge"),
    ("spark_aggregates.txt", "SELECT {} FROM edge GROUP BY f ORDER BY f"),
    ("spark_aggregates.txt", "SELECT {} FROM edge WHERE k < 0"),
]
UNTESTED = {"CurrentDate", "CurrentTimestamp", "current_date", "current_timestamp", "now"}
"""The clock's, and what sqlglot makes itself."""


def translated(one: str, query: str, con: duckdb.DuckDBPyConnection) -> str | None:
    """The query of one expression in DuckDB's words; None if it is refused."""

    def columns(table: str) -> dict[str, str]:
        return dict(con.execute("SELECT column_name, data_type FROM duckdb_columns()").fetchall())

    try:
        return transpiled(query.format(f"{one} AS c"), "spark", columns)
    except NotSupportedError as error:
        assert "Spark's" in str(error), one
        return None


@pytest.mark.parametrize("part", parts(3))
@pytest.mark.parametrize(("fixture", "query"), FIXTURES)
def test_what_is_translated_means_the_same(spark, fixture, query, part):
    asked = expressions(fixture)[part::3]
    make_edge(spark)
    wrong, equal = [], 0
    with duckdb.connect() as con:
        con.execute(EDGE)
        text = {one: translated(one, query, con) for one in asked}
        answers = spark_answers(spark, [one for one in asked if text[one]], query)
        for one, theirs in answers.items():
            ours = [value for (value,) in con.execute(text[one]).fetchall()]
            if len(ours) == len(theirs) and all(map(same, ours, theirs)):
                equal += 1
            else:
                wrong.append(f"{one}: Spark {theirs}, DuckDB {ours}, written {text[one]}")
    assert wrong == []
    assert equal >= (120 if "expressions" in fixture else 16)


def test_every_rule_is_tried(monkeypatch):
    """Each rule that translates is used by an expression of the fixtures."""
    used: set[str] = set()
    find = spark_meaning._how

    def noting(names: list[str], kinds: list[str]) -> str | None:
        used.update(name for name in names if name in spark_meaning.rules())
        return find(names, kinds)

    monkeypatch.setattr(spark_meaning, "_how", noting)
    with duckdb.connect() as con:
        con.execute(EDGE)
        for fixture, query in FIXTURES[:2]:
            for one in expressions(fixture):
                translated(one, query, con)
    assert set(spark_meaning.rules()) - used - UNTESTED == set()

"""Rows that a program computes over the words of raw columns: DuckDB's own, told to feeds, with no constant kept."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

import sqlfront
from tests.definition_oracle import same_bag

VIEWS = {
    "texts": "SELECT CASE WHEN a > c THEN 'more' WHEN a < c THEN 'less' ELSE s END AS w, "
    "date_diff('month', d, e) AS m, count(*) AS n FROM r JOIN u USING (b) GROUP BY ALL",
    "distinct_sums": "SELECT DISTINCT a + c AS k, coalesce(s, t, 'none') AS x FROM r JOIN u USING (b)",
    "a_condition": "SELECT a, c, greatest(a, c) AS k, 5 AS five, NULL AS nothing FROM r JOIN u USING (b) "
    "WHERE a > 1 OR c > 1",
    "branches": "SELECT k, median(x) AS m FROM (SELECT a AS k, c AS x FROM r JOIN u USING (b) "
    "UNION ALL SELECT a + c, b FROM r JOIN u USING (b)) GROUP BY k",
    "of_another": "SELECT k, five, median(a) AS m FROM a_condition GROUP BY k, five",
}


def change(rng: random.Random, step: int) -> str:
    """NULLs, copies, rows that go, and infinite dates, which the program leaves to DuckDB."""
    key = lambda: rng.choice(["NULL", "0", "1", "2", "3"])  # noqa: E731
    date = rng.choice(["NULL", "'2024-01-31'", "'1960-02-29'", "'2024-03-01'", "'infinity'"])
    text = rng.choice(["NULL", f"'text {step}'"])
    return rng.choices(
        [
            f"INSERT INTO r VALUES ({key()}, {key()}, {date}, {text})",
            f"INSERT INTO u VALUES ({key()}, {key()}, {date}, {text})",
            f"DELETE FROM r WHERE a = {key()}",
            f"DELETE FROM u WHERE c = {key()}",
        ],
        [6, 4, 2, 1],
    )[0]


def test_rows_of_programs_are_those_of_duckdb_and_leave_nothing_behind() -> None:
    rng, told = random.Random(3), Counter[tuple[object, ...]]()
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER, b INTEGER, d DATE, s VARCHAR)")
        con.execute("CREATE TABLE u (b INTEGER, c INTEGER, e DATE, t VARCHAR)")
        for name, query in VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        feed = con.view("a_condition").subscribe(snapshot=False)
        for step in range(24):
            con.execute(change(rng, step))
            for name, query in VIEWS.items():
                assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall()), query
            for batch in iter(feed.poll, None):
                for *values, kind, _, _ in (tuple(row.values()) for row in batch.to_pylist()):
                    told[tuple(values)] += 1 if kind in ("insert", "update_postimage") else -1
        assert +told == Counter(con.execute("FROM a_condition").fetchall()) and min(told.values()) >= 0
        con.execute("DELETE FROM r; DELETE FROM u")
        feed.close()
        engine = con.session.database.engine
        for name in reversed(VIEWS):
            con.execute(f"DROP MATERIALIZED VIEW {name}")
        for dictionary in engine.dictionaries:
            dictionary.sweep()
        assert [(dictionary.live(), dictionary.pinned) for dictionary in engine.dictionaries] == [(0, 0), (0, 0)]


def test_the_changes_of_an_epoch_are_told_after_dictionaries_are_swept() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE r (a INTEGER, s VARCHAR) WITH (retain = true)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, s, bit_xor(a) OVER (PARTITION BY s) AS n FROM r")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT s, median(a) AS m FROM v GROUP BY s")
        con.apply({"r": pa.table({"a": [1], "s": ["gone"]})})
        epoch = con.apply({"r": pa.table({"a": [1], "s": ["gone"], "_weight": [-1]})})
        for dictionary in con.session.database.engine.dictionaries:
            dictionary.sweep()
        con.apply({"r": pa.table({"a": [1], "s": ["come"]})})
        assert epoch.changes["v"].to_pylist() == [{"a": 1, "s": "gone", "n": 1, "_weight": -1}]

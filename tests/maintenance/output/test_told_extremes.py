"""Changes of MIN, MAX and COUNT(DISTINCT): told in words, as the query's rows, of values of one word and of two."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from sqlfront.maintenance.output import path_change
from tests.following import is_query

QUERIES = {
    "groups": "SELECT k, min({v}) AS a, max({v}) AS b, count(DISTINCT {v}) AS d, count(*) AS n FROM r GROUP BY k",
    "all rows": "SELECT max({v}) AS a, count(DISTINCT k) AS n FROM r",
    "shown groups": "SELECT k, max({v}) FILTER (WHERE i > 2) AS a FROM r GROUP BY k HAVING count(DISTINCT {v}) > 1",
    "a grouped block": "SELECT a, count(*) AS n FROM (SELECT k, max({v}) AS a FROM r GROUP BY k) GROUP BY a",
    "a joined block": "SELECT s.i, g.a FROM s JOIN (SELECT k, min({v}) AS a FROM r GROUP BY k) g ON g.k = s.k",
}
VALUES = {
    "s": ["'a'", "'B'", "'ä'", "''"],
    "h": ["170141183460469231731687303715884105727", "-5", "0"],
    "d": ["'nan'", "'-inf'", "0.5"],
}


@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize("name", QUERIES)
def test_changes_of_extremes_are_told_in_words(monkeypatch, name: str, column: str) -> None:
    choose, told = random.Random(f"{name} {column}"), Counter[str]()
    monkeypatch.setattr(path_change, "raw_batch", lambda *given: pytest.fail("the change is read through Arrow"))
    with sqlfront.connect() as con:
        for table in "rs":
            con.execute(f"CREATE TABLE {table} (i INTEGER, k INTEGER, s VARCHAR, h HUGEINT, d DOUBLE)")
        con.execute("INSERT INTO r (i, k) VALUES (1, 0), (1, 1), (1, NULL)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES[name].format(v=column)}")
        with con.view("v").subscribe() as feed:
            for step in range(16):
                change(con, choose, column)
                for batch in iter(feed.poll, None):
                    for *values, kind, _, _ in (tuple(row.values()) for row in batch.to_pylist()):
                        told[" ".join(map(str, values))] += 1 if kind in ("insert", "update_postimage") else -1
                assert +told == Counter(" ".join(map(str, row)) for row in con.execute("FROM v").fetchall())
                assert step % 5 or is_query(con, "v")
            assert min(told.values()) == 0


def change(con: sqlfront.Connection, choose: random.Random, column: str) -> None:
    """Rows with NULLs come; others go, the extremes among them."""
    if choose.random() < 0.4:
        con.execute(f"DELETE FROM r WHERE {column} IS NOT DISTINCT FROM {choose.choice(VALUES[column])}")
    for table in "rrs":
        values = {one: choose.choice(["NULL", *VALUES[column]]) if one == column else "NULL" for one in VALUES}
        row = choose.randrange(5), choose.choice(["0", "1", "NULL"]), *values.values()
        con.execute(f"INSERT INTO {table} VALUES ({', '.join(map(str, row))})")

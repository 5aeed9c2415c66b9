"""A scalar subquery with two rows is an error where an outer row asks for it, as in DuckDB."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront

VIEWS = {
    "item": "SELECT a, (SELECT w FROM s WHERE k = a) AS x FROM t",
    "kept": "SELECT a, (SELECT w FROM s WHERE k = a) AS x FROM t WHERE a < 3",
    "condition": "SELECT a FROM t WHERE (SELECT w FROM s WHERE k = a) > 1",
    "grouped": "SELECT a, (SELECT w FROM s WHERE k = t.a) + count(*) AS x FROM t GROUP BY a",
    "same": "SELECT a, (SELECT w FROM s WHERE k IS NOT DISTINCT FROM a) AS x FROM t",
    "alone": "SELECT a, (SELECT w FROM s) AS x FROM t WHERE a < 2",
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.filterwarnings("ignore::sqlfront.CostWarning")
def test_only_groups_that_an_outer_row_asks_for_count(name):
    """Each random change: the view takes it where DuckDB answers its query afterwards, else the change is refused, and
    the error names the view. Nothing has changed then."""
    rng, refused, taken = random.Random(name), 0, 0
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a BIGINT)")
        con.execute("CREATE TABLE s (k BIGINT, w BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")
        for _ in range(40):
            key = rng.choice([None, 1, 1, 2, 4])
            sql, values = rng.choice(
                [
                    ("INSERT INTO t VALUES (?)", [key]),
                    ("INSERT INTO s VALUES (?, ?)", [key, rng.randrange(4)]),
                    ("INSERT INTO s VALUES (?, ?)", [key, rng.randrange(4)]),
                    ("DELETE FROM s WHERE k IS NOT DISTINCT FROM ?", [key]),
                    ("DELETE FROM t WHERE a IS NOT DISTINCT FROM ?", [key]),
                ]
            )
            before = [con.execute(f"FROM {table}").fetchall() for table in "ts"]
            try:
                con.execute(sql, values)
            except sqlfront.DataError as error:
                refused += 1
                assert "materialized view v" in str(error) and "More than one row" in str(error)
                assert [con.execute(f"FROM {table}").fetchall() for table in "ts"] == before
                duck = con.session.duck.cursor()
                duck.execute("BEGIN")
                duck.execute("CREATE TEMP TABLE t AS FROM main.t; CREATE TEMP TABLE s AS FROM main.s")
                duck.execute(sql, values)
                with pytest.raises(Exception, match="More than one row"):
                    duck.execute(VIEWS[name]).fetchall()
                duck.execute("ROLLBACK")
            else:
                taken += 1
                wanted = Counter(con.execute(VIEWS[name]).fetchall())
                assert Counter(con.execute("FROM v").fetchall()) == wanted
        assert refused >= 1 and taken >= 10

"""The change of a view that is the first row of each group: of the groups that change, not of all rows compared."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from sqlfront.maintenance.output import node

LATEST = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY day DESC) = 1"
QUERIES = {
    "latest rows": f"SELECT * FROM r {LATEST}",
    "computed columns": f"SELECT k, v || '!' AS loud, i + 1 AS j FROM r {LATEST}",
    "a join": "SELECT r.k, r.v, s.v AS other FROM r JOIN s USING (k) "
    "QUALIFY row_number() OVER (PARTITION BY r.k ORDER BY r.day DESC) = 1",
    "distinct on": "SELECT DISTINCT ON (k) k, v FROM r ORDER BY k, day, i",
    "distinct on inside": "SELECT s.v AS other, g.v FROM s "
    "JOIN (SELECT DISTINCT ON (k) k, v FROM r ORDER BY k, day DESC) g ON s.k = g.k",
    "one row": "SELECT k, day FROM r ORDER BY day DESC NULLS LAST LIMIT 1",
}


@pytest.mark.parametrize("name", QUERIES)
def test_first_rows_of_groups_are_told_without_a_look_at_the_others(monkeypatch, name: str) -> None:
    choose, told = random.Random(name), Counter[str]()
    monkeypatch.setattr(node, "view_rows", lambda *given: pytest.fail("all rows are read"))
    with sqlfront.connect() as con:
        for table in "rs":
            con.execute(f"CREATE TABLE {table} (k INTEGER, day TIMESTAMP, v VARCHAR, i BIGINT)")
        change(con, choose)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES[name]}")
        with con.view("v").subscribe() as feed:
            for step in range(14):
                change(con, choose)
                for batch in iter(feed.poll, None):
                    for *values, kind, _, _ in (tuple(row.values()) for row in batch.to_pylist()):
                        told[str(values)] += 1 if kind in ("insert", "update_postimage") else -1
                assert +told == Counter(str(list(row)) for row in con.execute("FROM v").fetchall())
                assert step % 5 or con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
            assert min(told.values()) >= 0


def change(con: sqlfront.Connection, choose: random.Random) -> None:
    """Rows come, with NULLs, and with times that others have; first rows go."""
    con.execute("BEGIN")
    if choose.random() < 0.4:
        con.execute(f"DELETE FROM {choose.choice('rrs')} WHERE k = {choose.randrange(3)} AND i % 2 = 0")
    for table in "rrs":
        at = choose.choice(["NULL", *(f"'2024-01-0{one}'" for one in range(1, 6))])
        key, text = choose.choice(["NULL", "0", "1", "2"]), choose.choice(["NULL", "'a'", "'b'"])
        con.execute(f"INSERT INTO {table} VALUES ({key}, {at}, {text}, {choose.randrange(4)})")
    con.execute(choose.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))

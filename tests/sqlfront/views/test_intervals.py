"""Views over INTERVALs: DuckDB compares 30 days and 1 month as equal, and keeps each as it is written."""

from __future__ import annotations

import datetime
import random
from collections import Counter

import pytest

import sqlfront
from tests.following import empty_and_drop, follow

QUERIES = [
    "SELECT id, i, [i] AS l, {'a': i, 'k': k} AS s FROM t",
    "SELECT a.d + b.i AS x, b.i, a.i + b.i AS y FROM t a JOIN u b USING (k)",
    "SELECT a.id, b.id AS b, a.i, b.i AS j FROM t a LEFT JOIN u b ON a.i = b.i",
    "SELECT a.id, b.id AS b FROM t a FULL JOIN u b USING (i)",
    "SELECT a.id, b.id AS b, b.i FROM t a JOIN u b ON a.k = b.k AND a.i < b.i",
    "SELECT a.id, b.id AS b FROM t a JOIN u b ON a.d::TIMESTAMP - TIMESTAMP '2024-01-01' = b.i",
    "SELECT a.id, b.id AS b, [a.i] AS l FROM t a JOIN u b ON [a.i] = [b.i]",
    "SELECT i AS any_i, count(*) AS c, sum(k) AS s FROM t GROUP BY i",
    "SELECT i AS any_i, k, count(*) AS c FROM t GROUP BY ROLLUP (i, k)",
    "SELECT DISTINCT i AS any_i, k FROM t",
    "SELECT k, min(i) AS any_a, max(i) AS any_b, count(DISTINCT i) AS c FROM t GROUP BY k HAVING max(i) > to_days(1)",
    "SELECT k, arg_min(id, (i, id)) AS a, list(i ORDER BY id, i::VARCHAR) AS l FROM t GROUP BY k",
    "SELECT k, length(list(DISTINCT i)) AS n FROM t GROUP BY k",
    "SELECT id, i FROM t WHERE i IN (INTERVAL 1 MONTH, INTERVAL 1 DAY) OR i BETWEEN INTERVAL 2 DAY AND INTERVAL 30 DAY",
    "SELECT id, i FROM t WHERE i IN (SELECT i FROM u)",
    "SELECT id, i FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.i = t.i)",
    "SELECT id, i, (SELECT count(*) FROM u WHERE u.i = t.i) AS c FROM t",
    "SELECT i AS any_i FROM t UNION SELECT i FROM u",
    "SELECT i, k FROM t UNION ALL SELECT i, k FROM u",
    "SELECT i AS any_i, k FROM t EXCEPT ALL SELECT i, k FROM u",
    "SELECT i AS any_i FROM t INTERSECT SELECT i FROM u",
    "SELECT id, i, rank() OVER (PARTITION BY k ORDER BY i) AS r, count(*) OVER (PARTITION BY i) AS c FROM t",
    "SELECT i AS any_i, id FROM t ORDER BY i, id LIMIT 3",
    "SELECT x.c, t.id FROM (SELECT i, count(*) AS c FROM u GROUP BY i) x JOIN t ON x.i = t.i",
]


def rows(con: sqlfront.Connection, query: str) -> Counter[tuple[object, ...]]:
    """The rows as text; of equal intervals that DuckDB chooses from, the length."""
    names = [column[0] for column in con.execute(f"SELECT * FROM ({query}) LIMIT 0").description]
    shown = ", ".join(
        f"CAST({f'normalized_interval({name})' if name.startswith('any_') else name} AS VARCHAR)" for name in names
    )
    return Counter(con.execute(f"SELECT {shown} FROM ({query})").fetchall())


def change(con: sqlfront.Connection, rng: random.Random) -> None:
    """One random statement: duplicates, NULLs, and intervals of one length that are written in several ways."""
    texts = ("1 month", "30 days", "720 hours", "1 day", "24 hours", "-1 day", "1 month -1 day", "29 days", "61 days")
    interval = lambda: rng.choice(["NULL", *(f"INTERVAL '{text}'" for text in texts)])  # noqa: E731
    table, kind = rng.choice("ttu"), rng.random()
    if kind < 0.55:
        row = lambda: f"({rng.randint(1, 6)}, {rng.randint(1, 3)}, {interval()}, '2024-01-{rng.choice((1, 31))}')"  # noqa: E731
        given = [row() for _ in range(rng.randint(1, 4))]
        con.execute(f"INSERT INTO {table} VALUES {', '.join(given + given[:1])}")
    elif kind < 0.8:
        con.execute(f"UPDATE {table} SET i = {interval()} WHERE i IS NOT DISTINCT FROM {interval()}")
    else:
        con.execute(f"DELETE FROM {table} WHERE i IS NOT DISTINCT FROM {interval()} AND id < 5")


@pytest.mark.parametrize(
    ("tables", "seed", "steps"),
    [
        ("TABLE", 1, 6),
        ("CHANGE TABLE", 2, 6),
        *(pytest.param("TABLE", seed, 30, marks=pytest.mark.slow) for seed in range(3, 6)),
    ],
)
def test_views_of_intervals_are_their_queries(tables: str, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    names = {f"v{place}": one for place, one in enumerate(rng.sample(QUERIES, 10) if steps < 10 else QUERIES)}
    with sqlfront.connect() as con:
        for table in "tu":
            con.execute(f"CREATE {tables} {table} (id INTEGER, k INTEGER, i INTERVAL, d DATE)")
        for _ in range(4):
            change(con, rng)
        for name, query in names.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")

        def check() -> dict[str, list[tuple[object, ...]]]:
            found = {name: rows(con, f"SELECT * FROM {name}") for name in names}
            for name, query in names.items():
                assert found[name] == rows(con, query), query
            return {name: sorted(one.elements(), key=str) for name, one in found.items()}

        if tables == "TABLE":
            follow(con, steps, lambda: change(con, rng), check)
            empty_and_drop(con, names, "tu", check)
        else:
            for _ in range(steps):
                change(con, rng)
                check()
            assert not any(con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() for name in names)


def test_an_update_of_an_interval_to_an_equal_one_leaves_the_view_as_the_table() -> None:
    for tables in ("TABLE", "CHANGE TABLE"):
        with sqlfront.connect() as con:
            con.execute(f"CREATE {tables} t (id INTEGER, i INTERVAL)")
            con.execute("INSERT INTO t VALUES (1, INTERVAL 30 DAYS), (1, INTERVAL 1 MONTH), (2, INTERVAL 1 DAY)")
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT id, i FROM t")
            for update in ("id = 1", "i = INTERVAL 1 MONTH", "id = 3, i = ?", "I = INTERVAL 30 DAYS WHERE id = 3"):
                con.execute(f"UPDATE t SET {update}", [datetime.timedelta(days=30)] if "?" in update else None)
                assert rows(con, "SELECT * FROM v") == rows(con, "SELECT * FROM t")
            con.execute("DELETE FROM t WHERE i = INTERVAL 720 HOURS")
            assert not rows(con, "SELECT * FROM v")


def test_a_subquery_is_computed_for_each_way_to_write_an_interval() -> None:
    with sqlfront.connect() as con:
        for table in "tu":
            con.execute(f"CREATE TABLE {table} (k INTEGER, i INTERVAL, d DATE)")
        con.execute("INSERT INTO u VALUES (1, NULL, '2024-01-31')")
        query = "SELECT i, (SELECT max(u.d + t.i) FROM u WHERE u.k = t.k) AS m FROM t"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO t VALUES (1, INTERVAL 30 DAYS, NULL)")
        con.execute("INSERT INTO t VALUES (1, INTERVAL 1 MONTH, NULL), (1, INTERVAL 30 DAYS, NULL)")
        days, month = ("30 days", "2024-03-01 00:00:00"), ("1 month", "2024-02-29 00:00:00")
        assert rows(con, "SELECT * FROM v") == {days: 2, month: 1}
        nested = "SELECT (SELECT max(d + l[1]) FROM u) AS c FROM (SELECT [i] AS l FROM t)"
        with pytest.raises(sqlfront.NotSupportedError, match="nested value with an INTERVAL"):
            con.execute(f"CREATE MATERIALIZED VIEW w AS {nested}")

"""Comparisons in a cycle as chains within cells: rows that are within a window of each other."""

from __future__ import annotations

from math import log2
from random import Random

import pyarrow
import pytest

import sqlfront
from tests.following import is_query
from tests.sqlfront.views.test_boxes import steps_of

TYPES = {
    "BIGINT": "{}",
    "INTEGER": "{}",
    "SMALLINT": "{}",
    "TIMESTAMP": "TIMESTAMP '1970-01-01' + {} * INTERVAL '1 minute'",
}
WINDOW = "FROM p a JOIN p b ON b.k = a.k AND a.t < b.t AND b.v < 3 JOIN p c ON c.k = b.k AND b.t < c.t AND c.t {}"
CYCLES = {
    "the window of another table": ("BIGINT", f"SELECT a.id, b.id AS b, c.id AS c {WINDOW.format('< a.t + 5')}"),
    "computed columns": ("INTEGER", f"SELECT a.id, a.v + c.v AS s, 7 AS n {WINDOW.format('<= a.t + 4')} AND a.v < 3"),
    "times": ("TIMESTAMP", f"SELECT a.id, b.t, c.t AS u {WINDOW.format('<= a.t + INTERVAL 3 MINUTE')}"),
    "at most": ("BIGINT", "SELECT a.id, b.id AS b, c.id AS c FROM p a, p b, p c "
                "WHERE a.k = b.k AND b.k = c.k AND a.t <= b.t AND b.t <= c.t AND c.t <= a.t + 2"),
    "between": ("INTEGER", "SELECT a.id, b.t, c.t AS u FROM p a, p b, p c "
                "WHERE a.k = b.k AND c.k = a.k AND b.t BETWEEN a.t AND c.t AND c.t - a.t < 4"),
    "what follows from the window": ("BIGINT", f"SELECT a.k, b.id, c.id AS c {WINDOW.format('< a.t + 3')} "
                                     "AND a.t <= c.t AND b.t < a.t + 3 AND c.t < b.t + 4"),
    "no equality": ("SMALLINT", "SELECT a.id, b.id AS b, c.id AS c FROM p a, p b, p c "
                    "WHERE a.t < b.t AND b.t < c.t AND c.t <= a.t + 2 AND a.v = 1"),
    "four": ("BIGINT", "SELECT a.id, b.id AS b, c.id AS c, d.id AS d FROM p a, p b, p c, p d WHERE a.k = b.k "
             "AND b.k = c.k AND c.k = d.k AND a.t < b.t AND b.t < c.t AND c.t <= d.t AND d.t <= a.t + 4"),
    "groups": ("BIGINT", f"SELECT a.k, count(*) AS n, sum(c.v) AS s {WINDOW.format('<= a.t + 4')} GROUP BY a.k"),
    "close points": ("BIGINT", "SELECT a.id, b.id AS b FROM p a, p b WHERE abs(a.t - b.t) <= 3 AND abs(a.v - b.v) < 2"),
    "a wider side": ("INTEGER", "SELECT a.k, b.id AS b, a.v FROM p a JOIN p b ON a.k = b.k "
                     "AND b.t BETWEEN a.t - 1 AND a.t + 3 AND b.v BETWEEN a.v AND a.v + 1"),
    "close times": ("TIMESTAMP", "SELECT a.id, b.v AS w FROM p a JOIN p b ON abs(a.v - b.v) <= 1 "
                    "AND b.t BETWEEN a.t - INTERVAL 2 MINUTE AND a.t + INTERVAL 2 MINUTE"),
    "later times": ("TIMESTAMP", "SELECT a.id, b.id AS b FROM p a JOIN p b ON b.t >= a.t "
                    "AND b.t < a.t + INTERVAL 3 MINUTE AND a.v - 1 <= b.v AND b.v < a.v + 2"),
    "all rows": ("TIMESTAMP", f"SELECT count(*) AS n, sum(b.v) AS s {WINDOW.format('< a.t + INTERVAL 4 MINUTE')}"),
}  # fmt: skip
CELLS = "are in one cell as wide as the window"


def value(rng: Random, type_: str) -> str:
    """A time, on both sides of the first cell's bounds."""
    return "NULL" if rng.random() < 0.1 else f"({TYPES[type_].format(rng.randint(-4, 4))})::{type_}"


def rows(rng: Random, number: int, type_: str) -> str:
    found = [
        f"({number}, {rng.choice('00001N')}, {value(rng, type_)}, {rng.choice('N0123')})".replace("N,", "NULL,")
        for _ in range(4)
    ]
    return ", ".join(found).replace("N)", "NULL)")


@pytest.mark.parametrize("name", CYCLES)
def test_cells_hold_the_rows_within_a_window(name: str) -> None:
    type_, query = CYCLES[name]
    rng = Random(name)
    with sqlfront.connect(":memory:") as con:
        con.execute(f"CREATE TABLE p (id BIGINT, k BIGINT, t {type_}, v BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N log N)') AS {query}")
        assert CELLS in con.explain("v").to_dict()["reason"] and CELLS in con.explain(query).to_dict()["reason"]
        found, held = set(), 0
        feed = con.view("v").subscribe(snapshot=True)
        copied: dict[tuple[object, ...], int] = {}
        for number in range(24):
            kind = rng.random()
            if kind < 0.6:
                more = rows(rng, number, type_)
                con.execute(f"INSERT INTO p VALUES {more}, {more}")
            elif kind < 0.7:
                con.execute(f"DELETE FROM p WHERE t = {value(rng, type_)} OR id = {rng.randint(0, number)}")
            elif kind < 0.9:
                step = "INTERVAL 1 MINUTE" if type_ == "TIMESTAMP" else "1"
                con.execute(f"UPDATE p SET t = t + {step} WHERE v IS NOT DISTINCT FROM {rng.randint(0, 3)}")
            else:
                con.execute(f"BEGIN; DELETE FROM p WHERE id < 5; INSERT INTO p VALUES {rows(rng, number, type_)}")
                assert sorted(map(str, con.execute("FROM v").fetchall())) == sorted(
                    map(str, con.execute(query).fetchall())
                )
                con.execute("ROLLBACK")
            assert is_query(con)
            held = con.execute("SELECT count(*) FROM (FROM v)").fetchall()[0][0]
            assert con.view("v").count() == held == con.execute("SELECT count(*) FROM v").fetchall()[0][0]
            while (change := feed.poll()) is not None:
                for row in change.to_pylist():
                    *values, told, _, _ = row.values()
                    copied[(*values,)] = copied.get((*values,), 0) + (
                        1 if told in ("insert", "update_postimage") else -1
                    )
            told = sorted(str(row) for row, count in copied.items() for _ in range(count))
            assert told == sorted(str(tuple(row.values())) for row in con.sql("FROM v").to_arrow_table().to_pylist())
            found.add(str(told))
        assert len(found) > 7
        feed.close()
        con.execute("DELETE FROM p")
        left = sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist())
        assert left == (2 if name == "all rows" else 0)


REFUSED = {
    "a window of one whole number": "a.t < b.t AND b.t < c.t AND c.t < a.t + 1",
    "a delay": "a.t + 1 < b.t AND b.t < c.t AND c.t < a.t + 9",
    "a negative window": "a.t < b.t AND b.t < c.t AND c.t < a.t - 2",
    "two values of one table": "a.t < b.t AND b.t < c.t AND c.t < a.v + 5",
    "a tighter second window": "a.t < b.t AND b.t < c.t AND c.t < a.t + 5 AND b.t < a.t + 2",
    "a window and one bound": "b.t BETWEEN a.t - 2 AND a.t + 2 AND a.v < b.v",
    "a window after a delay": "b.t BETWEEN a.t + 2 AND a.t + 5 AND b.v BETWEEN a.v + 1 AND a.v + 3",
    "three windows": "abs(a.t - b.t) <= 2 AND abs(a.v - b.v) <= 2 AND abs(a.id - b.id) <= 2",
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_cycles_are_kept_otherwise(name: str) -> None:
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE p (id BIGINT, k BIGINT, t BIGINT, v BIGINT)")
        con.execute("INSERT INTO p SELECT i, i % 2, i * 7 % 11, i % 5 FROM range(30) AS t(i)")
        query = (
            f"SELECT a.id, b.id AS b, c.id AS c FROM p a, p b, p c WHERE a.k = b.k AND b.k = c.k AND {REFUSED[name]}"
        )
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^9)') AS {query}")
        assert CELLS not in con.explain("v").to_dict()["reason"]
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_a_branch_of_a_union_stores_pairs() -> None:
    """A union within a union would store the matches."""
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE p (id BIGINT, k BIGINT, t BIGINT, v BIGINT)")
        con.execute("INSERT INTO p SELECT i, i % 2, i * 7 % 11, i % 5 FROM range(30) AS t(i)")
        query = f"SELECT a.id, b.id AS b, c.id AS c {WINDOW.format('< a.t + 5')} UNION ALL SELECT id, k, v FROM p"
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^9)') AS {query}")
        assert CELLS not in con.explain("v").to_dict()["reason"]
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_infinite_times_and_the_ends_of_a_type() -> None:
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE p (id BIGINT, k BIGINT, t TIMESTAMP, v BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT a.id, c.id AS c {WINDOW.format('< a.t + INTERVAL 1 DAY')}")
        closed = "a.t <= b.t AND b.t <= c.t AND c.t <= a.t + INTERVAL 1 DAY"
        con.execute(
            "CREATE MATERIALIZED VIEW w AS SELECT a.id, c.id AS c FROM p a, p b, p c "
            f"WHERE a.k = b.k AND b.k = c.k AND {closed}"
        )
        con.execute("CREATE MATERIALIZED VIEW y AS SELECT a.id, b.id AS b FROM p a JOIN p b "
                    "ON b.t BETWEEN a.t AND a.t + INTERVAL 1 DAY AND abs(a.v - b.v) <= 1")  # fmt: skip
        assert all(CELLS in con.explain(view).to_dict()["reason"] for view in "vwy")
        for time in ("infinity", "-infinity", "2000-01-01", "2000-01-01 23:59:59.999999", "290309-12-22 (BC) 00:00:00"):
            con.execute(f"INSERT INTO p SELECT i, 0, '{time}'::TIMESTAMP, i FROM range(2) AS t(i)")
            for view in "vwy":
                assert not con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall()
        con.execute("CREATE TABLE q (t BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW x AS SELECT a.t, b.t AS b, c.t AS c FROM q a, q b, q c "
                    "WHERE a.t < b.t AND b.t < c.t AND c.t < a.t + 10")  # fmt: skip
        low = -(2**63)
        con.execute(f"INSERT INTO q SELECT {low + 1} + i FROM range(9) AS t(i); INSERT INTO q VALUES ({low})")
        assert con.view("x").count() == 120 and not con.execute("CHECK MATERIALIZED VIEW x").fetchall()
        with pytest.raises(sqlfront.Error, match=r"[Oo]verflow"):
            con.execute(f"INSERT INTO q VALUES ({2**63 - 1})")
        con.execute(f"INSERT INTO q SELECT {2**63 - 11} - i FROM range(9) AS t(i)")
        assert con.view("x").count() == 204 and not con.execute("CHECK MATERIALIZED VIEW x").fetchall()


def test_cells_store_as_many_entries_as_the_table_has_rows() -> None:
    """Twenty times as many rows within a window have thousands of times the matches, in the same space and steps."""
    per_row, most, matches = [], [], []
    query = "SELECT a.id, b.id AS b, c.id AS c " + WINDOW.replace("p ", "r ").format("< a.t + 1000")
    for rows_, step in ((4000, 400), (4000, 20), (16_000, 20)):
        with sqlfront.connect(":memory:") as con:
            con.execute("CREATE CHANGE TABLE r (id BIGINT, k BIGINT, t BIGINT, v BIGINT)")
            numbers = list(range(rows_))
            con.apply({"r": pyarrow.table({"id": numbers, "k": [0] * rows_, "t": [step * i for i in numbers],
                                           "v": [i % 4 for i in numbers]})})  # fmt: skip
            con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N log N)') AS {query}")
            per_row.append(
                sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist()) / rows_
            )
            middle = step * rows_ // 2
            most.append(max(steps_of(con, "r", (-1, 0, time, 1)) for time in (-5, middle, 2 * middle + 5)))
            matches.append(con.view("v").count())
    assert max(per_row) < 25 and per_row[2] < 1.1 * per_row[1]
    assert matches[1] > 100 * matches[0]
    assert most[2] < 1.5 * most[1] and most[1] < 200 * log2(4000)

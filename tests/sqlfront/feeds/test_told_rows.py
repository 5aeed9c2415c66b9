"""What subscribers are told of single rows and of batches: always the difference that the change made to the view."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.feeds.feed import subscribe
from sqlfront.maintenance.chained_rows import ChainedFastPath
from sqlfront.maintenance.output.output_change import images as images_of
from sqlfront.maintenance.output.output_change import plain
from sqlfront.maintenance.view.emission import USUAL_ROWS
from sqlfront.storage.kernels.layout import CHUNK

TABLES = {"t": "(k BIGINT, a BIGINT, s VARCHAR, d DECIMAL(9, 2))", "q": "(k BIGINT, a BIGINT, x BIGINT)"}
JOIN = "FROM t JOIN q ON t.k = q.k AND t.a >= q.a"
WITHIN = "FROM t JOIN q b ON b.k = t.k AND t.a < b.a JOIN q c ON c.k = b.k AND b.a < c.a AND c.a < t.a + {}"
VIEWS = {
    "all columns": f"SELECT t.*, q.* {JOIN}",
    "equal rows": f"SELECT t.s, q.x {JOIN}",
    "one side": f"SELECT q.x {JOIN}",
    "numbers": f"SELECT t.a, q.x, t.k, q.a AS b {JOIN}",
    "all numbers": "SELECT a, k FROM t",
    "outer numbers": "SELECT t.a, q.x FROM t LEFT JOIN q ON t.k = q.k",
    "distinct numbers": f"SELECT DISTINCT q.x, t.a {JOIN}",
    "computed": f"SELECT t.a + q.x AS y, t.d {JOIN}",
    "constants": "SELECT k, a, CAST(NULL AS BIGINT) AS none, 3 AS n FROM q",
    "three tables": "SELECT t.s, q.x, u.s AS other FROM t, q, t u WHERE t.k = q.k AND q.k = u.k AND q.a < u.a",
    "outer": "SELECT t.s, q.x FROM t LEFT JOIN q ON t.k = q.k AND t.a >= q.a",
    "full": "SELECT t.s, q.x FROM t FULL JOIN q ON t.k = q.k",
    "distinct": f"SELECT DISTINCT t.s, q.x {JOIN}",
    "groups": f"SELECT t.s, count(*) AS n, sum(q.x) AS x {JOIN} GROUP BY t.s",
    "all aggregates": """SELECT t.s, count(*) AS n, count(q.x) AS c, sum(q.x) AS x, sum(t.d) AS d, avg(q.x) AS m,
        avg(t.d) AS e, sum(q.x / 3) AS f, stddev(q.x) AS g, sum(t.a::DECIMAL(25, 5)) AS w
        FROM t LEFT JOIN q ON t.k = q.k AND t.a >= q.a GROUP BY t.s""",
    "groups that stay": "SELECT s, count(d) AS n FROM t GROUP BY s",
    "computed groups": f"SELECT t.s, 2 * sum(q.x) + count(*) AS y, 7 AS n, avg(q.x) / 3 AS z {JOIN} GROUP BY t.s",
    "shown groups": f"SELECT t.s, sum(q.x) AS x {JOIN} GROUP BY t.s HAVING count(*) > 1 AND sum(q.x) > 1",
    "groups unseen": f"SELECT sum(q.x) AS x {JOIN} GROUP BY t.s, q.x",
    "sums of all": f"SELECT count(*) AS n, sum(q.x) AS x, avg(t.d) AS d {JOIN}",
    "one group": f"SELECT count(*) AS n, max(q.x) AS x {JOIN}",
    "best": f"SELECT t.s, q.x, q.a {JOIN} ORDER BY q.x, q.a, t.s LIMIT 3",
    "union": f"SELECT t.s, q.x {JOIN} UNION ALL SELECT s, a FROM t",
    "of a view": f"SELECT x, count(*) AS n FROM (SELECT q.x, t.s {JOIN} UNION ALL SELECT x, NULL FROM q) GROUP BY x",
    "number groups": f"SELECT t.k, count(*) AS n, sum(q.x) AS x, avg(q.x) AS m, avg(q.a) AS e {JOIN} GROUP BY t.k",
    "numbers that stay": "SELECT k, count(d) AS n FROM t GROUP BY k",
    "averages": f"SELECT q.x, avg(t.d) AS d, avg(q.a) AS a {JOIN} GROUP BY q.x",
    "shown numbers": f"SELECT q.x, 2 * sum(q.a) + 1 AS y, 3 AS n {JOIN} GROUP BY q.x HAVING count(*) > 1",
    "halves": f"SELECT q.a, (q.a + t.k) // 4 AS y, 7 AS n {JOIN}",
    "sums of numbers": "SELECT count(*) AS n, sum(x) AS x FROM q",
    "nearest numbers": "SELECT t.a, q.x * 2 + t.a AS y FROM t ASOF JOIN q ON t.k = q.k AND t.a >= q.a",
    "numbers within a window": f"SELECT t.k, b.x, c.x AS z {WITHIN.format(30)}",
    "nearest": "SELECT t.s, q.x FROM t ASOF JOIN q ON t.k = q.k AND t.a >= q.a",
}
JOINED_NUMBERS = ["one side", "numbers", "outer numbers", "distinct numbers"]
GENERAL = ["constants", "all aggregates", "groups unseen", "sums of all", "one group", "best"]
PLAIN = [*JOINED_NUMBERS, "all columns", "equal rows", "three tables", "outer", "distinct", "groups", "best", "nearest"]


def opened(query: str) -> sqlfront.Connection:
    con = sqlfront.connect()
    for name, columns in TABLES.items():
        con.execute(f"CREATE CHANGE TABLE {name} {columns}")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^9)') AS {query}")
    return con


def random_row(make: random.Random, table: str, places: set[Any]) -> tuple[Any, ...]:
    k, a = make.choice([None, 0, 1, 1]), make.choice([None, -(2**63), *range(6)])
    if table == "t":
        return k, a, make.choice([None, "a", "b"]), make.choice([None, 0, 1])
    while (k, a) in places:  # No two rows of q are equally near.
        k, a = make.choice([None, 0, 1, 1]), make.randrange(40)
    return k, a, None if a is None else a % 3


def told(feed: Any) -> Counter[Any]:
    found = Counter[Any]()
    if (change := feed.poll()) is not None:
        for *row, kind, _, _ in zip(*(column.to_pylist() for column in change.columns), strict=True):
            weight = 1 if kind in ("insert", "update_postimage") else -1
            assert found[tuple(row)] * weight >= 0, "what cancels is not told"
            found[tuple(row)] += weight
    return found


def rows_of(con: sqlfront.Connection) -> Counter[Any]:
    return Counter(con.execute("FROM v").fetchall())


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", VIEWS)
def test_changes_are_the_difference_of_the_rows(name: str, seed: int) -> None:
    make, held = random.Random(seed), list[tuple[str, tuple[Any, ...]]]()
    con, changed = opened(VIEWS[name]), 0
    with con.view("v").subscribe(snapshot=False) as feed:
        for _ in range(40):
            changes = []
            for _ in range(make.choice([1, 1, 1, 1, 3])):
                if held and make.random() < 0.4:
                    changes.append((*held.pop(make.randrange(len(held))), -1))
                else:
                    table = make.choice(["t", "q"])
                    places = {row[:2] for each, row in [*held, *((c[0], c[1]) for c in changes)] if each == "q"}
                    changes.append((table, random_row(make, table, places), 1))
            before = rows_of(con)
            apply(con, changes)
            held += [(table, row) for table, row, weight in changes if weight > 0]
            expected = rows_of(con)
            expected.subtract(before)
            assert told(feed) == Counter({row: count for row, count in expected.items() if count}), (name, changes)
            changed += any(expected.values())
        gates = con.session.database.engine.gates
        words = vars(con.view("v")._entry.maintained.changes).get("_told")
        assert (words is None) == (name in GENERAL), "columns of fixed width and texts are told as words"
        assert name not in PLAIN or all(isinstance(gates[f"main.{table}"], ChainedFastPath) for table in TABLES)
    assert changed > 9
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    con.close()


def apply(con: sqlfront.Connection, changes: list[tuple[str, tuple[Any, ...], int]]) -> None:
    if len(changes) == 1:
        con.apply_row(*changes[0])
        return
    batches = {}
    for table in {table for table, _, _ in changes}:
        relation = con.session.database.engine.relations[f"main.{table}"]
        own = [(row, weight) for each, row, weight in changes if each == table]
        columns = relation.as_batch([row for row, _ in own]).columns
        named = dict(zip((column.name for column in relation.columns), columns, strict=True))
        batches[table] = pa.table({**named, "_weight": pa.array([weight for _, weight in own])})
    con.apply(batches)


GROUPED = [
    "groups",
    "all aggregates",
    "groups that stay",
    "computed groups",
    "shown groups",
    "groups unseen",
    "sums of all",
    "number groups",
    "numbers that stay",
    "averages",
    "shown numbers",
    "sums of numbers",
]


@pytest.mark.parametrize("name", GROUPED)
def test_groups_are_told_as_duckdb_computes_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows and images as without a program that computes them; no two images are equal."""
    make, held, changed = random.Random(name), list[tuple[str, tuple[Any, ...]]](), Counter[str]()
    con = opened(VIEWS[name])
    con.execute(f"CREATE MATERIALIZED VIEW w WITH (at_worst = 'O(N^9)') AS {VIEWS[name]}")
    with con.view("v").subscribe(snapshot=False) as feed, con.view("w").subscribe(snapshot=False) as by_duckdb:
        assert con.view("v")._entry.maintained.changes._program is not None
        monkeypatch.setitem(vars(con.view("w")._entry.maintained.changes), "_program", None)
        for _ in range(90):
            if held and make.random() < 0.4:
                change = (*held.pop(make.randrange(len(held))), -1)
            else:
                table = make.choice(["t", "q"])
                change = (table, random_row(make, table, {row[:2] for each, row in held if each == "q"}), 1)
                held.append(change[:2])
            apply(con, [change])
            found, expected = images(feed), images(by_duckdb)
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            changed.update(kind for *_, kind in found)
            for former, latter in pairwise(found):
                assert former[-1] != "update_preimage" or former[:-1] != latter[:-1]
    assert len(changed) > 1 and changed.total() > 9
    con.close()


def images(feed: Any) -> list[tuple[Any, ...]]:
    change = feed.poll()
    return [] if change is None else list(zip(*(column.to_pylist() for column in change.columns[:-2]), strict=True))


def test_equal_rows_of_a_batch_are_told_once_with_their_number() -> None:
    con = opened(VIEWS["equal rows"])
    con.apply({"q": pa.table({"k": [1, 1], "a": [0, 1], "x": [7, 8]})})
    with con.view("v").subscribe(snapshot=False) as feed:
        rows = pa.table({"k": [1] * 3, "a": [5, 6, 0], "s": ["a"] * 3, "d": pa.array([None] * 3, pa.int64())})
        epoch = con.apply({"t": rows})
        found = epoch.changes["v"].select(["x", "_weight"]).to_pylist()
        assert sorted(found, key=str) == [{"x": 7, "_weight": 3}, {"x": 8, "_weight": 2}]
        assert told(feed) == {("a", 7): 3, ("a", 8): 2}
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT x, count(*) AS n FROM v GROUP BY x")
        for weight, expected in ((1, 2), (-1, -2)):
            con.apply_row("t", (1, 9, None, None), weight)
            assert told(feed).total() == expected
            assert dict(con.execute("FROM w").fetchall()) == {7: 3 + (weight > 0), 8: 2 + (weight > 0)}
    con.close()


def test_a_large_change_of_one_row_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    con = opened(VIEWS["equal rows"])
    engine = con.session.database.engine
    count = 70_000  # More than memory is kept for.
    con.apply({"q": pa.table({"k": [1] * count, "a": range(count), "x": [7] * count})})
    con.apply_row("t", (2, 1, "b", None))
    with con.view("v").subscribe(snapshot=False) as feed:
        con.apply_row("t", (2, 2, "b", None))
        monkeypatch.setattr(engine, "apply_rows", lambda *_: pytest.fail("the general way"))
        for weight in (1, -1):
            con.apply_row("t", (1, count, "a", None), weight)
            assert told(feed) == {("a", 7): weight * count}
        delta = con.view("v")._entry.maintained.delta
        assert delta is not None
        kept = delta.listed.capacity
        for number in range(40):  # The memory of a large change goes back, but not with the first small one.
            con.apply_row("t", (1, 0, "b", None), 1 - 2 * (number % 2))
            assert number > 2 or delta.listed.capacity == kept >= count
        assert delta.listed.capacity <= USUAL_ROWS < kept
    assert not con.execute("FROM v").fetchall()
    con.close()


@pytest.mark.parametrize("name", ["computed", "number groups", "all numbers", "groups", "equal rows"])
def test_changes_of_many_epochs_are_those_of_each(name: str) -> None:
    """Read one by one, all at once, by way of packed ones, and after an epoch in their middle."""
    make, con = random.Random(5), opened(VIEWS[name])
    con.apply({"q": pa.table({"k": [0, 1, 1], "a": [0, 1, 2], "x": [7, 8, 9]})})
    view = con.view("v")
    with view.subscribe(snapshot=False) as each, view.subscribe(snapshot=False) as at_last:
        lossless = subscribe(con.session.database, view._entry, snapshot=False, lossless=True)
        some, start = view.subscribe(snapshot=False), con.session.database.engine.epoch
        single, often = list[pa.Table](), list[pa.Table]()
        for number in range(700):
            k, a = make.choice([0, 1]), make.randrange(3)
            row = k, a, make.choice(["a", "b"]), make.choice([0, 1])
            con.apply_row("t", row)
            if number % 7:
                con.apply_row("t", row, -1)
            single += [change for change in [each.poll()] if change is not None]
            if number % 40 == 39:
                often += [change for change in [some.poll()] if change is not None]
        expected = pa.concat_tables(single).to_pylist()
        assert len(expected) > 100 and len(single) > 100
        found = at_last.poll()
        assert found is not None and found.to_pylist() == expected
        assert found.column(0).num_chunks < 10, "words are joined before they become Arrow"
        other = lossless.poll()
        assert other is not None and plain(other, lossless._feed.types).to_pylist() == expected
        assert pa.concat_tables(often).to_pylist() == expected[: sum(map(len, often))]
        middle = expected[len(expected) // 2]["_commit_version"]
        with view.subscribe(after=middle) as later:
            rest = later.poll()
        assert rest is not None
        assert rest.to_pylist() == [row for row in expected if row["_commit_version"] > middle]
        assert middle > start
    con.close()


def test_a_subscriber_that_has_gone_is_told_nothing() -> None:
    con = opened(VIEWS["all columns"])
    con.apply_row("q", (1, 1, 1))
    feed = con.view("v").subscribe(snapshot=False)
    con.apply_row("t", (1, 1, "a", 1))
    con.apply_row("t", (1, 2, "a", 1))
    assert told(feed).total() == 2
    del feed  # Nobody closes it: the next change finds that nobody listens.
    for number in range(3):
        con.apply_row("t", (1, 3 + number, "a", 1))
    assert not isinstance(con.session.database.engine.gates["main.t"], ChainedFastPath)
    assert con.view("v").count() == 5
    con.close()


@pytest.mark.parametrize("test", ["q.a <= t.a", "q.a < t.a", "q.a BETWEEN t.a - 3000 AND t.a"])
def test_a_long_range_ends_at_its_bound(test: str) -> None:
    """Members are tested one by one, and then listed to the last within the bound: over more than a chunk, too."""
    low = -3000 if "BETWEEN" in test else None
    con = opened(f"SELECT t.a, q.a AS b, q.x FROM t, q WHERE {test}")
    places = [number // 2 for number in range(2 * (CHUNK + 40))]
    con.apply({"q": pa.table({"k": [1] * len(places), "a": places, "x": range(len(places))})})
    with con.view("v").subscribe(snapshot=False) as feed:
        for a in (-1, 0, 1, *range(5, 10), CHUNK // 2 - 1, CHUNK // 2, CHUNK - 1, CHUNK, CHUNK + 39, 2 * CHUNK):
            within = [
                (a, b, x)
                for x, b in enumerate(places)
                if (b < a or (b == a and "<" not in test.replace("<=", ""))) and (low is None or b >= a + low)
            ]
            for weight in (1, -1):
                con.apply_row("t", (1, a, None, None), weight)
                assert told(feed) == dict.fromkeys(within, weight), a
    con.close()


def test_equal_numbers_that_cancel_are_not_told() -> None:
    con = opened(VIEWS["outer numbers"])
    con.apply({"q": pa.table({"k": [1, 2, 2], "a": [0, 0, 1], "x": [7, 7, 8]})})
    con.apply_row("t", (1, 0, "a", 1))
    with con.view("v").subscribe(snapshot=False) as feed:
        apply(con, [("t", (1, 0, "a", 1), -1), ("t", (2, 0, "a", 1), 1)])
        assert told(feed) == {(0, 8): 1}
        apply(con, [("t", (2, 0, "a", 1), -1), ("t", (1, 0, "a", 1), 1), ("t", (1, 5, "a", 1), 1)])
        assert told(feed) == {(0, 8): -1, (5, 7): 1}
    con.close()


def test_computed_numbers_that_cancel_are_not_told() -> None:
    con = opened(f"SELECT t.a + q.x AS y {JOIN}")
    con.apply({"q": pa.table({"k": [1, 2], "a": [0, 0], "x": [7, 8]})})
    con.apply_row("t", (1, 5, "a", 1))
    with con.view("v").subscribe(snapshot=False) as feed:
        apply(con, [("t", (1, 5, "a", 1), -1), ("t", (2, 4, "a", 1), 1)])
        assert told(feed) == {}
        apply(con, [("t", (2, 4, "a", 1), -1), ("t", (1, 5, "a", 1), 1), ("t", (1, 6, "a", 1), 1)])
        assert told(feed) == {(13,): 1}
    con.close()


def test_rows_that_move_from_branch_to_branch_are_not_told() -> None:
    con = opened(f"SELECT t.k, b.x, c.x AS z {WITHIN.format(4)}")
    assert len(con.view("v")._entry.maintained.branches) == 3
    con.apply({"q": pa.table({"k": [1, 1, 1], "a": [5, 6, 7], "x": [7, 8, 9]})})
    con.apply_row("t", (1, 3, "a", 1))
    with con.view("v").subscribe(snapshot=False) as feed:
        apply(con, [("t", (1, 3, "a", 1), -1), ("t", (1, 4, "a", 1), 1)])
        assert told(feed) == {(1, 7, 9): 1, (1, 8, 9): 1}
        apply(con, [("t", (1, 4, "a", 1), -1), ("t", (1, 3, "a", 1), 1)])
        assert told(feed) == {(1, 7, 9): -1, (1, 8, 9): -1}
        apply(con, [("t", (1, 3, "b", 0), 1), ("t", (1, 4, "b", 0), 1)])
        assert told(feed) == {(1, 7, 8): 2, (1, 7, 9): 1, (1, 8, 9): 1}
    con.close()


def test_groups_of_a_join_that_may_be_missing_are_told() -> None:
    make = random.Random(3)
    con = opened(
        "SELECT t.k, q.a, u.x, count(*) AS n FROM t LEFT JOIN (q JOIN q u ON q.a = u.a) ON t.k = q.k GROUP BY ALL"
    )
    with con.view("v").subscribe(snapshot=False) as feed:
        for _ in range(60):
            k, a = make.choice([None, 0, 1, 2]), make.choice([None, 0, 1])
            before = rows_of(con)
            if make.random() < 0.4:
                con.execute(f"DELETE FROM {make.choice('tq')} WHERE k = {make.randrange(3)}")
            else:
                con.apply_row(*make.choice([("t", (k, a, "a", 1)), ("q", (k, a, make.randrange(2)))]))
            expected = rows_of(con)
            expected.subtract(before)
            assert told(feed) == Counter({row: count for row, count in expected.items() if count})
    con.close()


def test_two_texts_of_a_row_are_told_apart() -> None:
    con = opened(VIEWS["three tables"])
    con.apply_row("q", (1, 1, 7))
    con.apply_row("t", (1, 5, "a", 0))
    with con.view("v").subscribe(snapshot=False) as feed:
        con.apply_row("t", (1, 3, "b", 0))
        assert told(feed) == {("b", 7, "a"): 1, ("b", 7, "b"): 1, ("a", 7, "b"): 1}
    con.close()


def test_texts_wait_when_no_row_has_them_any_more() -> None:
    con = opened(VIEWS["groups"])
    con.apply_row("q", (1, 0, 7))
    with con.view("v").subscribe(snapshot=False) as feed:
        for text in (*map(str, range(2_000)), None):
            con.apply_row("t", (1, 5, text, 1))
            con.apply_row("t", (1, 5, text, 1), -1)
        found = feed.poll()
    assert found is not None
    assert found.column("s").to_pylist() == [text for text in (*map(str, range(2_000)), None) for _ in range(2)]
    assert sum(one.live() for one in con.session.database.engine.dictionaries) < 1_500  # Most are forgotten.
    con.close()


def test_rows_of_numbers_are_told_once_for_each_listener() -> None:
    """The stamps of one listener are not those of another."""
    con, heard = opened(VIEWS["numbers"]), list[pa.Table]()
    con.apply_row("q", (1, 1, 7))
    entry = con.view("v")._entry

    def listen(epoch: int, change: Any) -> None:
        heard.extend(images_of(change, epoch + more, more) for more in (0, 10))

    with con.view("v").subscribe(snapshot=False) as feed:
        con.session.database.engine.listen(entry.maintained.name, listen)
        con.apply_row("t", (1, 3, "a", None))
        change = feed.poll()
    assert change is not None
    version = change.column("_commit_version").to_pylist()[0]
    for number, table in enumerate(heard):
        assert table.select(["a", "x", "k", "b"]).to_pylist() == [{"a": 3, "x": 7, "k": 1, "b": 1}]
        assert table.schema.names == change.schema.names
        assert table.column("_commit_version").to_pylist() == [version + 10 * number]
        assert table.column("_commit_timestamp").cast(pa.int64()).to_pylist() == [10 * number]
    con.close()

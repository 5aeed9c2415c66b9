"""Single rows whose changes pass through nodes: as many batches of one row, whatever the views and the failures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.chained_rows import ChainedFastPath, JoinedPairs
from tests.definition_oracle import same_bag

TABLES = {
    "t": "(id BIGINT, k BIGINT, ts BIGINT, s VARCHAR, d DOUBLE)",
    "q": "(k BIGINT, ts BIGINT, s VARCHAR, x BIGINT)",
}
VIEWS = {
    "rows": "SELECT t.id, t.ts, t.s, q.x FROM t ASOF JOIN q ON t.k = q.k AND t.ts >= q.ts",
    "rows or none": "SELECT t.id, t.d, q.x, q.s FROM t ASOF LEFT JOIN q ON t.k = q.k AND t.ts < q.ts",
    "computed": "SELECT t.id, t.id * q.x AS y FROM t ASOF JOIN q ON t.k = q.k AND t.ts > q.ts",
    "sums": "SELECT t.k, count(*) AS n, sum(t.d) AS d, sum(t.id * q.x) AS y FROM t ASOF JOIN q "
    "ON t.k = q.k AND t.ts <= q.ts GROUP BY t.k",
    "filters": "SELECT t.id, q.x FROM t ASOF JOIN q ON t.s = q.s AND t.ts >= q.ts AND t.id > 1 AND q.x < 4",
    "three": "SELECT t.id, q.x FROM t, LATERAL (SELECT x, ts FROM q WHERE q.k = t.k AND q.ts <= t.ts "
    "ORDER BY q.ts DESC LIMIT 3) q",
    "a range": "SELECT t.id, (SELECT max(x) FROM q WHERE q.ts BETWEEN t.k AND t.ts) AS m FROM t",
    "of distinct rows": "SELECT a.k, b.x, a.n FROM (SELECT k, ts, count(*) AS n FROM t GROUP BY ALL) a "
    "ASOF JOIN q b ON a.k = b.k AND a.ts >= b.ts",
    "twice": "SELECT a.id, b.id AS former FROM t a ASOF JOIN (SELECT id, ts FROM t) b ON a.ts > b.ts",
    "groups": "SELECT n, count(*) AS c, sum(d) AS d FROM (SELECT k, count(*) AS n, avg(ts) AS d FROM t GROUP BY k) "
    "GROUP BY n",
    "union": "SELECT k, s FROM t UNION SELECT k, s FROM q",
    "either": "SELECT k, count(*) AS n FROM (SELECT k, ts FROM t UNION ALL SELECT k, x FROM q WHERE ts > 1) GROUP BY k",
    "both": "SELECT k, count(*) AS n FROM (SELECT k, ts FROM t UNION ALL SELECT ts, id FROM t WHERE id > 1) GROUP BY k",
    "without": "SELECT k FROM t EXCEPT ALL SELECT k FROM q",
    "full": "SELECT t.id, q.x FROM t FULL JOIN q ON t.k = q.k",
}
ONE_TABLE = ("twice", "groups", "both")


def opened(query: str) -> sqlfront.Connection:
    con = sqlfront.connect()
    for name, columns in TABLES.items():
        con.execute(f"CREATE CHANGE TABLE {name} {columns}")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    return con


def random_row(make: random.Random) -> tuple[str, tuple[Any, ...]]:
    k, ts, s = make.choice([None, 0, 1, 1]), make.choice([None, *range(8)]), make.choice([None, "a", "b"])
    if make.random() < 0.5:
        return "t", (make.randrange(4), k, ts, s, make.choice([None, 0.5, 1e-9, 3e8]))
    # One row of q for each time: no two are equally near.
    return "q", (k, ts, s, None if ts is None else (7 * ts) % 5)


def changes(seed: int, count: int) -> Iterator[tuple[str, tuple[Any, ...], int]]:
    """Rows that come and go. Rows of q do not come twice at one time."""
    make, held, times = random.Random(seed), list[tuple[str, tuple[Any, ...]]](), Counter[Any]()
    for _ in range(count):
        if held and make.random() < 0.4:
            table, row = held.pop(make.randrange(len(held)))
            times[row[1]] -= table == "q"
            yield table, row, -1
        else:
            table, row = random_row(make)
            if table == "q" and times[row[1]]:
                continue
            times[row[1]] += table == "q"
            held.append((table, row))
            yield table, row, 1


def as_batch(con: sqlfront.Connection, table: str, row: tuple[Any, ...], weight: int) -> None:
    relation = con.session.database.engine.relations[f"main.{table}"]
    columns = dict(zip((column.name for column in relation.columns), relation.as_batch([row]).columns, strict=True))
    con.apply({table: pa.table({**columns, "_weight": pa.array([weight])})})


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", VIEWS)
def test_a_row_does_what_a_batch_of_one_row_does(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened(VIEWS[name]), opened(VIEWS[name])
    engine, general = one.session.database.engine, []
    applied = engine.apply_rows
    monkeypatch.setattr(engine, "apply_rows", lambda *given: general.append(given) or applied(*given))
    rows, changed = Counter[Any](), 0
    for number, (table, row, weight) in enumerate(changes(seed, 120)):
        one.apply_row(table, row, weight)
        as_batch(other, table, row, weight)
        before, rows = rows, Counter(one.execute("FROM v").fetchall())
        assert rows == Counter(other.execute("FROM v").fetchall()), (number, table, row, weight)
        changed += rows != before
    assert changed > 7
    read = TABLES if name not in ONE_TABLE else ["t"]
    assert all(isinstance(engine.gates[f"main.{table}"], ChainedFastPath) for table in read)
    assert len(general) < 12  # The first rows, and those that widen a sum.
    compared = other.session.database.engine
    assert engine.epoch == compared.epoch
    for relation, twin in zip(engine.relations.values(), compared.relations.values(), strict=True):
        assert relation.changes == twin.changes
    steps = [each.session.database.engine.steps(each.session.database.views["main", "v"].maintained) for each in
             (one, other)]  # fmt: skip
    assert steps[0] == steps[1] or name in ("sums", "groups")  # Where a sum needs a finer unit, steps are taken again.
    if name != "twice":  # Rows with one time are equally near.
        oracle = VIEWS[name]
        assert same_bag(list(rows.elements()), one.execute(oracle).fetchall())
    assert not one.execute("CHECK MATERIALIZED VIEW v").fetchall()
    one.close()
    other.close()


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    con = opened(VIEWS["rows"])
    for k in (1, 2):
        con.apply_row("t", (k, 1, 5, "a", 0.5))
        con.apply_row("q", (1, k, "a", k))
    yield con
    con.close()


def test_a_row_that_is_not_there_is_refused_and_changes_nothing(con: sqlfront.Connection) -> None:
    before, epoch = con.execute("FROM v").fetchall(), con.session.database.engine.epoch
    for table, row in (("t", (9, 1, 5, "a", 0.5)), ("q", (1, 9, "a", 1))):
        with pytest.raises(sqlfront.IntegrityError):
            con.apply_row(table, row, -1)
    assert (con.execute("FROM v").fetchall(), con.session.database.engine.epoch) == (before, epoch)
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_an_interrupted_row_is_taken_back(con: sqlfront.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    before, epoch = con.execute("FROM v").fetchall(), con.session.database.engine.epoch

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(JoinedPairs, "rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            con.apply_row("q", (1, 4, "a", 7))
    assert (con.execute("FROM v").fetchall(), con.session.database.engine.epoch) == (before, epoch)
    con.apply_row("q", (1, 4, "a", 7))
    assert same_bag(con.execute("FROM v").fetchall(), [(1, 5, "a", 7), (2, 5, "a", 7)])


def test_a_subscriber_hears_of_rows(con: sqlfront.Connection) -> None:
    engine = con.session.database.engine
    with con.view("v").subscribe(snapshot=False, buffer=1) as feed:
        for weight in (1, -1):  # The first one goes the general way.
            con.apply_row("q", (1, 4, "a", 7), weight)
            assert isinstance(engine.gates["main.q"], ChainedFastPath)
            assert (told := feed.poll()) is not None and told.num_rows == 4
    con.apply_row("q", (1, 3, "a", 8))
    assert isinstance(engine.gates["main.q"], ChainedFastPath)
    assert same_bag(con.execute("FROM v").fetchall(), [(1, 5, "a", 8), (2, 5, "a", 8)])


def test_a_subscriber_of_a_view_in_branches_hears_of_rows() -> None:
    query = (
        "SELECT a.s, a.id, b.id AS other, c.id AS last FROM t a JOIN t b ON b.k = a.k AND a.ts < b.ts "
        "JOIN t c ON c.k = b.k AND b.ts < c.ts AND c.ts < a.ts + 5"
    )
    one, other = opened(query), opened(query)
    maintained = one.session.database.views["main", "v"].maintained
    assert len(maintained.branches) == 3
    with one.view("v").subscribe(snapshot=False) as feed, other.view("v").subscribe(snapshot=False) as twin:
        told = 0
        for table, row, weight in changes(3, 150):
            one.apply_row(table, row, weight)
            as_batch(other, table, row, weight)
            found = [None if change is None else change.select(range(5)) for change in (feed.poll(), twin.poll())]
            rows = [Counter() if change is None else Counter(map(str, change.to_pylist())) for change in found]
            assert rows[0] == rows[1], (table, row, weight)
            told += len(rows[0]) > 0
        assert isinstance(one.session.database.engine.gates["main.t"], ChainedFastPath)
    assert told > 20
    assert same_bag(one.execute("FROM v").fetchall(), one.execute(query).fetchall())
    one.close()
    other.close()


def test_a_view_above_is_changed_too(con: sqlfront.Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT x, count(*) AS n FROM v GROUP BY x")
    con.apply_row("q", (1, 4, "a", 7))
    assert con.execute("FROM w").fetchall() == [(7, 2)]
    con.apply_row("q", (1, 4, "a", 7), -1)
    assert con.execute("FROM w").fetchall() == [(2, 2)]
    with con.view("v").subscribe(snapshot=False, buffer=1) as feed:
        for weight in (1, -1):  # The first one goes the general way.
            con.apply_row("q", (1, 4, "a", 7), weight)
            assert (told := feed.poll()) is not None and told.num_rows == 4


def test_a_reader_of_an_older_epoch_goes_on(con: sqlfront.Connection) -> None:
    before = con.execute("FROM v").fetchall()
    with sqlfront.connect() as _, con.cursor() as other:
        reader = other.execute("FROM v").to_arrow_reader()
        con.apply_row("q", (1, 4, "a", 7))
        assert same_bag([tuple(row.values()) for row in reader.read_all().to_pylist()], before)
    assert same_bag(con.execute("FROM v").fetchall(), [(1, 5, "a", 7), (2, 5, "a", 7)])

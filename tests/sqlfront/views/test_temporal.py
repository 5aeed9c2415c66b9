"""Temporal filters: comparisons of columns with a clock, which con.advance_time or the machine lets go on."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

import sqlfront
from sqlfront.database import view_time
from tests.judges import judge
from tests.temporal_stream import Stream

MIDNIGHT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
EVENTS = "CREATE CHANGE TABLE e (id BIGINT, u VARCHAR, ts TIMESTAMPTZ)"
LAST_HOUR = "SELECT id FROM e WHERE ts > now() - INTERVAL 1 HOUR AND ts <= now()"


def minute(number: float) -> datetime.datetime:
    return MIDNIGHT + datetime.timedelta(minutes=number)


def ids(con: sqlfront.Connection, view: str = "v") -> list[int]:
    return sorted(row[0] for row in con.execute(f"SELECT id FROM {view}").fetchall())


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    with sqlfront.connect() as connection:
        connection.execute(EVENTS)
        connection.advance_time(MIDNIGHT)
        yield connection


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 25), (2, 25), *(pytest.param(seed, 500, marks=pytest.mark.slow) for seed in range(3, 23))]
)
def test_a_stream_of_changes_and_of_time(seed: int, steps: int) -> None:
    with judge() as duck:
        stream = Stream(seed, 3 if steps < 100 else 8, duck)
        for _ in range(steps):
            stream.step()
            stream.check()
        stream.check_itself()
        stream.close()


def test_rows_come_and_go_with_time(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO e VALUES (1, 'a', ?), (2, 'a', ?), (3, 'b', NULL)", [minute(-30), minute(10)])
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {LAST_HOUR}")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT u, count(*) AS n FROM v JOIN e USING (id) GROUP BY u")
    feed = con.view("v").subscribe(snapshot=False)
    assert ids(con) == [1]
    epoch = con.advance_time(minute(10))
    assert epoch is not None and ids(con) == [1, 2] and con.view("w").get("a") == ("a", 2)
    con.advance_time(minute(30))
    assert ids(con) == [2]
    change = feed.poll()
    assert change is not None
    assert change.select(["id", "_change_type"]).to_pylist() == [
        {"id": 2, "_change_type": "insert"},
        {"id": 1, "_change_type": "delete"},
    ]
    con.execute("UPDATE e SET ts = ? WHERE id = 1", [minute(29)])
    con.apply_row("e", (4, "c", minute(31)))
    assert ids(con) == [1, 2]
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert ids(con) == [1, 2]
    con.execute("DELETE FROM e WHERE id <> 4")
    assert ids(con) == []
    con.advance_time(minute(31))
    assert ids(con) == [4]
    con.execute("DELETE FROM e")
    con.advance_time(minute(1000))
    assert ids(con) == [] and con.view("w").rows() == []
    feed.close()
    con.execute("DROP MATERIALIZED VIEW v CASCADE")
    engine = con.session.database.engine
    assert not engine.nodes and con.advance_time(minute(1001)) is not None


def test_null_never_passes(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO e VALUES (1, 'a', NULL), (2, 'b', ?)", [minute(1)])
    con.execute("CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS SELECT id FROM e WHERE ts <= now()")
    con.execute("INSERT INTO e VALUES (3, 'c', NULL)")
    con.advance_time(minute(1))
    assert ids(con) == [2]
    con.execute("UPDATE e SET ts = CASE WHEN id = 1 THEN TIMESTAMPTZ '2025-12-31 00:00:00+00' END")
    assert ids(con) == [1]


def test_time_does_not_go_back(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {LAST_HOUR}")
    con.advance_time("2026-01-01 00:10:00+00")
    with pytest.raises(sqlfront.ProgrammingError, match=r"cannot go back to 2026-01-01 00:09.*\n.*00:10:00") as error:
        con.advance_time(minute(9))
    assert "give a time from 2026-01-01 00:10" in str(error.value)
    for never in (None, "infinity"):
        with pytest.raises(sqlfront.ProgrammingError, match="is no time to which a clock can go on"):
            con.advance_time(never)


def test_a_failing_epoch_leaves_the_clock(con: sqlfront.Connection) -> None:
    """The sum of the rows that come does not fit: the epoch is taken back, and the clock with it."""
    con.execute("CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS SELECT id FROM e WHERE ts <= now()")
    con.execute("CREATE MATERIALIZED VIEW w WITH (clock = 'manual') AS SELECT id, u::INT AS n FROM e WHERE ts <= now()")
    con.execute("CREATE MATERIALIZED VIEW x AS SELECT n, median(n) AS m FROM w GROUP BY n")
    con.execute("INSERT INTO e VALUES (1, '1', ?), (2, 'two', ?), (3, '3', ?)", [minute(1), minute(5), minute(6)])
    con.advance_time(minute(1))
    with pytest.raises(sqlfront.DataError):
        con.advance_time(minute(10))
    assert ids(con) == [1] and con.execute("FROM x").fetchall() == [(1, 1.0)]
    con.execute("UPDATE e SET u = '2' WHERE id = 2")
    assert ids(con) == [1]
    con.advance_time(minute(5))
    assert ids(con) == [1, 2] and con.execute("SELECT n FROM x ORDER BY n").fetchall() == [(1,), (2,)]


def test_a_transaction_has_its_own_time(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {LAST_HOUR}")
    con.execute("INSERT INTO e VALUES (1, 'a', ?), (2, 'a', ?)", [minute(0), minute(30)])
    other = con.cursor()
    con.execute("BEGIN")
    assert con.advance_time(minute(30)) is None
    con.execute("INSERT INTO e VALUES (3, 'a', ?)", [minute(29)])
    assert ids(con) == [1, 2, 3] and ids(other) == [1]
    con.execute("ROLLBACK")
    assert ids(con) == [1]
    con.execute("BEGIN")
    con.advance_time(minute(30))
    with pytest.raises(sqlfront.ProgrammingError, match="cannot go back"):
        con.advance_time(minute(29))
    con.execute("INSERT INTO e VALUES (3, 'a', ?)", [minute(29)])
    con.execute("COMMIT")
    assert ids(con) == ids(other) == [1, 2, 3]
    con.execute("BEGIN")
    con.advance_time(minute(40))
    other.advance_time(minute(50))
    with pytest.raises(sqlfront.ProgrammingError, match="cannot go back"):
        con.execute("COMMIT")


def test_a_file_has_the_manual_clock(tmp_path) -> None:
    path = str(tmp_path / "events.db")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE e (id BIGINT, ts TIMESTAMPTZ)")
        con.execute("INSERT INTO e VALUES (1, ?), (2, ?), (3, ?)", [minute(0), minute(50), minute(100)])
        con.advance_time(MIDNIGHT)
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {LAST_HOUR}")
        con.advance_time(minute(60))
        con.execute("BEGIN")
        con.advance_time(minute(100))
        con.execute("ROLLBACK")
    with sqlfront.connect(path) as con:
        assert ids(con) == [2]
        with pytest.raises(sqlfront.ProgrammingError, match="cannot go back"):
            con.advance_time(minute(59))
        con.advance_time(minute(100))
        assert ids(con) == [2, 3] and con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    with sqlfront.connect(path, config={"access_mode": "READ_ONLY"}) as con:
        assert ids(con) == [2, 3]
        with pytest.raises(sqlfront.ProgrammingError, match="read-only"):
            con.advance_time(minute(101))


def test_the_wall_clock_goes_on_before_a_view_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [int(MIDNIGHT.timestamp()) * 1_000_000]
    monkeypatch.setattr(view_time, "wall_time", lambda: now[0])
    with sqlfront.connect() as con:
        con.execute(EVENTS)
        con.execute("INSERT INTO e VALUES (1, 'a', ?), (2, 'b', ?)", [minute(-30), minute(10)])
        con.execute(f"CREATE MATERIALIZED VIEW v AS {LAST_HOUR}")
        con.execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM v")
        con.execute("CREATE MATERIALIZED VIEW u AS SELECT u, count(*) AS n FROM e WHERE ts <= now() GROUP BY u")
        con.execute("CREATE VIEW plain AS SELECT * FROM v")
        engine = con.session.database.engine
        reads = [
            lambda: ids(con) == [1, 2],
            lambda: ids(con, "plain") == [1, 2],
            lambda: con.execute("FROM n").fetchall() == [(2,)],
            lambda: con.view("u").get("b") == ("b", 1),
            lambda: con.view("v").contains((2,)),
            lambda: con.execute("SELECT n FROM u WHERE u = 'b'").fetchall() == [(1,)],
            lambda: con.execute("CHECK MATERIALIZED VIEW v").fetchall() == [] and ids(con) == [1, 2],
        ]
        ids(con)
        epoch = engine.epoch
        for _ in range(50):
            now[0] += 1_000_000
            assert ids(con) == [1] and con.view("u").get("b") is None
        assert engine.epoch == epoch  # Nothing was due.
        now[0] = int(minute(10).timestamp()) * 1_000_000
        con.execute("SELECT count(*) FROM e").fetchall()
        assert engine.epoch == epoch  # It reads no view over the clock.
        for read in reads:
            assert read()
        assert engine.epoch == epoch + 1
        now[0] = int(minute(30).timestamp()) * 1_000_000
        con.execute("BEGIN")
        assert ids(con) == [1, 2]  # In a transaction time stands still.
        con.execute("COMMIT")
        assert ids(con) == [2] and con.execute("CHECK MATERIALIZED VIEW u").fetchall() == []


def test_a_tick_for_which_nothing_is_due_does_nothing(con: sqlfront.Connection) -> None:
    con.execute(
        "INSERT INTO e SELECT i, 'a', ?::TIMESTAMPTZ + i * INTERVAL 1 MINUTE FROM range(1000) t(i)", [minute(60)]
    )
    con.execute("CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS SELECT id FROM e WHERE ts <= now()")
    con.advance_time(minute(1))
    evaluator = con.session.database.evaluate
    queries = evaluator.queries
    steps = con.view("v").cost()["steps"]
    for second in range(61, 600, 10):
        con.advance_time(minute(second / 60))
    assert evaluator.queries == queries and con.view("v").cost()["steps"] == steps
    con.apply_row("e", (7777, "b", minute(9.99)))  # Before the next row that was known.
    con.advance_time(minute(9.985))
    assert ids(con) == []
    con.advance_time(minute(9.99))
    assert ids(con) == [7777]
    for number, expected in ((60, [0, 7777]), (61, [0, 1, 7777])):  # The node has looked just so far ahead.
        con.advance_time(minute(number))
        assert ids(con) == expected


@pytest.mark.parametrize("rows", [1_000, 10_000])
def test_a_tick_takes_steps_for_the_rows_that_it_moves(con: sqlfront.Connection, rows: int) -> None:
    con.execute(
        "CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS SELECT id FROM e WHERE ts > now() - INTERVAL 1 HOUR"
    )
    con.execute("INSERT INTO e SELECT i, 'a', ?::TIMESTAMPTZ + to_seconds(i) FROM range(?) t(i)", [minute(0), rows])
    con.advance_time(minute(70))
    node = next(one for one in con.session.database.engine.nodes.values() if one.describe().kind == "temporal filter")
    before = node.describe().steps
    con.advance_time(minute(71))
    assert node.describe().steps - before <= 60 * 3 + 8 * 14


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id FROM e WHERE ts <> now()", "compare by < in one SELECT and by > in another one"),
        (
            "SELECT id FROM e WHERE now() - ts < INTERVAL 1 HOUR",
            "alone on one side, with what is added to it: ts > now",
        ),
        ("SELECT id FROM e WHERE abs(epoch(ts) - epoch(now())) < 7", "have the clock alone on one side"),
        ("SELECT id FROM e WHERE ts < now() OR id = 1", "a SELECT for each condition of the OR, and UNION"),
        ("SELECT id, now() AS t FROM e", "compute all else of it when you read the view"),
        ("SELECT count(*) FILTER (WHERE ts < now()) AS n FROM e", "compare a column with the clock in WHERE"),
        ("SELECT id FROM e WHERE hour(ts) = hour(now())", "have the clock alone on one side"),
        ("SELECT id FROM e WHERE ts < now() - to_seconds(id)", "have the clock alone on one side"),
        ("SELECT id FROM e WHERE TIMESTAMPTZ '2030-01-01' < now()", "compare a column with the clock in WHERE"),
        ("SELECT a.id FROM e a LEFT JOIN e b ON a.id = b.id AND a.ts < now()", "filter the table in a subquery"),
    ],
)
def test_what_does_not_move_one_way_is_refused_with_the_rewrite(
    con: sqlfront.Connection, query: str, message: str
) -> None:
    with pytest.raises(sqlfront.NotSupportedError, match="(?s)\\^.*" + message):
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {query}")
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []


def test_a_view_has_one_clock(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {LAST_HOUR}")
    with pytest.raises(sqlfront.NotSupportedError, match=r"two clocks(?s:.*)WITH \(clock = 'manual'\)"):
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT v.id FROM v JOIN e USING (id) WHERE ts < now()")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT max(id) AS id FROM v")
    with pytest.raises(sqlfront.ProgrammingError, match="option clock of v cannot be altered"):
        con.execute("ALTER MATERIALIZED VIEW v SET (clock = 'wall')")
    with sqlfront.connect() as fresh:
        fresh.execute(EVENTS)
        with pytest.raises(sqlfront.ProgrammingError, match="the manual clock has no time yet"):
            fresh.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {LAST_HOUR}")
        fresh.execute("BEGIN")
        with pytest.raises(sqlfront.ProgrammingError, match="started inside a transaction"):
            fresh.advance_time(MIDNIGHT)


def test_dates_are_those_of_the_views_time_zone(con: sqlfront.Connection) -> None:
    con.execute("CREATE CHANGE TABLE days (id BIGINT, day DATE)")
    con.execute("INSERT INTO days VALUES (1, '2025-12-31'), (2, '2026-01-01')")
    for name, zone in (("v", "America/New_York"), ("w", "UTC")):
        con.execute(f"SET TimeZone = '{zone}'")
        con.execute(
            f"CREATE MATERIALIZED VIEW {name} WITH (clock = 'manual') AS SELECT id FROM days WHERE day = current_date"
        )
    assert (ids(con, "v"), ids(con, "w")) == ([1], [2])
    con.advance_time(minute(5 * 60))
    assert (ids(con, "v"), ids(con, "w")) == ([2], [2])
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_explain_names_the_filter_and_its_cost(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {LAST_HOUR}")
    found = str(con.explain("v"))
    assert "the temporal filter ts > now() - INTERVAL 1 HOUR and ts <= now(): rows wait in the order" in found
    assert "temporal filter over block 1, clock manual: O(log N) per changed row" in found
    assert "the rows over e are passed on and not stored" in found
    assert con.explain("v").to_dict()["cost"]["update"] == "O(log N)"
    assert ("v", "rows of block 2 by ts", "waiting") in [row[:3] for row in con.execute("SHOW STATE FOR v").fetchall()]


def test_subscribers_hear_of_ticks() -> None:
    with sqlfront.connect() as con:
        con.execute(EVENTS)
        con.execute("CREATE MATERIALIZED VIEW v WITH (tick = '20ms') AS SELECT id FROM e WHERE ts <= now()")
        feed = con.view("v").subscribe(timeout=30)
        con.execute("INSERT INTO e SELECT 1, '1', now() + INTERVAL 100 MILLISECOND")
        assert next(feed).column("id").to_pylist() == [1]
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT id, u::INT AS n FROM e WHERE ts <= now()")
        con.execute("CREATE MATERIALIZED VIEW m AS SELECT n, median(id) AS id FROM w GROUP BY n")
        failing = con.view("m").subscribe(timeout=30, snapshot=False)
        con.execute("INSERT INTO e SELECT 2, 'two', now() + INTERVAL 200 MILLISECOND")
        with pytest.raises(sqlfront.DataError):
            next(failing)
        con.execute("UPDATE e SET u = '2' WHERE id = 2")
        con.execute("ALTER MATERIALIZED VIEW v SET (tick = '1h')")
        assert con.execute("SELECT id FROM m ORDER BY n").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("tick = '1s', clock = 'manual'", "the manual clock goes on by con.advance_time alone"),
        ("tick = 'often'", "a number of ms, s, min or h"),
        ("tick = '0s'", "one millisecond at least"),
        ("clock = 'sundial'", "its values: 'wall', 'manual'"),
    ],
)
def test_options_of_time_are_checked(con: sqlfront.Connection, options: str, message: str) -> None:
    with pytest.raises(sqlfront.ProgrammingError, match=message):
        con.execute(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS {LAST_HOUR}")

"""Views over islands, such as sessions: equal to DuckDB's answer, whose orders are completed by all columns read."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.output.islands_node import IslandsNode
from tests.definition_oracle import same_bag
from tests.following import empty_and_drop, follow
from tests.slices import parts

SPELLINGS = Path(__file__).parents[2] / "fixtures" / "islands" / "spellings.sql"
EVENTS = "CREATE TABLE events (person INTEGER, ts TIMESTAMP, note VARCHAR)"
SCHEMA = "CREATE TABLE e (u INTEGER, o INTEGER, p VARCHAR, x BIGINT, f DOUBLE, d DATE)"
COLUMNS = "uopxfd"
FLAGS = (
    "CASE WHEN o - {lag:o} > 1 THEN 1 ELSE 0 END",
    "CASE WHEN {lag:o} IS NULL OR o - {lag:o} > 1 THEN 1 ELSE 0 END",
    "(p IS DISTINCT FROM {lag:p})::INT",
    "(p <> {lag:p})::INT",
    "CASE WHEN x > 1 THEN 1 END",
    "coalesce(p <> {lead:p}, false)::INT",
    "if(o - {lag:o, 2} > 2, 2, 0)",
    "CASE WHEN {lag:x} < x AND {lead:x} < x THEN 1 ELSE 0 END",
    "(d IS DISTINCT FROM {lag:d, 1, d} + 1)::INT",
    "CASE WHEN p = 'a' THEN 0 WHEN p = 'b' THEN 3 ELSE NULL END",
)
NUMBERS = (
    "sum({flag})", "sum(flag)", "count(CASE WHEN flag > 0 THEN 1 END)", "sum(flag) FILTER (WHERE flag > 0)",
    "count_if(flag > 0)", "sum(flag > 0)", "count(*) FILTER (WHERE flag = 1)",
)  # fmt: skip
FRAMES = (
    "",
    "",
    "RANGE UNBOUNDED PRECEDING",
    "ROWS UNBOUNDED PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
)
AGGREGATES = (
    "count(*) AS n", "sum(x) AS sx", "min(o) AS least, max(o) AS most", "avg(f) AS af", "max(p) AS mp",
    "count(DISTINCT p) AS np", "list(o ORDER BY o, x, p, f, d, u) AS l", "sum(flag) AS begun", "median(x) AS m",
)  # fmt: skip
ABOVE = (
    "{}",
    "SELECT n, count(*) AS islands FROM ({}) GROUP BY n",
    "SELECT * FROM ({}) WHERE n > 1",
    "SELECT a.n, b.n AS m FROM ({}) a JOIN (SELECT u, count(*) AS n FROM e GROUP BY u) b ON a.n = b.n",
    "SELECT max(n) AS longest, count(*) AS islands FROM ({})",
)


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    yield connection
    connection.close()


def change(con: sqlfront.Connection, rng: random.Random) -> None:
    """One random statement or transaction: the middle, ties, NULLs, copies, rows that change partition or place."""
    number = lambda: rng.choice(["NULL", "0", "1", "1", "2", "3", "4", "6"])  # noqa: E731
    text = lambda: rng.choice(["NULL", "'a'", "'a'", "'b'"])  # noqa: E731
    day = lambda: rng.choice(["NULL", "'2026-01-01'", "'2026-01-02'", "'2026-01-04'"])  # noqa: E731
    half = lambda: rng.choice(["NULL", "0.5", "-2"])  # noqa: E731
    rows = [f"({number()}, {number()}, {text()}, {number()}, {half()}, {day()})" for _ in range(4)]
    kind = rng.random()
    if kind < 0.5:
        con.execute(f"INSERT INTO e VALUES {', '.join(rows[: rng.randint(1, 4)] + rows[: rng.choice((0, 0, 1, 2))])}")
    elif kind < 0.62:
        update = rng.choice(("u = o", "o = o + 1", "o = NULL", "p = 'b'", "x = x - 1", "d = d + 1, f = 0.5"))
        con.execute(f"UPDATE e SET {update} WHERE {rng.choice('uox')} IS NOT DISTINCT FROM {number()}")
    elif kind < 0.72:
        with con.session.in_transaction():
            con.execute(f"DELETE FROM e WHERE o = {number()}")
            con.execute(f"INSERT INTO e VALUES {rows[0]}, {rows[1]}")
            con.execute(f"UPDATE e SET o = o - 1 WHERE u = {number()}")
    elif kind < 0.97:
        condition = (
            f"{rng.choice('uox')} IS NOT DISTINCT FROM {number()} AND {rng.choice('uox')} IS DISTINCT FROM {number()}"
        )
        con.execute(f"DELETE FROM e WHERE {condition}")
    else:
        con.execute("DELETE FROM e")


def random_query(con: sqlfront.Connection, rng: random.Random) -> tuple[str, str]:
    """A query, and the same with orders completed by all columns that it reads."""
    partition = rng.choice(("u", "u", "u, p", "", "u % 2"))
    order = rng.choice(("o", "o DESC", "o NULLS FIRST", "o DESC, x", "p, o", "o + 1", "d, o DESC NULLS LAST"))
    flag, number, frame = rng.choice(FLAGS), rng.choice(NUMBERS), rng.choice(FRAMES)
    keys = [f"{one.strip()} AS k{place}" for place, one in enumerate(partition.split(",")) if one]
    groups = [*(f"k{place}" for place in range(len(keys))), "number", *rng.sample(("f", "x"), rng.choice((0, 0, 0, 1)))]
    shown = [*groups[: len(keys)], *(["number"] if rng.random() < 0.4 else [])]
    made = [AGGREGATES[0], *rng.sample(AGGREGATES[1:], rng.randint(0, 3))]
    having = rng.choice(("", "", " HAVING count(*) > 1", " HAVING max(x) IS NOT NULL"))
    above = rng.choice(ABOVE)
    inlined = "{flag}" in number

    def text(read: str) -> str:
        ties = [f"{column} ASC NULLS LAST" for column in read]
        by = f"PARTITION BY {partition} " if partition else ""
        whole = f"({by}ORDER BY {'place' if read else order})"
        spelled = re.sub(r"\{(lag|lead):([^}]*)\}", lambda found: f"{found[1]}({found[2]}) OVER {whole}", flag)
        names = dict[str, str]()
        lagged = re.sub(
            r"\{(lag|lead):([^}]*)\}",
            lambda found: names.setdefault(f"{found[1]}({found[2]}) OVER {whole}", f"other{len(names)}"),
            flag,
        )
        ordered = "place" if read and frame.startswith("ROWS") else order
        over = f"OVER ({by}ORDER BY {ordered} {frame})"
        below = f"SELECT {', '.join(COLUMNS)} FROM e"
        if read:  # The copies of a row, too, are in one order for all windows.
            below = f"SELECT *, row_number() OVER ({by}ORDER BY {', '.join([order, *ties])}) AS place FROM ({below})"
        if inlined:
            others = "".join(f", {value} AS {name}" for value, name in names.items())
            below = f"SELECT *, 0 AS flag{others} FROM ({below})"
        else:
            below = f"SELECT *, {spelled} AS flag FROM ({below})"
        made_keys = "".join(f", {key}" for key in keys)
        numbered = f"SELECT *{made_keys}, {number.format(flag=lagged)} {over} AS number FROM ({below})"
        inner = f"SELECT {', '.join([*shown, *made])} FROM ({numbered}) GROUP BY {', '.join(groups)}{having}"
        return above.format(inner)

    query = text("")
    return query, text(columns_read(con, query))


def columns_read(con: sqlfront.Connection, query: str) -> str:
    """The columns of the table that a query reads."""
    *_, (_, term) = con.execute(f"EXPLAIN (ALGEBRA) {query}").fetchall()
    scans = [re.findall(r"\b[a-z]\b", scan) for scan in re.findall(r"SCAN main.e\((.*)\)", term)]
    return "".join(sorted(max(scans, key=len), key=COLUMNS.index))


@pytest.mark.parametrize("seed", parts(40))
def test_views_are_their_queries_after_each_change(con: sqlfront.Connection, seed: int) -> None:
    rng = random.Random(seed)
    con.execute(SCHEMA)
    for _ in range(4):
        change(con, rng)
    queries = {f"v{number}": random_query(con, rng) for number in range(4 if seed else 2)}
    for name, (query, _) in queries.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    assert len(island_nodes(con)) == len(queries)

    def check() -> dict[str, list[tuple[object, ...]]]:
        found = {}
        for name, (query, oracle) in queries.items():
            found[name], expected = con.execute(f"FROM {name}").fetchall(), con.execute(oracle).fetchall()
            assert same_bag(found[name], expected), f"{query}\nfound    {found[name]}\nexpected {expected}"
        return found

    follow(con, 30 if seed else 8, lambda: change(con, rng), check)
    empty_and_drop(con, queries, ("e",), check)


def island_nodes(con: sqlfront.Connection) -> list[IslandsNode]:
    return [one for one in con.session.database.engine.nodes.values() if isinstance(one, IslandsNode)]


def spellings() -> list[tuple[str, str]]:
    """The title and the text of each query of the fixture."""
    parts = re.split(r"^-- (.*)$", SPELLINGS.read_text(), flags=re.MULTILINE)
    return [(title, query.strip().rstrip(";")) for title, query in zip(parts[3::2], parts[4::2], strict=True)]


def test_all_spellings_are_one_operator(con: sqlfront.Connection) -> None:
    con.execute(EVENTS)
    queries, told = spellings(), set()
    for number, (_, query) in enumerate(queries):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        rows = con.execute(f"EXPLAIN MATERIALIZED VIEW v{number}").fetchall()
        told.add(str([row for row in rows if "islands" in str(row)]))
    assert len(queries) >= 10 and len(island_nodes(con)) == len(queries)
    assert all("O(log N + rows of the touched islands)" in one for one in told), told
    rng = random.Random(7)
    for _ in range(4):
        at = [f"TIMESTAMP '2026-01-01' + INTERVAL ({rng.randint(0, 40) * 10}) MINUTE" for _ in range(3)]
        con.execute(f"INSERT INTO events SELECT {rng.randint(1, 2)}, ts, 'x' FROM (VALUES ({'), ('.join(at)})) v(ts)")
        con.execute(f"DELETE FROM events WHERE ts = {at[0]}")
        for number, (title, query) in enumerate(queries):
            found = con.execute(f"FROM v{number}").fetchall()
            assert same_bag(found, con.execute(query).fetchall()), title


def test_a_split_and_a_merge_change_the_touched_islands_alone(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE t (k INTEGER, o INTEGER)")
    con.execute("INSERT INTO t SELECT 1, 10 * (i // 3) + i % 3 FROM range(30) r(i)")
    query = "SELECT k, {}min(o) AS a, max(o) AS b FROM (SELECT *, sum(f) OVER (PARTITION BY k ORDER BY o) AS s FROM "
    query += "(SELECT *, (o > 1 + lag(o, 1, o) OVER (PARTITION BY k ORDER BY o))::INT AS f FROM t)) GROUP BY k, s"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query.format('')}")
    con.execute(f"CREATE MATERIALIZED VIEW numbered AS {query.format('s, ')}")
    feeds = [con.view(name).subscribe(snapshot=False) for name in ("v", "numbered")]
    told = []
    for statement in ("DELETE FROM t WHERE o = 31", "INSERT INTO t VALUES (1, 31)", "INSERT INTO t VALUES (1, 200)"):
        con.execute(statement)
        told.append([0 if (rows := feed.poll()) is None else rows.num_rows for feed in feeds])
    assert told == [[1 + 2, 1 + 2 + 2 * 6], [2 + 1, 2 + 1 + 2 * 6], [1, 1]]
    for feed in feeds:
        feed.close()


def test_steps_are_logarithmic_in_a_partition_of_bounded_sessions() -> None:
    seen = [_most_steps(rows) for rows in (1_000, 8_000, 64_000)]
    assert seen[2] - seen[1] < 100 and seen[2] < 2 * seen[0], seen


def _most_steps(rows: int) -> int:
    """The most steps that a change of one row takes: in the middle, where it splits, merges or stretches an island, at
    both ends, and in a partition of its own."""
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE t (k BIGINT, o BIGINT, x BIGINT)")
    place = np.arange(rows)
    at = place // 5 * 20 + place % 5
    con.apply({"t": pa.table({"k": np.ones(rows, np.int64), "o": at, "x": place})})
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT k, min(o) AS a, max(o) AS b, sum(x) AS s FROM "
        "(SELECT *, sum(f) OVER (PARTITION BY k ORDER BY o) AS n FROM (SELECT *, "
        "CASE WHEN o - lag(o) OVER (PARTITION BY k ORDER BY o) > 10 THEN 1 ELSE 0 END AS f FROM t)) GROUP BY k, n"
    )
    most, middle = 0, rows // 10 * 20
    for key, o in ((1, middle + 2), (1, middle + 12), (1, -30), (1, rows * 20), (2, 5)):
        for weight in (1, -1):
            change = pa.table({"k": [key], "o": [o], "x": [7], "_weight": [weight]})
            most = max(most, con.apply({"t": change}).steps["v"])
    con.close()
    return most


NEAR = (  # No order tells their values.
    "count(DISTINCT p) OVER ({} ROWS 3 PRECEDING)",
    "list(x) OVER ({} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
    "sum(x) OVER ({} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
)
OVER_NEAR = (
    "SELECT a, count(*) AS n FROM ({}) GROUP BY a",
    "SELECT u, max(a) AS a, min(b) AS b FROM ({}) GROUP BY u",
    "SELECT DISTINCT a, b FROM ({}) WHERE a IS NOT NULL",
    "SELECT s.a, t.x FROM ({}) s JOIN e t ON s.x = t.x AND t.o > 2",
    "SELECT *, sum(x) OVER (PARTITION BY u ORDER BY o) AS running FROM ({})",
)


def random_neighbours(con: sqlfront.Connection, rng: random.Random) -> tuple[str, str]:
    """A query over functions of a few rows around each row, and the same with their orders completed."""
    partition = rng.choice(("u", "u", "u, p", "", "u % 2"))
    order = rng.choice(("o", "o DESC", "o NULLS FIRST", "o DESC, x", "p, o", "o + 1", "d, o DESC NULLS LAST"))
    functions, above = rng.sample(NEAR, 2), rng.choice(OVER_NEAR)

    def text(more: str) -> str:
        by = f"{f'PARTITION BY {partition} ' if partition else ''}ORDER BY {order}{more}"
        made = [one.format(by) for one in functions]
        below = f"SELECT u, o, p, x, f, d, {made[0]} AS a, {made[1]} AS b FROM e"
        return above.format(below)

    query = text("")
    return query, text("".join(f", {column} ASC NULLS LAST" for column in columns_read(con, query)))


@pytest.mark.parametrize("seed", parts(20))
def test_functions_of_rows_around_a_row_are_computed_around_changed_rows(con: sqlfront.Connection, seed: int) -> None:
    rng = random.Random(seed)
    con.execute(SCHEMA)
    for _ in range(4):
        change(con, rng)
    queries = {f"v{number}": random_neighbours(con, rng) for number in range(3 if seed else 2)}
    for name, (query, _) in queries.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    assert len(island_nodes(con)) == len(queries) and all(one.rows.single for one in island_nodes(con))

    def check() -> dict[str, list[tuple[object, ...]]]:
        found = {}
        for name, (query, oracle) in queries.items():
            found[name], expected = con.execute(f"FROM {name}").fetchall(), con.execute(oracle).fetchall()
            assert same_bag(found[name], expected), f"{query}\nfound    {found[name]}\nexpected {expected}"
        return found

    follow(con, 30 if seed else 8, lambda: change(con, rng), check)
    empty_and_drop(con, queries, ("e",), check)


NUMBERED = (
    "SELECT u, min(o) AS a, count(*) AS n FROM (SELECT u, o, o - row_number() OVER (PARTITION BY u ORDER BY o) AS g "
    "FROM (SELECT DISTINCT u, o FROM e)) GROUP BY u, g",
    "SELECT u, min(d) AS a, count(*) AS n FROM (SELECT *, d - row_number() OVER (PARTITION BY u ORDER BY d)::INT "
    "AS g FROM (SELECT u, d FROM e GROUP BY u, d)) GROUP BY u, g",
    "SELECT min(d) AS a, count(*) AS n FROM (SELECT d, d - INTERVAL (row_number() OVER (ORDER BY d)) DAY AS g "
    "FROM (SELECT DISTINCT d FROM e)) GROUP BY g",
    "SELECT u, min(o) AS a, count(*) AS n FROM (SELECT u, o, o - dense_rank() OVER (PARTITION BY u ORDER BY o) AS g "
    "FROM e) GROUP BY ALL HAVING count(*) > 1",
    "SELECT u, p, min(o) AS a, count(*) AS n FROM (SELECT u, p, o, row_number() OVER (PARTITION BY u ORDER BY o, p) "
    "- row_number() OVER (PARTITION BY u, p ORDER BY o, p) AS g FROM e) GROUP BY u, p, g",
)
"""Differences of row numbers, and what DuckDB answers whatever the order of rows that tie."""


def test_groups_by_differences_of_row_numbers_are_islands(con: sqlfront.Connection) -> None:
    con.execute(SCHEMA)
    for number, query in enumerate(NUMBERED):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query.replace('GROUP BY ALL', 'GROUP BY u, g')}")
    assert len(island_nodes(con)) == len(NUMBERED) and not any(one.rows.single for one in island_nodes(con))
    rng = random.Random(3)
    for _ in range(6):
        change(con, rng)
        for number, query in enumerate(NUMBERED):
            expected = con.execute(query.replace("GROUP BY ALL", "GROUP BY u, g")).fetchall()
            assert same_bag(con.execute(f"FROM v{number}").fetchall(), expected), query


def test_a_difference_that_is_read_or_not_of_islands_stays_a_difference(con: sqlfront.Connection) -> None:
    con.execute(SCHEMA)
    for number, (values, groups) in enumerate((("u, g, count(*) AS n", "u, g"), ("count(*) AS n", "g"))):
        con.execute(
            f"CREATE MATERIALIZED VIEW v{number} AS SELECT {values} FROM (SELECT *, o - row_number() OVER "
            f"(PARTITION BY u ORDER BY o) AS g FROM (SELECT DISTINCT u, o FROM e)) GROUP BY {groups}"
        )
    con.execute(
        "CREATE MATERIALIZED VIEW copies AS SELECT u, count(*) AS n FROM (SELECT *, o - row_number() OVER "
        "(PARTITION BY u ORDER BY o) AS g FROM e) GROUP BY u, g"
    )
    assert not island_nodes(con)


def test_an_epoch_that_fails_changes_no_island(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE t (k INTEGER, o INTEGER, v VARCHAR)")
    con.execute(
        "CREATE MATERIALIZED VIEW s AS SELECT k, min(o) AS a, sum(v::INT) AS total FROM (SELECT *, sum(f) OVER "
        "(PARTITION BY k ORDER BY o) AS n FROM (SELECT *, (o > 1 + lag(o, 1, o) OVER (PARTITION BY k ORDER BY o))::INT "
        "AS f FROM t)) GROUP BY k, n"
    )
    con.execute("INSERT INTO t VALUES (1, 1, '1'), (1, 2, '2'), (1, 5, '3'), (2, 7, '4')")
    rows = [(1, 1, 3), (1, 5, 3), (2, 7, 4)]
    assert sorted(con.execute("FROM s").fetchall()) == rows
    with pytest.raises(sqlfront.DataError, match="cannot compute a group of rows of t") as failure:
        con.execute("INSERT INTO t VALUES (1, 3, '5'), (1, 4, 'x'), (3, 1, '1')")
    assert "k = 1" in str(failure.value) and "v = 'x'" in str(failure.value)
    assert sorted(con.execute("FROM s").fetchall()) == rows
    con.execute("INSERT INTO t VALUES (1, 3, '5'), (1, 4, '6'), (3, 1, '1')")
    assert sorted(con.execute("FROM s").fetchall()) == [(1, 1, 17), (2, 7, 4), (3, 1, 1)]
    assert not con.execute("CHECK MATERIALIZED VIEW s").fetchall()


def test_values_without_an_order_are_computed_by_partition(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE t (k INTEGER, o INTEGER, m INTERVAL)")
    con.execute(
        "CREATE MATERIALIZED VIEW s AS SELECT k, max(m) AS longest FROM (SELECT *, sum(f) OVER (PARTITION BY k "
        "ORDER BY o) AS n FROM (SELECT *, (o - lag(o) OVER (PARTITION BY k ORDER BY o) > 1)::INT AS f FROM t)) "
        "GROUP BY k, n"
    )
    assert not island_nodes(con)
    [reason] = [value for key, value in con.execute("EXPLAIN MATERIALIZED VIEW s").fetchall() if key == "reason"]
    assert "values of INTERVAL are in no order in which rows are kept" in reason


@pytest.mark.parametrize("epochs", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_epochs_split_and_merge(con: sqlfront.Connection, epochs: int) -> None:
    """Batches of rows that come and go anywhere in two partitions, by ties and by rows."""
    rng, kept = random.Random(epochs), list[tuple[int, int, int]]()
    con.execute("CREATE CHANGE TABLE e (u BIGINT, o BIGINT, x BIGINT)")
    queries = []
    for name, shown, frame in (("v", "", ""), ("w", "number, ", "ROWS UNBOUNDED PRECEDING")):
        text = (
            f"SELECT u, {shown}min(o) AS a, max(o) AS b, count(*) AS n, sum(x) AS s FROM (SELECT *, sum(f) OVER "
            f"(PARTITION BY u ORDER BY {{0}} {frame}) AS number FROM (SELECT *, CASE WHEN o - lag(o) OVER "
            f"(PARTITION BY u ORDER BY {{0}}) > 2 THEN 1 ELSE 0 END AS f FROM {{1}})) GROUP BY u, number"
        )
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {text.format('o, u, x' if frame else 'o', 'e')}")
        numbered = "(SELECT *, row_number() OVER (PARTITION BY u ORDER BY o, x) AS place FROM e)"
        queries.append(text.format("place", numbered) if frame else text.format("o", "e"))
    for epoch in range(epochs):
        rows, weights = [], []
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            goes = bool(kept) and rng.random() < len(kept) / 120
            rows.append(
                kept.pop(rng.randrange(len(kept)))
                if goes
                else (rng.randint(1, 2), rng.randint(0, 90), rng.randint(0, 1))
            )
            weights.append(-1 if goes else 1)
            kept += [] if goes else rows[-1:]
        u, o, x = zip(*rows, strict=True)
        con.apply({"e": pa.table({"u": u, "o": o, "x": x, "_weight": weights})})
        if epoch % 20 == 0:
            for name, query in zip("vw", queries, strict=True):
                assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall()), (name, epoch)


@pytest.mark.parametrize(
    ("flag", "number", "grouped"),
    [
        ("CASE WHEN o > 1 THEN 1 ELSE -1 END", "sum(flag) OVER (PARTITION BY u ORDER BY o)", "u, number"),
        ("x", "sum(flag) OVER (PARTITION BY u ORDER BY o)", "u, number"),
        ("1", "sum(flag) OVER (PARTITION BY u ORDER BY o ROWS 2 PRECEDING)", "u, number"),
        ("1", "sum(flag) OVER (PARTITION BY u)", "u, number"),
        ("1", "count(DISTINCT flag) OVER (PARTITION BY u ORDER BY o)", "u, number"),
        ("1", "sum(flag) OVER (PARTITION BY u ORDER BY o)", "number"),
        ("1", "sum(flag) OVER (PARTITION BY u ORDER BY o)", "u, number % 2"),
        ("lag(x) OVER (PARTITION BY p ORDER BY o) IS NULL", "sum(flag) OVER (PARTITION BY u ORDER BY o)", "u, number"),
        (
            "lag(x) OVER (PARTITION BY u ORDER BY o DESC) IS NULL",
            "sum(flag) OVER (PARTITION BY u ORDER BY o)",
            "u, number",
        ),
        ("max(x) OVER (PARTITION BY u ORDER BY o) > 1", "sum(flag) OVER (PARTITION BY u ORDER BY o)", "u, number"),
    ],
)
def test_other_groups_are_no_islands(con: sqlfront.Connection, flag: str, number: str, grouped: str) -> None:
    con.execute(SCHEMA)
    rng = random.Random(flag)
    query = f"SELECT count(*) AS n FROM (SELECT *, {number} AS number FROM (SELECT *, {flag} AS flag FROM e)) GROUP BY "
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}{grouped}")
    assert all(one.rows.single for one in island_nodes(con))
    for _ in range(3):
        change(con, rng)
    assert same_bag(con.execute("FROM v").fetchall(), con.execute(f"{query}{grouped}").fetchall())


def test_flags_without_lag_begin_islands(con: sqlfront.Connection) -> None:
    """The first island has no flag: a row before all others is in it."""
    con.execute("CREATE TABLE t (o INTEGER, kind VARCHAR)")
    query = (
        "SELECT min(o) AS a, count(*) AS n FROM (SELECT *, sum((kind = 'login')::INT) OVER (ORDER BY o) AS s FROM t) "
        "GROUP BY s"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert [one.rows.before for one in island_nodes(con)] == [0]
    for row in ("5, 'x'", "3, 'x'", "4, 'login'", "1, 'x'", "2, 'login'", "2, 'login'", "2, 'a'"):
        con.execute(f"INSERT INTO t VALUES ({row})")
        assert same_bag(con.execute("FROM v").fetchall(), con.execute(query).fetchall())
    for condition in ("o = 2", "o = 1", "kind = 'login'"):
        con.execute(f"DELETE FROM t WHERE {condition}")
        assert same_bag(con.execute("FROM v").fetchall(), con.execute(query).fetchall())


def test_a_copy_of_a_row_begins_an_island(con: sqlfront.Connection) -> None:
    """By rows, whole numbers in a row go on with the first copy of the next one alone."""
    con.execute("CREATE TABLE t (o INTEGER)")
    con.execute("INSERT INTO t VALUES (1), (2), (2), (2), (3)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT number, min(o) AS a, count(*) AS n FROM (SELECT *, sum(f) OVER "
        "(ORDER BY o ROWS UNBOUNDED PRECEDING) AS number FROM (SELECT *, (o <> 1 + lag(o, 1, o - 1) OVER "
        "(ORDER BY o))::INT AS f "
        "FROM t)) GROUP BY number"
    )
    assert sorted(con.execute("FROM v").fetchall()) == [(0, 1, 2), (1, 2, 1), (2, 2, 2)]
    con.execute("INSERT INTO t VALUES (0)")
    assert sorted(con.execute("FROM v").fetchall()) == [(0, 0, 3), (1, 2, 1), (2, 2, 2)]
    con.execute("INSERT INTO t VALUES (4), (9), (9)")
    assert sorted(con.execute("FROM v").fetchall()) == [(0, 0, 3), (1, 2, 1), (2, 2, 3), (3, 9, 1), (4, 9, 1)]
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_ties_are_decided_by_the_columns_that_are_read(con: sqlfront.Connection) -> None:
    """In the order of the table's columns, whatever DuckDB's query says: CHECK compares with these."""
    con.execute("CREATE TABLE t (k INTEGER, s VARCHAR, o INTEGER)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT k, s, count(*) AS n FROM (SELECT *, sum(f) OVER (PARTITION BY k "
        "ORDER BY o ROWS UNBOUNDED PRECEDING) AS number FROM (SELECT *, (s IS DISTINCT FROM lag(s) OVER "
        "(PARTITION BY k ORDER BY o))::INT AS f FROM t)) GROUP BY k, s, number"
    )
    for rows in ("(1, 'b', 1), (1, 'a', 1), (1, 'b', 1)", "(1, 'a', 1), (1, NULL, 1)", "(1, 'b', 0), (1, 'a', 2)"):
        con.execute(f"INSERT INTO t VALUES {rows}")
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    expected = [(1, "b", 1), (1, "a", 2), (1, "b", 2), (1, None, 1), (1, "a", 1)]
    assert same_bag(con.execute("FROM v").fetchall(), expected)

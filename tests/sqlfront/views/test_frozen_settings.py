"""A view is computed under the settings of CREATE, whatever the sessions say that read and change it."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from random import Random

import pytest

import sqlfront
from tests.judges import judge
from tests.slices import parts

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")
TABLES = """
CREATE TABLE r (k INT, s VARCHAR, ts TIMESTAMP, tz TIMESTAMPTZ, x INT, y DOUBLE);
CREATE TABLE u (k INT, z TIMESTAMPTZ);
"""
VIEWS = {
    "days": "SELECT date_trunc('day', tz) AS d, count(*) AS n, sum(x) AS x FROM r GROUP BY ALL",
    "hours": "SELECT k, hour(tz) AS h, tz::DATE AS d, strftime(tz, '%d %H %Z') AS f, ts::TIMESTAMPTZ AS z FROM r",
    "lasts": "SELECT k, max(tz)::VARCHAR AS m, hour(min(tz)) AS h FROM r GROUP BY k",
    "evenings": "SELECT s, count(*) AS n FROM r GROUP BY s HAVING hour(max(tz)) > 11",
    "joined": "SELECT r.k, r.tz - u.z AS i, (r.ts < u.z) AS b FROM r JOIN u ON r.k = u.k",
    "met": "SELECT r.k, u.k AS other FROM r JOIN u ON CAST(r.ts AS TIMESTAMPTZ) = u.z",
    "since": "SELECT k, tz FROM r WHERE tz >= '2024-03-31' AND tz < '2024-10-27'",
    "months": "SELECT DISTINCT tz + INTERVAL 1 MONTH AS m FROM r",
    "texts": "SELECT tz::VARCHAR AS t FROM r UNION ALL SELECT s FROM r",
    "first": "SELECT k, tz::VARCHAR AS t, x FROM r ORDER BY hour(tz), s, x LIMIT 4",
    "best": "SELECT k, s, tz::DATE AS d FROM r QUALIFY row_number() OVER (PARTITION BY tz::DATE ORDER BY x, s, k) = 1",
    "mean": "SELECT k, sum(x) / count(*) AS m, max(x) / 2 AS h, sum(x) % 3 AS r FROM r GROUP BY k",
    "named": "SELECT s, max(s) < 'b' AS b, count(*) AS n FROM r GROUP BY s HAVING s <> 'A'",
    "sorted": "SELECT k, s, x FROM r ORDER BY s, x, k LIMIT 3",
}
OTHERS = (
    "SET TimeZone = 'Pacific/Auckland'",
    "SET default_order = 'DESC'",
    "SET default_null_order = 'NULLS_FIRST'",
    "SET integer_division = true",
    "SET ieee_floating_point_ops = false",
    "SET error_on_division_by_zero = false",
    "SET default_collation = 'nocase'",
)


def foreign(session):
    """A session under other settings than any view was created under."""
    for statement in OTHERS:
        session.execute(statement)
    return session


def row(random):
    """A row of r; its moments lie around the changes of the clocks."""
    days = random.choices(["03-31", "10-27", "11-03", "07-01"], k=2)
    moments = [f"TIMESTAMP '2024-{day} {random.randint(0, 23):02}:30'" for day in days]
    tz = random.choice(["NULL", *2 * [f"timezone('UTC', {moments[0]})"]])
    ts = random.choice(["NULL", *2 * [moments[1]]])
    text = random.choice(["NULL", "'a'", "'A'", "'b'"])
    return f"({random.randint(1, 3)}, {text}, {ts}, {tz}, {random.choice(['NULL', '0', '7', '2'])}, {random.random()})"


def expected(con, zones, queries):
    """DuckDB's answers under the settings of each zone's views, over the same tables: by query, then by zone."""
    with judge() as own:
        own.execute(f"{TABLES}; SET SESSION TimeZone = 'UTC'")
        for table in ("r", "u"):
            own.register("rows", con.execute(f"SELECT * FROM {table}").to_arrow_table())
            own.execute(f"INSERT INTO {table} SELECT * FROM rows")
        found = []
        for zone in zones:
            own.execute(f"SET SESSION TimeZone = '{zone}'")
            found.append([texts(own.execute(query).fetchall()) for query in queries])
        return list(zip(*found, strict=True))


def texts(rows):
    """Rows as texts, instants in UTC: DuckDB gives them in the session's zone."""
    return sorted(repr([one.astimezone(UTC) if getattr(one, "tzinfo", None) else one for one in row]) for row in rows)


def found(con, view):
    return texts(con.execute(f"SELECT * FROM {view}").fetchall())


@pytest.mark.parametrize("seed", parts(9))
def test_views_of_several_zones_over_one_table(tmp_path, seed):
    """Each part of the views under three seeds."""
    random, views = Random(seed), dict(list(VIEWS.items())[seed % 3 :: 3])
    path = str(tmp_path / "zones.duckdb")
    zones = random.sample(ZONES, 2)
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        con.execute(f"INSERT INTO r VALUES {', '.join(row(random) for _ in range(6))}")
        for number, zone in enumerate(zones):
            con.execute(f"SET TimeZone = '{zone}'")
            for name, query in views.items():
                con.execute(f"CREATE MATERIALIZED VIEW {name}{number} AS {query}")
    with sqlfront.connect(path) as con, foreign(con.cursor()) as other:
        for step in range(4):
            writer = (con, other)[step % 2]
            writer.execute(f"INSERT INTO r VALUES {', '.join(row(random) for _ in range(3))}")
            writer.execute(f"DELETE FROM r WHERE x = {random.choice([0, 2])} AND k = {random.randint(1, 3)}")
            writer.execute("INSERT INTO u SELECT k, timezone('Europe/Berlin', ts) FROM r WHERE ts IS NOT NULL LIMIT 2")
            differ = 0
            answers = expected(con, zones, views.values())
            for name, wanted in zip(views, answers, strict=True):
                differ += wanted[0] != wanted[1]
                for number, rows in enumerate(wanted):
                    assert found(other, f"{name}{number}") == rows, (seed, step, name, zones[number])
            assert differ >= 1, "the zones decide nothing"
        for name in views:
            assert other.execute(f"CHECK MATERIALIZED VIEW {name}0").fetchall() == []
            other.execute(f"REFRESH MATERIALIZED VIEW {name}1")
        for name, wanted in zip(views, expected(con, zones, views.values()), strict=True):
            assert found(other, f"{name}1") == wanted[1], name


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute(TABLES)
        connection.execute("SET TimeZone = 'Europe/Berlin'")
        connection.execute(
            "INSERT INTO r VALUES (1, 'a', TIMESTAMP '2024-07-01 00:30', TIMESTAMPTZ '2024-07-01 00:30+02', 7, 0),"
            "(1, 'B', NULL, NULL, 2, 1.5), (2, NULL, NULL, TIMESTAMPTZ '2024-01-01 00:30+01', NULL, -1)"
        )
        yield connection


def test_stores_are_shared_only_under_one_zone(con):
    query = "SELECT date_trunc('day', tz) AS d, count(*) AS n FROM r GROUP BY d"
    con.execute(f"CREATE MATERIALIZED VIEW a AS {query}")
    con.execute(f"CREATE MATERIALIZED VIEW b AS {query}")
    relation = con.session.database.engine.relations["main.r"]
    assert len(relation.stores) == 1
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    con.execute(f"CREATE MATERIALIZED VIEW c AS {query}")
    assert len(relation.stores) == 2
    con.execute("SELECT 1")
    [wanted] = expected(con, ["Europe/Berlin", "Asia/Tokyo"], [query])
    assert (found(con, "a"), found(con, "c")) == wanted
    assert found(con, "b") == wanted[0] != wanted[1]


def test_a_view_without_instants_shares_whatever_the_zone(con):
    con.execute("CREATE MATERIALIZED VIEW a AS SELECT x + 1 AS x FROM r WHERE k > 1")
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    con.execute("CREATE MATERIALIZED VIEW b AS SELECT x + 1 AS x FROM r WHERE k > 1")
    assert len(con.session.database.engine.relations["main.r"].stores) == 1
    assert con.explain("b").to_dict()["settings"] == {}


@pytest.mark.parametrize(
    ("setting", "query", "differs"),
    [
        ("integer_division = true", "SELECT k, x / 2 AS h FROM r", True),
        ("integer_division = true", "SELECT k, sum(x) / 2 AS h, sum(x / 2) AS s FROM r GROUP BY k", True),
        ("integer_division = true", "SELECT r.k, r.x / q.x AS h FROM r JOIN r AS q ON r.k = q.k", True),
        ("integer_division = true", "SELECT k, x FROM r ORDER BY x / 4, k, x LIMIT 2", False),
        ("error_on_division_by_zero = false", "SELECT k, x // (x - 7) AS h FROM r", None),
        ("error_on_division_by_zero = false", "SELECT k, sum(x) % (count(*) - 1) AS h FROM r GROUP BY k", None),
        ("default_null_order = 'NULLS_FIRST'", "SELECT k, s FROM r ORDER BY s LIMIT 1", True),
        ("default_order = 'DESC'", "SELECT k, x FROM r ORDER BY k, x LIMIT 1", True),
        ("Calendar = 'japanese'", "SELECT k, year(tz) AS y FROM r", True),
    ],
)
def test_each_setting_is_that_of_create(con, setting, query, differs):
    plain = None if differs is None else texts(con.execute(query).fetchall())
    con.execute(f"SET {setting}")
    wanted = texts(con.execute(query).fetchall())
    assert differs is None or (wanted != plain) == differs
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    name, value = setting.replace("'", "").split(" = ")
    shown = {"DESC": "DESCENDING"}.get(value, value)
    assert con.explain("v").to_dict()["settings"][name] == shown
    assert f"{name} = '{shown}'" in str(con.explain("v"))
    con.execute(f"RESET {name}")
    for session in (con, foreign(con.cursor())):
        assert found(session, "v") == wanted
        session.execute("INSERT INTO r VALUES (3, 'c', NULL, TIMESTAMPTZ '2023-05-05 12:00+00', 5, 0)")
        assert session.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        session.execute("DELETE FROM r WHERE k = 3")
        assert found(session, "v") == wanted


def test_look_ups_and_first_rows_under_other_settings(con):
    query = (
        "SELECT k, s, tz::VARCHAR AS t, max(tz)::VARCHAR AS m, count(*) / 2 AS h FROM r GROUP BY k, s, tz ORDER BY s"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    rows = con.execute(f"SELECT * FROM ({query}) ORDER BY s").fetchall()
    other = foreign(con.cursor())
    assert [tuple(one) for one in other.view("v").top(2)] == rows[:2]
    for k in (1, 2, 9):
        own = texts(one for one in rows if one[0] == k)
        assert texts(other.execute("SELECT * FROM v WHERE k = ?", [k]).fetchall()) == own
    con.execute("BEGIN")
    con.execute("INSERT INTO r VALUES (9, 'z', NULL, TIMESTAMPTZ '2024-07-01 12:00+00', 1, 1)")
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    assert con.execute("SELECT t FROM v WHERE k = 9").fetchall() == [("2024-07-01 14:00:00+02",)]
    con.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM v WHERE k = 9").fetchall() == [(0,)]


def test_a_view_on_a_view_of_another_zone(con):
    con.execute("CREATE MATERIALIZED VIEW inner_view AS SELECT k, tz, tz::VARCHAR AS t FROM r")
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    con.execute("CREATE MATERIALIZED VIEW outer_view AS SELECT k, t, tz::VARCHAR AS here FROM inner_view")
    con.execute("INSERT INTO r VALUES (5, 'c', NULL, TIMESTAMPTZ '2024-07-01 12:00+00', 5, 0)")
    assert con.execute("SELECT t, here FROM outer_view WHERE k = 5").fetchall() == [
        ("2024-07-01 14:00:00+02", "2024-07-01 21:00:00+09")
    ]
    other = foreign(con.cursor())
    assert other.execute("CHECK MATERIALIZED VIEW outer_view").fetchall() == []


def test_a_view_of_frozen_settings_is_not_spread_over_shards(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT tz::DATE AS d, count(*) AS n FROM r GROUP BY d")
    with pytest.raises(sqlfront.NotSupportedError, match="depends on settings"):
        con.explain("v", shards=4)


def test_changes_are_told_under_the_views_settings(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, max(tz)::VARCHAR AS m FROM r GROUP BY k")
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    with con.view("v").subscribe(snapshot=False) as changes:
        con.execute("INSERT INTO r VALUES (5, 'c', NULL, TIMESTAMPTZ '2024-07-01 12:00+00', 5, 0)")
        assert changes.poll().column("m").to_pylist() == ["2024-07-01 14:00:00+02"]


def test_a_scan_of_computed_rows_twice_in_one_statement(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, max(tz)::VARCHAR AS m, sum(x) / 2 AS h FROM r GROUP BY k")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k, min(tz)::VARCHAR AS m, sum(x) / 2 AS h FROM r GROUP BY k")
    con.execute(
        "INSERT INTO r SELECT i, 'c', NULL, timezone('UTC', TIMESTAMP '2024-07-01') , i, 0 FROM range(10, 9000) t(i)"
    )
    query = "SELECT count(*), count(v.h = w.h), count(v.m = u.m) FROM v JOIN w USING (k) JOIN v AS u USING (k)"
    assert con.execute(query).fetchall() == [(8992, 8991, 8992)]


def test_a_cast_to_a_time_with_an_offset_needs_a_zone_of_one_offset(con):
    query = "SELECT CAST(CAST(ts AS TIME) AS TIMETZ) AS t, count(*) AS n FROM r GROUP BY t"
    for zone in ("Europe/Berlin", "Asia/Tokyo"):
        con.execute(f"SET TimeZone = '{zone}'")
        with pytest.raises(sqlfront.NotSupportedError, match="A cast from TIME to TIME WITH TIME ZONE"):
            con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("SET TimeZone = 'Etc/GMT-3'")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    con.execute("INSERT INTO r SELECT * FROM r")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    shown = con.execute("SELECT CAST(t AS VARCHAR), n FROM v WHERE t IS NOT NULL").fetchall()
    assert shown == [("00:30:00+03", 2)]


@pytest.mark.parametrize("change", ["SET integer_division = true", "SET GLOBAL integer_division = true"])
def test_remembered_settings_are_those_of_now(change):
    with sqlfront.connect() as con, con.cursor() as other:
        con.execute("CREATE TABLE t (x INT); INSERT INTO t VALUES (7)")
        con.execute("CREATE MATERIALIZED VIEW before AS SELECT x / 2 AS h FROM t")
        (other if "GLOBAL" in change else con).execute(change)
        con.execute("CREATE MATERIALIZED VIEW after AS SELECT x / 2 AS h FROM t")
        con.execute("INSERT INTO t VALUES (9)")
        assert sorted(con.execute("FROM before").fetchall()) == [(3.5,), (4.5,)]
        assert sorted(con.execute("FROM after").fetchall()) == [(3,), (4,)]
        con.execute("RESET GLOBAL integer_division" if "GLOBAL" in change else "RESET integer_division")
        con.execute("CREATE SCHEMA s; CREATE TABLE s.t (x INT); USE s")
        con.execute("CREATE MATERIALIZED VIEW elsewhere AS SELECT x / 2 AS h FROM t")
        assert con.execute("FROM s.elsewhere").fetchall() == []


@pytest.mark.parametrize("kind", ["", "CHANGE "])
def test_columns_have_their_order_whatever_order_is_the_default(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "ordered.db")
    with sqlfront.connect(path) as con:
        con.execute("SET default_order = 'DESC'")
        con.execute(f"CREATE {kind}TABLE t (a INTEGER, b INTEGER)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS s FROM t GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT sum(s) AS s FROM v")
        con.execute("INSERT INTO t VALUES (1, 20)")
        con.execute("INSERT INTO t SELECT 1, 30")
        con.execute("ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5")
        con.execute("INSERT INTO t VALUES (2, 7, 8)")
        assert sorted(con.execute("FROM v").fetchall()) == [(1, 50), (2, 7)]
    with sqlfront.connect(path) as con:
        con.execute("SET default_order = 'DESC'")
        con.execute("INSERT INTO t VALUES (2, 1, 1)")
        assert sorted(con.execute("FROM v").fetchall()) == [(1, 50), (2, 8)]
        assert con.execute("FROM w").fetchall() == [(58,)]
        assert sorted(con.execute("SELECT c FROM t").fetchall()) == [(1,), (5,), (5,), (8,)]


@pytest.mark.parametrize("value", ["s", "{'s': s}"])
def test_keys_of_a_histogram_are_sorted_by_the_default_order_of_create(con, value):
    con.execute("CREATE TABLE texts (s VARCHAR)")
    con.execute("SET default_order = 'DESC'")
    con.execute(f"CREATE MATERIALIZED VIEW h AS SELECT histogram({value}) AS h FROM texts")
    con.execute("INSERT INTO texts VALUES ('a'), ('c'), ('b')")
    expected = con.execute(f"SELECT histogram({value}) FROM texts").fetchall()
    assert str(con.execute("FROM h").fetchall()) == str(expected)
    con.execute("SET default_order = 'ASC'")
    con.execute("INSERT INTO texts VALUES ('d')")
    assert con.execute("SELECT map_keys(h) FROM h").fetchone()[0][0] in ("d", {"s": "d"})

"""Reading ordered views: queries that their order serves, rows in turn, what is sorted instead, and what lasts."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from tests.sqlfront.views.test_ranked import JOIN, change, make_tables


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


def test_rows_are_read_in_turn_until_the_data_changes(con: Any) -> None:
    con.execute("CREATE TABLE r(a INT, b INT); INSERT INTO r SELECT range % 7, range FROM range(500)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, b FROM r ORDER BY a DESC, b")
    view = con.view("v")
    assert list(view.ordered()) == con.execute("SELECT * FROM r ORDER BY a DESC, b").fetchall()
    rows = view.ordered()
    assert [next(rows) for _ in range(3)] == view.top(3)
    con.execute("INSERT INTO r VALUES (9, 9)")
    assert con.view("v").top(1) == [(9, 9)]
    with pytest.raises(sqlfront.StaleRead):
        list(rows)
    assert next(view.ordered()) == (9, 9)
    con.execute("CREATE MATERIALIZED VIEW g AS SELECT a, count(*) AS n FROM r GROUP BY a ORDER BY n")
    with pytest.raises(sqlfront.NotSupportedError, match="one after the other"):
        con.view("g").ordered()


def test_many_first_rows_are_read_at_once_and_sorted(con: Any, monkeypatch: Any) -> None:
    walks: list[RankedWalk] = []
    begin = RankedWalk.__init__
    monkeypatch.setattr(RankedWalk, "__init__", lambda walk, *given: walks.append(walk) or begin(walk, *given))
    con.execute(
        "CREATE CHANGE TABLE r(a BIGINT, b BIGINT NOT NULL); CREATE CHANGE TABLE s(b BIGINT, w BIGINT NOT NULL)"
    )
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, r.b + w AS x FROM r, s WHERE r.b % 2 = s.b ORDER BY r.b + w")
    con.execute(
        "INSERT INTO r SELECT range, range FROM range(300); INSERT INTO s SELECT range % 2, range FROM range(200)"
    )
    [order] = con.explain("v").to_dict()["orders"]
    assert order["crossover"] == 300 * 100 // 20
    assert "more than 1,500 rows read all of them and sort" in str(con.explain("v"))
    everything = con.session.duck.execute(
        "SELECT r.a, r.b + w AS x FROM (SELECT range a, range b FROM range(300)) r, "
        "(SELECT range % 2 b, range w FROM range(200)) s WHERE r.b % 2 = s.b ORDER BY x, a"
    ).fetchall()
    for k in (10, 1500, 1501, 40000):
        walks.clear()
        assert con.execute(f"SELECT * FROM v ORDER BY x, a LIMIT {k}").fetchall() == everything[:k]
        assert con.view("v").top(k) == everything[:k]
        assert len(walks) == (2 if k <= 1500 else 0)


def test_orders_can_be_added_and_are_kept_in_the_file(tmp_path: Any) -> None:
    path = str(tmp_path / "ordered.duckdb")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE r(a INT, w INT); INSERT INTO r VALUES (1, 5), (2, NULL), (3, 4), (4, 5)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM r ORDER BY w DESC NULLS FIRST LIMIT 3")
        con.execute("CREATE MATERIALIZED VIEW o AS SELECT a, w FROM r")
        con.execute("ALTER MATERIALIZED VIEW o SET (order_by = 'w')")
        con.execute("REFRESH MATERIALIZED VIEW o")
        assert con.view("o").top(2) == [(3, 4), (1, 5)]
    with sqlfront.connect(path) as con:
        assert con.view("v").rows() == [(2,), (1,), (4,)]
        assert con.view("o").top(2) == [(3, 4), (1, 5)]
        con.execute("DELETE FROM r WHERE a = 1")
        assert con.view("v").rows() == [(2,), (4,), (3,)]
        assert con.view("o").top(1) == [(3, 4)]


def test_an_order_that_no_tree_keeps_is_sorted_and_named(con: Any) -> None:
    make_tables(con)
    con.execute(
        "INSERT INTO r VALUES (1, 1, 1, 'a'), (2, 1, 5, 'b'), (2, 2, 3, 'c'); INSERT INTO s VALUES (1, 1, 1, 0.5)"
    )
    cases = {
        "SELECT r.a FROM r, s WHERE r.b = s.b GROUP BY r.a, s.c ORDER BY sum(r.w) DESC LIMIT 1": (
            [(2,)],
            "many groups",
        ),
        "SELECT r.a FROM r, s WHERE r.b >= s.c LIMIT 1": ([(1,)], "comparisons"),
        "SELECT r.a FROM r, s WHERE r.b = s.b ORDER BY r.w * s.w DESC LIMIT 1": ([(2,)], "not known to be 0"),
        "SELECT r.a FROM r, s WHERE r.b = s.b ORDER BY r.w // s.b DESC LIMIT 1": ([(2,)], "no sum"),
        "SELECT r.a FROM r, s WHERE r.b = s.b ORDER BY sqrt(r.w) + s.v * r.w DESC LIMIT 1": ([(2,)], "no sum"),
    }
    for number, (query, (rows, why)) in enumerate(cases.items()):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        assert con.execute(f"SELECT * FROM v{number}").fetchall() == rows
        assert con.view(f"v{number}").top(5) == rows
        assert con.execute(f"SELECT * FROM v{number} WHERE a = 1").fetchall() == [r for r in rows if r[0] == 1]
        order = con.explain(f"v{number}").to_dict()["orders"][0]
        assert order["strategy"] == "sorted when read" and why in order["reason"], order


def test_reads_in_a_kept_order_take_only_the_first_rows(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlfront.read import lookups

    make_tables(con)
    con.execute("INSERT INTO r SELECT i % 3, i % 4, i * 7 % 9, 'x' || i FROM range(20) AS t(i)")
    con.execute("INSERT INTO s SELECT i % 4, i % 3, i * 5 % 8, i FROM range(9) AS t(i)")
    con.execute("INSERT INTO t SELECT i % 3, i % 5, i * 3 % 7, i FROM range(9) AS t(i)")
    con.execute(
        f"CREATE MATERIALIZED VIEW o WITH (order_by = 'score, a DESC; t.w DESC, r.a') AS "
        f"SELECT r.a, s.c, t.d, r.w + s.w + t.w AS score, t.w AS tw {JOIN} ORDER BY score DESC"
    )
    served: list[bool] = []
    scan = lookups._ordered_scan
    monkeypatch.setattr(lookups, "_ordered_scan", lambda *a: served.append((found := scan(*a)) is not None) or found)
    con.execute("CREATE TEMP TABLE plain AS SELECT * FROM o")
    assert con.view("o").count() > 30
    ties = ", ".join(name for name in ("a", "c", "d", "tw"))
    assert con.view("o").top(7) == con.execute(f"SELECT * FROM plain ORDER BY score DESC, {ties} LIMIT 7").fetchall()
    for query, kept in [
        ("SELECT * FROM o ORDER BY score DESC LIMIT 5", True),
        ("SELECT score FROM o ORDER BY score DESC LIMIT 5 OFFSET 3", True),
        ("SELECT score, a FROM o ORDER BY 1, a DESC LIMIT 7", True),
        ("SELECT tw AS c FROM o ORDER BY c DESC LIMIT 3", True),
        ("SELECT tw, a FROM o ORDER BY tw DESC, a LIMIT 3", True),
        ("SELECT o.score, o.a AS a FROM o ORDER BY o.score DESC, (a) FETCH FIRST 7 ROWS ONLY", True),
        ("SELECT o.tw AS score FROM o ORDER BY o.score DESC LIMIT 3", False),
        ("SELECT score FROM o ORDER BY score DESC LIMIT 10%", False),
        ("SELECT main.o.score FROM main.o ORDER BY score DESC LIMIT 2", False),
        ("SELECT score FROM o ORDER BY score + 0 DESC LIMIT 5", False),
        ("SELECT score FROM o WHERE a = 1 ORDER BY score DESC LIMIT 5", False),
        ("SELECT max(a) FROM o ORDER BY 1 LIMIT 5", False),
        ("SELECT score FROM o ORDER BY score DESC NULLS FIRST LIMIT 5", False),
    ]:
        served.clear()
        found = con.execute(query).fetchall()
        plain = re.sub(r"FROM (main\.)?o\b", "FROM plain AS o", query).replace("main.o.", "o.")
        expected = con.session.duck.execute(plain).fetchall()
        assert [row[0] for row in found] == [row[0] for row in expected] or "*" in query
        assert served == [kept], query
    con.execute("SELECT * FROM o ORDER BY score DESC LIMIT ?", [4])
    assert served[-1] and len(con.fetchall()) == 4


def test_ordered_views_survive_refresh_and_are_read_by_views(con: Any) -> None:
    make_tables(con)
    rng = random.Random(4)
    for _ in range(40):
        con.execute(change(rng, 0))
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT r.a, t.d, r.w + t.w AS score {JOIN} ORDER BY score DESC LIMIT 6")
    con.execute(f"CREATE MATERIALIZED VIEW o AS SELECT r.a, t.d {JOIN} ORDER BY r.w + t.w DESC")
    con.execute("CREATE MATERIALIZED VIEW of_top AS SELECT d, count(*) AS n, sum(score) AS total FROM v GROUP BY d")
    con.execute("CREATE MATERIALIZED VIEW of_all AS SELECT d, count(*) AS n FROM o GROUP BY d")
    for _ in range(15):
        con.execute(change(rng, 0))
        for name, source in (("of_top", "v"), ("of_all", "o")):
            more = ", sum(score)" if source == "v" else ""
            expected = con.session.duck.execute(f"SELECT d, count(*){more} FROM {source} GROUP BY d").fetchall()
            assert sorted(con.view(name).rows()) == sorted(expected)
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    before = con.view("v").rows()
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert con.view("v").rows() == before


def test_null_order_is_frozen_at_creation(con: Any) -> None:
    con.execute("CREATE TABLE r(a INT)")
    con.execute("INSERT INTO r VALUES (1), (NULL), (2)")
    con.execute("SET default_null_order = 'nulls_first'")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM r ORDER BY a LIMIT 2")
    con.execute("RESET default_null_order")
    assert con.view("v").rows() == [(None,), (1,)]
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert con.view("v").rows() == [(None,), (1,)]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_a_view_without_an_order_has_no_first_rows(con: Any) -> None:
    con.execute("CREATE TABLE r(a INT); CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
    with pytest.raises(sqlfront.ProgrammingError, match="no order"):
        con.view("v").top(3)
    con.execute("CREATE MATERIALIZED VIEW o AS SELECT a FROM r ORDER BY a")
    with pytest.raises(sqlfront.ProgrammingError, match="-1"):
        con.view("o").top(-1)


@pytest.mark.parametrize(
    ("limit", "rows"),
    [("LIMIT 2", 2), ("LIMIT 9", 4), ("LIMIT 3 OFFSET 2", 2), ("OFFSET 1", 3), ("LIMIT 1 OFFSET 9", 0)],
)
def test_a_view_that_is_sorted_when_it_is_read_counts_its_first_rows(limit, rows):
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE r (x INTEGER)")
        con.execute("INSERT INTO r SELECT i % 4 FROM range(11) AS t(i)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT x, count(*) AS n FROM r GROUP BY x ORDER BY n {limit}")
        assert con.view("v").count() == rows
        assert con.execute("SELECT count(*) FROM v").fetchall() == [(rows,)]
        assert len(con.execute("SELECT * FROM v").fetchall()) == rows

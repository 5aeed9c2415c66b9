"""A view's paths are assembled when it is built, and again only when what they visit has changed."""

from __future__ import annotations

from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.view.maintained_view import MaintainedView


@pytest.fixture
def con() -> Any:
    con = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE r (a BIGINT, b BIGINT)")
    con.execute("CREATE TABLE s (a BIGINT, c BIGINT)")
    con.execute("CREATE TABLE t (b BIGINT, d BIGINT)")
    con.execute("INSERT INTO r VALUES (1, 2), (1, 3)")
    con.execute("INSERT INTO s VALUES (1, 10)")
    con.execute("INSERT INTO t VALUES (2, 20)")
    return con


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    make = MaintainedView._make_paths

    def noted(view: MaintainedView, *rest: Any) -> None:
        names.append(view.name.partition("#")[0].partition(".")[2])
        make(view, *rest)

    monkeypatch.setattr(MaintainedView, "_make_paths", noted)
    return names


def create(con: Any, name: str, query: str) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def check(con: Any, *names: str) -> None:
    for name in names:
        assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []


def test_other_views_keep_their_paths(con: Any, assembled: list[str]) -> None:
    for number in range(5):
        create(con, f"v{number}", f"SELECT r.b, sum(c) AS n FROM r JOIN s USING (a) WHERE c > {number} GROUP BY r.b")
        assert set(assembled) == {f"v{number}"}
        assembled.clear()
    con.execute("DROP MATERIALIZED VIEW v2")
    con.execute("CREATE TABLE u (x INTEGER)")
    con.execute("INSERT INTO r VALUES (1, 4)")
    assert assembled == []
    with con.view("v1").subscribe():
        assert set(assembled) == {"v1"}
    check(con, "v0", "v1", "v3", "v4")


def test_a_store_made_anew_is_found_by_all_its_readers(con: Any, assembled: list[str]) -> None:
    join = "count(*) AS n FROM r JOIN s USING (a) JOIN t USING (b)"
    create(con, "v", f"SELECT r.a, {join} GROUP BY r.a")
    assembled.clear()
    create(con, "w", f"SELECT r.b, {join} GROUP BY r.b")  # It lists rows by a: the store of r is indexed anew.
    assert set(assembled) == {"v", "w"}
    con.execute("INSERT INTO r VALUES (2, 2), (1, 4)")
    con.execute("INSERT INTO t VALUES (3, 21), (4, 22)")
    con.execute("INSERT INTO s VALUES (1, 11), (2, 12)")
    check(con, "v", "w")
    assert con.execute("SELECT * FROM v ORDER BY a").fetchall() == [(1, 6), (2, 1)]


def test_wider_sums_are_found_by_all_tables(con: Any, assembled: list[str]) -> None:
    create(con, "v", "SELECT r.b, sum(s.c) AS n FROM r JOIN s USING (a) JOIN t USING (b) GROUP BY r.b")
    assembled.clear()
    con.execute(f"INSERT INTO s VALUES (1, {2**62}), (1, {2**62}), (1, {2**62})")
    assert set(assembled) == {"v"}
    con.execute("INSERT INTO t VALUES (2, 21), (3, 22)")
    con.execute("INSERT INTO r VALUES (1, 2)")
    check(con, "v")

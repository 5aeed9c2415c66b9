"""First rows inside a query: LATERAL (... ORDER BY ... LIMIT k), and subqueries and CTEs with LIMIT or QUALIFY."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.output.output import Reader
from tests.sqlfront.views.test_ranked import change, check, make_tables

# A query, and the same with {ties} where the block's output columns settle what ties.
LATERAL = [
    "SELECT r.a, r.x, l.w, l.d FROM r, LATERAL (SELECT w, d FROM t WHERE t.c = r.b AND r.a > 0 "
    "ORDER BY w DESC{, 1, 2} LIMIT 2) l",
    "SELECT r.x, l.* FROM r CROSS JOIN LATERAL (SELECT * FROM t WHERE r.b = c AND d > 0 ORDER BY w{, ALL} LIMIT 1) l",
    "SELECT r.x, l.d FROM r JOIN LATERAL (SELECT d, w FROM t WHERE t.c = b{ORDER BY 1, 2} LIMIT 2 OFFSET 1) l ON true",
    "SELECT a.x, l.n FROM r a, LATERAL (SELECT x AS n FROM r WHERE r.b = a.b AND r.a = a.a ORDER BY w{, x} LIMIT 2) l",
    "SELECT r.x, count(*) AS n, sum(l.w) AS s FROM r, LATERAL "
    "(SELECT w FROM t WHERE t.c = r.b ORDER BY d{, 1} OFFSET 1) l GROUP BY r.x",
    "SELECT DISTINCT r.a, l.d FROM r, LATERAL (SELECT s.v, t.d FROM s JOIN t ON s.c = t.c WHERE s.b = r.b "
    "ORDER BY t.w DESC NULLS LAST, s.v{, 1, 2} LIMIT 3) l",
    "SELECT r.a, l.d, m.v FROM r, LATERAL (SELECT d FROM t WHERE t.c = r.b ORDER BY w{, 1} LIMIT 2) l, "
    "LATERAL (SELECT v FROM s WHERE s.c = l.d ORDER BY s.w{, 1} LIMIT 1) m",
    "SELECT r.a, l.total FROM r, LATERAL (SELECT s.w + t.w AS total, t.d + s.c AS u FROM s, t WHERE s.c = t.c "
    "AND s.b + 0 = r.b ORDER BY s.w + t.w{, 1, 2} LIMIT 2) l",
]
BLOCKS = [
    "SELECT r.x, l.d FROM r JOIN (SELECT c, d FROM t ORDER BY w DESC{, 1, 2} LIMIT 3) l ON l.c = r.b",
    "WITH f AS (SELECT c, d FROM t ORDER BY w{, 1, 2} LIMIT 4) SELECT p.d, q.d AS e FROM f p JOIN f q USING (c)",
    "SELECT r.x, l.d FROM r JOIN (SELECT c, d FROM t QUALIFY row_number() OVER "
    "(PARTITION BY c ORDER BY w{, c, d}) <= 2) l ON l.c = r.b",
    "SELECT x FROM r WHERE b IN (SELECT c FROM t ORDER BY w{, 1} LIMIT 3)",
    "SELECT r.x, g.n FROM r JOIN (SELECT c, count(*) AS n FROM t GROUP BY c ORDER BY n DESC{, 1, 2} LIMIT 2) g "
    "ON r.b = g.c",
    "SELECT l.c, r.x FROM (SELECT DISTINCT c FROM t ORDER BY 1 DESC LIMIT 2) l JOIN r ON r.b = l.c",
    "SELECT x, d FROM (SELECT r.x, t.d, r.w FROM r, t WHERE r.b = t.c ORDER BY r.w + t.w{, 1, 2, 3} LIMIT 5) q",
]


def spelled(query: str) -> tuple[str, str]:
    """The query as a user writes it, and with its ties settled."""
    bare, settled = query, query
    while "{" in bare:
        start, end = bare.index("{"), bare.index("}")
        bare = bare[:start] + bare[end + 1 :]
    while "{" in settled:
        settled = settled.replace("{", " ", 1).replace("}", " ", 1)
    return bare, settled.replace(", ALL", ", c, d, w, e")


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


@pytest.mark.parametrize("number", range(len(LATERAL) + len(BLOCKS)))
def test_random_streams_against_duckdb(con: Any, number: int) -> None:
    """After every change the view is what DuckDB gives when output columns settle ties, and so is its feed."""
    rng = random.Random(number)
    make_tables(con)
    con.execute("INSERT INTO r SELECT range % 3, range % 3, range % 4, 'x' || range % 5 FROM range(9)")
    con.execute("INSERT INTO s SELECT range % 3, range % 4, range % 5, range / 4 FROM range(9)")
    con.execute("INSERT INTO t SELECT range % 4, range % 3, range % 5, range % 2 FROM range(12)")
    query, settled = spelled([*LATERAL, *BLOCKS][number])
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    feed, replayed, seen = con.view("v").subscribe(), Counter[Any](), set()
    for step in range(13):
        step_change = change(rng, 0.15) if step < 10 else f"DELETE FROM {'rst'[step - 10]}"
        con.execute(step_change if step >= 10 or "WHERE" in step_change or "VALUES" in step_change else "SELECT 1")
        expected = Counter(con.session.duck.execute(settled).fetchall())
        assert Counter(con.execute("SELECT * FROM v").fetchall()) == expected, step
        while (told := feed.poll()) is not None:
            for row in told.to_pylist():
                kind = row["_change_type"]
                replayed[tuple(row.values())[:-3]] += 1 if kind in ("insert", "update_postimage") else -1
        assert +replayed == expected
        if step % 8 == 0:
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        check(con)
        seen.add(frozenset(expected.items()))
    assert len(seen) > 1, "the view hardly ever changed"
    engine = con.session.database.engine
    assert all(table.entries() == 0 for view in engine.views.values() for table in view.ranked_tables())
    con.execute("DROP MATERIALIZED VIEW v")
    assert not engine.views and not engine.relations


def test_each_row_has_its_own_first_rows(con: Any) -> None:
    """Rows that are there twice, and groups that several rows share, each have all k; NULL meets nothing."""
    con.execute("CREATE TABLE r (g INT, a INT); CREATE TABLE t (g INT, s INT)")
    con.execute("INSERT INTO r VALUES (1, 1), (1, 1), (1, 2), (NULL, 3), (9, 4)")
    con.execute("INSERT INTO t VALUES (1, 7), (1, 5), (1, 5), (NULL, 1), (2, 0)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT a, s FROM r, LATERAL (SELECT s FROM t WHERE t.g = r.g ORDER BY s LIMIT 2)"
    )
    assert sorted(con.execute("FROM v").fetchall()) == [(1, 5)] * 4 + [(2, 5)] * 2
    con.execute("INSERT INTO t VALUES (1, 4), (9, 4)")
    assert sorted(con.execute("FROM v").fetchall()) == [(1, 4), (1, 4), (1, 5), (1, 5), (2, 4), (2, 5), (4, 4)]


def test_what_ties_is_settled_in_the_text_that_is_kept(tmp_path: Any) -> None:
    """It lasts over reopening, renaming, other session defaults and rollback, and other views read it."""
    path = str(tmp_path / "first.duckdb")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE r(g INT); CREATE TABLE t(g INT, a INT, b INT)")
        con.execute(
            "INSERT INTO r VALUES (0), (1), (1); INSERT INTO t SELECT range % 2, range % 3, range FROM range(9)"
        )
        con.execute("SET default_order = 'DESC'")
        con.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT r.g, l.b FROM r, "
            "LATERAL (SELECT b FROM t WHERE t.g = r.g ORDER BY a LIMIT 1) l"
        )
        con.execute("RESET default_order")
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(b) AS s FROM v GROUP BY g")
        con.execute("ALTER TABLE t RENAME b TO c; ALTER TABLE t ADD COLUMN later INT")
    with sqlfront.connect(path) as con:
        assert con.execute("SELECT * FROM v ORDER BY ALL").fetchall() == [(0, 8), (1, 5), (1, 5)]
        con.execute("BEGIN; DELETE FROM t WHERE c = 8")
        assert con.execute("SELECT * FROM sums ORDER BY ALL").fetchall() == [(0, 2), (1, 10)]
        con.execute("ROLLBACK")
        assert con.execute("SELECT * FROM sums ORDER BY ALL").fetchall() == [(0, 8), (1, 10)]
        for view in ("v", "sums"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []


def test_first_rows_of_a_block_do_not_meet_its_join(con: Any) -> None:
    """The block over a join of eight times as many rows costs the same steps to change and to read."""
    con.execute("CREATE CHANGE TABLE r(g BIGINT); CREATE CHANGE TABLE s(g BIGINT, b BIGINT, w BIGINT NOT NULL)")
    con.execute("CREATE CHANGE TABLE t(b BIGINT, c BIGINT, w BIGINT NOT NULL)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT r.g, l.c FROM r, LATERAL (SELECT c FROM s JOIN t USING (b) "
        "WHERE s.g = r.g ORDER BY s.w + t.w DESC LIMIT 3) l"
    )
    reason = con.explain("v").to_dict()["reason"]
    assert (
        "the block of first rows of each group over s, t is kept as a view of its own (q-hierarchical, O(N log N)"
        in reason
    )
    reads = []
    block = next(view for view in con.session.database.engine.views.values() if view.inner)
    for size in (50, 100, 200, 400):
        for i in range(size // 2, size) if reads else range(size):
            con.apply_row("s", (i % 10, i % 5, i))
            con.apply_row("t", (i % 5, i, i * 7 % 1000))
        reader = Reader(block)
        assert sum(batch.num_rows for batch in reader) == 30
        reads.append(reader.steps)
    assert reads[-1] < 2 * reads[0], reads


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ("s", "at each epoch its first rows by s are read"),
        ("s * g", "at each epoch its rows are sorted by s * g: t.s is not known to be 0"),
    ],
)
def test_explain_says_how_a_block_finds_its_first_rows(con: Any, order: str, told: str) -> None:
    con.execute("CREATE TABLE r (k INT); CREATE TABLE t (k INT, s INT); CREATE TABLE u (k INT, g INT)")
    query = f"SELECT s FROM r, LATERAL (SELECT s FROM t, u WHERE t.k = r.k AND u.k = t.s ORDER BY {order} LIMIT 2) l"
    assert told in con.explain(query).to_dict()["reason"]


def test_a_plain_view_has_the_first_rows_with_ties_settled(con: Any) -> None:
    con.execute("CREATE TABLE r (g INT, a INT); CREATE TABLE t (g INT, s INT)")
    con.execute("CREATE VIEW two AS SELECT s, g FROM t ORDER BY s LIMIT 2")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT r.a, two.g FROM r, two WHERE r.g = two.s")
    con.execute("INSERT INTO r VALUES (1, 10), (2, 20); INSERT INTO t VALUES (9, 1), (7, 1), (8, 1), (5, 2)")
    assert sorted(con.execute("SELECT * FROM v").fetchall()) == [(10, 7), (10, 8)]
    con.execute("DELETE FROM t WHERE g = 7")
    assert sorted(con.execute("SELECT * FROM v").fetchall()) == [(10, 8), (10, 9)]
    assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()

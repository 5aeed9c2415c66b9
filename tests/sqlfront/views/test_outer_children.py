"""Optional and absent children: left and anti joins in a view's own tree, against inner joins and unions, DuckDB, and
lists."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import sqlfront
from sqlfront.cut import query_blocks
from tests.following import is_query, take
from tests.outer_queries import TABLES, OuterQuery, RandomRows, create_tables, rows_of, table_of

LEFT = "SELECT a.k, a.x, b.y FROM a LEFT JOIN b ON a.k = b.k"
CHILDREN = {
    "left": LEFT,
    "key of the right": "SELECT a.x, b.k AS bk, coalesce(b.y, 7) + a.x AS o FROM a LEFT JOIN b ON a.k = b.k",
    "groups": "SELECT a.k, count(*) AS n, count(y) AS ys, sum(x * y) AS s FROM a LEFT JOIN b USING (k) GROUP BY a.k",
    "groups of the right": "SELECT b.y, count(*) AS n, sum(a.x) AS s FROM a LEFT JOIN b ON a.k = b.k GROUP BY b.y",
    "two": "SELECT a.x, b.y, c.z FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k",
    "both sides": "SELECT p.x, q.x AS qx FROM a p LEFT JOIN a q ON p.k = q.x",
    "own rows": "SELECT p.x, p.u FROM a p ANTI JOIN a q ON p.k = q.x",
    "conditions": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.v > 1 AND a.u > 1",
    "ties": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND a.x = b.k AND a.k = b.v",
    "anti": "SELECT a.x, count(*) AS n FROM a, a d WHERE a.k = d.k AND NOT EXISTS (FROM b WHERE k = a.k) GROUP BY a.x",
    "extremes": "SELECT a.x, max(b.y) AS most, count(DISTINCT b.v) AS vs FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.x",
    "tied values": "SELECT a.k, count(DISTINCT b.y) AS ys FROM a LEFT JOIN b ON a.k = b.k AND a.x = b.k GROUP BY a.k",
    "absent extremes": "SELECT a.u, max(a.x) AS most FROM a ANTI JOIN b ON a.k = b.k GROUP BY a.u",
    "distinct": "SELECT DISTINCT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k",
    "block": "SELECT a.x, t.s FROM a LEFT JOIN (SELECT k, sum(y) AS s FROM b GROUP BY k) t ON a.k = t.k",
    "missing alone": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k WHERE b.k IS NULL",
}  # fmt: skip
FULL_JOINS = {
    "right": "SELECT a.x, b.y FROM a RIGHT JOIN b ON a.k = b.k",
    "full": "SELECT k, a.x, b.y FROM a FULL JOIN b USING (k)",
    "full groups": (
        "SELECT k, count(*) AS n, sum(a.x * b.y) AS s, count(b.y) AS ys FROM a FULL JOIN b USING (k) GROUP BY k"
    ),
    "full conditions": "SELECT p.x, q.x AS qx, p.k FROM a p FULL JOIN a q ON p.k = q.k AND q.x > 1 AND p.u < 3",
    "full keys": "SELECT a.u, b.v, a.k FROM a FULL JOIN b ON a.k = b.k AND a.x = b.y",
    "full of joins": "SELECT a.x, b.y, c.z FROM a JOIN c ON a.k = c.k FULL JOIN b ON a.k = b.k",
}
MARKS = {
    "in": ("SELECT a.x, a.k IN (SELECT y FROM b) AS m, a.k NOT IN (SELECT y FROM b WHERE b.k = a.x) AS n FROM a"),
    "exists": "SELECT a.x, EXISTS (FROM b WHERE b.k = a.k AND b.v > 1 AND a.u > 1) AS m FROM a",
    "not in": "SELECT a.x FROM a WHERE a.k NOT IN (SELECT y FROM b WHERE b.v > 1)",
    "not in tied": "SELECT a.x FROM a WHERE a.k NOT IN (SELECT y FROM b WHERE b.k = a.x)",
}
GROUPS = {
    "chain": "SELECT a.x, b.y, c.z FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.y = c.k",
    "chain of own rows": (
        "SELECT p.x, q.x AS qx, r.u FROM a p LEFT JOIN a q ON p.k = q.x LEFT JOIN a r ON q.u = r.k AND r.x > 1"
    ),
    "chain of three": (
        "SELECT a.x, b.y, c.z, d.u FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.y = c.k LEFT JOIN a d ON c.z = d.k"
    ),
    "chain of groups": (
        "SELECT a.k, count(*) AS n, sum(c.z) AS s, count(b.y) AS ys, max(c.w) AS most "
        "FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.y = c.k GROUP BY a.k"
    ),
    "inner group": "SELECT a.x, b.y, c.z FROM a LEFT JOIN (b JOIN c ON b.y = c.k) ON a.k = b.k",
    "group of a key": (
        "SELECT a.x, sum(b.y * c.z) AS s FROM a LEFT JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k GROUP BY a.x"
    ),
    "distinct group": (
        "SELECT DISTINCT a.k, b.k AS bk, b.y, c.z FROM a LEFT JOIN (b LEFT JOIN c ON b.k = c.k) ON a.k = b.k"
    ),
    "absent in a group": "SELECT a.x, b.y FROM a LEFT JOIN (FROM b ANTI JOIN c ON b.y = c.k) b ON a.k = b.k",
    "counted group": "SELECT a.k, count(b.y) AS n FROM a LEFT JOIN (b JOIN c ON b.y = c.k) ON a.k = b.k GROUP BY a.k",
    "absent group": "SELECT a.x, a.k FROM a WHERE NOT EXISTS (FROM b JOIN c ON b.y = c.k WHERE b.k = a.k)",
}
NULL_KEYS = {
    "null keys": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    "null keys of own rows": "SELECT p.x, q.x AS qx FROM a p LEFT JOIN a q ON p.k IS NOT DISTINCT FROM q.x",
    "groups of null keys": (
        "SELECT a.k, count(b.k) AS n, sum(x * y) AS s FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k GROUP BY a.k"
    ),
    "null and other keys": "SELECT a.x, b.v FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.x = b.y",
    "tied null keys": (
        "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.k IS NOT DISTINCT FROM b.v"
    ),
    "null keys tied to others": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND a.k IS NOT DISTINCT FROM b.v",
    "absent null keys": "SELECT a.x FROM a ANTI JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    "null keys in a group": (
        "SELECT a.x, b.v, c.z FROM a LEFT JOIN (b JOIN c ON b.y IS NOT DISTINCT FROM c.k) ON a.k = b.k"
    ),
    "rows in a group": "SELECT a.x, b.v, c.z FROM a LEFT JOIN (b JOIN c ON (b.y, b.v) = (c.k, c.z)) ON a.k = b.k",
    "distinct null keys": "SELECT DISTINCT a.k, b.y FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    "full null keys": "SELECT a.x, b.y, a.k FROM a FULL JOIN b ON a.k IS NOT DISTINCT FROM b.k AND b.v > 1",
    "full null and other keys": "SELECT a.u, b.v FROM a FULL JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.x = b.y",
    "mark of null keys": "SELECT a.x, EXISTS (FROM b WHERE b.k IS NOT DISTINCT FROM a.k) AS m FROM a",
    "not in of null keys": "SELECT a.u FROM a WHERE a.x NOT IN (SELECT y FROM b WHERE b.k IS NOT DISTINCT FROM a.k)",
    "not in of its own key": "SELECT a.x, a.k FROM a WHERE a.k NOT IN (SELECT k FROM b WHERE b.k = a.k)",
}  # fmt: skip
SIDES = {
    "key of two tables": (
        "SELECT a.x, b.y, c.w FROM a JOIN b ON a.k = b.k LEFT JOIN c ON a.x = c.k AND b.y IS NOT DISTINCT FROM c.z"
    ),
    "sums of two tables": (
        "SELECT a.x, sum(b.v * c.w) AS s, count(c.w) AS n "
        "FROM a JOIN b ON a.k = b.k LEFT JOIN c ON a.x = c.k AND b.y = c.z GROUP BY a.x"
    ),
    "key of an optional and a required table": (
        "SELECT a.x, b.v, c.w FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.y = c.k AND a.x = c.z"
    ),
    "absent of an optional table": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k ANTI JOIN c ON b.y = c.k",
    "not exists of a full join": (
        "SELECT a.x, b.y FROM a FULL JOIN b ON a.k = b.k WHERE NOT EXISTS (FROM c WHERE c.k = b.y AND c.z = a.x)"
    ),
    "key with a value": "SELECT a.x, c.z FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON coalesce(b.y, 1) = c.k",
    "null key of an optional table": (
        "SELECT a.x, c.z FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.y IS NOT DISTINCT FROM c.k"
    ),
    "sides of sides": (
        "SELECT a.x, b.y, d.u FROM a LEFT JOIN b ON a.k = b.k ANTI JOIN c ON b.y = c.k "
        "LEFT JOIN a d ON b.y = d.k AND a.x = d.x"
    ),
}  # fmt: skip
COMPARED = {
    "order": "SELECT a.x, a.u, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.v <= a.u",
    "band": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.v BETWEEN a.u - 1 AND a.u",
    "order without a key": "SELECT a.x, b.y FROM a LEFT JOIN b ON b.v < a.u",
    "sums over an order": (
        "SELECT a.k, count(*) AS n, count(b.y) AS ys, sum(a.x * b.y) AS s, max(b.y) AS most "
        "FROM a LEFT JOIN b ON a.k = b.k AND b.v <= a.u GROUP BY a.k"
    ),
    "order of own rows": "SELECT p.x, q.x AS qx FROM a p LEFT JOIN a q ON p.k = q.k AND q.u < p.u",
    "order and conditions": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.v > a.u AND b.y > 1 AND a.x < 3",
    "distinct": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k IS DISTINCT FROM b.k",
    "null keys and an order": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k AND b.v < a.u",
    "any condition": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND (a.u = b.v OR a.x IS NULL)",
    "order of a join": "SELECT a.x, b.y, c.z FROM a JOIN c ON a.k = c.k LEFT JOIN b ON a.k = b.k AND b.v <= c.w",
    "order of a left join": (
        "SELECT a.x, b.y, c.z FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.k = c.k AND c.w < b.v"
    ),
    "absent above": "SELECT a.x, a.u FROM a ANTI JOIN b ON a.k = b.k AND b.v + b.y > a.u",
    "absent below": "SELECT a.u, count(*) AS n FROM a ANTI JOIN b ON a.k = b.k AND -b.v >= a.u AND b.y > 1 GROUP BY 1",
    "absent in a band": "SELECT a.x, a.k FROM a ANTI JOIN b ON a.k = b.k AND b.v + 1 >= a.u AND b.v < a.x",
    "absent and other": "SELECT a.x, a.k FROM a WHERE NOT EXISTS (FROM b WHERE b.k = a.k AND b.v <> a.u)",
    "no later own row": "SELECT k, u FROM a p WHERE NOT EXISTS (FROM a q WHERE q.k = p.k AND q.u + q.x > p.u + p.x)",
    "marks": "SELECT a.x, EXISTS (FROM b WHERE b.k = a.k AND b.v <= a.u) AS m FROM a",
    "full order": "SELECT a.x, b.y FROM a FULL JOIN b ON a.k = b.k AND b.v <= a.u",
    "full groups of an order": (
        "SELECT coalesce(a.k, b.k) AS k, count(*) AS n, sum(a.x * b.y) AS s "
        "FROM a FULL JOIN b ON a.k = b.k AND b.v < a.u GROUP BY ALL"
    ),
}
QUERIES = CHILDREN | FULL_JOINS | MARKS | GROUPS | NULL_KEYS | SIDES | COMPARED
INNER = {
    "two": "SELECT a.x, b.y FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    "three": "SELECT a.k, b.y, c.z FROM a, b, c WHERE a.k IS NOT DISTINCT FROM b.k AND b.k IS NOT DISTINCT FROM c.k",
    "equal too": "SELECT a.k, b.y, c.z FROM a, b, c WHERE a.k IS NOT DISTINCT FROM b.k AND b.k = c.k",
    "tied": "SELECT a.x, b.v FROM a, b WHERE a.k IS NOT DISTINCT FROM b.k AND a.k IS NOT DISTINCT FROM b.y",
    "rows": "SELECT p.u, q.u AS qu FROM a p JOIN a q ON (p.k, p.x) = (q.k, q.x)",
    "semi": "SELECT a.x FROM a SEMI JOIN b ON a.k IS NOT DISTINCT FROM b.k AND b.y > 1",
    "sums": "SELECT a.k, count(*) AS n, sum(b.y) AS s FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k GROUP BY a.k",
    "distinct": "SELECT DISTINCT a.x, b.k FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    "compared": "SELECT a.x, b.y FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.x < b.y",
    "present in a band": "SELECT a.x, a.k FROM a SEMI JOIN b ON a.k = b.k AND b.v >= a.u AND b.v < a.x",
}  # fmt: skip


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    create_tables(connection)
    yield connection
    connection.close()


def has_child(con: sqlfront.Connection, view: str) -> bool:
    """Whether a tree of the view has an optional or absent child."""
    reason = con.explain(view).to_dict()["reason"]
    return ("optional child" in reason or "absent child" in reason) and "it is no child" not in reason


def check(con: sqlfront.Connection, views: dict[str, str]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The results of queries, after comparing their views with them."""
    found = {}
    for name, query in views.items():
        found[name] = Counter(con.session.duck.execute(query).fetchall())
        assert rows_of(con, f'FROM "{name}"') == found[name], name
        assert con.view(f'"{name}"').count() == found[name].total(), name
    return found


def follow(con: sqlfront.Connection, views: dict[str, str], rows: RandomRows, steps: int) -> Counter[str]:
    """Random epochs; how many changed each result. All views, and what is told of them, are right after each, undone or
    not, and nothing is stored at the end."""
    feeds = {name: con.view(f'"{name}"').subscribe(timeout=0) for name in views}
    told = {name: Counter[tuple[Any, ...]]() for name in views}
    before, changed = check(con, views), Counter[str]()
    for step in range(1, steps + 1):
        if step % 4 == 0:
            kept = {name: list(own) for name, own in rows.rows.items()}
            con.execute("BEGIN")
            con.apply(rows.epoch())
            check(con, views)
            con.execute("ROLLBACK")
            rows.rows = kept
            check(con, views)
        con.apply(rows.emptying() if step == steps else rows.epoch())
        now = check(con, views)
        changed.update(name for name in views if now[name] != before[name])
        before = now
        for name, feed in feeds.items():
            take(feed, told[name])
            assert (+told[name], -told[name]) == (now[name], Counter()), name
    for name, feed in feeds.items():
        feed.close()
        assert is_query(con, name)
        assert is_empty(con, f'"{name}"', views[name]), name
    return changed


def is_empty(con: sqlfront.Connection, view: str, query: str) -> bool:
    """Whether nothing is stored for a view, but for the one row of aggregates without groups, which a view over it has
    too, and that of the counts of IN where no column ties its rows to the query around."""
    rows, counts = con.view(view).count(), " IN (" in query
    return all(entry["rows"] <= max(rows, counts or entry["node"] == "") for entry in con.view(view).state())


def create_all(con: sqlfront.Connection, name: str, query: str, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Views of a query, over such a view, and with inner joins and unions for its left and anti joins."""
    con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query}')
    con.execute(f'CREATE MATERIALIZED VIEW "over {name}" AS FROM "{name}"')
    with patch.context() as changed:
        changed.setattr(query_blocks, "may_be_child", lambda term, facts: False)
        changed.setattr(query_blocks, "by_equal_values", lambda term, new, facts, read: None)
        con.execute(f'CREATE MATERIALIZED VIEW "joins of {name}" AS {query}')
    return dict.fromkeys((name, f"over {name}", f"joins of {name}"), query)


@pytest.mark.parametrize(
    "queries",
    [CHILDREN, FULL_JOINS, MARKS, GROUPS, NULL_KEYS, SIDES, COMPARED],
    ids=["of_children", "of_full_joins", "of_marks", "of_groups", "of_null_keys", "of_sides", "of_comparisons"],
)
def test_children_are_right_after_every_epoch(con: sqlfront.Connection, queries: dict[str, str]) -> None:
    rows = RandomRows(random.Random(5))
    for _ in range(3):
        con.apply(rows.epoch())
    for name, query in queries.items():
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query}')
        assert has_child(con, f'"{name}"'), name
    changed = follow(con, queries, rows, 10)
    assert sum(count > 1 for count in changed.values()) > len(queries) // 2, changed


def test_null_is_a_key_of_inner_joins(con: sqlfront.Connection) -> None:
    rows = RandomRows(random.Random(8))
    for name, own in rows.rows.items():
        own += [(None, None, 2), (None, 2, None), (2, 2, 2), (3, None, 1)]
        con.apply({name: table_of(name, [(row, 1) for row in own])})
    for name, query in INNER.items():
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query}')
        assert "coalesce" not in str(con.explain(f'"{name}"')), name
    follow(con, INNER, rows, 8)


def test_null_keys_of_types_that_round(con: sqlfront.Connection) -> None:
    """A BIGINT is no DOUBLE: the join compares, and NULL meets NULL all the same."""
    con.execute("CREATE TABLE d (f DOUBLE)")
    query = "SELECT b.k, d.f FROM (SELECT k::BIGINT AS k FROM b) b JOIN d ON b.k IS NOT DISTINCT FROM d.f"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute(
        "INSERT INTO b VALUES (NULL, 1, 1), (0, 1, 1), (2, 1, 1); INSERT INTO d VALUES (NULL), (NULL), (2), (0), (7)"
    )
    assert rows_of(con, "FROM v") == Counter({(None, None): 2, (0, 0.0): 1, (2, 2.0): 1}) == rows_of(con, query)
    con.execute("DELETE FROM d WHERE f IS NULL")
    assert rows_of(con, "FROM v") == Counter({(0, 0.0): 1, (2, 2.0): 1})


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_children_agree_with_joins_and_unions(
    con: sqlfront.Connection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    views = create_all(con, name, QUERIES[name], monkeypatch)
    assert not has_child(con, f'"joins of {name}"')
    follow(con, views, RandomRows(random.Random(name)), 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_random_outer_joins(con: sqlfront.Connection, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    query, rows = OuterQuery(chance).text(), RandomRows(chance)
    con.apply(rows.epoch())
    follow(con, create_all(con, "v", query, monkeypatch), rows, 16)


def test_no_values_are_kept_beside_a_group(con: sqlfront.Connection) -> None:
    absent = "NOT EXISTS (FROM a i, b WHERE i.k = b.v AND a.k = i.u AND a.k = b.v)"
    query = f"SELECT a.x, max(a.k) AS most FROM a WHERE {absent} GROUP BY a.x"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    follow(con, {"v": query}, RandomRows(random.Random(0)), 16)


def naive_left(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """The left join of LEFT over lists of rows."""
    found = Counter[tuple[Any, ...]]()
    for key, x, _ in left:
        partners = [y for other, y, _ in right if key is not None and other == key]
        found.update((key, x, y) for y in partners or [None])
    return found


def test_a_left_join_over_lists(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {LEFT}")
    rows = RandomRows(random.Random(7))
    for _ in range(20):
        con.apply(rows.epoch())
        expected = naive_left(rows.rows["a"], rows.rows["b"])
        assert rows_of(con, "FROM v") == expected
        assert con.view("v").count() == expected.total()


def test_rows_of_an_absent_group_go_no_further(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {GROUPS['absent group']}")
    con.execute("INSERT INTO a VALUES (1, 7, 0), (2, 8, 0)")
    told = Counter({(7, 1): 1, (8, 2): 1})
    with con.view("v").subscribe(snapshot=False, timeout=0) as feed:
        for statement, expected in {
            "INSERT INTO b VALUES (1, 5, 0)": [(7, 1), (8, 2)],
            "INSERT INTO c VALUES (5, 0, 0), (5, 1, 0)": [(8, 2)],
            "INSERT INTO b VALUES (1, 5, 1), (2, 5, 0)": [],
            "DELETE FROM c": [(7, 1), (8, 2)],
        }.items():
            con.execute(statement)
            take(feed, told)
            assert rows_of(con, "FROM v") == Counter(expected) == +told, statement


def test_a_violation_leaves_rows_without_partners_as_they_were(con: sqlfront.Connection) -> None:
    """The first partner comes in the epoch that is refused, in the table that is changed before the other."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {LEFT}")
    con.execute("INSERT INTO a VALUES (1, 5, 0)")
    with pytest.raises(sqlfront.Error, match="deleted more often than it is there"):
        con.apply({"a": table_of("a", [((1, 6, 0), 1)]), "b": table_of("b", [((1, 2, 0), 1), ((9, 9, 9), -1)])})
    assert con.execute("FROM v").fetchall() == [(1, 5, None)]
    con.apply({"a": table_of("a", [((1, 6, 0), 1)]), "b": table_of("b", [((1, 2, 0), 1)])})
    assert rows_of(con, "FROM v") == Counter({(1, 5, 2): 1, (1, 6, 2): 1})


def test_values_grow_wider_with_rows_missing(con: sqlfront.Connection) -> None:
    """The count of a key is beyond 64 bits where it is multiplied; its last row goes."""
    query = "SELECT a.k, count(*) AS n, sum(a.x * b.y) AS s FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    many = 2**31 - 1
    con.apply({"a": table_of("a", [((1, many, 0), 3000), ((2, 5, 0), 1)])})
    con.apply({"b": table_of("b", [((1, many, 0), 3000)])})
    assert rows_of(con, "FROM v") == Counter({(1, 9_000_000, 9_000_000 * many**2): 1, (2, 1, None): 1})
    con.apply({"b": table_of("b", [((1, many, 0), -3000)])})
    assert rows_of(con, "FROM v") == Counter({(1, 3000, None): 1, (2, 1, None): 1})


def test_look_ups_find_rows_of_nulls(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {LEFT}")
    con.execute("INSERT INTO a VALUES (1, 5, 0), (2, 6, 0), (NULL, 7, 0); INSERT INTO b VALUES (2, 3, 0), (2, NULL, 0)")
    for where, expected in {
        "k = 1": [(1, 5, None)], "k = 2": [(2, 6, 3), (2, 6, None)], "k = 1 AND y = 3": [], "y = 3": [(2, 6, 3)],
        "k = 1 AND y IS NULL": [(1, 5, None)], "k IS NULL": [(None, 7, None)], "y IS NULL AND x > 5": [
            (2, 6, None), (None, 7, None)],
    }.items():  # fmt: skip
        assert rows_of(con, f"FROM v WHERE {where}") == Counter(expected), where


def test_look_ups_find_rows_of_nulls_in_groups(con: sqlfront.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {GROUPS['chain']}")
    con.execute("INSERT INTO a VALUES (1, 5, 0), (2, 6, 0), (3, 7, 0); INSERT INTO b VALUES (2, 3, 0), (3, 4, 0)")
    con.execute("INSERT INTO c VALUES (4, 8, 0), (5, 9, 0)")
    for where, expected in {
        "x = 5": [(5, None, None)], "z = 8": [(7, 4, 8)], "z = 9": [], "y = 3": [(6, 3, None)], "y = 3 AND z = 8": [],
        "z IS NULL": [(5, None, None), (6, 3, None)], "x = 5 AND z = 8": [],
    }.items():  # fmt: skip
        assert rows_of(con, f"FROM v WHERE {where}") == Counter(expected), where


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k, max(b.y) AS most FROM a LEFT JOIN b ON a.k = b.k AND a.k = b.y GROUP BY a.k",
        "SELECT a.k, count(DISTINCT b.k) AS n FROM a CROSS JOIN c LEFT JOIN b ON b.k = a.k AND b.k = c.k GROUP BY a.k",
        "SELECT a.x, count(DISTINCT b.y) AS ys FROM a LEFT JOIN b ON a.k = b.k AND a.x = b.y LEFT JOIN c ON c.k = b.y "
        "GROUP BY a.x",
    ],
)
def test_values_that_equal_those_of_a_group_are_there_with_a_partner_alone(query: str) -> None:
    make = random.Random(5)
    with sqlfront.connect() as con:
        create_tables(con)
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^9)') AS {query}")
        for _ in range(40):
            table = make.choice("abc")
            if make.random() < 0.3:
                con.execute(f"DELETE FROM {table} WHERE k = {make.randrange(3)}")
            else:
                values = {"a": "(k, x)", "b": "(k, y)", "c": "(k, z)"}[table]
                row = ", ".join(make.choice(["NULL", "0", "1", "2"]) for _ in range(2))
                con.execute(f"INSERT INTO {table} {values} VALUES ({row})")
            assert Counter(con.execute("FROM v").fetchall()) == Counter(con.execute(query).fetchall())


@pytest.mark.parametrize("size", [1_000, 100_000])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k, a.x, b.y FROM a LEFT JOIN b ON a.k = b.k",
        "SELECT a.k, count(*) AS n, sum(b.y) AS s FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k",
        "SELECT a.k, a.x FROM a WHERE NOT EXISTS (FROM b WHERE b.k = a.k)",
        "SELECT a.k, a.x, b.y FROM a FULL JOIN b ON a.k = b.k",
        "SELECT k, count(*) AS n, sum(b.y) AS s FROM a FULL JOIN b USING (k) GROUP BY k",
        "SELECT a.x, a.k IN (SELECT k FROM b) AS m FROM a",
        "SELECT a.k, a.x, b.y FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k",
        "SELECT a.k, a.x FROM a ANTI JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    ],
)
def test_steps_do_not_grow(con: sqlfront.Connection, query: str, size: int) -> None:
    """A hub's first and last partner cost as much as any: its rows without one are not listed."""
    con.execute(f"INSERT INTO a SELECT i, i, 0 FROM range({size // 2}) t(i)")
    con.execute(f"INSERT INTO a SELECT -1, i, 0 FROM range({size // 2}) t(i)")
    con.execute(f"INSERT INTO b SELECT 2 * i, i, 0 FROM range({size // 4}) t(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    plan = con.explain("v").to_dict()
    assert (plan["cost"]["update"], plan["cost"]["delay"]) == ("O(1)", "O(1)")
    view = con.view("v")
    for table, row, weight in (
        ("b", (-1, 1, 0), 1), ("b", (-1, 1, 0), -1), ("b", (1, 1, 0), 1), ("b", (2, 1, 0), -1),
        ("a", (-1, 7, 0), 1), ("a", (-5, 7, 0), 1), ("a", (-5, 7, 0), -1),
    ):  # fmt: skip
        before = view.cost()["steps"]
        con.apply({table: table_of(table, [(row, weight)])})
        assert view.cost()["steps"] - before <= 80, (table, row, weight)


@pytest.mark.parametrize("size", [1_000, 50_000])
def test_changes_behind_the_least_value_meet_nothing(con: sqlfront.Connection, size: int) -> None:
    con.execute(f"INSERT INTO a SELECT 1, i, i FROM range({size}) t(i)")
    con.execute(f"INSERT INTO b SELECT 1, i, {size} + i FROM range({size}) t(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT x, u FROM a ANTI JOIN b ON a.k = b.k AND b.v <= a.u")
    assert con.view("v").count() == size
    for table, row, weight in (
        ("b", (1, 0, size + 7), 1), ("b", (1, 0, size + 7), -1), ("b", (1, 0, size - 1), 1),
        ("a", (1, 0, size + 5), 1), ("a", (1, 0, -1), 1), ("a", (1, 0, -1), -1),
    ):  # fmt: skip
        before = con.view("v").cost()["steps"]
        con.apply({table: table_of(table, [(row, weight)])})
        assert con.view("v").cost()["steps"] - before <= 150, (table, row, weight)
    con.execute("INSERT INTO b VALUES (1, 0, 1)")
    assert con.view("v").count() == 1 == len(con.execute("FROM v").fetchall())


def test_what_is_no_child_says_why(con: sqlfront.Connection) -> None:
    reasons = {
        "SELECT a.x FROM a LEFT JOIN b ON a.k = b.k WHERE b.y IS NULL": "a condition above it reads the columns",
        "SELECT sum(coalesce(b.y, 3)) AS s FROM a LEFT JOIN b ON a.k = b.k": "an aggregate above it adds a value",
        "SELECT a.x FROM a CROSS JOIN c LEFT JOIN b ON a.k = b.k AND c.z = b.y": "no tree has its key",
        "SELECT a.x FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.y = c.k AND a.x = c.z": "its key is of several",
        "SELECT max(coalesce(b.y, 0)) AS m FROM a LEFT JOIN b ON a.k = b.k": "an aggregate above it takes a value",
        "SELECT a.x FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON coalesce(b.y, 1) = c.k": "its key has a value where",
        "SELECT a.x FROM a LEFT JOIN b ON a.k = b.k ANTI JOIN c ON b.y = c.k": "it asks for rows that may be missing",
        "SELECT a.x FROM a LEFT JOIN b ON a.k = b.k AND a.x < b.y WHERE b.v IS NULL": "a condition above it reads",
        "SELECT x, k NOT IN (SELECT y FROM b WHERE v < x) AS m FROM a": "not made of equalities that give",
        "SELECT x, (k, u) IN (SELECT k, y FROM b) AS m FROM a": "not made of equalities that give",
    }
    for query, words in reasons.items():
        found = con.explain(query).to_dict()
        assert words in found["reason"], query
    tree = str(con.explain(LEFT))
    assert "b(k, y)  optional; stored; enumerated" in tree
    assert "absent; stored" in str(con.explain("SELECT x FROM a ANTI JOIN b USING (k)"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.v > 0 AND {}",
        "SELECT a.x, g.z FROM a LEFT JOIN (SELECT b.k, c.z FROM b JOIN c USING (k) WHERE b.v > 0 AND {}) g USING (k)",
        "SELECT a.x, g.z FROM a LEFT JOIN (SELECT b.k, c.z FROM b JOIN c ON b.k = c.k AND {}) g USING (k)",
        "SELECT a.x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > 0 AND {})",
        "SELECT a.x, b.y FROM (FROM a WHERE x >= 0) a FULL JOIN (FROM b WHERE v > 0 AND {}) b ON a.k = b.k",
        "SELECT a.k, count(b.y) AS n FROM a LEFT JOIN b ON a.k = b.k AND b.v > 0 AND {} GROUP BY a.k",
    ],
)
@pytest.mark.parametrize("constant", ["CAST(0 AS INTEGER) = CAST(1 AS INTEGER)", "CAST(1 AS INTEGER) = 1"])
def test_a_constant_condition_of_the_right_leaves_the_rows_of_the_left(
    con: sqlfront.Connection, query: str, constant: str
) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query.format(constant)}")
    con.execute("INSERT INTO a (k, x) VALUES (1, 5), (2, 6), (NULL, 7); INSERT INTO b (k, y, v) VALUES (1, 8, 9)")
    con.execute("INSERT INTO c (k, z) VALUES (1, 4)")
    expected = con.session.duck.execute(query.format(constant)).fetchall()
    assert Counter(con.execute("FROM v").fetchall()) == Counter(expected) and expected


def test_tables_of_random_rows_are_all_used() -> None:
    """The generator makes each feature often enough to matter."""
    texts = [OuterQuery(random.Random(seed)).text() for seed in range(200)]
    for feature in (
        "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "ANTI JOIN", "EXISTS", " NOT IN ", " IN (", "GROUP BY", "DISTINCT",
        "count(*)", "max(", "IS NULL", "coalesce(t",
    ):  # fmt: skip
        assert sum(feature in text for text in texts) >= 10, feature
    assert all(any(f" {table} " in text for text in texts) for table in TABLES)


def test_a_full_join_that_asks_a_subquery_has_the_lonely_rows_of_both_sides() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INT, b INT); CREATE TABLE s (k INT, c INT); CREATE TABLE t (k INT, b INT)")
        query = "SELECT r.a, s.c FROM r FULL JOIN s ON r.b IN (SELECT b FROM t WHERE t.k = s.k)"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO r VALUES (1, 2), (5, 6); INSERT INTO s VALUES (3, 4), (8, 9)")
        con.execute("INSERT INTO t VALUES (3, 2)")
        assert sorted(con.execute("FROM v").fetchall(), key=str) == [(1, 4), (5, None), (None, 9)]
        con.execute("DELETE FROM t")
        assert sorted(con.execute("FROM v").fetchall(), key=str) == [(1, None), (5, None), (None, 4), (None, 9)]

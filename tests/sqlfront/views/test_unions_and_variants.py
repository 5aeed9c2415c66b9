"""UNIONs and VARIANTs on their way in and out: change tables, feeds, files that are reopened, refused values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sqlfront

UNION, VARIANT = "UNION(n INTEGER, s VARCHAR)", "VARIANT"
NULL_MEMBER = f"CAST(union_value(n := NULL) AS {UNION})"
ROWS = f"(1, 1, 1::VARIANT), (2, 'a', {{'a': 1}}::VARIANT), (3, NULL, NULL), (4, {NULL_MEMBER}, 1.0::VARIANT)"
SHOWN = "SELECT k, u, u IS NULL, union_tag(u)::VARCHAR, w FROM {} ORDER BY k"
EXPECTED = [
    (1, 1, False, "n", 1),
    (2, "a", False, "s", {"a": 1}),
    (3, None, True, None, None),
    (4, None, False, "n", 1),
]


def differing(con: sqlfront.Connection, *views: str) -> list[object]:
    return [row for view in views for row in con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall()]


@pytest.mark.parametrize("kind", ["TABLE", "CHANGE TABLE"])
def test_values_survive_a_reopened_file(kind: str, tmp_path: Path) -> None:
    file = str(tmp_path / "db.duckdb")
    with sqlfront.connect(file) as con:
        con.execute(f"CREATE {kind} t (k INTEGER, u {UNION}, w {VARIANT})")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM t")
        con.execute("CREATE MATERIALIZED VIEW g AS SELECT u, w, count(*) AS n FROM t GROUP BY u, w")
        con.execute(f"INSERT INTO t VALUES {ROWS}")
        assert con.execute(SHOWN.format("v")).fetchall() == EXPECTED
        assert con.execute(SHOWN.format("t")).fetchall() == EXPECTED
    with sqlfront.connect(file) as con:
        assert con.execute(SHOWN.format("v")).fetchall() == EXPECTED
        con.execute("UPDATE t SET u = 'b' WHERE k = 4")
        con.execute("DELETE FROM t WHERE w = {'a': 1}::VARIANT OR u IS NULL")
        assert con.execute("SELECT u, w, n FROM g ORDER BY n, u").fetchall() == [(1, 1, 1), ("b", 1, 1)]
        assert differing(con, "v", "g") == []


def test_changes_are_told_as_arrow_has_the_types() -> None:
    con = sqlfront.connect()
    con.execute(f"CREATE CHANGE TABLE t (k INTEGER, u {UNION}, w {VARIANT})")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, u, w FROM t")
    reader = con.view("v").subscribe()
    given = con.sql(f"SELECT * FROM (VALUES {ROWS}) AS t(k, u, w)").to_arrow_table()
    epoch = con.apply({"t": given})
    for told in (reader.poll(), epoch.changes["v"]):
        assert told is not None
        assert pa.types.is_union(told.schema.field("u").type)
        assert sorted(told.column("u").to_pylist(), key=str) == [1, None, None, "a"]
        assert con.sql("SELECT w FROM told WHERE w = 1::VARIANT").fetchall() == [(1,), (1,)]
    rows = con.execute("SUBSCRIBE TO v").fetchall()
    assert [row[:3] for row in sorted(rows, key=str)] == [(k, u, w) for k, u, _, _, w in EXPECTED]
    con.apply_row("t", (5, "c", True))
    con.apply_row("t", (1, 1, 1), weight=-1)
    assert con.view("v").contains((5, "c", True)) and not con.view("v").contains((1, 1, 1))
    assert differing(con, "v") == []


def test_rows_that_are_named_in_an_error_are_readable() -> None:
    con = sqlfront.connect()
    con.execute(f"CREATE CHANGE TABLE t (k INTEGER, u {UNION}, w {VARIANT})")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT CAST(u.s AS INTEGER) AS i, u, w FROM t")
    with pytest.raises(sqlfront.DataError, match=r"u = 'x', w = .\{'a': 1\}"):
        con.execute("INSERT INTO t VALUES (1, 'x', {'a': 1}::VARIANT)")
    with pytest.raises(sqlfront.IntegrityError, match="= '7'"):
        con.apply_row("t", (1, 7, 1), weight=-1)
    assert con.execute("FROM v").fetchall() == []


def test_a_variant_that_arrow_has_no_form_of_changes_nothing() -> None:
    con = sqlfront.connect()
    con.execute(f"CREATE TABLE t (w {VARIANT})")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT w, count(*) AS n FROM t GROUP BY w")
    whole = "18446744073709551615"
    con.execute(
        f"INSERT INTO t VALUES ({whole}::UBIGINT::VARIANT), ({whole}::HUGEINT::VARIANT), ('{whole}'::BIGNUM::VARIANT)"
    )
    with pytest.raises(sqlfront.Error, match="INTERVAL"):
        con.execute("INSERT INTO t VALUES ((INTERVAL 1 DAY)::VARIANT)")
    assert con.execute("FROM v").fetchall() == [(int(whole), 3)]
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_a_null_member_equals_nothing_but_groups() -> None:
    con = sqlfront.connect()
    con.execute(f"CREATE TABLE t (k INTEGER, u {UNION})")
    con.execute(f"INSERT INTO t VALUES (1, 1), (2, NULL), (3, {NULL_MEMBER}), (4, 'a')")
    queries = {
        "equal": "SELECT a.k, b.k AS other FROM t AS a JOIN t AS b ON a.u = b.u",
        "same": "SELECT a.k, b.k AS other FROM t AS a JOIN t AS b ON a.u IS NOT DISTINCT FROM b.u",
        "made": "SELECT a.k, b.k AS other FROM t AS a JOIN t AS b ON union_value(n := a.u.n) = union_value(n := b.u.n)",
        "unequal": "SELECT a.k, b.k AS other FROM t AS a JOIN t AS b ON a.u <> b.u",
        "listed": "SELECT k, u IN (SELECT u FROM t WHERE k <> 2) AS is_in FROM t",
        "compared": "SELECT k, u = 1 AS is_one, u = u AS is_itself FROM t",
        "grouped": "SELECT u, count(*) AS n FROM t GROUP BY u",
    }
    for name, query in queries.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    con.execute(f"INSERT INTO t VALUES (5, {NULL_MEMBER}), (6, CAST(union_value(s := NULL) AS {UNION}))")
    con.execute("DELETE FROM t WHERE k = 3")
    assert sorted(con.execute("FROM equal").fetchall()) == [(1, 1), (4, 4)]
    assert len(con.execute("FROM same").fetchall()) == 5
    assert differing(con, *queries) == []

"""A change that a view cannot take names the view, the expression, the row, the reason and a way out."""

import re

import pyarrow as pa
import pytest

import sqlfront

VIEWS = {
    "SELECT CAST(s AS INT) AS i FROM {t}": ("CAST(s AS INTEGER)", "x = 1.0, s = 'bad'", "'bad'"),
    "SELECT a, count(*) AS n FROM {t} WHERE 10 // len(s) > 2 AND CAST(s AS INT) > 0 GROUP BY a": (
        "CAST(s AS INTEGER) > 0",
        "s = 'bad'",
        "'bad'",
    ),
    "SELECT sum({t}.x * o.c * {t}.x) AS p FROM {t} JOIN o ON {t}.a = o.a": ("x * x", "x = 1e+200", "an infinity"),
    "SELECT x, median(DISTINCT CAST(s AS INT)) AS m FROM {t} GROUP BY x": (
        "median",
        "x = 1.0, s = 'bad'",
        "source column s",
    ),
}
GROUPS = "SELECT x, median"
GOOD = [(1, 1.0, "1"), (2, 2.0, "2")]
BAD = [(1, 1.0, "3"), (5, 1.0, "bad"), (6, 1e200, "4"), (7, 1.0, "bad")]


def _rows(rows):
    columns = list(zip(*rows, strict=True))
    return pa.table({"a": pa.array(columns[0], pa.int32()), "x": columns[1], "s": columns[2]})


@pytest.mark.parametrize("query", VIEWS)
@pytest.mark.parametrize("kind", ["TABLE", "CHANGE TABLE"])
@pytest.mark.parametrize("way", ["insert", "apply", "apply_row", "transaction"])
def test_the_error_says_all(query, kind, way):
    expression, row, why = VIEWS[query]
    with sqlfront.connect() as con:
        con.execute(f"CREATE {kind} t (a INT, x DOUBLE, s VARCHAR); CREATE TABLE o (a INT, c DOUBLE)")
        con.execute("CREATE MATERIALIZED VIEW fine AS SELECT a FROM t")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query.format(t='t')}")
        con.apply({"t": _rows(GOOD)})
        before = con.execute("FROM v").fetchall()
        with pytest.raises(sqlfront.DataError) as caught:
            if way == "apply":
                con.apply({"t": _rows(BAD)})
            elif way == "apply_row":
                con.apply_row("t", BAD[2] if "1e" in row else BAD[1])
            else:
                begin = "BEGIN; " if way == "transaction" else ""
                values = "SELECT * FROM (VALUES (1, 1::DOUBLE, '3'), (5, 1, 'bad'), (6, 1e200, '4'), (7, 1, 'bad'))"
                con.execute(f"{begin}INSERT INTO t {values}; COMMIT" if begin else f"INSERT INTO t {values}")
        con.rollback()
        error = caught.value
        done = "compute a group of rows" if query.startswith(GROUPS) else "take a row"
        assert error.what == f"materialized view v cannot {done} of t"
        assert expression in error.where and row in error.where, error.where
        assert why in error.why and "TRY_CAST" in error.hint
        assert "a = 7" not in error.where  # The first such row is named.
        assert con.execute("FROM v").fetchall() == before
        assert sorted(con.execute("FROM fine").fetchall()) == [(1,), (2,)]


def test_every_view_that_computes_it_is_named():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (s VARCHAR); CREATE SCHEMA other")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT CAST(s AS INT) AS i FROM t")
        con.execute("CREATE MATERIALIZED VIEW other.w AS SELECT CAST(s AS INT) AS i, count(*) AS n FROM t GROUP BY 1")
        with pytest.raises(sqlfront.DataError, match=r"materialized view other\.w, v cannot take a row of t"):
            con.execute("INSERT INTO t VALUES ('x')")


def test_rows_that_are_impossible_together_are_told_by_the_first_and_their_number():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a INT, k INT, x HUGEINT); CREATE TABLE u (k INT)")
        window = "sum(x) OVER (PARTITION BY a ORDER BY k RANGE BETWEEN 0.5 PRECEDING AND 0.5 FOLLOWING)"
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT a, {window} AS s FROM t JOIN u USING (k)")
        con.execute("INSERT INTO u VALUES (1); INSERT INTO t VALUES (1, 1, 5), (2, 1, 7)")
        with pytest.raises(sqlfront.DataError, match="cannot compute a group of rows of t and u") as caught:
            con.execute(f"INSERT INTO t VALUES (3, 1, {2**126}), (3, 1, {2**126}), (4, 1, 1)")
        assert "\nover 2 rows, the first of them with a = 3" in caught.value.where
        assert sorted(con.execute("FROM v").fetchall()) == [(1, 5), (2, 7)]


def test_a_row_of_a_block_is_named_by_the_block():
    """The rows of r's expression are met where they are joined with the first rows: in the view's own node."""
    query = (
        "SELECT r.a, x.q FROM r, LATERAL (SELECT s.v::INTEGER + r.v::INTEGER AS q FROM s WHERE s.a = r.a "
        "AND s.t <= r.t ORDER BY s.t DESC, s.v LIMIT 2) AS x"
    )
    with sqlfront.connect() as con:
        con.execute(
            "CREATE TABLE r (a INTEGER, t INTEGER, v VARCHAR); CREATE TABLE s (a INTEGER, t INTEGER, v VARCHAR)"
        )
        con.execute("INSERT INTO s VALUES (1, 1, '1')")
        con.execute(f"CREATE MATERIALIZED VIEW first_two AS {query}")
        with pytest.raises(sqlfront.DataError) as caught:
            con.execute("INSERT INTO r VALUES (1, 1, 'x')")
        found = re.fullmatch(
            r"materialized view first_two cannot take a row of (block \d+) of its query", caught.value.what
        )
        nodes = con.execute("EXPLAIN MATERIALIZED VIEW first_two").fetchall()
        assert found and any(value.startswith(f"{found[1]},") for name, value in nodes if name == "node")
        assert con.execute("FROM first_two").fetchall() == con.execute("FROM r").fetchall() == []

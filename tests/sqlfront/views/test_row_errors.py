"""Views WITH (on_error = 'null'): what fails on a row is NULL there, and SHOW ERRORS lists the row until it goes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from sqlfront.binding.function_catalog import Functions
from sqlfront.define.row_errors import with_try
from sqlfront.sql.dialect import parse_query
from tests.slices import parts

NULLED = "WITH (on_error = 'null')"
VIEWS = {
    "casts": "SELECT a, CAST(v AS INTEGER) AS x FROM t",
    "keys": "SELECT CAST(v AS INTEGER) % 3 AS k, count(*) AS n, sum(a) AS s FROM t GROUP BY 1",
    "sums": "SELECT a, sum(CAST(v AS INTEGER)) AS s, max(10 // (a - 1)) AS m FROM t GROUP BY a",
    "joined": "SELECT t.a, s.k FROM t JOIN s ON s.k = CAST(t.v AS INTEGER) WHERE t.a < 3",
    "kept": "SELECT t.a, s.k FROM t LEFT JOIN s ON s.k = CAST(t.v AS INTEGER)",
    "across": "SELECT t.a, CAST(t.v || s.w AS INTEGER) AS x FROM t JOIN s ON t.a = s.k",
    "middle": "SELECT a, median(DISTINCT CAST(v AS INTEGER)) AS m FROM t GROUP BY a",
    "ranked": "SELECT a, v, row_number() OVER (PARTITION BY a ORDER BY CAST(v AS INTEGER), v) AS r FROM t "
    "GROUP BY a, v",
    "filtered": "SELECT DISTINCT a FROM t WHERE CAST(v AS INTEGER) > 1 OR a = 2",
    "having_": "SELECT a, count(*) FILTER (WHERE CAST(v AS INTEGER) > 1) AS n FROM t GROUP BY a",
    "overflow": "SELECT a, a * 4611686018427387904 AS x, -a - 9223372036854775807 AS y FROM t",
    "products": "SELECT t.a, sum(t.a * s.k * 2305843009213693952) AS s FROM t JOIN s ON t.a = s.k GROUP BY t.a",
    "largest": "SELECT a, CAST(max(v) AS INTEGER) + count(*) AS m FROM t GROUP BY a HAVING CAST(min(v) AS INTEGER) < 9",
    "before": "SELECT a, v, CAST(lag(v) OVER (PARTITION BY a ORDER BY v) AS INTEGER) AS x FROM t GROUP BY a, v",
    "asked": "SELECT a, CAST((SELECT max(w) FROM s WHERE s.k = t.a) AS INTEGER) // a AS x FROM t",
    "keyed": "SELECT CAST(v AS INTEGER) + 1 // (a - 1) AS x, count(*) AS n FROM t GROUP BY CAST(v AS INTEGER), a",
    "ratio": "SELECT a, ratio(CAST(v AS INTEGER), a - 2) AS x, CAST(most(v) AS INTEGER) AS y FROM t GROUP BY a, v",
}
UNFOLDED = "SELECT a, CAST(v AS INTEGER) // (a - 2) AS x, CAST(max(v) AS INTEGER) AS y FROM t GROUP BY a, v"


def tried(con, query):
    return with_try(query, parse_query(query, query, 0), Functions(con))


@pytest.mark.parametrize("seed", parts(10))
def test_a_view_equals_its_query_with_try(seed):
    rng, con = random.Random(seed), sqlfront.connect()
    con.execute("CREATE TABLE t (a BIGINT, v VARCHAR)")
    con.execute("CREATE CHANGE TABLE s (k BIGINT, w VARCHAR)")
    con.execute("CREATE MACRO ratio(x, y) AS x // y")
    con.execute("CREATE MACRO most(x) AS max(x)")
    texts = {}
    for number, (name, query) in enumerate(VIEWS.items()):
        texts[name] = tried(con, UNFOLDED if name == "ratio" else query)
        assert texts[name].count("TRY(") >= 1
        options = "WITH (on_error = 'null', apply = 'on read')" if number % 3 == 0 else NULLED
        con.execute(f"CREATE MATERIALIZED VIEW {name} {options} AS {query}")
    feed, replayed = con.view("keys").subscribe(), Counter()

    def value():
        return rng.choice(["1", "2", "3", "4", "x", "", None, "99999999999"])

    def change():
        kind = rng.randrange(5)
        key = rng.choice([None, 1, 2, 3])
        if kind == 0:
            con.execute("INSERT INTO t VALUES (?, ?), (?, ?)", [key, value(), 2, value()])
        elif kind == 1:
            con.execute("DELETE FROM t WHERE a IS NOT DISTINCT FROM ? AND v IS NOT DISTINCT FROM ?", [key, value()])
        elif kind == 2:
            con.execute("UPDATE t SET v = ? WHERE a = ?", [value(), key])
        elif kind == 3:
            con.apply_row("s", (key, value()))
        else:
            con.execute("DELETE FROM s WHERE k = ?", [key])

    def check():
        for name in rng.sample(list(VIEWS), 4):
            wanted = Counter(con.execute(texts[name]).fetchall())
            assert Counter(con.execute(f"FROM {name}").fetchall()) == wanted, name
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == [], name
        failing = "SELECT DISTINCT a, v FROM t WHERE v IS NOT NULL AND TRY_CAST(v AS INTEGER) IS NULL"
        wanted = Counter(
            f"{{'a': {a}, 'v': {v}}}"
            for a, v in con.execute(
                f"SELECT coalesce(CAST(a AS VARCHAR), 'NULL'), CASE v WHEN '' THEN '''''' ELSE v END FROM ({failing})"
            ).fetchall()
        )
        listed = con.execute("SHOW ERRORS FOR casts").fetchall()
        assert Counter(row for _, row, _, _ in listed) == wanted
        assert {(table, text) for table, _, text, _ in listed} <= {("t", "CAST(v AS INTEGER)")}

    for _ in range(16 if seed else 4):
        inside = rng.random() < 0.4
        if inside:
            con.execute("BEGIN")
        for _ in range(rng.randrange(1, 4)):
            change()
        check()
        if inside:
            con.execute(rng.choice(["COMMIT", "ROLLBACK"]))
    changes = feed.poll()
    for *row, kind, _, _ in zip(*(column.to_pylist() for column in changes.columns)):
        replayed[tuple(row)] += 1 if kind in ("insert", "update_postimage") else -1
    assert +replayed == Counter(con.execute("FROM keys").fetchall())
    feed.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a + b, -a * 2 FROM t", "SELECT TRY(a + b), TRY(-a * 2) FROM t"),
        ("SELECT CAST(max(v) AS INT) // a FROM t GROUP BY a",
         "SELECT list_transform([struct_pack(p0 := max(v))], "
         "lambda __operands: TRY(CAST(__operands['p0'] AS INT) // a))[1] FROM t GROUP BY a"),
        ("SELECT (SELECT max(v::INT) FROM s) + a, COLUMNS('b')::INT FROM t",
         "SELECT list_transform([struct_pack(p0 := (SELECT max(TRY(v::INT)) FROM s))], "
         "lambda __operands: TRY(__operands['p0'] + a))[1], TRY(COLUMNS('b')::INT) FROM t"),
        ("SELECT CASE WHEN EXISTS (FROM s) THEN v::INT END, unnest([v])::INT FROM t",
         "SELECT list_transform([struct_pack(p0 := EXISTS (FROM s))], "
         "lambda __operands: TRY(CASE WHEN __operands['p0'] THEN v::INT END))[1], "
         "list_transform([struct_pack(p0 := unnest([v]))], lambda __operands: TRY(__operands['p0']::INT))[1] FROM t"),
        ("SELECT sum(v::INT) OVER (ORDER BY a) // (lag(a) OVER w - a) FROM t WINDOW w AS (ORDER BY v::INT)",
         "SELECT list_transform([struct_pack(p0 := sum(TRY(v::INT)) OVER (ORDER BY a), p1 := lag(a) OVER w)], "
         "lambda __operands: TRY(__operands['p0'] // (__operands['p1'] - a)))[1] FROM t "
         "WINDOW w AS (ORDER BY TRY(v::INT))"),
        ("SELECT v::INT + 1 AS k, k + 1, max(a) + k FROM t GROUP BY k",
         "SELECT TRY(v::INT + 1) AS k, TRY(k + 1), "
         "list_transform([struct_pack(p0 := max(a))], lambda __operands: TRY(__operands['p0'] + k))[1] "
         "FROM t GROUP BY k"),
        ("SELECT a + CAST(v AS INT) FROM t", "SELECT TRY(a + CAST(v AS INT)) FROM t"),
        ("SELECT sum(ln(w)) / count(*) FROM t",
         "SELECT list_transform([struct_pack(p0 := sum(TRY(ln(w))), p1 := count(*))], "
         "lambda __operands: TRY(__operands['p0'] / __operands['p1']))[1] FROM t"),
        ("SELECT TRY(v::INT) + 1 FROM t", "SELECT TRY(TRY(v::INT) + 1) FROM t"),
        ("SELECT a FROM t WHERE (a % b > 1 OR NOT v::INT BETWEEN 1 AND 3)",
         "SELECT a FROM t WHERE (TRY(a % b) > 1 OR NOT TRY(v::INT) BETWEEN 1 AND 3)"),
        ("SELECT v::INT IN (SELECT 1 / a FROM s) FROM t JOIN s ON 1 / s.a = t.a",
         "SELECT TRY(v::INT) IN (SELECT TRY(1 / a) FROM s) FROM t JOIN s ON TRY(1 / s.a) = t.a"),
        ("SELECT v::INT + 1 // a, count(*) FROM t GROUP BY v::INT, a",
         "SELECT TRY(TRY(v::INT) + 1 // a), count(*) FROM t GROUP BY TRY(v::INT), a"),
        ("SELECT a + 1 // a FROM (t JOIN s ON 1 // t.a = s.k), range(1 // 1)",
         "SELECT TRY(a + 1 // a) FROM (t JOIN s ON TRY(1 // t.a) = s.k), range(1 // 1)"),
        ("SELECT row_number() OVER (PARTITION BY a % 2 ORDER BY ln(b)) FROM t",
         "SELECT row_number() OVER (PARTITION BY TRY(a % 2) ORDER BY TRY(ln(b))) FROM t"),
        ("SELECT DATE '2020-01-01', CAST(a AS VARCHAR), TRY_CAST(v AS INT) FROM range(1 / 1)",
         "SELECT DATE '2020-01-01', CAST(a AS VARCHAR), TRY_CAST(v AS INT) FROM range(1 / 1)"),
    ],
)  # fmt: skip
def test_where_try_stands(query, expected):
    con = sqlfront.connect()
    assert tried(con.session.duck, query) == expected


@pytest.fixture
def con():
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a BIGINT, v VARCHAR)")
    con.execute("CREATE TABLE s (k BIGINT, w VARCHAR)")
    return con


def test_columns_are_called_as_the_query_calls_them(con):
    con.execute(f"CREATE MATERIALIZED VIEW v (first_) {NULLED} AS SELECT a, CAST(v AS INT), 1 // a AS q FROM t")
    assert [column[0] for column in con.execute("FROM v").description] == ["first_", "CAST(v AS INTEGER)", "q"]


def test_errors_name_table_row_expression_and_message(con):
    con.execute(
        f"CREATE MATERIALIZED VIEW v {NULLED} AS WITH q AS (SELECT k, w FROM s WHERE k > 0) SELECT t.a, "
        "CAST(t.v AS INT) AS x, CAST(t.v || w AS INT) AS y FROM t JOIN q ON k = a "
        "WHERE EXISTS (SELECT 1 FROM s AS z WHERE z.k = CAST(t.v AS INT) OR z.k > 0)"
    )
    con.execute("INSERT INTO t VALUES (1, 'x'), (1, '5'), (2, 'y')")
    con.execute("INSERT INTO s VALUES (1, '7'), (1, 'n')")
    found = con.execute("SHOW ERRORS FOR v").fetchall()
    assert {row[:3] for row in found} == {
        ("t", "{'a': 1, 'v': x}", "CAST(t.v AS INT)"),
        ("t", "{'a': 2, 'v': y}", "CAST(t.v AS INT)"),
        ("t, q", "{'t.v': x, 'w': 7}", "CAST(t.v || w AS INT)"),
        ("t, q", "{'t.v': x, 'w': n}", "CAST(t.v || w AS INT)"),
        ("t, q", "{'t.v': 5, 'w': n}", "CAST(t.v || w AS INT)"),
    }
    assert all("Could not convert string" in message for *_, message in found)
    con.execute("DELETE FROM t WHERE v <> '5'")
    con.execute("UPDATE s SET w = '3'")
    assert con.execute("SHOW ERRORS FOR v").fetchall() == []


def test_it_outlives_the_process_and_cannot_be_altered(tmp_path):
    with sqlfront.connect(tmp_path / "d") as con:
        con.execute("CREATE TABLE t (a BIGINT, v VARCHAR)")
        con.execute(f"CREATE MATERIALIZED VIEW v {NULLED} AS SELECT a, sum(CAST(v AS INT)) AS s FROM t GROUP BY a")
        con.execute("INSERT INTO t VALUES (1, 'x'), (1, '5')")
    with sqlfront.connect(tmp_path / "d") as con:
        con.execute("INSERT INTO t VALUES (1, 'y')")
        assert con.execute("FROM v").fetchall() == [(1, 5)] and len(con.execute("SHOW ERRORS FOR v").fetchall()) == 2
        with pytest.raises(sqlfront.ProgrammingError, match="on_error of v cannot be altered"):
            con.execute("ALTER MATERIALIZED VIEW v SET (on_error = 'raise')")
        con.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT a FROM t")
        assert con.execute("SHOW ERRORS FOR v").fetchall() == []


def test_errors_of_groups_windows_and_subqueries_name_their_values(con):
    con.execute("CREATE MACRO part(x, y := 1) AS CAST(x AS INT) + y")
    con.execute(
        f"CREATE MATERIALIZED VIEW v {NULLED} AS SELECT a, CAST(max(v) AS INT) AS m, "
        "CAST((SELECT max(w) FROM s WHERE k = a) AS INT) AS x FROM t GROUP BY a HAVING a > 0"
    )
    con.execute(f"CREATE MATERIALIZED VIEW w {NULLED} AS SELECT a + 1 AS b, b * 4611686018427387904 AS c FROM t")
    con.execute(f"CREATE MATERIALIZED VIEW x {NULLED} AS SELECT lag(v) OVER (ORDER BY a)::INT AS n FROM t")
    con.execute("INSERT INTO t VALUES (1, '5'), (2, 'y'), (0, 'z'), (3, 'u')")
    con.execute("INSERT INTO s VALUES (1, 'n')")
    assert sorted(con.execute("FROM v").fetchall()) == [(1, 5, None), (2, None, None), (3, None, None)]
    found = con.execute("SHOW ERRORS FOR v").fetchall()
    subquery = "(SELECT max(w) FROM s WHERE k = a)"
    listed = [(text, row.partition(": ")[2]) for _, row, text, _ in found]
    assert sorted(listed)[1:] == [("CAST(max(v) AS INT)", "u}"), ("CAST(max(v) AS INT)", "y}")]
    assert listed[-1][1] == "n}" and listed[-1][0].startswith("CAST((SELECT max(w)"), subquery
    assert con.execute("SHOW ERRORS FOR w").fetchall() == [
        ("t", f"{{'b': {b}}}", "b * 4611686018427387904",
         f"Out of Range Error: Overflow in multiplication of INT64 ({b} * 4611686018427387904)!") for b in (2, 3, 4)
    ]  # fmt: skip
    lagged = "lag(v) OVER (ORDER BY a)"
    assert [(row, text) for _, row, text, _ in con.execute("SHOW ERRORS FOR x").fetchall()] == [
        (f"{{'{lagged}': {value}}}", f"CAST({lagged} AS INT)") for value in "yz"
    ]
    con.execute("DELETE FROM t WHERE v <> '5'")
    con.execute("DELETE FROM s")
    assert [con.execute(f"SHOW ERRORS FOR {name}").fetchall() for name in "vx"] == [[], []]
    con.execute(f"CREATE MATERIALIZED VIEW z {NULLED} AS SELECT median(DISTINCT v::INT) + sum(a) AS m FROM t")
    con.execute("INSERT INTO t VALUES (8, 'q')")
    [(table, row, text, _)] = con.execute("SHOW ERRORS FOR z").fetchall()
    assert (table, row, text) == ("t", "{'a': 8, 'v': q}", "CAST(v AS INT)")
    con.execute("DELETE FROM t WHERE a = 8")
    con.execute(f"CREATE MATERIALIZED VIEW y {NULLED} AS SELECT part(v) AS p FROM t; INSERT INTO t VALUES (9, 'z')")
    assert sorted(con.execute("FROM y").fetchall(), key=str) == [(6,), (None,)]
    assert [row for _, row, *_ in con.execute("SHOW ERRORS FOR y").fetchall()] == ["{'a': 9, 'v': z}"]


def test_sums_of_doubles_keep_their_plan(con):
    con.execute("CREATE TABLE d (k BIGINT, x DOUBLE)")
    query = "SELECT sum(e.x * d.x) AS s FROM d JOIN d AS e USING (k)"
    con.execute(f"CREATE MATERIALIZED VIEW nulled {NULLED} AS {query}")
    con.execute(f"CREATE MATERIALIZED VIEW plain AS {query}")
    assert con.explain("nulled").to_dict()["cost"] == con.explain("plain").to_dict()["cost"]
    con.execute("INSERT INTO d VALUES (1, 1e308), (1, 1.0), (2, 3.0)")
    assert con.execute("FROM nulled").fetchall() == con.execute("FROM plain").fetchall()


def test_what_is_refused_is_named(con):
    con.execute("CREATE CHANGE TABLE passing (v VARCHAR) WITH (retain = false)")
    con.execute(f"CREATE MATERIALIZED VIEW v {NULLED} AS SELECT CAST(v AS INT) AS x FROM passing")
    con.execute("INSERT INTO passing VALUES ('x')")
    assert con.execute("FROM v").fetchall() == [(None,)]
    with pytest.raises(sqlfront.ProgrammingError, match="errors of materialized view v cannot be listed"):
        con.execute("SHOW ERRORS FOR v")
    with pytest.raises(sqlfront.ProgrammingError, match="nosuch"):
        con.execute(f"CREATE MATERIALIZED VIEW w {NULLED} AS SELECT CAST(nosuch AS INT) AS x FROM t")


def test_a_value_that_is_null_has_not_failed(con):
    con.execute(
        f"CREATE MATERIALIZED VIEW v {NULLED} AS SELECT a, CAST(v AS INT) AS x FROM t WHERE 7 // a IS NULL OR a > 1"
    )
    con.execute("INSERT INTO t VALUES (2, NULL), (NULL, 'x'), (0, 'y'), (1, 'z')")
    found = con.execute("SHOW ERRORS FOR v").fetchall()
    assert {row for _, row, _, _ in found} == {"{'a': NULL, 'v': x}", "{'a': 0, 'v': y}"}


@pytest.mark.parametrize("expression", ["a + b", "a - -b", "a * a", "-a - b - b"])
def test_arithmetic_that_overflows_is_listed(con, expression):
    con.execute("CREATE TABLE wide (a INTEGER, b INTEGER)")
    con.execute(f"CREATE MATERIALIZED VIEW over WITH (on_error = 'null') AS SELECT {expression} AS n FROM wide")
    con.execute("INSERT INTO wide VALUES (2147483647, 1), (1, 1), (NULL, 1)")
    [(table, row, _, message)] = con.execute("SHOW ERRORS FOR over").fetchall()
    assert table == "wide" and "'a': 2147483647" in row and "Overflow" in message
    con.execute("DELETE FROM wide WHERE a > 1")
    assert con.execute("SHOW ERRORS FOR over").fetchall() == []

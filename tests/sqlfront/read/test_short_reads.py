"""Small reads without DuckDB give what DuckDB gives: rows, names and types, whatever has happened in between."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

import sqlfront
from sqlfront.read import short_reads

VIEWS = {
    "v": "SELECT k, g, sum(x) AS s, count(*) AS n, count(x) AS m, avg(x) AS a FROM t GROUP BY k, g",
    "by_k": "SELECT k AS key, sum(x) AS s, count(*) AS n FROM t GROUP BY k",
    "bag": "SELECT k, g, x FROM t",
    "joined": "SELECT t.k, t.g, u.w FROM t JOIN u USING (k)",
    "exact": "SELECT k, sum(x * 1.5) AS s, avg(x * 1.5) AS a FROM t GROUP BY k",
    "total": "SELECT sum(x) AS s, count(*) AS n FROM t WHERE x > 1000",
    "copies": "SELECT k % 2 AS k FROM t",
    "ends": "SELECT k, min(g) AS g, max(x) AS x, count(DISTINCT g) AS n, min(x * 0.5) AS h FROM t GROUP BY k",
    "whole": "SELECT max(x) AS x, count(DISTINCT k) AS n FROM t WHERE x > 50",
    "first": "SELECT k, x, g FROM t ORDER BY x DESC, k LIMIT 20",
}


@pytest.fixture
def con() -> Any:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (k INTEGER, g VARCHAR, x BIGINT); CREATE TABLE u (k INTEGER, w DOUBLE)")
    con.execute("INSERT INTO t SELECT i % 7, ['a', 'it''s', NULL][i % 3 + 1], i FROM range(60) r(i)")
    con.execute("INSERT INTO t VALUES (NULL, 'a', NULL), (3, 'a', NULL), (3, 'a', NULL)")
    con.execute("INSERT INTO u SELECT i, i / 2 FROM range(9) r(i)")
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return con


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each read was a short one."""
    found: list[bool] = []
    read = short_reads.read_shortly

    def noted(session: Any, text: str, params: Any) -> bool:
        has_read = read(session, text, params)
        found.append(has_read and session.unread is None)
        return has_read

    monkeypatch.setattr(short_reads, "read_shortly", noted)
    return found


def compare(con: Any, text: str, params: Any = None) -> Any:
    """The rows of a read of a view, and as DuckDB reads the view's query."""
    names = {name: f"({query})" for name, query in VIEWS.items()}
    [name] = [name for name in names if f"FROM {name} " in text]
    alias = "" if f"FROM {name} AS " in text else f" AS {name}"
    judge = text.replace(f"FROM {name} ", f"FROM {names[name]}{alias} ")
    found = con.execute(text, params)
    labels, rows = found.description, sorted(found.fetchall(), key=repr)
    table, frame = con.execute(text, params).to_arrow_table(), con.execute(text, params).df()
    right = con.execute(judge, params)
    assert labels == right.description
    expected = sorted(right.fetchall(), key=repr)
    assert list(map(repr, rows)) == list(map(repr, expected))
    assert table.schema == con.execute(judge, params).to_arrow_table().schema
    assert frame.dtypes.equals(con.execute(judge, params).df().dtypes) and len(frame) == table.num_rows == len(rows)
    return rows


READS = [
    ("SELECT * FROM by_k WHERE key = 3", None),
    ("SELECT * FROM by_k WHERE key = 99", None),
    ("select S, n as Many, key FROM by_k WHERE 3 = KEY", None),
    ("SELECT q.s FROM by_k AS q WHERE q.key = ?", [4]),
    ("SELECT * FROM v WHERE k = 1 AND g = 'it''s'", None),
    ("SELECT a, m FROM v WHERE g = ? AND k = 3", ["a"]),
    ("SELECT * FROM joined WHERE k = 2", None),
    ("SELECT * FROM first ORDER BY x DESC, k LIMIT 5", None),
    ("SELECT g, k FROM first ORDER BY x DESC LIMIT ?", [3]),
    ("SELECT * FROM first ORDER BY x DESC LIMIT 100", None),
    ("SELECT * FROM by_k ", None),
    ("SELECT m, q.k FROM v AS q", None),
    ("SELECT * FROM exact ", None),
    ("SELECT * FROM ends ", None),
    ("SELECT * FROM ends WHERE k = 3", None),
]


def test_short_reads_are_what_duckdb_reads(con: Any, short: list[bool]) -> None:
    before = []
    for text, params in READS:
        short.clear()
        before.append(compare(con, text, params))
        assert short[0], f"{text} was not short"
    con.execute("INSERT INTO t VALUES (3, 'a', 1000), (99, 'it''s', 7), (1, 'it''s', 2000)")
    con.session.database.root.cursor().execute("INSERT INTO t VALUES (2, 'a', 5), (4, 'a', 3000)")
    con.execute("INSERT INTO u VALUES (2, 'nan')")
    for (text, params), rows in zip(READS, before):
        assert compare(con, text, params) != rows or "100" in text, text
    con.execute("DELETE FROM t")
    for text, params in READS:
        assert compare(con, text, params) == [], text


OTHER_READS = [
    ("SELECT * FROM by_k WHERE key = 3.5", None),
    ("SELECT * FROM by_k WHERE key = '3'", None),
    ("SELECT * FROM by_k WHERE key = 3 -- one", None),
    ("SELECT * FROM by_k WHERE key = ?", [None]),
    ("SELECT * FROM by_k WHERE key = ?", ["3"]),
    ("SELECT * FROM by_k WHERE key = ?", [2.5]),
    ("SELECT * FROM by_k WHERE key = ?", [True]),
    ("SELECT * FROM by_k WHERE key = -1", None),
    ("SELECT * FROM by_k WHERE key = 99999999999", None),
    ("SELECT * FROM by_k WHERE key = 1 OR key = 2", None),
    ("SELECT * FROM by_k WHERE key = 1 AND n = 3", None),
    ("SELECT s + 1 AS t FROM by_k WHERE key = 1", None),
    ("SELECT * FROM v WHERE g = 'a' COLLATE nocase", None),
    ("SELECT * FROM bag WHERE k = 3", None),
    ("SELECT DISTINCT k FROM bag WHERE k = 3", None),
    ("SELECT * FROM first WHERE k = 3", None),
    ("SELECT * FROM first ORDER BY x DESC, k LIMIT 5 OFFSET 2", None),
    ("SELECT * FROM first ORDER BY x, k LIMIT 5", None),
    ("SELECT * FROM joined ", None),
    ("SELECT * FROM first ", None),
    ("SELECT * FROM total ", None),
    ("SELECT * FROM copies ", None),
    ("SELECT * FROM whole ", None),
]


def test_any_other_read_is_right_too(con: Any) -> None:
    for text, params in OTHER_READS:
        compare(con, text, params)
        compare(con, text, params)


def test_all_rows_are_short_while_they_are_few(con: Any, short: list[bool]) -> None:
    text = "SELECT * FROM copies "
    for write, rows, is_short in (
        ("DELETE FROM t WHERE k = 99", 63, True),
        ("INSERT INTO t (k) VALUES (3), (3)", 65, False),
        ("DELETE FROM t WHERE k = 3", 52, True),
    ):
        con.execute(write)
        short.clear()
        assert len(compare(con, text)) == rows and short[0] == is_short


def test_dates_that_python_does_not_have_are_shown_by_duckdb() -> None:
    con, query = sqlfront.connect(), "SELECT k, d, count(*) AS n FROM t GROUP BY k, d"
    con.execute(f"CREATE TABLE t (k INTEGER, d DATE); CREATE MATERIALIZED VIEW v AS {query}")
    for day in ("2020-02-29", "infinity", "-infinity", "0044-03-15 (BC)", "12000-01-01"):
        con.execute("INSERT INTO t VALUES (1, ?)", [day])
        assert sorted(map(repr, con.execute("SELECT * FROM v").fetchall())) == sorted(
            map(repr, con.execute(query).fetchall())
        )
        con.execute("DELETE FROM t")


def test_a_remembered_plan_ends_when_its_name_means_something_else(con: Any, short: list[bool]) -> None:
    text = "SELECT * FROM by_k WHERE key = 3"
    rows = con.execute(text).fetchall()
    assert short == [True]
    con.execute("CREATE TEMP TABLE by_k AS SELECT 3 AS key, 'temporary' AS s")
    assert con.execute(text).fetchall() == [(3, "temporary")]
    con.execute("DROP TABLE temp.by_k")
    assert con.execute(text).fetchall() == rows
    con.register("by_k", con.sql("SELECT 3 AS key, 'registered' AS s").to_arrow_table())
    assert con.execute(text).fetchall() == [(3, "registered")]
    con.unregister("by_k")
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW by_k AS SELECT k AS key, max(x) AS top FROM t GROUP BY k")
    assert con.execute(text).fetchall() == con.execute("SELECT k, max(x) FROM t WHERE k = 3 GROUP BY k").fetchall()
    con.execute("DROP MATERIALIZED VIEW by_k")
    with pytest.raises(sqlfront.Error, match="by_k"):
        con.execute(text)


def test_an_order_is_that_of_the_settings(con: Any) -> None:
    con.execute("CREATE MATERIALIZED VIEW up AS SELECT k, x FROM t ORDER BY x DESC NULLS LAST, k LIMIT 70")
    text = "SELECT x FROM up ORDER BY x LIMIT 2"
    assert con.execute(text).fetchall() == [(0,), (1,)]
    con.cursor().execute("SET GLOBAL default_order = 'DESC'")
    assert con.execute(text).fetchall() == [(59,), (58,)]
    con.execute("RESET GLOBAL default_order")
    assert con.execute(text).fetchall() == [(0,), (1,)]


def test_a_transaction_reads_its_own_changes(con: Any) -> None:
    text, view = "SELECT n FROM by_k WHERE key = 3", con.view("by_k")
    [(n,)] = con.execute(text).fetchall()
    con.execute("BEGIN; INSERT INTO t VALUES (3, 'a', 1)")
    assert con.execute(text).fetchall() == [(n + 1,)]
    assert view.get(3)[2] == n + 1
    assert con.cursor().execute(text).fetchall() == [(n,)]
    con.execute("ROLLBACK")
    assert con.execute(text).fetchall() == [(n,)]
    con.execute("BEGIN")
    assert con.execute(text).fetchall() == [(n,)]
    con.cursor().execute("INSERT INTO t VALUES (3, 'a', 1)")
    assert con.execute(text).fetchall() == [(n,)]
    con.execute("ROLLBACK")
    assert con.execute(text).fetchall() == [(n + 1,)]


def test_get_gives_the_row_of_a_group(con: Any) -> None:
    rows = {row[:2]: row for row in con.view("v").rows()}
    view, keys = con.view("v"), [*rows, (8, "a"), (3, "nobody"), (2.0, "a"), ("2", "a")]
    expected = [*rows.values(), None, None, rows.get((2, "a")), rows.get((2, "a"))]
    assert [view.get(*key) for key in keys] == expected
    assert view.get_many(keys) == expected
    con.session.database.root.cursor().execute("INSERT INTO t VALUES (8, 'a', 5)")
    assert view.get(8, "a") == (8, "a", 5, 1, 1, 5.0)
    assert con.view("by_k").get(None) == (None, None, 1)
    for wrong in ([(1,)], ["ab"], [7]):
        with pytest.raises(sqlfront.ProgrammingError, match="no key of v") as caught:
            view.get_many(wrong)
        assert caught.value.hint == "get(k, g), or get_many([(k, g), ...])" and "2 values" in (caught.value.why or "")
    with pytest.raises(sqlfront.ProgrammingError, match="7 is no key of by_k") as caught:
        con.view("by_k").get_many([7, 8])
    assert caught.value.hint == "get(key), or get_many([(key,), ...])" and "one value, (key,)" in str(caught.value)
    with pytest.raises(sqlfront.ProgrammingError, match="has no key"):
        con.view("bag").get(1)
    con.execute("DROP MATERIALIZED VIEW v")
    with pytest.raises(sqlfront.ProgrammingError, match="dropped or replaced"):
        view.get(8, "a")


def test_get_follows_every_change() -> None:
    con, choice = sqlfront.connect(), random.Random(5)
    con.execute("CREATE CHANGE TABLE c (k INTEGER, j BIGINT, x BIGINT) WITH (retain = true)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s, j, count(x) AS m, k, count(*) AS n FROM c GROUP BY k, j"
    )
    view, held = con.view("v"), list[tuple[Any, ...]]()
    for step in range(150):
        if held and choice.random() < 0.4:
            con.apply_row("c", held.pop(choice.randrange(len(held))), weight=-1)
        else:
            x = choice.choice([None, step, -step, 2**62])
            held.append((choice.randrange(3), choice.randrange(2), x))
            con.apply_row("c", held[-1])
        rows = {(row[3], row[1]): row for row in con.execute("SELECT * FROM v").fetchall()}
        keys = [(k, j) for k in range(3) for j in range(2)]
        assert [view.get(j, k) for k, j in keys] == [rows.get(key) for key in keys]
    assert view._quick is not None
    assert view.cost()["read_steps"] > 0
    con.execute("BEGIN; INSERT INTO c VALUES (7, 7, 7)")
    assert view.get(7, 7) == (7, 7, 1, 7, 1)
    con.execute("ROLLBACK")
    assert view.get(7, 7) is None
    con.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT j, k, max(x) AS s FROM c GROUP BY k, j")
    with pytest.raises(sqlfront.ProgrammingError, match="dropped or replaced"):
        view.get(7, 7)
    view = con.view("v")
    con.close()
    with pytest.raises(sqlfront.InterfaceError, match="closed"):
        view.get(7, 7)


def test_sums_beyond_a_word_and_beyond_their_type() -> None:
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE c (k BIGINT, x BIGINT, h HUGEINT)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, sum(x) AS s, sum(h) AS big FROM c GROUP BY k")
    con.execute(f"INSERT INTO c VALUES (1, {2**62}, {2**100})")
    assert con.view("v").get(1) == (1, 2**62, 2**100)
    for _ in range(3):
        con.execute(f"INSERT INTO c VALUES (1, {2**62}, {-(2**101)})")
    assert con.view("v").get(1) == (1, 2**64, -5 * 2**100)
    assert con.execute("SELECT * FROM v WHERE k = 1").fetchall() == [(1, 2**64, -5 * 2**100)]
    con.execute(f"INSERT INTO c VALUES (2, 1, {2**126}), (2, 1, {2**126})")
    with pytest.raises(sqlfront.DataError):
        con.execute("SELECT * FROM v WHERE k = 2").fetchall()


def test_the_shape_of_a_text() -> None:
    assert short_reads.shape_of("SELECT a1, \"b2\" FROM v WHERE k = 12 AND g = 'it''s' LIMIT 3") == (
        'SELECT a1, "b2" FROM v WHERE k = ? AND g = ? LIMIT ?',
        (12, "it's", 3),
    )
    for text in ("a = e'x'", "a = $1", "a = ?1", "a /* 1 */", "a = $$x$$", "a = 'x' 'y'", "a = 'x' -- y"):
        assert short_reads.shape_of(text) is None or "'" in short_reads.shape_of(text)[0], text
    assert short_reads.shape_of("k = 1.5 OR k = 1e3 OR k = 0x1F OR k = 1_000")[1] == ()


def test_rows_as_arrow_have_the_types_that_duckdb_exports() -> None:
    settings = ("threads = 1", "arrow_lossless_conversion = true", "arrow_large_buffer_size = true",
                "arrow_output_version = '1.5'")  # fmt: skip
    kinds = {
        "BOOLEAN": "true", "TINYINT": "-3", "SMALLINT": "7", "INTEGER": "8", "BIGINT": "-9223372036854775808",
        "UTINYINT": "200", "USMALLINT": "7", "UINTEGER": "4000000000", "UBIGINT": "18446744073709551615",
        "FLOAT": "0.1", "DOUBLE": "-0.0", "VARCHAR": "'ä'", "DATE": "'2026-01-02'",
        "TIMESTAMP": "'2026-01-02 03:04:05.000006'", "DECIMAL(4,1)": "1.5", "DECIMAL(15,2)": "-2.25",
        "DECIMAL(38,3)": "99999999999999999999999999999999999.125", "TIME": "'10:00'", "UUID": "uuid()::VARCHAR",
    }  # fmt: skip
    con = sqlfront.connect()
    grouped = "SELECT x, count(*) AS n, sum(k) AS s FROM t{} GROUP BY x"
    for number, (kind, value) in enumerate(kinds.items()):
        con.execute(f"CREATE TABLE t{number} (k INTEGER, x {kind})")
        con.execute(f"INSERT INTO t{number} VALUES (1, {value}), (2, NULL), (2, {value})")
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {grouped.format(number)}")
        if number % 5 == 0:
            con.execute(f"FROM v{number}").to_arrow_table()  # Under other settings.
    for setting in settings:
        con.execute(f"SET {setting}")
        for (number, kind), limit in product(enumerate(kinds), ("", " LIMIT 0")):
            found = con.execute(f"FROM v{number}{limit}").to_arrow_table()
            own = con.execute(grouped.format(number) + limit).to_arrow_table()
            assert found.schema.equals(own.schema, check_metadata=True), (setting, kind)
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, own.to_pylist())), (setting, kind)
        con.execute(f"RESET {setting.partition(' ')[0]}")

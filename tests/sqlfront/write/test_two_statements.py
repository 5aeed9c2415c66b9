"""Upserts and MERGE of one row give what DuckDB gives, whether they run as two statements or as they are written."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import pytest

import sqlfront
from sqlfront.write import dml

TABLE = (
    "CREATE TABLE t (k INTEGER PRIMARY KEY, g VARCHAR UNIQUE, n BIGINT CHECK (n < 100), m BIGINT AS (n + 1), d DATE)"
)
ROWS = "INSERT INTO t (k, g, n) VALUES (1, 'a', 10), (2, 'b', 20)"
INTO = "INSERT INTO t (k, g, n) VALUES"
MERGE = "MERGE INTO t USING (SELECT {} AS k, {} AS n) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = s.n "
TWICE = [
    f"{INTO} (1, 'x', 7) ON CONFLICT (k) DO UPDATE SET n = excluded.n, g = 'it''s'",
    f"{INTO} (5, 'x', 7) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
    f"{INTO} (1, 'x', 700) ON CONFLICT (k) DO UPDATE SET g = 'z'",
    f"{INTO} (1, 'b', 7) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
    f"{INTO} (NULL, 'b', -7) ON CONFLICT (g) DO UPDATE SET n = excluded.n",
    f"{INTO} (9, 'b', 7) on conflict (G) do update set N = Excluded.K;",
    "INSERT INTO main.t VALUES (2, 'c', 7, '2024-02-29') ON CONFLICT (k) DO UPDATE SET d = excluded.d, g = NULL",
    MERGE.format(2, 7) + "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)",
    MERGE.format("5::INTEGER", 7) + "WHEN NOT MATCHED THEN INSERT VALUES (s.k, 'new', s.n, NULL);",
    MERGE.format("NULL", 7) + "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (8, s.n)",
]
OTHERWISE = [
    f"{INTO} (5, 'b', 7) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
    f"{INTO} (1, 'x', 700) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
    f"{INTO} (1, 'x', 7) ON CONFLICT (k) DO UPDATE SET k = 3",
    f"{INTO} (1, 'x', 'y') ON CONFLICT (k) DO UPDATE SET n = 1",
    f"{INTO} (1, 'x', 7) ON CONFLICT (n) DO UPDATE SET n = 1",
    f"{INTO} (1, 'x', 7) ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n",
    f"{INTO} (1, 'x', 7), (3, 'y', 7) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
    f"{INTO} (1, 'x', 7) ON CONFLICT (k) DO UPDATE SET n = excluded.n WHERE false",
    "INSERT OR REPLACE INTO t (k, g, n) VALUES (1, 'x', 7)",
    MERGE.format(2, 700) + "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)",
    MERGE.format(2, 7) + "WHEN NOT MATCHED THEN DO NOTHING",
    MERGE.format("(SELECT 2)", 7) + "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)",
    MERGE.format("'5'::INTEGER", 7) + "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)",
    # What is wrong in the half that does not run is refused.
    *(
        f"{INTO} (9, 'x', 7) ON CONFLICT (k) DO UPDATE SET {sets}"
        for sets in ("o = 1", "m = 4", "n = 'y'", "n = 1, n = 2")
    ),
    *(
        MERGE.format(1, 7) + f"WHEN NOT MATCHED THEN INSERT {row}"
        for row in (
            "(k, o) VALUES (s.k, s.n)",
            "(k) VALUES (s.k, s.n)",
            "VALUES (s.k, 'x', s.n, NULL, 1)",
            "(k, n) VALUES (t.k, s.n)",
            "(k, n) VALUES (s.k, 'y')",
            "(k, k) VALUES (s.k, s.n)",
        )
    ),
    MERGE.format(1, "'y'") + "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, 3)",
]


@pytest.mark.parametrize("statement", [*TWICE, *OTHERWISE])
def test_a_statement_changes_what_duckdb_changes(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    con, plain, twice = sqlfront.connect(), duckdb.connect(), list[Any]()
    write = dml._write_twice
    monkeypatch.setattr(dml, "_write_twice", lambda *given: twice.append(write(*given)) or twice[-1])
    for one in (con, plain):
        one.execute(f"{TABLE}; {ROWS}")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, sum(m) AS s, max(d) AS d, count(*) AS c FROM t GROUP BY g")
    con.execute("FROM v").fetchall()
    try:
        expected = plain.execute(statement).fetchall()
    except duckdb.Error as error:
        with pytest.raises(sqlfront.Error) as caught:
            con.execute(statement)
        assert str(error).partition("\n")[0][:40] in str(caught.value)
    else:
        assert con.execute(statement).fetchall() == expected
    assert con.execute("FROM t ORDER BY ALL").fetchall() == plain.execute("FROM t ORDER BY ALL").fetchall()
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert con.session.database.capture.pending(con.session.duck).tables == {}
    assert (twice and twice[0] is not None) == (statement in TWICE)


def test_rows_that_only_the_key_can_refuse_are_updated_first() -> None:
    """Nothing of the INSERT is run where there is a row; random statements beside DuckDB's own."""
    con, plain, random = sqlfront.connect(), duckdb.connect(), Random(5)
    for one in (con, plain):
        one.execute("CREATE TABLE p (k INTEGER PRIMARY KEY, g VARCHAR NOT NULL, n DECIMAL(6, 2), d DOUBLE)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT g, sum(n) AS s, sum(d) AS d, count(*) AS c FROM p GROUP BY g; FROM v"
    )
    ran: dict[str, int] = {"upsert": 0, "merge": 0, "error": 0}
    for step in range(60):
        k, g, n = (
            random.randrange(8),
            random.choice(["'a'", "'it''s'", "NULL"]),
            random.choice(["7", "1.25", "-3", "NULL"]),
        )
        cast = random.choice(["", "::BIGINT", "::SMALLINT"])
        kind, statement = random.choice(
            [
                (
                    "upsert",
                    f"INSERT INTO p VALUES ({k}, {g}, {n}, 2) ON CONFLICT (k) DO UPDATE SET n = excluded.n, d = {step}",
                ),
                (
                    "upsert",
                    f"INSERT INTO p (d, n, g, k) VALUES (0.5, {n}, {g}, {k}) ON CONFLICT (k) DO UPDATE SET g = 'u'",
                ),
                (
                    "merge",
                    f"MERGE INTO p AS x USING (SELECT {k}{cast} AS k, {n} AS n) AS s ON x.k = s.k "
                    f"WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT VALUES (s.k, {g}, s.n, 1)",
                ),
            ]
        )
        answers = []
        for one in (con, plain):
            try:
                answers.append(one.execute(statement).fetchall())
            except (sqlfront.Error, duckdb.Error) as error:
                answers.append(str(error).partition("\n")[0][:40])
        assert answers[0] == answers[1], statement
        ran["error" if isinstance(answers[0], str) else kind] += 1
        assert con.execute("FROM p ORDER BY k").fetchall() == plain.execute("FROM p ORDER BY k").fetchall(), statement
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert con.session.database.capture.pending(con.session.duck).tables == {}
    assert min(ran.values()) > 2


@pytest.mark.parametrize(
    "column", ["k VARCHAR COLLATE NOCASE PRIMARY KEY", "k VARCHAR PRIMARY KEY", "k DOUBLE PRIMARY KEY"]
)
@pytest.mark.parametrize("key", ["'a'", "'A'", "'c'", "1", "1.1", "NULL"])
def test_a_key_is_met_as_duckdb_meets_it(column: str, key: str) -> None:
    first = "1.1" if "DOUBLE" in column else "'a'"
    answers = []
    for con in (sqlfront.connect(), duckdb.connect()):
        con.execute(f"CREATE TABLE t ({column}, n BIGINT); INSERT INTO t VALUES ({first}, 1)")
        if isinstance(con, sqlfront.Connection):
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(n) AS s FROM t; FROM v")
        for statement in (
            f"INSERT INTO t VALUES ({key}, 10) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
            f"MERGE INTO t USING (SELECT {key} AS k, 5 AS n) AS s ON s.k = t.k "
            "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.n)",
        ):
            try:
                answers.append(con.execute(statement).fetchall())
            except (sqlfront.Error, duckdb.Error):
                answers.append("error")
            answers.append(con.execute("FROM t ORDER BY ALL").fetchall())
        if isinstance(con, sqlfront.Connection):
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert answers[:4] == answers[4:]


def test_text_keys_conflict_by_the_collation_as_in_duckdb() -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (k VARCHAR PRIMARY KEY, n BIGINT); INSERT INTO t VALUES ('a', 1), ('A', 2)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(n) AS s FROM t; FROM v")
    con.execute("SET default_collation = 'nocase'")
    con.execute("INSERT INTO t VALUES ('a', 10) ON CONFLICT (k) DO UPDATE SET n = excluded.n")
    assert con.execute("SELECT n FROM t ORDER BY n").fetchall() == [(10,), (10,)]
    assert con.execute("FROM v").fetchall() == [(20,)]


@pytest.mark.parametrize("row", ["(1, 1.26, 0, 0)", "(1, NULL, 0, 0)", "(1, 7, 0, 0)", "(2, 1.26, 0, 0)"])
def test_excluded_is_the_value_of_its_own_column(row: str) -> None:
    """1.26 is 1.3 in the column of one decimal place, and 1.3 in each column that takes it from there."""
    answers = []
    for con in (sqlfront.connect(), duckdb.connect()):
        con.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, a DECIMAL(4, 1), x DOUBLE, y DECIMAL(6, 2))")
        con.execute("INSERT INTO t VALUES (1, 0, 0, 0)")
        if isinstance(con, sqlfront.Connection):
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s FROM t")
        con.execute(f"INSERT INTO t VALUES {row} ON CONFLICT (k) DO UPDATE SET x = excluded.a, y = excluded.a")
        answers.append(con.execute("FROM t ORDER BY k").fetchall())
    assert answers[0] == answers[1]

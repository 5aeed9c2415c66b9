"""Durable change tables: their rows, their views and their sources' offsets come back, whatever ended the process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.write.dml import unit

CRASHING = Path(__file__).parent / "crashing.py"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "durable.duckdb")


def rows(con, query):
    return sorted(con.execute(query).fetchall(), key=repr)


def log_rows(path):
    """The logs of a closed file: {number: [(weight, ...)]}."""
    with duckdb.connect(path, read_only=True) as con:
        names = con.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'log_%'").fetchall()
        return {name: con.execute(f"SELECT * EXCLUDE epoch FROM __sqlfront.{name}").fetchall() for (name,) in names}


@pytest.mark.parametrize("snapshot", ["on", "off"])
@pytest.mark.parametrize("retain", ["true", "false"])
def test_a_change_table_in_a_file_survives(path, retain, snapshot):
    config = {"sqlfront_snapshot": snapshot}
    with sqlfront.connect(path, config=config) as con:
        con.execute(f"CREATE CHANGE TABLE c (a BIGINT, s VARCHAR) WITH (retain = {retain})")
        con.execute("CREATE TABLE t (a BIGINT, b VARCHAR)")
        con.execute(
            "CREATE MATERIALIZED VIEW x AS SELECT b, count(*) AS n, max(s) AS m FROM t JOIN c USING (a) GROUP BY b"
        )
        con.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        con.apply({"c": pa.table({"a": [1, 1, 2, None], "s": ["p", "q", None, "r"]})})
        con.apply_row("c", (1, "q"), -1)
        con.execute("INSERT INTO c VALUES (2, 'z')")
        expected = rows(con, "FROM x")
    assert expected == [("x", 1, "p"), ("y", 2, "z")]
    for _ in range(2):
        with sqlfront.connect(path, config=config) as con:
            assert rows(con, "FROM x") == expected
            [shown] = con.execute("SHOW CHANGE TABLES").to_arrow_table().to_pylist()
            assert shown["durable"] and shown["status"] == "ready"
    with sqlfront.connect(path, config=config) as con:
        con.apply_row("c", (2, "z"), -1)
        assert rows(con, "FROM x") == [("x", 1, "p"), ("y", 1, None)]
        with pytest.raises(sqlfront.IntegrityError, match="deleted more often"):
            con.apply_row("c", (2, "z"), -1)
        if retain == "false":
            with pytest.raises(sqlfront.ProgrammingError, match="rows have passed already"):
                con.execute("CREATE MATERIALIZED VIEW y AS SELECT s FROM c")
        else:
            assert rows(con, "FROM c") == rows(con, "VALUES (1, 'p'), (2, NULL), (NULL, 'r')")


def test_what_is_rolled_back_or_refused_is_not_logged(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT)")
        con.execute("CREATE TABLE t (a BIGINT PRIMARY KEY)")
        con.execute("CREATE MATERIALIZED VIEW x AS SELECT a FROM c JOIN t USING (a)")
        con.execute("BEGIN; INSERT INTO c VALUES (1); ROLLBACK")
        with pytest.raises(sqlfront.IntegrityError):
            con.apply({"c": pa.table({"a": [5, 6], "_weight": [1, -1]})})
        con.execute("BEGIN; INSERT INTO c VALUES (3); INSERT INTO t VALUES (3)")
        assert rows(con, "FROM x") == [(3,)]
        con.execute("COMMIT")
        con.apply({"c": pa.table({"a": [8, 8], "_weight": [1, -1]})})
    assert log_rows(path) == {"log_1": [(1, 3)]}


@pytest.mark.parametrize("how", ["close", "checkpoint"])
def test_a_log_is_compacted(path, how):
    con = sqlfront.connect(path)
    con.execute("CREATE CHANGE TABLE c (a BIGINT, s VARCHAR)")
    con.execute("CREATE CHANGE TABLE d (a BIGINT NOT NULL, s VARCHAR NOT NULL, n INTEGER) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW x AS SELECT a, count(*) AS k FROM d WHERE n > 0 GROUP BY a")
    for number in range(4):
        con.apply({"c": pa.table({"a": [number], "s": ["A" if number % 2 else "a"]})})
        con.apply({"d": pa.table({"a": [number % 2], "s": [f"unread {number}"], "n": [1]})})
    con.apply({"c": pa.table({"a": [0, 1], "s": ["a", "A"], "_change_type": ["delete", "delete"]})})
    if how == "checkpoint":
        con.execute("CHECKPOINT")
        con.session.database.log._appended.clear()  # Nothing to do at the end.
    con.close()
    logs = log_rows(path)
    assert sorted(logs["log_1"]) == [(1, 2, "a"), (1, 3, "A")]
    assert sorted(logs["log_2"]) == [(2, 0, None, 1), (2, 1, None, 1)]
    with sqlfront.connect(path) as con:
        assert rows(con, "FROM x") == [(0, 2), (1, 2)]


def test_compaction_keeps_apart_what_a_collation_takes_for_equal(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE CHANGE TABLE c (s VARCHAR)")
        con.execute("INSERT INTO c VALUES ('a'), ('A'), ('A')")
        con.execute("SET GLOBAL default_collation = 'nocase'")
        con.execute("CHECKPOINT")
    assert sorted(log_rows(path)["log_1"]) == [(1, "a"), (2, "A")]


def test_a_log_that_grows_is_compacted_by_itself(path, monkeypatch):
    monkeypatch.setattr("sqlfront.storage.outside.change_log.COMPACT_FROM", 10)
    with sqlfront.connect(path) as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT)")
        for number in range(60):
            con.apply_row("c", (number % 2,), 1 if number % 4 < 2 else -1)
            assert con.session.database.log.count(con.session.database.reader_cursor(), 1) <= 12


@pytest.mark.parametrize("type_", [
    "TINYINT", "HUGEINT", "UBIGINT", "DOUBLE", "DECIMAL(38, 4)", "DATE", "TIMESTAMP_NS", "TIME", "INTERVAL", "UUID",
    "BLOB", "BOOLEAN", "ENUM('a', 'b')", "BIT", "TIMESTAMP WITH TIME ZONE",
])  # fmt: skip
def test_every_type_comes_back(path, type_):
    values = {
        "TINYINT": ["-128", "127"], "HUGEINT": ["-170141183460469231731687303715884105728", "5"],
        "UBIGINT": ["18446744073709551615", "0"], "DOUBLE": ["'NaN'", "-0.0", "1e308"],
        "DECIMAL(38, 4)": ["1234567890123456789012345678901234.5678"], "DATE": ["'infinity'", "'1999-12-31'"],
        "TIMESTAMP_NS": ["'2020-01-01 00:00:00.123456789'"], "TIME": ["'23:59:59.999999'"],
        "INTERVAL": ["'1 month 40 days 3 us'"], "UUID": ["'c0ffee00-0000-4000-8000-000000000001'"],
        "BLOB": ["'\\x00\\xFF'"], "BOOLEAN": ["true", "false"], "ENUM('a', 'b')": ["'b'"], "BIT": ["'0101'"],
        "TIMESTAMP WITH TIME ZONE": ["'2020-01-01 12:00:00+02'"],
    }[type_]  # fmt: skip
    with sqlfront.connect(path) as con:
        con.execute(f"CREATE CHANGE TABLE c (a {type_}, b VARCHAR)")
        for value in [*values, "NULL"]:
            con.execute(f"INSERT INTO c VALUES (CAST({value} AS {type_}), 'x')")
        expected = rows(con, "SELECT CAST(a AS VARCHAR) FROM c")
        assert len(expected) == len(values) + 1
    with sqlfront.connect(path) as con:
        assert rows(con, "SELECT CAST(a AS VARCHAR) FROM c") == expected
        con.execute("DELETE FROM c")
        assert rows(con, "FROM c") == []


def test_durable_is_told_and_dropped(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT)")
        con.execute("INSERT INTO c VALUES (1)")
        con.execute("CREATE OR REPLACE CHANGE TABLE c (b VARCHAR)")
        con.execute("INSERT INTO c VALUES ('x')")
        con.execute("CREATE CHANGE TABLE d (a BIGINT) WITH (durable = false)")
        con.execute("CREATE CHANGE TABLE e (a BIGINT)")
        con.execute("TRUNCATE c")
        con.execute("DROP CHANGE TABLE e")
    assert log_rows(path) == {"log_2": []}
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT)")
        assert con.execute("SHOW CHANGE TABLES").to_arrow_table().to_pylist()[0]["durable"] is False
        with pytest.raises(sqlfront.NotSupportedError, match="no file to keep it in"):
            con.execute("CREATE CHANGE TABLE d (a BIGINT) WITH (durable = true)")


def test_offsets_are_committed_with_their_epoch(path):
    def note(con, position, fails=False):
        table = con.session.database.change_tables["main", "c"]
        con.session.ready()
        with unit(con.session) as transaction:
            transaction.add(table, pa.table({"a": pa.array([position], pa.int64())}), None)
            transaction.note_offset(table, "orders", {"version": position})
            if fails:
                raise ValueError("on the way")

    with sqlfront.connect(path) as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT)")
        note(con, 1)
        note(con, 2)
        with pytest.raises(ValueError, match="on the way"):
            note(con, 3, fails=True)
        assert list(con.session.database.offsets.values()) == [{"version": 2}]
    with sqlfront.connect(path) as con:
        assert con.session.database.offsets == {(1, "orders"): {"version": 2}}
        assert rows(con, "FROM c") == [(1,), (2,)]
        con.execute("DROP CHANGE TABLE c")
        assert con.session.database.offsets == {}


def test_a_read_only_file_shows_what_was_logged(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW x AS SELECT DISTINCT a FROM c")
        con.execute("INSERT INTO c VALUES (1), (1)")
    with sqlfront.connect(path, config={"access_mode": "READ_ONLY"}) as con:
        assert rows(con, "FROM x") == [(1,)] and rows(con, "FROM c") == [(1,), (1,)]
        with pytest.raises(sqlfront.ProgrammingError, match="read-only"):
            con.execute("INSERT INTO c VALUES (2)")


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_come_back(path, seed):
    """After each reopening the table is what the changes add up to."""
    rng = random.Random(seed)
    held: Counter = Counter()
    for reopening in range(3):
        with sqlfront.connect(path) as con:
            if not reopening:
                con.execute("CREATE CHANGE TABLE c (a BIGINT, s VARCHAR, d DOUBLE)")
                con.execute("CREATE MATERIALIZED VIEW x AS SELECT s, count(*) AS n, sum(d) AS d FROM c GROUP BY s")
            assert Counter(con.execute("FROM c").fetchall()) == held
            assert con.execute("CHECK MATERIALIZED VIEW x").fetchall() == []
            for _ in range(5):
                new = [
                    (rng.randrange(3), rng.choice([None, "", "é", "a"]), rng.choice([0.5, 1e300, None])) for _ in "abc"
                ]
                gone = rng.sample(sorted(held.elements(), key=repr), min(2, held.total()))
                changed = [*new, *gone]
                columns = dict(zip("asd", map(list, zip(*changed)), strict=True))
                weights = [1] * len(new) + [-1] * len(gone)
                con.apply({"c": pa.table({**columns, "_weight": weights})})
                held.update(new)
                held.subtract(gone)
                held = +held


def crashes(path, steps, *options):
    """For each crashing process on the file: the epochs it found, and the last it had done."""
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[3]))
    command = [sys.executable, str(CRASHING), path, *options, *map(str, steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    told = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    for _ in steps:
        end = next((i for i, line in enumerate(told) if line[0] == "ended"), None)
        assert end is not None, done.stdout + done.stderr
        mine, how, told = told[:end], int(told[end][1]), told[end + 1 :]
        assert mine and mine[0][0] == "found" and not mine[0][1].startswith("None"), done.stdout + done.stderr
        assert how == (0 if mine[-1] == ["closed"] else -signal.SIGKILL), done.stderr
        found = int(mine[0][1])
        yield found, max([found, *(int(line[1]) for line in mine if line[0] == "done")])


def check_crashes(path, steps, *options):
    last = 0
    for step, (found, done) in zip(steps, crashes(path, steps, *options)):
        assert last <= found <= last + 1, f"killed after epoch {last}, then step {step} found {found}"
        last = done


@pytest.mark.parametrize(
    "steps", [["COMMIT:1", "COMMIT:2", 60, 0], pytest.param([32, 41, 57, 64, 10_000, 0], marks=pytest.mark.slow)]
)
def test_a_killed_process_loses_nothing_and_doubles_nothing(path, steps):
    check_crashes(path, steps)


@pytest.mark.slow
def test_every_step_may_be_the_last(path):
    check_crashes(path, [*range(1, 120), 10_000, 0])


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 50, 100])
def test_every_change_of_the_file_or_its_snapshot_may_be_the_last(path, first):
    """Some at a time on one file: a process that finds all epochs computes what they add up to."""
    check_crashes(path, [*range(first, first + 50), 10_000, 0], "changes")

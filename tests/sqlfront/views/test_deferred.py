"""Views WITH (apply = 'on read'): equal to their queries for every reader, after random changes; what is refused."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import sqlfront
from tests.slices import parts

ON_READ = "WITH (apply = 'on read')"
VIEWS = {
    "light": ("", "SELECT a, count(*) AS n FROM t GROUP BY a"),
    "joined": (ON_READ, "SELECT t.a, sum(b) AS s, count(*) AS n FROM t JOIN c ON t.a = c.k GROUP BY t.a"),
    "pairs": (ON_READ, "SELECT x.a, y.b FROM t AS x JOIN t AS y ON x.b = y.a"),
    "middle": (ON_READ, "SELECT a, median(b) AS m FROM t GROUP BY a"),
    "kinds": (ON_READ, "SELECT DISTINCT b, v FROM t LEFT JOIN c ON b = k"),
    "first": (ON_READ, "SELECT a, b FROM t ORDER BY b DESC NULLS LAST, a LIMIT 3"),
    "over_light": (ON_READ, "SELECT n, count(*) AS m FROM light GROUP BY n"),
    "over_middle": (ON_READ, "SELECT max(m) AS m, count(*) AS n FROM middle"),
    "held": (ON_READ, "SELECT b, mode(a) AS m FROM t GROUP BY b"),
    "over_held": ("", "SELECT m, count(*) AS n FROM held GROUP BY m"),
    "together": (ON_READ, "SELECT max(b) AS x FROM t UNION ALL SELECT min(v) FROM c"),
}


def create(con, names=VIEWS):
    con.execute("CREATE TABLE t (a BIGINT, b BIGINT)")
    con.execute("CREATE CHANGE TABLE c (k BIGINT, v BIGINT) WITH (retain = true)")
    con.execute("INSERT INTO t VALUES (1, 2), (2, 2), (NULL, 1)")
    for name in names:
        options, query = VIEWS[name]
        con.execute(f"CREATE MATERIALIZED VIEW {name} {options} AS {query}")


class Stream:
    """Random statements on t and c, and reads of views in each of the ways there are."""

    def __init__(self, con, seed):
        self.con, self.random = con, random.Random(seed)
        self.reads, self.feeds = Counter(), {}

    def value(self):
        return self.random.choice([None, 1, 1, 2, 3, 4])

    def change(self):
        con, value = self.con, self.value
        kind = self.random.randrange(7)
        if kind == 0:
            con.execute("INSERT INTO t VALUES (?, ?), (?, ?)", [value(), value(), value(), value()])
        elif kind == 1:
            con.execute("DELETE FROM t WHERE a IS NOT DISTINCT FROM ?", [value()])
        elif kind == 2:
            con.execute("UPDATE t SET b = ? WHERE a = ?", [value(), value()])
        elif kind == 3:
            con.execute("INSERT INTO c VALUES (?, ?)", [value(), value()])
        elif kind == 4:
            con.execute("DELETE FROM c WHERE k = ?", [value()])
        elif kind == 5:
            con.apply_row("c", (value(), value()))
        else:
            con.apply({"c": pa.table({"k": pa.array([value()], pa.int64()), "v": pa.array([value()], pa.int64())})})

    def fail(self):
        """An epoch that is refused changes nothing, and lets nothing wait."""
        with pytest.raises(sqlfront.IntegrityError):
            self.con.apply({"c": pa.table({"k": [77], "v": [77], "_weight": [-1]})})

    def check(self, con, name):
        wanted = Counter(con.execute(VIEWS[name][1]).fetchall())
        how = self.random.randrange(4)
        self.reads[name, how] += 1
        if how == 0:
            found = con.execute(f"FROM {name}").fetchall()
        elif how == 1:
            found = con.view(name).rows()
        elif how == 2:
            assert con.view(name).count() == wanted.total(), name
            return
        else:
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []
            return
        assert Counter(found) == wanted, name

    def transact(self):
        con = self.con
        con.execute("BEGIN")
        for _ in range(self.random.randrange(1, 4)):
            self.change()
            if self.random.random() < 0.6:
                self.check(con, self.random.choice(list(VIEWS)))
        other = con.cursor()
        name = self.random.choice(list(VIEWS))
        self.check(other, name)
        con.execute(self.random.choice(["COMMIT", "ROLLBACK"]))

    def subscribe(self):
        name = self.random.choice(["joined", "middle", "kinds", "over_middle", "over_light", "over_held"])
        if name not in self.feeds:
            self.feeds[name] = self.con.view(name).subscribe(), Counter()

    def replay(self, *, close):
        for name, (feed, rows) in list(self.feeds.items()):
            changes = feed.poll()
            for *row, kind, _, _ in [] if changes is None else zip(*(column.to_pylist() for column in changes.columns)):
                rows[tuple(row)] += 1 if kind in ("insert", "update_postimage") else -1
            assert +rows == Counter(self.con.execute(VIEWS[name][1]).fetchall()), name
            if close:
                feed.close()
                del self.feeds[name]

    def step(self):
        dice = self.random.random()
        if dice < 0.6:
            self.change()
        elif dice < 0.65:
            self.fail()
        elif dice < 0.8:
            self.transact()
        elif dice < 0.85:
            self.subscribe()
        elif dice < 0.9:
            self.replay(close=self.random.random() < 0.5)
        elif dice < 0.92:
            self.con.execute(f"REFRESH MATERIALIZED VIEW {self.random.choice(list(VIEWS))}")
        else:
            self.check(self.con, self.random.choice(list(VIEWS)))


@pytest.mark.parametrize("seed", parts(12))
def test_a_deferred_view_equals_its_query_for_every_reader(seed):
    with sqlfront.connect() as con:
        create(con)
        stream = Stream(con, seed)
        for _ in range(30 if seed else 12):
            stream.step()
        stream.replay(close=False)
        for name in VIEWS:
            stream.check(con, name)
        stream.replay(close=True)
        con.execute("DELETE FROM t")
        con.execute("DELETE FROM c")
        for name in VIEWS:
            assert Counter(con.execute(f"FROM {name}").fetchall()) == Counter(con.execute(VIEWS[name][1]).fetchall())
        kept = {"leaf", "view", "message", "groups", "waiting", "dictionary", "table"}
        state = [row for row in con.execute("SHOW STATE").fetchall() if row[2] in kept and row[0] not in ("first",)]
        assert [row for row in state if row[2] == "waiting"] == []


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        create(con, ["light", "joined", "middle"])
        yield con


def waiting(con, name):
    return sum(row[3] for row in con.execute(f"SHOW STATE FOR {name}").fetchall() if row[2] == "waiting")


def test_changes_wait_until_the_view_is_named(con):
    built = con.view("middle").cost()["steps"]
    con.execute("INSERT INTO t SELECT i % 5, i FROM range(100) AS r(i)")
    con.execute("FROM light").fetchall()
    assert (waiting(con, "middle"), waiting(con, "joined")) == (100, 100)
    assert con.view("middle").cost()["steps"] == built
    explained = con.execute("EXPLAIN MATERIALIZED VIEW middle").fetchall()
    assert ("waiting", "100 changed rows, until the view is read") in explained
    assert any("its changes wait until it is read" in value for _, value in explained)
    con.execute("CREATE VIEW plain AS SELECT * FROM middle")
    con.execute("CREATE MACRO rows() AS TABLE SELECT * FROM plain")
    wanted = con.execute(VIEWS["middle"][1] + " ORDER BY ALL").fetchall()
    assert con.execute("FROM rows() ORDER BY ALL").fetchall() == wanted
    assert (waiting(con, "middle"), waiting(con, "joined")) == (0, 100)
    con.execute("INSERT INTO t VALUES (9, 9)")
    con.execute("PREPARE p AS SELECT count(*) FROM middle")
    assert con.execute("EXECUTE p").fetchall() == [(len(wanted) + 1,)]
    con.execute("INSERT INTO t VALUES (10, 10)")
    assert con.sql("SELECT * FROM query('SELECT count(*) FROM mid' || 'dle')").fetchall() == [(len(wanted) + 2,)]
    relation = con.sql("SELECT count(*) FROM middle")
    con.execute("INSERT INTO t VALUES (11, 11)")
    assert relation.fetchall() == con.sql("FROM relation").fetchall() == [(len(wanted) + 3,)]


def test_check_reads_what_the_query_of_the_view_reads(con):
    con.execute(f"CREATE MATERIALIZED VIEW rows_ {ON_READ} AS SELECT a, v FROM t JOIN c ON a = k")
    con.execute("CREATE MATERIALIZED VIEW inlined WITH (on_error = 'null') AS SELECT a, 1 // v AS x FROM rows_")
    con.execute("INSERT INTO c VALUES (1, 0), (2, 1)")
    assert con.execute("CHECK MATERIALIZED VIEW inlined").fetchall() == [] and waiting(con, "rows_") == 0
    con.execute("INSERT INTO t VALUES (2, 5)")
    [(table, row, expression, message)] = con.execute("SHOW ERRORS FOR inlined").fetchall()
    assert (table, row, expression) == ("rows_", "{'a': 1, 'v': 0}", "1 // v") and "(1 // v)" in message
    assert waiting(con, "rows_") == 0


def test_what_came_and_went_is_never_looked_at(con):
    con.execute("FROM middle").fetchall()
    before = con.view("middle").cost()["steps"]
    con.execute("INSERT INTO t SELECT 1, i FROM range(1000) AS r(i)")
    con.execute("DELETE FROM t WHERE a = 1 AND b <> 2")
    con.execute("DELETE FROM t WHERE a = 1 AND b = 2")
    con.execute("INSERT INTO t VALUES (1, 2)")
    assert waiting(con, "middle") > 1000
    con.execute("FROM middle").fetchall()
    assert con.view("middle").cost()["steps"] - before < 20 and waiting(con, "middle") == 0


def test_a_plain_view_of_another_connection_is_not_read_stale(tmp_path):
    with sqlfront.connect(tmp_path / "d") as con:
        create(con, ["middle"])
        con.execute("FROM middle").fetchall()
        con.session.duck.execute("CREATE VIEW hidden AS SELECT count(*) AS n FROM middle")
        con.execute("INSERT INTO t VALUES (9, 9)")
        try:
            found = con.execute("FROM hidden").fetchall()
        except sqlfront.StaleRead:
            found = con.execute("FROM hidden").fetchall()
        assert found == [(4,)]


def test_who_gave_rows_may_overwrite_them(con):
    import numpy as np

    keys, values = np.array([1, 2]), np.array([5, 5])
    con.apply({"c": pa.table({"k": pa.array(keys), "v": pa.array(values)})})
    con.apply({"c": pa.record_batch({"k": pa.array(keys), "v": pa.array(values)})})
    keys[:] = 99
    con.execute("CHECK MATERIALIZED VIEW joined")
    assert con.fetchall() == []


def test_a_reader_of_another_view_reads_on(con):
    con.execute("INSERT INTO t SELECT i, i FROM range(10000) AS r(i)")
    reader = con.cursor().sql("FROM light").to_arrow_reader(1000)
    first = reader.read_next_batch()
    con.execute("FROM middle").fetchall()
    rest = reader.read_all()
    assert first.num_rows + rest.num_rows == 10000 + 1


def test_too_many_rows_are_applied_without_a_read(con, monkeypatch):
    monkeypatch.setattr("sqlfront.maintenance.relation.waiting.HELD_ROWS", 50)
    for _ in range(3):
        con.execute("INSERT INTO t SELECT 7, 7 FROM range(40) AS r(i)")
    assert waiting(con, "middle") < 50  # Equal rows are one: they wait.
    con.execute("INSERT INTO t SELECT i, i FROM range(45) AS r(i)")
    assert waiting(con, "middle") == 0
    assert con.execute("CHECK MATERIALIZED VIEW middle").fetchall() == []


DIVIDED = "SELECT a, sum(CAST(v AS INTEGER)) AS s FROM t JOIN d ON a = k GROUP BY a"


def test_a_row_that_it_cannot_take_is_the_readers_error_until_it_goes(con):
    con.execute("CREATE TABLE d (k BIGINT, v VARCHAR)")
    con.execute(f"CREATE MATERIALIZED VIEW cast_ {ON_READ} AS {DIVIDED}")
    con.execute("INSERT INTO d VALUES (1, '5')")
    assert con.execute("FROM cast_").fetchall() == [(1, 5)]
    con.execute("INSERT INTO d VALUES (2, 'five')")
    con.execute("INSERT INTO d VALUES (2, '7')")
    for read in (lambda: con.execute("FROM cast_").fetchall(), con.view("cast_").count, con.view("cast_").subscribe):
        with pytest.raises(sqlfront.DataError, match=r"(?s)cast_ cannot take the changes that wait.*v = 'five'"):
            read()
    assert con.execute("SELECT count(*) FROM light").fetchall() == [(3,)]
    con.execute("DELETE FROM d WHERE v = 'five'")
    assert sorted(con.execute("FROM cast_").fetchall()) == [(1, 5), (2, 7)]


def test_too_many_rows_that_it_cannot_take_break_it(con, monkeypatch):
    monkeypatch.setattr("sqlfront.maintenance.relation.waiting.HELD_ROWS", 50)
    con.execute("CREATE TABLE d (k BIGINT, v VARCHAR)")
    con.execute(f"CREATE MATERIALIZED VIEW cast_ {ON_READ} AS {DIVIDED}")
    con.execute("INSERT INTO d VALUES (1, 'five')")
    con.execute("INSERT INTO d SELECT i, '1' FROM range(100) AS r(i)")
    with pytest.raises(sqlfront.OperationalError, match=r"(?s)cannot be trusted.*more than .* rows waited"):
        con.execute("FROM cast_").fetchall()
    con.execute("DELETE FROM d WHERE v = 'five'")
    con.execute("REFRESH MATERIALIZED VIEW cast_")
    assert con.execute("CHECK MATERIALIZED VIEW cast_").fetchall() == []


def test_while_somebody_subscribes_an_epoch_that_it_cannot_take_is_refused(con):
    con.execute("CREATE TABLE d (k BIGINT, v VARCHAR)")
    con.execute(f"CREATE MATERIALIZED VIEW cast_ {ON_READ} AS {DIVIDED}")
    with con.view("cast_").subscribe():
        with pytest.raises(sqlfront.DataError, match="cast_ cannot take a row of d"):
            con.execute("INSERT INTO d VALUES (2, 'five')")
        con.execute("INSERT INTO d VALUES (2, '5')")
        assert waiting(con, "cast_") == 0
    con.execute("INSERT INTO d VALUES (2, '6')")
    assert waiting(con, "cast_") == 1


def test_altered_dropped_and_opened_again(tmp_path):
    with sqlfront.connect(tmp_path / "d") as con:
        create(con, ["middle", "over_middle", "joined"])
        con.execute("INSERT INTO t VALUES (5, 6)")
        con.execute("INSERT INTO c VALUES (5, 6)")
        con.execute("ALTER MATERIALIZED VIEW joined SET (apply = 'at commit')")
        con.execute("INSERT INTO t VALUES (5, 7)")
        assert waiting(con, "joined") == 0 and waiting(con, "middle") == 2
        assert con.execute("CHECK MATERIALIZED VIEW joined").fetchall() == []
        con.execute("ALTER MATERIALIZED VIEW joined SET (apply = 'on read')")
        con.execute("INSERT INTO t VALUES (5, 8)")
        assert waiting(con, "joined") == 1
    with sqlfront.connect(tmp_path / "d") as con:
        con.execute("INSERT INTO t VALUES (5, 9)")
        for name in ("middle", "over_middle", "joined"):
            assert waiting(con, name) == (2 if name == "over_middle" else 1)  # One group of middle has changed.
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []
        anew = "SELECT a, mode(b) AS m FROM t GROUP BY a"
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW middle {ON_READ} AS {anew}")
        con.execute("INSERT INTO t VALUES (5, 9)")
        assert con.execute("CHECK MATERIALIZED VIEW over_middle").fetchall() == []
        con.execute("DROP MATERIALIZED VIEW middle CASCADE")
        con.execute("DROP MATERIALIZED VIEW joined")
        con.execute("DROP TABLE t")
        assert set(con.session.database.engine.relations) == {"main.c"}


def test_tables_may_change_below_it(con):
    con.execute("INSERT INTO t VALUES (5, 6)")
    con.execute("ALTER TABLE t ADD COLUMN z BIGINT")
    con.execute("INSERT INTO t VALUES (5, 7, 1)")
    con.execute("CREATE MATERIALIZED VIEW sees_z AS SELECT z, count(*) AS n FROM t GROUP BY z")
    con.execute("INSERT INTO t VALUES (5, 8, 1)")
    assert con.execute("CHECK MATERIALIZED VIEW middle").fetchall() == []
    con.execute("INSERT INTO t VALUES (5, 9, 1)")
    con.execute("ALTER TABLE t RENAME COLUMN b TO bb")
    con.execute("INSERT INTO t VALUES (5, 10, 1)")
    con.execute("ALTER TABLE t RENAME TO tt")
    con.execute("INSERT INTO tt VALUES (5, 11, 1)")
    for name in ("middle", "joined", "sees_z"):
        assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []


def test_what_is_refused_is_named(con):
    con.execute("CREATE CHANGE TABLE passing (a BIGINT) WITH (retain = false)")
    refused = {
        f"CREATE MATERIALIZED VIEW x {ON_READ} AS SELECT count(*) AS n FROM passing": "passing was created",
        "ALTER MATERIALIZED VIEW middle SET (apply = 'never')": "its values: 'at commit', 'on read'",
    }
    for statement, message in refused.items():
        with pytest.raises(sqlfront.Error, match=f"(?s){message}"):
            con.execute(statement)


def test_a_view_at_commit_over_a_deferred_view_listens_to_it(tmp_path):
    """The deferred view waits no longer while such a view reads it, in transactions, for listeners, and anew."""
    with sqlfront.connect(tmp_path / "d") as con:
        create(con, ["light", "middle"])
        con.execute("INSERT INTO t VALUES (5, 6)")
        assert waiting(con, "middle") == 1
        over = "SELECT count(*) AS n, sum(a) AS s FROM middle"
        con.execute(f"CREATE MATERIALIZED VIEW over_ AS {over}")
        con.execute("CREATE MATERIALIZED VIEW twice AS SELECT n + 1 AS n FROM over_")
        with con.view("twice").subscribe(snapshot=False) as feed:
            con.execute("INSERT INTO t VALUES (6, 6), (7, 6)")
            assert waiting(con, "middle") == 0 and feed.poll().num_rows == 2
        for end in ("ROLLBACK", "COMMIT"):
            con.execute("BEGIN")
            con.execute("DELETE FROM t WHERE a = 6")
            con.execute("INSERT INTO t VALUES (8, 8), (9, NULL)")
            assert con.execute("FROM over_").fetchall() == con.execute(over).fetchall()
            con.execute(end)
            assert con.execute("CHECK MATERIALIZED VIEW twice").fetchall() == []
        con.apply_row("t", (11, 11))
        assert con.execute("CHECK MATERIALIZED VIEW over_").fetchall() == [] and waiting(con, "middle") == 0
    with sqlfront.connect(tmp_path / "d") as con:
        con.execute("INSERT INTO t VALUES (10, 10)")
        for name in ("middle", "over_", "twice"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == [] and waiting(con, name) == 0
        con.execute("ALTER MATERIALIZED VIEW over_ SET (apply = 'on read')")
        con.execute("INSERT INTO t VALUES (12, 12)")
        assert waiting(con, "middle") == 0  # `twice` reads `over_`, and over_ reads middle.
        con.execute("DROP MATERIALIZED VIEW twice")
        con.execute("INSERT INTO t VALUES (13, 13)")
        assert waiting(con, "middle") == 1
        con.execute("ALTER MATERIALIZED VIEW over_ SET (apply = 'at commit')")
        con.execute("INSERT INTO t VALUES (14, 14)")
        assert con.execute("FROM over_").fetchall() == con.execute(over).fetchall() and waiting(con, "middle") == 0
        con.execute("ALTER MATERIALIZED VIEW light SET (apply = 'on read')")
        con.execute("DELETE FROM t")
        for name in ("light", "middle", "over_"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []


def test_rows_wait_in_whatever_types_they_came(con):
    con.execute("CREATE CHANGE TABLE d (k BIGINT, s VARCHAR, h HUGEINT, u UUID)")
    con.execute(f"CREATE MATERIALIZED VIEW texts {ON_READ} AS SELECT s, h, u, count(*) AS n FROM d GROUP BY ALL")
    con.apply_row("d", (1, "x", None, None))
    con.apply_row("d", (2, "x", None, None))  # On the fast path, as Python values.
    con.execute("INSERT INTO d VALUES (3, 'x', 7, '00000000-0000-0000-0000-000000000007'), (4, 'y', 7, NULL)")
    con.apply({"d": con.sql("FROM d WHERE k = 3").to_arrow_table()})
    con.apply({"d": con.sql("SELECT *, -1 AS _weight FROM d WHERE k = 4").to_arrow_table()})
    assert waiting(con, "texts") == 6
    assert con.execute("CHECK MATERIALIZED VIEW texts").fetchall() == []
    assert con.execute("SELECT sum(n) FROM texts").fetchall() == [(4,)]


def test_a_listener_closes_the_fast_path_of_rows(con):
    con.apply_row("c", (1, 1))
    con.apply_row("c", (1, 2))
    assert waiting(con, "joined") == 2
    with con.view("joined").subscribe(snapshot=False) as feed:
        con.apply_row("c", (2, 3))
        assert feed.poll().num_rows == 1 and waiting(con, "joined") == 0
    con.apply_row("c", (2, 4))
    con.apply_row("c", (2, 5))
    assert waiting(con, "joined") == 2
    assert con.execute("CHECK MATERIALIZED VIEW joined").fetchall() == []


def test_a_sum_that_gets_wider_in_a_transaction_is_read_there(con):
    query = "SELECT t.a, sum(t.b * c.v) AS s FROM t JOIN c ON a = k GROUP BY t.a"
    con.execute(f"CREATE MATERIALIZED VIEW wide {ON_READ} AS {query}")
    con.execute("FROM wide").fetchall()
    con.execute("BEGIN")
    con.execute("INSERT INTO c VALUES (1, 2), (1, 4000000000000000000), (1, 4000000000000000000)")
    con.execute("INSERT INTO t SELECT 1, 2 FROM range(3)")
    wanted = con.execute(query).fetchall()
    assert con.execute("FROM wide").fetchall() == wanted and wanted
    con.execute("ROLLBACK")
    assert con.execute("CHECK MATERIALIZED VIEW wide").fetchall() == []

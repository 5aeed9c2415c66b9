"""Random DML of every kind: the captured changes, replayed, give the table after every step.

An uncaptured twin database runs the same statements: it says what DuckDB itself would have done,
results and errors included.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlfront.storage.capture.capture import Capture, QualifiedName

KEYED = QualifiedName("main", "keyed")
LOOSE = QualifiedName("main", "Loose")
ODD = QualifiedName("odd schema", 'Ta"ble, x')
SCHEMA = [
    "CREATE SEQUENCE numbers",
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TABLE keyed(k INTEGER PRIMARY KEY, v VARCHAR COLLATE nocase, d DECIMAL(9, 2) DEFAULT 1.5, "
    "unread INTEGER, g BIGINT GENERATED ALWAYS AS (k + coalesce(unread, 0)))",
    "CREATE TABLE \"Loose\"(a INTEGER, b VARCHAR, m mood, n INTEGER DEFAULT nextval('numbers'), l INTEGER[])",
    'CREATE SCHEMA "odd schema"',
    'CREATE TABLE "odd schema"."Ta""ble, x"("select" INTEGER, "a b" INTEGER, "q""q" HUGEINT, '
    'UNIQUE ("select", "a b"), CHECK ("q""q" > 0))',
]
COLUMNS = {KEYED: ["k", "v", "d", "g"], LOOSE: ["a", "b", "m", "l"], ODD: ["select", "a b", 'q"q']}


def texts(table: QualifiedName) -> str:
    """The captured columns as text: Arrow has no HUGEINT, and the same value must look the same."""
    return ", ".join('"' + name.replace('"', '""') + '"::VARCHAR' for name in COLUMNS[table])


def is_upsert(statement: str) -> bool:
    """Whether DuckDB refuses the statement on a table with triggers."""
    words = statement.lower()
    return any(
        w in words for w in ("on conflict", "or replace", "merge ")
    ) and "conflict do nothing" not in words.replace("(k) ", "")


class Stream:
    """A captured database, its twin and the replayed copies, stepped together."""

    def __init__(self, path: str, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.con, self.twin = duckdb.connect(path), duckdb.connect()
        self.raw = self.con.cursor()
        for statement in SCHEMA:
            self.con.execute(statement)
            self.twin.execute(statement)
        [(database,)] = self.con.execute("SELECT current_database()").fetchall()
        self.capture = Capture(database)
        for table, columns in COLUMNS.items():
            self.capture.install(self.con, {table: columns})
        self.copy: dict[QualifiedName, Counter[str]] = {table: Counter() for table in COLUMNS}
        self.open: dict[QualifiedName, Counter[str]] | None = None
        self.changed, self.failed, self.kinds = 0, 0, Counter()

    def rows(self, con: Any, table: QualifiedName) -> Counter[str]:
        return Counter(str(row) for row in con.execute(f"SELECT {texts(table)} FROM {table}").fetchall())

    def replay(self, copy: dict[QualifiedName, Counter[str]], own: bool | None) -> None:
        if self.random.random() < 0.5:
            batches = self.capture.take(self.con, own=own)
        else:
            pending = self.capture.pending(self.con, own=own)
            batches = pending.tables
            self.capture.consume(self.con, pending)
        for table, batch in batches.items():
            assert batch.column_names == [*COLUMNS[table], "_weight"]
            for *row, weight in self.con.execute(f"SELECT {texts(table)}, _weight FROM batch").fetchall():
                copy[table][str(tuple(row))] += weight
            copy[table] += Counter()  # drops the zeros, and anything negative: the comparison then fails

    def run(self, table: QualifiedName, statement: str, parameters: Any = None, many: bool = False) -> None:
        """One statement, in autocommit or in the open transaction."""
        inside = self.open is not None
        before = self.rows(self.con, table)
        expected = self._twin(statement, parameters, many)
        if not inside:
            self.con.execute("BEGIN")
        try:
            if is_upsert(statement):
                got = self.capture.run_upsert_or_merge(
                    self.con, table, statement, parameters, in_transaction=True, many=many
                )
                actual = Counter(str(tuple(row.values())) for row in got.to_pylist())
            elif many:
                self.con.executemany(statement, parameters).fetchall()
                actual = expected
            else:
                fetched = self.con.execute(statement, parameters).fetchall()
                actual = Counter(str(row) for row in fetched)
        except duckdb.Error as error:
            actual = type(error).__name__
        self.kinds[statement.split()[0].upper()] += 1
        if isinstance(expected, str):
            assert actual == expected, f"{statement}: {actual} instead of {expected}"
            self.failed += 1
            self._rollback()
        else:
            if "returning" in statement.lower():
                assert actual == expected, statement
            assert not isinstance(actual, str), f"{statement}: {actual}"
            copy = self.open if self.open is not None else {t: Counter(c) for t, c in self.copy.items()}
            self.replay(copy, own=None)
            self.compare(copy, statement)
            self.changed += before != copy[table]
            if not inside:
                self.con.execute("COMMIT")
                self.copy = copy
        self.compare(self.open or self.copy, statement)

    def _twin(self, statement: str, parameters: Any, many: bool) -> Counter[str] | str:
        try:
            if many:
                self.twin.executemany(statement, parameters).fetchall()
                return Counter()
            if is_upsert(statement) and "returning" in statement.lower():  # those come as Arrow
                rows = self.twin.sql(statement, params=parameters).to_arrow_table().to_pylist()
                return Counter(str(tuple(row.values())) for row in rows)
            return Counter(str(row) for row in self.twin.execute(statement, parameters).fetchall())
        except duckdb.Error as error:
            return type(error).__name__

    def _rollback(self) -> None:
        self.con.execute("ROLLBACK")
        if self.open is not None:
            self.twin.execute("ROLLBACK")
            self.open = None

    def compare(self, copy: dict[QualifiedName, Counter[str]], what: str) -> None:
        for table in COLUMNS:
            truth = self.rows(self.con, table)
            assert truth == self.rows(self.twin, table), f"the twin differs after {what}"
            assert copy[table] == truth, f"{table} after {what}: {copy[table]} instead of {truth}"

    def begin(self) -> None:
        self.con.execute("BEGIN")
        self.twin.execute("BEGIN")
        self.open = {table: Counter(rows) for table, rows in self.copy.items()}

    def commit(self) -> None:
        self.con.execute("COMMIT")
        self.twin.execute("COMMIT")
        self.copy, self.open = self.open or self.copy, None

    def rollback(self) -> None:
        self._rollback()
        self.compare(self.copy, "ROLLBACK")

    def bypass(self, statement: str) -> None:
        """A raw connection of the same process writes; its changes are found and caught up with."""
        try:
            self.twin.execute(statement)
        except duckdb.Error:
            with pytest.raises(duckdb.Error):
                self.raw.execute(statement)
            return
        before = {table: self.rows(self.con, table) for table in COLUMNS}
        self.raw.execute(statement)
        if before != {table: self.rows(self.con, table) for table in COLUMNS}:
            assert self.capture.check(self.con)
        self.con.execute("BEGIN")
        self.replay(self.copy, own=False)
        self.con.execute("COMMIT")
        assert not self.capture.check(self.con)
        self.compare(self.copy, f"foreign {statement}")

    # -- values and statements

    def key(self) -> int:
        return self.random.randrange(8)

    def value(self) -> Any:
        return self.random.choice([None, 0, 1, 2, 3, 5, 9])

    def text(self) -> str:
        return self.random.choice(["NULL", "'a'", "'A'", "'b'", "'é; -- x'", "'conflict'", "''"])

    def literal(self) -> str:
        value = self.value()
        return "NULL" if value is None else str(value)

    def keyed(self) -> tuple[str, Any, bool]:
        """A statement on `keyed`."""
        k, j, r = self.key(), self.key(), self.random
        if r.random() < 0.12:
            return r.choice(
                [
                    ("INSERT OR REPLACE INTO keyed(k, v) VALUES (?, ?)", [[k, "m"], [j, "n"], [k, "o"]], True),
                    ("INSERT INTO keyed(k, v) VALUES (?, ?) ON CONFLICT DO NOTHING", [[k, "m"], [j, "n"]], True),
                ]
            )
        into = r.choice(["INTO", "into /* where */", "INTO -- é\n"])
        statements = [*self.upserts(into), *self.merges(into)] if r.random() < 0.6 else self.plain(into)
        return (*r.choice(statements), False)

    def plain(self, into: str) -> list[tuple[str, Any]]:
        """Statements on `keyed` that change each row as they say."""
        k, j, v, w, r = self.key(), self.key(), self.text(), self.text(), self.random
        returning = r.choice(["", "", " RETURNING *", " RETURNING k + 1 AS next, v, g"])
        name = self.random.choice(["keyed", "main.keyed", '"KEYED"'])
        return [
            (f"INSERT {into} {name} VALUES ({k}, {v}, {j}, NULL){returning}", None),
            (f"INSERT {into} keyed(v, k) SELECT {v}, {k}{returning}", None),
            (f"INSERT {into} keyed BY NAME SELECT {k} AS k, {j} AS unread", None),
            (f"INSERT {into} keyed(k, v) VALUES ({k}, {v}), ({j}, {w}) ON CONFLICT DO NOTHING{returning}", None),
            ("INSERT INTO keyed(k, v) VALUES (?, ?) ON CONFLICT (k) DO NOTHING", [k, "?"]),
            (f"UPDATE keyed SET v = {v}, k = k + {r.choice([0, 0, 8, -8])} WHERE k % 3 = {k % 3}{returning}", None),
            (f"UPDATE keyed SET unread = {self.literal()}{returning}", None),
            ("UPDATE keyed SET d = l.a FROM \"Loose\" l WHERE l.a = keyed.k AND l.b = 'a'", None),
            (f"DELETE FROM keyed WHERE k = {k}{returning}", None),
            ('DELETE FROM keyed USING (SELECT DISTINCT a FROM "Loose") l WHERE l.a = keyed.k', None),
        ]

    def upserts(self, into: str) -> list[tuple[str, Any]]:
        """Statements on `keyed` that update rows where a key is there."""
        k, j, v, w, r = self.key(), self.key(), self.text(), self.text(), self.random
        returning = r.choice(["", "", " RETURNING *", " RETURNING k + 1 AS next, v, g"])
        name = self.random.choice(["keyed", "main.keyed", '"KEYED"'])
        update = "ON CONFLICT (k) DO UPDATE SET"
        return [
            (f"INSERT OR REPLACE {into} {name}(k, v) VALUES ({k}, {v}), ({j}, {w}){returning}", None),
            (f"INSERT OR REPLACE INTO keyed VALUES ({k}, {v}, DEFAULT, {j});", None),
            (f"INSERT OR REPLACE INTO keyed BY NAME SELECT {k} AS k, {v} AS v{returning}", None),
            (f"INSERT OR REPLACE INTO keyed BY NAME SELECT {k} AS d, {v} AS v", None),
            ("INSERT OR REPLACE INTO keyed(k, d) SELECT k, d + 1 FROM keyed", None),
            (f"INSERT {into} keyed AS x (k, v) VALUES ({k}, {v}) {update} v = excluded.v || x.v{returning}", None),
            (
                f"INSERT {into} keyed(k, v) (SELECT {k}, {v}) "
                f"ON CONFLICT DO UPDATE SET k = excluded.k + 8, v = 'moved'{returning}",
                None,
            ),
            (
                'INSERT INTO keyed(k) SELECT a FROM "Loose" WHERE a IS NOT NULL GROUP BY a '
                f"{update} d = 7 WHERE keyed.k > {k}",
                None,
            ),
            (f"INSERT INTO keyed(k, v, d) VALUES (?, ?, ?) {update} v = ?, d = excluded.d", [k, "p", j, "q"]),
            (f"INSERT INTO keyed(k, v) VALUES ($k, $v) {update} v = $v || $w", {"k": k, "v": "n", "w": "m"}),
            (f"WITH c AS (SELECT {k} AS k) INSERT INTO keyed(k) FROM c ON CONFLICT DO UPDATE SET v = 'cte'", None),
            (f"INSERT INTO keyed(k) WITH c AS (SELECT {k} AS k) FROM c ON CONFLICT DO UPDATE SET v = 'cte'", None),
        ]

    def merges(self, into: str) -> list[tuple[str, Any]]:
        """MERGE statements on `keyed`."""
        k, j, v, w, r = self.key(), self.key(), self.text(), self.text(), self.random
        merged = r.choice(["", "", " RETURNING merge_action, *", " RETURNING k, d"])
        rows = f"(VALUES ({k}, {v}), ({j + 8 if k == j else j}, {w})) s(k, v)"
        matched = r.choice(
            [
                "WHEN MATCHED THEN UPDATE SET v = s.v",
                "WHEN MATCHED AND keyed.k > 3 THEN UPDATE SET v = s.v, d = d + 1 WHEN MATCHED THEN DELETE",
                f"WHEN MATCHED THEN UPDATE SET k = keyed.k + {r.choice([0, 8])}",
                "WHEN MATCHED THEN DO NOTHING",
            ]
        )
        unmatched = r.choice(
            [
                "",
                " WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)",
                " WHEN NOT MATCHED AND s.k <> 5 THEN INSERT BY NAME",
                " WHEN NOT MATCHED BY TARGET THEN INSERT (k) VALUES (s.k + 20)",
                " WHEN NOT MATCHED BY SOURCE AND keyed.k = 4 THEN DELETE",
                " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET unread = 3",
                " WHEN NOT MATCHED THEN ERROR 'no'",
            ]
        )
        on = r.choice(
            [
                "ON keyed.k = s.k",
                "USING (k)",
                "ON s.k = keyed.k AND keyed.d < 3",
                "ON abs(keyed.k) = s.k",
                "ON s.k + 1 = keyed.k",
            ]
        )
        return [
            (f"MERGE {into} keyed USING {rows} {on} {matched}{unmatched}{merged}", None),
            (
                "MERGE INTO keyed AS x USING (SELECT ? AS k, ? AS v) AS s ON x.k = s.k AND x.k < ? "
                f"WHEN MATCHED THEN UPDATE SET v = s.v || ?{merged}",
                [k, "z", 6, "y"],
            ),
            (
                'MERGE INTO keyed USING (SELECT a, min(b) AS b FROM "Loose" GROUP BY a) s ON a = k '
                "WHEN MATCHED THEN DELETE",
                None,
            ),
            (f"MERGE INTO keyed USING keyed s USING (k) WHEN MATCHED AND k = {k} THEN DELETE", None),
            (
                f"MERGE INTO keyed USING (SELECT NULL AS k, '{k}' AS v) s ON keyed.k = s.k OR keyed.k = s.v "
                "WHEN MATCHED THEN UPDATE SET v = s.k",
                None,
            ),
            (
                "MERGE INTO keyed USING (SELECT k, floor(random() * 4)::INT * 0 AS r FROM keyed) s "
                f"ON keyed.k = s.k AND random() >= 0 WHEN MATCHED AND keyed.k = {k} THEN DELETE",
                None,
            ),
        ]

    def loose(self) -> tuple[str, Any, bool]:
        """A statement on `Loose`, which has no key."""
        a, b, c, r = self.literal(), self.text(), self.literal(), self.random
        mood = r.choice(["'sad'", "'ok'", "NULL", "'bad'"])
        path = self.directory / "rows.csv"
        path.write_text(f"a,b\n{r.randrange(9)},x\n,\n{r.randrange(9)},x\n")
        if r.random() < 0.1:
            return 'INSERT INTO "Loose"(a, b) VALUES (?, ?)', [[1, "e"], [None, None], [1, "e"]], True
        statements = [
            f'INSERT INTO "Loose"(a, b, m) VALUES ({a}, {b}, {mood}), ({a}, {b}, {mood})',
            f"INSERT INTO loose(a, l) SELECT i % 4, [i, NULL] FROM range({r.randrange(6)}) t(i) RETURNING a, l",
            'INSERT INTO "Loose"(a, b) SELECT a, b FROM "Loose" ORDER BY ALL LIMIT 20',
            f"COPY \"Loose\"(a, b) FROM '{path}' (HEADER)",
            'INSERT INTO "Loose" DEFAULT VALUES',
            f'UPDATE "Loose" SET a = {a}, l = [{c}] WHERE a IS NOT DISTINCT FROM {c}',
            f'UPDATE "Loose" SET m = {mood} FROM keyed WHERE keyed.k = a',
            f'DELETE FROM "Loose" WHERE a = {c} RETURNING a',
            'DELETE FROM "Loose" USING keyed WHERE keyed.k = a',
            'TRUNCATE "Loose"' if r.random() < 0.4 else 'DELETE FROM "Loose" WHERE a IS NULL',
            f'MERGE INTO "Loose" AS l USING (SELECT {a} AS a) s ON l.a IS NOT DISTINCT FROM s.a '
            f"WHEN MATCHED THEN UPDATE SET b = {b} WHEN NOT MATCHED THEN INSERT (a, b) VALUES (s.a, {b})",
            "MERGE INTO \"Loose\" l USING keyed ON keyed.k = l.a AND l.m = 'ok' WHEN MATCHED THEN UPDATE SET m = 'sad'",
        ]
        return r.choice(statements), None, False

    def odd(self) -> tuple[str, Any, bool]:
        """A statement on the table with odd names, a composite key and a CHECK."""
        a, b, c = self.key() % 3, self.key() % 3, self.random.choice([1, 2, 10**30, 0, "NULL"])
        name = '"odd schema"."Ta""ble, x"'
        return (
            self.random.choice(
                [
                    f"INSERT INTO {name} VALUES ({a}, {b}, {c})",
                    f"INSERT OR REPLACE INTO {name} VALUES ({a}, {b}, {c}), (NULL, {b}, 1)",
                    f'INSERT INTO {name}("q""q", "a b", "select") VALUES ({c}, {b}, {a}) ON CONFLICT ("select", "a b") '
                    'DO UPDATE SET "q""q" = excluded."q""q" + 1 RETURNING "q""q"',
                    f'MERGE INTO {name} USING (SELECT {a} AS "select", {b} AS "a b") "s p" USING ("select", "a b") '
                    f'WHEN MATCHED THEN UPDATE SET "q""q" = {c} WHEN NOT MATCHED THEN INSERT BY NAME',
                    f'UPDATE {name} SET "select" = {a} WHERE "a b" = {b}',
                    f'DELETE FROM {name} WHERE "select" = {a}',
                ]
            ),
            None,
            False,
        )

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.08 and self.open is None:
            self.begin()
        elif choice < 0.16 and self.open is not None:
            self.random.choice([self.commit, self.rollback])()
        elif choice < 0.26 and self.open is None:
            statement, parameters, _ = self.random.choice([self.keyed, self.loose])()
            if not is_upsert(statement) and parameters is None:
                self.bypass(statement)
        else:
            table, make = self.random.choice([(KEYED, self.keyed), (LOOSE, self.loose), (ODD, self.odd)])
            self.run(table, *make())


@pytest.mark.parametrize("seed", range(5))
def test_replaying_the_captured_changes_gives_the_table(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    stream = Stream(":memory:" if seed % 2 else str(tmp_path / "captured file.db"), seed, tmp_path)
    for _ in range(60):
        stream.step()
    if stream.open is not None:
        stream.commit()
    stream.compare(stream.copy, "the end")
    assert stream.changed >= 25, "too few statements changed anything"
    assert stream.failed >= 3
    assert stream.capture.check(stream.con) is False

"""Random streams of changes and of time over views with temporal filters, against DuckDB at the clock's time."""

from __future__ import annotations

import datetime
import random
import re
from collections import Counter
from typing import Any

import duckdb

import sqlfront

QUERIES = (
    "SELECT id, u FROM e WHERE ts > now() - INTERVAL 1 HOUR",
    "SELECT id, ts FROM e WHERE ts BETWEEN now() - INTERVAL 1 HOUR AND now()",
    "SELECT u, count(*) AS n, sum(id) AS s FROM e WHERE t >= localtimestamp - INTERVAL 2 HOURS GROUP BY u",
    "SELECT id FROM e WHERE d = current_date",
    "SELECT id, d FROM e WHERE d BETWEEN current_date - 2 AND now()",
    "SELECT count(DISTINCT u) AS n FROM e WHERE d > today() - 2",
    "SELECT id FROM e WHERE ts + INTERVAL 90 MINUTE < current_timestamp AND u <> 'a'",
    "SELECT id FROM e WHERE date_trunc('hour', ts) = date_trunc('hour', now())",
    "SELECT u FROM e GROUP BY u HAVING max(ts) < now() - INTERVAL 1 HOUR",
    "SELECT e.id, f.k FROM e JOIN f ON e.u = f.u AND f.until > now() WHERE e.ts <= now()",
    "SELECT e.id, f.k FROM e LEFT JOIN (SELECT * FROM f WHERE until > now()) f ON e.u = f.u",
    "SELECT e.id, f.k FROM e LEFT JOIN f ON e.u = f.u AND f.until > now() - INTERVAL 5 MINUTE",
    "SELECT id FROM e WHERE ts > now() - INTERVAL 1 MONTH AND t < now()",
    "SELECT id FROM e WHERE epoch_ms(ts) >= epoch_ms(now()) - 3600000",
    "SELECT a.id, b.id AS j FROM e a JOIN e b ON a.u = b.u WHERE a.ts > now() - INTERVAL 30 MINUTE AND b.ts <= now()",
    "SELECT id FROM e WHERE u IN (SELECT u FROM f WHERE until > now() - INTERVAL 10 MINUTE)",
    "SELECT id FROM e WHERE NOT EXISTS (SELECT 1 FROM f WHERE f.u = e.u AND f.until > now())",
    "SELECT u, median(id) AS m FROM e WHERE ts > now() - INTERVAL 1 HOUR GROUP BY u",
    "SELECT id, ts FROM e WHERE ts > now() - INTERVAL 1 HOUR ORDER BY ts DESC, id LIMIT 3",
    "SELECT DISTINCT u FROM e WHERE NOT (ts < now() - INTERVAL 20 MINUTE)",
    "SELECT id FROM e WHERE ts > now() - INTERVAL 1 HOUR UNION ALL SELECT k FROM f WHERE until <= now()",
    "SELECT count(*) AS n FROM e, f WHERE e.ts < f.until AND f.until > now() - INTERVAL 15 MINUTE",
    "SELECT id FROM e WHERE now() >= t + INTERVAL 10 MINUTE",
    "SELECT e.id FROM e JOIN f USING (u) WHERE e.ts + (f.k * INTERVAL 1 MINUTE) > now()",
    "SELECT id FROM e WHERE epoch(ts) > epoch(now()) - 1800.5",
    "SELECT id, u FROM e WHERE d > current_date - 3 AND ts < now() AND t >= now() - INTERVAL 5 HOURS",
)
TABLES = "e (id BIGINT, u VARCHAR, ts TIMESTAMPTZ, t TIMESTAMP, d DATE)", "f (k BIGINT, u VARCHAR, until TIMESTAMPTZ)"
ZONES = "UTC", "Europe/Berlin", "America/New_York"
STARTS = (
    # Before clocks are put forward and back, and before a month without a 30th.
    datetime.datetime(2026, 3, 28, 20, tzinfo=datetime.UTC),
    datetime.datetime(2026, 10, 24, 20, tzinfo=datetime.UTC),
    datetime.datetime(2026, 2, 27, 3, tzinfo=datetime.UTC),
)
_WRITES = (
    "DELETE FROM e WHERE id = {}",
    "DELETE FROM f WHERE k = {}",
    "DELETE FROM e WHERE id <> {}",
    "UPDATE e SET ts = ts + INTERVAL 40 MINUTE WHERE id = {}",
    "UPDATE f SET u = 'b' WHERE k = {}",
)


def at_moment(query: str, moment: datetime.datetime) -> str:
    """A query with a moment in place of the clock."""
    value = f"TIMESTAMPTZ '{moment.isoformat()}'"
    query = re.sub(r"now\(\)|current_timestamp", value, query)
    query = query.replace("localtimestamp", f"CAST({value} AS TIMESTAMP)")
    return re.sub(r"current_date|today\(\)", f"CAST({value} AS DATE)", query)


class Stream:
    """Some views over two tables under a manual clock, and DuckDB with the same tables."""

    def __init__(self, seed: int, views: int, judge: duckdb.DuckDBPyConnection) -> None:
        self._rng = rng = random.Random(seed)
        self.now = rng.choice(STARTS)
        zone = rng.choice(ZONES)
        self.con, self.judge = sqlfront.connect(), judge
        for con in (self.con, self.judge):
            con.execute(f"SET SESSION TimeZone = '{zone}'")
        for table in TABLES:
            self.con.execute(f"CREATE {rng.choice(['CHANGE TABLE', 'TABLE'])} {table}")
            self.judge.execute(f"CREATE TABLE {table}")
        self.con.advance_time(self.now)
        self._waiting = [(f"v{place}", query) for place, query in enumerate(rng.sample(QUERIES, views))]
        self._made: list[tuple[str, str]] = []
        self._feeds: dict[str, Any] = {}
        self._told: dict[str, Counter[tuple[Any, ...]]] = {}

    def step(self) -> None:
        """A change, a transaction that is rolled back, or time that goes on."""
        rng, kind = self._rng, self._rng.random()
        if self._waiting and rng.random() < 0.3:
            self._create()
        if kind < 0.3:
            row = self._row(table := rng.choice("ef"))
            for con in (self.con, self.judge):
                con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        elif kind < 0.4:
            text = rng.choice(_WRITES).format(rng.randint(1, 8))
            for con in (self.con, self.judge):
                con.execute(text)
        elif kind < 0.5:
            self._transaction()
        else:
            self._advance()
            self.con.advance_time(self.now)

    def check(self) -> None:
        """Each view is what DuckDB computes at the clock's time, and its subscribers know."""
        for name, query in self._made:
            expected = Counter(self.judge.execute(at_moment(query, self.now)).fetchall())
            assert Counter(self.con.execute(f"FROM {name}").fetchall()) == expected, (query, self.now)
            if name in self._feeds and (change := self._feeds[name].poll()) is not None:
                for *values, type_, _, _ in zip(*(column.to_pylist() for column in change.columns)):
                    self._told[name][tuple(values)] += 1 if type_ in ("insert", "update_postimage") else -1
            if name in self._feeds:
                assert self._told[name].total() == expected.total() and min(self._told[name].values(), default=0) >= 0

    def check_itself(self) -> None:
        """CHECK finds no difference."""
        for name, _ in self._made:
            assert self.con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []

    def close(self) -> None:
        self.con.close()

    def _create(self) -> None:
        name, query = self._waiting.pop()
        deferred = ", apply = 'on read'" if self._rng.random() < 0.2 else ""
        self.con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (clock = 'manual'{deferred}) AS {query}")
        self._made.append((name, query))
        if self._rng.random() < 0.4:
            self._feeds[name], self._told[name] = self.con.view(name).subscribe(), Counter()

    def _transaction(self) -> None:
        """Changes and time that no view keeps."""
        before = self.now
        self.con.execute("BEGIN")
        self.con.execute("INSERT INTO e VALUES (?, ?, ?, ?, ?)", self._row("e"))
        if self._rng.random() < 0.5:
            self._advance()
            self.con.advance_time(self.now)
        for name, _ in self._made[:2]:
            self.con.execute(f"SELECT count(*) FROM {name}").fetchall()
        self.con.execute("ROLLBACK")
        self.now = before

    def _advance(self) -> None:
        self.now += datetime.timedelta(seconds=self._rng.choice([0, 1, 60, 300, 1800, 3600, 18_000, 86_400]))

    def _row(self, table: str) -> tuple[Any, ...]:
        rng, one, other = self._rng, self._moment(), self._moment()
        if table == "f":
            return rng.randint(1, 8), rng.choice("abc"), one
        bare = None if other is None else other.replace(tzinfo=None)
        return rng.randint(1, 8), rng.choice(["a", "b", "c", None]), one, bare, bare.date() if bare else None

    def _moment(self) -> datetime.datetime | None:
        rng = self._rng
        minutes = rng.choice([0, -60, -90, 60, 5, -5, rng.randint(-3000, 300), rng.randint(-100, 100)])
        return None if rng.random() < 0.1 else self.now + datetime.timedelta(minutes=minutes)

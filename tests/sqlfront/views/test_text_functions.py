"""Views of expressions over texts, under random changes: what DuckDB says, whoever writes, and nothing stays behind."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sqlfront
from tests.definition_oracle import same_bag

VIEWS = {
    "groups": "SELECT upper(city) AS u, count(*) AS n, sum(x) AS s FROM t GROUP BY ALL",
    "filtered": "SELECT id, name FROM t WHERE name ILIKE '%son%' OR regexp_matches(city, '^[rR]o')",
    "mixed": "SELECT city, sum(length(name) + x) AS s, min(upper(name)) AS lo, "
    "sum(CASE WHEN name LIKE 'a_%' THEN x ELSE 0 END) AS c FROM t GROUP BY city HAVING length(city) > 1",
    "distinct_values": "SELECT x % 3 AS k, count(DISTINCT lower(name)) AS n FROM t GROUP BY ALL",
    "joined": "SELECT t.id, u.k, u.v FROM t JOIN u ON upper(t.city) = upper(trim(u.k))",
    "rows": "SELECT id, upper(city) AS uc, name || '!' AS nm, hash(name) AS h, coalesce(city, 'none') || '?' AS c "
    "FROM t WHERE x > 2",
    "numbers": "SELECT TRY_CAST(name AS INTEGER) AS i, count(*) AS n FROM t GROUP BY ALL",
    "of_groups": "SELECT lower(u) AS l, sum(n) AS m FROM groups GROUP BY ALL",
    "documents": "SELECT doc->>'$.a' AS a, count(*) AS n FROM t GROUP BY ALL",
}  # fmt: skip
TABLE = "(id INTEGER, city VARCHAR, name VARCHAR, x BIGINT, doc JSON)"
CITIES = ["Rome", "rome", "ROME", "", None, "ß", "İst", "são", "a\0b", "x" * 300, "Oslo ", "ro"]
NAMES = ["anderson", "Son", "a", "aa", "", None, "12", "-7", "peterson", "ŠON", "O\0o", "🦆son"]
DOCUMENTS = ['{"a": 1}', '{"a": "x"}', None, "[]"]
FIELDS = [("id", pa.int32()), ("city", pa.string()), ("name", pa.string()), ("x", pa.int64()), ("doc", pa.string())]


class Stream:
    """A random stream of changes, and the rows that it leaves."""

    def __init__(self, con: Any, seed: int) -> None:
        self.con, self.rng, self.rows, self.step = con, random.Random(seed), list[tuple[Any, ...]](), 0

    def text(self, known: list[Any]) -> Any:
        self.step += 1
        return f"ro{self.step}son" if self.rng.random() < 0.2 else self.rng.choice(known)

    def row(self) -> tuple[Any, ...]:
        rng = self.rng
        return rng.randrange(20), self.text(CITIES), self.text(NAMES), rng.randrange(6), rng.choice(DOCUMENTS)

    def change(self) -> None:
        con, rng = self.con, self.rng
        kind = rng.choice(["row", "row", "gone", "batch", "batch", "update", "back", "sweep", "other"])
        if kind == "row":
            self.rows.append(self.row())
            con.apply_row("t", self.rows[-1])
        elif kind == "gone" and self.rows:
            con.apply_row("t", self.rows.pop(rng.randrange(len(self.rows))), -1)
        elif kind == "batch":
            new, old = [self.row() for _ in range(9)], [self.rows.pop() for _ in range(len(self.rows) // 3)]
            columns = {
                name: pa.array(list(own), type)
                for (name, type), own in zip(FIELDS, zip(*new, *old, strict=True), strict=True)
            }
            con.apply({"t": pa.table(columns | {"_weight": pa.array([1] * 9 + [-1] * len(old))})})
            self.rows += new
        elif kind == "update":
            con.execute(f"UPDATE t SET name = name || 'son' WHERE id = {(id := rng.randrange(20))}")
            self.rows = [(*r[:2], r[2] and r[2] + "son", *r[3:]) if r[0] == id else r for r in self.rows]
        elif kind == "back":
            con.execute(f"BEGIN; INSERT INTO t VALUES (1, 'rome {self.step}', 'son', 5, NULL)")
            con.execute("FROM groups").fetchall()
            con.execute("ROLLBACK")
        elif kind == "sweep":
            con.session.database.engine.dictionaries.varchar.sweep(all_unused=rng.random() < 0.5)
        else:
            con.apply_row("u", (self.text(["ROME", " rome", "OSLO", None, "SS"]), 1))


def check(con: Any) -> None:
    for name, query in VIEWS.items():
        assert same_bag(con.execute(f"FROM {name}").fetchall(), con.execute(query).fetchall()), name
    con.session.database.engine.dictionaries.varchar._check()


@pytest.mark.parametrize("kind", ["", "CHANGE "])
def test_random_changes(kind: str, tmp_path: Path) -> None:
    told = Counter[tuple[Any, ...]]()
    con = sqlfront.connect(str(tmp_path / "texts.db"))
    con.execute(f"CREATE {kind}TABLE t {TABLE}")
    con.execute(f"CREATE {kind}TABLE u (k VARCHAR, v INTEGER)")
    stream = Stream(con, 8)
    for _ in range(4):
        con.apply_row("t", stream.row())
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    stream.rows = con.execute("SELECT id, city, name, x, doc FROM t").fetchall()
    told.update(con.execute("FROM rows").fetchall())
    feed = con.view("rows").subscribe(snapshot=False)
    for step in range(9):
        stream.change()
        check(con)
        for batch in iter(feed.poll, None):
            for *values, change, _, _ in (tuple(row.values()) for row in batch.to_pylist()):
                told[tuple(values)] += 1 if change in ("insert", "update_postimage") else -1
        assert +told == Counter(con.execute("FROM rows").fetchall())
        if step == 4:
            con.execute("REFRESH MATERIALIZED VIEW groups")
    feed.close()
    con.close()
    with sqlfront.connect(str(tmp_path / "texts.db")) as con:
        check(con)
        stream.con = con
        for _ in range(3):
            stream.change()
            check(con)
        for name in reversed(VIEWS):
            con.execute(f"DROP MATERIALIZED VIEW {name}")
        con.execute("DELETE FROM t; DELETE FROM u")
        varchar = con.session.database.engine.dictionaries.varchar
        varchar.sweep()
        assert (len(varchar.memos), varchar.live(), varchar.pinned) == (0, 0, 0)


def test_known_texts_ask_duckdb_nothing_and_are_told() -> None:
    with sqlfront.connect() as con:
        con.execute(f"CREATE CHANGE TABLE t {TABLE}")
        for name in ("groups", "filtered", "rows"):
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
        feeds = [con.view(name).subscribe(snapshot=False) for name in ("groups", "filtered", "rows")]
        evaluate = con.session.database.evaluate
        asked = []
        for number in range(6):
            before = evaluate.queries
            con.apply_row("t", (number, "rome" if number < 4 else f"rome {number}", "peterson", 5, None))
            told = [sum(batch.num_rows for batch in iter(feed.poll, None)) for feed in feeds]
            assert told == [1 if number in (0, 4, 5) else 2, 1, 1]
            asked.append(evaluate.queries - before)
        assert asked[1:4] == [0, 0, 0]
        assert max(asked[4:]) <= 2


def test_a_cast_that_fails_refuses_the_row_and_leaves_the_rest() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (k VARCHAR, v VARCHAR)")
        query = "SELECT k, sum(CAST(v AS INTEGER)) AS s FROM t WHERE k <> 'text' GROUP BY k"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        for row in (("a", "1"), ("text", "none"), ("a", "none"), ("text", "none"), ("b", "2"), ("a", "1")):
            if row == ("a", "none"):
                for attempt in (
                    lambda: con.apply_row("t", ("a", "none")),
                    lambda: con.execute("INSERT INTO t VALUES ('a', '3'), ('a', 'none')"),
                ):
                    with pytest.raises(sqlfront.DataError, match="Could not convert string 'none' to INT32"):
                        attempt()
            else:
                con.apply_row("t", row)
            assert same_bag(con.execute("FROM v").fetchall(), con.execute(query).fetchall())


def test_a_large_batch_of_new_texts() -> None:
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE t (k VARCHAR, v VARCHAR, n INTEGER) WITH (retain = false)")
        query = "SELECT upper(k) AS u, count(*) AS n, sum(length(v) + n) AS s FROM t GROUP BY ALL"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        rows = 20_000
        texts = [f"text {number % 19_000}" for number in range(rows)]
        batch = pa.table({"N": pa.array([1] * rows, pa.int32()), "K": texts, "v": texts})
        for count in (1, 2):
            con.apply({"t": batch})
            con.apply({"t": batch.slice(0, 9)})
            con.apply_row("t", ("text 1", "tExt 9999", 7), -1)
            con.apply_row("t", ("text 1", "tExt 9999", 7))
            assert con.execute("SELECT count(*), sum(n) FROM v").fetchall() == [(19_000, count * (rows + 9))]
            assert con.execute("FROM v WHERE u = 'TEXT 9999'").fetchall() == [("TEXT 9999", count, 10 * count)]

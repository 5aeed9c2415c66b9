"""What loads when: a connection without views is DuckDB and little else, the first view loads what maintains it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HEAVY = {"numpy", "pyarrow", "scipy", "pandas", "numba", "llvmlite", "sqlglot", "rich", "prompt_toolkit", "pygments"}
PLAIN = """
import sqlfront
con = sqlfront.connect({file!r})
con.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER); INSERT INTO t VALUES (1, 1)")
con.executemany("INSERT INTO t VALUES (?, ?)", [(2, 2), (3, 3)])
con.execute("UPDATE t SET b = 5 WHERE a = 1; CREATE INDEX i ON t (b); DROP INDEX i; SHOW TABLES; CHECKPOINT")
con.execute("BEGIN; DELETE FROM t WHERE a = 2; COMMIT; BEGIN; INSERT INTO t VALUES (9, 9); ROLLBACK")
assert con.cursor().execute("SELECT sum(b) FROM t").fetchall() == [(8,)]
con.close()
"""
FIRST_VIEW = """
import sqlfront
con = sqlfront.connect()
con.execute("CREATE TABLE orders (id BIGINT, customer VARCHAR); CREATE TABLE items (id BIGINT, price DECIMAL(12, 2))")
con.execute("CREATE MATERIALIZED VIEW v AS SELECT customer, sum(price) s FROM orders JOIN items USING (id) GROUP BY 1")
con.execute("INSERT INTO orders VALUES (1, 'Ada'); INSERT INTO items VALUES (1, 9.5)")
assert len(con.execute("SELECT * FROM v").fetchall()) == 1
"""
CHANGES = """
con.execute("BEGIN; UPDATE items SET price = 7; UPDATE orders SET customer = 'Bob'; FROM v; COMMIT; DELETE FROM orders")
con.execute("CREATE CHANGE TABLE t (k INTEGER, x INTEGER); CREATE MATERIALIZED VIEW w AS FROM t WHERE x > 1")
con.execute("INSERT INTO t VALUES (1, 2), (2, 3); UPDATE t SET x = 5 WHERE k = 1; DELETE FROM t WHERE k = 2")
assert con.execute("FROM v").fetchall() == [] and con.execute("FROM w").fetchall() == [(1, 5)]
"""
COPIES = """
import sqlfront
con = sqlfront.connect()
con.execute("CREATE CHANGE TABLE t (k BIGINT, x BIGINT); CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE x > 2")
for number in (1, 2, 3, 4, 4):
    con.apply_row("t", (7, number))
assert con.execute("SELECT * FROM v LIMIT 9").fetchall() == [(7,), (7,), (7,)]
"""
REOPENED = """
import sqlfront
con = sqlfront.connect({file!r})
assert con.session.database.snapshot is not None
"""
SHORT = """
assert con.execute("SELECT s AS total FROM v WHERE customer = 'Ada'").fetchall() == [(9.5,)]
assert con.execute("SELECT * FROM v AS w WHERE w.customer = ?", ["Bob"]).fetchall() == []
assert len(con.execute("SELECT * FROM v").fetchall()) == 1
"""
READ = """
assert len(con.sql("SELECT * FROM v WHERE customer = 'Ada'").fetchall()) == 1
assert len(con.sql("FROM v").fetchall()) == con.sql("SELECT * FROM v").to_arrow_table().num_rows == 1
assert len(con.view("v").get("Ada")) == 2 and con.view("v").count() == 1
assert con.view("best").top(1) == con.sql("FROM best ORDER BY price DESC LIMIT 1").fetchall()
"""
PLANNED_ELSEWHERE = (
    "sqlfront.binding", "sqlfront.cut", "sqlfront.define.build", "sqlfront.define.parts", "sqlfront.planner.",
)  # fmt: skip
MAY_BE_LOADED = (
    "sqlfront.planner.model", "sqlfront.planner.theory.wording", "sqlfront.planner.theory.hierarchy",
    "sqlfront.planner.theory.keys", "sqlfront.binding.session_settings",
)  # fmt: skip


def test_a_connection_without_views_loads_duckdb_alone(tmp_path: Path) -> None:
    for file in (":memory:", str(tmp_path / "plain.duckdb")):
        loaded = _loaded(PLAIN.format(file=file))
        assert "duckdb" in loaded
        assert not loaded & HEAVY
        assert not loaded & {f"sqlfront.{room}" for room in ("planner", "bind", "explain", "feeds", "write", "read")}
        assert not [name for name in loaded if name.startswith("sqlfront.storage.kernels")]


def test_the_first_view_loads_what_maintains_it() -> None:
    loaded = _loaded(FIRST_VIEW)
    assert loaded & HEAVY <= {"numpy", "pyarrow", "sqlglot"}
    assert "pyarrow.compute" not in loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("sqlfront.")}
    assert not rooms & {"demo", "explain", "feeds", "shards", "shell", "spark"}


def test_changes_are_written_and_read_without_pandas() -> None:
    """`pyarrow.array` and `to_numpy` would import pandas: the first of them would take 0.3 s and 50 MB."""
    assert "pandas" not in _loaded(FIRST_VIEW + CHANGES)
    loaded = _loaded(COPIES)
    assert "pyarrow.compute" in loaded
    assert "pandas" not in loaded


def test_a_file_with_a_snapshot_is_opened_and_read_without_binder_and_planner(tmp_path: Path) -> None:
    """Views come as they were planned. What the wording of plans takes is loaded with the nodes."""
    file = str(tmp_path / "views.duckdb")
    more = 'con.execute("CREATE MATERIALIZED VIEW best AS SELECT id, price FROM items ORDER BY price DESC LIMIT 5")'
    _loaded(FIRST_VIEW.replace("connect()", f"connect({file!r})") + more)
    opened = _loaded(REOPENED.format(file=file))
    short = _loaded(REOPENED.format(file=file) + SHORT)
    read = _loaded(REOPENED.format(file=file) + READ)
    for loaded in (opened, short, read):
        found = {name for name in loaded if name.startswith(PLANNED_ELSEWHERE)}
        assert {name for name in found if not name.startswith(MAY_BE_LOADED)} <= {
            "sqlfront.binding",
            "sqlfront.planner.theory",
        }
    for loaded in (opened, short):
        assert loaded & HEAVY <= {"numpy", "pyarrow", "pandas"}
        assert not loaded & {"sqlfront.write.short_writes", "sqlfront.sql.dialect", "sqlfront.read.select_trees"}
    assert "sqlfront.explain.explanation" not in read
    assert len([name for name in opened if name.startswith("sqlfront.")]) < 320


def _loaded(code: str) -> set[str]:
    """The modules that a fresh process imports to run the code, each by its full name."""
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE))

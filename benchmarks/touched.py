"""touched: what a change costs a view of touched groups, beside DuckDB computing the same rows alone.

`python -m benchmarks.touched [--rows 10000] [--groups 100] [--times 60]`. DuckDB registers the rows of the touched
groups as Arrow and asks the view's query over them, in the same process. The two sides alternate.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks import harness

TIMES = 2.0
BATCH = 1_000
COLUMNS = "id BIGINT, k BIGINT, j BIGINT, x BIGINT, s VARCHAR, d DATE, a BIGINT, b BIGINT, c BIGINT, e BIGINT, f BIGINT"
SETS = ("k", "j", "k, j")
CUBED = ("a", "b", "c", "e", "f")
CUBE = tuple(", ".join(one for place, one in enumerate(CUBED) if number >> place & 1) for number in range(32))


@dataclass(frozen=True)
class Kind:
    """A kind of view. `sets` are its groupings, `query` the view over `t`, and `u` if it `joins`.

    `computed` is the same query over the registered `rows`. These are the rows of the touched groups, of several
    groupings those of each, numbered by `g`. Of a join they are the changed rows, and the rows of `u` that they join.
    `cubed`: over fewer rows.
    """

    name: str
    query: str
    computed: str = ""
    sets: tuple[str, ...] = ("k",)
    joins: bool = False
    cubed: bool = False

    def touched(self) -> dict[str, str]:
        """The rows that DuckDB is handed, by the names that they are registered by. `changed` are the changed rows."""
        if self.joins:
            return {"t": "FROM changed", "u": "FROM u SEMI JOIN changed USING (k)"}
        tagged = [f"{number} AS g, " if len(self.sets) > 1 else "" for number in range(len(self.sets))]
        kept = [f" SEMI JOIN changed USING ({keys})" if keys else "" for keys in self.sets]
        return {
            "rows": " UNION ALL ".join(f"SELECT {tag}* FROM t{semi}" for tag, semi in zip(tagged, kept, strict=True))
        }

    def beside(self) -> str:
        return self.computed or (self.query if self.joins else self.query.replace("FROM t", "FROM rows"))


def grouped_by_sets(sets: Sequence[str], columns: Sequence[str]) -> str:
    """The deviation of x by grouping sets, over rows that have the number of a set."""
    keys = []
    for column in columns:
        numbers = (str(number) for number, one in enumerate(sets) if column in one.split(", "))
        keys.append(f"CASE WHEN g IN ({', '.join(numbers)}) THEN {column} END")
    return f"SELECT {', '.join(keys)}, median(DISTINCT x) AS m FROM rows GROUP BY {', '.join(['g', *keys])}"


KINDS = (
    Kind("MEDIAN of DISTINCT", "SELECT k, median(DISTINCT x) AS m FROM t GROUP BY k"),
    Kind("LIST of HUGEINT", "SELECT k, list(x::HUGEINT ORDER BY id) AS l FROM t GROUP BY k"),
    Kind("window", "SELECT id, k, bit_xor(x) OVER (PARTITION BY k ORDER BY id DESC) AS r FROM t"),
    Kind("QUALIFY", "SELECT id, k, x FROM t QUALIFY x > median(DISTINCT x) OVER (PARTITION BY k)"),
    Kind(
        "expression over a join",
        "SELECT date_diff('day', t.d, u.d) AS days, count(*) AS n FROM t JOIN u ON t.k = u.k GROUP BY ALL",
        joins=True,
    ),
    Kind(
        "LEFT JOIN",
        "SELECT t.id, t.x, u.y FROM t LEFT JOIN u ON t.k = u.k",
        joins=True,
    ),
    Kind(
        "GROUPING SETS",
        f"SELECT k, j, median(DISTINCT x) AS m FROM t GROUP BY GROUPING SETS ({', '.join(f'({one})' for one in SETS)})",
        grouped_by_sets(SETS, ("k", "j")),
        SETS,
    ),
    Kind(
        "CUBE of five columns",
        f"SELECT {', '.join(CUBED)}, median(DISTINCT x) AS m FROM t GROUP BY CUBE ({', '.join(CUBED)})",
        grouped_by_sets(CUBE, CUBED),
        CUBE,
        cubed=True,
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the changed table; a fifth of them for CUBE")
    parser.add_argument("--groups", type=int, default=100, help="groups of these rows")
    parser.add_argument("--times", type=int, default=60, help="epochs of one row; their median is reported")
    parser.add_argument("--only", default="", help="measure the kinds whose names have this in them")
    options = parser.parse_args(arguments)
    kinds = [kind for kind in KINDS if options.only in kind.name]
    rows = [row for kind in kinds for row in measure(kind, options.rows, options.groups, options.times)]
    notes = [
        f"Medians of {options.times} epochs of one row by apply_row, and of {max(1, options.times // 6)} of {BATCH:,} "
        "rows by apply, on change tables. sqlfront's and DuckDB's alternate in one process. cpu: processor time.",
        "beside: DuckDB alone registers the rows of the touched groups as Arrow and asks the view's query over them; "
        "of a join, the changed rows with their partners.",
        f"{options.rows:,} rows in {options.groups:,} groups; of CUBE a fifth of the rows.",
        "rows: handed to DuckDB in an epoch; of groups: the rows of the touched groups, before plus after the epoch.",
    ]
    if not options.only:
        harness.report("touched", "A change of a view of touched groups, in milliseconds", rows, notes=notes)
    else:
        print("\n".join(harness.markdown(list(rows[0]), rows)))


def measure(kind: Kind, rows: int, groups: int, times: int) -> list[dict[str, Any]]:
    """The rows of the report of one kind of view."""
    with Sides(kind, rows // 5 if kind.cubed else rows, groups) as sides:
        found = [
            sides.compare("1 row", 1, times, lambda rows: sides.ours.apply_row("t", rows)),
            sides.compare(f"{BATCH:,} rows", BATCH, max(1, times // 6), lambda rows: sides.ours.apply({"t": rows})),
        ]
        sides.check()
        return found


class Sides:
    """A view over change tables, and the same tables in a database of DuckDB's own, which tells what is touched."""

    def __init__(self, kind: Kind, rows: int, groups: int) -> None:
        import duckdb

        import sqlfront

        self.kind, self.groups, self.rows = kind, groups, rows
        self.ours, self.duck, self.alone = sqlfront.connect(), duckdb.connect(), duckdb.connect()
        for con, change in ((self.ours, "CHANGE "), (self.duck, "")):
            con.execute(f"CREATE {change}TABLE t ({COLUMNS})")
            con.execute(f"CREATE {change}TABLE u (k BIGINT, d DATE, y BIGINT)")
        partners = "SELECT i, DATE '2024-06-01' + (i % 30)::INTEGER, i FROM range(?) AS r(i)"
        self.duck.execute(f"INSERT INTO u {partners}", [groups])
        self._add(made_rows(0, rows, groups))
        self.ours.apply({name: self.duck.sql(f"FROM {name}").to_arrow_table() for name in ("t", "u")})
        self.ours.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^2)') AS {kind.query}")
        self.number = rows

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *exception: object) -> None:
        for con in (self.ours, self.duck, self.alone):
            con.close()

    def compare(self, size: str, count: int, times: int, apply: Callable[[Any], object]) -> dict[str, Any]:
        """A row of the report: epochs of so many rows."""
        taken: dict[str, list[float]] = {"ms": [], "beside": [], "cpu": [], "cpu beside": []}
        handed = touched = 0
        gc.collect()
        for number in range(-min(3, times), times):
            changed = made_rows(self.number, count, self.groups)
            self.number += count
            before = self._touched(changed)
            self._add(changed)
            rows = self._touched(changed)
            given = tuple(changed[0].values()) if count == 1 else table_of(changed)
            with counted_rows(self.ours) as found, _timed(taken, "ms", "cpu", number >= 0):
                apply(given)
            with _timed(taken, "beside", "cpu beside", number >= 0):
                for name, table in rows.items():
                    self.alone.register(name, table)
                self.alone.sql(self.kind.beside()).to_arrow_table()
            handed, touched = (
                max(handed, found[0]),
                max(touched, sum(one.num_rows for one in (*before.values(), *rows.values()))),
            )
        ms, beside, cpu, beside_cpu = (1e3 * statistics.median(seconds) for seconds in taken.values())
        return {
            "view": self.kind.name,
            "epoch": size,
            "ms": ms,
            "beside": beside,
            "times": ms / beside,
            "cpu": cpu,
            "cpu beside": beside_cpu,
            "cpu times": cpu / beside_cpu,
            "bound": f"{TIMES:g}x",
            "holds": "yes" if ms <= TIMES * beside else "no",
            "rows": handed,
            "of groups": touched,
        }

    def check(self) -> None:
        """The view is its query over the same rows in DuckDB."""
        ours, theirs = (self.ours.sql("FROM v").fetchall(), self.duck.sql(self.kind.query).fetchall())
        assert Counter(map(repr, ours)) == Counter(map(repr, theirs)), f"{self.kind.name}: the view is not its query"

    def _touched(self, changed: list[dict[str, Any]]) -> dict[str, Any]:
        self.duck.register("changed", table_of(changed))
        return {name: self.duck.sql(rows).to_arrow_table() for name, rows in self.kind.touched().items()}

    def _add(self, changed: list[dict[str, Any]]) -> None:
        self.duck.register("changed", table_of(changed))
        self.duck.execute("INSERT INTO t FROM changed")


def made_rows(first: int, count: int, groups: int) -> list[dict[str, Any]]:
    """Rows of `t` from a number on."""
    import datetime

    start = datetime.date(2024, 1, 1)
    return [
        {
            "id": i, "k": i % groups, "j": i % (groups - 1), "x": i * 7919 % 10007, "s": f"v{i % 50}",
            "d": start + datetime.timedelta(i % 300), "a": i % 7, "b": i % 6, "c": i % 5, "e": i % 4, "f": i % 3,
        }
        for i in range(first, first + count)
    ]  # fmt: skip


def table_of(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(rows)


@contextmanager
def counted_rows(con: Any) -> Iterator[list[int]]:
    """How many rows DuckDB is handed meanwhile."""
    evaluate = con.session.database.engine.evaluate
    found, before = [0], evaluate.rows
    yield found
    found[0] = evaluate.rows - before


@contextmanager
def _timed(taken: dict[str, list[float]], wall: str, cpu: str, counts: bool) -> Iterator[None]:
    processor, start = time.process_time(), time.perf_counter()
    yield
    if counts:
        taken[wall].append(time.perf_counter() - start)
        taken[cpu].append(time.process_time() - processor)


if __name__ == "__main__":
    main()

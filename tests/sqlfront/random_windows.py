"""Random window functions over one table, each with a spelling that leaves nothing open: for DuckDB to judge by."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SCHEMA = "CREATE TABLE t (g INTEGER, h INTEGER, o INTEGER, x BIGINT, f DOUBLE, s VARCHAR, c DECIMAL(9,2))"
COLUMNS = ("g", "h", "o", "x", "f", "s", "c")
NUMBERS = ("g", "o", "x", "c", "x + o")
VALUES = (*COLUMNS, "o + 1", "upper(s)")
RANKS = ("row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(3)", "ntile(1)")
ENDS = ("first_value", "last_value", "nth_value")
SUMS = ("sum", "count", "avg", "stddev_samp", "min", "max")


@dataclass(frozen=True)
class Item:
    """A window function as a view has it, and with its order completed by all columns of the row."""

    written: str
    completed: str


def item(random: Random, total: bool = False) -> Item:
    """One function; if `total`, over an order that ties no two rows."""
    partition = ", ".join(random.sample(("g", "h", "g % 2", "s"), random.choice((0, 1, 1, 1, 2))))
    order = [_sort(random) for _ in range(random.choice((0, 1, 1, 2)))]
    ranged = random.choice(("", "", "o", "c")) if len(order) == 1 and not total else ""
    if ranged:
        order = [f"{ranged} {random.choice(('ASC', 'DESC'))} NULLS {random.choice(('FIRST', 'LAST'))}"]
    order += [f"{column} ASC NULLS LAST" for column in COLUMNS] if total else []
    frame = _frame(random, bool(ranged)) if order or random.random() < 0.3 else ""
    kind = random.random()
    condition = ""
    if kind < 0.3:
        name, arguments, frame = random.choice(RANKS), "", ""
    elif kind < 0.5:
        frame, argument = "", random.choice(VALUES)
        default = random.choice(("", "", f", {argument}", ", NULL"))
        name = random.choice(("lag", "lead"))
        arguments = f"{argument}, {random.choice((1, 1, 2, 0, -1, 5))}{default}"
        arguments = argument if random.random() < 0.3 else arguments
    elif kind < 0.65:
        name = random.choice(ENDS)
        arguments = random.choice(VALUES) + (f", {random.choice((1, 2, 4))}" if name == "nth_value" else "")
    else:
        name = random.choice(SUMS)
        arguments = random.choice(VALUES if name in ("min", "max", "count") else (*NUMBERS, "f"))
        condition = " FILTER (WHERE x > 1)" if random.random() < 0.2 else ""
    return _spelled(name, arguments, condition, partition, order, frame)


def _spelled(name: str, arguments: str, condition: str, partition: str, order: list[str], frame: str) -> Item:
    call = name if name.endswith(")") else f"{name}({arguments})"
    by = f"PARTITION BY {partition} " if partition else ""
    written = f"{call}{condition} OVER ({by}{_order(order)}{frame})"
    every = [*order, *(f"{column} ASC NULLS LAST" for column in COLUMNS)]
    if name in ("row_number()", "ntile(3)", "ntile(1)", "lag", "lead") or frame.startswith("ROWS"):
        return Item(written, f"{call}{condition} OVER ({by}{_order(every)}{frame})")
    if name in ENDS:
        call = f"{name}({arguments} {_order(every).strip()})"
    return Item(written, f"{call}{condition} OVER ({by}{_order(order)}{frame})")


def _order(items: list[str]) -> str:
    return f"ORDER BY {', '.join(items)} " if items else ""


def _sort(random: Random) -> str:
    value = random.choice(("o", "x", "o", "s", "f", "h", "x % 2", "c"))
    return f"{value} {random.choice(('ASC', 'DESC'))} NULLS {random.choice(('FIRST', 'LAST'))}"


def _frame(random: Random, ranged: bool) -> str:
    unit = random.choice(("", "", "ROWS", "ROWS", "GROUPS", "RANGE"))
    if not unit:
        return ""
    distances = (0, 1, 2, 5) if unit != "RANGE" else (0, 1, 3) if ranged else ()
    before = ["UNBOUNDED PRECEDING", "CURRENT ROW", *(f"{n} PRECEDING" for n in distances)]
    after = ["UNBOUNDED FOLLOWING", "CURRENT ROW", *(f"{n} FOLLOWING" for n in distances)]
    if unit != "RANGE" and random.random() < 0.2:
        side = random.choice(("PRECEDING", "FOLLOWING"))
        first, last = random.choice(((1, 2), (3, 1), (2, 2)))
        if side == "PRECEDING":
            first, last = last, first
        return f"{unit} BETWEEN {first} {side} AND {last} {side}"
    if random.random() < 0.2:
        return f"{unit} {random.choice(before)}"
    return f"{unit} BETWEEN {random.choice(before)} AND {random.choice(after)}"


def change(random: Random) -> str:
    """One statement: copies, NULLs, rows that change their partition or their place, tables that become empty."""
    number = lambda: random.choice(("NULL", "0", "1", "1", "2", "3"))  # noqa: E731
    kind = random.random()
    if kind < 0.55:
        rows = [
            f"({number()}, {number()}, {number()}, {random.choice(('NULL', '4', '-2', '9223372036854775807'))}, "
            f"{random.choice(('NULL', '0.5', '-1e10', '3', '0.1'))}, {random.choice(('NULL', repr('a'), repr('B')))}, "
            f"{random.choice(('NULL', '1.25', '-7'))})"
            for _ in range(random.randint(1, 6))
        ]
        return f"INSERT INTO t VALUES {', '.join(rows + rows[: random.choice((0, 0, 1, 2))])}"
    if kind < 0.75:
        update = random.choice(("g = h, o = o + 1", "o = NULL", "s = 'c', x = x - 1", "f = -f", "c = c + 1"))
        return f"UPDATE t SET {update} WHERE {random.choice('gho')} = {number()}"
    if kind < 0.97:
        return f"DELETE FROM t WHERE {random.choice('gho')} IS NOT DISTINCT FROM {number()}"
    return "DELETE FROM t"

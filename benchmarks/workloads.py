"""The w1 family: a join that is maintained under inserts and deletes, as data.

A workload is tables, one view, the rows to start with, and a stream of single-row changes. Every
table has a surrogate key in its first column, so that each peer may delete a row in its own best way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """`columns` are (name, SQL type) pairs; the first one is a surrogate key."""

    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


@dataclass(frozen=True)
class Workload:
    """`initial` holds each table's first rows; `changes` are (table number, row, +1 or -1) in order.

    `triggers` maintain the table `answer` (columns as the view's) in SQLite, written by hand for this view.
    `pathway` is the view in Pathway's SQL, which knows no USING; `nullable` are join keys that may be NULL.
    """

    name: str
    tables: tuple[Table, ...]
    view: str
    initial: tuple[list[Row], ...]
    changes: list[tuple[int, Row, int]]
    triggers: str
    pathway: str
    nullable: tuple[str, ...] = ()

    @property
    def output(self) -> tuple[str, ...]:
        """The view's column names."""
        groups = self.view[len("SELECT ") : self.view.index(", SUM(")]
        return (*groups.split(", "), "total", "n")

    def batches(self, size: int) -> Iterator[list[tuple[int, Row, int]]]:
        """The stream, cut into batches of `size` changes."""
        return (self.changes[start : start + size] for start in range(0, len(self.changes), size))


class Live:
    """A bag of live rows from which a random one can be drawn and removed in constant time."""

    def __init__(self, rows: list[Row], random: np.random.Generator) -> None:
        self.rows, self._random = list(rows), random

    def draw(self) -> Row:
        return self.rows[int(self._random.integers(len(self.rows)))]

    def take(self) -> Row:
        position = int(self._random.integers(len(self.rows)))
        self.rows[position], self.rows[-1] = self.rows[-1], self.rows[position]
        return self.rows.pop()


Maker = Callable[[int, list[Live]], Row]


def stream(
    random: np.random.Generator, count: int, lives: list[Live], shares: tuple[float, ...], makers: tuple[Maker, ...]
) -> list[tuple[int, Row, int]]:
    """`count` changes: 80 % inserts, 20 % deletes of live rows; table i gets the fraction `shares[i]` of them."""
    numbers = random.choice(len(shares), size=count, p=shares)
    inserts = random.random(count) < 0.8
    following = [len(live.rows) for live in lives]
    changes = []
    for number, insert in zip(numbers.tolist(), inserts.tolist()):
        if insert:
            row = makers[number](following[number], lives)
            following[number] += 1
            lives[number].rows.append(row)
            changes.append((number, row, 1))
        else:
            changes.append((number, lives[number].take(), -1))
    return changes


ORDERS = Table("orders", (("o_id", "BIGINT"), ("c_id", "BIGINT")))
ITEMS = Table("items", (("i_id", "BIGINT"), ("o_id", "BIGINT"), ("price", "BIGINT")))


def w1(count: int = 100_000, *, scale: float = 1.0, seed: int = 1) -> Workload:
    """50 k orders joined with 150 k items, SUM and COUNT by customer (5 k); one change in five is an order's."""
    random = np.random.default_rng(seed)
    customers, orders, items = int(5_000 * scale), int(50_000 * scale), int(150_000 * scale)

    def order(key: int, _: list[Live]) -> Row:
        return key, int(random.integers(customers))

    def item(key: int, lives: list[Live]) -> Row:
        return key, lives[0].draw()[0], int(random.integers(1, 10_000))

    first = [order(key, []) for key in range(orders)]
    lives = [Live(first, random)]
    second = [item(key, lives) for key in range(items)]
    lives.append(Live(second, random))
    return Workload(
        name="w1",
        tables=(ORDERS, ITEMS),
        view="SELECT c_id, SUM(price) AS total, COUNT(*) AS n FROM orders JOIN items USING (o_id) GROUP BY c_id",
        initial=(first, second),
        changes=stream(random, count, lives, (0.2, 0.8), (order, item)),
        triggers=_TRIGGERS_W1,
        pathway="SELECT c_id, SUM(price) AS total, COUNT(*) AS n"
        " FROM orders JOIN items ON orders.o_id = items.o_id GROUP BY c_id",
    )


def w1b(count: int = 100_000, *, scale: float = 1.0, seed: int = 1) -> Workload:
    """A chain of three: customers, orders, items; SUM and COUNT by city (200)."""
    random = np.random.default_rng(seed)
    customers, orders, items = int(5_000 * scale), int(50_000 * scale), int(150_000 * scale)

    def customer(key: int, _: list[Live]) -> Row:
        return key, int(random.integers(200))

    def order(key: int, lives: list[Live]) -> Row:
        return key, lives[0].draw()[0]

    def item(key: int, lives: list[Live]) -> Row:
        return key, lives[1].draw()[0], int(random.integers(1, 10_000))

    lives: list[Live] = []
    for number, maker in ((customers, customer), (orders, order), (items, item)):
        lives.append(Live([maker(key, lives) for key in range(number)], random))
    initial = tuple(list(live.rows) for live in lives)
    return Workload(
        name="w1b",
        tables=(Table("customers", (("c_id", "BIGINT"), ("city", "BIGINT"))), ORDERS, ITEMS),
        view="SELECT city, SUM(price) AS total, COUNT(*) AS n"
        " FROM customers JOIN orders USING (c_id) JOIN items USING (o_id) GROUP BY city",
        initial=initial,
        changes=stream(random, count, lives, (0.01, 0.19, 0.8), (customer, order, item)),
        triggers=_TRIGGERS_W1B,
        pathway="SELECT city, SUM(price) AS total, COUNT(*) AS n FROM customers"
        " JOIN orders ON customers.c_id = orders.c_id JOIN items ON orders.o_id = items.o_id GROUP BY city",
    )


def w1c(count: int = 100_000, *, scale: float = 1.0, seed: int = 1) -> Workload:
    """As w1, grouped by two text columns of the orders (about 5 k groups); one key in twenty is NULL."""
    random = np.random.default_rng(seed)
    orders, items = int(50_000 * scale), int(150_000 * scale)

    def nullable(value: int) -> int | None:
        return None if random.random() < 0.05 else value

    def order(key: int, _: list[Live]) -> Row:
        return key, nullable(key), f"country {random.integers(50)}", f"segment {random.integers(100)}"

    def item(key: int, lives: list[Live]) -> Row:
        return key, nullable(lives[0].draw()[0]), int(random.integers(1, 10_000))

    first = [order(key, []) for key in range(orders)]
    lives = [Live(first, random)]
    second = [item(key, lives) for key in range(items)]
    lives.append(Live(second, random))
    columns = (("k", "BIGINT"), ("o_id", "BIGINT"), ("country", "VARCHAR"), ("segment", "VARCHAR"))
    return Workload(
        name="w1c",
        tables=(Table("orders", columns), ITEMS),
        view="SELECT country, segment, SUM(price) AS total, COUNT(*) AS n"
        " FROM orders JOIN items USING (o_id) GROUP BY country, segment",
        initial=(first, second),
        changes=stream(random, count, lives, (0.2, 0.8), (order, item)),
        triggers=_TRIGGERS_W1C,
        pathway="SELECT country, segment, SUM(price) AS total, COUNT(*) AS n"
        " FROM orders JOIN items ON orders.o_id = items.o_id GROUP BY country, segment",
        nullable=("o_id",),
    )


def w1d(count: int = 100_000, *, scale: float = 1.0, seed: int = 1) -> Workload:
    """SUM(price * rate) over both tables, each of which takes half of the changes."""
    random = np.random.default_rng(seed)
    customers, orders, items = int(5_000 * scale), int(50_000 * scale), int(150_000 * scale)

    def order(key: int, _: list[Live]) -> Row:
        return key, int(random.integers(customers)), int(random.integers(1, 100))

    def item(key: int, lives: list[Live]) -> Row:
        return key, lives[0].draw()[0], int(random.integers(1, 10_000))

    first = [order(key, []) for key in range(orders)]
    lives = [Live(first, random)]
    second = [item(key, lives) for key in range(items)]
    lives.append(Live(second, random))
    return Workload(
        name="w1d",
        tables=(Table("orders", (("o_id", "BIGINT"), ("c_id", "BIGINT"), ("rate", "BIGINT"))), ITEMS),
        view="SELECT c_id, SUM(price * rate) AS total, COUNT(*) AS n"
        " FROM orders JOIN items USING (o_id) GROUP BY c_id",
        initial=(first, second),
        changes=stream(random, count, lives, (0.5, 0.5), (order, item)),
        triggers=_TRIGGERS_W1D,
        pathway="SELECT c_id, SUM(price * rate) AS total, COUNT(*) AS n"
        " FROM orders JOIN items ON orders.o_id = items.o_id GROUP BY c_id",
    )


WORKLOADS = {"w1": w1, "w1b": w1b, "w1c": w1c, "w1d": w1d}


def _pair(table: str, groups: str, inserted: str, deleted: str) -> str:
    """An insert and a delete trigger that add and subtract what a SELECT of (groups, total, n) finds."""
    match = " AND ".join(f"answer.{name} = change.{name}" for name in groups.split(", "))
    return f"""
CREATE TRIGGER {table}_insert AFTER INSERT ON {table} BEGIN
  INSERT INTO answer {inserted}
  ON CONFLICT ({groups}) DO UPDATE SET total = total + excluded.total, n = n + excluded.n;
END;
CREATE TRIGGER {table}_delete AFTER DELETE ON {table} BEGIN
  UPDATE answer SET total = answer.total - change.total, n = answer.n - change.n FROM ({deleted}) AS change WHERE {match};
  DELETE FROM answer WHERE n = 0 AND ({groups}) IN (SELECT {groups} FROM ({deleted}));
END;"""


def _both(table: str, groups: str, select: str) -> str:
    return _pair(table, groups, select.replace("@", "NEW"), select.replace("@", "OLD"))


_TRIGGERS_W1 = (
    "CREATE TABLE answer (c_id INTEGER PRIMARY KEY, total INTEGER, n INTEGER);"
    "CREATE INDEX items_order ON items (o_id, price);"
    + _both("items", "c_id", "SELECT c_id, @.price AS total, 1 AS n FROM orders WHERE o_id = @.o_id")
    + _both(
        "orders",
        "c_id",
        "SELECT @.c_id AS c_id, SUM(price) AS total, COUNT(*) AS n FROM items WHERE o_id = @.o_id HAVING COUNT(*) > 0",
    )
)

_TRIGGERS_W1B = (
    "CREATE TABLE answer (city INTEGER PRIMARY KEY, total INTEGER, n INTEGER);"
    "CREATE INDEX items_order ON items (o_id, price); CREATE INDEX orders_customer ON orders (c_id);"
    + _both(
        "items",
        "city",
        "SELECT city, @.price AS total, 1 AS n FROM orders JOIN customers USING (c_id) WHERE o_id = @.o_id",
    )
    + _both(
        "orders",
        "city",
        "SELECT city, SUM(price) AS total, COUNT(*) AS n FROM customers, items"
        " WHERE c_id = @.c_id AND o_id = @.o_id GROUP BY city",
    )
    + _both(
        "customers",
        "city",
        "SELECT @.city AS city, SUM(price) AS total, COUNT(*) AS n FROM orders JOIN items USING (o_id)"
        " WHERE c_id = @.c_id HAVING COUNT(*) > 0",
    )
)

_TRIGGERS_W1C = (
    "CREATE TABLE answer (country TEXT, segment TEXT, total INTEGER, n INTEGER, PRIMARY KEY (country, segment))"
    " WITHOUT ROWID;"
    "CREATE INDEX items_order ON items (o_id, price); CREATE INDEX orders_order ON orders (o_id, country, segment);"
    + _both(
        "items",
        "country, segment",
        "SELECT country, segment, @.price AS total, 1 AS n FROM orders WHERE o_id = @.o_id",
    )
    + _both(
        "orders",
        "country, segment",
        "SELECT @.country AS country, @.segment AS segment, SUM(price) AS total, COUNT(*) AS n"
        " FROM items WHERE o_id = @.o_id HAVING COUNT(*) > 0",
    )
)

_TRIGGERS_W1D = (
    "CREATE TABLE answer (c_id INTEGER PRIMARY KEY, total INTEGER, n INTEGER);"
    "CREATE INDEX items_order ON items (o_id, price);"
    + _both("items", "c_id", "SELECT c_id, @.price * rate AS total, 1 AS n FROM orders WHERE o_id = @.o_id")
    + _both(
        "orders",
        "c_id",
        "SELECT @.c_id AS c_id, SUM(price) * @.rate AS total, COUNT(*) AS n FROM items"
        " WHERE o_id = @.o_id HAVING COUNT(*) > 0",
    )
)

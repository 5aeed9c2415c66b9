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

    `triggers` maintain the view `answer` (columns as the view's) in SQLite, written by hand for this view.
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
        view="SELECT c_id, SUM(price * rate) AS total, COUNT(*) AS n FROM orders JOIN items USING (o_id) GROUP BY c_id",
        initial=(first, second),
        changes=stream(random, count, lives, (0.5, 0.5), (order, item)),
        triggers=_TRIGGERS_W1D,
        pathway="SELECT c_id, SUM(price * rate) AS total, COUNT(*) AS n"
        " FROM orders JOIN items ON orders.o_id = items.o_id GROUP BY c_id",
    )


WORKLOADS = {"w1": w1, "w1b": w1b, "w1c": w1c, "w1d": w1d}


def _fact(table: str, groups: str, found: str, amount: str) -> str:
    """Triggers of a table whose row adds `amount` to the one group that the SELECT `found` gives."""
    change = "UPDATE kept SET total = total {0} {amount}, n = n {0} 1 WHERE ({groups}) = ({found})"
    return "".join(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN "
        + change.format(sign, amount=amount, groups=groups, found=found).replace("@", image)
        + "; END;\n"
        for event, sign, image in (("INSERT", "+", "NEW"), ("DELETE", "-", "OLD"))
    )


def _between(table: str, groups: str, found: str, sums: str, amount: str = "SUM(price)") -> str:
    """Triggers of a table whose row adds a sum over the rows `sums` (FROM ... WHERE ...) to one group."""
    change = (
        "UPDATE kept SET (total, n) = (SELECT kept.total {0} COALESCE({amount}, 0), kept.n {0} COUNT(*) {sums})"
        " WHERE ({groups}) = ({found})"
    )
    return "".join(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN "
        + change.format(sign, amount=amount, sums=sums, groups=groups, found=found).replace("@", image)
        + "; END;\n"
        for event, sign, image in (("INSERT", "+", "NEW"), ("DELETE", "-", "OLD"))
    )


def _owner(table: str, groups: str, sums: str, amount: str = "SUM(price)") -> str:
    """As `_between`, for the table that holds the group columns: it makes the group when it is new."""
    own = ", ".join(f"@.{name}" for name in groups.split(", "))
    make = f"INSERT OR IGNORE INTO kept VALUES ({own}, 0, 0); ".replace("@", "NEW")
    change = _between(table, groups, f"VALUES ({own})", sums, amount)
    return change.replace("BEGIN ", "BEGIN " + make, 1)


def _answer(groups: str, kind: str) -> str:
    """The kept sums, groups without rows among them, and the answer without those."""
    columns = ", ".join(f"{name} {kind}" for name in groups.split(", "))
    return f"""
CREATE TABLE kept ({columns}, total INTEGER, n INTEGER, PRIMARY KEY ({groups})) WITHOUT ROWID;
CREATE VIEW answer AS SELECT * FROM kept WHERE n > 0;
CREATE INDEX items_order ON items (o_id, price);
"""


_ITEMS_OF_ORDER = "FROM items WHERE o_id = @.o_id"

_TRIGGERS_W1 = (
    _answer("c_id", "INTEGER")
    + _fact("items", "c_id", "SELECT c_id FROM orders WHERE o_id = @.o_id", "@.price")
    + _owner("orders", "c_id", _ITEMS_OF_ORDER)
)

_TRIGGERS_W1B = (
    _answer("city", "INTEGER")
    + "CREATE INDEX orders_customer ON orders (c_id);\n"
    + _fact("items", "city", "SELECT city FROM orders JOIN customers USING (c_id) WHERE o_id = @.o_id", "@.price")
    + _between("orders", "city", "SELECT city FROM customers WHERE c_id = @.c_id", _ITEMS_OF_ORDER)
    + _owner("customers", "city", "FROM orders JOIN items USING (o_id) WHERE c_id = @.c_id")
)

_TRIGGERS_W1C = (
    _answer("country, segment", "TEXT")
    + "CREATE INDEX orders_order ON orders (o_id, country, segment);\n"
    + _fact("items", "country, segment", "SELECT country, segment FROM orders WHERE o_id = @.o_id", "@.price")
    + _owner("orders", "country, segment", _ITEMS_OF_ORDER)
)

_TRIGGERS_W1D = (
    _answer("c_id", "INTEGER")
    + _fact(
        "items",
        "c_id",
        "SELECT c_id FROM orders WHERE o_id = @.o_id",
        "@.price * (SELECT rate FROM orders WHERE o_id = @.o_id)",
    )
    + _owner("orders", "c_id", _ITEMS_OF_ORDER, "SUM(price) * @.rate")
)

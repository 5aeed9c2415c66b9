"""Window functions that are computed when a view is read, from rows kept in order: plan data.

The rows are those of one table, or of one block; a row is told by the view's free variables. Each order is kept as
sorted partitions (maintenance/windows).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sqlfront.planner.model.query import LeafColumn, Measure

Unit = Literal["ROWS", "RANGE", "GROUPS"]
Side = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True)
class OrderItem:
    """A variable by which the rows of a partition are sorted."""

    variable: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class WindowOrder:
    """Rows by PARTITION BY, each partition sorted by `items`: those of ORDER BY, then all other variables, so that the
    order is total. `label` is the same as the user wrote it."""

    partition: tuple[str, ...]
    items: tuple[OrderItem, ...]
    label: str = ""


@dataclass(frozen=True)
class Frame:
    """The rows of a window function around a row: from `start` to `end`, as far from the row as these say.

    None is the partition's first or last row; 0 the row itself or, but for ROWS, all of its peers. Of ROWS and GROUPS a
    number counts rows or groups of peers, of RANGE it is added to the code of the order's one item.
    """

    unit: Unit
    start: int | None
    end: int | None


DEFAULT_FRAME, WHOLE_PARTITION = Frame("RANGE", None, 0), Frame("RANGE", None, None)


@dataclass(frozen=True)
class WindowValue:
    """What a raw column of kind "window" is, over a frame of rows in the order number `order`.

    function      value
    row_number    and rank, dense_rank, percent_rank, cume_dist; ntile of `number` buckets
    lag, lead     the raw column's variable in the row `number` rows before or after; NULL without such a row
    has_lag       1 where there is such a row, else 0; and has_lead
    first_value   its variable in the frame's first row; last_value in the last, nth_value in that of this `number`
    min, max      the least and the greatest value of its variable in the frame
    aggregate     the raw column `over`, a count, sum, average or statistic, of the frame's rows
    Rows that tie in the first `peers` items of the order are peers.
    """

    function: str
    order: int
    peers: int = 0
    frame: Frame = DEFAULT_FRAME
    number: int = 0

    @property
    def counts_peers(self) -> bool:
        """Whether groups of peers are counted for it."""
        distances = {self.frame.start, self.frame.end} - {None, 0}
        return self.function == "dense_rank" or (self.frame.unit == "GROUPS" and bool(distances))


@dataclass(frozen=True)
class RankBound:
    """A comparison of a function of positions with a number: it leaves one range of each partition's positions."""

    value: WindowValue
    operator: Side
    limit: int | float


@dataclass(frozen=True)
class Windows:
    """The window functions of a view: the `orders` in which rows are kept, the `measures` that their aggregates sum
    over `factors` of a row. `label` names the functions for EXPLAIN. QUALIFY leaves no rows but those within the bounds
    `qualified`, which are over one order; its condition may leave out some of these too."""

    orders: tuple[WindowOrder, ...]
    factors: tuple[LeafColumn, ...]
    measures: tuple[Measure, ...]
    label: str = ""
    qualified: tuple[RankBound, ...] = ()

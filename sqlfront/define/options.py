"""The options of WITH (...) and SET (...): one table, from which the docs are checked too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlfront.planner.heavy_light.division import READS
from sqlfront.planner.model.heavy_light import EPSILON
from sqlfront.storage.errors import ProgrammingError


@dataclass(frozen=True)
class Option:
    """One option: what it belongs to, its type, its default, its meaning, and its values if they are few or a range."""

    owner: str
    name: str
    type: type
    default: Any
    meaning: str
    values: tuple[Any, ...] = ()
    bounds: tuple[float, float] | None = None


OPTIONS = (
    Option(
        "materialized view",
        "strategy",
        str,
        "auto",
        "`'auto'`: the cheapest tree; `'materialize'`: every intermediate join is stored too; `'linear space'`: O(N) "
        "entries, or the view is refused, and DISTINCT rows may follow at a delay of O(N); at REFRESH if altered",
        ("auto", "materialize", "linear space"),
    ),
    Option(
        "materialized view",
        "updates",
        str,
        "as observed, without loads",
        "how often its tables change, `'lineitem: 1000, orders: 100'`: the tree fits it, at REFRESH if altered",
    ),
    Option(
        "materialized view",
        "epsilon",
        float,
        EPSILON,
        "for views over triangles, stars and others: from N^epsilon rows on a value is heavy; 0 to 1, at once if "
        "altered, at REFRESH for one with output columns that had none",
        bounds=(0, 1),
    ),
    Option(
        "materialized view",
        "reads",
        float,
        READS,
        "for triangles with output columns: the share of reads, of the whole view, in all that is done with it; the "
        "fewer, the rather are changes cheap and rows dear; at REFRESH if altered",
        bounds=(0, 1),
    ),
    Option(
        "materialized view",
        "partition",
        str,
        "double",
        "for sums over all triangles: tables are divided by the heavy and light values of both columns, or of one, "
        "`'single'`, which takes more memory; at REFRESH if altered",
        ("single", "double"),
    ),
    Option(
        "materialized view",
        "replan",
        bool,
        True,
        "whether the view may be planned anew while it runs, when its changes take other steps than predicted; not if "
        "`updates`, `epsilon`, `reads`, `partition` or another `strategy` than `'auto'` is given",
    ),
    Option(
        "materialized view",
        "order_by",
        str,
        "none",
        "orders, apart by `;`, that queries of the view may ask for besides its own ORDER BY; at REFRESH if altered",
    ),
    Option(
        "materialized view",
        "at_worst",
        str,
        "none",
        "the most that a change may cost, by the class that EXPLAIN states: `'O(1)'`, `'O(log N)'`, `'O(change)'`, "
        "`'O(touched groups)'`, `'O(N^0.5)'`, `'O(N)'`; a view that costs more is refused",
    ),
    Option(
        "materialized view",
        "apply",
        str,
        "at commit",
        "when changes reach the view: `'at commit'`, with each epoch; `'on read'`, before the view is read the next "
        "time, so that no INSERT waits for it; its stores are shared with no other view",
        ("at commit", "on read"),
    ),
    Option(
        "materialized view",
        "on_error",
        str,
        "raise",
        "what becomes of a row on which an expression fails, such as a cast: `'raise'`, the change is refused; "
        "`'null'`, the expression is NULL, and SHOW ERRORS lists the row; fixed at CREATE",
        ("raise", "null"),
    ),
    Option(
        "materialized view",
        "clock",
        str,
        "wall",
        "the time that `now()` is in a temporal filter: `'wall'`, that of the statement which reads the view; "
        "`'manual'`, that which `con.advance_time(t)` has told; fixed at CREATE",
        ("wall", "manual"),
    ),
    Option(
        "materialized view",
        "tick",
        str,
        "none",
        "how often the wall clock goes on by itself, `'1s'`, `'500ms'`, `'1min'`: subscribers hear of rows that come "
        "and go without anybody reading the view",
    ),
    Option("subscription", "snapshot", bool, "true without after", "begin with the view's present rows, as inserts"),
    Option(
        "subscription",
        "after",
        int,
        "the present epoch",
        "begin with the changes after this epoch; not with `snapshot = true`",
    ),
    Option("subscription", "buffer", int, 1_000_000, "how many changed rows the reader may fall behind"),
    Option("EXPLAIN", "shards", int, "none", "say how the view would be spread over at most so many shards"),
    Option("change table", "retain", bool, True, "keep the table's rows: it can be queried, later views can be built"),
    Option("change table", "durable", bool, "true in a file", "log changes in the database file: they survive its end"),
)


def check_options(owner: str, given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The given options by name. ProgrammingError for an unknown option or a value of the wrong type."""
    known = {option.name: option for option in OPTIONS if option.owner == owner}
    checked: dict[str, Any] = {}
    for name, value in given:
        option = known.get(name.lower())
        if option is None:
            names = ", ".join(sorted(known)) or "none yet"
            raise ProgrammingError(
                f"{owner if owner.isupper() else f'a {owner}'} has no option {name!r}", hint=f"its options: {names}"
            )
        if option.bounds is not None:
            checked[option.name] = _within(option, option.bounds, value)
            continue
        if type(value) is not option.type:
            raise ProgrammingError(
                f"option {option.name} takes a {option.type.__name__}, not {value!r}",
                hint=f"the default is {option.default}",
            )
        if option.values and value not in option.values:
            allowed = ", ".join(map(repr, option.values))
            raise ProgrammingError(f"option {option.name} cannot be {value!r}", hint=f"its values: {allowed}")
        checked[option.name] = value
    return checked


def _within(option: Option, bounds: tuple[float, float], value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not bounds[0] <= value <= bounds[1]:
        raise ProgrammingError(
            f"option {option.name} cannot be {value!r}",
            why=f"it takes a number from {bounds[0]} to {bounds[1]}",
            hint=f"for example {option.name} = {option.default}, the default",
        )
    return float(value) + 0.0  # -0.0 is 0.

"""The option `at_worst`: the most that a change of a view may cost, by the class that EXPLAIN states; and the warning
where a view without it costs much."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlfront.database.frames import warn_user
from sqlfront.database.names import shown
from sqlfront.define.deferring import is_deferred
from sqlfront.planner.model.bound import TOUCHED_ROWS, Bound
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.keys import fanning_atoms
from sqlfront.planner.theory.wording import enumerate_words, table_name
from sqlfront.storage.errors import CostWarning, NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry

MANY_STEPS = 1e5
"""Above this many steps a changed row takes a millisecond or more."""
_NAMED = {"1": (0, 0), "log N": (0, 1), "change": (1, 0), "touched groups": (2, 0)}
"""What a bound without a power of N may have besides: nothing, changed rows, or rows of groups; and logarithms."""
_POWER = re.compile(r"N(?:\^(\d+(?:\.\d+)?|\(([1-9]\d*)/([1-9]\d*)\)))?(?: log N)?")


@dataclass(frozen=True)
class Limit:
    """A bound at most O(N^power log^logs N); without a power of N, with rows of this kind."""

    power: Fraction
    logs: int
    rows: int

    def allows(self, bound: Bound) -> bool:
        power, logs = max([(bound.power, bound.logs), *((term.power, term.logs) for term in bound.terms)])
        if self.power or power:
            return (power, logs) <= (self.power, self.logs)
        if self.rows:
            return _rows(bound) <= self.rows
        return not bound.terms and bound.logs <= self.logs


def check_at_worst(name: str, definition: Definition, plan: Plan, text: str) -> None:
    """NotSupportedError if a change of the view may cost more than `at_worst` says, with the parts that do, and the
    tables whose rows meet many others in the view itself."""
    limit = limit_of(text)
    if limit.allows(plan.stated_cost.update):
        return
    costs = [(one.label, one.bound("update")) for one in plan.blocks]
    blamed = [f"{part}: {cost}" for part, cost in costs if not limit.allows(cost)]
    if not limit.allows(plan.own_update):
        fanning = enumerate_words(table_name(atom.table) for atom in fanning_atoms(plan.root, definition))
        blamed.append(f"the view itself: {plan.own_update}{f', for a row of {fanning}' if fanning else ''}")
    raise NotSupportedError(
        f"materialized view {name} costs more than at_worst = '{text}'",
        why=f"a change takes, in {'; in '.join(dict.fromkeys(blamed))}",
        hint="allow it with a larger bound, or change the query: EXPLAIN tells what decides its cost",
    )


def warn_of_cost(database: Database, entry: ViewEntry) -> None:
    """CostWarning if a change of a view that was created may take long, though nobody has said that it may.

    Groups that are computed from all rows, and trees of which a changed row should take more than MANY_STEPS.
    """
    if "at_worst" in entry.options or is_deferred(entry):
        return
    name = shown(entry.name)
    slow = []
    for node in database.engine.describe(entry.maintained):
        if node.tree is None and node.work.power >= 1:
            slow.append(f"{node.source}: computed from all rows at each change, {node.work}, which are one group")
        of = "" if node.name == entry.maintained.name else f" in {table_name(node.name)}"
        for table, steps in node.predicted.items():
            if steps > MANY_STEPS:
                slow.append(f"a changed row of {table_name(table)} takes about {steps:,.0f} steps{of}")
    if slow:
        enough = least_limit(entry.maintained.plan.stated_cost.update)
        warn_user(
            f"materialized view {name} may slow changes of its tables: {'; '.join(slow)}. WITH (apply = 'on read') "
            f"applies them when {name} is read; WITH (at_worst = '{enough}') says "
            "that the cost is meant; EXPLAIN tells what decides it",
            CostWarning,
        )


def limit_of(text: str) -> Limit:
    """The limit that a text says. ProgrammingError if it says none."""
    inside = text.strip()
    inside = inside[2:-1].strip() if inside[:2] == "O(" and inside[-1:] == ")" else ""
    if inside in _NAMED:
        rows, logs = _NAMED[inside]
        return Limit(Fraction(0), logs, rows)
    power = _POWER.fullmatch(inside)
    if power is None:
        named = ", ".join(f"'O({one})'" for one in _NAMED)
        hint = f"{named}, 'O(N)', 'O(N log N)', or a power of N such as 'O(N^0.5)'"
        raise ProgrammingError(f"option at_worst cannot be {text!r}", why="it is no bound of a change", hint=hint)
    whole, above, below = power.groups()
    exponent = Fraction(int(above), int(below)) if above else Fraction(whole or 1)
    if not exponent:
        raise ProgrammingError(f"option at_worst cannot be {text!r}", why="N^0 is 1", hint="write 'O(1)' or 'O(log N)'")
    return Limit(exponent, int(inside.endswith(" log N")), 2)


def least_limit(bound: Bound) -> str:
    """The text of the least limit that allows a bound."""
    power, logs = max([(bound.power, bound.logs), *((term.power, term.logs) for term in bound.terms)])
    powers = [str(Bound(power, min(logs, 1))), str(Bound(power + Fraction(1, 2)))]
    texts = [*(f"O({named})" for named in _NAMED), *(powers if power else ["O(N)"])]
    return next(text for text in texts if limit_of(text).allows(bound))


def _rows(bound: Bound) -> int:
    """0 for a bound without rows, 1 for changed rows, 2 for rows of the groups that a change touches."""
    return 2 if any(term.quantity is TOUCHED_ROWS for term in bound.terms) else int(bool(bound.terms))

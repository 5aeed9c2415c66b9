"""What is observed of a view that may be planned anew: the steps of its changes and reads, in windows of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.view.maintained_view import MaintainedView

LEAST_CHANGES = 1000
"""Changed rows that a window has at least."""

GAIN = 2
"""How many times fewer steps another plan must promise."""

PATIENCE = 6
"""The wait after a search in vain doubles so many times."""


@dataclass(frozen=True)
class Replan:
    """A plan that took the place of another after an epoch, or could not: `reason` says why."""

    epoch: int
    reason: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{'not planned anew' if self.failed else 'planned anew'} after epoch {self.epoch}: {self.reason}"


@dataclass(frozen=True)
class Window:
    """The changed rows of a time, by relation, and the steps that the changes and the reads of a view took in it."""

    changes: Mapping[str, int]
    steps: int
    reads: int

    @property
    def total(self) -> int:
        return sum(self.changes.values())

    @property
    def observed(self) -> float:
        """The steps of a changed row."""
        return self.steps / self.total


@dataclass
class Observation:
    """The observation of a view's costs.

    `tried` is how many rows had changed when a plan was last looked for; None until then: the load pays for the first.
    `mix` is that of the changes for which it was, and `seen` the steps of one. The last `vain` searches found none.
    `divides` says that heavy and light values were told apart because of what was observed. `first` are the steps of a
    change in the first window since then, `by_parts` in the last window with parts. `least` are the fewest of one by
    trees.
    """

    mix: Mapping[str, float]
    tried: int | None = None
    seen: float = 0.0
    vain: int = 0
    divides: bool = False
    first: float | None = None
    least: float | None = None
    by_parts: float | None = None
    replans: list[Replan] = field(default_factory=list)
    _steps: int = 0
    _reads: int = 0
    _begun: dict[str, tuple[int, int]] = field(default_factory=dict)
    _relations: list[Relation] = field(default_factory=list)
    _predicted: tuple[int, float | None] | None = None  # Until so many rows have changed.

    def begin(self, view: MaintainedView, steps: int) -> None:
        """Begin a window; `steps` is the view's counter."""
        self._relations = list({source.relation.name: source.relation for source in view.all_sources}.values())
        self._steps, self._reads = steps, _read_steps(view)
        self._begun = {relation.name: (relation.changes, relation.loaded) for relation in self._relations}

    def end(self, view: MaintainedView, steps: int) -> Window | None:
        """The window up to now, if it has enough changes; then the next one begins. A load is no observation: where one
        was, the window begins behind it."""
        changes = {one.name: one.changes - self._begun[one.name][0] for one in self._relations}
        loads = any(one.loaded != self._begun[one.name][1] for one in self._relations)
        if not loads and sum(changes.values()) < LEAST_CHANGES:
            return None
        window = Window(changes, steps - self._steps, _read_steps(view) - self._reads)
        self.begin(view, steps)
        return None if loads else window

    def note(self, window: Window) -> None:
        """Note the steps of a window."""
        if not self.divides:
            self.least = window.observed if self.least is None else min(self.least, window.observed)
        else:
            self.first, self.by_parts = self.first or window.observed, window.observed

    def planned(self, *, divides: bool) -> None:
        """Note that another plan is in place."""
        self.divides, self.first, self._predicted = divides, None, None

    def fewer_by_parts(self, window: Window) -> float | None:
        """The steps of the last changes by parts, if changes by trees take far more."""
        took = None if self.divides else self.by_parts
        return took if took is not None and took * GAIN <= window.observed else None

    def is_other_stream(self, window: Window) -> bool:
        """Whether changes by parts take far fewer steps than when the parts were made, and trees have taken far fewer
        than that: other values change now, and no group sizes tell which."""
        if self.first is None or self.least is None:
            return False
        return window.observed * GAIN <= self.first and self.least * GAIN <= window.observed

    @property
    def changed(self) -> int:
        """How many rows have changed in the tables of the view."""
        return sum(relation.changes for relation in self._relations)

    def may_try(self, view: MaintainedView, window: Window) -> bool:
        """Whether as many rows have changed as the view's stores have, since a plan was last looked for; twice as many
        after each search in vain, as long as changes are and cost what they did then."""
        if self.tried is None:
            return True
        alike = 1 / GAIN**2 < window.observed / max(self.seen, 1.0) < GAIN**2
        waits = min(self.vain, PATIENCE) if alike and not self.is_other_mix(window) else 0
        return self.changed - self.tried >= rows_read(view) << waits

    def searched(self, window: Window, *, found: bool) -> None:
        """Note that a plan was looked for, for changes like those of a window."""
        self.tried, self.mix, self.seen = self.changed, window.changes, window.observed
        self.vain = 0 if found else self.vain + 1

    def predicted(self, view: MaintainedView, predict: Callable[[], float | None]) -> float | None:
        """The predicted steps of a change by the present plan. `predict` measures the stores, again once as many rows
        have changed as they had."""
        due, steps = self._predicted or (0, None)
        if self._predicted is None or self.changed >= due:
            steps = predict()
            self._predicted = self.changed + rows_read(view), steps
        return steps

    def is_other_mix(self, window: Window) -> bool:
        """Whether more than half of the changes are of tables that had fewer of the changes before."""
        total, before = sum(window.changes.values()), sum(self.mix.values())
        more = (count / total - self.mix.get(table, 0) / before for table, count in window.changes.items())
        return sum(share for share in more if share > 0) > 0.5


def may_change(view: MaintainedView) -> bool:
    """Whether a view has a choice of plans: several tables are joined, and a change may meet many rows. Of first rows,
    of rows in orders and of merged branches nothing is predicted."""
    definition, plans = view.definition, (view.plan, *view.plan.distinct_sets)
    return (
        any(len(member.definition.atoms) > 1 for member in view.members)
        and any(plan.cost.update.power for plan in plans)
        and definition.limit is None
        and not (view.ranked or view.windows or view.branches or view.stateless or view.plan.joins)
        and view.part_trees is None
    )


def rates_of(view: MaintainedView) -> dict[str, float]:
    """The mix of changes that a view's plan was chosen for; of all tables alike if none was known."""
    rates = dict(view.plan.weights)
    return rates if any(rates.values()) else dict.fromkeys(rates, 1.0)


def rows_read(view: MaintainedView) -> int:
    """The rows of the stores that a view reads."""
    return sum({id(source.store): source.store.table.live for source in view.all_sources}.values())


def _read_steps(view: MaintainedView) -> int:
    return sum(member.reads.steps for member in view.members)

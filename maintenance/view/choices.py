"""Which plan a running view should have: trees by predicted steps, parts by heavy and light values where skew pays.

A profile of group sizes prices trees. The profile that explains the observed steps of the running tree is taken. So if
changes meet the same few large groups, other trees are priced by large groups too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log

from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.observation import GAIN, Observation, Window, rates_of, rows_read
from sqlfront.maintenance.view.prediction import predict, predicted_mean
from sqlfront.maintenance.view.sizes import PROFILES, EstimatedSizes, Measured, Profile
from sqlfront.maintenance.view.unbuilt import unbuilt_view
from sqlfront.planner.alternatives import alternative_trees, is_as_good, join_orders
from sqlfront.planner.heavy_light.division import divide_unasked
from sqlfront.planner.model.plan import Plan
from sqlfront.storage.codecs.encoding import Dictionaries

SPACE = 4
"""How many times the memory of a view's stores its heavy and light parts may take, where its class says less."""

_OTHERS = 1e-3
"""The share of changes that are taken to be of all tables alike, whatever was observed."""


@dataclass(frozen=True)
class Choice:
    """A plan, the steps that a change should take by it, and why it is better. If it tells heavy values from light
    ones, it does by `epsilon`, in this `room`."""

    plan: Plan
    steps: float
    reason: str
    epsilon: float | None = None
    room: Room | None = None


def best_tree(view: MaintainedView, dictionaries: Dictionaries) -> Choice | None:
    """Another tree of a view's class, or of a better one, that is predicted to take far fewer steps for the mix that
    its own was chosen for; None if there is none."""
    mix = rates_of(view)
    prices = _Prices(view, dictionaries, mix, Measured(), "mean")
    return _better_tree(
        view, prices, mix, f"{prices.of(view.plan):,.0f} steps a change were predicted when it was built"
    )


def better_plan(
    view: MaintainedView, dictionaries: Dictionaries, observation: Observation, window: Window, predicted: float
) -> Choice | None:
    """The plan that promises the fewest steps after what was observed, where other steps were `predicted`; None if none
    promises enough."""
    measured = Measured()
    profiles = [_Prices(view, dictionaries, window.changes, measured, profile) for profile in PROFILES]
    prices = min(profiles, key=lambda prices: abs(log(prices.of(view.plan) / max(window.observed, 1.0))))
    seen = (
        f"{window.observed:,.0f} steps a change were observed over {window.total:,} changes, "
        f"{predicted:,.0f} were predicted"
    )
    found = [_better_tree(view, prices, window.changes, seen), _divided(view, observation, window, seen)]
    return min((choice for choice in found if choice is not None), key=lambda choice: choice.steps, default=None)


def whole_again(
    view: MaintainedView, dictionaries: Dictionaries, observation: Observation, window: Window
) -> Choice | None:
    """The best tree for a view whose heavy values were told from light ones, once that does not pay any more: no value
    is heavy, reads wait for more than changes save, other values change than those that the parts were made for, or the
    parts have grown too large. None as long as it pays.

    That other values change is a guess. A wrong one is found out as any costly tree is. The next guess then takes
    changes that cost half of those for which the view was divided again.
    """
    assert view.balance is not None
    prices = _Prices(view, dictionaries, window.changes, Measured(), "largest")
    plans = alternative_trees(view.definition, window.changes)
    plan = min(plans, key=prices.of)
    waits = rows_read(view) ** float(view.plan.cost.delay.power)
    whole = prices.of(plan) + window.reads / window.total / waits
    divided = window.observed + window.reads / window.total
    if not any(map(any, view.balance.figures().heavy)):
        reason = "no value is heavy any more"
    elif whole * GAIN <= divided:
        reason = f"{divided:,.0f} steps of changes and reads a change by parts, and {whole:,.0f} without them"
    elif observation.is_other_stream(window):
        reason = f"{window.observed:,.0f} steps a change by parts, and {observation.first:,.0f} when they were made"
    elif plan.cost.space.power < view.plan.cost.space.power and _own_bytes(view) > 2 * SPACE * _bytes_read(view):
        reason = f"the heavy and light parts take more than {2 * SPACE} times the memory of the tables"
    else:
        return None
    return Choice(_fitted(view, plan, window.changes), whole, f"{reason}: one tree")


class _Prices:
    """The steps of a change of a view's tables, in this mix, by plans of which nothing is stored."""

    def __init__(
        self,
        view: MaintainedView,
        dictionaries: Dictionaries,
        mix: Mapping[str, float],
        measured: Measured,
        profile: Profile,
    ) -> None:
        self._view, self._dictionaries, self._mix = view, dictionaries, mix
        self._measured, self._profile = measured, profile

    def of(self, plan: Plan) -> float:
        """The steps of a change by a plan, with a small share of those that all tables would take alike."""
        view = self._view
        candidate = unbuilt_view(view.name, view.definition, plan, 0, self._dictionaries)
        for member, running in zip(candidate.members, view.members, strict=True):
            member.sources = running.sources
        found = predict(candidate, lambda member: EstimatedSizes(member, self._measured, self._profile))
        mixed, alike = predicted_mean(found, self._mix), predicted_mean(found, dict.fromkeys(found, 1.0))
        assert mixed is not None and alike is not None
        return mixed + _OTHERS * alike


def _better_tree(view: MaintainedView, prices: _Prices, mix: Mapping[str, float], seen: str) -> Choice | None:
    own = view.plan
    plans = [plan for plan in alternative_trees(view.definition, mix) if is_as_good(plan, own)]
    plan = min(plans, key=prices.of, default=own)
    plan = min((plan, *join_orders(plan)), key=prices.of)
    now, steps = prices.of(own), prices.of(plan)
    if steps * GAIN > now:
        return None
    reason = f"{seen}; another tree is predicted to take {steps:,.0f} where this one takes {now:,.0f}"
    return Choice(_fitted(view, plan, mix), steps, reason)


def _divided(view: MaintainedView, observation: Observation, window: Window, seen: str) -> Choice | None:
    """The division into heavy and light parts, if it is better than what was observed: by the bound of a change, or by
    the steps that changes took by parts before, and by the reads that then wait for their rows."""
    divided = divide_unasked(view.definition, view.plan)
    if divided is None:
        return None
    plan, epsilon = divided
    size = rows_read(view)
    waits = window.reads / window.total * (size ** float(plan.cost.delay.power) - 1)
    known = observation.fewer_by_parts(window)
    steps = (size ** float(plan.cost.update.power) if known is None else known) + waits
    if steps * GAIN > window.observed:
        return None
    room = view.room
    if plan.cost.space.power > view.plan.cost.space.power:
        limit = SPACE * _bytes_read(view)
        room = Room(view.name, limit if room is None else min(limit, room.limit))
    reason = f"{seen}; heavy and light values apart take {steps:,.0f} or so at worst"
    return Choice(_fitted(view, plan, window.changes), steps, reason, epsilon, room)


def _fitted(view: MaintainedView, plan: Plan, mix: Mapping[str, float]) -> Plan:
    """The plan as one of the view, chosen for this mix."""
    weights = tuple((table, float(mix.get(table, 0))) for table, _ in plan.weights)
    return replace(plan, weights=weights, blocks=view.plan.blocks, inputs=view.plan.inputs)


def _bytes_read(view: MaintainedView) -> int:
    return sum({id(source.store): source.store.table.bytes() for source in view.all_sources}.values())


def _own_bytes(view: MaintainedView) -> int:
    return sum({id(table): table.bytes() for table in view.all_tables()}.values())

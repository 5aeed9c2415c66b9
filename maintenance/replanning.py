"""Plans that are chosen anew while views run: trees by predicted steps, heavy and light values where skew pays.

A tree is chosen before its changes are known. An `Observation` counts their steps. If they take many steps, ten times
the predicted steps, or a tenth, or if other tables change than before, the trees of the view's class are priced by the
group sizes of its stores, for the observed mix of changes, and so is its division into heavy and light values. A plan
that promises half the steps takes the place of the running one between two epochs: it is built beside it from the same
stores, without DuckDB. A view is planned anew at most once in as many changes as its stores have rows, which pays for
measuring and building. All is counted in steps and rows, so the same changes lead to the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.relation.filling import fill_alike
from sqlfront.maintenance.state import State
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.observation import Observation, Replan, Window, may_change, rates_of
from sqlfront.maintenance.view.prediction import predict, predicted_mean
from sqlfront.maintenance.view.unbuilt import unbuilt_view
from sqlfront.planner.model.heavy_light import EPSILON
from sqlfront.planner.model.plan import Plan
from sqlfront.storage.errors import Error

if TYPE_CHECKING:
    from sqlfront.maintenance.program.room import Room
    from sqlfront.maintenance.relation.atom_source import Source
    from sqlfront.maintenance.relation.attachment import Attachment
    from sqlfront.maintenance.relation.base_relation import LeafStore, Relation
    from sqlfront.maintenance.view.change_reader import ChangeReader
    from sqlfront.maintenance.view.choices import Choice

OFTEN = 250
"""Epochs of one row from one look to the next."""

APART = 10
"""Other plans are looked for if the observed steps are so many times the predicted ones, or such a part of them."""

MANY_STEPS = 100
"""From so many observed steps on, other plans are looked for too. When a view is built, other trees are from so many
predicted ones on."""

_KEPT = ("inner", "output_schema", "output_row", "reads", "room", "observation", "changes_before", "steps_before")
"""What a view has whatever its plan is."""

_FORMER = "of the former plan"


class Replanning(State):
    """State whose views may be planned anew. `look` is due when the epochs have come to `next_look`."""

    next_look = OFTEN

    def adapt(self, name: str, *, wanted: bool) -> None:
        """Plan a view and its blocks anew from now on as their changes suggest, or never. A tree that is predicted to
        take many steps is compared with others at once."""
        with self.lock:
            for node in self.nodes_of(self.views[name]):
                view = self.views.get(node.name)
                if view is not None and not wanted:
                    view.observation = None
                elif view is not None and view.observation is None and may_change(view):
                    view.observation = Observation(rates_of(view))
                    view.observation.begin(view, self._steps(view))
                    predicted = predicted_mean(predict(view), rates_of(view))
                    if predicted and predicted >= MANY_STEPS:
                        from sqlfront.maintenance.view.choices import best_tree

                        self._take(view, view.observation, partial(best_tree, view, self.dictionaries))

    def observe_divided(self, name: str) -> None:
        """Go on with a view that comes from a snapshot, and had been divided because of what was observed."""
        view = self.views[name]
        view.observation = Observation(rates_of(view), divides=True)
        view.observation.begin(view, self._steps(view))

    def look_after(self, rows: int) -> None:
        """`look` if it is due after an epoch of so many rows, each of which counts as an epoch."""
        self.next_look -= max(rows - 1, 0)
        if self.machine.epochs >= self.next_look:
            self.look()

    def look(self) -> None:
        """Plan views anew whose changes have taken other steps than predicted. Between epochs, under the lock."""
        self.next_look = self.machine.epochs + OFTEN
        for view in list(self.views.values()):
            window = view.observation.end(view, self._steps(view)) if view.observation is not None else None
            if window is not None and view.observation is not None:
                view.observation.note(window)
                if view.observation.may_try(view, window):
                    self._look_at(view, view.observation, window)

    def replan(self, name: str, plan: Plan, epsilon: float, room: Room | None = None) -> None:
        """Keep a view by another plan of its definition, built from the rows of its stores beside the running plan, in
        `room` instead of the view's if it is given. Listeners and readers stay. It takes as long as building. On
        failure nothing has changed."""
        with self.lock:
            view, steps = self.views[name], self._steps(self.views[name])
            self._catch_up({*view.relations, *(key for key, one in self.relations.items() if name in one.fed_by)})
            before, attachments, sources = dict(vars(view)), view.attachments, view.all_sources
            own = [source for source in sources if source.store.users == {name}]
            former = [table for member in view.members for table in member.all_tables()]
            fresh = unbuilt_view(name, view.definition, plan, view.number, self.dictionaries, epsilon)
            vars(view).update(vars(fresh) | {kept: before[kept] for kept in _KEPT})
            for member, one in zip(view.distinct_sets, before["distinct_sets"], strict=True):
                member.reads = one.reads
            try:
                _rename(own, lambda key: (_FORMER, *key))
                sharing = self._build(view, self._filler(view, before), room or view.room)
            except BaseException:
                self._close(view.all_sources, sources, name)
                _rename(own, lambda key: key[1:])
                vars(view).update(before)
                self._assemble()
                raise
            finally:
                self.machine.counters[view.number] = steps
            with Uninterrupted():
                self._publish(view, before["changes"], attachments, sources, steps)
                self._assemble([view, *sharing])
                for table in former:
                    table.reset()

    # Inside --------------------------------------------------------------------------------------

    def _steps(self, view: MaintainedView) -> int:
        return int(self.machine.counters[view.number])

    def _filler(self, view: MaintainedView, before: Mapping[str, Any]) -> Callable[[Relation, LeafStore], None]:
        """What fills a new store of a view's plan: with the rows of the store that its atom read before."""
        members = list(zip(view.members, [before, *map(vars, before["distinct_sets"])], strict=True))

        def fill(relation: Relation, store: LeafStore) -> None:
            readers = ((member, atom, former) for member, former in members for atom in member.sources)
            former = next(was["sources"][atom] for one, atom, was in readers if one.sources[atom].store is store)
            fill_alike(self.machine, store, former.store)

        return fill

    def _publish(
        self,
        view: MaintainedView,
        changes: ChangeReader | None,
        attachments: Iterable[Attachment],
        sources: Iterable[Source],
        steps: int,
    ) -> None:
        """Let go of what belonged to a view's former plan; who read its changes goes on to."""
        if changes is not None:
            changes.close()
            self.nodes[view.name].hear(True)
        for one in attachments:
            one.close()
        self._close(sources, view.all_sources, view.name)
        view.steps_before = steps
        view.changes_before = {relation: self.relations[relation].changes for relation in view.relations}
        self._rebuilt += 1

    def _close(self, sources: Iterable[Source], kept: Iterable[Source], user: str) -> None:
        """Let go of stores that are not among those to be kept."""
        staying = {id(source.store) for source in kept}
        for source in sources:
            if id(source.store) not in staying:
                staying.add(id(source.store))
                self.close_store(source.relation, source.store, user)

    def _look_at(self, view: MaintainedView, observation: Observation, window: Window) -> None:
        from sqlfront.maintenance.view.choices import better_plan, whole_again  # With the planner, when it is asked.

        if observation.divides:
            if self._take(view, observation, partial(whole_again, view, self.dictionaries, observation, window)):
                observation.searched(window, found=True)
            return
        predicted = observation.predicted(view, lambda: predicted_mean(predict(view), rates_of(view)))
        if predicted is not None and _is_worth_a_look(observation, window, predicted):
            choose = partial(better_plan, view, self.dictionaries, observation, window, predicted)
            observation.searched(window, found=self._take(view, observation, choose))

    def _take(self, view: MaintainedView, observation: Observation, choose: Callable[[], Choice | None]) -> bool:
        """Keep a view by the plan that `choose` gives, if any, and tell whether there is one. If it cannot be, the
        running one stays: the epoch is committed, and whatever the error is, SHOW STATE tells it."""
        reason, failed = "another plan was looked for", False
        try:
            if (choice := choose()) is None:
                return False
            reason = choice.reason
            self.replan(view.name, choice.plan, EPSILON if choice.epsilon is None else choice.epsilon, choice.room)
        except Exception as error:
            what = error.what if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            reason, failed = f"{reason}, but {what}", True
        else:
            observation.planned(divides=choice.epsilon is not None)
        observation.replans.append(Replan(self.machine.epochs, reason, failed))
        observation.begin(view, self._steps(view))
        return True


def _is_worth_a_look(observation: Observation, window: Window, predicted: float) -> bool:
    near = 1 / APART < window.observed / max(predicted, 1.0) < APART
    dear = window.observed >= MANY_STEPS or observation.fewer_by_parts(window) is not None
    return not near or dear or observation.is_other_mix(window)


def _rename(sources: Iterable[Source], change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
    """Change the keys of stores that a view alone reads: while they have other keys, its new plan opens stores of its
    own, with the indexes that it needs, and their columns are still read."""
    for source in {id(source.store): source for source in sources}.values():
        del source.relation.stores[source.store.key]
        source.store.key = change(source.store.key)
        source.relation.stores[source.store.key] = source.store

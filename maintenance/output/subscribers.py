"""Where the changes of views go: to listeners, and into views that read views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from sqlfront.maintenance.output.output_change import OutputChange, read_change, view_rows
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.view.emission import OutputDelta
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.top_change import TopRows, best_rows
from sqlfront.storage.errors import Error, OperationalError

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Evaluate

Listener = Callable[[int, "OutputChange | Error"], None]


class Subscribers:
    """The listeners of views, and the relations that views feed.

    A view's output change is gathered only while it has a subscriber: an epoch costs as much more as it changes.
    """

    def __init__(self, views: Mapping[str, MaintainedView], machine: Machine, evaluate: Evaluate) -> None:
        self._views, self._machine, self._evaluate = views, machine, evaluate
        self._listeners: dict[str, list[Listener]] = {}
        self._fed: dict[str, tuple[str, ...]] = {}

    def listen(self, name: str, listener: Listener) -> None:
        """Call `listener(epoch, change)` at each commit; see Engine.listen."""
        self._listeners.setdefault(name, []).append(listener)
        self._gather(name)

    def forget(self, name: str, listener: Listener) -> None:
        """Call a listener no more."""
        listeners = self._listeners.get(name, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(name, None)
        self._gather(name)

    def feed(self, relation: str, views: tuple[str, ...]) -> None:
        """From now on the changes of views are changes of a relation."""
        self._fed[relation] = views
        for name in views:
            self._gather(name)

    def unfeed(self, relation: str) -> None:
        """A relation is gone, which views may have fed."""
        for name in self._fed.pop(relation, ()):
            self._gather(name)

    def close(self, name: str) -> None:
        """A view is gone, and its listeners with it."""
        self._listeners.pop(name, None)

    def feeding(self) -> list[tuple[str, list[MaintainedView]]]:
        """The relations that views feed, with these, each after those that its views read: they were made after it."""
        return [(relation, [self._views[name] for name in views]) for relation, views in self._fed.items()]

    def begin(self) -> None:
        """Forget the changes of the epoch before."""
        if not self._listeners and not self._fed:
            return
        for name in self._heard() & self._views.keys():
            for member in self._views[name].members:
                member.forget_change()

    def read(self, view: MaintainedView) -> OutputChange:
        """A view's change in the epoch that has just been applied. DataError if its rows cannot be computed.

        What is read for it is part of what the change costs.
        """
        before = [member.reads.steps for member in view.members]
        try:
            return read_change(view, self._machine, self._evaluate)
        finally:
            for member, steps in zip(view.members, before, strict=True):
                self._machine.counters[view.number] += member.reads.steps - steps
                member.reads.steps = steps

    def tell(self, epoch: int, touched: set[str], changes: dict[str, OutputChange]) -> None:
        """Pass the changes of views over `touched` relations on to listeners; `changes` has those already read."""
        for name, listeners in list(self._listeners.items()):
            view = self._views[name]
            if not view.relations & touched:
                continue
            change: OutputChange | Error
            try:
                change = changes[name] = changes[name] if name in changes else self.read(view)
            except Exception as error:  # The epoch is committed: whatever it is, it is the listeners' to know.
                why = f"{type(error).__name__}: {error}"
                change = error if isinstance(error, Error) else OperationalError("a view's change is lost", why=why)
            for listener in list(listeners):
                listener(epoch, change)
        for name in self._heard() & self._views.keys():
            top = self._views[name].top
            if top is not None:
                top.commit()
        self.begin()

    def _heard(self) -> set[str]:
        """The views whose changes are read."""
        return {*self._listeners, *chain.from_iterable(self._fed.values())}

    def _gather(self, name: str) -> None:
        view = self._views.get(name)
        if view is None:
            return
        wanted = name in self._heard()
        for member in view.members:
            if member.definition.limit is not None:
                if not wanted:
                    if member.top is not None:
                        member.top.close()
                    member.top = None
                elif member.top is None:
                    member.top = best_rows(member) or TopRows(view_rows(member, self._evaluate))
            elif wanted and member.delta is None:
                member.delta = OutputDelta(member.tree, member.limbs, divided=member.divided)
            elif not wanted:
                member.delta = None

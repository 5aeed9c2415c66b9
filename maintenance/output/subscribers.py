"""Where the changes of nodes go: to listeners, and into nodes that read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from sqlfront.maintenance.output.node import Node
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.storage.errors import Error, OperationalError

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.encoded import Encoded

Listener = Callable[[int, "OutputChange | Error"], None]


class Subscribers:
    """The listeners of nodes, and the relations that nodes feed.

    A node's output change is gathered only while it has a subscriber: an epoch costs as much more as it changes. Epochs
    do not ask the nodes that feed relations among `pulled`: their changes wait (see pulled.py).
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._listeners: dict[str, list[Listener]] = {}
        self._fed: dict[str, tuple[str, ...]] = {}
        self.pulled: Collection[str] = ()

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

    def feed(self, relation: str, nodes: tuple[str, ...]) -> None:
        """From now on the changes of nodes are changes of a relation."""
        self._fed[relation] = nodes
        for name in nodes:
            self._gather(name)

    def unfeed(self, relation: str) -> None:
        """A relation is gone, which nodes may have fed."""
        for name in self._fed.pop(relation, ()):
            self._gather(name)

    def close(self, name: str) -> None:
        """A node is gone, and its listeners with it."""
        self._listeners.pop(name, None)

    def listened(self) -> set[str]:
        """The nodes that somebody listens to."""
        return set(self._listeners)

    def beside(self, name: str) -> set[str]:
        """The relations that a node reads, and those that it feeds."""
        return {*self._nodes[name].relations, *(relation for relation, nodes in self._fed.items() if name in nodes)}

    def feeding(self) -> list[tuple[str, list[Node]]]:
        """The relations that nodes feed, with these, each after those that its nodes read: they were made after it."""
        return [(relation, [self._nodes[name] for name in names]) for relation, names in self._fed.items()]

    def pushed(self) -> list[tuple[str, list[Node]]]:
        """Those of `feeding` whose changes are part of the epochs in which they come about."""
        return [(relation, nodes) for relation, nodes in self.feeding() if relation not in self.pulled]

    def begin(self) -> None:
        """Forget the changes of the epoch before."""
        for name in self._pushing():
            self._nodes[name].begin()

    def tell(
        self,
        epoch: int,
        done: Sequence[Encoded],
        changes: dict[str, OutputChange],
        output: Callable[[Node, Sequence[Encoded]], OutputChange],
    ) -> bool:
        """Pass the changes of nodes on to listeners, after an epoch with these changes of relations; whether there are
        any. `changes` has those already read, `output` reads that of a node."""
        touched = {item.relation.name for item in done}
        for name in list(self._listeners):
            node = self._nodes[name]
            if not node.relations & touched:
                continue
            change: OutputChange | Error
            try:
                change = changes[name] = changes[name] if name in changes else output(node, done)
            except Exception as error:
                change = _lost(error)
            self._pass_on(node, epoch, change)
        pushing = [self._nodes[name] for name in self._pushing()]
        for node in pushing:
            node.commit()
        for node in pushing:
            node.begin()
        return bool(self._listeners)

    def tell_of(self, node: Node, epoch: int, done: Sequence[Encoded]) -> None:
        """Pass the change of one node on to its listeners, after an epoch with these changes of relations."""
        try:
            change: OutputChange | Error = node.output(done)
        except Exception as error:
            change = _lost(error)
        self._pass_on(node, epoch, change)
        node.commit()

    def _pass_on(self, node: Node, epoch: int, change: OutputChange | Error) -> None:
        for listener in tuple(self._listeners.get(node.name, ())):
            listener(epoch, change)

    def _pushing(self) -> set[str]:
        """The nodes that epochs ask for their changes."""
        names = set(self._listeners)
        for relation, nodes in self._fed.items():
            if relation not in self.pulled:
                names.update(nodes)
        return names & self._nodes.keys()

    def _heard(self) -> set[str]:
        """The nodes whose changes are read."""
        return {*self._listeners, *chain.from_iterable(self._fed.values())}

    def _gather(self, name: str) -> None:
        if name in self._nodes:
            self._nodes[name].hear(name in self._heard())


def _lost(error: Exception) -> Error:
    """What listeners are told of an epoch, which is committed, if the change of a node cannot be read."""
    why = f"{type(error).__name__}: {error}"
    return error if isinstance(error, Error) else OperationalError("a view's change is lost", why=why)

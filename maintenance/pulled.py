"""Changes of groups that wait in their node until a view that keeps them in order is read.

A ranked view over groups pays for each changed group: its old and its new row pass from one node to the other. Where
nobody listens, these rows are asked for by reads alone. So the node goes on gathering its output delta from epoch to
epoch, and a read of the ranked view *pulls* the delta into the relation that the node feeds, outside of any epoch.

Invariant: the delta is the difference between the node's rows and those that the relation's stores hold. Programs add
to it, so undoing an epoch takes its part back, also if that part has been pulled meanwhile: then the next pull turns it
round. A change costs what it costs the groups; a read costs O(log N) for each group that has changed since the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from sqlfront.maintenance.output.node import Node, TreeNode
from sqlfront.maintenance.view.emission import USUAL_ROWS
from sqlfront.planner.model.query import raw_places
from sqlfront.storage.errors import Error

if TYPE_CHECKING:
    from sqlfront.maintenance.engine import Engine


class PulledRelations:
    """The relations of an engine whose changes wait. `nodes` are the names of the nodes that feed them."""

    def __init__(self, engine: Engine) -> None:
        self.nodes: Collection[str] = frozenset()
        self._engine = engine
        self._fed: dict[str, list[TreeNode]] = {}
        # DuckDB may read several views at once, in threads of its own, under one hold of the engine's lock.
        self._pulling = Lock()

    def find(self) -> set[str]:
        """Find the relations again, after nodes, relations or listeners have come or gone: of those that begin or cease
        to wait, nothing waits. Returns the relations that are read by nodes which began or ceased to gather."""
        engine, subscribers = self._engine, self._engine.subscribers
        feeding = subscribers.feeding()
        readers: dict[str, list[Node]] = {name: [] for name, _ in feeding}
        for node in engine.nodes.values() if readers else ():
            for name in node.relations & readers.keys():
                readers[name].append(node)
        feeders = Counter(node.name for _, nodes in feeding for node in nodes)
        fed = {name: nodes for name, nodes in feeding if self._may_wait(name, nodes, readers[name], feeders)}
        self._fed = {name: [node for node in nodes if isinstance(node, TreeNode)] for name, nodes in fed.items()}
        before, self.nodes = self.nodes, frozenset(node.name for nodes in fed.values() for node in nodes)
        subscribers.pulled = frozenset(fed)
        changed = [engine.nodes[name] for name in set(before) ^ self.nodes if name in engine.nodes]
        return {relation for node in changed for relation in node.relations}

    def catch_up(self, relations: Collection[str]) -> None:
        """Pull what waits for these relations; to be called before anything reads their stores, or is built on them.

        What waits in write buffers is merged. DataError if a row cannot be computed: its groups go on waiting.
        """
        for name, nodes in self._fed.items():
            if name in relations and any(_waiting(node) for node in nodes):
                with self._pulling:
                    if any(_waiting(node) for node in nodes):
                        self._engine.pull(name, nodes)
        if (buffers := self._engine.write_buffers) is not None:
            buffers.merge(relations)

    def waits(self, relations: Collection[str]) -> bool:
        """Whether changes wait for one of these relations."""
        return any(_waiting(node) > 0 for name in relations for node in self._fed.get(name, ()))

    def catch_up_all(self) -> None:
        """Pull all that waits, but for what cannot be computed."""
        for name in self._fed:
            with suppress(Error):
                self.catch_up([name])
        if (buffers := self._engine.write_buffers) is not None:
            buffers.merge_all()

    def bound(self) -> None:
        """Pull where as many groups wait as a node has memory for in a usual epoch."""
        for name, nodes in self._fed.items():
            if any(_waiting(node) >= USUAL_ROWS for node in nodes):
                with suppress(Error):
                    self.catch_up([name])

    def _may_wait(self, name: str, nodes: Sequence[Node], readers: Sequence[Node], feeders: Counter[str]) -> bool:
        """Whether a relation's changes may wait: no epoch can be refused because of them, and nobody learns of them but
        ranked views, when they are read. `feeders` counts the relations that each node feeds."""
        engine, listened = self._engine, self._engine.subscribers.listened()
        return (
            bool(readers)
            and not any(node.name in listened or node.name in feeders for node in readers)
            and all(isinstance(node, TreeNode) and node.view.ranked for node in readers)
            and all(item.source is not None for item in engine.relations[name].inputs.values())
            and name not in engine.deferred.copied
            and not any(node.name in listened or feeders[node.name] > 1 for node in nodes)
            and all(isinstance(node, TreeNode) and _gathers_groups(node) for node in nodes)
        )


def _gathers_groups(node: TreeNode) -> bool:
    """Whether a node's rows are groups as they are kept: DuckDB computes no column, and leaves none out."""
    definition = node.view.definition
    plain = definition.mode == "group" and not definition.distinct_sets and raw_places(definition) is not None
    return plain and node.view.delta is not None and definition.limit is None


def _waiting(node: TreeNode) -> int:
    """How many groups have been touched since the last pull."""
    return node.view.delta.rows if node.view.delta is not None else 0

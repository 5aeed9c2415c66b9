"""The shortest way in for a single row whose change passes through nodes that other nodes read, or has listeners.

A *chain* is what such an epoch runs: the programs of the table, and a stage for each node that feeds a relation. A
stage makes encoded rows of its relation; those of nodes that feed one relation are one change of it. The words of as-of
joins, and of views without computed columns, are copied; other views tell their changes as in the general way.
Listeners are told when the epoch is committed. A table has a chain if its changes reach no other nodes, and no listener
wants the changes of a node that feeds a relation. An epoch that overflows, needs a finer unit of floating values or
deletes an absent row is taken back and goes the general way.

Invariant: a chain leaves the state, the counters of changes and the steps that the general way would leave, and tells
listeners the same changes.
Cost: the programs, some calls for each stage, and for each listener its change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sqlfront.maintenance.epoch import RowFastPath
from sqlfront.maintenance.output.nearest_node import NearestRowsNode
from sqlfront.maintenance.output.node import Node, TreeNode
from sqlfront.maintenance.output.path_change import PathChange
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.program.machine import RelationPrograms, place_row, run_packed, run_row
from sqlfront.maintenance.program.shapes import COUNT
from sqlfront.maintenance.relation.base_relation import Rescale
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.planner.model.query import raw_places, shown_tuple
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.row_addresses import address_of

if TYPE_CHECKING:
    from sqlfront.maintenance.engine import Engine
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.view.emission import OutputDelta
    from sqlfront.storage.codecs.codec import Codec

Columns = Sequence[tuple["Codec", Sequence[int]]]
"""The codec of each column of a node, and where its words lie in the rows of its stage."""


MOST_ROWS = 4096
"""A node that puts out more rows of one epoch goes the general way, where memory is looked at as they come."""
_NO_ROWS = np.empty((0, 1), np.int64)
_ATTENDED = at.SHRINK | at.REBALANCE
"""What an epoch may ask for that is done after it."""


class Stage(Protocol):
    """One node of a chain."""

    @property
    def node(self) -> Node:
        """The node that makes the rows."""
        ...

    def rows(self, done: Sequence[Encoded]) -> np.ndarray:
        """The node's rows that go and come with the changes that are done. DataError if one cannot be computed."""
        ...

    @property
    def weight(self) -> int:
        """Which word of a row is its weight."""
        ...


@dataclass(frozen=True)
class Chain:
    """The stages in the order in which they run, with what they feed, and the nodes that have listeners."""

    links: Sequence[Link]
    listened: Sequence[Node]


class ChainedFastPath(RowFastPath):
    """The fast path of a relation whose changes pass through a chain."""

    def __init__(self, engine: Engine, relation: Relation, programs: RelationPrograms, chain: Chain) -> None:
        super().__init__(engine, relation, programs, heard=True, is_chained=True)
        self._chain, self._machine, self._tell_of = chain, engine.machine, engine.subscribers.tell_of
        self._listened = [(node, node.relations) for node in chain.listened]
        if any(link.relation.has_dictionaries for link in chain.links):
            self._sweep = engine.sweep_dictionaries

    def _run_kept(self, row: Sequence[Any], weight: int) -> int | None:
        """Readers of older epochs undo whole epochs."""
        return None

    def _enter(self, words: Sequence[Any], weight: int) -> int:
        done = [self._encoded]
        with Uninterrupted() as signals:
            number = (
                self._run_links(words, weight, done, signals) if self._chain.links else self._run_row(words, weight)
            )
            if number > 0:
                self._tell(number, done)
            self._forget()
            return number

    def _run_row(self, words: Sequence[Any], weight: int) -> int:
        """Apply and commit a row that nothing follows but what listeners are told."""
        if self._computation is None:
            number = run_row(self._address, words, weight)
        elif place_row(self._address, words, weight) and self._compute(self._computation):
            number = run_packed(self._address)
        else:
            return -at.REFUSED
        if number <= 0 and (number := self._attend(-number)) == 0:
            return -at.REFUSED
        self._stage[0] = 0  # The epoch stays, whatever comes.
        return number

    def _run_links(self, words: Sequence[Any], weight: int, done: list[Encoded], signals: Uninterrupted) -> int:
        """Apply and commit a row with the changes that it leads to."""
        done.clear()
        is_placed = place_row(self._address, words, weight)
        if not is_placed or (self._computation is not None and not self._compute(self._computation)):
            return -at.REFUSED
        try:
            flags = self._run_stages(done)
            signals.check()
        except BaseException:
            self._take_back(done)
            raise
        if flags & ~_ATTENDED:
            self._take_back(done)
            return -at.REFUSED
        if flags:
            self._attend_to(flags, [item.relation for item in done])
        for item in done:
            item.relation.counter[0] += item.rows
        self._machine.epochs += 1
        if flags & at.REBALANCE:
            self._engine.pulled.bound()
        return self._engine.epoch

    def _tell(self, epoch: int, done: Sequence[Encoded]) -> None:
        """Tell listeners what an epoch has changed."""
        for node, relations in self._listened:
            if not self._chain.links or _is_touched(relations, done):
                self._tell_of(node, epoch, done)

    def _run_stages(self, done: list[Encoded]) -> int:
        """Run the epoch, stage by stage, until one asks for attention; the flags, REFUSED if a row is not computed
        here. What has run is `done`."""
        flags = self._run(self._encoded, done)
        for link in self._chain.links:
            if flags & ~_ATTENDED:
                break
            try:
                found = link.rows(done)
            except (DataError, Rescale):
                return at.REFUSED
            if rows := sum(map(len, found)):
                item = link.encoded(found) if rows <= MOST_ROWS else None
                flags |= at.REFUSED if item is None else self._run(item, done)
        return flags

    def _run(self, item: Encoded, done: list[Encoded]) -> int:
        flags = self._machine.run_epoch([item])
        done.append(item)
        return flags

    def _attend_to(self, flags: int, relations: Sequence[Relation]) -> None:
        if flags & at.SHRINK:
            self._engine.shrink(relations)
        if flags & at.REBALANCE:
            self._engine.rebalance(relations)

    def _take_back(self, done: list[Encoded]) -> None:
        self._engine.undo_encoded(done)
        self._forget()

    def _forget(self) -> None:
        """Forget the rows that views have gathered: their stages made them from the table's."""
        for link in self._chain.links:
            for stage in link.stages:
                stage.node.begin()
        for node in self._chain.listened:
            node.begin()


class Link:
    """The stages that feed one relation, each with the words of its rows that become those of the relation's."""

    def __init__(
        self, stages: Sequence[tuple[Stage, Sequence[int]]], relation: Relation, programs: RelationPrograms
    ) -> None:
        self.stages, self.relation, self._programs = [stage for stage, _ in stages], relation, programs
        self._taken = [np.array(taken, np.int64) for _, taken in stages]

    def rows(self, done: Sequence[Encoded]) -> list[np.ndarray]:
        """The rows of each stage."""
        return [stage.rows(done) for stage in self.stages]

    def encoded(self, rows: Sequence[np.ndarray]) -> Encoded | None:
        """The rows as changes of the relation; None if a word has to be computed by DuckDB."""
        parts = [own.take(taken, 1) for own, taken in zip(rows, self._taken, strict=True) if len(own)]
        data = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self.relation.computation is not None and not self.relation.compute(data):
            return None
        item = Encoded(self.relation, self._programs, address_of(data), len(data), data)
        item.net()
        return item


class DeltaRows:
    """The stage of a view whose rows are words of its output delta: no column is computed, and no sum."""

    def __init__(self, node: TreeNode, delta: OutputDelta) -> None:
        self.node, self._delta, self._relations = node, delta, node.relations

    def rows(self, done: Sequence[Encoded]) -> np.ndarray:
        return self._delta.changed() if _is_touched(self._relations, done) else _NO_ROWS

    def columns(self) -> Columns | None:
        """The columns of the view; None if one is computed."""
        view, definition, delta = self.node.view, self.node.view.definition, self._delta
        places = raw_places(definition)
        # A set's tuple counts 1, or it is not there.
        is_plain = definition.mode == "bag" or (delta.supports and shown_tuple(definition) is not None)
        if places is None or not is_plain or view.distinct_sets or delta.shape.limbs > 1:
            return None
        found = []
        for raw in (definition.raw[place] for place in places):
            codec = view.codecs.get(str(raw.variable)) if raw.kind == "variable" else None
            if codec is None or codec.type != raw.type:
                return None
            found.append((codec, delta.shape.places([str(raw.variable)])))
        return found

    @property
    def weight(self) -> int:
        shape = self._delta.shape
        return shape.keys + shape.parts.index(COUNT)


class JoinedPairs:
    """The stage of an as-of join."""

    def __init__(self, node: NearestRowsNode) -> None:
        self.node = node

    def rows(self, done: Sequence[Encoded]) -> np.ndarray:
        return self.node.changed_rows(done)

    def columns(self) -> Columns:
        """The columns of the pairs."""
        own = self.node.own
        return [(own.codec_of(column.name), own.places_of(column.name)) for column in own.relation.columns]

    @property
    def weight(self) -> int:
        return -1


class ToldRows:
    """The stage of any other view: its change, encoded."""

    def __init__(self, node: TreeNode, relation: Relation) -> None:
        self.node, self._relation, self._relations = node, relation, node.relations

    def rows(self, done: Sequence[Encoded]) -> np.ndarray:
        return self.node.output(done).encode(self._relation) if _is_touched(self._relations, done) else _NO_ROWS

    @property
    def weight(self) -> int:
        return -1


def _is_touched(relations: Container[str], done: Sequence[Encoded]) -> bool:
    """Whether one of these relations has changes."""
    return any(item.relation.name in relations for item in done)


class Chains:
    """The chains of an engine's relations, as its nodes, relations and listeners are now."""

    def __init__(self, engine: Engine, programs: Mapping[str, RelationPrograms]) -> None:
        self._engine, self._programs = engine, programs
        self._order = {name: place for place, (name, _) in enumerate(engine.subscribers.pushed())}
        self._feeding = dict(engine.subscribers.pushed())
        self._fed, self._readers = defaultdict[str, list[str]](list), defaultdict[str, list[Node]](list)
        for name, nodes in self._feeding.items():
            for node in nodes:
                self._fed[node.name].append(name)
        self._branches = set[str]()
        for node in engine.nodes.values():
            for relation in node.relations:
                self._readers[relation].append(node)
            if isinstance(node, TreeNode) and self._is_listened_to(node, self._fed[node.name]):
                self._branches |= {branch.name for branch in node.view.branches}

    def above(self, names: Iterable[str]) -> set[str]:
        """These relations, and all whose changes reach one of them."""
        found = set(names)
        for name in sorted(self._feeding, key=lambda one: -self._order[one]):
            if name in found:
                found |= {relation for node in self._feeding[name] for relation in node.relations}
        return found

    def of(self, name: str) -> Chain | None:
        """The chain of a relation; None if its changes go the general way, or reach no node that others read or listen
        to."""
        reached, listened, waiting = set[str](), dict[str, Node](), [name]
        while waiting:
            relation = waiting.pop()
            for node in self._readers[relation]:
                fed = self._fed[node.name]
                if self._is_listened_to(node, fed):
                    listened[node.name] = node
                elif self._is_heard(node, fed):
                    return None
                waiting += [one for one in fed if one not in reached]
                reached.update(fed)
        if self._engine.deferred.copied.keys() & reached:
            return None
        links = [self._link(relation) for relation in sorted(reached, key=self._order.__getitem__)]
        found = [link for link in links if link is not None]
        return Chain(found, list(listened.values())) if (found or listened) and len(found) == len(links) else None

    def _is_listened_to(self, node: Node, fed: Sequence[str]) -> bool:
        """Whether listeners alone want the changes of a view."""
        is_listened = node.name in self._engine.subscribers.listened()
        return is_listened and not fed and isinstance(node, TreeNode) and node.name not in self._engine.pulled.nodes

    def _is_heard(self, node: Node, fed: Sequence[str]) -> bool:
        """Whether somebody wants the changes of a node besides the relations that it feeds. The changes of a branch are
        told by its view, if that has listeners."""
        engine = self._engine
        if node.name in self._branches:
            return False
        if node.name in engine.subscribers.listened():
            return True
        if fed or node.name in engine.pulled.nodes:
            return False
        return not isinstance(node, TreeNode) or node.view.is_heard

    def _link(self, name: str) -> Link | None:
        relation = self._engine.relations[name]
        stages = [self._stage(node, relation) for node in self._feeding[name]] if relation.computable else []
        found = [one for one in stages if one is not None]
        return Link(found, relation, self._programs[name]) if found and len(found) == len(stages) else None

    def _stage(self, node: Node, relation: Relation) -> tuple[Stage, Sequence[int]] | None:
        """The stage of a node, and which words of its rows are the relation's; None if it has none."""
        if isinstance(node, NearestRowsNode):
            pairs = JoinedPairs(node)
            taken = _taken(relation, pairs.columns(), pairs.weight)
            return None if taken is None else (pairs, taken)
        if not (isinstance(node, TreeNode) and isinstance(node.view.changes, PathChange)):
            return None
        if node.view.delta is not None:
            delta = DeltaRows(node, node.view.delta)
            columns = delta.columns()
            taken = None if columns is None else _taken(relation, columns, delta.weight)
            if taken is not None:
                return delta, taken
        return ToldRows(node, relation), range(relation.width)


def _taken(relation: Relation, columns: Columns, weight: int) -> list[int] | None:
    """Which word of a stage's row each word of the relation's row is, any for what is computed; None if a value has
    other words there."""
    named = dict(zip((column.name for column in relation.columns), columns, strict=True))
    taken = [weight] * relation.width
    for item in relation.inputs.values():
        if item.source is None:
            continue
        codec, places = named[item.source]
        if item.codec is None or codec.type != item.codec.type:
            return None
        taken[item.place : item.place + item.words] = places
    return taken

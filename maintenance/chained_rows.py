"""The shortest way in for a single row whose change passes through nodes that other nodes read.

A *chain* is what such an epoch runs: the programs of the table, and a stage for each relation that a node feeds. A
stage makes encoded rows of its relation from the words of the rows before it. Views that hand on rows of one relation,
and as-of joins, do so without Arrow and without DuckDB; other views tell what their paths have gathered. A table has a
chain if its changes reach no other nodes, and nobody listens to any of them. An epoch that asks for attention is taken
back and goes the general way.

Invariant: a chain leaves the state, the counters of changes and the steps that the general way would leave.
Cost: the programs, and some calls for each stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sqlfront.maintenance.epoch import RowFastPath
from sqlfront.maintenance.output.nearest_node import NearestRowsNode
from sqlfront.maintenance.output.node import Node, TreeNode
from sqlfront.maintenance.output.path_change import PathChange
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.program.machine import RelationPrograms, place_row
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.planner.model.query import shown_places
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.stores.row_addresses import address_of

if TYPE_CHECKING:
    from sqlfront.maintenance.engine import Engine
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.storage.codecs.codec import Codec

Columns = Sequence[tuple["Codec", Sequence[int]]]
"""The codec of each column of a node, and where its words lie in the rows that the node makes."""


MOST_ROWS = 4096
"""A node that puts out more rows of one epoch goes the general way, where memory is looked at as they come."""
_NO_ROWS = np.empty((0, 1), np.int64)


class Stage(Protocol):
    """One node of a chain."""

    @property
    def node(self) -> Node:
        """The node that makes the rows."""
        ...

    def rows(self, done: Sequence[Encoded]) -> np.ndarray:
        """The node's rows that go and come with the changes that are done, each with its weight behind its words.
        DataError if one cannot be computed."""
        ...


class ChainedFastPath(RowFastPath):
    """The fast path of a relation whose changes pass through a chain."""

    def __init__(self, engine: Engine, relation: Relation, programs: RelationPrograms, chain: Sequence[Link]) -> None:
        super().__init__(engine, relation, programs, heard=True, is_chained=True)
        self._chain, self._machine = chain, engine.machine
        if any(link.relation.has_dictionaries for link in chain):
            self._sweep = engine.sweep_dictionaries

    def _run_kept(self, row: Sequence[Any], weight: int) -> int | None:
        """Readers of older epochs undo whole epochs."""
        return None

    def _enter(self, words: Sequence[Any], weight: int) -> int:
        is_placed = place_row(self._address, words, weight)
        if not is_placed or (self._computation is not None and not self._compute(self._computation)):
            return -at.REFUSED
        done: list[Encoded] = []
        with Uninterrupted() as signals:
            try:
                flags = self._run_stages(done)
                signals.check()
            except BaseException:
                self._take_back(done)
                raise
            if flags & ~at.SHRINK:
                self._take_back(done)
                return -at.REFUSED
            if flags:
                self._engine.shrink([item.relation for item in done])
            for item in done:
                item.relation.changes += item.rows
            self._machine.epochs += 1
            self._forget()
            return self._engine.epoch

    def _run_stages(self, done: list[Encoded]) -> int:
        """Run the epoch, stage by stage, until one asks for attention; the flags, REFUSED if a row is not computed
        here. What has run is `done`."""
        flags = self._run(self._encoded, done)
        for link in self._chain:
            if flags & ~at.SHRINK:
                break
            try:
                rows = link.stage.rows(done)
            except DataError:
                return at.REFUSED
            if len(rows):
                item = link.encoded(rows) if len(rows) <= MOST_ROWS else None
                flags |= at.REFUSED if item is None else self._run(item, done)
        return flags

    def _run(self, item: Encoded, done: list[Encoded]) -> int:
        flags = self._machine.run_epoch([item])
        done.append(item)
        return flags

    def _take_back(self, done: list[Encoded]) -> None:
        self._engine.undo_encoded(done)
        self._forget()

    def _forget(self) -> None:
        """Forget the rows that views have gathered: their stages made them from the table's."""
        for link in self._chain:
            link.stage.node.begin()


class Link:
    """A stage, and how the words of its rows become encoded rows of the relation."""

    def __init__(self, stage: Stage, relation: Relation, programs: RelationPrograms, taken: Sequence[int]) -> None:
        self.stage, self.relation, self._programs = stage, relation, programs
        self._taken = np.array(taken, np.int64)

    def encoded(self, rows: np.ndarray) -> Encoded | None:
        """The rows as changes of the relation; None if a word has to be computed by DuckDB."""
        data = rows.take(self._taken, 1)
        if not self.relation.compute(data):
            return None
        item = Encoded(self.relation, self._programs, address_of(data), len(data), data)
        item.net()
        return item


class HandedOn:
    """The stage of a view of one relation that hands on its rows: those that pass its conditions."""

    def __init__(self, node: TreeNode) -> None:
        self.node = node
        source = next(iter(node.view.sources.values()))
        store, self._relation = source.store, source.relation
        self._predicate = store.inputs["predicate"].place if store.predicate else None
        self._required = [store.inputs["key " + expression].place for expression in store.required]
        self._copies = store.inputs["copies"].place if store.copies is not None else None

    def rows(self, done: Sequence[Encoded]) -> np.ndarray:
        item = next((one for one in done if one.relation is self._relation), None)
        if item is None:
            return _NO_ROWS
        rows: np.ndarray = item.keep.reshape(-1, item.keep.shape[-1])[: item.rows, : self._relation.width]
        if self._predicate is not None:
            rows = rows[rows[:, self._predicate] == 1]
        for place in self._required:
            rows = rows[rows[:, place] != NULL_CODE]
        if self._copies is not None:
            rows = rows.copy()
            rows[:, -1] *= rows[:, self._copies]
        return rows

    def columns(self) -> Columns | None:
        """The columns of the view, which are words of the relation's rows; None if it hands on anything else."""
        view, definition = self.node.view, self.node.view.definition
        is_one = definition.mode == "bag" and len(definition.atoms) == 1 and definition.limit is None
        places = shown_places(definition)
        if not is_one or view.windows is not None or view.distinct_sets or places is None or None in places:
            return None
        source = next(iter(view.sources.values()))
        expressions = {column.name: column.expression for column in definition.atoms[0].variables}
        found = []
        for raw in (definition.raw[place] for place in places if place is not None):
            item = source.store.inputs.get("key " + expressions.get(str(raw.variable), ""))
            if raw.kind != "variable" or item is None or item.codec is None:
                return None
            found.append((item.codec, range(item.place, item.place + item.words)))
        return found


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


class Gathered:
    """The stage of any other view whose paths gather its change."""

    def __init__(self, node: TreeNode, relation: Relation) -> None:
        self.node, self._relation = node, relation

    def rows(self, done: Sequence[Encoded]) -> np.ndarray:
        if not any(item.relation.name in self.node.relations for item in done):
            return _NO_ROWS
        return self.node.output(done).encode(self._relation)


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
        for node in engine.nodes.values():
            for relation in node.relations:
                self._readers[relation].append(node)

    def above(self, names: Iterable[str]) -> set[str]:
        """These relations, and all whose changes reach one of them."""
        found = set(names)
        for name in sorted(self._feeding, key=lambda one: -self._order[one]):
            if name in found:
                found |= {relation for node in self._feeding[name] for relation in node.relations}
        return found

    def of(self, name: str) -> list[Link] | None:
        """The chain of a relation; None if its changes go the general way, or reach no node that others read."""
        reached, waiting = set[str](), [name]
        while waiting:
            relation = waiting.pop()
            for node in self._readers[relation]:
                fed = self._fed[node.name]
                if self._is_heard(node, fed):
                    return None
                waiting += [one for one in fed if one not in reached]
                reached.update(fed)
        if self._engine.deferred.copied.keys() & reached:
            return None
        links = [self._link(relation) for relation in sorted(reached, key=self._order.__getitem__)]
        found = [link for link in links if link is not None]
        return found if found and len(found) == len(links) else None

    def _is_heard(self, node: Node, fed: Sequence[str]) -> bool:
        """Whether somebody else wants the changes of a node than the relations that it feeds."""
        engine = self._engine
        if node.name in engine.subscribers.listened():
            return True
        if fed or node.name in engine.pulled.nodes:
            return False
        return not isinstance(node, TreeNode) or node.view.is_heard

    def _link(self, name: str) -> Link | None:
        relation, nodes = self._engine.relations[name], self._feeding[name]
        [node, *others] = nodes
        columns: Columns | None = None
        stage: Stage
        if others or not relation.computable:
            return None
        if isinstance(node, NearestRowsNode):
            stage = JoinedPairs(node)
            columns = stage.columns()
        elif not isinstance(node, TreeNode) or not isinstance(node.view.changes, PathChange):
            return None
        else:
            stage = HandedOn(node)
            columns = stage.columns()
        taken = None if columns is None else _taken(relation, columns)
        if taken is None and isinstance(node, TreeNode):
            stage, taken = Gathered(node, relation), [*range(relation.width)]
        return None if taken is None else Link(stage, relation, self._programs[name], taken)


def _taken(relation: Relation, columns: Columns) -> list[int] | None:
    """Which word of a node's row each word of the relation's row is, -1 for what is computed, and for the weight; None
    if a value has other words there."""
    named = dict(zip((column.name for column in relation.columns), columns, strict=True))
    taken = [-1] * relation.width
    for item in relation.inputs.values():
        if item.source is None:
            continue
        codec, places = named[item.source]
        if item.codec is None or codec.type != item.codec.type:
            return None
        taken[item.place : item.place + item.words] = places
    return taken

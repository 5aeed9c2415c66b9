"""What runs for a change of one relation: the paths of all views that read it, whole, or shared out to several threads.

Each store's delta is made, the atoms that read the store as before the change have their paths, the store is written,
and the atoms that read it as after the change have theirs. A view's tables are written by its own paths alone. So
threads share an epoch out view by view; they wait for each other where a store is written that several of them read.
Then every table has the same rows in the same places, and every counter the same steps, whatever the number of threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from sqlfront.maintenance.program.machine import RelationPrograms
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.relation.base_relation import LeafStore, Relation
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.kernels import layout as at


@dataclass(frozen=True)
class Share:
    """The share that thread `number` of `threads` has in an epoch. `thread_of` says by a node's number whose the node
    is; `barriers` are those of stores, by their ids, and, by 0, that of the relation."""

    number: int = 0
    threads: int = 1
    thread_of: Mapping[int, int] = field(default_factory=dict)
    barriers: Mapping[int, int] = field(default_factory=dict)

    def thread(self, node: int) -> int:
        """The thread that a node belongs to; stores that several nodes read (0) are thread 0's."""
        return self.thread_of.get(node, 0)

    def writer(self, store: LeafStore, owner: int) -> int:
        """The thread that writes a store. Thread 0 alone writes reference counts of dictionaries."""
        return 0 if store.table.counts_references else self.thread(owner)

    @contextmanager
    def alone(self, assembler: Assembler, threads: Collection[int], key: int) -> Iterator[None]:
        """What is added inside runs while the others of these threads wait."""
        meeting = len(threads) > 1
        if meeting:
            assembler.barrier(self.barriers[key], len(threads))
        yield
        if meeting:
            assembler.barrier(self.barriers[key], len(threads))


WHOLE = Share()


def programs_of(
    relation: Relation, readers: Sequence[MaintainedView], owner: Callable[[LeafStore], int], share: Share = WHOLE
) -> RelationPrograms:
    """The programs of a relation that these views read, or one thread's share of them. The steps that write a store are
    counted for node number `owner(store)`."""
    reading = defaultdict[int, list[MaintainedView]](list)
    for view in readers:
        for store in view.stores():
            reading[id(store)].append(view)
    body, check, sweep = Assembler(), Assembler(), Assembler()
    written, together = list[LeafStore](), False
    for store in relation.stores.values():
        views, writer = reading[id(store)], share.writer(store, owner(store))
        threads = {share.thread(view.number) for view in views} | ({writer} if not store.stateless else set())
        together = together or len(threads) > 1
        if share.number in threads:
            own = [view for view in views if share.thread(view.number) == share.number]
            relation.lift(body, store)
            _add_paths(body, own, store, 0)
            if not store.stateless:
                with share.alone(body, threads, id(store)):
                    if writer == share.number:
                        written.append(store)
                        body.path(owner(store))
                        body.upsert(store.table)
                        body.path_end()
            _add_paths(body, own, store, 1)
    check.finish(at.CHECK, [store.table for store in relation.stores.values()])
    with share.alone(sweep, range(share.threads if together else 1), 0):
        sweep.finish(at.SWEEP, [store.table for store in written])
    for view in readers:
        if share.thread(view.number) == share.number:
            sweep.finish(at.SWEEP, view.tables(), view.number)
            view.add_ranking(sweep, relation)
            view.add_requests(sweep, relation)
    return RelationPrograms(body.program(), check.program(), sweep.program(), body.lists)


def _add_paths(assembler: Assembler, views: Iterable[MaintainedView], store: LeafStore, position: int) -> None:
    for view in views:
        view.add_paths(assembler, store, position)


def shared_programs(
    relations: Sequence[tuple[Relation, Sequence[MaintainedView]]],
    owner: Callable[[LeafStore], int],
    thread_of: Mapping[int, int],
    threads: int,
) -> list[list[RelationPrograms]]:
    """The programs of relations, each with its readers, for each of so many threads."""
    shares: list[list[RelationPrograms]] = [[] for _ in range(threads)]
    for relation, readers in relations:
        keys = [0, *map(id, relation.stores.values())]
        words = np.zeros(at.BARRIER_WORDS * len(keys), np.int64)
        places = range(int(words.ctypes.data), int(words.ctypes.data) + words.nbytes, 8 * at.BARRIER_WORDS)
        barriers = dict(zip(keys, places, strict=True))
        for number, programs in enumerate(shares):
            share = Share(number, threads, thread_of, barriers)
            programs.append(programs_of(relation, readers, owner, share))
            programs[-1].barriers = words
    return shares


def share_out(steps: Mapping[int, int], threads: int) -> dict[int, int]:
    """Which of so many threads each node is given to, by nodes' numbers: the dearest first, to the thread with the
    least to do. The cost of a node is the power of two above its `steps`: so shares seldom change."""
    cost = {number: 1 << int(spent).bit_length() for number, spent in steps.items()}
    loads, thread_of = [0] * threads, dict[int, int]()
    for number in sorted(cost, key=lambda number: (-cost[number], number)):
        thread = loads.index(min(loads))
        thread_of[number], loads[thread] = thread, loads[thread] + cost[number]
    return thread_of

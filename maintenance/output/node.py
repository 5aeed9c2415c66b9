"""The contract of a node of the epoch graph: it reads relations, owns state, and may feed an output relation.

A node's state changes with the programs of the relations that it reads. When these have run, `output` tells the change
of the node's rows. The change becomes encoded rows of the output relation, which the epoch records: undoing an epoch
replays the recorded rows with the sign turned and never asks a node again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sqlfront.maintenance.output.described_node import describe_view
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.output.path_change import PathChange
from sqlfront.maintenance.output.sql_rows import view_batches, view_rows
from sqlfront.maintenance.output.top_change import KnownRows, noted_groups
from sqlfront.maintenance.output.window_change import WindowChange
from sqlfront.storage.errors import InternalError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from sqlfront.maintenance.program.machine import Machine
    from sqlfront.maintenance.relation.base_relation import Evaluate, LeafStore, Relation
    from sqlfront.maintenance.relation.calendar import Calendar
    from sqlfront.maintenance.relation.encoded import Encoded
    from sqlfront.maintenance.tree.description import Description
    from sqlfront.maintenance.view.change_reader import ChangeReader
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.storage.codecs.encoding import Dictionaries

    Rows = tuple[Iterable[Any], int]
    Load = Callable[[str], Rows]


class Node(Protocol):
    """`number` is the node's counter of steps; an `inner` node goes with the last reader of what it feeds."""

    name: str
    number: int
    inner: bool

    @property
    def relations(self) -> set[str]:
        """The relations that the node reads."""
        ...

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and DuckDB types of the node's rows."""
        ...

    def hear(self, wanted: bool) -> None:
        """Gather the change of each epoch from now on, or no longer."""
        ...

    def begin(self) -> None:
        """Forget the change of the epoch before."""
        ...

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        """The change of the node's rows in the epoch whose changes of relations are `done`.

        DataError if a row cannot be computed. The steps that this takes are the node's.
        """
        ...

    def commit(self) -> None:
        """The epoch stays."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The node's rows now, one per copy."""
        ...

    def describe(self) -> Description:
        """What the node is, what a change costs it, and what it keeps."""
        ...

    def close(self) -> None:
        """Let go of the stores of what the node reads."""
        ...


class ComputedNode(Node, Protocol):
    """A node of rows that DuckDB computes; computed_nodes.py lists them by the value that plans them."""

    @staticmethod
    def planned(name: str, rows: Any) -> Description:
        """The description of such a node before it is built."""
        ...

    def open(self, load: Load) -> None:
        """Open and fill the stores of what the node reads; `load` gives the present rows of a table."""
        ...

    def feed(self, relation: Relation) -> None:
        """Keep the stores of its own rows that the node needs. This relation has the rows."""
        ...


class Keeper(Protocol):
    """The engine's state as its nodes use it. `calendars` are those of the clocks' relations; `memory_limit` is what a
    change may take, in bytes."""

    relations: dict[str, Relation]
    nodes: dict[str, Node]
    machine: Machine
    dictionaries: Dictionaries
    calendars: defaultdict[str, Calendar]
    memory_limit: Callable[[], float]

    @property
    def evaluate(self) -> Evaluate: ...

    def fill(self, relation: Relation, store: LeafStore, rows: Rows | None, load: Load | None) -> None:
        """Fill a new store from these rows, or from the relation's present ones."""
        ...

    def close_store(self, relation: Relation, store: LeafStore, user: str) -> None:
        """The user reads a store no longer."""
        ...


class CountedReads:
    """The steps of the views' reads in the body are those of the changes of the node with this number."""

    __slots__ = ("_before", "_counters", "_number", "_views")

    def __init__(self, views: Sequence[MaintainedView], counters: np.ndarray, number: int) -> None:
        self._views, self._counters, self._number = views, counters, number

    def __enter__(self) -> None:
        self._before = [view.reads.steps for view in self._views]

    def __exit__(self, *exception: object) -> None:
        for view, before in zip(self._views, self._before, strict=True):
            if (steps := view.reads.steps - before) != 0:
                self._counters[self._number] += steps
                view.reads.steps = before


class TreeNode:
    """A maintained view as a node: its output comes along the paths of the delta, or from noted first rows."""

    def __init__(self, view: MaintainedView, keeper: Keeper) -> None:
        self.view, self.name, self.number = view, view.name, view.number
        self._keeper, self._machine, self._evaluate = keeper, keeper.machine, keeper.evaluate

    @property
    def inner(self) -> bool:
        return self.view.inner

    @inner.setter
    def inner(self, inner: bool) -> None:
        self.view.inner = inner

    @property
    def relations(self) -> set[str]:
        return self.view.relations

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.view.definition.columns

    def hear(self, wanted: bool) -> None:
        view = self.view
        if wanted and view.changes is None:
            view.changes = self._change_reader()
        elif not wanted and view.changes is not None:
            view.changes.close()
            view.changes = None

    def begin(self) -> None:
        if self.view.changes is not None:
            self.view.changes.forget()

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        changes = self.view.changes
        if isinstance(changes, PathChange) and (told := changes.told()) is not None:
            return told
        with self._counted():
            return self._changes.read()

    def changed_rows(self) -> tuple[pa.Table, np.ndarray]:
        """The output with the weights of its rows. Weights of equal rows may cancel."""
        with self._counted():
            return self._changes.rows()

    def commit(self) -> None:
        if self.view.changes is not None:
            self.view.changes.commit()

    @property
    def _changes(self) -> ChangeReader:
        if self.view.changes is None:
            raise InternalError(f"the changes of {self.name} are read, which nobody gathers")
        return self.view.changes

    def _change_reader(self) -> ChangeReader:
        view, evaluate = self.view, self._evaluate
        if view.plan.turns is not None:  # No path ends at the view's rows.
            return KnownRows(lambda: view_rows(view, evaluate))
        if view.definition.limit is None:
            if view.windows is not None:
                return WindowChange(view, view.windows, self._machine, evaluate, self._keeper.memory_limit)
            return PathChange(view, self._machine, evaluate, self._keeper.dictionaries)
        return noted_groups(view, evaluate, self._keeper.dictionaries) or KnownRows(lambda: view_rows(view, evaluate))

    def _counted(self) -> CountedReads:
        return CountedReads(self.view.members, self._machine.counters, self.number)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return view_batches(self.view, self._evaluate)

    def describe(self) -> Description:
        return describe_view(self.view, int(self._machine.counters[self.number]) - self.view.steps_before)

    def close(self) -> None:
        self.hear(False)
        for one in self.view.attachments:
            one.close()
        for source in self.view.all_sources:
            self._keeper.close_store(source.relation, source.store, self.name)
        for table in (table for member in self.view.members for table in member.all_tables()):
            table.reset()  # Sessions know the view until their next statements.

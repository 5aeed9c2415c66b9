"""A node of islands: groups of rows that follow one another in an order, of which DuckDB computes the touched ones.

The rows are a store of the relation that the node reads, a sorted group for each partition. The node's own rows are a
store of the relation that it feeds, sorted by where their islands begin: it is the index of the islands before the
epoch. Both know positions. The programs of the relations keep the stores, and undo them; nothing else is kept.

An island begins where the flag of a row says so, and a few rows around a row decide its flag. So a changed row changes
the flags of these rows alone. The islands that they are in, and the one before where a row begins its island, are
touched: they split, merge, come or go. Adjacent touched islands are one *run* of rows, which begins and ends where
islands go on beginning. DuckDB computes the islands of the runs anew. What differs from the node's rows is its output.

Islands are numbered from the beginning of the run. Where the number is put out, the number before the run is added, and
the islands behind the run are renumbered.

Cost: O(log N) for a changed row, and the rows of the touched islands, which are steps; with numbers, the later islands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlfront.maintenance.output.group_store import GroupStore, copies
from sqlfront.maintenance.output.kept_rows import QueriedRowsNode
from sqlfront.maintenance.output.ordered_store import NumberedStore, Run
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.program.netting import net_words
from sqlfront.maintenance.tree.description import Description
from sqlfront.planner.model.island_rows import RUN, RUN_TYPES, IslandRows
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.kernels.layout import ORDER_DESCENDING, ORDER_NULLS_LAST
from sqlfront.storage.stores.ordered_rows import OrderedRows

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded

COPY = "__copy"
"""The column of the node's rows that says which copy of a row an island begins with."""


class Touched(NamedTuple):
    """Touched islands: for each run of them the partition's number, a changed row of the partition, and the positions
    of the node's rows that they are, from `begins` to before `ends`. The runs of a partition follow one another."""

    partition: np.ndarray
    row: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


class IslandsNode(QueriedRowsNode):
    """The islands of one relation; see `Node`. `kept` are the rows of the relation, `own` those of the node, which
    `feed` opens. Positions are those of both stores."""

    own: NumberedStore
    rows: IslandRows

    def __init__(self, name: str, rows: IslandRows, number: int, keeper: Keeper) -> None:
        super().__init__(name, rows, number, keeper)
        self._order = [
            (one.variable, ORDER_DESCENDING * one.descending + ORDER_NULLS_LAST * (not one.nulls_first))
            for one in rows.items
        ]
        self.kept = NumberedStore(self.relation, rows.partition, self._order, len(self._order), name)
        self._starts = {f"__start{place}": one for place, one in enumerate(self._order[: rows.compared])}

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Those that are computed, and where the islands begin."""
        types = {column.name: column.type for column in self.relation.columns}
        starts = ((name, types[column]) for name, (column, _) in self._starts.items())
        return (*self.rows.columns, *starts, (COPY, "BIGINT"))

    def open(self, load: Load) -> None:
        self.kept.open(self._keeper, None, load)

    def feed(self, relation: Relation) -> None:
        """Keep the node's rows as those of the relation that it feeds."""
        order = [*((name, flags) for name, (_, flags) in self._starts.items()), (COPY, 0)]
        self.own = NumberedStore(relation, self.rows.keys, order, len(self._starts), self.name)
        self.own.open(self._keeper, (self.compute_all().to_batches(), 0))
        self.count_from_now()

    def close(self) -> None:
        self._keeper.close_store(self.relation, self.kept.store, self.name)

    @staticmethod
    def planned(name: str, rows: IslandRows) -> Description:
        of, by = table_name(rows.table), f" of each {', '.join(rows.partition)}" if rows.partition else ""
        kept, computed = f"rows of {of}{by} in order", "islands that a change touches"
        if rows.single:
            computed = f"{rows.before} rows before, and {rows.after} after, a changed row"
        elif rows.number is not None:
            computed = f"{computed}; later ones of the partition are renumbered"
        return Description(
            name,
            "neighbours" if rows.single else "islands",
            (rows.table,),
            rows.cost.update,
            rows.output,
            rows.label,
            notes=(f"{'neighbours' if rows.single else 'islands'}: {kept}", f"DuckDB computes the {computed}"),
            facts={"computed": rows.label, "of": of, "keys": list(rows.partition), "sql": rows.query},
        )

    def stores(self) -> Iterator[tuple[str, str, GroupStore]]:
        block = table_name(self.name)
        yield f"rows of {block}", "rows in order", self.kept
        yield block, "islands", self.own

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        kept, own = self.kept.now(), self.own.now()
        words, _ = self.kept.delta(done)
        if not len(words):
            return self.own.change(np.empty((self.own.store.table.keys, 0), np.int64), np.empty(0, np.int64))
        keys = words[:, self.kept.key_places]
        touched = self._touched(kept, own, words, keys)
        groups, mine = kept.groups(keys[touched.row]), own.groups(keys[touched.row])
        begins = self._first_rows(kept, own, groups, mine, touched.begins, 0)
        ends = self._first_rows(kept, own, groups, mine, touched.ends, kept.copies(groups))
        computed, run = self._computed(kept, groups, begins, ends)
        old, new = self.own.run(own, mine, touched.begins, touched.ends).words, self.own.encoded(computed)
        if self.rows.number is not None:
            old, new = self._numbered(own, mine, touched, old, new, run)
        self._machine.counters[self.number] += kept.steps + own.steps + old.shape[1] + new.shape[1]
        weights = np.repeat([-1, 1], [old.shape[1], new.shape[1]])
        rows, weights = net_words(np.concatenate([old, new], axis=1).T, weights)
        return self.own.change(rows.T, weights)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.own.decoded(copies(*self.own.all_rows())).to_batches()

    def compute_all(self) -> pa.Table:
        """All islands, computed from the kept rows. O(N log N)."""
        kept = self.kept.now()
        groups = kept.all_groups()
        return self._computed(kept, groups, np.zeros(len(groups), np.int64), kept.copies(groups))[0]

    def _touched(self, kept: OrderedRows, own: OrderedRows, words: np.ndarray, keys: np.ndarray) -> Touched:
        """The islands that changed rows touch, as they were before the epoch."""
        groups, mine, asked = kept.groups(keys), own.groups(keys), words[:, self.kept.compared_places]
        before = self.kept.before(kept, groups, asked, inclusive=False)
        behind = self.kept.before(kept, groups, asked, inclusive=True)
        low, high = np.maximum(before - self.rows.after, 0), np.minimum(behind + self.rows.before, kept.copies(groups))
        low = self._probes(kept, groups, low, low < before, asked)
        high = self._probes(kept, groups, high - 1, high > behind, asked)
        begins = self._ties(own, mine, self.own.before(own, mine, low, inclusive=True) - 1, inclusive=False)
        begun = self.own.before(own, mine, low, inclusive=False) <= begins  # The island before may be merged with it.
        begins = np.where(begun, self._ties(own, mine, begins - 1, inclusive=False), begins)
        first = self._ties(own, mine, np.zeros_like(begins), inclusive=True)
        return _merged(keys, begins, np.maximum(self.own.before(own, mine, high, inclusive=True), first))

    def _probes(
        self, kept: OrderedRows, groups: np.ndarray, position: np.ndarray, other: np.ndarray, asked: np.ndarray
    ) -> np.ndarray:
        """What is compared with where islands begin: of the row at a position if that is `other` than the changed row,
        else of this."""
        rows, _ = kept.select(groups, position)
        found = np.where(other[:, None], self.kept.compared(kept, rows), asked)
        return found[:, : len(self.own.compared_places)]

    def _ties(self, own: OrderedRows, groups: np.ndarray, position: np.ndarray, *, inclusive: bool) -> np.ndarray:
        """The position of the first of the node's rows whose islands begin where that at a position does or, if
        `inclusive`, behind the last of these; 0 where there is none."""
        rows, _ = own.select(groups, position)
        found, there = np.zeros(len(groups), np.int64), rows != 0
        probes = self.own.compared(own, rows[there])
        found[there] = self.own.before(own, groups[there], probes, inclusive=inclusive)
        return found

    def _first_rows(
        self,
        kept: OrderedRows,
        own: OrderedRows,
        groups: np.ndarray,
        mine: np.ndarray,
        position: np.ndarray,
        edge: np.ndarray | int,
    ) -> np.ndarray:
        """The position of the first row of the island at a position; the partition's `edge` before the first island
        and behind the last. What goes on beginning an island is no changed row, so its place is known."""
        rows, _ = own.select(mine, position)
        there = (rows != 0) & (position > 0)
        found = np.broadcast_to(edge, len(groups)).copy()
        [copy] = own.gather(rows[there], list(self.own.places_of(COPY)))
        probes = self.own.compared(own, rows[there])
        found[there] = self.kept.before(kept, groups[there], probes, inclusive=False) + copy
        return found

    def _computed(
        self, kept: OrderedRows, groups: np.ndarray, begins: np.ndarray, ends: np.ndarray
    ) -> tuple[pa.Table, np.ndarray]:
        """The node's rows for runs of rows, and the number of the run that each is in. A run has the positions from
        `begins` to before `ends` of a group."""
        some = ends > begins
        low = np.where(some, np.maximum(begins - self.rows.before, 0), ends)
        high = np.where(some, np.minimum(ends + self.rows.after, kept.copies(groups)), ends)
        run = self.kept.run(kept, groups, low, high)
        place = np.arange(len(run.number))
        position = low[run.number] + place - np.searchsorted(run.number, run.number)
        inside = (begins[run.number] <= position) & (position < ends[run.number])
        rows = asked = self.kept.decoded(run.words)
        for name, values in zip(RUN, (run.number, place, self._peers(run), inside), strict=True):
            asked = asked.append_column(name, [values])
        found = self.query(asked, dict(zip(RUN, RUN_TYPES, strict=True)))
        names, first = [name for name, _ in self.rows.columns], found.column(found.num_columns - 1).to_numpy()
        computed, begun = found.select(range(len(names))).rename_columns(names), rows.take(first)
        for name, (column, _) in self._starts.items():
            computed = computed.append_column(name, begun.column(column))
        return computed.append_column(COPY, [run.copy[first]]).combine_chunks(), run.number[first]

    def _peers(self, run: Run) -> np.ndarray:
        """The number of the peers that each row of runs is one of."""
        if self.rows.by_rows:
            return np.arange(len(run.number))
        changed = np.zeros(len(run.number), bool)
        changed[1:] = run.number[1:] != run.number[:-1]
        for place in self.kept.compared_places[: len(self.own.compared_places)]:
            changed[1:] |= run.words[place, 1:] != run.words[place, :-1]
        return np.cumsum(changed)

    def _numbered(
        self,
        own: OrderedRows,
        groups: np.ndarray,
        touched: Touched,
        old: np.ndarray,
        new: np.ndarray,
        run: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows that go and come, with their numbers in the partition: those of touched islands, which are numbered
        within their `run`, and later ones whose number has changed."""
        column = self.rows.number
        assert column is not None
        former = self._number_at(own, groups, touched.begins - 1)
        local, last = self.own.numbers(column, new), np.zeros(len(groups), np.int64)
        np.maximum.at(last, run, local)
        more = former + last - self._number_at(own, groups, touched.ends - 1)
        first = np.append(True, touched.partition[1:] != touched.partition[:-1])
        total = np.cumsum(more)
        shift = total - np.repeat((total - more)[first], np.diff(np.append(np.flatnonzero(first), len(groups))))
        new = self.own.with_numbers(column, new, local + (former + shift - more)[run])
        following = np.append(touched.begins[1:], 0)
        until = np.where(np.append(first[1:], True), own.copies(groups), following)
        later = self.own.run(own, groups, touched.ends, np.where(shift != 0, until, 0))
        moved = self.own.with_numbers(column, later.words, self.own.numbers(column, later.words) + shift[later.number])
        return np.concatenate([old, later.words], axis=1), np.concatenate([new, moved], axis=1)

    def _number_at(self, own: OrderedRows, groups: np.ndarray, position: np.ndarray) -> np.ndarray:
        """The number of the island at a position, 0 where there is none."""
        assert self.rows.number is not None
        rows, _ = own.select(groups, position)
        places = range(self.own.store.table.keys)
        return self.own.numbers(self.rows.number, own.gather(rows, places))


def _merged(keys: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> Touched:
    """Touched islands of partitions with these keys, with those together that overlap or meet."""
    partition = np.unique(keys, axis=0, return_inverse=True)[1].ravel() if keys.shape[1] else np.zeros_like(begins)
    order = np.lexsort((begins, partition))
    beyond = partition[order] * (int(ends.max(initial=0)) + 1)  # Partitions one after the other.
    begins, reach = begins[order] + beyond, np.maximum.accumulate(ends[order] + beyond)
    first = np.flatnonzero(np.append(True, begins[1:] > reach[:-1]))
    last = np.append(first[1:], len(begins)) - 1
    return Touched(partition[order][first], order[first], (begins - beyond)[first], (reach - beyond)[last])

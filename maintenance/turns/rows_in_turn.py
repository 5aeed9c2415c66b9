"""Distinct rows in turn: a read takes one outer group after the other, and has the best inner rows of it in memory.

When the read begins it has the rows of all atoms as arrays, sorts them, and leaves out what joins nothing. Then the
groups' inner rows are runs of the sorted inner atom, and what joins an inner row are runs of the partners.

Invariant: each outer row has an inner row in its run, and each inner row has rows in all of its partners' runs. So each
group puts out rows, and none twice: groups show different values, and so do the best rows of a group. Memory: O(rows of
the tables) and a batch. Delay: O(rows of a group), at most those of the inner atom, and a batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sqlfront.maintenance.program.metering import Meter, Metered
from sqlfront.maintenance.program.rows import BATCH, FIRST_BATCH
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.turns.atom_rows import AtomRows, RangeRuns, best_rows, first_numbers, numbered
from sqlfront.planner.model.distinct_turns import Turns
from sqlfront.storage.errors import DataError

_MOST = 2.0**62


class RowsInTurn(Metered):
    """One enumeration in progress, in batches of `rows` rows: of those that show what `where` says.

    Valid until the state changes.
    """

    def __init__(self, tree: Tree, turns: Turns, where: Mapping[str, tuple[int, ...]], meter: Meter) -> None:
        super().__init__(meter)
        self._tree, self._turns, self._where = tree, turns, where
        self._groups: _Groups | None = None
        self._best: _Best | None = None
        self._passed = self.rows = 0

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance; the number of rows now in the batch, 0 at the end."""
        if self._groups is None:
            self._groups = _Groups(self._tree, self._turns, self._where)
        self.rows = self._best.next(capacity, gather) if self._best is not None else 0
        if not self.rows:
            self._best = self._groups.next()
            self.rows = self._best.next(capacity, gather) if self._best is not None else 0
        self._passed += self.rows
        self._tell()
        return self.rows

    @property
    def steps(self) -> int:
        """Elementary steps taken so far: rows of the tables, inner rows of groups, and rows put out."""
        return self._passed + (self._groups.steps if self._groups is not None else 0)

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch."""
        assert self._best is not None
        return self._best.words(variable)

    def values(self, part: Part) -> np.ndarray:
        """Each row is there once."""
        return np.ones((self.rows, 1), np.int64)

    def all_ones(self, part: Part) -> bool:
        """Whether a part's value is 1 for each row."""
        return True


class _Groups:
    """The rows of all atoms, sorted and reduced, and how far the outer groups have been read. Made in O(N log N)."""

    def __init__(self, tree: Tree, turns: Turns, where: Mapping[str, tuple[int, ...]]) -> None:
        self.turns = turns
        self.outer, self.inner = (AtomRows(tree, atom, where) for atom in (turns.outer_atom, turns.inner_atom))
        self.partners = [AtomRows(tree, partner.atom, where) for partner in turns.partners]
        self.steps = sum(atom.read for atom in (self.outer, self.inner, *self.partners))
        self.runs = [self._runs(number) for number in range(len(self.partners))]
        self._filter()
        self._sort()
        self._begin, self._capacity = 0, FIRST_BATCH

    def next(self) -> _Best | None:
        """The best inner rows of the next groups, as many as make a batch, and at least one; None at the end."""
        if self._begin == self.outer.count:
            return None
        begin = self._begin
        before = int(self._total[begin - 1]) if begin else 0
        rows = np.searchsorted(self._total, before + self._capacity, "right")
        place = max(int(np.searchsorted(self._ends, rows, "right")) - 1, int(self._group[begin]))
        end = self._begin = int(self._ends[place])
        self._capacity = min(2 * self._capacity, BATCH)
        counts = self._joining.counts[begin:end]
        outer = np.repeat(np.arange(begin, end), counts)
        starts = np.repeat(self._joining.begins[begin:end] - (np.cumsum(counts) - counts), counts)
        inner = starts + np.arange(len(outer))
        self.steps += len(outer)
        shown = first_numbers((self._group[outer] - self._group[begin]) * self._shows + self._shown[inner])
        best = self.turns.best
        places = best_rows(shown, self._values[inner], greatest=best is None or best.greatest)
        return _Best(self, self._firsts[self._group[outer[places]]], inner[places])

    def _runs(self, number: int) -> RangeRuns:
        """The runs of a partner's rows, without those in whose place others serve."""
        atom, partner = self.partners[number], self.turns.partners[number]
        kept, variable = [*partner.range.by, *partner.shown], partner.range.variable
        if variable is not None and partner.extreme is None:
            kept.append(variable)
        atom.keep(atom.reduced(list(dict.fromkeys(kept)), partner.extreme))
        runs = RangeRuns(atom, self._joined(number), partner.range)
        atom.keep(runs.order)
        return runs

    def _joined(self, number: int) -> AtomRows:
        """The atom that a partner joins."""
        return self.inner if self.turns.partners[number].inner else self.outer

    def _filter(self) -> None:
        """Leave out rows of the outer and the inner atom that join nothing."""
        for atom in (self.outer, self.inner):
            runs = [run for number, run in enumerate(self.runs) if self._joined(number) is atom]
            live = np.ones(atom.count, bool)
            for run in runs:
                live &= run.counts > 0
            self._keep(atom, np.flatnonzero(live))

    def _keep(self, atom: AtomRows, rows: np.ndarray) -> None:
        """Keep some rows of the outer or the inner atom, in this order, with the runs of what joins them."""
        atom.keep(rows)
        for number, run in enumerate(self.runs):
            if self._joined(number) is atom:
                run.keep(rows)

    def _sort(self) -> None:
        """Sort the inner rows by what outer rows find them by, and outer rows by group."""
        turns, outer, inner = self.turns, self.outer, self.inner
        compared = [v for test in turns.range.tests for v in (test.left, test.right) if v in outer.words]
        kept = dict.fromkeys([*turns.outer, *turns.range.by, *compared])
        if turns.extreme is not None:
            del kept[turns.extreme.variable]
        self._keep(outer, outer.reduced(list(kept), turns.extreme))
        joining = RangeRuns(inner, outer, turns.range)
        self._keep(inner, joining.order)
        [group] = numbered([outer.of(turns.outer)], [outer.count])
        rows = np.argsort(group, kind="stable")
        rows = rows[joining.counts[rows] > 0]
        self._keep(outer, rows)
        joining.keep(rows)
        self._joining, self._total = joining, np.cumsum(joining.counts)
        begins = np.diff(group[rows], prepend=-1) > 0
        self._group, self._firsts = np.cumsum(begins) - 1, np.flatnonzero(begins)
        self._ends = np.append(self._firsts[1:], len(rows))
        [self._shown] = numbered([inner.of(turns.inner)], [inner.count])
        self._shows = int(self._shown.max(initial=0)) + 1
        self._values = np.zeros(inner.count, np.int64) if turns.best is None else inner.ordered(turns.best.variable)


class _Best:
    """The best inner rows of some groups, by places, and how far what joins them has been read."""

    def __init__(self, groups: _Groups, outer: np.ndarray, inner: np.ndarray) -> None:
        self._groups, self._outer, self._inner = groups, outer, inner
        turns = groups.turns
        self._numbers = [number for number, partner in enumerate(turns.partners) if partner.shown]
        sides = [inner if turns.partners[number].inner else outer for number in self._numbers]
        self._counts = [groups.runs[number].counts[side] for number, side in zip(self._numbers, sides, strict=True)]
        self._begins = [groups.runs[number].begins[side] for number, side in zip(self._numbers, sides, strict=True)]
        made, about = np.ones(len(outer), np.int64), np.ones(len(outer))
        for counts in self._counts:
            made, about = made * counts, about * counts
        if about.sum() > _MOST:
            raise DataError("groups of the view have more rows than can be counted", hint="put out fewer columns")
        self._ends, self._passed = np.cumsum(made), 0
        self._starts = self._ends - made
        self._rows = self._rest = np.empty(0, np.int64)

    def next(self, capacity: int, gather: bool) -> int:
        """Advance by up to `capacity` rows."""
        count = min(capacity, int(self._ends[-1]) - self._passed)
        if gather:
            number = np.arange(self._passed, self._passed + count)
            self._rows = np.searchsorted(self._ends, number, "right")
            self._rest = number - self._starts[self._rows]
        self._passed += count
        return count

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch."""
        groups, rest = self._groups, self._rest
        for atom, rows in ((groups.outer, self._outer), (groups.inner, self._inner)):
            if variable in atom.words:
                return [word[rows[self._rows]] for word in atom.words[variable]]
        for number, counts, begins in zip(self._numbers, self._counts, self._begins, strict=True):
            own = counts[self._rows]
            if variable in groups.partners[number].words:
                return [word[begins[self._rows] + rest % own] for word in groups.partners[number].words[variable]]
            rest = rest // own
        raise KeyError(variable)

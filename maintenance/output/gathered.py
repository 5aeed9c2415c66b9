"""The output delta of a view read out: the tuples that an epoch has changed, with their values before and after it.

The values after the change are looked up in the tables, those before it are less by the delta. O(tuples changed).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from sqlfront.maintenance.output.distinct_change import ChangedGroups
from sqlfront.maintenance.output.reading import rows_of
from sqlfront.maintenance.program.netting import net_encoded
from sqlfront.maintenance.program.rows import whole_numbers
from sqlfront.maintenance.program.shapes import COUNT, TOUCHES, Part, Shape
from sqlfront.maintenance.tree.missing_rows import missing_row
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.view.emission import Factor, OutputDelta, factors
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.codecs.sums import combine
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.programs import scan
from sqlfront.storage.kernels.tables import key_lookups
from sqlfront.storage.stores.row_addresses import address_of, gather_words
from sqlfront.storage.stores.table import Table

Sides = Sequence[tuple[str, np.ndarray]]
"""Times, "before" or "after" an epoch or its "change", and the numbers of the tuples that are picked at each."""


class Gathered:
    """An output delta read out: the tuples in which something changed, each `once` or not."""

    def __init__(
        self, view: MaintainedView, delta: OutputDelta, groups: ChangedGroups | None, *, once: bool = True
    ) -> None:
        self._view, self._delta = view, delta
        self.data = delta.changed(once=once) if groups is None else groups.rows(delta)
        self._values: dict[tuple[str, Part], np.ndarray] = {}
        self._addresses: dict[int, np.ndarray] = {}
        self._zeros: list[np.ndarray] = []
        self._is_looked_up = False

    def live(self, when: str) -> np.ndarray:
        """Which tuples are in the view before, or after, the change; aggregates without GROUP BY always are."""
        if self._view.definition.scalar:
            return np.arange(len(self.data))
        counts = self.values(when, COUNT)
        return np.flatnonzero(counts[:, 0] if counts.shape[1] == 1 else (counts != 0).any(axis=1))

    def rows(self, sides: Sides) -> TuplesAtTimes:
        """Of each (time, tuples), the tuples as they are at that time."""
        return TuplesAtTimes(self, sides)

    def words(self, variable: str) -> list[np.ndarray]:
        return [np.ascontiguousarray(self.data[:, place]) for place in self._delta.shape.starts[variable]]

    def counts(self) -> np.ndarray:
        """The change of each tuple's count."""
        return self.values("change", COUNT)

    def values(self, when: str, part: Part) -> np.ndarray:
        """A part's change, or its value before or after, for each tuple."""
        if when != "change" and not self._is_looked_up:
            self._is_looked_up, self._values = True, self._values | self._whole_rows()
        if (when, part) not in self._values:
            if when == "change":
                shape = self._delta.shape
                place = shape.keys + shape.parts.index(part) * shape.limbs
                found = np.ascontiguousarray(self.data[:, place : place + shape.limbs])
            elif when == "before":
                found = combine([(1, self.values("after", part)), (-1, self.values("change", part))])
            else:
                found = self._present(part)
            self._values[when, part] = found
        return self._values[when, part]

    def _whole_rows(self) -> dict[tuple[str, Part], np.ndarray]:
        """All parts before and after the change, where one row of one table has those of a tuple, a word for each."""
        shape, rows = self._delta.shape, rows_of(self._view)
        found = factors(rows.trees[0]) if rows.merged() is None and len(rows.trees) == 1 else []
        if len(found) != 1 or shape.limbs > 1 or found[0].shape.limbs > 1 or self._delta.supports:
            return {}
        own, parts = found[0].shape, [part for part in shape.parts if part != TOUCHES]
        addresses = self._locate(rows.trees[0], found)[:, 0]
        after = gather_words(addresses, [own.keys + own.parts.index(part) for part in parts])
        change = self.data.T[[shape.keys + shape.parts.index(part) for part in parts]]
        before = after - change
        if (((after ^ change) & (after ^ before)) < 0).any():  # A difference beyond a word.
            return {}
        sides = (("before", before), ("after", after))
        return {(when, part): words[n].reshape(-1, 1) for when, words in sides for n, part in enumerate(parts)}

    def _present(self, part: Part) -> np.ndarray:
        """A part's value as it is now, the sum over the trees that are read."""
        rows = rows_of(self._view)
        if (merged := rows.merged()) is not None:
            words = [self.words(variable) for variable in merged.shape.variables]
            merged.look_up(np.column_stack([column for columns in words for column in columns]))
            return merged.values(part)
        found = [self._product(tree, part) for tree in rows.trees]
        return found[0] if len(found) == 1 else combine([(1, values) for values in found])

    def _product(self, tree: Tree, part: Part) -> np.ndarray:
        """A part's value in a tree: the product over the tables that hold the tuple, else 0."""
        found = factors(tree)
        if id(tree) not in self._addresses:
            self._addresses[id(tree)] = self._locate(tree, found)
        addresses = self._addresses[id(tree)]
        words = []
        for number, factor in enumerate(found):
            own = frozenset(pair for pair in part if pair[0] in factor.atoms)
            words += [number, factor.shape.keys + factor.shape.parts.index(own) * factor.shape.limbs]
            words.append(factor.shape.limbs)
        operands = np.array(words, np.int64)
        temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        limbs = max(factor.shape.limbs for factor in found)
        while True:
            out = np.zeros((len(self.data), limbs), np.int64)
            block, data = address_of(addresses), address_of(operands)
            if not scan.gather_product(
                block, len(found), data, len(found), address_of(out), limbs, len(out), address_of(temporary)
            ):
                return (out != 0).any(axis=1, keepdims=True).astype(np.int64) if self._delta.supports else out
            limbs += 1

    def _locate(self, tree: Tree, found: Sequence[Factor]) -> np.ndarray:
        """The address of each tuple's row in each table; where it has none, of a row of zeros."""
        widest = max(factor.shape.keys + len(factor.shape.parts) * factor.shape.limbs for factor in found)
        zeros = np.zeros(widest, np.int64)
        self._zeros.append(zeros)
        return np.column_stack([self._rows_of(tree, factor, address_of(zeros)) for factor in found])

    def _rows_of(self, tree: Tree, factor: Factor, zeros: int) -> np.ndarray:
        """The addresses of the tuples' rows in a table. Where the optional or absent view around it has none, it is
        that of the row that stands for none."""
        out, view = self._find(factor.table, factor.shape, zeros), factor.view
        around = None if view is None else next(view.borders(), None)
        if view is None or around is None:
            return out
        missing = missing_row(tree, view, factor.shape, inside=True)
        alone = self._find(*tree.by_key(around), zeros) == zeros
        if around.presence == "absent":
            return np.where(alone, missing, zeros)
        for variable in factor.shape.variables:
            if variable not in around.key:
                for words, null in zip(self.words(variable), tree.codecs[variable].encode_value(None), strict=True):
                    alone &= words == null
        return np.where(alone, missing, out)

    @functools.cached_property
    def _row_after_row(self) -> np.ndarray:
        return np.ascontiguousarray(self.data)

    def _find(self, table: Table, shape: Shape, zeros: int) -> np.ndarray:
        """The address of the row of each tuple in a table of this layout; `zeros` where it has none."""
        scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        places = np.array(self._delta.shape.places(shape.variables) or [0], np.int64)
        out = np.empty(len(self.data), np.int64)
        key_lookups.find_rows(
            table.address,
            address_of(scratch),
            address_of(self._row_after_row),
            self.data.shape[1],
            len(self.data),
            address_of(places),
            shape.keys,
            zeros,
            address_of(out),
        )
        return out


class GatheredBranches:
    """The output deltas of a view's branches together: each tuple once, with the sum of its changes."""

    def __init__(self, view: MaintainedView) -> None:
        self._places, width = dict[str, range](), 0
        for variable in (str(raw.variable) for raw in view.definition.raw):
            self._places[variable] = range(width, width := width + view.codecs[variable].words)
        changed = [
            (branch, names)
            for branch, names in zip(view.branches, view.branch_variables, strict=True)
            if branch.delta is not None and branch.delta.rows
        ]
        alone = len(changed) == 1  # Several branches are added up together, below.
        found = [(Gathered(branch, branch.delta, None, once=alone), names) for branch, names in changed if branch.delta]
        self.data = np.empty((sum(len(own.data) for own, _ in found), width + 1), np.int64)
        first = 0
        for own, names in found:
            self._fill(self.data[first : first + len(own.data)], own, names)
            first += len(own.data)
        if not alone and first:
            self.data = self.data[: net_encoded(address_of(self.data), first, width + 1, always=True)]

    def _fill(self, rows: np.ndarray, branch: Gathered, names: Mapping[str, str]) -> None:
        """Write the tuples of a branch with their changes, one row each."""
        rows[:, -1] = whole_numbers(branch.counts())
        for variable, places in self._places.items():
            for place, word in zip(places, branch.words(names[variable]), strict=True):
                rows[:, place] = word

    def live(self, when: str) -> np.ndarray:
        """All tuples: a bag is told by its changes alone."""
        return np.arange(len(self.data))

    def rows(self, sides: Sides) -> GatheredBranches:
        """All tuples: nobody asks for some of them."""
        return self

    def words(self, variable: str) -> list[np.ndarray]:
        return [np.ascontiguousarray(self.data[:, place]) for place in self._places[variable]]

    def values(self, part: Part) -> np.ndarray:
        return self.counts()

    def counts(self) -> np.ndarray:
        """The change of each tuple's count."""
        return np.ascontiguousarray(self.data[:, -1:])


AnyGathered = Gathered | GatheredBranches


class TuplesAtTimes:
    """Some tuples of a gathered change, each at one time, as rows of the view's core."""

    def __init__(self, gathered: Gathered, sides: Sides) -> None:
        self._gathered, self._sides = gathered, sides
        self._picked = np.concatenate([picked for _, picked in sides])
        self._has_all = len(sides) == 1 and len(self._picked) == len(gathered.data)

    def words(self, variable: str) -> list[np.ndarray]:
        words = self._gathered.words(variable)
        return words if self._has_all else [word[self._picked] for word in words]

    def values(self, part: Part) -> np.ndarray:
        if self._has_all:
            return self._gathered.values(self._sides[0][0], part)
        found = [self._gathered.values(when, part)[picked] for when, picked in self._sides]
        limbs = max(values.shape[1] for values in found)
        return np.concatenate([one if one.shape[1] == limbs else _widened(one, limbs) for one in found])


def _widened(values: np.ndarray, limbs: int) -> np.ndarray:
    """The same numbers in `limbs` limbs each."""
    signs = np.repeat(values[:, -1:] >> 63, limbs - values.shape[1], axis=1)
    return np.ascontiguousarray(np.hstack([values, signs]))

"""The change of a view from its output delta, which the paths gather: tuples that changed, before and after.

The values after the change are looked up in the tables, those before it are less by the delta. O(tuples changed).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.distinct_change import ChangedGroups, rewound
from sqlfront.maintenance.output.output import raw_batch
from sqlfront.maintenance.output.output_change import (
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    EncodedChange,
    OutputChange,
    Stamps,
    as_shown,
    netted,
    netted_words,
    no_rows,
    sql_rows,
    stamped_schema,
    with_columns,
)
from sqlfront.maintenance.output.reading import rows_of
from sqlfront.maintenance.output.row_program import RowProgram, Words
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.netting import net, net_words
from sqlfront.maintenance.program.rows import whole_numbers
from sqlfront.maintenance.program.shapes import COUNT, Part, Shape
from sqlfront.maintenance.tree.missing_rows import missing_row
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.view.emission import Factor, OutputDelta, factors
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import output_keys, shown_tuple
from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.codecs.sums import combine
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.programs import scan
from sqlfront.storage.kernels.tables import key_lookups
from sqlfront.storage.sql_text import quote
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate
    from sqlfront.storage.codecs.encoding import Dictionaries

Changed = tuple["pa.Table", np.ndarray, np.ndarray]
"""SQL rows, the number of the tuple that each is of, and their weights."""


class PathChange:
    """The change that the paths of a view, and of its distinct values, gather from now on; see `ChangeReader`.

    The paths of branches gather that of a view whose rows are those of its branches. `evaluate` computes SQL over raw
    columns.
    """

    def __init__(self, view: MaintainedView, machine: Machine, evaluate: Evaluate, dictionaries: Dictionaries) -> None:
        self._view, self._machine, self._evaluate, self._dictionaries = view, machine, evaluate, dictionaries
        self._members = view.branches or view.members
        self._schema: tuple[pa.Schema, list[pa.DataType], pa.Schema] | None = None
        for member in self._members:
            member.delta = OutputDelta(member.tree, member.limbs, machine)

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        rows, _, weights = self._changed()
        return rows, weights

    def read(self) -> OutputChange:
        view = self._view
        if not any(member.delta.rows for member in self._members if member.delta is not None):
            return EncodedChange({}, np.empty(0, np.int64), self._no_rows)
        if (found := self._encoded()) is not None:
            return found
        whole = view.definition.mode == "bag" and self._is_whole
        rows, tuples, weights = self._changed()
        if whole:
            return OutputChange(rows, weights, np.where(weights > 0, INSERT, DELETE))
        return _paired(rows, tuples, weights) if output_keys(view.definition) else netted(rows, weights)

    def forget(self) -> None:
        for member in self._members:
            if member.delta is not None:
                member.delta.clear()

    def commit(self) -> None:
        """Nothing is known of the rows but what has been gathered."""

    def close(self) -> None:
        for member in self._members:
            member.delta = None
        program = vars(self).pop("_program", None)  # If a change has made it.
        if program is not None:
            program.close()

    def _encoded(self) -> EncodedChange | None:
        """The change of a bag, or of a set of tuples, in words; None if DuckDB computes it."""
        delta = self._view.delta
        is_set = delta is not None and delta.supports and self._is_whole  # A tuple's count is 1, or it is not there.
        program = self._program if self._view.definition.mode == "bag" or is_set else None
        if program is None:
            return None
        gathered = self._gathered(once=False)
        words = program.run(gathered.words, len(gathered.data))
        if words is None:
            return None
        counts, repeats = whole_numbers(gathered.counts()), delta is not None and delta.repeats
        if not self._is_whole:
            (words, counts), repeats = netted_words(words, counts), False
        elif program.is_plain:
            return EncodedChange(words, counts, functools.partial(self._shown, words, gathered), repeats=repeats)
        return EncodedChange(words, counts, functools.partial(self._decoded, words), repeats=repeats)

    @functools.cached_property
    def _is_whole(self) -> bool:
        """Whether all words of a tuple show."""
        return shown_tuple(self._view.definition) is not None

    @functools.cached_property
    def _program(self) -> RowProgram | None:
        """What computes the rows, made for the first of their changes: DuckDB binds its expressions."""
        try:
            return RowProgram(self._view.definition, self._view.codecs, self._dictionaries)
        except NotSupportedError:
            return None

    def _no_rows(self, stamps: Stamps) -> pa.Table:
        return with_columns(no_rows(self._view, self._evaluate), stamps)

    def _shown(self, words: Words, gathered: AnyGathered, stamps: Stamps) -> pa.Table:
        """Rows in words, none of which is computed, in the types that DuckDB has once told for the view's columns."""
        import pyarrow as pa

        if (schema := self._view.output_schema) is not None:
            _, types, stamped = self._known(schema)
            arrays = []
            is_plain = bool(gathered.data.min(initial=0) > at.RESERVED_LOW)  # One look at all words, not one a column.
            for type_, (codec, code) in zip(types, words.values(), strict=True):
                own = codec.plain_array(code[0]) if is_plain and codec.is_word else codec.decode(list(code))
                arrays.append(as_shown(own, type_))
            if all(array is not None for array in arrays):
                arrays += [column for _, column in stamps]
                return pa.Table.from_arrays(arrays, schema=stamped if stamps else schema)
        return with_columns(self._output(gathered, [("change", np.arange(len(gathered.data)))])[0], stamps)

    def _known(self, schema: pa.Schema) -> tuple[pa.Schema, list[pa.DataType], pa.Schema]:
        """A schema, its types, and the schema of its rows with stamps: found once for each."""
        if self._schema is None or self._schema[0] is not schema:
            self._schema = schema, schema.types, stamped_schema(schema)
        return self._schema

    def _decoded(self, words: Words, stamps: Stamps) -> pa.Table:
        """Rows in words, in the types that DuckDB has for a view's columns."""
        import pyarrow as pa

        definition, arrays, fields = self._view.definition, [], []
        for name, (codec, own) in words.items():
            arrays.append(codec.decode([np.ascontiguousarray(word) for word in own]))
            fields.append(codec.arrow_field(name))
        rows, types = pa.Table.from_arrays(arrays, schema=pa.schema(fields)), dict(definition.columns)
        found = self._evaluate(rows, types, [quote(name) for name in types], None, definition.settings)
        return with_columns(found.rename_columns(list(types)), stamps)

    def _gathered(self, groups: ChangedGroups | None = None, *, once: bool = True) -> AnyGathered:
        if self._view.branches:
            return GatheredBranches(self._view)
        assert self._view.delta is not None
        return Gathered(self._view, self._view.delta, groups, once=once)

    def _changed(self) -> Changed:
        view = self._view
        if view.distinct_sets:
            groups = ChangedGroups(view)
            with rewound(view, self._machine):  # The rows before the epoch are made while distinct values are as then.
                gathered = self._gathered(groups)
                gone = self._signed(gathered, ["before"])
            return _joined(gone, self._signed(gathered, ["after"]))
        gathered = self._gathered()
        if view.definition.mode == "bag":
            counts = whole_numbers(gathered.counts())
            rows, visible = self._output(gathered, [("change", np.arange(len(counts)))])
            return rows, visible, counts[visible]
        return self._signed(gathered, ["before", "after"])

    def _signed(self, gathered: AnyGathered, times: Sequence[str]) -> Changed:
        """The rows before the change with weight -1, those after it with 1."""
        sides = [(when, gathered.live(when)) for when in times]
        rows, visible = self._output(gathered, sides)
        tuples = np.concatenate([picked for _, picked in sides])
        weights = np.repeat([-1 if when == "before" else 1 for when, _ in sides], [len(picked) for _, picked in sides])
        return rows, tuples[visible], weights[visible]

    def _output(self, gathered: AnyGathered, sides: list[tuple[str, np.ndarray]]) -> tuple[pa.Table, np.ndarray]:
        """The SQL rows of the tuples that are picked, at their times, and which of them HAVING lets through."""
        count = sum(len(picked) for _, picked in sides)
        return sql_rows(self._view, self._evaluate, raw_batch(self._view, gathered.rows(sides), count))


def _joined(one: Changed, other: Changed) -> Changed:
    import pyarrow as pa

    rows = pa.concat_tables([one[0], other[0]])
    return rows, np.concatenate([one[1], other[1]]), np.concatenate([one[2], other[2]])


def _paired(rows: pa.Table, tuples: np.ndarray, weights: np.ndarray) -> OutputChange:
    """Rows of tuples. A tuple is one row of the view at a time, so the row that went and the row that came pair."""
    import pyarrow as pa

    positions, sums = net([pa.array(tuples), *rows.columns], weights)
    order = np.lexsort((sums, tuples[positions]))
    positions, sums = positions[order], sums[order]
    same = tuples[positions]
    paired = np.zeros(len(same), bool)
    paired[:-1] = same[:-1] == same[1:]
    paired[1:] |= paired[:-1]
    kinds = np.where(sums > 0, INSERT, DELETE)
    kinds[paired] = np.where(sums > 0, UPDATE_POSTIMAGE, UPDATE_PREIMAGE)[paired]
    return OutputChange(rows.take(arrow_numbers(positions)), sums, kinds)


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

    def live(self, when: str) -> np.ndarray:
        """Which tuples are in the view before, or after, the change; aggregates without GROUP BY always are."""
        if self._view.definition.scalar:
            return np.arange(len(self.data))
        return np.flatnonzero((self.values(when, COUNT) != 0).any(axis=1))

    def rows(self, sides: Sequence[tuple[str, np.ndarray]]) -> _Rows:
        """Of each (time, tuples), the tuples as they are at that time."""
        return _Rows(self, sides)

    def words(self, variable: str) -> list[np.ndarray]:
        return [np.ascontiguousarray(self.data[:, place]) for place in self._delta.shape.starts[variable]]

    def counts(self) -> np.ndarray:
        """The change of each tuple's count."""
        return self.values("change", COUNT)

    def values(self, when: str, part: Part) -> np.ndarray:
        """A part's change, or its value before or after, for each tuple."""
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
            block, data = addresses.ctypes.data, operands.ctypes.data
            if not scan.gather_product(
                block, len(found), data, len(found), out.ctypes.data, limbs, len(out), temporary.ctypes.data
            ):
                return (out != 0).any(axis=1, keepdims=True).astype(np.int64) if self._delta.supports else out
            limbs += 1

    def _locate(self, tree: Tree, found: Sequence[Factor]) -> np.ndarray:
        """The address of each tuple's row in each table; where it has none, of a row of zeros."""
        widest = max(factor.shape.keys + len(factor.shape.parts) * factor.shape.limbs for factor in found)
        zeros = np.zeros(widest, np.int64)
        self._zeros.append(zeros)
        return np.column_stack([self._rows_of(tree, factor, int(zeros.ctypes.data)) for factor in found])

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
            scratch.ctypes.data,
            self._row_after_row.ctypes.data,
            self.data.shape[1],
            len(self.data),
            places.ctypes.data,
            shape.keys,
            zeros,
            out.ctypes.data,
        )
        return out


class GatheredBranches:
    """The output deltas of a view's branches together: each tuple once, with the sum of its changes."""

    def __init__(self, view: MaintainedView) -> None:
        self._places, width = dict[str, range](), 0
        for variable in (str(raw.variable) for raw in view.definition.raw):
            self._places[variable] = range(width, width := width + view.codecs[variable].words)
        found = [
            self._of(Gathered(branch, branch.delta, None), names)
            for branch, names in zip(view.branches, view.branch_variables, strict=True)
            if branch.delta is not None and branch.delta.rows
        ]
        if len(found) == 1:
            [self.data] = found
        else:
            words = np.concatenate([np.empty((0, width + 1), np.int64), *found])
            self.data = np.column_stack(net_words(words[:, :-1], words[:, -1]))

    def _of(self, branch: Gathered, names: Mapping[str, str]) -> np.ndarray:
        """The tuples of a branch with their changes, one row each."""
        counts = whole_numbers(branch.counts())
        words = [word for variable in self._places for word in branch.words(names[variable])]
        return np.column_stack([*words, counts])

    def live(self, when: str) -> np.ndarray:
        """All tuples: a bag is told by its changes alone."""
        return np.arange(len(self.data))

    def rows(self, sides: Sequence[tuple[str, np.ndarray]]) -> GatheredBranches:
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


class _Rows:
    """Some tuples of a gathered change, each at one time, as rows of the view's core."""

    def __init__(self, gathered: Gathered, sides: Sequence[tuple[str, np.ndarray]]) -> None:
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
        return np.concatenate([_widened(values, limbs) for values in found])


def _widened(values: np.ndarray, limbs: int) -> np.ndarray:
    """The same numbers in `limbs` limbs each."""
    signs = np.repeat(values[:, -1:] >> 63, limbs - values.shape[1], axis=1)
    return np.ascontiguousarray(np.hstack([values, signs]))

"""Assembling delta programs: from symbolic steps to the words that the interpreter runs, opcode by opcode.

The interpreter is storage/kernels/programs/interpreter.py, the opcodes are in storage/kernels/layout.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from sqlfront.maintenance.program.machine import Program
from sqlfront.maintenance.program.shapes import Shape, pair_parts
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table


@dataclass
class Assembler:
    """Collects operations; `program()` finishes. Buffer 0 holds the leaf's delta."""

    code: list[int] = field(default_factory=list)
    next_buffer: int = 1
    lists: bool = False  # Whether a row may meet many.

    def add(self, operation: int, *operands: int) -> None:
        self.code += [operation, 2 + len(operands), *operands]

    def append(self, paths: Assembler) -> None:
        """Add whole paths, which have been assembled before."""
        self.code += paths.code
        self.lists |= paths.lists

    def path(self, owner: int) -> None:
        """Start from the leaf's delta again; steps are counted for view number `owner`."""
        self.next_buffer = 1
        self.add(at.PATH, owner)

    def path_end(self) -> None:
        self.add(at.PATH_END)

    def upsert(self, table: Table) -> None:
        self.add(at.UPSERT, table.address)

    def append_rows(self, table: Table, runs: int) -> None:
        """Add rows that differ from each other to the end of a table; `runs` is where they are noted."""
        self.add(at.APPEND, table.address, runs)

    def scan(self, table: Table) -> None:
        self.add(at.SCAN, table.address)

    def lift(
        self,
        width: int,
        limbs: int,
        predicate: int,
        required: Sequence[int],
        keys: Sequence[int],
        factors: Iterable[tuple[int, int, int]],
        copies: int = -1,
    ) -> None:
        """Make a leaf's delta; places are words of the encoded data, whose last word is the weight. The word at the
        place `copies`, if there is one, multiplies it."""
        flat = [word for factor in factors for word in factor]
        sizes = (width, len(keys), len(flat) // 3, limbs)
        self.add(at.LIFT, *sizes, predicate, copies, len(required), *required, *keys, *flat)

    def probe(self, table: Table, places: Sequence[int], join: Join, missing: int = 0, *, absent: bool = False) -> None:
        """Match the delta with rows of a table; where there is none, with the row at the address `missing`. `absent`:
        only where there is none."""
        self._join(at.PROBE, [table.address], [missing, int(absent), len(places), *places], join)

    def extend(self, sides: Sequence[Side], join: Join, missing: int = 0) -> None:
        """Bind variables of the delta: match it with the rows of the first side whose candidates all sides have; of a
        lone side, where there is none, with the row at the address `missing`."""
        words: list[int] = []
        offsets = []
        for side in sides:
            offsets.append(9 + len(sides) + len(words))
            group = side.group.address if side.group is not None else 0
            words += [group, side.table.address, side.index, len(side.places), *side.places]
            words += [*side.template, *side.candidates]
        self.lists = True
        self._join(at.EXTEND, [len(sides)], [0, 0, 0, 0, missing, *offsets, *words], join)

    def range(
        self,
        table: Table,
        index: int,
        places: Sequence[int],
        tests: Sequence[WordTest],
        join: Join,
        beside: WordTest | None = None,
    ) -> None:
        """Match the delta with the rows of the groups of ordered index `index` that pass all tests, at most one of each
        bound: the left word is the delta's, the right one the table's. `places` are delta words, the group's key. The
        test `beside` bounds the word whose extremes the table knows."""
        self.lists = True
        self._range(at.RANGE, 0, table, index, places, tests, join, beside)

    def range_sum(self, table: Table, index: int, places: Sequence[int], tests: Sequence[WordTest], join: Join) -> None:
        """Match the delta with the sum of what `range` lists; `join.table` has no key."""
        self._range(at.RANGE_SUM, self._buffer(), table, index, places, tests, join)

    def box_sum(
        self, table: Table, index: int, places: Sequence[int], tests: Sequence[Sequence[WordTest]], join: Join
    ) -> None:
        """Match the delta with the sum of the rows of a table with boxes that pass all tests: those of the first order,
        and of the second. They are of a group of the index, if `places`, the group's key, are any. `join.table` has no
        key."""
        key, group = (table.indexes[index], table.groups[index].address) if places else ((), 0)
        words = [group, index, len(key), *places, *key]
        bounds = []
        for of_order in tests:
            place = dict.fromkeys((True, False), 0)
            for test in of_order:
                place[test.is_lower_bound] = 9 + len(words)
                words += test.words()
            bounds += [place[True], place[False]]
        self._join(at.BOX_SUM, [table.address], [self._buffer(), *bounds, *words], join)

    def _range(
        self,
        operation: int,
        buffer: int,
        table: Table,
        index: int,
        places: Sequence[int],
        tests: Sequence[WordTest],
        join: Join,
        beside: WordTest | None = None,
    ) -> None:
        lower = upper = 0
        words = [len(places), *places]
        for test in tests:
            place = 11 + len(words)
            lower, upper = (place, upper) if test.is_lower_bound else (lower, place)
            words += test.words()
        found = 11 + len(words) if beside is not None else 0
        words += [] if beside is None else beside.words()
        tail = [buffer, 0, table.groups[index].address, index, lower, upper, found, *words]
        self._join(operation, [table.address], tail, join)

    def aggregate(self, table: Table) -> None:
        """Add up the delta's rows of one key, in an empty table of the delta's layout."""
        self.add(at.AGGREGATE, table.address, self._buffer())

    def transition(self, table: Table, is_new: bool, delta: Shape, places: Sequence[int]) -> None:
        """Keep what makes a row of the table appear or disappear; its counts are those after the delta, or before."""
        self.add(at.TRANSITION, table.address, int(is_new), delta.keys, delta.limbs, len(places), *places)

    def sign(self, delta: Shape) -> None:
        """Replace counts by their signs."""
        self.add(at.SIGN, delta.keys, delta.limbs)

    def scale(self, delta: Shape, factor: int) -> None:
        """Multiply the delta's values, which the path has made, by a number."""
        self.add(at.SCALE, delta.keys, delta.limbs, factor)

    def status(self, conditions: Sequence[tuple[Table, Sequence[int]]]) -> None:
        """Find for each row of the leaf's delta whether its words at these places are among a table's heavy values."""
        words = []
        for heavy, places in conditions:
            words += [heavy.address, 0, len(places), *places]
        self.add(at.STATUS, len(conditions), *words)

    def route(self, wanted: Mapping[int, bool], keep: bool = True) -> None:
        """Keep the rows of the leaf's delta whose words are heavy or light as `wanted`, by the number of the condition
        that `status` has tested; without `keep`, the other rows."""
        mask = sum(1 << number for number in wanted)
        value = sum(1 << number for number, heavy in wanted.items() if heavy)
        self.add(at.ROUTE, self._buffer(), int(keep), mask, value)

    @contextmanager
    def unless_light(self) -> Iterator[None]:
        """What is added inside is passed over where `status` has found no heavy value."""
        start = len(self.code)
        self.add(at.SKIP_LIGHT, 0)
        yield
        self.code[start + 2] = len(self.code) - start

    @contextmanager
    def unless_alone(self, terms: Sequence[Sequence[tuple[int, int]]]) -> Iterator[None]:
        """What is added inside is passed over where the leaf's delta is of one row, unless for some term the words at
        both places of each pair are equal."""
        start = len(self.code)
        self.add(at.SKIP_ALONE, 0, len(terms), *(word for pairs in terms for word in (len(pairs), *chain(*pairs))))
        yield
        self.code[start + 2] = len(self.code) - start

    def note(self, table: Table, index: int, pending: Table, bounds: int, heavy: Table, places: Sequence[int]) -> None:
        """Enter in `pending` the delta's values that may have to become heavy or light, by their groups' sizes."""
        words = [pending.address, bounds, heavy.address, 0, len(places), *places]
        self.add(at.NOTE, table.address, table.groups[index].address, *words)

    def settle(self, table: Table, index: int, heavy: Table, pending: Table, bounds: int, owner: int) -> None:
        """Ask for a rebalance if a pending value has to become heavy or light, else forget them."""
        self.add(at.SETTLE, owner, table.groups[index].address, heavy.address, pending.address, bounds)

    def balance(self, tables: Sequence[Table], copies: int, bounds: int) -> None:
        """Ask for a rebalance if the number of rows of all tables, times `copies`, is out of bounds."""
        self.add(at.BALANCE, bounds, copies, len(tables), *(table.address for table in tables))

    def barrier(self, address: int, threads: int) -> None:
        """Wait until so many threads have come to the barrier at this address."""
        self.add(at.BARRIER, address, threads)

    def clear(self, table: Table) -> None:
        """Empty a table that only its path writes."""
        self.add(at.CLEAR, table.address)

    def project(self, join: Join, tests: Sequence[WordTest] = (), beside: int = 0) -> None:
        """Drop or reorder key words, or take them from the row at the address `beside`; keep only rows that pass all
        tests."""
        self._join(at.PROJECT, [len(tests)], [beside, *(word for test in tests for word in test.words())], join)

    def finish(self, operation: int, tables: Iterable[Table], owner: int = 0) -> None:
        """CHECK or SWEEP these tables; steps are counted for view number `owner`."""
        addresses = [table.address for table in tables]
        self.add(operation, owner, len(addresses), *addresses)

    def program(self) -> Program:
        """The finished program."""
        return Program(np.array([*self.code, at.END, 2], np.int64))

    def _join(self, operation: int, head: list[int], tail: list[int], join: Join) -> None:
        emit_place = 4 + len(tail)
        words = [*head, emit_place, *tail, self._buffer(), *join.words()]
        self.add(operation, *words)

    def _buffer(self) -> int:
        number = self.next_buffer
        if number >= at.STATUSES:
            raise NotSupportedError(
                "a join of this many tables is not supported in a view",
                why=f"a change of one table meets the others in more than {at.STATUSES - 1} steps",
                hint="make a materialized view of some of the tables, and join it with the others",
            )
        self.next_buffer += 1
        return number


def operations(code: Sequence[int]) -> Iterator[Sequence[int]]:
    """The words of each operation of a program."""
    place = 0
    while place < len(code):
        yield code[place : place + code[place + 1]]
        place += code[place + 1]


PASSING = {
    "<": at.PASS_LESS,
    "<=": at.PASS_LESS | at.PASS_EQUAL,
    ">": at.PASS_GREATER,
    ">=": at.PASS_GREATER | at.PASS_EQUAL,
    "<>": at.PASS_LESS | at.PASS_GREATER,
    "IS DISTINCT FROM": at.PASS_LESS | at.PASS_GREATER,
}


@dataclass(frozen=True)
class WordTest:
    """A comparison of two values that start at the words `left` and `right`, of a delta's row or of a table's: which
    outcomes pass, and how the words compare, as `sqlfront.storage.codecs.order` says for a value at place 0."""

    passing: int
    left: int
    right: int
    places: Sequence[tuple[int, int, int]]

    def words(self) -> list[int]:
        return [self.passing, self.left, self.right, 0, len(self.places), *chain(*self.places)]

    @property
    def is_lower_bound(self) -> bool:
        """Whether the right value is to be greater than the left one, not less."""
        return self.passing & at.PASS_LESS != 0

    def mirrored(self) -> WordTest:
        """The same test with its sides exchanged."""
        greater = at.PASS_GREATER if self.passing & at.PASS_LESS else 0
        less = at.PASS_LESS if self.passing & at.PASS_GREATER else 0
        passing = greater | less | self.passing & at.PASS_EQUAL
        return WordTest(passing, self.right, self.left, self.places)


@dataclass(frozen=True)
class Side:
    """A table that binds variables: its rows are listed by `group` (None: only looked up) of index number `index`.

    `places` are the delta words of the group's key; `template` says for each word of the table's key which delta word
    it is, or -1 - n for the n-th word of what is bound; `candidates` are the places of those words in its rows.
    """

    table: Table
    group: Table | None
    index: int
    places: Sequence[int]
    template: Sequence[int] = ()
    candidates: Sequence[int] = ()


@dataclass(frozen=True)
class Join:
    """How a step makes its output rows: shapes of delta, table (None: no table) and output, and who covers what."""

    delta: Shape
    delta_atoms: frozenset[str]
    table: Shape | None
    out: Shape
    multiply: bool = True

    def words(self) -> list[int]:
        summed = self.table if self.multiply else None
        table_keys = self.table.keys if self.table else self.delta.keys
        table_limbs = self.table.limbs if self.table else 1
        words = [self.out.keys, len(self.out.parts), self.out.limbs]
        words += [self.delta.keys, self.delta.limbs, table_keys, table_limbs]
        for variable in self.out.variables:
            if variable in self.delta.variables:
                side, places = 0, self.delta.places([variable])
            else:
                assert self.table is not None
                side, places = 1, self.table.places([variable])
            for place in places:
                words += [side, place]
        for pair in pair_parts(self.out, self.delta, set(self.delta_atoms), summed):
            words += pair
        return words

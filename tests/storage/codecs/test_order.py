"""Ordered groups against sorted lists, and the order of codes against DuckDB's."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.storage.codecs.dictionary import Dictionaries
from sqlfront.storage.codecs.encoding import codec_for
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

TEXTS = [b"", b"a", b"ab", b"abcdefgh", b"abcdefghi", b"abcdefgi", b"b", "é".encode(), b"\x00", b"a\x00"]


class OrderedTable(RuleBasedStateMachine):
    """Keys (group, number, text), each group sorted by text and then number; a second index is not ordered."""

    @initialize(limbs=st.integers(1, 2))
    def start(self, limbs: int) -> None:
        self.machine, self.dictionaries = Machine(), Dictionaries()
        words = self.dictionaries.varchar
        self.codes = [words.encode_one(text) for text in TEXTS]
        order = (0, [(2, at.ORDER_BYTES, words.state), (1, at.ORDER_WORD, 0)])
        self.table = Table(3, 1, limbs, [(0,), (1,)], name="t", order=order)
        self.rows: Counter[tuple[int, int, int]] = Counter()

    @rule(batch=st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9), st.integers(0, 9)), max_size=40))
    def insert(self, batch: list[tuple[int, int, int]]) -> None:
        self.write([(*row, 1) for row in batch])

    @rule(share=st.integers(1, 4), first=st.integers(0, 3))
    def delete(self, share: int, first: int) -> None:
        self.write([(*row, -count) for row, count in sorted(self.rows.items())[first::share]])

    @rule(group=st.integers(0, 2), last=st.booleans())
    def delete_an_extremum(self, group: int, last: bool) -> None:
        own = self.sorted(group)
        if own:
            row = own[-1 if last else 0]
            self.write([(*row, -self.rows[row])])

    @rule(index=st.sampled_from([-1, 0, 1]))
    def compact(self, index: int) -> None:
        self.table.compact(index)

    @rule()
    def widen(self) -> None:
        if self.table.limbs < 4:
            self.table.widen(self.table.limbs + 1)

    @invariant()
    def same_as_sorted_lists(self) -> None:
        if hasattr(self, "table"):
            self.table._check()
            for group in range(3):
                expected = [(group, number, self.codes[text]) for _, number, text in self.sorted(group)]
                assert members(self.table, group) == expected

    def sorted(self, group: int) -> list[tuple[int, int, int]]:
        return sorted((row for row in self.rows if row[0] == group), key=lambda row: (TEXTS[row[2]], row[1]))

    def write(self, batch: list[tuple[int, int, int, int]]) -> None:
        write(self.machine, self.table, [(g, number, self.codes[text], n) for g, number, text, n in batch])
        for *row, n in batch:
            self.rows[tuple(row)] += n
        self.rows = +self.rows

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.write([(*row, -count) for row, count in self.rows.items()])
            assert self.table.entries() == 0


TestOrderedTable = OrderedTable.TestCase
TestOrderedTable.settings = settings(max_examples=40, stateful_step_count=15)


@pytest.mark.parametrize("way", ["ascending", "descending", "random"])
def test_steps_grow_as_the_logarithm(way):
    """Inserting into and deleting the extremum of one group: steps per row over three decades of its size."""
    steps = {size: extremum_steps(size, way) for size in (1000, 10_000, 100_000)}
    for size, (inserted, deleted) in steps.items():
        assert inserted < 4 * np.log2(size) and deleted < 12
    assert steps[100_000][0] > steps[1000][0], "the counter does not see the descent"


def extremum_steps(size: int, way: str) -> tuple[float, float]:
    """Average steps to insert into a group of `size` rows, and to delete its least row, 200 times each."""
    machine, table = Machine(), Table(2, 1, indexes=[(0,)], name="t", order=(0, [(1, at.ORDER_WORD, 0)]))
    numbers = np.arange(size) * 2
    numbers = numbers[::-1] if way == "descending" else numbers
    if way == "random":
        np.random.default_rng(1).shuffle(numbers)
    write(machine, table, [(0, int(number), 1) for number in numbers])
    before = int(machine.scratch[at.STEPS])
    write(machine, table, [(0, int(number) + 1, 1) for number in numbers[::-1][:: size // 200]])
    inserted = int(machine.scratch[at.STEPS]) - before
    before, least = int(machine.scratch[at.STEPS]), [number for _, number in members(table, 0, 200)]
    for number in least:
        write(machine, table, [(0, number, -1)])
    if size <= 10_000:  # It looks at every row, in Python.
        table._check()
    return inserted / 200, (int(machine.scratch[at.STEPS]) - before) / 200


VALUES = {
    "BOOLEAN": ["false", "true"],
    "TINYINT": ["-128", "-1", "0", "127"],
    "BIGINT": [
        "-9223372036854775808",
        "-9223372036854775807",
        "-9223000000000000000",
        "-1",
        "0",
        "9223372036854775807",
    ],
    "UBIGINT": [
        "0",
        "1",
        "9223372036854775808",
        "18446000000000000000",
        "18446744073709551614",
        "18446744073709551615",
    ],
    "HUGEINT": [
        "-170141183460469231731687303715884105728",
        "-170141183460000000000000000000000000000",
        "-18446744073709551616",
        "-18446744073709551615",
        "-1",
        "0",
        "18446744073709551615",
        "18446744073709551616",
        "170141183460469231731687303715884105727",
    ],
    "UHUGEINT": ["0", "18446744073709551615", "18446744073709551616", "340282366920938463463374607431768211455"],
    "DECIMAL(4,1)": ["-1.5", "-1.4", "0", "99.9"],
    "DECIMAL(38,2)": ["-184467440737095516.17", "-184467440737095516.16", "-0.01", "0", "184467440737095516.16"],
    "FLOAT": ["'-inf'", "-1.5", "0", "1e-30", "'inf'", "'nan'"],
    "DOUBLE": ["'-inf'", "-1e300", "-1e-300", "0", "1e-300", "'inf'", "'nan'"],
    "DATE": ["'-infinity'", "'1000-01-01 (BC)'", "'1969-12-31'", "'1970-01-01'", "'infinity'"],
    "TIME": ["'00:00'", "'00:00:00.000001'", "'24:00'"],
    "TIMESTAMP": ["'-infinity'", "'1969-12-31'", "'1970-01-01'", "'2020-01-01'", "'infinity'"],
    "TIMESTAMP WITH TIME ZONE": ["'-infinity'", "'1969-12-31'", "'2020-01-01'", "'infinity'"],
    "TIMESTAMP_NS": ["'1969-12-31'", "'2020-01-01'"],
    "UUID": [
        "'00000000-0000-0000-0000-000000000001'",
        "'00000000-0000-0000-8000-000000000000'",
        "'7fffffff-ffff-ffff-ffff-ffffffffffff'",
        "'80000000-0000-0000-0000-000000000000'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    ],
    "VARCHAR": ["''", "'A'", "'a'", "'ab'", "'abcdefgh'", "'abcdefgi'", "'b'", "'é'", "'日本'"],
    "JSON": ["'1'", "'[1]'", "'{}'"],
    "INTERVAL": ["'-1 day'", "'-1 hour'", "'0 days'", "'1 day -1 hour'", "'23:30:00'", "'29 days'", "'1 month'"],
    "BLOB": ["''", "'\\x00'", "'\\x00\\x00'", "'a'", "'\\xFF'"],
    "ENUM('b', 'a', 'c')": ["'b'", "'a'", "'c'"],
}


@pytest.mark.parametrize("type_", VALUES)
def test_rows_are_in_the_order_of_duckdb(type_):
    """Every pair of values, inserted last to first, ends in the order in which DuckDB sorts them."""
    con, dictionaries, machine = duckdb.connect(), Dictionaries(), Machine()
    con.execute("SET arrow_lossless_conversion = true; SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE t (i INTEGER, v {type_})")
    con.execute(f"INSERT INTO t VALUES {', '.join(f'({i}, {v})' for i, v in enumerate(VALUES[type_]))}")
    [(kind,)] = con.execute("SELECT DISTINCT typeof(v) FROM t").fetchall()
    codec = codec_for(kind, dictionaries)
    sorted_ = con.execute("SELECT i, v FROM t ORDER BY v").to_arrow_table()
    assert sorted_.column("i").to_pylist() == list(range(len(sorted_))), "the test's own list is not sorted"
    words = codec.encode(sorted_.column("v"))
    rows = list(zip(*(word.tolist() for word in words), strict=True))
    table = Table(1 + codec.words, 1, indexes=[(0,)], name="t", order=(0, order_places(codec, 1)))
    write(machine, table, [(0, *row, 1) for row in reversed(rows)])
    assert [member[1:] for member in members(table, 0)] == rows
    table._check()


@pytest.mark.parametrize("type_", ["TIME WITH TIME ZONE", "BIT", "BIGNUM", '"NULL"'])
def test_types_whose_codes_are_not_in_order_are_refused_by_name(type_):
    with pytest.raises(NotSupportedError, match=type_):
        order_places(codec_for(type_, Dictionaries()), 0)


def write(machine: Machine, table: Table, data: list[tuple[int, ...]]) -> None:
    """Add rows (key words, weight) to a table, and sweep it."""
    program = Assembler()
    program.lift(table.keys + 1, table.limbs, -1, [], list(range(table.keys)), [])
    program.path(0)
    program.upsert(table)
    program.path_end()
    machine.run(program.program(), np.array(data, np.int64).reshape(-1, table.keys + 1), len(data))
    sweep = Assembler()
    sweep.finish(at.SWEEP, [table])
    machine.run_once(sweep.program())


def members(table: Table, group: int, most: int | None = None) -> list[tuple[int, ...]]:
    """The keys of one group of index 0, by walking its list; of its first `most` rows."""
    groups, found = table.groups[0], []
    tails = {groups.key_of(row): groups._row(row)[int(groups.header[at.TAIL])] for row in groups._live_rows()}
    row = int(tails.get((group,), 0) & 0xFFFFFFFF)
    while row and len(found) != most:
        found.append(table.key_of(row - 1))
        row = int(table._row(row - 1)[int(table.header[at.LINKS])] & 0xFFFFFFFF)
    return found

"""Bulk builds: room for the keys to come, tables in the order of the walk, and that order restored by reading."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.output.output import Reader
from sqlfront.maintenance.program import parallel_fill
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.programs import scan as kernels

JOIN = "SELECT r.a, r.b, s.c FROM r JOIN s ON r.a = s.a"


class Join:
    """Change tables r(a, b) and s(a, c), and perhaps a view that lists their join."""

    def __init__(self, *, view: bool) -> None:
        self.con = sqlfront.connect()
        self.con.execute("CREATE CHANGE TABLE r (a BIGINT, b VARCHAR) WITH (retain = true)")
        self.con.execute("CREATE CHANGE TABLE s (a BIGINT, c BIGINT) WITH (retain = true)")
        if view:
            self.create()

    def create(self) -> None:
        self.con.execute(f"CREATE MATERIALIZED VIEW v AS {JOIN}")

    def insert(self, r: np.ndarray, s: np.ndarray) -> None:
        self.con.apply({"r": pa.table({"a": r, "b": [f"b{key % 7}" for key in r]})})
        for first in range(0, len(s), 2_000):
            part = s[first : first + 2_000]
            self.con.apply({"s": pa.table({"a": part, "c": np.arange(first, first + len(part))})})

    @property
    def maintained(self) -> MaintainedView:
        return self.con.session.database.view(self.con.session.duck, ["v"]).maintained

    def read(self) -> Counter[tuple[object, ...]]:
        return Counter(row for batch in Reader(self.maintained) for row in zip(*batch.to_pydict().values()))

    def jumps(self) -> int:
        """Rows that a whole walk reads out of turn, without letting it tell."""
        walk = Walk(self.maintained.tree)
        walk._narrowed = True
        while walk.next():
            pass
        return int(walk._state[:, kernels.JUMPS].sum())

    def check(self) -> None:
        for source in self.maintained.sources.values():
            source.store.table._check()
        for table in self.maintained.tables():
            table._check()


def expected(r: np.ndarray, s: np.ndarray) -> Counter[tuple[object, ...]]:
    held = Counter(r.tolist())
    return Counter({(a, f"b{a % 7}", c): held[a] for c, a in enumerate(s.tolist()) if held[a]})


def shuffled(keys: int, rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.permutation(keys), random.permutation(np.arange(rows) % keys)


@pytest.mark.parametrize("keys", [200_000, 50_000, 5_000])
def test_room_is_made_for_the_keys_to_come(keys, monkeypatch):
    """Judging by the first batch: neither too little nor much too much, for rows and for groups."""
    rooms = []
    make_room = parallel_fill.make_room

    def watched(table, seen, count, budget):
        make_room(table, seen, count, budget)
        rooms.extend((part, int(part.header[at.CAPACITY])) for part in (table, *table.groups))

    monkeypatch.setattr(parallel_fill, "make_room", watched)
    join = Join(view=False)
    join.insert(np.arange(10), shuffled(keys, 200_000)[1])
    join.create()
    [(rows, room), (groups, group_room)] = rooms[:2]  # Those of the store; the view is filled after it.
    assert rows.live <= room <= 1.2 * rows.live
    if keys > 5_000:  # So few were all seen in the first batch, and have room already.
        assert 0.9 * groups.live <= group_room <= 1.6 * groups.live
    assert rows.header[at.CAPACITY] == rows.live, "what was not taken is given back"


def test_a_new_view_lies_in_the_order_of_its_walk():
    join = Join(view=False)
    r, s = shuffled(1_000, 10_000)
    join.insert(r, s)
    join.create()
    assert join.jumps() == 0
    assert join.read() == expected(r, s)
    join.check()


@pytest.mark.parametrize("rows", [4_000, 5_000])
def test_what_comes_at_once_lies_in_groups(rows):
    """As if the view had been built over it; a stream of small epochs moves nothing."""
    join = Join(view=True)
    keys = np.random.default_rng(2).permutation(np.arange(rows) % 500)
    join.con.apply({"s": pa.table({"a": keys, "c": np.arange(rows)})})
    table = join.maintained.sources["s"].store.table
    words = [table.key_of(row) for row in range(rows)]
    runs = min(1 + sum(one[place] != other[place] for one, other in pairwise(words)) for place in (0, 1))
    assert (runs == 500) == (rows > 4096)
    join.con.apply({"r": pa.table({"a": [1, 2, 2], "b": ["x", "y", "z"]})})
    texts = {1: "x", 2: "yz"}
    listed = Counter((key, text, c) for c, key in enumerate(keys.tolist()) for text in texts.get(key, ""))
    assert join.read() == listed
    join.check()


def test_reading_restores_the_order_that_single_changes_have_spoilt():
    join = Join(view=True)
    r, s = shuffled(1_000, 10_000)
    join.insert(r, s)
    gone = np.arange(0, 10_000, 3)
    join.con.apply({"s": pa.table({"a": s[gone], "c": gone, "_weight": np.full(len(gone), -1)})})
    rest = Counter({row: n for row, n in expected(r, s).items() if row[2] % 3})
    assert join.jumps() > 3_000
    for _ in range(5):
        assert join.read() == rest
    join.check()
    assert join.jumps() == 0
    join.con.apply_row("s", (int(r[0]), -5))
    assert join.read() == rest + Counter({(int(r[0]), f"b{r[0] % 7}", -5): 1})


def test_nothing_moves_while_another_walk_is_under_way():
    join = Join(view=True)
    r, s = shuffled(1_000, 10_000)
    join.insert(r, s)
    stream = iter(Reader(join.maintained))
    found = Counter(row for row in zip(*next(stream).to_pydict().values()))
    spoilt = join.jumps()
    for _ in range(5):
        join.read()
    assert join.jumps() == spoilt
    found += Counter(row for batch in stream for row in zip(*batch.to_pydict().values()))
    assert found == expected(r, s)
    assert join.jumps() == 0, "the last walk to end has put them in order"


@pytest.mark.parametrize("capacity", [1, 64, 65, 2 * kernels.BLOCK])
@pytest.mark.parametrize("bulk", [False, True])
def test_a_walk_lists_groups_of_any_size_in_blocks_of_any_size(capacity, bulk):
    sizes = [1, 2, 63, 64, 65, 129, 301, 0, 3, 1, 0] + [1, 0, 2] * kernels.UPPER_BLOCK + [kernels.BLOCK + 1]
    s = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(2).shuffle(s)
    r = np.arange(0, len(sizes) + 5)
    join = Join(view=not bulk)
    join.insert(r, s)
    if bulk:
        join.create()
    free, found = join.maintained.definition.free, Counter()
    walk = Walk(join.maintained.tree, variables=free)
    while rows := walk.next(capacity):
        assert rows <= capacity
        words = [walk.words(variable)[0].tolist() for variable in free]
        found += Counter(zip(*words))
    assert sum(found.values()) == len(found) == len(s)
    assert join.read() == expected(r, s)

"""The 22 queries of TPC-H are views at once, and equal plain DuckDB's answers while every table changes."""

from __future__ import annotations

import pytest

from tests.sqlfront.standard_rows import queries_of
from tests.sqlfront.tpch_refreshes import TpchRefreshes

QUERIES = queries_of("tpch")
SLICE = ("q02", "q13", "q18", "q21")
"""In the ordinary run: a least value, an outer join, a semijoin with HAVING, EXISTS both ways."""


def follow(names: tuple[str, ...], epochs: int, seed: int, keys: bool) -> None:
    """Views of some queries through random epochs and down to empty tables; every query has rows at times."""
    both = TpchRefreshes(0.01, seed, keys)
    try:
        for name in names:
            both.con.execute(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}")
        filled = set()
        for epoch in range(epochs + 1):
            if epoch:
                both.epoch()
            for name in names:
                assert both.differs(name, QUERIES[name]) == "", f"epoch {epoch}, seed {seed}"
                filled |= {name} if both.con.view(name).count() else set()
        assert filled == set(names), f"always empty: {set(names) - filled}"
        both.empty()
        for name in names:
            assert both.differs(name, QUERIES[name]) == "", f"without rows, seed {seed}"
        engine = both.con.session.database.engine
        assert [name for name, rows in kept_rows(both) if rows] == []
        for dictionary in engine.dictionaries:
            dictionary.sweep()
            assert dictionary.live() == dictionary.pinned, "a dictionary is not empty"
    finally:
        both.close()


def kept_rows(both: TpchRefreshes) -> list[tuple[str, int]]:
    """What the engine's tables hold, but for the sums of queries without GROUP BY."""
    engine = both.con.session.database.engine
    stores = [store.table for relation in engine.relations.values() for store in relation.stores.values()]
    tables = stores + [table for view in engine.views.values() for table in view.tables()]
    return [(table.name, table.entries()) for table in tables]


def test_a_slice_follows_every_table():
    follow(SLICE, 2, 1, True)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [False, True])
def test_all_queries_follow_every_table(keys):
    follow(tuple(QUERIES), 50, 2, keys)

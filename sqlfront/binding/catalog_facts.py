"""What a catalog declares of its tables, as facts that rules may use."""

from __future__ import annotations

from collections.abc import Iterable

from sqlfront.binding.table_catalog import CatalogView
from sqlfront.planner.algebra.row_facts import Facts, Name


def facts_of(catalog: CatalogView) -> Facts:
    """The keys that DuckDB, or the engine, enforces, if none of their columns may be NULL."""

    def keys(name: Name) -> Iterable[frozenset[str]]:
        table = catalog.resolve(name)
        if table is None:
            return
        required = {column for column, _, is_required in catalog.columns(table) or () if is_required}
        for key in catalog.keys(table):
            if required.issuperset(key):
                yield frozenset(key)

    return Facts(keys)

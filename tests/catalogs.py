"""Catalogs for tests that bind many queries: to list DuckDB's macros takes 20 ms, as long as all else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sqlfront.binding.table_catalog import DuckDBCatalog
from sqlfront.sql.recognise import words

_SCHEMA = (Path(__file__).parent / "fixtures" / "binder" / "schema.sql").read_text()
_MACROS_AND_VIEWS = frozenset(re.findall(r"CREATE (?:MACRO|VIEW) (\w+)", _SCHEMA))


class WithoutMacros(DuckDBCatalog):
    """For databases without macros, and for queries that call none."""

    def has_macros(self) -> bool:
        return False


def catalog_of(query: str, con: Any) -> DuckDBCatalog:
    """A catalog for a query over the binder's fixtures: it lists macros if the query names a macro, or a view, which
    may call one."""
    return DuckDBCatalog(con) if _MACROS_AND_VIEWS & words(query) else WithoutMacros(con)

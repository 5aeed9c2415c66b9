"""ORDER BY items of a query: what they mean, and how they are spelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.binding.session_settings import settings_of
from sqlfront.sql.dialect import printed

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_SPELLED = "spelled"


@dataclass(frozen=True)
class Defaults:
    """What ORDER BY means where it does not say: the session's settings. `collated`: strings compare by a collation."""

    descending: bool
    nulls: str
    collated: bool

    def direction(self, descending: bool | None, nulls_first: bool | None) -> str:
        """The direction of an item, with nothing left open; None is what the item does not say."""
        descending = self.descending if descending is None else descending
        if nulls_first is None:
            by_direction = "first_on_desc" if descending else "first_on_asc"
            nulls_first = self.nulls == "nulls_first" or by_direction in self.nulls
        return f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def defaults_of(session: Session) -> Defaults:
    """The session's default_order, default_null_order and default_collation. Asked once, until a statement of a
    session may change them."""
    known = session.defaults
    if known is None:
        settings = settings_of(session.duck)
        nulls, collation = settings["default_null_order"], settings["default_collation"]
        known = Defaults(settings["default_order"] == "DESCENDING", nulls.lower(), bool(collation))
        session.defaults = known
    return known


def position_of(node: exp.Expr) -> int | None:
    """The position that a number in ORDER BY names."""
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal()
    return int(node.this) if is_number else None


def spelled(con: Any, node: exp.Expr) -> str | None:
    """An expression over a view's columns, as orders are told apart by: as DuckDB prints it, in lower case; None for
    one that DuckDB does not read. It is noted at the node, so that a remembered query asks once."""
    import duckdb

    from sqlfront.binding.select_items import printed_by_duckdb

    if _SPELLED not in node.meta:
        try:
            [text] = printed_by_duckdb([printed(node)], con)
        except duckdb.Error:
            return None
        node.meta[_SPELLED] = text.casefold()
    return str(node.meta[_SPELLED])

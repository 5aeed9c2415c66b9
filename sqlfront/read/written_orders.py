"""ORDER BY items of a query as DuckDB parses them: what they mean, and how they are spelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlfront.binding.session_settings import settings_of
from sqlfront.sql.parse_tree import Tree, render


@dataclass(frozen=True)
class Defaults:
    """What ORDER BY means where it does not say: the session's settings. `collated`: strings compare by a collation."""

    descending: bool
    nulls: str
    collated: bool

    def direction(self, direction: str = "ORDER_DEFAULT", nulls: str = "ORDER_DEFAULT") -> str:
        """The direction of an item, with nothing left open."""
        descending = direction == "DESCENDING" or (direction == "ORDER_DEFAULT" and self.descending)
        by_direction = "first_on_desc" if descending else "first_on_asc"
        first = self.nulls == "nulls_first" or by_direction in self.nulls
        first = nulls == "NULLS FIRST" if nulls != "ORDER_DEFAULT" else first
        return f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def defaults_of(con: Any) -> Defaults:
    """The session's default_order, default_null_order and default_collation."""
    settings = settings_of(con)
    nulls, collation = settings["default_null_order"], settings["default_collation"]
    return Defaults(settings["default_order"] == "DESCENDING", nulls.lower(), bool(collation))


def position_of(tree: Tree) -> int | None:
    """The position that a number in ORDER BY names."""
    literal: dict[str, Any] = tree.get("literal") or {}
    return int(literal["text"]) if tree["class"] == "CONSTANT" and literal.get("kind") == "INTEGER" else None


def spelled(tree: Tree) -> str:
    """An expression over a view's columns, as orders are told apart by."""
    return str(tree["column_names"][-1] if tree["class"] == "COLUMN_REF" else render(tree)).casefold()

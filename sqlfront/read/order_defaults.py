"""What ORDER BY means where a query leaves it open: the settings of the session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlfront.binding.session_settings import settings_of

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session


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

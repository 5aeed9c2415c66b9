"""Where the parts of a term stand in the user's text, for carets, and what must be told of a query besides its term."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Ref,
    Scalar,
    walk,
)
from sqlfront.planner.algebra.terms import Sort
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.sql.carets import caret
from sqlfront.sql.trees import Span, span
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.binding.collation_types import Collation


@dataclass(frozen=True)
class WrittenOrder:
    """ORDER BY and LIMIT at a node of the tree, or a window's order: its items as they are written, with a label, and
    the output columns behind them, which leave nothing open: as items, and as text over the names in sight there.

    `moved` is where the view is named in whose text it stands.
    """

    node: exp.Expr
    items: tuple[Sort, ...]
    label: str
    columns: tuple[Sort, ...]
    texts: tuple[str, ...]
    moved: Span | None = None


@dataclass
class Notes:
    """Places of values, columns and operators by themselves; a view's text has the place where the view is named.

    `collated` has the collations of columns; `collates_texts` says that there are some, or COLLATE in an expression;
    `collates` says so, too, of INTERVALs, which compare by what they add up to. `orders` are the orders by their
    numbers, `aliases` what FROM calls the query whose column it is.
    """

    text: str
    collated: dict[Column, Collation] = field(default_factory=dict)
    collates: bool = False
    collates_texts: bool = False
    orders: list[WrittenOrder] = field(default_factory=list)
    aliases: dict[Column, str] = field(default_factory=dict)
    _places: dict[Hashable, list[Span]] = field(default_factory=dict)
    _moved: Span | None = None
    _unspelled: set[Span] = field(default_factory=set)

    def note(self, what: Hashable, node: exp.Expr | None) -> None:
        """Remember where something was written."""
        place = self.span(node)
        self.note_at(what, place)

    def note_star(self, what: Hashable, node: exp.Expr) -> None:
        """Remember that a star stands for something."""
        place = self.span(node)
        if place is not None:
            self._unspelled.add(place)
            self.note_at(what, place)

    def note_at(self, what: Hashable, place: Span | None) -> None:
        """Remember that something stands at a place that is known."""
        if place is not None and place not in (known := self._places.setdefault(_key(what), [])):
            known.append(place)

    def move(self, what: Hashable, new: Hashable) -> None:
        """Remember the places of one thing for another, too."""
        for place in self._places.get(_key(what), ()):
            self.note_at(new, place)

    def add_order(
        self, node: exp.Expr, items: Sequence[Sort], label: str, columns: Sequence[Sort], texts: Sequence[str]
    ) -> int:
        """Remember an order; its number."""
        self.orders.append(WrittenOrder(node, tuple(items), label, tuple(columns), tuple(texts), self._moved))
        return len(self.orders) - 1

    def source(self, node: exp.Expr) -> str:
        """The text of a node; empty in a view's text."""
        place = span(node)
        return "" if place is None or self._moved is not None else self.text[place[0] : place[1]]

    def span(self, node: exp.Expr | None) -> Span | None:
        return self._moved or (span(node) if node is not None else None)

    @property
    def is_moved(self) -> bool:
        """Whether the text that is read is a view's, not the user's."""
        return self._moved is not None

    def place(self, *whats: Hashable) -> Span | None:
        """The first place of the first of these that has one."""
        return next((self._places[key][0] for key in map(_key, whats) if key in self._places), None)

    def place_of(self, value: Scalar) -> Span | None:
        """The place of a value, else of one inside it."""
        found = self.place(*walk(value))
        columns = (part.column for part in walk(value) if hasattr(part, "column"))
        return found or self.place(*columns)

    def written(self, value: Scalar) -> str:
        """An expression as the user last wrote it; empty for one that a rule, a star or a view's text made."""
        places = [place for place in self._places.get(_key(value), ()) if place not in self._unspelled]
        return self.text[places[-1][0] : places[-1][1]] if places else ""

    @contextmanager
    def moved_to(self, node: exp.Expr) -> Iterator[None]:
        """All that is noted inside stands where `node` does."""
        before, self._moved = self._moved, self.span(node)
        if self._moved is not None:
            self._unspelled.add(self._moved)
        try:
            yield
        finally:
            self._moved = before

    def where(self, at: exp.Expr | Span | None) -> str | None:
        """The line of the text with carets."""
        place = self.span(at) if isinstance(at, exp.Expr) else at
        return None if place is None else caret(self.text, *place)

    def refusal(self, construct: str, at: exp.Expr | Span | None, why: str, hint: str) -> NotSupportedError:
        """The error for a construct that views do not support; what a rule made of the query stands where that does."""
        found = _QUERY.search(self.text) if at is None else None
        where = self.where(at if found is None else found.span())
        return NotSupportedError(f"{construct} is not supported in a view", where=where, why=why, hint=hint)


def _key(what: Hashable) -> Hashable:
    """An expression is known by its text, whether its types are known or not."""
    return scalar_sql(what) if isinstance(what, _EXPRESSIONS) else what


_QUERY = re.compile(r"\b(?:SELECT|FROM|VALUES)\b", re.IGNORECASE)
_EXPRESSIONS = (Call, Compare, Constant, IsNull, Logic, Not, Ref)

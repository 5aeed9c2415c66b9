"""Where the parts of a term stand in the user's text, for carets, and what must be told of a query besides its term."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp

from sqlfront.planner.algebra.scalars import Column, Scalar, walk
from sqlfront.planner.algebra.terms import Sort
from sqlfront.sql.carets import caret
from sqlfront.sql.trees import Span, span
from sqlfront.storage.errors import NotSupportedError


@dataclass(frozen=True)
class WrittenOrder:
    """ORDER BY, LIMIT or a window's order at a node of the tree: the direction of each item as written, and that of
    the output columns behind them, which leave nothing open."""

    node: exp.Expr
    items: tuple[Sort, ...]
    columns: tuple[Sort, ...]


@dataclass
class Notes:
    """Places of values, columns and operators by themselves; a view's text has the place where the view is named.

    `collated` are the columns of tables with a collation, `orders` the orders that decide which rows there are.
    """

    text: str
    collated: set[Column] = field(default_factory=set)
    orders: list[WrittenOrder] = field(default_factory=list)
    _places: dict[Hashable, list[Span]] = field(default_factory=dict)
    _moved: Span | None = None
    _moves: set[Span] = field(default_factory=set)

    def note(self, what: Hashable, node: exp.Expr | None) -> None:
        """Remember where something was written."""
        place = self.span(node)
        if place is not None and place not in (known := self._places.setdefault(what, [])):
            known.append(place)

    def note_at(self, what: Hashable, place: Span | None) -> None:
        """Remember that something stands at a place that is known."""
        if place is not None:
            self._places.setdefault(what, []).append(place)

    def move(self, what: Hashable, new: Hashable) -> None:
        """Remember the places of one thing for another, too."""
        known = self._places.setdefault(new, [])
        known += [place for place in self._places.get(what, ()) if place not in known]

    def span(self, node: exp.Expr | None) -> Span | None:
        return self._moved or (span(node) if node is not None else None)

    @property
    def is_moved(self) -> bool:
        """Whether the text that is read is a view's, not the user's."""
        return self._moved is not None

    def place(self, *whats: Hashable) -> Span | None:
        """The first place of the first of these that has one."""
        return next((self._places[what][0] for what in whats if what in self._places), None)

    def place_of(self, value: Scalar) -> Span | None:
        """The place of a value, else of one inside it."""
        found = self.place(*walk(value))
        columns = (part.column for part in walk(value) if hasattr(part, "column"))
        return found or self.place(*columns)

    def written(self, value: Scalar) -> str:
        """An expression as the user wrote it; empty for one that a rule made or a view's text has."""
        place = self.place(value)
        return "" if place is None or place in self._moves else self.text[place[0] : place[1]]

    @contextmanager
    def moved_to(self, node: exp.Expr) -> Iterator[None]:
        """All that is noted inside stands where `node` does."""
        before, self._moved = self._moved, self.span(node)
        if self._moved is not None:
            self._moves.add(self._moved)
        try:
            yield
        finally:
            self._moved = before

    def where(self, at: exp.Expr | Span | None) -> str | None:
        """The line of the text with carets."""
        place = self.span(at) if isinstance(at, exp.Expr) else at
        return None if place is None else caret(self.text, *place)

    def refusal(self, construct: str, at: exp.Expr | Span | None, why: str, hint: str) -> NotSupportedError:
        """The error for a construct that views do not support."""
        return NotSupportedError(f"{construct} is not supported in a view", where=self.where(at), why=why, hint=hint)

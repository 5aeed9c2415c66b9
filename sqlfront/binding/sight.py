"""Names in sight: what each FROM item offers, which column a name means, what a star stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlfront.planner.algebra.scalars import Call, Scalar
from sqlfront.storage.codecs.nested_types import parse_nested

_EXTRACTS = {"UNION": "union_extract", "VARIANT": "variant_extract"}
_WITH_FIELDS = ("STRUCT", *_EXTRACTS)


@dataclass(frozen=True)
class Source:
    """One FROM item: its name, the database and schema it may be qualified with, its columns' values."""

    name: str
    qualifiers: tuple[str, ...]
    columns: tuple[tuple[str, Scalar], ...]

    def column(self, name: str) -> Scalar | None:
        return next((value for column, value in self.columns if column.casefold() == name), None)


@dataclass(frozen=True)
class Sight:
    """The FROM items in sight, in order, inside those of the query around (`outer`).

    `merged` are columns that USING made one of two, by their names; `hidden` those that `*` leaves out for them.
    """

    sources: tuple[Source, ...] = ()
    hidden: frozenset[tuple[int, str]] = frozenset()
    merged: tuple[tuple[str, Scalar], ...] = ()
    outer: Sight | None = field(default=None, repr=False)

    def joined(self, other: Sight) -> Sight:
        """Both, `other` to the right."""
        shift = len(self.sources)
        hidden = self.hidden | {(place + shift, name) for place, name in other.hidden}
        return replace(
            self, sources=(*self.sources, *other.sources), hidden=hidden, merged=(*self.merged, *other.merged)
        )

    def around(self) -> Sight:
        """What a query inside sees before it has a FROM of its own."""
        return Sight(outer=self)

    def column(self, name: str) -> Scalar | None:
        """The column that a bare name means: the merged one, else the leftmost."""
        folded = name.casefold()
        found = next((value for merged, value in self.merged if merged == folded), None)
        if found is not None:
            return found
        return next((value for source in self.sources if (value := source.column(folded)) is not None), None)

    def visible(self) -> list[tuple[str, str, Scalar]]:
        """(FROM item, column, value) for the columns of `*`, in order."""
        merged = dict(self.merged)
        return [
            (source.name, name, merged.get(name.casefold(), value))
            for place, source in enumerate(self.sources)
            for name, value in source.columns
            if (place, name.casefold()) not in self.hidden
        ]

    def find(self, names: Sequence[str]) -> Scalar | None:
        """What a name means here or further out: a column, fields of one, or a whole row. None for no name."""
        found = self._own(names)
        return found if found is not None or self.outer is None else self.outer.find(names)

    def source(self, names: Sequence[str]) -> Source | None:
        """The FROM item of a possibly qualified name."""
        folded = [name.casefold() for name in names]
        for source in self.sources:
            path = [part.casefold() for part in (*source.qualifiers, source.name)]
            if len(folded) <= len(path) and path[-len(folded) :] == folded:
                return source
        return self.outer.source(names) if self.outer is not None else None

    def _own(self, names: Sequence[str]) -> Scalar | None:
        """A name's meaning in these items; a table's name wins over a column's, as in DuckDB."""
        folded = [name.casefold() for name in names]
        for depth in range(min(3, len(names) - 1), 0, -1):
            for source in self.sources:
                path = [part.casefold() for part in (*source.qualifiers, source.name)][-depth:]
                if len(path) == depth and path == folded[:depth]:
                    column = source.column(folded[depth])
                    if column is not None:
                        return fields(column, names[depth + 1 :])
        column = self.column(names[0])
        if column is not None and (len(names) == 1 or column.type.startswith(_WITH_FIELDS) or not column.type):
            return fields(column, names[1:])
        if len(names) == 1:
            return next((_row(source) for source in self.sources if source.name.casefold() == folded[0]), None)
        return None


def fields(value: Scalar, names: Sequence[str]) -> Scalar:
    """Fields, one inside the other: of a struct, a VARIANT; the members of a UNION."""
    type_ = value.type
    for name in names:
        text = name.replace("'", "''").replace("{", "{{").replace("}", "}}")
        extract = _EXTRACTS.get(type_.partition("(")[0], "struct_extract")
        value = Call(f"{extract}({{0}}, '{text}')", (value,), "", strict=True, can_fail=False)
        type_ = _field_type(type_, name)
    return value


def _field_type(type_: str, name: str) -> str:
    """The type of a field; "" if it is not known."""
    nested = parse_nested(type_)
    if nested is None:
        return type_ if type_ == "VARIANT" else ""
    fields = zip(nested.names, nested.types, strict=True)
    return next((held for own, held in fields if own.casefold() == name.casefold()), "")


def _row(source: Source) -> Scalar:
    """A whole row as a struct."""
    inside = ", ".join(
        '"' + name.replace('"', '""').replace("{", "{{").replace("}", "}}") + f'" := {{{place}}}'
        for place, (name, _) in enumerate(source.columns)
    )
    return Call(f"struct_pack({inside})", tuple(value for _, value in source.columns), "", can_fail=False)

"""What the shards of a view keep, and how a view's rows are made of theirs.

Where equal groups lie in one shard, the shards' rows together are the view's. Otherwise each shard keeps its part of
every group: counts and sums, which are added, least and greatest values, of which the least and greatest count; and of
ORDER BY ... LIMIT the shards' first rows, of which the first ones are the view's.

The components of a product are kept, and combined, as views of their own; whoever reads multiplies them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlfront.planner.model.identifiers import quote
from sqlfront.planner.model.query import Definition, Limit, RawColumn, is_grouped
from sqlfront.planner.model.raw_column import positions_of, statistics_of
from sqlfront.planner.shards.blocks import Path, placed
from sqlfront.planner.shards.product import Product, unused_names
from sqlfront.planner.theory.wording import enumerate_words


class Combination(Protocol):
    """How the rows of shards become the view's.

    `shards` are the views that every shard keeps, over its streams, `columns` those of the rows that it puts out;
    `mark` is the one of them that numbers the view from which a row is, if there are several. `whole`: the shards' rows
    together are the view's.
    """

    @property
    def shards(self) -> tuple[Definition, ...]: ...

    @property
    def columns(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def mark(self) -> str | None: ...

    @property
    def whole(self) -> bool: ...

    def query(self, parts: str) -> str:
        """The view's rows, as SQL over a table that holds those of all shards."""
        ...

    @property
    def note(self) -> str:
        """How the shards' rows become the view's, in words."""
        ...


@dataclass(frozen=True)
class Merged:
    """The combination of one view, of which each shard keeps the rows of its part. `apart`: equal groups lie in one
    shard."""

    view: Definition
    shard: Definition
    apart: bool
    whole: bool

    @property
    def shards(self) -> tuple[Definition, ...]:
        return (self.shard,)

    @property
    def mark(self) -> None:
        return None

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.shard.columns

    def query(self, parts: str) -> str:
        """The view's rows, as SQL over a table that holds those of all shards."""
        return f"SELECT * FROM {parts}" if self.whole else _query(self.view, self.apart, parts)

    @property
    def note(self) -> str:
        """How the shards' rows become the view's, in words."""
        if self.whole:
            return "the shards' rows together are the view's"
        if self.apart:
            return "the first rows of each shard are merged"
        if self.view.mode == "set":
            return "equal rows of several shards are made one"
        extremes = any(column.kind in ("least", "greatest") for column in self.view.raw)
        firsts = ", and of least and greatest values the first is taken" if extremes else ""
        return f"the shards' parts of {'the one row' if self.view.scalar else 'a group'} are added up{firsts}"


@dataclass(frozen=True)
class Multiplied:
    """The combination of a view that is the product of its components': each has rows of its own among the shards',
    told apart by the number in column `mark`, and NULL in the columns of the others."""

    view: Definition
    product: Product
    factors: tuple[Merged, ...]
    mark: str

    @property
    def shards(self) -> tuple[Definition, ...]:
        return tuple(factor.shard for factor in self.factors)

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return (self.mark, "INTEGER"), *(column for factor in self.factors for column in factor.columns)

    @property
    def whole(self) -> bool:
        return False

    def query(self, parts: str) -> str:
        named = zip(self.product.items, self.view.raw, strict=True)
        items = ", ".join(f"{item} AS {quote(column.name)}" for item, column in named) or "1"
        tables = ", ".join(self._factor(number, parts) for number in range(1, len(self.factors) + 1))
        where = f" WHERE {' AND '.join(self.product.conditions)}" if self.product.conditions else ""
        return _selected(self.view, f"(SELECT {items} FROM {tables}{where}) AS multiplied")

    @property
    def note(self) -> str:
        notes = dict.fromkeys(factor.note for factor in self.factors if not factor.whole)
        first = f"; before that, {'; '.join(notes)}" if notes else ""
        return (
            f"the components are multiplied when the view is read{first}" if len(self.factors) > 1 else "".join(notes)
        )

    def _factor(self, number: int, parts: str) -> str:
        factor = self.factors[number - 1]
        columns = ", ".join(quote(name) for name, _ in factor.columns)
        own = f"(SELECT {columns} FROM {parts} WHERE {quote(self.mark)} = {number}) AS rows_{number}"
        return f"({factor.query(own)}) AS component_{number}"


def combine(
    definition: Definition, hashed: Sequence[Collection[str]], streams: Mapping[Path, str], found: Product | None = None
) -> Combination:
    """The combination of a view whose tables occur in a shard as these, and whose shards are decided by these
    variables: in each of the components, if it is `found` to be a product."""
    if found is None:
        return _merged(definition, hashed[0], streams)
    parts = zip(found.components, hashed, strict=True)
    factors = tuple(_merged(part, own, streams) for part, own in parts)
    mark = next(unused_names("component", [name for factor in factors for name, _ in factor.columns]))
    return Multiplied(definition, found, factors, mark)


def _merged(definition: Definition, hashed: Collection[str], streams: Mapping[Path, str]) -> Merged:
    own = placed(definition, streams)
    apart = _is_apart(definition, hashed)
    if apart and (definition.limit is None or _is_whole_in_shards(definition, hashed)):
        return Merged(definition, own, apart=True, whole=True)
    raw = definition.raw if apart else tuple(part for column in definition.raw for part in _parts(definition, column))
    limit = definition.limit if apart else None
    if limit is not None and not is_grouped(definition):
        limit = Limit(limit.end)
    shard = replace(
        own, raw=raw, projection=tuple(map(quote, (column.name for column in raw))), limit=limit,
        columns=tuple((column.name, column.type) for column in raw), having=definition.having if apart else None,
        orders=definition.orders[:1] if limit is not None else (),
    )  # fmt: skip
    return Merged(definition, shard, apart, whole=False)


def obstacle(definition: Definition, hashed: Collection[str], *, values_apart: bool) -> str | None:
    """Why the rows of several shards that these variables decide cannot be combined; None if they can. `values_apart`:
    the distinct values that a group counts lie in one shard each, if not the group."""
    if definition.limit is not None and not definition.raw:
        return "none of its tables' columns are put out, by which the shards' rows could be ordered"
    counted, statistics = counted_distinct_sets(definition), statistics_of(definition.raw)
    if _is_apart(definition, hashed):
        return None
    if statistics:
        return f"{statistics} of a group is computed from exact sums, which shards do not put out"
    if positions := positions_of(definition.raw):
        return f"{positions} of a group depends on the order of all its values, which shards do not merge"
    if values_apart or not counted:
        return None
    labels = enumerate_words(definition.distinct_sets[number].label for number in counted)
    return f"distinct values of {labels} are counted, and the same value may be in several shards"


def counted_distinct_sets(definition: Definition) -> list[int]:
    """The distinct values whose values are counted or summed: those of shards cannot be, unless no value is in
    several."""
    found = (column.distinct_set for column in definition.raw if column.kind in ("count", "sum", "avg"))
    return list(dict.fromkeys(number for number in found if number is not None))


def _is_apart(definition: Definition, hashed: Collection[str]) -> bool:
    """Whether equal tuples of the free variables lie in one shard; a row of a bag does anyhow. The one row of a view
    without groups is there before a shard is."""
    return definition.mode == "bag" or (set(hashed) <= set(definition.free) and not definition.scalar)


def _is_whole_in_shards(definition: Definition, hashed: Collection[str]) -> bool:
    """Whether the groups of a QUALIFY lie in one shard each."""
    limit = definition.limit
    return limit is not None and is_grouped(definition) and set(hashed) <= set(limit.variables or ())


def _parts(definition: Definition, column: RawColumn) -> tuple[RawColumn, ...]:
    """The raw columns that a shard keeps for one: an average is a sum and a count, the first of several values all of
    them."""
    if column.kind in ("least", "greatest"):
        assert column.distinct_set is not None
        kept = definition.distinct_sets[column.distinct_set]
        types = {own.name: own.type for atom in kept.definition.atoms for own in atom.variables}
        by = enumerate(kept.argument[:-1], 1)
        return *(replace(column, name=f"{column.name} by {n}", variable=v, type=types[v]) for n, v in by), column
    if column.kind != "avg":
        return (column,)
    type_ = "DOUBLE" if column.argument_type in ("FLOAT", "DOUBLE") else f"DECIMAL(38,{column.scale})"
    if column.argument_type is not None and not column.argument_type.startswith(("DECIMAL", "FLOAT", "DOUBLE")):
        type_ = "HUGEINT"
    terms = ((1, column.present),) if column.present is not None else ()
    return (
        replace(column, name=f"{column.name} sum", kind="sum", type=type_, from_sum=False),
        RawColumn(f"{column.name} count", "count", "BIGINT", terms=terms, distinct_set=column.distinct_set),
    )


def _query(definition: Definition, apart: bool, parts: str) -> str:
    rows = parts if apart else f"({_combined(definition, parts)}) AS combined"
    return _selected(definition, rows, filtered=apart)


def _selected(definition: Definition, rows: str, *, filtered: bool = False) -> str:
    """The view's rows from its raw columns, of which HAVING has left its own if they are `filtered`."""
    having = f" WHERE {definition.having}" if definition.having and not filtered else ""
    outputs = zip(definition.projection, definition.columns, strict=True)
    items = ", ".join(f"CAST({text} AS {type_}) AS {quote(name)}" for text, (name, type_) in outputs)
    return f"SELECT {items} FROM {rows}{having}{_limiting(definition)}"


def _combined(definition: Definition, parts: str) -> str:
    """The raw columns from those of the shards."""
    group = [quote(column.name) for column in definition.raw if column.kind == "variable"]
    items = [_total(column, [quote(part.name) for part in _parts(definition, column)]) for column in definition.raw]
    grouping = f" GROUP BY {', '.join(group)}" if group else ""
    return f"SELECT {', '.join(items)} FROM {parts}{grouping}"


def _total(column: RawColumn, parts: Sequence[str]) -> str:
    """A raw column from the shards' parts of it."""
    name = quote(column.name)
    if column.kind == "variable":
        return name
    if column.kind == "count":
        return f"COALESCE(CAST(SUM({name}) AS BIGINT), 0) AS {name}"
    if column.kind == "avg":
        total, count = parts
        return f"CAST(SUM({total}) AS DOUBLE) / SUM({count}) AS {name}"
    if column.kind == "sum":
        return f"CAST(SUM({name}) AS {column.type}) AS {name}"
    if len(parts) == 1:
        return f"{'MIN' if column.kind == 'least' else 'MAX'}({name}) AS {name}"
    direction = "ASC" if column.kind == "least" else "DESC"
    order = ", ".join(f"{part} {direction}" for part in parts)
    return f"first({name} ORDER BY {order}) FILTER (WHERE {parts[0]} IS NOT NULL) AS {name}"


def _limiting(definition: Definition) -> str:
    """ORDER BY and LIMIT, or QUALIFY, over the raw columns; the columns that are put out come last of what is
    compared, so nothing is left open."""
    limit = definition.limit
    if limit is None:
        return ""
    order = ", ".join(f"({text}) {direction}" for text, direction in definition.orders[0].sorting)
    if limit.clause is not None:
        return " QUALIFY " + limit.number_within(", ".join(f"({text})" for text in limit.by), order)
    rows = "ALL" if limit.rows is None else str(limit.rows)
    return f"{f' ORDER BY {order}' if order else ''} LIMIT {rows} OFFSET {limit.offset}"

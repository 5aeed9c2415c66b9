"""A query whose atoms fall apart into components as the product of one query for each.

What a component keeps are its columns of the view's, and sums of its part of every product of factors: the sum over a
product of f(x) g(y) is the sum of f times the sum of g (the distributive law that makes a tree's root a product of its
children). So the product is taken of results, and never of rows that are not put out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from sqlfront.planner.model.hypergraph import components, constrained
from sqlfront.planner.model.identifiers import quote
from sqlfront.planner.model.query import Definition, DistinctValues, Measure, RawColumn
from sqlfront.planner.model.raw_column import Terms, positions_of, statistics_of

_FLOATING = ("FLOAT", "DOUBLE")


class NoProduct(Exception):
    """A query cannot be computed from its components: the text is the reason."""


@dataclass(frozen=True)
class Product:
    """`components` are queries over the components of a query's atoms; no two have a raw column of one name.

    `items` are the raw columns of the query over those of its components, as DuckDB SQL; the rows of the product that
    meet the `conditions` are the query's, before HAVING.
    """

    components: tuple[Definition, ...]
    items: tuple[str, ...]
    conditions: tuple[str, ...]


def component_atoms(definition: Definition) -> list[tuple[str, ...]]:
    """The atoms that join, or are compared with each other, in the order of FROM."""
    names = {atom.name for atom in definition.atoms}
    return [found for group in components(constrained(definition)) if (found := tuple(n for n in group if n in names))]


def product(definition: Definition) -> Product | None:
    """The product of a query's components; None for one component, unless only whether it has rows is asked. Raises
    NoProduct."""
    groups = component_atoms(definition)
    if len(groups) == 1 and (definition.free or definition.mode != "set"):
        return None
    if definition.limit is not None:
        raise NoProduct("the first rows of a product are not those of its components")
    if len(groups) > 1 and (whole := statistics_of(definition.raw) or positions_of(definition.raw)):
        raise NoProduct(f"{whole} of a product is no expression over those of its components")
    unused = unused_names("part", [column.name for column in definition.raw])
    parts = [_Component(definition, names, unused) for names in groups]
    for number, distinct_set in enumerate(definition.distinct_sets):
        owner = _owner(distinct_set, groups)
        _check_others(definition, distinct_set, [names for at, names in enumerate(groups) if at != owner])
        parts[owner].distinct_sets[number] = distinct_set
    items = tuple(_item(definition, parts, column) for column in definition.raw)
    conditions = tuple(f"{part.count(Measure())} > 0" for part in parts if part.is_counted)
    return Product(tuple(part.build() for part in parts), items, conditions)


def unused_names(stem: str, taken: Iterable[str]) -> Iterator[str]:
    """Names that no column has: the stem, then with numbers behind it."""
    known = {name.casefold() for name in taken}
    names = chain([stem], (f"{stem}_{number}" for number in count(2)))
    return (name for name in names if name.casefold() not in known)


# Inside ------------------------------------------------------------------------------------------


@dataclass
class _Component:
    """A component in the making: the raw columns that the items ask for."""

    definition: Definition
    names: tuple[str, ...]
    unused: Iterator[str]
    distinct_sets: dict[int, DistinctValues] = field(default_factory=dict)
    raw: list[RawColumn] = field(default_factory=list)
    measures: dict[Measure, int] = field(default_factory=dict)
    known: dict[object, str] = field(default_factory=dict)

    @property
    def free(self) -> tuple[str, ...]:
        own = {column.name for name in self.names for column in self.definition.atom(name).variables}
        return tuple(variable for variable in self.definition.free if variable in own)

    @property
    def is_counted(self) -> bool:
        """Whether it is one row, which says how many there are: with none, the product has no rows."""
        return self.definition.mode != "bag" and not self.definition.scalar and not self.free

    def restricted(self, measure: int) -> Measure:
        """Its factors in this component."""
        return Measure(tuple(pair for pair in self.definition.measures[measure].factors if pair[0] in self.names))

    def count(self, measure: Measure) -> str:
        """The column of a sum of factors that are 1 or 0."""
        terms = ((1, self._place(measure)),)
        return self._column(measure, lambda name: RawColumn(name, "count", "BIGINT", terms=terms))

    def sum(self, column: RawColumn, measure: int) -> str:
        """The column of one term of a sum or an average: NULL where the argument's part here always is."""
        assert column.present is not None
        term, present = self.restricted(measure), self.restricted(column.present)
        if term == present:
            return f"NULLIF({self.count(present)}, 0)"
        floating = any(self._type(*pair) in _FLOATING for pair in term.factors)
        type_ = "DOUBLE" if floating else "HUGEINT"

        def made(name: str) -> RawColumn:
            terms = ((1, self._place(term)),)
            return RawColumn(name, "sum", type_, terms=terms, present=self._place(present))

        return self._column((term, present), made)

    def build(self) -> Definition:
        whole, free, mode = self.definition, self.free, self.definition.mode
        if self.is_counted:
            mode = "group"
        numbers = list(self.distinct_sets)
        raw = tuple(
            one if one.distinct_set is None else replace(one, distinct_set=numbers.index(one.distinct_set))
            for one in self.raw
        )
        return replace(
            _restricted(whole, self.names), free=free, mode=mode, measures=tuple(self.measures), raw=raw,
            projection=tuple(quote(one.name) for one in raw) or ("1",),
            columns=tuple((one.name, one.type) for one in raw) or ((next(self.unused), "INTEGER"),),
            having=None, scalar=mode == "group" and not free, orders=(), notes=(), boolean=False,
            distinct_sets=tuple(self._distinct_set(one) for one in self.distinct_sets.values()),
        )  # fmt: skip

    def _distinct_set(self, distinct_set: DistinctValues) -> DistinctValues:
        own = _restricted(distinct_set.definition, self.names)
        group = tuple((variable, name) for variable, name in distinct_set.group if variable in self.free)
        free = tuple(dict.fromkeys((*(name for _, name in group), *distinct_set.argument)))
        return replace(distinct_set, definition=replace(own, free=free), group=group)

    def _column(self, key: object, make: Callable[[str], RawColumn]) -> str:
        if key not in self.known:
            column = make(next(self.unused))
            self.raw.append(column)
            self.known[key] = quote(column.name)
        return self.known[key]

    def _place(self, measure: Measure) -> int:
        return self.measures.setdefault(measure, len(self.measures))

    def _type(self, atom: str, factor: str) -> str:
        return next(column.type for column in self.definition.atom(atom).factors if column.name == factor)


def _item(definition: Definition, parts: Sequence[_Component], column: RawColumn) -> str:
    """A raw column of the query from those of its components, which get what it needs."""
    if column.kind == "variable" or column.distinct_set is not None:
        own = column.distinct_set
        holds = [column.variable in part.free if own is None else own in part.distinct_sets for part in parts]
        parts[holds.index(True)].raw.append(column)
        name = quote(column.name)
        if not definition.scalar:
            return name
        rows = [f"{part.count(Measure())} > 0" for part, holder in zip(parts, holds, strict=True) if not holder]
        return f"CASE WHEN {' AND '.join(rows)} THEN {name} {'ELSE 0 ' if column.kind == 'count' else ''}END"
    if column.kind == "count":
        return f"CAST({_counted(parts, column.terms)} AS {column.type})"
    floating = column.argument_type in _FLOATING
    sums = [(one, [part.sum(column, measure) for part in parts]) for one, measure in column.terms]
    total = _polynomial(sums, "DOUBLE" if floating else "HUGEINT")
    if not floating and column.scale:
        unit = f"CAST(0.{'1'.zfill(column.scale)} AS DECIMAL({column.scale},{column.scale}))"
        total = f"CAST({total} AS DECIMAL(38,0)) * {unit}"
    if column.specials is not None:
        total = _with_specials(total, [_counted(parts, terms) for terms in column.specials])
    if column.kind == "sum":
        return f"CAST({total} AS {column.type})"
    assert column.present is not None
    present = _counted(parts, ((1, column.present),))
    return f"CAST({total} AS DOUBLE) / NULLIF({present}, 0)"


def _counted(parts: Sequence[_Component], terms: Terms) -> str:
    """The sum of coefficients times numbers of rows of the product."""
    return _polynomial([(one, [part.count(part.restricted(m)) for part in parts]) for one, m in terms], "HUGEINT")


def _with_specials(total: str, counts: Sequence[str]) -> str:
    """A floating sum of finite values, or NaN or the infinity that rows of the product add."""
    nan, plus, minus = (f"{count} > 0" for count in counts)
    whens = ((f"{nan} OR ({plus} AND {minus})", "nan"), (plus, "inf"), (minus, "-inf"))
    cases = " ".join(f"WHEN {condition} THEN CAST('{value}' AS DOUBLE)" for condition, value in whens)
    return f"CASE {cases} ELSE {total} END"


def _polynomial(terms: Iterable[tuple[int, Sequence[str]]], type_: str) -> str:
    """The sum of coefficients times products."""
    factors = [[*([str(one)] if one != 1 else []), *columns] for one, columns in terms]
    return " + ".join(" * ".join(f"CAST({factor} AS {type_})" for factor in own) for own in factors)


def _owner(distinct_set: DistinctValues, groups: Sequence[tuple[str, ...]]) -> int:
    """The component that has the argument."""
    own = {name for names in groups for name in names}
    if any(atom.name not in own for atom in distinct_set.definition.atoms):
        raise NoProduct(f"values of {distinct_set.label} are of a table that is otherwise left out")
    holders = {a.name for a in distinct_set.definition.atoms if a.scheme & set(distinct_set.argument)}
    for number, names in enumerate(groups):
        if holders <= set(names):
            return number
    raise NoProduct(f"values of {distinct_set.label} are of several of its components")


def _check_others(definition: Definition, distinct_set: DistinctValues, others: Sequence[tuple[str, ...]]) -> None:
    """NoProduct if a view of distinct values has a filter on other components than that of its argument: else they
    have rows in each group that the view has, as far as the view of distinct values, which has been minimised, still
    asks for them."""
    kept = component_atoms(distinct_set.definition)
    for names in others:
        own = [name for group in kept for name in group if name in names]
        joins = any(not set(names).isdisjoint(group) and not set(group) <= set(names) for group in kept)
        if joins or not _demands(distinct_set.definition, own) <= _demands(definition, names):
            raise NoProduct(f"whether {distinct_set.label} has values is decided in several of its components")


def _demands(definition: Definition, names: Sequence[str]) -> set[tuple[object, ...]]:
    """What rows of these atoms must meet to join, without the names of variables."""
    found: set[tuple[object, ...]] = set()
    columns: dict[str, list[tuple[str, str]]] = {}
    for atom in map(definition.atom, names):
        found |= {(atom.name, condition.text) for condition in atom.conditions}
        for column in atom.variables:
            columns.setdefault(column.name, []).append((atom.name, column.expression))
            if column.name in atom.required:
                found.add((atom.name, f"({column.expression} IS NOT NULL)"))
    for same in columns.values():
        found |= {(one, "=", other) for one in same for other in same if one != other}
    for compared in definition.comparisons:
        sides = columns.get(compared.left, ()), columns.get(compared.right, ())
        found |= {(one, compared.operator, other) for one in sides[0] for other in sides[1]}
    return found


def _restricted(definition: Definition, names: Sequence[str]) -> Definition:
    atoms = tuple(atom for atom in definition.atoms if atom.name in names)
    variables = frozenset().union(*(atom.scheme for atom in atoms))
    comparisons = tuple(one for one in definition.comparisons if one.scheme <= variables)
    return replace(definition, atoms=atoms, comparisons=comparisons)

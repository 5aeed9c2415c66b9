"""Arguments of MIN, MAX, DISTINCT and their like: the distinct values of each group, as a query of their own.

COUNT(DISTINCT x) FILTER (WHERE c) over a join is answered from SELECT DISTINCT g, x over the same join, under c and
x IS NOT NULL, of which only that part is kept that decides which x a group has. Aggregates of the same argument and
filter share it. Extrema of expressions over several tables have the value from the first row of each group, a view of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from sqlfront.binding.notes import Notes
from sqlfront.cut.expressions.scalar_forms import guarded, is_not_null
from sqlfront.cut.expressions.value_types import ComparedTypes
from sqlfront.cut.join_core import JoinCore, OuterChildError
from sqlfront.cut.leaf_columns import Leaves
from sqlfront.cut.split_conditions import spelled, split_conditions
from sqlfront.cut.term_orders import STRICT
from sqlfront.planner.algebra.scalars import (
    Scalar,
    cast,
    conjunction,
    conjuncts,
    function_name,
)
from sqlfront.planner.algebra.terms import Aggregated
from sqlfront.planner.model.query import Atom, Definition, Direction, DistinctValues, Measure, RawColumn
from sqlfront.planner.passes.distinct_plans import deciding_atoms
from sqlfront.planner.passes.orders import may_be_null

Extremum = Literal["least", "greatest"]
_WORDS = {"least": "min", "greatest": "max"}


class Below(Protocol):
    """How rows that are made of a join become a view of their own, below that of the values: block_definition.py. The
    columns of a join of that view alone are the groups' and the values."""

    def best(
        self, inner: JoinCore, groups: Sequence[Scalar], values: Sequence[Scalar], labels: Sequence[str], *,
        descending: bool,
    ) -> tuple[JoinCore, list[Scalar]]:  # fmt: skip
        """The first row of each group."""

    def counts(self, inner: JoinCore, values: Sequence[Scalar]) -> tuple[JoinCore, list[Scalar]]:
        """How often each value comes about in each group, the last column."""


@dataclass
class Kept:
    """A view of distinct values in the making; `argument` are its variables, `nulls` whether values with NULLs
    count. `group` has its names of the view's free variables, `filtered` the atoms that its own conditions concern.
    `ordered`: in these `directions`; `ranked`: so that ranks are found. `counted`: how often a value comes about
    counts."""

    number: int
    leaves: Leaves
    group: tuple[tuple[str, str], ...]
    argument: tuple[str, ...]
    nulls: bool
    label: str
    filtered: frozenset[str]
    ordered: bool = False
    counted: bool = False
    directions: tuple[Direction, ...] = ()
    ranked: bool = False

    def type(self, position: int) -> str:
        return self.leaves.variable_type(self.argument[position])


class KeptValues:
    """The distinct values of one view, made as its aggregates ask for them."""

    def __init__(
        self, core: JoinCore, groups: Sequence[Scalar], leaves: Leaves, types: ComparedTypes, notes: Notes, below: Below
    ) -> None:
        self._core, self._leaves, self._types, self._notes, self._below = core, leaves, types, notes, below
        self._groups = [group for group in groups if core.atoms_of(group)]
        self._kept: dict[tuple[object, ...], Kept] = {}

    def keep(
        self,
        aggregate: Aggregated,
        argument: Sequence[Scalar],
        *,
        extremum: Extremum | None = None,
        nulls: bool = False,
        ordered: bool = False,
        counted: bool = False,
        directions: Sequence[Direction] = (),
        ranked: bool = False,
    ) -> Kept:
        """The view of distinct values of these argument expressions under the aggregate's filter, ordered, too, if
        their `extremum` is asked for. Raises NotSupportedError."""
        conditions = conjuncts(aggregate.filter)
        best = extremum if any(len(self._core.atoms_of(value)) > 1 for value in argument) else None
        identity = (nulls, counted, best, tuple(argument), conditions, tuple(directions))
        kept = self._kept.get(identity)
        if kept is None:
            number = len(self._kept)
            if best is None:
                kept = self._make(number, aggregate, argument, conditions, nulls)
            else:
                kept = self._make_best(aggregate, argument, conditions, best)
            self._kept[identity] = kept
        kept.ordered, kept.ranked = kept.ordered or ordered or extremum is not None, kept.ranked or ranked
        kept.counted, kept.directions = counted, tuple(directions)
        return kept

    def keep_counts(self, aggregate: Aggregated, value: Scalar) -> Kept:
        """The distinct pairs of how often a value comes about and the value, the most frequent ones first, and of these
        the least. Raises NotSupportedError."""
        conditions = (*conjuncts(aggregate.filter), is_not_null(value))
        identity = ("counts", value, conditions)
        if identity not in self._kept:
            groups = self._held_groups()
            inner = self._joined(conditions)
            core, columns = self._below.counts(inner, [*groups.values(), value])
            *shown, count = columns
            words = f"{self._spelled(value)} with their counts{self._spelled_filter(aggregate)}"
            kept = self._over(core, groups, [*shown[: len(groups)], count, shown[-1]], words)
            kept.ordered, kept.directions = True, (Direction(descending=True), Direction())
            self._kept[identity] = kept
        return self._kept[identity]

    def build(self) -> tuple[DistinctValues, ...]:
        """What has been asked for."""
        return tuple(_build(kept) for kept in self._kept.values())

    def _make(
        self, number: int, aggregate: Aggregated, argument: Sequence[Scalar], conditions: Sequence[Scalar], nulls: bool
    ) -> Kept:
        for value in argument:
            self._check_values(value, aggregate)
        core = self._narrowed(argument, conditions, nulls)
        leaves = Leaves(core, split_conditions(core, self._types, self._notes), self._types, self._notes)
        names = {}
        for value in self._groups:
            own, name = self._leaves.variable(value), leaves.variable(value)
            if self._leaves.variable_type(own) != leaves.variable_type(name):
                why = "by its equality the group column is compared in another type than outside the filter"
                place = self._notes.place(aggregate.column)
                raise self._notes.refusal("This FILTER", place, why, "cast the columns to one type")
            names[own] = name
        words = ", ".join(map(self._spelled, argument)) + self._spelled_filter(aggregate)
        variables = tuple(leaves.variable(value) for value in argument)
        found = [core.atoms_of(condition) for condition in conditions]
        filtered = {atom for one in found for atom in one} if all(found) else {atom.name for atom in core.atoms}
        for name in self._core.outer.keys() - core.outer.keys():  # A group may be there without its rows.
            # Its equalities may tie columns of others together.
            pairs = self._core.outer[name].pairs if len(self._core.outer[name].pairs) > 1 else ()
            filtered |= {name, *(atom for pair in pairs for atom in core.atoms_of(pair.mine))}
        return Kept(number, leaves, tuple(names.items()), variables, nulls, words, frozenset(filtered))

    def _narrowed(self, argument: Sequence[Scalar], conditions: Sequence[Scalar], nulls: bool) -> JoinCore:
        """The join under the aggregate's conditions. An atom that may be missing is required where its NULLs have no
        values, and left out where it decides none."""
        core = self._core.narrowed()
        for name, outer in self._core.outer.items():
            if name not in core.outer:
                continue
            read, tested = ([one for one in values if name in core.atoms_of(one)] for values in (argument, conditions))
            if any(not outer.missing.is_null(one) for one in read):
                raise OuterChildError("an aggregate above it takes a value where its row is missing")
            group = self._core.group_of(name)
            kept = any(group & set(core.atoms_of(value)) for value in (*self._groups, *argument, *conditions))
            if (read and not nulls) or any(not outer.missing.is_true(one) for one in tested):
                core.require(name)
            elif tested:
                raise OuterChildError("a filter of an aggregate above it is true where its row is missing")
            elif outer.presence == "optional" and not kept:
                core.drop(name)
        core.add_conditions(conjunction(conditions))
        return core

    def _make_best(
        self, aggregate: Aggregated, argument: Sequence[Scalar], conditions: Sequence[Scalar], extremum: Extremum
    ) -> Kept:
        """The view of distinct values of an extremum of expressions over several tables: the first rows of the
        groups in the arguments' order, which are a view of their own, have the values. They are NULL for a group
        without a row there."""
        for value in argument:
            self._check_values(value, aggregate)
        inner, groups = self._joined(conditions), self._held_groups()
        labels = [self._spelled(value) for value in argument]
        descending = extremum == "greatest"
        core, columns = self._below.best(inner, list(groups.values()), argument, labels, descending=descending)
        at = f"{labels[1]} at " if labels[1:] else ""
        words = f"{at}the {_WORDS[extremum]} of {labels[0]}{self._spelled_filter(aggregate)}"
        return self._over(core, groups, columns, words)

    def _joined(self, conditions: Sequence[Scalar]) -> JoinCore:
        """The join under more conditions, for a view of its own below that of the values."""
        if self._core.outer:
            raise OuterChildError("values above it are of a view of their own")
        inner = self._core.narrowed()
        inner.conditions += [one for one in conditions if one not in inner.conditions]
        return inner

    def _held_groups(self) -> dict[str, Scalar]:
        """The group columns, by the view's variables that hold them and in the types of these."""
        held = {self._leaves.variable(value): value for value in self._groups}
        return {name: cast(value, self._leaves.variable_type(name)) for name, value in held.items()}

    def _over(self, core: JoinCore, groups: dict[str, Scalar], columns: Sequence[Scalar], label: str) -> Kept:
        """The values of a view below, whose columns are the groups' and the argument's."""
        leaves = Leaves(core, split_conditions(core, self._types, self._notes), self._types, self._notes)
        names = [leaves.variable(column) for column in columns]
        group = tuple(zip(groups, names, strict=False))
        return Kept(len(self._kept), leaves, group, tuple(names[len(group) :]), False, label, frozenset())

    def _spelled_filter(self, aggregate: Aggregated) -> str:
        return f" where {self._spelled(aggregate.filter)}" if conjuncts(aggregate.filter) else ""

    def _spelled(self, value: Scalar) -> str:
        return spelled(value, self._core, self._notes)

    def _check_values(self, value: Scalar, aggregate: Aggregated) -> None:
        if not self._core.atoms_of(value):
            what = f"{function_name(aggregate.form)} of a constant"
            place = self._notes.place(aggregate.column)
            raise self._notes.refusal(what, place, "it has no values to keep", "write the constant itself")
        if len(self._core.atoms_of(value)) > 1 and function_name(aggregate.form) in ("count", "sum", "avg", "mean"):
            why = "its values are kept per group, each of which must be computed from one table's row"
            hint = "aggregate a column of one table, or keep the columns in the view and aggregate when you read it"
            what = f"{function_name(aggregate.form)} of an expression over several tables"
            place = self._notes.place_of(value) or self._notes.place(aggregate.column)
            raise self._notes.refusal(what, place, why, hint)


def without_nulls(atom: Atom, variables: frozenset[str]) -> Atom:
    """An atom over the rows that have these variables."""
    nullable = {column.name for column in atom.variables if not column.not_null}
    return replace(atom, required=atom.required | (variables & nullable))


def without_null_values(definition: Definition, labels: Sequence[str]) -> tuple[Definition, str | None]:
    """A block of first rows in the order of its last columns, which have these labels, over the rows where none of
    these is NULL, and why it might yet begin with others; None if it does not. NULLs of a single column come last."""
    [order] = definition.orders
    if order.obstacle is not None:
        return definition, order.obstacle if labels[1:] else None
    numbers = dict(order.places)
    terms = [order.terms[numbers[text]] for text in definition.projection[-len(labels) :]]
    needed = frozenset(name for term in terms for _, name in term.parts if term.form in (*STRICT, "value"))
    filtered = replace(definition, atoms=tuple(without_nulls(atom, needed) for atom in definition.atoms))
    nullable = [label for term, label in zip(terms, labels, strict=True) if may_be_null(filtered, term)]
    if nullable and labels[1:]:
        return filtered, f"{nullable[0]} may be NULL though none of its columns must be (declare them NOT NULL)"
    return filtered, None


def null_together(values: Sequence[Scalar]) -> list[Scalar]:
    """The values with a first value that is NULL where another value is. Rows are ordered by the first."""
    first, *others = values
    for other in others:
        first = guarded(is_not_null(other), first)
    return [first, *others]


def _build(kept: Kept) -> DistinctValues:
    needed = frozenset[str]() if kept.nulls else frozenset(kept.argument)
    atoms = tuple(without_nulls(atom, needed) for atom in kept.leaves.build())
    names = [name for _, name in kept.group]
    columns = tuple(dict.fromkeys((*names, *kept.argument)))
    whole = kept.leaves.compared(Definition(atoms, columns, "set"))
    if kept.counted:
        copies = RawColumn("copies", "count", "BIGINT", terms=((1, 0),))
        whole = replace(whole, mode="group", measures=(Measure(),), raw=(copies,))
    else:
        atoms = deciding_atoms(whole, names, kept.argument, kept.filtered)
    there = frozenset[str]().union(*(atom.scheme for atom in atoms))
    free = tuple(variable for variable in whole.free if variable in there)
    labels = tuple((variable, label) for variable, label in kept.leaves.labels() if variable in there)
    definition = replace(whole, atoms=atoms, free=free, labels=labels)
    group = tuple((variable, name) for variable, name in kept.group if name in there)
    return DistinctValues(definition, group, kept.argument, kept.ordered, kept.label, kept.directions, kept.ranked)

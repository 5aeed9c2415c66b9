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
from sqlfront.cut.join_core import JoinCore, OuterChildError
from sqlfront.cut.leaf_columns import Leaves
from sqlfront.cut.scalar_forms import guarded, is_not_null
from sqlfront.cut.split_conditions import spelled, split_conditions
from sqlfront.cut.term_orders import STRICT
from sqlfront.cut.value_types import ComparedTypes
from sqlfront.planner.algebra.scalars import (
    Scalar,
    cast,
    conjunction,
    conjuncts,
    function_name,
)
from sqlfront.planner.algebra.terms import Aggregated
from sqlfront.planner.model.query import Atom, Definition, DistinctValues, Measure, RawColumn
from sqlfront.planner.passes.distinct_plans import deciding_atoms
from sqlfront.planner.passes.orders import may_be_null

Extremum = Literal["least", "greatest"]
_WORDS = {"least": "min", "greatest": "max"}


class Best(Protocol):
    """How the first row of each group of a join becomes a view of its own: query_blocks.py."""

    def __call__(
        self, inner: JoinCore, groups: Sequence[Scalar], values: Sequence[Scalar], labels: Sequence[str], *,
        descending: bool,
    ) -> tuple[JoinCore, list[Scalar]]:  # fmt: skip
        """A join of that view alone, and its columns: the groups' and the values."""


@dataclass
class Kept:
    """A view of distinct values in the making; `argument` are its variables, `nulls` whether values with NULLs
    count. `group` has its names of the view's free variables, `filtered` the atoms that its own conditions concern.
    `counted`: how often a value comes about counts."""

    number: int
    leaves: Leaves
    group: tuple[tuple[str, str], ...]
    argument: tuple[str, ...]
    nulls: bool
    label: str
    filtered: frozenset[str]
    ordered: bool = False
    counted: bool = False

    def type(self, position: int) -> str:
        return self.leaves.variable_type(self.argument[position])


class KeptValues:
    """The distinct values of one view, made as its aggregates ask for them."""

    def __init__(
        self, core: JoinCore, groups: Sequence[Scalar], leaves: Leaves, types: ComparedTypes, notes: Notes, best: Best
    ) -> None:
        self._core, self._leaves, self._types, self._notes, self._best = core, leaves, types, notes, best
        self._groups = [group for group in groups if core.atoms_of(group)]
        self._kept: dict[tuple[object, ...], Kept] = {}

    def keep(
        self,
        aggregate: Aggregated,
        argument: Sequence[Scalar],
        *,
        extremum: Extremum | None = None,
        nulls: bool = False,
        counted: bool = False,
    ) -> Kept:
        """The view of distinct values of these argument expressions under the aggregate's filter, ordered if their
        `extremum` is asked for. Raises NotSupportedError."""
        conditions = conjuncts(aggregate.filter)
        best = extremum if any(len(self._core.atoms_of(value)) > 1 for value in argument) else None
        identity = (nulls, counted, best, tuple(argument), conditions)
        kept = self._kept.get(identity)
        if kept is None:
            number = len(self._kept)
            if best is None:
                kept = self._make(number, aggregate, argument, conditions, nulls)
            else:
                kept = self._make_best(number, aggregate, argument, conditions, best)
            self._kept[identity] = kept
        kept.ordered, kept.counted = kept.ordered or extremum is not None, counted
        return kept

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
        for name in self._core.outer.keys() - core.outer.keys():  # Its equalities may tie columns of others together.
            pairs = self._core.outer[name].pairs if len(self._core.outer[name].pairs) > 1 else ()
            filtered |= {atom for pair in pairs for atom in core.atoms_of(pair.mine)}
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
        self,
        number: int,
        aggregate: Aggregated,
        argument: Sequence[Scalar],
        conditions: Sequence[Scalar],
        extremum: Extremum,
    ) -> Kept:
        """The view of distinct values of an extremum of expressions over several tables: the first rows of the
        groups in the arguments' order, which are a view of their own, have the values. They are NULL for a group
        without a row there."""
        for value in argument:
            self._check_values(value, aggregate)
        if self._core.outer:
            raise OuterChildError("an extremum above it is of several tables")
        inner = self._core.narrowed()
        inner.conditions += [one for one in conditions if one not in inner.conditions]
        held = {self._leaves.variable(value): value for value in self._groups}
        groups = [cast(value, self._leaves.variable_type(name)) for name, value in held.items()]
        labels = [self._spelled(value) for value in argument]
        core, columns = self._best(inner, groups, argument, labels, descending=extremum == "greatest")
        leaves = Leaves(core, split_conditions(core, self._types, self._notes), self._types, self._notes)
        names = [leaves.variable(column) for column in columns]
        at = f"{labels[1]} at " if labels[1:] else ""
        words = f"{at}the {_WORDS[extremum]} of {labels[0]}{self._spelled_filter(aggregate)}"
        group = tuple(zip(held, names, strict=False))
        return Kept(number, leaves, group, tuple(names[len(group) :]), False, words, frozenset())

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
    return DistinctValues(definition, group, kept.argument, kept.ordered, kept.label)


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
    """Values the first of which, by which rows are ordered, is NULL where another is."""
    first, *others = values
    for other in others:
        first = guarded(is_not_null(other), first)
    return [first, *others]

"""Arguments of MIN, MAX, DISTINCT and their like: the distinct values of each group, as a query of their own.

COUNT(DISTINCT x) FILTER (WHERE c) over a join is answered from SELECT DISTINCT g, x over the same join, under c and
x IS NOT NULL, of which only that part is kept that decides which x a group has. Aggregates of the same argument and
filter share it. Extrema of expressions over several tables have the value from the first row of each group, a view of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlfront.bind.conditions import split_conditions
from sqlfront.bind.from_clause import Environment, JoinCore
from sqlfront.bind.leaves import Leaves
from sqlfront.bind.refusals import refusal
from sqlfront.bind.result_types import Typing
from sqlfront.planner.model.query import Atom, Definition, DistinctValues
from sqlfront.planner.passes.distinct_plans import deciding_atoms
from sqlfront.sql.parse_tree import Tree, atoms_of, conjuncts, expression, key, render, span

Extremum = Literal["least", "greatest"]
_WORDS = {"least": "min", "greatest": "max"}


@dataclass
class Kept:
    """A view of distinct values in the making; `argument` are its variables, `nulls` whether values with NULLs
    count. `group` has its names of the view's free variables, `filtered` the atoms that its own conditions concern."""

    number: int
    leaves: Leaves
    group: tuple[tuple[str, str], ...]
    argument: tuple[str, ...]
    nulls: bool
    label: str
    filtered: frozenset[str]
    ordered: bool = False

    def type(self, position: int) -> str:
        return self.leaves.variable_type(self.argument[position])


class DistinctArguments:
    """The distinct values of one view, made as its aggregates ask for them."""

    def __init__(
        self,
        con: Any,
        core: JoinCore,
        groups: Sequence[Tree],
        leaves: Leaves,
        typing: Typing,
        environment: Environment,
    ) -> None:
        self._con, self._core, self._leaves, self._typing = con, core, leaves, typing
        self._environment, self._source = environment, environment.source
        self._groups = [group for group in groups if atoms_of(group)]
        self._kept: dict[str, Kept] = {}

    def keep(
        self, aggregate: Tree, argument: Sequence[Tree], *, extremum: Extremum | None = None, nulls: bool = False
    ) -> Kept:
        """The view of distinct values of these argument expressions under the aggregate's filter, ordered if their
        `extremum` is asked for. Raises NotSupportedError."""
        conditions = conjuncts(aggregate["filter"])
        best = extremum if any(len(atoms_of(tree)) > 1 for tree in argument) else None
        identity = "\n".join([str(nulls), str(best), *map(key, argument), "filter", *map(key, conditions)])
        kept = self._kept.get(identity)
        if kept is None:
            number = len(self._kept)
            kept = (
                self._make(number, aggregate, argument, conditions, nulls)
                if best is None
                else self._make_best(number, aggregate, argument, conditions, best)
            )
            self._kept[identity] = kept
        kept.ordered |= extremum is not None
        return kept

    def build(self) -> tuple[DistinctValues, ...]:
        """What has been asked for."""
        return tuple(_build(kept) for kept in self._kept.values())

    def _make(
        self, number: int, aggregate: Tree, argument: Sequence[Tree], conditions: list[Tree], nulls: bool
    ) -> Kept:
        for tree in argument:
            self._check_argument(tree, aggregate)
        core = JoinCore(self._core.atoms, [*self._core.conditions, *conditions])
        leaves = Leaves(core.atoms, split_conditions(core, self._typing, self._source), self._typing, self._source)
        names = {}
        for tree in self._groups:
            own, name = self._leaves.variable(tree), leaves.variable(tree)
            if self._leaves.variable_type(own) != leaves.variable_type(name):
                why = "by its equality the group column is compared in another type than outside the filter"
                raise refusal("This FILTER", self._source, span(aggregate), why, "cast the columns to one type")
            names[own] = name
        words = ", ".join(map(self._spelled, argument)) + self._spelled_filter(aggregate)
        variables = tuple(leaves.variable(tree) for tree in argument)
        found = [atoms_of(condition) for condition in conditions]
        filtered = frozenset().union(*found) if all(found) else frozenset(atom.name for atom in core.atoms)
        return Kept(number, leaves, tuple(names.items()), variables, nulls, words, filtered)

    def _make_best(
        self, number: int, aggregate: Tree, argument: Sequence[Tree], conditions: list[Tree], extremum: Extremum
    ) -> Kept:
        """The view of distinct values of an extremum of expressions over several tables: the first rows of the
        groups in the arguments' order, which are a view of their own, have the values. They are NULL for a group
        without a row there."""
        for tree in argument:
            self._check_values(tree, aggregate)
        inner = JoinCore(list(self._core.atoms), [*self._core.conditions, *conditions], self._core.reserved)
        held = {self._leaves.variable(tree): tree for tree in self._groups}
        groups = [self._in_type(tree, self._leaves.variable_type(name)) for name, tree in held.items()]
        labels = [self._spelled(tree) for tree in argument]
        blocks, core = self._environment.blocks, JoinCore()
        descending = extremum == "greatest"
        columns = blocks.best(inner, groups, argument, labels, self._environment, core, descending=descending)
        typing = Typing(self._con, core.atoms)
        leaves = Leaves(core.atoms, split_conditions(core, typing, self._source), typing, self._source)
        names = [leaves.variable(column) for _, column in columns]
        at = f"{labels[1]} at " if labels[1:] else ""
        words = f"{at}the {_WORDS[extremum]} of {labels[0]}{self._spelled_filter(aggregate)}"
        group = tuple(zip(held, names, strict=False))
        return Kept(number, leaves, group, tuple(names[len(group) :]), False, words, frozenset())

    def _in_type(self, tree: Tree, type_: str) -> Tree:
        """An expression in the type of the variable that holds it."""
        return tree if self._typing.type_of(tree) == type_ else expression(f"CAST(v AS {type_})", v=tree)

    def _spelled_filter(self, aggregate: Tree) -> str:
        return f" where {self._spelled(aggregate['filter'])}" if conjuncts(aggregate["filter"]) else ""

    def _spelled(self, tree: Tree) -> str:
        return self._source.text(span(tree)) or render(tree)

    def _check_argument(self, tree: Tree, aggregate: Tree) -> None:
        atoms = atoms_of(tree)
        what = aggregate["function_name"]
        if len(atoms) > 1:
            why = "its values are kept per group, each of which must be computed from one table's row"
            hint = "aggregate a column of one table, or keep the columns in the view and aggregate when you read it"
            what = f"{what} of an expression over several tables"
            raise refusal(what, self._source, span(tree) or span(aggregate), why, hint)
        self._check_values(tree, aggregate)

    def _check_values(self, tree: Tree, aggregate: Tree) -> None:
        if not atoms_of(tree):
            what = f"{aggregate['function_name']} of a constant"
            raise refusal(what, self._source, span(aggregate), "it has no values to keep", "write the constant itself")


def _build(kept: Kept) -> DistinctValues:
    needed = frozenset() if kept.nulls else frozenset(kept.argument)
    atoms = tuple(without_nulls(atom, needed) for atom in kept.leaves.build())
    names = [name for _, name in kept.group]
    columns = tuple(dict.fromkeys((*names, *kept.argument)))
    whole = Definition(atoms, columns, "set", comparisons=kept.leaves.comparisons)
    atoms = deciding_atoms(whole, names, kept.argument, kept.filtered)
    there = frozenset().union(*(atom.scheme for atom in atoms))
    free = tuple(variable for variable in whole.free if variable in there)
    labels = tuple((variable, label) for variable, label in kept.leaves.labels() if variable in there)
    definition = replace(whole, atoms=atoms, free=free, labels=labels)
    group = tuple((variable, name) for variable, name in kept.group if name in there)
    return DistinctValues(definition, group, kept.argument, kept.ordered, kept.label)


def without_nulls(atom: Atom, variables: frozenset[str]) -> Atom:
    nullable = {column.name for column in atom.variables if not column.not_null}
    return replace(atom, required=atom.required | (variables & nullable))

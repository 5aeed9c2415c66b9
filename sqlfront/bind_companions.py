"""Arguments of MIN, MAX, DISTINCT and their like: the distinct values of each group, as a query of their own.

COUNT(DISTINCT x) FILTER (WHERE c) over a join is answered from SELECT DISTINCT g, x over the same join, under c and
x IS NOT NULL, of which only that part is kept that decides which x a group has. Aggregates of the same argument and
filter share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.companions import deciding_atoms
from planner.query import Atom, Companion, Definition
from sqlfront.bind_conditions import split_conditions
from sqlfront.bind_from import JoinCore
from sqlfront.bind_leaves import Leaves
from sqlfront.bind_refusals import refusal
from sqlfront.bind_types import Typing
from sqlfront.parse_tree import SourceText, Tree, atoms_of, conjuncts, key, render, span


@dataclass
class Kept:
    """A companion in the making; `argument` are its variables, `nulls` whether values with NULLs count. `group` has its
    names of the view's free variables, `filtered` the atoms that its own conditions concern."""

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


class Companions:
    """The companions of one view, made as its aggregates ask for them."""

    def __init__(
        self, core: JoinCore, groups: Sequence[Tree], leaves: Leaves, typing: Typing, source: SourceText
    ) -> None:
        self._core, self._leaves, self._typing, self._source = core, leaves, typing, source
        self._groups = [group for group in groups if atoms_of(group)]
        self._kept: dict[str, Kept] = {}

    def keep(self, aggregate: Tree, argument: Sequence[Tree], *, ordered: bool, nulls: bool = False) -> Kept:
        """The companion of these argument expressions under the aggregate's filter. Raises NotSupportedError."""
        conditions = conjuncts(aggregate["filter"])
        identity = "\n".join([str(nulls), *map(key, argument), "filter", *map(key, conditions)])
        kept = self._kept.get(identity)
        if kept is None:
            kept = self._kept[identity] = self._make(aggregate, argument, conditions, nulls)
        kept.ordered |= ordered
        return kept

    def build(self) -> tuple[Companion, ...]:
        """What has been asked for."""
        return tuple(_build(kept) for kept in self._kept.values())

    def _make(self, aggregate: Tree, argument: Sequence[Tree], conditions: list[Tree], nulls: bool) -> Kept:
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
        words = ", ".join(map(self._spelled, argument))
        words += f" where {self._spelled(aggregate['filter'])}" if conditions else ""
        variables = tuple(leaves.variable(tree) for tree in argument)
        found = [atoms_of(condition) for condition in conditions]
        filtered = frozenset().union(*found) if all(found) else frozenset(atom.name for atom in core.atoms)
        return Kept(len(self._kept), leaves, tuple(names.items()), variables, nulls, words, filtered)

    def _spelled(self, tree: Tree) -> str:
        return self._source.text(span(tree)) or render(tree)

    def _check_argument(self, tree: Tree, aggregate: Tree) -> None:
        atoms = atoms_of(tree)
        if len(atoms) > 1:
            why = "its values are kept per group, each of which must be computed from one table's row"
            hint = self._ranked(tree, aggregate)
            what = f"{aggregate['function_name']} of an expression over several tables"
            raise refusal(what, self._source, span(tree) or span(aggregate), why, hint)
        if not atoms:
            what = f"{aggregate['function_name']} of a constant"
            raise refusal(what, self._source, span(aggregate), "it has no values to keep", "write the constant itself")

    def _ranked(self, tree: Tree, aggregate: Tree) -> str:
        """A way out: an extremum is in its group's first row, which is found without computing the join."""
        name, value = aggregate["function_name"], self._spelled(tree)
        if name not in ("min", "max") or aggregate["filter"] is not None:
            return "aggregate a column of one table, or keep the columns in the view and aggregate when you read it"
        order = f"ORDER BY {value}{' DESC' if name == 'max' else ''} NULLS LAST"
        if not self._groups:
            return f"SELECT {name}(m) FROM (SELECT {value} AS m FROM ... {order} LIMIT 1) AS first"
        groups = ", ".join(map(self._spelled, self._groups))
        first = f"QUALIFY row_number() OVER (PARTITION BY {groups} {order}) <= 1"
        return f"SELECT ..., {name}(m) FROM (SELECT {groups}, {value} AS m FROM ... {first}) AS first GROUP BY ..."


def _build(kept: Kept) -> Companion:
    needed = frozenset() if kept.nulls else frozenset(kept.argument)
    atoms = tuple(_without_nulls(atom, needed) for atom in kept.leaves.build())
    names = [name for _, name in kept.group]
    columns = tuple(dict.fromkeys((*names, *kept.argument)))
    whole = Definition(atoms, columns, "set", comparisons=kept.leaves.comparisons)
    atoms = deciding_atoms(whole, names, kept.argument, kept.filtered)
    there = frozenset().union(*(atom.scheme for atom in atoms))
    free = tuple(variable for variable in whole.free if variable in there)
    labels = tuple((variable, label) for variable, label in kept.leaves.labels() if variable in there)
    definition = replace(whole, atoms=atoms, free=free, labels=labels)
    group = tuple((variable, name) for variable, name in kept.group if name in there)
    return Companion(definition, group, kept.argument, kept.ordered, kept.label)


def _without_nulls(atom: Atom, variables: frozenset[str]) -> Atom:
    nullable = {column.name for column in atom.variables if not column.not_null}
    return replace(atom, required=atom.required | (variables & nullable))

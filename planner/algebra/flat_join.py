"""The join of a block as its leaves, which are tables and blocks, and its conditions, in place of a term of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from sqlfront.planner.algebra.scalars import TRUE, Column, Ref, Scalar, columns_of, conjunction, conjuncts, substitute
from sqlfront.planner.algebra.terms import Filter, Join, Made, Map, Term


@dataclass
class FlatJoin:
    """The inner join of `leaves` under `conditions`; `values` are the columns that it computes."""

    leaves: list[Term] = field(default_factory=list)
    conditions: list[Scalar] = field(default_factory=list)
    values: dict[Column, Scalar] = field(default_factory=dict)
    _owners: dict[Column, int] = field(default_factory=dict)

    def leaves_of(self, value: Scalar) -> frozenset[int]:
        """The numbers of the leaves that an expression reads."""
        return frozenset(self._owners[column] for column in columns_of(value) if column in self._owners)

    def shown(self, joined: Term, columns: Iterable[Column]) -> Map:
        """A term with the columns of the leaves, in these columns of the join."""
        return Map(joined, tuple(Made(column, self.values.get(column, Ref(column))) for column in columns))

    def tied(self, group: frozenset[int]) -> FlatJoin:
        """The join with some of its leaves as one leaf, the last: their join under the conditions that read them."""
        own = [one for one in self.conditions if self.leaves_of(one) <= group]
        others = [leaf for number, leaf in enumerate(self.leaves) if number not in group]
        leaves = [*others, joined([self.leaves[number] for number in sorted(group)], own)]
        owners = {column: number for number, leaf in enumerate(leaves) for column in leaf.columns}
        return FlatJoin(leaves, [one for one in self.conditions if one not in own], self.values, owners)

    def add(self, term: Term) -> None:
        """Add a term, and what it joins, selects and computes."""
        match term:
            case Map(input=input, made=made):
                self.add(input)
                self.values |= {
                    one.column: self._over_leaves(one.value) for one in made if one.value != Ref(one.column)
                }
            case Filter(input=input, condition=condition):
                self.add(input)
                self._add_conditions(condition)
            case Join(kind="inner", dependent=False):
                self.add(term.left)
                self.add(term.right)
                self._add_conditions(term.condition)
            case _:
                self._owners |= dict.fromkeys(term.columns, len(self.leaves))
                self.leaves.append(term)

    def _add_conditions(self, condition: Scalar) -> None:
        self.conditions += conjuncts(self._over_leaves(condition))

    def _over_leaves(self, value: Scalar) -> Scalar:
        return substitute(value, self.values)


def flattened(term: Term) -> FlatJoin:
    """The join that a term is; of one leaf if it is none."""
    found = FlatJoin()
    found.add(term)
    return found


def joined(leaves: Sequence[Term], conditions: Sequence[Scalar]) -> Term:
    """The inner join of some terms under conditions."""
    condition = conjunction(conditions)
    if len(leaves) == 1:
        return leaves[0] if condition == TRUE else Filter(leaves[0], condition)
    left = reduce(lambda one, other: Join("inner", one, other), leaves[:-1])
    return Join("inner", left, leaves[-1], condition)

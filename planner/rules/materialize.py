"""`strategy = 'materialize'`: a tree of binary joins, each stored with every column that is put out or joined above.

Higher-order incremental maintenance, as DBToaster does it (Koch et al. 2014), in one tree for all relations as F-IVM
does (Nikolic and Olteanu 2018). It costs what the intermediate results do, takes cyclic joins too, and reading is a
scan of one table.

The join order is greedy operator ordering (Fegaras 1998): join what makes the fewest rows, products last. A table's
weight stands for its rows; a join whose one side is fixed by a declared key has as many as the other side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

from planner.cost import MATERIALIZED
from planner.hypergraph import hypergraph, ordered_variables
from planner.keys import closure
from planner.plan import Cost, Node, Plan
from planner.query import Atom, Definition
from planner.tree import Weights

STRATEGY = "every join materialized"
FAN_OUT = 10
"""The matches of a row that no key limits, for want of statistics."""


def materialize_joins(definition: Definition, automatic: Plan, weights: Weights) -> Plan:
    """The plan with every intermediate join stored, instead of the `automatic` one of the rules.

    A query over one table has no joins to store: its plan stays. O(atoms^3).
    """
    hypergraph(definition)  # Checks the definition.
    if len(definition.atoms) < 2:
        return automatic
    return Plan(
        shape=automatic.shape,
        strategy=STRATEGY,
        root=_root(definition, weights),
        free=tuple(dict.fromkeys(definition.free)),
        projected=False,
        variables_added=(),
        cost=MATERIALIZED,
        reason="Every intermediate join is stored, as strategy = 'materialize' asks: a change costs as much as it "
        "changes in all of them (higher-order maintenance, Koch et al. 2014), and reading scans the stored result.",
        witness=automatic.witness,
        suggestion=_suggest(automatic.cost),
    )


def _suggest(automatic: Cost) -> str:
    return f"with strategy = 'auto' a change costs {automatic.update}, and the view takes {automatic.space} space"


@dataclass(frozen=True)
class _Operand:
    """A join so far: its node, the variables it passes up, its atoms, and its estimated rows."""

    node: Node
    shown: frozenset[str]
    atoms: tuple[Atom, ...]
    rows: float


def _root(definition: Definition, weights: Weights) -> Node:
    free = frozenset(definition.free)
    rank = {variable: place for place, variable in enumerate(ordered_variables(definition))}

    def node(variables: frozenset[str], *children: Node) -> Node:
        return Node(tuple(sorted(variables, key=rank.__getitem__)), children)

    def merge(left: _Operand, right: _Operand) -> _Operand:
        atoms = (*left.atoms, *right.atoms)
        outside = (atom.scheme for atom in definition.atoms if atom not in atoms)
        joined = left.shown | right.shown
        shown = joined & free.union(*outside)
        made = node(joined, left.node, right.node)
        return _Operand(made if shown == joined else node(shown, made), shown, atoms, _estimate(left, right))

    operands = [_leaf(atom, definition, weights) for atom in definition.atoms]
    while len(operands) > 1:
        left, right = min(combinations(operands, 2), key=lambda pair: (not _joins(*pair), _estimate(*pair)))
        operands = [merge(left, right), *(other for other in operands if other is not left and other is not right)]
    result = replace(operands[0].node, connex=True)
    return Node((), (result,), connex=True) if free else result


def _leaf(atom: Atom, definition: Definition, weights: Weights) -> _Operand:
    others = (other.scheme for other in definition.atoms if other is not atom)
    leaf = Node(tuple(column.name for column in atom.variables), atom=atom.name)
    return _Operand(leaf, atom.scheme & frozenset(definition.free).union(*others), (atom,), weights.get(atom.table, 1))


def _joins(left: _Operand, right: _Operand) -> bool:
    return bool(left.shown & right.shown)


def _estimate(left: _Operand, right: _Operand) -> float:
    """The rows of a join, as far as declared keys tell."""
    shared = left.shown & right.shown
    bounds = [one.rows for one, other in ((left, right), (right, left)) if _is_fixed(other, shared)]
    if bounds:
        return min(bounds)
    return FAN_OUT * max(left.rows, right.rows) if shared else left.rows * right.rows


def _is_fixed(operand: _Operand, known: frozenset[str]) -> bool:
    """Whether declared keys leave at most one of its rows for the values of `known`."""
    return operand.shown <= closure(known, operand.atoms)[0]

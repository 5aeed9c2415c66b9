"""Hierarchical joins whose output columns are below columns that are projected out, by heavy and light values of these.

The columns that join tables form *keys*, each with the columns of the one before: b in the star R1(a1, b), ..., Rk(ak,
b); a, then (a, b) in R(a, b, c), S(a, b, d), T(a, e). What a table has beside its keys, its *ends*, is put out. A value
of a key is heavy if it is so in one of the tables that have it. Part tree i enumerates the rows under values that are
heavy for the first i keys: what the tables below join to is stored without the next key where this is light. So part
tree 0 adds to the output, and the last one stores no join. There are at most 2k N^(1-eps) heavy values of a key, and an
output row may be in the product of each. Tables without ends only filter.

Kara, Nikolic, Olteanu and Zhang 2020, with their view trees. For k tables with ends the static width is k, the dynamic
one k - 1, and k if a table has no end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from sqlfront.planner.heavy_light.reasons import say_division
from sqlfront.planner.model.exponents import REST, Exponents, line
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.hypergraph import hypergraph, occurrences, ordered_variables
from sqlfront.planner.model.plan import Node, Plan, RowsIn
from sqlfront.planner.model.query import Atom, Definition
from sqlfront.planner.theory.hierarchy import find_violation
from sqlfront.planner.theory.wording import are, enumerate_words, labels, spell_violation


def hierarchical(definition: Definition, plan: Plan) -> Union | None:
    """The union, if the keys of the tables form one chain, each with a column that is projected out, and everything
    else is put out; else None.

    O(N^((k-1) eps)) a change of a table with ends, O(N^(k eps)) of another one, O(N^(1-eps)) delay, O(N^(1+(k-1) eps))
    space for k tables with ends.
    """
    found = _find_chain(definition) if _may_be_divided(definition, plan) else None
    if not isinstance(found, _Chain):
        return None
    part_trees = tuple(map(found.part_tree, range(len(found.keys) + 1)))
    stored, ends = part_trees[0].root, len(found.ended)
    filtered = ends < len(definition.atoms)
    space, update = line(1, ends - 1), line(0, ends if filtered else ends - 1)
    exponents = Exponents(space, update, REST, space, rows=Fraction(ends))
    joint = sum(bool(edge.groups) for edge in found.edges) > 1
    return Union(HIERARCHICAL, found.edges, part_trees, stored, exponents, joint=joint)


def _may_be_divided(definition: Definition, plan: Plan) -> bool:
    if definition.mode == "bag" or len(definition.atoms) < 2 or plan.rows_in == RowsIn.RANKED_TREE:
        return False
    return plan.shape in ("free-connex", "acyclic")


def _find_chain(definition: Definition) -> _Chain | str | None:
    """The keys; why they are no such chain; None if no output column depends on what is projected out.

    O(|variables|^2 * |atoms|).
    """
    edges, free = hypergraph(definition), set(definition.free)
    violation = find_violation(edges, definition.free)
    if violation is None:
        return None
    told = spell_violation(definition, violation)
    if violation.condition == "hierarchical":
        return f"its joins are not hierarchical: {told}"
    classes: dict[frozenset[str], list[str]] = {}
    holding = occurrences(edges)
    for variable in sorted(ordered_variables(definition), key=lambda variable: -len(holding[variable])):
        if len(holding[variable]) > 1:
            classes.setdefault(holding[variable], []).append(variable)
        elif variable not in free:
            return f"{told}; {labels(definition, [variable])} of one table is neither put out nor summed there"
    holders, keys = list(classes), list(classes.values())
    for above, below in zip((frozenset(edges), *holders), holders, strict=False):
        if not below <= above:
            beside = enumerate_words(labels(definition, classes[one]) for one in (above, below) if one in classes)
            return f"{told}; {beside} join different tables, and keys of one chain are divided"
    if holders[0] != frozenset(edges):
        return f"{told}; no column joins all of its tables"
    for key in keys:
        if set(key) <= free:
            return f"{told}; {labels(definition, key)} {are(key)} put out, and each key has a column that is not"
    depths = {name: sum(name in atoms for atoms in holders) for name in edges}
    ended = frozenset(name for name in edges if any(len(holding[variable]) == 1 for variable in edges[name]))
    if not ended & holders[-1]:
        joined = enumerate_words(name for name in edges if name in holders[-1])
        return f"{told}; of {joined}, which {labels(definition, keys[-1])} joins, no other column is put out"
    cumulative = [tuple(v for key in keys[: place + 1] for v in key) for place in range(len(keys))]
    return _Chain(definition.atoms, tuple(dict.fromkeys(definition.free)), tuple(cumulative), depths, ended)


@dataclass(frozen=True)
class _Chain:
    """The keys of a join, each with the columns of those before it; how many of them each table has; the tables with
    ends."""

    atoms: tuple[Atom, ...]
    free: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    depths: dict[str, int]
    ended: frozenset[str]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The atoms by their keys. One without ends has at most one row for its last key: no value is heavy there."""
        return tuple(Edge(name, self.keys[: depth - (name not in self.ended)]) for name, depth in self.depths.items())

    def part_tree(self, heavy: int) -> PartTree:
        """That under values which are heavy for the first `heavy` keys, and light for the next one, if there is one."""
        status = "H" * heavy + "L" + "*" * len(self.keys)
        parts = tuple((edge.atom, PartKey.of(status[: len(edge.groups)])) for edge in self.edges)
        name = status[: min(heavy + 1, len(self.keys))]
        if not heavy:
            return PartTree(name, parts, Node((), (self._joined((), 1),), connex=True), Reading.SHARED)
        below = [self._joined(self.keys[heavy - 1], heavy + 1)] if heavy < len(self.keys) else []
        for depth in range(heavy, 0, -1):
            leaves = (self._leaf(atom, connex=atom.name in self.ended) for atom in self._at(depth, depth))
            below = [Node(self.keys[depth - 1], (*below, *leaves), connex=True)]
        return PartTree(name, parts, Node((), tuple(below), connex=True), Reading.ENUMERATED)

    def _joined(self, above: tuple[str, ...], depth: int) -> Node:
        """The join of the atoms from a depth on, by the key above and the output columns."""
        leaves = tuple(self._leaf(atom, connex=False) for atom in self._at(depth, len(self.keys)))
        variables = tuple(dict.fromkeys(v for leaf in leaves for v in leaf.variables))
        shown = [v for v in self.free if v in variables and v not in above]
        return Node((*above, *shown), (Node(variables, leaves),), connex=True)

    def _at(self, first: int, last: int) -> Iterable[Atom]:
        return (atom for atom in self.atoms if first <= self.depths[atom.name] <= last)

    @staticmethod
    def _leaf(atom: Atom, *, connex: bool) -> Node:
        return Node(tuple(column.name for column in atom.variables), atom=atom.name, connex=connex)


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    return say_division(definition, union, definition.free, epsilon)


def _refusal(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    """Other joins whose output columns depend on what is projected out."""
    found = _find_chain(definition) if _may_be_divided(definition, plan) else None
    return (found, None) if isinstance(found, str) else None


HIERARCHICAL = Strategy(
    hierarchical,
    "the joins",
    "Kara, Nikolic, Olteanu and Zhang 2020, Trade-offs in static and dynamic evaluation of hierarchical queries",
    _reason,
    refusal=_refusal,
)

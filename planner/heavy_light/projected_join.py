"""The query Q(a) = R(a, b), S(b), with R partitioned by b.

The rows of a light b are added to the output: fewer than N^eps for a change of S. The rows of a heavy b are enumerated
from a tree, under the heavy values of S: at most 2 N^(1-eps). The query is the simplest hierarchical query that is not
q-hierarchical (Kara, Nikolic, Olteanu and Zhang 2020).
"""

from __future__ import annotations

from fractions import Fraction

from sqlfront.planner.heavy_light.reasons import say_division
from sqlfront.planner.model.exponents import EPSILON, REST, Exponents, line
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan, RowsIn
from sqlfront.planner.model.query import Definition


def projected_join(definition: Definition, plan: Plan) -> Union | None:
    """The union, if the query is such a join; else None. O(N^eps) a change, O(N^(1-eps)) delay, linear space."""
    if plan.shape != "free-connex" or plan.rows_in == RowsIn.RANKED_TREE or len(definition.atoms) != 2:
        return None
    if not definition.free or definition.mode == "bag":
        return None
    leaves = [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]
    own, closing = sorted(leaves, key=lambda leaf: -len(leaf.variables))
    free = tuple(dict.fromkeys(definition.free))
    if set(free) & set(closing.variables) or set(own.variables) != {*free, *closing.variables}:
        return None
    edges = Edge(own.atom or "", (closing.variables,)), Edge(closing.atom or "", ())
    output = Node((), (Node(free, (Node(own.variables, (own, closing)),), connex=True),), connex=True)
    inner = Node(own.variables, (own,), connex=True)
    upper = Node((), (Node(closing.variables, (closing, inner), connex=True),), connex=True)
    parts = {letter: ((edges[0].atom, PartKey.of(letter)), (edges[1].atom, PartKey.of(""))) for letter in ("L", "H")}
    light = PartTree("L", parts["L"], output, Reading.SHARED)
    heavy = PartTree("H", parts["H"], upper, Reading.ENUMERATED)
    exponents = Exponents(line(1), EPSILON, REST, line(1), rows=Fraction(1))
    return Union(PROJECTED_JOIN, edges, (light, heavy), output, exponents)


PROJECTED_JOIN = Strategy(
    projected_join,
    "the joins",
    "Kara, Nikolic, Olteanu and Zhang 2020, Trade-offs in static and dynamic evaluation of hierarchical queries",
    say_division,
)

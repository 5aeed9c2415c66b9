"""The ends of a star, R1(a1, b), ..., Rk(ak, b), with b summed out; its tables are partitioned by b.

A value of b is heavy if it is so in one of the tables. What the rows of a light b join to is added to the output. Under
each heavy b the rows of the tables are enumerated as a product. There are at most 2k N^(1-eps) heavy values, and an
output row may be in the product of each. Tables without an end, S(b), only filter. With k = 1 this is the simplest
hierarchical query that is not q-hierarchical (Kara, Nikolic, Olteanu and Zhang 2020; the static width is k, the dynamic
one k - 1, and k if a table has no end).
"""

from __future__ import annotations

from fractions import Fraction

from sqlfront.planner.heavy_light.reasons import say_division
from sqlfront.planner.model.exponents import REST, Exponents, line
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.hypergraph import hypergraph, occurrences
from sqlfront.planner.model.plan import Node, Plan, RowsIn
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.hierarchy import find_violation
from sqlfront.planner.theory.wording import labels, spell_violation


def projected_star(definition: Definition, plan: Plan) -> Union | None:
    """The union, if all tables share some columns, not all of them put out, and all that a table has beside them is put
    out; else None. The shared columns that are put out are part of each end.

    O(N^((k-1) eps)) a change of an end, O(N^(k eps)) of a table without one, O(N^(1-eps)) delay, O(N^(1+(k-1) eps))
    space for k tables with ends.
    """
    if plan.shape not in ("free-connex", "acyclic") or plan.rows_in == RowsIn.RANKED_TREE:
        return None
    if definition.mode == "bag" or len(definition.atoms) < 2:
        return None
    leaves = [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]
    centre = [v for v in leaves[0].variables if all(v in leaf.variables for leaf in leaves)]
    found = [v for leaf in leaves for v in leaf.variables if v not in centre]
    free, ended = tuple(dict.fromkeys(definition.free)), [leaf for leaf in leaves if len(leaf.variables) > len(centre)]
    if not ended or set(centre) <= set(free) or set(free) != {*found, *(v for v in centre if v in free)}:
        return None
    if len(set(found)) != len(found):
        return None
    edges = tuple(Edge(leaf.atom or "", (tuple(centre),) if leaf in ended else ()) for leaf in leaves)
    joined = Node((*centre, *found), tuple(leaves))
    output = Node((), (Node(free, (joined,), connex=True),), connex=True)
    listed = tuple(Node(leaf.variables, atom=leaf.atom, connex=leaf in ended) for leaf in leaves)
    upper = Node((), (Node(tuple(centre), listed, connex=True),), connex=True)
    light, heavy = (tuple((edge.atom, PartKey.of(own if edge.groups else "")) for edge in edges) for own in "LH")
    part_trees = PartTree("L", light, output, Reading.SHARED), PartTree("H", heavy, upper, Reading.ENUMERATED)
    exponents = _exponents(len(ended), filtered=len(ended) < len(leaves))
    return Union(PROJECTED_STAR, edges, part_trees, output, exponents, joint=len(ended) > 1)


def _exponents(ends: int, *, filtered: bool) -> Exponents:
    stored, changed = line(1, ends - 1), line(0, ends if filtered else ends - 1)
    return Exponents(stored, changed, REST, stored, rows=Fraction(ends))


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    return say_division(definition, union, definition.free, epsilon)


def _refusal(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    """Other joins whose output columns depend on what is projected out."""
    if definition.mode == "bag" or plan.shape not in ("free-connex", "acyclic") or plan.rows_in == RowsIn.RANKED_TREE:
        return None
    edges = hypergraph(definition)
    violation = find_violation(edges, definition.free)
    if violation is None:
        return None
    told = spell_violation(definition, violation)
    if violation.condition == "hierarchical":
        return f"its joins are not hierarchical: {told}", None
    inner = [variable for variable, atoms in occurrences(edges).items() if 1 < len(atoms) < len(edges)]
    if inner:
        why = f"{labels(definition, inner)} joins some of its tables only, and one level of columns is divided"
        return f"{told}; {why}", None
    return None


PROJECTED_STAR = Strategy(
    projected_star,
    "the joins",
    "Kara, Nikolic, Olteanu and Zhang 2020, Trade-offs in static and dynamic evaluation of hierarchical queries",
    _reason,
    refusal=_refusal,
)

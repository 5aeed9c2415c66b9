"""The first distinct ends of a star R1(a1, b), ..., Rm(am, b), by the degrees of its ends: Deep, Hu and Koutris 2022,
Theorem 25, under changes.

An end is heavy if many rows of its table have it. Ends that are all heavy are few: which of them meet is stored. What
has a light end is found from ranked trees rooted at b, one for each table that may have the first light end: there as
few rows of the join make one row of the output as a light end has rows. So no two part trees have a row in common.
"""

from __future__ import annotations

from collections import Counter

from sqlfront.planner.model.exponents import EPSILON, Exponents, greatest, line
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan, RowsIn
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.wording import enumerate_words, labels


def star(definition: Definition, plan: Plan) -> Union | None:
    """The strategy, if the query is the first distinct rows of what tables have beside the columns that they all share,
    and these columns are not put out; else None. Tables with nothing beside them only filter.

    O(N^((m-1)(1-eps)) log N) a change, O(N^eps log N) delay, O(N^max(1, m(1-eps))) space for m ends.
    """
    if plan.shape == "cyclic" or plan.rows_in != RowsIn.RANKED_TREE or plan.orders[0].top or definition.mode != "set":
        return None
    schemes = {atom.name: tuple(column.name for column in atom.variables) for atom in definition.atoms}
    met = Counter(variable for scheme in schemes.values() for variable in scheme)
    centre = tuple(variable for variable, atoms in met.items() if atoms > 1)
    ends = {atom: tuple(v for v in scheme if met[v] == 1) for atom, scheme in schemes.items()}
    found = tuple(variable for own in ends.values() for variable in own)
    if not centre or any(set(scheme) - set(ends[atom]) != set(centre) for atom, scheme in schemes.items()):
        return None
    if not set(definition.free) <= set(found) <= set(definition.free) | definition.orders[0].variables:
        return None
    edges = tuple(Edge(atom, (own,) if own else ()) for atom, own in ends.items())
    leaves = tuple(Node(scheme, atom=atom, connex=bool(ends[atom])) for atom, scheme in schemes.items())
    parted = [edge for edge in edges if edge.groups]
    stored = Node((), (Node(found, (_joined(centre, found, leaves),), connex=True),), connex=True)
    below = Node((), (Node(centre, leaves, connex=True),), connex=True)
    part_trees = [_part_tree(edges, dict.fromkeys(parted, "H"), stored)]
    for place, light in enumerate(parted):
        part_trees.append(_part_tree(edges, dict.fromkeys(parted[:place], "H") | {light: "L"}, below))
    return Union(STAR, edges, tuple(part_trees), stored, _exponents(len(parted)))


def _exponents(ends: int) -> Exponents:
    building, update = line(ends, 1 - ends), line(ends - 1, 1 - ends)
    return Exponents(building, update, EPSILON, greatest(line(1), line(ends, -ends)))


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    groups = [group for edge in union.edges for group in edge.groups]
    ends = [f"({labels(definition, group)})" if len(group) > 1 else labels(definition, group) for group in groups]
    trees = "a ranked tree" if len(ends) == 1 else f"{len(ends)} ranked trees, one for each first light end"
    cost = union.exponents.cost(epsilon)
    return (
        f"The query is the distinct {enumerate_words(ends)} of {union.strategy.what}, whose tables share other "
        f"columns. What N^{epsilon:g} rows of a table have is heavy there. Rows whose ends are all heavy are stored; "
        f"the others are found along {trees}, where a row is come to no more often than its light end has rows. What "
        f"they find is merged. A change meets {cost.update} rows of that store, one of a light end O(1), with the "
        f"rebalances that it makes necessary; a row is come to {cost.delay} times, each in O(log N); space is "
        f"{cost.space} ({union.strategy.source})."
    )


STAR = Strategy(
    star,
    "a star",
    "Deep, Hu and Koutris 2022, Theorem 25",
    _reason,
    choice="if asked",
    distinct=True,
)


def _joined(centre: tuple[str, ...], ends: tuple[str, ...], leaves: tuple[Node, ...]) -> Node:
    bound = tuple(Node(leaf.variables, atom=leaf.atom) for leaf in leaves)
    return Node((*centre, *ends), bound)


def _part_tree(edges: tuple[Edge, ...], part_key: dict[Edge, str], root: Node) -> PartTree:
    parts = tuple((edge.atom, PartKey.of(part_key.get(edge, "*" if edge.groups else ""))) for edge in edges)
    return PartTree("".join(str(part) for _, part in parts), parts, root, Reading.ENUMERATED)

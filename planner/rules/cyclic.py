"""Rule 4: cyclic queries get a tree over the bags of a hypertree decomposition."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from sqlfront.planner.heavy_light.ring import find_ring, listed_ring
from sqlfront.planner.model.cost import Cost, bag_cost
from sqlfront.planner.model.hypergraph import Edges, hypergraph
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.search.decomposition import STRATEGY, Decomposition, decompose_best, spell_cut
from sqlfront.planner.search.join_tree import Weights
from sqlfront.planner.theory.connex import is_free_connex
from sqlfront.planner.theory.gyo import Cycle, find_cycle, is_acyclic
from sqlfront.planner.theory.wording import are, column, enumerate_words, labels

STORE = (
    "where tables join few rows in between, store every intermediate join: "
    "CREATE MATERIALIZED VIEW ... WITH (strategy = 'materialize')"
)

DIVIDED_SPACE = Fraction(3, 2)
"""What all rings of four take in bags, by heavy and light values, at epsilon = 0.5."""

DIVIDE = (
    "keep bags of three columns instead of the rows, by heavy and light values, in O(N^1.5) space: "
    "CREATE MATERIALIZED VIEW ... WITH (epsilon = 0.5)"
)

DIVIDE_CHANGES = "take O(N) per change, by heavy and light values: CREATE MATERIALIZED VIEW ... WITH (epsilon = 0.5)"


def plan_cyclic(definition: Definition, weights: Weights) -> Plan:
    """The tree whose top part holds the free variables; of a bag's choices, the cheapest. ValueError if acyclic.

    Width and update cost are exponents in the number of rows (Grohe and Marx 2014; Koch et al. 2014).
    """
    edges = hypergraph(definition)
    cycle = find_cycle(edges)
    free, found = decompose_best(definition, weights)
    added = tuple(variable for variable in free if variable not in definition.free)
    cost = bag_cost(found.width, found.update, found.space)
    return Plan(
        shape="cyclic",
        strategy=STRATEGY,
        root=found.root,
        free=free,
        variables_added=added,
        cost=cost,
        reason=_explain(definition, found, cost, added),
        witness=_spell_ring(definition, cycle) if cycle.ring else _spell_clique(definition, cycle),
        suggestion=_suggest(definition, edges, cycle, found),
    )


def _explain(definition: Definition, found: Decomposition, cost: Cost, added: tuple[str, ...]) -> str:
    bags = list(dict.fromkeys(f"({', '.join(map(definition.label, bag))})" for bag in found.bags))
    widest = f"{enumerate_words(bags)} {'is' if len(bags) == 1 else 'are'} the widest"
    filtering = "".join(_spell_filters(definition, found.root))
    listed = ""
    if added:
        listed = f" {labels(definition, added)} {are(added)} enumerated too, as SELECT without DISTINCT allows."
    return (
        f"The query is cyclic, so its tree is one over bags of columns that several tables share: {widest}, with "
        f"{cost.preprocessing} combinations of values (fractional hypertree decompositions, Grohe and "
        f"Marx 2014).{filtering}{listed} A change is joined with the rest of each bag on its way up (delta queries, "
        f"Koch et al. 2014) in worst-case optimal steps (Ngo et al. 2012).{spell_cut(definition, found)}"
    )


def _spell_filters(definition: Definition, node: Node) -> Iterator[str]:
    """For each bag which atoms, that count elsewhere, keep out of it what joins none of their rows."""
    filters = [child.filters for child in node.children if child.filters is not None]
    if filters:
        bag = ", ".join(map(definition.label, node.variables))
        verb = "filters" if len(filters) == 1 else "filter"
        yield f" {enumerate_words(filters)} {verb} ({bag}) too, without counting there."
    for child in node.children:
        yield from _spell_filters(definition, child)


def _spell_ring(definition: Definition, cycle: Cycle) -> str:
    return ", ".join(_conditions(definition, cycle))


def _conditions(definition: Definition, cycle: Cycle) -> list[str]:
    """The equality between each atom of the ring and the next."""
    size = len(cycle.atoms)
    conditions = []
    for rank, atom in enumerate(cycle.atoms):
        shared, after = cycle.variables[(rank + 1) % size], cycle.atoms[(rank + 1) % size]
        conditions.append(f"{column(definition, atom, shared)} = {column(definition, after, shared)}")
    return conditions


def _spell_clique(definition: Definition, cycle: Cycle) -> str:
    size = len(cycle.variables)
    return (
        f"{enumerate_words(cycle.atoms)} each join {size - 1} of the {size} columns "
        f"{labels(definition, cycle.variables)}, and no table has all of them"
    )


def _suggest(definition: Definition, edges: Edges, cycle: Cycle, found: Decomposition) -> str | None:
    """Ways to pay less for a change or for memory where the tree takes more than linear of either."""
    offers = []
    if cycle.ring and max(found.update, found.space) > 1:
        offers.append(_suggest_break(definition, edges, cycle))
    if found.space > DIVIDED_SPACE and listed_ring(definition, definition.free, 4) is not None:
        offers.append(DIVIDE)
    if found.update > 1:
        offers += [DIVIDE_CHANGES, STORE] if _is_long_ring(definition) else [STORE]
    return "; or ".join(offer for offer in offers if offer is not None) or None


def _is_long_ring(definition: Definition) -> bool:
    """Whether the query is a sum over a ring of five or six, or all its rows. Sets of distinct values are not divided:
    with them a change costs as much as before."""
    size = len(definition.atoms)
    if size not in (5, 6) or definition.distinct_sets:
        return False
    if definition.free:
        return listed_ring(definition, definition.free, size) is not None
    return all(len(atom.variables) == 2 for atom in definition.atoms) and find_ring(definition, size) is not None


def _suggest_break(definition: Definition, edges: Edges, cycle: Cycle) -> str | None:
    """The last condition of the ring without which the query takes linear space and time, with both columns put out."""
    size = len(cycle.atoms)
    conditions = _conditions(definition, cycle)
    for rank in reversed(range(size)):
        shared, after = cycle.variables[(rank + 1) % size], cycle.atoms[(rank + 1) % size]
        apart = f"{shared} of {after}"
        loosened = {name: edge - {shared} | {apart} if name == after else edge for name, edge in edges.items()}
        free = {*definition.free, shared, apart}
        if is_acyclic(loosened) and (definition.mode == "bag" or is_free_connex(loosened, free)):
            return (
                f"leave {conditions[rank]} out of the view, put both of its columns out, and ask for the condition "
                "when reading the view, which then takes O(N) space and O(N) per change"
            )
    return None

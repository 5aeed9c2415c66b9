"""Rule 4: cyclic queries are refused, with the cycle named."""

from __future__ import annotations

from planner.gyo import Cycle, breaks_cycle, find_cycle
from planner.hypergraph import Edges, hypergraph
from planner.query import Definition
from planner.refusal import Refusal
from planner.tree import Weights
from planner.wording import column, enumerate_words, labels

WHY = (
    "a cyclic join has no join tree, so no tree of views keeps it in linear space with constant delay "
    "(Idris et al. 2017)"
)

STORE = "store every intermediate join: CREATE MATERIALIZED VIEW ... WITH (strategy = 'materialize')"


def refuse_cyclic(definition: Definition, weights: Weights) -> Refusal:
    """The refusal of a cyclic query; ValueError for an acyclic one."""
    edges = hypergraph(definition)
    cycle = find_cycle(edges)
    witness = _spell_ring(definition, cycle) if cycle.ring else _spell_clique(definition, cycle)
    offers = (_suggest_break(definition, edges, cycle) if cycle.ring else None, STORE)
    suggestion = "; or ".join(offer for offer in offers if offer is not None)
    return Refusal("the join is cyclic", WHY, witness, suggestion, cycle.variables, cycle.atoms)


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


def _suggest_break(definition: Definition, edges: Edges, cycle: Cycle) -> str | None:
    """The last condition of the ring whose removal makes the query acyclic, as something to leave out."""
    size = len(cycle.atoms)
    conditions = _conditions(definition, cycle)
    for rank in reversed(range(size)):
        shared, after = cycle.variables[(rank + 1) % size], cycle.atoms[(rank + 1) % size]
        if breaks_cycle(edges, shared, after):
            return (
                f"leave {conditions[rank]} out of the view, put both of its columns out, "
                "and ask for the condition when reading the view"
            )
    return None

"""Which sets of variables a view may enumerate."""

from __future__ import annotations

from sqlfront.planner.model.hypergraph import ordered_variables
from sqlfront.planner.model.query import Definition


def enumerable_sets(definition: Definition) -> tuple[tuple[str, ...], ...]:
    """The sets a tree may put out without a projection, best first.

    DISTINCT and GROUP BY need exactly the free variables. A bag may as well enumerate every variable and drop
    columns row by row: duplicates are legal there, and all variables together are always free-connex.
    """
    free = tuple(dict.fromkeys(definition.free))
    every = ordered_variables(definition)
    if definition.mode != "bag" or len(every) == len(free):
        return (free,)
    return (free, every)

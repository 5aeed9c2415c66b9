"""Where an atom of a view reads."""

from __future__ import annotations

from dataclasses import dataclass

from sqlfront.maintenance.relation.base_relation import LeafStore, Relation


@dataclass
class Source:
    """Where an atom reads: a store of a relation, as old (position 0) or as new (1) in a self-join.

    Where a view has a symmetric delta, all its atoms read one store as old, or the delta itself.
    """

    relation: Relation
    store: LeafStore
    position: int

"""What a view over heavy and light parts says of them: its part trees, their tables, and the figures of its balance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlfront.maintenance.heavy_light.balance import Balance
from sqlfront.maintenance.heavy_light.part_trees import PartTrees
from sqlfront.maintenance.tree.description import DescribedPartTree, StateEntry, described_view
from sqlfront.planner.model.heavy_light import Reading
from sqlfront.planner.theory.wording import column


def described_parts(part_trees: PartTrees) -> Iterator[DescribedPartTree]:
    """The part trees that keep rows or are read."""
    for kept in part_trees.trees:
        if kept.planned.changed is None:
            parts = tuple(f"{atom} {part}" for atom, part in kept.planned.parts if not part.is_whole)
            root = described_view(kept.tree, kept.tree.root)
            yield DescribedPartTree(kept.planned.name, kept.planned.reading.value, parts, root)


def part_entries(part_trees: PartTrees, of: str) -> Iterator[StateEntry]:
    """The tables kept for part trees; `of` names the part of the view that the trees belong to."""
    for partition in part_trees.partitions:
        atom = next(edge.atom for edge in part_trees.union.edges if part_trees.stores[edge.atom] is partition.store)
        for part, table in partition.parts.items():
            yield StateEntry(f"{atom} {part}{of}", "part", table)
        for name, kept in zip(_columns(part_trees, atom), partition.columns, strict=True):
            yield StateEntry(name + of, "heavy values", kept.heavy)
            yield StateEntry(name + of, "pending values", kept.pending)
    for joined in part_trees.joined():
        yield StateEntry(joined.name + of, "heavy values", joined)
    for tree in part_trees.trees:
        kind = "product" if tree.planned.reading == Reading.LOOKED_UP else "part_tree"
        tables = (view.table for view in part_trees.own(tree) if view.table is not None)
        yield from (StateEntry(tree.planned.name + of, kind, table) for table in tables)


def skew_figures(balance: Balance) -> dict[str, Any]:
    """The partition as it is: N, size, threshold, minor, major, tables, part_trees. O(1)."""
    found, part_trees = balance.figures(), balance.part_trees
    tables = {}
    for partition, heavy, sizes in zip(part_trees.partitions, found.heavy, found.parts, strict=True):
        atom = next(edge.atom for edge in part_trees.union.edges if part_trees.stores[edge.atom] is partition.store)
        tables[atom] = {"heavy": dict(zip(_columns(part_trees, atom), heavy, strict=True)), "parts": sizes}
    return {
        "N": found.base,
        "size": found.size,
        "threshold": found.threshold,
        "minor": found.minors,
        "major": found.majors,
        "tables": tables,
        "part_trees": {kept.planned.name: rows for kept, rows in zip(part_trees.trees, found.views, strict=True)},
    }


def _columns(part_trees: PartTrees, atom: str) -> list[str]:
    """The partitioned columns of an atom's store, as the user calls them."""
    variables = {column.expression: column.name for column in part_trees.base.definition.atom(atom).variables}
    named = [[variables[expression] for expression in one.expressions] for one in part_trees.partition(atom).columns]
    return [", ".join(column(part_trees.base.definition, atom, name) for name in names) for names in named]

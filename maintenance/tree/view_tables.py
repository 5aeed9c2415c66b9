"""The tables of a tree's inner views, and what people call them."""

from __future__ import annotations

from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Definition
from sqlfront.storage.stores.table import Table


def label(definition: Definition, node: Node) -> str:
    """A node's name for people: its variables in the user's spelling."""
    if node.filters is not None:
        return f"{node.filters} as a filter"
    return "[" + ", ".join(map(definition.label, node.variables)) + "]"


def view_table(tree: Tree, view: View, name: str) -> Table:
    """An empty table for a stored inner view whose shape is settled."""
    assert view.shape is not None
    if view.node.filters is not None:
        view.gathered = Table(view.shape.keys, 1, view.shape.limbs, name="delta of " + name)
    return Table(
        view.shape.keys,
        len(view.shape.parts),
        view.shape.limbs,
        [view.shape.places(index) for index in view.indexes],
        [tree.summed(view, index) for index in view.indexes],
        name=name,
        order=tree.order_of(view),
        ranges=view.ranges,
        summaries=tree.summaries_of(view),
        boxes=tree.boxes_of(view),
    )

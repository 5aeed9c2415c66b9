"""The nodes of rows that no view tree has, each by the value that plans it."""

from __future__ import annotations

from typing import Any

from sqlfront.maintenance.output.constant_rows import ConstantNode
from sqlfront.maintenance.output.islands_node import IslandsNode
from sqlfront.maintenance.output.nearest_node import ExtremeRowsNode, NearestRowsNode
from sqlfront.maintenance.output.node import ComputedNode, Keeper
from sqlfront.maintenance.output.temporal_rows import TemporalNode
from sqlfront.maintenance.output.touched_groups import TouchedGroupsNode
from sqlfront.maintenance.tree.description import Description
from sqlfront.planner.model.computed_rows import ComputedRows, ConstantRows, TemporalRows, TouchedGroups
from sqlfront.planner.model.island_rows import IslandRows
from sqlfront.planner.model.nearest_rows import ExtremeRows, NearestRows

NODES: dict[type[Any], type[Any]] = {
    TouchedGroups: TouchedGroupsNode,
    ConstantRows: ConstantNode,
    NearestRows: NearestRowsNode,
    ExtremeRows: ExtremeRowsNode,
    TemporalRows: TemporalNode,
    IslandRows: IslandsNode,
}


def open_node(name: str, rows: ComputedRows, number: int, keeper: Keeper) -> ComputedNode:
    """The node of computed rows, without stored rows yet; `number` is its counter."""
    found: ComputedNode = NODES[type(rows)](name, rows, number, keeper)
    return found


def describe_planned(name: str, rows: ComputedRows) -> Description:
    """What the node of computed rows would say of itself."""
    found: Description = NODES[type(rows)].planned(name, rows)
    return found

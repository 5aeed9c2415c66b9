"""Heavy and light values of a triangle, for EXPLAIN and SHOW STATE: the partition's figures, and other epsilons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maintenance.skew import Edge, Triangle
from maintenance.tree import Tree
from maintenance.view import MaintainedView
from planner.plan import Plan
from planner.wording import column
from sqlfront.epsilon import CHOICES, EPSILON, heavy_edges, with_epsilon
from sqlfront.tradeoff import choice_table
from storage.table import Table


def skew_data(tree: Tree, plan: Plan, view: MaintainedView | None) -> dict[str, Any] | None:
    """epsilon, choices [{epsilon, update, space}] and figures {N, size, threshold, minor, major, tables, products}.

    None for a view to which epsilon does not apply; no figures if it is not running, or nothing is told apart. O(1).
    """
    edges = heavy_edges(tree)
    if edges is None:
        return None
    costs = [(epsilon, with_epsilon(tree.definition, plan, epsilon).stated_cost) for epsilon in CHOICES]
    return {
        "epsilon": EPSILON if view is None else view.epsilon,
        "choices": [{"epsilon": epsilon, "update": cost.update, "space": cost.space} for epsilon, cost in costs],
        "figures": _figures(tree, edges, view) if view is not None and view.balance is not None else None,
    }


def skew_lines(data: dict[str, Any] | None) -> Iterator[str]:
    """What `skew_data` found, for people."""
    if data is None:
        return
    figures = data["figures"]
    if figures is not None:
        yield (
            f"values with {figures['threshold']:.4g} rows or more, {figures['N']}^{data['epsilon']:g}, at the last "
            f"partition; {figures['size']} rows now; {figures['minor']} values moved, partitioned anew "
            f"{figures['major']} times"
        )
        for name, found in figures["tables"].items():
            heavy = ", ".join(f"{count} of {column}" for column, count in found["heavy"].items())
            parts = ", ".join(f"{part} {rows}" for part, rows in found["parts"].items())
            yield f"{name}: {heavy} are heavy; rows by the two: {parts}"
        for name, rows in figures["products"].items():
            yield f"product {name}: {rows} rows"
    yield from choice_table(data["choices"], data["epsilon"])


def heavy_tables(triangle: Triangle) -> Iterator[tuple[str, str, Table]]:
    """The tables kept beside the sum over a triangle, each with its name and kind for SHOW STATE."""
    for i in triangle.distinct:
        edge, partition = triangle.edges[i], triangle.partitions[i]
        for name, table in partition.parts.items():
            yield f"{edge.atom} {name}", "part", table
        for variable, kept in zip((edge.first, edge.second), partition.columns, strict=True):
            of = column(triangle.tree.definition, edge.atom, variable)
            yield of, "heavy values", kept.heavy
            yield of, "pending values", kept.pending
        yield _product(triangle.edges, i), "product", triangle.products[i]


def _figures(tree: Tree, edges: tuple[Edge, Edge, Edge], view: MaintainedView) -> dict[str, Any]:
    assert view.balance is not None
    found = view.balance.figures()
    tables = {}
    for edge, heavy, sizes in zip(edges, found.heavy, found.parts, strict=False):  # One for three that are the same.
        names = [column(tree.definition, edge.atom, variable) for variable in (edge.first, edge.second)]
        parts = zip(("HH", "HL", "LH", "LL"), sizes, strict=True)
        tables[edge.atom] = {"heavy": dict(zip(names, heavy, strict=True)), "parts": dict(parts)}
    return {
        "N": found.base,
        "size": found.size,
        "threshold": found.threshold,
        "minor": found.minors,
        "major": found.majors,
        "tables": tables,
        "products": {_product(edges, i): rows for i, rows in enumerate(found.products)},
    }


def _product(edges: tuple[Edge, Edge, Edge], i: int) -> str:
    return f"{edges[i].atom} HL * {edges[(i + 1) % 3].atom} LH"

"""A naive runtime: fills a plan's tree bottom-up with counts and enumerates its connex top. Lists and dicts only."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Comparison, Definition

Row = tuple[int, ...]
Binding = Mapping[str, int]


OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "<>": operator.ne}


def join_naively(
    schemes: Mapping[str, Sequence[str]],
    rows: Mapping[str, Counter[Row]],
    out: Sequence[str],
    comparisons: Iterable[Comparison] = (),
) -> Counter[Row]:
    """The result by nested loops: multiplicity of each projection onto `out`."""
    partial: list[tuple[dict[str, int], int]] = [({}, 1)]
    for name, scheme in schemes.items():
        grown = []
        for binding, weight in partial:
            for row, count in rows[name].items():
                if all(binding.get(variable, value) == value for variable, value in zip(scheme, row, strict=True)):
                    grown.append((binding | dict(zip(scheme, row, strict=True)), weight * count))
        partial = grown
    result: Counter[Row] = Counter()
    for binding, weight in partial:
        if not all(OPERATORS[test.operator](binding[test.left], binding[test.right]) for test in comparisons):
            continue
        result[tuple(binding[variable] for variable in out)] += weight
    return result


def fill(node: Node, rows: Mapping[str, Counter[Row]]) -> dict[int, Counter[Row]]:
    """For each node of the tree (by id) its view: rows over its variables with multiplicities."""
    if node.atom is not None:
        return {id(node): rows[node.atom]}
    if node.filters is not None:
        return {id(node): Counter(dict.fromkeys(+rows[node.filters], 1))}
    views: dict[int, Counter[Row]] = {}
    for child in node.children:
        views |= fill(child, rows)
    schemes = {str(rank): child.variables for rank, child in enumerate(node.children)}
    children = {str(rank): views[id(child)] for rank, child in enumerate(node.children)}
    views[id(node)] = join_naively(schemes, children, node.variables, node.comparisons)
    return views


def enumerate_plan(root: Node, views: Mapping[int, Counter[Row]], free: Sequence[str]) -> list[tuple[Row, int]]:
    """Rows over `free` with multiplicities, as a walk from the root finds them; a repeat or a dead end shows."""
    return [(tuple(found[variable] for variable in free), weight) for found, weight in _walk(root, views, {})]


def _walk(node: Node, views: Mapping[int, Counter[Row]], given: Binding) -> Iterator[tuple[Binding, int]]:
    for row, count in _matching(node, views, given):
        binding = dict(given) | dict(zip(node.variables, row, strict=True))
        if not any(child.connex for child in node.children):
            yield binding, count
            continue
        weight = 1
        for child in node.children:
            if not child.connex:
                listed = _matching(child, views, binding)
                known = [(binding | dict(zip(child.variables, row, strict=True)), found) for row, found in listed]
                weight *= sum(found for joined, found in known if _passes(node, joined))
        for found, product in _combine([child for child in node.children if child.connex], views, binding):
            if _passes(node, found):
                yield found, weight * product


def _passes(node: Node, binding: Binding) -> bool:
    """Whether what the node compares, as far as it is bound, is as it must be."""
    known = [test for test in node.comparisons if {test.left, test.right} <= binding.keys()]
    return all(OPERATORS[test.operator](binding[test.left], binding[test.right]) for test in known)


def _combine(nodes: Sequence[Node], views: Mapping[int, Counter[Row]], given: Binding) -> Iterator[tuple[Binding, int]]:
    if not nodes:
        yield given, 1
        return
    for binding, weight in _walk(nodes[0], views, given):
        for rest, product in _combine(nodes[1:], views, binding):
            yield rest, weight * product


def _matching(node: Node, views: Mapping[int, Counter[Row]], given: Binding) -> list[tuple[Row, int]]:
    return [
        (row, count)
        for row, count in views[id(node)].items()
        if all(given.get(variable, value) == value for variable, value in zip(node.variables, row, strict=True))
    ]


def assert_computes(plan: Plan, definition: Definition, rows: Mapping[str, Counter[Row]]) -> None:
    """The tree, filled bottom-up and walked from the root, gives each row over `free` once, with its multiplicity."""
    schemes = {atom.name: [column.name for column in atom.variables] for atom in definition.atoms}
    views = fill(plan.root, rows)
    found = enumerate_plan(plan.root, views, plan.free)
    expected = join_naively(schemes, rows, plan.free, definition.comparisons)
    assert len(found) == len({row for row, _ in found})
    assert Counter(dict(found)) == expected
    assert views[id(plan.root)][()] == expected.total()

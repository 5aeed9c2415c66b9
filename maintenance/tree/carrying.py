"""How a leaf's delta is carried to the output variables of a tree that keeps a projection of its result.

A projection that is no set sums values up. One that is a set, or of groups without sums, only counts in how many ways
each of its rows comes about: what of a change a DISTINCT does not see goes no further than to where it is not seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlfront.maintenance.tree.steps import Step, ready_tests
from sqlfront.planner.model.multiplicity import ignores_multiplicity

if TYPE_CHECKING:
    from sqlfront.maintenance.tree.view_tree import Tree, View


def carry_steps(tree: Tree, leaf: View) -> list[Step]:
    """How a leaf's delta is extended to all output variables: siblings that hold some are listed, others summed."""
    base = base_of(tree, leaf)
    if base.parent is not None and tree.joins:
        return tree.update_steps(base.parent, base)
    return _steps(tree, base, entry_of(tree, base))


def supports(tree: Tree) -> bool:
    """Whether the rows of a projection count ways, each of which is the same on the paths of all leaves: the rows of
    the subtrees that hold output variables, while there is one of each other subtree."""
    if tree.is_shared or not (tree.output and ignores_multiplicity(tree.definition)):
        return False
    if tree.joins or tree.filters or tree.definition.outer_atoms:
        return False
    if any(view.node.comparisons for view in tree.root.walk()):
        return False
    bases = [_largest(tree, leaf) for leaf in tree.leaves.values()]
    steps = [step for base in bases for step in _steps(tree, base, _variables(tree, base))]
    listed = [step.view for step in steps if step.lists]
    return all(carries(tree, view) or set(view.node.variables) <= set(view.link) for view in listed)


def base_of(tree: Tree, leaf: View) -> View:
    """Where a leaf's delta begins to be carried. If the tree `supports`, it is the root of the largest subtree around
    the leaf of which the output only asks whether it is empty."""
    return _largest(tree, leaf) if tree.supports else leaf


def entry_of(tree: Tree, base: View) -> tuple[str, ...]:
    """The variables of a base with which its deltas begin to be carried."""
    return _variables(tree, base) if tree.supports else base.node.variables


def carries(tree: Tree, view: View) -> bool:
    """True when the subtree holds output variables that its link does not give."""
    assert tree.output is not None
    inside = {v for node in view.node.walk() for v in node.variables}
    return bool((inside - set(view.link)) & set(tree.output))


def _largest(tree: Tree, leaf: View) -> View:
    view = leaf
    while not carries(tree, view) and view.parent is not None and not carries(tree, view.parent):
        view = view.parent
    return view


def _variables(tree: Tree, base: View) -> tuple[str, ...]:
    return base.node.variables if carries(tree, base) else base.link


def _steps(tree: Tree, base: View, entry: tuple[str, ...]) -> list[Step]:
    view, bound, steps = base, set(entry), list[Step]()
    for parent in base.ancestors():
        for sibling in tree.join_order(parent, view):
            _descend(tree, sibling, bound, steps)
        steps += ready_tests(parent, bound)
        view = parent
    return steps


def _descend(tree: Tree, view: View, bound: set[str], steps: list[Step]) -> None:
    known, inner = tree.ordered(view, bound), bound | set(view.node.variables)
    # The children to multiply in when the view is expanded; none if its own values will do.
    inside = view.children if any(_lacks(tree, child, inner) for child in view.children) else []
    summed = None if _lacks(tree, view, bound) else tree.look_up(view, bound)
    if summed is not None:
        steps.append(summed)
        return
    whole = len(known) == len(view.node.variables)
    listing = Step(view, "row" if whole else "members", known, not inside)
    steps.append(listing if whole else tree.within_bounds(listing, bound))
    bound |= inner
    for child in inside:
        _descend(tree, child, bound, steps)


def _lacks(tree: Tree, view: View, bound: set[str]) -> bool:
    """Whether the subtree holds output variables that are not bound: what its parent only compares may be one."""
    assert tree.output is not None
    return any(v in tree.output and v not in bound for node in view.node.walk() for v in node.variables)

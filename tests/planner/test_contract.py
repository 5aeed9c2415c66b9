"""check_plan finds each way to break the contract between planner and runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.plan import Node, Plan
from tests.planner.contract import check_plan
from tests.planner.notation import parse_definition

ORDERS = Node(("o", "c"), atom="orders")
ITEMS = Node(("o",), atom="items")
JOIN = Node(("c", "o"), (ORDERS, ITEMS))
GROUPS = Node(("c",), (JOIN,), connex=True)
ROOT = Node((), (GROUPS,), connex=True)

BROKEN = {
    "root with variables": replace(ROOT, variables=("c",)),
    "root not connex": replace(ROOT, connex=False),
    "atom missing": Node((), (replace(GROUPS, children=(ORDERS,)),), connex=True),
    "atom twice": Node((), (replace(GROUPS, children=(replace(JOIN, children=(ORDERS, ITEMS, ITEMS)),)),), connex=True),
    "unknown atom": Node(
        (), (replace(GROUPS, children=(replace(JOIN, children=(ORDERS, ITEMS, Node((), atom="x"))),)),)
    ),
    "component split": Node((), (replace(ORDERS, connex=True), ITEMS), connex=True),
    "leaf columns swapped": Node(
        (),
        (replace(GROUPS, children=(replace(JOIN, children=(replace(ORDERS, variables=("c", "o")), ITEMS)),)),),
        connex=True,
    ),
    "join variable not in label": Node((), (replace(GROUPS, children=(ORDERS, ITEMS)),), connex=True),
    "same label below": Node(
        (), (replace(GROUPS, children=(replace(GROUPS, connex=False, children=(JOIN,)),)),), connex=True
    ),
    "bound variable in connex": Node((), (replace(GROUPS, children=(replace(JOIN, connex=True),)),), connex=True),
    "free variable not in connex": Node((), (JOIN,), connex=True),
    "label not minimal": Node((), (replace(JOIN, connex=True),), connex=True),
}


def test_the_sound_plan_passes() -> None:
    definition = parse_definition("orders(o, c), items(o) -> c")
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    assert plan.root == ROOT
    check_plan(plan, definition)


@pytest.mark.parametrize("root", BROKEN.values(), ids=BROKEN)
def test_a_broken_tree_is_found(root: Node) -> None:
    definition = parse_definition("orders(o, c), items(o) -> c")
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    with pytest.raises(AssertionError):
        check_plan(replace(plan, root=root), definition)


def test_a_node_without_guard_is_found() -> None:
    definition = parse_definition("R(a, b), S(b, c), T(c, a) -> [group]")
    leaves = tuple(Node(tuple(c.name for c in atom.variables), atom=atom.name) for atom in definition.atoms)
    root = Node((), (Node(("a", "b", "c"), leaves),), connex=True)
    sound = plan_view(definition)
    assert sound.root == root
    check_plan(sound, definition)
    with pytest.raises(AssertionError, match="guard"):
        check_plan(replace(sound, shape="acyclic"), definition)


BAG = "R(a, b), S(b, c), T(c, a), P(c, d) -> c [group]"
R, S, T, P = (
    Node(columns, atom=name)
    for name, columns in (("R", ("a", "b")), ("S", ("b", "c")), ("T", ("c", "a")), ("P", ("c", "d")))
)
TRIANGLE = Node(("c", "a", "b"), (R, S, T))

BROKEN_BAGS = {
    "an atom twice": Node(("c",), (TRIANGLE, P, S), connex=True),
    "a variable that joins nothing": Node(
        ("c",), (replace(TRIANGLE, variables=("c", "a", "b", "d"), children=(R, S, T, P)),), connex=True
    ),
    "a variable missing between": Node(("c",), (replace(TRIANGLE, variables=("c", "a")), P), connex=True),
    "a free variable below": Node((), (TRIANGLE,), connex=True),
    "a bound variable put out": Node(("c", "a", "b"), (R, S, T, P), connex=True),
}


def test_a_sound_bag_passes() -> None:
    definition = parse_definition(BAG)
    plan = plan_view(definition)
    assert plan.root == Node((), (Node(("c",), (TRIANGLE, P), connex=True),), connex=True)
    check_plan(plan, definition)


@pytest.mark.parametrize("node", BROKEN_BAGS.values(), ids=BROKEN_BAGS)
def test_a_broken_bag_is_found(node: Node) -> None:
    definition = parse_definition(BAG)
    plan = plan_view(definition)
    with pytest.raises(AssertionError):
        check_plan(replace(plan, root=Node((), (node,), connex=True)), definition)


def test_a_q_tree_must_be_simple() -> None:
    definition = parse_definition("R(x,y), S(x,y), T(x,v), U(x,v) -> x, y, v")
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    leaves = {atom.name: Node(tuple(c.name for c in atom.variables), atom=atom.name) for atom in definition.atoms}
    below = Node(("x", "v"), (leaves["T"], leaves["U"]), connex=True)
    root = Node((), (Node(("x", "y"), (leaves["R"], leaves["S"], below), connex=True),), connex=True)
    check_plan(replace(plan, root=root, shape="free-connex"), definition)
    with pytest.raises(AssertionError, match="q-tree"):
        check_plan(replace(plan, root=root), definition)

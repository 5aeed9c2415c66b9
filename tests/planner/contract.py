"""The contract between planner and runtime, as assertions over a finished plan."""

from __future__ import annotations

from collections.abc import Iterable

from sqlfront.planner.model.hypergraph import components, constrained, hypergraph, vertices
from sqlfront.planner.model.plan import Node, Plan, RowsIn, needed
from sqlfront.planner.model.query import Definition
from sqlfront.planner.rules import range_sums
from sqlfront.planner.rules.materialize import STRATEGY, rest, shown_variables
from sqlfront.planner.search.ranges import is_box


def check_plan(plan: Plan, definition: Definition) -> None:
    """Raise AssertionError naming the node that breaks the contract."""
    _check_leaves(plan.root, definition)
    _check_connex(plan)
    _check_free(plan, definition)
    if plan.strategy == STRATEGY:
        _check_joins(plan, definition)
        return
    _check_root(plan.root, definition)
    for node in plan.root.walk():
        _check_filters(node, definition)
        if node.atom is None and node.filters is None and node is not plan.root:
            in_bags = plan.shape in ("cyclic", "inequality") and plan.strategy != range_sums.STRATEGY
            _check_inner(node, guarded=not in_bags)
            if plan.strategy == range_sums.STRATEGY and node.comparisons:
                _require(
                    is_box(node.comparisons, definition),
                    "a node compares one order, with one bound on either side, and one more variable at most",
                    node,
                )
    tests = [test for node in plan.root.walk() for test in node.comparisons]
    _require(set(tests) == set(definition.comparisons), "each comparison is tested", plan.root)
    _check_running_intersection(plan.root, definition)
    _check_minimal(plan.root, frozenset())
    if plan.shape == "q-hierarchical":
        _check_simple(plan.root)


def _require(holds: bool, message: str, node: Node) -> None:
    if not holds:
        raise AssertionError(f"{message} at [{', '.join(node.variables)}]{node.atom or ''}")


def _union(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset().union(*(node.variables for node in nodes))


def _check_root(root: Node, definition: Definition) -> None:
    _require(root.variables == () and root.atom is None, "the root has no variables and no atom", root)
    atoms = {atom.name for atom in definition.atoms}
    groups = {frozenset(names) & atoms for names in components(constrained(definition))}
    if root.comparisons:
        _require(len(groups) == 1, "a root that compares has one component", root)
        return
    below = {frozenset(leaf.atom for leaf in child.leaves()) for child in root.children}
    _require(groups == below and len(root.children) == len(groups), "the root has one child per component", root)


def _check_leaves(root: Node, definition: Definition) -> None:
    for leaf in root.leaves():
        atom = next((atom for atom in definition.atoms if atom.name == leaf.atom), None)
        _require(atom is not None, "a leaf's atom exists", leaf)
        _require(not leaf.children, "a leaf has no children", leaf)
        columns = tuple(column.name for column in atom.variables) if atom else ()
        _require(leaf.variables == columns, "a leaf has its atom's variables, in order", leaf)
    names = sorted(leaf.atom or "" for leaf in root.leaves())
    _require(names == sorted(atom.name for atom in definition.atoms), "each atom appears once", root)


def _check_inner(node: Node, *, guarded: bool) -> None:
    """`guarded`: one child of a join holds all of its variables, which only a bag of a cyclic query need not have."""
    label = frozenset(node.variables)
    _require(len(label) == len(node.variables), "a label has no repeats", node)
    _require(bool(node.children), "an inner node has children", node)
    _require(label <= _union(node.children), "a label comes from the children", node)
    _require(needed(node) <= label | _union(node.children), "a node or its children have what it compares", node)
    if len(node.children) == 1 and not node.comparisons:
        _require(label < frozenset(node.children[0].variables), "a projection drops a variable", node)
    elif len(node.children) > 1 and guarded:
        _require(any(label <= frozenset(child.variables) for child in node.children), "a join has a guard", node)


def _check_filters(node: Node, definition: Definition) -> None:
    """A leaf that filters holds an atom's variables, all of which its parent has; the atom counts elsewhere."""
    counted = {leaf.atom for leaf in node.leaves()}
    for leaf in (child for child in node.children if child.filters is not None):
        columns = tuple(column.name for column in definition.atom(leaf.filters or "").variables)
        _require(leaf.variables == columns and not leaf.children, "a filter has its atom's variables, in order", leaf)
        _require(set(columns) <= set(node.variables), "a filter's variables are its parent's", leaf)
        _require(leaf.filters not in counted, "a filter is not where its atom counts", leaf)


def _check_running_intersection(root: Node, definition: Definition) -> None:
    """A variable two subtrees share, or one shares with the rest of the tree, is in the node between."""
    edges = hypergraph(definition)
    for node in root.walk():
        inside = {leaf.atom for leaf in node.leaves()}
        outside = vertices({name: edge for name, edge in edges.items() if name not in inside})
        label = frozenset(node.variables)
        _require(_union(node.walk()) & outside <= label, "variables shared with the rest are in the label", node)
        for rank, child in enumerate(node.children):
            shared = _union(child.walk()) & _union(other for sib in node.children[:rank] for other in sib.walk())
            _require(shared <= label, "variables of two subtrees are in the label", node)


def _check_minimal(node: Node, above: frozenset[str]) -> None:
    label = frozenset(node.variables)
    puts_out = node.connex and bool(node.comparisons)
    if len(node.children) > 1 and not puts_out:
        for variable in label - above:
            holders = sum(variable in child.variables for child in node.children if child.filters is None)
            holders += sum(variable in test.scheme for test in node.comparisons)
            _require(holders > 1, f"{variable} joins children or is needed above", node)
    for child in node.children:
        _check_minimal(child, needed(node))


def _check_connex(plan: Plan) -> None:
    _require(plan.root.connex, "the root is connex", plan.root)
    for node in plan.root.walk():
        for child in node.children:
            if child.connex:
                _require(node.connex, "the connex nodes are connected", child)
                fresh = frozenset(child.variables) - frozenset(node.variables)
                _require(bool(fresh or node.comparisons), "a connex node adds a variable", child)
    covered = _union(node for node in plan.root.walk() if node.connex)
    _require(covered == frozenset(plan.free), "the connex nodes hold exactly the free variables", plan.root)


def _check_free(plan: Plan, definition: Definition) -> None:
    own = tuple(dict.fromkeys(definition.free))
    _require(plan.free == own + plan.variables_added, "free is the query's own, then what was added", plan.root)
    _require(len(set(plan.free)) == len(plan.free), "free has no repeats", plan.root)
    if definition.mode == "bag":
        _require(plan.rows_in != RowsIn.PROJECTION, "a bag needs no projection", plan.root)
    else:
        projected = plan.rows_in == RowsIn.PROJECTION
        _require(projected == bool(plan.variables_added), "an extension is projected", plan.root)


def _check_simple(root: Node) -> None:
    for node in root.walk():
        for child in node.children:
            holds = frozenset(node.variables) <= frozenset(child.variables)
            _require(holds, "a q-tree's children hold their parent's variables", child)


def _check_joins(plan: Plan, definition: Definition) -> None:
    """Stored joins: each passes up all that is put out or joins, and whatever a change is joined with is there."""
    _require(plan.root.variables == () and plan.root.connex, "the root has no variables and is connex", plan.root)
    result = plan.root.children[0] if definition.free else plan.root
    _require(plan.joins[-1] is result, "the last join is the result", plan.root)
    edges = hypergraph(definition)
    stored: set[frozenset[str]] = set()
    for node in plan.joins:
        atoms = frozenset(leaf.atom or "" for leaf in node.leaves())
        _require(
            frozenset(node.variables) == shown_variables(atoms, definition),
            "a join has the columns needed outside",
            node,
        )
        for atom in atoms:
            for part in rest(atoms, atom, edges):
                there = part in stored or (
                    len(part) == 1 and shown_variables(part, definition) == edges[next(iter(part))]
                )
                _require(there, f"what a change of {atom} is joined with is stored before", node)
        stored.add(atoms)

"""What a node of the epoch graph says of itself, as values: EXPLAIN, SHOW STATE and the drawings read nothing else.

A `Description` is made when it is asked for. Its tables are the live ones, so their figures are those of the moment in
which they are read. A node that is only planned has the same description without tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.query import Presence
from sqlfront.planner.theory.wording import enumerate_words, spell_comparison

if TYPE_CHECKING:
    from sqlfront.maintenance.tree.view_tree import Tree, View
    from sqlfront.storage.stores.table import Table


@dataclass(frozen=True)
class StateEntry:
    """A table of a node's state. `node` names the owner of its rows, `kind` their kind. `shared`: others read it."""

    node: str
    kind: str
    table: Table
    shared: bool = False


@dataclass(frozen=True)
class DescribedView:
    """A node of a view tree, in the user's words.

    `atom` or `filters` is the name of a leaf's atom, `of` its table, `where` the atom's condition, `copies` how often a
    row counts. `order` is the index whose groups are sorted, and by what; `sums`: sums over their ranges are kept too;
    `extreme` is what the groups know extremes of, `boxes` what sums over boxes are kept of. `met` says, for each
    sibling under a comparison, which rows of the view its changes meet. `presence` says whether a row of the parent
    needs one here.
    """

    variables: tuple[str, ...]
    form: str
    enumerated: bool = False
    is_root: bool = False
    stored: bool = True
    atom: str | None = None
    filters: str | None = None
    of: str | None = None
    where: str | None = None
    copies: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()
    order: tuple[tuple[str, ...], str] | None = None
    sums: bool = False
    extreme: str | None = None
    boxes: tuple[str, str] | None = None
    met: tuple[str, ...] = ()
    comparisons: tuple[str, ...] = ()
    presence: Presence = "required"
    table: Table | None = None
    children: tuple[DescribedView, ...] = ()


@dataclass(frozen=True)
class DescribedRanks:
    """A node of a ranked tree: its groups are those of `anchor`, each sorted by its rows' best completions."""

    variables: tuple[str, ...]
    atom: str | None
    anchor: tuple[str, ...]
    table: Table
    children: tuple[DescribedRanks, ...] = ()


@dataclass(frozen=True)
class DescribedOrder:
    """An order of a running view. Up to `crossover` rows are read sooner along the order than sorted. Reads can begin
    at values of the columns `after` (None: the order has no such columns)."""

    crossover: int | None = None
    after: tuple[str, ...] | None = None
    trees: tuple[DescribedRanks, ...] = ()


@dataclass(frozen=True)
class DescribedPartTree:
    """A tree over heavy and light parts: how it is read, and the part of each atom that is not read whole."""

    name: str
    reading: str
    parts: tuple[str, ...]
    root: DescribedView


@dataclass(frozen=True)
class DescribedTree:
    """What a view keeps: its tree, and what stands beside the tree.

    `projection` are the columns of the result that is kept as rows, `symmetric` the atoms from which a self-join looks
    the same. `skew` are the figures of heavy and light values, if any are told apart now, at this `epsilon`.
    """

    root: DescribedView
    joins: tuple[DescribedView, ...] = ()
    projection: tuple[str, ...] | None = None
    projected: Table | None = None
    tuple_count: tuple[Table, ...] = ()
    symmetric: tuple[str, ...] = ()
    part_trees: tuple[DescribedPartTree, ...] = ()
    epsilon: float | None = None
    skew: Mapping[str, Any] | None = None
    orders: tuple[DescribedOrder, ...] = ()
    distinct_sets: tuple[tuple[str, str, DescribedTree], ...] = ()


@dataclass(frozen=True)
class Description:
    """A node of the epoch graph.

    `kind` names the kind of node, `source` its computation or the reason for it. `work` bounds the work of one changed
    row of `inputs`, `output` the rows of the node that change with it. `state` lists the tables. `facts` are for
    machines, `notes` the same for people; a node over a view tree has the tree instead. While the node runs, `steps`
    counts the steps of its changes, `changes` the changed rows of its inputs, since it has its present plan.
    `predicted` has the steps of one row of each input. `replans` says when and why it was planned anew.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    work: Bound
    output: Bound
    source: str
    state: tuple[StateEntry, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    tree: DescribedTree | None = None
    runs: bool = False
    steps: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    replans: tuple[str, ...] = ()

    @property
    def per_change(self) -> float | None:
        """The steps of one changed row so far; None before the first one."""
        total = sum(self.changes.values())
        return self.steps / total if total else None


def described_view(tree: Tree, view: View) -> DescribedView:
    """A view of a tree with all below it."""
    name = view.node.atom or view.node.filters
    atom = tree.definition.atom(name) if name is not None else None
    return DescribedView(
        _labels(tree, view.node.variables),
        _form(view),
        view.node.connex,
        view.parent is None,
        view.stored and not view.stateless,
        view.node.atom,
        view.node.filters,
        None if atom is None else atom.table,
        None if atom is None else atom.predicate,
        None if atom is None or atom.copies is None else atom.copies.expression,
        tuple(_labels(tree, index) for index in view.indexes),
        None if view.order is None else (_labels(tree, view.order[0]), tree.definition.label(view.order[1])),
        view.ranges,
        None if view.extreme is None else tree.definition.label(view.extreme[0]),
        None if view.boxes is None else (tree.definition.label(view.boxes[1]), tree.definition.label(view.boxes[2])),
        tuple(_met(tree, view)),
        tuple(spell_comparison(tree.definition, test) for test in view.node.comparisons),
        view.presence,
        view.table,
        tuple(described_view(tree, child) for child in view.children),
    )


def _met(tree: Tree, view: View) -> Iterator[str]:
    """How changes of the siblings of a view find its rows, where their parent compares: what they seek in its sorted
    lists, by what they leave out subtrees, and what they test."""
    siblings = view.parent.children if view.parent is not None and view.parent.node.comparisons else []
    for source in (one for one in siblings if one is not view):
        assert view.parent is not None
        steps = tree.update_steps(view.parent, source)
        step = next((one for one in steps if one.view is view and one.access != "filter"), None)
        if step is None or step.access not in ("range", "range sum", "box sum", "members"):
            continue
        tested = [test for one in steps if one.access == "filter" for test in one.comparisons]
        is_sum = step.access in ("range sum", "box sum")
        parts = {
            "seeks": step.tests if is_sum else step.comparisons,
            "leaves out subtrees by": () if is_sum else step.beside,
            "tests": [test for test in tested if test.scheme & step.fresh],
        }
        verb = "sums up" if is_sum else "lists"
        spelled = {words: [spell_comparison(tree.definition, test) for test in of] for words, of in parts.items()}
        yield ", ".join(
            (
                f"a change of {_name(tree, source)} {verb} {_name(tree, view)}",
                *(f"{words} {enumerate_words(tests)}" for words, tests in spelled.items() if tests),
            )
        )


def _name(tree: Tree, view: View) -> str:
    return view.node.atom or f"[{', '.join(_labels(tree, view.node.variables))}]"


def walk(view: DescribedView) -> Iterator[DescribedView]:
    """A view and all below it, parents first."""
    yield view
    for child in view.children:
        yield from walk(child)


def _labels(tree: Tree, variables: Sequence[str]) -> tuple[str, ...]:
    return tuple(tree.definition.label(variable) for variable in variables)


def _form(view: View) -> str:
    if view.stateless:
        return "passed on, not stored"
    if not view.stored:
        return "computed on the way"
    if view.node.filters is not None:
        return "filters only"
    return "stored" if view.full else "stored as sums by what its parent shares"

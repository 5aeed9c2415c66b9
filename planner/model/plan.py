"""The planner's output: a view tree with its cost class, as frozen data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Literal

from sqlfront.planner.model.bound import CONSTANT_BOUND, LINEAR_BOUND, ROWS_READ, Bound, Term
from sqlfront.planner.model.cost import Cost
from sqlfront.planner.model.distinct_turns import Turns
from sqlfront.planner.model.query import Presence
from sqlfront.planner.model.whole_cost import Block, Stage, deciding, deciding_path, stages, whole_cost

if TYPE_CHECKING:
    from sqlfront.planner.model.heavy_light import Union
    from sqlfront.planner.model.query import Comparison

Shape = Literal["q-hierarchical", "free-connex", "acyclic", "cyclic", "inequality"]
StatedShape = Literal[Shape, "dataflow"]
"""A dataflow reads blocks that no view tree keeps."""


@dataclass(frozen=True)
class Node:
    """A view over `variables`: an atom's leaf, or the join of its children summed down to `variables`.

    A leaf that only `filters` holds which rows its atom has, not how many: the atom counts elsewhere.
    In a cyclic query the variables of a node may be a *bag*, which no child holds as a whole. Of the join only the rows
    count that meet the node's `comparisons`, of variables that the node or its children have: what is only compared
    need not be among the node's own. In a ranked tree a leaf without an atom has the rows of the bag of its variables.
    `connex` marks the nodes that enumeration walks: a subtree that holds the root, whose variables
    together are the free variables. Below its frontier everything is bound and only summed.
    Of an optional child a row of the parent needs no row: it counts 1 without one, and has NULLs. Of an absent child
    it must have none.
    """

    variables: tuple[str, ...]
    children: tuple[Node, ...] = ()
    atom: str | None = None
    connex: bool = False
    comparisons: tuple[Comparison, ...] = ()
    filters: str | None = None
    presence: Presence = "required"

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Node]:
        """The leaves that count."""
        return (node for node in self.walk() if node.atom is not None)

    @property
    def is_bag_leaf(self) -> bool:
        """Whether this is a leaf of a ranked tree that has the rows of a bag."""
        return not self.children and self.atom is None and self.filters is None

    @property
    def is_bag(self) -> bool:
        """Whether no child holds all of the node's variables."""
        return not any(set(self.variables) <= set(child.variables) for child in self.children)


def needed(node: Node) -> frozenset[str]:
    """The variables that the join of a node's children is over: its own, and those that it compares."""
    return frozenset(node.variables).union(*(test.scheme for test in node.comparisons))


@dataclass(frozen=True)
class OrderPlan:
    """How the rows of one order are found: along a ranked tree or, without a `root`, by sorting them at each read.

    `reason` says why; `obstacle` is the cause where the rows are sorted. The cost is that of what the order adds, its
    delay that of rows read in this order. Rows that differ in `top`, variables of the root, are ordered apart. Of a
    union there is a tree for each of the `part_trees`.
    """

    root: Node | None
    cost: Cost
    reason: str
    top: tuple[str, ...] = ()
    part_trees: tuple[Node, ...] = ()
    obstacle: str | None = None

    @property
    def is_ranked(self) -> bool:
        """Whether first rows are found along ranked trees."""
        return self.root is not None or bool(self.part_trees)

    def of_part_tree(self, number: int) -> OrderPlan:
        """The order as one of a part tree."""
        return replace(self, root=self.part_trees[number], part_trees=()) if self.part_trees else self

    @property
    def bags(self) -> tuple[tuple[str, ...], ...]:
        """The bags of the view's tree whose rows the ranked tree reads."""
        return tuple(node.variables for node in self.root.walk() if node.is_bag_leaf) if self.root is not None else ()


class RowsIn(Enum):
    """Where the rows of a view are read.

    - tree: in the tree, or in part trees of a union.
    - projection: in a projection of what the tree enumerates onto the query's own free variables (Idris et al., section
      5: acyclic queries that are not free-connex), or onto distinct values.
    - ranked tree: in the ranked tree of the first order. Nothing else has them.
    - branches: in the trees of the views whose rows the view's are, one view after the other.
    - turns: in no table; a read finds them from the rows of the tree's leaves, as the plan's `turns` say.
    """

    TREE = "tree"
    TURNS = "turns"
    PROJECTION = "projection"
    RANKED_TREE = "ranked tree"
    BRANCHES = "branches"


@dataclass(frozen=True)
class Plan:
    """What runs and why.

    `root.variables` is empty. `free` are the variables the tree can enumerate: the query's own free variables, and
    `variables_added`.
    `weights` are the update rates, by table, for which the tree was chosen.
    `joins`, where every join is stored, are those that changes are joined with and add to, smaller ones first; the last
    is the result (see rules/materialize.py).
    `distinct_sets` are the plans of the definition's distinct values, in their order; `total` is the cost with them.
    `union` are the trees over heavy and light parts that keep what `root` puts out, or are kept beside it.
    `orders` are those of its orders.
    `turns` say how distinct rows are found if `rows_in` says so.
    `blocks` are the blocks of the query that are kept as views of their own, as far as they cost something; `inputs`
    are the relations that the view then reads itself, with the relations of its blocks.
    """

    shape: Shape
    strategy: str
    root: Node
    free: tuple[str, ...]
    variables_added: tuple[str, ...]
    cost: Cost
    reason: str
    witness: str | None = None
    suggestion: str | None = None
    joins: tuple[Node, ...] = ()
    distinct_sets: tuple[Plan, ...] = ()
    total: Cost | None = None
    orders: tuple[OrderPlan, ...] = ()

    @property
    def stated_shape(self) -> StatedShape:
        """The shape of the whole: that of the core, unless DuckDB computes a block that it reads."""
        return "dataflow" if any(block.computed for block in self.blocks) else self.shape

    @property
    def stated_cost(self) -> Cost:
        """The cost of all that is maintained: the worst of the core, whose class `cost` is, its distinct values, and
        the blocks of the query."""
        return whole_cost(self.total or self.cost, self.blocks, self.inputs)

    @property
    def decided_by(self) -> dict[str, str | None]:
        """The block that decides each of the stated costs; None where it is the view itself."""
        return deciding(self.total or self.cost, self.blocks, self.inputs)

    @property
    def deciding_path(self) -> list[Stage]:
        """The way of the changes that decide what an update costs."""
        return deciding_path(self.total or self.cost, self.blocks, self.inputs)

    @property
    def own_update(self) -> Bound:
        """What one changed row of a table takes in the view itself: as all rows that blocks put out for it."""
        *_, own = stages(self.total or self.cost, self.blocks, self.inputs)
        return own.total

    @property
    def is_divided(self) -> bool:
        """Whether trees over heavy and light parts keep the output, and no tree of the whole tables does."""
        return self.union is not None and self.union.keeps_rows

    @property
    def stores_combinations(self) -> bool:
        """Whether rows of several tables are stored together, so that memory may grow faster than the tables do."""
        divided = self.is_divided and self.cost.space.power > 1
        return divided or self.shape in ("cyclic", "inequality") or self.rows_in == RowsIn.PROJECTION

    @property
    def hides_variables(self) -> bool:
        """Whether the tree enumerates variables that are not put out, and no projection is kept."""
        return bool(self.variables_added) and self.rows_in != RowsIn.PROJECTION

    @property
    def tuple_delay(self) -> Bound:
        """What finding one tuple costs: over heavy and light parts as much as a step of their enumeration; in turn what
        is done before the first row, sorting the tables' rows."""
        if self.turns is not None:
            return LINEAR_BOUND.in_order()
        return self.cost.delay if self.union is not None else CONSTANT_BOUND

    @property
    def tuple_count(self) -> Bound:
        """What counting the distinct tuples costs. Over heavy and light parts they are enumerated, as in turn and with
        optional children. Where several nodes hold a tuple together, another tree counts them: it is kept or built."""
        if self.union is not None or self.turns is not None:
            return Bound(terms=(Term(ROWS_READ, self.cost.delay.power, self.cost.delay.logs),))
        if not self.keeps_rows_apart or self.keeps_number:
            return CONSTANT_BOUND
        return Bound(terms=(Term(ROWS_READ),)) if self.has_outer_children else self.cost.preprocessing

    @property
    def keeps_rows_apart(self) -> bool:
        """Whether several nodes of the tree hold a row together: no projection has it, no ranked tree orders it."""
        enumerated = [node for node in self.root.walk() if node.connex and node is not self.root]
        return self.rows_in == RowsIn.TREE and len(enumerated) > 1

    @property
    def keeps_number(self) -> bool:
        """Whether the number of distinct tuples that several nodes hold together is kept: where each change takes a
        constant number of steps. Elsewhere keeping it would cost more than the view itself does."""
        return self.cost.update.is_constant and not self.has_outer_children

    @property
    def has_outer_children(self) -> bool:
        """Whether a child is optional or absent."""
        return any(node.presence != "required" for node in self.root.walk())

    weights: tuple[tuple[str, float], ...] = ()
    union: Union | None = None
    rows_in: RowsIn = RowsIn.TREE
    turns: Turns | None = None
    blocks: tuple[Block, ...] = ()
    inputs: frozenset[str] = frozenset()

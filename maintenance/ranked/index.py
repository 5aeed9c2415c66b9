"""The ranked tree of one order of a view: its tables, how changes come into them, and what a read of it needs.

Each node of the plan's tree has a ranked table (see kernels/programs/rank.py): a leaf the rows of its atom, an inner
node the values of its variables for which its *guard* has rows, the child that holds all of these. Of its other
children the node has an index by what they share with it, which finds the rows that a changed best concerns. The guard
of a bag is a leaf with the bag's rows, which does not count: the atoms below the bag do. Rows of NULLs stand for the
missing rows of optional and absent children; they are in no table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.programs import Assembler, Join
from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.program.shapes import COUNT, Shape, shape_of
from sqlfront.maintenance.ranked.ranked_order import RankedOrder
from sqlfront.maintenance.ranked.tree_cursor import TreeCursor
from sqlfront.maintenance.relation.base_relation import LeafStore
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.planner.model.plan import Node, OrderPlan
from sqlfront.planner.model.query import Order
from sqlfront.storage.codecs.encoding import Codec
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

Entry = tuple[int, int, int]
SUM_WORDS = 3
_PRESENCE = {"required": at.CHILD_REQUIRED, "optional": at.CHILD_OPTIONAL, "absent": at.CHILD_ABSENT}
_COMPOSED = {"greatest": at.ORDER_GREATEST, "least": at.ORDER_LEAST, "product": at.ORDER_PRODUCT}


@dataclass
class RankedNode:
    """A node at run time, with its number: parents come first. `guard` is a child's place among the children; `link`,
    the anchor, the variables shared with the parent, or those by which the root's rows are ordered apart."""

    node: Node
    parent: RankedNode | None
    number: int
    shape: Shape
    link: tuple[str, ...]
    children: list[RankedNode] = field(default_factory=list)
    guard: int = 0
    table: Table | None = None

    @property
    def borders(self) -> int:
        """In how many optional and absent views it is, with itself: there its rows may be missing."""
        own = int(self.node.presence != "required")
        return own if self.parent is None else own + self.parent.borders

    def walk(self) -> Iterator[RankedNode]:
        """This node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class KeyLayout:
    """The rank words: how they compare, and for each variable that an order reads what its words add to them.

    `own[variable]` lists (kind, target, word of the variable, coefficient, operand). `sums` are the places of the first
    words of sums, `starts` those of all terms.
    """

    entries: tuple[Entry, ...]
    own: Mapping[str, tuple[tuple[int, int, int, int, int], ...]]
    sums: tuple[int, ...]
    starts: tuple[int, ...]


class RankedIndex(RankedOrder):
    """One order of a view, maintained. Tables are made by `build`, and follow the epochs through the programs.

    `distinct`: rows of equal keys are one row, however often they are derived. Of each of the root's groups, reads
    go on to at most `quota` different rows (0: all); where keys do not tell which come first, the trees give `all_rows`
    to readers that count. `tree` is the view's, whose bags it reads. Where somebody reads
    which best rows change, they are `noted` at the root until `Table.settle`.
    """

    def __init__(
        self,
        order: Order,
        plan: OrderPlan,
        tree: Tree,
        owner: int,
        *,
        distinct: bool = False,
        quota: int = 0,
        all_rows: bool = False,
    ) -> None:
        assert plan.root is not None
        self.order, self._owner, self.distinct = order, owner, distinct
        self.quota, self.all_rows = quota, all_rows
        self._widths, self._codecs, self.layout = tree.widths, tree.codecs, layout_of(order, tree.codecs)
        self.nodes: list[RankedNode] = []
        self.root = self._grow(plan.root, None, plan.top)
        self._leaves = {node.node.atom: node for node in self.nodes if node.node.atom is not None}
        self.is_grouped = bool(self.root.link or quota)
        self._bags = [(node, tree.bag(node.node.variables)) for node in self.nodes if node.node.is_bag_leaf]
        self.noted = False
        self._words: np.ndarray | None = None
        self._sources: dict[str, np.ndarray] = {}

    @property
    def arity(self) -> int:
        return len(self.nodes)

    @property
    def leaves(self) -> dict[str, RankedNode]:
        return self._leaves

    def trees(self) -> list[RankedIndex]:
        return [self]

    def cursor(self, begin: int = 0) -> TreeCursor:
        return TreeCursor(self.plan_words(), self.arity, len(self.layout.entries), begin)

    def kept(self) -> list[Table]:
        return self.tables()

    def tables(self) -> list[Table]:
        return [node.table for node in self.nodes if node.table is not None]

    def make_tables(self, stores: Mapping[str, LeafStore]) -> None:
        """Make the nodes' tables, empty. A leaf's counts are as wide as its store's, or its bag's."""
        self._words = None
        wide = {node.number: bag.shape.limbs for node, bag in self._bags if bag.shape is not None}
        for node in self.nodes:
            limbs = stores[node.node.atom].limbs if node.node.atom is not None else wide.get(node.number, 1)
            node.shape = shape_of(node.node.variables, self._widths, (COUNT,), limbs)
            others = [child for place, child in enumerate(node.children) if place != node.guard]
            indexes = [node.shape.places(node.link), *(node.shape.places(child.link) for child in others)]
            order = (0, self.layout.entries)
            name = "ranked [" + ", ".join(node.node.variables) + "]"
            node.table = Table(node.shape.keys, 1, limbs, indexes, name=name, order=order, ranked=True)
        for node, bag in self._bags:
            assert node.table is not None
            bag.followers[self] = node.table

    def build(self, machine: Machine, stores: Mapping[str, LeafStore], shapes: Mapping[str, Shape]) -> None:
        """Fill the tables from the leaves' stores and the bags. O(N log N)."""
        self.make_tables(stores)
        for atom in self.leaves:
            store, assembler = stores[atom], Assembler()
            assembler.scan(store.table)
            self._add_leaf_path(assembler, atom, shapes[atom])
            machine.run(assembler.program(), rows=store.table.used)
        for node, bag in self._bags:
            assert bag.table is not None and node.table is not None
            assembler = Assembler()
            assembler.scan(bag.table)
            assembler.path(self._owner)
            assembler.upsert(node.table)
            assembler.path_end()
            machine.run(assembler.program(), rows=bag.table.used)
        ranking = Assembler()
        self.add_ranking(ranking, set(self.leaves))
        machine.run_once(ranking.program())

    def refresh(self, machine: Machine, stores: Mapping[str, LeafStore], room: Room | None) -> None:
        self.fit(stores)

    def fit(self, stores: Mapping[str, LeafStore]) -> None:
        """Give leaves' counts the width that their stores' and bags' have."""
        wide = [(leaf, stores[atom].limbs) for atom, leaf in self.leaves.items()]
        wide += [(leaf, bag.shape.limbs) for leaf, bag in self._bags if bag.shape is not None]
        for leaf, limbs in wide:
            if leaf.table is not None and leaf.table.limbs < limbs:
                leaf.table.widen(limbs)
                self._words = None
                leaf.shape = shape_of(leaf.node.variables, self._widths, (COUNT,), limbs)

    def add_row_paths(self, assembler: Assembler, store: LeafStore, position: int, atoms: Mapping[str, Shape]) -> None:
        for atom, delta in atoms.items():
            self._add_leaf_path(assembler, atom, delta)

    def _add_leaf_path(self, assembler: Assembler, atom: str, delta: Shape) -> None:
        """Add the path of an atom's delta into its leaf, if it has one."""
        if atom not in self.leaves:
            return
        assembler.path(self._owner)
        self.add_delta(assembler, atom, delta)
        assembler.path_end()

    def add_delta(self, assembler: Assembler, atom: str, delta: Shape) -> None:
        """Add what a path, which has begun, has of an atom's delta to its leaf."""
        leaf = self.leaves[atom]
        assert leaf.table is not None
        if delta != leaf.shape:
            assembler.project(Join(delta, frozenset({atom}), None, leaf.shape))
        assembler.upsert(leaf.table)

    def add_ranking(self, assembler: Assembler, atoms: set[str]) -> None:
        """The groups of these atoms' leaves, of all bags', and of all nodes above."""
        above: set[int] = set()
        changed = [leaf for atom, leaf in self.leaves.items() if atom in atoms]
        for leaf in [*changed, *(leaf for leaf, _ in self._bags)]:
            node: RankedNode | None = leaf
            while node is not None:
                above.add(node.number)
                node = node.parent
        for node in reversed(self.nodes):
            if node.number in above:
                assembler.add(at.RANK, *self._step(node))

    def plan_words(self) -> np.ndarray:
        """The tree as the enumeration kernels read it, made once: tables keep their addresses and key words."""
        if self._words is None:
            self._words = self._made_words()
        return self._words

    def _made_words(self) -> np.ndarray:
        most = max([1, *(len(node.children) for node in self.nodes)])
        head = [len(self.nodes), most, int(self.distinct), 0 if self.all_rows else self.quota]
        blocks: list[list[int]] = []
        start = len(head) + len(self.nodes)
        offsets = []
        for node in self.nodes:
            assert node.table is not None
            offsets.append(start + sum(map(len, blocks)))
            owns = int(any(self._own(below) for below in node.walk()))
            missing = [*self._missing_key(node), *self._missing_row(node)] if node.borders else []
            entries = [[child.number, *self._sized(node.shape.places(child.link))] for child in node.children]
            first = offsets[-1] + 4 + len(entries)
            places = [first + len(missing) + sum(map(len, entries[:number])) for number in range(len(entries))]
            block = [node.table.address, len(node.children), owns, first if missing else 0, *places, *missing]
            blocks.append(block + [word for entry in entries for word in entry])
        return np.array([*head, *offsets, *(word for block in blocks for word in block)], np.int64)

    def source(self, variable: str) -> np.ndarray:
        if variable not in self._sources:
            node = next(node for node in self.nodes if variable in node.node.variables)
            places = [(node.number, place) for place in node.shape.places([variable])]
            self._sources[variable] = np.array(places, np.int64)
        return self._sources[variable]

    def _grow(self, node: Node, parent: RankedNode | None, above: tuple[str, ...]) -> RankedNode:
        link = tuple(variable for variable in node.variables if variable in above)
        made = RankedNode(node, parent, len(self.nodes), shape_of(node.variables, self._widths, (COUNT,), 1), link)
        self.nodes.append(made)
        made.children = [self._grow(child, made, node.variables) for child in node.children]
        if made.children:
            required = [i for i, child in enumerate(made.children) if child.node.presence == "required"]
            made.guard = next(i for i in required if set(made.children[i].link) == set(node.variables))
        return made

    def _step(self, node: RankedNode) -> list[int]:
        """The operands of a node's RANK step."""
        assert node.table is not None
        own = self._own(node)
        is_last = node.parent is None and not self.noted
        words = [self._owner, node.table.address, int(is_last), len(own), *(w for one in own for w in one)]
        blocks, number = [], 0
        for place, child in enumerate(node.children):
            assert child.table is not None
            number += int(place != node.guard)
            index = 0 if place == node.guard else number
            places = self._sized(node.shape.places(child.link))
            missing = [_PRESENCE[child.node.presence], *self._missing_key(child)]
            blocks.append([child.table.address, index, *places, *missing])
        start = 2 + len(words) + 1 + len(blocks)
        offsets = [start + sum(map(len, blocks[:i])) for i in range(len(blocks))]
        return [*words, len(blocks), *offsets, *(word for block in blocks for word in block)]

    def _own(self, node: RankedNode) -> list[tuple[int, int, int, int, int]]:
        """What a leaf's words add to its key: those of the variables that no leaf before it holds. A leaf that is
        always there comes before one that may be missing."""
        if node.children:
            return []
        leaves = sorted((leaf for leaf in self.nodes if not leaf.children), key=lambda leaf: leaf.borders)
        before = {v for leaf in leaves[: leaves.index(node)] for v in leaf.node.variables}
        own = []
        for variable in node.node.variables:
            if variable in before:
                continue
            first = node.shape.places([variable])
            own += [
                (kind, target, first[word], coefficient, operand)
                for kind, target, word, coefficient, operand in self.layout.own.get(variable, ())
            ]
        return own

    def _missing_row(self, node: RankedNode) -> list[int]:
        """The words of a node's row of NULLs, which counts 1."""
        return [*self._nulls(node), 1] + [0] * (node.shape.limbs - 1)

    def _missing_key(self, node: RankedNode) -> list[int]:
        """The key of a node's row of NULLs with such rows below it; of a node that is always there, 0 for each word."""
        key = [0] * len(self.layout.entries)
        if not node.borders:
            return key
        nulls = self._nulls(node)
        for kind, target, place, coefficient, _ in self._own(node):
            key[target] += nulls[place] + coefficient if kind == at.RANK_COPY else int(nulls[place] == at.NULL_CODE)
        for child in node.children:
            key = [word + more for word, more in zip(key, self._missing_key(child), strict=True)]
        return key

    def _nulls(self, node: RankedNode) -> list[int]:
        return [word for variable in node.shape.variables for word in self._codecs[variable].encode_value(None)]

    @staticmethod
    def _sized(places: tuple[int, ...]) -> list[int]:
        return [len(places), *places]


def layout_of(order: Order, codecs: Mapping[str, Codec]) -> KeyLayout:
    """The rank words of an order: of a value its words; of a sum the NULLs in it, then what the others add up to, or a
    bound of it if that is rounded; of what several values make together the word of each.

    Descending order and the place of NULL are in how words compare, so that keys can be added.
    """
    entries: list[Entry] = []
    own: dict[str, list[tuple[int, int, int, int, int]]] = {}
    sums: list[int] = []
    starts: list[int] = []
    for term in order.terms:
        starts.append(len(entries))
        first, down = len(entries), at.ORDER_DESCENDING if term.descending else 0
        if term.form in _COMPOSED:
            group = at.GROUP_WORDS * len(term.parts)
            for number, (_, variable) in enumerate(term.parts):
                [(place, _, reserved)] = order_places(codecs[variable], first + number)
                entries.append((place, _COMPOSED[term.form] | down | group + at.GROUP_PLACE * number, reserved))
                shift = int(term.form == "product")
                own.setdefault(variable, []).append((at.RANK_COPY, place, 0, shift, 0))
            continue
        if term.form in ("sum", "rounded"):
            sums.append(first)
            entries.append((first, at.ORDER_WORD | (at.ORDER_DESCENDING if term.nulls_first else 0), 0))
            entries.append((first + 1, at.ORDER_WORD | down, 0))
            entries.append((first + 2, at.ORDER_LOW_WORD | down, 0))
            for number, (coefficient, variable) in enumerate(term.parts):
                kind, [(_, _, operand), *_] = at.RANK_ADD, order_places(codecs[variable], 0)
                if term.rounding is not None:
                    kind = at.RANK_ADD_UPPER if term.descending else at.RANK_ADD_LOWER
                    kind += at.RANK_PARTS * term.rounding.few
                    coefficient, operand = _bits(term.rounding.weights[number]), _bits(term.rounding.error)
                own.setdefault(variable, []).append((kind, first, 0, coefficient, operand))
            continue
        [(_, variable)] = term.parts
        nulls = 0 if term.nulls_first else at.ORDER_NULLS_LAST
        for word, (_, kind, operand) in enumerate(order_places(codecs[variable], first)):
            entries.append((first + word, kind | down | (nulls if word == 0 else 0), operand))
            own.setdefault(variable, []).append((at.RANK_COPY, first + word, word, 0, 0))
    if not entries:  # Rows of constants all tie: a table is ranked if it has rank words.
        entries.append((0, at.ORDER_WORD, 0))
    return KeyLayout(tuple(entries), {name: tuple(words) for name, words in own.items()}, tuple(sums), tuple(starts))


def _bits(number: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits

"""One maintained view: its tree over the relations' stores, its bulk build, and its figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from maintenance.machine import Machine
from maintenance.paths import build_path, build_projection, update_path
from maintenance.programs import Assembler
from maintenance.relation import LeafStore, Relation
from maintenance.shapes import Part
from maintenance.tree import Tree, View
from planner.plan import Plan
from planner.query import Definition
from storage import layout as at
from storage.encoding import Codec, Dictionaries, codec_for
from storage.table import Table


@dataclass
class Source:
    """Where an atom reads: a store of a relation, as old (position 0) or as new (1) in a self-join."""

    relation: Relation
    store: LeafStore
    position: int


@dataclass
class MaintainedView:
    """A view in the engine. `limbs` is the width of the values of its own tables."""

    name: str
    definition: Definition
    plan: Plan
    tree: Tree
    number: int
    codecs: dict[str, Codec]
    sources: dict[str, Source] = field(default_factory=dict)
    limbs: int = 1
    broken: str | None = None

    @property
    def relations(self) -> set[str]:
        return {source.relation.name for source in self.sources.values()}

    def tables(self) -> list[Table]:
        """The view's own tables; leaf stores belong to the relations."""
        own = [view.table for view in self.tree.stored_inner() if view.table is not None]
        return own + ([self.tree.projection] if self.tree.projection is not None else [])

    def shift(self, part: Part) -> int:
        """The sum of the binary scales of a part's floating factors."""
        total = 0
        for atom, factor in part:
            store = self.sources[atom].store
            column = next(f for f in self.definition.atom(atom).factors if f.name == factor)
            item = store.inputs["factor " + column.expression]
            total += item.shift if item.kind == "factor" else 0
        return total

    def bind_leaves(self) -> None:
        """Point the tree's leaves at the stores' present tables and layouts."""
        for atom, source in self.sources.items():
            leaf = self.tree.leaves[atom]
            leaf.table = source.store.table
            leaf.shape = source.store.shape(self.definition.atom(atom))
            translate = {c.name: c.expression for c in self.definition.atom(atom).variables}
            back = {expression: name for name, expression in translate.items()}
            leaf.indexes = [tuple(back[expression] for expression in index) for index in source.store.indexes]

    def make_tables(self) -> None:
        """Make the view's own tables, empty."""
        for view in self.tree.stored_inner():
            view.shape = self.tree.shape(view, self.limbs)
            view.table = Table(
                view.shape.keys,
                len(view.shape.parts),
                self.limbs,
                [view.shape.places(index) for index in view.indexes],
                [self.tree.summed(view, index) for index in view.indexes],
                name=label(self, view),
            )
        if self.tree.output is not None:
            parts = self.tree.parts(self.tree.root)
            keys = sum(self.tree.widths[v] for v in self.tree.output)
            self.tree.projection = Table(keys, len(parts), self.limbs, name="projection")

    def build(self, machine: Machine) -> None:
        """Fill the view's tables from its leaves' stores, children first, with wider values as they prove needed.

        O(rows) for every class but "acyclic", where the extended result counts too.
        """
        while True:
            self.make_tables()
            if self._fill(machine) & at.OVERFLOW == 0:
                return
            self.limbs += 1

    def _fill(self, machine: Machine) -> int:
        flags = 0
        for view in self.tree.stored_inner():
            assembler = Assembler()
            scanned = build_path(self.tree, view, assembler, self.number, self.limbs)
            flags |= machine.run(assembler.program(), rows=int(scanned.header[at.USED]))
        if self.tree.output is not None:
            assembler = Assembler()
            scanned = build_projection(self.tree, assembler, self.number, self.limbs)
            flags |= machine.run(assembler.program(), rows=int(scanned.header[at.USED]))
        sweep = Assembler()
        sweep.finish(at.SWEEP, self.tables())
        machine.run_once(sweep.program())
        return flags

    def add_paths(self, assembler: Assembler, store: LeafStore, position: int) -> None:
        """Add the update paths of this view's atoms that read `store` at this position."""
        for atom, source in self.sources.items():
            if source.store is store and source.position == position:
                update_path(self.tree, atom, assembler, self.number, self.limbs)

    def widen(self, limbs: int) -> None:
        """Give the values of the view's own tables more limbs."""
        self.limbs = limbs
        for table in self.tables():
            table.widen(limbs)
        for view in self.tree.stored_inner():
            view.shape = self.tree.shape(view, limbs)

    def rescale(self, store: LeafStore, expression: str, bits: int) -> None:
        """Multiply every sum that contains a factor of this expression by 2**bits, once for each time it does."""
        stored = [(view.table, view.shape.parts) for view in self.tree.stored_inner() if view.table and view.shape]
        if self.tree.projection is not None:
            stored.append((self.tree.projection, self.tree.parts(self.tree.root)))
        names = {
            (atom, f.name)
            for atom, source in self.sources.items()
            if source.store is store
            for f in self.definition.atom(atom).factors
            if f.expression == expression
        }
        times = max((len(part & names) for part in self.tree.parts(self.tree.root)), default=0)
        self.widen(self.limbs + (times * bits + 63) // 64)
        for table, parts in stored:
            for number, part in enumerate(parts):
                for _ in part & names:
                    table.rescale(number, bits)


def label(view: MaintainedView, node: View) -> str:
    """A node's name for people: its variables in the user's spelling."""
    return "[" + ", ".join(view.definition.label(v) for v in node.node.variables) + "]"


def demanded_indexes(tree: Tree, leaf: View, definition: Definition) -> tuple[list[tuple[str, ...]], list[bool]]:
    """The groupings a leaf's store must offer, by expressions, and which of them sum values."""
    names = {c.name: c.expression for c in definition.atom(leaf.node.atom or "").variables}
    indexes = [tuple(names[v] for v in index) for index in leaf.indexes]
    return indexes, [tree.summed(leaf, index) > 0 for index in leaf.indexes]


def codecs_of(definition: Definition, dictionaries: Dictionaries) -> dict[str, Codec]:
    """The codec of every variable."""
    return {c.name: codec_for(c.type, dictionaries) for atom in definition.atoms for c in atom.variables}

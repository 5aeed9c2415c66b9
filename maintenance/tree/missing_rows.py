"""The rows that an optional or absent child has where it has none: NULLs that count 1 and sum to nothing.

A child with such rows is one of an inner join, but that they are not stored: whoever looks a key up without success
takes the row of NULLs. When the child's first row of a key comes, the row of NULLs goes, and it comes with the last
one's going: `begin_missing` turns a leaf's delta into that of its rows of NULLs. O(rows of the delta).
"""

from __future__ import annotations

import numpy as np

from sqlfront.maintenance.program.programs import Assembler, Join
from sqlfront.maintenance.program.shapes import COUNT, Shape, shape_of
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.storage.stores.table import Table


def missing_row(tree: Tree, view: View, shape: Shape) -> int:
    """The address of the row that stands for none in a table of a view that has this layout; 0 if none does."""
    if view.presence == "required":
        return 0
    if shape not in view.missing:
        nulls = [word for variable in shape.variables for word in tree.codecs[variable].encode_value(None)]
        values = [1] + [0] * (len(shape.parts) * shape.limbs - 1)
        view.missing[shape] = np.array([*nulls, *values], np.int64)
    return int(view.missing[shape].ctypes.data)


def make_room(tree: Tree, limbs: int) -> None:
    """Make the tables in which deltas of optional and absent leaves are added up by key."""
    for leaf in tree.leaves.values():
        if leaf.presence != "required":
            words = sum(tree.widths[variable] for variable in leaf.key)
            leaf.gathered = Table(words, 1, limbs, name="keys of a leaf")


def kinds_of_rows(leaf: View) -> tuple[bool, ...]:
    """Which rows of a leaf take part in the join, those that are stored (False) or those that are missing (True)."""
    return {"required": (False,), "optional": (False, True), "absent": (True,)}[leaf.presence]


def begin_missing(tree: Tree, leaf: View, assembler: Assembler, position: int) -> None:
    """Go on, from a leaf's delta, with what it changes in the leaf's rows of NULLs: one goes where a key appears."""
    assert leaf.shape is not None and leaf.gathered is not None
    keys = shape_of(leaf.key, tree.widths, (COUNT,), leaf.gathered.limbs)
    assembler.project(Join(leaf.shape, leaf.atoms, None, keys))
    assembler.aggregate(leaf.gathered)
    table, shape = tree.by_key(leaf)
    assembler.transition(table, position == 1, keys, keys.places(shape.variables))
    assembler.scale(keys, -1)
    row = missing_row(tree, leaf, leaf.shape)
    assembler.project(Join(keys, frozenset(), leaf.shape, leaf.shape), beside=row)

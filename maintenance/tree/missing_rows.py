"""The rows that an optional or absent child has where it has none: NULLs that count 1 and sum to nothing.

A child with such rows is one of an inner join, but that they are not stored: whoever looks a key up without success
takes the row of NULLs. When the child's first row of a key comes, the row of NULLs goes, and it comes with the last
one's going: `turned` turns a delta of the child into that of its rows of NULLs. O(rows of the delta).

The delta of a leaf goes up by several *routes*, one after the other, so that each sees the tables as those before have
left them. On a route the delta turns at some of the optional and absent children that it comes through. Behind an
optional child in which it has not turned, and one in which it has, no other child appears or disappears by both.
"""

from __future__ import annotations

import numpy as np

from sqlfront.maintenance.program.programs import Assembler, Join
from sqlfront.maintenance.program.shapes import COUNT, Shape, shape_of
from sqlfront.maintenance.tree.view_tree import Route, Tree, View
from sqlfront.storage.stores.table import Table


def missing_row(tree: Tree, view: View, shape: Shape, inside: bool = False) -> int:
    """The address of the row that stands for none in a table of a view that has this layout; 0 if none does. `inside`:
    the view is looked up from an optional view around it, which may itself have the row of NULLs."""
    if view.presence == "required" and not inside:
        return 0
    if shape not in view.missing:
        nulls = [word for variable in shape.variables for word in tree.codecs[variable].encode_value(None)]
        values = [1] + [0] * (len(shape.parts) * shape.limbs - 1)
        view.missing[shape] = np.array([*nulls, *values], np.int64)
    return int(view.missing[shape].ctypes.data)


def make_room(tree: Tree, limbs: int) -> None:
    """Make the tables in which deltas of optional and absent views are added up by key."""
    for view in tree.root.walk():
        if view.presence != "required":
            words = sum(tree.widths[variable] for variable in view.key)
            view.gathered = Table(words, 1, limbs, name="keys of a child")


def routes(leaf: View) -> list[Route]:
    """The routes of a leaf's delta, in order."""
    found: list[Route] = [()]
    for view in leaf.borders():
        found.append((*found[-1], view))
        if view.presence == "optional":
            break
    return found[1:] if leaf.presence == "absent" else found


def arrives(leaf: View, route: Route) -> bool:
    """Whether a route goes on to the root: rows of an absent child go no further, unless they turn there."""
    ahead = list(leaf.borders())[len(route) :]
    return not ahead or ahead[0].presence == "optional"


def turned(tree: Tree, view: View, delta: Shape, atoms: frozenset[str], assembler: Assembler, is_new: bool) -> Shape:
    """Go on, from a delta of a view, with what it changes in the view's rows of NULLs: one goes where a key appears.

    The layout of these rows; they have all variables that the view enumerates.
    """
    assert view.gathered is not None
    out = view.shape
    if view.node.atom is None:
        inside = (v for below in view.walk() if below.node.connex for v in below.node.variables)
        variables = tuple(dict.fromkeys((*view.node.variables, *inside)))
        out = shape_of(variables, tree.widths, tree.parts(view), view.gathered.limbs)
    assert out is not None
    keys = shape_of(view.key, tree.widths, (COUNT,), view.gathered.limbs)
    assembler.project(Join(delta, atoms, None, keys))
    assembler.aggregate(view.gathered)
    table, shape = tree.by_key(view)
    assembler.transition(table, is_new, keys, keys.places(shape.variables))
    assembler.scale(keys, -1)
    assembler.project(Join(keys, frozenset(), out, out), beside=missing_row(tree, view, out, inside=True))
    return out

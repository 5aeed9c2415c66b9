"""From a tree to delta programs: one path per leaf for updates, one per stored view for bulk builds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlfront.maintenance.program.programs import PASSING, Assembler, Join, Side, WordTest
from sqlfront.maintenance.program.shapes import COUNT, Shape, parts_of, shape_of
from sqlfront.maintenance.tree.carrying import base_of, carries, carry_steps, entry_of
from sqlfront.maintenance.tree.missing_rows import missing_row, turned
from sqlfront.maintenance.tree.steps import Step
from sqlfront.maintenance.tree.view_tree import Route, Tree, View
from sqlfront.planner.model.query import Comparison
from sqlfront.storage.codecs.order import equality_places, order_places
from sqlfront.storage.errors import InternalError
from sqlfront.storage.stores.table import Table


@dataclass
class Delta:
    """What a path carries at one point: its layout and the atoms it covers."""

    shape: Shape
    atoms: frozenset[str]


def update_path(
    tree: Tree,
    leaf: View,
    assembler: Assembler,
    owner: int,
    limbs: int,
    position: int,
    times: int = 1,
    route: Route = (),
) -> None:
    """The path of a leaf's delta through its ancestors, adding to every stored one. Nothing if none is stored.

    At `position` 0 the leaf's store still is as before the delta. `times` is how often the delta counts, in a tree with
    one stored view. The delta turns on its `route` (missing_rows.py).
    """
    top = tree.top(leaf)
    for join in tree.side_joins():
        if leaf in join.children:
            assembler.path(owner)
            _add_to(tree, leaf, join, assembler, limbs)
            assembler.path_end()
    if top is not None or leaf.node.filters is not None:
        begin_path(tree, leaf, assembler, owner, position, route)
        if leaf.node.filters is not None:
            assert leaf.table is not None
            assembler.upsert(leaf.table)
        if top is not None:
            climb(tree, leaf, top, assembler, limbs, write_all=True, times=times, route=route)
        assembler.path_end()
    if tree.output is not None:
        assert tree.projection is not None
        begin_path(tree, leaf, assembler, owner, position, route)
        carry_path(tree, leaf, assembler, limbs, position)
        assembler.upsert(tree.projection)
        assembler.path_end()


def begin_path(tree: Tree, leaf: View, assembler: Assembler, owner: int, position: int, route: Route = ()) -> None:
    """Begin the path of a leaf's delta, or the path of its rows of NULLs if its route begins with the leaf. A filter's
    delta has the rows that appear in its atom's store with count 1, and those that disappear with count -1; the store
    has been updated."""
    assembler.path(owner)
    if leaf in route:
        assert leaf.shape is not None
        turned(tree, leaf, leaf.shape, leaf.atoms, assembler, position == 1)
    if leaf.node.filters is None:
        return
    counted = tree.leaves[leaf.node.filters]
    assert counted.table is not None and counted.shape is not None
    assert leaf.shape is not None and leaf.gathered is not None
    assembler.project(Join(counted.shape, counted.atoms, None, leaf.shape))
    assembler.aggregate(leaf.gathered)
    places = leaf.shape.places(counted.shape.variables)
    assembler.transition(counted.table, True, leaf.shape, places)


def build_path(
    tree: Tree, view: View, assembler: Assembler, owner: int, limbs: int, avoid: Collection[View] = ()
) -> Table:
    """The path that fills one stored inner view from a stored view below it; returns the table to scan.

    Its siblings must be complete, so views are built children first; those to `avoid` hold other rows too. O(rows
    scanned * fan-out).
    """
    if view.node.filters is not None:
        return _build_filter(tree, view, assembler, owner)
    beside = view in tree.side_joins()
    source = view.children[0] if beside else _cheapest_source(tree, view, avoid)
    assert source.table is not None
    assembler.scan(source.table)
    assembler.path(owner)
    if beside:
        _add_to(tree, source, view, assembler, limbs)
    else:
        climb(tree, source, view, assembler, limbs, write_all=False)
    assembler.path_end()
    return source.table


def build_projection(tree: Tree, assembler: Assembler, owner: int, limbs: int) -> Table:
    """The path that fills a maintained projection from one leaf, or from the base of its deltas; returns the table to
    scan."""
    leaf = next(leaf for leaf in tree.leaves.values() if not list(leaf.borders()))
    base = base_of(tree, leaf)
    table, shape = _kept(tree, base)
    assembler.scan(table)
    assembler.path(owner)
    delta = project(tree, assembler, Delta(shape, base.atoms), entry_of(tree, base), limbs)
    if tree.supports:
        assembler.sign(delta.shape)
    _carry(tree, leaf, assembler, delta, limbs)
    assert tree.projection is not None
    assembler.upsert(tree.projection)
    assembler.path_end()
    return table


def carry_path(tree: Tree, leaf: View, assembler: Assembler, limbs: int, position: int) -> Delta:
    """Extend a leaf's delta to all output variables of a tree with a projection; `position` is as for `update_path`."""
    assert leaf.shape is not None
    delta = Delta(leaf.shape, leaf.atoms)
    if tree.supports:
        delta = _turned(tree, leaf, assembler, limbs, position)
    return _carry(tree, leaf, assembler, delta, limbs)


def _turned(tree: Tree, leaf: View, assembler: Assembler, limbs: int, position: int) -> Delta:
    """What of a leaf's delta makes a row of its base appear or disappear: counts of 1 and -1. The base's table, unless
    it is the leaf's, has been updated."""
    assert leaf.shape is not None and leaf.gathered is not None
    delta, base, view = Delta(leaf.shape, leaf.atoms), base_of(tree, leaf), leaf
    while view is not base:
        assert view.parent is not None
        delta = join_siblings(tree, assembler, delta, view.parent, view, view.parent.node.variables, limbs)
        view = view.parent
    out = shape_of(entry_of(tree, base), tree.widths, (COUNT,), limbs)
    assembler.project(Join(delta.shape, delta.atoms, None, out))
    assembler.aggregate(leaf.gathered)
    table, shape = _kept(tree, base)
    assembler.transition(table, base is not leaf or position == 1, out, out.places(shape.variables))
    return Delta(out, base.atoms)


def _kept(tree: Tree, base: View) -> tuple[Table, Shape]:
    """The table that has the rows of a base, and its layout."""
    if tree.supports and not carries(tree, base):
        return tree.message(base)
    assert base.table is not None and base.shape is not None
    return base.table, base.shape


def _carry(tree: Tree, leaf: View, assembler: Assembler, delta: Delta, limbs: int) -> Delta:
    assert tree.output is not None
    for step in carry_steps(tree, leaf):
        listed = _access(tree, step)[1].variables if step.binds else ()
        new = [v for v in listed if v not in delta.shape.variables]
        delta = join_step(tree, assembler, delta, step, (*delta.shape.variables, *new), limbs)
    if tree.supports:
        assembler.sign(delta.shape)
    return project(tree, assembler, delta, tree.output, limbs)


def climb(
    tree: Tree,
    source: View,
    top: View,
    assembler: Assembler,
    limbs: int,
    *,
    write_all: bool,
    times: int = 1,
    route: Route = (),
) -> Delta:
    """Carry a delta of `source`, on a path that has begun, up to `top`, adding to all stored views or to it alone.

    What comes before the delta's last turn on its route has been added on the routes before.
    """
    assert source.shape is not None
    delta = Delta(source.shape, source.atoms)
    view, ahead = source, [turn for turn in route if turn is not source]
    while view is not top:
        parent = view.parent
        assert parent is not None
        write = parent.stored and (write_all or parent is top) and not ahead
        target = parent.node.variables if parent.full else parent.link
        delta = join_siblings(tree, assembler, delta, parent, view, target, limbs)
        if write:
            assert parent.table is not None and parent.shape is not None
            delta = project(tree, assembler, delta, parent.shape.variables, limbs)
            if times != 1:
                assembler.scale(delta.shape, times)
            for table in (parent.table, *parent.followers.values()):
                assembler.upsert(table)
        if parent in ahead:
            ahead.remove(parent)
            delta = Delta(turned(tree, parent, delta.shape, delta.atoms, assembler, True), parent.atoms)
        elif parent.presence == "absent":
            break
        view = parent
    return delta


def _build_filter(tree: Tree, leaf: View, assembler: Assembler, owner: int) -> Table:
    """The path that fills a filter from its atom's store."""
    counted = tree.leaves[leaf.node.filters or ""]
    assert counted.table is not None and counted.shape is not None
    assert leaf.table is not None and leaf.shape is not None
    assembler.scan(counted.table)
    assembler.path(owner)
    assembler.project(Join(counted.shape, counted.atoms, None, leaf.shape))
    assembler.sign(leaf.shape)
    assembler.upsert(leaf.table)
    assembler.path_end()
    return counted.table


def _add_to(tree: Tree, leaf: View, join: View, assembler: Assembler, limbs: int) -> None:
    """Add what a leaf's delta changes in a stored join to it."""
    assert leaf.shape is not None and join.table is not None
    variables = join.node.variables
    delta = join_siblings(tree, assembler, Delta(leaf.shape, leaf.atoms), join, leaf, variables, limbs)
    project(tree, assembler, delta, variables, limbs)
    assembler.upsert(join.table)


def join_siblings(
    tree: Tree, assembler: Assembler, delta: Delta, parent: View, source: View, target: tuple[str, ...], limbs: int
) -> Delta:
    """Join a delta of one child of `parent` with the other children, down to `target`."""
    steps = tree.update_steps(parent, source)
    for number, step in enumerate(steps):
        later = {v for other in steps[number + 1 :] for v in other.read}
        wanted = target if number == len(steps) - 1 else (*parent.node.variables, *later)
        looked_up = _access(tree, step)[1].variables if step.binds else ()
        known = {*delta.shape.variables, *looked_up}
        kept = tuple(dict.fromkeys(v for v in wanted if v in known))
        delta = join_step(tree, assembler, delta, step, kept, limbs)
    return delta


def _cheapest_source(tree: Tree, view: View, avoid: Collection[View]) -> View:
    """A stored view below whose path up needs no expansion, if there is one; else the nearest."""
    candidates, around = [], set(view.borders())
    for below in view.walk():
        if below is view or not below.full or any(below is other for other in avoid) or set(below.borders()) - around:
            continue
        expansions, climb = 0, below
        while climb is not view:
            assert climb.parent is not None
            expansions += sum(step.lists for step in tree.update_steps(climb.parent, climb))
            climb = climb.parent
        candidates.append((expansions, len(list(below.walk())), below))
    if not candidates:
        raise InternalError("a stored view has nothing below it to be built from")
    return min(candidates, key=lambda c: (c[0], -c[1]))[2]


def join_step(
    tree: Tree,
    assembler: Assembler,
    delta: Delta,
    step: Step,
    variables: tuple[str, ...],
    limbs: int,
    out: Shape | None = None,
) -> Delta:
    """Join a delta with what a step looks up, or keep the rows that pass its test; down to `variables`, or laid out as
    `out`."""
    if step.access == "filter":
        out = out or shape_of(variables, tree.widths, delta.shape.parts, limbs)
        assembler.project(Join(delta.shape, delta.atoms, None, out), _word_tests(tree, step, delta.shape))
        return Delta(out, delta.atoms)
    table, shape = _access(tree, step)
    atoms = delta.atoms | step.view.atoms if step.multiply else delta.atoms
    out = out or shape_of(variables, tree.widths, parts_of(tree.definition.measures, atoms), limbs)
    join = Join(delta.shape, delta.atoms, shape, out, step.multiply)
    if step.tests:
        tests = [bound_test(tree, step, test, delta.shape, shape) for test in step.comparisons]
        beside = [bound_test(tree, step, test, delta.shape, shape) for test in step.beside]
        places = delta.shape.places(step.key)
        summed = replace(join, table=shape_of((), tree.widths, shape.parts, shape.limbs + 1))
        if step.access == "range":
            assembler.range(table, step.view.index_number(step.key), places, tests, join, *beside)
        elif step.access == "range sum":
            assembler.range_sum(table, step.view.index_number(step.key), places, tests, summed)
        else:
            index = step.view.index_number(step.key) if step.key else 0
            assembler.box_sum(table, index, places, (tests, beside), summed)
    elif step.access == "members":
        assembler.extend(_sides(step, delta.shape), join, missing_row(tree, step.view, shape, step.inside))
    else:
        missing, absent = missing_row(tree, step.view, shape, step.inside), step.view.presence == "absent"
        assembler.probe(table, delta.shape.places(shape.variables), join, missing, absent=absent)
    return Delta(out, atoms)


def _access(tree: Tree, step: Step) -> tuple[Table, Shape]:
    """The table a step reads, and its layout."""
    view = step.view
    if step.access == "message":
        return tree.message(view)
    assert view.table is not None and view.shape is not None
    return view.table, view.shape


def _word_tests(tree: Tree, step: Step, delta: Shape) -> list[WordTest]:
    """The comparisons of a "filter" step, of the words of a delta's rows."""
    return [_word_test(tree, test, delta, delta) for test in step.comparisons]


def bound_test(tree: Tree, step: Step, test: Comparison, delta: Shape, table: Shape) -> WordTest:
    """A comparison of a "range" or "range sum" step, of a delta's row with a table's."""
    if test.right in step.fresh:
        return _word_test(tree, test, delta, table)
    return _word_test(tree, test, table, delta).mirrored()


def _word_test(tree: Tree, test: Comparison, left: Shape, right: Shape) -> WordTest:
    codec = tree.codecs[test.left]
    places = order_places(codec, 0) if test.is_order else equality_places(codec, 0)
    return WordTest(PASSING[test.operator], left.places([test.left])[0], right.places([test.right])[0], places)


def _sides(step: Step, delta: Shape) -> list[Side]:
    """The tables that a "members" step intersects: the view's, and its partners'."""
    fresh = [variable for variable in step.view.listed if variable not in step.key]
    sides = []
    for view, key in ((step.view, step.key), *step.partners):
        assert view.table is not None and view.shape is not None
        sides.append(side_of(view.table, view.shape, view.index_number(key), delta, key, fresh))
    return sides


def side_of(table: Table, shape: Shape, number: int, delta: Shape, key: Sequence[str], fresh: Sequence[str]) -> Side:
    """A table whose index `number` lists, by the delta's variables `key`, the candidates for `fresh`."""
    places, candidates = delta.places(key), shape.places(fresh)
    template = [0] * shape.keys
    for place, word in zip(shape.places(key), places, strict=True):
        template[place] = word
    for candidate, place in enumerate(candidates):
        template[place] = -1 - candidate
    return Side(table, table.groups[number], number, places, template, candidates)


def project(tree: Tree, assembler: Assembler, delta: Delta, variables: tuple[str, ...], limbs: int) -> Delta:
    """Bring a delta's variables into this order, without the others."""
    out = shape_of(variables, tree.widths, parts_of(tree.definition.measures, delta.atoms), limbs)
    if out != delta.shape:
        assembler.project(Join(delta.shape, delta.atoms, None, out))
    return Delta(out, delta.atoms)

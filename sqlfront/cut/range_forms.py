"""Forms of a block that joins by comparisons: the first whose comparisons are ranges of sorted lists.

A tree for ranges stores no pairs of rows; a tree with bags does. Another form is taken if its costs have a lower class
than those of the block as it is written. Of the same class is a form that compares two tables through a third one,
joined by a key first: then a change meets the rows within the range, not all rows of the third table with its key.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from sqlfront.cut.block_shape import Shape
from sqlfront.cut.compared_through import compared_through
from sqlfront.cut.join_core import OuterChildError
from sqlfront.cut.signed_parts import BY_CELLS, EITHER_LESS, IN_CELLS, signed_parts
from sqlfront.cut.union_branches import with_branches
from sqlfront.planner.model.cost import BOX_SUMS, RANGES_LOGARITHMIC
from sqlfront.planner.model.query import Definition
from sqlfront.planner.rules.range_sums import plan_range_sums
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks


def over_ranges(found: Definition, shape: Shape, blocks: Blocks, bind: Callable[[Shape], Definition]) -> Definition:
    """The definition of a block, or that of another form whose comparisons cost less."""
    grade = _grade(found)
    if grade == _IN_RANGES:
        return found
    own, known = blocks.state(), frozenset(blocks.definitions)
    through = compared_through(shape, blocks, by_keys=grade < _IN_BAGS)
    # Joins with other pairs than the block's may have far more: these are not listed.
    signed = signed_parts(shape, blocks)
    parts = ((one, grade - 1 if are_own else min(grade - 1, _IN_BOXES)) for one, are_own in signed)
    forms = chain(parts, ((one, _LISTED) for one in through))
    for form, worst in forms:
        try:
            other = bind(form())
        except (NotSupportedError, OuterChildError):
            blocks.restore(own)
            continue
        new = [one for table, one in blocks.definitions.items() if table not in known and isinstance(one, Definition)]
        if max(map(_grade, (other, *new))) <= worst and not _stores_matches(other, blocks):
            return other
        blocks.restore(own)
    return found


def _stores_matches(found: Definition, blocks: Blocks) -> bool:
    """Whether the rows of parts would be stored, as their branches are not read in their place."""
    is_told = not blocks.told.keys().isdisjoint((IN_CELLS, BY_CELLS, EITHER_LESS))
    return found.mode == "bag" and is_told and not with_branches(found, blocks.branches).branches


_IN_RANGES, _IN_BOXES, _LISTED, _IN_BAGS = range(4)
"""What a change of a side meets: sums over ranges, or over boxes; the rows of a range; those of a bag."""


def _grade(definition: Definition) -> int:
    if not definition.comparisons:
        return _IN_RANGES
    plan = plan_range_sums(definition, {})
    if plan is None:
        return _IN_BAGS
    return {RANGES_LOGARITHMIC.update: _IN_RANGES, BOX_SUMS.update: _IN_BOXES}.get(plan.cost.update, _LISTED)

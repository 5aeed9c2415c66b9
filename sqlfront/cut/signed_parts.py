"""A join under a condition that is no range, as a sum of joins whose conditions are ranges, each with a sign.

An OR of disjoint ranges is the sum of the joins by each. So is any other OR of comparisons, as `b IS NULL OR t < b`:
each alternative is taken without the pairs of those before it. Comparisons in a cycle are chains within cells (see
expressions/cells.py). Overlapping intervals, `a.s <= b.e AND b.s <= a.e`, are the pairs with `b.s <= a.e` less those
with `b.e < a.s`: where `s <= e` holds on both sides, the second are some of the first. So counts and sums are those of
one-sided ranges, O(log N) each, added up by group. Points within rectangles have two such differences, so four joins by
one bound of each side. A CHECK or a filter says that the ends are ordered; the condition is added to the joins, which
leaves out rows with a NULL. Counts of values that differ, `a.id <> b.id`, are such a difference, too. Rows of such
values have the less one on one side or on the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from math import prod
from typing import TYPE_CHECKING

from sqlfront.cut.block_shape import Shape
from sqlfront.cut.expressions.cells import chains_in_cells, windows_in_cells
from sqlfront.cut.expressions.disjoint_ranges import alternatives, bounds_of, disjoint_ranges
from sqlfront.cut.expressions.exclusive_parts import MOST_PARTS, exclusive_parts
from sqlfront.cut.expressions.scalar_forms import call
from sqlfront.cut.expressions.value_types import INTEGER_BITS, is_exact_number
from sqlfront.cut.measures_of import COUNTS
from sqlfront.planner.algebra.flat_join import FlatJoin, flattened, joined
from sqlfront.planner.algebra.join_sides import Copies
from sqlfront.planner.algebra.row_facts import never_null
from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    NEGATED,
    Column,
    Compare,
    Constant,
    IsNull,
    Not,
    Ref,
    Scalar,
    cast,
    columns_of,
    conjunction,
    function_name,
    substitute,
)
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Made, Map, Scan, SetOperation, Term

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

APART = (
    "the pairs of an OR of comparisons are those of each alternative without those of the alternatives before it: the "
    "parts have nothing in common"
)
ONE_COMPARISON = "an OR of comparisons of the same values is one comparison: `t < a OR t < b` is `t < greatest(a, b)`"
DISJOINT = "the pairs of an OR of ranges are those of each range: the ranges have nothing in common"
IN_CELLS = (
    "rows within a window of each other are in one cell as wide as the window, or in two cells that follow each other: "
    "in each case the comparisons are a chain, without a cycle"
)
BY_CELLS = (
    "rows within a window of each other are in one cell as wide as the window, or in two cells that follow each other: "
    "in each case one of its bounds is compared, or none"
)
SUBTRACTED = (
    "pairs between two bounds are the pairs within one bound, less the pairs outside of the other bound: the ends are "
    "ordered"
)
DIFFERENT = "pairs whose values differ are all pairs, less those whose values are equal"
EITHER_LESS = "pairs whose values differ are those with the less one on one side, and those with it on the other side"
_ORDERED = re.compile(r'("(?:[^"]|"")*"|\w+)\s*(<=?|>=?)\s*("(?:[^"]|"")*"|\w+)')


@dataclass(frozen=True)
class _Part:
    """Conditions of a join, and how often its rows count: once, or once less."""

    sign: int
    conditions: tuple[Scalar, ...]


def signed_parts(shape: Shape, blocks: Blocks) -> Iterator[tuple[Callable[[], Shape], bool]]:
    """Forms of a block as a sum of joins: of groups by the sums of their aggregates, of rows by UNION ALL. Beside each,
    whether a join has only pairs of the block's."""
    flat = flattened(shape.core)
    is_summed = shape.mode == "group" and all(map(_is_summed, shape.aggregates))
    own = _of_differences(flat, blocks) if is_summed else _of_unequal(shape, flat)
    found = own or _of_alternatives(flat, blocks) or _in_cells(shape, flat, blocks)
    if found is None:
        return
    parts, note = found
    if is_summed:
        are_own = all(part.sign > 0 for part in parts)
        yield lambda: _told(_summed(shape, flat, parts, blocks), note, blocks), are_own
    else:
        yield lambda: _told(replace(shape, core=_rows(shape, flat, parts, blocks)), note, blocks), True


def _are_told(shape: Shape) -> bool:
    """Whether the rows of a block are those of the view, so that a union stores none of them; inside of a query it
    would."""
    return shape.is_whole and shape.mode == "bag" and not shape.orders


def _told(shape: Shape, note: str, blocks: Blocks) -> Shape:
    blocks.told[note] = None
    return shape


# Parts ------------------------------------------------------------------------------------------------


def _of_alternatives(flat: FlatJoin, blocks: Blocks) -> tuple[list[_Part], str] | None:
    """An OR of alternatives that have nothing in common as one join by each."""

    def leaves(value: Scalar) -> list[str]:
        return sorted(map(str, flat.leaves_of(value)))

    joining = [one for one in flat.conditions if len(leaves(one)) > 1]
    split = ((one, disjoint_ranges(one, leaves, blocks.types)) for one in joining)
    condition, ranges = next((one for one in split if one[1] is not None), (None, None))
    columns = frozenset[Column]().union(*(never_null(leaf, blocks.facts) for leaf in flat.leaves))
    has_several = sum(bool(alternatives(one)) for one in joining) > 1
    parts = exclusive_parts(flat.conditions, leaves, columns) if ranges is None or has_several else None
    # Each alternative of one OR may fix that of another: `a < b AND c < d OR a > b AND c > d` has two of four.
    if parts is not None and (ranges is None or len(parts) <= len(ranges)):
        return [_Part(1, tuple(one)) for one in parts], APART if len(parts) > 1 else ONE_COMPARISON
    if ranges is None:
        return None
    rest = [one for one in flat.conditions if one is not condition]
    return [_Part(1, (*rest, *one)) for one in ranges], DISJOINT


def _in_cells(shape: Shape, flat: FlatJoin, blocks: Blocks) -> tuple[list[_Part], str] | None:
    """Comparisons in a cycle, or a window beside others, as one join for each place of a cell's bound."""
    if shape.mode != "group" and not _are_told(shape):
        return None

    def leaves(value: Scalar) -> list[str]:
        return sorted(map(str, flat.leaves_of(value)))

    found, note = chains_in_cells(flat.conditions, leaves, blocks.types), IN_CELLS
    if found is None and shape.mode == "bag":
        found, note = windows_in_cells(flat.conditions, leaves, blocks.types), BY_CELLS
    return None if found is None else ([_Part(1, tuple(one)) for one in found], note)


def _of_differences(flat: FlatJoin, blocks: Blocks) -> tuple[list[_Part], str] | None:
    """Two bounds between ordered ends, or two values that differ, as a difference of two joins. The conditions of two
    leaves may have several such differences: their product."""
    tests, rest = _compared(flat)
    if len({flat.leaves_of(one) for one in tests}) != 1:
        return None
    unequal = [one for one in tests if one.operator == "<>"]
    choices: list[tuple[_Part, ...]] = list(map(_unequal, unequal))
    left = [_upwards(one) for one in tests if one not in unequal]
    while left:
        first = left.pop(0)
        found = ((second, _difference(first, second, flat, blocks)) for second in left)
        second, parts = next((one for one in found if one[1] is not None), (None, None))
        choices.append(parts or (_Part(1, (first,)),))
        left = [one for one in left if one is not second]
    notes = [SUBTRACTED] * (len(choices) < len(tests)) + [DIFFERENT] * bool(unequal)
    if not notes or prod(map(len, choices)) > MOST_PARTS:
        return None
    return [
        _Part(prod(one.sign for one in chosen), (*rest, *(test for one in chosen for test in one.conditions)))
        for chosen in product(*choices)
    ], "; ".join(notes)


def _of_unequal(shape: Shape, flat: FlatJoin) -> tuple[list[_Part], str] | None:
    """Rows with values that differ as those of two joins, by which of the values is less."""
    tests, rest = _compared(flat)
    unequal = [one for one in tests if one.operator == "<>"]
    if not (_are_told(shape) and 1 < 2 ** len(unequal) <= MOST_PARTS):
        return None
    kept = [*rest, *(one for one in tests if one not in unequal)]
    choices = [(replace(one, operator="<"), replace(one, operator=">")) for one in unequal]
    return [_Part(1, (*kept, *chosen)) for chosen in product(*choices)], EITHER_LESS


def _compared(flat: FlatJoin) -> tuple[list[Compare], list[Scalar]]:
    """The comparisons of one leaf's values with another's, and the other conditions."""
    conditions = [one for condition in flat.conditions for one in bounds_of(condition)]
    tests = [one for one in conditions if isinstance(one, Compare) and one.operator in ("<", "<=", ">", ">=", "<>")]
    tests = [one for one in tests if len(flat.leaves_of(one)) == 2]
    tests = [one for one in tests if all(len(flat.leaves_of(side)) == 1 for side in (one.left, one.right))]
    return tests, [one for one in conditions if one not in tests]


def _unequal(one: Compare) -> tuple[_Part, _Part]:
    """Pairs with values that differ, as all pairs with values less those with equal ones."""
    present = tuple(Not(IsNull(side)) for side in (one.left, one.right))
    return _Part(1, present), _Part(-1, (Compare("=", one.left, one.right),))


def _difference(first: Compare, second: Compare, flat: FlatJoin, blocks: Blocks) -> tuple[_Part, _Part] | None:
    """Two bounds, one from below and one from above, as the difference of one bound each.

    They are p <= q and u <= v, where p and v are of one leaf, q and u of the other. Pairs that miss the second have
    v < u. Where p <= v and u <= q are known, these pairs meet the first.
    """
    if flat.leaves_of(first.left) != flat.leaves_of(second.right) or not _is_one_order((first, second)):
        return None
    ends = ((first.left, second.right), (second.left, first.right))
    known = [_known_order(low, high, flat, blocks) for low, high in ends]
    orders = [one for one in known if one is not None]
    is_apart = second.operator == "<=" or any(one.operator == "<" for one in orders)
    if len(orders) < len(known) or (first.operator == "<" and not is_apart):
        return None
    kept = tuple(one for one in orders if one.left != one.right)
    missed = Compare(NEGATED[second.operator], second.left, second.right)
    return _Part(1, (*kept, first)), _Part(-1, (*kept, missed))


def _is_one_order(tests: Sequence[Compare]) -> bool:
    """Whether all sides are compared as they are: of a DOUBLE and a BIGINT, rounding makes different numbers equal."""
    types = {side.type for one in tests for side in (one.left, one.right)}
    return len(types) == 1 or all(map(is_exact_number, types))


def _upwards(one: Compare) -> Compare:
    """A comparison by < or <=."""
    return one if one.operator in ("<", "<=") else Compare(MIRRORED[one.operator], one.right, one.left)


def _known_order(low: Scalar, high: Scalar, flat: FlatJoin, blocks: Blocks) -> Compare | None:
    """That one value of a leaf is at most another, if a condition or a CHECK says so."""
    if low == high:
        return Compare("<=", low, high)
    written = [_upwards(one) for one in flat.conditions if isinstance(one, Compare) and one.operator in MIRRORED]
    for operator in ("<", "<="):
        order = Compare(operator, low, high)
        if order in written or order in _checked(flat, low, blocks):
            return order
    return None


def _checked(flat: FlatJoin, value: Scalar, blocks: Blocks) -> list[Compare]:
    """The orders of two columns that CHECKs of a value's table state."""
    [number] = flat.leaves_of(value)
    leaf = flat.leaves[number]
    table = blocks.catalog.resolve(leaf.table) if isinstance(leaf, Scan) else None
    if table is None or not isinstance(leaf, Scan):
        return []
    columns = {name.casefold(): Ref(column) for name, column in leaf.read}
    found = []
    for text in (one for check in blocks.catalog.checks(table) for one in _conditions(check)):
        match = _ORDERED.fullmatch(text)
        sides = [columns.get(match[place].strip('"').casefold()) for place in (1, 3)] if match else []
        if match and sides[0] is not None and sides[1] is not None:
            found.append(_upwards(Compare(match[2], sides[0], sides[1])))  # type: ignore[arg-type]
    return found


def _conditions(check: str) -> list[str]:
    """The conditions of a CHECK, as DuckDB prints them: each AND in parentheses. None if it has text in quotes."""
    text = check.strip()
    if "'" in text:
        return []
    depths = list(accumulate((char == "(") - (char == ")") for char in text))
    while text.startswith("(") and 0 not in depths[:-1]:
        text = text[1:-1].strip()
        depths = list(accumulate((char == "(") - (char == ")") for char in text))
    places = [match.start() for match in re.finditer(r"\bAND\b", text) if depths[match.start()] == 0]
    if not places:
        return [text]
    starts, ends = [0, *(place + len("AND") for place in places)], [*places, len(text)]
    return [one for start, end in zip(starts, ends) for one in _conditions(text[start:end])]


# Their sum --------------------------------------------------------------------------------------------


def _is_summed(one: Aggregated) -> bool:
    """Whether an aggregate is a count, or a sum of exact numbers."""
    is_sum = function_name(one.form) == "sum" and is_exact_number(one.column.type)
    return (is_sum or function_name(one.form) in COUNTS) and not one.distinct and not one.order


def _rows(shape: Shape, flat: FlatJoin, parts: Sequence[_Part], blocks: Blocks) -> Term:
    """The rows of all parts."""
    columns = [column for column in shape.core.columns if column in shape.read]
    return _union([_copied(flat, part, columns, blocks) for part in parts], columns)


def _summed(shape: Shape, flat: FlatJoin, parts: Sequence[_Part], blocks: Blocks) -> Shape:
    """The groups of all parts, added up with their signs. A group without rows is left out."""
    new, counted = blocks.new, "count({before}{behind})"
    made = [Aggregated(new.column("rows", "BIGINT"), counted)]
    for one in shape.aggregates:
        made.append(replace(one, column=new.like(one.column)))
        if function_name(one.form) == "sum":
            count = replace(one, column=new.column("present", "BIGINT"), form="count({before}{0}{behind})")
            made.append(count)
    groups = shape.groups
    read = columns_of(*(value for one in made for value in (*one.arguments, one.filter))) | {*groups}
    columns = [column for column in shape.core.columns if column in read]
    branches = [_groups_of(_copied(flat, part, columns, blocks), columns, part, groups, made, blocks) for part in parts]
    union = _union(branches, [*groups, *(one.column for one in made)])
    totals = {
        one.column: Aggregated(
            new.column(one.column.name, _total_type(one.column)), "sum({before}{0}{behind})", (Ref(one.column),)
        )
        for one in made
    }
    values: dict[Column, Scalar] = {}
    following = iter(made[1:])
    for one in shape.aggregates:
        total = cast(Ref(totals[next(following).column].column), one.column.type)
        values[one.column] = total
        if function_name(one.form) == "sum":
            values[one.column] = call(
                "CASE WHEN {0} THEN {1} END", total.type, _positive(totals[next(following).column]), total
            )
    having = [] if shape.having is None else [substitute(shape.having, values)]
    having += [_positive(totals[made[0].column])] if groups else []
    found = replace(
        shape, core=union, aggregates=tuple(totals.values()), having=conjunction(having) if having else None
    )
    found.substitute(values)
    return found


def _total_type(column: Column) -> str:
    return "HUGEINT" if column.type in INTEGER_BITS else column.type


def _positive(total: Aggregated) -> Compare:
    return Compare(">", Ref(total.column), Constant("0", "INTEGER"))


def _groups_of(
    rows: Map,
    columns: Sequence[Column],
    part: _Part,
    groups: Sequence[Column],
    made: Sequence[Aggregated],
    blocks: Blocks,
) -> Term:
    """The groups of a part, with their aggregates, negated if the part counts once less."""
    own = dict(zip(columns, rows.columns, strict=True))
    refs: dict[Column, Scalar] = {old: Ref(column) for old, column in own.items()}
    over = [
        replace(
            one,
            column=blocks.new.like(one.column),
            arguments=tuple(substitute(value, refs) for value in one.arguments),
            filter=substitute(one.filter, refs),
        )
        for one in made
    ]
    grouped = Aggregate(rows, tuple(own[column] for column in groups), tuple(over))
    if part.sign > 0:
        return grouped
    negated = [Made(blocks.new.like(one.column), call("-{0}", one.column.type, Ref(one.column))) for one in over]
    return Map(grouped, (*(Made(column, Ref(column)) for column in grouped.groups), *negated))


def _copied(flat: FlatJoin, part: _Part, columns: Sequence[Column], blocks: Blocks) -> Map:
    """A part in columns of its own."""
    copies = Copies(blocks.new)
    leaves = [copies.copy(leaf) for leaf in flat.leaves]
    refs: dict[Column, Scalar] = {old: Ref(new) for leaf in leaves for old, new in leaf.columns.items()}
    aliases = blocks.notes.aliases
    aliases |= {new: aliases[old] for leaf in leaves for old, new in leaf.columns.items() if old in aliases}
    rows = joined([leaf.term for leaf in leaves], [substitute(one, refs) for one in part.conditions])
    values = (substitute(flat.values.get(column, Ref(column)), refs) for column in columns)
    return Map(rows, tuple(Made(blocks.new.like(column), value) for column, value in zip(columns, values)))


def _union(branches: Sequence[Term], columns: Sequence[Column]) -> Term:
    """The rows of all branches in these columns."""
    *firsts, last = branches
    if not firsts:
        return Map(last, tuple(Made(column, Ref(own)) for column, own in zip(columns, last.columns, strict=True)))
    for branch in reversed(firsts):
        shown = tuple(columns) if branch is firsts[0] else last.columns
        last = SetOperation("union", True, branch, last, shown)
    return last

"""Calls that are no scalars of a row: aggregates, windows, unnest. Each is a Call until its block gives it a column.

As a Call it prints as SQL, so DuckDB tells its type together with the expressions around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlfront.planner.algebra.scalars import TRUE, Call, Column, Scalar, parts_of, with_parts
from sqlfront.planner.algebra.terms import Aggregated, Sort, Windowed

Direction = tuple[bool, bool]


@dataclass(frozen=True)
class AggregateCall(Call):
    """An aggregate: its arguments, then what they are ordered by, then the condition of FILTER if there is one.

    `template` is the form of an `Aggregated`, `directions` those of its order.
    """

    template: str = ""
    directions: tuple[Direction, ...] = ()
    distinct: bool = False
    filtered: bool = False

    def aggregated(self, column: Column) -> Aggregated:
        values = list(self.arguments)
        condition = values.pop() if self.filtered else TRUE
        count = len(values) - len(self.directions)
        order = _sorts(values[count:], self.directions)
        return Aggregated(column, self.template, tuple(values[:count]), self.distinct, order, condition)


@dataclass(frozen=True)
class WindowCall(Call):
    """A window function: `counts` of its arguments and of PARTITION BY, then both orders, then FILTER's condition.

    `number` is that of its definition among those of its block.
    """

    template: str = ""
    counts: tuple[int, int] = (0, 0)
    directions: tuple[Direction, ...] = ()
    argument_directions: tuple[Direction, ...] = ()
    frame: str = ""
    distinct: bool = False
    filtered: bool = False
    number: int = field(default=-1, compare=False)

    def windowed(self, column: Column) -> Windowed:
        values = list(self.arguments)
        condition = values.pop() if self.filtered else TRUE
        lengths = (*self.counts, len(self.directions), len(self.argument_directions))
        parts = []
        for length in lengths:
            parts.append(values[:length])
            del values[:length]
        return Windowed(
            column, self.template, tuple(parts[0]), tuple(parts[1]), _sorts(parts[2], self.directions), self.frame,
            condition, self.distinct, _sorts(parts[3], self.argument_directions),
        )  # fmt: skip


@dataclass(frozen=True)
class ElementCall(Call):
    """unnest(list): each element in a row of its own."""


@dataclass(frozen=True)
class GroupingCall(Call):
    """GROUPING(a, b): which of its arguments a grouping set leaves out."""


def aggregate_call(
    template: str, arguments: Sequence[Scalar], order: Sequence[Sort], distinct: bool, condition: Scalar | None
) -> AggregateCall:
    values = [*arguments, *(item.value for item in order), *([condition] if condition is not None else [])]
    places = iter(range(len(arguments), len(values)))
    text = _called(template, len(arguments), distinct, _ordered(order, places))
    if condition is not None:
        text += f" FILTER (WHERE {_slot(next(places))})"
    return AggregateCall(
        form(text), tuple(values), "", template=template, directions=_directions(order), distinct=distinct,
        filtered=condition is not None,
    )  # fmt: skip


def window_call(
    template: str, arguments: Sequence[Scalar], partition: Sequence[Scalar], order: Sequence[Sort], frame: str,
    distinct: bool, argument_order: Sequence[Sort], condition: Scalar | None,
) -> WindowCall:  # fmt: skip
    sorts = [item.value for item in (*order, *argument_order)]
    values = [*arguments, *partition, *sorts, *([condition] if condition is not None else [])]
    places = iter(range(len(arguments), len(values)))
    parts = ", ".join(_slot(next(places)) for _ in partition)
    by, over = f"PARTITION BY {parts} " if parts else "", _ordered(order, places)
    text = _called(template, len(arguments), distinct, _ordered(argument_order, places))
    if condition is not None:
        text += f" FILTER (WHERE {_slot(next(places))})"
    return WindowCall(
        form(f"{text} OVER ({by}{over} {frame})"), tuple(values), "", template=template,
        counts=(len(arguments), len(partition)), directions=_directions(order),
        argument_directions=_directions(argument_order), frame=frame, distinct=distinct,
        filtered=condition is not None,
    )  # fmt: skip


def form(text: str) -> str:
    """A form of a text in which slots stand for the arguments: other braces are doubled."""
    escaped = text.replace("{", "{{").replace("}", "}}")
    return escaped.replace(_BEGIN, "{").replace(_END, "}")


def slot(number: int) -> str:
    """What stands for an argument in a text that becomes a form."""
    return _slot(number)


def replaced(scalar: Scalar, change: Callable[[Scalar], Scalar | None]) -> Scalar:
    """An expression in which each part that `change` answers for is replaced; it is not asked below a replacement."""
    changed = change(scalar)
    if changed is not None:
        return changed
    parts = parts_of(scalar)
    new = tuple(replaced(part, change) for part in parts)
    return scalar if all(a is b for a, b in zip(new, parts)) else with_parts(scalar, new)


def outermost(scalar: Scalar, kind: type[Call]) -> Iterator[Call]:
    """The calls of a kind that are in no other of it."""
    if isinstance(scalar, kind):
        yield scalar
        return
    for part in parts_of(scalar):
        yield from outermost(part, kind)


_BEGIN, _END = "\x01", "\x02"


def _slot(number: int) -> str:
    return f"{_BEGIN}{number}{_END}"


def _called(template: str, count: int, distinct: bool, order: str) -> str:
    behind = f" {order}" if order else ""
    return template.format(*map(_slot, range(count)), before="DISTINCT " if distinct else "", behind=behind)


def _ordered(order: Sequence[Sort], places: Iterator[int]) -> str:
    items = (
        f"{_slot(next(places))} {'DESC' if item.descending else 'ASC'} NULLS {'FIRST' if item.nulls_first else 'LAST'}"
        for item in order
    )
    return f"ORDER BY {', '.join(items)}" if order else ""


def _directions(order: Sequence[Sort]) -> tuple[Direction, ...]:
    return tuple((item.descending, item.nulls_first) for item in order)


def _sorts(values: Sequence[Scalar], directions: Sequence[Direction]) -> tuple[Sort, ...]:
    return tuple(Sort(value, *direction) for value, direction in zip(values, directions, strict=True))

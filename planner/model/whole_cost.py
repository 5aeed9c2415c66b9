"""The cost of a view whose query has blocks that are kept as views of their own: the worst of the view and its blocks.

A cost is a sum of one power of N, perhaps times log N, and of named terms, such as the change of a result. The worst of
several costs has the highest of their powers and all of their named terms. Reading the view reads no block, so the
delay is the view's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlfront.planner.model.plan import Cost

_POWER = re.compile(r"(1|N(?:\^(?:[\d.]+|\([\d/]+\)))?)?( ?log N)?")
_AMORTISED = " amortised"
_BLOCKS = (
    ("change of every intermediate result", "change of every intermediate result of a block"),
    ("intermediate results", "intermediate results of a block"),
    ("the extended result", "a block's extended result"),
    ("values kept", "values kept of a block"),
)


@dataclass(frozen=True)
class Block:
    """A block as its view's cost counts it: what people call it, and what it costs.

    The view stores the block's rows. `wide`: their number is not bounded by that of a table of the block; `spreads`:
    one changed row of a table may change many of them.
    """

    label: str
    cost: Cost
    wide: bool = False
    spreads: bool = False

    def spelled(self, field: str) -> str:
        """One of the costs in the words of the view that has the block."""
        text = getattr(self.cost, field)
        for own, said in _BLOCKS:
            text = text.replace(own, said)
        text = re.sub(r"(?<!block's )(?<!extended )\b(extended result|result)\b(?! of a block)", r"a block's \1", text)
        stored = (
            self.spreads and "change of a block's result" if field == "update" else self.wide and "a block's result"
        )
        if stored and "result" not in text:
            power, named, amortised = _parsed(text)
            text = _spell(power, (*named, stored), amortised)
        return text


def whole_cost(own: Cost, blocks: Iterable[Block]) -> Cost:
    """The worst of a view's own cost and those of its blocks; its delay is its own."""
    from sqlfront.planner.model.plan import Cost

    kept = tuple(blocks)
    if not kept:
        return own
    worst = {f: _worst([getattr(own, f), *(one.spelled(f) for one in kept)]) for f in FIELDS}
    return Cost(worst["preprocessing"], worst["update"], own.delay, worst["space"])


FIELDS = ("preprocessing", "update", "space")
"""The costs to which blocks add."""


def deciding(own: Cost, blocks: Iterable[Block]) -> dict[str, str | None]:
    """For each of the costs the block that decides it; None where it is the view itself, or where they are alike."""
    kept = tuple(blocks)
    found: dict[str, str | None] = {"delay": None}
    for field in FIELDS:
        costs = [(getattr(own, field), None), *((one.spelled(field), one.label) for one in kept)]
        found[field] = max(costs, key=lambda item: _rank(item[0]))[1]
    return found


def spell_deciding(decided: Mapping[str, str | None]) -> list[str]:
    """The blocks that decide costs, each with these."""
    labels = dict.fromkeys(label for label in decided.values() if label is not None)
    return [f"{one}: {', '.join(cost for cost, label in decided.items() if label == one)}" for one in labels]


def _worst(costs: list[str]) -> str:
    parsed = [_parsed(cost) for cost in costs]
    power = max((one[0] for one in parsed), key=_size)
    named = tuple(dict.fromkeys(term for one in parsed for term in one[1]))
    named = tuple(term for term in named if f"{term} * log N" not in named)
    return _spell(power, named, any(one[2] for one in parsed))


def _rank(cost: str) -> tuple[bool, tuple[Fraction, bool], int]:
    """Costs with named terms, which N does not bound, are worse than others."""
    power, named, _ = _parsed(cost)
    return bool(named), _size(power), len(named)


def _parsed(cost: str) -> tuple[str, tuple[str, ...], bool]:
    """The power of a cost, its named terms, and whether it is amortised."""
    amortised = cost.endswith(_AMORTISED)
    inside = cost.removesuffix(_AMORTISED).removeprefix("O(").removesuffix(")")
    factor = ""
    if inside.startswith("(") and inside.endswith(") log N"):
        inside, factor = inside[1 : -len(") log N")], " log N"
    power, named = "1", list[str]()
    for term in inside.split(" + "):
        if _POWER.fullmatch(term):
            power = max(power, f"{term}{factor}" if term != "1" or not factor else "log N", key=_size)
        else:
            named.append(f"{term} *{factor}" if factor else term)
    return power, tuple(named), amortised


def _size(power: str) -> tuple[Fraction, bool]:
    """By which powers of N compare: the exponent, and whether it is times log N."""
    found = _POWER.fullmatch(power)
    assert found is not None
    base, _, raised = (found[1] or "1").partition("^")
    return Fraction(raised.strip("()") or int(base == "N")), found[2] is not None


def _spell(power: str, named: tuple[str, ...], amortised: bool) -> str:
    return f"O({' + '.join((power, *named))})" + _AMORTISED * amortised

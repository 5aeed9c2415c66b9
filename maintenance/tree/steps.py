"""The steps of a path: how a delta is joined with the siblings it meets on its way up a view tree."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlfront.planner.model.query import Comparison

if TYPE_CHECKING:
    from sqlfront.maintenance.tree.view_node import View


@dataclass(frozen=True)
class Step:
    """A look-up on a path: of one row by its whole key ("row"), of the sum of a group ("message"), of the sum of those
    of its members that meet `comparisons`, which bound the variable that it is sorted by ("range sum"), or these and
    others `beside` them, which bound another variable ("box sum"), or of all
    members of a group ("members"); `key` are the variables looked up by. `multiply`: the view's values count.
    `partners` are views, with their keys, that must have the variables bound by "members" too.
    Or ("range") of the members that meet `comparisons`, which bound the variable that the group is sorted by, and the
    one `beside` them, if any, which bounds a variable of whose extremes the group knows. Or
    ("filter") no look-up, but `comparisons` over the variables `key`, which a row of `view` must meet. `inside`: an
    optional view around the view may have a row of NULLs, which then meets one of the view's."""

    view: View
    access: Literal["row", "message", "range sum", "box sum", "members", "range", "filter"]
    key: tuple[str, ...]
    multiply: bool
    partners: tuple[tuple[View, tuple[str, ...]], ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    inside: bool = False
    beside: tuple[Comparison, ...] = ()

    @property
    def lists(self) -> bool:
        return self.access in ("members", "range")

    @property
    def binds(self) -> bool:
        """Whether the view's variables are known after the step."""
        return self.access not in ("filter", "range sum", "box sum")

    @property
    def compared(self) -> str:
        """The variable that a range is sorted by, or a co-sorted one: the side of its first comparison that is not
        bound before."""
        return self._fresh_side(self.comparisons[0])

    @property
    def compared_beside(self) -> str:
        """The same of the comparisons beside them."""
        return self._fresh_side(self.beside[0])

    def _fresh_side(self, test: Comparison) -> str:
        return test.right if test.right in self.fresh else test.left

    @property
    def tests(self) -> tuple[Comparison, ...]:
        """All comparisons that what a step looks up meets."""
        return (*self.comparisons, *self.beside)

    @property
    def fresh(self) -> frozenset[str]:
        """The variables that listing the view's members binds."""
        return frozenset(self.view.link) - frozenset(self.key)

    @property
    def read(self) -> frozenset[str]:
        """The variables that the step reads, if they are bound."""
        return frozenset(self.key).union(*(test.scheme for test in self.tests))


def join_rank(view: View, bound: frozenset[str], parent: View) -> tuple[bool, bool, bool, bool, int, int]:
    """How soon a delta that has bound these variables should join a view of a parent; of equals the first is joined
    first. What is only compared waits for what it is compared with, what may be missing for what says of which key."""
    shared, fresh = bound & set(view.link), set(view.link) - bound
    named = fresh <= set(parent.node.variables)
    waits = view.presence != "required"
    return not waits, not fresh, named, bool(shared), -len(fresh) if parent.node.is_bag else 0, len(shared)


def is_lower(test: Comparison, variables: Set[str]) -> bool:
    """Whether a comparison, no <>, bounds the side that is one of these from below."""
    return (test.operator in ("<", "<=")) == (test.right in variables)


def ready_tests(
    view: View, bound: Set[str], before: Set[str] = frozenset(), met: Sequence[Comparison] = ()
) -> list[Step]:
    """The test, if any, of what a view compares that is `bound` now, was not `before`, and is not `met` already."""
    ready = [
        test for test in view.node.comparisons if test.scheme <= bound and not test.scheme <= before and test not in met
    ]
    key = dict.fromkeys(variable for test in ready for variable in (test.left, test.right))
    return [Step(view, "filter", tuple(key), False, comparisons=tuple(ready))] if ready else []

"""The share of a group's rows that comparisons let pass, estimated from pairs of sampled rows.

Tables are sampled with fixed seeds, so the same rows give the same shares. Pairs have equal values in the columns that
join the two tables, as far as rows are looked up by these: in a table of all days, the rows within an hour are a larger
share of those of one day. Comparisons between different pairs of tables count as independent.

Cost: O(SAMPLE log SAMPLE + PAIRS) for two tables, once. A share below 1 / PAIRS is told apart from 0 by chance only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlfront.maintenance.view.sizes import mixed
from sqlfront.planner.model.nearest_rows import MIRRORED
from sqlfront.storage.codecs.order import Places, equality_places, order_places
from sqlfront.storage.kernels.layout import NULL_CODE, ORDER_BYTES, ORDER_HIGH, ORDER_LOW_WORD
from sqlfront.storage.stores.sampled_rows import sampled_rows

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import LeafStore
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.planner.model.query import Comparison

SAMPLE = 1 << 12
"""Places for rows that are drawn of a table."""
PAIRS = 1 << 16
"""Pairs of sampled rows that are compared."""

Known = dict[object, float | None]
"""Shares that are known, by the stores and columns that they are of."""

_OPERATORS: Mapping[str, Callable[[Any, Any], np.ndarray]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<>": operator.ne,
    "IS DISTINCT FROM": operator.ne,
}


class PairTest(NamedTuple):
    """A comparison of an expression of one store with one of another store; `places` say how their words compare."""

    left: str
    operator: str
    right: str
    places: Places


class RangeShares:
    """The shares of the comparisons of a view, or of its distinct values; shares that are `known` already are those of
    its stores, whatever its tree is."""

    def __init__(self, member: MaintainedView, known: Known | None = None) -> None:
        self._codecs = member.codecs
        self._known = {} if known is None else known
        self._stores = {atom: source.store for atom, source in member.sources.items()}
        self._names = {
            atom: {column.name: column.expression for column in member.definition.atom(atom).variables}
            for atom in member.sources
        }

    def of(self, tests: Sequence[Comparison], key: Iterable[str] | None = None) -> float | None:
        """The share of pairs that meet all comparisons, among those that are equal in the variables of `key` that both
        tables have; by default in all of them. None if nothing is known: a table is empty, or text is compared."""
        atoms = self._covering(frozenset[str]().union(*(test.scheme for test in tests)))
        sides: dict[tuple[str, str], list[PairTest]] = {}
        for test in tests:
            left, right = atoms[test.left], atoms[test.right]
            places = (order_places if test.is_order else equality_places)(self._codecs[test.left], 0)
            own = PairTest(self._names[left][test.left], test.operator, self._names[right][test.right], places)
            if (right, left) in sides:
                left, right, own = right, left, _mirrored(own)
            sides.setdefault((left, right), []).append(own)
        shares = [self._share(*pair, own, key) for pair, own in sides.items()]
        found = [share for share in shares if share is not None]
        return prod(found) if len(found) == len(shares) else None

    def _covering(self, variables: frozenset[str]) -> dict[str, str]:
        """An atom for each variable: atoms with many of them come first, as the values of a row belong together."""
        atoms: dict[str, str] = {}
        while missing := variables - atoms.keys():
            most = max(self._names, key=lambda atom: len(missing & self._names[atom].keys()))
            atoms.update(dict.fromkeys(missing & self._names[most].keys(), most))
        return atoms

    def _share(self, one: str, other: str, tests: Sequence[PairTest], key: Iterable[str] | None) -> float | None:
        both = self._names[one].keys() & self._names[other].keys()
        equal = sorted(both if key is None else both & set(key))
        keys = [(self._names[one][name], self._names[other][name]) for name in equal]
        stores = self._stores[one], self._stores[other]
        compared = tuple((test.left, test.operator, test.right) for test in tests)
        place = *map(id, stores), compared, tuple(keys)
        if place not in self._known:
            self._known[place] = measured_share(*stores, keys, tests)
        return self._known[place]


def measured_share(
    one: LeafStore, other: LeafStore, keys: Sequence[tuple[str, str]], tests: Sequence[PairTest]
) -> float | None:
    """The share of the pairs of rows of two stores with equal `keys` that meet all tests, by a sample of each; None if
    there is no such pair in it, or text is compared."""
    if any(kind == ORDER_BYTES for test in tests for _, kind, _ in test.places):
        return None
    left, right = _Sample(one, 0), _Sample(other, 1)
    mine, theirs = left.hashes([key for key, _ in keys]), right.hashes([key for _, key in keys])
    rows, others = _pairs(mine, theirs, any_pair=not keys)
    if not len(rows):
        return None
    passing = np.ones(len(rows), np.bool_)
    for test in tests:
        mine, theirs = (
            side.words(name)[at] for side, name, at in ((left, test.left, rows), (right, test.right, others))
        )
        passing &= _OPERATORS[test.operator](_compared(mine, theirs, test.places), 0)
        if test.operator != "IS DISTINCT FROM":
            passing &= (mine[:, 0] != NULL_CODE) & (theirs[:, 0] != NULL_CODE)
    return float(passing.mean())


def _compared(left: np.ndarray, right: np.ndarray, places: Places) -> np.ndarray:
    """Below 0 where the words of a value at the left come before those at the right, 0 where they are equal."""
    found = np.zeros(len(left), np.int8)
    for number, (_, kind, operand) in enumerate(places):
        one, other = (np.ascontiguousarray(side[:, number]) for side in (left, right))
        if kind == ORDER_HIGH:  # What stands for the least value.
            one, other = (np.where(side == operand, NULL_CODE, side) for side in (one, other))
        elif kind == ORDER_LOW_WORD:
            one, other = one.view(np.uint64), other.view(np.uint64)
        found = np.where(found == 0, (one > other).astype(np.int8) - (one < other).astype(np.int8), found)
    return found


def _mirrored(test: PairTest) -> PairTest:
    return PairTest(test.right, MIRRORED.get(test.operator, test.operator), test.left, test.places)


class _Sample:
    """The words of sampled rows of a store."""

    def __init__(self, store: LeafStore, seed: int) -> None:
        self._words = sampled_rows(store.table, SAMPLE, seed)
        starts = np.cumsum([0, *store.widths])
        self._places = {
            column.expression: range(int(starts[number]), int(starts[number + 1]))
            for number, column in enumerate(store.variables)
        }

    def words(self, expression: str) -> np.ndarray:
        """The words of a column, row after row."""
        return self._words[:, list(self._places[expression])]

    def hashes(self, expressions: Sequence[str]) -> np.ndarray:
        """A number for each row's values of some columns."""
        return mixed(self._words, [place for one in expressions for place in self._places[one]])


def _pairs(one: np.ndarray, other: np.ndarray, *, any_pair: bool) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of rows that are pairs: all with equal numbers, or PAIRS of them, each as likely."""
    if any_pair:
        return np.divmod(_some(len(one) * len(other)), max(len(other), 1))
    order = np.argsort(other, kind="stable")
    first, last = (np.searchsorted(other[order], one, side) for side in ("left", "right"))
    ends = np.cumsum(last - first)
    drawn = _some(int(ends[-1]) if len(ends) else 0)
    rows = np.searchsorted(ends, drawn, "right")
    return rows, order[first[rows] + drawn - (ends - (last - first))[rows]]


def _some(total: int) -> np.ndarray:
    """All numbers below a total, or PAIRS of them."""
    return np.arange(total) if total <= PAIRS else np.random.default_rng(2).integers(total, size=PAIRS)

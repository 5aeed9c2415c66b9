"""Asymptotic bounds as values: a power of N, perhaps times log N, plus named terms that N does not bound.

N is the number of rows in the view's tables. A bound is put into words by `str()` alone: O(N^1.5 log N) amortised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True)
class Quantity:
    """A number that N does not bound, in the words of the view that has it, and of a view that has that as a block.

    `positive`: it is never 0, so nothing is added to it where a bound is constant otherwise. `is_result`: the rows of a
    result, or their change, are within it.
    """

    words: str
    of_block: str
    positive: bool = False
    is_result: bool = False


RESULT = Quantity("result", "a block's result", is_result=True)
RESULT_CHANGE = Quantity("change of the result", "change of a block's result", is_result=True)
EXTENDED_RESULT = Quantity("extended result", "a block's extended result", is_result=True)
EXTENDED_CHANGE = Quantity("change of the extended result", "change of a block's extended result", is_result=True)
INTERMEDIATE_RESULTS = Quantity("intermediate results", "intermediate results of a block", is_result=True)
INTERMEDIATE_CHANGE = Quantity(
    "change of every intermediate result", "change of every intermediate result of a block", is_result=True
)
VALUES_KEPT = Quantity("values kept", "values kept of a block")
VALUES_CHANGE = Quantity("change of the values kept", "change of the values kept of a block")
GROUP_VALUES = Quantity("distinct values of the group", "distinct values of a block's group", positive=True)
LIST_VALUES = Quantity("values of the list", "values of a block's list", positive=True)
ROWS_READ = Quantity("rows", "rows", positive=True)
BLOCK_ROWS = Quantity("rows", "rows")
TOUCHED_ROWS = Quantity("rows of the touched groups", "rows of the touched groups")
FRAME_ROWS = Quantity("rows of the frames around the row", "rows of a block's frames")
TOUCHED_ISLANDS = Quantity("rows of the touched islands", "rows of the touched islands")
RANGES_MET = Quantity("rows whose ranges have the row", "rows of a block whose ranges have the row")
BOXES_MET = Quantity("rows within their boxes", "rows of a block within boxes")
LATER_ISLANDS = Quantity("later islands of the partition", "later islands of the partition")
SORTED_ROWS = Quantity("rows log rows", "rows log rows", positive=True)


@dataclass(frozen=True)
class Term:
    """A quantity times a power of N and one of log N."""

    quantity: Quantity
    power: Fraction = Fraction(0)
    logs: int = 0
    of_block: bool = False

    def __str__(self) -> str:
        words = self.quantity.of_block if self.of_block else self.quantity.words
        return f"{words} * {_spell(self.power, self.logs)}" if self.power or self.logs else words

    def is_within(self, other: Term) -> bool:
        """Whether the other is as much of the same, or more."""
        alike = (self.quantity, self.of_block) == (other.quantity, other.of_block)
        return alike and (self.power, self.logs) <= (other.power, other.logs)


@dataclass(frozen=True)
class Bound:
    """O(N^power * (log N)^logs + terms). `remark` qualifies it in words, after it.

    Bounds are ordered by growth. Named terms, which N does not bound, make a bound worse than any without.
    """

    power: Fraction = Fraction(0)
    logs: int = 0
    terms: tuple[Term, ...] = ()
    amortised: bool = False
    remark: str = ""

    def __str__(self) -> str:
        main, terms = _spell(self.power, self.logs), list(map(str, self.terms))
        shared = self.power and self.logs and all(t.logs == self.logs and not t.of_block for t in self.terms)
        if terms and shared:
            plain = (str(replace(term, logs=0)) for term in self.terms)
            main, terms = f"({' + '.join((_spell(self.power, 0), *plain))}) {_spell(Fraction(0), self.logs)}", []
        hidden = main == "1" and terms and all(term.quantity.positive for term in self.terms)
        inside = " + ".join(terms if hidden else (main, *terms))
        return f"O({inside}){' amortised' if self.amortised else ''}{self.remark}"

    def __lt__(self, other: Bound) -> bool:
        return self.growth < other.growth

    @property
    def growth(self) -> tuple[bool, Fraction, int, int, int]:
        """The key by which bounds are ordered."""
        return bool(self.terms), self.power, self.logs, len(self.terms), len(self.remark)

    @property
    def is_constant(self) -> bool:
        """Whether this is O(1), amortised or not."""
        return not (self.power or self.logs or self.terms)

    @property
    def leading(self) -> Bound:
        """The power of N with its logarithms, without anything else."""
        return Bound(self.power, self.logs)

    def plus(self, *quantities: Quantity) -> Bound:
        """This bound and named terms."""
        return replace(self, terms=(*self.terms, *map(Term, quantities)))

    def in_order(self) -> Bound:
        """The cost of so many rows, each entered in an order: a logarithm for each."""
        terms = tuple(replace(term, logs=max(term.logs, 1)) for term in self.terms)
        return replace(self, logs=max(self.logs, 1), terms=terms)

    def of_each(self, rows: Bound) -> Bound:
        """This bound for each of so many rows. A named term stays as it is: it counts the rows of a whole epoch."""
        if rows.is_constant and not rows.amortised:
            return self
        more = (replace(t, power=t.power + self.power, logs=t.logs + self.logs) for t in rows.terms)
        terms = tuple(dict.fromkeys((*self.terms, *more)))
        amortised = self.amortised or rows.amortised
        return Bound(self.power + rows.power, self.logs + rows.logs, terms, amortised, self.remark)

    def of_block(self) -> Bound:
        """The same in the words of a view that has this as the cost of a block."""
        return replace(self, terms=tuple(replace(term, of_block=True) for term in self.terms))


TO_THE_FIRST = " to the first row"
"""The remark of a delay that is met before the first row only: the others follow at O(1)."""


def between_rows(delay: Bound) -> str:
    """A delay in a sentence."""
    if delay.remark == TO_THE_FIRST:
        return str(delay)
    return f"{replace(delay, remark='')} between rows{delay.remark}"


CONSTANT_BOUND, LOGARITHMIC_BOUND, LINEAR_BOUND = Bound(), Bound(logs=1), Bound(Fraction(1))


def worst(bounds: Iterable[Bound]) -> Bound:
    """A bound of the sum of several: the highest power and all named terms; amortised if a bound is."""
    kept = tuple(bounds)
    leading = max(bound.leading for bound in kept)
    terms = dict.fromkeys(term for bound in kept for term in bound.terms)
    highest = tuple(term for term in terms if not any(term.is_within(other) for other in terms if other != term))
    return replace(leading, terms=highest, amortised=any(bound.amortised for bound in kept))


def _spell(power: Fraction, logs: int) -> str:
    """1, N, N^1.5, N^(4/3) log N, log N."""
    decimal = f"{float(power):.6g}"
    raised = "" if power == 1 else f"^{decimal}" if Fraction(decimal) == power else f"^({power})"
    logarithm = "log N" if logs == 1 else f"log^{logs} N" if logs else ""
    return " ".join(filter(None, (f"N{raised}" if power else "", logarithm))) or "1"

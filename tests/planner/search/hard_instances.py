"""The hard instances of Berkholz, Keppeler and Schweikardt 2017, section 5, as streams of SQL statements.

From a violation (x, y; atoms psi_x, psi_xy, psi_y) a matrix M goes into the table of psi_xy and vectors into those of
psi_x and psi_y, one round after the other; all other atoms are full. Variable x takes the values 1..n, y 1001..1000+n,
each other one a value of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from sqlfront.planner.model.query import Atom, Definition
from sqlfront.planner.theory.hierarchy import Violation

Vector = list[bool]
Row = tuple[int, ...]
Pairs = list[tuple[int, int]]
"""The (i, j) with u_i, M_ij and v_j, as the values of x and y."""


@dataclass
class Instance:
    """One run: `start()` fills the tables, each of `rounds()` changes the vectors; `pairs` is the present truth.

    `columns` are the tables' columns, all BIGINT.
    """

    definition: Definition
    violation: Violation
    columns: dict[str, tuple[str, ...]]
    size: int
    seed: int = 7
    pairs: Pairs = field(default_factory=list)
    ones: list[Row] = field(default_factory=list)

    def start(self) -> Iterator[str]:
        random = Random(self.seed)
        self._matrix = [[random.random() < 0.2 for _ in range(self.size)] for _ in range(self.size)]
        self._held: dict[str, set[Row]] = {}
        self._random = random
        witness = {self.violation.both[0], self.violation.only_y[0], *self.violation.only_x[:1]}
        for atom in self.definition.atoms:
            if atom.name not in witness or (self._is_free and atom.name in self.violation.only_x):
                yield from self._put(atom, lambda i, j: True)
        yield from self._put(self.definition.atom(self.violation.both[0]), lambda i, j: self._matrix[i][j])

    def rounds(self, count: int) -> Iterator[list[str]]:
        """The statements of each round; OuMv changes both vectors, OMv (a free violation) the one of y."""
        u: Vector = [self._is_free] * self.size
        v: Vector = [False] * self.size
        for _ in range(count):
            statements = []
            if not self._is_free:
                statements += self._turn(self.violation.only_x[0], u, old_first=True)
            statements += self._turn(self.violation.only_y[0], v, old_first=False)
            wanted = [
                (i, j) for i in range(self.size) for j in range(self.size) if u[i] and self._matrix[i][j] and v[j]
            ]
            self.pairs = [(1 + i, 1001 + j) for i, j in wanted]
            self.ones = [(1 + i,) for i in range(self.size) if u[i]] + [(1001 + j,) for j in range(self.size) if v[j]]
            yield statements

    @property
    def _is_free(self) -> bool:
        return self.violation.condition != "hierarchical"

    def value(self, variable: str) -> int:
        """The constant that stands for a variable other than x and y."""
        names = sorted({column.name for atom in self.definition.atoms for column in atom.variables})
        return 5000 + names.index(variable)

    def _turn(self, name: str, vector: Vector, *, old_first: bool) -> list[str]:
        """A new random vector, as deletes and inserts of one atom's rows."""
        atom = self.definition.atom(name)
        old = list(vector)
        vector[:] = [self._random.random() < 0.3 for _ in range(self.size)]
        rows = [self._row(atom, i, i) for i in range(self.size)]
        gone = [row for row, was, now in zip(rows, old, vector, strict=True) if was and not now]
        new = [row for row, was, now in zip(rows, old, vector, strict=True) if now and not was]
        conditions = " OR ".join(f"({self._where(atom, row)})" for row in gone)
        deletes = [f"DELETE FROM {atom.table} WHERE {conditions}"] if gone else []
        inserts = [f"INSERT INTO {atom.table} VALUES {', '.join(map(_spelled, new))}"] if new else []
        return deletes + inserts if old_first else inserts + deletes

    def _put(self, atom: Atom, holds: Callable[[int, int], bool]) -> Iterator[str]:
        rows = {self._row(atom, i, j) for i in range(self.size) for j in range(self.size) if holds(i, j)}
        fresh = sorted(rows - self._held.setdefault(atom.table, set()))
        self._held[atom.table] |= rows
        if fresh:
            yield f"INSERT INTO {atom.table} VALUES {', '.join(map(_spelled, fresh))}"

    def _row(self, atom: Atom, i: int, j: int) -> Row:
        """The atom's row for x = 1 + i and y = 1001 + j; columns that the query does not name hold 0."""
        special = {self.violation.x: 1 + i, self.violation.y: 1001 + j}
        held = {c.source: special[c.name] if c.name in special else self.value(c.name) for c in atom.variables}
        for condition in atom.conditions:
            one, other = (side.strip('"') for side in condition.equates or ("", ""))
            if one in held or other in held:
                held[one] = held[other] = held.get(one, held.get(other, 0))
        return tuple(held.get(column, 0) for column in self.columns[atom.table.removeprefix("main.")])

    def _where(self, atom: Atom, row: Row) -> str:
        names = self.columns[atom.table.removeprefix("main.")]
        return " AND ".join(f"{name} = {value}" for name, value in zip(names, row, strict=True))


def _spelled(row: Row) -> str:
    return f"({', '.join(map(str, row))})"

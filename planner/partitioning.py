"""How a view is spread over shards: which shards every row of a table is sent to.

A shard is a cell of a grid with a dimension for each hashed variable. A row goes to the cells that agree with the
hashes of the variables it has, so each row of the join is found in exactly one cell: the HyperCube of Afrati and Ullman
(2010). How many parts each variable is hashed to are its shares. In a q-hierarchical component a root variable is in
every atom, so all shares go to it, each row is sent to one shard and no state is ever moved; the shares of a triangle
are the cube root of the number of shards.

Components of a query have a grid each, over the same shards: a row meets only rows of its own component there, and
whoever reads the view multiplies what the components have (product.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, prod

from planner.combination import obstacle
from planner.hypergraph import occurrences
from planner.product import NoProduct, Product, product
from planner.query import Atom, Definition, LeafColumn
from planner.wording import enumerate_words

MOST_SHARDS = 1 << 16
_SLACK = 1e-9
_NOTHING_HASHED = ": besides its conditions, it reads no column that can be hashed"

# Types of which equal values have one text: what is hashed is the text.
_TEXTS = (
    "BIGINT", "BLOB", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "ENUM", "FLOAT", "HUGEINT", "INTEGER", "SMALLINT",
    "TIMESTAMP", "TIME", "TINYINT", "UBIGINT", "UHUGEINT", "UINTEGER", "USMALLINT", "UTINYINT", "UUID", "VARCHAR",
)  # fmt: skip


class NoPartitioning(Exception):
    """A view cannot be spread over shards: the text is the reason, `hint` a way out."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True)
class Dimension:
    """A coordinate of the grid: `shares` parts of the hash of a variable or, with none, of all that `atom` reads."""

    shares: int
    variable: str | None = None
    atom: str | None = None


@dataclass(frozen=True)
class Hashed:
    """A coordinate that a row decides: SQL over the table's columns, with types, whose values are hashed together."""

    dimension: int
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Grid:
    """The cells among which the rows that some atoms read are spread: those of a component, or of a whole query."""

    atoms: tuple[str, ...]
    dimensions: tuple[Dimension, ...]
    reason: str

    @property
    def shards(self) -> int:
        """How many cells there are; each is in the shard of its number."""
        return prod(dimension.shares for dimension in self.dimensions)

    @property
    def hashed(self) -> frozenset[str]:
        """The variables that decide on a cell; that of a whole row is none that a view has, and called by its atom."""
        return frozenset(d.variable or f"row of {d.atom}" for d in self.dimensions if d.shares > 1)


@dataclass(frozen=True)
class Stream:
    """The rows of a table on one way to the shards, which `atoms` read there as table `name`.

    `shares` are those of the grid. In the dimensions that are not hashed a row goes to every cell: to `copies` shards
    altogether. Rows that meet none of the `conditions` are not sent; None sends all.
    """

    name: str
    table: str
    atoms: tuple[str, ...]
    shares: tuple[int, ...]
    hashed: tuple[Hashed, ...]
    conditions: tuple[str, ...] | None
    copies: int


@dataclass(frozen=True)
class Partitioning:
    """The grid of a view or, of a `product`, the grids of its components, and the ways to them.

    `load` is the expected part of all rows sent that one shard holds, in rows, for tables of the `sizes` it was chosen
    for.
    """

    grids: tuple[Grid, ...]
    streams: tuple[Stream, ...]
    sizes: tuple[tuple[str, float], ...]
    load: float
    reason: str
    product: Product | None = None

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Those of all grids."""
        return tuple(dimension for grid in self.grids for dimension in grid.dimensions)

    @property
    def shards(self) -> int:
        """How many there are: the cells of the largest grid."""
        return max(grid.shards for grid in self.grids)

    @property
    def hashed(self) -> tuple[frozenset[str], ...]:
        """The variables that decide on a shard, by grid."""
        return tuple(grid.hashed for grid in self.grids)

    @property
    def rows_sent(self) -> dict[str, int]:
        """By table, how many rows are sent for one that changes."""
        sent = {table: 0 for table, _ in self.sizes}
        for stream in self.streams:
            sent[stream.table] += stream.copies
        return sent

    def communication(self, rates: Mapping[str, float] | None = None) -> float:
        """The rows sent for one changed row, on average over tables that change at these rates (by table, else 1)."""
        rates = {table: (rates or {}).get(table, 1.0) for table, _ in self.sizes}
        sent = self.rows_sent
        return sum(rate * sent[table] for table, rate in rates.items()) / (sum(rates.values()) or 1.0)


def partition(definition: Definition, shards: int, sizes: Mapping[str, float] | None = None) -> Partitioning:
    """The partitioning of a view over at most `shards` shards, with the least expected rows per shard.

    Components have grids of their own where the view is their product; `reason` says why if it has several and is not.
    `sizes` are the tables' expected numbers of rows (by the definition's names, else 1). The shares are searched for
    among the variables to which the linear programme of Beame, Koutris and Suciu (2014) gives a part; ties go to
    variables that are put out, whose groups lie in one shard. Raises NoPartitioning with the reason; ValueError for a
    number of shards that is none.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"{shards} shards: give a number from 1 to {MOST_SHARDS}")
    if definition.derived:
        raise NoPartitioning(
            "a block of its query is a view of its own, whose changes would have to be sent on from shard to shard",
            "keep the block as a sharded view of its own, and shard a view over that",
        )
    rows = sizes or {}
    why = ""
    try:
        factors = product(definition) if shards > 1 else None
        if factors is not None:
            grids = [_grid(one, shards, rows, of_product=True) for one in factors.components]
            if max(grid.shards for grid in grids) > 1:
                return replace(_spread(definition, grids, rows, _reasons(grids)), product=factors)
    except (NoProduct, NoPartitioning) as problem:
        why = f"; its components share a grid, as {problem}"
    grid = _grid(definition, shards, rows)
    return _spread(definition, [grid], rows, grid.reason + why)


def exponents(holders: Sequence[frozenset[str]], sizes: Mapping[str, float], shards: int) -> list[float]:
    """The share exponents of variables, by the atoms that hold them: a variable has shards^exponent shares.

    They minimise the largest number of rows that an atom sends to one shard, which on data without skew no algorithm of
    one round beats by more than a constant (Beame, Koutris and Suciu 2014).
    """
    from scipy.optimize import linprog  # Takes half a second to import, and few come here.

    whole = log(shards)
    demands = [[-1.0 if atom in atoms else 0.0 for atoms in holders] + [-1.0] for atom in sizes]
    bounds = [-log(max(size, 1.0)) / whole for size in sizes.values()]
    demands.append([1.0] * len(holders) + [0.0])
    signs = [(0.0, None)] * len(holders) + [(None, None)]
    found = linprog([0.0] * len(holders) + [1.0], A_ub=demands, b_ub=[*bounds, 1.0], bounds=signs)
    return [float(value) for value in found.x[:-1]]


# Inside ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Candidate:
    """What may be hashed: a variable or the rows of an atom; the atoms that have it."""

    atoms: frozenset[str]
    variable: str | None = None


def _candidates(definition: Definition, *, apart: bool = False) -> list[_Candidate]:
    """The variables, those put out first, and the rows of the atoms; of several in the same atoms the first, and none
    whose atoms another one has too: shares are better given to that. `apart`: only variables that are put out."""
    columns = {c.name: c for atom in definition.atoms for c in atom.variables}
    holders = occurrences({atom.name: atom.scheme for atom in definition.atoms})
    order = dict.fromkeys(definition.free if apart else (*definition.free, *columns))
    found = [_Candidate(holders[name], name) for name in order if _is_hashable(columns[name])]
    if not apart:
        found += [_Candidate(frozenset([a.name])) for a in definition.atoms if _row_values(definition, a.name)]
    first: dict[frozenset[str], _Candidate] = {}
    for candidate in found:
        first.setdefault(candidate.atoms, candidate)
    return [one for one in first.values() if not any(one.atoms < other for other in first)]


def _is_hashable(column: LeafColumn) -> bool:
    kind = column.type.split("(")[0]
    return kind.split("_")[0] in _TEXTS and not column.type.endswith("]")


def _row_values(definition: Definition, atom: str) -> tuple[tuple[str, str], ...]:
    """All that the view reads of an atom's rows, in companions too."""
    blocks = [definition, *(companion.definition for companion in definition.companions)]
    same = [own for block in blocks for own in block.atoms if own.name == atom]
    columns = [column for own in same for column in (*own.variables, *own.factors) if _is_hashable(column)]
    return tuple(dict.fromkeys((column.expression, column.type) for column in columns))


def _grid(definition: Definition, shards: int, sizes: Mapping[str, float], *, of_product: bool = False) -> Grid:
    """The best grid by which the shards' rows can be combined. Raises NoPartitioning."""
    found = _cells(definition, shards, _candidates(definition), sizes)
    everywhere = of_product and definition.scalar  # Each shard has the one row of a component without groups.
    problem = obstacle(definition, found.hashed) if found.hashed or everywhere else None
    if problem is None:
        return found
    found = _cells(definition, shards, _candidates(definition, apart=True), sizes)
    if found.shards == 1 < shards:
        raise NoPartitioning(problem, "group by a column of every row, or use one shard")
    return found


def _cells(definition: Definition, shards: int, candidates: Sequence[_Candidate], sizes: Mapping[str, float]) -> Grid:
    rows = {atom.name: max(sizes.get(atom.table, 1.0), 1.0) for atom in definition.atoms}
    chosen = list(candidates) if shards > 1 else []
    if len(chosen) > 1:
        parts = exponents([candidate.atoms for candidate in chosen], rows, shards)
        chosen = [candidate for candidate, part in zip(chosen, parts, strict=True) if part > _SLACK]
    shares = _integer_shares([candidate.atoms for candidate in chosen], rows, shards)
    dimensions = tuple(
        Dimension(share, one.variable, None if one.variable else next(iter(one.atoms)))
        for one, share in zip(chosen, shares, strict=True)
        if share > 1
    )
    return Grid(tuple(rows), dimensions, _reason(definition, dimensions, shards))


def _spread(definition: Definition, grids: Sequence[Grid], sizes: Mapping[str, float], reason: str) -> Partitioning:
    streams = tuple(_streams(definition, grids))
    tables = dict.fromkeys(atom.table for atom in definition.atoms)
    stated = tuple((table, sizes.get(table, 1.0)) for table in tables)
    load = sum(sizes.get(stream.table, 1.0) * stream.copies / prod(stream.shares) for stream in streams)
    return Partitioning(tuple(grids), streams, stated, load, reason)


def _integer_shares(holders: Sequence[frozenset[str]], rows: Mapping[str, float], shards: int) -> list[int]:
    """The whole shares with a product of at most `shards` and the fewest expected rows per shard, by exact search.

    More shares never add rows to a shard, so the last variable takes what is left.
    """
    best: tuple[float, list[int]] = (float("inf"), [])

    def load(shares: Sequence[int]) -> float:
        pairs = list(zip(holders, shares, strict=True))
        return sum(size / prod(share for atoms, share in pairs if atom in atoms) for atom, size in rows.items())

    def search(shares: list[int], left: int) -> None:
        nonlocal best
        missing = len(holders) - len(shares)
        if missing <= 1:
            full = [*shares, *[left] * missing]
            best = min(best, (load(full), full), key=lambda found: found[0] * (1 + _SLACK * prod(found[1])))
            return
        if load([*shares, *[left] * missing]) >= best[0]:
            return
        for share in range(left, 0, -1):
            search([*shares, share], left // share)

    search([], shards)
    return best[1]


def _streams(definition: Definition, grids: Sequence[Grid]) -> Iterator[Stream]:
    """One for each table and distinct tuple of hashed columns: a table whose atoms hash the same is sent once, in grids
    with the same shares too."""
    ways: dict[tuple[str, tuple[int, ...], tuple[Hashed, ...]], list[Atom]] = {}
    places = {name: grid.dimensions for grid in grids for name in grid.atoms}
    for atom in (*definition.atoms, *_folded(definition)):
        dimensions = places.get(atom.name, grids[0].dimensions)
        shares = tuple(dimension.shares for dimension in dimensions)
        hashed = tuple(_hashed(definition, atom, dimensions)) if atom.name in places else ()
        ways.setdefault((atom.table, shares, hashed), []).append(atom)
    for number, ((table, shares, hashed), atoms) in enumerate(ways.items(), 1):
        tests = [_condition(atom) for atom in atoms]
        conditions = None if None in tests else tuple(dict.fromkeys(test for test in tests if test is not None))
        decided = prod(shares[one.dimension] for one in hashed)
        names = tuple(dict.fromkeys(atom.name for atom in atoms))
        yield Stream(f"stream_{number}", table, names, shares, hashed, conditions, prod(shares) // decided)


def _folded(definition: Definition) -> list[Atom]:
    """The atoms that are left in companions only (core.py): their variables are named apart from the view's, so that
    they are sent everywhere. A product has none."""
    own = {atom.name for atom in definition.atoms}
    return [atom for one in definition.companions for atom in one.definition.atoms if atom.name not in own]


def _condition(atom: Atom) -> str | None:
    """What rows of an atom meet, as SQL: those with NULL where it joins would only fill the shard of NULL."""
    needed = [column.expression for column in atom.variables if column.name in atom.required]
    tests = [f"({condition.text})" for condition in atom.conditions]
    return " AND ".join([*tests, *(f"({text}) IS NOT NULL" for text in needed)]) or None


def _hashed(definition: Definition, atom: Atom, dimensions: Sequence[Dimension]) -> Iterator[Hashed]:
    own = {column.name: column for column in atom.variables}
    for number, dimension in enumerate(dimensions):
        if dimension.variable in own:
            column = own[dimension.variable]
            yield Hashed(number, ((column.expression, column.type),))
        elif dimension.atom == atom.name:
            yield Hashed(number, _row_values(definition, atom.name))


def _reason(definition: Definition, dimensions: Sequence[Dimension], shards: int) -> str:
    if not dimensions:
        return "everything is on one shard" + (_NOTHING_HASHED if shards > 1 else "")
    named = [_spell(definition, dimension) for dimension in dimensions]
    without = [a.name for a in definition.atoms if len(list(_hashed(definition, a, dimensions))) < len(dimensions)]
    without += [atom.name for atom in _folded(definition)]
    if not without:
        hashed = enumerate_words(named) if dimensions[0].variable else "all that is read of it"
        return f"every row is hashed by {hashed} and sent to one shard, so no state is ever moved"
    lacking = enumerate_words(without)
    return (
        f"hashed by {enumerate_words(named)}; a row of {lacking} goes to all shards that agree with what it has of them"
    )


def _reasons(grids: Sequence[Grid]) -> str:
    if len(grids) == 1:
        return grids[0].reason
    atoms: dict[str, list[str]] = {}
    for grid in grids:
        atoms.setdefault(grid.reason, []).extend(grid.atoms)
    told = "; ".join(f"of {enumerate_words(names)}, {reason}" for reason, names in atoms.items())
    return f"its components are hashed apart, and no row is sent to meet another's: {told}"


def _spell(definition: Definition, dimension: Dimension) -> str:
    return definition.label(dimension.variable) if dimension.variable else f"the row of {dimension.atom}"

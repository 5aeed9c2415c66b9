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

from sqlfront.planner.model.query import Atom, Definition
from sqlfront.planner.shards.blocks import Blocks, Dimension, Path, folded, is_hashable
from sqlfront.planner.shards.combination import counted_distinct_sets, obstacle
from sqlfront.planner.shards.product import NoProduct, Product, product
from sqlfront.planner.theory.simplex import greatest
from sqlfront.planner.theory.wording import enumerate_words

MOST_SHARDS = 1 << 16
_SLACK = 1e-9
_NOTHING_HASHED = "it reads no column that can be hashed"


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
        """The variables that decide on a cell; what else is hashed is none that a view has, and called by its label."""
        return frozenset(d.variable or f"hash of {d.label}" for d in self.dimensions if d.shares > 1)


@dataclass(frozen=True)
class Stream:
    """The rows of a table on one way to the shards, where table `name` holds them for the occurrences in `atoms`.

    `shares` are those of the grid. In the dimensions that are not hashed a row goes to every cell: to `copies` shards
    altogether. Rows that meet none of the `conditions` are not sent; None sends all.
    """

    name: str
    table: str
    atoms: tuple[Path, ...]
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
    among the hashes to which the linear programme of Beame, Koutris and Suciu (2014) gives a part; ties go to
    variables that are put out, whose groups lie in one shard. Blocks are computed in each shard from the rows that it
    is sent: see blocks.py. What cannot be spread is on one shard, and `reason` says why. ValueError for a number of
    shards that is none.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"{shards} shards: give a number from 1 to {MOST_SHARDS}")
    rows, blocks = sizes or {}, Blocks(definition)
    why = ""
    try:
        factors = product(definition) if shards > 1 else None
        if factors is not None:
            if any(map(blocks.is_never_empty, factors.components)):
                raise NoProduct("one of them has rows before any are sent: that of a block without groups")
            grids = [_grid(one, blocks, shards, rows) for one in factors.components]
            if max(grid.shards for grid in grids) > 1:
                return replace(_spread(definition, blocks, grids, rows, _reasons(grids)), product=factors)
    except NoProduct as problem:
        why = f"; its components share a grid, as {problem}"
    grid = _grid(definition, blocks, shards, rows)
    return _spread(definition, blocks, [grid], rows, grid.reason + why)


def exponents(holders: Sequence[frozenset[Path]], sizes: Mapping[Path, float], shards: int) -> list[float]:
    """The share exponents of variables, by the atoms that hold them: a variable has shards^exponent shares.

    They minimise the largest number of rows that an atom sends to one shard, which on data without skew no algorithm of
    one round beats by more than a constant (Beame, Koutris and Suciu 2014).
    """
    rows = [log(max(size, 1.0)) / log(shards) for size in sizes.values()]
    # The last variable is how far the largest number of rows falls below that of the largest table.
    fewer = [[-1.0 if atom in atoms else 0.0 for atoms in holders] + [1.0] for atom in sizes]
    whole = [1.0] * len(holders) + [0.0]
    gains = [0.0] * len(holders) + [1.0]
    return greatest(gains, [*fewer, whole], [*(max(rows) - one for one in rows), 1.0])[1][:-1]


# Inside ------------------------------------------------------------------------------------------


def _grid(definition: Definition, blocks: Blocks, shards: int, sizes: Mapping[str, float]) -> Grid:
    """The best grid by which the shards' rows can be combined."""
    cuts = blocks.cuts(definition, sizes)
    found = _cells(definition, blocks, shards, cuts, sizes)
    problem = _problem(definition, blocks, found)
    if problem is None:
        return found
    arguments = [cut for one in counted_distinct_sets(definition) for cut in _argument_cuts(definition, blocks, one)]
    kept = [cut for cut in (*cuts, *arguments) if _keeps_values(definition, blocks, cut)]
    found = _cells(definition, blocks, shards, kept, sizes)
    if found.dimensions and _problem(definition, blocks, found) is None:
        return found
    return Grid(found.atoms, (), f"everything is on one shard: {problem}")


def _problem(definition: Definition, blocks: Blocks, grid: Grid) -> str | None:
    """Why the rows of a grid's cells cannot be combined."""
    if not grid.hashed:
        return None
    whole = all(_keeps_values(definition, blocks, one) for one in grid.dimensions)
    return obstacle(definition, grid.hashed, values_apart=whole)


def _argument_cuts(definition: Definition, blocks: Blocks, number: int) -> Iterator[Dimension]:
    """The hashes of the argument of an aggregate over distinct values."""
    distinct_set, own = definition.distinct_sets[number], {path for path, _ in blocks.leaves(definition)}
    own -= {(atom.name,) for atom in folded(definition)}
    for variable in distinct_set.argument:
        values = blocks.hashed(distinct_set.definition, variable)
        column = next(c for atom in distinct_set.definition.atoms for c in atom.variables if c.name == variable)
        if values and is_hashable(column.type) and own.issuperset(values):
            yield Dimension(distinct_set.label, tuple(values.items()))


def _keeps_values(definition: Definition, blocks: Blocks, cut: Dimension) -> bool:
    """Whether each of the values that a group counts lies in one shard: where its group does, or by a hash of it."""
    if cut.variable in definition.free:
        return True
    for number in counted_distinct_sets(definition):
        distinct_set = definition.distinct_sets[number]
        leaves = {path for path, _ in blocks.leaves(distinct_set.definition)}
        here = {path: values for path, values in cut.values if path in leaves}
        if not here or all(blocks.hashed(distinct_set.definition, one) != here for one in distinct_set.argument):
            return False
    return True


def _cells(
    definition: Definition, blocks: Blocks, shards: int, cuts: Sequence[Dimension], sizes: Mapping[str, float]
) -> Grid:
    own = {(atom.name,) for atom in folded(definition)}
    rows = {path: max(sizes.get(a.table, 1.0), 1.0) for path, a in blocks.leaves(definition) if path not in own}
    chosen = _worthwhile(cuts) if shards > 1 else []
    if len(chosen) > 1:
        parts = exponents([cut.leaves for cut in chosen], rows, shards)
        chosen = [cut for cut, part in zip(chosen, parts, strict=True) if part > _SLACK]
    shares = _integer_shares([cut.leaves for cut in chosen], rows, shards)
    dimensions = [replace(one, shares=share) for one, share in zip(chosen, shares, strict=True) if share > 1]
    atoms = tuple(atom.name for atom in definition.atoms)
    return Grid(atoms, tuple(dimensions), _reason(definition, blocks, dimensions, shards))


def _worthwhile(cuts: Sequence[Dimension]) -> list[Dimension]:
    """Of several hashes of the same occurrences of tables the first, and none whose occurrences another one has too:
    shares are better given to that."""
    first: dict[frozenset[Path], Dimension] = {}
    for cut in cuts:
        first.setdefault(cut.leaves, cut)
    return [one for one in first.values() if not any(one.leaves < other for other in first)]


def _spread(
    definition: Definition, blocks: Blocks, grids: Sequence[Grid], sizes: Mapping[str, float], reason: str
) -> Partitioning:
    streams = tuple(_streams(definition, blocks, grids))
    tables = dict.fromkeys(atom.table for _, atom in blocks.leaves(definition))
    stated = tuple((table, sizes.get(table, 1.0)) for table in tables)
    load = sum(sizes.get(stream.table, 1.0) * stream.copies / prod(stream.shares) for stream in streams)
    return Partitioning(tuple(grids), streams, stated, load, reason)


def _integer_shares(holders: Sequence[frozenset[Path]], rows: Mapping[Path, float], shards: int) -> list[int]:
    """The whole shares with a product of at most `shards` and the fewest expected rows per shard, by exact search.

    More shares never add rows to a shard, so the last variable takes what is left, and of shares that leave equally
    many for the rest only the most are tried.
    """
    best: tuple[float, list[int]] = (float("inf"), [])

    def load(shares: Sequence[int], left: int = 1) -> float:
        """The rows per shard, if for each atom all that is left were given to variables it has."""
        found = 0.0
        for atom, size in rows.items():
            held = [place for place, atoms in enumerate(holders) if atom in atoms]
            known = prod(shares[place] for place in held if place < len(shares))
            found += size / (known * (left if held and held[-1] >= len(shares) else 1))
        return found

    def search(shares: list[int], left: int) -> None:
        nonlocal best
        missing = len(holders) - len(shares)
        if missing <= 1:
            full = [*shares, *[left] * missing]
            best = min(best, (load(full), full), key=lambda found: found[0] * (1 + _SLACK * prod(found[1])))
            return
        if load(shares, left) >= best[0]:
            return
        share = left
        while share >= 1:
            search([*shares, share], left // share)
            share = left // (left // share + 1)

    search([], shards)
    return best[1]


def _streams(definition: Definition, blocks: Blocks, grids: Sequence[Grid]) -> Iterator[Stream]:
    """One for each table and distinct tuple of hashed columns: a table whose occurrences hash the same is sent once, in
    grids with the same shares too."""
    ways: dict[tuple[str, tuple[int, ...], tuple[Hashed, ...]], list[tuple[Path, Atom]]] = {}
    places = {name: grid.dimensions for grid in grids for name in grid.atoms}
    for path, atom in blocks.leaves(definition):
        dimensions = places.get(path[0], grids[0].dimensions)
        shares = tuple(dimension.shares for dimension in dimensions)
        hashes = enumerate(dict(dimension.values).get(path) for dimension in dimensions)
        hashed = tuple(Hashed(number, values) for number, values in hashes if values is not None)
        ways.setdefault((atom.table, shares, hashed), []).append((path, atom))
    sends_all = blocks.is_never_empty(definition)
    for number, ((table, shares, hashed), atoms) in enumerate(ways.items(), 1):
        tests = [None if sends_all else _condition(atom) for _, atom in atoms]
        conditions = None if None in tests else tuple(dict.fromkeys(test for test in tests if test is not None))
        decided = prod(shares[one.dimension] for one in hashed)
        paths = tuple(dict.fromkeys(path for path, _ in atoms))
        yield Stream(f"main.stream_{number}", table, paths, shares, hashed, conditions, prod(shares) // decided)


def _condition(atom: Atom) -> str | None:
    """What rows of an atom meet, as SQL: those with NULL where it joins would only fill the shard of NULL."""
    needed = [column.expression for column in atom.variables if column.name in atom.required]
    tests = [f"({condition.text})" for condition in atom.conditions]
    return " AND ".join([*tests, *(f"({text}) IS NOT NULL" for text in needed)]) or None


def _reason(definition: Definition, blocks: Blocks, dimensions: Sequence[Dimension], shards: int) -> str:
    if not dimensions:
        return "everything is on one shard" + (f": {_unspread(definition, blocks)}" if shards > 1 else "")
    named = [one.label for one in dimensions]
    found = dict(blocks.leaves(definition))
    reached = {path: sum(path in one.leaves for one in dimensions) for path in found}
    full = [path for path in found if len(path) > 1 and not reached[path]]
    without = [path for path in found if path not in full and reached[path] < len(dimensions)]
    computed = ""
    if full:
        tables = enumerate_words(map(_spelled, full))
        computed = f"; a row of {tables} goes to all, as blocks over them are computed in full in every shard"
    if not without:
        alone = len(found) == 1 and dimensions[0].atom is not None
        hashed = "all that is read of it" if alone else enumerate_words(named)
        every = "every other row" if full else "every row"
        still = "" if full else ", so no state is ever moved"
        return f"{every} is hashed by {hashed} and sent to one shard{still}{computed}"
    lacking = enumerate_words(map(_spelled, without))
    hashed = enumerate_words(named)
    return f"hashed by {hashed}; a row of {lacking} goes to all shards that agree with what it has of them{computed}"


def _unspread(definition: Definition, blocks: Blocks) -> str:
    if any(blocks.read_by(atom, (atom.name,)) for atom in definition.atoms):
        return "no hash keeps the groups of its blocks whole"
    return _NOTHING_HASHED


def _spelled(path: Path) -> str:
    """The occurrence of a table, and the block that it is in."""
    return " in ".join(reversed(path))


def _reasons(grids: Sequence[Grid]) -> str:
    if len(grids) == 1:
        return grids[0].reason
    atoms: dict[str, list[str]] = {}
    for grid in grids:
        atoms.setdefault(grid.reason, []).extend(grid.atoms)
    told = "; ".join(f"of {enumerate_words(names)}, {reason}" for reason, names in atoms.items())
    return f"its components are hashed apart, and no row is sent to meet another's: {told}"

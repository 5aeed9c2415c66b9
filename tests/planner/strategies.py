"""Random definitions, acyclic or not, and random rows for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from sqlfront.planner.model.query import Atom, Comparison, Definition, LeafColumn

VARIABLES = "abcdefg"


def _definition(schemes: list[list[str]], free: list[str], mode: str, keys: list[list[str] | None]) -> Definition:
    atoms = tuple(
        Atom(
            name=f"r{rank}",
            table=f"r{rank}",
            variables=tuple(LeafColumn(name, name, "BIGINT", source=name) for name in scheme),
            keys=() if key is None else (frozenset(key),),
        )
        for rank, (scheme, key) in enumerate(zip(schemes, keys, strict=True))
    )
    return Definition(atoms=atoms, free=tuple(free), mode=mode)  # type: ignore[arg-type]


@st.composite
def definitions(draw: st.DrawFn, keyed: bool = False, acyclic: bool = False, atoms: int = 6) -> Definition:
    """Up to `atoms` atoms; `acyclic` ones grow along a join tree, as a subset of an earlier atom plus new variables.

    Drawn through one seed: hypothesis' own draws prefer few and small atoms, nearly all of them q-hierarchical.
    """
    random = draw(st.randoms(use_true_random=True))
    schemes: list[list[str]] = []
    count = random.choice([1, 2, *(3 * [*range(3, atoms + 1)])])
    for rank in range(count):
        base = list(VARIABLES[: count + 1])
        if acyclic:
            base = random.choice(schemes) if schemes else []
        kept = random.sample(base, min(len(base), random.choice([0, 1, 1, 2, 2, 2, 2, 3])))
        schemes.append(
            kept
            + [
                f"{VARIABLES[rank]}{i}"
                for i in range(random.choice([0, 1, 1, 2] if rank else [1, 2, 3]) if acyclic else 0)
            ]
        )
    every = sorted({name for scheme in schemes for name in scheme})
    share = random.random()
    free = [name for name in random.sample(every, len(every)) if random.random() < share]
    keys = [random.sample(scheme, min(len(scheme), random.choice([1, 1, 2]))) for scheme in schemes]
    declared = [key if keyed and key and random.random() < 0.7 else None for key in keys]
    return _definition(schemes, free, random.choice(["bag", "set", "group"]), declared)


@st.composite
def databases(draw: st.DrawFn, definition: Definition, values: int = 3) -> dict[str, Counter[tuple[int, ...]]]:
    """A few rows per atom, with multiplicities, that satisfy the declared keys."""
    database = {}
    for atom in definition.atoms:
        names = [column.name for column in atom.variables]
        row = st.tuples(*(st.integers(1, values) for _ in names))
        rows: Counter[tuple[int, ...]] = Counter()
        held: set[tuple[object, ...]] = set()
        for found in draw(st.lists(row, max_size=8)):
            marks = {(key, tuple(found[names.index(name)] for name in sorted(key))) for key in atom.keys}
            if held.isdisjoint(marks):
                held |= marks
                rows[found] += 1
        database[atom.name] = rows
    return database


@st.composite
def rings_and_cliques(draw: st.DrawFn) -> Definition:
    """A ring of 3 to 5 atoms or the Loomis-Whitney query of 4, with private variables and up to 3 atoms more."""
    size = draw(st.integers(3, 5))
    if draw(st.booleans()):
        schemes = [[VARIABLES[i], VARIABLES[(i + 1) % size]] for i in range(size)]
    else:
        schemes = [[VARIABLES[i] for i in range(4) if i != missing] for missing in range(4)]
    schemes = [[*scheme, f"p{rank}"] if draw(st.booleans()) else scheme for rank, scheme in enumerate(schemes)]
    more = st.lists(st.sampled_from(VARIABLES), max_size=3, unique=True)
    schemes = draw(st.permutations(schemes + draw(st.lists(more, max_size=3))))
    return _definition(schemes, [], "group", [None] * len(schemes))


@st.composite
def compared(draw: st.DrawFn, atoms: int = 4) -> Definition:
    """A definition, cyclic or not, with one to three comparisons of variables that no atom has both of."""
    definition = draw(definitions(atoms=atoms) | definitions(atoms=atoms, acyclic=True))
    variables = sorted({name for atom in definition.atoms for name in atom.scheme})
    pairs = [
        (x, y)
        for x in variables
        for y in variables
        if x != y and not any({x, y} <= atom.scheme for atom in definition.atoms)
    ]
    assume(pairs)
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3, unique=True))
    operators = st.sampled_from(("<", "<=", ">", ">=", "<>"))
    return replace(definition, comparisons=tuple(Comparison(x, draw(operators), y) for x, y in chosen))


@st.composite
def queries(draw: st.DrawFn) -> Definition:
    """A mix in which every class has its share."""
    kind = draw(st.randoms(use_true_random=True)).random()
    if kind < 0.1:
        return draw(rings_and_cliques())
    if kind < 0.25:
        return draw(definitions())
    return draw(definitions(acyclic=True, keyed=kind < 0.75))

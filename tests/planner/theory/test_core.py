"""Minimisation: the papers' examples, filters and NULLs, and the laws of a core against databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.query import Atom, Condition, Definition, LeafColumn, RawColumn
from sqlfront.planner.theory.core import minimise
from tests.planner.notation import parse_definition
from tests.slices import examples

Row = tuple[int | None, ...]
Database = Mapping[str, Sequence[tuple[Row, frozenset[str]]]]
"""Rows by table; with each the filters that it passes."""


def query(text: str, **filters: str) -> Definition:
    """`E(x,x), E(x,y) -> x [set]` as the binder would have it: columns c1, c2, ...; a repeated variable is a condition.

    `filters` gives the conditions of an atom by its name, as words: they stand for unknown predicates.
    """
    definition = parse_definition(text)
    schemes = [atom.scheme for atom in definition.atoms]
    atoms = []
    for atom in definition.atoms:
        columns: dict[str, LeafColumn] = {}
        conditions = [Condition(word) for word in filters.get(atom.name, "").split()]
        for place, column in enumerate(atom.variables, 1):
            first = columns.setdefault(column.name, LeafColumn(column.name, f"c{place}", "BIGINT", f"c{place}"))
            if first.expression != f"c{place}":
                conditions.append(Condition(f"({first.expression} = c{place})", (first.expression, f"c{place}")))
        joined = frozenset(v for v in columns if sum(v in scheme for scheme in schemes) > 1)
        atoms.append(replace(atom, variables=tuple(columns.values()), conditions=tuple(conditions), required=joined))
    return replace(definition, atoms=tuple(atoms))


def names(definition: Definition) -> str:
    return " ".join(atom.name for atom in definition.atoms)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        # Berkholz, Keppeler and Schweikardt 2017, sections 3 and 7
        ("E(x,x), E(x,y), E(y,y) -> [set]", "E"),
        ("E(x,x), E(x,y), E(y,y) -> x, y [set]", "E E_2 E_3"),
        ("E(x,x), E(x,y), E(y,y) -> x [set]", "E"),
        ("E(x,x), E(x,y), E(y,y), E(u,v) -> x, y, u, v [set]", "E E_2 E_3 E_4"),
        ("E(x,x), E(x,y), E(y,y), E(u,v) -> x, y [set]", "E E_2 E_3"),
        ("R(x,y,z), R(x,y,w), E(x,y), E(x,v) -> [set]", "R E"),
        ("R(x,y,z), R(x,y,w), E(x,y), E(x,v) -> x, y, z, w, v [set]", "R R_2 E E_2"),
        ("E(x1,x2), R(x4,x1,x2,x1), R(x5,x3,x2,x1) -> x1, x2, x3 [set]", "E R R_2"),
        ("S(x), E(x,y), T(y) -> x, y [set]", "S E T"),
        # Graphs: a directed path is its own core, an even undirected cycle is an edge, a loop takes in all
        ("E(x,y), E(y,z) -> [set]", "E E_2"),
        ("E(x,y), E(z,y) -> [set]", "E"),
        ("E(x,y), E(z,y), E(z,w), E(x,w) -> [set]", "E"),
        ("E(x,y), E(z,y), E(z,w), E(x,w) -> x [set]", "E"),
        ("E(x,y), E(y,z), E(z,x) -> [set]", "E E_2 E_3"),
        ("E(x,y), E(y,z), E(z,x), E(u,u) -> [set]", "E_4"),
        ("E(x,y), E(y,z), E(z,x), E(u,u) -> x [set]", "E E_2 E_3 E_4"),
        # Components fold into each other; equal atoms are one; free variables stay
        ("E(x,y), E(u,v) -> x [set]", "E"),
        ("E(x,y), E(u,v) -> x, u [set]", "E E_2"),
        ("E(x,y), E(x,y) -> x, y [set]", "E"),
        ("E(u,v), E(x,y), E(x,w) -> y [set]", "E_2"),
    ],
)
def test_core_is_the_papers(text: str, kept: str) -> None:
    assert names(minimise(query(text))) == kept


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("E(x,x), E(x,y), E(y,y) -> [set]", "free-connex", "q-hierarchical"),
        ("E(x,y), E(z,y), E(z,w), E(x,w) -> x [set]", "cyclic", "q-hierarchical"),
        ("E(x,y), E(y,z), E(z,x), E(u,u) -> [set]", "cyclic", "q-hierarchical"),
        ("E(x,y), T(y), E(x,z), T(z), E(w,z) -> x [set]", "free-connex", "free-connex"),
        ("R(x,y), R(x,z), S(z) -> x, y [set]", "free-connex", "free-connex"),
    ],
)
def test_the_core_may_be_in_an_easier_class(text: str, before: str, after: str) -> None:
    plans = [plan_view(query(text)), plan_view(minimise(query(text)))]
    assert [plan.shape for plan in plans] == [before, after]


@pytest.mark.parametrize(
    ("text", "filters", "kept"),
    [
        ("E(x,y), E(x,z) -> x [set]", {"E": "f"}, "E"),
        ("E(x,y), E(x,z) -> x [set]", {"E_2": "f"}, "E_2"),
        ("E(x,y), E(x,z) -> x [set]", {"E": "f", "E_2": "g"}, "E E_2"),
        ("E(x,y), E(x,z) -> x [set]", {"E": "f g", "E_2": "g"}, "E"),
        ("E(x,y), E(x,z) -> x, y [set]", {"E_2": "f"}, "E E_2"),
        ("E(x,x), E(x,y) -> x [set]", {"E_2": "(c1=5)"}, "E E_2"),
        ("E(x,x), E(x,y) -> x [set]", {"E": "(c1=5)", "E_2": "(c1=5)"}, "E"),
        ("R(x,x,x), R(x,y,y) -> x [set]", {}, "R"),
        ("R(x,x,y), R(x,y,y) -> x [set]", {}, "R R_2"),
    ],
)
def test_filters_are_respected(text: str, filters: dict[str, str], kept: str) -> None:
    assert names(minimise(query(text, **filters))) == kept


def test_an_equality_follows_from_others_in_another_order() -> None:
    one = query("R(x,x,x), R(x,x,x) -> x [set]")
    chain = (Condition("(c2 = c1)", ("c2", "c1")), Condition("(c3 = c2)", ("c3", "c2")))
    assert names(minimise(replace(one, atoms=(one.atoms[0], replace(one.atoms[1], conditions=chain))))) == "R"


def test_null_joins_nothing_so_an_atom_with_a_join_column_stays() -> None:
    """A row (1, NULL) of R answers x = 1 together with another row (1, 2), so R_2 cannot go to R."""
    definition = minimise(query("R(x,u,z), R(x,y,v), R(w,y,t) -> x, z [set]"))
    assert names(definition) == "R R_2"
    left = definition.atom("R_2")
    assert (left.scheme, left.predicate) == ({"x"}, "(c2 IS NOT NULL)")
    assert definition.notes == ("R_3 folds onto R_2: DISTINCT ignores multiplicity",)


def test_a_column_declared_not_null_needs_no_test() -> None:
    written = query("R(x,u,z), R(x,y,v), R(w,y,t) -> x, z [set]")
    declared = tuple(
        replace(atom, variables=tuple(replace(c, not_null=c.expression == "c2") for c in atom.variables))
        for atom in written.atoms
    )
    definition = minimise(replace(written, atoms=declared))
    assert names(definition) == "R"
    assert definition.atoms[0].conditions == ()


def test_lone_variables_leave_keys_and_labels_too() -> None:
    written = query("R(x,y;x y), R(x,y) -> x [set]")
    definition = minimise(replace(written, labels=(("x", "a.x"), ("y", "a.y"))))
    assert definition.atoms[0].keys == ()
    assert definition.labels == (("x", "a.x"),)


def test_only_a_query_that_ignores_multiplicity_is_touched() -> None:
    text = "E(x,y), E(x,z) -> x"
    group = query(f"{text} [group]")
    count = RawColumn("n", "count", "BIGINT", terms=((1, 0),))
    variable = RawColumn("x", "variable", "BIGINT", variable="x")
    for counted in (query(f"{text} [bag]"), replace(group, raw=(variable, count))):
        assert minimise(counted) is counted
    grouped = minimise(replace(group, raw=(variable,)))
    assert grouped.notes == ("E_2 folds onto E: GROUP BY without aggregates ignores multiplicity",)


def test_a_query_that_is_its_own_core_is_unchanged() -> None:
    for text in ("E(x,y), T(y) -> x [set]", "E(x,y), E(y,z) -> x [set]"):
        definition = query(text)
        assert minimise(definition) is definition


def test_beyond_the_budget_the_query_is_kept_and_said_to_be() -> None:
    definition = query("E(x,y), T(y), E(x,z) -> x [set]")
    given_up = minimise(definition, budget=1)
    assert given_up.atoms == definition.atoms
    assert given_up.notes == (
        "E and E_2 may be redundant, but deciding it takes more than 1 trials: the query is kept as written",
    )
    assert names(minimise(definition)) == "E T"


def test_a_hard_search_is_given_up() -> None:
    """Whether a random graph maps into less of itself is as hard as colouring."""
    choose = Random(5)
    edges = {(choose.randrange(24), choose.randrange(24)) for _ in range(64)}
    body = ", ".join(f"E(v{a}, v{b})" for a, b in edges if a != b)
    definition = minimise(query(f"{body} -> [set]"))
    assert "kept as written" in definition.notes[0]


# Laws ----------------------------------------------------------------------------------------------


def random_query(seed: int) -> Definition:
    """Up to four atoms over two tables, three of which often match; some filtered, some with repeated variables."""
    choose = Random(seed)
    pool = "xyzw"[: choose.choice([2, 3, 3, 4])]
    tables = choose.choice([["E"], ["E"], ["E", "R"]])
    atoms, filters, seen = [], {}, dict.fromkeys(tables, 0)
    for _ in range(choose.choice([2, 3, 3, 4])):
        table = choose.choice(tables)
        seen[table] += 1
        atoms.append(f"{table}({', '.join(choose.choice(pool) for _ in range(2 if table == 'E' else 3))})")
        if choose.random() < 0.3:
            name = table if seen[table] == 1 else f"{table}_{seen[table]}"
            filters[name] = choose.choice(["f", "g", "f g"])
    used = sorted({letter for letter in "".join(atoms) if letter in pool})
    free = [variable for variable in used if choose.random() < 0.3]
    return query(f"{', '.join(atoms)} -> {', '.join(free)} [set]", **filters)


def answers(definition: Definition, database: Database) -> set[Row]:
    """The query by nested loops over rows."""
    found: list[dict[str, int | None]] = [{}]
    for atom in definition.atoms:
        found = [
            binding | own
            for own in _bindings(atom, database[atom.table])
            for binding in found
            if all(binding.get(name, value) == value for name, value in own.items())
        ]
    return {tuple(binding[name] for name in definition.free) for binding in found}


def _bindings(atom: Atom, rows: Sequence[tuple[Row, frozenset[str]]]) -> Iterator[dict[str, int | None]]:
    for row, passed in rows:
        cells = {f"c{place}": value for place, value in enumerate(row, 1)}
        if all(_holds(condition, cells, passed) for condition in atom.conditions):
            own = {column.name: cells[column.expression] for column in atom.variables}
            if all(own[name] is not None for name in atom.required):
                yield own


def _holds(condition: Condition, cells: Mapping[str, int | None], passed: frozenset[str]) -> bool:
    if condition.equates is not None:
        left, right = (cells[side] for side in condition.equates)
        return left is not None and left == right
    if condition.text.endswith(" IS NOT NULL)"):
        return cells[condition.text[1:].split()[0]] is not None
    return condition.text in passed


def random_database(choose: Random) -> Database:
    def row(width: int) -> tuple[Row, frozenset[str]]:
        return tuple(choose.choice([None, 1, 2, 2]) for _ in range(width)), frozenset(choose.choice(["", "f", "fg"]))

    return {"E": [row(2) for _ in range(4)], "R": [row(3) for _ in range(4)]}


def canonical_databases(definition: Definition) -> Iterator[tuple[Row, Database]]:
    """One row per atom, with a value per variable and NULL where nothing is asked; and the answer it must give.

    A free variable that may be NULL is in some of the databases, a value in the others.
    """
    demanded = {name for atom in definition.atoms for name in atom.required}
    demanded |= {
        column.name
        for atom in definition.atoms
        for column in atom.variables
        if any(column.expression in (condition.equates or ()) for condition in atom.conditions)
    }
    optional = [name for name in definition.free if name not in demanded]
    variables = sorted({name for atom in definition.atoms for name in atom.scheme})
    for choice in product([True, False], repeat=len(optional)):
        missing = {name for name, absent in zip(optional, choice, strict=True) if absent}
        missing |= set(variables) - demanded - set(definition.free)
        values = {name: None if name in missing else rank for rank, name in enumerate(variables)}
        database: dict[str, list[tuple[Row, frozenset[str]]]] = {"E": [], "R": []}
        for number, atom in enumerate(definition.atoms):
            cells = {column.expression: values[column.name] for column in atom.variables}
            for condition in atom.conditions:
                if condition.text.endswith(" IS NOT NULL)"):
                    name = condition.text[1:].split()[0]
                    cells[name] = 100 + 10 * number + int(name[1:])
            for left, right in (condition.equates for condition in atom.conditions if condition.equates):
                cells[right] = cells.setdefault(left, 100 + 10 * number)
            row = tuple(cells.get(f"c{place}") for place in range(1, 3 if atom.table == "E" else 4))
            database[atom.table].append((row, frozenset(condition.text for condition in atom.conditions)))
        yield tuple(values[name] for name in definition.free), database


def contains_fewer_answers(definition: Definition, without: Definition) -> bool:
    """Whether some database gives `without`, the query less an atom, an answer that the query has not."""
    if not set(definition.free) <= {name for atom in without.atoms for name in atom.scheme}:
        return True
    return any(answer not in answers(definition, database) for answer, database in canonical_databases(without))


def without_atom(definition: Definition, atom: Atom) -> Definition:
    return replace(definition, atoms=tuple(other for other in definition.atoms if other is not atom))


def is_isomorphic(one: Definition, other: Definition) -> bool:
    """Whether renaming bound variables and atoms makes the two the same."""
    if len(one.atoms) != len(other.atoms):
        return False
    return any(_renames(one, ordered) for ordered in permutations(other.atoms))


def _renames(one: Definition, ordered: Sequence[Atom]) -> bool:
    renamed = {name: name for name in one.free}
    for atom, twin in zip(one.atoms, ordered, strict=True):
        columns, others = ({c.expression: c.name for c in a.variables} for a in (atom, twin))
        texts, other_texts = ({c.text for c in a.conditions} for a in (atom, twin))
        if atom.table != twin.table or columns.keys() != others.keys() or texts != other_texts:
            return False
        for expression, name in columns.items():
            if renamed.setdefault(name, others[expression]) != others[expression]:
                return False
    return len(set(renamed.values())) == len(renamed)


@examples(333)
@given(st.integers(0, 2**32))
def test_the_core_has_the_same_answers(seed: int) -> None:
    definition, choose = random_query(seed), Random(seed)
    core = minimise(definition)
    for _ in range(10):
        database = random_database(choose)
        assert answers(core, database) == answers(definition, database)
    for _, database in canonical_databases(core):
        assert answers(core, database) == answers(definition, database)


@examples(333)
@given(st.integers(0, 2**32))
def test_no_atom_of_the_core_is_redundant(seed: int) -> None:
    core = minimise(random_query(seed))
    for atom in core.atoms if len(core.atoms) > 1 else ():
        assert contains_fewer_answers(core, without_atom(core, atom)), (core, atom)


@examples(333)
@given(st.integers(0, 2**32))
def test_any_order_leads_to_the_same_core(seed: int) -> None:
    definition = random_query(seed)
    shuffled = tuple(Random(seed).sample(definition.atoms, len(definition.atoms)))
    assert is_isomorphic(minimise(definition), minimise(replace(definition, atoms=shuffled)))


@examples(200)
@given(st.integers(0, 2**32))
def test_each_folded_atom_is_said_to_fold_onto_one_that_is_left(seed: int) -> None:
    definition = random_query(seed)
    core = minimise(definition)
    left = names(core).split()
    pairs = [note.removesuffix(": DISTINCT ignores multiplicity").split(" folds onto ") for note in core.notes]
    assert [name for name, _ in pairs] == [name for name in names(definition).split() if name not in left]
    assert all(target in left for _, target in pairs)


@examples(200)
@given(st.integers(0, 2**32))
def test_the_core_is_never_in_a_harder_class(seed: int) -> None:
    ranks = ["q-hierarchical", "free-connex", "acyclic", "cyclic"]
    definition = random_query(seed)
    plans = [plan_view(definition), plan_view(minimise(definition))]
    before, after = (ranks.index(plan.shape) for plan in plans)
    assert after <= before


def test_the_generator_folds_and_keeps() -> None:
    """Enough queries fold, fold twice, keep a self-join, and are kept by a filter alone."""
    counts = dict.fromkeys(["folded", "twice", "self-join left", "kept by a filter"], 0)
    for seed in range(500):
        definition = random_query(seed)
        core = minimise(definition)
        plain = tuple(
            replace(atom, conditions=tuple(c for c in atom.conditions if c.equates)) for atom in definition.atoms
        )
        folds = len(definition.atoms) - len(core.atoms)
        counts["folded"] += folds > 0
        counts["twice"] += folds > 1
        counts["self-join left"] += len({atom.table for atom in core.atoms}) < len(core.atoms)
        counts["kept by a filter"] += len(minimise(replace(definition, atoms=plain)).atoms) < len(core.atoms)
    assert min(counts.values()) >= 25, counts

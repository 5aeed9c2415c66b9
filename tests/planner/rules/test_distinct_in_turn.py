"""Which joins have distinct rows that are found in turn, and around which pair of atoms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.distinct_turns import Extreme, Turns
from sqlfront.planner.model.query import Comparison
from tests.planner.notation import parse_definition


def _turns(text: str, *tests: tuple[str, str, str]) -> Turns | None:
    comparisons = tuple(Comparison(*test) for test in tests)
    parsed, compared = parse_definition(text), frozenset().union(*(test.scheme for test in comparisons))
    atoms = tuple(replace(atom, required=atom.scheme & compared) for atom in parsed.atoms)
    return plan_view(replace(parsed, atoms=atoms, comparisons=comparisons), saves_space=True).turns


def test_a_path_is_found_by_its_first_end() -> None:
    turns = _turns("R(x,y), S(y,z) -> x, z")
    assert turns is not None
    assert (turns.outer_atom, turns.outer, turns.inner, turns.range.by) == ("R", ("x",), ("z",), ("y",))
    assert (turns.extreme, turns.best, turns.partners) == (None, None, ())


def test_extremes_stand_for_rows_that_one_side_compares() -> None:
    turns = _turns("R(a,b), S(k,d,e), T(k,g,h) -> b, e, h", ("a", "<", "d"), ("d", "<", "g"))
    assert turns is not None
    assert (turns.outer_atom, turns.inner_atom) == ("T", "S")
    assert (turns.extreme, turns.best) == (Extreme("g", True), Extreme("d", True))
    (partner,) = turns.partners
    assert (partner.atom, partner.inner, partner.shown, partner.extreme) == ("R", True, ("b",), Extreme("a", False))


@pytest.mark.parametrize("text", [
    "R(x,y), S(y,z) -> x, y, z",  # Free-connex: a tree has the rows.
    "R(x,y), S(y,z), T(z,x) -> x, y",  # A cycle.
    "R(x,y), S(y,z), T(z,u) -> x, u",  # S is joined with both by columns that are not put out: no pair.
    "R(x,y), S(y,z), T(y,u) -> x, z, u",  # T shows u, and is found by y, which differs among rows that show the same.
    "R(x,y), S(y,z) -> x, z [bag]",
])  # fmt: skip
def test_other_joins_have_no_turns(text: str) -> None:
    assert _turns(text) is None


def test_a_partner_of_both_atoms_or_of_both_bounds_has_no_turns() -> None:
    text = "R(a,b,c), S(k,d,e), T(k,g,h) -> b, e, h"
    assert _turns(text, ("a", "<", "d"), ("a", "<", "g")) is None
    assert _turns(text, ("a", "<", "d"), ("d", "<", "c")) is None
    assert _turns(text, ("a", "<>", "d")) is None


def test_compared_rows_may_have_no_null() -> None:
    definition = parse_definition("R(x,y,a), S(y,z,d) -> x, z")
    assert plan_view(replace(definition, comparisons=(Comparison("a", "<", "d"),)), saves_space=True).turns is None
    assert _turns("R(x,y,a), S(y,z,d) -> x, z", ("a", "<", "d")) is not None

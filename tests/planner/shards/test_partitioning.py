"""What is sent where: the shares of the papers' examples, and who is sent how often."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import pytest

from sqlfront.planner.model.query import Atom, Definition, DistinctValues, LeafColumn, Limit, RawColumn
from sqlfront.planner.shards.combination import combine
from sqlfront.planner.shards.partitioning import exponents, partition
from tests.planner.notation import parse_definition

TRIANGLE = "R(a, b), S(b, c), T(c, a) -> "
PATH = "R(a, b), S(b, c), T(c, d) -> * [bag]"


def shares(found):
    return {dimension.variable or f"row of {dimension.atom}": dimension.shares for dimension in found.dimensions}


def test_a_q_hierarchical_join_is_hashed_on_its_root_and_sent_once():
    found = partition(parse_definition("orders(o, c), items(o, p) -> o"), 8)
    assert shares(found) == {"o": 8}
    assert found.rows_sent == {"orders": 1, "items": 1}
    assert (found.shards, found.communication(), found.load) == (8, 1.0, 2 / 8)
    assert found.reason == "every row is hashed by o and sent to one shard, so no state is ever moved"


def test_of_equal_roots_one_that_is_put_out_is_hashed():
    found = partition(parse_definition("R(a, b, x), S(a, b, y) -> b"), 4)
    assert shares(found) == {"b": 4}


def edges(*pairs):
    """A self-join of a table of edges, E(x, y): the variables of x and y by atom."""
    atoms = [
        Atom(f"E{number}", "E", tuple(LeafColumn(v, c, "BIGINT", source=c) for v, c in zip(pair, "xy")))
        for number, pair in enumerate(pairs)
    ]
    return Definition(tuple(atoms), tuple(dict.fromkeys("".join(pairs))), "bag")


def test_a_self_join_on_two_columns_is_sent_on_two_ways():
    found = partition(edges("ab", "bc"), 4)
    assert shares(found) == {"b": 4}
    assert [(stream.table, stream.atoms) for stream in found.streams] == [("E", (("E0",),)), ("E", (("E1",),))]
    assert [stream.hashed[0].values for stream in found.streams] == [(("y", "BIGINT"),), (("x", "BIGINT"),)]
    assert found.rows_sent == {"E": 2}


def test_atoms_that_hash_one_column_share_a_way():
    found = partition(edges("ab", "ac"), 4)
    assert [stream.atoms for stream in found.streams] == [(("E0",), ("E1",))]
    assert found.rows_sent == {"E": 1}


@pytest.mark.parametrize("side", [2, 3, 4, 10])
def test_a_triangle_has_the_cube_root_of_the_shards_for_each_variable(side):
    """Afrati and Ullman 2010: p^(1/3) each, so that a row is sent p^(1/3) times."""
    found = partition(parse_definition(TRIANGLE), side**3)
    assert shares(found) == {"a": side, "b": side, "c": side}
    assert found.rows_sent == {"R": side, "S": side, "T": side}
    assert found.load == pytest.approx(3 / side**2)


def test_the_shares_of_a_triangle_follow_the_sizes():
    """A table that is as small as N / p is sent to all shards, the two others only once (Beame et al. 2014)."""
    found = partition(parse_definition(TRIANGLE), 64, {"R": 1e6, "S": 1e6, "T": 10})
    assert shares(found) == {"b": 64}
    assert found.rows_sent == {"R": 1, "S": 1, "T": 64}


def test_a_path_of_three_hashes_its_two_inner_variables():
    found = partition(parse_definition(PATH), 16)
    assert shares(found) == {"b": 4, "c": 4}
    assert found.rows_sent == {"R": 4, "S": 1, "T": 4}


def test_a_star_hashes_its_centre_alone():
    found = partition(parse_definition("R(a, b), S(a, c), T(a, d), U(a, e) -> * [bag]"), 7)
    assert shares(found) == {"a": 7}


def test_a_large_table_is_spread_and_small_ones_are_sent_everywhere():
    sizes = {"facts": 1e6, "days": 100, "shops": 100}
    found = partition(parse_definition("facts(d, s, n), days(d, y), shops(s, c) -> y"), 8, sizes)
    assert found.rows_sent["facts"] == 1
    assert found.shards == 8


def test_components_are_hashed_apart():
    found = partition(parse_definition("R(a, b), S(b), T(c, d), U(d) -> a, c [bag]"), 9)
    assert shares(found) == {"b": 9, "d": 9}
    assert found.hashed == ({"b"}, {"d"})
    assert found.rows_sent == {"R": 1, "S": 1, "T": 1, "U": 1}
    assert (found.shards, found.communication(), found.load) == (9, 1.0, 4 / 9)


def test_a_component_has_shares_of_its_own():
    """A triangle beside a table: the cube root for the triangle's variables, all shards for the table's."""
    found = partition(parse_definition("R(a, b), S(b, c), T(c, a), U(d) -> * [bag]"), 8)
    assert shares(found) == {"a": 2, "b": 2, "c": 2, "d": 8}
    assert found.rows_sent == {"R": 2, "S": 2, "T": 2, "U": 1}


def test_components_that_hash_one_column_share_a_way():
    found = partition(edges("ab", "ac", "de"), 4)
    assert [stream.atoms for stream in found.streams] == [(("E0",), ("E1",), ("E2",))]
    assert found.rows_sent == {"E": 1}


def test_first_rows_of_a_product_span_a_grid():
    definition = replace(
        parse_definition("R(a), S(b) -> * [bag]"), limit=Limit(3), raw=(RawColumn("a", "variable", "BIGINT", "a"),)
    )
    found = partition(definition, 9)
    assert shares(found) == {"a": 3, "b": 3}
    assert found.rows_sent == {"R": 3, "S": 3}
    assert "its components share a grid, as the first rows of a product are not" in found.reason


def test_one_shard_multiplies_its_components_itself():
    found = partition(parse_definition("R(a), S(b) -> * [bag]"), 1)
    assert (found.shards, found.product) == (1, None)


def test_rows_without_a_variable_are_hashed_whole():
    sold = Atom("sales", "sales", (), (LeafColumn("n", "cents", "BIGINT", source="cents"),))
    found = partition(Definition((sold,), (), "group", scalar=True), 4)
    assert shares(found) == {"row of sales": 4}
    assert found.streams[0].hashed[0].values == (("cents", "BIGINT"),)


def test_floats_of_other_types_are_not_hashed():
    zoned = Atom("t", "t", (LeafColumn("at", "at", "TIMESTAMP WITH TIME ZONE", source="at"),))
    found = partition(Definition((zoned,), ("at",), "bag"), 4)
    assert found.shards == 1
    assert "it reads no column that can be hashed" in found.reason


@pytest.mark.parametrize("shards", [1, 2, 5, 7, 12, 30, 100])
@pytest.mark.parametrize("text", [TRIANGLE, PATH, "R(a, b), S(b, c), T(c, d), U(d, a) -> "])
def test_the_search_finds_the_fewest_rows_per_shard(text, shards):
    """Against all products of shares up to the number of shards, over all variables."""
    definition = parse_definition(text)
    sizes = {atom.table: 1000.0 * number for number, atom in enumerate(definition.atoms, 1)}
    variables = sorted({name for atom in definition.atoms for name in atom.scheme})
    best = (
        min(
            sum(sizes[a.table] / prod(s for v, s in zip(variables, given) if v in a.scheme) for a in definition.atoms)
            for given in itertools.product(range(1, shards + 1), repeat=len(variables))
            if prod(given) <= shards
        )
        if shards <= 12
        else None
    )
    found = partition(definition, shards, sizes)
    assert found.shards <= shards
    if best is not None:
        assert found.load == pytest.approx(best)


def test_the_exponents_are_those_of_the_linear_programme():
    holders = [frozenset("RT"), frozenset("RS"), frozenset("ST")]
    assert exponents(holders, {"R": 1e6, "S": 1e6, "T": 1e6}, 64) == pytest.approx([1 / 3] * 3)


def counting_distinct(free):
    definition = parse_definition(f"R(a, b), S(b, c) -> {free}")
    distinct_set = DistinctValues(
        parse_definition(f"R(a, b), S(b, c) -> {free}, c [set]"), ((free, free),), ("c",), False, "c"
    )
    return replace(
        definition, distinct_sets=(distinct_set,),
        raw=(RawColumn(free, "variable", "BIGINT", free), RawColumn("n", "count", "BIGINT", distinct_set=0)),
    )  # fmt: skip


def test_distinct_values_are_counted_where_a_group_lies_in_one_shard():
    assert shares(partition(counting_distinct("b"), 4)) == {"b": 4}
    # No variable is in both atoms and put out, but each pair of a group and a value lies in one shard.
    found = partition(counting_distinct("a"), 16)
    assert {dimension.label: dimension.shares for dimension in found.dimensions} == {"a": 4, "c": 4}
    assert found.rows_sent == {"R": 4, "S": 4}


def test_distinct_values_without_groups_are_counted_where_the_value_is_hashed_to():
    alone = replace(counting_distinct("b"), free=(), scalar=True)
    found = partition(alone, 4)
    assert shares(found) == {"c": 4}
    assert found.rows_sent == {"R": 4, "S": 1}


def test_what_cannot_be_combined_is_on_one_shard_with_the_reason():
    first = DistinctValues(parse_definition("R(a, b), S(b, c) -> a [set]"), (), ("a",), False, "a")
    second = DistinctValues(parse_definition("R(a, b), S(b, c) -> c [set]"), (), ("c",), False, "c")
    raw = tuple(RawColumn(f"n{number}", "count", "BIGINT", distinct_set=number) for number in range(2))
    definition = replace(parse_definition("R(a, b), S(b, c) -> "), scalar=True, distinct_sets=(first, second), raw=raw)
    found = partition(definition, 4)
    assert found.shards == 1
    assert "one shard: distinct values of a and c are counted" in found.reason


def test_a_shard_keeps_the_first_rows_up_to_the_end_of_the_limit():
    definition = parse_definition("R(a, b), S(b, c) -> * [bag]")
    found = combine(replace(definition, limit=Limit(5, 3)), [{"b"}], {("R",): "stream_1", ("S",): "stream_2"})
    [shard] = found.shards
    assert shard.limit == Limit(8)
    assert [atom.table for atom in shard.atoms] == ["stream_1", "stream_2"]


@pytest.mark.parametrize("wrong", [0, -1, 1 << 20])
def test_a_number_of_shards_that_is_none(wrong):
    with pytest.raises(ValueError, match=str(wrong)):
        partition(parse_definition(TRIANGLE), wrong)

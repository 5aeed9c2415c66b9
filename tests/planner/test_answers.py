"""What EXPLAIN and the errors will say: witnesses, suggestions, refusals, and that suggestions hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.division import divide
from sqlfront.planner.model.bound import CONSTANT_BOUND
from sqlfront.planner.model.plan import Plan, RowsIn
from sqlfront.planner.model.query import DistinctValues, LeafColumn
from sqlfront.planner.rules.cyclic import DIVIDE_CHANGES, STORE
from tests.planner.contract import check_plan
from tests.planner.notation import parse_definition


def _plan(text: str) -> Plan:
    plan = plan_view(parse_definition(text))
    assert isinstance(plan, Plan)
    return plan


def test_witness_speaks_the_users_names() -> None:
    definition = replace(
        parse_definition("orders(o, c), items(o) -> c"), labels=(("o", "orders.o_id"), ("c", "orders.c_id"))
    )
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    assert plan.witness == (
        "output column orders.c_id, in orders only, depends on orders.o_id, which is projected out and also joins items"
    )
    assert plan.suggestion is not None
    assert plan.suggestion.startswith("add orders.o_id to GROUP BY: updates are then O(1)")


@pytest.mark.parametrize(
    ("query", "witness"),
    [
        ("S(x), E(x,y), T(y) -> *", "x and y meet in E, but x also joins S without y, and y joins T without x"),
        ("A(x,y), B(y,z) -> x, z", "output columns x and z are linked only through y, which is projected out"),
        (
            "A(x,y), B(y,z), C(z,w) -> x, w",
            "output columns x and w are linked only through y and z, which are projected out",
        ),
        ("A(x,y), B(y) -> y", None),
    ],
)
def test_witness(query: str, witness: str | None) -> None:
    assert _plan(query).witness == witness


@pytest.mark.parametrize(
    ("query", "suggestion", "rewritten"),
    [
        ("orders(o,c), items(o) -> c [group]", "add o to GROUP BY", "orders(o,c), items(o) -> c, o [group]"),
        ("orders(o,c), items(o) -> c [set]", "add o to the SELECT list", "orders(o,c), items(o) -> c, o [set]"),
        ("orders(o,c), items(o) -> c [set]", "drop DISTINCT", "orders(o,c), items(o) -> c [bag]"),
        (
            "orders(o,c), items(o) -> c [group]",
            "if o is unique in orders, declare it PRIMARY KEY",
            "orders(o,c;o), items(o) -> c [group]",
        ),
        ("A(x), B(x,y;x), C(y,z) -> z", "if y is unique in C", "A(x), B(x,y;x), C(y,z;y) -> z"),
        ("A(x,y), B(x,y,c) -> c", "if x and y together are unique in B", "A(x,y), B(x,y,c;x y) -> c"),
        ("R(a,b), S(a,c), T(b), U(a,b,c) -> [group]", None, None),
    ],
)
def test_suggestion_is_made_and_helps(query: str, suggestion: str | None, rewritten: str | None) -> None:
    plan = _plan(query)
    assert str(plan.cost.update) == "O(N)"
    if suggestion is None or rewritten is None:
        assert plan.suggestion is None
        return
    assert plan.suggestion is not None
    assert suggestion in plan.suggestion
    assert _plan(rewritten).cost.update == CONSTANT_BOUND


def test_no_key_is_suggested_where_one_is_declared() -> None:
    assert "unique" not in (_plan("orders(o,c;c), items(o) -> c").suggestion or "")


def test_reason_names_the_declared_keys() -> None:
    plan = _plan("orders(o,c;o), items(o) -> c")
    assert plan.reason.endswith("each step looks up at most one row, by the declared key orders(o).")
    assert plan.suggestion is None


def test_reason_names_what_a_bag_enumerates_besides() -> None:
    plan = _plan("E(x,y), T(y) -> x [bag]")
    assert (plan.variables_added, plan.rows_in) == (("y",), RowsIn.TREE)
    assert "once y is enumerated too" in plan.reason


def test_cycle_is_named_by_its_conditions() -> None:
    plan = _plan("r(a,b), s(b,c), t(c,a,p) -> a, b")
    assert plan.shape == "cyclic"
    assert plan.witness == "r.b = s.b, s.c = t.c, t.a = r.a"
    assert plan.suggestion is None, "linear space and a linear cost of a change are not improved"


def test_cycle_uses_each_tables_own_column() -> None:
    definition = parse_definition("r(a,b), s(b,c), t(c,a) -> a")
    first = definition.atoms[0]
    renamed = replace(
        first, variables=(LeafColumn("a", "lower(x)", "VARCHAR"), LeafColumn("b", '"B b"', "BIGINT", source="B b"))
    )
    plan = plan_view(replace(definition, atoms=(renamed, *definition.atoms[1:])))
    assert plan.witness == "r.B b = s.b, s.c = t.c, t.a = lower(x) (in r)"


@pytest.mark.parametrize(
    ("query", "left_out"),
    [
        ("r(a,b), s(b,c), t(c,a) -> *", "t.a = r.a"),
        ("r(a,b), s(b,c), t(c,d), u(d,a) -> a,c [group]", None),
        ("r(a,b), s(b,c), t(c,d), u(d,a) -> a,c [bag]", "u.a = r.a"),
        ("a(x,y), b(y,z), c(z,x), d(u,v), e(v,w), f(w,u) -> *", None),
    ],
)
def test_a_condition_to_leave_out_makes_it_linear(query: str, left_out: str | None) -> None:
    """Where both columns may be put out of a query without the cycle; two cycles have no single such condition."""
    suggestion = _plan(query).suggestion
    if left_out is None:
        assert suggestion is None
    else:
        assert suggestion is not None and suggestion.startswith(f"leave {left_out} out of the view")


def test_what_is_left_of_the_cycle_is_linear() -> None:
    """The query that the suggestion for all triangles comes to."""
    plan = _plan("r(a,b), s(b,c), t(c,x) -> a, b, c, x")
    assert tuple(map(str, (plan.cost.update, plan.cost.space))) == ("O(N)", "O(N)")


@pytest.mark.parametrize(
    ("query", "offers"),
    [
        ("r(a,b), s(b,c), t(c,d), u(d,e), v(e,a) -> [group]", [DIVIDE_CHANGES, STORE]),
        ("r(a,b), s(b,c), t(c,d), u(d,e), v(e,f), w(f,a) -> a,d [group]", [STORE]),
        ("r(a,b), s(b,c), t(c,d), u(d,e), v(e,f), w(f,g), x(g,a) -> [group]", [STORE]),
    ],
)
def test_dividing_or_storing_is_offered_where_a_change_is_more_than_linear(query: str, offers: list[str]) -> None:
    plan = _plan(query)
    assert str(plan.cost.update) == "O(N^2)"
    assert plan.suggestion == "; or ".join(offers)


def test_a_divided_view_is_not_offered_the_division_again() -> None:
    definition = parse_definition("r(a,b), s(b,c), t(c,d), u(d,e), v(e,a) -> [group]")
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    divided = divide(definition, plan, 0.5, {"epsilon": 0.5})
    assert str(divided.cost.update) == "O(N) amortised" and divided.suggestion == STORE


def test_division_is_not_offered_where_distinct_values_are_kept_undivided() -> None:
    definition = parse_definition("r(a,b), s(b,c), t(c,d), u(d,e), v(e,a) -> [group]")
    values = DistinctValues(replace(definition, free=("a",)), (), ("a",), ordered=True, label="a")
    plan = plan_view(replace(definition, distinct_sets=(values,)))
    assert isinstance(plan, Plan)
    assert plan.suggestion == STORE and str(plan.stated_cost.update).startswith("O(N^2 + ")


def test_loomis_whitney_is_named_as_a_clique() -> None:
    plan = _plan("r(a,b,c), s(b,c,d), t(c,d,a), u(d,a,b) -> *")
    assert plan.witness == "r, s, t and u each join 3 of the 4 columns a, b, c and d, and no table has all of them"
    assert tuple(map(str, (plan.cost.preprocessing, plan.cost.update, plan.cost.space))) == (
        "O(N^(4/3))",
        "O(N)",
        "O(N^(4/3))",
    )


def test_the_reason_names_the_bags() -> None:
    definition = replace(parse_definition("r(a,b), s(b,c), t(c,a) -> [group]"), labels=(("a", "r.x"),))
    plan = plan_view(definition)
    assert "(r.x, b, c) is the widest, with O(N^1.5) combinations of values" in plan.reason
    assert tuple(map(str, (plan.cost.preprocessing, plan.cost.update, plan.cost.space))) == ("O(N^1.5)", "O(N)", "O(N)")


def test_a_bag_of_rows_keeps_what_takes_least() -> None:
    """Counts of a alone take less space than all triangles, of which SELECT a shows one column."""
    plan = _plan("r(a,b), s(b,c), t(c,a) -> a [bag]")
    assert (plan.free, str(plan.cost.space)) == (("a",), "O(N)")


def test_distinct_sets_add_to_the_cost_of_a_cyclic_query() -> None:
    inner = parse_definition("r(a,b), s(b,c), t(c,a) -> a, b [set]")
    distinct_set = DistinctValues(inner, (("a", "a"),), ("b",), ordered=True, label="b")
    definition = replace(parse_definition("r(a,b), s(b,c), t(c,a) -> a"), distinct_sets=(distinct_set,))
    plan = plan_view(definition)
    assert plan.distinct_sets[0].rows_in == RowsIn.PROJECTION
    assert str(plan.stated_cost.preprocessing) == "O((N^1.5 + values kept) log N)"
    assert str(plan.stated_cost.update) == "O(N + change of the values kept * log N)"


@pytest.mark.parametrize(
    ("weights", "label"), [({}, {"x"}), ({"R": 100, "S": 100}, {"x", "y"}), ({"T": 100, "U": 100}, {"x", "v"})]
)
def test_large_tables_move_up(weights: dict[str, float], label: set[str]) -> None:
    """Alike, both sides meet under x without fan-out; a much larger side is joined at the top."""
    definition = parse_definition("R(x,y), S(x,y), T(x,v), U(x,v), W(y) -> *")
    plan = plan_view(definition, weights)
    assert isinstance(plan, Plan)
    check_plan(plan, definition)
    assert set(plan.root.children[0].variables) == label


def test_malformed_definitions_are_refused() -> None:
    definition = parse_definition("R(x), S(x) -> x")
    with pytest.raises(ValueError, match="same name"):
        plan_view(replace(definition, atoms=(definition.atoms[0], definition.atoms[0])))
    with pytest.raises(ValueError, match="no atom has"):
        plan_view(replace(definition, free=("z",)))

"""A strategy is one value: one that only this file knows runs from SQL to EXPLAIN once it is in the list of all."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

import sqlfront
from sqlfront.planner.heavy_light import strategies
from sqlfront.planner.heavy_light.reasons import say_division
from sqlfront.planner.model.exponents import EPSILON, LEAST_MORE, Exponent, Exponents, greatest, least, line
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

QUERY = "SELECT p.b, p.w, count(*) AS n FROM p, q WHERE p.b = q.b GROUP BY p.b, p.w"


def kept_join(definition: Definition, plan: Plan) -> Union | None:
    """All of R(b, w) where S(b) has its b: the rows of a light b are stored, those of a heavy one read from a tree."""
    leaves = [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]
    if len(leaves) != 2 or set(plan.free) != set(leaves[0].variables) or len(leaves[1].variables) != 1:
        return None
    own, closing = leaves
    stored = Node((), (Node(plan.free, (own, closing), connex=True),), connex=True)
    inner = Node(own.variables, (own,), connex=True)
    upper = Node((), (Node(closing.variables, (closing, inner), connex=True),), connex=True)
    edges = Edge(own.atom or "", (closing.variables,)), Edge(closing.atom or "", ())
    light, heavy = (((edges[0].atom, PartKey.of(own)), (edges[1].atom, PartKey.of(""))) for own in "LH")
    part_trees = (
        PartTree("light", light, stored, Reading.SHARED),
        PartTree("heavy", heavy, upper, Reading.ENUMERATED),
    )
    return Union(KEPT_JOIN, edges, part_trees, stored, Exponents(line(1), EPSILON, line(0), line(1)))


def _refusal(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    return ("its rows are not put out", "add them to SELECT") if not plan.free and len(definition.atoms) == 2 else None


KEPT_JOIN = Strategy(kept_join, "the meetings", "a test", say_division, choice="if asked", refusal=_refusal)


@pytest.fixture
def con(monkeypatch):
    monkeypatch.setattr(strategies, "RULES", (*strategies.RULES, KEPT_JOIN))
    with sqlfront.connect() as connection:
        connection.execute("CREATE TABLE p (b BIGINT, w BIGINT); CREATE TABLE q (b BIGINT)")
        yield connection


def test_a_strategy_of_this_file_alone_runs_and_is_explained(con):
    con.execute(f"CREATE MATERIALIZED VIEW plain AS {QUERY}")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {QUERY}")
    view, heavy = con.session.database.view(con.session.duck, ["v"]).maintained, 0
    generator = random.Random(7)
    for step in range(60):
        b = generator.choice([0, 0, 0, generator.randrange(40)])
        con.execute(f"INSERT INTO p VALUES ({b}, {step})")
        con.execute(f"INSERT INTO q VALUES ({b})")
        if step % 7 == 6:
            con.execute(f"DELETE FROM {generator.choice('pq')} WHERE b = {generator.choice([0, b])}")
        view.balance._check()
        heavy += sum(map(sum, view.balance.figures().heavy))
        assert sorted(con.execute("FROM v").fetchall()) == sorted(con.session.duck.execute(QUERY).fetchall())
    assert heavy and view.balance.minors and view.balance.majors
    explained = con.explain("v").to_dict()
    assert explained["strategy"] == "IVM^eps with epsilon = 0.25, heavy and light values apart"
    assert explained["cost"]["update"] == "O(N^0.25) amortised" and explained["cost"]["space"] == "O(N)"
    assert "an aggregate by b and w of the meetings of b" in explained["reason"] and "(a test)" in explained["reason"]
    assert [one["name"] for one in explained["heavy"]["part_trees"]] == ["light", "heavy"]
    assert con.explain("plain").to_dict()["strategy"] == "q-tree"


def test_its_refusal_is_what_the_error_says(con):
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)its rows are not put out.*add them to SELECT"):
        con.execute("CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS SELECT count(*) AS n FROM p, q WHERE p.b = q.b")


@pytest.mark.parametrize(
    ("exponent", "words", "values"),
    [
        (line(1), "1", (1, 1, 1)),
        (line(Fraction(3, 2)), "3/2", (1.5, 1.5, 1.5)),
        (line(2, -2), "2-2eps", (2, 1, 0)),
        (LEAST_MORE, "min(1+eps, 2-eps)", (1, 1.5, 1)),
        (greatest(line(1), least(line(1, 1), line(0, 3))), "max(1, min(1+eps, 3eps))", (1, 1.5, 2)),
    ],
)
def test_exponents_are_functions_of_epsilon(exponent: Exponent, words: str, values: tuple[float, ...]) -> None:
    assert str(exponent) == words
    assert tuple(exponent.at(Fraction(half, 2)) for half in range(3)) == values


@pytest.mark.parametrize("strategy", strategies.RULES, ids=lambda strategy: strategy.recognise.__name__)
def test_every_strategy_names_its_source(strategy: Strategy) -> None:
    assert any(year in strategy.source for year in ("2020", "2022")), strategy.source

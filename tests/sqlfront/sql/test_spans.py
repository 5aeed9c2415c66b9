"""Every node knows where it stands: carets need no second look at the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.carets import caret
from sqlfront.sql.dialect import parse_one

QUERIES = Path(__file__).parents[2] / "fixtures" / "dialect" / "queries.sql"
LINES = [line for line in QUERIES.read_text().splitlines() if not line.startswith("--")]
SQL = """WITH t AS MATERIALIZED (SELECT 1 AS a)
SELECT DISTINCT ON (a) a, /* é */ CASE WHEN x IS NULL THEN 'ü' END AS c,
  count(*) FILTER (WHERE b > 1) OVER (ORDER BY a ROWS 1 PRECEDING)
FROM t JOIN s AS s2 USING (a), LATERAL (SELECT 2) u, range(3) r
WHERE NOT EXISTS (SELECT 1) AND a NOT IN (1, 2) AND a -- comment
  BETWEEN 1 AND 2 AND b::int + 1 > -c.d[1:2] AND x LIKE 'y' ESCAPE '$'
GROUP BY a, ROLLUP (b) HAVING max(a) > 1 QUALIFY rank() OVER w = 1
ORDER BY a DESC NULLS LAST LIMIT 5 OFFSET (1)"""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (exp.With, "WITH t AS MATERIALIZED (SELECT 1 AS a)"),
        (exp.CTE, "t AS MATERIALIZED (SELECT 1 AS a)"),
        (exp.Distinct, "DISTINCT ON (a)"),
        (exp.Case, "CASE WHEN x IS NULL THEN 'ü' END"),
        (exp.If, "WHEN x IS NULL THEN 'ü'"),
        (exp.Is, "x IS NULL"),
        (trees.Window, "count(*) FILTER (WHERE b > 1) OVER (ORDER BY a ROWS 1 PRECEDING)"),
        (trees.Call, "count(*) FILTER (WHERE b > 1)"),
        (exp.WindowSpec, "ROWS 1 PRECEDING"),
        (trees.Star, "*"),
        (exp.From, "FROM t JOIN s AS s2 USING (a), LATERAL (SELECT 2) u, range(3) r"),
        (exp.Join, "JOIN s AS s2 USING (a)"),
        (exp.Lateral, "LATERAL (SELECT 2) u"),
        (exp.Not, "NOT EXISTS (SELECT 1)"),
        (exp.Exists, "EXISTS (SELECT 1)"),
        (trees.Unlike, "a NOT IN (1, 2)"),
        (exp.Between, "a -- comment\n  BETWEEN 1 AND 2"),
        (exp.Cast, "b::int"),
        (exp.DataType, "int"),
        (exp.Add, "b::int + 1"),
        (exp.Neg, "-c.d[1:2]"),
        (exp.Bracket, "c.d[1:2]"),
        (exp.Slice, "1:2"),
        (trees.Match, "x LIKE 'y' ESCAPE '$'"),
        (exp.Group, "GROUP BY a, ROLLUP (b)"),
        (exp.Rollup, "ROLLUP (b)"),
        (exp.Having, "HAVING max(a) > 1"),
        (exp.Qualify, "QUALIFY rank() OVER w = 1"),
        (exp.Limit, "LIMIT 5"),
        (exp.Offset, "OFFSET (1)"),
    ],
)
def test_a_node_spans_its_text(kind, text):
    tree = parse_one(SQL)
    nodes = [node for node in tree.walk() if type(node) is kind]
    assert text in [SQL[slice(*(trees.span(node) or (0, 0)))] for node in nodes]


def test_the_clauses_of_a_query_span_theirs():
    tree = parse_one(SQL)
    piece = {key: SQL[slice(*(trees.span(tree.args[key]) or (0, 0)))] for key in ("where", "order")}
    assert piece["where"].startswith("WHERE NOT EXISTS") and piece["where"].endswith("ESCAPE '$'")
    assert piece["order"] == "ORDER BY a DESC NULLS LAST"
    assert trees.span(tree) == (0, len(SQL))


def test_a_caret_points_at_a_node():
    tree = parse_one("SELECT a,\n  sum(b) OVER () FROM t")
    window = tree.find(trees.Window)
    assert window is not None
    where = caret("SELECT a,\n  sum(b) OVER () FROM t", *(trees.span(window) or (0, 0)))
    assert where == "line 2, column 3:   sum(b) OVER () FROM t\n                    ^^^^^^^^^^^^^^"


def test_a_node_made_by_a_rewrite_spans_its_operands():
    tree = parse_one("SELECT a + 1, b FROM t")
    both = exp.And(this=tree.expressions[0], expression=tree.expressions[1])
    assert trees.span(both) == (7, 15)
    assert trees.span(exp.Null()) is None


@pytest.mark.parametrize("start", range(0, len(LINES), 60))
def test_nodes_lie_inside_their_parents(start):
    for sql in LINES[start : start + 60]:
        for node in parse_one(sql).walk():
            place, parent = trees.span(node), node.parent
            if place is None:
                assert not isinstance(node, exp.Column | exp.Literal | exp.Func | exp.Query | exp.Binary), (sql, node)
                continue
            assert 0 <= place[0] < place[1] <= len(sql)
            around = trees.span(parent) if parent is not None else None
            if around is not None and not reordered(node):
                assert around[0] <= place[0] and place[1] <= around[1], (sql, node, parent)


def reordered(node: exp.Expr) -> bool:
    """Whether a node stands in its text outside its parent: FROM first, or an alias before its table."""
    return node.arg_key in ("alias", "joins") or isinstance(node.parent, exp.TableAlias)


def test_an_expressions_span_reads_as_the_same_expression():
    read = 0
    for sql in LINES:
        for node in parse_one(sql).walk():
            place = trees.span(node)
            if place is not None and isinstance(node, exp.Binary | exp.Case | trees.Call) and not special(node):
                assert parse_one(f"SELECT {sql[slice(*place)]}").expressions[0] == node, (sql, node)
                read += 1
    assert read > 200


def special(node: exp.Expr) -> bool:
    """Nodes that are no expression by themselves, or mean another one there."""
    inside = isinstance(node, exp.PropertyEQ | exp.Kwarg | exp.Dot) or isinstance(node.parent, exp.Table | exp.Lateral)
    return inside or isinstance(node.parent, trees.Unlike)

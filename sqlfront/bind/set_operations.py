"""UNION and UNION ALL: the branches become views whose rows are those of one relation, which the join reads.

UNION is DISTINCT over UNION ALL, so one node form is left to bind: branches alone, without DISTINCT, ORDER BY,
LIMIT or CTEs. Nested ones stay nested, as DuckDB casts their rows twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlfront.bind.refusals import refusal, set_operator
from sqlfront.planner.model.query import Definition
from sqlfront.sql.parse_tree import LOCATION_KEYS, SourceText, Span, Tree, key, parse_select, quoted, relocate, span

_ALONE: Tree = {"modifiers": [], "cte_map": {"map": []}, "setop_all": True}


def as_select(node: Tree) -> Tree:
    """A union as `SELECT [DISTINCT] * FROM` its branches, asking for what it asks for; any other query as it is."""
    if not _is_union(node):
        return node
    star = "*" if node["setop_all"] else "DISTINCT *"
    outer: Tree = relocate(parse_select(f"SELECT {star} FROM (SELECT 1) AS branches", SourceText("")), None)
    outer["from_table"]["subquery"]["node"] = _alone(node)
    modifiers = [*outer["modifiers"], *(_by_position(modifier, node) for modifier in node["modifiers"])]
    return outer | {"modifiers": modifiers, "cte_map": node["cte_map"]}


def is_alone(node: Tree) -> bool:
    """Whether a query node is UNION ALL of its branches and nothing else."""
    return _is_union(node) and all(node[name] == value for name, value in _ALONE.items())


def united(definitions: Sequence[Definition], con: Any) -> list[Definition]:
    """The branches' definitions with the names of the first one's columns, cast to the types that DuckDB gives all."""
    selects = " UNION ALL ".join(map(typed_select, definitions))
    types = [row[1] for row in con.execute(f"DESCRIBE {selects}").fetchall()]
    columns = tuple((name, type_) for (name, _), type_ in zip(definitions[0].columns, types, strict=True))
    return [_cast(definition, columns) for definition in definitions]


def check_casts(branches: Sequence[Definition], united: Definition, node: Tree, source: SourceText, con: Any) -> None:
    """Refuse a union whose column has a type to which DuckDB cannot cast another branch's: it finds that out when it
    casts a value."""
    import duckdb

    for place, (name, wanted) in enumerate(united.columns):
        for branch in branches:
            _, own = branch.columns[place]
            if own == wanted or (sample := _SAMPLES.get(own.partition("(")[0])) is None:
                continue
            try:
                con.execute(f"SELECT CAST(v AS {wanted}) FROM (SELECT CAST('{sample}' AS {own}) AS v)")
            except duckdb.Error as error:
                if "Unimplemented type for cast" in str(error):
                    why = (
                        f"{name} is {own} in one branch and {wanted} in another, and DuckDB casts no {own} to {wanted}"
                    )
                    hint = "cast the column to one type in all branches, VARCHAR for example"
                    raise refusal("This union", source, set_operator(node, source), why, hint) from None


_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_SAMPLES = {
    **{sign + name: "1" for sign in ("", "U") for name in _WHOLE},
    **dict.fromkeys(["FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", "BIT", "BIGNUM"], "1"),
    **dict.fromkeys(["DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"], "2000-01-01"),
    "TIMESTAMP WITH TIME ZONE": "2000-01-01 00:00:00+00",
    "TIME": "00:00:00",
    "INTERVAL": "1 day",
    "UUID": "00000000-0000-0000-0000-000000000000",
    "BLOB": "",
}
"""A value of each type, from which a cast is tried."""


def typed_select(definition: Definition) -> str:
    """A query of a definition's projection over raw columns of their types, which are NULL."""
    nulls = ", ".join(f"CAST(NULL AS {raw.type}) AS {quoted(raw.name)}" for raw in definition.raw) or "1 AS nothing"
    condition = f" WHERE {definition.having}" if definition.having else ""
    return f"SELECT {', '.join(definition.projection)} FROM (SELECT {nulls}){condition}"


def uneven_branch(node: Any, source: SourceText) -> Span | None:
    """Where a branch has more or fewer columns than the first: its SELECT list, or the operator if stars hide them."""
    unions = _set_operations(node)
    for union in unions:
        widths = [_width(branch) for branch in union["children"]]
        uneven = [branch for branch, width in zip(union["children"], widths, strict=True) if width != widths[0]]
        if uneven and None not in widths:
            places = [place for tree in uneven[0].get("select_list", ()) if (place := span(tree))]
            return (places[0][0], places[-1][1]) if places else set_operator(union, source)
    return set_operator(unions[0], source) if len(unions) == 1 else None


def _is_union(node: Tree) -> bool:
    return bool(node["type"] == "SET_OPERATION_NODE" and node["setop_type"] == "UNION")


def _alone(node: Tree) -> Tree:
    """The branches by UNION ALL. What is DISTINCT as a whole need not be so in a branch."""

    def bare(branch: Tree) -> Tree:
        is_inner = _is_union(branch) and not branch["modifiers"] and not node["setop_all"]
        return branch | {"setop_all": True} if is_inner else branch

    return node | _ALONE | {"children": [bare(branch) for branch in node["children"]]}


def _by_position(modifier: Tree, node: Tree) -> Tree:
    """ORDER BY with what a branch's SELECT list puts out, or calls so, by its position, as DuckDB reads it."""
    if modifier["type"] != "ORDER_MODIFIER":
        return modifier
    called: dict[str, int] = {}
    written: dict[str, int] = {}
    for trees in _select_lists(node):
        for place, tree in enumerate(trees, 1):
            called.setdefault(_name(tree), place)
            written.setdefault(key(tree), place)
    orders = []
    for order in modifier["orders"]:
        tree = order["expression"]
        found = called.get(_name(tree)) or written.get(key(tree))
        literal = {"kind": "INTEGER", "text": str(found)}
        at = {name: tree[name] for name in LOCATION_KEYS if name in tree}
        constant = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal, **at}
        as_written = found is None or tree["class"] == "CONSTANT"
        orders.append(order if as_written else order | {"expression": constant})
    return modifier | {"orders": orders}


def _select_lists(node: Tree) -> list[list[Tree]]:
    """The SELECT lists of all branches up to the first with a star, whose columns are counted later."""
    found: list[list[Tree]] = []
    waiting = [node]
    while waiting:
        first = waiting.pop(0)
        waiting[:0] = first.get("children", [])
        trees = first.get("select_list")
        if trees is not None:
            if any(tree["class"] == "STAR" for tree in trees):
                break
            found.append(trees)
    return found


def _name(tree: Tree) -> str:
    """What a column is called by its alias or its own name, or an item of ORDER BY that is a bare name calls."""
    names = tree.get("column_names", ())
    return str(tree.get("alias") or (names[0] if len(names) == 1 else "")).lower() or key(tree)


def _set_operations(tree: Any) -> list[Tree]:
    """All of a parse tree, those around others first."""
    if isinstance(tree, list):
        return [found for value in tree for found in _set_operations(value)]
    if not isinstance(tree, dict):
        return []
    own = [tree] if tree.get("type") == "SET_OPERATION_NODE" else []
    return own + [found for value in tree.values() for found in _set_operations(value)]


def _width(node: Tree) -> int | None:
    """The number of columns, if no star hides it."""
    trees = node.get("select_list")
    if trees is None:
        return _width(node["children"][0]) if node.get("children") else None
    return None if any(tree["class"] == "STAR" for tree in trees) else len(trees)


def _cast(definition: Definition, columns: tuple[tuple[str, str], ...]) -> Definition:
    own = [type_ for _, type_ in definition.columns]
    projection = tuple(
        text if type_ == wanted else f"CAST({text} AS {wanted})"
        for text, type_, (_, wanted) in zip(definition.projection, own, columns, strict=True)
    )
    return replace(definition, projection=projection, columns=columns)

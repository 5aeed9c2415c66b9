"""Hierarchical joins whose output columns are below columns that are projected out, by heavy and light values of these.

The columns that join tables form a tree of *keys* (key_tree.py): b in the star R1(a1, b), ..., Rk(ak, b); a, then
(a, b) in R(a, b, c), S(a, b, d), T(a, e); a, then (a, b) beside (a, e) in R(a, b, c), S(a, b, d), T(a, e, f),
U(a, e, g). What a table has beside its keys, its *ends*, is put out. A top key that is put out is not divided. Light
values of another top key add to the output; every other part tree enumerates rows. There are at most 2k N^(1-eps) heavy
values of a key, so the part of an output row below a key is in as many products at most. Tables without ends only
filter.

Kara, Nikolic, Olteanu and Zhang 2020, with their view trees. For k tables with ends the static width is k, the dynamic
one k - 1, and k if a table has no end.
"""

from __future__ import annotations

from fractions import Fraction

from sqlfront.planner.heavy_light.key_tree import LARGEST, KeyTree
from sqlfront.planner.heavy_light.reasons import say_division
from sqlfront.planner.model.exponents import REST, Exponents
from sqlfront.planner.model.heavy_light import Strategy, Union
from sqlfront.planner.model.hypergraph import hypergraph, occurrences, ordered_variables
from sqlfront.planner.model.plan import Plan, RowsIn
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.hierarchy import find_violation
from sqlfront.planner.theory.wording import are, enumerate_words, labels, spell_violation


def hierarchical(definition: Definition, plan: Plan) -> Union | None:
    """The union, if the keys of the tables form a tree, each with a column that is projected out but for the top one,
    and everything else is put out; else None.

    O(N^((k-1) eps)) a change of a table with ends, O(N^(k eps)) of another one, O(N^(1-eps)) delay, O(N^(1+(k-1) eps))
    space for k tables with ends below one key that is projected out.
    """
    found = _find_keys(definition) if _may_be_divided(definition, plan) else None
    if not isinstance(found, KeyTree):
        return None
    edges, part_trees, space = found.edges, tuple(found.part_trees()), found.space
    exponents = Exponents(space, found.update, REST, space, rows=Fraction(len(found.ended)))
    joint = sum(bool(edge.groups) for edge in edges) > 1
    return Union(HIERARCHICAL, edges, part_trees, found.output(), exponents, joint=joint)


def _may_be_divided(definition: Definition, plan: Plan) -> bool:
    if definition.mode == "bag" or len(definition.atoms) < 2 or plan.rows_in == RowsIn.RANKED_TREE:
        return False
    return plan.shape in ("free-connex", "acyclic")


def _find_keys(definition: Definition) -> KeyTree | str | None:
    """The keys; why they are no such tree; None if no output column depends on what is projected out.

    O(|variables|^2 * |atoms|).
    """
    edges, free = hypergraph(definition), set(definition.free)
    violation = find_violation(edges, definition.free)
    if violation is None:
        return None
    told = spell_violation(definition, violation)
    if violation.condition == "hierarchical":
        return f"its joins are not hierarchical: {told}"
    classes: dict[frozenset[str], list[str]] = {}
    holding = occurrences(edges)
    for variable in sorted(ordered_variables(definition), key=lambda variable: -len(holding[variable])):
        if len(holding[variable]) > 1:
            classes.setdefault(holding[variable], []).append(variable)
        elif variable not in free:
            return f"{told}; {labels(definition, [variable])} of one table is neither put out nor summed there"
    if next(iter(classes)) != frozenset(edges):
        return f"{told}; no column joins all of its tables"
    ended = frozenset(name for name in edges if any(len(holding[variable]) == 1 for variable in edges[name]))
    for place, (holders, key) in enumerate(classes.items()):
        if set(key) <= free and place:
            own = f"{labels(definition, key)} {are(key)} put out"
            return f"{told}; {own}, and each key below another has a column that is not"
        if not ended & holders and (free & set(key) or not place):
            joined = enumerate_words(name for name in edges if name in holders)
            return f"{told}; of {joined}, which {labels(definition, key)} joins, no other column is put out"
    found = KeyTree.of(definition, classes, ended)
    if found.top.parts > LARGEST:
        return f"{told}; its keys have {found.top.parts:,} ways to be heavy or light, and at most {LARGEST} are divided"
    return found


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    return say_division(definition, union, definition.free, epsilon)


def _refusal(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    """Other joins whose output columns depend on what is projected out."""
    found = _find_keys(definition) if _may_be_divided(definition, plan) else None
    return (found, None) if isinstance(found, str) else None


HIERARCHICAL = Strategy(
    hierarchical,
    "the joins",
    "Kara, Nikolic, Olteanu and Zhang 2020, Trade-offs in static and dynamic evaluation of hierarchical queries",
    _reason,
    refusal=_refusal,
)

"""Rewrites of a query that would be easier to keep, as SQL: each is bound and planned before it is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.cost import AMORTISED, CONSTANT, LINEAR, PROJECTED, PROJECTED_AMORTISED, PROJECTED_CONSTANT
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.advice import missing_key
from sqlfront.planner.theory.hierarchy import q_hierarchical_extension
from sqlfront.planner.theory.keys import reduct
from sqlfront.planner.theory.wording import enumerate_words, labels, table_name
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one, printed
from sqlfront.sql.keywords import quoted
from sqlfront.storage.errors import Error

Replan = Callable[[str], Plan]
_BEST_FIRST = (CONSTANT, AMORTISED, PROJECTED_CONSTANT, PROJECTED_AMORTISED, LINEAR, PROJECTED)

COUNTED = "count the joined rows only, which also tells whether there are any"


@dataclass(frozen=True)
class Rewrite:
    """What to change, the query that comes of it, and what a change then costs."""

    what: str
    sql: str
    update: Bound


def find_rewrites(
    query: str, definition: Definition, plan: Plan, replan: Replan, can_alter: Callable[[str], bool]
) -> tuple[Rewrite, ...]:
    """The rewrites that put a view into a cheaper class, cheapest first. `replan` binds and plans a query.

    A rewrite that cannot be bound, or that does not help, is dropped. A key is offered for tables that `can_alter`.
    """
    if plan.cost == CONSTANT or plan.cost not in _BEST_FIRST:
        return ()
    found, now = [], _BEST_FIRST.index(plan.cost)
    for what, tree in _candidates(query, definition, plan):
        sql = printed(tree)
        try:
            better = replan(sql).cost
        except Error:
            continue
        if better in _BEST_FIRST[: now if what != COUNTED else 2]:
            found.append((_BEST_FIRST.index(better), Rewrite(what, sql, better.update)))
    key = missing_key(definition, plan.root) if plan.cost == LINEAR else None
    if key is not None and can_alter(table := definition.atom(key[0]).table):
        columns = ", ".join(map(quoted, key[1]))
        what = f"declare the key, if {enumerate_words(key[1])} {'is' if len(key[1]) == 1 else 'together are'} unique"
        found.append(
            (0, Rewrite(what, f"ALTER TABLE {table_name(table)} ADD PRIMARY KEY ({columns})", CONSTANT.update))
        )
    return tuple(rewrite for _, rewrite in sorted(found, key=lambda pair: pair[0]))


def _candidates(query: str, definition: Definition, plan: Plan) -> Iterator[tuple[str, exp.Select]]:
    tree = parse_one(query)
    if not isinstance(tree, exp.Select) or definition.mode == "bag":
        return
    fixed = reduct(definition).free[len(definition.free) :]
    sets = (q_hierarchical_extension(hypergraph(definition), definition.free) or (), plan.variables_added, fixed)
    where = "GROUP BY and to the SELECT list" if definition.mode == "group" else "the SELECT list"
    for variables in dict.fromkeys(filter(None, sets)):
        if columns := _columns(definition, variables):
            yield f"add {labels(definition, variables)} to {where}", with_columns(tree, columns)
    if definition.mode == "set" and tree.args.get("distinct") is not None:
        yield "drop DISTINCT", without_distinct(tree)
    yield COUNTED, counted(tree)


def _columns(definition: Definition, variables: Sequence[str]) -> list[exp.Column]:
    """The variables as columns of atoms; empty when one is computed."""
    found = []
    for variable in variables:
        holders = ((atom.name, c.source) for atom in definition.atoms for c in atom.variables if c.name == variable)
        place = next(((name, source) for name, source in holders if source is not None), None)
        if place is None:
            return []
        found.append(exp.column(place[1], table=place[0]))
    return found


def with_columns(query: exp.Select, columns: Sequence[exp.Column]) -> exp.Select:
    """The query with more columns at the end of the SELECT list, and of GROUP BY where it lists columns."""
    changed = query.copy()
    group = changed.args.get("group")
    for clause in (changed, group) if group is not None and not group.args.get("all") else (changed,):
        clause.set("expressions", [*clause.expressions, *(column.copy() for column in columns)])
    return changed


def without_distinct(query: exp.Select) -> exp.Select:
    """The query that keeps the copies of a row."""
    changed = query.copy()
    changed.set("distinct", None)
    return changed


def counted(query: exp.Select) -> exp.Select:
    """SELECT count(*) over the same join, without groups."""
    changed = query.copy()
    for clause in ("distinct", "group", "having", "windows", "qualify", "order", "limit", "offset"):
        changed.set(clause, None)
    changed.set("expressions", [trees.Call(this=exp.to_identifier("count"), expressions=[trees.Star()])])
    return changed

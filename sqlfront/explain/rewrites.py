"""Rewrites of a query that would be easier to keep, as SQL: each is bound and planned before it is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.cost import AMORTISED, CONSTANT, LINEAR, PROJECTED, PROJECTED_AMORTISED, PROJECTED_CONSTANT
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.advice import missing_key
from sqlfront.planner.theory.hierarchy import q_hierarchical_extension
from sqlfront.planner.theory.keys import reduct
from sqlfront.planner.theory.wording import enumerate_words, labels, table_name
from sqlfront.sql.keywords import quoted
from sqlfront.sql.tokens import Token, tokenize
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

    Edits are made in the text of the query; one that DuckDB does not understand, or that does not help, is dropped.
    A key is offered for tables that `can_alter`.
    """
    if plan.cost == CONSTANT or plan.cost not in _BEST_FIRST:
        return ()
    found, now = [], _BEST_FIRST.index(plan.cost)
    for what, sql in _candidates(query, definition, plan):
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


def _candidates(query: str, definition: Definition, plan: Plan) -> Iterator[tuple[str, str]]:
    text = _Query(query)
    if definition.mode != "bag":
        fixed = reduct(definition).free[len(definition.free) :]
        sets = (q_hierarchical_extension(hypergraph(definition), definition.free) or (), plan.variables_added, fixed)
        for variables in dict.fromkeys(filter(None, sets)):
            columns = _columns(definition, variables)
            where = "GROUP BY and to the SELECT list" if definition.mode == "group" else "the SELECT list"
            sql = text.with_columns(columns, grouped=definition.mode == "group") if columns else None
            if sql is not None:
                yield f"add {labels(definition, variables)} to {where}", sql
    if definition.mode == "set" and (sql := text.without_distinct()) is not None:
        yield "drop DISTINCT", sql
    if definition.mode != "bag" and (sql := text.counted()) is not None:
        yield COUNTED, sql


def _columns(definition: Definition, variables: Sequence[str]) -> list[str]:
    """SQL for the variables as columns of atoms; empty when one is computed."""
    found = []
    for variable in variables:
        holders = ((atom.name, c.source) for atom in definition.atoms for c in atom.variables if c.name == variable)
        place = next(((name, source) for name, source in holders if source is not None), None)
        if place is None:
            return []
        found.append(f"{quoted(place[0])}.{quoted(place[1])}")
    return found


class _Query:
    """The text of a query and where its outermost clauses are."""

    def __init__(self, text: str) -> None:
        self._text, depth = text, 0
        self._outer: list[Token] = []
        for token in tokenize(text):
            depth -= token.text in ")]}"
            if depth == 0:
                self._outer.append(token)
            depth += token.text in "([{"

    def with_columns(self, columns: Sequence[str], *, grouped: bool) -> str | None:
        """More columns at the end of the SELECT list, and of GROUP BY."""
        select, start = self._place("select"), self._place("from")
        if select is None or start is None or start < select:
            return None
        last = max(token.end for token in tokenize(self._text[:start]))
        edits = [(last, last, ", " + ", ".join(columns))]
        end = self._group_end() if grouped else None
        if end is not None:
            edits.append((end, end, ", " + ", ".join(columns)))
        return self._edited(edits)

    def without_distinct(self) -> str | None:
        token = next((token for token in self._outer if token.keyword == "distinct"), None)
        if token is None:
            return None
        following = next(other.start for other in self._outer if other.start >= token.end)
        return self._edited([(token.start, following, "")])

    def counted(self) -> str | None:
        """SELECT count(*) over the same join, without groups."""
        select, start, group = self._place("select", end=True), self._place("from"), self._place("group")
        if select is None or start is None or start < select:
            return None
        edits = [(select, start, " count(*) ")]
        if group is not None:
            edits.append((group, len(self._text), ""))
        return self._edited(edits)

    def _place(self, keyword: str, *, end: bool = False) -> int | None:
        token = next((token for token in self._outer if token.keyword == keyword), None)
        return None if token is None else token.end if end else token.start

    def _group_end(self) -> int | None:
        """Where the GROUP BY list ends; None when there is none, or it is GROUP BY ALL."""
        places = [i for i, token in enumerate(self._outer) if token.keyword == "group"]
        if not places or self._outer[places[0] + 2].keyword == "all":
            return None
        after = (token.start for token in self._outer[places[0] :] if token.keyword in ("having", "qualify", "window"))
        stop = next(after, len(self._text))
        return max(token.end for token in tokenize(self._text[:stop]))

    def _edited(self, edits: Sequence[tuple[int, int, str]]) -> str:
        text = self._text
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        return text.strip()

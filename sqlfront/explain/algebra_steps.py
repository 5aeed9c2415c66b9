"""EXPLAIN (ALGEBRA): a query's term as it is bound, and after each rule that changed it."""

from __future__ import annotations

from typing import Any

from sqlfront.binding.catalog_facts import facts_of
from sqlfront.binding.query_binder import bind_query
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import Database
from sqlfront.planner.algebra.printed import lines
from sqlfront.planner.algebra.rules.all_rules import trace
from sqlfront.planner.algebra.terms import Term
from sqlfront.sql.dialect import parse_query, printed
from sqlfront.sql.guard import Shown, check_accepted, check_same_meaning


def algebra_steps(database: Database, con: Any, query: str, statement: str, offset: int) -> list[tuple[str, str]]:
    """(rule, term) for the query and each rule that changed its term; a term is lines, one operator each.

    Raises ProgrammingError for a query that DuckDB refuses, NotSupportedError for one that the algebra does not have.
    """
    tree = parse_query(query, statement, offset)
    shown = Shown(statement, offset)
    check_same_meaning(con, query, printed(tree), shown)
    check_accepted(con, query, shown)
    catalog = EngineCatalog(database, con)
    bound = bind_query(tree, statement, con, catalog)
    steps = [("as written", bound.term), *trace(bound.term, facts_of(catalog))]
    return [(rule.replace("_", " "), _text(term)) for rule, term in steps]


def _text(term: Term) -> str:
    return "\n".join(lines(term))

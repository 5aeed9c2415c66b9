"""What views read of a table: the columns, and the conditions on its rows."""

from __future__ import annotations

from sqlfront.maintenance.relation.base_relation import Relation


def columns_read(relation: Relation) -> set[str]:
    """The columns (casefolded) from which a relation's stores are computed; perhaps too many, never too few."""
    import sqlglot
    from sqlglot.tokens import TokenType

    found: set[str] = set()
    for item in relation.inputs.values():
        if item.source is not None:
            found.add(item.source.casefold())
            continue
        words = sqlglot.tokenize(item.expression, dialect="duckdb")  # A parser would nest as the expression does.
        found |= {word.text.casefold() for word in words if word.token_type != TokenType.STRING}
    return found


def conditions(relation: Relation) -> list[str] | None:
    """SQL conditions one of which every row satisfies that any view wants; None if some view wants all rows."""
    found = [store.predicate for store in relation.stores.values()]
    return None if None in found else [text for text in found if text is not None]

"""What the binder refuses by the written query alone: clauses, joins, and functions by name (`check_expression`).

Each rule names the construct, the reason and a rewrite.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlfront.sql.parse_tree import SourceText, Span, Tree, span, walk
from sqlfront.sql.tokens import tokenize
from sqlfront.storage.errors import NotSupportedError

OUTER_JOINS = {
    "LEFT": "LEFT JOIN",
    "RIGHT": "RIGHT JOIN",
    "OUTER": "FULL JOIN",
    "SEMI": "SEMI JOIN",
    "ANTI": "ANTI JOIN",
}
# Written like columns, without parentheses: the clock, or the session, decides their values.
SESSION_WORDS = frozenset(
    (
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_catalog"),
        *("current_role", "current_schema", "current_user", "session_user", "user"),
    )
)
JOIN_KINDS = {"POSITIONAL": "POSITIONAL JOIN", "ASOF": "ASOF JOIN", "DEPENDENT": "a lateral join"}


def refusal(construct: str, source: SourceText, at: Span | None, why: str, hint: str) -> NotSupportedError:
    """The error for a construct that views do not support."""
    return NotSupportedError(f"{construct} is not supported in a view", where=source.where(at), why=why, hint=hint)


def unstable(name: str, source: SourceText, at: Span | None) -> NotSupportedError:
    """The error for a value that changes from query to query."""
    why = "its value changes from query to query, so a stored result cannot stay equal to the query"
    hint = "store the value in a column when the row is written, or filter when you read the view"
    return refusal(name, source, at, why, hint)


def check_query(node: Tree, source: SourceText) -> None:
    """Refuse query nodes and clauses outside select-project-join-aggregate. Raises NotSupportedError."""
    for rule in QUERY_RULES:
        rule(node, source)


def check_expression(tree: Tree, source: SourceText) -> None:
    """Refuse expression classes that cannot be maintained. Raises NotSupportedError."""
    for node in walk(tree):
        refused = EXPRESSIONS.get(node["class"])
        if refused:
            raise refusal(refused[0], source, span(node), refused[1], refused[2])
        if node["class"] == "FUNCTION" and node["function_name"].lower() in ("unnest", "unlist"):
            raise many_rows(source, span(node))


def many_rows(source: SourceText, at: Span | None) -> NotSupportedError:
    """The error for an expression that makes several rows of one."""
    why = "one row becomes many, which the counts of a join do not show"
    return refusal("unnest", source, at, why, "store the elements as rows of a table and join it")


EXPRESSIONS = {
    "WINDOW": (
        "A window function",
        "one changed row can change the result for every row of its partition",
        "keep the rows in a view and compute the window when you read it; QUALIFY row_number() OVER (PARTITION BY ... "
        "ORDER BY ...) <= 3 keeps the first 3 rows of each group",
    ),
    "SUBQUERY": (
        "A subquery in an expression",
        "EXISTS, IN (SELECT ...) and scalar subqueries are semi-joins or nested aggregates, which come later",
        "join the table in FROM instead",
    ),
    "PARAMETER": (
        "A parameter",
        "a view's query is fixed when it is created",
        "write the value, or keep the column in the view and filter when you read it",
    ),
    "COLLATE": (
        "A collation",
        "equality under a collation is not equality of values, which joins and groups rely on",
        "apply the function itself, for example lower(x), and group or join on that",
    ),
    "POSITIONAL_REFERENCE": (
        "A positional column reference (#n)",
        "it changes its meaning when a table gets a column",
        "write the column's name",
    ),
    "DEFAULT": ("DEFAULT", "it has a meaning in INSERT only", "write the value"),
}


_SIDES = "GROUP BY the columns over (SELECT *, 1 AS side FROM one UNION SELECT *, 2 FROM the other) HAVING sum(side) = "
_BY_NAME = (
    "its branches must have their columns in one order",
    "write UNION or UNION ALL, each branch with all columns in one order, NULL for those that it lacks",
)
_COPIES = (
    "how many copies of a row are left is no sum of those of the branches",
    "create a view for each branch that counts its copies, and compare these when you read",
)
_SET_OPERATIONS = {
    "UNION BY NAME": _BY_NAME,
    "UNION BY NAME ALL": _BY_NAME,
    "INTERSECT": ("groups of the rows of both tell which have a row in each", f"{_SIDES}3"),
    "EXCEPT": ("groups of the rows of both tell which have none in the other", f"{_SIDES}1"),
}


def refuse_set_operations(node: Tree, source: SourceText) -> None:
    if node["type"] == "SELECT_NODE":
        return
    if node["type"] == "SET_OPERATION_NODE":
        name = f"{node['setop_type']}{' ALL' if node['setop_all'] else ''}".replace("_", " ")
        why, hint = _SET_OPERATIONS.get(name, _COPIES)
        raise refusal(name, source, set_operator(node, source), why, hint)
    name = "WITH RECURSIVE" if "RECURSIVE" in node["type"] else node["type"].replace("_", " ").lower()
    raise refusal(
        name,
        source,
        keyword(source, ("recursive",)),
        "a recursive view needs a fixpoint, which comes later",
        "unroll the recursion",
    )


def refuse_modifiers(node: Tree, source: SourceText) -> None:
    for modifier in node["modifiers"]:
        if modifier["type"] == "ORDER_MODIFIER":
            raise refusal(
                "ORDER BY",
                source,
                keyword(source, ("order",), modifier["orders"][0]["expression"]),
                "the join around this block does not keep the order of its rows",
                "leave it out here, and order the whole query",
            )
        if modifier["type"] == "DISTINCT_MODIFIER" and modifier["distinct_on_targets"]:
            raise refusal(
                "DISTINCT ON",
                source,
                keyword(source, ("distinct",), modifier["distinct_on_targets"][0]),
                "it keeps one row of each group by an order that the query leaves open",
                "use GROUP BY with aggregates",
            )


def refuse_sample(node: Tree, source: SourceText) -> None:
    if node.get("sample"):
        raise refusal(
            "SAMPLE", source, keyword(source, ("sample", "tablesample")), "its result is random", "leave it out"
        )


def refuse_grouping_sets(node: Tree, source: SourceText) -> None:
    groups = node["group_sets"]
    if len(groups) > 1 or (groups and len(groups[0]) < len(node["group_expressions"])):
        at = [place for group in node["group_expressions"] if (place := span(group))]
        raise refusal(
            "GROUPING SETS (ROLLUP, CUBE)",
            source,
            (at[0][0], at[-1][1]) if at else None,
            "each set is a view of its own",
            "create one view for each set",
        )


QUERY_RULES: tuple[Callable[[Tree, SourceText], None], ...] = (
    refuse_set_operations,
    refuse_modifiers,
    refuse_sample,
    refuse_grouping_sets,
)


def keyword(source: SourceText, words: tuple[str, ...], before: Tree | None = None) -> Span | None:
    """The last of the `words` in the query, before the expression `before` if that has a place."""
    place = span(before) if before else None
    tokens = tokenize(source.statement, source.start, place[0] if place else None)
    return next(((token.start, token.end) for token in reversed(tokens) if token.keyword in words), None)


def set_operator(node: Tree, source: SourceText) -> Span | None:
    """The set operator: the first such word after the first branch's last known position."""
    branch = node["children"][0]
    last = max((place[1] for part in _expressions(branch) if (place := span(part))), default=source.start)
    word = node["setop_type"].partition("_")[0].lower()
    tokens = tokenize(source.statement, last)
    return next(((token.start, token.end) for token in tokens if token.keyword == word), None)


def _expressions(node: Tree) -> list[Tree]:
    found = [*node.get("select_list", []), *node.get("group_expressions", [])]
    found += [tree for tree in (node.get("where_clause"), node.get("having"), node.get("from_table")) if tree]
    return found + [part for branch in node.get("children", []) for part in _expressions(branch)]

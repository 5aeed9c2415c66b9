"""DuckDB's own parse tree of a SELECT, as nested dictionaries, and back to SQL.

DuckDB is the judge of meaning, so its parser reads the query and its printer writes every
expression the engine will evaluate: nothing is lost in translation (`json_serialize_sql` and
`json_deserialize_sql`). Expressions are dictionaries with a `class`; positions are character
offsets into the user's statement.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlfront.sql.carets import caret
from sqlfront.storage.errors import ProgrammingError

Tree = dict[str, Any]
Span = tuple[int, int]

_UNKNOWN_LOCATION = 2**64 - 1
LOCATION_KEYS = ("query_location", "query_location_length")
_lock = threading.Lock()


@dataclass(frozen=True)
class SourceText:
    """A SELECT inside the statement that the user wrote; `start` is where the SELECT begins."""

    statement: str
    start: int = 0

    def where(self, span: Span | None) -> str | None:
        """The statement's line with carets under `span`."""
        return None if span is None else caret(self.statement, *span)

    def text(self, span: Span | None) -> str:
        return "" if span is None else self.statement[span[0] : span[1]]


def parse_select(sql: str, source: SourceText) -> Tree:
    """The query node of `sql`. Raises ProgrammingError for a syntax error or a statement that is no query."""
    answer = json.loads(_ask("SELECT json_serialize_sql(?)", sql))
    characters = _character_offsets(sql)
    if answer["error"]:
        where = None
        if str(answer.get("position", "")).isdigit():
            at = source.start + characters(int(answer["position"]))
            where = source.where((at, _token_end(source.statement, at)))
        if answer["error_type"] == "not implemented":
            where = source.where((source.start, _token_end(source.statement, source.start)))
            raise ProgrammingError("A view's query must be a SELECT", where=where)
        message = answer["error_message"]
        raise ProgrammingError(message[:1].upper() + message[1:], where=where)
    if len(answer["statements"]) != 1:
        raise ProgrammingError("Expected one query", why=f"{len(answer['statements'])} statements were given.")
    node: Tree = answer["statements"][0]["node"]
    _shift_locations(node, source.start, characters)
    return node


def try_parse_select(sql: str) -> Tree | None:
    """The query node of `sql`, or None when DuckDB's parser does not accept it as a query."""
    answer = json.loads(_ask("SELECT json_serialize_sql(?)", sql))
    if answer["error"] or len(answer["statements"]) != 1:
        return None
    node: Tree = answer["statements"][0]["node"]
    _shift_locations(node, 0, _character_offsets(sql))
    return node


def render(tree: Tree, column: Callable[[list[str]], list[str]] = lambda names: names) -> str:
    """SQL text of an expression, as DuckDB prints it; `column` maps each column reference's name parts."""
    return render_all([tree], column)[0]


def render_all(trees: Sequence[Tree], column: Callable[[list[str]], list[str]] = lambda names: names) -> list[str]:
    """SQL text of several expressions, asked from DuckDB at once."""
    if not trees:
        return []
    selects = [_select_of([_printable(tree, column) | {"alias": ""}]) for tree in trees]
    query = "SELECT list_transform((?::JSON)::JSON[], lambda one: json_deserialize_sql(one))"
    return [text.removeprefix("SELECT ") for text in _ask(query, f"[{','.join(selects)}]")]


def render_select(trees: Sequence[Tree]) -> str:
    """`SELECT e0 AS c0, e1 AS c1, ...` of the expressions."""
    items = [_printable(tree, lambda names: names) | {"alias": f"c{i}"} for i, tree in enumerate(trees)]
    text: str = _ask("SELECT json_deserialize_sql(?::JSON)", _select_of(items))
    return text


def _printable(tree: Tree, column: Callable[[list[str]], list[str]]) -> Tree:
    def rename(node: Tree) -> Tree | None:
        return node | {"column_names": column(node["column_names"])} if node["class"] == "COLUMN_REF" else None

    bare: Tree = _without(transform(tree, rename), LOCATION_KEYS)
    return bare


def _select_of(items: list[Tree]) -> str:
    template: Tree = json.loads(_select_template())
    template["statements"][0]["node"]["select_list"] = items
    return json.dumps(template)


def children(node: Any) -> Iterator[Tree]:
    """The nearest expressions below `node`, in source order; a subquery's are not among them."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "subquery":
                continue
            if isinstance(value, dict) and "class" in value:
                yield value
            else:
                yield from children(value)
    elif isinstance(node, list):
        for value in node:
            if isinstance(value, dict) and "class" in value:
                yield value
            else:
                yield from children(value)


def walk(tree: Tree) -> Iterator[Tree]:
    """The expression and all below it, parents first."""
    yield tree
    for child in children(tree):
        yield from walk(child)


def transform(tree: Any, change: Callable[[Tree], Tree | None]) -> Any:
    """A copy in which every expression that `change` answers for is replaced; it is not asked below a replacement."""
    if isinstance(tree, dict):
        if "class" in tree:
            changed = change(tree)
            if changed is not None:
                return changed
        return {name: transform(value, change) for name, value in tree.items()}
    if isinstance(tree, list):
        return [transform(value, change) for value in tree]
    return tree


def key(tree: Tree) -> str:
    """Equal for expressions that differ only in position and alias."""
    return json.dumps(_without(tree, (*LOCATION_KEYS, "alias")), sort_keys=True)


def span(tree: Tree) -> Span | None:
    """Where the expression (or table reference) stands in the statement; parentheses around it are not included."""
    found = [own] if (own := _own_span(tree)) else []
    found += [inner for child in children(tree) if (inner := span(child))]
    return (min(start for start, _ in found), max(end for _, end in found)) if found else None


def relocate(tree: Any, to: Span | None) -> Any:
    """A copy whose every position is `to`: the text of a view stands nowhere in the user's statement."""
    if isinstance(tree, dict):
        moved = {name: relocate(value, to) for name, value in tree.items()}
        if "query_location" in moved:
            moved["query_location"] = None if to is None else to[0]
            moved["query_location_length"] = 0 if to is None else to[1] - to[0]
        return moved
    return [relocate(value, to) for value in tree] if isinstance(tree, list) else tree


def column_ref(*names: str, at: Tree | None = None) -> Tree:
    """A column reference; resolved references have the two names (atom, column)."""
    return _positioned({"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": list(names)}, at)


def call(name: str, *arguments: Tree, operator: bool = False) -> Tree:
    """A function or operator applied to `arguments`."""
    return _positioned(
        {
            "class": "FUNCTION",
            "type": "FUNCTION",
            "alias": "",
            "function_name": name,
            "schema": "",
            "filter": None,
            "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
            "distinct": False,
            "is_operator": operator,
            "export_state": False,
            "catalog": "",
            "arguments": [{"name": "", "expression": argument} for argument in arguments],
            "qualified_name": {"path": [name]},
        },
        None,
    )


def expression(sql: str, **holes: Tree) -> Tree:
    """The tree of an expression, with every column named like a hole replaced by that hole's tree."""
    tree = _parsed_expression(sql)
    return transform(tree, lambda node: holes.get(_only_name(node)))


def conjuncts(tree: Tree | None) -> list[Tree]:
    """The expressions that AND connects."""
    if tree is None:
        return []
    if tree["type"] == "CONJUNCTION_AND":
        return [part for child in tree["children"] for part in conjuncts(child)]
    return [tree]


def arguments(call_tree: Tree) -> list[Tree]:
    return [argument["expression"] for argument in call_tree["arguments"]]


def row_values(tree: Tree) -> list[Tree]:
    """The values of a row, (a, b) or row(a, b); none of anything else."""
    return arguments(tree) if tree["class"] == "FUNCTION" and tree["function_name"] == "row" else []


def columns_of(tree: Tree) -> set[tuple[str, str]]:
    """The (atom, column) pairs that a resolved expression reads; lambda parameters have one name and are no columns."""
    found = (node["column_names"] for node in walk(tree) if node["class"] == "COLUMN_REF")
    return {(names[0], names[1]) for names in found if len(names) == 2}


def atoms_of(tree: Tree) -> set[str]:
    return {atom for atom, _ in columns_of(tree)}


def _only_name(node: Tree) -> str:
    return node["column_names"][0] if node["class"] == "COLUMN_REF" and len(node["column_names"]) == 1 else ""


def _positioned(tree: Tree, at: Tree | None) -> Tree:
    own = _own_span(at) if at else None
    return tree | {"query_location": own[0] if own else None, "query_location_length": own[1] - own[0] if own else 0}


def _own_span(tree: Tree) -> Span | None:
    start = tree.get("query_location")
    return None if start is None else (start, start + tree["query_location_length"])


def _without(tree: Any, names: tuple[str, ...]) -> Any:
    if isinstance(tree, dict):
        return {name: _without(value, names) for name, value in tree.items() if name not in names}
    return [_without(value, names) for value in tree] if isinstance(tree, list) else tree


def _shift_locations(tree: Any, start: int, characters: Callable[[int], int]) -> None:
    """Byte offsets into the SELECT become character offsets into the statement; unknown ones None."""
    if isinstance(tree, dict):
        at = tree.get("query_location")
        if at is not None:
            if at == _UNKNOWN_LOCATION:
                tree["query_location"], tree["query_location_length"] = None, 0
            else:
                end = characters(at + tree["query_location_length"])
                tree["query_location"] = start + characters(at)
                tree["query_location_length"] = end - characters(at)
        for value in tree.values():
            _shift_locations(value, start, characters)
    elif isinstance(tree, list):
        for value in tree:
            _shift_locations(value, start, characters)


def _character_offsets(sql: str) -> Callable[[int], int]:
    if sql.isascii():
        return lambda offset: offset
    data = sql.encode()
    return lambda offset: len(data[:offset].decode(errors="ignore"))


def _token_end(text: str, start: int) -> int:
    match = re.compile(r"\w+|\S|\Z").match(text, start)
    return match.end() if match else start + 1


@functools.lru_cache(maxsize=512)
def _parsed_expression(sql: str) -> Tree:
    tree: Tree = json.loads(_ask("SELECT json_serialize_sql(?)", f"SELECT {sql}"))["statements"][0]["node"][
        "select_list"
    ][0]
    return relocate(tree, None)


@functools.cache
def _select_template() -> str:
    text: str = _ask("SELECT json_serialize_sql(?)", "SELECT 1")
    return text


def ask_parser(query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of a query about DuckDB itself, on the connection that parses: its database is empty."""
    with _lock:
        found: list[tuple[Any, ...]] = _parser().execute(query, parameters).fetchall()
    return found


@functools.cache
def _parser() -> Any:
    """A private connection: parsing needs no catalog and must not disturb a result the user still reads."""
    import duckdb

    return duckdb.connect(":memory:", config={"threads": 1})


def _ask(query: str, argument: str) -> Any:
    """The answer, which only depends on the argument; nobody changes it. That of a short one is remembered."""
    return (_remembered if len(argument) <= _SHORT else _answer)(query, argument)


def _answer(query: str, argument: str) -> Any:
    return ask_parser(query, [argument])[0][0]


_SHORT = 20_000
_remembered = functools.lru_cache(maxsize=512)(_answer)

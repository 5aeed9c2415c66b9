"""Types of expressions, asked from DuckDB, and which casts keep values apart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlfront.bind.from_clause import AtomTable
from sqlfront.sql.parse_tree import Tree, arguments, columns_of, key, quoted, render_select, walk
from sqlfront.storage.errors import NotSupportedError, ProgrammingError

INTEGER_BITS = {
    "TINYINT": (True, 7),
    "SMALLINT": (True, 15),
    "INTEGER": (True, 31),
    "BIGINT": (True, 63),
    "HUGEINT": (True, 127),
    "UTINYINT": (False, 8),
    "USMALLINT": (False, 16),
    "UINTEGER": (False, 32),
    "UBIGINT": (False, 64),
    "UHUGEINT": (False, 128),
}
FLOATS = {"FLOAT": 24, "DOUBLE": 53}
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)\Z")
_TIMESTAMPS = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS")
_NO_VALUES = ("TYPE", "LAMBDA", "STAR")
_NESTED = ("STRUCT", "MAP", "UNION", "VARIANT", "ROW", "TUPLE")


@dataclass(frozen=True)
class BoundNode:
    """One node of DuckDB's bound plan: its function (or cast, comparison), result type and argument types."""

    function: str
    type: str
    argument_types: tuple[str, ...]
    is_call: bool = True


class Typing:
    """Answers about expressions over the atoms, each asked from DuckDB once.

    Every question is put over one row of typed NULLs, so no table is read and none must exist.
    """

    def __init__(self, con: Any, atoms: Sequence[AtomTable]) -> None:
        self._con = con
        self._atoms = {atom.name: atom for atom in atoms}
        self._types: dict[str, str] = {}
        self._comparisons: dict[tuple[str, str], str | None] = {}

    def type_of(self, tree: Tree) -> str:
        """The DuckDB type of an expression over the atoms' columns (an aggregate, too)."""
        known = self._types.get(key(tree))
        return known if known is not None else self.types_of([tree])[0]

    def types_of(self, trees: Sequence[Tree]) -> list[str]:
        """Types of several expressions in one question; aggregates and plain columns may not be mixed."""
        missing = list({key(tree): tree for tree in trees if key(tree) not in self._types}.values())
        if missing:
            rows = self._con.execute(f"DESCRIBE {self._over_nulls(missing)}").fetchall()
            self._types |= {key(tree): row[1] for tree, row in zip(missing, rows, strict=True)}
        return [self._types[key(tree)] for tree in trees]

    def learn(self, trees: Sequence[Tree]) -> None:
        """Ask for the types of the expressions and all their parts at once; later questions need no query."""
        parts = [part for tree in trees for part in walk(tree)]
        self.types_of([part for part in parts if part["class"] not in _NO_VALUES and not _has_parameters(part)])

    def bound(self, trees: Sequence[Tree]) -> list[BoundNode]:
        """What DuckDB makes of the expressions: overloads resolved, implicit casts shown, macros expanded."""
        return bound_nodes(self._con, self._over_nulls(trees)) if trees else []

    def comparison_type(self, left: str, right: str) -> str | None:
        """The type to which `left = right` casts both sides; None when DuckDB compares them in no other way."""
        if left == right:
            return left
        if (left, right) not in self._comparisons:
            query = f"SELECT a = b FROM (SELECT CAST(NULL AS {left}) AS a, CAST(NULL AS {right}) AS b)"
            nodes = bound_nodes(self._con, query)
            at = next(i for i, node in enumerate(nodes) if node.function == "=")
            casts = [node.type for node in nodes[at + 1 :] if node.function == "__cast"]
            self._comparisons[left, right] = casts[0] if casts else None
        return self._comparisons[left, right]

    def _over_nulls(self, trees: Sequence[Tree]) -> str:
        used = sorted({column for tree in trees for column in columns_of(tree)})
        rows = []
        for atom in sorted({atom for atom, _ in used}):
            columns = ", ".join(
                f"CAST(NULL AS {_plain_type(self._atoms[atom].column(name)[1])}) AS {quoted(name)}"
                for owner, name in used
                if owner == atom
            )
            rows.append(f"(SELECT {columns}) AS {quoted(atom)}")
        return render_select(trees) + (f" FROM {', '.join(rows)}" if rows else "")


def _plain_type(kind: str) -> str:
    """The type without the collation the catalog writes behind it."""
    return kind.split(" COLLATE ", 1)[0]


def _has_parameters(tree: Tree) -> bool:
    """Whether a lambda's parameter occurs, which has no type outside the lambda."""
    return any(node["class"] == "COLUMN_REF" and len(node["column_names"]) == 1 for node in walk(tree))


def bound_nodes(con: Any, query: str) -> list[BoundNode]:
    """All nodes of DuckDB's bound plan for `query`, parents first."""
    text = con.execute("SELECT json_serialize_plan(?)", [query]).fetchone()[0]
    if not text:  # DuckDB has no JSON of a plan with a BIT constant.
        raise NotSupportedError(
            "A constant of type BIT is not supported in a view",
            why="DuckDB cannot print its plan, which tells what the expression depends on",
            hint="compare CAST(column AS VARCHAR) with text",
        )
    answer = json.loads(text)
    if answer["error"]:
        raise ProgrammingError(answer["error_message"], where=query)
    return list(_nodes(answer["plans"]))


def is_lossless(source: str, target: str) -> bool:
    """Whether the cast keeps different values different and never loses a digit."""
    if source == target or (source.startswith("ENUM") and target == "VARCHAR"):
        return True
    if source in INTEGER_BITS:
        return _integer_fits(*INTEGER_BITS[source], target)
    if decimal_parts(source) and decimal_parts(target):
        (width, scale), (wide, fine) = decimal_parts(source) or (0, 0), decimal_parts(target) or (0, 0)
        return fine >= scale and wide - fine >= width - scale
    if source in _TIMESTAMPS and target in _TIMESTAMPS:
        return _TIMESTAMPS.index(source) <= _TIMESTAMPS.index(target)
    return (source, target) == ("FLOAT", "DOUBLE") or (source == "DATE" and target in _TIMESTAMPS)


def decimal_parts(kind: str) -> tuple[int, int] | None:
    """(width, scale) of a DECIMAL type."""
    match = _DECIMAL.match(kind)
    return (int(match[1]), int(match[2])) if match else None


def is_exact_number(kind: str) -> bool:
    return kind in INTEGER_BITS or decimal_parts(kind) is not None


def never_null(tree: Tree, has_value: Callable[[Tree], bool], typing: Typing) -> bool:
    """Whether an expression has a value in every row where columns that `has_value` have one; sound, not complete."""
    kind = tree["class"]
    if kind == "COLUMN_REF":
        return has_value(tree)
    if kind == "CONSTANT":
        return bool(tree["literal"]["kind"] != "NULL_LITERAL")
    if kind == "CAST":
        return not tree["try_cast"] and never_null(tree["child"], has_value, typing)
    if kind == "FUNCTION" and tree["function_name"] in ("+", "-", "*") and _is_number(typing.type_of(tree)):
        return all(never_null(argument, has_value, typing) for argument in arguments(tree))
    return False


def _is_number(kind: str) -> bool:
    return kind.endswith("INT") or kind == "INTEGER" or kind.startswith("DECIMAL")


def is_nested(kind: str) -> bool:
    """Lists, arrays, structs, maps, unions: types that cannot be a column of a view's join or output yet."""
    return kind.endswith("]") or kind.startswith(_NESTED)


def _integer_fits(signed: bool, bits: int, target: str) -> bool:
    if target in INTEGER_BITS:
        other_signed, other_bits = INTEGER_BITS[target]
        return bits <= other_bits and (other_signed or not signed)
    if target in FLOATS:
        return bits <= FLOATS[target]
    parts = decimal_parts(target)
    return parts is not None and 10 ** (parts[0] - parts[1]) > 2**bits


def _nodes(tree: Any) -> Iterator[BoundNode]:
    values: Iterable[Any] = tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        if "expression_class" in tree:
            path = (tree.get("qname") or {}).get("path")
            argument_types = [_type_name(argument) for argument in tree.get("arguments", []) if "id" in argument]
            is_call = path is not None or tree["expression_class"] == "BOUND_UNNEST"
            name = path[-1] if path else tree["type"].removeprefix("BOUND_").lower()
            yield BoundNode(name, _type_name(tree.get("return_type")), tuple(argument_types), is_call)
        values = tree.values()
    for value in values:
        if isinstance(value, (dict, list)):
            yield from _nodes(value)


def _type_name(kind: Any) -> str:
    if not kind:
        return ""
    info = kind.get("type_info") or {}
    if kind["id"] == "DECIMAL" and info:
        return f"DECIMAL({info['width']},{info['scale']})"
    held = set(_held_types(info))
    return f"{kind['id']}({', '.join(sorted(held))})" if held else str(kind["id"])


def _held_types(info: Any) -> Iterator[str]:
    """The names of the types inside a nested type."""
    if isinstance(info, dict):
        if "id" in info and "type_info" in info:
            yield _type_name(info)
            return
        info = info.values()
    if not isinstance(info, str):
        for part in info if isinstance(info, Iterable) else ():
            yield from _held_types(part)

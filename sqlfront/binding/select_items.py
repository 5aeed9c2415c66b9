"""The SELECT list: its items with their names, stars and COLUMNS(...) written out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.binding.sight import fields
from sqlfront.planner.algebra.scalars import Scalar
from sqlfront.sql import trees
from sqlfront.sql.dialect import printed
from sqlfront.storage.codecs.nested_types import parse_nested

if TYPE_CHECKING:
    from sqlfront.binding.select_block import SelectBlock

Starred = tuple[str, Scalar]


@dataclass(frozen=True)
class Item:
    """A column that a block puts out; `is_named`: by an alias or a column's own name, else its name is its text."""

    name: str
    value: Scalar
    is_named: bool = True


def items_of(select: exp.Select, block: SelectBlock) -> list[Item]:
    """The items of a SELECT list."""
    items = [item for node in select.expressions for item in _items(node, block)]
    unnamed = [item.name for item in items if not item.is_named]
    names = iter(printed_by_duckdb(unnamed, block.environment.con))
    return [item if item.is_named else replace(item, name=next(names)) for item in items]


def unique_names(names: Sequence[str]) -> list[str]:
    """A subquery's second column `a` is called a_1, as in DuckDB."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        while name.casefold() in seen:
            base = name
            name = f"{base}_{seen[base.casefold()]}"
            seen[base.casefold()] += 1
        seen[name.casefold()] = 1
        result.append(name)
    return result


def printed_by_duckdb(texts: Sequence[str], con: Any) -> list[str]:
    """Expressions as DuckDB prints them, which is what it calls columns without a name; asked at once."""
    if not texts:
        return []
    query = (
        "SELECT list_transform(?::VARCHAR[], lambda one: json_deserialize_sql(json_serialize_sql('SELECT ' || one)))"
    )
    [(names,)] = con.execute(query, [list(texts)]).fetchall()
    return [name.removeprefix("SELECT ") for name in names]


def chosen_columns(node: exp.Expr, block: SelectBlock) -> list[Starred]:
    """The columns that `*`, `t.*` or COLUMNS(...) stands for, with the names that they get."""
    star = _star(node)
    if star is not None:
        return _of_star(star, node, block)
    [argument] = node.expressions
    star = _star(argument)
    if star is not None:
        return _of_star(star, argument, block)
    names = [name for _, name, _ in block.sight.visible()]
    wanted = _wanted(argument, names, block)
    return [(name, value) for _, name, value in block.sight.visible() if name in wanted]


def _items(node: exp.Expr, block: SelectBlock) -> Iterator[Item]:
    this = node.this if isinstance(node, exp.Alias) else node
    if _star(this) is not None or _is_columns(this):
        pattern = _pattern(this) if _is_columns(this) and isinstance(node, exp.Alias) else None
        for name, value in chosen_columns(this, block):
            called = node.alias if isinstance(node, exp.Alias) else name
            yield Item(_renamed(pattern, called, name) if pattern is not None else called, value)
        return
    inner = next((part for part in this.walk() if _is_columns(part) and not _is_spread(part)), None)
    if inner is not None:
        for name, value in chosen_columns(inner, block):
            block.expressions.starred = value
            bound = block.expressions.bind(this)
            block.expressions.starred = None
            yield Item(node.alias if isinstance(node, exp.Alias) else name, bound)
        return
    whole = _unparenthesised(this)
    if isinstance(whole, trees.Call) and whole.name.casefold() in ("unnest", "unlist"):
        from sqlfront.binding.unfolded import unfolded

        if columns := unfolded(whole, block)[1]:
            yield from (Item(name, value) for name, value in columns)
            return
    if isinstance(node, exp.Alias):
        value = block.alias(node.alias.casefold()) if block.is_alias_of(node) else block.expressions.bind(this)
        yield Item(node.alias, value)
    elif isinstance(this, exp.Column):
        yield Item(this.name, block.expressions.bind(this))
    elif isinstance(this, exp.Dot) and isinstance(this.expression, exp.Identifier):
        yield Item(this.expression.name, block.expressions.bind(this))
    else:
        yield Item(printed(_with_windows(_unparenthesised(this), block)), block.expressions.bind(this), False)


def _unparenthesised(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _with_windows(node: exp.Expr, block: SelectBlock) -> exp.Expr:
    """An expression with the definitions of the windows that it names."""
    if not any(one.args.get("alias") for one in node.find_all(trees.Window)):
        return node
    copy = exp.Paren(this=node.copy())
    for window in list(copy.find_all(trees.Window)):
        window.replace(block.expressions.defined(window))
    return copy.this


def _star(node: exp.Expr) -> exp.Star | None:
    """The star of `*` or `t.*`."""
    if isinstance(node, exp.Star):
        return node
    return node.this if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) else None


def _is_columns(node: exp.Expr) -> bool:
    return isinstance(node, trees.Call) and node.name.casefold() == "columns"


def _is_spread(node: exp.Expr) -> bool:
    return isinstance(node.parent, trees.Prefix)


def _of_star(star: exp.Star, node: exp.Expr, block: SelectBlock) -> list[Starred]:
    columns = _star_columns(node, block)
    excluded = [_qualified(one) for one in star.args.get("except_") or ()]
    replacing = {_qualified(one.args["alias"])[1]: one.this for one in star.args.get("replace") or ()}
    renamed = {_qualified(one.this): one.alias for one in star.args.get("rename") or ()}
    found = []
    for owner, name, value in columns:
        spellings = [("", name.casefold()), (owner.casefold(), name.casefold())]
        if any(spelling in excluded for spelling in spellings):
            continue
        if name.casefold() in replacing:
            value = block.expressions.bind(replacing[name.casefold()])
        else:
            block.notes.note_star(value, node)
        found.append((next((renamed[one] for one in spellings if one in renamed), name), value))
    return found


def _star_columns(node: exp.Expr, block: SelectBlock) -> list[tuple[str, str, Scalar]]:
    """(FROM item, column, value)"""
    if not isinstance(node, exp.Column):
        return block.sight.visible()
    names = [part.name for part in node.parts[:-1]]
    source = block.sight.source(names)
    if source is None:
        return [("", name, value) for name, value in _fields(names, node, block)]
    return [(source.name, name, value) for name, value in source.columns]


def _fields(names: Sequence[str], node: exp.Column, block: SelectBlock) -> list[Starred]:
    """The fields of a struct, which is a column or a field of one."""
    [struct] = block.environment.types.typed([block.name(names, node)])
    nested = parse_nested(struct.type)
    if nested is None or nested.family != "STRUCT":
        raise block.notes.refusal("A star here", node, "it is no FROM item and no struct", "list the columns")
    return [(name, fields(struct, [name])) for name in nested.names]


def _qualified(node: exp.Expr | str) -> tuple[str, str]:
    """(FROM item or "", column) of an entry of EXCLUDE, REPLACE or RENAME, folded."""
    if isinstance(node, exp.Column):
        return node.table.casefold(), node.name.casefold()
    return "", (node if isinstance(node, str) else node.name).casefold()


def _wanted(argument: exp.Expr, names: Sequence[str], block: SelectBlock) -> list[str]:
    """The names that a regular expression, a list of names or a lambda chooses."""
    if isinstance(argument, exp.Literal):
        matches = re.compile(argument.name)
        return [name for name in names if matches.search(name)]
    con = block.environment.con
    if isinstance(argument, exp.Lambda) or (isinstance(argument, trees.Infix) and argument.args["operator"] == "->"):
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        return list(con.execute(f"SELECT list_filter([{listed}], {printed(argument)})").fetchall()[0][0])
    return list(con.execute(f"SELECT {printed(argument)}").fetchall()[0][0])


def _pattern(node: exp.Expr) -> re.Pattern[str] | None:
    argument = node.expressions[0]
    return re.compile(argument.name) if isinstance(argument, exp.Literal) else None


def _renamed(pattern: re.Pattern[str], alias: str, name: str) -> str:
    """The alias with the parts of a name that the pattern matched."""
    found = pattern.search(name)
    return found.expand(alias.replace("\\0", "\\g<0>")) if found is not None else alias

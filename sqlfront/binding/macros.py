"""Macros as what they stand for: a view keeps the meaning that they have when it is created.

They are those of the user, and those of DuckDB's own that aggregate or unfold.

DuckDB puts the arguments into the macro's text, too, and confirms that the query with the texts has the same plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sqlfront.binding.notes import Notes
from sqlfront.binding.select_items import printed_by_duckdb
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one, printed
from sqlfront.sql.guard import check_same_meaning
from sqlfront.sql.keywords import quoted
from sqlfront.storage.errors import InternalError

_DEEPEST = 64
_MACROS = """
    SELECT lower(function_name), function_type = 'table_macro', parameters, parameter_types, macro_definition
    FROM duckdb_functions() WHERE function_type IN ('macro', 'table_macro') AND (NOT internal OR lower(function_name) IN
    (SELECT unnest(?::VARCHAR[])))"""


Arguments = dict[str, exp.Expr]
"""What a call gives for parameters, by their folded names."""


@dataclass(frozen=True)
class Macro:
    """One definition of a macro; a type is None where the parameter takes any. `defaults` are SQL by parameter."""

    is_table: bool
    parameters: tuple[str, ...]
    types: tuple[str | None, ...]
    text: str
    defaults: Mapping[str, str] = field(default_factory=dict)


class Macros:
    """The macros of a connection, and those of DuckDB's `own` of some names; a name has several definitions if it is
    overloaded."""

    def __init__(self, con: Any, own: Collection[str] = ()) -> None:
        self._con = con
        self._known: dict[str, list[Macro]] = {}
        for name, is_table, parameters, types, text in con.execute(_MACROS, [list(own)]).fetchall():
            self._known.setdefault(name, []).append(Macro(is_table, tuple(parameters), tuple(types), text))
        self._told: set[str] = set()

    def put_in(self, tree: exp.Expr, notes: Notes) -> exp.Expr:
        """A query with its macros' texts in their places. The tree is changed."""
        first = next(self._calls(tree), None)
        if first is None:
            return tree
        self._name_items(tree)
        written = printed(tree)
        for depth in range(_DEEPEST + 1):
            found = next(self._calls(tree), None)
            if found is None:
                break
            if depth == _DEEPEST:
                why, hint = f"macros are nested more than {_DEEPEST} deep", "write the macro's expression"
                raise notes.refusal(f"The macro {found[0].name}", found[0], why, hint)
            for call, macro, arguments in list(self._calls(tree)):
                _replace(call, macro, arguments)
        try:
            check_same_meaning(self._con, written, printed(tree))
        except InternalError as error:
            why, hint = "DuckDB does not confirm what it stands for here", "write the macro's expression"
            raise notes.refusal(f"The macro {first[0].name}", first[0], why, hint) from error
        return tree

    def _name_items(self, tree: exp.Expr) -> None:
        """Give items of SELECT lists that call macros the names that DuckDB gives them."""
        items = [
            item
            for select in tree.find_all(exp.Select)
            for item in select.expressions
            if not isinstance(item, exp.Alias) and any(True for _ in self._calls(item))
        ]
        for item, name in zip(items, printed_by_duckdb([printed(item) for item in items], self._con), strict=True):
            alias = exp.Alias(this=item.copy(), alias=exp.to_identifier(name, quoted=True))
            alias.meta.update(item.meta)
            item.replace(alias)

    def _calls(self, tree: exp.Expr) -> Iterator[tuple[trees.Call, Macro, Arguments]]:
        for call in tree.find_all(trees.Call):
            plain = not any(call.args.get(key) for key in ("distinct", "order", "within", "filter", "nulls"))
            if call.name.casefold() not in self._known or not plain:
                continue
            in_from = isinstance(call.parent, exp.Table | exp.Lateral)
            given = len(call.expressions) + bool(call.args.get("method"))
            fitting = [
                (macro, arguments)
                for macro in self._macros(call.name.casefold())
                if macro.is_table == in_from and (arguments := _arguments(call, macro)) is not None
            ]
            exact = [one for one in fitting if len(one[0].parameters) == given]
            if len(exact or fitting) == 1:
                yield call, *(exact or fitting)[0]

    def _macros(self, name: str) -> list[Macro]:
        """The definitions of a macro with their defaults, which DuckDB lists where it refuses a call."""
        if name not in self._told:
            self._told.add(name)
            most = ", ".join(["NULL"] * (1 + max(len(one.parameters) for one in self._known[name])))
            for head in ("SELECT", "FROM"):
                query = "SELECT json_serialize_plan(?)->>'error_message'"
                [(message,)] = self._con.execute(query, [f"{head} {quoted(name)}({most})"]).fetchall()
                lines = (message or "").splitlines()
                self._known[name] = [_with_defaults(one, lines) for one in self._known[name]]
        return self._known[name]


def _with_defaults(macro: Macro, candidates: Sequence[str]) -> Macro:
    """A definition with the defaults of its line among DuckDB's candidates: name(x, y INTEGER := 2)."""
    names = [f"{name} {type_}" if type_ else name for name, type_ in zip(macro.parameters, macro.types, strict=True)]
    for line in candidates:
        rest, found = line.strip().partition("(")[2].removesuffix(")"), {}
        for place in reversed(range(len(names))):
            before, marker, default = rest.rpartition(f"{names[place]} := ")
            if marker:
                found[macro.parameters[place].casefold()] = default
                rest = before.removesuffix(", ")
        plain = names[: len(names) - len(found)]
        if found and rest == ", ".join(plain):
            return replace(macro, defaults=found)
    return macro


def _arguments(call: trees.Call, macro: Macro) -> Arguments | None:
    """The arguments by parameter, defaults where none is given; None if they do not fit."""
    method = call.args.get("method")
    written: Sequence[exp.Expr] = [*([method] if method is not None else []), *call.expressions]
    by_place = [one for one in written if not isinstance(one, exp.Kwarg)]
    if len(written) > len(macro.parameters):
        return None
    found = {name.casefold(): one for name, one in zip(macro.parameters, by_place, strict=False)}
    for one in written:
        if isinstance(one, exp.Kwarg):
            found[one.name.casefold()] = one.expression
    for name, default in macro.defaults.items():
        if name not in found:
            found[name] = parse_one(f"SELECT {default}").expressions[0]
    return found if set(found) == {name.casefold() for name in macro.parameters} else None


def _replace(call: trees.Call, macro: Macro, arguments: Arguments) -> None:
    for name, type_ in zip(macro.parameters, macro.types, strict=True):
        if type_ is not None:
            arguments[name.casefold()] = exp.Cast(this=arguments[name.casefold()].copy(), to=_type(type_))
    body = parse_one(macro.text if macro.is_table else f"SELECT {macro.text}")
    place = call.meta.get(trees.SPAN)
    for part in body.walk():
        part.meta[trees.SPAN] = place
    for column in list(body.find_all(exp.Column)):
        argument = arguments.get(column.name.casefold()) if len(column.parts) == 1 else None
        if argument is not None:
            column.replace(exp.Paren(this=argument.copy()))
    if not macro.is_table:
        call.replace(exp.Paren(this=body.expressions[0]))
        return
    around = call.parent
    assert around is not None
    alias = around.args.get("alias") or exp.TableAlias(this=exp.to_identifier(call.name))
    subquery = exp.Subquery(this=body, alias=alias, joins=around.args.get("joins"))
    around.replace(exp.Lateral(this=subquery, alias=alias) if isinstance(around, exp.Lateral) else subquery)


def _type(text: str) -> exp.Expr:
    cast = parse_one(f"SELECT CAST(NULL AS {text})").expressions[0]
    return cast.args["to"]

"""UNION ALL: the branches as views whose rows are those of one relation, or which are read in its place.

The rows of a join by ranges may be far more than its tables have. So a union with such a branch stores no rows: its
branches are read one after the other. The ranked trees of ranked branches are merged in one order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlfront.cut.composed_items import SUMMABLE, Obstacle
from sqlfront.cut.expressions.value_types import INTEGER_BITS, decimal_parts, is_lossless
from sqlfront.planner.model.query import Branch, BranchColumn, Definition, LeafColumn, Limit, Order, RawColumn, Term
from sqlfront.sql.keywords import quoted
from sqlfront.storage.codecs.order import has_same_codes, is_narrow_decimal
from sqlfront.storage.sql_text import quote

Bound = tuple[str, Definition]


def united(definitions: Sequence[Definition], columns: Sequence[tuple[str, str]]) -> list[Definition]:
    """The branches' definitions with the names and types of the union's columns."""
    return [_cast(definition, tuple(columns)) for definition in definitions]


def unfit_cast(branches: Sequence[Definition], columns: Sequence[tuple[str, str]], con: Any) -> str | None:
    """DuckDB's error for a union with a column to whose type it cannot cast another branch's, which it finds out when
    it casts a value; None if it has none."""
    import duckdb

    for place, (name, wanted) in enumerate(columns):
        for branch in branches:
            _, own = branch.columns[place]
            if own == wanted or (sample := _SAMPLES.get(own.partition("(")[0])) is None:
                continue
            try:
                con.execute(f"SELECT CAST(v AS {wanted}) FROM (SELECT CAST('{sample}' AS {own}) AS v)")
            except duckdb.Error as error:
                if "Unimplemented type for cast" in str(error):
                    return f"Unimplemented type for cast ({own} -> {wanted}): column {name} of the union"
    return None


_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_SAMPLES = {
    **{sign + name: "1" for sign in ("", "U") for name in _WHOLE},
    **dict.fromkeys(["FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", "BIT", "BIGNUM"], "1"),
    **dict.fromkeys(["DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"], "2000-01-01"),
    "TIMESTAMP WITH TIME ZONE": "2000-01-01 00:00:00+00",
    "TIME": "00:00:00",
    "INTERVAL": "1 day",
    "UUID": "00000000-0000-0000-0000-000000000000",
    "BLOB": "",
}
"""A value of each type, from which a cast is tried."""


def with_branches(definition: Definition, unions: Mapping[str, Sequence[Bound]]) -> Definition:
    """A definition with its branches, if it is the first rows of a union of ranked queries alone; or with a note why
    the rows of these are stored. Or with its branches, if these join by ranges, and it has all their rows. `unions` has
    the branches as they are bound, ordered by their columns."""
    limit = definition.limit
    bound = unions.get(definition.atoms[0].table) if len(definition.atoms) == 1 else None
    if bound is not None and limit is None:
        return _in_turn(definition, bound)
    if bound is None or limit is None or limit.clause is not None:
        return definition
    columns = [name for name, _ in bound[0][1].columns]
    try:
        if len(definition.orders) > 1:
            raise Obstacle("it keeps other orders too")
        return replace(definition, branches=tuple(_branch(definition, columns, *one) for one in bound))
    except Obstacle as why:
        note = f"the rows of the branches are stored, as their orders are not merged ({why})"
        return replace(definition, notes=(*definition.notes, note))


def _in_turn(union: Definition, bound: Sequence[Bound]) -> Definition:
    """A union with the branches that are read in its place, its rows being their columns; as it is, if one of them, or
    the union, is more than their rows."""
    is_plain = union.mode == "bag" and union.atoms[0].predicate is None
    items = _over_columns(union)
    if not is_plain or items is None or union.having or union.orders or union.windows:
        return union
    branches, types = list[Branch](), list[str]()
    for table, branch in bound:
        raw = {column.name: column for column in branch.raw if column.kind == "variable"}
        found = [raw[name] for text in branch.projection if (name := text.strip().strip('"')) in raw]
        own = [column.type for column in found]
        is_alike = own == [kind for _, kind in branch.columns] and own == (types or own)
        if branch.mode != "bag" or branch.limit or branch.having or branch.windows or not is_alike:
            return union
        types = own
        columns = tuple(BranchColumn(variable=column.variable) for column in found)
        branches.append(Branch(table, replace(branch, orders=()), columns))
    if not any(branch.comparisons for _, branch in bound):
        return union
    names = [name for name, _ in bound[0][1].columns]
    variables = tuple(RawColumn(name, "variable", kind, variable=name) for name, kind in zip(names, types, strict=True))
    leaves = tuple(LeafColumn(name, quoted(name), kind, name) for name, kind in zip(names, types, strict=True))
    rows = replace(union.atoms[0], variables=leaves, required=frozenset(), keys=())
    result = replace(union, atoms=(rows,), free=tuple(names), raw=variables, projection=items, labels=())
    # What was computed for each stored row is computed as the rows are read, under the settings of the view.
    is_frozen = union.is_frozen or any(text.strip('"') not in names for text in items)
    return replace(result, branches=tuple(branches), is_frozen=is_frozen)


def _over_columns(union: Definition) -> tuple[str, ...] | None:
    """The items of a view of one atom over the columns of its table; None if one is more than a variable."""
    [atom] = union.atoms
    values = {column.name: column for column in atom.variables}
    raw = {column.name: column.variable for column in union.raw if column.kind == "variable"}
    found = []
    for text in union.projection:
        leaf = values.get(raw.get(text.strip().strip('"')) or "")
        if leaf is None and any(name in text for name in raw):
            return None
        found.append(text if leaf is None else quote(leaf.source) if leaf.source else leaf.expression)
    return tuple(found)


def _branch(union: Definition, columns: Sequence[str], table: str, branch: Definition) -> Branch:
    """A branch in the order of its union, whose relation has these columns. Obstacle if it has none."""
    order, [atom] = union.orders[0], union.atoms
    if order.obstacle is not None:
        raise Obstacle(order.obstacle)
    if union.mode == "group" or atom.predicate or {column.source for column in atom.variables} != set(columns):
        raise Obstacle("what is ordered are not all rows and columns of the union")
    if not branch.orders or branch.limit is not None:
        raise Obstacle("a branch groups, or is first rows itself")
    if branch.orders[0].obstacle is not None:
        raise Obstacle(branch.orders[0].obstacle)
    places = {column.name: columns.index(column.source or "") for column in atom.variables}
    types = {column.name: column.type for column in atom.variables}
    terms: list[Term] = []
    found: dict[str, BranchColumn] = {}
    for term in order.terms:
        [(_, variable)] = term.parts
        known = _own_term(branch, places[variable], types[variable])
        if known is None:
            text = branch.projection[places[variable]]
            found[variable] = BranchColumn(constant=f"CAST({text} AS {types[variable]})")
            continue
        own, type_ = known
        alike = [other for other in terms if _value_of(other) == _value_of(own)]
        if not alike:
            alike = [replace(own, descending=term.descending, nulls_first=term.nulls_first)]
            terms += alike
        if own.form == "value":
            found[variable] = BranchColumn(variable=own.parts[0][1])
        else:
            found[variable] = BranchColumn(term=terms.index(alike[0]), type=type_)
    is_set = union.mode == "set" and all(column.term is None for column in found.values())
    ranked = Order(tuple(terms), (), (), order.label)
    definition = replace(branch, mode="set" if is_set else branch.mode, orders=(ranked,), limit=Limit(None))
    return Branch(table, definition, tuple(found[column.variable or ""] for column in union.raw))


def _value_of(term: Term) -> tuple[object, ...]:
    """What tells whether two terms have the same value in each row."""
    return term.form, term.parts, term.whole, term.constant, term.rounding


def _own_term(branch: Definition, place: int, wanted: str) -> tuple[Term, str] | None:
    """What a branch's column is ordered by, if that is the union's value, of the type `wanted`, and in what type it is
    read; None of a constant. Obstacle if it is not."""
    number = dict(branch.orders[0].places).get(branch.projection[place])
    if number is None:
        return None
    term, (name, own) = branch.orders[0].terms[number], branch.columns[place]
    if term.form == "value":
        kept = next(raw.type for raw in branch.raw if raw.variable == term.parts[0][1])
        if has_same_codes(kept, wanted):
            return term, wanted
        if kept in SUMMABLE or is_narrow_decimal(kept):  # The sum of one number has its value in any type.
            term, own = replace(term, form="sum", whole=10 ** (decimal_parts(kept) or (0, 0))[1]), wanted
    if term.form == "rounded" and own == wanted:
        return term, own
    is_signed = INTEGER_BITS.get(own, (False, 0))[0] or decimal_parts(own) is not None
    if term.form != "sum" or not is_signed or not is_lossless(branch.columns[place][1], wanted):
        raise Obstacle(f"{name} is {branch.columns[place][1]} in one branch and {wanted} in the union: cast it")
    return term, own


def _cast(definition: Definition, columns: tuple[tuple[str, str], ...]) -> Definition:
    own = [type_ for _, type_ in definition.columns]
    projection = tuple(
        text if type_ == wanted else f"CAST({text} AS {wanted})"
        for text, type_, (_, wanted) in zip(definition.projection, own, columns, strict=True)
    )
    return replace(definition, projection=projection, columns=columns)

"""Evaluate a Definition naively: join the leaves, multiply the factors row by row, project. The binder's oracle.

DuckDB evaluates leaf expressions, the join and the projection; the sums in between are done here,
exactly, with Python's integers and math.fsum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from sqlfront.planner.model.computed_rows import TemporalRows, TouchedGroups
from sqlfront.planner.model.island_rows import RUN, IslandRows
from sqlfront.planner.model.nearest_rows import NearestRows
from sqlfront.planner.model.query import (
    Atom,
    BlockRows,
    Definition,
    Direction,
    DistinctValues,
    LeafColumn,
    RawColumn,
)
from sqlfront.planner.model.raw_column import Terms
from sqlfront.storage.codecs.moments import decode_statistic
from sqlfront.storage.codecs.nested_types import NestedType, parse_nested, with_fields
from tests.window_oracle import NaiveWindows

Row = tuple[Any, ...]
COPIES = "how often"
ROUNDING = 1e-12
"""By which share of a column's greatest number two sums of the same floats may differ."""


def evaluate_definition(definition: Definition, con: Any, tables: Callable[[str], str] | None = None) -> list[Row]:
    """The view's rows, in no order. `tables` maps a qualified table name to what is read instead of it."""
    if definition.derived:
        return _with_derived(definition, con, tables or str)
    if definition.windows is not None:
        [atom] = definition.atoms
        definition = replace(definition, atoms=(replace(atom, factors=definition.windows.factors),))
    factors = [(atom.name, factor) for atom in definition.atoms for factor in atom.factors]
    rows = con.execute(join_sql(definition, factors, tables)).fetchall()
    width = len(definition.free)
    keys = [row[:width] for row in rows]
    if definition.windows is not None:
        return _project(definition, con, _with_windows(definition, factors, keys, [row[width:] for row in rows]))
    if definition.mode == "bag":
        return _project(definition, con, keys)
    if definition.mode == "set":
        return _project(definition, con, list({_hashable(key): key for key in keys}.values()))
    groups: dict[Row, tuple[Row, list[Row]]] = {(): ((), [])} if definition.scalar else {}
    for row in rows:
        groups.setdefault(_hashable(row[:width]), (row[:width], []))[1].append(row[width:])
    columns = {(atom, factor.name): i for i, (atom, factor) in enumerate(factors)}
    types = {(atom, factor.name): factor.type for atom, factor in factors}
    kept = [_kept_values(distinct_set, con, tables) for distinct_set in definition.distinct_sets]
    raw = []
    for key, members in groups.values():
        products = [_products(measure.factors, members, columns, types) for measure in definition.measures]
        values = dict(zip(definition.free, key, strict=True))
        decided = [_hashable(tuple(values[name] for name, _ in one.group)) for one in definition.distinct_sets]
        own = [found.get(part, []) if members else [] for found, part in zip(kept, decided, strict=True)]
        raw.append(tuple(_raw_value(column, products, values, own) for column in definition.raw))
    return _project(definition, con, raw)


def _with_derived(definition: Definition, con: Any, tables: Callable[[str], str]) -> list[Row]:
    """As `evaluate_definition`, with the rows of the derived definitions in temporary tables."""
    names = {table: f"oracle_derived_{number}" for number, (table, _) in enumerate(definition.derived)}

    def read(table: str) -> str:
        return names[table] if table in names else tables(table)

    for table, inner in definition.derived:
        rows = _rows_of(inner, con, read)
        columns = ", ".join(f"{_quote(name)} {type_}" for name, type_ in inner.columns)
        con.execute(f"CREATE OR REPLACE TEMP TABLE {names[table]} ({columns})")
        if rows:
            insert_rows(con, names[table], rows)
        for union, branches in definition.unions:
            if table == branches[-1]:
                names[union] = f"oracle_union_{len(names)}"
                together = " UNION ALL ".join(f"FROM {names[branch]}" for branch in branches)
                con.execute(f"CREATE OR REPLACE TEMP TABLE {names[union]} AS {together}")
    found = evaluate_definition(replace(definition, derived=(), unions=()), con, read)
    for name in names.values():
        con.execute(f"DROP TABLE {name}")
    return found


def _rows_of(block: BlockRows, con: Any, tables: Callable[[str], str]) -> list[Row]:
    """The rows of a block; all but those of a definition are computed by DuckDB."""
    if isinstance(block, Definition):
        return evaluate_definition(block, con, tables)
    if isinstance(block, NearestRows):
        query = _nearest(block, tables)
    elif isinstance(block, TemporalRows):
        query = _passing(block, tables)
    elif isinstance(block, IslandRows):
        query = _islands(block, tables)
    elif isinstance(block, TouchedGroups):
        query = block.query.replace("{rows}", tables(block.table))
    else:
        query = block.query
    rows: list[Row] = con.execute(query).fetchall()
    return rows


def _passing(block: TemporalRows, tables: Callable[[str], str]) -> str:
    """The rows that pass at the present time."""
    shown = ", ".join(_quote(name) for name, _ in block.columns)
    tests = (f"{_quote(one.column)} {one.operator} CAST({one.clock} AS {one.type})" for one in block.bounds)
    return f"SELECT {shown} FROM (SELECT *, now() AS clock FROM {tables(block.table)}) WHERE {' AND '.join(tests)}"


def _nearest(block: NearestRows, tables: Callable[[str], str]) -> str:
    """Each row of the left with a partner, by a correlated subquery over the rows of the right."""
    same = [f"l.{_quote(mine)} IS NOT DISTINCT FROM r.{_quote(theirs)}" for mine, theirs in block.keys]
    mine, theirs = (f"{side}.{_quote(time)}" for side, time in zip("lr", block.times))
    condition = " AND ".join([*same, f"{mine} {block.operator} {theirs}"])
    direction = "DESC" if block.operator in (">", ">=") else "ASC"
    ties = "".join(
        f", r.{_quote(name)} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        for name, (descending, nulls_first) in block.ties
    )
    order = f"ORDER BY {theirs} {direction}{ties}, r LIMIT {block.count}"
    right = f"(SELECT r FROM {tables(block.right)} r WHERE {condition} {order})"
    shown = "".join(f", partner.r.{_quote(name)}" for name in block.shown)
    kind = "LEFT" if block.outer else "INNER"
    return f"SELECT l.*{shown} FROM {tables(block.left)} l {kind} JOIN LATERAL {right} AS partner ON true"


def _islands(block: IslandRows, tables: Callable[[str], str]) -> str:
    """The islands of whole partitions, whose places DuckDB numbers."""
    items = [
        f"{_quote(one.variable)} {'DESC' if one.descending else 'ASC'} NULLS {'FIRST' if one.nulls_first else 'LAST'}"
        for one in block.items
    ]
    partition = ", ".join(map(_quote, block.partition)) or "1"
    peers = "row_number" if block.by_rows else "rank"
    numbered = (
        f"dense_rank() OVER (ORDER BY {partition})",
        f"row_number() OVER (ORDER BY {', '.join([partition, *items])})",
        f"{peers}() OVER (ORDER BY {', '.join([partition, *items[: block.compared]])})",
        "true",
    )
    run = ", ".join(f"{number} AS {_quote(name)}" for number, name in zip(numbered, RUN, strict=True))
    query = block.query.replace("{rows}", f"(SELECT *, {run} FROM {tables(block.table)})")
    return f"SELECT {', '.join(name for name, _ in block.columns)} FROM ({query})"


def _kept_values(
    distinct_set: DistinctValues, con: Any, tables: Callable[[str], str] | None
) -> dict[Row, list[dict[str, Any]]]:
    """For each group the distinct values of the argument's variables, sorted by DuckDB, with how often each comes
    about as `COPIES`."""
    free = distinct_set.definition.free
    directions = distinct_set.directions or (Direction(),) * len(distinct_set.argument)
    order = ", ".join(
        f"{_quote(name)} {'DESC' if one.descending else 'ASC'} NULLS {'FIRST' if one.nulls_first else 'LAST'}"
        for name, one in zip(distinct_set.argument, directions, strict=True)
    )
    names = ", ".join(map(_quote, free))
    inner = join_sql(distinct_set.definition, tables=tables)
    rows = con.execute(f"SELECT *, count(*) FROM ({inner}) AS q({names}) GROUP BY ALL ORDER BY {order}").fetchall()
    found: dict[Row, list[dict[str, Any]]] = {}
    for row in rows:
        values = dict(zip((*free, COPIES), row, strict=True))
        found.setdefault(_hashable(tuple(values[name] for _, name in distinct_set.group)), []).append(values)
    return found


def _kept_value(column: RawColumn, kept: list[dict[str, Any]]) -> Any:
    if column.kind == "count":
        return len(kept)
    if not kept:
        return None
    if column.is_list or column.rank is not None:
        return _listed(column, kept)
    assert column.variable is not None
    if column.kind in ("least", "greatest", "first", "last"):
        return kept[0 if column.kind in ("least", "first") else -1][column.variable]
    values = [value[column.variable] for value in kept]
    if any(isinstance(value, float) for value in values):
        infinities = {value for value in values if math.isinf(value)}
        mixed = len(infinities) == 2 or any(map(math.isnan, values))
        total: Any = math.nan if mixed else infinities.pop() if infinities else math.fsum(values)
    else:
        total = sum(values)
    if column.kind == "avg":
        return float(total / len(values))
    return float(total) if column.type == "DOUBLE" else total


def _listed(column: RawColumn, kept: list[dict[str, Any]]) -> Any:
    """A list of sorted values, each with its copies, or the one at a rank among these."""
    copies = [value for value in kept for _ in range(1 if column.once else value[COPIES])]
    copies = copies[::-1] if column.kind == "greatest" else copies
    values = [value[column.variable or COPIES] for value in copies]
    rank = column.rank
    if rank is None:
        return values[: column.first or None]
    values = values[::-1] if rank.descending else values
    if rank.rounded == "discrete":
        return values[max(1, math.ceil(len(values) * Fraction(rank.fraction))) - 1]
    place = (len(values) - 1) * float(rank.fraction)
    if column.kind == "weight":
        return place - math.floor(place)
    return values[math.floor(place) if rank.rounded == "down" else math.ceil(place)]


def join_sql(
    definition: Definition,
    factors: Sequence[tuple[str, LeafColumn]] = (),
    tables: Callable[[str], str] | None = None,
) -> str:
    """A query for the rows of the join: the free variables, then the factors."""
    first: dict[str, str] = {}
    joined, conditions = _from(definition, None, first, tables)
    conditions += [f"{first[c.left]} {c.operator} {first[c.right]}" for c in definition.comparisons]
    items = [first[name] for name in definition.free]
    items += [f"{_quote(atom)}.{_quote(factor.name)}" for atom, factor in factors]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(items) or '1'} FROM {joined}{where}"


def _from(
    definition: Definition, head: Atom | None, first: dict[str, str], tables: Callable[[str], str] | None
) -> tuple[str, list[str]]:
    """The join of the atoms that are always there, or of a head's group, with the groups inside; the equalities of the
    former. `first` are places where variables have been seen."""
    within = head.name if head is not None else None
    own = [atom for atom in definition.atoms if atom is head or (atom.within == within and atom.presence == "required")]
    equal, leaves = [], []
    for atom in own:
        for variable in atom.variables:
            place = f"{_quote(atom.name)}.{_quote(variable.name)}"
            if variable.name in first:
                same = "=" if variable.name in atom.required else "IS NOT DISTINCT FROM"
                equal.append(f"{first[variable.name]} {same} {place}")
            first.setdefault(variable.name, place)
        leaves.append(f"({leaf_sql(atom, tables)}) AS {_quote(atom.name)}")
    joined = " CROSS JOIN ".join(leaves) if len(leaves) == 1 else f"({' CROSS JOIN '.join(leaves)})"
    for other in definition.outer_atoms:
        if other.within == within:
            inner, conditions = _from(definition, other, first, tables)
            word = {"optional": "LEFT JOIN", "absent": "ANTI JOIN"}[other.presence]
            joined = f"({joined} {word} {inner} ON {' AND '.join(conditions)})"
    return joined, equal


def leaf_sql(atom: Atom, tables: Callable[[str], str] | None = None) -> str:
    """What a leaf keeps of its table."""
    columns = [f"CAST({c.expression} AS {c.type}) AS {_quote(c.name)}" for c in (*atom.variables, *atom.factors)]
    conditions = [f"({atom.predicate})"] if atom.predicate else []
    inner = f"SELECT {', '.join(columns) or '1'} FROM {tables(atom.table) if tables else atom.table}"
    if atom.copies is not None:
        inner += f", range({atom.copies.expression})"
    if conditions:
        inner += f" WHERE {' AND '.join(conditions)}"
    required = " AND ".join(f"{_quote(name)} IS NOT NULL" for name in sorted(atom.required))
    return f"SELECT * FROM ({inner})" + (f" WHERE {required}" if required else "")


def insert_rows(con: Any, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows with one statement for every 500 of them: DuckDB's executemany runs one statement a row."""
    types = [parse_nested(row[1]) for row in con.execute(f"DESCRIBE {table}").fetchall()]
    for start in range(0, len(rows), 500):
        part = [[_given(value, nested) for value, nested in zip(row, types)] for row in rows[start : start + 500]]
        values = ", ".join(f"({', '.join('?' * len(row))})" for row in part)
        con.execute(f"INSERT INTO {table} VALUES {values}", [value for row in part for value in row])


def _given(value: Any, nested: NestedType | None) -> Any:
    return value if nested is None else with_fields(value, nested)


def same_bag(left: Iterable[Row], right: Iterable[Row]) -> bool:
    """Bag equality, rows paired on the columns that are no floats. DuckDB adds floats in any order, so a float differs
    by at most `ROUNDING` of the greatest of its column."""
    one, other = sorted(map(tuple, left), key=_sort_key), sorted(map(tuple, right), key=_sort_key)
    scales = [max(map(_magnitude, column)) for column in zip(*one)]
    return len(one) == len(other) and all(
        len(row) == len(its) and all(map(_same_value, row, its, scales)) for row, its in zip(one, other, strict=True)
    )


def _products(
    factors: tuple[tuple[str, str], ...], rows: list[Row], columns: dict[Any, int], types: dict[Any, str]
) -> list[Any]:
    """The measure's product for every row in which no factor is NULL; decimals as unscaled integers."""
    found = []
    for row in rows:
        product: Any = 1
        for factor in factors:
            value = row[columns[factor]]
            if value is None:
                break
            product *= _unscaled(value, types[factor])
        else:
            found.append(product)
    return found


def _unscaled(value: Any, kind: str) -> Any:
    if kind.startswith("DECIMAL"):
        scaled = Decimal(value).scaleb(int(kind.rstrip(")").split(",")[1]))
        assert scaled == int(scaled)
        return int(scaled)
    if kind.endswith("]"):
        return math.prod(Fraction(_unscaled(element, kind.rpartition("[")[0])) for element in value)
    assert isinstance(value, float) == (kind == "DOUBLE"), (value, kind)
    return value


def _with_windows(
    definition: Definition, factors: list[tuple[str, LeafColumn]], keys: list[Row], members: list[Row]
) -> list[Row]:
    """The raw columns of rows with window functions."""
    columns = {(atom, factor.name): i for i, (atom, factor) in enumerate(factors)}
    types = {(atom, factor.name): factor.type for atom, factor in factors}
    windows = definition.windows
    assert windows is not None

    def summed(column: RawColumn, numbers: Sequence[int]) -> Any:
        frame = [members[number] for number in numbers]
        return _raw_value(column, [_products(one.factors, frame, columns, types) for one in windows.measures], {}, [])

    naive = NaiveWindows(windows, definition.free, keys, summed)
    return [
        tuple(
            _raw_value(raw, [], dict(zip(definition.free, key, strict=True)), [])
            if raw.window is None
            else naive.value(raw.window, raw.variable, raw.over, number)
            for raw in definition.raw
        )
        for number, key in enumerate(keys)
    ]


def _raw_value(
    column: RawColumn, products: list[list[Any]], values: dict[str, Any], kept: list[list[dict[str, Any]]]
) -> Any:
    if column.distinct_set is not None:
        return _kept_value(column, kept[column.distinct_set])
    if column.kind == "variable":
        assert column.variable is not None
        return values[column.variable]
    parts = [coefficient * product for coefficient, measure in column.terms for product in products[measure]]
    if column.kind == "count":
        return sum(parts)
    assert column.present is not None
    present = sum(products[column.present])
    if not present:
        return None
    if column.kind == "statistic":
        return _statistic(column, products, present)
    total: Any = math.fsum(parts) if any(isinstance(part, float) for part in parts) else sum(parts)
    if column.specials:
        nan, positive, negative = (_total(terms, products) for terms in column.specials)
        if nan or (positive and negative):
            return math.nan
        total = math.inf if positive else -math.inf if negative else total
    if column.kind == "avg":
        return float(total / 10**column.scale / present) if column.specials else total / (10**column.scale * present)
    if column.type == "DOUBLE":
        return float(total)
    return Decimal(total).scaleb(-column.scale) if column.scale else total


def _total(terms: Terms, products: list[list[Any]]) -> Any:
    return sum(coefficient * product for coefficient, measure in terms for product in products[measure])


def _statistic(column: RawColumn, products: list[list[Any]], count: int) -> float | None:
    """A statistic of moments that are summed as fractions."""
    assert column.statistic is not None
    moments = {
        moment.powers: sum((c * Fraction(p) for c, measure in moment.terms for p in products[measure]), Fraction())
        for moment in column.moments
    }
    whole = math.lcm(*(moment.denominator for moment in moments.values()))
    numbers = {powers: [int(moment * whole ** sum(powers))] for powers, moment in moments.items()}
    outside = [np.array([_total(terms, products)]) for terms in column.specials or ()]
    unit = whole * 10**column.scale
    found: float | None = decode_statistic(column.statistic, np.array([count]), numbers, unit, outside)[0].as_py()
    return found


def _project(definition: Definition, con: Any, rows: list[Row]) -> list[Row]:
    """The final projection over the raw columns, by DuckDB."""
    names = [f"{_quote(column.name)} {column.type}" for column in definition.raw] or ["nothing INTEGER"]
    con.execute(f"CREATE OR REPLACE TEMP TABLE oracle_raw ({', '.join(names)})")
    if rows:
        full = [row if definition.raw else (None,) for row in rows]
        insert_rows(con, "oracle_raw", full)
    having = f" WHERE {definition.having}" if definition.having else ""
    limit, sort = definition.limit, ""
    if limit is not None:
        items = ", ".join(f"({expression}) {direction}" for expression, direction in definition.orders[0].sorting)
        rows_kept = "ALL" if limit.rows is None else limit.rows
        sort = f" ORDER BY {items or 1} LIMIT {rows_kept} OFFSET {limit.offset}"
        if limit.clause is not None:
            groups = ", ".join(f"({expression})" for expression in limit.by) or "1"
            number = f"{limit.numbering}() OVER (PARTITION BY {groups} ORDER BY {items or 1})"
            sort = f" QUALIFY {number} BETWEEN {limit.offset + 1} AND {limit.end or 2**62}"
    result = con.execute(f"SELECT {', '.join(definition.projection)} FROM oracle_raw{having}{sort}").fetchall()
    con.execute("DROP TABLE oracle_raw")
    return list(result)


def _hashable(key: Any) -> Any:
    """Values, nested ones too, as tuples in which one NaN equals another."""
    if isinstance(key, dict):
        return tuple(map(_hashable, key.items()))
    if isinstance(key, (list, tuple)):
        return tuple(map(_hashable, key))
    return "NaN" if isinstance(key, float) and math.isnan(key) else key


def _sort_key(row: Row) -> tuple[Any, ...]:
    exact = tuple(_order(value) for value in row if not isinstance(value, float))
    return exact, tuple(_order(value) for value in row if isinstance(value, float))


def _order(value: Any) -> tuple[str, Any]:
    if value is None:
        return ("", 0)
    if isinstance(value, float) and math.isnan(value):
        return ("nan", 0)
    if isinstance(value, (bool, int, float, Decimal)):
        return ("number", value)
    return (type(value).__name__, str(value))


def _magnitude(value: Any) -> float:
    return abs(value) if isinstance(value, float) and math.isfinite(value) else 0.0


def _same_value(one: Any, other: Any, scale: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or abs(one - other) <= ROUNDING * scale
    return type(one) is type(other) and _hashable(one) == _hashable(other)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

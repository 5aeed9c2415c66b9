"""Types of expressions, asked from DuckDB by one DESCRIBE for all expressions of a block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlfront.binding.bound_calls import AggregateCall
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    Logic,
    Ref,
    Scalar,
    columns_of,
    parts_of,
    walk,
    with_parts,
)
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.sql.guard import query_columns
from sqlfront.storage.errors import NotSupportedError

PARAMETER = "LAMBDA PARAMETER"
BETWEEN = "{0} BETWEEN {1} AND {2}"
WHOLE = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
)
_PLAIN_TYPE = re.compile(r"([A-Za-z_ ]+\d*[A-Za-z_]*)(\(\s*\d+\s*(?:,\s*\d+\s*)?\))?((?:\[\])*)")
_FLOATING = ("FLOAT", "DOUBLE")
_ROUNDED = frozenset(("{0} + {1}", "{0} - {1}", "{0} * {1}", "-{0}"))


_TYPE_NAMES: dict[str, str] = {}


def canonical(type_: str, con: Any) -> str:
    """A type as DuckDB writes it, without names of the user's types: other connections of ours do not have these."""
    if not _TYPE_NAMES:
        rows = con.execute("SELECT type_name, logical_type FROM duckdb_types() WHERE internal").fetchall()
        _TYPE_NAMES.update(rows)
    plain = _PLAIN_TYPE.fullmatch(type_)
    name = _TYPE_NAMES.get(plain[1].strip().lower()) if plain is not None else None
    if plain is None or name is None:
        return query_columns(con, f"SELECT CAST(NULL AS {type_})")[0][1]
    if (name == "DECIMAL") != bool(plain[2]):
        return type_
    digits = re.sub(r"\s", "", plain[2]) if plain[2] else ""
    if digits and "," not in digits:
        digits = f"{digits[:-1]},0)"
    return name + digits + (plain[3] or "")


class Types:
    """The types of expressions, by their SQL over columns; each is asked once. `found` are all of them."""

    def __init__(self, con: Any) -> None:
        self._con = con
        self.found: set[str] = set()
        self._known: dict[str, str] = {}

    def typed(self, scalars: Sequence[Scalar]) -> list[Scalar]:
        """The expressions with the types of all their parts; no query where they have them."""
        self._learn(scalars)
        return [self._typed(scalar) for scalar in scalars]

    def union(self, branches: Sequence[Sequence[str]]) -> list[str]:
        """The types of the columns of a set operation, by those of its branches."""
        first = list(branches[0])
        if all(list(one) == first for one in branches):
            return first
        nulls = (", ".join(f"CAST(NULL AS {type_})" for type_ in one) for one in branches)
        return self._described(" UNION ALL ".join(f"SELECT {one}" for one in nulls))

    def rows(self, rows: Sequence[Sequence[Scalar]]) -> list[str]:
        """The types of the columns of VALUES."""
        texts = ", ".join(f"({', '.join(map(scalar_sql, row))})" for row in rows)
        columns = columns_of(*(value for row in rows for value in row))
        nulls = f"FROM (SELECT {_nulls(columns)}), " if columns else "FROM "
        lateral = "LATERAL " if columns else ""
        return self._described(f"SELECT v.* {nulls}{lateral}(VALUES {texts}) AS v")

    def _learn(self, scalars: Iterable[Scalar]) -> None:
        missing: dict[str, Scalar] = {}
        for scalar in scalars:
            for part in walk(scalar):
                if isinstance(part, Call | Constant) and not part.type and not _has_parameter(part):
                    text = scalar_sql(part)
                    if text not in self._known:
                        missing[text] = part
        if not missing:
            return
        columns = columns_of(*missing.values())
        items = ", ".join(f"{text} AS t{place}" for place, text in enumerate(missing))
        source = f" FROM (SELECT {_nulls(columns)})" if columns else ""
        is_grouped = any(isinstance(inner, AggregateCall) for part in missing.values() for inner in walk(part))
        grouped = f" GROUP BY {', '.join(sorted(map(str, columns)))}" if columns and is_grouped else ""
        self._known |= zip(missing, self._described(f"SELECT {items}{source}{grouped}"), strict=True)

    def _described(self, query: str) -> list[str]:
        import duckdb

        try:
            types = [type_ for _, type_ in query_columns(self._con, query)]
            self.found.update(types)
            return types
        except duckdb.Error as error:
            raise NotSupportedError(
                "This query is not supported in a view",
                why=f"DuckDB takes one of its expressions only where it stands: {error}",
                hint="write the expression in simpler words, or compute it in a column of the table",
            ) from error

    def _typed(self, scalar: Scalar) -> Scalar:
        parts = parts_of(scalar)
        changed = tuple(self._typed(part) for part in parts)
        new = scalar if all(a is b for a, b in zip(changed, parts)) else with_parts(scalar, changed)
        if isinstance(new, Call | Constant) and not new.type:
            type_ = self._known.get(scalar_sql(scalar), PARAMETER)
            return _known_better(replace(new, type=type_))
        return new


def _known_better(scalar: Scalar) -> Scalar:
    """A typed expression with what its types tell: DOUBLEs do not overflow, and BETWEEN of one type is two
    comparisons."""
    if not isinstance(scalar, Call):
        return scalar
    if scalar.form == BETWEEN and len({_family(part.type) for part in scalar.arguments}) == 1:
        value, low, high = scalar.arguments
        return Logic("AND", (Compare(">=", value, low), Compare("<=", value, high)))
    if scalar.form == "{0} / {1}" and scalar.type in WHOLE:  # Under integer_division.
        return replace(scalar, form="{0} // {1}")
    if scalar.form in _ROUNDED and scalar.type in _FLOATING:
        return replace(scalar, can_fail=False)
    if scalar.form == "try({0})" and all(map(_is_rounded, walk(scalar.arguments[0]))):
        return scalar.arguments[0]
    if scalar.form.startswith("CAST(") and scalar.arguments:
        type_ = scalar.type.replace("{", "{{").replace("}", "}}")
        scalar, source = replace(scalar, form=f"CAST({{0}} AS {type_})"), scalar.arguments[0].type
        is_wider = scalar.type == "VARCHAR" or (scalar.type == "DOUBLE" and _family(source) == "number")
        return replace(scalar, can_fail=False) if is_wider or source == scalar.type else scalar
    return scalar


def _is_rounded(scalar: Scalar) -> bool:
    """Whether an expression is a column, a constant, or a sum or product of DOUBLEs."""
    return isinstance(scalar, Ref | Constant) or (
        isinstance(scalar, Call) and scalar.form in _ROUNDED and scalar.type in _FLOATING
    )


def _family(type_: str) -> str:
    """Types that are compared without loss have one family."""
    return "number" if type_ in WHOLE or type_.startswith("DECIMAL") else type_


def _has_parameter(scalar: Scalar) -> bool:
    return any(isinstance(part, Constant) and part.type == PARAMETER for part in walk(scalar))


def _nulls(columns: Iterable[Column]) -> str:
    ordered = sorted(columns, key=lambda column: column.number)
    return ", ".join(f"CAST(NULL AS {column.type}) AS {column}" for column in ordered)

"""Types, values and functions of random terms: what a column may be, and what may be computed of columns.

Nothing fails for any row, and nothing is rounded: floating numbers are halves, whose sums are the same in any order.
Equal values look the same: no -0.0, and no intervals of months beside those of days.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.nested_values import random_value

NUMBER, COUNT, SUM, TEXT, TRUTH, RATIO = "INTEGER", "BIGINT", "HUGEINT", "VARCHAR", "BOOLEAN", "RATIO"
"""RATIO is a DOUBLE that has been rounded once: it is compared, but never summed."""
LIST, PAIR = "INTEGER[]", "STRUCT(x INTEGER, y VARCHAR)"
TYPES = (
    "SMALLINT", "BIGINT", "UBIGINT", "HUGEINT", "DECIMAL(9,2)", "DECIMAL(30,3)", "DOUBLE", "FLOAT", "VARCHAR",
    "BOOLEAN", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "mood", "UUID", "BLOB", "BIT",
    "INTEGER[]", "STRUCT(x INTEGER, y VARCHAR)", "VARCHAR[2]", "MAP(VARCHAR, INTEGER)", "STRUCT(d DATE, l DOUBLE[])[]",
)  # fmt: skip
MOODS = "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')"
WHOLE = ("SMALLINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT")
DECIMALS = ("DECIMAL(9,2)", "DECIMAL(30,3)")
HALVES = ("DOUBLE", "FLOAT")
_FEW = {
    "INTEGER": ("0", "1", "1", "2", "3"),
    "BIGINT": ("0", "1", "2", "-9000000000"),
    "UBIGINT": ("0", "1", "2", "18446744073709551615"),
    "SMALLINT": ("0", "1", "2", "-32768"),
    "HUGEINT": ("0", "1", "2", "-100000000000000000000"),
    "DECIMAL(9,2)": ("0", "1", "1.25", "-9999999.99"),
    "DECIMAL(30,3)": ("0", "1", "1.125", "-123456789012345678901234.5"),
    "DOUBLE": ("0", "1", "1.5", "-0.5", "'nan'", "'inf'"),
    "FLOAT": ("0", "1", "1.5", "-0.5"),
    "INTERVAL": ("'0 days'", "'1 day'", "'2 days 03:00:00'", "'-1 day'"),
    "mood": ("'sad'", "'ok'", "'happy'"),
    "VARCHAR": ("''", "'a'", "'b'", "'1'", "'é'"),
    "TIMESTAMP": ("'2020-02-29 12:34:56.789'", "'2020-02-29'", "'1969-12-31 23:59:59'"),
    "TIMESTAMP WITH TIME ZONE": ("'2020-02-29 12:34:56+00'", "'2020-02-29 00:00:00+00'"),
    "DATE": ("'2020-02-29'", "'2020-03-01'", "'1969-12-31'"),
    "STRUCT(d DATE, l DOUBLE[])[]": (
        "[]", "[NULL]", "[{'d': DATE '2020-02-29', 'l': [1.5, NULL]}]", "[{'d': NULL, 'l': NULL}]",
    ),
}  # fmt: skip


def value_sql(type: str, random: Random, nulls: float = 0.2) -> str:
    """A value of a type, as DuckDB SQL that has exactly this type."""
    few = _FEW.get(type, ("0", "1", "2.5") if type.startswith("DECIMAL") else None)
    if few is None:
        return random_value(type, random, nulls)
    return f"CAST({'NULL' if random.random() < nulls else random.choice(few)} AS {type})"


@dataclass(frozen=True)
class Form:
    """An expression, as DuckDB SQL with {0}, {1}, ... for arguments of these types; `*` is the type of the value."""

    sql: str
    arguments: tuple[str, ...]
    strict: bool = False


ANY_TYPE = (
    Form("coalesce({0}, {1})", ("*", "*")),
    Form("CASE WHEN {0} THEN {1} ELSE {2} END", (TRUTH, "*", "*")),
    Form("nullif({0}, {1})", ("*", "*")),
)
FORMS: dict[str, tuple[Form, ...]] = {
    **{
        kind: (Form(f"CAST({{0}} % 7 + {{1}} % 7 AS {kind})", ("*", "*"), True), Form("greatest({0}, {1})", ("*", "*")))
        for kind in WHOLE
    },
    **{
        kind: (Form(f"CAST({{0}} % 5 + {{1}} % 5 AS {kind})", ("*", "*"), True), Form("least({0}, {1})", ("*", "*")))
        for kind in DECIMALS
    },
    "INTEGER": (
        Form("CAST({0} % 7 + {1} % 7 AS INTEGER)", ("*", "*"), True),
        Form("CAST(length({0}) AS INTEGER)", (TEXT,), True),
        Form("CAST(len({0}) AS INTEGER)", (LIST,), True),
        Form("{0}[1]", (LIST,)),
        Form("struct_extract({0}, 'x')", (PAIR,)),
        Form("CAST(year({0}) % 9 AS INTEGER)", ("DATE",)),
        Form("CAST({0} AS INTEGER)", ("SMALLINT",), True),
    ),
    **{kind: (Form("({0} * 0.5 + {1})::" + kind, ("*", "*"), True), Form("(- {0})", ("*",), True)) for kind in HALVES},
    "VARCHAR": (
        Form("({0} || {1})", ("*", "*"), True),
        Form("upper({0})", ("*",), True),
        Form("substr({0}, 1, 1)", ("*",), True),
        Form("CAST({0} AS VARCHAR)", ("mood",), True),
        Form("CAST({0} AS VARCHAR)", ("DATE",), True),
        Form("CAST({0} AS VARCHAR)", ("UUID",), True),
        Form("CAST({0} AS VARCHAR)", ("DECIMAL(9,2)",), True),
        Form("CAST({0} AS VARCHAR)", (PAIR,), True),
    ),
    "DATE": (
        Form("({0} + CAST({1} % 5 AS INTEGER))", ("*", "INTEGER"), True),
        Form("CAST({0} AS DATE)", ("TIMESTAMP",), True),
    ),
    "TIMESTAMP": (Form("CAST({0} AS TIMESTAMP)", ("DATE",), True), Form("date_trunc('day', {0})", ("*",), True)),
    "BOOLEAN": (Form("(NOT {0})", ("*",), True), Form("({0} LIKE 'a%')", (TEXT,), True)),
    "BLOB": (Form("encode({0})", (TEXT,), True),),
    "INTEGER[]": (Form("[{0}, {1}]", ("INTEGER", "INTEGER")), Form("list_concat({0}, {1})", ("*", "*"))),
    "STRUCT(x INTEGER, y VARCHAR)": (Form("struct_pack(x := {0}, y := {1})", ("INTEGER", TEXT)),),
    "mood": (Form("greatest({0}, {1})", ("*", "*")),),
}  # fmt: skip


def forms_of(type: str) -> tuple[Form, ...]:
    """What makes a value of a type, with its arguments' types."""
    forms = () if type == RATIO else FORMS.get(type, ())
    return tuple(
        Form(one.sql, tuple(type if part == "*" else part for part in one.arguments), one.strict)
        for one in (*ANY_TYPE, *forms)
    )


def sum_type(type: str) -> str | None:
    """The type of a sum; None if there is none that leaves nothing open."""
    if type in WHOLE:
        return SUM
    return f"DECIMAL(38,{type[:-1].split(',')[1]})" if type in DECIMALS else "DOUBLE" if type in HALVES else None

"""A statement of Spark's as DuckDB must write it to mean the same; what is not known to be equal is refused by name.

`spark_rules.txt` is the knowledge. A rule is `name | kinds of the first argument | what to write`; a statement's
functions, casts and operators each need one. Equal means: wherever Spark answers, DuckDB gives an equal value.
`tests/spark/test_spark_meaning.py` holds every rule against Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.sql.carets import caret
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

Columns = Callable[[str], dict[str, str]]
"""The columns of a table by its name, with DuckDB's types; empty if there is no such table."""
_KINDS = {
    "int": "TINYINT SMALLINT INT BIGINT UTINYINT USMALLINT UINT UBIGINT INT128",
    "decimal": "DECIMAL",
    "double": "DOUBLE FLOAT",
    "string": "VARCHAR TEXT CHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP TIMESTAMPTZ TIMESTAMPLTZ TIMESTAMPNTZ DATETIME",
    "boolean": "BOOLEAN",
    "interval": "INTERVAL",
    "null": "NULL",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_PLAIN_PATTERN = re.compile(r"[\w\s,;:.^|()\[\]*+?<>=!@#%&/-]*")
_DATE_PATTERN = re.compile(r"(%Y|%m|%d|%H|%M|%S|strict|[-/:. _])*")
_PLAIN = {"Like": re.compile(r"[^\\]*"), "ILike": re.compile(r"[^\\]*"), "date_format": _DATE_PATTERN}
_MEANING = (exp.Func, exp.Binary, exp.Unary, exp.Between, exp.In, exp.Bracket)
_STRUCTURE = (exp.And, exp.Or, exp.Exists, exp.Interval, exp.Paren, exp.Dot, exp.PropertyEQ, exp.Kwarg)
SIGNS = {
    "EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<=", "NullSafeEQ": "<=>", "Add": "+", "Sub": "-",
    "NullSafeNEQ": "IS DISTINCT FROM", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "DIV", "Neg": "unary -",
    "RegexpLike": "RLIKE", "Bracket": "[]", "DPipe": "||", "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^",
    "BitwiseNot": "~", "BitwiseRightShift": "shiftright", "Quantile": "percentile",
    "ApproxQuantile": "percentile_approx",
    "ArgMax": "max_by", "ArgMin": "min_by", "StrPosition": "position", "Chr": "chr", "DecodeCase": "decode",
}  # fmt: skip
"""What users write for sqlglot's classes, where it is not the class's name."""
_OF_UNITS = (exp.Extract, exp.DateTrunc, exp.TimestampTrunc)
_DAYS = {"DAY", "DAYS", "WEEK", "WEEKS", "MONTH", "MONTHS", "QUARTER", "QUARTERS", "YEAR", "YEARS"}
_WAY_OUT = "write the statement in DuckDB's dialect (without dialect=), or that part otherwise"


def with_spark_meaning(tree: Expr, text: str, dialect: str, columns: Columns | None) -> Expr:
    """The tree of a statement that was read from `text`, changed so that sqlglot prints what means the same in DuckDB.

    NotSupportedError, with a caret, for a function, cast or operator without a rule for its kinds.
    """
    kinds = _kinds(tree, dialect, columns)
    for node in list(tree.walk(bfs=False))[::-1]:
        names = _names(node, text)
        if names:
            taken = [kinds.get(one.meta.get("number", -1), "unknown") for one in _operands(node)]
            how = _how(names, taken)
            if how is None or how.startswith("!"):
                raise _refusal(node, names[-1], taken, text, how)
            if how != "=":
                tree, written = _replaced(tree, node, how)
                if isinstance(written, exp.Cast):
                    kinds[written.meta["number"]] = _kind_of_type(written.to)
    return tree


@cache
def rules() -> dict[str, tuple[tuple[frozenset[str], str], ...]]:
    """By name: for which kinds of the first argument (`*`: any) what is written; `=` as sqlglot does, `!` why not."""
    found: dict[str, list[tuple[frozenset[str], str]]] = {}
    for line in Path(__file__).with_name("spark_rules.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            names, kinds, how = (part.strip() for part in line.split(" | ", 2))
            for name in names.split(", "):
                found.setdefault(name, []).append((frozenset(kinds.split()), how))
    return {name: tuple(ways) for name, ways in found.items()}


def _how(names: list[str], kinds: list[str]) -> str | None:
    """The first rule that fits the kinds, of the first name that has rules; `a/b` is for two operands."""
    for name in names:
        for wanted, how in rules().get(name, ()):
            if "*" in wanted or (kinds and (kinds[0] in wanted or "/".join(kinds[:2]) in wanted)):
                return how
        if name in rules():
            return None
    return None


def _names(node: Expr, text: str) -> list[str]:
    """What the rules may call a function, cast or operator, the closest first; none for other parts of a statement."""
    if isinstance(node, exp.Cast):
        return [f"{'try_cast' if node.args.get('safe') else 'cast'} {_kind_of_type(node.to)}"]
    if isinstance(node, _STRUCTURE) or not isinstance(node, _MEANING):
        return []
    written = isinstance(node, exp.Func) and "start" in node.meta
    name = text[node.meta["start"] : node.meta["end"] + 1].lower() if written else type(node).__name__
    unit = node.this if isinstance(node, exp.Extract) else node.args.get("unit")
    if unit is not None and (isinstance(node, _OF_UNITS) or unit.name.upper() != "DAY"):
        return [f"{name} {unit.name}".lower()]
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
    operands = list(_operands(node))
    plain = _PLAIN.get(name, _PLAIN_PATTERN)
    if isinstance(node.parent, exp.Escape) or all(_is_plain(one, plain) for one in operands[1:]):
        return [f"{name}/{len(operands)}", name]
    return [f"{name} \\", f"{name}/{len(operands)}", name]


def _is_plain(value: Expr, plain: re.Pattern[str]) -> bool:
    """Whether a value is a literal in which no sign has a meaning of Spark's own."""
    return isinstance(value, exp.Literal) and plain.fullmatch(value.name) is not None


def _operands(node: Expr) -> Iterator[Expr]:
    """The values that a function, cast or operator takes, in sqlglot's order."""
    for child in node.iter_expressions():
        if child.arg_key not in ("unit", "to") and not isinstance(child, exp.Var):
            yield child.expressions[0] if isinstance(child, exp.Distinct) and child.expressions else child


def _kinds(tree: Expr, dialect: str, columns: Columns | None) -> dict[int, str]:
    """The kinds of a tree's parts by the numbers that the parts get here, as far as they can be told."""
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.annotate_types import annotate_types
    from sqlglot.optimizer.qualify import qualify
    from sqlglot.schema import MappingSchema

    names = {table.name for table in tree.find_all(exp.Table)}
    known: dict[str, object] = {
        name: found for name in sorted(names) if columns is not None and (found := columns(name))
    }
    for number, node in enumerate(tree.walk()):
        node.meta["number"] = number
    try:
        schema = MappingSchema(known, dialect="duckdb")
        copy = qualify(
            tree.copy(), schema=schema, dialect=dialect, validate_qualify_columns=False, quote_identifiers=False
        )
        typed = annotate_types(copy, schema=schema, dialect=dialect)
    except SqlglotError:
        return {}
    types = {node.meta["number"]: node.type for node in typed.walk() if "number" in node.meta}
    return {number: _kind(node, types.get(number)) for number, node in enumerate(tree.walk())}


def _kind(node: Expr, type_: Expr | None) -> str:
    """The kind of a value; an interval of days or months is `interval`, another one `time`."""
    if isinstance(node, exp.Interval):
        return "interval" if node.unit is not None and node.unit.name.upper() in _DAYS else "time"
    if isinstance(node, exp.Literal):
        return "string" if node.is_string else "int" if node.is_int else "decimal"
    if isinstance(node, exp.Null):
        return "null"
    return _kind_of_type(type_)


def _kind_of_type(type_: Expr | None) -> str:
    return _KIND_OF.get(type_.this.name, "unknown") if isinstance(type_, exp.DataType) else "unknown"


def _replaced(tree: Expr, node: Expr, how: str) -> tuple[Expr, Expr]:
    """The tree with what a rule writes in a node's place, and that; `{node}` is the node with its window and filter."""
    from sqlglot import parse_one

    if "{node}" in how:
        while isinstance(node.parent, (exp.Window, exp.Filter, exp.WithinGroup)) and node.arg_key == "this":
            node = node.parent
    operands = {str(number): operand for number, operand in enumerate(_operands(node))}
    args = {"node": node.copy(), **operands, **{key: value for key, value in node.args.items() if value is not None}}
    written = parse_one(re.sub(r"\{(\w+)\}", r"__\1", how), read="duckdb")
    for place in list(written.find_all(exp.Column, exp.DataType)):
        name = place.name if isinstance(place, exp.Column) else place.sql(dialect="duckdb").lower()
        if name.startswith("__"):
            place.replace(_argument(args[name[2:]]))
    written.meta["number"] = node.meta["number"]
    node.replace(written)
    return (written if node is tree else tree), written


def _argument(value: Expr) -> Expr:
    """An argument in its new place, in parentheses if it has several parts."""
    copy = value.copy()
    return exp.Paren(this=copy) if isinstance(copy, (exp.Binary, exp.Unary)) else copy


def _refusal(node: Expr, name: str, kinds: list[str], text: str, how: str | None) -> NotSupportedError:
    what = f"CAST to {name.split()[-1]}" if "cast " in name else SIGNS.get(name, name)
    of = f" of {' and '.join(kinds[:2])}" if kinds and "cast " not in name else f" from {kinds[0]}" if kinds else ""
    if how is None and "unknown" in kinds[:1]:
        why = f"what {what} means depends on the type of its first value, which cannot be told here"
    else:
        why = how[1:].strip() if how else f"{what}{of} has no counterpart in DuckDB that is known to be equal"
    start, end = _span(node, text)
    where = caret(text, start, end) if end else None
    return NotSupportedError(f"Spark's {what} is not translated", where=where, why=why, hint=_WAY_OUT)


def _span(node: Expr, text: str) -> tuple[int, int]:
    """Where a node stands in the text: its name, else from its first part that has a place to its last one."""
    if "start" in node.meta:
        return node.meta["start"], node.meta["end"] + 1
    places = [(one.meta["start"], one.meta["end"] + 1) for one in node.walk() if "start" in one.meta]
    return (min(a for a, _ in places), max(b for _, b in places)) if places else (0, 0)

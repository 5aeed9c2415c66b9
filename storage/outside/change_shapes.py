"""The shapes in which sources tell changes, and one SQL query that makes signed rows of any of them.

| shape | columns beside the table's | a row means |
|---|---|---|
| plain | none | an insert |
| weight | `_weight` | so many copies come, or go |
| change_type | `_change_type` (Spark's and Delta's change feeds) | insert, delete, an image before or after an update |
| debezium | `op`, `before`, `after` | c, r: `after` comes; d: `before` goes; u: both |

The query filters, projects and nets, so that whoever runs it (DuckDB or Spark) hands over only what views read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlfront.storage.errors import ProgrammingError

SHAPES = ("auto", "plain", "weight", "change_type", "debezium")
VERSION, WEIGHT = "_commit_version", "_weight"


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a source: the table's columns with DuckDB's names of their types; those that views `read`
    (None: all), SQL conditions one of which every wanted row satisfies (None: all rows are wanted), and the columns of
    each of the table's keys. Names in `read` and `keys` are casefolded."""

    columns: tuple[tuple[str, str], ...]
    read: frozenset[str] | None = None
    conditions: tuple[str, ...] | None = None
    keys: tuple[frozenset[str], ...] = ()

    @property
    def needed(self) -> list[tuple[str, str]]:
        return [(name, type_) for name, type_ in self.columns if self.read is None or name.casefold() in self.read]

    @property
    def repeats(self) -> bool:
        """Whether many wanted rows may be equal, so that fewer are left when they are netted: columns are left out, and
        no key is among the rest."""
        read = self.read
        return read is not None and len(self.needed) < len(self.columns) and not any(key <= read for key in self.keys)


@dataclass(frozen=True)
class Dialect:
    """How an engine writes names, errors, and values as a column's type (the table's own cast, where it has that)."""

    quote: Callable[[str], str]
    error: str
    cast: Callable[[str, str], str]

    def text(self, value: str) -> str:
        return f"CAST({value} AS {'STRING' if self.error == 'raise_error' else 'VARCHAR'})"


def shape_of(shape: str, columns: Sequence[str], wanted: Wanted) -> str:
    """The shape of a source with these columns. ProgrammingError if it does not have what the shape or table needs."""
    if shape not in SHAPES:
        raise ProgrammingError(f"there is no shape {shape!r} of changes", hint="one of " + ", ".join(SHAPES))
    known, own = {name.casefold() for name in columns}, {name.casefold() for name, _ in wanted.columns}
    if shape == "auto":
        signs = [("weight", {"_weight"}), ("change_type", {"_change_type"}), ("debezium", {"op", "before", "after"})]
        shape = next((name for name, needs in signs if needs <= known and not needs & own), "plain")
    needs = {"weight": {"_weight"}, "change_type": {"_change_type"}, "debezium": {"op", "before", "after"}}
    required = needs.get(shape, set()) | (own if shape != "debezium" else set())
    missing = required - known
    if missing:
        raise ProgrammingError(
            f"the source has no column {', '.join(sorted(missing))}",
            why=f"changes of shape {shape!r} have the table's columns and those that say what happened",
            hint=f"its columns: {', '.join(columns)}",
        )
    return shape


def signed_rows(relation: str, shape: str, wanted: Wanted, dialect: Dialect, where: str | None = None) -> str:
    """A query for the netted changes in a relation: the needed columns and `_weight`. `where` restricts its rows."""
    quote = dialect.quote
    needed = [name for name, _ in wanted.needed]
    parts = []
    for values, condition in signed_branches(shape, wanted, dialect, where):
        filtered = f" WHERE {condition}" if condition else ""
        parts.append(f"SELECT {', '.join(values)} FROM {relation}{filtered}")
    restricted = f" WHERE {any_of(wanted.conditions)}" if wanted.conditions else ""
    chosen = ", ".join([*map(quote, needed), f"CAST(SUM({WEIGHT}) AS BIGINT) AS {WEIGHT}"])
    grouping = f" GROUP BY {', '.join(map(quote, needed))}" if needed else ""
    union = " UNION ALL ".join(parts)
    return f"SELECT {chosen} FROM ({union}) AS __changes{restricted}{grouping} HAVING SUM({WEIGHT}) <> 0"


def signed_branches(
    shape: str, wanted: Wanted, dialect: Dialect, where: str | None = None
) -> list[tuple[list[str], str | None]]:
    """The needed columns and `_weight`, as expressions with names, and the condition, of each kind of row in a shape.

    Their union, restricted to the rows that are wanted, are the changes. `where` restricts the relation's own rows.
    """
    found = []
    for prefix, weight, condition in _branches(shape, dialect):
        own = [
            (dialect.cast(prefix + dialect.quote(name), type_), dialect.quote(name)) for name, type_ in wanted.needed
        ]
        values = [f"{value} AS {name}" for value, name in [*own, (f"CAST({weight} AS BIGINT)", WEIGHT)]]
        found.append((values, " AND ".join(f"({text})" for text in (where, condition) if text) or None))
    return found


def any_of(conditions: Sequence[str]) -> str:
    """A condition that holds where one of them does."""
    return " OR ".join(f"({text})" for text in conditions)


def _branches(shape: str, dialect: Dialect) -> list[tuple[str, str, str | None]]:
    """(what precedes a column, the weight, the condition) of each kind of row that a shape holds."""
    quote = dialect.quote
    if shape == "weight":
        weight = quote("_weight")
        return [("", f"CASE WHEN {weight} IS NULL THEN {_error(dialect, '_weight', weight)} ELSE {weight} END", None)]
    if shape == "change_type":
        kind = quote("_change_type")
        signs = (
            f"CASE WHEN {kind} IN ('insert', 'update_postimage') THEN 1 "
            f"WHEN {kind} IN ('delete', 'update_preimage') THEN -1 ELSE {_error(dialect, '_change_type', kind)} END"
        )
        return [("", signs, None)]
    if shape == "debezium":
        op = quote("op")
        known = f"CASE WHEN {op} IN ('c', 'r', 'u', 'd') THEN {{}} ELSE {_error(dialect, 'op', op)} END"
        # Tombstones, which have no `op`, only follow a delete.
        return [
            (f"{quote('before')}.", known.format(-1), f"{op} IS NOT NULL AND {op} NOT IN ('c', 'r')"),
            (f"{quote('after')}.", known.format(1), f"{op} IS NOT NULL AND {op} IN ('c', 'r', 'u')"),
        ]
    return [("", "1", None)]


_KNOWN = {
    "_weight": "a number of copies that come, or go if it is negative",
    "_change_type": "insert, delete, update_preimage or update_postimage",
    "op": "c, r, u or d",
}


def _error(dialect: Dialect, what: str, value: str) -> str:
    """An expression that fails: the value is none that the shape has."""
    found = f"CONCAT('{what} is not known: ', COALESCE({dialect.text(value)}, 'NULL'), '{_way_out(what)}')"
    return f"CAST({dialect.error}({found}) AS INT)"


def _way_out(what: str) -> str:
    why = f"in changes of this shape it says what happened to a row: {_KNOWN[what]}"
    hint = f"correct or filter these rows, or give shape = plain if {what} is an ordinary column"
    return f"\nWhy: {why}\nTry: {hint}"

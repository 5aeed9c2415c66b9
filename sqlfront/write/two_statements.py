"""Upserts and MERGE of one row as two statements that tell their changes: the second runs if the first has no row.

A MERGE is an UPDATE of the rows that join the source, then an INSERT. An upsert is an UPDATE of the row with the key,
then an INSERT, if nothing but this key can refuse the row; else INSERT ... ON CONFLICT DO NOTHING, which refuses what
the upsert would, then the UPDATE. All are the statement's own words, cut out of its text. The source is one row of
literals, so it either meets a row or does not, and nothing is evaluated twice that could differ. As only one of the two
may run, all names and literals are known to be right before. For all other forms, and after any error, the statement
runs as it is written, between dropping and recreating the triggers (storage/capture/upsert.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlfront.sql.name_parts import NAME, TABLE, listed, listed_names, split_name
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.setup import columns, constraints
from sqlfront.storage.sql_text import quote
from sqlfront.write.returned import Telling

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_LONGEST = 4000
_NAMES = listed(NAME)
_VALUE = r"(?:-?\d+(?:\.\d+)?|'(?:[^']|'')*'|null\b)"
_EXCLUDED = rf"(?:excluded\s*\.\s*{NAME}|{_VALUE})"
_OF_SOURCE = rf"(?:{NAME}\s*\.\s*{NAME}|{_VALUE})"
_CAST = r"(?:\s*::\s*([A-Za-z]+))?"
_ITEM = rf"({_VALUE}){_CAST}\s+(?:as\s+)?({NAME})"
_SET, _SET_OF_SOURCE = rf"{NAME}\s*=\s*{_EXCLUDED}", rf"{NAME}\s*=\s*{_OF_SOURCE}"
_EQUAL = rf"{NAME}\s*\.\s*{NAME}\s*=\s*{NAME}\s*\.\s*{NAME}"

_UPSERT = re.compile(
    rf"""\s*(?P<insert>insert\s+into\s+{TABLE}\s*(?:\(\s*(?P<columns>{_NAMES})\s*\)\s*)?
    values\s*\(\s*(?P<row>{listed(_VALUE)})\s*\))\s*(?P<nothing>on\s+conflict\s*\(\s*(?P<key>{_NAMES})\s*\)\s*do)\s+
    update\s+set\s+(?P<sets>{listed(_SET)})\s*;?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_MERGE = re.compile(
    rf"""\s*merge\s+into\s+(?P<target>{TABLE}(?:\s+as\s+{NAME})?)\s+
    using\s*(?P<source>\(\s*select\s+{listed(_ITEM)}\s*\)\s*(?:as\s+)?(?P<alias>{NAME}))\s+
    on\s+(?P<condition>{_EQUAL}(?:\s+and\s+{_EQUAL})*)\s+
    when\s+matched\s+then\s+update\s+set\s+(?P<sets>{listed(_SET_OF_SOURCE)})\s+
    when\s+not\s+matched\s+then\s+insert\s*(?:\(\s*(?P<columns>{_NAMES})\s*\)\s*)?
    values\s*\(\s*(?P<row>{listed(_OF_SOURCE)})\s*\)\s*;?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_VALUES, _PARTS = re.compile(_VALUE, re.IGNORECASE), re.compile(_OF_SOURCE, re.IGNORECASE)
_PAIRS = re.compile(rf"({NAME})\s*=\s*({_OF_SOURCE})", re.IGNORECASE)
_EQUALS = re.compile(rf"({NAME}\s*\.\s*{NAME})\s*=\s*({NAME}\s*\.\s*{NAME})", re.IGNORECASE)
_ITEMS = re.compile(_ITEM, re.IGNORECASE)
_DIGITS = {"TINYINT": 2, "SMALLINT": 4, "INTEGER": 9, "BIGINT": 18, "HUGEINT": 38, "FLOAT": 38, "DOUBLE": 38}
"""How many digits surely fit into a type."""


def two_statements(session: Session, text: str, table: QualifiedName) -> tuple[Telling, Telling] | None:
    """The two statements that a text is, or None."""
    if len(text) > _LONGEST:
        return None
    if (found := _MERGE.fullmatch(text)) is not None:
        return _merge(found, _shape(session, table).types)
    found = _UPSERT.fullmatch(text)
    return None if found is None else _upsert(found, _shape(session, table))


def _merge(found: re.Match[str], types: dict[str, str]) -> tuple[Telling, Telling] | None:
    items, values, typed = _ITEMS.findall(found["source"]), dict[str, str](), dict[str, str]()
    for value, cast, name in items:
        if cast and not _fits(value, cast.upper()):
            return None
        values[_folded(name)[0]] = value
        typed[_folded(name)[0]] = f"CAST({value} AS {cast})" if cast else value
    if len(values) < len(items):
        return None
    alias, row = _folded(found["alias"])[0], _PARTS.findall(found["row"])
    sets = [(_folded(name)[0], value) for name, value in _PAIRS.findall(found["sets"])]
    named = _folded(found["columns"]) if found["columns"] else list(types)
    for targets in (sets, list(zip(named, row, strict=False))):
        for name, value in targets:
            if not _VALUES.fullmatch(value):
                table, column = map(str.casefold, split_name(value))
                value = values.get(column, "") if table == alias else ""
                if value.lower() == "null" and types.get(name) not in _DIGITS:  # NULL is an INTEGER there.
                    return None
            if not _fits(value, types.get(name)):
                return None
    if len(named) != len(row) or not _distinct(named) or not _distinct([name for name, _ in sets]):
        return None
    names = f" ({found['columns']})" if found["columns"] else ""
    same = _same(found["condition"], alias, values, typed, types)
    if same is None:
        return None
    target = found["target"]
    assigned = (
        f"{quote(name)} = {value if _VALUES.fullmatch(value) else typed[_folded(value)[1]]}" for name, value in sets
    )
    update = f"UPDATE {target} SET {', '.join(assigned)} WHERE {same}"
    insert = f"INSERT INTO {found['table']}{names} SELECT {found['row']} FROM {found['source']}"
    return Telling(update, sign=1, before=f"FROM {target} WHERE {same}", sure=True), Telling(insert, sign=1)


def _same(
    condition: str, alias: str, values: dict[str, str], typed: dict[str, str], types: dict[str, str]
) -> str | None:
    """The condition with literals in place of the source's columns; None if one may be no value of the column that it
    is compared with."""
    pairs = []
    for left, right in _EQUALS.findall(condition):
        column, source = (left, right) if _folded(right)[0] == alias else (right, left)
        (other, name), (own, given) = _folded(column), _folded(source)
        if own != alias or other == alias or not _fits(values.get(given, ""), types.get(name)):
            return None
        pairs.append(f"{column} = {typed[given]}")
    return " AND ".join(pairs)


def _upsert(found: re.Match[str], shape: Shape) -> tuple[Telling, Telling] | None:
    types = shape.types
    named = _folded(found["columns"]) if found["columns"] else list(types)
    values = _VALUES.findall(found["row"])
    if len(named) != len(values) or not set(named) <= types.keys():
        return None
    given = dict(zip(named, values, strict=True))
    key, sets, names = _folded(found["key"]), [], []
    for name, value in _PAIRS.findall(found["sets"]):
        [column] = _folded(name)
        if not _VALUES.fullmatch(value):
            [source] = _folded(value.partition(".")[2].strip())
            value = given.get(source, "")
            if types.get(source) != types.get(column) and not _fits(value, types.get(column)):
                return None
            value = value and f"CAST({value} AS {types[source]})"
        elif not _fits(value, types.get(column)):
            return None
        if column in key or not value:
            return None
        names.append(column)
        sets.append(f"{name} = CAST({value} AS {types[column]})")
    if not set(key) <= given.keys() or not _distinct(names):
        return None
    same = " AND ".join(f"{quote(name)} = CAST({given[name]} AS {types[name]})" for name in key)
    table, insert, accepted = found["table"], found["insert"], shape.accepts(given, key)
    update = f"UPDATE {table} SET {', '.join(sets)} WHERE {same}"
    updating = Telling(update, sign=1, before=f"FROM {table} WHERE {same}", sure=accepted)
    if accepted:
        return updating, Telling(insert, sign=1)
    return Telling(f"{insert} {found['nothing']} NOTHING", sign=1), updating


def _fits(value: str, kind: str | None) -> bool:
    """Whether a literal surely is a value of a column: of the two statements, only one may run and find it wrong."""
    if kind is None or not value:
        return False
    if value.lower() == "null":
        return True
    if value.startswith("'"):
        return kind == "VARCHAR"
    whole, _, rest = value.removeprefix("-").partition(".")
    if kind.startswith("DECIMAL("):
        width, scale = map(int, kind[8:-1].split(","))
        return len(whole) <= width - scale and len(rest) <= scale
    return (not rest or kind in ("FLOAT", "DOUBLE")) and len(whole) <= _DIGITS.get(kind, 0)


def _distinct(names: list[str]) -> bool:
    return len(set(names)) == len(names)


def _folded(names: str) -> list[str]:
    return list(map(str.casefold, listed_names(names)))


@dataclass(frozen=True)
class Shape:
    """What is known of a table: the types of the columns that an INSERT without a list gives, in order; the key that is
    its only constraint but for columns that are not NULL, if there is one and no column is computed."""

    types: dict[str, str]
    key: frozenset[str]
    not_null: frozenset[str]

    def accepts(self, given: dict[str, str], key: Sequence[str]) -> bool:
        """Whether nothing but the key can refuse a row of these literals, in which no value is left to a DEFAULT."""
        whole = bool(self.key) and self.key == set(key) and given.keys() == self.types.keys()
        return whole and all(
            _fits(value, self.types[name]) and not (name in self.not_null and value.lower() == "null")
            for name, value in given.items()
        )


def _shape(session: Session, table: QualifiedName) -> Shape:
    """What is known of a table; remembered as plans are."""
    remembered = f"columns of {table}"
    found = session.plans.get(remembered)
    if found is None:
        names, generated = columns(session.duck, session.database.name, table)
        types = {name.casefold(): kind for name, kind in names.items() if name not in generated}
        keys, not_null, others = constraints(session.duck, session.database.name, table)
        key = frozenset(keys[0]) if len(keys) == 1 and not (others or generated) else frozenset[str]()
        found = session.plans[remembered] = Shape(types, key, not_null)
    shape: Shape = found
    return shape

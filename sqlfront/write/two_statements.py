"""Upserts and MERGE of one row as two statements under our triggers, of which the second runs if the first did nothing.

An upsert is INSERT ... ON CONFLICT DO NOTHING, then an UPDATE of the row with the key. A MERGE is an UPDATE of the rows
that join the source, then an INSERT. Both are the statement's own words, cut out of its text. The source is one row of
literals, so it either meets a row or does not, and nothing is evaluated twice that could differ. For all other forms,
and after any error, the statement runs as it is written, between dropping and recreating the triggers
(storage/capture/upsert.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlfront.sql.name_parts import split_name
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.setup import columns
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_LONGEST = 4000
_NAME = r'(?:"(?:[^"]|"")*"|[A-Za-z_]\w*)'
_TABLE = rf"(?P<table>{_NAME}(?:\s*\.\s*{_NAME}){{0,2}})"
_NAMES = rf"{_NAME}(?:\s*,\s*{_NAME})*"
_VALUE = r"(?:-?\d+(?:\.\d+)?|'(?:[^']|'')*'|null\b)"
_EXCLUDED = rf"(?:excluded\s*\.\s*{_NAME}|{_VALUE})"
_OF_SOURCE = rf"(?:{_NAME}\s*\.\s*{_NAME}|{_VALUE})"
_ITEM = rf"{_VALUE}(?:\s*::\s*[A-Za-z]\w*)?\s+(?:as\s+)?{_NAME}"
_SET, _SET_OF_SOURCE = rf"{_NAME}\s*=\s*{_EXCLUDED}", rf"{_NAME}\s*=\s*{_OF_SOURCE}"
_EQUAL = rf"{_NAME}\s*\.\s*{_NAME}\s*=\s*{_NAME}\s*\.\s*{_NAME}"


def _listed(part: str) -> str:
    return rf"{part}(?:\s*,\s*{part})*"


_UPSERT = re.compile(
    rf"""\s*(?P<insert>insert\s+into\s+{_TABLE}\s*(?:\(\s*(?P<columns>{_NAMES})\s*\)\s*)?
    values\s*\(\s*(?P<row>{_listed(_VALUE)})\s*\)\s*on\s+conflict\s*\(\s*(?P<key>{_NAMES})\s*\)\s*do)\s+
    update\s+set\s+(?P<sets>{_listed(_SET)})\s*;?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_MERGE = re.compile(
    rf"""\s*merge\s+into\s+(?P<target>{_TABLE}(?:\s+as\s+{_NAME})?)\s+
    using\s*(?P<source>\(\s*select\s+{_listed(_ITEM)}\s*\)\s*(?:as\s+)?(?P<alias>{_NAME}))\s+
    on\s+(?P<condition>{_EQUAL}(?:\s+and\s+{_EQUAL})*)\s+
    when\s+matched\s+then\s+update\s+set\s+(?P<sets>{_listed(_SET_OF_SOURCE)})\s+
    when\s+not\s+matched\s+then\s+insert\s*(?:\(\s*(?P<columns>{_NAMES})\s*\)\s*)?
    values\s*\(\s*(?P<row>{_listed(_OF_SOURCE)})\s*\)\s*;?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_VALUES, _PAIRS = re.compile(_VALUE, re.IGNORECASE), re.compile(rf"({_NAME})\s*=\s*({_EXCLUDED})", re.IGNORECASE)


def two_statements(session: Session, text: str, table: QualifiedName) -> tuple[str, str] | None:
    """The two statements that a text is, or None."""
    if len(text) > _LONGEST:
        return None
    if (found := _MERGE.fullmatch(text)) is not None:
        listed = f" ({found['columns']})" if found["columns"] else ""
        source = f"FROM {found['source']}"
        return (
            f"UPDATE {found['target']} SET {found['sets']} {source} WHERE {found['condition']}",
            f"INSERT INTO {found['table']}{listed} SELECT {found['row']} {source}",
        )
    found = _UPSERT.fullmatch(text)
    return None if found is None else _upsert(found, _types(session, table))


def _upsert(found: re.Match[str], types: dict[str, str]) -> tuple[str, str] | None:
    listed = _folded(found["columns"]) if found["columns"] else list(types)
    values = _VALUES.findall(found["row"])
    if len(listed) != len(values) or not set(listed) <= types.keys():
        return None
    given = {name: f"CAST({value} AS {types[name]})" for name, value in zip(listed, values, strict=True)}
    key, sets = _folded(found["key"]), []
    for name, value in _PAIRS.findall(found["sets"]):
        [column] = _folded(name)
        if value[:8].lower() == "excluded" and "." in value:
            [source] = _folded(value.partition(".")[2].strip())
            value = given.get(source, "")
        if column in key or not value:
            return None
        sets.append(f"{name} = {value}")
    if not set(key) <= given.keys():
        return None
    same = " AND ".join(f"{_exactly(name, types[name])} = {given[name]}" for name in key)
    return f"{found['insert']} NOTHING", f"UPDATE {found['table']} SET {', '.join(sets)} WHERE {same}"


def _exactly(name: str, kind: str) -> str:
    """A column as a key compares it: text without a collation."""
    return f'({quote(name)} COLLATE "binary")' if kind == "VARCHAR" else quote(name)


def _folded(names: str) -> list[str]:
    return [split_name(name)[0].casefold() for name in re.findall(_NAME, names)]


def _types(session: Session, table: QualifiedName) -> dict[str, str]:
    """The types of the columns that an INSERT without a list gives, in order; remembered as plans are."""
    remembered = f"columns of {table}"
    if remembered not in session.plans:
        found: Any
        found, generated = columns(session.duck, session.database.name, table)
        kept = {name: kind for name, kind in found.items() if name not in generated}
        session.plans[remembered] = {name.casefold(): kind for name, kind in kept.items()}
    types: dict[str, str] = session.plans[remembered]
    return types

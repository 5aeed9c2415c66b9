"""Definitions from text: `orders(o, c; o), items(o) -> c [group]`.

After the semicolon stand an atom's declared keys, apart by `|`; after another one the tables that its foreign keys
refer to, `o > orders`, by columns of the same names. `*` as the head means every variable. A table that occurs twice
gives atoms `E` and `E_2`. A column's source is its variable, and so is its label.
"""

from __future__ import annotations

import re
from pathlib import Path

from sqlfront.planner.model.query import Atom, Definition, LeafColumn, Reference

FIXTURES = Path(__file__).parents[1] / "fixtures" / "planner"


def parse_definition(text: str) -> Definition:
    """The definition that `text` writes down; [group] when no mode is given."""
    match = re.fullmatch(r"(.*?)->([^\[]*)(?:\[(bag|set|group)\])?", text.strip(), re.DOTALL)
    if match is None:
        raise ValueError(f"not a query: {text!r}")
    body, head, mode = match.groups()
    atoms: list[Atom] = []
    for table, inside in re.findall(r"(\w+)\s*\(([^)]*)\)", body):
        columns, keys, references = [*inside.split(";"), "", ""][:3]
        occurrence = 1 + sum(atom.table == table for atom in atoms)
        atoms.append(
            Atom(
                name=table if occurrence == 1 else f"{table}_{occurrence}",
                table=table,
                variables=tuple(LeafColumn(name, name, "BIGINT", source=name) for name in _names(columns)),
                keys=tuple(frozenset(_names(key)) for key in keys.split("|") if key.strip()),
                references=tuple(_reference(text) for text in references.split("|") if text.strip()),
            )
        )
    every = tuple(dict.fromkeys(column.name for atom in atoms for column in atom.variables))
    free = every if head.strip() == "*" else tuple(_names(head))
    return Definition(atoms=tuple(atoms), free=free, mode=mode or "group")


def _reference(text: str) -> Reference:
    columns, table = text.split(">")
    return Reference(table.strip(), tuple((name, name) for name in _names(columns)))


def _names(text: str) -> list[str]:
    return [name for name in re.split(r"[\s,]+", text.strip()) if name]


def read_fixture(name: str) -> list[tuple[str, Definition, str]]:
    """The entries of a fixture file, with the query as a definition."""
    return [(title, parse_definition(query), expectation) for title, query, expectation in read_texts(name)]


def read_texts(name: str) -> list[tuple[str, str, str]]:
    """The entries `name: query => expectation` of a fixture file; `#` starts a comment, indented lines continue."""
    text = re.sub(r"#.*", "", (FIXTURES / name).read_text())
    joined = re.sub(r"\n[ \t]+(?=\S)", " ", text)
    entries = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        title, rest = line.split(":", 1)
        query, expectation = rest.split("=>")
        entries.append((title.strip(), query.strip(), expectation.strip()))
    return entries

"""The options' table in the docs is the one that the statements check against."""

from __future__ import annotations

from pathlib import Path

from sqlfront.define.options import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "sql-reference.md"


def test_the_docs_list_every_option():
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in PAGE.read_text().splitlines()]
    listed = {row for row in rows if len(row) == 5 and row[1].startswith("`")}
    shown = {bool: lambda value: str(value).lower(), int: lambda value: f"{value:,}"}
    expected = {
        (o.owner, f"`{o.name}`", o.type.__name__, shown.get(type(o.default), str)(o.default), o.meaning)
        for o in OPTIONS
    }
    assert listed == expected

"""Names as SQL writes them, taken apart."""

from __future__ import annotations

import pytest

from sqlfront.sql.name_parts import split_name


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders", ["orders"]),
        (' main . "my ""table" ', ["main", 'my "table']),
        ('"a.b".c.ü$1', ["a.b", "c", "ü$1"]),
        ("a.b.c.d", []),
        ("a b", []),
        ("a.", []),
        ("3a", []),
        ('"a', []),
        ("FROM v", []),
        ("", []),
    ],
)
def test_a_name_has_one_to_three_parts(text: str, parts: list[str]) -> None:
    assert split_name(text) == parts

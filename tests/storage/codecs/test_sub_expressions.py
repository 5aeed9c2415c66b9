"""The sub-expressions that read one text column, as SQL that means the same."""

from __future__ import annotations

import pytest

from sqlfront.storage.codecs.bound_tree import bind, columns_read, meaning
from sqlfront.storage.codecs.sub_expressions import sub_expressions

COLUMNS = {"n": "INTEGER", "x": "VARCHAR", "Y z": "VARCHAR", "b": "BLOB"}


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("length(x) + n", ["length(__text)"]),
        ("lower(x) = 'a' AND n > 3", ["(lower(__text) = 'a')", "lower(__text)"]),
        ('upper("y Z") || trim(x)', ["upper(__text)", '"trim"(__text)']),
        ("x || \"Y z\" || '!'", []),
        ("CASE WHEN x ILIKE 'a%' THEN n END", ["(__text ~~* 'a%')"]),
        ("hex(b) || n", []),
        ("x LIKE '__text%' AND n = 1", ["(__text_ ~~ '__text%')"]),
        ("len(list_filter(string_split(x, ','), lambda w: w <> '')) + n", 3),
        ("len(list_filter([x], lambda n: n <> ''))", []),  # The name of a column has another meaning there.
        ("(x || '!')[2:3] = 'a' OR n = 1", 3),
        ("x IN (SELECT 'a') AND n = 1", []),
        ("n +", []),
    ],
)
def test_parts(expression: str, parts: list[str] | int) -> None:
    found = sub_expressions(COLUMNS, expression, (), ("VARCHAR",))
    assert len(found) == parts if isinstance(parts, int) else [one.text for one in found.values()] == parts
    for (name, told), part in found.items():
        [bound] = bind(COLUMNS, [part.over(name)])
        assert bound is not None and meaning(bound.tree) == told
        assert columns_read(bound.tree) == {list(COLUMNS).index(name)}


def test_a_lambda_reads_the_columns_that_it_captures() -> None:
    texts = [
        "len(list_filter(string_split(x, ','), lambda w: w <> 'a')) + n",
        "[w || x for w in string_split(\"Y z\", 'a')]",
    ]
    bounds = bind(COLUMNS, texts)
    assert [columns_read(bound.tree) for bound in bounds if bound is not None] == [{0, 1}, {1, 2}]


def test_parts_that_a_bound_tree_does_not_tell_apart_are_left_out() -> None:
    """It is known which column a part reads, not which parameter of a lambda."""
    both = [f"list_reduce(string_split(x, ','), lambda v, w: {body})" for body in ("v || '-' || w", "w || '-' || v")]
    assert len({meaning(bound.tree) for bound in bind(COLUMNS, both) if bound is not None}) == 1
    found = sub_expressions(COLUMNS, f"{both[0]} < {both[1]}", (), ("VARCHAR",))
    assert sorted(part.text.partition("(")[0] for part in found.values()) == ["", "string_split"]

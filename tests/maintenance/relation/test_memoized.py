"""Expressions over one text column: DuckDB is asked for texts that are new, and for rows where one fails."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from sqlfront.database.loading import Evaluator
from sqlfront.maintenance.relation.base_relation import Column, Relation
from sqlfront.planner.model.query import LeafColumn
from sqlfront.storage.codecs.encoding import Dictionaries, codec_for
from sqlfront.storage.errors import DataError

COLUMNS = [Column("n", "INTEGER"), Column("x", "VARCHAR"), Column("y", "VARCHAR")]


class Table:
    """A relation that computes expressions of the given types; `asked` says how often DuckDB was asked of late."""

    def __init__(self, dictionaries: Dictionaries | None = None, **expressions: str) -> None:
        self.evaluate, self.dictionaries = Evaluator(), dictionaries or Dictionaries()
        self.relation = Relation("t", COLUMNS, False, self.dictionaries, self.evaluate)
        self.types = expressions
        leaves = [LeafColumn(text, text, type, None) for text, type in expressions.items()]
        self.store = self.relation.open_store(leaves, (), (), (), 0)

    def values(self, *rows: Sequence[object]) -> list[tuple[object, ...]]:
        """What the expressions are for rows."""
        batch = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=["n", "x", "y"])
        data = self.relation.encode(batch.cast(pa.schema({"n": pa.int32(), "x": pa.string(), "y": pa.string()})), None)
        found = []
        for text, type in self.types.items():
            item = self.store.inputs["key " + text]
            words = [np.ascontiguousarray(data[:, item.place + word]) for word in range(item.words)]
            found.append(codec_for(type, self.dictionaries).decode(words).to_pylist())
        return list(zip(*found, strict=True))

    def asked(self) -> int:
        count, self.evaluate.queries = self.evaluate.queries, 0
        return count


def test_one_query_computes_what_is_new_in_all_columns() -> None:
    table = Table(**{"upper(x)": "VARCHAR", "length(x) + n": "BIGINT", "y || '!'": "VARCHAR"})
    assert table.values((1, "a", "b"), (2, "ab", None)) == [("A", 2, "b!"), ("AB", 4, None)]
    assert table.asked() == 1
    assert table.values((7, "ab", "b"), (8, "a", None)) == [("AB", 9, "b!"), ("A", 9, None)]
    assert table.asked() == 0
    assert table.values((1, None, "b"), (1, "a", "new"), (1, "a", "newer")) == [
        (None, None, "b!"),
        ("A", 2, "new!"),
        ("A", 2, "newer!"),
    ]
    assert table.asked() == 1


def test_a_text_that_fails_fails_again_and_no_other_does() -> None:
    table = Table(**{"x::INTEGER": "INTEGER"})
    for _ in range(2):
        with pytest.raises(DataError, match="'abc'"):
            table.values((1, "5", None), (1, "abc", None), (1, None, None))
    table.asked()
    assert table.values((1, "5", None), (1, None, None)) == [(5,), (None,)]
    assert table.asked() == 0
    with pytest.raises(DataError, match="'abc'"):
        table.values((1, "abc", None))
    assert table.values((1, "6", None)) == [(6,)]


def test_a_value_that_no_word_stands_for_is_computed_each_time() -> None:
    table = Table(**{"x::DECIMAL(30)": "DECIMAL(30,0)", "x::UBIGINT": "UBIGINT"})
    for text in (str(2**63), "5", str(2**64 - 1), "0"):
        assert table.values((1, text, None)) == table.values((1, text, None)) == [(Decimal(text), int(text))]
    table.asked()
    table.values((1, "5", None), (1, "0", None))
    assert table.asked() == 0
    table.values((1, str(2**63), None))
    assert table.asked() == 1


def test_equal_expressions_share_a_memo_that_goes_with_the_last() -> None:
    dictionaries = Dictionaries()
    tables = [Table(dictionaries, **{text: "VARCHAR"}) for text in ("upper(x)", "upper(y)", "upper( y )")]
    assert len(dictionaries.varchar.memos) == 1
    tables[0].values((1, "a", "b"))
    tables[1].values((1, "b", "a"))
    assert [table.asked() for table in tables] == [1, 0, 0]
    other = Table(dictionaries, **{"lower(x)": "VARCHAR"})
    assert len(dictionaries.varchar.memos) == 2
    for table in (*tables, other):
        table.store.users.add("view")
        table.relation.close_store(table.store, "view")
    assert len(dictionaries.varchar.memos) == 0


def test_the_largest_expression_over_a_text_has_one_memo() -> None:
    text = "if(lower(x) IN ('a', 'b'), upper(trim(x)), x || '!')"
    table = Table(**{f"coalesce({text}, y)": "VARCHAR"})
    assert len(table.dictionaries.varchar.memos) == 1 and table.dictionaries.varchar.live() == 0
    assert table.values((1, "A", ""), (1, "c", ""), (1, None, "y")) == [("A",), ("c!",), ("y",)]


@pytest.mark.parametrize("distinct", [5, 5_000, 20_000])
def test_many_texts_are_memoized_if_they_come_again(distinct: int) -> None:
    table, order = Table(**{"upper(x)": "VARCHAR", "length(y) + n": "BIGINT"}), random.Random(3)
    numbers = order.sample([number % distinct for number in range(20_000)], 20_000)
    rows = [(number, f"a{number}", "b") for number in numbers]
    assert table.values(*rows) == [(f"A{number}", number + 1) for number in numbers]
    assert table.asked() == 1
    known = sorted(len(memo.entries()[0]) for memo in table.dictionaries.varchar.memos)
    assert known == ([0, 0] if distinct == 20_000 else [1, distinct])
    (source,) = [item for item in table.relation.inputs.values() if item.source == "x"]
    names, columns = ["n", "x", "y"], [pa.array(column) for column in zip(*rows, strict=True)]
    columns[0] = columns[0].cast(pa.int32())
    data = table.relation.encode(pa.table(columns, names=names), None)
    assert not source.stored and len(np.unique(data[:, source.place])) == (distinct if distinct < 20_000 else 1)

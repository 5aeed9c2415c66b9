"""Codecs of nested values against DuckDB: values come back, and codes are equal and ordered as DuckDB has them."""

from __future__ import annotations

from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from sqlfront.storage.codecs.dictionary import Dictionaries
from sqlfront.storage.codecs.encoding import codec_for
from sqlfront.storage.codecs.nested_types import parse_nested, scalar_types
from sqlfront.storage.codecs.order import is_orderable, order_places
from sqlfront.storage.codecs.transport import arrived_sql, exported
from sqlfront.storage.errors import DataError, NotSupportedError
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.sql_text import exact
from tests.nested_values import SCALARS, random_value

CON = duckdb.connect(config={"threads": 1})
CON.execute("SET arrow_lossless_conversion = true; SET TimeZone = 'UTC'")

TYPES = [
    *(f"{scalar}[]" for scalar in SCALARS),
    "INTEGER[][]",
    "INTEGER[3]",
    "VARCHAR[2][]",
    "INTERVAL[2]",
    "STRUCT(i INTERVAL[2][], j INTEGER)[]",
    "STRUCT(a INTEGER, \"b \"\" c\" VARCHAR, c STRUCT(d DOUBLE[])[])",
    "TUPLE(INTEGER, VARCHAR, DOUBLE)",
    "MAP(VARCHAR, INTEGER)",
    "MAP(INTEGER, STRUCT(x INTERVAL, y UUID)[])[2]",
    "STRUCT(e ENUM('b', 'it''s', 'a,)'), t TIME WITH TIME ZONE, b BIT)",
    "STRUCT(a TUPLE(ENUM('b', 'it''s', 'a,)'), MAP(DATE, BLOB)))",
    "UNION(i INTEGER, s VARCHAR)",
    "UNION(\"a \"\" b\" INTERVAL, \"union\" STRUCT(x INTEGER[]), u UNION(i INTEGER, s VARCHAR))[]",
    "UNION(i INTEGER, s VARCHAR)[2]",
    "MAP(INTEGER, UNION(i INTEGER, s VARCHAR))",
    "STRUCT(a UNION(i INTEGER, s VARCHAR)[], b TUPLE(UNION(i INTEGER), INTEGER))",
    "VARIANT",
    "STRUCT(a VARIANT[], b STRUCT(v VARIANT))",
]  # fmt: skip


def values(type: str, seed: int, count: int) -> pa.Array:
    """Random values of a type as DuckDB exports them."""
    random = Random(seed)
    texts = ", ".join(f"({i}, {random_value(type, random)})" for i in range(count))
    column = exported(CON.sql(f"SELECT x FROM (VALUES {texts}) AS t(i, x) ORDER BY i")).to_arrow_table().column(0)
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def register(codec, words, given):
    array = codec.decode(words)
    array.validate()
    assert not pa.types.is_map(array.type) or len(array.to_pylist()) == len(given)
    decoded = pa.table([array], schema=pa.schema([codec.arrow_field("x")]))
    numbers = pa.array(range(len(given)))
    CON.register("given", pa.table({"i": numbers, "x": given}))
    CON.register("back", decoded.append_column("i", numbers))
    exact = arrived_sql("x", codec.type, given.type)
    return f"(SELECT i, {exact} AS x FROM given)", f"(SELECT i, {codec.cast_sql('x')} AS x FROM back)"


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("seed", range(3))
def test_roundtrip_and_equality(type, seed):
    given = values(type, seed, 25)
    codec = codec_for(type, Dictionaries())
    words = codec.encode(given)
    written, back = register(codec, words, given)
    told = lambda value: value if "MAP(" in type or "UNION(" in type else exact(value, type)  # noqa: E731
    assert CON.execute(f"DESCRIBE SELECT x FROM {back}").fetchall()[0][1] == type
    different = (
        f"SELECT a.x, b.x FROM {written} a JOIN {back} b USING (i) WHERE {told('a.x')} IS DISTINCT FROM {told('b.x')}"
    )
    assert CON.execute(different).fetchall() == []
    groups = CON.execute(f"SELECT list(i ORDER BY i) FROM {written} GROUP BY x, {told('x')} ORDER BY 1").fetchall()
    codes: dict[int, list[int]] = {}
    for i, code in enumerate(words[0].tolist()):
        codes.setdefault(code, []).append(i)
    assert sorted(codes.values()) == [group[0] for group in groups]
    assert [code == NULL_CODE for code in words[0].tolist()] == given.is_null().to_pylist()
    assert np.array_equal(codec.find(given)[0], words[0])


@pytest.mark.parametrize("type", [type for type in TYPES if is_orderable(type) and "INTERVAL" not in type])
def test_the_strings_are_in_duckdbs_order(type):
    given = values(type, 7, 40)
    dictionaries = Dictionaries()
    codec = codec_for(type, dictionaries)
    words = codec.encode(given)[0]
    strings = dictionaries.blob.decode(words, pa.large_binary()).to_pylist()
    written, _ = register(codec, [words], given)
    ordered = [row[0] for row in CON.execute(f"SELECT i FROM {written} WHERE x IS NOT NULL ORDER BY x, i").fetchall()]
    assert ordered == sorted((i for i in range(len(given)) if strings[i] is not None), key=lambda i: (strings[i], i))
    assert order_places(codec, 0)[0][2] == dictionaries.blob.state


@pytest.mark.parametrize("type", TYPES)
def test_slices(type):
    given = values(type, 5, 30)
    codec = codec_for(type, Dictionaries())
    whole = codec.encode(given)[0]
    for start, length in ((0, 0), (3, 17), (9, 21), (29, 1)):
        assert np.array_equal(whole[start : start + length], codec.encode(given.slice(start, length))[0])
    assert len(codec.decode([np.empty(0, np.int64)])) == 0


@pytest.mark.parametrize("type", ["BOOLEAN[]", "BOOLEAN[2]", "MAP(BOOLEAN, UBIGINT)", "BOOLEAN[][]"])
def test_nothing_but_nulls(type):
    given = CON.execute(f"SELECT CAST(NULL AS {type}) AS x FROM range(3)").to_arrow_table().column("x")
    assert codec_for(type, Dictionaries()).encode(given)[0].tolist() == [NULL_CODE] * 3


@pytest.mark.parametrize(
    ("type", "value", "sql"),
    [
        ("INTEGER[]", [1, None, 3], "[1, NULL, 3]"),
        ("INTEGER[2]", [1, 2], "[1, 2]"),
        ("STRUCT(a INTEGER, b VARCHAR[])", {"a": 1, "b": ["x", None]}, "{'a': 1, 'b': ['x', NULL]}"),
        ("MAP(VARCHAR, INTEGER)", {"a": 1, "b": None}, "MAP {'a': 1, 'b': NULL}"),
        ("TUPLE(INTEGER, VARCHAR)", (1, "x"), "row(1, 'x')"),
        ("STRUCT(a TUPLE(INTEGER, VARCHAR)[])", {"a": [(1, None), None]}, "{'a': [row(1, NULL), NULL]}"),
        ("VARCHAR[]", "[a, b]", "['a', 'b']"),
    ],
)
def test_one_value_has_the_code_of_its_column(type, value, sql):
    codec = codec_for(type, Dictionaries())
    column = CON.sql(f"SELECT CAST({sql} AS {type}) AS x").to_arrow_table().column(0)
    assert codec.find_value(value) is None
    assert codec.encode_value(value) == (int(codec.encode(column)[0][0]),)


def test_intervals_in_a_map_have_no_order():
    assert is_orderable("STRUCT(a INTERVAL[])")
    assert not is_orderable("MAP(INTEGER, INTERVAL)[]")


def test_other_arrow_types_are_cast():
    codec = codec_for("STRUCT(a INTEGER[], b ENUM('x', 'y'))", Dictionaries())
    exact = codec.encode(
        CON.sql(f"SELECT CAST({{'a': [1], 'b': 'y'}} AS {codec.type}) AS x").to_arrow_table().column(0)
    )
    wide = pa.array([{"b": "y", "a": [1]}], pa.struct([("b", pa.string()), ("a", pa.large_list(pa.int64()))]))
    assert codec.encode(wide) == exact


def test_names_are_taken_apart():
    nested = parse_nested("STRUCT(\"a \"\"( b\" ENUM('x,)', 'y''')[], c MAP(INTEGER, DECIMAL(3,1)))")
    assert nested is not None
    assert nested.names == ('a "( b', "c")
    assert nested.types == ("ENUM('x,)', 'y''')[]", "MAP(INTEGER, DECIMAL(3,1))")
    assert list(scalar_types(nested.name)) == ["ENUM('x,)', 'y''')", "INTEGER", "DECIMAL(3,1)"]


@pytest.mark.parametrize("type", ["UNION(a VARIANT)", "UNION(a INTEGER, b VARIANT[])[]", "MAP(INTEGER, VARIANT)"])
def test_variants_that_duckdb_compares_by_their_spelling(type):
    [(equal, written)] = CON.execute(
        "SELECT 1::VARIANT = 1.0::VARIANT, union_value(v := 1::VARIANT) = union_value(v := 1.0::VARIANT)"
    ).fetchall()
    assert (equal, written) == (True, False)
    with pytest.raises(NotSupportedError, match="how they are written"):
        codec_for(type, Dictionaries())


def test_a_field_without_a_name_is_no_empty_object():
    variants = [f"CAST(json('{text}') AS VARIANT)" for text in ("{}", "[{}, 1]", '{"a": {}}', '{"a": [{}]}')]
    codec = codec_for("VARIANT", Dictionaries())
    codec.encode(exported(CON.sql(f"SELECT unnest([{', '.join(variants)}]) AS x")).to_arrow_table().column(0))
    for text in ('{"": 1}', '[{"": 1}]', '{"a": {"": {}}}'):
        given = exported(CON.sql(f"SELECT CAST(json('{text}') AS VARIANT) AS x")).to_arrow_table().column(0)
        with pytest.raises(DataError, match="name is empty"):
            codec.encode(given)

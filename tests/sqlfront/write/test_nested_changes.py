"""Change tables of nested columns: Python values and Arrow in, look-ups and feeds out, and a file opened again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.errors import IntegrityError

FIRST = ([1, None], {"a": 1, "b": ["x"]}, {"k": 5}, (1, "x"))
OTHER = ([], {"a": None, "b": None}, {}, (None, None))
VIEW = "SELECT l, s, m, t, count(*) AS n FROM c GROUP BY ALL"


def connect(path: Path) -> sqlfront.Connection:
    return sqlfront.connect(str(path / "nested.db"))


@pytest.fixture
def con(tmp_path: Path):
    con = connect(tmp_path)
    con.execute(
        "CREATE CHANGE TABLE c (l INTEGER[], s STRUCT(a INTEGER, b VARCHAR[]), m MAP(VARCHAR, INTEGER), "
        "t TUPLE(INTEGER, VARCHAR)) WITH (retain = true)"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
    yield con
    con.close()


def test_values_of_every_kind_are_one_group(con: sqlfront.Connection) -> None:
    con.apply_row("c", FIRST)
    con.execute("INSERT INTO c VALUES ([1, NULL], {'a': 1, 'b': ['x']}, MAP {'k': 5}, row(1, 'x'))")
    types = [pa.list_(pa.int64()), pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])]
    types += [pa.map_(pa.string(), pa.int32()), pa.struct([("element1", pa.int32()), ("element2", pa.string())])]
    values = [FIRST[0], FIRST[1], [("k", 5)], {"element1": 1, "element2": "x"}]
    columns = {name: pa.array([value], type) for name, value, type in zip("lsmt", values, types)}
    con.apply({"c": pa.table(columns)})
    con.apply({"c": con.sql("SELECT [1, NULL] AS l, {'a': 1, 'b': ['x']} AS s, MAP {'k': 5} AS m, row(1, 'x') AS t")})
    assert con.view("v").rows() == [(*FIRST, 4)]
    assert con.view("v").contains((*FIRST, 4))
    assert not con.view("v").contains((*FIRST, 3))
    assert not con.view("v").contains((*OTHER, 4))
    assert con.execute("SELECT n FROM v WHERE l = [1, NULL] AND t = row(1, 'x')").fetchall() == [(4,)]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_changes_are_told_and_undone(con: sqlfront.Connection) -> None:
    con.apply_row("c", FIRST)
    feed = con.view("v").subscribe()
    con.execute("BEGIN")
    con.apply_row("c", OTHER)
    con.execute("ROLLBACK")
    con.execute("UPDATE c SET l = [9]")
    change = feed.poll().select(["l", "t", "n", "_change_type"]).to_pylist()
    row = {"t": {"element1": 1, "element2": "x"}, "n": 1}
    kinds = [(one.pop("l"), one.pop("_change_type")) for one in change[-2:]]
    assert change[-2:] == [row, row]
    assert sorted(kinds, key=str) == [([1, None], "delete"), ([9], "insert")]
    with pytest.raises(IntegrityError, match="deleted more often"):
        con.apply_row("c", FIRST, -1)
    con.apply_row("c", ([9], *FIRST[1:]), -1)
    assert con.view("v").rows() == []
    for dictionary in con.session.database.engine.dictionaries:
        dictionary.sweep()
        assert dictionary.live() == dictionary.pinned


def test_a_file_opened_again(con: sqlfront.Connection, tmp_path: Path) -> None:
    con.apply_row("c", FIRST)
    con.apply_row("c", OTHER, 2)
    con.apply_row("c", (None, None, None, None))
    expected = sorted([(*FIRST, 1), (*OTHER, 2), (None, None, None, None, 1)], key=str)
    con.close()
    for _ in range(2):
        con = connect(tmp_path)
        assert sorted(con.view("v").rows(), key=str) == expected
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        con.execute("CHECKPOINT")
        con.close()


def test_batches_of_several_schemas_follow_each_other() -> None:
    """Columns in another order, by other spellings of their names, with other control values, with one missing."""
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE r (a BIGINT, b BIGINT DEFAULT 7)")
    for changes, rows in (
        ({"a": [1], "b": [2]}, [(1, 2)]),
        ({"b": [1], "a": [2]}, [(1, 2), (2, 1)]),
        ({"A": [3], "B": [4], "_weight": [2]}, [(1, 2), (2, 1), (3, 4), (3, 4)]),
        ({"_weight": [-1], "b": [4], "a": [3]}, [(1, 2), (2, 1), (3, 4)]),
        ({"a": [3], "b": [4], "_change_type": ["delete"]}, [(1, 2), (2, 1)]),
        ({"a": [5]}, [(1, 2), (2, 1), (5, 7)]),
        ({"a": [1], "b": [2]}, [(1, 2), (1, 2), (2, 1), (5, 7)]),
    ):
        for _ in range(2):  # The second time the columns are known.
            con.execute("BEGIN")
            con.apply({"r": pa.table(changes)})
            assert sorted(con.execute("FROM r").fetchall()) == rows
            con.execute("ROLLBACK")
        con.apply({"r": pa.table(changes)})
    with pytest.raises(sqlfront.ProgrammingError, match="no column c"):
        con.apply({"r": pa.table({"a": [1], "c": [2]})})

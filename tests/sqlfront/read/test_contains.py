"""View.contains compares as DuckDB's IN does: it does not round its argument."""

import datetime
import decimal
import math
import uuid

import pytest

import sqlfront

D, DAY, ID = decimal.Decimal, datetime.date(2024, 5, 1), uuid.UUID(int=7)
STORED = {
    "INTEGER": ["8", "-3"],
    "BIGINT": ["9007199254740993"],
    "HUGEINT": ["8"],
    "UTINYINT": ["200"],
    "BOOLEAN": ["true"],
    "DECIMAL(6,2)": ["7.60", "8"],
    "FLOAT": ["0.1", "0.5", "'nan'", "8"],
    "DOUBLE": ["0.1", "8", "'nan'", "'inf'", "9007199254740992"],
    "VARCHAR": ["'8'", "''", "'é'"],
    "BLOB": ["'a'::BLOB"],
    "DATE": ["DATE '2024-05-01'"],
    "TIMESTAMP": ["TIMESTAMP '2024-05-01'", "TIMESTAMP '2024-05-01 10:00:00.000001'"],
    "TIMESTAMP_S": ["TIMESTAMP '2024-05-01'"],
    "TIME": ["TIME '10:00:00'"],
    "UUID": [f"'{ID}'"],
    "INTERVAL": ["INTERVAL 1 DAY"],
}
ASKED = [
    *(8, 7.6, 8.0, 0.5, 0.1, 1, 200, 300, -3, 2**53, 2**53 + 1, 10**18, 10**30, True, math.nan, math.inf),
    *(D("7.6"), D("7.60"), D("7.601"), D("8"), D("8.000"), D("0.1"), D("1E+2"), "8", "8.0", "x", "", "é", b"a"),
    *(DAY, "2024-05-01", datetime.datetime(2024, 5, 1), datetime.datetime(2024, 5, 1, 10, 0, 0, 1), None, ID, str(ID)),
    *(datetime.time(10), datetime.timedelta(days=1)),
]


@pytest.mark.parametrize("type_", STORED)
def test_values_compare_as_in_duckdb(type_):
    with sqlfront.connect() as con:
        con.execute(f"CREATE TABLE r (a {type_})")
        for value in STORED[type_]:
            con.execute(f"INSERT INTO r VALUES ({value})")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
        view = con.view("v")
        for value in ASKED:
            try:
                [(expected,)] = con.execute(
                    "SELECT coalesce(bool_or(a IS NOT DISTINCT FROM ?), false) FROM r", [value]
                ).fetchall()
            except sqlfront.Error as error:
                with pytest.raises(type(error)):
                    view.contains((value,))
            else:
                assert view.contains((value,)) is expected, value
            found = con.execute("SELECT a FROM r").fetchall()
        assert all(view.contains(row) for row in found)
        con.execute("INSERT INTO r VALUES (NULL)")
        assert view.contains((None,)) and view.contains({"a": None})


@pytest.mark.parametrize("row", [5, None, "x", b"x", {8}, object(), (), (1, 2), {"b": 1}, {}, {"a": 1, "b": 2}])
def test_what_is_no_row_of_the_view(row):
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INT); CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
        with pytest.raises(sqlfront.ProgrammingError, match="row"):
            con.view("v").contains(row)


def test_a_default_collation_compares_as_in_duckdb():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (s VARCHAR, x INT); INSERT INTO r VALUES ('a', 1), ('A', 2), ('b', 3)")
        con.execute("CREATE MATERIALIZED VIEW g AS SELECT s, sum(x) AS n FROM r GROUP BY s; CREATE TABLE t AS FROM g")
        con.execute("SET default_collation = 'nocase'")
        for condition in ("s = 'B'", "s = 'A'", "n > 0 AND s = 'B'", "s = 'c'"):
            found, expected = (con.execute(f"SELECT n FROM {name} WHERE {condition}").fetchall() for name in "gt")
            assert sorted(found) == sorted(expected), condition
        assert con.view("g").contains(("B", 3)) and not con.view("g").contains(("B", 4))

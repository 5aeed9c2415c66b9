"""A query's term, as SQL, has the query's rows and types: as it is bound, and in normal form."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlfront.binding.query_binder import bind_query
from sqlfront.planner.algebra.rules.all_rules import normalise
from sqlfront.planner.algebra.to_sql import to_sql
from sqlfront.sql.dialect import parse_one
from tests.catalogs import WithoutMacros, catalog_of
from tests.slices import parts
from tests.support_matrix import FIXTURES, SUPPORTED, queries

ROOT = Path(__file__).parents[2] / "fixtures"
VIEWS = [query for name in SUPPORTED for query in queries((FIXTURES / f"{name}.sql").read_text())]
MORE = queries((ROOT / "binding" / "queries.sql").read_text())
# Their orders leave open which rows are the first; a view settles it.
OPEN = {
    "select a from r limit 3",
    "select a from r offset 3",
    "select a, r.b + t.b as score from r join t using (a) order by score desc limit 10",
    "select r.a, u.k from r join u on r.a = u.b order by greatest(r.b, u.c) desc limit 3",
    "select t.b, n.v, t.d * n.v as worth from t join natural_numbers n on t.a = n.k order by worth limit 4",
    "select r.a, l.d from r, lateral (select d from t where t.a < r.a limit 2) l",
    "select r.b, l.d from r, lateral (select distinct d from t where t.a = r.a limit 2) l",
    "select n.k, m.w from natural_numbers n, natural_numbers m "
    "qualify row_number() over (partition by n.k order by n.v * m.v) < 3",
}


@pytest.fixture(scope="module")
def con() -> Any:
    """A few rows in each table, whose values meet."""
    found = duckdb.connect()
    found.execute((FIXTURES / "schema.sql").read_text())
    chance = random.Random(1)
    for (table,) in found.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        kinds = found.execute("SELECT data_type FROM duckdb_columns() WHERE table_name = ?", [table]).fetchall()
        for number in range(7):
            row = ", ".join(_value(kind, number, chance) for (kind,) in kinds)
            with suppress(duckdb.ConstraintException):
                found.execute(f'INSERT INTO {"o2." if table == "z" else ""}"{table}" VALUES ({row})')
    return found


def _value(kind: str, number: int, chance: random.Random) -> str:
    value = chance.choice([0, 1, 2, 3])
    if kind.startswith("STRUCT"):
        return f"{{'x': {value}, 'y': '{value}'}}"
    if kind.endswith("[]"):
        return chance.choice(["NULL", "[]", f"[{value}]", f"[{value}, NULL, 1]"])
    if kind.startswith("ENUM"):
        return chance.choice(["'sad'", "'ok'"])
    if kind.startswith(("DATE", "TIMESTAMP")):
        return f"'2020-01-0{value + 1}'"
    if kind == "INTERVAL":
        return f"INTERVAL {value} DAY"
    return f"CAST({value} AS {kind})" if kind == "BOOLEAN" else str(value)


def rows(con: Any, query: str) -> tuple[list[str], Counter[str]]:
    """The types of a query's columns, and its rows."""
    result = con.execute(query)
    types = [str(column[1]) for column in result.description]
    return types, Counter(map(repr, result.fetchall()))


@pytest.mark.parametrize("query", [query for query in (*VIEWS, *MORE) if query not in OPEN])
def test_a_term_has_the_rows_of_its_query(con: Any, query: str) -> None:
    bound = bind_query(parse_one(query), query, con, catalog_of(query, con))
    expected = rows(con, query)
    assert rows(con, to_sql(bound.term, bound.outputs)) == expected
    assert rows(con, to_sql(normalise(bound.term), bound.outputs)) == expected


STANDARD = [
    path for folder in ("tpch", "tpcds", "job") for path in sorted((ROOT / "standard" / folder).glob("*.sql"))
    if path.stem != "schema" and not (folder == "job" and path.stem.startswith("15"))
]  # fmt: skip


@pytest.mark.parametrize("folder", ["tpch", "tpcds", "job"])
@pytest.mark.parametrize("part", parts(3))
def test_standard_queries_have_the_names_and_types_of_duckdb(folder: str, part: int) -> None:
    con = duckdb.connect()
    con.execute((ROOT / "standard" / folder / "schema.sql").read_text())
    catalog = WithoutMacros(con)
    for path in [path for path in STANDARD if path.parent.name == folder][part::3]:
        query = path.read_text().strip().rstrip(";")
        bound = bind_query(parse_one(query), query, con, catalog)
        expected = [(row[0], row[1]) for row in con.execute(f"DESCRIBE {query}").fetchall()]
        found = con.execute(f"DESCRIBE {to_sql(bound.term, bound.outputs)}").fetchall()
        assert [(row[0], row[1]) for row in found] == expected, path
        assert [column.type for column in bound.term.columns] == [type_ for _, type_ in expected], path

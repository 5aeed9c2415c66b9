"""Only `sqlfront.Error` leaves a public call, and a view that is accepted has its query's rows, for every type."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import sqlfront
from sqlfront.database.failures import translated

VALUES = {
    "BOOLEAN": "true",
    "INTEGER": "7",
    "UBIGINT": "18446744073709551615",
    "HUGEINT": "170141183460469231731687303715884105727",
    "UHUGEINT": "5",
    "BIGNUM": "123::BIGNUM",
    "DOUBLE": "'nan'",
    "DECIMAL(30, 2)": "1.25",
    "VARCHAR": "'äé\U0001f600'",
    "BLOB": "'\\xFF'::BLOB",
    "BIT": "'101'::BIT",
    "UUID": "'00000000-0000-0000-0000-000000000001'",
    "JSON": "'{\"a\": 1}'",
    "DATE": "'0001-01-01'",
    "TIME": "'10:00:00'",
    "TIMETZ": "'10:00:00+01'",
    "TIMESTAMP": "'infinity'",
    "TIMESTAMPTZ": "'0001-01-01 00:00:00+00'",
    "TIMESTAMP_NS": "'2020-01-01'",
    "INTERVAL": "INTERVAL 3 DAY",
    "ENUM('a', 'b')": "'a'",
    "VARIANT": "5::VARIANT",
    "GEOMETRY": "'POINT(1 2)'",
    "UNION(n INTEGER, s VARCHAR)": "union_value(n := 1)",
}
INNER = ("BOOLEAN", "HUGEINT", "UUID", "JSON", "BIT", "TIMETZ", "UHUGEINT", "INTEGER", "TIMESTAMPTZ", "GEOMETRY")
for _type in INNER:
    VALUES |= {f"{_type}[]": f"[{VALUES[_type]}]", f"STRUCT(x {_type})": f"{{'x': {VALUES[_type]}}}"}
VALUES["MAP(VARCHAR, BOOLEAN)"], VALUES["BOOLEAN[2]"] = "map(['a'], [true])", "[true, false]"
EXPRESSIONS = (
    *(
        "c",
        "c IS NULL",
        "CAST(c AS VARCHAR)",
        "c = {value}",
        "c -> 'a'",
        "t.c ->> 'a'",
        "c < {value}",
        "[c]",
        "{{'x': c}}",
    ),
    *(
        "hash(c)",
        "to_json(c)",
        "unnest([c, c])",
        "c.x",
        "c[1]",
        "c + 1",
        "c || c",
        "len(c)",
        "CAST({{'x': c}} AS VARCHAR)",
    ),
    *("make_timestamptz(2020, a, 1, 0, 0, 0)", "row(c, a)", "c BETWEEN {value} AND {value}", "coalesce(c, {value})"),
    *(
        "list_transform([c], lambda x: CAST(x AS VARCHAR))",
        "min(c)",
        "count(c)",
        "sum(c)",
        "nope(c)",
        "'äöü' + é",
        "((",
        "?",
    ),
)
SHAPES = (
    "SELECT a, {e} AS e FROM t",
    "SELECT a FROM t WHERE {e}",
    "SELECT {e} AS e, count(*) AS n FROM t GROUP BY 1",
    "SELECT count(*) AS n FROM (SELECT a, {e} AS e FROM t)",
    "SELECT a, {e} AS e FROM t ORDER BY e, a LIMIT 3",
    "SELECT a, count({e}) AS n FROM t GROUP BY a",
    "SELECT DISTINCT {e} AS e FROM t",
    "SELECT x.a FROM t AS x JOIN t ON {e} = {e} AND x.a = t.a",
)


def outcome(random: Random) -> str:
    """What became of a random view over a random table: refused, or checked after changes."""
    kind, value = random.choice(list(VALUES.items()))
    query = random.choice(SHAPES).format(e=random.choice(EXPRESSIONS).format(value=value))
    if random.random() < 0.1:
        cut = random.randrange(len(query))
        query = query[:cut] + random.choice(("é", "'", ";", "\x00", "\ud800", "$1", "--", "(")) + query[cut:]
    con = sqlfront.connect()
    con.execute(f"CREATE TABLE t (a INTEGER, c {kind})")
    con.execute(f"INSERT INTO t VALUES (1, {value}), (2, NULL), (1, {value})")
    try:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    except sqlfront.Error:
        con.execute(f"INSERT INTO t VALUES (3, {value})")
        return "refused"
    finally:
        con.execute("DELETE FROM t WHERE a = 9")
    for change in (f"INSERT INTO t VALUES (3, {value})", "UPDATE t SET a = 5 WHERE a = 1", "DELETE FROM t WHERE a = 3"):
        try:
            con.execute(change)
        except sqlfront.DataError:
            return "refused"
    try:
        views, queries = (con.execute(sql).fetchall() for sql in ("SELECT * FROM v", query))
    except sqlfront.Error:
        return "refused"
    assert Counter(map(repr, views)) == Counter(map(repr, queries)), (kind, query)
    con.close()
    return "checked"


def run(seeds: range) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        try:
            outcomes[outcome(Random(seed))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    return outcomes


def test_random_texts_types_and_statements() -> None:
    outcomes = run(range(25))
    assert outcomes["checked"] >= 5
    assert outcomes["refused"] >= 5


@pytest.mark.slow
def test_many_random_texts_types_and_statements() -> None:
    run(range(40, 2000))


@pytest.fixture
def con() -> Any:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a INTEGER, l INTEGER[], ts TIMESTAMPTZ, j JSON, zs TIMESTAMPTZ[])")
    con.execute("INSERT INTO t VALUES (1, [1, 2, 3], '0001-01-01 00:00:00+00', '{\"a\": 1}', [])")
    yield con
    con.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM (SELECT generate_subscripts(l, 1) FROM t)",
        "SELECT count(*) FROM (SELECT regexp_split_to_table('a b', ' ') FROM t)",
        "SELECT unnest({'x': a, 'y': 2}) FROM t",
        "SELECT json_group_array(a), json_group_structure(j), geometric_mean(a), weighted_avg(a, a) FROM t",
    ],
)
def test_macros_of_duckdbs_own_are_what_they_stand_for(con: Any, query: str) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.execute("DESCRIBE v").fetchall() == con.execute(f"DESCRIBE {query}").fetchall()
    con.execute("INSERT INTO t VALUES (2, [4], NULL, '[1]', NULL)")
    assert con.execute("FROM v").fetchall() == con.execute(query).fetchall()
    con.execute("DELETE FROM t")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize(
    "expression",
    [
        "make_timestamptz(2020, a, 1, 0, 0, 0)",
        "CAST({'x': ts} AS VARCHAR)",
        "CAST(row(ts, 1) AS VARCHAR)",
        "CAST(zs AS VARCHAR)",
        "CAST(union_value(k := ts) AS VARCHAR)",
        "CAST({'x': {'y': ts}} AS VARCHAR)",
        "CAST(to_json({'x': ts}) AS VARCHAR)",
        "struct_pack(x := ts) || ''",
        "{'x': ts} = row('2020-01-01')",
        "array_to_string(zs, ',')",
    ],
)
def test_an_expression_that_reads_the_time_zone_keeps_that_of_create(con: Any, expression: str) -> None:
    query = f"SELECT a, CAST({expression} AS VARCHAR) AS e FROM t WHERE a BETWEEN 1 AND 12"
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    wanted = sorted(con.execute(query).fetchall(), key=str)
    con.execute("SET TimeZone = 'America/New_York'")
    assert sorted(con.execute("FROM v").fetchall(), key=str) == wanted


def test_what_asks_no_time_zone_of_an_instant_is_kept(con: Any) -> None:
    query = "SELECT a, make_timestamptz(a) AS m, hash({'x': ts}) AS h, len(zs) AS n FROM t"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.execute("SELECT * FROM v").fetchall() == con.execute(query).fetchall()


def test_an_arrow_on_a_json_column_extracts(con: Any) -> None:
    query = "SELECT j -> 'a' AS x, (j -> 'a') -> 'b' AS y, t.j ->> 'a' AS z, count(*) AS n FROM t GROUP BY ALL"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute('INSERT INTO t (j) VALUES (\'{"a": {"b": 2}}\'), (NULL)')
    assert Counter(con.execute("SELECT * FROM v").fetchall()) == Counter(con.execute(query).fetchall())


@pytest.mark.parametrize("kind", [kind for kind in VALUES if "(" in kind or "[" in kind])
def test_a_column_that_no_view_reads_may_have_any_type(kind: str) -> None:
    con = sqlfront.connect()
    con.execute(f"CREATE TABLE t (a INTEGER, c {kind})")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a + 1 AS b FROM t WHERE a % 3 > 0")
    con.execute(f"INSERT INTO t VALUES (1, {VALUES[kind]}), (2, NULL)")
    assert sorted(con.execute("SELECT b FROM v").fetchall()) == [(2,), (3,)]


def test_an_expression_over_a_variant_is_computed() -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a INTEGER, c VARIANT)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, CAST(c AS VARCHAR) AS s FROM t")
    con.execute("INSERT INTO t VALUES (1, 1.50::VARIANT), (2, [1]::VARIANT), (3, NULL)")
    assert sorted(con.execute("FROM v").fetchall()) == [(1, "1.50"), (2, "[1]"), (3, None)]


@pytest.mark.parametrize("constant", ["'101'", "'101'::BIT"])
def test_a_constant_of_bits(constant: str) -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a INTEGER, c BIT)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE c = {constant}")
    con.execute("INSERT INTO t VALUES (1, '101'), (2, '111'), (3, NULL)")
    assert con.execute("SELECT * FROM v").fetchall() == [(1,)]


def test_an_interval_that_python_cannot_hold(con: Any) -> None:
    con.execute("SELECT INTERVAL '2000000000 days'")
    with pytest.raises(sqlfront.DataError, match="beyond the range"):
        con.fetchall()


@pytest.mark.parametrize("statement", ["\ud800", "SELECT '\ud800'"])
def test_a_statement_that_is_no_unicode(con: Any, statement: str) -> None:
    with pytest.raises(sqlfront.ProgrammingError, match="cannot encode str as UTF-8"):
        con.execute(statement)


def test_a_message_cut_inside_a_character() -> None:
    with pytest.raises(sqlfront.ProgrammingError, match="Parser Error: near ä"), translated(None):
        "Parser Error: near ä\u00e9".encode()[:-1].decode()

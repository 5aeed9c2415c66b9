"""What the clock or chance decides is refused, however deep it stands: DuckDB folds constant calls."""

import pytest

import sqlfront

CHANGING = {
    "epoch(now()) <> a": "now()",
    "datediff('millisecond', t, current_localtimestamp()) < 1000": "current_localtimestamp()",
    "age(now()::TIMESTAMP, t) < INTERVAL 1 SECOND": "now()",
    "age(t) < INTERVAL 1 SECOND": "age(t)",
    "main.age(d) < INTERVAL 1 SECOND": "main.age(d)",
    "getvariable('x') = a": "getvariable('x')",
    "upper(current_setting('TimeZone')) = 'UTC'": "current_setting('TimeZone')",
    "length(current_schema()) = a": "current_schema()",
    "epoch(ago(INTERVAL 1 DAY)) < a": "ago(INTERVAL 1 DAY)",
    "epoch(pg_conf_load_time()) < a": "pg_conf_load_time()",
    "a = floor(random())": "random()",
    "t <> current_date": "current_date",
    "t - localtimestamp < INTERVAL 1 HOUR": "localtimestamp",
    "z <> CURRENT_TIMESTAMP": "CURRENT_TIMESTAMP",
    "a = length(current_user)": "current_user",
}


TABLE = "CREATE TABLE r (a INT, t TIMESTAMP, z TIMESTAMPTZ, d DATE)"


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute(TABLE)
        yield connection


@pytest.fixture(scope="module")
def unchanged():
    """One connection for all that is refused."""
    with sqlfront.connect() as connection:
        connection.execute(TABLE)
        yield connection
        assert connection.execute("SHOW MATERIALIZED VIEWS").fetchall() == []


@pytest.mark.parametrize("condition", CHANGING)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM r WHERE {}",
        "SELECT a, {} AS b FROM r",
        "SELECT count(*) FILTER (WHERE {}) AS n FROM r",
        "SELECT a, t, z, d, count(*) AS n FROM r GROUP BY ALL HAVING {}",
        "SELECT a, t, z, d, count(*) AS n, {} AS b FROM r GROUP BY a, t, z, d",
        "FROM (SELECT r.a FROM r JOIN r AS s ON r.a = s.a) AS q, r WHERE q.a = r.a AND {}",
    ],
)
def test_a_changing_value_is_refused_with_its_place(unchanged, query, condition):
    text = query.format(condition if " AS q" not in query else condition.replace("a)", "r.a)").replace("= a", "= r.a"))
    text = text.replace("> a", "> r.a").replace("< a", "< r.a").replace(" a =", " r.a =") if " AS q" in query else text
    with pytest.raises(sqlfront.NotSupportedError) as error:
        unchanged.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    line, carets = str(error.value).split("\n")[1:3]
    assert line[carets.index("^") : carets.rindex("^") + 1] == CHANGING[condition], error.value
    assert "value changes from query to query" in str(error.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, epoch(t) AS e, age(t, TIMESTAMP '2024-01-01') AS b FROM r WHERE age(DATE '2024-01-01', d) > '1 day'",
        "SELECT a, 'now' AS b, count(*) AS current_date FROM r WHERE epoch('2024-01-01 00:00+00'::TIMESTAMPTZ) > a "
        "GROUP BY a",
        "SELECT a FROM r WHERE length(CAST(TIMESTAMPTZ '2024-01-01 00:00:00+02' AS VARCHAR)) > a",
        'SELECT r.a AS "current_user", u."user" FROM r JOIN u ON r.a = u."user"',
    ],
)
def test_a_constant_value_is_kept(con, query):
    con.execute('CREATE TABLE u ("user" INT); INSERT INTO u VALUES (1)')
    con.execute("INSERT INTO r VALUES (1, TIMESTAMP '2024-02-01', NULL, DATE '2020-01-01')")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.execute("FROM v").fetchall() == con.execute(query).fetchall() != []


@pytest.mark.parametrize("macro", ["twice(x) AS 2 * x", "abs(x) AS 7"])
@pytest.mark.parametrize("query", ["SELECT {}(a) AS b FROM r", "SELECT a, {}(count(*)) AS n FROM r GROUP BY a"])
def test_macros_are_kept_even_those_that_hide_functions(con, macro, query):
    con.execute(f"CREATE MACRO {macro}")
    query = query.format(macro.partition("(")[0])
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO r (a) VALUES (-3), (4)")
    assert sorted(con.execute("FROM v").fetchall()) == sorted(con.execute(query).fetchall()) != []

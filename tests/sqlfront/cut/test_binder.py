"""The binder: every definition, evaluated naively, is the query; every refusal names its construct and place."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlfront import errors
from sqlfront.binding.ties import without_ties
from sqlfront.cut.view_query import ViewQuery, bind_view
from sqlfront.planner.model.query import Definition
from sqlfront.sql.tokens import split
from tests.catalogs import WithoutMacros, catalog_of
from tests.definition_oracle import evaluate_definition, same_bag
from tests.rewriting import rewritten
from tests.sqlfront import random_queries

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "binder"
SUPPORTED = (
    "windows",
    "joins",
    "constants",
    "pivots",
    "shares",
    "macros",
    "comparisons",
    "outputs",
    "aggregates",
    "distinct",
    "inlining",
    "blocks",
    "unions",
    "orders",
    "rewritten",
    "computed",
    "temporal",
    "partners",
    "nearest",
    "nested",
    "collations",
)


def statements(name: str) -> list[str]:
    text = (FIXTURES / f"{name}.sql").read_text()
    return [text[start:end] for start, end in split(text)]


def refusals() -> list[tuple[str, str, str]]:
    """(error, text under the carets, query) of every case in refused.sql."""
    cases = []
    for block in (FIXTURES / "refused.sql").read_text().split("\n\n")[1:]:
        error, under, query = block.split("\n", 2)
        cases.append(
            (error.removeprefix("-- error: "), under.removeprefix("-- caret:").strip(), query.rstrip().rstrip(";"))
        )
    return cases


@pytest.fixture(scope="module")
def database() -> Any:
    con = duckdb.connect(config={"threads": 1})
    for statement in statements("schema"):
        con.execute(statement)
    yield con
    con.close()


@pytest.fixture
def con(database: Any) -> Any:
    """A cursor on the fixtures' tables, empty."""
    cursor = database.cursor()
    clear(cursor)
    yield cursor
    cursor.close()


def clear(con: Any) -> None:
    for table in ("r", "t", "u", "o2.z", "natural_numbers"):
        con.execute(f"DELETE FROM {table}")


def fill(con: Any, seed: int) -> None:
    """Rows with NULLs and duplicates in place of those that were there."""
    clear(con)
    random = Random(seed)
    number = lambda: random.choice(["NULL", "0", "1", "2", "3"])  # noqa: E731
    text = lambda: random.choice(["NULL", "'s0'", "'s1'", "'S1'"])  # noqa: E731
    rows: dict[str, list[str]] = {table: [] for table in ("r", "t", "u", "o2.z", "natural_numbers")}
    for _ in range(14):
        decimal, real = random.choice(["NULL", "0.25", "-1.5", "2"]), random.choice(["NULL", "0.1", "2.5", "'nan'"])
        moment = random.choice(["NULL", "'2020-01-01 00:00:00'", "'2020-01-02 05:06:07'"])
        rows["r"].append(
            f"({number()}, {number()}, {number()}, {decimal}, {text()}, {real}, "
            f"{{'x': {number()}, 'y': 'q'}}, [{number()}, 1], "
            f"{random.choice(['NULL', repr('sad'), repr('ok')])}, {moment}, {moment}, INTERVAL 1 DAY, {number()})"
        )
        date, real = random.choice(["NULL", "'2020-01-01'", "'2020-02-03'"]), random.choice(["NULL", "0.5", "1"])
        decimal = random.choice(["0.125", "2", "-1.5"])
        rows["t"].append(
            f"({random.randint(0, 3)}, {number()}, {date}, {decimal}, {text()}, {real}, {number()}, {number()})"
        )
    rows["r"] += rows["r"][:3]
    for key in random.sample(range(6), 5):
        rows["u"].append(f"({key}, {key % 3}, {key % 2}, {text()}, {random.choice(['NULL', 'true'])})")
        rows["o2.z"].append(f"({number()}, {number()})")
        rows["natural_numbers"].append(f"({number()}, {key % 3}, {key % 4}.5 - 0.5)")
    for table, values in rows.items():  # One statement a table: 63 of one row cost more than the query under test.
        con.execute(f"INSERT INTO {table} VALUES {', '.join(values)}")


def check_equal(query: str, con: Any, bound: ViewQuery | None = None) -> Definition:
    bound = bound or bind_view(query, con, WithoutMacros(con))
    definition, settled = bound.definition, rewritten(bound.completed, without_ties)
    expected = con.execute(settled).fetchall()
    found = evaluate_definition(definition, con)
    assert same_bag(found, expected), f"{query}\nfound    {found}\nexpected {expected}\n{definition}"
    return definition


@pytest.mark.parametrize("query", [query for name in SUPPORTED for query in statements(name)])
def test_definition_is_the_query(query: str, con: Any) -> None:
    described = con.execute(f"DESCRIBE SELECT * FROM ({query})").fetchall()
    bound = bind_view(query, con, catalog_of(query, con))
    definition = check_equal(query, con, bound)  # over empty tables
    assert list(definition.columns) == [(row[0], row[1]) for row in described]
    for seed in (1, 2):
        fill(con, seed)
        check_equal(query, con, bound)


@pytest.mark.parametrize(("error", "under", "query"), refusals())
def test_refusal_names_construct_and_place(error: str, under: str, query: str, con: Any) -> None:
    kind, what = error.split(": ", 1)
    with pytest.raises(getattr(errors, kind)) as caught:
        bind_view(query, con, catalog_of(query, con))
    assert type(caught.value).__name__ == kind
    assert caught.value.what.startswith(what)
    if kind == "NotSupportedError":
        assert all((caught.value.why, caught.value.hint))
    assert under_carets(caught.value) == under


def under_carets(error: errors.Error) -> str:
    if not error.where:
        return ""
    line, carets = error.where.split("\n")
    return line[carets.index("^") : carets.index("^") + carets.count("^")]


@pytest.fixture(scope="module")
def random_database() -> Any:
    con = duckdb.connect(config={"threads": 1})
    con.execute(random_queries.SCHEMA)
    yield con
    con.close()


def test_random_queries(random_database: Any) -> None:
    """At least half of the queries are checked over rows; at most a fifth is refused or invalid."""
    outcomes = []

    @settings(max_examples=40)
    @given(seed=st.integers(0, 2**32))
    def check(seed: int) -> None:
        random = Random(seed)
        random_queries.fill(random_database, random)
        outcomes.append(run_random(random_queries.query(random), random_database))

    check()
    assert 2 * outcomes.count("checked") >= len(outcomes), outcomes
    assert 5 * (outcomes.count("refused") + outcomes.count("invalid")) <= len(outcomes), outcomes


def run_random(query: str, con: Any) -> str:
    """What became of the query: refused, invalid, empty or checked."""
    try:
        con.execute(query)
    except duckdb.Error:
        return "invalid"
    try:
        definition = check_equal(query, con)
    except errors.NotSupportedError as error:
        if "CASE branches" in error.what:  # the one construct that the generator cannot avoid
            return "refused"
        raise
    return "checked" if definition.mode == "group" or con.execute(query).fetchone() else "empty"


def test_sum_needs_no_sql_in_the_leaf(con: Any) -> None:
    """The main case: plain columns, presence factors by column, the key that makes it cheap."""
    definition = bind_view("SELECT r.s, sum(r.d), count(*) FROM u JOIN r ON r.a = u.k GROUP BY r.s", con).definition
    u, r = definition.atoms
    assert (u.table, u.keys, u.factors) == ("main.u", (frozenset({"a"}),), ())
    assert [(column.source, column.presence_of) for column in r.factors] == [(None, "d"), ("d", None)]
    assert u.required == r.required == {"a"}
    assert [column.source for column in r.variables] == ["a", "s"]
    assert definition.free == ("s",)


def test_not_null_column_needs_no_presence(con: Any) -> None:
    definition = bind_view("SELECT a, sum(d), avg(d), count(d), count(*) FROM t GROUP BY a", con).definition
    assert len(definition.measures) == 2
    assert [factor.source for factor in definition.atoms[0].factors] == ["d"]


def test_key_with_constant_part(con: Any) -> None:
    definition = bind_view("SELECT b FROM u WHERE c = 3", con).definition
    assert definition.atoms[0].keys == (frozenset({"b"}),)


def test_constant_spreads_over_the_class(con: Any) -> None:
    definition = bind_view("SELECT r.a FROM r, u WHERE r.a = u.k AND u.k = 2", con).definition
    assert [atom.predicate for atom in definition.atoms] == ["(a = 2)", "(k = 2)"]


def test_types_of_a_class_are_widened(con: Any) -> None:
    definition = bind_view("SELECT r.a, t.a FROM r, t WHERE r.a = t.a", con).definition
    r, t = definition.atoms
    assert (r.variables[0].expression, r.variables[0].type, r.variables[0].source) == (
        "CAST(a AS BIGINT)",
        "BIGINT",
        None,
    )
    assert t.variables[0].source == "a"
    assert definition.projection == ("CAST(a AS INTEGER)", "a")


def test_equal_aggregates_are_shared(con: Any) -> None:
    definition = bind_view("SELECT sum(a), sum(a) + 1, avg(a), sum(r.a) FROM r HAVING sum(a) > 0", con).definition
    assert [column.kind for column in definition.raw] == ["sum", "avg"]
    assert len(definition.measures) == 2


def test_products_share_their_factors(con: Any) -> None:
    definition = bind_view("SELECT sum(r.b * t.d), sum(r.b), sum(t.d) FROM r, t WHERE r.a = t.a", con).definition
    assert [len(atom.factors) for atom in definition.atoms] == [2, 1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT avg(b) FROM r", [True]),
        ("SELECT a, avg(b) FROM r GROUP BY a", [False]),
        ("SELECT a, avg(b), sum(b) FROM r GROUP BY a", [True]),
        ("SELECT a, avg(b), sum(c) FROM r GROUP BY a", [False]),
        ("SELECT avg(b) FILTER (WHERE a = 1) FROM r", [False]),
        ("SELECT a, avg(b) FROM r GROUP BY a HAVING count(b) > 1", [True]),
    ],
)
def test_averages_duckdb_computes_from_sums(query: str, expected: list[bool], con: Any) -> None:
    definition = bind_view(query, con).definition
    assert [column.from_sum for column in definition.raw if column.kind == "avg"] == expected


def test_scalar_and_grouped_by_a_constant(con: Any) -> None:
    assert bind_view("SELECT count(*) FROM r", con).definition.scalar
    grouped = bind_view("SELECT count(*) FROM r GROUP BY 'x'", con).definition
    assert (grouped.mode, grouped.free, grouped.scalar) == ("group", (), False)


def test_labels_are_the_users_words(con: Any) -> None:
    definition = bind_view("SELECT year(e), s FROM t", con).definition
    assert [definition.label(name) for name in definition.free] == ["year(e)", "s"]


def test_column_names(con: Any) -> None:
    columns = bind_view("SELECT a, b, s FROM r", con, column_names=("b", "B")).definition.columns
    expected = [
        row[:2] for row in con.execute('DESCRIBE SELECT * FROM (SELECT a, b, s FROM r) AS q (b, "B")').fetchall()
    ]
    assert list(columns) == expected
    with pytest.raises(errors.ProgrammingError, match="3 columns specified"):
        bind_view("SELECT a, b FROM r", con, column_names=("x", "y", "z"))


def test_carets_in_the_whole_statement(con: Any) -> None:
    statement = "CREATE MATERIALIZED VIEW v AS\n  SELECT 'ü', r.a\n  FROM r POSITIONAL JOIN t"
    query = statement[statement.index("SELECT") :]
    with pytest.raises(errors.NotSupportedError) as caught:
        bind_view(query, con, statement=statement, offset=statement.index("SELECT"))
    assert (caught.value.where or "").startswith("line 3, column 10: ")
    assert under_carets(caught.value) == "POSITIONAL JOIN t"
    statement = statement.replace("POSITIONAL JOIN t", "WHERE nope = 1")
    query = statement[statement.index("SELECT") :]
    with pytest.raises(errors.ProgrammingError) as wrong:
        bind_view(query, con, statement=statement, offset=statement.index("SELECT"))
    assert under_carets(wrong.value) == "nope"


def test_second_statement_is_never_run(con: Any) -> None:
    with pytest.raises(errors.ProgrammingError, match="Expected one statement"):
        bind_view("SELECT a FROM r; SELECT b FROM r", con)
    with pytest.raises(errors.ProgrammingError, match="Expected SELECT"):
        bind_view("SELECT a FROM r; CREATE TABLE intruder (i INTEGER)", con)
    assert not con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'intruder'").fetchall()


def test_temporary_table_hides_the_table(con: Any) -> None:
    con.execute("CREATE TEMP TABLE r (a INTEGER)")
    try:
        with pytest.raises(errors.NotSupportedError, match="temporary"):
            bind_view("SELECT a FROM r", con)
        bind_view("SELECT a FROM main.t", con)
    finally:
        con.execute("DROP TABLE temp.main.r")


def test_user_function(con: Any) -> None:
    con.create_function("shaken", lambda x: x, ["INTEGER"], "INTEGER", side_effects=True)
    con.create_function("steady", lambda x: x, ["INTEGER"], "INTEGER")
    try:
        with pytest.raises(errors.NotSupportedError, match=r"shaken\(\)"):
            bind_view("SELECT shaken(a) FROM r", con)
        assert bind_view("SELECT steady(a) FROM r", con).definition.atoms[0].variables[0].expression == "steady(a)"
    finally:
        con.remove_function("shaken")
        con.remove_function("steady")

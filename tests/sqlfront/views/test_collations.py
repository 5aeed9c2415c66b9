"""Views over texts with a collation: DuckDB's answers after each change, up to which of equal texts is shown."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.sql.tokens import split
from tests.definition_oracle import same_bag
from tests.following import empty_and_drop, follow

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "collations"


def statements(name: str) -> list[str]:
    text = (FIXTURES / f"{name}.sql").read_text()
    return [text[start:end] for start, end in split(text)]


QUERIES = statements("views")


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    for statement in statements("schema"):
        connection.execute(statement)
    yield connection
    connection.close()


def change(con: sqlfront.Connection, rng: random.Random) -> None:
    """One random statement: duplicates, NULLs, texts that turn into equal ones, and tables that become empty."""
    number = lambda: rng.choice(["NULL", "1", "2", "3"])  # noqa: E731
    text = lambda: rng.choice(["NULL", "'a'", "'A'", "'b'", "'B'", "'é'", "'E'", "'e'", "'É'"])  # noqa: E731
    kind = rng.random()
    if kind < 0.5:
        rows = [f"({number()}, {text()}, {text()}, {text()}, {text()})" for _ in range(rng.randint(1, 4))]
        con.execute(f"INSERT INTO words VALUES {', '.join(rows + rows[:1])}")
    elif kind < 0.65:
        con.execute(f"INSERT INTO terms VALUES ({number()}, {text()}, {text()}), ({number()}, {text()}, {text()})")
    elif kind < 0.75:
        con.execute(f"UPDATE words SET s = {text()}, n = upper(n) WHERE id = {number()}")
    elif kind < 0.83:
        con.execute(f"DELETE FROM terms WHERE id IS NOT DISTINCT FROM {number()}")
    elif kind < 0.97:
        con.execute(f'DELETE FROM words WHERE s COLLATE "binary" IS NOT DISTINCT FROM {text()}')
    else:
        con.execute("DELETE FROM words")


def folded(value: object) -> object:
    """A text without case and accents."""
    if isinstance(value, list | tuple):
        return type(value)(folded(one) for one in value)
    if isinstance(value, dict):
        return {name: folded(one) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    return "".join(one for one in unicodedata.normalize("NFD", value.casefold()) if not unicodedata.combining(one))


def rows(con: sqlfront.Connection, query: str) -> list[tuple[object, ...]]:
    found = con.execute(query)
    is_open = [column[0].startswith("any_") for column in found.description]
    return [
        tuple(folded(value) if any_ else value for value, any_ in zip(row, is_open, strict=True))
        for row in found.fetchall()
    ]


def check(con: sqlfront.Connection, names: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
    found = {}
    for name, query in names.items():
        expected, found[name] = rows(con, query), rows(con, f"SELECT * FROM {name}")
        assert same_bag(found[name], expected), f"{query}\nfound    {found[name]}\nexpected {expected}"
    return found


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 6), *(pytest.param(seed, 40, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_views_are_their_queries_after_each_change(con: sqlfront.Connection, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    queries = rng.sample(QUERIES, 14) if steps < 10 else QUERIES
    names = {f"v{number}": query for number, query in enumerate(queries)}
    for _ in range(3):
        change(con, rng)
    for name, query in names.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    changed = follow(con, steps, lambda: change(con, rng), lambda: check(con, names))
    assert len(changed) > 0.9 * len(names)
    empty_and_drop(con, names, ("words", "terms"), lambda: check(con, names))


def change_all(con: sqlfront.Connection, rng: random.Random) -> None:
    """One random statement over the tables of default_schema.sql."""
    number = lambda: rng.choice(["NULL", "1", "2", "3"])  # noqa: E731
    text = lambda: rng.choice(["NULL", "'a'", "'A'", "'b'", "'B'", "'é'", "'E'", "'e'", "'É'"])  # noqa: E731
    letter = lambda: rng.choice(["NULL", "'a'", "'A'", "'b'", "'e'"])  # noqa: E731
    kind = rng.random()
    if kind < 0.5:
        texts = [", ".join(text() for _ in "snpdb") for _ in range(rng.randint(1, 4))]
        rows = [f"({number()}, {one}, {letter()})" for one in texts]
        con.execute(f"INSERT INTO words VALUES {', '.join(rows + rows[:1])}")
    elif kind < 0.65:
        con.execute(f"INSERT INTO terms VALUES ({number()}, {text()}, {text()}), ({number()}, {text()}, {text()})")
    elif kind < 0.75:
        con.execute(f"UPDATE words SET p = {text()}, d = upper(d) WHERE id = {number()}")
    elif kind < 0.83:
        con.execute(f"DELETE FROM terms WHERE id IS NOT DISTINCT FROM {number()}")
    elif kind < 0.97:
        con.execute(f'DELETE FROM words WHERE p COLLATE "binary" IS NOT DISTINCT FROM {text()}')
    else:
        con.execute("DELETE FROM words")


@pytest.mark.parametrize(
    ("collation", "seed", "steps"),
    [
        ("nocase", 1, 5),
        *(
            pytest.param(one, seed, 20, marks=pytest.mark.slow)
            for seed, one in enumerate(("nocase", "NOACCENT", "nocase.noaccent", "de", "nocase.de"))
        ),
    ],
)
def test_views_under_a_default_collation_are_their_queries(collation: str, seed: int, steps: int) -> None:
    rng, queries = random.Random(seed), statements("default")
    with sqlfront.connect() as con, con.cursor() as plain:
        for statement in statements("default_schema"):
            con.execute(statement)
        for _ in range(4):
            change_all(con, rng)
        con.execute(f"SET SESSION default_collation = '{collation}'")
        names = {f"v{place}": one for place, one in enumerate(rng.sample(queries, 10) if steps < 10 else queries)}
        for name, query in names.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        writers = (con, plain)  # A session without the setting changes the views too.
        changed = follow(con, steps, lambda: change_all(rng.choice(writers), rng), lambda: check(con, names))
        assert len(changed) > 0.6 * len(names)
        for name in names:
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == [], names[name]
        empty_and_drop(con, names, ("words", "terms"), lambda: check(con, names))


def test_a_default_collation_is_that_of_create(tmp_path: Path) -> None:
    path = str(tmp_path / "words.db")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE words (id INTEGER, p VARCHAR); SET default_collation = 'nocase'")
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT p, sum(id) AS t FROM words GROUP BY p HAVING p LIKE 'A%'")
        con.execute("RESET default_collation")
        con.execute("CREATE MATERIALIZED VIEW above AS SELECT p, count(*) AS k FROM sums WHERE p <> 'A' GROUP BY p")
        con.execute("INSERT INTO words VALUES (1, 'a'), (2, 'A'), (3, 'b'), (4, 'aB')")
        assert sorted(con.execute("FROM sums").fetchall()) == [("A", 3), ("aB", 4)]
        assert con.execute("FROM above").fetchall() == [("aB", 1)]
        explained = con.execute("EXPLAIN MATERIALIZED VIEW sums").fetchall()
        assert ("settings", "default_collation = 'nocase'") in explained
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO words VALUES (5, 'Ab')")
        assert sorted(con.execute("FROM sums").fetchall()) == [("A", 3), ("Ab", 9)]
        assert con.execute("SELECT t FROM sums WHERE p = 'ab'").fetchall() == []
        con.execute("SET default_collation = 'nocase'")
        assert con.execute("SELECT t FROM sums WHERE p = 'ab'").fetchall() == [(9,)]
        for view in ("sums", "above"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
        con.execute("ALTER TABLE words RENAME TO texts; ALTER TABLE texts RENAME COLUMN p TO q")
        con.execute("INSERT INTO texts VALUES (6, 'AB')")
        assert sorted(con.execute("FROM sums").fetchall()) == [("A", 3), ("AB", 15)]


def test_a_function_of_two_tables_keeps_its_collation(con: sqlfront.Connection) -> None:
    """The parts of an expression that are kept as columns have none."""
    con.execute("INSERT INTO words VALUES (1, 'A', 'e', 'x', 'y'); INSERT INTO terms VALUES (1, 'a', 'e')")
    query = "SELECT contains(upper(w.s), t.s) AS a, w.s LIKE t.s AS b FROM words w JOIN terms t USING (id)"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.execute("FROM v").fetchall() == con.execute(query).fetchall() == [(True, True)]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT regexp_matches(p, 'a') FROM words", "A regular expression over a text under default_collation"),
        ("SELECT p SIMILAR TO 'a' FROM words", "A regular expression over a text under default_collation"),
        ("SELECT list_sort([p, d]) FROM words", "A sorted list of texts with a collation"),
        ("SELECT array_reverse_sort([s, 'a']) FROM words", "A sorted list of texts with a collation"),
    ],
)
def test_what_duckdb_leaves_open_is_refused(con: sqlfront.Connection, query: str, what: str) -> None:
    con.execute("SET default_collation = 'nocase'")
    with pytest.raises(sqlfront.NotSupportedError, match=what):
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")


def test_readers_of_a_view_compare_by_its_collations(con: sqlfront.Connection) -> None:
    con.execute("INSERT INTO words VALUES (1, 'a', 'é', 'x', 'y'), (2, 'A', 'E', 'x', 'y'), (3, 'b', 'f', 'X', 'y')")
    con.execute("CREATE MATERIALIZED VIEW texts AS SELECT id, s, upper(n) AS n FROM words")
    con.execute("CREATE MATERIALIZED VIEW sums AS SELECT s, sum(id) AS t FROM words GROUP BY s")
    con.execute("CREATE MATERIALIZED VIEW above AS SELECT t FROM sums WHERE s = 'A'")
    con.execute("CREATE MATERIALIZED VIEW firsts AS SELECT s, id FROM words ORDER BY s, id LIMIT 3")
    assert con.execute("SELECT id FROM texts WHERE s = 'A' ORDER BY id").fetchall() == [(1,), (2,)]
    assert con.execute("SELECT count(*) FROM texts WHERE n = 'e'").fetchall() == [(2,)]
    assert con.execute("SELECT t FROM sums WHERE s = 'a'").fetchall() == [(3,)]
    assert con.execute("SELECT * FROM above").fetchall() == [(3,)]
    con.execute("INSERT INTO words VALUES (0, 'B', 'f', 'X', 'y')")
    assert con.execute("SELECT id FROM firsts ORDER BY s DESC, id LIMIT 1").fetchall() == [(0,)]


def test_changes_of_rows_are_by_bytes(con: sqlfront.Connection) -> None:
    """A change set names rows, whose texts a collation does not make the same."""
    con.execute("INSERT INTO words VALUES (1, 'a', 'e', 'x', 'y'), (1, 'A', 'e', 'x', 'y')")
    con.execute("CREATE MATERIALIZED VIEW sums AS SELECT s, count(*) AS k FROM words GROUP BY s")
    gone = pa.table({"id": [1], "s": ["a"], "n": ["e"], "p": ["x"], "d": ["y"], "_weight": [-1]})
    con.apply({"words": gone})
    assert con.execute("SELECT s FROM words").fetchall() == [("A",)]
    assert con.execute("SELECT s, k FROM sums").fetchall() == [("A", 1)]


def test_a_view_is_the_same_when_its_file_is_opened_again(tmp_path: Path) -> None:
    path = str(tmp_path / "words.db")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE words (id INTEGER, s VARCHAR COLLATE nocase)")
        con.execute("INSERT INTO words VALUES (1, 'b'), (2, 'B'), (3, 'a')")
        con.execute(
            "CREATE MATERIALIZED VIEW sums AS SELECT s, sum(id) AS t, list(DISTINCT s) AS l FROM words GROUP BY s"
        )
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO words VALUES (4, 'A')")
        assert con.execute("SELECT s, t, l FROM sums WHERE s = 'A'").fetchall() == [("A", 7, ["A"])]
        assert not con.execute("CHECK MATERIALIZED VIEW sums").fetchall()

"""Our statements as trees: what is printed reads the same, what is wrong is refused at its place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from sqlfront.sql import trees
from sqlfront.sql.dialect import parse, parse_one, printed
from sqlfront.sql.own_statements import read_own
from sqlfront.sql.recognise import is_own
from sqlfront.sql.statements import CreateViewIndex, DropViewIndex
from sqlfront.sql.tokens import split
from sqlfront.storage.errors import ProgrammingError

ROOT = Path(__file__).parents[3]
WRITTEN = [
    "CREATE OR REPLACE MATERIALIZED VIEW \"A b\".c.v (x, \"y z\") WITH (e = 0.5, n = -3, t = '''', w = x) AS FROM t",
    "CREATE MATERIALIZED VIEW IF NOT EXISTS select AS (SELECT 1) UNION ALL (SELECT 2) -- end",
    "create materialized view v with (a = on, b = OFF, c = true, d = 1_000, e = 1e3) as with t as (select 1) from t",
    "CREATE CHANGE TABLE IF NOT EXISTS s.t (a BIGINT NOT NULL DEFAULT 1 + 2, b DECIMAL(10, 2)[] NULL, PRIMARY KEY (a))",
    "CREATE CHANGE TABLE t (a INT PRIMARY KEY, b STRUCT(x INT) DEFAULT f(1, 'x)') NOT NULL, UNIQUE (a, b), UNIQUE (b))",
    "CREATE CHANGE TABLE t (a TIMESTAMP WITH TIME ZONE UNIQUE, b DOUBLE PRECISION) WITH (retain = false)",
    "CREATE CHANGE TABLE t (\"unique\" INT, a INT DEFAULT NULL) FROM Kafka OPTIONS (topic = 'x', group_id = g)",
    "CREATE CHANGE TABLE t (a INTEGER, PRIMARY KEY (A), UNIQUE (a))",
    "DROP MATERIALIZED VIEW IF EXISTS a.b CASCADE",
    "DROP CHANGE TABLE t RESTRICT",
    "REFRESH CHANGE TABLE a, b.c",
    "refresh materialized view v",
    "ALTER MATERIALIZED VIEW v SET (on_error = 'null')",
    'ALTER MATERIALIZED VIEW a.v RENAME TO "W w"',
    "SHOW CHANGE TABLES",
    "SHOW MATERIALIZED VIEWS",
    "show /* all */ state",
    'SHOW STATE FOR "v w"',
    "SHOW EPOCHS",
    "SET sqlfront_threads = 2",
    "SHOW ERRORS FOR s.v",
    "EXPLAIN MATERIALIZED VIEW v WITH (shards = 8)",
    "EXPLAIN (MATERIALIZED, SHARDS 8) SELECT a FROM t",
    "EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW s.v (x) WITH (epsilon = 0.25) AS SELECT a FROM t",
    "EXPLAIN (ALGEBRA) SELECT a FROM t",
    "explain (materialized) from t",
    "CHECK MATERIALIZED VIEW v",
    "SUBSCRIBE TO v WITH (from_epoch = 3)",
]
WRONG = [
    ("CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1", "exclude each other", "v"),
    ("CREATE MATERIALIZED VIEW v WITH (a = 1, A = 2) AS SELECT 1", "given twice", "A"),
    ("CREATE MATERIALIZED VIEW v AS", "Expected SELECT", ""),
    ("CREATE MATERIALIZED VIEW v AS INSERT INTO t VALUES (1)", "Expected SELECT", "INSERT"),
    ("CREATE MATERIALIZED VIEW v AS SELECT 'a", "has no end", "'"),
    ("CREATE CHANGE TABLE t (a INT, A INT)", "declared twice", "A"),
    ("CREATE CHANGE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", "one primary key", "PRIMARY"),
    ("CREATE CHANGE TABLE t (PRIMARY KEY (a))", "needs a column", ")"),
    ("CREATE CHANGE TABLE t (a INT) FROM kafka", "Expected OPTIONS", ""),
    ("EXPLAIN (MATERIALIZED, ROWS 8) SELECT 1", "Expected )", ","),
    ("CHECK v", "Expected MATERIALIZED", "v"),
    ("SHOW CHANGE TABLES x", "Expected the end", "x"),
]


def found() -> list[str]:
    """Every statement of ours in the tests, the documentation and the examples that the dialect reads."""
    texts: set[str] = set()
    for path in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").glob("*.py")]:
        constants = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
        texts |= {value for value in constants if isinstance(value, str)}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for _, code in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            texts |= {*re.findall(r'"""(.*?)"""', code, re.DOTALL), code}
    pieces = {text[start:end] for text in texts for start, end in split(text)}
    return sorted(piece for piece in pieces if is_own(piece) and is_read(piece))


def is_read(text: str) -> bool:
    try:
        parse_one(text)
    except ProgrammingError:
        return False
    return True


@pytest.mark.parametrize("text", WRITTEN)
def test_a_printed_statement_reads_the_same(text):
    once = printed(parse_one(text))
    assert printed(parse_one(once)) == once


def test_every_statement_of_the_repository_keeps_its_facts_when_printed():
    texts = found()
    assert len(texts) > 600
    for text in texts:
        once = printed(parse_one(text))
        assert type(read_own(once, 0)) is type(read_own(text, 0))
        assert printed(parse_one(once)) == once


@pytest.mark.parametrize(("text", "message", "under"), WRONG)
def test_an_error_points_at_its_place(text, message, under):
    assert is_own(text)
    with pytest.raises(ProgrammingError) as caught:
        read_own(text, 0)
    assert message in caught.value.what
    line, carets = str(caught.value.where).split("\n")
    assert line[carets.index("^") :][: carets.count("^")] == under


@pytest.mark.parametrize(
    "text", ["CREATE MATERIALIZED VIEW v AS SELECT", "EXPLAIN (MATERIALIZED) SELECT a FROM t WHERE GROUP BY a"]
)
def test_the_query_of_a_statement_is_read(text):
    with pytest.raises(ProgrammingError, match="Expected an expression"):
        parse(text)


def test_first_words_with_comments_between():
    for text in (
        "/* a /* b */ */ create--c\nor /**/ Replace\n materialized view",
        "EXPLAIN/* */( Materialized)",
        "check",
    ):
        assert is_own(text)
    for text in ("CHECKPOINT", "create materialized_", "'check'", '"refresh"', "SHOW states", "EXPLAIN (MATERIALIZE)"):
        assert not is_own(text)


def test_an_index_of_a_view_is_read():
    text = 'CREATE UNIQUE INDEX IF NOT EXISTS i ON s.v USING art (a DESC NULLS LAST, "b c")'
    index = read_own(text, 0)
    assert isinstance(index, CreateViewIndex)
    assert (index.name, index.view.parts, index.order) == ("i", ("s", "v"), 'a DESC NULLS LAST, "b c"')
    assert (index.if_not_exists, index.unique, index.using) == (True, True, True)
    assert printed(parse_one(text)) == text
    dropped = parse_one("DROP INDEX IF EXISTS s.i")
    assert isinstance(dropped, trees.Drop)
    assert isinstance(read_own("DROP INDEX IF EXISTS s.i", 0), DropViewIndex)
    assert printed(dropped) == "DROP INDEX IF EXISTS s.i"

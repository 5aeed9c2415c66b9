"""Our statements as trees, side by side with today's parser: the same facts, the same refusals."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.dialect import parse, parse_one, printed
from sqlfront.sql.statements import (
    AlterMaterializedView,
    CheckMaterializedView,
    ColumnDefinition,
    CreateChangeTable,
    CreateMaterializedView,
    DropChangeTable,
    DropMaterializedView,
    ExplainAlgebra,
    ExplainMaterialized,
    ExplainMaterializedView,
    Name,
    PassThrough,
    RefreshChangeTables,
    RefreshMaterializedView,
    ShowChangeTables,
    ShowMaterializedViews,
    ShowState,
    Statement,
    Subscribe,
    parse_statement,
)
from sqlfront.storage.errors import ProgrammingError

ROOT = Path(__file__).parents[3]
OPENINGS = re.compile(
    r"\s*(create\s+(or\s+replace\s+)?(materialized|change)|(drop|alter|show|explain)\s*\(?\s*(materialized|change|state)"
    r"|refresh|check\s|subscribe)",
    re.IGNORECASE,
)
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
    "SHOW CHANGE TABLES",
    "SHOW MATERIALIZED VIEWS",
    "show /* all */ state",
    'SHOW STATE FOR "v w"',
    "EXPLAIN MATERIALIZED VIEW v WITH (shards = 8)",
    "EXPLAIN (MATERIALIZED, SHARDS 8) SELECT a FROM t",
    "EXPLAIN (ALGEBRA) SELECT a FROM t",
    "explain (materialized) from t",
    "CHECK MATERIALIZED VIEW v",
    "SUBSCRIBE TO v WITH (from_epoch = 3)",
]
WRONG = [
    "CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1",
    "CREATE MATERIALIZED VIEW v WITH (a = 1, A = 2) AS SELECT 1",
    "CREATE MATERIALIZED VIEW v AS",
    "CREATE MATERIALIZED VIEW v AS INSERT INTO t VALUES (1)",
    "CREATE MATERIALIZED VIEW a.b.c.d AS SELECT 1",
    "CREATE CHANGE TABLE t ()",
    "CREATE CHANGE TABLE t (a INT, A INT)",
    "CREATE CHANGE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))",
    "CREATE CHANGE TABLE t (a INT, PRIMARY KEY (b))",
    "CREATE CHANGE TABLE t (PRIMARY KEY (a))",
    "CREATE CHANGE TABLE t (a INT CHECK (a > 1))",
    "CREATE CHANGE TABLE t (a INT) FROM kafka",
    "DROP MATERIALIZED VIEW v w",
    "REFRESH v",
    "ALTER MATERIALIZED VIEW v RENAME TO w",
    "SHOW STATE v",
    "EXPLAIN (MATERIALIZED, ROWS 8) SELECT 1",
    "CHECK v",
    "SUBSCRIBE v",
    "SHOW CHANGE TABLES x",
]


def found() -> list[str]:
    """Every statement of ours in the tests, the documentation and the examples that today's parser accepts."""
    texts: set[str] = set()
    for path in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").glob("*.py")]:
        if path != Path(__file__):
            constants = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
            texts |= {value for value in constants if isinstance(value, str) and OPENINGS.search(value[:200])}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for _, code in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            texts |= {*re.findall(r'"""(.*?)"""', code, re.DOTALL), code}
    statements = {one.text for text in texts for one in own(text)}
    return sorted(statements)


def own(text: str) -> list[Statement]:
    try:
        return [one for one in parse_statement(text) if not isinstance(one, PassThrough)]
    except ProgrammingError:
        return []


def name(node: Any) -> Name:
    parts = tuple(node.args[key].name for key in ("catalog", "db", "this") if node.args.get(key) is not None)
    return Name(parts, *span(node))


def span(node: exp.Expr) -> tuple[int, int]:
    noted = trees.span(node)
    assert noted is not None
    return noted


def piece(text: str, node: exp.Expr) -> str:
    return text[slice(*span(node))]


def options(nodes: list[exp.Expr] | None) -> tuple[tuple[str, Any], ...]:
    return tuple((node.this.name, value(node.expression)) for node in nodes or [])


def value(node: exp.Expr) -> Any:
    if isinstance(node, exp.Neg):
        return -value(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        digits = node.name.replace("_", "")
        return int(digits) if digits.isdigit() else float(digits)
    return node.this


def keys(tuples: list[exp.Tuple]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(column.name for column in one.expressions) for one in tuples)


def statement(text: str) -> Statement:
    """A tree's facts as today's statement."""
    node = parse_one(text)
    args = node.args
    match node:
        case trees.CreateMaterializedView():
            start = span(args["query"])[0]
            columns = tuple(column.name for column in args["columns"])
            flags = (bool(args["or_replace"]), bool(args["if_not_exists"]))
            return CreateMaterializedView(
                text, 0, name(node.this), text[start:], start, columns, options(args["options"]), *flags
            )
        case trees.CreateChangeTable():
            return change_table(text, node)
        case trees.Drop():
            kind = DropChangeTable if args["kind"] == "CHANGE TABLE" else DropMaterializedView
            return kind(text, 0, name(node.this), bool(args["if_exists"]), bool(args["cascade"]))
        case trees.AlterMaterializedView():
            return AlterMaterializedView(text, 0, name(node.this), options(args["options"]))
        case trees.Refresh() if args["kind"] == "CHANGE TABLE":
            return RefreshChangeTables(text, 0, tuple(map(name, node.expressions)))
        case trees.Refresh():
            return RefreshMaterializedView(text, 0, name(node.expressions[0]))
        case trees.ShowOwn():
            kinds = {"CHANGE TABLES": ShowChangeTables, "MATERIALIZED VIEWS": ShowMaterializedViews}
            if args["kind"] in kinds:
                return kinds[args["kind"]](text, 0)
            return ShowState(text, 0, name(node.this) if node.this else None)
        case trees.ExplainMaterializedView():
            return ExplainMaterializedView(text, 0, name(node.this), options(args["options"]))
        case trees.ExplainMaterialized():
            start = span(args["query"])[0]
            return ExplainMaterialized(text, 0, text[start:], start, options(args["options"]))
        case trees.ExplainAlgebra():
            start = span(args["query"])[0]
            return ExplainAlgebra(text, 0, text[start:], start)
        case trees.CheckMaterializedView():
            return CheckMaterializedView(text, 0, name(node.this))
        case trees.Subscribe():
            return Subscribe(text, 0, name(node.this), options(args["options"]))
    raise AssertionError(f"{type(node).__name__} is no statement of ours")


def change_table(text: str, node: trees.CreateChangeTable) -> CreateChangeTable:
    args = node.args
    key = keys([args["primary_key"]] if args.get("primary_key") else [])
    in_key = set(key[0]) if key else set()
    columns = tuple(
        ColumnDefinition(
            column.name,
            piece(text, column.args["kind"]),
            bool(column.args.get("not_null")) or column.name in in_key,
            piece(text, column.args["default"]) if column.args.get("default") is not None else None,
        )
        for column in node.expressions
    )
    source = args.get("source")
    return CreateChangeTable(
        text,
        0,
        name(node.this),
        columns,
        key[0] if key else (),
        keys(args.get("unique") or []),
        options(args.get("options")),
        bool(args["or_replace"]),
        bool(args["if_not_exists"]),
        source.name.lower() if source is not None else None,
        options(args.get("source_options")),
        span(source) if source is not None else None,
    )


@pytest.mark.parametrize("text", WRITTEN)
def test_a_statement_tells_the_same_facts(text):
    [today] = parse_statement(text)
    assert statement(text) == today


def test_every_statement_of_the_repository_tells_the_same_facts():
    texts, different, unread = found(), [], []
    for text in texts:
        [today] = parse_statement(text)
        try:
            if statement(text) != today:
                different.append(text)
        except ProgrammingError:
            unread.append(text)
    assert different == []
    assert len(texts) > 300
    assert [text for text in unread if not is_broken(text)] == []


def is_broken(text: str) -> bool:
    """Whether DuckDB's own parser refuses the query of a statement, which today's parser does not read."""
    import duckdb

    query = getattr(own(text)[0], "query", None)
    if query is None:
        return False
    with duckdb.connect() as con:
        [(answer,)] = con.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    return '"error":true' in answer


@pytest.mark.parametrize("text", WRITTEN)
def test_a_printed_statement_reads_the_same(text):
    once = printed(parse_one(text))
    assert printed(parse_one(once)) == once


@pytest.mark.parametrize("text", WRONG)
def test_what_is_refused_today_is_refused(text):
    with pytest.raises(ProgrammingError) as caught:
        parse(text)
    assert "^" in str(caught.value.where)
    with pytest.raises(ProgrammingError) as today:
        parse_statement(text)
    assert today.value.where == caught.value.where
    assert today.value.what.partition(",")[0] == caught.value.what.partition(",")[0]


@pytest.mark.parametrize(
    "text", ["CREATE MATERIALIZED VIEW v AS SELECT", "EXPLAIN (MATERIALIZED) SELECT a FROM t WHERE GROUP BY a"]
)
def test_the_query_of_a_statement_is_read(text):
    with pytest.raises(ProgrammingError, match="Expected an expression"):
        parse(text)


def test_an_index_of_a_view_is_read():
    text = 'CREATE INDEX IF NOT EXISTS i ON s.v (a DESC NULLS LAST, "b c")'
    node = parse_one(text)
    assert isinstance(node, trees.CreateViewIndex)
    assert (node.name, name(node.args["table"]).parts, node.args["if_not_exists"]) == ("i", ("s", "v"), True)
    order = text[span(node.expressions[0])[0] : span(node.expressions[-1])[1]]
    assert order == 'a DESC NULLS LAST, "b c"'
    assert printed(node) == text
    dropped = parse_one("DROP INDEX IF EXISTS s.i")
    assert isinstance(dropped, trees.Drop) and dropped.args["kind"] == "INDEX"
    assert printed(dropped) == "DROP INDEX IF EXISTS s.i"

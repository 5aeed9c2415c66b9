"""Forms of views in shards: each has the rows of the view there, or is refused by its name with a way out."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.shards import shard
from sqlfront.shards.shard_plan import plan_shards
from tests.definition_oracle import same_bag
from tests.judges import judge
from tests.shards import LocalShards, arrow, declared, stream

VALUES = {
    "BIGINT": ["0", "1", "2", "3", "NULL"],
    "VARCHAR": ["'1'", "'2'", "'x'", "NULL"],
    "VARCHAR COLLATE NOCASE": ["'x'", "'y'", "'X'", "'Y'", "''", "NULL"],
    "STRUCT(p INTEGER, q VARCHAR)": ["{'p': 1, 'q': 'a'}", "{'p': NULL, 'q': 'b'}", "{'p': 2, 'q': 'a'}", "NULL"],
    "INTEGER[]": ["[1, 2]", "[]", "[NULL]", "[1]", "NULL"],
    "MAP(VARCHAR, INTEGER)": ["MAP {'a': 1}", "MAP {}", "NULL"],
}
ROLLED = "SELECT a, k, count(*) AS n, sum(a) AS total FROM r GROUP BY ROLLUP (a, k)"
SPREAD = "SELECT stddev(a) AS s, covar_samp(a, length(k)) AS c FROM r"
LISTED = "SELECT r.a, min(s.c, 3) AS m FROM r, s WHERE r.k = s.k GROUP BY r.a"
ALONE = ("SELECT DISTINCT k FROM r", "SELECT max(k) AS last FROM r", LISTED, ROLLED, SPREAD)
"""What reads no column that is hashed: a nested value has no text of its own, nor has a text with a collation. The
groups of all sets have no column in common. Lists of values are not merged."""
DEFERRED = "CREATE MATERIALIZED VIEW d WITH (apply = 'on read') AS SELECT k, sum(a) AS n FROM r GROUP BY k"
TRIED = "CREATE MATERIALIZED VIEW d WITH (on_error = 'null') AS SELECT a, CAST(k AS INTEGER) AS z FROM r"
NESTED = (
    "SELECT a, k FROM r",
    "SELECT k, count(*) AS n, sum(a) AS total FROM r GROUP BY k",
    "SELECT r.a, s.c FROM r, s WHERE r.k = s.k",
    "SELECT DISTINCT k FROM r",
)
COLLATED = (
    "SELECT k, count(*) AS n FROM r GROUP BY k",
    "SELECT r.a, s.c FROM r, s WHERE r.k = s.k",
    "SELECT a, count(DISTINCT k) AS texts, max(k) AS last FROM r GROUP BY a",
    "SELECT DISTINCT k FROM r",
    "SELECT max(k) AS last FROM r",
    "SELECT a, k FROM r ORDER BY k, a LIMIT 3",
    "SELECT a, k COLLATE NOCASE.NOACCENT AS k FROM r WHERE k = 'X'",
)
OUTER = (
    "SELECT r.a, r.k, s.c FROM r LEFT JOIN s ON r.k = s.k",
    "SELECT r.a, s.c FROM r LEFT JOIN s ON r.a = s.c",
    "SELECT s.c, count(*) AS n FROM r LEFT JOIN s ON r.k = s.k GROUP BY s.c",
    "SELECT a, k FROM r ANTI JOIN s ON r.k = s.k",
    "SELECT p.a, o.c FROM r AS p JOIN (SELECT r.k, s.c FROM r LEFT JOIN s ON r.k = s.k) AS o ON p.a = o.c",
    "SELECT r.a, t.c, s.k FROM r LEFT JOIN s AS t ON r.k = t.k LEFT JOIN s ON t.c = s.c",
    "SELECT r.a, k, s.c FROM r FULL JOIN s USING (k)",
    "SELECT a, k IN (SELECT k FROM s) AS m, a NOT IN (SELECT c FROM s WHERE s.k = r.k) AS n FROM r",
    "SELECT a FROM r WHERE a NOT IN (SELECT c FROM s WHERE s.k = r.k)",
    "SELECT a FROM r EXCEPT ALL SELECT c FROM s",
    "SELECT k FROM r INTERSECT ALL SELECT k FROM s",
)
FORMS = [
    *(("VARCHAR", query, "") for query in OUTER),
    *((type_, query, "") for type_ in ("STRUCT(p INTEGER, q VARCHAR)", "INTEGER[]") for query in NESTED),
    ("MAP(VARCHAR, INTEGER)", NESTED[1], ""),
    ("STRUCT(p INTEGER, q VARCHAR)", "SELECT a, min(k) AS least, count(DISTINCT k) AS n FROM r GROUP BY a", ""),
    *(("VARCHAR COLLATE NOCASE", query, "") for query in COLLATED),
    ("BIGINT", "SELECT r.a, s.c FROM r, s WHERE abs(r.a - s.c) <= 2 AND abs(r.k - s.k) <= 2", ""),
    ("VARCHAR", ROLLED, ""),
    ("VARCHAR", SPREAD, ""),
    ("VARCHAR", "SELECT k, max(a, 2) AS s FROM r GROUP BY k", ""),
    ("VARCHAR", LISTED, ""),
    ("VARCHAR", "SELECT k, median(a) AS m, mode(a) AS o, list(a ORDER BY a) AS l FROM r GROUP BY k", ""),
    ("VARCHAR", "SELECT k, var_pop(a) AS s, bool_or(a > 1) AS b, bit_or(a) AS o FROM r GROUP BY k", ""),
    ("VARCHAR", "SELECT r.k, regr_r2(r.a, s.c + r.a) AS m FROM r, s WHERE r.k = s.k GROUP BY r.k", ""),
    ("VARCHAR", "SELECT k, n FROM d", DEFERRED),
    ("VARCHAR", "SELECT n, count(*) AS m FROM d, s WHERE d.k = s.k GROUP BY n", DEFERRED),
    ("VARCHAR", "SELECT a, z FROM d", TRIED),
    ("VARCHAR", "SELECT z, count(*) AS n FROM d GROUP BY z", TRIED),
    ("VARCHAR", "SELECT d.a, s.c FROM d, s WHERE d.z = s.c", TRIED),
]


@pytest.mark.parametrize(
    ("type_", "query", "view"),
    [pytest.param(*form, id="outer" if form[1] in OUTER else None) for form in FORMS],
)
def test_shards_have_the_rows_of_the_view(type_, query, view):
    tables = {"r": {"a": "BIGINT", "k": type_}, "s": {"k": type_, "c": "BIGINT"}}
    rng, held = random.Random(query), {table: Counter() for table in tables}
    with sqlfront.connect() as con:
        for table, columns in tables.items():
            con.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {of}' for name, of in columns.items())})")
        for statement in filter(None, (view, f"CREATE MATERIALIZED VIEW v AS {query}")):
            con.execute(statement)
        local, seen = LocalShards(plan_shards(con.session, query, 3)), 0
        for step in range(4):
            changes = {}
            for table, columns in tables.items():
                old = sorted(held[table].elements())
                rows = [(row, -1) for row in (rng.sample(old, len(old) // 2) if step < 3 else old)]
                if step < 3:
                    rows += [(tuple(rng.choice(VALUES[of]) for of in columns.values()), 1) for _ in range(8)]
                for row, weight in rows:
                    held[table][row] += weight
                changes[table] = as_arrow(columns, rows)
            con.apply(changes)
            read = {table for table, _ in local.plan.tables}
            local.apply({f"main.{table}": rows for table, rows in changes.items() if f"main.{table}" in read})
            expected = con.execute("SELECT * FROM v").fetchall()
            assert same_bag(local.rows(), expected)
            seen += len(expected)
        assert seen
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
        assert local.plan.partitioning.shards > 1 or query in ALONE
        local.close()


def as_arrow(columns, rows):
    """Rows as SQL, with weights, in Arrow."""
    types = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    with judge() as con:
        con.execute(f"CREATE TABLE given ({types}, _weight BIGINT)")
        if rows:
            values = (f"({', '.join(row)}, {weight})" for row, weight in rows)
            con.execute(f"INSERT INTO given VALUES {', '.join(values)}")
        return con.sql("SELECT * FROM given").to_arrow_table()


ROW_BY_ROW = {
    "a sum of both sides": "SELECT r.n + s.c AS z, count(*) AS k FROM r, s WHERE r.b = s.b GROUP BY r.n + s.c",
    "distinct products": "SELECT DISTINCT r.a * s.c AS z FROM r, s WHERE r.b = s.b",
    "a case over both": (
        "SELECT CASE WHEN r.a > s.c THEN r.b ELSE s.b END AS z, sum(r.n * s.c) FROM r, s WHERE r.b = s.b GROUP BY 1"
    ),
    "quotients": "SELECT r.a, sum(r.n / (s.c + 1)) AS t FROM r, s WHERE r.b = s.b GROUP BY r.a",
    "extremes of sums": "SELECT r.a, min(r.n + s.c) AS t FROM r, s WHERE r.b = s.b GROUP BY r.a",
    "one condition or another": "SELECT r.a, s.c FROM r, s WHERE r.b = s.b OR r.a = s.c",
    "rows without a partner": "SELECT r.a, s.c FROM r FULL JOIN s ON r.b = s.b",
}


@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_shards_have_what_is_computed_row_by_row(name):
    with declared() as con:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {ROW_BY_ROW[name]}")
        local = LocalShards(plan_shards(con.session, ROW_BY_ROW[name], 4))
        for batch, _ in stream(name):
            changes = {table: arrow(table, batch[table]) for table in ("r", "s")}
            con.apply(changes)
            local.apply({f"main.{table}": rows for table, rows in changes.items()})
            assert same_bag(local.rows(), con.execute("SELECT * FROM v").fetchall())
        assert local.plan.partitioning.shards == 4
        local.close()


def test_a_row_on_which_an_expression_fails_is_refused_by_its_shard():
    with declared() as con:
        local = LocalShards(plan_shards(con.session, "SELECT a, CAST(b AS INTEGER) AS z FROM r", 1))
        local.apply({"main.r": arrow("r", [((1, "5", 1), 1)])})
        with pytest.raises(sqlfront.DataError, match="TRY_CAST"):
            local.apply({"main.r": arrow("r", [((2, "x", 1), 1)])})
        local.apply({"main.r": arrow("r", [((2, "6", 1), 1)])})
        assert sorted(local.rows()) == [(1, 5), (2, 6)]
        local.close()


REFUSED = [
    ("SELECT a, median(DISTINCT n) AS m FROM r GROUP BY a", "median"),
    ("SELECT a, row_number() OVER (PARTITION BY b ORDER BY a, n) AS m FROM r", r"row_number\(\) OVER"),
    ("SELECT a, median(DISTINCT n) AS m FROM r GROUP BY ROLLUP (a)", "median"),
    ("SELECT m, count(*) AS k FROM by_a GROUP BY m", "median"),
]
CONSTANT = [
    ("SELECT x, count(*) AS k FROM r JOIN (VALUES (1, 2), (2, 3)) v(k, x) ON v.k = r.a GROUP BY x", "v"),
    ("SELECT r.a, i FROM r, range(3) t(i)", "t"),
    ("SELECT a FROM r UNION ALL VALUES (7), (8)", "constant"),
]


@pytest.mark.parametrize(("query", "what", "why"), [
    *((query, f"shards do not compute {label}", "from rows that one process keeps") for query, label in REFUSED),
    *((query, rf"shards do not read constant rows \({label}\)", "from tables") for query, label in CONSTANT),
])  # fmt: skip
def test_what_shards_cannot_compute_is_refused_by_its_name(query, what, why):
    with declared() as con:
        con.execute("CREATE MATERIALIZED VIEW by_a AS SELECT a, median(DISTINCT n) AS m FROM r GROUP BY a")
        for ask in (lambda: plan_shards(con.session, query, 4), lambda: con.explain(query, shards=4)):
            with pytest.raises(sqlfront.NotSupportedError, match=what) as refused:
                ask()
            assert why in str(refused.value)
            assert "Try: " in str(refused.value)


@pytest.mark.parametrize("aggregate", ["median(n)", "mode(n)", "list(n ORDER BY n)", "max(n, 2)"])
def test_sorted_values_of_several_shards_are_not_merged(aggregate):
    with declared() as con:
        planned = plan_shards(con.session, f"SELECT {aggregate} AS m FROM r", 4)
        assert planned.partitioning.shards == 1, planned


def test_a_log_of_nested_values_is_compacted(monkeypatch):
    monkeypatch.setattr("sqlfront.shards.shard_log.COMPACT_FROM", 2)
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (k INTEGER[])")
        local = LocalShards(plan_shards(con.session, "SELECT k, count(*) AS n FROM r GROUP BY k", 1))
        for step in range(6):
            values, weights = (
                [[step, None], [1]] + ([[step - 1, None]] if step else []),
                [1, 1] + ([-1] if step else []),
            )
            rows = {"k": pa.array(values, pa.list_(pa.int32())), "_weight": pa.array(weights, pa.int64())}
            local.apply({"main.r": pa.table(rows)})
        shard._hot.pop((local.query, 0)).close()  # The next epoch builds the engine from the log.
        local.apply({"main.r": pa.table({"k": pa.array([[1]], pa.list_(pa.int32())), "_weight": [-6]})})
        assert local.rows() == [([5, None], 1)]
        local.close()

"""`at_worst` refuses a view whose changes may cost more than it says."""

from __future__ import annotations

import re
import warnings
from fractions import Fraction

import pytest

import sqlfront
from sqlfront.define.at_worst import limit_of
from sqlfront.planner.model.bound import RESULT_CHANGE, Bound, Term

QUERIES = {
    "O(1)": "SELECT a, count(*) AS n FROM r GROUP BY a",
    "O(log N)": "SELECT a, min(b) AS m FROM r GROUP BY a",
    "O(change)": "SELECT r.a, sum(coalesce(r.b, t.d)) AS s FROM r JOIN t USING (a) GROUP BY r.a",
    "O(touched groups)": "SELECT a, median(DISTINCT b) AS m FROM r GROUP BY a",
    "O(N^0.5)": "SELECT count(*) AS n FROM r, r s, r u WHERE r.b = s.a AND s.b = u.a AND u.b = r.a",
    "O(N)": "SELECT median(DISTINCT b) AS m FROM r",
}
"""A query for each bound, which is within this bound and not within those before."""


@pytest.fixture
def con():
    connection = sqlfront.connect()
    connection.execute("CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE t (a INTEGER, d INTEGER)")
    yield connection
    connection.close()


@pytest.mark.parametrize("stated", QUERIES)
def test_a_view_is_refused_under_each_smaller_bound(con, stated):
    bounds = list(QUERIES)
    for bound in bounds:
        create = f"CREATE OR REPLACE MATERIALIZED VIEW v WITH (at_worst = '{bound}') AS {QUERIES[stated]}"
        if bounds.index(bound) >= bounds.index(stated):
            con.execute(create)
            con.execute("DROP MATERIALIZED VIEW v")
        else:
            with pytest.raises(sqlfront.NotSupportedError, match="costs more than at_worst"):
                con.execute(create)
            assert not con.session.database.engine.views and not con.session.database.engine.relations


def test_a_refusal_names_the_part_that_decides(con):
    refused = {
        "O(1)": "a change takes, in the block of rows over .*: O",
        "O(change)": "in the groups of median: O",
        "O(touched groups)": "a change takes, in the view itself: O",
    }
    middles = (
        "SELECT m, r.b FROM (SELECT a, median(DISTINCT b) AS m FROM r GROUP BY a) g JOIN r ON g.a < r.a "
        "JOIN t ON t.d = r.b"
    )
    for bound, part in refused.items():
        query = QUERIES["O(change)"] if bound == "O(1)" else middles
        with pytest.raises(sqlfront.NotSupportedError, match=part):
            con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = '{bound}') AS {query}")


def test_a_refusal_names_the_tables_whose_rows_meet_many_others(con):
    con.execute("CREATE TABLE s (b INTEGER, c INTEGER); CREATE TABLE one (k INTEGER PRIMARY KEY, v INTEGER)")
    refused = {
        "SELECT r.a, t.d FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.a": "O(N), for a row of r and t",
        "SELECT r.a, s.c, one.v FROM r JOIN one ON one.k = r.b JOIN s ON s.b = r.a": "O(N), for a row of one and s",
        "SELECT DISTINCT r.a FROM r JOIN s USING (b)": "O(N), for a row of s",
    }
    for query, words in refused.items():
        with pytest.raises(sqlfront.NotSupportedError, match=f"in the view itself: {re.escape(words)}"):
            con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(1)') AS {query}")


def test_an_altered_view_is_within_its_new_bound(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES['O(log N)']}")
    con.execute("ALTER MATERIALIZED VIEW v SET (at_worst = 'O(log N)')")
    with pytest.raises(sqlfront.NotSupportedError, match="in the view itself: O"):
        con.execute("ALTER MATERIALIZED VIEW v SET (at_worst = 'O(1)')")


@pytest.mark.parametrize("text", ["", "fast", "O()", "O(n)", "O(N^)", "N", "O(N^-1)", "O(1", "O(N^0)", "O(N^(1/0))"])
def test_what_is_no_bound_is_an_error(text):
    with pytest.raises(sqlfront.ProgrammingError, match="at_worst cannot be"):
        limit_of(text)


def test_rows_that_a_power_of_n_multiplies_are_within_that_power_alone():
    bound = Bound(terms=(Term(RESULT_CHANGE, power=Fraction(1, 2)),))
    allowed = {text: limit_of(text).allows(bound) for text in QUERIES}
    assert allowed == dict.fromkeys(QUERIES, False) | {"O(N^0.5)": True, "O(N)": True}


def test_a_view_whose_changes_may_be_slow_is_announced_where_it_is_created():
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (a BIGINT, b BIGINT)")
    con.execute("CREATE TABLE s (a BIGINT, b BIGINT)")
    con.execute("INSERT INTO t SELECT 1, i FROM range(60000) AS r(i)")
    con.execute("INSERT INTO s VALUES (1, 1)")
    whole, listed = (
        "SELECT median(DISTINCT b) AS m FROM t",
        "SELECT t.b, sum(s.b) AS c FROM t JOIN s USING (a) GROUP BY t.b",
    )
    with pytest.warns(sqlfront.CostWarning, match=r"whole may slow .* median: computed from all rows.*O\(N\)") as seen:
        con.execute(f"CREATE MATERIALIZED VIEW whole AS {whole}")
    assert seen[0].filename == __file__
    with pytest.warns(sqlfront.CostWarning, match=r"listed .* a changed row of s takes about 180,003 steps.*'on read'"):
        con.execute(f"CREATE MATERIALIZED VIEW listed AS {listed}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, query in enumerate((whole, listed)):
            con.execute(f"CREATE MATERIALIZED VIEW meant{number} WITH (at_worst = 'O(N)') AS {query}")
            con.execute(f"CREATE MATERIALIZED VIEW later{number} WITH (apply = 'on read') AS {query}")
        con.execute("CREATE MATERIALIZED VIEW grouped AS SELECT a, median(DISTINCT b) AS m FROM t GROUP BY a")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT median(DISTINCT b) AS m FROM r",
        "SELECT r.a, max(d) AS m FROM r, (SELECT a AS b, median(DISTINCT d) OVER () AS d FROM t) x WHERE r.b < x.b "
        "GROUP BY r.a",
    ],
)
def test_the_limit_that_a_warning_offers_is_taken(con, query):
    with pytest.warns(sqlfront.CostWarning) as seen:
        con.execute(f"CREATE MATERIALIZED VIEW slow AS {query}")
    [option] = re.findall(r"WITH \(at_worst = '.*'\)", str(seen[-1].message))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        con.execute(f"CREATE MATERIALIZED VIEW meant {option} AS {query}")

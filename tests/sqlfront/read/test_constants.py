"""Views whose output is constant, and views that say TRUE or FALSE: the right number of rows, always."""

import sqlfront

QUERIES = [
    "SELECT 1 AS one FROM r",
    "SELECT 'x' AS x, NULL AS n FROM r JOIN s ON r.a = s.a",
    "SELECT DISTINCT 'x' AS x FROM r JOIN s ON r.a = s.a",
    "SELECT DISTINCT 1 AS x FROM r WHERE a = 2",
    "SELECT 1 AS x FROM r GROUP BY 'y'",
    "SELECT 1 AS x FROM r HAVING count(*) > 2",
    "SELECT 1 AS x FROM r HAVING true",
    "SELECT 1 AS x FROM r GROUP BY ()",
    "SELECT 1 AS x FROM r GROUP BY ALL",
    "SELECT 1 AS x, count(*) AS n FROM r GROUP BY ALL",
    "SELECT count(NULL) AS n, sum(0.5::DOUBLE) AS s FROM r",
    "SELECT EXISTS (SELECT 1 FROM r WHERE a = 2) AS b",
    "SELECT EXISTS (FROM r JOIN s ON r.a = s.a)",
    "SELECT NOT EXISTS (SELECT a FROM r ORDER BY a LIMIT 1) AS b",
    "WITH c AS (SELECT a FROM r) SELECT CASE WHEN EXISTS (FROM c WHERE a > 2) THEN 'yes' ELSE 'no' END AS answer",
]
VIEWS = {f"v{number}": query for number, query in enumerate(QUERIES)}
CHANGES = [
    "INSERT INTO r VALUES (1), (1), (2)",
    "INSERT INTO s VALUES (1), (NULL), (1)",
    "INSERT INTO r VALUES (3), (NULL)",
    "DELETE FROM r WHERE a = 2",
    "DELETE FROM s WHERE a = 1",
    "UPDATE s SET a = 3",
    "DELETE FROM r",
    "INSERT INTO r VALUES (2), (3)",
]


def _agree(con, counted=True):
    for view, query in VIEWS.items():
        expected = con.execute(query).fetchall()
        assert con.execute(f"FROM {view}").fetchall() == expected, query
        if not counted:
            continue
        rows = con.execute(f"SELECT count(*) FROM {view}").fetchall()
        assert con.view(view).count() == rows[0][0] == len(expected), query


def test_every_change_is_followed(tmp_path):
    with sqlfront.connect(str(tmp_path / "file.db")) as con:
        con.execute("CREATE TABLE r (a INT); CREATE TABLE s (a INT)")
        for view, query in VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
            assert con.execute(f"DESCRIBE {view}").fetchall() == con.execute(f"DESCRIBE {query}").fetchall()
        _agree(con)
        for number, change in enumerate(CHANGES):
            if number == 4:
                con.execute(f"BEGIN; {change}")
                _agree(con)
                con.execute("ROLLBACK")
                _agree(con, counted=False)
            con.execute(change)
            _agree(con)
        for view in VIEWS:
            con.execute(f"REFRESH MATERIALIZED VIEW {view}")
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
        _agree(con)
    with sqlfront.connect(str(tmp_path / "file.db")) as con:
        _agree(con)
        con.execute("DELETE FROM r")
        _agree(con)


def test_the_answer_of_exists_is_found_by_contains():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT EXISTS (FROM r WHERE a = 1) AS b")
        assert con.view("v").contains((False,)) and not con.view("v").contains((True,))
        con.execute("INSERT INTO r VALUES (1)")
        assert con.view("v").contains((True,)) and not con.view("v").contains((False,))

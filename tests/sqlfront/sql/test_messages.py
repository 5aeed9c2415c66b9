"""Messages that used to mislead: what is no SQL, a missing pandas, a table replaced meanwhile, statements unknown."""

import importlib.util
import logging

import duckdb
import pytest

import sqlfront


@pytest.mark.parametrize("sql", [None, 5, b"SELECT 1", ["SELECT 1"]])
def test_what_is_no_text_is_a_programming_error(sql):
    with sqlfront.connect() as con:
        for run in (con.execute, lambda s: con.executemany(s, []), lambda s: con.sql(s).fetchall()):
            with pytest.raises(sqlfront.ProgrammingError):
                run(sql)
        assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_missing_pandas_is_named(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pandas" else found(name, *rest)
    )
    with sqlfront.connect() as con:
        for frame in (con.execute("SELECT 1").df, con.execute("SELECT 1").fetchdf, con.sql("SELECT 1").df):
            with pytest.raises(sqlfront.InterfaceError, match="pip install pandas"):
                frame()


def test_opening_after_a_table_was_replaced_elsewhere_says_nothing_wrong(tmp_path, capsys):
    path = str(tmp_path / "file.db")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE r AS SELECT 1 AS a; CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
    with duckdb.connect(path) as plain:
        plain.execute("CREATE OR REPLACE TABLE r AS SELECT 5 AS a")
    with sqlfront.connect(path) as con:
        assert capsys.readouterr().err == ""
        con.execute("INSERT INTO r VALUES (6)")
        assert sorted(con.execute("FROM v").fetchall()) == [(5,), (6,)]
    with sqlfront.connect(path) as con:
        assert sorted(con.execute("FROM v").fetchall()) == [(5,), (6,)]
    with duckdb.connect(path) as plain:
        plain.execute("DROP TABLE r CASCADE")
    with sqlfront.connect(path):
        messages = capsys.readouterr().err
        assert "materialized view v could not be rebuilt" in messages and messages.count("sqlfront:") == 1


def test_ddl_that_the_parser_does_not_know_prints_nothing(caplog, capsys):
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INT, b INT); CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
        with caplog.at_level(logging.WARNING), pytest.raises(sqlfront.Error):
            con.execute("ALTER TABLE r DROP b CASCADE")
    assert not caplog.records and capsys.readouterr() == ("", "")

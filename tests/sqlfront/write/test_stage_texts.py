"""Writes of change tables run on a temporary table: the statement's text names it, and changes nowhere else."""

from __future__ import annotations

import pytest

import sqlfront

ROWS = [(1, "x"), (2, 'main."my u".a')]


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute("""CREATE CHANGE TABLE "my u" (a INTEGER, "say main.""my u"".a" VARCHAR, PRIMARY KEY (a))""")
        connection.execute("""INSERT INTO "my u" VALUES (1, 'x'), (2, 'main."my u".a')""")
        yield connection


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("""UPDATE main."my u" SET a = main . "MY U".a + 1 WHERE MAIN."my u".a = 1""", [(2, "x"), ROWS[1]]),
        ("""DELETE FROM main."my u" -- main."my u".a\n WHERE "say main.""my u"".a" = 'main."my u".a'""", ROWS[:1]),
        ("""DELETE FROM main."my u" WHERE "say main.""my u"".a" = $t$main."my u".a$t$""", ROWS[:1]),
        ("""DELETE FROM main."my u" WHERE e'\\'main."my u".a' = '''' || "say main.""my u"".a" """, ROWS[:1]),
        ("""UPDATE "my u" AS x SET a = x.a + 5 WHERE x.a = 2""", [ROWS[0], (7, ROWS[1][1])]),
        ("""INSERT INTO main."my u" VALUES (3, 'on conflict')""", [*ROWS, (3, "on conflict")]),
        ("""INSERT INTO main."my u" VALUES (3, 'n'), (1, 'n') ON /* a */ CONFLICT DO NOTHING""", [*ROWS, (3, "n")]),
        ("""INSERT OR\nIGNORE INTO "my u" VALUES (1, 'n')""", ROWS),
        ("""INSERT INTO "my u" SELECT 4, 'n' FROM range(1) "on conflict" """, [*ROWS, (4, "n")]),
    ],
)
def test_only_the_name_is_replaced(con, statement, rows):
    con.execute(statement)
    assert sorted(con.execute('FROM "my u"').fetchall()) == sorted(rows)

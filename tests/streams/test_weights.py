"""Weights at the ends of 64 bits: what an epoch could not take back exactly is refused, and changes nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sqlfront

LEAST = -(2**63)


@pytest.fixture
def con():
    connection = sqlfront.connect()
    connection.execute("CREATE CHANGE TABLE r (a BIGINT, b BIGINT) WITH (retain = true)")
    connection.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM r GROUP BY a")
    # A count of 2^63 makes values two limbs wide, where negating the least weight would not wrap around.
    many = pa.table({"a": [1, 1], "b": [1, 1], "_weight": [2**62, 2**62]})
    connection.apply({"r": many})
    connection.apply({"r": many.set_column(2, "_weight", pa.array([-(2**62), -(2**62)]))})
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "delete",
    [
        lambda con: con.apply({"r": pa.table({"a": [9], "b": [9], "_weight": [LEAST]})}),
        lambda con: con.apply({"r": pa.record_batch({"a": [9], "b": [9], "_weight": [LEAST]})}),
        lambda con: con.apply_row("r", (9, 9), LEAST),
        lambda con: con.apply_row("r", (9, 9), -LEAST),
    ],
)
def test_a_weight_that_cannot_be_taken_back_is_refused(con, delete):
    with pytest.raises(sqlfront.DataError, match="weight"):
        delete(con)
    con.apply_row("r", (9, 9))
    assert con.execute("SELECT * FROM r").fetchall() == [(9, 9)]
    assert con.execute("SELECT * FROM v").fetchall() == [(9, 1)]


def test_weights_that_wrap_to_nothing_are_still_an_absent_row(con):
    with pytest.raises(sqlfront.IntegrityError):
        con.apply({"r": pa.table({"a": [9, 9], "b": [9, 9], "_weight": [LEAST + 1, LEAST + 1]})})
    assert con.execute("SELECT * FROM v").fetchall() == []

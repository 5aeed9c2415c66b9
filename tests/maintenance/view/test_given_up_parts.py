"""Heavy and light parts that were made for observed changes give way to a tree, and come back if it costs more."""

from __future__ import annotations

from benchmarks import skew
from tests.sqlfront.views.test_replanning import maintained, replans, toggle


def test_heavy_and_light_parts_give_way_once_other_values_change():
    con = skew.opened(skew.triangle(700), {"v": ""})
    single = [("r", (value, value + 2)) for value in range(50)]
    skew.steps(con, single, 3_200)
    assert maintained(con).balance is None and not replans(con)
    assert toggle(con, "r", (-1, -1), 3_200) < 100
    assert maintained(con).balance is not None and len(replans(con)) == 1
    skew.steps(con, single, 4_200)
    assert maintained(con).balance is None
    assert "steps a change by parts, and" in replans(con)[-1] and "when they were made: one tree" in replans(con)[-1]
    assert skew.steps(con, single, 1_000)["v"] < 8
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_a_wrong_guess_that_other_values_change_is_not_made_again():
    con = skew.opened(skew.triangle(700), {"v": ""})
    skew.steps(con, [("r", (value, value + 2)) for value in range(50)], 3_200)
    toggle(con, "r", (-1, -1), 3_200)
    seldom = [("r", (-1, -1)), *(("r", (value, value + 2)) for value in range(50))]
    skew.steps(con, seldom, 10_200)
    assert maintained(con).balance is not None and len(replans(con)) == 3
    skew.steps(con, seldom, 6_300)
    assert maintained(con).balance is not None and len(replans(con)) == 3
    assert skew.steps(con, seldom, 1_020)["v"] < 30

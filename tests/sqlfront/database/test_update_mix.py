"""WITH (updates = ...): the tree follows the declared mix, else what was observed, and is chosen so again later."""

from __future__ import annotations

import pytest

import sqlfront
from sqlfront.database.update_mix import renamed_updates
from sqlfront.storage.capture.capture import QualifiedName

TABLES = (
    "orders (o BIGINT)",
    "lineitem (o BIGINT, p BIGINT)",
    "part (p BIGINT)",
    "price (p BIGINT)",
    "place (o BIGINT)",
)
QUERY = (
    "SELECT lineitem.o, lineitem.p FROM orders, lineitem, part, price, place "
    "WHERE orders.o = lineitem.o AND part.p = lineitem.p AND price.p = part.p AND place.o = orders.o"
)


def connect(path=":memory:"):
    con = sqlfront.connect(path)
    for table in TABLES:
        con.execute(f"CREATE TABLE IF NOT EXISTS {table}")
    return con


def create(con, mix, name="v"):
    con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} WITH (updates = '{mix}') AS {QUERY}")


def top(con, name="v"):
    """The variables of the node under the root."""
    return con.explain(name).to_dict()["tree"]["children"][0]["variables"]


def weights(con, name="v"):
    return con.explain(name).to_dict()["steps"]["weights"]


def test_the_busy_table_meets_the_rest_at_the_top():
    con = connect()
    for mix, label in (("price: 1000, orders: 1", ["p"]), ("place: 1000, orders: 1", ["o"]), ('main."price":5', ["p"])):
        create(con, mix)
        assert top(con) == label, mix
    assert weights(con) == {"orders": 0, "lineitem": 0, "part": 0, "price": 5, "place": 0}


def test_a_declared_mix_saves_steps():
    """Each part is in 50 line items: a change of price climbs past them under one tree and not under the other."""
    steps = {}
    for mix in ("price: 1", "place: 1"):
        con = connect()
        create(con, mix)
        con.execute("INSERT INTO orders SELECT i FROM range(200) r(i)")
        con.execute("INSERT INTO place SELECT i FROM range(200) r(i)")
        con.execute("INSERT INTO part SELECT i FROM range(20) r(i)")
        con.execute("INSERT INTO price SELECT i FROM range(20) r(i)")
        con.execute("INSERT INTO lineitem SELECT i % 200, i % 20 FROM range(1000) r(i)")
        before = con.view("v").cost()["steps"]
        con.execute("INSERT INTO price SELECT i FROM range(20) r(i)")
        steps[mix] = con.view("v").cost()["steps"] - before
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert steps["price: 1"] * 3 < steps["place: 1"], steps


def test_without_a_mix_what_was_observed_counts_then_the_sizes():
    con = connect()
    con.execute("INSERT INTO place SELECT i FROM range(5000) r(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    assert weights(con)["place"] == 5000 and top(con) == ["o"]
    change_price(con, 40)
    con.execute(f"CREATE MATERIALIZED VIEW w AS {QUERY}")
    assert weights(con, "w") == {"orders": 0, "lineitem": 0, "part": 0, "price": 30, "place": 0}
    assert top(con, "w") == ["p"] and top(con) == ["o"]
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert top(con) == ["p"]


def change_price(con, times):
    """Single changes; the first ten are more than a tenth of what came before, so they count as loads."""
    for i in range(times):
        con.execute(f"INSERT INTO price VALUES ({i})")


def test_loads_are_no_observed_changes():
    """A bulk load of one table after CREATE says nothing of how often the tables change."""
    con = connect()
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    con.execute("INSERT INTO place SELECT i FROM range(5000) r(i)")
    con.execute("INSERT INTO place SELECT i FROM range(5000, 9000) r(i)")
    change_price(con, 40)
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert weights(con) == {"orders": 0, "lineitem": 0, "part": 0, "price": 30, "place": 0} and top(con) == ["p"]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_the_mix_is_kept(tmp_path):
    path = str(tmp_path / "mix.db")
    con = connect(path)
    create(con, "price: 1000, lineitem: 2")
    con.execute("INSERT INTO place SELECT i FROM range(500) r(i)")
    con.close()
    con = connect(path)
    assert (weights(con)["price"], top(con)) == (1000, ["p"])
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert top(con) == ["p"]
    con.execute("ALTER MATERIALIZED VIEW v SET (updates = 'place: 3')")
    assert top(con) == ["p"], "the running tree stays until REFRESH"
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert (weights(con)["place"], top(con)) == (3, ["o"])
    con.execute("ALTER TABLE place RENAME TO town")
    assert (weights(con)["town"], top(con)) == (3, ["o"])
    con.close()
    con = sqlfront.connect(path)
    assert (weights(con)["town"], top(con)) == (3, ["o"])
    con.close()


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("nosuch: 1", "names nosuch, and there is no such table"),
        ("other: 1", "names other, which the view does not read"),
        ("price", "has 'price' where a table and a number belong"),
        (": 3", "has ': 3' where a table and a number belong"),
        ("price: x", "gives price 'x', which is not a number"),
        ("price: nan", "gives price 'nan', which is not a number"),
        ("price: 1 2", "gives price '1 2', which is not a number"),
        ("price:", "gives price no number"),
        ("price: -1", "gives price the negative number -1"),
        ("price: 1, main.price: 2", "names main.price twice"),
        ("price: 1,", "is not a list of tables"),
        ("", "is not a list of tables"),
    ],
)
def test_a_wrong_mix_is_refused_and_nothing_changes(mix, message):
    con = connect()
    con.execute("CREATE TABLE other (p BIGINT)")
    create(con, "price: 2")
    for statement in (
        f"CREATE MATERIALIZED VIEW w WITH (updates = '{mix}') AS {QUERY}",
        f"ALTER MATERIALIZED VIEW v SET (updates = '{mix}')",
    ):
        with pytest.raises(sqlfront.ProgrammingError) as error:
            con.execute(statement)
        assert f"option updates {message}" in str(error.value) and "Try:" in str(error.value)
    assert con.execute("SHOW MATERIALIZED VIEWS").to_arrow_table().num_rows == 1
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert weights(con)["price"] == 2


def test_tables_of_blocks_count_too():
    con = connect()
    con.execute(
        "CREATE MATERIALIZED VIEW v WITH (updates = 'price: 5, lineitem: 2') AS "
        "SELECT lineitem.o, lineitem.p FROM lineitem, orders WHERE lineitem.o = orders.o AND lineitem.p IN "
        "(SELECT p FROM price GROUP BY p HAVING count(*) > 1)"
    )
    assert weights(con) == {"lineitem": 2, "orders": 0, "block 1": 5}


def test_the_option_takes_text():
    con = connect()
    with pytest.raises(sqlfront.ProgrammingError, match="option updates takes a str, not 3"):
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (updates = 3) AS {QUERY}")


def test_a_renamed_table_is_renamed_in_the_mix():
    mix = {"updates": 'orders: 1,"my, table:" :2 , s.orders: 3'}
    renamed = renamed_updates(mix, QualifiedName("main", "Orders"), 'main."new"')
    assert renamed == {"updates": 'main."new": 1, "my, table:": 2, s.orders: 3'}
    assert renamed_updates(renamed, QualifiedName("s", "orders"), "s.o") == {
        "updates": 'main."new": 1, "my, table:": 2, s.o: 3'
    }
    assert renamed_updates({}, QualifiedName("main", "orders"), "o") == {}

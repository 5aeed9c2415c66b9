"""apply_each: as many separate applies, whatever the views, the stream's batches and the failures on the way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pandas
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance import each_epoch

COLUMNS = "(a BIGINT, b BIGINT, s VARCHAR, d DOUBLE)"
NAMES = ["a", "b", "s", "d", "_weight"]
TYPES = [pa.int64(), pa.int64(), pa.string(), pa.float64(), pa.int64()]
VIEWS = {
    "sums": "SELECT b, SUM(a) AS x, COUNT(*) AS n, SUM(d) AS f FROM r GROUP BY b",
    "text": "SELECT s, COUNT(*) AS n, SUM(a) AS x FROM r GROUP BY s",
    "join": "SELECT r.a, t.s FROM r JOIN t ON r.b = t.b",
    "totals": "SELECT t.b, SUM(r.a * t.a) AS x FROM r JOIN t ON r.b = t.b GROUP BY t.b",
    "product": "SELECT r.a, COUNT(*) AS n FROM r JOIN t ON r.b < t.b GROUP BY r.a",
    "triangles": "SELECT COUNT(*) AS n FROM r AS x, r AS y, r AS z WHERE x.a = y.b AND y.a = z.b AND z.a = x.b",
    "least": "SELECT b, MIN(a) AS lo, MAX(a) AS hi FROM r GROUP BY b",
    "kinds": "SELECT DISTINCT b, s FROM r WHERE a > 1",
    "first": "SELECT a, b FROM r ORDER BY a DESC, b LIMIT 3",
    "touched": "SELECT b, MAD(a) AS m FROM r GROUP BY b",
    "computed": "SELECT b, COUNT(*) AS n FROM r WHERE hash(a) % 3 > 0 GROUP BY b",
}


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(TYPES)]
    return pa.record_batch(columns, names=NAMES)


def stream(seed: int, count: int, bag: Counter[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with weights that `bag` can take one after the other, into which they go."""
    make, rows = random.Random(seed), []
    held = list(bag.elements())
    for _ in range(count):
        if held and make.random() < 0.45:
            row, weight = held.pop(make.randrange(len(held))), -1
        else:
            text = make.choice([None, "x", f"text {make.randrange(40)}"])
            row = make.randrange(5), make.choice([None, *range(4)]), text, make.choice([None, 0.5, 1e-9, 3e8])
            weight = 1
            held.append(row)
        bag[row] += weight
        rows.append((*row, weight))
    return rows


@pytest.fixture
def pair() -> Iterator[list[sqlfront.Connection]]:
    """Two connections with the same change tables: one for apply_each, one for apply."""
    pair = [sqlfront.connect(), sqlfront.connect()]
    for con in pair:
        for name in ("r", "t"):
            con.execute(f"CREATE CHANGE TABLE {name} {COLUMNS} WITH (retain = true)")
    yield pair
    for con in pair:
        con.close()


def apply_all(con: sqlfront.Connection, table: str, changes: Any, each: int) -> None:
    for at in range(0, changes.num_rows, each):
        con.apply({table: changes.slice(at, each)})


def rows_of(con: Any, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in con.sql(query).fetchall())


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("each", [1, 7])
def test_apply_each_is_a_loop_of_apply(pair: list[sqlfront.Connection], name: str, each: int) -> None:
    for con in pair:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")
    bags = {"r": Counter[Any](), "t": Counter[Any]()}
    plain = duckdb.connect()
    for table in bags:
        plain.execute(f"CREATE TABLE {table} {COLUMNS}")
    for step, table in enumerate(["r", "t", "r", "t"]):
        changes = batch(stream(step, 60, bags[table]))
        found = pair[0].apply_each(changes, table=table, rows=each)
        assert found is not None and (found.rows, found.count) == (60, -(-60 // each))
        apply_all(pair[1], table, changes, each)
        plain.execute(f"DELETE FROM {table}")
        plain.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", list(map(list, bags[table].elements())))
        wanted = rows_of(plain, VIEWS[name])
        assert rows_of(pair[0], "FROM v") == rows_of(pair[1], "FROM v") == wanted, step
        assert pair[0].session.database.engine.epoch == pair[1].session.database.engine.epoch == found.number
    for table, bag in bags.items():
        pair[0].apply_each(batch([(*row, -count) for row, count in bag.items()]), table=table, rows=each)
    assert [table.name for table in tables_of(pair[0]) if table.entries()] == []


def tables_of(con: sqlfront.Connection) -> list[Any]:
    engine = con.session.database.engine
    stores = [store.table for relation in engine.relations.values() for store in relation.stores.values()]
    return stores + [table for view in engine.views.values() for table in view.tables()]


def test_plain_views_take_their_epochs_in_one_call(pair: list[sqlfront.Connection], monkeypatch: Any) -> None:
    """Epochs that a kernel cannot commit by itself are few: it is called again after each of them."""
    calls = []
    run = each_epoch.run_each
    monkeypatch.setattr(each_epoch, "run_each", lambda *arguments: calls.append(1) or run(*arguments))
    pair[0].execute("CREATE MATERIALIZED VIEW v AS " + VIEWS["totals"])
    pair[0].apply_each(batch(stream(1, 4000, Counter())), table="r", rows=2)
    assert 0 < len(calls) < 40


def test_a_failing_epoch_is_rolled_back_alone(pair: list[sqlfront.Connection]) -> None:
    con = pair[0]
    con.execute("CREATE MATERIALIZED VIEW v AS " + VIEWS["sums"])
    rows = [(i, 1, "x", None, 1) for i in range(10)]
    rows[6] = 99, 1, "x", None, -1
    with pytest.raises(
        sqlfront.IntegrityError, match=r"(?s)epoch 3 of the stream \(rows 7 to 9\) is not applied: .*99"
    ):
        con.apply_each(batch(rows), table="r", rows=3)
    assert rows_of(con, "FROM v") == Counter([(1, sum(range(6)), 6, None)])


@pytest.mark.parametrize("bad", [{"a": "x"}, {"a": 2**63}, {"_change_type": "replace"}])
def test_a_value_that_does_not_fit_stops_at_its_epoch(pair: list[sqlfront.Connection], bad: dict[str, Any]) -> None:
    con = pair[0]
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, COUNT(*) AS n FROM r GROUP BY b")
    rows = [{"a": 1, "b": 1, "s": "x", "d": 0.5, "_change_type": "insert"} for _ in range(8)]
    rows[4] |= bad
    texts = pa.Table.from_pylist([{name: str(value) for name, value in row.items()} for row in rows])
    with pytest.raises(sqlfront.DataError, match=r"epoch 3 of the stream \(rows 5 to 6\)"):
        con.apply_each(texts, table="r", rows=2)
    assert rows_of(con, "FROM v") == Counter([(1, 4)])


def test_sums_are_widened_on_the_way(pair: list[sqlfront.Connection]) -> None:
    for con in pair:
        con.execute("CREATE MATERIALIZED VIEW v AS " + VIEWS["sums"])
    large = [(2**62, i % 2, "x", 10.0 ** (i * 7 - 90), 1) for i in range(30)]
    changes = batch([*large, *((*row[:4], -1) for row in large[::2])])
    pair[0].apply_each(changes, table="r", rows=1)
    apply_all(pair[1], "r", changes, 1)
    assert rows_of(pair[0], "FROM v") == rows_of(pair[1], "FROM v")
    assert pair[0].execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_memory_is_given_back_on_the_way(pair: list[sqlfront.Connection]) -> None:
    """A table that empties shrinks between epochs, and values that nothing refers to are forgotten."""
    con = pair[0]
    con.execute("CREATE MATERIALIZED VIEW v AS " + VIEWS["text"])
    rows = [(i, 0, f"text {i}", None, 1) for i in range(6000)]
    con.apply_each(batch([*rows, *((*row[:4], -1) for row in rows)]), table="r", rows=3)
    assert all(table.live == 0 and table.capacity < 2000 for table in tables_of(con))
    assert rows_of(con, "FROM v") == Counter()
    con.apply_each(batch(rows[:5]), table="r", rows=1)
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_a_subscriber_hears_every_epoch(pair: list[sqlfront.Connection]) -> None:
    con = pair[0]
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, COUNT(*) AS n FROM r GROUP BY b")
    with con.view("v").subscribe(snapshot=False) as changes:
        found = con.apply_each(batch([(i, i % 2, "x", None, 1) for i in range(6)]), table="r", rows=2)
        versions = changes.poll()
    assert versions is not None and found is not None
    assert set(versions.column("_commit_version").to_pylist()) == {1, 2, 3}
    assert found.number == 3


def test_deferred_views_get_the_rows(pair: list[sqlfront.Connection]) -> None:
    con = pair[0]
    con.execute("CREATE CHANGE TABLE n (a BIGINT, b BIGINT) WITH (retain = true)")
    con.execute("CREATE MATERIALIZED VIEW v WITH (apply = 'on read') AS SELECT b, COUNT(*) AS n FROM n GROUP BY b")
    con.apply_each(pandas.DataFrame({"a": range(7), "b": [i % 2 for i in range(7)]}), table="n", rows=2)
    assert rows_of(con, "FROM v") == Counter([(0, 4), (1, 3)])


@pytest.mark.parametrize("kind", ["batches", "pandas", "table", "relation", "change types"])
def test_epochs_have_their_rows_whatever_the_stream(pair: list[sqlfront.Connection], kind: str) -> None:
    con = pair[0]
    con.execute("CREATE CHANGE TABLE n (a BIGINT, b BIGINT) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, SUM(a) AS x FROM n GROUP BY b")
    data = pa.table({"a": list(range(50_000)), "b": [i % 3 for i in range(50_000)]})
    streams = {
        "batches": lambda: pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=77)),
        "pandas": data.to_pandas,
        "table": lambda: pa.concat_tables([data.slice(0, 1), data.slice(1, 20_000), data.slice(20_001)]),
        "relation": lambda: duckdb.connect().sql("SELECT i AS a, i % 3 AS b FROM range(50000) AS r(i)"),
        "change types": lambda: data.append_column("_change_type", pa.array(["insert"] * 50_000)),
    }
    found = con.apply_each(streams[kind](), table="n", rows=100)
    assert found is not None and (found.count, found.rows, found.number) == (500, 50_000, 500)
    assert rows_of(con, "FROM v") == Counter((k, sum(range(k, 50_000, 3))) for k in range(3))


def test_ordinary_and_durable_tables_and_transactions(tmp_path: Any) -> None:
    changes = pa.table({"a": [1, 2, 3], "_weight": [1, 1, 1]})
    with sqlfront.connect(str(tmp_path / "data.duckdb")) as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT) WITH (retain = true); CREATE TABLE o (a BIGINT)")
        for table in ("c", "o"):
            con.execute(f"CREATE MATERIALIZED VIEW v{table} AS SELECT SUM(a) AS x FROM {table}")
            found = con.apply_each(changes, table=table, rows=2)
            assert found is not None and found.count == 2
            con.execute("BEGIN")
            assert con.apply_each(changes, table=table, rows=2) is None
            assert rows_of(con, f"FROM v{table}") == Counter([(12,)])
            con.execute("ROLLBACK")
    with sqlfront.connect(str(tmp_path / "data.duckdb")) as con:
        assert rows_of(con, "FROM vc UNION ALL FROM vo") == Counter({(6,): 2})


def test_arguments(pair: list[sqlfront.Connection]) -> None:
    con = pair[0]
    changes = pandas.DataFrame({"a": [1]})
    with pytest.raises(sqlfront.InterfaceError, match="epoch of 0 rows"):
        con.apply_each(changes, table="r", rows=0)
    with pytest.raises(sqlfront.ProgrammingError, match="miss column b"):
        con.apply_each(changes, table="r", rows=1)
    with pytest.raises(sqlfront.ProgrammingError, match="are a list"):
        con.apply_each([1], table="r", rows=1)
    found = con.apply_each(changes.head(0), table="r", rows=1)
    assert found is not None and (found.count, found.rows) == (0, 0)

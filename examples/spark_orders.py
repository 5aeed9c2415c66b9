"""Spark streams the changes of three tables in; a view of sums and one of the two dearest items sold stay current, read
from Spark SQL and from DuckDB.

Needs Java 17 or later and the extra `spark`: pip install "sqlfront[spark]".
"""

import json
import tempfile
from pathlib import Path

import sqlfront
import sqlfront.spark
from sqlfront.spark.session import start

spark = start()
spark.sparkContext.setLogLevel("FATAL")
directory = Path(tempfile.mkdtemp())
con = sqlfront.connect(str(directory / "orders.duckdb"))

TABLES = {
    "customers": "customer BIGINT, region STRING",
    "orders": "order_id BIGINT, customer BIGINT",
    "items": "order_id BIGINT, product STRING, price BIGINT",
}
for table, columns in TABLES.items():
    con.execute(f"CREATE CHANGE TABLE {table} ({columns})")
sqlfront.spark.register(spark, con)
sqlfront.spark.sql(
    spark,
    con,
    """CREATE MATERIALIZED VIEW revenue AS
       SELECT `region`, SUM(price) AS total, COUNT(*) AS sold
       FROM customers JOIN orders USING (customer) JOIN items USING (order_id)
       GROUP BY `region`""",
)
sqlfront.spark.sql(
    spark,
    con,
    """CREATE MATERIALIZED VIEW dearest AS
       SELECT o.customer, i.price, i.product
       FROM orders AS o JOIN items AS i ON o.order_id = i.order_id
       ORDER BY i.price DESC LIMIT 2""",
)


def put(table, batch, rows):
    """A file of changes, as a connector would write it."""
    place = directory / table
    place.mkdir(exist_ok=True)
    (place / f"{batch}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def stream():
    """Take in what there is now: each file of changes becomes an epoch, exactly once."""
    for table, columns in TABLES.items():
        changes = spark.readStream.schema(f"{columns}, _change_type STRING").json(str(directory / table))
        query = con.register_changes(
            table, changes, checkpoint=str(directory / f"checkpoint-{table}"), trigger={"availableNow": True}
        )
        query.awaitTermination()


def show(title):
    print(title)
    for row in spark.sql("SELECT region, total, sold FROM revenue ORDER BY region").collect():
        print("  Spark ", row.region, int(row.total), row.sold)
    for row in spark.sql("SELECT customer, price, product FROM dearest ORDER BY price DESC").collect():
        print("  Spark ", row.customer, row.price, row.product)
    for row in con.execute("SELECT * FROM revenue ORDER BY region").fetchall():
        print("  DuckDB", *row)
    for row in con.execute("SELECT * FROM dearest").fetchall():
        print("  DuckDB", *row)


put("customers", 1, [{"customer": c, "region": r, "_change_type": "insert"} for c, r in [(1, "north"), (2, "south")]])
put("orders", 1, [{"order_id": o, "customer": 1 + o % 2, "_change_type": "insert"} for o in range(4)])
put("items", 1, [
    {"order_id": o, "product": p, "price": price, "_change_type": "insert"}
    for o, p, price in [(0, "lamp", 40), (1, "desk", 300), (2, "chair", 90), (3, "pen", 2)]
])  # fmt: skip
stream()
show("first changes")

put("items", 2, [
    {"order_id": 1, "product": "desk", "price": 300, "_change_type": "update_preimage"},
    {"order_id": 1, "product": "desk", "price": 250, "_change_type": "update_postimage"},
    {"order_id": 2, "product": "chair", "price": 90, "_change_type": "delete"},
])  # fmt: skip
put("customers", 2, [
    {"customer": 2, "region": "south", "_change_type": "delete"},
    {"customer": 2, "region": "north", "_change_type": "insert"},
])  # fmt: skip
stream()
show("a price falls, a chair is returned, a customer moves")
spark.stop()
con.close()

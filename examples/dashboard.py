"""A live dashboard in twenty lines: revenue per region stays current while sales stream in."""

import random

import pyarrow

import sqlfront

con = sqlfront.connect()
con.execute("CREATE TABLE shops (shop BIGINT PRIMARY KEY, region VARCHAR)")
con.execute("CREATE CHANGE TABLE sales (shop BIGINT, cents BIGINT) WITH (retain = false)")
con.execute("""
    CREATE MATERIALIZED VIEW revenue AS
    SELECT region, SUM(cents) / 100 AS revenue, COUNT(*) AS sales
    FROM sales JOIN shops USING (shop)
    GROUP BY region
""")
con.execute("INSERT INTO shops VALUES (1, 'north'), (2, 'north'), (3, 'south')")

random.seed(1)
for hour in range(8, 12):
    shops = [random.randint(1, 3) for _ in range(1000)]
    cents = [random.randint(100, 9_999) for _ in range(1000)]
    con.apply({"sales": pyarrow.table({"shop": shops, "cents": cents})})
    rows = con.execute("SELECT region, revenue, sales FROM revenue ORDER BY region").fetchall()
    print(f"{hour:02}:00", *(f"{region}: {revenue:,.2f} ({sales} sales)" for region, revenue, sales in rows), sep="  ")

# A shop moves: every sale it made counts for its new region at once.
con.execute("UPDATE shops SET region = 'south' WHERE shop = 2")
print("moved", con.execute("SELECT region, sales FROM revenue ORDER BY region").fetchall())

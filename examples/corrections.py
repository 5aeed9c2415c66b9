"""Change data capture into views: inserts, deletes and updates from a change feed, each batch one atomic epoch."""

import pyarrow

import sqlfront

con = sqlfront.connect()
con.execute("CREATE CHANGE TABLE payments (id BIGINT, account VARCHAR, amount DECIMAL(12, 2)) WITH (retain = true)")
con.execute("""
    CREATE MATERIALIZED VIEW balances AS
    SELECT account, SUM(amount) AS balance, COUNT(*) AS payments FROM payments GROUP BY account HAVING COUNT(*) > 0
""")


def show(title):
    print(
        f"{title:10}", con.execute("SELECT account, balance::VARCHAR, payments FROM balances ORDER BY ALL").fetchall()
    )


con.execute("INSERT INTO payments VALUES (1, 'Ada', 10.00), (2, 'Ada', 2.50), (3, 'Emil', 7.25)")
show("loaded")

feed = pyarrow.table(
    {
        "id": [2, 2, 3, 4],
        "account": ["Ada", "Emil", "Emil", "Zoe"],
        "amount": ["2.50", "2.50", "7.25", "1.00"],
        "_change_type": ["update_preimage", "update_postimage", "delete", "insert"],
    }
)
con.apply({"payments": feed})
show("corrected")

try:
    con.apply({"payments": feed})
except sqlfront.IntegrityError as error:
    print("twice     ", str(error).splitlines()[0])
show("unchanged")

"""Examples that tell which queries have a ranked tree (Deep, Hu and Koutris 2022)."""

from __future__ import annotations

import itertools

import sqlfront


def test_pairs_of_co_authors_by_their_h_indexes() -> None:
    """Example 40: each pair once, however many papers it shares; first those whose h-indexes add up to most."""
    con = sqlfront.connect()
    con.execute(
        "CREATE TABLE author (aid INTEGER PRIMARY KEY, h INTEGER NOT NULL); CREATE TABLE wrote (aid INT, pid INT)"
    )
    h = {aid: aid * 37 % 23 for aid in range(30)}
    wrote = [(aid, pid) for aid in range(30) for pid in range(40) if (aid * pid + aid + 3 * pid) % 7 == 0]
    con.executemany("INSERT INTO author VALUES (?, ?)", list(h.items()))
    con.executemany("INSERT INTO wrote VALUES (?, ?)", wrote)
    con.execute("""
        CREATE MATERIALIZED VIEW pairs AS
        SELECT DISTINCT a.aid, b.aid AS other, a.h, b.h AS its
        FROM author a JOIN wrote x ON a.aid = x.aid JOIN wrote y USING (pid) JOIN author b ON y.aid = b.aid
        ORDER BY a.h + b.h DESC LIMIT 100
    """)

    def wanted() -> list[tuple[int, ...]]:
        papers = {pid: [aid for aid, its in wrote if its == pid] for _, pid in wrote}
        pairs = {pair for authors in papers.values() for pair in itertools.product(authors, repeat=2)}
        rows = [(a, b, h[a], h[b]) for a, b in pairs]
        return sorted(rows, key=lambda row: (-row[2] - row[3], *row))[:100]

    assert con.explain("pairs").to_dict()["strategy"] == "ranked enumeration"
    assert con.view("pairs").top(100) == wanted() and len(wanted()) == 100
    first = wrote.pop()
    con.execute("DELETE FROM wrote WHERE aid = ? AND pid = ?", list(first))
    con.execute("UPDATE author SET h = 99 WHERE aid = 4")
    h[4] = 99
    assert con.view("pairs").top(100) == wanted()
    con.close()


def test_answers_that_no_part_compares_are_sorted() -> None:
    """Lemma 25: of R = S = {(i, N - i + 1)}, no row of the product is better than another in both of its parts, so for
    an order that parts do not tell, as of an inner product, every row is looked at."""
    con, size = sqlfront.connect(), 7
    con.execute("CREATE TABLE r (x BIGINT, y BIGINT); CREATE TABLE s (x BIGINT, y BIGINT)")
    rows = [(i, size - i + 1) for i in range(1, size + 1)]
    for table in "rs":
        con.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    con.execute("""
        CREATE MATERIALIZED VIEW v AS
        SELECT r.x, r.y, s.x AS u, s.y AS v FROM r, s ORDER BY r.x * s.x + r.y * s.y LIMIT 5
    """)
    [order] = con.explain("v").to_dict()["orders"]
    assert order["strategy"] == "sorted when read"
    product = [(*one, *other) for one, other in itertools.product(rows, rows)]
    assert con.view("v").top(5) == sorted(product, key=lambda row: (row[0] * row[2] + row[1] * row[3], *row))[:5]
    con.close()

"""Random queries with blocks in blocks, over the tables of tests/shards.py."""

from __future__ import annotations

from random import Random

TABLES = {"r": {"a": "i", "b": "t", "n": "i"}, "s": {"b": "t", "c": "i"}, "e": {"x": "i", "y": "i"}}

Query = tuple[str, dict[str, str]]
"""SQL and the kinds of its columns: "i" for whole numbers, "t" for texts."""


def random_query(random: Random, depth: int = 2) -> str:
    """One query, in DuckDB's SQL; some are none of a view's."""
    return _select(random, depth)[0]


def _select(random: Random, depth: int) -> Query:
    if depth and random.random() < 0.25:
        return _union(random, depth - 1)
    sources = [_source(random, depth, f"t{number}") for number in range(random.choice([1, 1, 2, 2, 3]))]
    columns = {f"t{number}.{name}": kind for number, (_, own) in enumerate(sources) for name, kind in own.items()}
    conditions = list(_joins(random, columns, len(sources)))
    if depth and random.random() < 0.3:
        conditions.append(_partners(random, depth - 1, columns))
    tail = f" FROM {', '.join(text for text, _ in sources)}"
    tail += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    picked = random.sample(sorted(columns), min(len(columns), random.choice([1, 2])))
    names = {f"c{number}": column for number, column in enumerate(picked)}
    kinds = {name: columns[column] for name, column in names.items()}
    items = ", ".join(f"{column} AS {name}" for name, column in names.items())
    mode = random.choice(["bag", "set", "group", "group", "scalar", "first", "each"])
    if mode in ("group", "scalar"):
        own = sorted(columns)
        aggregates = [_aggregate(random, columns, own) for _ in range(random.choice([1, 2]))]
        sums = ", ".join(f"{text} AS v{number}" for number, (text, _) in enumerate(aggregates))
        values = {f"v{number}": kind for number, (_, kind) in enumerate(aggregates)}
        if mode == "scalar":
            return f"SELECT {sums}{tail}", values
        having = random.choice(["", "", " HAVING count(*) > 1"])
        return f"SELECT {items}, {sums}{tail} GROUP BY {', '.join(picked)}{having}", kinds | values
    if mode == "first":
        order = ", ".join(str(place) for place in range(1, len(names) + 1))
        return f"SELECT {items}{tail} ORDER BY {order} LIMIT {random.choice([1, 3])}", kinds
    if mode == "each":
        order = ", ".join(picked[::-1])
        return f"SELECT {items}{tail} QUALIFY row_number() OVER (PARTITION BY {picked[0]} ORDER BY {order}) <= 2", kinds
    return f"SELECT {'DISTINCT ' if mode == 'set' else ''}{items}{tail}", kinds


def _source(random: Random, depth: int, alias: str) -> Query:
    if depth and random.random() < 0.5:
        text, columns = _select(random, depth - 1)
        return f"({text}) AS {alias}", columns
    table = random.choice(sorted(TABLES))
    return f"{table} AS {alias}", TABLES[table]


def _joins(random: Random, columns: dict[str, str], sources: int) -> list[str]:
    """A condition between each source and an earlier one, if they have columns of one kind."""
    found = []
    for number in range(1, sources):
        mine = [name for name in columns if name.startswith(f"t{number}.")]
        theirs = [name for name in columns if name < f"t{number}."]
        pairs = [(a, b) for a in mine for b in theirs if columns[a] == columns[b]]
        if pairs and random.random() < 0.9:
            left, right = random.choice(pairs)
            found.append(f"{left} {random.choice(['=', '=', '=', '=', '<'])} {right}")
    return found


def _partners(random: Random, depth: int, columns: dict[str, str]) -> str:
    outer = random.choice(sorted(columns))
    text, own = _select(random, depth)
    inner = next((name for name in own if own[name] == columns[outer]), None)
    if inner is None:
        table, name = ("r", "b") if columns[outer] == "t" else ("e", "y")
        return f"EXISTS (SELECT 1 FROM {table} AS p WHERE p.{name} = {outer})"
    return f"{outer} IN (SELECT {inner} FROM ({text}) AS p)"


def _union(random: Random, depth: int) -> Query:
    kinds = random.choice([{"c0": "i"}, {"c0": "t"}, {"c0": "i", "c1": "t"}])
    branches = [_branch(random, depth, kinds) for _ in range(random.choice([2, 2, 3]))]
    return random.choice([" UNION ", " UNION ALL "]).join(branches), kinds


def _branch(random: Random, depth: int, kinds: dict[str, str]) -> str:
    """A SELECT of columns of these kinds."""
    for _ in range(20):
        text, columns = _source(random, depth, "b")
        own = [[name for name, kind in columns.items() if kind == wanted] for wanted in kinds.values()]
        if all(own):
            items = ", ".join(f"{random.choice(some)} AS {name}" for some, name in zip(own, kinds))
            return f"SELECT {items} FROM {text}"
    return f"SELECT {', '.join(('a' if kind == 'i' else 'b') + f' AS {name}' for name, kind in kinds.items())} FROM r"


def _aggregate(random: Random, columns: dict[str, str], own: list[str]) -> tuple[str, str]:
    column = random.choice(own)
    if columns[column] == "t":
        return random.choice([(f"max({column})", "t"), (f"count(DISTINCT {column})", "i"), ("count(*)", "i")])
    texts = [f"max({column})", f"min({column})", f"sum({column})", f"count(DISTINCT {column})", "count(*)"]
    return random.choice(texts), "i"

"""Random view queries: joins of up to five atoms, acyclic or not, in every mode that views have."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.streams.schema import DOMAINS, Column, Table


@dataclass(frozen=True)
class FloatSum:
    """Output column `place` is SUM or AVG of the floating `expression`; `plain`: of a column, so exactly rounded."""

    place: int
    function: str
    expression: str
    condition: str
    plain: bool


@dataclass(frozen=True)
class Query:
    """A view's SELECT; `body` is its part from FROM to WHERE, `keys` its GROUP BY items, `strategy` the view's option.

    `tables` are those whose changes reach it, `reads` the views in FROM, `columns` those that a view over it may use.
    """

    items: tuple[str, ...]
    body: str
    mode: str
    keys: tuple[str, ...] = ()
    having: str = ""
    floats: tuple[FloatSum, ...] = ()
    tables: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    strategy: str = "auto"
    reads: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    order: str = ""
    limit: str = ""

    @property
    def sql(self) -> str:
        order = f" ORDER BY {self.order}" if self.order else ""
        return f"{self._select(self.items)}{order} {self.limit}".rstrip()

    @property
    def completed(self) -> str:
        """The query with every output column behind its ORDER BY."""
        return self._ordered(self._select(self.items))

    @property
    def judged(self) -> str:
        """The query with the values and signs under each floating sum as lists, for an exact sum."""
        lists = [f"list({f.expression}){f.condition} AS l{f.place}" for f in self.floats]
        return self._ordered(self._select((*self.items, *lists)))

    def _ordered(self, text: str) -> str:
        ties = ", ".join(str(place) for place in range(1, len(self.items) + 1))
        order = ", ".join(filter(None, (self.order, ties)))
        return f"{text} ORDER BY {order} {self.limit}" if self.order or self.limit else text

    def _select(self, items: tuple[str, ...]) -> str:
        text = f"SELECT {'DISTINCT ' if self.mode == 'set' else ''}{', '.join(items)} {self.body}"
        text += f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        return text + (f" HAVING {self.having}" if self.having else "")


@dataclass(frozen=True)
class _Atom:
    alias: str
    table: Table

    def columns(self, *roles: str) -> list[Column]:
        return [column for column in self.table.columns if column.role in roles]


def random_query(choose: random.Random, tables: tuple[Table, ...], most: int, *, products: bool = True) -> Query:
    """A query over at most `most` atoms; `products`: of floating columns, which NaN and infinities must not enter."""
    if most >= 3 and all(t.kind != "view" for t in tables) and choose.random() < 0.2:
        alike = choose.choice([_equal_atoms, _rotated_atoms])
        return alike(choose, choose.choice(tables), min(most, choose.choice([3, 3, 4])))
    features: set[str] = set()
    atoms = _random_atoms(choose, tables, most, features)
    conditions = _joins(choose, atoms, features) + _filters(choose, atoms, features)
    body = "FROM " + ", ".join(f"{atom.table.name} AS {atom.alias}" for atom in atoms)
    body += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    mode = choose.choice(["bag", "set", "group", "group", "group"])
    features.add(mode)
    every = {f"{atom.alias}.{c.name}": c for atom in atoms for c in atom.columns("one", "two", "int", "decimal")}
    keys = choose.sample(list(every), min(len(every), choose.choice([1, 1, 2, 2, 3, 4])))
    columns = [Column(f"k{i}", every[key].type, every[key].role) for i, key in enumerate(keys)]
    names = tuple(dict.fromkeys(atom.table.name for atom in atoms))
    if mode != "group":
        items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        order, limit = _random_order(
            random.Random(f"{body} {keys} order"), atoms if mode == "bag" else [], items, features
        )
        found = frozenset(features)
        return Query(
            tuple(items), body, mode, tables=names, features=found, columns=tuple(columns), order=order, limit=limit
        )
    if choose.random() < 0.2:
        keys, columns = [], []
        features.add("scalar")
    query = _grouped(choose, atoms, body, keys, names, features, columns)
    if not products and "float product" in query.features:
        return random_query(choose, tables, most, products=products)
    return query


def _equal_atoms(choose: random.Random, table: Table, count: int) -> Query:
    """A self-join of atoms that read the very same columns: each pair must see the other's change once."""
    key = choose.choice([column.name for column in table.columns if column.role in ("one", "two")])
    body = "FROM " + ", ".join(f"{table.name} AS t{i}" for i in range(count))
    body += " WHERE " + " AND ".join(f"t{i}.{key} = t0.{key}" for i in range(1, count))
    features = frozenset({"equal atoms", f"{count} atoms", "group", "self-join of 2", "self-join of 3"})
    items = (f"t0.{key} AS k0", "count(*) AS m1")
    return Query(items, body, "group", (f"t0.{key}",), tables=(table.name,), features=features)


def _rotated_atoms(choose: random.Random, table: Table, count: int) -> Query:
    """A ring of atoms over one table: the same from each of them, unless a sum or a group tells them apart."""
    pairs = [(x, y) for x in table.columns for y in table.columns if x.role == y.role in ("one", "two") and x is not y]
    if not pairs:
        return _equal_atoms(choose, table, count)
    x, y = choose.choice(pairs)
    body = "FROM " + ", ".join(f"{table.name} AS t{i}" for i in range(count))
    body += " WHERE " + " AND ".join(f"t{i}.{y.name} = t{(i + 1) % count}.{x.name}" for i in range(count))
    features = {"ring", f"{count} atoms", "group", "scalar", "self-join of 2", "self-join of 3"}
    items, keys = ["count(*) AS m1"], ()
    numbers = [column.name for column in table.columns if column.role == "int" and column.type != "BOOLEAN"]
    if numbers and choose.random() < 0.5:
        items.append(
            f"sum({' * '.join(f't{i}.{numbers[0]}::HUGEINT' for i in range(choose.choice([1, count])))}) AS m2"
        )
    if choose.random() < 0.2:
        items, keys = [f"t0.{x.name} AS k0", *items], (f"t0.{x.name}",)
        features.remove("scalar")
    return Query(tuple(items), body, "group", keys, tables=(table.name,), features=frozenset(features))


def _random_atoms(choose: random.Random, tables: tuple[Table, ...], most: int, features: set[str]) -> list[_Atom]:
    count = min(most, choose.choice([1, 2, 2, 3, 3, 3, 4, 4, 5, 5]))
    pool = list(tables) if choose.random() < 0.7 else [choose.choice(tables)]
    chosen = [choose.choice(pool) for _ in range(count)]
    largest = max(chosen.count(table) for table in chosen)
    features |= {f"self-join of {n}" for n in (2, 3) if largest >= n} | {f"{count} atoms"}
    return [_Atom(f"t{i}", table) for i, table in enumerate(chosen)]


def _joins(choose: random.Random, atoms: list[_Atom], features: set[str]) -> list[str]:
    """Each atom shares columns with one before it, so the query is acyclic; sometimes a pair more, which may close a
    cycle."""
    conditions = []
    joined = [
        (atom, choose.choice(atoms[:i]), choose.choice([0, 1, 1, 1, 1, 1, 1, 2, 2]))
        for i, atom in enumerate(atoms[1:], 1)
    ]
    if len(atoms) > 2 and choose.random() < 0.3:
        joined += [(*choose.sample(atoms, 2), 1) for _ in range(choose.choice([1, 1, 2]))]
        features.add("pairs more")
    for atom, other, wanted in joined:
        pairs = [(x, y) for role in ("one", "two") for x in atom.columns(role) for y in other.columns(role)]
        pairs = choose.sample(pairs, min(len(pairs), wanted))
        if not pairs:
            features.add("cross product")
        for x, y in pairs:
            conditions.append(f"{atom.alias}.{x.name} = {other.alias}.{y.name}")
            if x.type != y.type:
                features.add("mixed types")
            if x.type in ("HUGEINT", "UUID", "DECIMAL(38,2)"):
                features.add("two-word key")
            if x.type in ("VARCHAR", "BLOB"):
                features.add("text key")
    return conditions + _comparisons(random.Random(f"{conditions} compared"), atoms, features)


def _comparisons(choose: random.Random, atoms: list[_Atom], features: set[str]) -> list[str]:
    """Sometimes one or two pairs of columns of different atoms are compared by their order."""
    conditions = []
    for _ in range(choose.choice([1, 1, 2]) if len(atoms) > 1 and choose.random() < 0.15 else 0):
        atom, other = choose.sample(atoms, 2)
        pairs = [(x, y) for role in ("one", "two") for x in atom.columns(role) for y in other.columns(role)]
        if not pairs:
            continue
        x, y = choose.choice(pairs)
        conditions.append(f"{atom.alias}.{x.name} {choose.choice(['<', '<=', '>', '>=', '<>'])} {other.alias}.{y.name}")
        features.add("comparison")
    return conditions


def _filters(choose: random.Random, atoms: list[_Atom], features: set[str]) -> list[str]:
    conditions = []
    for atom in atoms:
        if choose.random() < 0.2:
            column = choose.choice(atom.table.columns)
            conditions.append(_condition(choose, f"{atom.alias}.{column.name}", column))
            features.add("predicate")
    return conditions


def _condition(choose: random.Random, name: str, column: Column) -> str:
    if choose.random() < 0.3 or column.type not in DOMAINS or column.role not in ("one", "two"):
        return choose.choice([f"{name} IS NOT NULL", f"{name} IS NULL", f"{name} IS DISTINCT FROM NULL"])
    value = choose.choice(DOMAINS[column.type])
    if isinstance(value, bytes):
        return f"octet_length({name}) > 0"
    return f"{name} {choose.choice(['=', '<>', '>=', '<'])} CAST('{value}' AS {column.type})"


def _random_order(choose: random.Random, atoms: list[_Atom], items: list[str], features: set[str]) -> tuple[str, str]:
    """ORDER BY's items, of output columns and of the atoms' own columns and sums, and LIMIT; or nothing."""
    if choose.random() < 0.5:
        return "", ""
    pool = [str(place) for place in range(1, len(items) + 1)]
    values = [f"{atom.alias}.{c.name}" for atom in atoms for c in atom.table.columns]
    numbers = [
        f"{atom.alias}.{c.name}" for atom in atoms for c in atom.columns("int", "decimal") if c.type != "BOOLEAN"
    ]
    ordered = choose.sample(pool, choose.randint(0, len(pool))) + choose.sample(values, min(len(values), 1))
    if len(numbers) > 1 and choose.random() < 0.6:
        chosen = choose.sample(numbers, 2)
        ordered.insert(0, f"{chosen[0]}::DECIMAL(28,3) {choose.choice('+-')} {chosen[1]}::DECIMAL(28,3) * 2")
        features.add("order by sum")
    choose.shuffle(ordered)
    directions = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST", " DESC NULLS FIRST"]
    order = ", ".join(item + choose.choice(directions) for item in ordered[:3])
    limit = choose.choice(["", "LIMIT 3", "LIMIT 8", "LIMIT 2 OFFSET 1"])
    features.add("limit" if limit else "order by")
    return order, limit


def _grouped(
    choose: random.Random,
    atoms: list[_Atom],
    body: str,
    keys: list[str],
    names: tuple[str, ...],
    features: set[str],
    columns: list[Column],
) -> Query:
    items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    if items and choose.random() < 0.1:
        items.pop()
        columns = columns[:-1]
        features.add("hidden group key")
    floats: list[FloatSum] = []
    for _ in range(choose.choice([1, 1, 2, 2, 3])):
        condition = ""
        if choose.random() < 0.15:
            atom = choose.choice(atoms)
            column = choose.choice(atom.table.columns)
            condition = f" FILTER (WHERE {_condition(choose, f'{atom.alias}.{column.name}', column)})"
            features.add("filter")
        text, type_ = _aggregate(choose, atoms, condition, len(items), floats, features)
        columns = [*columns, *([Column(f"m{len(items)}", type_, "int")] if keys and type_ else [])]
        items.append(f"{text}{condition} AS m{len(items)}")
    apart = random.Random(f"{body} {keys}")  # The choices of known seeds stay as they were.
    if apart.random() < 0.4:
        items.append(f"{_of_values(apart, atoms)} AS m{len(items)}")
        features.add("kept values")
    having = ""
    if choose.random() < 0.15:
        having = choose.choice(["count(*) > 1", "count(*) % 2 = 1", "count(*) >= 3"])
        features.add("having")
    found = frozenset(features)
    return Query(tuple(items), body, "group", tuple(keys), having, tuple(floats), names, found, columns=tuple(columns))


def _of_values(choose: random.Random, atoms: list[_Atom]) -> str:
    """An aggregate for which the values of each group are kept."""
    atom = choose.choice(atoms)
    column = choose.choice(atom.table.columns)
    name = f"{atom.alias}.{column.name}"
    forms = [f"min({name})", f"max({name})", f"count(DISTINCT {name})"]
    if column.role in ("int", "decimal") and column.type != "BOOLEAN":
        forms.append(f"sum(DISTINCT {name})")
    return choose.choice(forms)


def _aggregate(
    choose: random.Random, atoms: list[_Atom], condition: str, place: int, floats: list[FloatSum], features: set[str]
) -> tuple[str, str]:
    """An aggregate, and its type if it is a whole number."""
    numbers = [
        (atom.alias, c) for atom in atoms for c in atom.columns("int", "decimal", "float") if c.type != "BOOLEAN"
    ]
    kind = choose.choice(["count(*)", "count", "sum", "sum", "sum", "avg", "product", "product", "product"])
    if kind == "count(*)" or not numbers:
        return "count(*)", "BIGINT"
    features.add(kind)
    if kind == "count":
        atom = choose.choice(atoms)
        return f"count({atom.alias}.{choose.choice(atom.table.columns).name})", "BIGINT"
    alias, column = choose.choice(numbers)
    expression, plain, is_whole = f"{alias}.{column.name}", True, column.role == "int"
    is_float = column.role == "float"
    if kind == "product":
        kind = choose.choice(["sum", "sum", "avg"])
        others = [(a, c) for a, c in numbers if a != alias] or numbers
        second, factor = choose.choice(others)
        wide = "::HUGEINT" if column.role == factor.role == "int" else ""
        if column.role == "decimal":  # DuckDB's own product of narrow decimals may overflow.
            wide = f"::DECIMAL(19,{column.type[8:-1].split(',')[1]})"
        expression = f"{expression}{wide} * {second}.{factor.name}"
        is_float, plain, is_whole = is_float or factor.role == "float", False, is_whole and factor.role == "int"
        if is_float:
            features.add("float product")
    features.add("float sum" if is_float else "exact sum")
    if is_float:
        floats.append(FloatSum(place, kind, expression, condition, plain))
    return f"{kind}({expression})", "HUGEINT" if is_whole and kind == "sum" else ""

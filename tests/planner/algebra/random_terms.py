"""Random terms over two small tables of integers with NULLs and copies."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Operator,
    Ref,
    Scalar,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Made,
    Map,
    Scan,
    SetOperation,
    Sort,
    Term,
    Top,
    Unnest,
    Values,
)

TABLES = {("r",): ("a", "b"), ("s",): ("b", "c")}
KINDS_OF_TERM = ("filter", "map", "join", "join", "group", "distinct", "set", "top", "list")
OPERATORS: Sequence[Operator] = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
KINDS: Sequence[JoinKind] = ("inner", "left", "full", "semi", "anti", "mark", "inner", "left")


class RandomTerms:
    """Makes terms, each of at most `depth` operators above its scans; all columns are integers."""

    def __init__(self, seed: int) -> None:
        self.random, self._number = random.Random(seed), 0

    def term(self, depth: int, outer: Sequence[Column] = ()) -> Term:
        kind = self.random.choice(KINDS_OF_TERM) if depth else "scan"
        if kind == "scan":
            return self._scan()
        if kind == "join":
            return self._join(depth, outer)
        if kind == "set":
            return self._set(depth, outer)
        input = self.term(depth - 1, outer)
        seen = (*input.columns, *outer)
        match kind:
            case "filter":
                return Filter(input, self.condition(seen))
            case "map":
                return Map(input, tuple(self._made(seen) for _ in range(self.random.randrange(1, 4))))
            case "group":
                groups = self._some(input.columns)
                made = (self._aggregated(input.columns) for _ in range(self.random.randrange(1, 3)))
                return Aggregate(input, groups, tuple(made))
            case "distinct":
                return Distinct(input)
            case "top":
                limit, offset = (Constant(str(self.random.randrange(most)), "BIGINT") for most in (5, 3))
                return Top(input, tuple(self._sort(Ref(column)) for column in input.columns), limit, offset)
        lists = tuple(Made(self.column(), self._list(seen)) for _ in range(self.random.randrange(1, 3)))
        return Unnest(input, lists, self.column("BIGINT"), self.random.random() < 0.5)

    def column(self, kind: str = "INTEGER") -> Column:
        self._number += 1
        return Column(self._number, f"x{self._number}", kind)

    def condition(self, columns: Sequence[Column], depth: int = 2) -> Scalar:
        if depth and self.random.random() < 0.5:
            if self.random.random() < 0.2:
                return Not(self.condition(columns, depth - 1))
            word = self.random.choice(("AND", "OR"))
            return Logic(word, tuple(self.condition(columns, depth - 1) for _ in range(2)))
        if self.random.random() < 0.15:
            return IsNull(self.value(columns))
        return Compare(self.random.choice(OPERATORS), self.value(columns), self.value(columns))

    def value(self, columns: Sequence[Column], depth: int = 1) -> Scalar:
        columns = [column for column in columns if column.type == "INTEGER"]
        if not columns or self.random.random() < 0.2:
            return Constant(str(self.random.randrange(4)), "INTEGER")
        if depth and self.random.random() < 0.3:
            parts = self.value(columns, 0), self.value(columns, 0)
            if self.random.random() < 0.5:
                return Call("coalesce({0}, {1})", parts, "INTEGER", can_fail=False)
            return Call("CAST({0} % 7 + {1} % 7 AS INTEGER)", parts, "INTEGER", strict=True, can_fail=False)
        return Ref(self.random.choice(columns))

    def _scan(self) -> Term:
        if self.random.random() < 0.1:
            missing = Constant("CAST(NULL AS INTEGER)", "INTEGER")
            rows = tuple((self.value(()), missing) for _ in range(self.random.randrange(3)))
            return Values((self.column(), self.column()), rows)
        table = self.random.choice(list(TABLES))
        return Scan(table, tuple((name, self.column()) for name in TABLES[table]))

    def _join(self, depth: int, outer: Sequence[Column]) -> Term:
        left = self.term(depth - 1, outer)
        kind = self.random.choice(KINDS)
        dependent = kind != "full" and self.random.random() < 0.5
        right = self.term(depth - 1, (*outer, *left.columns) if dependent else outer)
        condition = self.condition((*left.columns, *right.columns)) if self.random.random() < 0.8 else TRUE
        return Join(kind, left, right, condition, dependent, self.column("BOOLEAN") if kind == "mark" else None)

    def _set(self, depth: int, outer: Sequence[Column]) -> Term:
        sides = []
        for _ in range(2):
            input = self.term(depth - 1, outer)
            sides.append(Map(input, (self._made(input.columns), self._made(input.columns))))
        kind = self.random.choice(("union", "intersect", "except"))
        return SetOperation(kind, self.random.random() < 0.5, *sides, (self.column(), self.column()))

    def _made(self, columns: Sequence[Column]) -> Made:
        return Made(self.column(), self.value(columns))

    def _aggregated(self, columns: Sequence[Column]) -> Aggregated:
        kept = self.condition(columns) if self.random.random() < 0.3 else TRUE
        name = self.random.choice(("count", "sum", "min", "max", "*"))
        if name == "*":
            return Aggregated(self.column("BIGINT"), "count(*)", filter=kept)
        kind = {"count": "BIGINT", "sum": "HUGEINT"}.get(name, "INTEGER")
        distinct = self.random.random() < 0.3
        return Aggregated(self.column(kind), name + "({before}{0})", (self.value(columns),), distinct, filter=kept)

    def _list(self, columns: Sequence[Column]) -> Scalar:
        parts = tuple(self.value(columns) for _ in range(2))
        return Call("list_filter([{0}, {1}], lambda x: x > 1)", parts, "INTEGER[]", can_fail=False)

    def _sort(self, value: Scalar) -> Sort:
        return Sort(value, self.random.random() < 0.5, self.random.random() < 0.5)

    def _some(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(column for column in columns if self.random.random() < 0.5)

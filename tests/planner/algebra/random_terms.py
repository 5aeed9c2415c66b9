"""Random terms over small tables of integers: two with NULLs and copies, one with a key, one that refers to it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sqlfront.planner.algebra.rewriting import NewColumns, copied, projected
from sqlfront.planner.algebra.row_facts import rejected
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
    conjunction,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Common,
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
    Window,
    Windowed,
)

TABLES = {("r",): ("a", "b"), ("s",): ("b", "c"), ("k",): ("id", "v"), ("f",): ("k_id", "w")}
"""`k.id` is a key; `f.k_id` is NULL or one of its values."""
KINDS_OF_TERM = (
    "filter", "filter", "map", "join", "join", "join", "group", "total", "distinct", "set", "top", "list", "window",
    "common",
)  # fmt: skip
UNARY = ("filter", "map", "group", "total", "distinct", "top", "list", "window")
OPERATORS: Sequence[Operator] = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
KINDS: Sequence[JoinKind] = ("inner", "left", "full", "semi", "anti", "mark", "inner", "left", "single")


class RandomTerms:
    """Makes terms, each of at most `depth` operators above its scans; all columns are integers.

    `dependent`: how many of the joins are. With `failing` there are divisions, which raise errors for zeros; a filter
    below may guard one.
    """

    def __init__(self, seed: int, dependent: float = 0.5, failing: bool = False) -> None:
        self.random, self._number, self._dependent, self._failing = random.Random(seed), 0, dependent, failing
        self._rare = random.Random(f"rare {seed}")  # Of its own: a rare form changes no term without it.
        self._chains = random.Random(f"chains {seed}")
        self._ranges = random.Random(f"ranges {seed}")

    def term(self, depth: int, outer: Sequence[Column] = ()) -> Term:
        kind = self.random.choice(KINDS_OF_TERM) if depth else "scan"
        if depth and self._failing and self.random.random() < 0.3:
            kind = "division"
        if kind == "scan":
            return self._scan(outer)
        if kind == "join":
            return self._join(depth, outer)
        if kind == "set":
            return self._set(depth, outer)
        if kind == "common":
            return self._common(depth)
        return self._over(kind, self.term(depth - 1, outer), outer)

    def nested(self, levels: int, outer: Sequence[Column] = ()) -> Term:
        """Dependent joins inside of each other's right sides, each of which reads rows of several levels."""
        left = self._correlated(self.term(1, outer), outer) if outer else self.term(1)
        seen = (*outer, *left.columns)
        inner = self.nested(levels - 1, seen) if levels > 1 else self.term(self.random.randrange(2), seen)
        right = self._correlated(inner, seen)
        for _ in range(self.random.randrange(1, 3) if levels == 1 else 1):
            kind = self.random.choice((*UNARY, "set", "join"))
            if kind == "set":
                right = self._set_of(right, self._correlated(self._scan(), seen))
            elif kind == "join":
                sides = [right, self._correlated(self._scan(), seen) if self.random.random() < 0.5 else self._scan()]
                self.random.shuffle(sides)
                right = self._joined(self.random.choice(("inner", "left", "full", "semi", "anti", "mark")), *sides)
            else:
                right = self._over(kind, right, seen)
        kind = self.random.choice(("inner", "left", "semi", "anti", "mark", "single"))
        right = self._one_row(right) if kind == "single" else right
        return self._joined(kind, left, right, dependent=True)

    def _correlated(self, term: Term, outer: Sequence[Column]) -> Term:
        """The rows that agree with outer rows in some way."""
        outer = [column for column in outer if column.type == "INTEGER"] or outer
        operator = "=" if self.random.random() < 0.6 else self.random.choice(OPERATORS)
        parts = [Compare(operator, self.value(term.columns, 0), Ref(self.random.choice(outer)))]
        if self.random.random() < 0.4:
            parts.append(Compare("<=", Ref(self.random.choice(outer)), self.value(term.columns, 0)))
        return Filter(term, conjunction(parts))

    def _joined(self, kind: JoinKind, left: Term, right: Term, dependent: bool = False) -> Join:
        condition = self._join_condition(left.columns, right.columns)
        return Join(kind, left, right, condition, dependent, self.column("BOOLEAN") if kind == "mark" else None)

    def _over(self, kind: str, input: Term, outer: Sequence[Column]) -> Term:
        """One operator over a term."""
        seen = (*input.columns, *outer)
        match kind:
            case "filter" if marks := [one for one in input.columns if one.type == "BOOLEAN"]:
                mark: Scalar = Ref(self.random.choice(marks))
                return Filter(input, Not(mark) if self.random.random() < 0.7 else mark)
            case "filter":
                return Filter(input, self.condition(seen))
            case "division":
                return self._division(input)
            case "map":
                return Map(input, tuple(self._made(seen) for _ in range(self.random.randrange(1, 4))))
            case "group" if self._rare.random() < 0.3 and any(one.type == "INTEGER" for one in input.columns):
                return self._by_numbers(input)
            case "group" | "total":
                return self._aggregate(input, kind)
            case "distinct":
                first = self.random.random() < 0.3
                order = tuple(self._sort(Ref(column)) for column in input.columns) if first else ()
                return Distinct(input, self._some(input.columns) or input.columns[:1] if first else None, order)
            case "window":
                return Window(input, tuple(self._windowed(input.columns) for _ in range(self.random.randrange(1, 3))))
            case "top":
                if self.random.random() < 0.3:
                    return Top(input, (self._sort(Ref(input.columns[0])),))
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
        operator = self.random.choice(OPERATORS) if self.random.random() < 0.6 else "="
        return Compare(operator, self.value(columns), self.value(columns))

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

    def _scan(self, outer: Sequence[Column] = ()) -> Term:
        if self.random.random() < (0.3 if outer else 0.1):
            missing = Constant("CAST(NULL AS INTEGER)", "INTEGER")
            rows = tuple((self.value(outer), missing) for _ in range(self.random.randrange(3)))
            return Values((self.column(), self.column()), rows)
        table = self.random.choice(list(TABLES))
        return Scan(table, tuple((name, self.column()) for name in TABLES[table]))

    def _join(self, depth: int, outer: Sequence[Column]) -> Term:
        left = self.term(depth - 1, outer)
        kind = self.random.choice(KINDS)
        if self.random.random() < 0.2:
            return self._equal_parts(left) if not outer else self._by_key(left, kind)
        if self.random.random() < 0.15:
            return self._by_key(left, kind)
        if self._rare.random() < 0.35:
            return self._rare.choice((self._extremes, self._nearest))(left)
        if self._ranges.random() < 0.2:
            return self._partners(left)
        if self._chains.random() < 0.15:
            return self._chained(left)
        dependent = kind != "full" and self.random.random() < self._dependent
        right = self.term(depth - 1, (*outer, *left.columns) if dependent else outer)
        if kind == "single":
            right = self._one_row(right)
        joined = self._joined(kind, left, right, dependent)
        compared = [one for one in right.columns if one in rejected(joined.condition)] if kind == "left" else []
        missing = compared and self.random.random() < 0.5
        return Filter(joined, IsNull(Ref(self.random.choice(compared)))) if missing else joined

    def _join_condition(self, left: Sequence[Column], right: Sequence[Column]) -> Scalar:
        """Often an equality of both sides, with another condition on one of them."""
        both = (*left, *right)
        if self.random.random() < 0.5:
            equal = Compare("=", self.value(left, 0), self.value(right, 0))
            bound = Constant(str(self.random.randrange(4)), "INTEGER")
            return Logic("AND", (equal, Compare(self.random.choice(OPERATORS), self.value(both, 0), bound)))
        if self._failing and self.random.random() < 0.3:
            # Of both sides: DuckDB computes what one side of an equality reads for rows without any partner, too.
            quotient = Call("({0} // {1})", (self.value(left), self.value(right)), "INTEGER", strict=True)
            return Compare("=", quotient, self.value(both))
        return self.condition(both) if self.random.random() < 0.7 else TRUE

    def _set(self, depth: int, outer: Sequence[Column]) -> Term:
        return self._set_of(*(self.term(depth - 1, outer) for _ in range(2)))

    def _set_of(self, *inputs: Term) -> Term:
        sides = [Map(input, (self._made(input.columns), self._made(input.columns))) for input in inputs]
        kind = self.random.choice(("union", "intersect", "except"))
        return SetOperation(kind, self.random.random() < 0.5, *sides, (self.column(), self.column()))

    def _common(self, depth: int) -> Term:
        """Two uses of one term."""
        shared = self.term(depth - 1)
        name = f"w{self.column().number}"
        left, right = (
            Common(name, shared, tuple(self.column(column.type) for column in shared.columns)) for _ in range(2)
        )
        kind: JoinKind = self.random.choice(("inner", "left", "semi", "anti"))
        return Join(kind, left, right, self.condition((*left.columns, *right.columns)))

    def _equal_parts(self, term: Term) -> Term:
        """A join of a term and its copy."""
        other, _ = copied(term, self._new(term))
        return Join("inner", term, other, self.condition((*term.columns, *other.columns)))

    def _by_key(self, left: Term, kind: JoinKind) -> Term:
        """A join to the key of a table, often without that table's columns."""
        if self.random.random() < 0.5:
            left = Scan(("f",), tuple((name, self.column()) for name in TABLES["f",]))
        right = Scan(("k",), tuple((name, self.column()) for name in TABLES["k",]))
        condition = Compare("=", self.value(left.columns, 0), Ref(right.columns[0]))
        if kind == "full":
            kind = "semi"
        mark = self.column("BOOLEAN") if kind == "mark" else None
        joined = Join(kind, left, right, condition, mark=mark)
        if self.random.random() < 0.5:
            return joined
        return Map(joined, tuple(Made(self.column(column.type), Ref(column)) for column in left.columns))

    def _nearest(self, left: Term) -> Term:
        """Each distinct row with the first of its partners, in the order by which they are compared."""
        left, right = Distinct(left), self._scan()
        time, operator = Ref(right.columns[-1]), self.random.choice(("<", "<=", ">", ">="))
        equal = Compare("=", self.value(left.columns, 0), Ref(right.columns[0]))
        bounds = [Compare(operator, self.value(left.columns, 0), time)]
        alike = [column for column in left.columns if column.type == time.type]
        if alike and self._rare.random() < 0.3:
            opposite: Operator = "<=" if operator in (">", ">=") else ">"
            bounds.append(Compare(opposite, Ref(self._rare.choice(alike)), time))
        kind: JoinKind = self._rare.choice(("inner", "left"))
        joined = Join(kind, left, right, conjunction([equal, *bounds]))
        order = (Sort(time, descending=operator in (">", ">=")), *map(Sort, map(Ref, right.columns)))
        if self._rare.random() < 0.3:
            return Distinct(joined, left.columns, order)
        first = Windowed(self.column("BIGINT"), "row_number()", (), tuple(map(Ref, left.columns)), order)
        return Filter(Window(joined, (first,)), Compare("=", Ref(first.column), Constant("1", "BIGINT")))

    def _partners(self, left: Term) -> Term:
        """The rows with, or without, a partner within a range, or later than they are where ties are decided."""
        right = self._scan()
        time, mine = Ref(right.columns[-1]), Ref(self._ranges.choice(left.columns))
        alike = [column for column in left.columns if column.type == mine.type]
        bounds: list[Scalar] = [Compare(self._ranges.choice((">=", ">")), time, mine)]
        if self._ranges.random() < 0.3:
            tie = conjunction([Compare("=", time, mine), Compare(">", Ref(right.columns[0]), Ref(alike[0]))])
            bounds = [Logic("OR", (Compare(">", time, mine), tie))]
        elif self._ranges.random() < 0.6:
            bounds.append(Compare(self._ranges.choice(("<", "<=")), time, Ref(self._ranges.choice(alike))))
        if self._ranges.random() < 0.5:
            bounds.append(Compare("=", Ref(right.columns[0]), self.value(left.columns, 0)))
        return Join(self._ranges.choice(("semi", "anti", "anti")), left, right, conjunction(bounds))

    def _extremes(self, left: Term) -> Term:
        """Each distinct row with extremes of its partners within a range."""
        left, right = Distinct(left), self._scan()
        time, value = Ref(right.columns[-1]), Ref(right.columns[0])
        mine = Ref(self._rare.choice(left.columns))
        bounds: list[Scalar] = [Compare(">=", time, mine)]
        if self._rare.random() < 0.5:
            alike = [column for column in left.columns if column.type == mine.type]
            bounds.append(Compare("<", time, Ref(self._rare.choice(alike))))
        made = [Aggregated(self.column(value.type), f"{name}({{before}}{{0}})", (value,)) for name in ("min", "max")]
        made.append(Aggregated(self.column("BIGINT"), "count({before}*)"))
        kind: JoinKind = self._rare.choice(("inner", "left"))
        return Aggregate(
            Join(kind, left, right, conjunction(bounds)), left.columns, tuple(made[self._rare.choice((0, 1)) :])
        )

    def _chained(self, left: Term) -> Term:
        """Distinct columns of three inputs whose values follow each other."""
        middle, right = self._scan(), self._scan()
        firsts = [column for column in left.columns if column.type == middle.columns[-1].type] or [middle.columns[0]]
        first, second, third = Ref(self._chains.choice(firsts)), Ref(middle.columns[-1]), Ref(right.columns[-1])
        one, other = self._chains.choice(("<", "<=", ">")), self._chains.choice(("<", "<="))
        both = conjunction([Compare(one, first, second), Compare(other, second, third)])
        rows = Join("inner", Join("inner", left, middle), right, both)
        return Distinct(projected(rows, (left.columns[-1], middle.columns[0], right.columns[0])))

    def _new(self, term: Term) -> NewColumns:
        new = NewColumns(term, Values((Column(self._number, "", ""),), ()))
        self._number += 1000
        return new

    def _one_row(self, term: Term) -> Term:
        """At most one row: what a single join may meet."""
        if self.random.random() < 0.5:
            return Aggregate(term, (), (self._aggregated(term.columns),))
        return Top(term, tuple(self._sort(Ref(column)) for column in term.columns), Constant("1", "BIGINT"))

    def _aggregate(self, input: Term, kind: str) -> Term:
        groups = self._some(input.columns) if kind == "group" else ()
        made = tuple(self._aggregated(input.columns) for _ in range(self.random.randrange(1, 3)))
        if len(groups) < 2 or self.random.random() < 0.7:
            return Aggregate(input, groups, made)
        sets = (frozenset(groups), frozenset(self._some(groups)))
        return Aggregate(input, groups, made, sets)

    def _by_numbers(self, input: Term) -> Term:
        """Groups by a difference of row numbers: values in a row of each value of another column, or runs of it."""
        kinds = [one for one in input.columns if one.type == "INTEGER"]
        value, part = self._rare.choice(kinds), self._rare.choice(kinds)
        rows = Distinct(Map(input, tuple(Made(one, Ref(one)) for one in dict.fromkeys((part, value)))))
        descends, nulls_first = (self._rare.random() < 0.2 for _ in range(2))
        order = (Sort(Ref(value), descends, nulls_first), Sort(Ref(part)))
        first, second = (self.column("BIGINT") for _ in range(2))
        numbers = [Windowed(first, "row_number()", (), (Ref(part),), order)]
        minuend: Scalar = Ref(value)
        if self._rare.random() < 0.5:
            numbers.append(Windowed(second, "row_number()", (), (), order))
            minuend = Ref(second)
        numbered, difference = Window(rows, tuple(numbers)), self.column("BIGINT")
        made = Made(difference, Call("{0} - {1}", (minuend, Ref(first)), "BIGINT", strict=True, can_fail=False))
        groups = Aggregate(
            Map(numbered, (*(Made(one, Ref(one)) for one in rows.columns), made)),
            (part, difference),
            (Aggregated(self.column("BIGINT"), "count(*)"),),
        )
        return Map(groups, tuple(Made(one, Ref(one)) for one in groups.columns if one != difference))

    def _division(self, input: Term) -> Term:
        """A quotient, often of the rows alone whose divisor is not zero."""
        numbers = [column for column in input.columns if column.type == "INTEGER"]
        if not numbers:
            return input
        divisor = Ref(self.random.choice(numbers))
        guard = Compare("<>", divisor, Constant("0", "INTEGER"))
        guarded = Filter(input, guard) if self.random.random() < 0.8 else input
        quotient = Call("({0} // {1})", (self.value(numbers), divisor), "INTEGER", strict=True)
        passed = tuple(Made(column, Ref(column)) for column in input.columns)
        if self.random.random() < 0.3:
            return Filter(guarded, Compare("<", quotient, Constant("2", "INTEGER")))
        return Map(guarded, (*passed, Made(self.column(), quotient)))

    def _windowed(self, columns: Sequence[Column]) -> Windowed:
        partition = tuple(map(Ref, self._some(columns)))
        if self.random.random() < 0.5:
            order = tuple(self._sort(Ref(column)) for column in columns)
            return Windowed(self.column("BIGINT"), "row_number()", (), partition, order)
        kept = self.condition(columns) if self.random.random() < 0.3 else TRUE
        return Windowed(self.column("HUGEINT"), "sum({0})", (self.value(columns),), partition, filter=kept)

    def _made(self, columns: Sequence[Column]) -> Made:
        return Made(self.column(), self.value(columns))

    def _aggregated(self, columns: Sequence[Column]) -> Aggregated:
        kept = self.condition(columns) if self.random.random() < 0.3 else TRUE
        name = self.random.choice(("count", "sum", "min", "max", "favg", "*"))
        if name == "*":
            return Aggregated(self.column("BIGINT"), "count(*)", filter=kept)
        kind = {"count": "BIGINT", "sum": "HUGEINT", "favg": "DOUBLE"}.get(name, "INTEGER")
        distinct = self.random.random() < 0.3
        return Aggregated(self.column(kind), name + "({before}{0})", (self.value(columns),), distinct, filter=kept)

    def _list(self, columns: Sequence[Column]) -> Scalar:
        parts = tuple(self.value(columns) for _ in range(2))
        return Call("list_filter([{0}, {1}], lambda x: x > 1)", parts, "INTEGER[]", can_fail=False)

    def _sort(self, value: Scalar) -> Sort:
        return Sort(value, self.random.random() < 0.5, self.random.random() < 0.5)

    def _some(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(column for column in columns if self.random.random() < 0.5)

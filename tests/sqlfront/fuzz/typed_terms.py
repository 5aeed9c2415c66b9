"""Random terms of the algebra over tables with columns of all types.

Orders have all columns of their input, so that DuckDB's answer to the text of a term leaves nothing open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from sqlfront.planner.algebra.rewriting import NewColumns, copied
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
    walk,
)
from tests.sqlfront.fuzz.typed_values import COUNT, LIST, NUMBER, RATIO, TRUTH, WHOLE, forms_of, sum_type, value_sql

OPERATORS: Sequence[Operator] = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
KINDS: Sequence[JoinKind] = ("inner", "inner", "inner", "left", "left", "full", "semi", "anti", "mark", "single")
OVER_TWO = ("join", "join", "join", "key", "set", "common", "copy")
OVER_ONE = ("filter", "map", "group", "group", "total", "distinct", "top", "window", "unnest")
MOST_SCANS, MOST_COLUMNS = 4, 9


class TypedTerms:
    """Makes terms over `tables`: columns by name with their types, by table. `k.id` is a key, `f.k_id` refers to it."""

    def __init__(self, random: Random, tables: Mapping[str, Mapping[str, str]]) -> None:
        self.random, self.tables, self._number = random, tables, 0
        self.types = sorted({type for columns in tables.values() for type in columns.values()})

    def query(self) -> Term:
        """A term of few tables and columns, with at least one column."""
        while True:
            self._number = 0
            term = self.term(self.random.choice((2, 3, 3)))
            scans = sum(isinstance(part, Scan) for part in walk(term))
            if 1 <= scans <= MOST_SCANS and 1 <= len(term.columns) <= MOST_COLUMNS:
                return term

    def term(self, depth: int, outer: Sequence[Column] = ()) -> Term:
        if depth == 0:
            return self._leaf(outer)
        kind = self.random.choice((*OVER_TWO, *OVER_ONE))
        match kind:
            case "join":
                return self._join(depth, outer)
            case "key":
                return self._by_key(self.term(depth - 1, outer))
            case "set":
                return self._set(depth, outer)
            case "common" if not outer:
                return self._common(depth)
            case "copy" if not outer:
                term = self.term(depth - 1)
                other, _ = copied(term, self._new(term))
                return Join(self.random.choice(("inner", "left")), term, other, self._tie(term.columns, other.columns))
        input = self.term(depth - 1, outer)
        return self._over(kind if kind in OVER_ONE else "filter", input, outer)

    # Leaves -------------------------------------------------------------------------------------------

    def _leaf(self, outer: Sequence[Column]) -> Term:
        if self.random.random() < 0.1:
            columns = tuple(self._column(self.random.choice(self.types)) for _ in range(2))
            made = self.random.randrange(4)
            return Values(columns, tuple(tuple(self._given(c.type, outer) for c in columns) for _ in range(made)))
        table = self._scan(self.random.choice(list(self.tables)))
        return Filter(table, self._tie(table.columns, outer)) if outer and self.random.random() < 0.8 else table

    def _scan(self, table: str) -> Scan:
        return Scan((table,), tuple((name, self._column(type)) for name, type in self.tables[table].items()))

    # Joins and set operations ---------------------------------------------------------------------------

    def _join(self, depth: int, outer: Sequence[Column]) -> Term:
        kind, left = self.random.choice(KINDS), self.term(depth - 1, outer)
        dependent = kind != "full" and self.random.random() < 0.35
        right = self.term(depth - 1, (*outer, *left.columns) if dependent else outer)
        if kind == "single":
            right = self._one_row(right)
        found = self._tie(left.columns, right.columns)
        mark = self._column(TRUTH) if kind == "mark" else None
        joined = Join(kind, left, right, TRUE if dependent and self.random.random() < 0.5 else found, dependent, mark)
        if mark is not None and self.random.random() < 0.7:
            return Filter(joined, Ref(mark) if self.random.random() < 0.5 else Not(Ref(mark)))
        return joined

    def _by_key(self, left: Term) -> Term:
        """A join to the key of a table, often by a foreign key, and often without that table's columns."""
        if self.random.random() < 0.6:
            left = self._scan("f")
        right = self._scan("k")
        kind: JoinKind = self.random.choice(("inner", "left", "semi", "anti"))
        joined: Term = Join(kind, left, right, Compare("=", self.value(NUMBER, left.columns, 0), Ref(right.columns[0])))
        if kind == "left" and self.random.random() < 0.4:
            joined = Filter(joined, IsNull(Ref(right.columns[0])))
        return joined if self.random.random() < 0.4 else self._kept(joined, left.columns)

    def _set(self, depth: int, outer: Sequence[Column]) -> Term:
        left, right = (self.term(depth - 1, outer) for _ in range(2))
        types = [self.random.choice(left.columns).type for _ in range(2)] if left.columns else [NUMBER]
        sides = [Map(one, tuple(self._made(type, one.columns) for type in types)) for one in (left, right)]
        kind = self.random.choice(("union", "union", "intersect", "except"))
        return SetOperation(kind, self.random.random() < 0.5, sides[0], sides[1], tuple(map(self._column, types)))

    def _common(self, depth: int) -> Term:
        shared = self.term(depth - 1)
        name = f"w{self._column(NUMBER).number}"
        left, right = (Common(name, shared, tuple(self._column(c.type) for c in shared.columns)) for _ in range(2))
        kind: JoinKind = self.random.choice(("inner", "left", "semi", "anti"))
        return Join(kind, left, right, self._tie(left.columns, right.columns))

    def _one_row(self, term: Term) -> Term:
        if self.random.random() < 0.6:
            return Aggregate(term, (), (self._aggregated(term.columns),))
        return Top(term, self._total(term.columns), Constant("1", "BIGINT"))

    # Operators over one input ---------------------------------------------------------------------------

    def _over(self, kind: str, input: Term, outer: Sequence[Column]) -> Term:
        random, columns = self.random, input.columns
        if not columns:
            return input
        match kind:
            case "map":
                made = tuple(self._made(random.choice(self.types), (*columns, *outer)) for _ in range(2))
                kept = self._some(columns, 0.5)
                return Map(input, (*(Made(one, Ref(one)) for one in kept), *made))
            case "group":
                groups = self._some(columns, 0.35)[:3]
                made_of = tuple(self._aggregated(columns) for _ in range(random.randrange(3)))
                some = frozenset(self._some(groups, 0.5))
                sets = (frozenset(groups), some) if len(groups) > 1 and random.random() < 0.2 else None
                return Aggregate(input, groups or columns[:1], made_of, sets)
            case "total":
                return Aggregate(input, (), tuple(self._aggregated(columns) for _ in range(random.randrange(1, 4))))
            case "distinct":
                first = random.random() < 0.4
                on = self._some(columns, 0.4) or columns[:1] if first else None
                return Distinct(input, on, self._total(columns) if first else ())
            case "top":
                limit, offset = (Constant(str(random.randrange(most)), "BIGINT") for most in (6, 2))
                some = random.random() < 0.85
                return Top(input, self._total(columns), limit if some else None, offset if some else None)
            case "window":
                found = tuple(self._windowed(columns) for _ in range(random.randrange(1, 3)))
                above = Window(input, found)
                number = [one.column for one in found if one.form == "row_number()"]
                bound = Constant("2", "INTEGER")
                return (
                    Filter(above, Compare("<=", Ref(number[0]), bound)) if number and random.random() < 0.6 else above
                )
            case "unnest":
                lists = tuple(
                    Made(self._column(NUMBER), self.value(LIST, (*columns, *outer)))
                    for _ in range(random.choice((1, 1, 2)))
                )
                return Unnest(input, lists, self._column(COUNT), random.random() < 0.4)
        return Filter(input, self.condition((*columns, *outer)))

    def _aggregated(self, columns: Sequence[Column]) -> Aggregated:
        random = self.random
        kept = self.condition(columns, 0) if random.random() < 0.2 else TRUE
        argument = random.choice(columns)
        value: Scalar = Ref(argument) if random.random() < 0.7 else self.value(argument.type, columns)
        kind, total = argument.type, sum_type(argument.type)
        name = random.choice(("count", "star", "sum", "sum", "avg", "min", "max", "list", "text", "median", "bool"))
        distinct = random.random() < 0.2
        if name in ("sum", "avg") and total is not None:
            form, made = f"{name}({{before}}{{0}})", total if name == "sum" else RATIO
            return Aggregated(self._column(made), form, (value,), distinct, filter=kept)
        if name in ("min", "max"):
            return Aggregated(self._column(kind), f"{name}({{before}}{{0}})", (value,), filter=kept)
        if name == "list" and kind == NUMBER:
            some = distinct and isinstance(value, Ref)  # DuckDB may not see that an expression is in the argument list.
            return Aggregated(self._column(LIST), "list({before}{0}{behind})", (value,), some, (Sort(value),), kept)
        if name == "text" and kind == "VARCHAR":
            form = "string_agg({before}{0}, '-'{behind})"
            return Aggregated(self._column(kind), form, (value,), False, (Sort(value),), kept)
        if name == "median" and kind in WHOLE:
            return Aggregated(self._column(kind), "quantile_disc({before}{0}, 0.5)", (value,), filter=kept)
        if name == "bool" and kind == TRUTH:
            return Aggregated(self._column(TRUTH), "bool_and({before}{0})", (value,), filter=kept)
        if name == "star":
            return Aggregated(self._column(COUNT), "count(*)", filter=kept)
        return Aggregated(self._column(COUNT), "count({before}{0})", (value,), distinct, filter=kept)

    def _windowed(self, columns: Sequence[Column]) -> Windowed:
        random, partition = self.random, tuple(map(Ref, self._some(columns, 0.35)))
        order, argument = self._total(columns), random.choice(columns)
        total = sum_type(argument.type)
        match random.randrange(6):
            case 0 | 1:
                return Windowed(self._column(COUNT), "row_number()", (), partition, order)
            case 2:
                some = tuple(self._sort(one) for one in random.sample(list(columns), 1))
                return Windowed(self._column(COUNT), random.choice(("rank()", "dense_rank()")), (), partition, some)
            case 3:
                form = random.choice(("lag({0})", "first_value({0})", "lead({0}, 2)"))
                return Windowed(self._column(argument.type), form, (Ref(argument),), partition, order)
            case 4 if total is not None:
                frame = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
                return Windowed(self._column(total), "sum({0})", (Ref(argument),), partition, order, frame)
        return Windowed(self._column(argument.type), "max({0})", (Ref(argument),), partition)

    # Expressions ----------------------------------------------------------------------------------------

    def value(self, type: str, columns: Sequence[Column], depth: int = 1) -> Scalar:
        own = [column for column in columns if column.type == type]
        chance = self.random.random()
        if depth and chance < 0.35:
            form = self.random.choice(forms_of(type))
            parts = tuple(
                self.condition(columns, 0) if part == TRUTH and type != TRUTH else self.value(part, columns, depth - 1)
                for part in form.arguments
            )
            return Call(form.sql, parts, type, form.strict, can_fail=False)
        return self._given(type, ()) if not own or chance > 0.92 else Ref(self.random.choice(own))

    def condition(self, columns: Sequence[Column], depth: int = 1) -> Scalar:
        random = self.random
        if depth and random.random() < 0.4:
            parts = tuple(self.condition(columns, depth - 1) for _ in range(2))
            return Not(parts[0]) if random.random() < 0.2 else Logic(random.choice(("AND", "OR")), parts)
        type = random.choice(columns).type
        if random.random() < 0.15:
            return IsNull(self.value(type, columns))
        other = self._given(type, ()) if random.random() < 0.35 else self.value(type, columns)
        operator: Operator = "=" if random.random() < 0.3 else random.choice(OPERATORS)
        return Compare(operator, self.value(type, columns, 0), other)

    def _tie(self, left: Sequence[Column], right: Sequence[Column]) -> Scalar:
        """A condition on rows of both sides, mostly with an equality."""
        pairs = [(one, other) for one in left for other in right if one.type == other.type]
        if not pairs:
            return self.condition((*left, *right)) if left or right else TRUE
        one, other = self.random.choice(pairs)
        operator: Operator = "=" if self.random.random() < 0.8 else self.random.choice(OPERATORS)
        more = [self.condition((*left, *right))] if self.random.random() < 0.3 else []
        return conjunction([Compare(operator, Ref(one), Ref(other)), *more])

    def _given(self, type: str, outer: Sequence[Column]) -> Scalar:
        own = [column for column in outer if column.type == type]
        if own and self.random.random() < 0.5:
            return Ref(self.random.choice(own))
        return Constant(value_sql("DOUBLE" if type == RATIO else type, self.random), type)

    def _made(self, type: str, columns: Sequence[Column]) -> Made:
        return Made(self._column(type), self.value(type, columns))

    def _kept(self, term: Term, columns: Sequence[Column]) -> Map:
        return Map(term, tuple(Made(self._column(column.type), Ref(column)) for column in columns))

    def _column(self, type: str) -> Column:
        self._number += 1
        return Column(self._number, f"x{self._number}", type)

    def _new(self, term: Term) -> NewColumns:
        new = NewColumns(term, Values((Column(self._number, "", ""),), ()))
        self._number += 1000
        return new

    def _some(self, columns: Sequence[Column], share: float) -> tuple[Column, ...]:
        return tuple(column for column in columns if self.random.random() < share)

    def _total(self, columns: Sequence[Column]) -> tuple[Sort, ...]:
        return tuple(map(self._sort, self.random.sample(list(columns), len(columns))))

    def _sort(self, column: Column) -> Sort:
        return Sort(Ref(column), self.random.random() < 0.5, self.random.random() < 0.5)

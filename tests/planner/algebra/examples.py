"""Worked examples of the rewrite rules: the terms before, by rule and title. tests/fixtures/algebra has them printed.

Neumann and Kemper's are the queries of Unnesting arbitrary queries, BTW 2015.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.algebra.rewriting import passed
from sqlfront.planner.algebra.row_facts import Facts, ForeignKey
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
    null,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Common,
    Distinct,
    Filter,
    Join,
    Made,
    Map,
    Recursion,
    Recursive,
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

SCHEMAS = {
    "students": ("id", "name", "major", "year"),
    "exams": ("sid", "course", "curriculum", "grade", "date"),
    "r": ("a", "b"),
    "s": ("b", "c"),
    "t": ("c", "d"),
    "orders": ("id", "customer", "price"),
    "customers": ("id", "region"),
}
FACTS = Facts(
    lambda table: [frozenset({"id"})] if table[0] in ("orders", "customers") else [],
    lambda table: [ForeignKey(("customer",), ("customers",), ("id",))] if table == ("orders",) else [],
)


class Query:
    """Makes the terms of one query."""

    def __init__(self) -> None:
        self._number = 0

    def column(self, name: str, type: str = "INTEGER") -> Column:
        self._number += 1
        return Column(self._number, name, type)

    def scan(self, table: str, names: str = "", prefix: str = "") -> Scan:
        """A table; its columns are called by their names there with a prefix."""
        read = names.split() or SCHEMAS[table]
        return Scan((table,), tuple((name, self.column(prefix + name)) for name in read))

    def one(self, name: str, form: str, *arguments: Scalar, type: str = "BIGINT") -> Aggregated:
        return Aggregated(self.column(name, type), form, arguments)

    def total(self, input: Term, name: str, form: str, *arguments: Scalar, type: str = "BIGINT") -> Aggregate:
        return Aggregate(input, (), (self.one(name, form, *arguments, type=type),))

    def made(self, name: str, value: Scalar) -> Made:
        return Made(self.column(name, value.type), value)


def col(term: Term, name: str) -> Ref:
    (found,) = (column for column in term.columns if column.name == name)
    return Ref(found)


def cols(term: Term, names: str) -> tuple[Column, ...]:
    return tuple(col(term, name).column for name in names.split())


def number(value: int, type: str = "INTEGER") -> Constant:
    return Constant(str(value), type)


def compare(left: Scalar, operator: Operator, right: Scalar) -> Compare:
    return Compare(operator, left, right)


def eq(left: Scalar, right: Scalar) -> Compare:
    return Compare("=", left, right)


def both(*parts: Scalar) -> Scalar:
    return Logic("AND", parts)


def either(*parts: Scalar) -> Scalar:
    return Logic("OR", parts)


def kept(term: Term, names: str) -> Map:
    return Map(term, tuple(Made(column, Ref(column)) for column in cols(term, names)))


def divided(left: Scalar, right: Scalar) -> Call:
    return Call("{0} // {1}", (left, right), "INTEGER", strict=True)


def plus(left: Scalar, right: Scalar, type: str) -> Call:
    return Call("{0} + {1}", (left, right), type, strict=True, can_fail=False)


def best_exams() -> Term:
    """Neumann and Kemper's Q1: each student's best exams."""
    q = Query()
    s, e, other = (
        q.scan("students", "id name"),
        q.scan("exams", "sid course grade"),
        q.scan("exams", "sid grade", "e2_"),
    )
    joined = Join("inner", s, e, eq(col(s, "id"), col(e, "sid")))
    mine = Filter(other, eq(col(s, "id"), col(other, "e2_sid")))
    least = q.total(mine, "best", "min({before}{0})", col(other, "e2_grade"), type="INTEGER")
    rows = Join("single", joined, least, dependent=True)
    return kept(Filter(rows, eq(col(e, "grade"), col(least, "best"))), "name course")


def worse_than_average() -> Term:
    """Neumann and Kemper's Q2: a subquery whose condition is an OR of an equality and an inequality."""
    q = Query()
    s, e = q.scan("students"), q.scan("exams", "sid course grade")
    other = q.scan("exams", "sid curriculum grade date", "e2_")
    joined = Join("inner", s, e, eq(col(s, "id"), col(e, "sid")))
    majors = either(eq(col(s, "major"), number(1)), eq(col(s, "major"), number(2)))
    same = both(eq(col(other, "e2_curriculum"), col(s, "major")), compare(col(s, "year"), ">", col(other, "e2_date")))
    mine = Filter(other, either(eq(col(s, "id"), col(other, "e2_sid")), same))
    average = q.total(mine, "average", "avg({before}{0})", col(other, "e2_grade"), type="DOUBLE")
    more = Map(average, (q.made("bound", plus(col(average, "average"), number(1), "DOUBLE")),))
    rows = Join("single", Filter(joined, majors), more, dependent=True)
    return kept(Filter(rows, compare(col(e, "grade"), ">=", col(more, "bound"))), "name course")


def counted_rows() -> Term:
    """A count of no rows is 0."""
    q = Query()
    r, s = q.scan("r"), q.scan("s")
    count = q.total(Filter(s, eq(col(s, "b"), col(r, "a"))), "n", "count(*)")
    return Join("single", r, count, dependent=True)


def distinct_list() -> Term:
    """What an aggregate is over no rows that is not known here: DuckDB says it."""
    q = Query()
    r, s = q.scan("r"), q.scan("s")
    total = q.total(Filter(s, eq(col(s, "b"), col(r, "a"))), "e", "entropy({before}{0})", col(s, "c"), type="DOUBLE")
    return Join("single", r, total, dependent=True)


def subtotals() -> Term:
    """Grouping sets, of which the empty one has a row over no rows."""
    q = Query()
    r, s = q.scan("r"), q.scan("s")
    mine = Filter(s, eq(col(s, "b"), col(r, "a")))
    sets = (frozenset(cols(s, "c")), frozenset[Column]())
    total = Aggregate(mine, cols(s, "c"), (q.one("n", "count(*)"),), sets)
    return Join("inner", r, total, dependent=True)


def exists() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s")
    return Join("semi", r, Filter(s, compare(col(s, "b"), "<", col(r, "a"))), dependent=True)


def not_in() -> Term:
    """NOT IN with a condition on the outer row: the mark is NULL where only a NULL could be equal."""
    q = Query()
    r, s = q.scan("r"), q.scan("s")
    mine = Filter(s, compare(col(s, "c"), ">", col(r, "b")))
    mark = q.column("found", "BOOLEAN")
    rows = Join("mark", r, mine, eq(col(r, "a"), col(s, "b")), dependent=True, mark=mark)
    return kept(Filter(rows, Not(Ref(mark))), "a b")


def three_deep() -> Term:
    """The innermost subquery reads the outermost row and the one between."""
    q = Query()
    r, s, t = q.scan("r"), q.scan("s", prefix="s_"), q.scan("t", prefix="t_")
    inner = Filter(t, both(eq(col(t, "t_c"), col(s, "s_c")), compare(col(t, "t_d"), "<", col(r, "b"))))
    count = q.total(inner, "n", "count(*)")
    rows = Join("single", Filter(s, eq(col(s, "s_b"), col(r, "a"))), count, dependent=True)
    total = q.total(rows, "total", "sum({before}{0})", col(count, "n"), type="HUGEINT")
    return Join("single", r, total, dependent=True)


def first_of_each() -> Term:
    """LATERAL with ORDER BY and LIMIT."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    mine = Filter(s, compare(col(s, "s_b"), ">=", col(r, "a")))
    top = Top(mine, (Sort(col(s, "s_b")), Sort(col(s, "s_c"))), number(1, "BIGINT"))
    return Join("left", r, top, dependent=True)


def second_and_third_of_each() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    mine = Filter(s, compare(col(s, "s_b"), ">=", col(r, "a")))
    order = (Sort(col(s, "s_b")), Sort(col(s, "s_c")))
    return Join("inner", r, Top(mine, order, number(2, "BIGINT"), number(1, "BIGINT")), dependent=True)


def nearest_inside() -> Term:
    """An as-of join of two sides that read the outer row."""
    q = Query()
    r, s, t = q.scan("r"), q.scan("s", prefix="s_"), q.scan("t", prefix="t_")
    first = Filter(s, compare(col(s, "s_b"), "<=", col(r, "a")))
    second = Distinct(Filter(t, compare(col(t, "t_d"), "<>", col(r, "b"))), cols(t, "t_c"), (Sort(col(t, "t_d")),))
    near = Join("as-of", first, second, compare(col(s, "s_c"), ">=", col(t, "t_c")))
    return Join("inner", r, near, dependent=True)


def union_inside() -> Term:
    q = Query()
    r, s, t = q.scan("r"), q.scan("s", prefix="s_"), q.scan("t", prefix="t_")
    first = kept(Filter(s, eq(col(s, "s_b"), col(r, "a"))), "s_c")
    second = kept(Filter(t, eq(col(t, "t_c"), col(r, "b"))), "t_d")
    return Join("inner", r, SetOperation("union", False, first, second, (q.column("v"),)), dependent=True)


def lists() -> Term:
    q = Query()
    r = q.scan("r")
    pair = Call("[{0}, {1}]", (col(r, "a"), col(r, "b")), "INTEGER[]", can_fail=False)
    return Join("inner", r, Unnest(Values((), ((),)), (Made(q.column("e"), pair),)), dependent=True)


def counting_down() -> Term:
    """What a recursion reads stays dependent."""
    q = Query()
    r = q.scan("r")
    base = Map(Values((), ((),)), (q.made("start", col(r, "a")),))
    before = Recursive("steps", (q.column("before"),))
    less = plus(col(before, "before"), number(-1), "INTEGER")
    step = Map(Filter(before, compare(col(before, "before"), ">", number(0))), (q.made("next", less),))
    return Join("inner", r, Recursion("steps", base, step, (q.column("x"),), True), dependent=True)


def three_maps() -> Term:
    q = Query()
    r = q.scan("r")
    first = Map(r, (q.made("x", plus(col(r, "a"), number(1), "INTEGER")), Made(col(r, "b").column, col(r, "b"))))
    second = Map(
        Filter(first, compare(col(first, "b"), "<>", number(0))),
        (q.made("y", divided(col(first, "x"), col(first, "b"))), q.made("z", col(first, "b"))),
    )
    return Map(second, (q.made("u", col(second, "y")), q.made("v", col(second, "z")), q.made("w", col(second, "z"))))


def twice_computed() -> Term:
    """A value that is read twice is computed once."""
    q = Query()
    r = q.scan("r")
    first = Map(r, (q.made("x", plus(col(r, "a"), col(r, "b"), "INTEGER")),))
    return Map(first, (q.made("y", col(first, "x")), q.made("z", plus(col(first, "x"), number(1), "INTEGER"))))


def summed_map() -> Term:
    q = Query()
    r = q.scan("r")
    made = Map(r, (Made(col(r, "a").column, col(r, "a")), q.made("x", plus(col(r, "a"), col(r, "b"), "INTEGER"))))
    return Aggregate(made, cols(made, "a"), (q.one("total", "sum({before}{0})", col(made, "x"), type="HUGEINT"),))


def above_everything() -> Term:
    """Conditions on groups, partitions and both sides of a join."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    joined = Join("inner", r, s)
    partition = (col(r, "a"),)
    ranked = Window(joined, (Windowed(q.column("n", "BIGINT"), "count(*)", partition=partition),))
    group = Aggregate(ranked, cols(ranked, "a s_b"), (q.one("m", "max({before}{0})", col(ranked, "n")),))
    conditions = (
        eq(col(r, "a"), col(s, "s_b")),
        compare(col(r, "a"), ">", number(1)),
        compare(col(group, "m"), ">", number(1, "BIGINT")),
    )
    return Filter(group, both(*conditions))


def left_join_conditions() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    on = both(
        eq(col(r, "a"), col(s, "s_b")), compare(col(s, "s_c"), ">", number(1)), compare(col(r, "b"), ">", number(0))
    )
    rows = Join("left", r, s, on)
    return Filter(rows, both(compare(col(r, "a"), "<", number(3)), IsNull(col(s, "s_c"))))


def guarded_division() -> Term:
    """A quotient is computed where the filter below it says so, and the filter on the quotient stays above."""
    q = Query()
    r = q.scan("r")
    guarded = Filter(r, compare(col(r, "b"), "<>", number(0)))
    quotient = Map(guarded, (Made(col(r, "a").column, col(r, "a")), q.made("x", divided(number(10), col(r, "b")))))
    return Filter(quotient, both(compare(col(quotient, "x"), ">", number(2)), compare(col(r, "a"), ">", number(0))))


def both_sides_of_a_union() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    rows = SetOperation("except", False, r, s, (q.column("x"), q.column("y")))
    return Filter(Distinct(rows), compare(col(rows, "x"), ">", number(1)))


def missing_partner() -> Term:
    q = Query()
    r, s, t = q.scan("r"), q.scan("s", prefix="s_"), q.scan("t", prefix="t_")
    first = Join("left", r, s, eq(col(r, "a"), col(s, "s_b")))
    second = Join("left", first, t, eq(col(s, "s_c"), col(t, "t_c")))
    return Filter(second, compare(col(t, "t_d"), ">", number(0)))


def full_to_left() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    return Filter(Join("full", r, s, eq(col(r, "a"), col(s, "s_b"))), compare(col(s, "s_c"), "<", number(2)))


def missing_alone() -> Term:
    """The partner's key is NULL only where there is no partner; its other column may be NULL too."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    joined = Join("left", r, s, eq(col(r, "a"), col(s, "s_b")))
    return Filter(joined, both(IsNull(col(s, "s_b")), compare(col(r, "b"), ">", number(0)), IsNull(col(s, "s_c"))))


def null_or_missing() -> Term:
    """A column that may be NULL with a partner tells nothing."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    return Filter(Join("left", r, s, eq(col(r, "a"), col(s, "s_b"))), IsNull(col(s, "s_c")))


def behind_a_computed_column() -> Term:
    """A computed column of the partner is compared, so the column that it is strict in is not NULL."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    double = q.made("d", Call("{0} * {1}", (col(s, "s_c"), number(2)), "INTEGER", strict=True))
    right = Map(s, (*passed(s.columns), double))
    joined = Join("left", r, right, both(eq(col(r, "a"), col(s, "s_b")), compare(Ref(double.column), ">", col(r, "b"))))
    return Filter(joined, IsNull(col(s, "s_c")))


def equal_to_null() -> Term:
    """IS NOT DISTINCT FROM NULL is IS NULL."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    joined = Join("left", r, s, eq(col(r, "a"), col(s, "s_b")))
    return Filter(joined, Compare("IS NOT DISTINCT FROM", col(s, "s_b"), null("INTEGER")))


def required_mark() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    mark = q.column("found", "BOOLEAN")
    rows = Join("mark", r, s, eq(col(r, "a"), col(s, "s_b")), mark=mark)
    return kept(Filter(rows, both(Ref(mark), compare(col(r, "b"), ">", number(0)))), "a b")


def refused_mark() -> Term:
    """NOT EXISTS as a mark: its condition is NULL for no pair of rows, so it is an anti join."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    mine, mark = Filter(s, eq(col(r, "a"), col(s, "s_b"))), q.column("found", "BOOLEAN")
    return kept(Filter(Join("mark", r, mine, dependent=True, mark=mark), Not(Ref(mark))), "a b")


def single_group() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    group = Aggregate(s, cols(s, "s_b"), (q.one("n", "count(*)"),))
    return Join("single", r, group, eq(col(r, "a"), col(s, "s_b")))


def negated() -> Term:
    q = Query()
    r = q.scan("r")
    less, null = compare(col(r, "a"), "<", col(r, "b")), IsNull(col(r, "a"))
    return Filter(r, both(Not(either(less, null)), either(Constant("false", "BOOLEAN"), eq(col(r, "b"), number(1)))))


def negated_sum() -> Term:
    """NOT of a comparison that may overflow."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    more = Call("{0} + {1}", (col(r, "a"), number(1)), "INTEGER", strict=True)
    return Filter(Join("inner", r, s), both(Not(compare(col(s, "s_b"), ">", more)), compare(more, "<", col(s, "s_c"))))


def shared_by_branches() -> Term:
    """TPC-H query 19: the condition of the join is in every branch."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    joined = eq(col(r, "a"), col(s, "s_b"))
    first = both(joined, eq(col(r, "b"), number(1)), eq(col(s, "s_c"), number(2)))
    second = both(joined, eq(col(r, "b"), number(2)), eq(col(s, "s_c"), number(3)))
    return Join("inner", r, s, either(first, second))


def too_many_branches() -> Term:
    """An OR that would grow too much stays one."""
    q = Query()
    r = q.scan("r")
    ranges = (both(compare(col(r, "a"), ">", number(n)), compare(col(r, "b"), "<", number(n))) for n in range(5))
    return Filter(r, either(*ranges))


def equal_or_both_null() -> Term:
    """A domain of outer values none of which is NULL where its right side has rows."""
    q = Query()
    r, s, t = q.scan("r"), q.scan("s", prefix="s_"), q.scan("t", prefix="t_")
    joined = Join("inner", s, t, compare(col(s, "s_c"), "<", col(t, "t_c")))
    group = Aggregate(joined, cols(joined, "s_c"), (q.one("n", "count(*)"),))
    return Join("left", r, group, compare(col(r, "a"), "IS NOT DISTINCT FROM", col(group, "s_c")))


def constant_of_a_class() -> Term:
    q = Query()
    r, s, t = q.scan("r"), q.scan("s", prefix="s_"), q.scan("t", prefix="t_")
    first = Join("inner", r, s, eq(col(r, "b"), col(s, "s_b")))
    rows = Join("left", Filter(first, eq(col(r, "b"), number(2))), t, eq(col(s, "s_b"), col(t, "t_c")))
    return kept(rows, "a t_d")


def implied_by_branches() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    first = both(eq(col(r, "b"), number(1)), eq(col(s, "s_c"), number(2)))
    second = both(eq(col(r, "b"), number(2)), eq(col(s, "s_c"), number(3)))
    return Join("inner", r, s, both(eq(col(r, "a"), col(s, "s_b")), either(first, second)))


def unread_columns() -> Term:
    q = Query()
    students, exams = q.scan("students"), q.scan("exams")
    joined = Join("inner", students, exams, eq(col(students, "id"), col(exams, "sid")))
    more = (q.one("n", "count(*)"), q.one("best", "min({before}{0})", col(exams, "grade"), type="INTEGER"))
    return kept(Aggregate(joined, cols(joined, "major"), more), "best")


def countdown() -> Term:
    """A recursion keeps its columns, for rows are told apart by all of them."""
    q = Query()
    r = q.scan("r")
    before = Recursive("steps", (q.column("x"), q.column("y")))
    less = (q.made("x", plus(col(before, "x"), number(-1), "INTEGER")), q.made("y", col(before, "y")))
    step = Map(Filter(before, compare(col(before, "x"), ">", number(0))), less)
    rows = Recursion("steps", r, step, (q.column("u"), q.column("v")), False)
    return kept(Filter(rows, compare(col(rows, "u"), "<", number(2))), "u")


def unread_shared() -> Term:
    q = Query()
    students = q.scan("students")
    uses = [Common("w", students, tuple(q.column(prefix + one.name) for one in students.columns)) for prefix in "xy"]
    rows = Join("inner", uses[0], uses[1], eq(col(uses[0], "xid"), col(uses[1], "yid")))
    return kept(rows, "xname yyear")


def distinct_key() -> Term:
    q = Query()
    orders, customers = q.scan("orders"), q.scan("customers", prefix="c_")
    rows = Join("inner", orders, customers, eq(col(orders, "customer"), col(customers, "c_id")))
    return Distinct(kept(rows, "id price c_region"))


def distinct_right() -> Term:
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    return Join("anti", r, Distinct(s), eq(col(r, "a"), col(s, "s_b")))


def first_row_of_each() -> Term:
    q = Query()
    r = q.scan("r")
    return kept(Distinct(r, cols(r, "a"), (Sort(col(r, "b"), descending=True),)), "b")


def unread_customer() -> Term:
    q = Query()
    orders, customers = q.scan("orders"), q.scan("customers", prefix="c_")
    return kept(Join("left", orders, customers, eq(col(orders, "customer"), col(customers, "c_id"))), "id price")


def existing_customer() -> Term:
    q = Query()
    orders, customers = q.scan("orders"), q.scan("customers", prefix="c_")
    return Join("semi", orders, customers, eq(col(orders, "customer"), col(customers, "c_id")))


def ordered_inside() -> Term:
    q = Query()
    r = q.scan("r")
    return Distinct(Top(r, (Sort(col(r, "a")),)))


def ranked_groups() -> Term:
    """ORDER BY an aggregate with LIMIT stays: a ranked view over the grouped one."""
    q = Query()
    r = q.scan("r")
    group = Aggregate(r, cols(r, "a"), (q.one("n", "count(*)"),))
    inside = Top(group, (Sort(col(group, "n"), descending=True), Sort(col(r, "a"))), number(2, "BIGINT"))
    return Top(kept(inside, "a n"), (Sort(col(r, "a")),))


def equal_groups() -> Term:
    q = Query()
    sides = []
    for prefix in "xy":
        r = q.scan("r", prefix=prefix)
        sides.append(Aggregate(r, cols(r, f"{prefix}a"), (q.one(f"{prefix}n", "count(*)"),)))
    return Join("inner", *sides, compare(col(sides[0], "xn"), "<", col(sides[1], "yn")))


def nearest_price() -> Term:
    """QUALIFY over the partners of each order, whose id is a key: the last of s before it, NULLs first among ties."""
    q = Query()
    orders, s = q.scan("orders"), q.scan("s", prefix="s_")
    joined = Join(
        "inner",
        orders,
        s,
        both(eq(col(s, "s_b"), col(orders, "customer")), compare(col(s, "s_c"), "<=", col(orders, "price"))),
    )
    order = (Sort(col(s, "s_c"), descending=True), Sort(col(orders, "id")), Sort(col(s, "s_b"), nulls_first=True))
    first = Windowed(q.column("n", "BIGINT"), "row_number()", partition=(col(orders, "id"),), order=order)
    window = Window(joined, (first,))
    return Filter(window, both(eq(col(window, "n"), number(1)), compare(col(orders, "price"), ">", number(0))))


def next_of_distinct() -> Term:
    """LATERAL with LIMIT 1 that is no dependent join any more: the next of s after each distinct row."""
    q = Query()
    s, r = q.scan("s", prefix="s_"), Distinct(q.scan("r"))
    joined = Join("inner", s, r, both(eq(col(s, "s_b"), col(r, "a")), compare(col(r, "b"), "<", col(s, "s_c"))))
    made = [q.made(name, col(joined, name)) for name in ("a", "b", "s_c")]
    rows = Map(joined, tuple(made))
    by = (Ref(made[0].column), Ref(made[1].column))
    first = Windowed(q.column("n", "BIGINT"), "row_number()", partition=by, order=(Sort(Ref(made[2].column)),))
    window = Window(rows, (first,))
    return Filter(window, compare(col(window, "n"), "<=", number(1)))


def first_partner_within_bounds() -> Term:
    """DISTINCT ON over a left join, whose nearest partner may be beyond the other bound."""
    q = Query()
    orders, s = q.scan("orders"), q.scan("s", prefix="s_")
    bounds = compare(col(s, "s_c"), ">=", col(orders, "price")), compare(col(s, "s_c"), "<", col(orders, "customer"))
    joined = Join("left", orders, s, both(*bounds, compare(col(orders, "price"), ">", number(0))))
    order = (Sort(col(orders, "id")), Sort(col(s, "s_c")), Sort(col(s, "s_b"), nulls_first=True))
    return Distinct(joined, cols(orders, "id"), order)


def without_a_later_row() -> Term:
    """NOT EXISTS of a row that is greater, with a condition of each side."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    own = compare(col(r, "b"), ">", number(0)), compare(col(s, "s_c"), "<>", number(7))
    return Join("anti", r, s, both(eq(col(r, "a"), col(s, "s_b")), compare(col(s, "s_c"), ">", col(r, "b")), *own))


def without_a_row_between() -> Term:
    """The nearest row of the right may be beyond the other bound."""
    q = Query()
    orders, s = q.scan("orders"), q.scan("s", prefix="s_")
    bounds = compare(col(s, "s_c"), ">=", col(orders, "price")), compare(col(s, "s_c"), "<", col(orders, "customer"))
    return Join("anti", orders, s, both(*bounds))


def without_a_later_row_or_tie() -> Term:
    """Of equal rows, the one with the greater key is later."""
    q = Query()
    orders, later = q.scan("orders"), q.scan("orders", prefix="later_")
    same = eq(col(orders, "customer"), col(later, "later_customer"))
    greater = compare(col(later, "later_price"), ">", col(orders, "price"))
    tie = both(
        eq(col(orders, "price"), col(later, "later_price")),
        compare(col(later, "later_id"), ">", col(orders, "id")),
    )
    return Join("anti", orders, later, both(same, Logic("OR", (greater, tie))))


def joined_without_a_later_row() -> Term:
    """The part of a join that the condition reads: the join is not stored."""
    q = Query()
    r, t, s = q.scan("r"), q.scan("t"), q.scan("s", prefix="s_")
    joined = Join("inner", Filter(r, compare(col(r, "a"), ">", number(0))), t, eq(col(r, "b"), col(t, "c")))
    rows = Filter(joined, compare(col(t, "d"), "<>", col(r, "a")))
    return Join("anti", rows, s, both(eq(col(r, "a"), col(s, "s_b")), compare(col(s, "s_c"), ">", col(r, "b"))))


def of_both_sides_without_a_later_row() -> Term:
    """The condition reads both sides of a join: it stays as it is."""
    q = Query()
    r, t, s = q.scan("r"), q.scan("t"), q.scan("s", prefix="s_")
    joined = Join("inner", r, t, eq(col(r, "b"), col(t, "c")))
    return Join("anti", joined, s, both(eq(col(r, "a"), col(s, "s_b")), compare(col(s, "s_c"), ">", col(t, "d"))))


def with_a_row_between() -> Term:
    q = Query()
    orders, s = q.scan("orders"), q.scan("s", prefix="s_")
    bounds = compare(col(s, "s_c"), ">=", col(orders, "price")), compare(col(s, "s_c"), "<", col(orders, "customer"))
    return Join("semi", orders, s, both(*bounds))


def range_of_each_order() -> Term:
    """Extremes of the partners within a range, which are NULL where all are, and their number, by a key."""
    q = Query()
    orders, s = q.scan("orders"), q.scan("s", prefix="s_")
    bounds = compare(col(s, "s_c"), ">=", col(orders, "price")), compare(col(s, "s_c"), "<", col(orders, "customer"))
    joined = Join("inner", orders, s, both(*bounds))
    made = (
        q.one("least", "min({before}{0})", col(s, "s_b"), type="INTEGER"),
        q.one("greatest", "max({before}{0})", col(s, "s_b"), type="INTEGER"),
        q.one("n", "count(*)"),
    )
    return Aggregate(joined, cols(orders, "id"), made)


def latest_of_each_pair() -> Term:
    """max, arg_max and last by the compared column: arg_max is over the values that are not NULL."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    joined = Join("inner", s, r, both(eq(col(s, "s_b"), col(r, "a")), compare(col(r, "b"), ">", col(s, "s_c"))))
    made = (
        q.one("latest", "max({before}{0})", col(s, "s_c"), type="INTEGER"),
        q.one("value", "arg_max({before}{0}, {1})", col(s, "s_b"), col(s, "s_c"), type="INTEGER"),
        replace(
            q.one("last", "last({before}{0}{behind})", col(s, "s_b"), type="INTEGER"), order=(Sort(col(s, "s_c")),)
        ),
    )
    return Aggregate(joined, cols(r, "a b"), made)


def greatest_of_each_group() -> Term:
    """Bounds of two columns of s, and several rows of r in a group: the greatest of what each row of r finds."""
    q = Query()
    r, s = q.scan("r"), q.scan("s", prefix="s_")
    bounds = compare(col(s, "s_b"), "<=", col(r, "b")), compare(col(r, "b"), "<", col(s, "s_c"))
    made = (q.one("greatest", "max({before}{0})", col(s, "s_c"), type="INTEGER"), q.one("n", "count(*)"))
    return Aggregate(Join("inner", r, s, both(*bounds)), cols(r, "a"), made)


def groups_in_a_chain() -> Term:
    """Groups with values in a chain: the first have their least, the last their greatest, the others the next."""
    q = Query()
    r, s, t = q.scan("r"), q.scan("s", prefix="s_"), q.scan("t", prefix="t_")
    chain = Join("inner", r, s, compare(col(r, "a"), "<", col(s, "s_b")))
    return Distinct(kept(Join("inner", chain, t, compare(col(s, "s_b"), "<=", col(t, "t_d"))), "b s_c t_c"))


def counted_in_a_range() -> Term:
    """The number of distinct values within a range of each key: a value's least row within it is counted."""
    q = Query()
    orders, s = q.scan("orders"), q.scan("s")
    within = both(compare(col(s, "c"), ">=", col(orders, "price")), compare(col(s, "c"), "<", col(orders, "customer")))
    counted = replace(q.one("n", "count({before}{0}{behind})", col(s, "b")), distinct=True)
    return Aggregate(Join("inner", orders, s, within), cols(orders, "id"), (counted,))


def values_in_a_row() -> Term:
    """Each value of r once: the first and the number of values in a row."""
    q = Query()
    r = Distinct(q.scan("r"))
    by = {"partition": (col(r, "a"),), "order": (Sort(col(r, "b")),)}
    numbered = Window(r, (Windowed(q.column("n", "BIGINT"), "row_number()", **by),))
    difference = q.made("d", Call("{0} - {1}", (col(numbered, "b"), col(numbered, "n")), "BIGINT"))
    rows = Map(numbered, (*(q.made(name, col(numbered, name)) for name in "ab"), difference))
    groups = (rows.columns[0], rows.columns[2])
    found = Aggregate(rows, groups, (q.one("first", "min({0})", col(rows, "b")), q.one("length", "count(*)")))
    return kept(found, "a first length")


def runs_of_values() -> Term:
    """The row numbers of all rows, less those of the rows with their value."""
    q = Query()
    s = q.scan("s")
    order = {"order": (Sort(col(s, "c")), Sort(col(s, "b")))}
    every = Windowed(q.column("n", "BIGINT"), "row_number()", **order)
    own = Windowed(q.column("m", "BIGINT"), "row_number()", partition=(col(s, "b"),), **order)
    numbered = Window(s, (every, own))
    difference = Call("{0} - {1}", (Ref(every.column), Ref(own.column)), "BIGINT")
    rows = Map(numbered, (*(q.made(name, col(numbered, name)) for name in "bc"), q.made("d", difference)))
    groups = (rows.columns[0], rows.columns[2])
    found = Aggregate(rows, groups, (q.one("first", "min({0})", col(rows, "c")), q.one("length", "count(*)")))
    return kept(found, "b first length")


def used_once() -> Term:
    q = Query()
    r = q.scan("r")
    counted = q.total(r, "n", "count(*)")
    return Join("inner", q.scan("s"), Common("w", counted, (q.column("m", "BIGINT"),)), TRUE)


EXAMPLES = {
    "inline_common": (used_once,),
    "drop_orders": (ordered_inside, ranked_groups),
    "unnest_dependent_joins": (
        second_and_third_of_each, nearest_inside,
        best_exams, worse_than_average, counted_rows, distinct_list, subtotals, exists, not_in, three_deep,
        first_of_each, union_inside, lists, counting_down,
    ),
    "bring_into_conjunctive_form": (negated, negated_sum, shared_by_branches, too_many_branches),
    "inline_maps": (three_maps, twice_computed, summed_map),
    "push_filters": (above_everything, left_join_conditions, guarded_division, both_sides_of_a_union),
    "strengthen_equalities": (equal_or_both_null,),
    "close_transitively": (constant_of_a_class, implied_by_branches),
    "turn_outer_into_inner": (missing_partner, full_to_left, required_mark, refused_mark, single_group),
    "turn_left_into_anti": (missing_alone, null_or_missing, behind_a_computed_column, equal_to_null),
    "turn_partners_in_range_into_nearest": (
        without_a_later_row, without_a_row_between, without_a_later_row_or_tie, joined_without_a_later_row,
        of_both_sides_without_a_later_row, with_a_row_between,
    ),
    "turn_first_rows_into_nearest": (nearest_price, next_of_distinct, first_partner_within_bounds),
    "turn_extremes_into_nearest": (range_of_each_order, latest_of_each_pair, greatest_of_each_group),
    "turn_row_numbers_into_islands": (values_in_a_row, runs_of_values),
    "remove_distinct": (distinct_key, distinct_right),
    "turn_distinct_into_neighbours": (groups_in_a_chain, counted_in_a_range),
    "turn_distinct_on_into_first_rows": (first_row_of_each,),
    "prune_columns": (unread_columns, countdown, unread_shared),
    "remove_joins": (unread_customer, existing_customer),
    "share_common": (equal_groups,),
}  # fmt: skip

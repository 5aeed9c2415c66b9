"""What is known of the rows of a term: how many there are at most, and which columns no two rows share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlfront.planner.algebra.scalars import (
    Column,
    Compare,
    Constant,
    Ref,
    Scalar,
    columns_of,
    conjuncts,
    rejects_nulls,
)
from sqlfront.planner.algebra.terms import (
    KEEPS_LEFT_ALONE,
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Map,
    Scan,
    SetOperation,
    Term,
    Top,
    Unnest,
    Values,
    Window,
)

Name = tuple[str, ...]
Keys = frozenset[frozenset[Column]]
MOST_KEYS = 16


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values are those of a key of another table, or of which one is NULL."""

    columns: tuple[str, ...]
    table: Name
    references: tuple[str, ...]


def _none(table: Name) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Facts:
    """What is enforced of tables at all times: `keys` are sets of columns that no two rows share and never NULL.

    `is_eager`: parts of a query are computed for all their rows, whether anything around them reads these or not, so an
    expression may fail for a row that DuckDB would not have looked at. `saves_space`: no combinations of rows are to
    be stored, even if rows of the result then take longer to find. `in_shards`: several processes compute it, none of
    which finds nearest rows.
    """

    keys: Callable[[Name], Iterable[frozenset[str]]] = _none
    foreign_keys: Callable[[Name], Iterable[ForeignKey]] = _none
    is_eager: bool = False
    saves_space: bool = False
    in_shards: bool = False


NO_FACTS = Facts()


def has_at_most_one_row(term: Term, facts: Facts = NO_FACTS) -> bool:
    """Whether a term has one row or none, whatever its tables hold."""
    return frozenset[Column]() in keys_of(term, facts)


def has_one_row(term: Term) -> bool:
    """Whether a term surely has exactly one row."""
    match term:
        case Aggregate(groups=(), sets=None):
            return True
        case Values(rows=rows):
            return len(rows) == 1
        case Map(input=input) | Window(input=input) | Distinct(input=input):
            return has_one_row(input)
        case Join(kind="left" | "single" | "mark", left=left, right=right):
            return has_one_row(left) and (not _multiplies(term) or has_at_most_one_row(right))
        case Common(term=shared):
            return has_one_row(shared)
    return False


def keys_of(term: Term, facts: Facts = NO_FACTS) -> Keys:
    """Sets of columns that no two rows share, NULLs counted as equal; the empty set: there is at most one row."""
    match term:
        case Scan(table=table, read=read):
            columns = dict(read)
            named = (key for key in facts.keys(table) if key <= columns.keys())
            return frozenset(frozenset(columns[name] for name in key) for key in named)
        case Values(rows=rows):
            return _smallest([frozenset()]) if len(rows) < 2 else frozenset()
        case Filter():
            return _without_fixed(keys_of(term.input, facts), term.condition)
        case Map():
            return _kept(keys_of(term.input, facts), _renamed(term))
        case Window(input=input):
            return keys_of(input, facts)
        case Top(input=input, limit=limit):
            one = isinstance(limit, Constant) and limit.sql == "1" and not term.percent
            return _smallest([frozenset()]) if one else keys_of(input, facts)
        case Distinct(input=input, on=on):
            return _smallest([*keys_of(input, facts), frozenset(input.columns if on is None else on)])
        case SetOperation():
            return _keys_of_set_operation(term, facts)
        case Aggregate():
            return _smallest([frozenset(term.groups)]) if term.sets is None else frozenset()
        case Common(term=shared, columns=columns):
            return _kept(keys_of(shared, facts), {old: (new,) for old, new in zip(shared.columns, columns)})
        case Join():
            return _keys_of_join(term, facts)
        case Unnest(input=input, position=position) if position is not None:
            return _smallest(key | {position} for key in keys_of(input, facts))
    return frozenset()


def never_null(term: Term, facts: Facts = NO_FACTS) -> frozenset[Column]:
    """Columns that are NULL in no row: of keys, and where a condition rejects NULLs."""
    columns = frozenset(term.columns)
    match term:
        case Scan(table=table, read=read):
            keys = frozenset[str]().union(*facts.keys(table))
            return frozenset(column for name, column in read if name in keys)
        case Filter(input=input, condition=condition):
            return never_null(input, facts) | rejected(condition) & columns
        case Map(input=input, made=made):
            below = never_null(input, facts)
            return frozenset(one.column for one in made if isinstance(one.value, Ref) and one.value.column in below)
        case Join(kind="inner" | "as-of" | "semi"):
            both = never_null(term.left, facts) | never_null(term.right, facts) | rejected(term.condition)
            return both & columns
        case Join(kind="full") | Values():
            return frozenset()
        case Join(left=left):
            return never_null(left, facts)
        case SetOperation(left=left, right=right):
            below = never_null(left, facts)
            found = {column for old, column in zip(left.columns, term.columns) if old in below}
            other = never_null(right, facts) if term.kind == "union" else frozenset(right.columns)
            return frozenset(column for old, column in zip(right.columns, term.columns) if old in other) & found
        case Common(term=shared):
            below = never_null(shared, facts)
            return frozenset(column for old, column in zip(shared.columns, term.columns) if old in below)
        case Aggregate(input=input, sets=None) | Distinct(input=input) | Top(input=input):
            return never_null(input, facts) & columns
        case Window(input=input) | Unnest(input=input):
            return never_null(input, facts) & columns
    return frozenset()


def rejected(condition: Scalar) -> frozenset[Column]:
    """The columns that are not NULL where a condition is true."""
    return frozenset(one for one in columns_of(condition) if rejects_nulls(condition, frozenset({one})))


def equated(condition: Scalar) -> list[tuple[Column, Column]]:
    """The pairs of columns that a condition says are equal, both ways round."""
    found = []
    for one in conjuncts(condition):
        match one:
            case Compare(operator="=" | "IS NOT DISTINCT FROM", left=Ref(column=a), right=Ref(column=b)):
                if a.type == b.type:
                    found += [(a, b), (b, a)]
    return found


def matches_one_at_most(term: Join, facts: Facts = NO_FACTS) -> bool:
    """Whether a row of the left has at most one partner: the condition fixes a key of the right."""
    return _fixes(term, keys_of(term.right, facts), term.right)


def _fixes(term: Join, keys: Keys, side: Term) -> bool:
    """Whether the condition of a join fixes a key of one side for each row of the other."""
    columns = frozenset(side.columns)
    fixed = {b for a, b in equated(term.condition) if b in columns and a not in columns} | _constants(term.condition)
    return any(key <= fixed for key in keys)


def _multiplies(term: Join) -> bool:
    if term.kind.startswith("as-of"):
        return term.count > 1
    return term.kind not in ("single", "mark", *KEEPS_LEFT_ALONE)


def _keys_of_join(term: Join, facts: Facts) -> Keys:
    left = keys_of(term.left, facts)
    if not _multiplies(term):
        return left
    right = keys_of(term.right, facts) if not term.dependent else frozenset()
    both = [one | other for one in left for other in right]
    if term.kind == "full":  # A row of either side may be all NULL but for columns of no key.
        return frozenset()
    if term.dependent:
        return left if has_at_most_one_row(term.right, facts) else frozenset()
    found = [*both, *(left if _fixes(term, right, term.right) else ())]
    if term.kind in ("left", "as-of left"):
        return _smallest(found)
    found += right if _fixes(term, left, term.left) else ()
    return _without_fixed(_smallest(found), term.condition)


def _keys_of_set_operation(term: SetOperation, facts: Facts) -> Keys:
    found = [] if term.all else [frozenset(term.columns)]
    if term.kind != "union" and all(a.type == b.type for a, b in zip(term.left.columns, term.columns)):
        found += _kept(keys_of(term.left, facts), {a: (b,) for a, b in zip(term.left.columns, term.columns)})
    return _smallest(found)


def _without_fixed(keys: Keys, condition: Scalar) -> Keys:
    """The keys without the columns that are constant."""
    fixed = _constants(condition)
    return _smallest(key - fixed for key in keys)


def _constants(condition: Scalar) -> set[Column]:
    """The columns that a condition equates with a constant."""
    found = set()
    for one in conjuncts(condition):
        if isinstance(one, Compare) and one.operator in ("=", "IS NOT DISTINCT FROM"):
            for column, value in ((one.left, one.right), (one.right, one.left)):
                if isinstance(column, Ref) and isinstance(value, Constant) and column.type == value.type:
                    found.add(column.column)
    return found


def _renamed(term: Map) -> dict[Column, tuple[Column, ...]]:
    """The columns of a Map in which each column of its input goes on."""
    found: dict[Column, tuple[Column, ...]] = {}
    for one in term.made:
        if isinstance(one.value, Ref):
            found[one.value.column] = (*found.get(one.value.column, ()), one.column)
    return found


def _kept(keys: Keys, renamed: Mapping[Column, tuple[Column, ...]]) -> Keys:
    kept = (key for key in keys if key <= renamed.keys())
    return _smallest(frozenset(renamed[column][0] for column in key) for key in kept)


def _smallest(keys: Iterable[frozenset[Column]]) -> Keys:
    """A few keys, none of which includes another."""
    found: list[frozenset[Column]] = []
    for key in sorted(set(keys), key=lambda one: (len(one), sorted(column.number for column in one))):
        if len(found) < MOST_KEYS and not any(other <= key for other in found):
            found.append(key)
    return frozenset(found)

"""The planner's input: a view definition as frozen data.

A *view definition* is a conjunctive query over atoms (one per FROM alias), plus what is needed to
evaluate it outside the join core: the SQL of every leaf column, the measures that are summed, and
the raw output columns from which a final projection computes the user's SELECT list.

Nothing here refers to a database: expressions are carried as DuckDB SQL text over the columns of
one table, so that the storage layer can evaluate them on a batch of changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from sqlfront.planner.model.computed_rows import ComputedRows
from sqlfront.planner.model.raw_column import Direction as Direction
from sqlfront.planner.model.raw_column import RawColumn as RawColumn
from sqlfront.planner.model.window_functions import Windows

Mode = Literal["bag", "set", "group"]
Presence = Literal["required", "optional", "absent"]


@dataclass(frozen=True)
class LeafColumn:
    """One column that a leaf computes from a row of its table.

    `expression` is DuckDB SQL over the table's columns; `source` is the column's name when the
    expression is that column and nothing else (the fast path needs no SQL then). `presence_of` is the
    column's name when a factor is 1 where that column is not NULL.
    `type` is the DuckDB type of the value after any cast that `expression` contains.
    """

    name: str
    expression: str
    type: str
    source: str | None = None
    presence_of: str | None = None
    not_null: bool = False


@dataclass(frozen=True)
class Condition:
    """A condition on the rows of one table, as DuckDB SQL; `equates` are two expressions of one type it sets equal,
    `columns` those it reads, with their types."""

    text: str
    equates: tuple[str, str] | None = None
    columns: tuple[tuple[str, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Reference:
    """A foreign key of an atom: `columns` pairs its variables with the columns of `table` that they refer to."""

    table: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Atom:
    """One occurrence of a table in FROM.

    `variables` are the leaf's key columns: every column that joins, groups or is put out.
    `factors` are numeric columns summed inside the leaf (NULL contributes nothing).
    A row is kept when all `conditions` are true and every variable in `required` is not NULL. A variable that atoms
    share and do not require is equal where it is NULL in all, too.
    `keys` lists the declared keys as sets of variables, `references` the declared foreign keys; they lower the
    stated cost, never the result. `is_constant`: no change reaches the table, and the query alone says what its rows
    are; so their number is no part of N. With `copies` a row counts as often as this column says, where the conditions
    let it through; else once.

    `presence` says what the join has of the atom: a row of it (required); such rows or, where there is none, one of
    NULLs (optional); no row, only keys for which there is none (absent). An optional or absent atom shares with the
    others its key alone, and those atoms that have the key are required. `within` is the optional or absent atom with
    which it is joined first: its *head*. The head and the atoms within it, with those within these, are a *group*: what
    is said of one atom then holds for the join of the group, and its atoms' presence for that join.
    """

    name: str
    table: str
    variables: tuple[LeafColumn, ...]
    factors: tuple[LeafColumn, ...] = ()
    conditions: tuple[Condition, ...] = ()
    required: frozenset[str] = frozenset()
    keys: tuple[frozenset[str], ...] = ()
    references: tuple[Reference, ...] = ()
    is_constant: bool = False
    presence: Presence = "required"
    within: str | None = None
    copies: LeafColumn | None = None

    @property
    def is_certain(self) -> bool:
        """Whether each row of the whole join has a row of the atom."""
        return self.presence == "required" and self.within is None

    @property
    def scheme(self) -> frozenset[str]:
        return frozenset(column.name for column in self.variables)

    @property
    def predicate(self) -> str | None:
        """The conditions as one; None when there are none."""
        return " AND ".join(condition.text for condition in self.conditions) or None


@dataclass(frozen=True)
class Comparison:
    """A condition of the join: the value of variable `left` is less than, greater than or not that of `right`.

    Both have one type. An order compares their codes as the storage layer does, which is DuckDB's order. Neither is
    NULL in a row that meets it, but NULL is distinct from all values.
    """

    left: str
    operator: Literal["<", "<=", ">", ">=", "<>", "IS DISTINCT FROM"]
    right: str

    @property
    def is_order(self) -> bool:
        """Whether the values that meet it are a range of sorted values."""
        return self.operator not in ("<>", "IS DISTINCT FROM")

    @property
    def rejects_nulls(self) -> bool:
        return self.operator != "IS DISTINCT FROM"

    @property
    def scheme(self) -> frozenset[str]:
        return frozenset((self.left, self.right))


@dataclass(frozen=True)
class Measure:
    """The sum, over the rows of the join, of a product of at most one factor per atom.

    `factors` maps atom names to factor names; no factor at all is the row count.
    """

    factors: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class DistinctValues:
    """The distinct values of an aggregate's argument in each group: a query of mode "set", or "group" if it counts how
    often a value comes about, maintained beside the view.

    `group` has, of those of the view's free variables that decide the values, each with its name here; `argument` are
    the variables of the argument, in the order in which values compare. `ordered`: the values of a group are kept
    sorted; `directions` are those of the variables. `ranked`: so that the value at a rank is found, too. `label` is for
    EXPLAIN. What is kept for groups that the view does not have tells nothing.
    """

    definition: Definition
    group: tuple[tuple[str, str], ...]
    argument: tuple[str, ...]
    ordered: bool
    label: str = ""
    directions: tuple[Direction, ...] = ()
    ranked: bool = False


@dataclass(frozen=True)
class Term:
    """One item of an order, over coefficients and variables.

    form      what counts
    value     the value of the one variable
    sum       the sum of integers, NULL if one of them is; the coefficients are those of the variables' codes, decimals
              being scaled: the value is (sum + `constant`) / `whole`
    greatest  the values as a multiset, from the greatest down, NULL being the least
    least     from the least up, NULL being the greatest
    product   the product of two numbers of 0 or more; of those that are 0, that with fewer factors 0 counts as greater,
              then the other factor
    rounded   the sum of floating numbers, as `rounding` says, NULL if one of them is
    """

    parts: tuple[tuple[int, str], ...]
    form: Literal["value", "sum", "greatest", "least", "product", "rounded"] = "value"
    descending: bool = False
    nulls_first: bool = False
    whole: int = 1
    constant: int = 0
    rounding: Rounding | None = None


@dataclass(frozen=True)
class Rounding:
    """How a sum of floating numbers is computed, and how far that may be from the exact sum.

    steps      in postfix order, each with its operand and in which type, FLOAT or DOUBLE, it gives its result: "part"
               and "constant" put a part's value (by its number) and a constant on a stack; "+", "-", "*" and "/" take
               two from it, "negate" one
    weights    by what the parts are multiplied in the exact sum
    constant   what is added to them, between two bounds; of a sum that is few numbers, the exact value
    error      times the sum of all absolute values: how far the rounded sum may be from the exact one
    few        of how many numbers it is a sum, without factors and in DOUBLE: if all have few digits, nothing is
               rounded; 0 if that is not so
    """

    steps: tuple[tuple[str, float, str], ...]
    weights: tuple[float, ...]
    constant: tuple[float, float]
    error: float
    few: int


@dataclass(frozen=True)
class Order:
    """A total order of a view's rows: ORDER BY and then all output columns, so that what ties is the same row.

    `terms` compare rows of the join; they are empty where `obstacle` says why the order is none that can be kept part
    by part. `sorting` is the same order as DuckDB SQL over the raw columns: expressions, each with its direction;
    `served` are its items as a query of the view would write them, None where it cannot.
    `label` is ORDER BY as the user wrote it, `directions` those of its items and, last, of columns. `places` say of
    items which term they are: (expression as in `sorting`, number of the term). `tie_breakers` is what `terms`
    compare between the items written and the columns, with directions, as the query would write it.
    """

    terms: tuple[Term, ...]
    sorting: tuple[tuple[str, str], ...]
    served: tuple[str | None, ...]
    label: str
    directions: tuple[str, ...] = ()
    obstacle: str | None = None
    places: tuple[tuple[str, int], ...] = ()
    tie_breakers: tuple[str, ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        """Those that the terms read. Of DISTINCT rows the output columns determine them, which they need not be."""
        return frozenset(name for term in self.terms for _, name in term.parts)


@dataclass(frozen=True)
class Limit:
    """LIMIT (None: all) and OFFSET; or, with the `clause` of a QUALIFY or of a LATERAL block, those of each group.

    The rows of a group have the values of `by` in common, DuckDB SQL over the raw columns; `variables` are the same, or
    None where one is no variable. The clause leaves nothing open: every item has its direction, and the output columns
    come last, if rows are told apart by `row_number`; those that tie have one `rank` or `dense_rank`. `text` is, of
    a block inside a query, where in the query it asks for these rows, and how that reads when nothing is left open.
    """

    rows: int | None
    offset: int = 0
    clause: str | None = None
    by: tuple[str, ...] = ()
    variables: tuple[str, ...] | None = ()
    text: tuple[int, int, str] | None = field(default=None, compare=False)
    numbering: str = "row_number"

    @property
    def has_ties(self) -> bool:
        """Whether rows that tie share their number, and are kept or left out together."""
        return self.numbering != "row_number"

    @property
    def end(self) -> int | None:
        return None if self.rows is None else self.offset + self.rows

    def rows_of(self, count: int) -> int:
        """How many of `count` rows LIMIT leaves; all, of groups."""
        if self.clause is not None:
            return count
        return max(0, (count if self.end is None else min(count, self.end)) - self.offset)

    def number(self, groups: str, order: str) -> str:
        """The number of a row in its group, as DuckDB SQL: of those with the same `groups`, in this order."""
        return f"{self.numbering}() OVER (PARTITION BY {groups or 1} ORDER BY {order or 1})"

    def number_within(self, groups: str, order: str) -> str:
        """The condition that a row's number in its group is within the bounds."""
        window = self.number(groups, order)
        bounds = [f"{window} > {self.offset}"] if self.offset or self.end is None else []
        return " AND ".join([*bounds, *([] if self.end is None else [f"{window} <= {self.end}"])])


@dataclass(frozen=True)
class BranchColumn:
    """What a column of a union is in one branch: a variable; or the term of the branch's order with this number, a sum
    of this type; or a constant, as DuckDB SQL."""

    variable: str | None = None
    term: int | None = None
    type: str = ""
    constant: str = ""


@dataclass(frozen=True)
class Branch:
    """A branch of a union, as a ranked query of its own: `columns` are those of the union, in their order.

    `table` is its name among the derived views, of which the `definition` may take the place. Its order is the union's.
    """

    table: str
    definition: Definition
    columns: tuple[BranchColumn, ...]


@dataclass(frozen=True)
class Definition:
    """A view's query: the join core, what it sums, and what the user sees.

    The join is that of the atoms, on equal variables, of the rows that meet all `comparisons`. Variables that are
    `co_sorted` grow strictly with one another: rows sorted by one of them are sorted by all.
    `free` are the free (grouping or output) variables in output order. `mode` is "bag" for SELECT
    without DISTINCT and GROUP BY, "set" for SELECT DISTINCT, "group" for aggregates; `scalar` marks
    aggregates without GROUP BY (one row even over empty input).
    `projection` and `having` are DuckDB SQL over the raw columns' names; `columns` names and types
    the view's output as DESCRIBE does; `collations` are those of output columns by their names.
    `labels` gives each variable the user's own spelling.
    `notes` say, for EXPLAIN, what was done to the query before it was planned. `distinct_sets` keep the values that
    aggregates which are no sums need (MIN, MAX, DISTINCT). `orders` are those in which rows are asked for, that of
    ORDER BY first; with a `limit` the view's rows are only the first ones of the first order. `derived` are the
    definitions of query blocks that are views of their own, by the table name under which atoms read them, each after
    those it reads, or groups that DuckDB computes, or constant rows;
    `unions` are tables whose rows are those of several of them, each with their names.
    `boolean` says that the one count of a view is only compared with 0, as that of an EXISTS is.
    `branches` are those of the union whose rows, or first rows, the view is, if no row has to be stored; `merged` says
    that none is: then the view has no atoms, and its variables, of which its rows consist, are the union's columns.
    `settings` are those of DuckDB under which all its expressions are computed, as far as they are not DuckDB's
    defaults. `is_frozen` says that the answer of the final projection depends on settings: then it is computed under
    these, not in the statement that reads the view, whose session may have others. `windows` are window functions that
    are computed when the view is read.
    """

    atoms: tuple[Atom, ...]
    free: tuple[str, ...]
    mode: Mode
    measures: tuple[Measure, ...] = ()
    raw: tuple[RawColumn, ...] = ()
    projection: tuple[str, ...] = ()
    having: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    collations: tuple[tuple[str, str], ...] = ()
    scalar: bool = False
    labels: tuple[tuple[str, str], ...] = field(default=())
    notes: tuple[str, ...] = ()
    distinct_sets: tuple[DistinctValues, ...] = ()
    orders: tuple[Order, ...] = ()
    limit: Limit | None = None
    derived: tuple[tuple[str, BlockRows], ...] = ()
    unions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    co_sorted: tuple[frozenset[str], ...] = ()
    boolean: bool = False
    branches: tuple[Branch, ...] = ()
    merged: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    is_frozen: bool = False
    windows: Windows | None = None

    def order_of(self, variable: str) -> frozenset[str]:
        """The variables that sort rows alike: rows sorted by this variable are sorted by each of them."""
        return next((one for one in self.co_sorted if variable in one), frozenset((variable,)))

    @property
    def tables(self) -> frozenset[str]:
        """What the atoms read."""
        return frozenset(atom.table for atom in self.atoms)

    @property
    def changing_atoms(self) -> tuple[Atom, ...]:
        """The atoms that a change may reach."""
        return tuple(atom for atom in self.atoms if not atom.is_constant)

    @property
    def outer_atoms(self) -> tuple[Atom, ...]:
        """The atoms that are optional or absent: each is the head of a group."""
        return tuple(atom for atom in self.atoms if atom.presence != "required")

    @property
    def own_blocks(self) -> tuple[tuple[str, Definition], ...]:
        """The blocks that are queries of their own, without groups that DuckDB computes and constant rows."""
        return tuple((table, block) for table, block in self.derived if isinstance(block, Definition))

    @property
    def is_filtered(self) -> bool:
        """Whether HAVING or QUALIFY leave out rows when the view is read."""
        return self.having is not None or is_grouped(self)

    def atom(self, name: str) -> Atom:
        return next(atom for atom in self.atoms if atom.name == name)

    def label(self, variable: str) -> str:
        return dict(self.labels).get(variable, variable)


BlockRows = Definition | ComputedRows
"""What a block of a query may be."""


def is_grouped(definition: Definition) -> bool:
    """Whether a view is the first rows of each group."""
    return definition.limit is not None and definition.limit.clause is not None


def output_keys(definition: Definition) -> list[tuple[str, ...]]:
    """The output columns by which a view's rows are told apart: those of the whole free tuple, if they all show."""
    columns = shown_tuple(definition)
    return [] if columns is None or definition.mode == "bag" else [columns]


def raw_places(definition: Definition) -> list[int] | None:
    """Which raw column each output column is; None if one is computed, or rows are left out."""
    places = shown_places(definition)
    return None if places is None or None in places else [place for place in places if place is not None]


def shown_places(definition: Definition) -> list[int | None] | None:
    """Which raw column each output column is, or None for a constant, a number or NULL; None if one is computed, or
    rows are left out."""
    raw = {column.name: (place, column.type) for place, column in enumerate(definition.raw)}
    found: list[int | None] = []
    for expression, (_, type_) in zip(definition.projection, definition.columns, strict=True):
        place, own = raw.get(expression.strip().strip('"'), (None, None))
        if own != type_ and not is_constant(expression):
            return None
        found.append(place)
    return None if definition.having else found


def is_constant(expression: str) -> bool:
    """Whether an output column is a number or NULL."""
    return _CONSTANT.fullmatch(expression) is not None


_CONSTANT = re.compile(r"\d+|CAST\(NULL AS [A-Z ]+(\(\d+,\d+\))?\)")


def shown_tuple(definition: Definition) -> tuple[str, ...] | None:
    """The output columns that are the free tuple, of which a bag may have copies; None if they do not all show."""
    raw = {column.name: column.variable for column in definition.raw if column.kind == "variable"}
    shown: dict[str, str] = {}
    for expression, (name, _) in zip(definition.projection, definition.columns, strict=True):
        variable = raw.get(expression.strip().strip('"'))
        if variable is not None:
            shown.setdefault(variable, name)
    if not set(definition.free) <= shown.keys():
        return None
    return tuple(shown[variable] for variable in dict.fromkeys(definition.free))

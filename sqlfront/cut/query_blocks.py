"""Blocks of a query become definitions: as much as possible in one join, the rest views of their own that it reads.

What is a view of its own: groups, DISTINCT rows, first rows and unions inside a join, and the distinct partners of
semi-joins. A semi-join is a join with the distinct values that its equalities compare; some z > x exists where the
greatest z is. What has no operator yet is refused here, by its name and place.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from sqlfront.binding.environment import defaults_of
from sqlfront.binding.query_binder import Bound
from sqlfront.binding.select_items import unique_names
from sqlfront.binding.table_catalog import CatalogView
from sqlfront.cut.as_of_joins import in_nearest_rows
from sqlfront.cut.block_definition import BlockBinder
from sqlfront.cut.block_shape import shape_of
from sqlfront.cut.bound_partners import with_bound_partners
from sqlfront.cut.computed_conditions import is_copied
from sqlfront.cut.computed_groups import in_touched_groups
from sqlfront.cut.expressions.value_types import ComparedTypes
from sqlfront.cut.grouping_sets import groups_of_sets
from sqlfront.cut.join_core import OUTER_FORMS, AtomColumn, JoinCore, OuterForm
from sqlfront.cut.outer_joins import CHILDREN, COMPARED, FORMS, add_join_of_keys, add_outer_join, may_be_child
from sqlfront.cut.pulled_windows import (
    add_windows,
    computed_by_partition,
    first_table,
    is_kept_by_tree,
    pulled_shape,
)
from sqlfront.cut.semi_joins import add_semi_join, best_of, ties_of
from sqlfront.cut.union_branches import unfit_cast, united
from sqlfront.cut.windows.counted_frames import NotPulledError
from sqlfront.planner.algebra.compared_partners import by_equal_values
from sqlfront.planner.algebra.first_of_groups import first_rows
from sqlfront.planner.algebra.missing_partners import compared_sides, counted_rows, without_missing_partners
from sqlfront.planner.algebra.rewriting import NewColumns, copied, projected
from sqlfront.planner.algebra.row_facts import Facts, matches_one_at_most
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    Not,
    Ref,
    cast,
    columns_of,
    conjunction,
    conjuncts,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
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
    walk,
)
from sqlfront.planner.algebra.to_sql import to_sql
from sqlfront.planner.model.computed_rows import ConstantRows
from sqlfront.planner.model.query import BlockRows, Definition, output_keys
from sqlfront.storage.errors import NotSupportedError, ProgrammingError

_LATER = {
    "single": ("A subquery in an expression", "which of several rows it means is left open, or tied by no equality"),
    "mark": ("A subquery in an expression", "more than two of its comparisons may be NULL, each in two ways"),
    "dependent": (
        "A lateral join",
        "its right side is computed for each row of a recursion, or for each nested value with an INTERVAL",
    ),
}
"""Joins that are no inner joins and cannot become such, by name, and why."""
_NOT_COMPARED = ("This join", "DuckDB compares its sides in no type that a key can have")


class Blocks:
    """The views that a query's blocks become, by the table name under which the join reads them.

    A later one may read those before it. `branches` are the unions' as they are bound, in order of their columns,
    `shared` the tables of shared terms by name. `completed` has the operators that DuckDB computes with orders that
    leave nothing open, `told` what EXPLAIN says of the forms of operators. `computes_windows`: row numbers are columns,
    not the places of first rows. Of the block that is bound, `outer_form` is the form of outer joins, `no_children` why
    one of them is no child of its tree, `distinct` the columns that it reads, if it has each row once. `left_sides`
    counts those that are being bound, one inside the other. `compares_partners`: partners are bound for their exponent.
    """

    def __init__(self, bound: Bound, con: Any, catalog: CatalogView, facts: Facts, term: Term) -> None:
        self.bound, self.con, self.catalog, self.facts = bound, con, catalog, facts
        self.defaults = defaults_of(bound.settings)
        self.notes, self.types, self.new = bound.notes, ComparedTypes(con), NewColumns(term)
        self.definitions: dict[str, BlockRows] = {}
        self.unions: dict[str, tuple[str, ...]] = {}
        self.branches: dict[str, list[tuple[str, Definition]]] = {}
        self.settled: dict[int, int] = {}
        self.more_labels: list[str] = []
        self.shared: dict[str, str] = {}
        self.completed: dict[Term, Term] = {}
        self.told: dict[str, None] = {}
        self.computes_windows = False
        self.distinct: frozenset[Column] | None = None
        self.left_sides, self.compares_partners = 0, False
        self.outer_form: OuterForm = OUTER_FORMS[-1]
        self.no_children: str | None = None
        self.binder = BlockBinder(self)

    def definition(
        self, term: Term, names: Sequence[str], more: Sequence[Sequence[Sort]] = (), columns: Sequence[str] = ()
    ) -> Definition:
        """The definition of a query, or a block, with columns of these names."""
        shape, kept = shape_of(term, len(names), more), self.state()
        try:
            if (pulled := pulled_shape(shape, self)) is not None:
                return self.binder.bind(pulled, names, columns, natively=True)
        except (NotPulledError, NotSupportedError) as why:
            self.restore(kept)
            self.told |= {} if shape.first else {computed_by_partition(why): None}
        return self.binder.bind(shape, names, columns)

    def state(self) -> dict[str, Any]:
        """What has been bound so far, for `restore`."""
        names = ("definitions", "unions", "branches", "settled", "shared", "completed", "told")
        return {name: dict(getattr(self, name)) for name in names} | {
            "more_labels": list(self.more_labels),
            "computes_windows": self.computes_windows,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Forget what has been bound since; a state may be restored several times."""
        for name, value in state.items():
            setattr(self, name, copy(value))

    def collect(self, term: Term, core: JoinCore, read: frozenset[Column] | None = None) -> None:
        """Make a term part of a join, of whose columns only these may be `read`. Raises NotSupportedError."""
        if _is_constant(term):
            self.add_constant(term, core)
            return
        match term:
            case Scan():
                self._scan(term, core)
            case Map(input=input, made=made):
                self.collect(input, core, columns_of(*(one.value for one in made)))
                for one in made:
                    if one.value != Ref(one.column):
                        core.values[one.column] = core.over_atoms(one.value)
            case Filter():
                self._filter(term, core, read)
            case Join():
                self._join(term, core, read=read)
            case Values(columns=columns, rows=(row,)):
                core.values |= {one: core.over_atoms(cast(value, one.type)) for one, value in zip(columns, row)}
            case Common():
                self._common(term, core)
            case SetOperation(kind="intersect" | "except"):
                self._set_operation(term, core)
            case Aggregate(sets=None) | Distinct(on=None) | SetOperation() | Top():
                self.add_block(term, core)
            case Aggregate():
                self.collect(groups_of_sets(term, self), core)
            case Distinct() | Window() | Unnest():
                if not isinstance(term, Window) or not add_windows(term, core, self, read):
                    self.collect(in_touched_groups(term, self, read=read), core)
            case _:
                self._refuse(term)

    def add_block(self, term: Term, core: JoinCore, alias: str = "") -> str:
        """Make a term a view of its own, and an atom of the join that reads it; the name of its table."""
        term = self._with_column(term)
        if isinstance(term, SetOperation) and term.kind == "union" and term.all:
            return self._union(term, core, alias)
        table = self.derive(term)
        self.add_atom(table, term.columns, core, alias or self.alias_of(term.columns, first_table(term)))
        return table

    def _with_column(self, term: Term) -> Term:
        """A term, with one column if it has none, the same in each row: relations have at least one column."""
        if term.columns:
            return term
        column = self.new.column("one", "INTEGER")
        if isinstance(term, SetOperation):
            left, right = self._with_column(term.left), self._with_column(term.right)
            return replace(term, left=left, right=right, columns=(column,))
        return Map(term, (Made(column, Constant("1", "INTEGER")),))

    def derive(self, term: Term, in_order: bool = False) -> str:
        """Make a term a view of its own; the name of its table."""
        names = unique_names([column.name or f"c{column.number}" for column in term.columns])
        shape = shape_of(term, len(names))
        return self.add_view(self.binder.bind(shape, names, names, in_order=in_order))

    def table_of(self, term: Term) -> str:
        """Make a term a view of its own; the name of its table. A shared term that is not put in its place has one."""
        if not isinstance(term, Common) or (term.name not in self.shared and is_copied(term)):
            return self.derive(term)
        if term.name not in self.shared:
            self.shared[term.name] = self.derive(self._with_column(term.term))
        return self.shared[term.name]

    def is_native(self, term: Term) -> bool:
        """Whether a view of a term needs no rows that DuckDB computes."""
        kept, names = self.state(), unique_names([column.name for column in term.columns])
        try:
            self.binder.bind(shape_of(term, len(names)), names, names, natively=True)
        except NotSupportedError:
            return False
        finally:
            self.restore(kept)
        return True

    def common(self, term: Term) -> Common:
        """Make a term a view of its own, to be read as a term."""
        term = self._with_column(term)
        table = self.derive(term)
        self.shared[table] = table
        return Common(table, term, term.columns)

    def add_constant(self, term: Term, core: JoinCore) -> None:
        """Make a term that no table decides an atom of the join: DuckDB computes its rows once."""
        term = self._with_column(term)
        names = unique_names([column.name or f"c{column.number}" for column in term.columns])
        types = [_NULLS.get(column.type, column.type) for column in term.columns]
        casts = (f"CAST({c} AS {type_})" for c, type_ in zip(term.columns, types, strict=True))
        query = f"SELECT {', '.join(casts)} FROM ({to_sql(term)})"
        alias = self.alias_of(term.columns, "constant")
        table = self.add_view(ConstantRows(query, tuple(zip(names, types, strict=True)), alias))
        self.add_atom(table, term.columns, core, alias)

    def add_view(self, definition: BlockRows) -> str:
        """Keep a definition as a view of its own; the name of its table."""
        table = f'"__derived"."{len(self.definitions) + 1}"'
        self.definitions[table] = definition
        return table

    def add_atom(self, table: str, columns: Sequence[Column], core: JoinCore, alias: str) -> None:
        """An atom that reads a block."""
        definition = self.definitions[table]
        pairs = zip(columns, definition.columns, strict=True)
        found = [AtomColumn(column, name) for column, (name, _) in pairs]
        if isinstance(definition, Definition):
            keys, is_constant = output_keys(definition), not definition.changing_atoms
        else:
            keys, is_constant = [], isinstance(definition, ConstantRows)
        core.add_atom(alias, table, found, keys, is_constant=is_constant)

    def alias_of(self, columns: Sequence[Column], default: str) -> str:
        """What FROM calls the query that these are the columns of."""
        return next((self.notes.aliases[one] for one in columns if one in self.notes.aliases), default)

    def _scan(self, term: Scan, core: JoinCore) -> None:
        catalog, table = self.catalog, self.catalog.resolve(term.table)
        assert table is not None
        declared = {name: not_null for name, _, not_null in catalog.columns(table) or ()}
        columns = [AtomColumn(column, name, declared[name]) for name, column in term.read]
        at = self.notes.place(*(("table", column) for column in term.columns))
        alias = term.alias or term.table[-1]
        core.add_atom(alias, table, columns, catalog.keys(table), catalog.references(table), at)

    def _filter(self, term: Filter, core: JoinCore, read: frozenset[Column] | None) -> None:
        below = term.input
        if isinstance(below, Join) and below.mark is not None and Not(Ref(below.mark)) in conjuncts(term.condition):
            self._join(below, core, is_false=True)
            core.add_conditions(term.condition)
            return
        first = None if self.computes_windows else first_rows(term)
        if isinstance(below, Window) and not (first and is_kept_by_tree(first)) and add_windows(term, core, self, read):
            return
        if first is None and isinstance(below, Window):
            self.collect(in_touched_groups(below, self, lambda rows: Filter(rows, term.condition), read=read), core)
            return
        if first is None:
            self.collect(below, core, None if read is None else read | columns_of(term.condition))
            core.add_conditions(term.condition)
            return
        number = first.numbering.column
        numbers = [one for one in conjuncts(term.condition) if one not in first.rest]
        columns = [column for column in term.columns if column != number]
        self.add_block(projected(Filter(term.input, conjunction(numbers)), columns), core)
        core.lost[number] = self._window_refused([number])
        core.add_conditions(conjunction(list(first.rest)))

    def _common(self, term: Common, core: JoinCore) -> None:
        """A shared term is one view, unless each use is a copy."""
        if term.name not in self.shared and is_copied(term):
            own, columns = copied(term.term, self.new)
            pairs = zip(term.columns, term.term.columns, strict=True)
            self.notes.aliases |= {
                new: self.notes.aliases[old] for old, new in columns.items() if old in self.notes.aliases
            }
            self.collect(Map(own, tuple(Made(use, Ref(columns[old])) for use, old in pairs)), core)
            return
        alias = self.alias_of(term.columns, first_table(term))
        read = term.columns or (self.new.column("one", "INTEGER"),)
        self.add_atom(self.table_of(term), read, core, alias)

    # Joins ------------------------------------------------------------------------------------------

    def _join(self, term: Join, core: JoinCore, is_false: bool = False, read: frozenset[Column] | None = None) -> None:
        """Add a join; of a mark join only the rows whose mark is false, if that is said."""
        if term.kind in ("semi", "anti", "mark"):
            term = with_bound_partners(term, core, self)
        if term.kind == "inner" and not term.dependent:
            self.collect(term.left, core)
            self.collect(term.right, core)
            core.add_conditions(term.condition)
        elif term.kind in ("as-of", "as-of left") and not term.dependent:
            self.collect(in_nearest_rows(term, self), core)
        elif term.kind == "semi" and not term.dependent and (ties := ties_of(term)) is not None:
            add_semi_join(term, ties, core, self)
        elif (keyed := self._by_equal_values(term, read)) is not None:
            self.told[COMPARED] = None
            self.collect(keyed, core, read)
        elif self.outer_form != "joins" and may_be_child(term, self.facts):
            self.told[CHILDREN[term.kind]] = None
            if term.kind in ("full", "mark"):
                add_join_of_keys(term, core, self, is_false)
            else:
                add_outer_join(term, core, self)
        else:
            found = self._with_partners(term, is_false)
            if found is None:
                self._refuse_join(term)
            else:
                why = f": it is no child of the tree, as {self.no_children}" if may_be_child(term, self.facts) else ""
                self.told[FORMS[term.kind] + why] = None
                self.collect(found, core)

    def _by_equal_values(self, term: Join, read: frozenset[Column] | None) -> Term | None:
        """A join whose condition compares both sides, with partners that are looked up by equal values; None for
        another, and where outer joins are no children."""
        if self.outer_form == "joins" and term.kind != "semi":
            return None
        if term.kind == "anti" and (ties := ties_of(term)) is not None and ties.bounds:
            term = best_of(term, ties, self.new)
        return by_equal_values(term, self.new, self.facts, read)

    def _with_partners(self, term: Join, is_false: bool) -> Term | None:
        """The join as inner joins and unions; None if there is no such form, or its value is any of several rows."""
        checks_rows = self.bound.settings["scalar_subquery_error_on_multiple_rows"] == "true"
        if term.kind == "single" and not (checks_rows or matches_one_at_most(term, self.facts)):
            return None
        return without_missing_partners(term, self.new, self.facts, self.types.common, is_false)

    # Unions -----------------------------------------------------------------------------------------

    def _union(self, term: SetOperation, core: JoinCore, alias: str) -> str:
        """Make the branches of a UNION ALL an atom of the join, whose rows are those of all of them."""
        tables = [self.derive(branch, in_order=True) for branch in _branches(term)]
        bound = [one for table in tables if isinstance(one := self.definitions[table], Definition)]
        names = unique_names([column.name for column in term.columns])
        columns = [(name, column.type) for name, column in zip(names, term.columns)]
        unfit = unfit_cast(bound, columns, self.con)
        if unfit is not None:
            why = "the branches of a union have one type, to which DuckDB cannot cast the values of this branch"
            hint = "cast the column to one type in all branches, VARCHAR for example"
            where = self.notes.where(self.notes.place(term.columns))
            raise ProgrammingError(unfit, where=where, why=why, hint=hint)
        branches = united([one if one.limit else replace(one, orders=()) for one in bound], columns)
        self.definitions.update(zip(tables, branches, strict=True))
        name = f'"__union"."{len(self.unions) + 1}"'
        self.unions[name], self.branches[name] = tuple(tables), list(zip(tables, bound, strict=True))
        found = [AtomColumn(column, called) for column, called in zip(term.columns, names)]
        core.add_atom(alias or self.alias_of(term.columns, "branches"), name, found)
        return name

    def _set_operation(self, term: SetOperation, core: JoinCore) -> None:
        """The rows of INTERSECT and EXCEPT; as many copies of each as its counts in the two sides leave."""
        if not term.all:
            self.told[FORMS[term.kind]] = None
            self.collect(compared_sides(term, self.new), core)
            return
        self.told[FORMS[f"{term.kind} all"]] = None
        groups, (mine, theirs) = counted_rows(term, self.new)
        self.add_block(groups, core)
        form = "least({0}, {1})" if term.kind == "intersect" else "{0} - {1}"
        copies = cast(Call(form, (Ref(mine), Ref(theirs)), "HUGEINT"), "BIGINT")
        core.add_conditions(Compare(">", copies, Constant("0", "INTEGER")))
        core.add_copies(copies)

    # Refusals ---------------------------------------------------------------------------------------

    def place_of_join(self, term: Join) -> Any:
        """Where a join, or the subquery that became it, is written."""
        columns = [column for part in walk(term.right) for column in part.columns]
        return self.notes.place(*(("join", one) for one in columns), *(("table", one) for one in columns), *columns)

    def _refuse_join(self, term: Join) -> None:
        place = self.place_of_join(term)
        if term.mark is not None:
            place = self.notes.place(("subquery", term.mark)) or place
        name, why = _LATER.get("dependent" if term.dependent else term.kind, _NOT_COMPARED)
        raise self.notes.refusal(name, place, why, "write an inner join, or join the table in FROM instead")

    def _refuse(self, term: Term) -> None:
        notes = self.notes
        match term:
            case Recursion() | Recursive():
                why, hint = "a recursive view needs a fixpoint, which comes later", "unroll the recursion"
                raise notes.refusal("WITH RECURSIVE", notes.place(term.columns), why, hint)
        raise AssertionError(f"{type(term).__name__} is part of no join")

    def _window_refused(self, columns: Sequence[Column]) -> Exception:
        why = "one changed row can change the result for every row of its partition"
        hint = (
            "keep the rows in a view and compute the window when you read it; QUALIFY row_number() OVER "
            "(PARTITION BY ... ORDER BY ...) <= 3 keeps the first 3 rows of each group"
        )
        return self.notes.refusal("A window function", self.notes.place(*columns), why, hint)


_ROW_BY_ROW = (Values, Map, Filter, Unnest, Join)
_NULLS = {'"NULL"': "INTEGER"}
"""The type of a column of NULLs alone."""


def _is_constant(term: Term) -> bool:
    """Whether DuckDB may compute a term once and for all. A term of one row is none: its values take their places.

    Aggregates, windows and orders are no part of such a term: their ties are decided by the forms that blocks have.
    """
    parts = list(walk(term))
    makes_rows = any(isinstance(part, Unnest) or (isinstance(part, Values) and len(part.rows) != 1) for part in parts)
    return makes_rows and all(isinstance(part, _ROW_BY_ROW) for part in parts)


def _branches(term: Term) -> list[Term]:
    """The branches of unions of unions that count copies; inside a DISTINCT union none need be distinct."""
    if isinstance(term, SetOperation) and term.kind == "union" and term.all:
        sides = (term.left, term.right)
        return [one for side in sides for one in (_branches(side) if _same_types(term, side) else [side])]
    return [term]


def _same_types(term: SetOperation, side: Term) -> bool:
    return [column.type for column in side.columns] == [column.type for column in term.columns]

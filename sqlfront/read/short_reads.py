"""Small reads that go from the text to the tree in one hop: `WHERE key = 5`, `ORDER BY ... LIMIT 10`, all rows of a
view that has few, and View.get.

A text is recognised by its *shape*, the text with a parameter in place of each literal. A shape is planned once; its
plan holds until names or settings may mean something else (`Session.forget_names`). The plan reads Python values off
the tree, and DuckDB is not asked. A text without a plan, and values that DuckDB might compare or show otherwise, go the
general way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlfront.database.held_result import HeldRows
from sqlfront.database.names import meant
from sqlfront.read.comparing import is_same, output_variables
from sqlfront.read.order_defaults import defaults_of
from sqlfront.read.short_select import ShortSelect, read_select
from sqlfront.read.top import reader_for
from sqlfront.read.whole_views import WholeView, whole_view
from sqlfront.storage.errors import DataError

if TYPE_CHECKING:
    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session

Rows = list[tuple[Any, ...]]
_SHORT = 500
_LARGEST = 2**62  # The codes of whole numbers up to here are the numbers; a smaller type has none of the others.
_PART = re.compile(
    r"""(?P<text>(?<![\w$])'(?:[^']|'')*')(?!\s*')|(?<![\w.$])(?P<number>\d{1,18})(?![\w.])|(?P<given>\?)(?!\d)
    |(?P<name>"(?:[^"]|"")*")|(?P<other>--|/\*|\$|'|\?|\\)""",
    re.VERBOSE,
)
UNKNOWN = object()
"""No plan is known, or in place of a literal: the value is given with the text."""


@dataclass(frozen=True)
class Plan:
    """How the rows of a shape are read: `read(session, values of the parameters)`, None where DuckDB has to; the
    columns that are shown, as places in the view's rows, with their names and types. `whole` are all rows, if these
    are asked for."""

    entry: ViewEntry
    read: Callable[[Session, Sequence[Any]], Rows | None]
    shown: Callable[[Rows], Rows] | None
    columns: tuple[tuple[str, str], ...]
    whole: WholeView | None = None


def read_shortly(session: Session, text: str, params: Any) -> bool:
    """Leave the rows of a small read as the result; False, and nothing is done, if it has to go the general way."""
    found = shape_of(text) if len(text) <= _SHORT else None
    if found is None or (session.transaction is not None and session.transaction.touched()):
        return False
    shape, literals = found
    values = given_values(literals, params)
    if values is None:
        return False
    database = session.database
    with database.lock:
        plan = session.plans.get(shape, UNKNOWN)
        plan = _planned(session, shape) if plan is UNKNOWN else plan
        if plan is None:
            return False
        session.start_reading({plan.entry.maintained.name}.intersection, alone=True)
        if session.has_moved_on(plan.entry):
            return False
        database.make_readable(plan.entry, session.current_reading())
        rows = plan.read(session, values)
    if rows is None:
        return plan.whole is not None and plan.whole.leave_unread(session, text, params)
    shown = rows if plan.shown is None else plan.shown(rows)
    session.set_rows(HeldRows(session.duck, plan.columns, shown))
    return True


def get_rows(entry: ViewEntry, variables: tuple[str, ...], keys: Sequence[Sequence[Any]]) -> list[Any] | None:
    """The row, or None, of each key of a grouped view, off its tree; None if DuckDB has to. The engine is locked."""
    from sqlfront.maintenance.output.look_up import look_up_by

    look_up = look_up_by(entry.maintained, variables)
    if look_up is None:
        return None
    codecs = [entry.maintained.codecs[variable] for variable in variables]
    found: list[Any] = []
    for key in keys:
        codes = _codes(codecs, key)
        rows = None if codes is None else look_up.rows(codes) if codes else []
        if rows is None:
            return None
        found.append(rows[0] if rows else None)
    return found


def get_directly(entry: ViewEntry, variables: tuple[str, ...], key: Sequence[Any]) -> Any:
    """The row, or None, of a key of whole numbers, from one row of one table; UNKNOWN where that is not the way."""
    view = entry.maintained
    look_up = view.look_ups.get(variables)
    if look_up is None or look_up.direct is None or view.broken or len(key) != len(variables):
        return UNKNOWN
    for value in key:
        if type(value) is not int or not -_LARGEST <= value <= _LARGEST:
            return UNKNOWN
    return look_up.direct.row(key)


def _codes(codecs: Sequence[Any], values: Sequence[Any]) -> list[tuple[int, ...]] | None:
    """The codes of values; empty if no row has one of them, None if only DuckDB can tell."""
    codes = []
    for codec, value in zip(codecs, values, strict=True):
        if is_same(codec.type, value) is not True:
            return None
        try:
            code = codec.find_value(value)
        except DataError:
            return None
        if code is None:
            return []
        codes.append(code)
    return codes


@lru_cache(maxsize=512)
def shape_of(text: str) -> tuple[str, tuple[Any, ...]] | None:
    """A text with `?` in place of each literal, and their values, UNKNOWN for a `?` of the text itself; None for a text
    with comments, other strings or other parameters."""
    values: list[Any] = []
    parts, last = [], 0
    for found in _PART.finditer(text):
        if found["other"]:
            return None
        if found["name"]:
            continue
        if found["text"]:
            values.append(found["text"][1:-1].replace("''", "'"))
        else:
            values.append(int(found["number"]) if found["number"] else UNKNOWN)
        parts += [text[last : found.start()], "?"]
        last = found.end()
    return "".join([*parts, text[last:]]), tuple(values)


def place_in(text: str, place: int, parameters: int) -> int:
    """Where in a text the `place` of its shape is that has so many parameters before it."""
    for found in _PART.finditer(text):
        if not parameters:
            break
        if not found["name"]:
            place += found.end() - found.start() - 1
            parameters -= 1
    return place


def parameters_in(shape: str) -> int:
    """How many parameters a shape, or its beginning, has: a quoted name may have a `?` of its own."""
    return sum(not found["name"] for found in _PART.finditer(shape))


def given_values(literals: Sequence[Any], params: Any) -> Sequence[Any] | None:
    """The values of a shape's parameters: the text's literals, and in their places those that are given."""
    given = literals.count(UNKNOWN)
    if not given and not params:
        return literals
    if not isinstance(params, (list, tuple)) or len(params) != given:
        return None
    rest = iter(params)
    return [next(rest) if value is UNKNOWN else value for value in literals]


def _planned(session: Session, shape: str) -> Plan | None:
    """The plan of a shape. It is remembered if its view's name is."""
    select = read_select(shape)
    if select is None:
        from sqlfront.read.select_trees import select_of_tree  # With sqlglot.

        select = select_of_tree(shape)
    if select is None:
        session.plans[shape] = None
        return None
    entry = session.database.views.get(meant(session, select.parts) or ("", ""))
    if select.parts not in session.meant:
        return None
    plan = None if entry is None else _plan(session, shape, select, entry)
    session.plans[shape] = plan
    return plan


def _plan(session: Session, shape: str, select: ShortSelect, entry: ViewEntry) -> Plan | None:
    columns = _shown(select, entry)
    if columns is None or entry.definition.collations or defaults_of(session).collated:
        return None
    read: Callable[[Session, Sequence[Any]], Rows | None] | None
    if select.in_order:
        read = _first_rows(session, shape, entry)
    else:
        read = _look_up(select, entry) if select.equal else partial(_all_rows, entry)
    if read is None:
        return None
    every = tuple(range(len(entry.definition.columns)))
    places = tuple(place for place, _ in columns)
    types = tuple((label, entry.definition.columns[place][1]) for place, label in columns)
    whole = None if select.in_order or select.equal else whole_view(entry, columns)
    return Plan(entry, read, None if places == every else partial(_picked, places), types, whole)


def _picked(places: Sequence[int], rows: Rows) -> Rows:
    if len(places) == 1:
        return [(row[places[0]],) for row in rows]
    return list(map(itemgetter(*places), rows))


def _shown(select: ShortSelect, entry: ViewEntry) -> list[tuple[int, str]] | None:
    """The columns of SELECT as places in the view's rows and names; None for other columns."""
    names = [name.casefold() for name, _ in entry.definition.columns]
    found: list[tuple[int, str]] = []
    for item in select.items:
        if item.column is None:
            found += [(place, name) for place, (name, _) in enumerate(entry.definition.columns)]
            continue
        if item.column.table not in ("", select.table) or item.column.name not in names:
            return None
        place = names.index(item.column.name)
        found.append((place, entry.definition.columns[place][0] if item.label is None else item.label))
    return found


def _look_up(select: ShortSelect, entry: ViewEntry) -> Callable[[Session, Sequence[Any]], Rows | None] | None:
    """Reads the rows that equal parameters in columns that lead to them."""
    from sqlfront.maintenance.output.look_up import look_up_by

    variables, places = output_variables(entry), dict[str, int]()
    for column, parameter in select.equal:
        variable = variables.get(column.name) if column.table in ("", select.table) else None
        if variable is None or variable in places:
            return None
        places[variable] = parameter
    wanted = tuple(places)
    codecs = [entry.maintained.codecs[variable] for variable in wanted]

    def read(session: Session, values: Sequence[Any]) -> Rows | None:
        given = [values[place] for place in places.values()]
        codes = None if None in given else _codes(codecs, given)
        look_up = look_up_by(entry.maintained, wanted)
        if codes is None or look_up is None:
            return None
        return look_up.rows(codes) if codes else []

    return read


def _all_rows(entry: ViewEntry, session: Session, values: Sequence[Any]) -> Rows | None:
    """Reads all rows of a view that has few."""
    from sqlfront.maintenance.output.look_up import look_up_by

    look_up = look_up_by(entry.maintained, ())
    return None if look_up is None else look_up.rows(())


def _first_rows(
    session: Session, shape: str, entry: ViewEntry
) -> Callable[[Session, Sequence[Any]], Rows | None] | None:
    """Reads the first rows of the view's first order."""
    from sqlfront.read.ordered_reads import limit_of, read_in_order

    select = read_in_order(session, shape, entry)
    if select is None:
        return None

    def read(session: Session, values: Sequence[Any]) -> Rows | None:
        limit = limit_of(session, select, entry, values) if 0 in entry.maintained.ranked else None
        reader = None if limit is None else reader_for(entry.maintained)
        return None if reader is None or limit is None else reader.read(limit)

    return read

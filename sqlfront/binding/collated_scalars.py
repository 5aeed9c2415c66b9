"""Expressions over texts with collations, made explicit: comparisons become comparisons of keys, and what DuckDB
computes of a text by its collation, LIKE for instance, gets COLLATE written out.

A text whose type has no collation has the session's default_collation. It is written out only where a function gets the
text: the types of columns stay as they are, and DuckDB unites no default with a declared collation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from string import Formatter
from typing import Any

from sqlfront.binding.collation_types import INTERVAL_KEY, LENGTH, Collation, TextTypes, explicit, explicit_form, united
from sqlfront.binding.notes import Notes
from sqlfront.binding.scalar_types import BETWEEN, Types
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Ref,
    Scalar,
    cast,
    columns_of,
    function_name,
    parts_of,
    walk,
    with_parts,
)
from sqlfront.planner.algebra.terms import Aggregated, Windowed
from sqlfront.planner.algebra.to_sql import scalar_sql

_COLLATE = "{0} COLLATE "
_BYTES = f'{_COLLATE}"binary"'
_UNCOLLATED = "CAST(CAST({{0}} AS VARIANT) AS {})"  # A cast to its own type leaves a nested value its collations.
# What these give does not depend on collations, but by their arguments.
_BLIND = frozenset(
    (
        *("upper", "lower", "length", "strlen", "concat", "concat_ws", "trim", "ltrim", "rtrim", "left", "right"),
        *(
            "substring",
            "coalesce",
            "list_value",
            "list_concat",
            "array_value",
            "struct_pack",
            "struct_extract",
            "row",
            "greatest",
        ),
        *("least", "map", "map_keys", "map_values", "union_value", "date_trunc", "date_part", "strftime", "strptime"),
        *("error", "try"),
    )
)
_BLIND_FORMS = re.compile(
    r"(TRY_)?CAST\(|CASE WHEN |\{0\} (\|\||[-+*/%]|//|->>?) |\{0\}\[|-\{0\}|\[|\(|\{\{|MAP |json_|to_json"
)
_SORTS = frozenset(
    f"{prefix}{name}" for prefix in ("", "list_", "array_") for name in ("sort", "reverse_sort", "grade_up")
)
_PATTERNS = re.compile(r"regexp_(full_)?match(es)?\(|\{0\} (!?~|SIMILAR TO) ")


class CollatedScalars:
    """The expressions of one query. `known` are the collations of its columns, as far as their types have one."""

    def __init__(self, notes: Notes, con: Any, default: str) -> None:
        self.notes, self.known = notes, notes.collated
        self.texts, self.types = TextTypes(con, default), Types(con)
        self._asked: dict[Scalar, Collation | None] = {}
        self._keys: set[Column] = set()

    def note_key(self, column: Column, value: Scalar) -> None:
        """Remember a column whose value is a key already, as in the text of a stored query."""
        if self._is_key(value):
            self._keys.add(column)

    def note(self, found: Iterable[tuple[Column, Collation | None]]) -> None:
        """Remember the collations that the types of columns have."""
        self.known.update((column, collation) for column, collation in found if collation is not None)

    def of(self, scalar: Scalar) -> Collation | None:
        """The collation that an expression's type has."""
        if isinstance(scalar, Ref):
            return self.known.get(scalar.column)
        if not self._is_declared(scalar) or scalar.type == "BOOLEAN":
            return None
        if scalar not in self._asked:
            self._asked[scalar] = self.texts.of(scalar_sql(self._declared(scalar)), columns_of(scalar))
        return self._asked[scalar]

    def of_call(self, one: Aggregated | Windowed) -> Collation | None:
        """The collation of what an aggregate or a window function gives."""
        if not any(map(self._is_declared, one.arguments)):
            return None
        text = one.form.format(*map(scalar_sql, map(self._declared, one.arguments)), before="", behind="")
        over = " OVER ()" if isinstance(one, Windowed) else ""
        return self.texts.of(text + over, columns_of(*one.arguments))

    def compared(self, scalar: Scalar) -> Collation | None:
        """What decides a comparison of an expression's values; None: their bytes."""
        return None if self._is_key(scalar) else self.texts.compared(scalar, self.of(scalar))

    def orders(self, scalar: Scalar) -> bool:
        """Whether an expression's values have another order than their bytes. Intervals are ordered by their bytes."""
        return self.compared(scalar) not in (None, LENGTH)

    def compares(self, column: Column) -> bool:
        """Whether a column's values are not compared by their bytes."""
        return self.compared(Ref(column)) is not None

    def is_collated(self, scalar: Scalar) -> bool:
        """Whether a collation may decide what an expression gives."""
        return self._is_declared(scalar) or any(
            "INTERVAL" in part.type or self.texts.holds_text(part) for part in walk(scalar)
        )

    def key(self, value: Scalar, collation: Collation | None = None) -> Scalar:
        """What DuckDB compares in place of a value, by the collation of its type or a given one; the value itself if
        its bytes are compared."""
        collation = self.texts.compared(value, collation) if collation is not None else self.compared(value)
        if collation is None:
            return self.explicit(value)
        [key] = self.types.typed([self.texts.key(self.explicit(value), collation)])
        self.notes.move(value, key)
        return key

    def explicit(self, scalar: Scalar) -> Scalar:
        """An expression whose comparisons are those of keys. It has no collation itself."""
        if not self.is_collated(scalar):
            return scalar
        match scalar:
            case Compare(left=left, right=right):
                return self._compared(scalar, left, right)
            case Call(form=form, arguments=(inner,)) if form.startswith(_COLLATE):
                return self.explicit(inner)
            case Call(form=form, arguments=arguments):
                found = self._known_call(form, arguments)
                if found is not None:
                    return found
                self._refuse_open(scalar)
                if _is_blind(form):
                    return replace(scalar, arguments=tuple(map(self.explicit, arguments)))
                form, arguments = self.written(form, arguments)
                written = replace(scalar, form=form, arguments=arguments)
                if self.texts.filled(scalar, self.of(scalar)) is None or scalar.type == "JSON":
                    return written
                plain = _BYTES if scalar.type == "VARCHAR" else _UNCOLLATED.format(_escaped(scalar.type))
                return Call(plain, (written,), scalar.type, scalar.strict, can_fail=False)
            case Logic() | Not() | IsNull():
                return with_parts(scalar, [self.explicit(part) for part in parts_of(scalar)])
        return scalar

    def written(self, form: str, arguments: Sequence[Scalar]) -> tuple[str, tuple[Scalar, ...]]:
        """A function and its arguments, with the collations of these written out for DuckDB. They are part of the form:
        the value of an argument may be kept as a column, which has no collation."""
        collations = list(map(self.of, arguments))
        if not any(collations):
            # Constants beside other values are formats, names of fields and the like.
            is_constant = not columns_of(*arguments)
            collations = [
                self.texts.filled(one, None) if is_constant or not isinstance(one, Constant) else None
                for one in arguments
            ]
        pieces = [explicit_form(one, f"{{{place}}}") for place, one in enumerate(collations)]
        return _placed(form, pieces), tuple(map(self.explicit, arguments))

    def _declared(self, scalar: Scalar) -> Scalar:
        """An expression with the collations of types written out, but not the default."""
        if isinstance(scalar, Ref):
            return explicit(scalar, self.known.get(scalar.column))
        if isinstance(scalar, Call) and self._known_call(scalar.form, scalar.arguments) is None:
            return replace(scalar, arguments=tuple(map(self._declared, scalar.arguments)))
        return self.explicit(scalar)

    def _compared(self, scalar: Compare, left: Scalar, right: Scalar) -> Scalar:
        collation = united(self.of(left), self.of(right))
        if {left.type, right.type} > {"VARCHAR"}:
            left, right = (cast(one, "VARCHAR") if one.type.startswith("ENUM(") else one for one in (left, right))
        if left.type == right.type:
            if self.texts.compared(left, collation) is None:
                return replace(scalar, left=self.explicit(left), right=self.explicit(right))
            found: Scalar = replace(scalar, left=self.key(left, collation), right=self.key(right, collation))
        elif collation is None and not (_may_be_text(left) and _may_be_text(right)):
            return replace(scalar, left=self.explicit(left), right=self.explicit(right))
        else:  # DuckDB casts a side first.
            form, sides = self.written(f"{{0}} {scalar.operator} {{1}}", (left, right))
            found = Call(form, sides, "BOOLEAN", can_fail=True)
        self.notes.move(scalar, found)
        return found

    def _known_call(self, form: str, arguments: tuple[Scalar, ...]) -> Scalar | None:
        """BETWEEN and IN over keys."""
        is_listed = form.startswith("{0} IN ({1}") and len(arguments) > 1
        if not (form == BETWEEN or is_listed) or len({one.type for one in arguments}) > 1:
            return None
        collation = None
        for one in arguments:
            collation = united(collation, self.of(one))
        if self.texts.compared(arguments[0], collation) is None:
            return None
        keys = tuple(self.key(one, collation) for one in arguments)
        if form == BETWEEN:
            return Logic("AND", (Compare(">=", keys[0], keys[1]), Compare("<=", keys[0], keys[2])))
        return Call(form, keys, "BOOLEAN", can_fail=False)

    def _refuse_open(self, scalar: Call) -> None:
        """NotSupportedError for a function that gives a text by a collation now one value, now another."""
        texts = [
            one for one in scalar.arguments if not isinstance(one, Constant) and self.texts.decides(one, self.of(one))
        ]
        what = why = hint = ""
        if _PATTERNS.match(scalar.form) and any(self.of(one) is None for one in texts):
            what = "A regular expression over a text under default_collation"
            why = "DuckDB's optimizer decides by the pattern whether the collation counts"
            hint = 'write COLLATE "binary" behind the text, or use LIKE'
        elif texts and function_name(scalar.form).lower() in _SORTS:
            what = "A sorted list of texts with a collation"
            why = "DuckDB puts texts that are equal by the collation now in one order, now in another"
            hint = "list(s ORDER BY s) over the rows"
        if what:
            raise self.notes.refusal(what, self.notes.place_of(scalar), why, hint)

    def _is_key(self, scalar: Scalar) -> bool:
        return (isinstance(scalar, Ref) and scalar.column in self._keys) or (
            isinstance(scalar, Call) and scalar.form == INTERVAL_KEY
        )

    def _is_declared(self, scalar: Scalar) -> bool:
        """Whether a column that an expression reads has a collation, or COLLATE is in it."""
        return any(
            (isinstance(part, Ref) and part.column in self.known)
            or (isinstance(part, Call) and part.form.startswith(_COLLATE))
            for part in walk(scalar)
        )


def _is_blind(form: str) -> bool:
    return function_name(form).lower() in _BLIND or _BLIND_FORMS.match(form) is not None


def _placed(form: str, pieces: Sequence[str]) -> str:
    """A form with another text in place of each number."""
    found = ""
    for text, name, _, _ in Formatter().parse(form):
        found += _escaped(text)
        if name is not None:
            found += pieces[int(name)] if name.isdecimal() else f"{{{name}}}"
    return found


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _may_be_text(value: Scalar) -> bool:
    """Whether a value, or a part of it, may be compared as a text with one of another type."""
    return any(word in value.type for word in ("VARCHAR", "JSON", "ENUM"))

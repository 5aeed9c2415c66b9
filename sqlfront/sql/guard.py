"""The guard: DuckDB itself confirms that the text we print means what the user wrote.

Two texts with one parse tree mean the same. Other texts are planned by DuckDB without its optimizer, under the
session's own settings, and the serialised plans must be equal. The plans hold every name, type, constant and order;
positions in the text are taken out first. Plans that differ are compared once more in a normal form: a function's alias
is the function, NOT stands inside IN and IS NULL. Change tables and materialized views have no serialised plan: a query
without rows that has the name and the columns stands for each. Two trees of a small query cost half a millisecond, two
plans about a millisecond.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp

from sqlfront.sql.carets import caret
from sqlfront.sql.dialect import parse_one
from sqlfront.storage.errors import InternalError, NotSupportedError, ProgrammingError
from sqlfront.storage.sql_text import quote

Plan = Any
_POSITION = re.compile(r'"query_location(?:_length)?":\d+,?')
_PLAN = "json_serialize_plan(?, skip_null := true, skip_empty := true, skip_default := true)"
_TREE = "json_serialize_sql(?, skip_null := true, skip_empty := true, skip_default := true)"
_ERROR = '{"error":true'
_PLANLESS = ("not implemented", "serialization", "invalid")
_PIVOT = re.compile(r"\b(?:un)?pivot\w*\b", re.IGNORECASE)
_WITH = re.compile(r"\s*WITH\b(\s+RECURSIVE\b)?", re.IGNORECASE)
_LOCATION = re.compile(r"\[(\d+),(\d+)\]")
_TABLES = "query tables instead: DuckDB describes no plan that reads files or objects of this process"
_OPPOSITES = {
    "COMPARE_IN": "COMPARE_NOT_IN",
    "COMPARE_NOT_IN": "COMPARE_IN",
    "OPERATOR_IS_NULL": "OPERATOR_IS_NOT_NULL",
    "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL",
}


@dataclass(frozen=True)
class Shown:
    """The statement in which a query stands, for carets."""

    statement: str
    offset: int = 0

    def caret(self, start: int, end: int) -> str:
        return caret(self.statement, start + self.offset, end + self.offset)


def check_same_meaning(con: Any, written: str, printed: str, shown: Shown | None = None) -> None:
    """Raise unless DuckDB parses both texts alike, or plans them alike on a connection.

    Two plans are made in one statement, so that `now()` is one constant.

    ProgrammingError where DuckDB refuses the text as written, NotSupportedError where it has no serialised plan,
    InternalError where the printed text means something else. A refused text with the printed text's tree passes: see
    `check_accepted`.
    """
    first, second = _answers(con, _TREE, written, printed)
    if first == second and not first.startswith(_ERROR):
        return
    shown = shown or Shown(written)
    texts = _answers(con, _PLAN, written, printed)
    if any(map(_has_no_plan, texts)) and (clauses := _stand_ins(con, written, printed)):
        over = [_with_clauses(clauses, text) for text in (written, printed)]
        planned = _answers(con, _PLAN, *over)
        texts = texts if any(text.startswith(_ERROR) for text in planned) else planned
    first, second = _plan_text(texts[0], written, None, shown), _plan_text(texts[1], printed, written, shown)
    if first != second and not _are_alike(con, json.loads(first), json.loads(second)):
        _differ(written, printed, "DuckDB plans them differently.")


def check_accepted(con: Any, query: str, shown: Shown | None = None) -> None:
    """ProgrammingError, at DuckDB's place, for a query that DuckDB refuses."""
    answer = json.loads(con.execute(f"SELECT {_PLAN}", [query]).fetchall()[0][0])
    if answer["error"] and not _is_planless(answer):
        _refuse(answer, query, None, shown or Shown(query))


def described(con: Any, query: str, names: Sequence[str], shown: Shown | None = None) -> tuple[tuple[str, str], ...]:
    """Names and types of a query's columns as CREATE VIEW (names) would have them: a second column `a` is called a_1.

    ProgrammingError, at DuckDB's place, for a query that it refuses.
    """
    import duckdb

    listed = f" ({', '.join(quote(name) for name in names)})" if names else ""
    try:
        return query_columns(con, f"SELECT * FROM ({query}\n) AS query{listed}")
    except duckdb.Error as error:
        check_accepted(con, query, shown)
        raise ProgrammingError(str(error).partition("\n\nLINE ")[0]) from error


def query_columns(con: Any, query: str) -> tuple[tuple[str, str], ...]:
    """Names and types of a query's columns. It is bound, not run: a third cheaper than DESCRIBE."""
    relation = con.sql(query)
    return tuple(zip(relation.columns, map(str, relation.types), strict=True))


def _answers(con: Any, question: str, *texts: str) -> list[str]:
    """What DuckDB serialises of texts, without positions, in one statement."""
    [found] = con.execute(f"SELECT {', '.join([question] * len(texts))}", texts).fetchall()
    return [text if text.startswith(_ERROR) else _POSITION.sub("", text).replace(",}", "}") for text in found]


def _has_no_plan(text: str) -> bool:
    return text.startswith(_ERROR) and _is_planless(json.loads(text))


def _stand_ins(con: Any, *texts: str) -> str:
    """WITH clauses that stand for the tables of some texts that have no serialised plan; empty if there are none."""
    tables = (table for text in texts for table in parse_one(text).find_all(exp.Table) if not table.db)
    names = sorted({table.name for table in tables} - {""})
    queries = [f"FROM {quote(name)}" for name in names]
    found = []
    for name, query, plan in zip(names, queries, _answers(con, _PLAN, *queries) if names else (), strict=True):
        if not _has_no_plan(plan):
            continue  # It has a plan, or is the name of a clause of WITH or of a function.
        shown = ", ".join(f"CAST(NULL AS {type_}) AS {quote(column)}" for column, type_ in query_columns(con, query))
        found.append(f"{quote(name)} AS (SELECT {shown} LIMIT 0)")
    return ", ".join(found)


def _with_clauses(clauses: str, text: str) -> str:
    """A query after WITH clauses. Clauses of the query may have the same names, and hide these."""
    own = _WITH.match(text)
    if own is None:
        return f"WITH {clauses} {text}"
    return f"WITH{own[1] or ''} {clauses}, {text[own.end() :]}"


def _plan_text(text: str, sql: str, written: str | None, shown: Shown) -> str:
    """The serialised plan; `written` is the user's text where `sql` is ours."""
    if text.startswith(_ERROR):
        _refuse(json.loads(text), sql, written, shown)
    return text


def _refuse(answer: dict[str, Any], sql: str, written: str | None, shown: Shown) -> NoReturn:
    message = answer["error_message"]
    if written is not None:
        _differ(written, sql, f"DuckDB refuses what was printed: {message}")
    if _is_planless(answer):
        pivot = _PIVOT.search(sql)
        raise NotSupportedError(
            f"{pivot.group().upper() if pivot else 'this query'} has no plan that can be compared",
            where=shown.caret(*pivot.span()) if pivot else shown.caret(0, 1),
            why=f"DuckDB says: {message}",
            hint="list the values in IN (...), so that the columns are known before the rows" if pivot else _TABLES,
        )
    raise ProgrammingError(message[:1].upper() + message[1:], where=_place(answer, sql, shown))


def _is_planless(answer: dict[str, Any]) -> bool:
    """Whether DuckDB understands a query and cannot serialise its plan."""
    return answer["error_type"] in _PLANLESS or "does not support serialization" in answer["error_message"]


def _place(answer: dict[str, Any], sql: str, shown: Shown) -> str | None:
    """The line with carets at the place that DuckDB names, which counts bytes."""
    place = _LOCATION.match(str(answer.get("location", "")))
    if place is None:
        return None
    start, length = map(int, place.groups())
    text = sql.encode()
    begin, end = (len(text[:at].decode(errors="replace")) for at in (start, start + length))
    return shown.caret(begin, end)


def _differ(written: str, printed: str, why: str) -> NoReturn:
    raise InternalError(
        "the query was not understood as it was written",
        where=f"written: {written}\nprinted: {printed}",
        why=why,
        hint="please report both lines; writing the query in simpler words avoids the mistake",
    )


_aliases: dict[str, str] = {}
"""The aliases of DuckDB's functions. To read them takes 20 ms."""


def _are_alike(con: Any, first: Plan, second: Plan) -> bool:
    """Whether two plans have one normal form. Aliases are read when plans differ under the known aliases: an extension
    may have been loaded since."""
    if _aliases and _normalised(first, _aliases) == _normalised(second, _aliases):
        return True
    rows = con.execute("SELECT function_name, alias_of FROM duckdb_functions() WHERE alias_of IS NOT NULL").fetchall()
    _aliases.update(rows)
    return bool(_normalised(first, _aliases) == _normalised(second, _aliases))


def _normalised(node: Plan, aliases: dict[str, str]) -> Plan:
    if isinstance(node, list):
        return [_normalised(item, aliases) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "OPERATOR_NOT" and len(node.get("children", ())) == 1:
        inner = node["children"][0]
        if inner.get("type") in _OPPOSITES:
            node = inner | {"type": _OPPOSITES[inner["type"]]}
    changed = {key: _normalised(value, aliases) for key, value in node.items()}
    path = changed.get("path")
    if isinstance(path, list) and path and isinstance(path[-1], str):
        changed["path"] = [*path[:-1], aliases.get(path[-1], path[-1])]
    return changed

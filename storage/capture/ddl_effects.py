"""What a DDL statement means for the capture of a table: transparent, follow or refuse.

Under triggers DuckDB itself lets through what changes neither the captured columns nor the rows
(ADD COLUMN, SET DEFAULT, indexes, comments) and refuses most other ALTERs. Those that leave
the captured columns alone, or only rename, are done by `Capture.follow` with the triggers out of
the way for the time of the transaction. DROP and CREATE OR REPLACE would silently end the capture.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class Verdict:
    """What to do with the statement, and why.

    transparent: run it as it is. follow: `Capture.follow` with the new names. refuse: raise, with `reason`.
    renamed_to: the new name of the table; renamed_column: (old, new) name of a column.
    """

    action: Literal["transparent", "follow", "refuse"]
    reason: str
    renamed_to: str | None = None
    renamed_column: tuple[str, str] | None = None


def parse_ddl(text: str) -> exp.Expr:
    """A DDL statement as sqlglot reads it; what it does not know is a Command, of which it would warn the user."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    logger = logging.getLogger("sqlglot")
    before = logger.disabled
    logger.disabled = True
    try:
        return sqlglot.parse_one(text, dialect="duckdb")
    except SqlglotError:
        return exp.Command(this=text)
    finally:
        logger.disabled = before


def classify(statement: exp.Expr, columns: Collection[str]) -> Verdict:
    """The verdict on a parsed DDL statement about a table whose `columns` are captured.

    The strictest verdict of its actions; whatever is not known is refused.
    """
    from sqlglot import exp

    kind = str(statement.args.get("kind") or "").upper()
    if isinstance(statement, exp.Alter) and kind == "TABLE":
        captured = {name.casefold() for name in columns}
        verdicts = [_alteration(action, statement, captured) for action in statement.args["actions"]]
        order = ("transparent", "follow", "refuse")
        return max(verdicts, key=lambda verdict: order.index(verdict.action))
    if isinstance(statement, exp.TruncateTable | exp.Comment) or kind == "INDEX":
        return Verdict("transparent", "it changes no captured column, or its rows are captured")
    if isinstance(statement, exp.Drop) and kind in ("TABLE", "SCHEMA", "DATABASE"):
        return Verdict("refuse", f"DROP {kind} would drop a table that views read")
    if isinstance(statement, exp.Drop) and kind == "TRIGGER":
        ours = statement.this is not None and statement.this.name.casefold().startswith("__sqlfront_")
        ours = ours or any(t.name.casefold().startswith("__sqlfront_") for t in statement.args.get("tables") or ())
        return Verdict("refuse", "the trigger captures changes for views") if ours else _OTHER_TRIGGER
    if isinstance(statement, exp.Create) and kind == "TRIGGER":
        return _OTHER_TRIGGER
    if isinstance(statement, exp.Create) and kind == "TABLE":
        if statement.args.get("replace"):
            return Verdict("refuse", "CREATE OR REPLACE would drop a table that views read")
        return Verdict("transparent", "the table exists: it is left alone, or DuckDB says so")
    return Verdict("refuse", "what the statement does to a table that views read is not known")


_OTHER_TRIGGER = Verdict("transparent", "triggers of the user's do not disturb the capture")


def _alteration(action: exp.Expr, statement: exp.Expr, captured: set[str]) -> Verdict:
    from sqlglot import exp

    if isinstance(action, exp.ColumnDef):
        return Verdict("transparent", "views do not read the new column")
    if isinstance(action, exp.RenameColumn):
        return _rename_column(action.this.name, action.args["to"].name)
    if isinstance(action, exp.AlterRename):
        to = [option for option in statement.args.get("options") or () if isinstance(option, exp.ToTableProperty)]
        if to:  # sqlglot reads RENAME a TO b, a column in DuckDB, as a table's
            return _rename_column(action.this.name, to[0].this.name)
        return Verdict("follow", "the table is captured under its new name", renamed_to=action.this.name)
    if isinstance(action, exp.AlterColumn):
        return _alter_column(action, captured)
    if isinstance(action, exp.Drop) and str(action.args.get("kind")).upper() == "COLUMN":
        names = {action.this.name} if action.this is not None else {t.name for t in action.args.get("tables") or ()}
        return _drop_column({name.casefold() for name in names}, captured)
    if isinstance(action, exp.Command) and str(action.this).upper() == "DROP":  # DROP without the word COLUMN
        return _drop_column(_words(action.expression), captured)
    if isinstance(action, exp.AddConstraint):
        return Verdict("follow", "a constraint changes no row")
    return Verdict("refuse", "what the statement does to a table that views read is not known")


def _rename_column(old: str, new: str) -> Verdict:
    return Verdict("follow", "the column is captured under its new name", renamed_column=(old, new))


def _alter_column(action: exp.Expr, captured: set[str]) -> Verdict:
    name = action.this.name
    if action.args.get("dtype") is not None:
        if name.casefold() in captured:
            return Verdict("refuse", f"views read column {name}, whose type would change")
        return Verdict("follow", f"no view reads column {name}")
    if action.args.get("allow_null") is not None:
        return Verdict("follow", "a constraint changes no row")
    return Verdict("transparent", "a default changes no row")


def _drop_column(names: set[str], captured: set[str]) -> Verdict:
    read = sorted(names & captured)
    if read or not names:
        return Verdict("refuse", f"views read column {', '.join(read)}")
    return Verdict("follow", "no view reads the column")


def _words(text: object) -> set[str]:
    """Every name in the text: more than the column's is harmless, it can only refuse."""
    from sqlglot.tokens import Tokenizer

    return {token.text.casefold() for token in Tokenizer().tokenize(str(text))}

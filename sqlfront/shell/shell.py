"""The SQL shell: runs statements over a connection and prints what they give; a REPL when a person is there.

It uses the public surface only (`execute`, `description`, `fetchmany`, `interrupt`), so plain DuckDB will do.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, TextIO

from sqlfront.database.running.interrupts import stoppable
from sqlfront.shell.draw_table import draw_table
from sqlfront.sql.tokens import split

HELP = """\
SQL statements end with ';' and may span lines. Ctrl-C stops a statement or clears the line; Ctrl-D leaves.

  CREATE MATERIALIZED VIEW v AS SELECT ...    a view that stays equal to its query
  EXPLAIN MATERIALIZED VIEW v                 its shape, its cost, and why
  CHECK MATERIALIZED VIEW v                   recompute and compare
  SHOW MATERIALIZED VIEWS;  SHOW STATE        what there is, and what it takes
  SHOW EPOCHS                                 where the time of the last changes went

  .tables         the tables and views
  .rows N         show at most N rows of a result; 0 shows all
  .timer on|off   print the time that a statement takes
  .help  .quit"""

Reader = Callable[[], str]


class Shell:
    """Runs input over a connection and writes results to `out` and errors to `err`.

    `most` rows of a result are shown (0: all of them), cut to `width` cells (None: not cut).
    """

    def __init__(
        self,
        connection: Any,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        width: Callable[[], int | None] = lambda: None,
        most: int = 0,
        timer: bool = False,
    ) -> None:
        self.connection = connection
        self.out, self.err = out or sys.stdout, err or sys.stderr
        self.width, self.most, self.timer = width, most, timer
        self.done = False

    def run(self, text: str) -> bool:
        """Run dot-commands and statements in order; stop at the first that fails and return whether all went well."""
        stripped = text.strip()
        if stripped.startswith("."):
            first, _, rest = stripped.partition("\n")
            return self._command(first.rstrip("; ")) and self.run(rest)
        return all(self._statement(text[start:end]) for start, end in split(text))

    def loop(self, read: Reader) -> None:
        """Read and run until the end of input or .quit; an error or Ctrl-C does not end it."""
        while not self.done:
            try:
                self.run(read())
            except KeyboardInterrupt:
                self._say("")
            except EOFError:
                return

    def _statement(self, sql: str) -> bool:
        try:
            self._execute(sql)
        except KeyboardInterrupt:
            lost = self._transaction_is_lost()
            self._complain("Interrupted; " + ("the transaction is lost: ROLLBACK." if lost else "nothing was changed."))
            return False
        except BrokenPipeError:
            raise
        except Exception as error:
            # Whatever the statement ran into, the shell lives on; the message is made for people.
            self._complain(_message(error))
            return False
        return True

    def _execute(self, sql: str) -> None:
        start = time.perf_counter()
        try:
            with stoppable(self.connection.interrupt):
                self.connection.execute(sql)
                self._show(sql, start)
        except RuntimeError as error:
            # DuckDB may notice Ctrl-C before Python does, and turns it into an error of its own.
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from error
            raise

    def _transaction_is_lost(self) -> bool:
        """Whether the interrupted statement has taken along those before it in its transaction."""
        for _ in range(2):  # The interruption may also hit the first question.
            try:
                self.connection.execute("SELECT 1")
            except Exception as error:
                if "interrupt" in str(error).lower():
                    continue
                return "aborted" in str(error)
        return False

    def _show(self, sql: str, start: float) -> None:
        """Print the result of the statement that was just executed, if it has one."""
        description = self.connection.description
        names = [column[0] for column in description or ()]
        if not names or names == ["Success"]:
            return self._foot("", start)
        rows = self.connection.fetchmany(self.most + 1) if self.most else self.connection.fetchall()
        if names == ["Count"] and not sql.lstrip("( \n").lower().startswith(("select", "with", "from", "values")):
            count = rows[0][0] if rows else 0
            return self._foot(_counted(count, "row") + " changed" if rows else "", start)
        more = bool(self.most) and len(rows) > self.most
        rows = rows[: self.most] if more else rows
        if text := _plain(names, rows):
            self._say(text)
            return self._foot("", start)
        types = [str(column[1]).strip('"') for column in description or ()]
        width = self.width()
        lines = draw_table(names, types, rows, width)
        self._say("\n".join(lines))
        shown = f"first {_counted(len(rows), 'row')}, there are more (.rows 0 shows all)"
        note = shown if more else _counted(len(rows), "row")
        hidden = lines[1].count("│") - 1 < len(names)
        return self._foot(note + (f", {len(names)} columns, not all shown" if hidden else ""), start)

    def _foot(self, note: str, start: float) -> None:
        seconds = time.perf_counter() - start
        timing = f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
        parts = [part for part in (note, timing if self.timer else "") if part]
        if parts:
            self._say(", ".join(parts))

    def _command(self, line: str) -> bool:
        name, *arguments = line.split()
        match name, arguments:
            case ".help", []:
                self._say(HELP)
            case ((".quit" | ".exit"), []):
                self.done = True
            case ".tables", []:
                return self._statement("SHOW TABLES")
            case ".timer", ["on" | "off" as word]:
                self.timer = word == "on"
            case ".rows", [number] if number.isdigit():
                self.most = int(number)
            case _:
                self._complain(f"Unknown command: {line}\nTry: .help")
                return False
        return True

    def _say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def _complain(self, text: str) -> None:
        if self.err.isatty():
            text = f"\x1b[31m{text}\x1b[0m"
        print(text, file=self.err, flush=True)


def is_complete(text: str) -> bool:
    """Whether Enter should run the text: a dot-command, nothing at all, or statements of which the last ends in ';'."""
    stripped = text.strip()
    if not stripped or stripped.startswith("."):
        return True
    pieces = split(text)
    return bool(pieces) and text[pieces[-1][1] :].lstrip().startswith(";")


def repl(shell: Shell, greeting: str) -> None:
    """The REPL on a terminal: with prompt_toolkit history, multi-line editing and highlighting, else line by line."""
    print(greeting, file=shell.out)
    if find_spec("prompt_toolkit") is None:
        from sqlfront.shell.line_prompt import make_line_reader as make_reader
    else:
        from sqlfront.shell.prompt import make_reader
    shell.loop(make_reader(is_complete))


def terminal_width() -> int:
    """The width of the terminal in cells."""
    return shutil.get_terminal_size((100, 24)).columns


def _message(error: Exception) -> str:
    text = str(error).strip()
    if type(error).__module__.split(".")[0] in ("sqlfront", "storage", "duckdb", "_duckdb"):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}"


def _plain(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The text of a result that is a drawing, such as an EXPLAIN, line by line; empty for others."""
    if names == ["property", "value"]:
        width = max((len(row[0]) for row in rows), default=0)
        return "\n".join(f"{row[0]:<{width}}  {row[1]}".rstrip() for row in rows)
    if len(rows) != 1:
        return ""
    texts = [cell for cell in rows[0] if isinstance(cell, str) and "\n" in cell]
    return "\n".join(texts).rstrip("\n")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

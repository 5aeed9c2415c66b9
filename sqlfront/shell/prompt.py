"""Reading statements from a terminal, with history and several lines per statement."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output
from pygments.lexers.sql import SqlLexer


def make_reader(
    is_complete: Callable[[str], bool], *, input: Input | None = None, output: Output | None = None
) -> Callable[[], str]:
    """A function that reads one input, over as many lines as it takes; it raises EOFError at the end (Ctrl-D).

    Enter ends the input when `is_complete`, else it starts a new line.
    """
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        "sqlfront> ",
        multiline=True,
        reserve_space_for_menu=0,
        prompt_continuation="     ...> ",
        history=open_history(),
        auto_suggest=AutoSuggestFromHistory(),
        lexer=PygmentsLexer(SqlLexer),
        key_bindings=keys,
        editing_mode=EditingMode.VI if "vi" in os.environ.get("EDITOR", "") else EditingMode.EMACS,
        input=input,
        output=output,
    )
    return session.prompt


def open_history() -> History:
    """The history file: SQLFRONT_HISTORY or ~/.sqlfront_history; kept in memory where that cannot be written."""
    path = Path(os.environ.get("SQLFRONT_HISTORY") or Path.home() / ".sqlfront_history")
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))

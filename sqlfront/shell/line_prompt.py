"""Reading statements line by line, where prompt_toolkit is not installed (extra `shell`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress


def make_line_reader(is_complete: Callable[[str], bool]) -> Callable[[], str]:
    """A function that reads one input, over as many lines as `is_complete` asks for; it raises EOFError at the end.

    Where Python has readline, lines can be edited, and those of this process come back with the arrow keys.
    """
    with suppress(ImportError):
        import readline  # noqa: F401

    def read() -> str:
        text = input("sqlfront> ")
        while not is_complete(text):
            text += "\n" + input("     ...> ")
        return text

    return read

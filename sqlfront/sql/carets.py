"""Point at a place in a statement: the line, and carets under the offending part."""

from __future__ import annotations

_WIDTH = 96


def caret(sql: str, start: int, end: int) -> str:
    """The line of `sql` that holds offset `start`, numbered from 1, with carets under `start` up to `end`.

    Offsets count characters. A long line is cut to a window around the carets; a span over several
    lines is underlined on its first line only.
    """
    start = max(0, min(start, len(sql)))
    begin = sql.rfind("\n", 0, start) + 1
    stop = sql.find("\n", start)
    line = sql[begin : len(sql) if stop < 0 else stop].rstrip("\r").replace("\t", " ")
    column = start - begin
    width = max(1, min(end, begin + len(line)) - start)
    head = f"line {sql.count(chr(10), 0, start) + 1}, column {column + 1}: "
    shown, shift = _window(line, column, width)
    return f"{head}{shown}\n{' ' * (len(head) + column - shift)}{'^' * min(width, len(shown) or 1)}"


def _window(line: str, column: int, width: int) -> tuple[str, int]:
    """The visible part of `line`, and how many columns it is shifted to the left."""
    if len(line) <= _WIDTH:
        return line, 0
    left = max(0, min(column - _WIDTH // 3, len(line) - _WIDTH))
    shown = line[left : left + max(_WIDTH, min(width, 2 * _WIDTH))]
    prefix = "..." if left else ""
    suffix = "..." if left + len(shown) < len(line) else ""
    return prefix + shown + suffix, left - len(prefix)

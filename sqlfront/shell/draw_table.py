"""Results as text: a table of box characters that fits the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

WIDEST = 60
NARROWEST = 8
_GAP = "…"
_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b", "\x00": "\\0"})


def draw_table(
    names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None = None
) -> list[str]:
    """The lines of a table with names and types as its head; numbers stand to the right.

    With a width, wide columns are cut with an ellipsis, and columns in the middle give way to one
    ellipsis when even that is not enough. O(cells).
    """
    columns = [
        [cell_text(name), kind.lower(), *(cell_text(row[number]) for row in rows)]
        for number, (name, kind) in enumerate(zip(names, types))
    ]
    widths = [max(map(text_width, column), default=0) for column in columns]
    right = [_is_numeric(rows, number) for number in range(len(columns))]
    if width is not None:
        columns, widths, right = _fit(columns, widths, right, width)
    lines = [
        "│ " + " │ ".join(_padded(column[line], size, to) for column, size, to in zip(columns, widths, right)) + " │"
        for line in range(len(rows) + 2)
    ]
    bar = ["─" * (size + 2) for size in widths]
    top, middle, bottom = (left + cross.join(bar) + end for left, cross, end in ("╭┬╮", "├┼┤", "╰┴╯"))
    return [top, *lines[:2], middle, *lines[2:], bottom]


def cell_text(value: Any) -> str:
    """A value on one line: NULL, true and false as SQL writes them, control characters escaped."""
    if value is None:
        return "NULL"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, bytes | bytearray | memoryview):
        return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in bytes(value))
    return str(value).translate(_ESCAPES)


def text_width(text: str) -> int:
    """The number of terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _is_numeric(rows: Sequence[Sequence[Any]], number: int) -> bool:
    values = [row[number] for row in rows if row[number] is not None]
    return bool(values) and all(isinstance(value, int | float | Decimal) and value is not True for value in values)


def _padded(text: str, width: int, right: bool) -> str:
    over = text_width(text) - width
    if over > 0:
        text = _cut(text, width)
    space = " " * (width - text_width(text))
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    while text and text_width(text) > width - 1:
        text = text[: min(len(text) - 1, width - 1)]
    return text + _GAP


def _fit(
    columns: list[list[str]], widths: list[int], right: list[bool], width: int
) -> tuple[list[list[str]], list[int], list[bool]]:
    """Cut wide columns, then drop columns from the middle, until the table is at most `width` cells wide."""
    widths = list(widths)
    if _total(widths) > width:
        widths = [min(size, WIDEST) for size in widths]
    while (over := _total(widths) - width) > 0 and max(widths) > NARROWEST:
        widest = max(widths)
        following = max((size for size in widths if size < widest), default=0)
        most = widths.count(widest)
        step = min(widest - max(following, NARROWEST), -(-over // most))
        widths = [size - step if size == widest else size for size in widths]
    shown = list(range(len(widths)))
    while len(shown) > 1 and _total([widths[number] for number in shown], gap=len(shown) < len(widths)) > width:
        del shown[len(shown) // 2]
    if len(shown) == len(widths):
        return columns, widths, right
    half = (len(shown) + 1) // 2
    gap = [_GAP] * len(columns[0])
    picked = [columns[number] for number in shown]
    sizes = [widths[number] for number in shown]
    sides = [right[number] for number in shown]
    return (
        [*picked[:half], gap, *picked[half:]],
        [*sizes[:half], 1, *sizes[half:]],
        [*sides[:half], False, *sides[half:]],
    )


def _total(widths: Sequence[int], *, gap: bool = False) -> int:
    """The width of a table with these columns, and one more for the ellipsis if there is a gap."""
    return sum(widths) + 3 * len(widths) + 1 + (4 if gap else 0)

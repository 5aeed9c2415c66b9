"""Lines over an interval as SVG, to stand below a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 230
_LEFT, _TOP, _RIGHT, _BOTTOM = 40, 30, 190, 30
_COLOURS = ("#1d4ed8", "#b45309", "#15803d")


@dataclass(frozen=True)
class Plot:
    """Lines by their names, as points (x, y) with x from 0 to 1 and y from 0; a mark at one x."""

    title: str
    across: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    mark: float


def draw_plot(plot: Plot, left: float, top: float) -> list[str]:
    """The elements of a plot of WIDTH by HEIGHT."""
    highest = max(1.0, *(y for points in plot.lines.values() for _, y in points))
    x0, x1 = left + _LEFT, left + WIDTH - _RIGHT
    y0, y1 = top + HEIGHT - _BOTTOM, top + _TOP

    def place(x: float, y: float) -> tuple[float, float]:
        return x0 + x * (x1 - x0), y0 + y / highest * (y1 - y0)

    parts = [_text(left, top + 12, plot.title)]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x, _ = place(tick, 0)
        parts += [_line((x, y0), (x, y1), "#e2e8f0"), _text(x - 8, y0 + 15, f"{tick:g}")]
    for number in range(round(highest / 0.5) + 1):
        _, y = place(0, number / 2)
        parts += [_line((x0, y), (x1, y), "#e2e8f0"), _text(left + 12, y + 4, f"{number / 2:g}")]
    parts.append(_text(x1 + 12, y0 + 15, plot.across))
    parts.append(_line(place(plot.mark, 0), place(plot.mark, highest), "#64748b", dashed=True))
    for number, (name, points) in enumerate(plot.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = y1 + 16 * number + 8
        parts += [_line((x1 + 12, y - 4), (x1 + 30, y - 4), colour), _text(x1 + 36, y, name)]
    return parts


def _line(start: tuple[float, float], end: tuple[float, float], colour: str, *, dashed: bool = False) -> str:
    (x, y), (x2, y2) = start, end
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#0f172a" font-size="11">{escape(text)}</text>'

"""A tree of titled boxes as text and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from sqlfront.explain import draw_plot
from sqlfront.explain.draw_plot import Plot


@dataclass(frozen=True)
class Box:
    """A node as it is drawn: a title, what is said about it, and how it is filled."""

    title: str
    notes: tuple[str, ...]
    kind: str = "passed"
    children: tuple[Box, ...] = ()


def draw_text(root: Box) -> list[str]:
    """One line per node, the notes behind the title."""
    return list(_lines(root, "", ""))


def _lines(box: Box, prefix: str, branch: str) -> Iterator[str]:
    yield f"{prefix}{branch}{box.title}  {'; '.join(box.notes)}".rstrip()
    below = prefix + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    for child in box.children:
        yield from _lines(child, below, "└─ " if child is box.children[-1] else "├─ ")


LINE, CHARACTER, PADDING, GAP, LEVEL = 16, 6.7, 10, 18, 46
NOTE_WIDTH, BOLD, LEGEND_WIDTH = 34, 1.12, 160
FILLS = {"enumerated": "#dbeafe", "stored": "#f1f5f9", "passed": "#ffffff", "leaf": "#ecfccb", "projection": "#fef3c7"}
LEGEND = {
    "enumerated": "read row by row", "stored": "kept for look-ups", "passed": "computed on the way", "leaf": "a table",
    "projection": "the result, kept",
}  # fmt: skip


def draw_svg(roots: Sequence[Box], heading: Sequence[str], plot: Plot | None = None) -> str:
    """Trees side by side as a standalone SVG document: the heading's lines, the boxes by level, a legend, a plot."""
    placed = _Layout(roots)
    top = PADDING + LINE * len(heading) + GAP
    kinds = [kind for kind in FILLS if kind in placed.kinds]
    width = max(placed.width, LEGEND_WIDTH * len(kinds), *map(_text_width, heading)) + 2 * PADDING
    below = top + placed.height + GAP + 2 * LINE
    height = below + (draw_plot.HEIGHT + PADDING if plot is not None else 0)
    width = max(width, draw_plot.WIDTH + 2 * PADDING if plot is not None else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for number, line in enumerate(heading):
        parts.append(_text(PADDING, PADDING + LINE * (number + 1) - 4, line, bold=number == 0))
    parts += placed.svg(PADDING, top)
    y = top + placed.height + GAP
    for number, kind in enumerate(kinds):
        x = PADDING + LEGEND_WIDTH * number
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{FILLS[kind]}" stroke="#64748b"/>')
        parts.append(_text(x + 18, y + 10, LEGEND[kind]))
    if plot is not None:
        parts += draw_plot.draw_plot(plot, PADDING, below)
    return "\n".join([*parts, "</svg>", ""])


class _Layout:
    """Places of the boxes: children side by side below their parent, which is centred over them."""

    def __init__(self, roots: Sequence[Box]) -> None:
        self._places: list[tuple[Box, float, int]] = []
        self._edges: list[tuple[float, int, float, int]] = []
        self._tops: list[float] = []
        self._heights = self._levels(roots)
        for height in self._heights:
            self._tops.append(sum(self._heights[: len(self._tops)]) + LEVEL * len(self._tops))
            self.height = self._tops[-1] + height
        self.width = -float(GAP)
        for root in roots:
            self.width += GAP + self._place(root, self.width + GAP, 0)[0]
        self.kinds = {box.kind for box, _, _ in self._places}

    def svg(self, left: float, top: float) -> list[str]:
        lines = [
            f'<path d="M {left + x:.1f} {top + self._tops[level] + self._heights[level]:.1f} '
            f'L {left + below:.1f} {top + self._tops[level + 1]:.1f}" stroke="#64748b" fill="none"/>'
            for x, level, below, _ in self._edges
        ]
        boxes = [
            _rectangle(box, left + x - _width(box) / 2, top + self._tops[level], self._heights[level])
            for box, x, level in self._places
        ]
        return lines + boxes

    def _levels(self, roots: Sequence[Box]) -> list[float]:
        level, heights = list(roots), []
        while level:
            heights.append(max(map(_height, level)))
            level = [child for box in level for child in box.children]
        return heights

    def _place(self, box: Box, left: float, level: int) -> tuple[float, float]:
        """Put a subtree with its left edge at `left`; its width, and where its root's centre is."""
        own, centres, x = _width(box), [], left
        for child in box.children:
            width, centre = self._place(child, x, level + 1)
            centres.append(centre)
            x += width + GAP
        inner = max(0.0, x - GAP - left)
        centre = (centres[0] + centres[-1]) / 2 if centres else left + own / 2
        width = max(inner, own)
        centre = min(max(centre, left + own / 2), left + width - own / 2)
        self._places.append((box, centre, level))
        self._edges += [(centre, level, below, level + 1) for below in centres]
        return width, centre


def _rectangle(box: Box, x: float, y: float, height: float) -> str:
    lines = _wrapped(box)
    place = f'x="{x:.1f}" y="{y:.1f}" width="{_width(box):.1f}" height="{height:.1f}"'
    parts = [f'<g><rect {place} rx="4" fill="{FILLS[box.kind]}" stroke="#64748b"/>']
    for number, (line, bold) in enumerate(lines):
        parts.append(_text(x + PADDING, y + PADDING + LINE * (number + 1) - 5, line, bold=bold))
    return "".join([*parts, "</g>"])


def _wrapped(box: Box) -> list[tuple[str, bool]]:
    titles = [(line, True) for line in wrap(box.title, NOTE_WIDTH)]
    return titles + [(line, False) for note in box.notes for line in wrap(note, NOTE_WIDTH)]


def _width(box: Box) -> float:
    return max(_text_width(line) * (BOLD if bold else 1) for line, bold in _wrapped(box)) + 2 * PADDING


def _height(box: Box) -> float:
    return LINE * len(_wrapped(box)) + 2 * PADDING - 4


def _text_width(line: str) -> float:
    return CHARACTER * len(line) + 2


def _text(x: float, y: float, line: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#0f172a"{weight}>{escape(line)}</text>'

"""What every benchmark shares: the machine's description, tables as Markdown and CSV, plots."""

from __future__ import annotations

import contextlib
import csv
import datetime
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """One line: processor, cores, memory, system, Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}"
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, {system}, Python {platform.python_version()}"


def versions(*names: str) -> str:
    """Installed versions, those that are there."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def resident() -> int:
    """Resident bytes of this process, now (Linux) or at most so far (elsewhere)."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def release() -> None:
    """Give free memory that allocators hold back to the system, so that `resident` sees live data."""
    import ctypes
    import gc

    import pyarrow

    gc.collect()
    pyarrow.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


def report(name: str, title: str, rows: Sequence[Mapping[str, Any]], *, notes: Sequence[str] = ()) -> Path:
    """Print a table and write it to results/NAME.md and NAME.csv; returns the Markdown file."""
    RESULTS.mkdir(exist_ok=True)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with open(RESULTS / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    lines = [f"# {title}", "", f"{datetime.date.today()}. {machine()}; {versions('duckdb', 'numba', 'pyarrow')}.", ""]
    lines += [*markdown(columns, rows), ""]
    lines += [f"- {note}" for note in notes]
    path = RESULTS / f"{name}.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    print("\n".join(lines), flush=True)
    return path


def markdown(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a Markdown table, padded so that it reads well as text."""
    cells = [[shown(row.get(column)) for column in columns] for row in rows]
    widths = [max([len(column), *(len(row[number]) for row in cells)]) for number, column in enumerate(columns)]
    numeric = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    aligned = [
        [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(line, widths, numeric)]
        for line in [list(columns), *cells]
    ]
    rule = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, numeric)]
    return ["| " + " | ".join(line) + " |" for line in [aligned[0], rule, *aligned[1:]]]


def shown(value: Any) -> str:
    """A cell: numbers with three significant digits, thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def plot_bars(name: str, title: str, groups: Mapping[str, Mapping[str, float]], *, unit: str) -> Path | None:
    """results/NAME.svg: one group of bars per key, one bar per series, on a logarithmic axis.

    None when matplotlib is not installed: the table says the same.
    """
    figure = _figure(9, 4.5)
    if figure is None:
        return None
    series = list(dict.fromkeys(label for values in groups.values() for label in values))
    axes = figure.subplots()
    width = 0.8 / len(series)
    for number, label in enumerate(series):
        there = [(position, values[label]) for position, values in enumerate(groups.values()) if label in values]
        places = [position - 0.4 + (number + 0.5) * width for position, _ in there]
        bars = axes.bar(places, [value for _, value in there], width * 0.92, label=label)
        axes.bar_label(bars, labels=[_short(value) for _, value in there], fontsize=7, padding=1)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_yscale("log")
    axes.set_ylabel(unit)
    axes.set_title(title)
    return _saved(name, figure)


Panel = tuple[str, str, str, Mapping[str, Sequence[tuple[float, float]]]]
"""A title, the names of both axes, and the points of each line."""


def plot_lines(name: str, panels: Sequence[Panel]) -> Path | None:
    """results/NAME.svg: panels side by side, each with lines on logarithmic axes; None without matplotlib."""
    figure = _figure(4.5 * len(panels), 4)
    if figure is None:
        return None
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, across, up, lines) in zip(places, panels, strict=True):
        for label, points in lines.items():
            axes.loglog(*zip(*points), marker="o", markersize=3, linewidth=1, label=label)
        axes.set(title=title, xlabel=across, ylabel=up)
    return _saved(name, figure)


def _figure(width: float, height: float) -> Any | None:
    """An empty figure of so many inches; None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    return Figure(figsize=(width, height), layout="constrained")


def _saved(name: str, figure: Any) -> Path:
    """results/NAME.svg of a figure."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2g}{letter}" if value < 10 * size else f"{value / size:.0f}{letter}"
    return f"{value:.2g}"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

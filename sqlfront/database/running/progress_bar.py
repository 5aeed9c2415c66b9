"""A bar with rows, rows a second and the time left, drawn by rich on standard error."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.filesize import pick_unit_and_suffix
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_WIDTH = 12
_BESIDE = 62  # Columns that all but the words take.


class ProgressBar:
    """Shows one work at a time on one line, and nothing any more when it ends."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._room = max(20, console.width - _BESIDE)
        self._progress = Progress(
            TextColumn("sqlfront: {task.description}", markup=False),
            BarColumn(_WIDTH),
            _Rows(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._shown: tuple[str, int] | None = None

    def show(self, what: str, done: int, total: int) -> None:
        """Draw the bar of `done` rows of `total` (0: nobody knows how many)."""
        if self._shown != (what, total):
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(self._cut(what), total=total or None)
            self._shown = what, total
        [task] = self._progress.task_ids
        self._progress.update(task, completed=min(done, total) if total else done, refresh=True)

    def _cut(self, what: str) -> str:
        """A text on one line that leaves room for the rest."""
        text = " ".join(what.split())
        return text if len(text) <= self._room else f"{text[: self._room - 1]}…"

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class _Rows(ProgressColumn):
    """`1.2 of 5.0 M rows, 0.8 M rows/s`."""

    def render(self, task: Task) -> Text:
        done, total, speed = int(task.completed), int(task.total or 0), int(task.speed or 0)
        if not done:
            return Text("")
        of = f"{_number(done, max(total, done))} of " if total else ""
        rate = f", {_number(speed, speed)}{_suffix(speed)} rows/s" if speed else ""
        whole = max(total, done)
        return Text(f"{of}{_number(whole, whole)}{_suffix(whole)} rows{rate}", style="progress.data.speed")


def _number(rows: int, like: int) -> str:
    """A number of rows in the unit that suits another."""
    unit, suffix = pick_unit_and_suffix(like, _UNITS, 1000)
    return f"{rows / unit:,.{1 if suffix else 0}f}"


def _suffix(rows: int) -> str:
    return pick_unit_and_suffix(rows, _UNITS, 1000)[1]


_UNITS = ["", " k", " M", " G"]

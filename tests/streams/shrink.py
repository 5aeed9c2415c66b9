"""Shrinks a failing stream and writes it down: `python -m tests.streams.shrink 17 hub:3 ...` (numbers are seeds).

What it leaves in tests/fixtures/regressions is replayed by every run of the tests.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from tests.streams.changes import Step, Stream, hub_stream, random_stream
from tests.streams.queries import FloatSum, Query
from tests.streams.replay import Replay
from tests.streams.schema import Column, Table

FIXTURES = Path(__file__).parents[1] / "fixtures" / "regressions"
_NAMES = {
    "Column": Column, "Decimal": Decimal, "FloatSum": FloatSum, "Query": Query, "Stream": Stream, "Table": Table,
    "UUID": UUID, "datetime": datetime, "frozenset": frozenset, "inf": float("inf"),
}  # fmt: skip


def read_stream(path: Path) -> Stream:
    """The stream that a fixture holds, as `repr` wrote it; lines that begin with # are comments."""
    text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
    return eval(text, {"__builtins__": {}}, dict(_NAMES))


def write_stream(path: Path, stream: Stream, comment: str) -> None:
    steps = "".join(f"    {step!r},\n" for step in stream.steps)
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    path.write_text(f"{lines}Stream({stream.tables!r}, (\n{steps}), deep={stream.deep})\n")


def failure(stream: Stream) -> str | None:
    """The kind of failure a stream shows, or None."""
    try:
        Replay(stream).run()
    except Exception as error:
        return type(error).__name__
    return None


def shrink(stream: Stream, fails: Callable[[Stream], bool], budget: int = 300) -> Stream:
    """A stream with as few steps and changes as `budget` trials find, that still fails."""
    found = True
    while found and budget > 0:
        found = False
        for smaller in _smaller(stream):
            budget -= 1
            if budget <= 0:
                break
            if fails(smaller):
                stream, found = smaller, True
                break
    return stream


def _smaller(stream: Stream) -> Iterator[Stream]:
    steps = stream.steps
    size = len(steps) // 2
    while size:
        for first in range(0, len(steps), size):
            yield replace(stream, steps=steps[:first] + steps[first + size :])
        size //= 2
    for i, step in enumerate(steps):
        for fewer in _fewer(step):
            yield replace(stream, steps=(*steps[:i], fewer, *steps[i + 1 :]))
    used = {name for step in steps for name in _tables_of(step)}
    if len(used) < len(stream.tables):
        yield replace(stream, tables=tuple(table for table in stream.tables if table.name in used))


def _fewer(step: Step) -> Iterator[Step]:
    if step[0] in ("apply", "absent"):
        for name, changes in step[1].items():
            rest = {other: found for other, found in step[1].items() if other != name}
            if rest:
                yield (step[0], rest, *step[2:])
            for part in _halves(changes):
                yield (step[0], {**step[1], name: part}, *step[2:])
    elif step[0] in ("rows", "insert"):
        for part in _halves(step[2]):
            yield (step[0], step[1], part)
    elif step[0] == "view" and step[2].having:
        yield ("view", step[1], replace(step[2], having=""))


def _halves(items: tuple) -> Iterator[tuple]:
    size = len(items) // 2
    while size:
        for first in range(0, len(items), size):
            yield items[:first] + items[first + size :]
        size //= 2


def _tables_of(step: Step) -> tuple[str, ...]:
    if step[0] == "view":
        return step[2].tables
    if step[0] == "apply":
        return tuple(step[1])
    if step[0] == "absent":
        return (*step[1], step[2])
    return (step[1],) if step[0] in ("rows", "insert", "delete", "update") else ()


def main(names: list[str]) -> int:
    for name in names:
        stream = hub_stream(int(name[4:])) if name.startswith("hub:") else random_stream(int(name))
        kind = failure(stream)
        if kind is None:
            print(f"{name}: passes")
            continue
        small = shrink(stream, lambda smaller, kind=kind: failure(smaller) == kind)
        path = FIXTURES / f"{kind.lower()}_{name.replace(':', '_')}.txt"
        write_stream(path, small, f"Seed {name}: {kind}")
        print(f"{name}: {kind}, {len(small.steps)} steps, in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

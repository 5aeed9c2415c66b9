"""spill: a view in temporary files, in a process with less memory than it takes, beside the same view in memory.

`python -m benchmarks.spill [--keys 3000000] [--batches 200] [--warm 450] [--times 3] [--directory DIR] [--scattered]`.

A process keeps sums by key of events that are not retained. First each key gets an event. Then batches of 10,000 events
come, 90 % of them for a tenth of the keys: the keys that came first, or any (`--scattered`). The first batches are left
out of the figures (`--warm`): until then more begin to wait than are written. Before the first event the process
enters a memory-limited control group. The group has a `times`th part of the state, and what the process takes beside
the state. The other side has no limit and no spill. At the end the view is compared with sums by numpy.

*Faults* are waits for a page of 4 KB. Faults, pages read and pages written are counted per event. The third side has no
engine: it adds to the words of the same keys' rows in a mapped file of the state's size, with the memory of the second,
and asks for the pages of a batch before. So its speed bounds every program that changes rows in their places. At the
end the disk reads and writes pages of a file, 2,000 at a time. Linux with control groups, as root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks import harness

COLUMNS = 12
"""Columns that are summed up."""
SUMS = ", ".join(f"sum(c{number})::BIGINT AS s{number}" for number in range(COLUMNS))
BATCH = 10_000
GROUPS = Path("/sys/fs/cgroup")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=3_000_000)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--warm", type=int, default=450)
    parser.add_argument("--times", type=float, default=3.0)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--scattered", action="store_true")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--state", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.side:
        print(json.dumps(pages_alone(options) if options.side == "pages alone" else run(options)))
        return
    memory = side(options, "memory", 0)
    beside = memory["resident"] - memory["base"] - memory["state"]
    limit = int(beside + memory["state"] / options.times)
    spilled = side(options, "spill", limit)
    alone = side(options, "pages alone", int(memory["state"] / options.times), memory["state"])
    sides = (("in memory", memory), ("spilled", spilled), ("pages alone", alone))
    rows = [{"side": name} | found for name, found in sides]
    reads, writes = disk(options.directory, False), disk(options.directory, True)
    pages = spilled["pages read"] / reads + spilled["written"] / writes
    notes = [
        f"The control group had {limit / 1e6:,.0f} MB: {beside / 1e6:,.0f} MB for the process, and one of "
        f"{options.times:g} parts of the state.",
        f"Spilled, the view takes {spilled['changes/s'] / memory['changes/s']:.2f} of the changes per second, and a "
        f"program without an engine {alone['changes/s'] / memory['changes/s']:.2f}.",
        "The program changes rows in their places: a row that changes seldom costs a page that is read and a page that "
        "is written. In the view changes wait in memory, one page takes in several, and rows that change often stay.",
        f"The disk reads {reads:,.0f} or writes {writes:,.0f} pages per second. The pages of an event take the disk "
        f"{1e6 * pages:.1f} us, and the event in memory {1e6 / memory['changes/s']:.1f} us.",
    ]
    title = f"Sums by {options.keys:,} keys, {options.batches} batches of {BATCH:,} events"
    title += f" after {options.warm}" if options.warm else ""
    name = "spill_scattered" if options.scattered else "spill"
    harness.report(name, title + (", any keys often" if options.scattered else ""), rows, notes=notes)


def disk(directory: str, writes: bool, count: int = 2000, size: int = 1 << 29) -> float:
    """How many pages of 4 KB per second the disk reads or writes at random, 2,000 at a time."""
    rng, seconds = random.Random(1), 0.0
    with tempfile.TemporaryFile(dir=directory) as file:
        handle, page = file.fileno(), bytes(4096)
        os.write(handle, bytes(size))
        os.fsync(handle)
        os.posix_fadvise(handle, 0, size, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(handle, 0, size, os.POSIX_FADV_RANDOM)
        for _ in range(5):
            places, started = [4096 * place for place in rng.sample(range(size // 4096), count)], time.perf_counter()
            for place in places:
                if writes:
                    os.pwrite(handle, page, place)
                else:
                    os.posix_fadvise(handle, place, 4096, os.POSIX_FADV_WILLNEED)
            if writes:
                os.fdatasync(handle)
            else:
                for place in places:
                    os.pread(handle, 4096, place)
            seconds += time.perf_counter() - started
    return 5 * count / seconds


def side(options: argparse.Namespace, name: str, limit: int, state: int = 0) -> dict[str, Any]:
    """One side in a process of its own; `state` are the bytes of the pages alone."""
    passed = [f"--{key}={getattr(options, key)}" for key in ("keys", "batches", "warm", "directory")]
    passed += ["--scattered"] if options.scattered else []
    command = [
        sys.executable,
        "-m",
        "benchmarks.spill",
        *passed,
        f"--side={name}",
        f"--limit={limit}",
        f"--state={state}",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The changes per second of one side, its sizes, and whether its views are right."""
    import numpy as np

    import sqlfront

    config = {"sqlfront_spill": options.directory} if options.side == "spill" else {}
    con = sqlfront.connect(config={"sqlfront_progress": False, "threads": 1} | config)
    columns = ", ".join(f"c{number} BIGINT" for number in range(COLUMNS))
    con.execute(f"CREATE CHANGE TABLE t (k BIGINT, {columns}) WITH (retain = false)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT k, {SUMS} FROM t GROUP BY k")
    for weight in (1, -1):
        con.apply({"t": events(np.arange(BATCH), weight)})
    harness.release()
    base = harness.resident()
    with limited(options.limit) if options.limit else nullcontext():
        used, counts = changed(con, options)
        engine, resident = con.session.database.engine, harness.resident()
    found = con.execute("SELECT k, s0 FROM v ORDER BY k").to_arrow_table()
    keys = np.arange(options.keys)
    return per_change(used, options.batches * BATCH) | {
        "state": engine.memory(),
        "in files": engine.spilled(),
        "resident": resident,
        "base": base,
        "right": bool(np.array_equal(found["s0"], counts * (keys % 1000))),
    }


def pages_alone(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of `run` for a mapped file of rows. An event adds 1 to each word of a row."""
    import mmap

    import numpy as np

    words, rng, used = options.state // options.keys // 8, np.random.default_rng(1), Counter[str]()
    harness.release()
    base, counts = harness.resident(), np.ones(options.keys, np.int32)
    with tempfile.TemporaryFile(dir=options.directory) as file, limited(options.limit):
        os.posix_fallocate(file.fileno(), 0, 8 * words * options.keys)
        memory = mmap.mmap(file.fileno(), 8 * words * options.keys)
        memory.madvise(mmap.MADV_RANDOM)
        rows = np.frombuffer(memory, np.int64).reshape(options.keys, words)
        for first in range(0, options.keys, BATCH):
            rows[first : first + BATCH] = 1
        for number in range(options.warm + options.batches):
            met, before = np.unique(drawn(rng, options.keys), return_counts=True), taken()
            for page in np.unique(met[0] * words // 512).tolist():
                memory.madvise(mmap.MADV_WILLNEED, 4096 * page, 4096)
            rows[met[0]] += met[1][:, None]
            if number >= options.warm:
                used.update(taken())
                used.subtract(before)
            counts[met[0]] += met[1]
        resident, right = harness.resident(), bool(np.array_equal(rows[:, 0], counts))
    changes = options.batches * BATCH
    return per_change(used, changes) | {
        "state": rows.nbytes,
        "in files": rows.nbytes,
        "resident": resident,
        "base": base,
        "right": right,
    }


def per_change(used: Counter[str], changes: int) -> dict[str, Any]:
    """The changes per second, and what each has taken of the disk."""
    taken = {"faults": used["faults"], "pages read": used["read"], "written": used["written"]}
    return {"changes/s": changes / used["seconds"]} | {name: count / changes for name, count in taken.items()}


def drawn(rng: Any, keys: int) -> Any:
    """The keys of a batch: 90 % of the events are for the first tenth."""
    import numpy as np

    often = rng.random(BATCH) < 0.9
    return np.where(often, rng.integers(0, keys // 10, BATCH), rng.integers(0, keys, BATCH))


def changed(con: Any, options: argparse.Namespace) -> tuple[Counter[str], Any]:
    """Fill the view and change it; what the changes take after those that warm up, and the number of events of each
    key."""
    import numpy as np

    keys = options.keys
    rng, counts, used = np.random.default_rng(1), np.ones(keys, np.int64), Counter[str]()
    order = rng.permutation(keys) if options.scattered else np.arange(keys)
    for first in range(0, keys, BATCH):
        con.apply({"t": events(order[first : first + BATCH])})
    for number in range(options.warm + options.batches):
        met = drawn(rng, keys)
        batch, before = events(met), taken()
        con.apply({"t": batch})
        if number >= options.warm:
            used.update(taken())
            used.subtract(before)
        np.add.at(counts, met, 1)
    return used, counts


def taken() -> Counter[str]:
    """What this process has taken so far: seconds, waits for a page, pages that were read and written."""
    import resource

    lines = (line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    pages = {name: int(value) // 4096 for name, value in lines}
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    found = Counter[str](faults=faults, read=pages["read_bytes"], written=pages["write_bytes"])
    found["seconds"] = time.perf_counter()  # type: ignore[assignment]
    return found


def events(keys: Any, weight: int = 1) -> Any:
    """An event for each of the keys. Its values go by the key."""
    import numpy as np
    import pyarrow as pa

    values = {f"c{number}": keys % (1000 + number) for number in range(COLUMNS)}
    return pa.table({"k": keys} | values | {"_weight": np.full(len(keys), weight)})


@contextmanager
def limited(count: int) -> Iterator[None]:
    """Within a control group below its own, this process gets so many more bytes of memory, page cache included."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        is_first = controllers == "memory"
        if is_first or (controllers == "" and (GROUPS / "cgroup.controllers").exists()):
            parent = (GROUPS / "memory" if is_first else GROUPS) / path.lstrip("/")
            break
    else:
        raise SystemExit("no control group for memory")
    group = parent / f"sqlfront-spill-{os.getpid()}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(count))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


if __name__ == "__main__":
    main()

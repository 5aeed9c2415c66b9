"""One-line faults that the quick tests must catch (law 8): the proof that they can fail.

`python -m tests.faults [NAME...]` applies each to a copy of the tree and runs the test named with it;
tests/test_faults.py does so for all of them when slow tests are asked for.
A kernel's fault compiles anew, for half a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
STREAMS, TABLE, LIMBS = "tests/streams/test_streams.py", "tests/storage/test_table.py", "tests/storage/test_limbs.py"
HUBS, FIXTURES = STREAMS + " -k hub", STREAMS + " -k failed"
ORDER, DISTINCT = "tests/storage/test_order.py", "tests/sqlfront/test_distinct_aggregates.py -k every_query"


@dataclass(frozen=True)
class Fault:
    """In `file`, `old` (which occurs once) becomes `new`; `caught_by` are pytest's arguments."""

    name: str
    file: str
    old: str
    new: str
    caught_by: str = STREAMS


FAULTS = [
    Fault(
        "only the top of a path is updated", "maintenance/paths.py",
        "_climb(tree, leaf, top, assembler, limbs, write_all=True)",
        "_climb(tree, leaf, top, assembler, limbs, write_all=False)",
    ),
    Fault(
        "both atoms of a self-join read the old state", "maintenance/engine.py",
        "Source(relation, store, occurrence % 2)", "Source(relation, store, 0)",
    ),
    Fault(
        "the third atom of a self-join shares the first one's store", "maintenance/engine.py",
        "required, occurrence // 2)", "required, 0)",
    ),
    Fault(
        "NULL joins NULL", "storage/delta_kernels.py",
        "if load(source, load(at, 8 + j)) == NULL_CODE:", "if required > 99:",
    ),
    Fault(
        "liveness by a sum", "storage/scan_kernels.py",
        "        if sign_of(address, keys, limbs) != 0:\n            store(block",
        "        if sign_of(address, load(table, LINKS) - limbs, limbs) != 0:\n            store(block",
    ),
    Fault(
        "sweeps are forgotten", "maintenance/engine.py",
        "sweep.finish(at.SWEEP, stores)", "sweep.finish(at.SWEEP, [])",
    ),
    Fault(
        "undo forgets the sign", "storage/delta_kernels.py",
        "weight = load(source, data_width - 1) * sign", "weight = load(source, data_width - 1)",
    ),
    Fault(
        "the places of a group's key are reversed", "storage/table.py",
        "entry[2 : 2 + len(places)] = places", "entry[2 : 2 + len(places)] = places[::-1]",
    ),
    Fault(
        "a removed row leaves a hole in its chain of slots", "storage/table_kernels.py",
        "if (j - home) & mask >= (j - i) & mask:", "if (j - home) & mask > (j - i) & mask:",
        TABLE,
    ),
    Fault(
        "a failed epoch is not taken back", "maintenance/engine.py",
        "                if self.machine.runs != runs:\n                    self.undo_encoded(encoded)",
        "                if self.machine.runs != runs:\n                    pass",
    ),
    Fault(
        "a reference is not counted", "storage/table_kernels.py",
        "count_references(table, address, 1)", "count_references(table, address, 0)", TABLE,
    ),
    Fault(
        "a dropped view keeps its references", "storage/table.py",
        "upkeep.release_references(self.address)", "self.live",
    ),
    Fault(
        "a hub's expansion is not resumed", "storage/step_kernels.py",
        "store(at, 6, -1 if position >= rows else position)", "store(at, 6, -1)", HUBS,
    ),
    Fault(
        "carries are dropped", "storage/limb_kernels.py", "total = a + b + carry", "total = a + b", LIMBS,
    ),
    Fault(
        "an overflow of a sum goes unseen", "storage/table_kernels.py",
        "overflow |= add_overflows(a, b)", "overflow |= 0", FIXTURES,
    ),
    Fault(
        "views are not rescaled", "maintenance/view.py", "table.rescale(number, bits)", "table.live", FIXTURES,
    ),
    Fault(
        "groups' sums are not kept", "storage/table_kernels.py",
        "        if summed > 0:\n            group_row", "        if summed > 99:\n            group_row", TABLE,
    ),
    Fault(
        "predicates are ignored", "storage/delta_kernels.py",
        "keep = predicate < 0 or load(source, predicate) == 1", "keep = True",
    ),
    Fault(
        "a new index does not hold the rows there are", "maintenance/engine.py",
        "                copy_rows(self.machine, old, store)", "                pass", FIXTURES,
    ),
    Fault(
        "a row that was emptied twice is freed twice", "storage/table_kernels.py",
        "if load(address, keys) != MARK and sign_of(address, keys, limbs) == 0:",
        "if sign_of(address, keys, limbs) == 0 or load(address, keys) == MARK:", TABLE,
    ),
    Fault(
        "a neighbour keeps pointing at an unlinked row", "storage/table_kernels.py",
        "store32(rows + (after - 1) * width * 8, place + 1, before)",
        "store32(rows + (after - 1) * width * 8, place + 1, row + 1)", TABLE,
    ),
    Fault(
        "computed columns see the caller's types", "maintenance/relation.py",
        "{column.name: column.type for column in self.columns}, expressions",
        "{c.name: str(v.type).replace('string', 'varchar') for c, v in zip(self.columns, rows.columns)}, expressions",
        FIXTURES,
    ),
    Fault(
        "a search tree is not balanced", "storage/order_kernels.py",
        "if priority(above, keys) >= own:", "if priority(above, keys) >= own or steps == 0:", ORDER,
    ),
    Fault(
        "a string equals its prefix", "storage/dictionary_kernels.py",
        "return (own > other) - (own < other)", "return 0 * (own - other)", ORDER,
    ),
    Fault(
        "rows that have moved keep the old children", "storage/order_kernels.py",
        "for word in (place + 3, sides, sides + 1):", "for word in (place + 3, sides):", ORDER,
    ),
    Fault(
        "a swept row stays in the search tree", "storage/order_kernels.py",
        "    hang(table, rest, load32(address, place + 3), row + 1, place, sides, group_tail)\n    return steps",
        "    return steps", ORDER,
    ),
    Fault(
        "NULL is a value", "sqlfront/bind_companions.py",
        "required=atom.required | (variables & nullable)", "required=atom.required", DISTINCT,
    ),
    Fault(
        "an aggregate's filter is forgotten", "sqlfront/bind_companions.py",
        "JoinCore(self._core.atoms, [*self._core.conditions, *conditions])",
        "JoinCore(self._core.atoms, [*self._core.conditions])", DISTINCT,
    ),
    Fault(
        "the greatest value is the least", "maintenance/companions.py",
        'int(raw.kind == "greatest")', 'int(raw.kind == "least")', DISTINCT,
    ),
]  # fmt: skip


def apply_fault(fault: Fault, tree: Path) -> None:
    path = tree / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has its text {text.count(fault.old)} times, not once")
    path.write_text(text.replace(fault.old, fault.new))


def is_caught(fault: Fault, directory: Path) -> bool:
    """Whether the quick test fails on a copy of the tree with the fault in it."""
    for name in ("sqlfront", "maintenance", "planner", "storage", "tests"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", directory)
    apply_fault(fault, directory)
    environment = dict(os.environ, PYTHONPATH=str(directory), HYPOTHESIS_PROFILE="unshrunk")
    if fault.file.startswith("storage/"):
        environment["SQLFRONT_CACHE_DIR"] = str(directory / "cache")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *fault.caught_by.split(" ")]
    command = [part for part in command if part]
    result = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=600)
    return result.returncode == 1 or result.returncode < 0


def main(names: list[str]) -> int:
    missed = 0
    for fault in FAULTS:
        if names and not any(name in fault.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as directory:
            caught = is_caught(fault, Path(directory))
        missed += not caught
        print("caught" if caught else "MISSED", fault.name, flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.faults [NAME...]`: apply the faults whose names hold one of these texts; print the caught."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.faults import FAULTS, copy_tree, is_caught


def main(names: list[str]) -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        tree = copy_tree(Path(directory))
        for fault in FAULTS:
            if names and not any(name in fault.name for name in names):
                continue
            caught = is_caught(fault, tree)
            missed += not caught
            print("caught" if caught else "MISSED", fault.name, flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

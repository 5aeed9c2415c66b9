"""One-line faults that the tests must catch (law 8): the proof that the tests can fail.

The faults are data, one file per package. `python -m tests.faults [NAME...]` applies each to a copy of the tree and
runs the test named with it, which passes on an unchanged copy; tests/test_faults.py does so for all of them when slow
tests are asked for. A kernel's fault compiles anew, for half a minute.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("sqlfront", "maintenance", "planner", "storage")
LONGEST = 400
"""Seconds after which a test counts as one that does not end."""


@dataclass(frozen=True)
class Fault:
    """In `file`, `old` (which occurs once) becomes `new`; `caught_by` are pytest's arguments."""

    name: str
    file: str
    old: str
    new: str
    caught_by: str


def read_faults(package: str) -> list[Fault]:
    text = Path(__file__).with_name(f"{package}.toml").read_text()
    return [Fault(**fault) for fault in tomllib.loads(text)["fault"]]


FAULTS = [fault for package in PACKAGES for fault in read_faults(package)]


def copy_tree(directory: Path) -> Path:
    """A copy of the tree to be faulted; compiled kernels are kept in it too, from one run to the next."""
    for name in (*PACKAGES, "tests", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, directory / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", directory)
    return directory


def is_caught(fault: Fault, tree: Path) -> bool:
    """Whether the quick test fails on a copy of the tree with the fault in it, and passes on one without."""
    if not passes_unchanged(fault.caught_by, tree):
        raise ValueError(f"{fault.caught_by} fails without any fault")
    with _applied(fault, tree / fault.file):
        code = _run(fault.caught_by, tree)
    return code == 1 or code < 0


@cache
def passes_unchanged(tests: str, tree: Path) -> bool:
    """Whether tests pass on the copy as it is: only then does a failure prove anything."""
    return _run(tests, tree) == 0


@contextmanager
def _applied(fault: Fault, path: Path) -> Iterator[None]:
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has its text {text.count(fault.old)} times, not once")
    kept = path.rename(path.with_suffix(".kept"))  # With its time, by which numba knows what it has compiled.
    path.write_text(text.replace(fault.old, fault.new))
    try:
        yield
    finally:
        kept.replace(path)


def _run(tests: str, tree: Path) -> int:
    """pytest's exit code: 1 when a test has failed, or does not end."""
    environment = dict(os.environ, PYTHONPATH=str(tree), HYPOTHESIS_PROFILE="unshrunk")
    environment["SQLFRONT_CACHE_DIR"] = str(tree / "cache")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]
    try:
        return subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=LONGEST).returncode
    except subprocess.TimeoutExpired:
        return 1

"""The tests can fail: every fault in tests/faults.py is caught by the quick test named with it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import FAULTS, ROOT, Fault, copy_tree, is_caught


def test_there_are_faults_and_they_can_be_applied():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 12
    counts = {fault.name: (ROOT / fault.file).read_text().count(fault.old) for fault in FAULTS}
    assert {name: n for name, n in counts.items() if n != 1} == {}
    assert [fault.name for fault in FAULTS if fault.new == fault.old] == []


def test_a_fault_has_a_test_that_is_run_always():
    """Where variants of a file run seldom, the words of -k choose some of the others."""
    files = {line.partition("::")[0] for line in (ROOT / "tests" / "seldom.txt").read_text().splitlines()}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(files)]
    quick = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    without = []
    for fault in FAULTS:
        path, *words = shlex.split(fault.caught_by)
        if path in files:
            assert not words or (words[0] == "-k" and len(words) == 2), fault.caught_by
            wanted = words[1].split(" and ") if words else []
            chosen = [one for one in quick if one.startswith(f"{path}::") and all(word in one for word in wanted)]
            without += [] if chosen else [fault.name]
    assert without == []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("faulty"))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught(fault: Fault, tree: Path):
    assert is_caught(fault, tree), f"no test notices that {fault.name}"


def test_a_test_that_fails_anyway_proves_nothing(tmp_path: Path):
    (tmp_path / "test_failing.py").write_text("def test_it(): assert False")
    with pytest.raises(ValueError, match="fails without any fault"):
        is_caught(replace(FAULTS[0], caught_by="test_failing.py"), tmp_path)

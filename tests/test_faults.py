"""The tests can fail: every fault in tests/faults.py is caught by the quick test named with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import FAULTS, ROOT, Fault, is_caught


def test_there_are_faults_and_they_can_be_applied():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 12
    counts = {fault.name: (ROOT / fault.file).read_text().count(fault.old) for fault in FAULTS}
    assert {name: n for name, n in counts.items() if n != 1} == {}
    assert [fault.name for fault in FAULTS if fault.new == fault.old] == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught(fault: Fault, tmp_path: Path):
    assert is_caught(fault, tmp_path), f"no test notices that {fault.name}"

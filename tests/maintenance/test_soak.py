"""Churn in views of every kind: right, empty after emptying, and no memory is lost on the way."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.soak import ASKING, KINDS, soak


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_soak(kind: str) -> None:
    found = soak(kind, 40 if kind in ASKING else 500, 40)
    assert (found["wrong"], found["left"]) == (0, 0)
    assert found["lasting"] < 250_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the resident memory")
@pytest.mark.parametrize("kind", KINDS)
def test_resident_memory_stays_flat(kind: str) -> None:
    epochs = 3000 if kind in ASKING else 60_000
    program = f"from benchmarks.soak import soak; print(soak({kind!r}, {epochs}, 500)['growth'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.05

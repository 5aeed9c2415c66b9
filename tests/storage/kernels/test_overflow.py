"""Integer overflow wraps around, compiled either way: LLVM folds no comparison that hashes and carries rely on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sqlfront.storage.native.kernel_setup import compiler

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
MULTIPLIER = -4658895280553007687
KERNELS = f"""
from sqlfront.storage.kernels.jit import kernel

@kernel("boolean(int64,int64)")
def at_least(a, b):
    return a * {MULTIPLIER} >= b * {MULTIPLIER}

@kernel("boolean(int64,int64)")
def carries(a, b):
    return a + b < a

@kernel("boolean(int64,int64)")
def borrows(a, b):
    return a - b > a

@kernel("boolean(int64,int64)")
def doubles(a, b):
    return (a << 1) > a
"""
BUILT = """
import sys
from pathlib import Path
from sqlfront.storage.kernels import building
from sqlfront.storage.native import native_file
import folded
kernels = [folded.at_least, folded.carries, folded.borrows, folded.doubles]
building.build(Path("folded.{kind}"), lambda step, share: None, kernels)
found = native_file.load_file(Path("folded.{kind}"))
assert found.fingerprint == native_file.fingerprint()
names = [name for name in dir(found) if name.startswith("folded")]
folded = type("Folded", (), {{name.partition("_")[2]: getattr(found, name) for name in names}})
"""
PRINTED = """
pairs = [tuple(map(int, line.split())) for line in sys.stdin]
calls = (folded.at_least, folded.carries, folded.borrows, folded.doubles)
print([tuple(bool(call(*pair)) for call in calls) for pair in pairs])
"""


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("mode", ["jit", "so", "o"])
def test_overflow_wraps_around_where_a_comparison_could_be_folded(tmp_path: Path, mode: str) -> None:
    if mode == "so" and compiler() is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "folded.py").write_text(KERNELS)
    code = ("import sys, folded\n" if mode == "jit" else BUILT.format(kind=mode)) + PRINTED
    environment = dict(os.environ, SQLFRONT_KERNELS="jit", SQLFRONT_CACHE_DIR=str(tmp_path))
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    generator = random.Random(5)
    pairs = [tuple(generator.randrange(-(2**63), 2**63) for _ in range(2)) for _ in range(2000)]
    given = "\n".join(f"{a} {b}" for a, b in pairs)
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = [
        (
            wrapped(a * MULTIPLIER) >= wrapped(b * MULTIPLIER),
            wrapped(a + b) < a,
            wrapped(a - b) > a,
            wrapped(a << 1) > a,
        )
        for a, b in pairs
    ]
    assert eval(done.stdout) == expected

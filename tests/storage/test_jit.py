"""The kernel cache: an edit anywhere in the package changes the fingerprint, and the code that runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage import jit

PACKAGE = Path(jit.__file__).parent
PROBE = (
    "import numpy as np; from storage.limb_kernels import copy_value; a = np.array([5]); b = np.array([0]); "
    "copy_value(b.ctypes.data, 0, 1, a.ctypes.data, 0, 1); print(int(b[0]))"
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A package of what limb_kernels needs, and no more, so that it compiles quickly."""
    package = tmp_path / "storage"
    package.mkdir()
    for name in ("__init__", "jit", "layout", "memory", "limb_kernels"):
        shutil.copy(PACKAGE / f"{name}.py", package)
    return tmp_path


def run(directory: Path) -> str:
    environment = dict(os.environ, PYTHONPATH=str(directory), SQLFRONT_CACHE_DIR=str(directory / "cache"))
    result = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_an_edit_in_a_callee_of_another_file_is_seen(copy):
    before = jit.fingerprint(copy / "storage")
    assert run(copy) == "5"
    assert len(list((copy / "cache" / "sqlfront" / "kernels").iterdir())) == 1
    callee = copy / "storage" / "memory.py"
    text = callee.read_text()
    word = "builder.load(address, align=8)"
    start = text.index("def load(typingctx")
    old = text[start : text.index(word, start) + len(word)]
    assert text.count(old) == 1
    callee.write_text(text.replace(old, old.replace(word, f"builder.add({word}, _I64(100))")))
    assert jit.fingerprint(copy / "storage") != before
    assert run(copy) == "105"
    assert len(list((copy / "cache" / "sqlfront" / "kernels").iterdir())) == 2


def test_the_fingerprint_sees_names_contents_and_nothing_else(copy):
    package = copy / "storage"
    before = jit.fingerprint(package)
    (package / "notes.txt").write_text("not a source")
    assert jit.fingerprint(package) == before
    (package / "jit.py").rename(package / "jot.py")
    assert jit.fingerprint(package) != before
    (package / "jot.py").rename(package / "jit.py")
    assert jit.fingerprint(package) == before
    (package / "layout.py").write_text((package / "layout.py").read_text() + "# edited\n")
    assert jit.fingerprint(package) != before


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SQLFRONT_CACHE_DIR", str(tmp_path))
    assert jit.cache_directory() == tmp_path / "sqlfront" / "kernels" / jit.fingerprint(PACKAGE)


def test_kernels_live_where_the_fingerprint_looks():
    for source in PACKAGE.glob("*.py"):
        if "\n@kernel(" in source.read_text():
            assert source.stem.endswith("_kernels"), f"{source.name} holds kernels that the fingerprint does not see"

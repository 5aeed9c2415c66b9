"""The kernel cache: an edit anywhere in the package changes the fingerprint, and the code that runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sqlfront.storage.kernels import jit

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
PACKAGE = Path(jit.__file__).parent
KERNELS = Path("sqlfront", "storage", "kernels")
PROBE = (
    "import numpy as np; from sqlfront.storage.kernels.numbers.limbs import copy_value; "
    "a = np.array([5]); b = np.array([0]); "
    "copy_value(b.ctypes.data, 0, 1, a.ctypes.data, 0, 1); print(int(b[0]))"
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A package of what limbs needs, and no more, so that it compiles quickly."""
    for name in ("__init__", "jit", "lowering", "layout", "memory", "numbers/__init__", "numbers/limbs"):
        target = tmp_path / KERNELS / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / f"{name}.py", target)
    for above in (tmp_path / KERNELS).parents[:2]:
        (above / "__init__.py").touch()
    for name in ("errors.py", "native/__init__.py", "native/compilers.py", "native/native_file.py"):
        target = (tmp_path / KERNELS).parent / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(PACKAGE.parent / name, target)
    return tmp_path


def run(directory: Path) -> str:
    environment = dict(os.environ, PYTHONPATH=str(directory), SQLFRONT_CACHE_DIR=str(directory / "cache"))
    environment["SQLFRONT_KERNELS"] = "jit"
    result = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_an_edit_in_a_callee_of_another_file_is_seen(copy):
    before = jit.fingerprint(copy / KERNELS)
    assert run(copy) == "5"
    assert len(list((copy / "cache" / "sqlfront" / "kernels").iterdir())) == 1
    callee = copy / KERNELS / "memory.py"
    text = callee.read_text()
    word = "builder.load(address, align=8)"
    start = text.index("def load(typingctx")
    old = text[start : text.index(word, start) + len(word)]
    assert text.count(old) == 1
    callee.write_text(text.replace(old, old.replace(word, f"builder.add({word}, _I64(100))")))
    assert jit.fingerprint(copy / KERNELS) != before
    assert run(copy) == "105"
    assert len(list((copy / "cache" / "sqlfront" / "kernels").iterdir())) == 2


def test_the_fingerprint_sees_names_contents_and_nothing_else(copy):
    package = copy / KERNELS
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
    storage = PACKAGE.parent
    for source in storage.rglob("*.py"):
        if "\n@kernel(" in source.read_text():
            assert source.parent.parent == PACKAGE, f"{source} holds kernels that the fingerprint does not see"

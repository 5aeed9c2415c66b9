"""The file of all kernels: it is used if it was made of these sources, and nothing else takes its place unseen."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlfront.storage.errors import OperationalError
from sqlfront.storage.native import kernel_setup
from sqlfront.storage.native import native_file as native

FILE = native.HERE / native.FILE if (native.HERE / native.FILE).exists() else native.built_file()
needs_file = pytest.mark.skipif(native.loaded() is None, reason="kernels are compiled by numba here")


@needs_file
def test_a_file_of_other_sources_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = native.find()
    assert found is not None
    assert found.fingerprint == native.fingerprint()
    monkeypatch.setattr(native, "fingerprint", lambda: "other")
    monkeypatch.setattr(native, "built_file", lambda name="": FILE)
    assert native.find() is None


def test_the_fingerprint_sees_every_edit(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "one.py").write_text("a = 1\n")
    before = native.fingerprint_of(tmp_path)
    (tmp_path / "tables" / "one.py").write_text("a = 2\n")
    edited = native.fingerprint_of(tmp_path)
    (tmp_path / "tables" / "one.py").rename(tmp_path / "tables" / "two.py")
    assert len({before, edited, native.fingerprint_of(tmp_path)}) == 3


def test_a_mode_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLFRONT_KERNELS", "fast")
    with pytest.raises(OperationalError, match="SQLFRONT_KERNELS is 'fast'"):
        native.mode()


def loading(tmp_path: Path, code: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What a process says that finds no file."""
    environment = dict(os.environ, SQLFRONT_CACHE_DIR=str(tmp_path), PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    return subprocess.run([sys.executable, "-c", code], env=environment | more, capture_output=True, text=True)


def test_native_forbids_to_fall_back(tmp_path: Path) -> None:
    if (native.HERE / native.FILE).exists():
        pytest.skip("this is a wheel, whose file is always there")
    code = "from sqlfront.storage.native import native_file as native; native.loaded()"
    done = loading(tmp_path, code, SQLFRONT_KERNELS="native")
    assert done.returncode == 1
    assert "there is no file of compiled kernels for these sources" in done.stderr


def test_without_a_file_and_without_numba_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find", lambda: None)
    monkeypatch.setattr(kernel_setup, "has_compilers", lambda: False)
    kernel_setup.ensure_kernels.cache_clear()
    with pytest.raises(OperationalError, match="pip install 'sqlfront\\[kernels\\]'"):
        kernel_setup.ensure_kernels()


def test_a_file_that_cannot_be_built_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQLFRONT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_setup, "MODULE", "no_module_of_ours")
    assert "no_module_of_ours" in (kernel_setup.build_file(native.built_file()) or "")
    assert "compiled kernels in" not in capsys.readouterr().err
    assert not native.built_file().exists()


@needs_file
@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are not installed")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="about instructions of x86-64")
def test_the_file_needs_no_newer_vector_units() -> None:
    listed = subprocess.run(["objdump", "-d", str(FILE)], capture_output=True, text=True, check=True).stdout
    names = {line.split("\t")[2].split()[0] for line in listed.splitlines() if line.count("\t") >= 2}
    assert {"mov", "imul", "ret"} <= names
    # Not tzcnt: older processors run it as bsf, which is the same where LLVM puts it.
    newer = re.compile(r"v[a-z]+|andn|bextr|bls[a-z]+|bzhi|mulx|p(dep|ext)|rorx|s(a|h)[lr]x|lzcnt|movbe|xsave.*")
    assert not [name for name in names if newer.fullmatch(name)]


def test_a_build_that_was_interrupted_begins_again_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "kernels" / native.FILE
    monkeypatch.setattr(kernel_setup, "MODULE", "no_module_of_ours")
    for why in ("once for these sources", "again: the last time did not end"):
        kernel_setup.build_file(target)
        assert f"sqlfront: compiling kernels, {why}" in capsys.readouterr().err


def test_the_bar_goes_on_at_the_same_rate_while_nothing_is_told() -> None:
    def lines() -> Iterator[str]:
        for number in range(6):
            time.sleep(0.1)
            yield f"{number / 10:.3f} lowering"
        time.sleep(0.5)
        yield "1.000 done"

    shares = list(kernel_setup.shares(lines()))
    assert shares == sorted(shares)
    assert [share for share in shares if 0.55 < share < 0.98]
    assert shares[-1] == 1.0

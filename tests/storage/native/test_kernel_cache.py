"""Where compiled kernels go when their usual directory cannot be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlfront.storage.errors import OperationalError
from sqlfront.storage.native.kernel_cache import ensure_cache


@pytest.fixture(autouse=True)
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file where the cache's directory should be, which not even root can write below."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("SQLFRONT_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ensure_cache.cache_clear()
    yield tmp_path
    ensure_cache.cache_clear()


def test_kernels_are_cached_below_the_temporary_directory(unwritable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ensure_cache()
    assert Path(os.environ["SQLFRONT_CACHE_DIR"]).parent == unwritable
    assert capsys.readouterr().err.count("\n") == 1


def test_a_fallback_that_others_can_write_is_not_used(unwritable: Path) -> None:
    ensure_cache()
    Path(os.environ["SQLFRONT_CACHE_DIR"]).chmod(0o777)
    os.environ["SQLFRONT_CACHE_DIR"] = str(unwritable / "file")
    ensure_cache.cache_clear()
    with pytest.raises(OperationalError, match="SQLFRONT_CACHE_DIR"):
        ensure_cache()


def test_a_directory_that_can_be_written_is_used(unwritable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLFRONT_CACHE_DIR", str(unwritable / "own"))
    ensure_cache()
    assert os.environ["SQLFRONT_CACHE_DIR"] == str(unwritable / "own")

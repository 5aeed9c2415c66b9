"""The directory of compiled kernels when the usual one cannot be written: one below the temporary directory.

Kernels read SQLFRONT_CACHE_DIR when the first of them loads, so this runs before that.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from sqlfront.storage.errors import OperationalError
from sqlfront.storage.native.native_file import cache_base


@functools.cache
def ensure_cache() -> None:
    """Point SQLFRONT_CACHE_DIR to a directory that can be written. OperationalError if there is none."""
    reason = _obstacle(cache_base)
    if reason is None:
        return
    fallback = Path(tempfile.gettempdir()) / f"sqlfront-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    if (worse := _obstacle(lambda: _private(fallback))) is not None:
        raise OperationalError(
            "compiled kernels cannot be stored",
            why=f"{reason}; {worse}",
            hint="set SQLFRONT_CACHE_DIR to a directory that can be written",
        )
    os.environ["SQLFRONT_CACHE_DIR"] = str(fallback)
    print(f"sqlfront: kernels are cached in {fallback} ({reason}); see SQLFRONT_CACHE_DIR", file=sys.stderr, flush=True)


def _private(directory: Path) -> Path:
    """A directory in which nobody else may put code that this process would load."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        raise PermissionError(f"{directory} may be written by others")
    return directory


def _obstacle(base: Callable[[], Path]) -> str | None:
    """Why kernels cannot be stored below a directory; None if they can."""
    try:
        directory = base() / "sqlfront" / "kernels"
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return None
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory.
        return str(error)

"""What surrounds the import of the modules that maintain views: they load with the first view, not with `connect`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlfront.storage.native.kernel_setup import ensure_kernels

_SPIN = "OPENBLAS_THREAD_TIMEOUT"


@contextmanager
def starting() -> Iterator[None]:
    """Kernels are ready, numpy is loaded, and no garbage is collected. OperationalError if there is no way to have
    kernels."""
    ensure_kernels()
    with uncollected():
        _load_numpy()
        yield


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected while modules are loaded or views restored: these make none, and a full collection among
    thousands of new objects takes 10 ms."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _load_numpy() -> None:
    """Import numpy. Its BLAS starts a thread for each core, and each spins for 2**26 cycles whenever it waits for work:
    with two cores 0.1 s of processor time before the first row. 2**20 cycles are 0.3 ms. (OpenBLAS, Makefile.rule)"""
    if "numpy" in sys.modules or _SPIN in os.environ:
        return
    os.environ[_SPIN] = "20"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_SPIN]

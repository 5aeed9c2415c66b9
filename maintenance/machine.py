"""The machine that runs programs: scratch memory, step counters, and one call into compiled code."""

from __future__ import annotations

import weakref

import numpy as np

from storage import layout as at
from storage import program_kernels as kernels
from storage.jit import entry_point
from storage.table_kernels import free_words

_run = entry_point(kernels.run)
run_epoch = entry_point(kernels.run_epoch)

MAX_VIEWS = 4096


class Machine:
    """Scratch space shared by all programs of an engine, which run one at a time."""

    def __init__(self) -> None:
        self.scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self.counters = np.zeros(MAX_VIEWS, np.int64)
        self._temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        self._stack = np.zeros(4 * at.MAX_BUFFERS, np.int64)
        self.scratch[at.TEMPORARY] = self._temporary.ctypes.data
        self.scratch[at.STACK] = self._stack.ctypes.data
        self.scratch[at.COUNTERS] = self.counters.ctypes.data
        self.address = self.scratch.ctypes.data
        self._finalizer = weakref.finalize(self, _free_buffers, self.scratch)

    def run(self, program: np.ndarray, data: np.ndarray | None = None, rows: int = 0, sign: int = 1) -> int:
        """Run a program over rows of encoded data (or, for SCAN, over row numbers 0..rows-1); returns the flags."""
        address = 0 if data is None else data.ctypes.data
        return run_epoch(program.ctypes.data, 0, 0, self.address, address, rows, sign)

    def run_once(self, program: np.ndarray) -> int:
        """Run a program that reads no data: checks and sweeps. Returns the flags."""
        self.scratch[at.FLAGS] = 0
        _run(program.ctypes.data, self.address, 0, 0, 0, 1)
        return int(self.scratch[at.FLAGS])


def _free_buffers(scratch: np.ndarray) -> None:
    places = [at.HASHES, at.MATCHES, *range(at.BUFFERS, at.SCRATCH_WORDS, 3)]
    for place in places:
        if scratch[place]:
            free_words(int(scratch[place]))

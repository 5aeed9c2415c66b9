"""Barriers: points of a program that a thread leaves when all threads of a team have come to it.

A barrier is two words: how many threads have ever come, and how often the team was complete. A thread that waits asks
again and again, for a microsecond or two; then it gives its processor away between its questions.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import BARRIER_ARRIVED, BARRIER_COMPLETE
from sqlfront.storage.kernels.memory import add_shared, load_shared, sched_yield

_ASKED = 1000


@kernel("void(int64,int64)")
def wait_for(barrier, threads):
    """Come to a barrier of so many threads, and wait for the others."""
    complete = load_shared(barrier, BARRIER_COMPLETE)
    arrived = add_shared(barrier, BARRIER_ARRIVED, 1) + 1
    if arrived % threads == 0:
        add_shared(barrier, BARRIER_COMPLETE, 1)
        return
    asked = 0
    while load_shared(barrier, BARRIER_COMPLETE) == complete:
        asked += 1
        if asked > _ASKED:
            sched_yield()

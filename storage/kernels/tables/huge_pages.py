"""Huge pages for large tables: a hop to any row of one finds its address translated more often.

With small pages a row far away costs a walk through the page tables besides the wait for memory itself.
Where the system gives huge pages on request only (as most Linux systems do), they are requested here, as
numpy does for its large arrays. Advice only: where it is not taken, everything works as before.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.memory import advise

_LARGE = 1 << 24
_PAGE = 1 << 12
# MADV_HUGEPAGE of Linux, for what is touched from now on. Moving what is there too would halve the speed of a build.
_FROM_NOW_ON = 14


@kernel("void(int64,int64)")
def use_huge_pages(address, size):
    """Ask for huge pages under an array of `size` bytes."""
    if size < _LARGE:
        return
    first = (address + _PAGE - 1) // _PAGE * _PAGE
    advise(first, (address + size - first) // _PAGE * _PAGE, _FROM_NOW_ON)

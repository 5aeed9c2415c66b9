"""Huge pages for large tables: a hop to any row of one finds its address translated more often.

With small pages a row far away costs a walk through the page tables besides the wait for memory itself.
Where the system gives huge pages on request only (as most Linux systems do), they are requested here, as
numpy does for its large arrays. Advice only: where it is not taken, everything works as before.
"""

from __future__ import annotations

from storage.jit import kernel
from storage.memory import advise

_LARGE = 1 << 24
_PAGE, _HUGE_PAGE = 1 << 12, 1 << 21
# Linux's MADV_HUGEPAGE: from now on; MADV_COLLAPSE (6.1): what is there already.
_FROM_NOW_ON, _AT_ONCE = 14, 25


@kernel("void(int64,int64,int64)")
def use_huge_pages(address, used, size):
    """Ask for huge pages under the `size` bytes of an array, of which the first `used` are in use already.

    Those that growth has moved lie on small pages now, and are copied.
    """
    if size < _LARGE:
        return
    first = (address + _PAGE - 1) // _PAGE * _PAGE
    advise(first, (address + size - first) // _PAGE * _PAGE, _FROM_NOW_ON)
    first = (address + _HUGE_PAGE - 1) // _HUGE_PAGE * _HUGE_PAGE
    length = (address + used - first) // _HUGE_PAGE * _HUGE_PAGE
    if length > 0:
        advise(first, length, _AT_ONCE)

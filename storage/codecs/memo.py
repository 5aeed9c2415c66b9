"""Memos: what an expression over one text makes of each text of a dictionary, one word by the text's code.

A memo is a cache. Its entries hold no references. A sweep of the dictionary forgets the entries of texts that it frees,
and keeps a text alive that is the value of an entry it keeps. NULL is a text of its own: a value that is made of it is
pinned. The words lie in pages of PAGE codes, for dictionaries are shared and a column's codes are few among them. A
compiled expression reads them by LOOK_UP (kernels/programs/expression.py).

Not thread-safe: callers hold the engine's lock.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.programs.expression import PAGE, PAGE_BITS

if TYPE_CHECKING:
    from sqlfront.storage.codecs.dictionary import Dictionary

_MOST_LOOSE = 1 << 18
"""Texts that are kept for memos alone."""
_FEW = 1 << 10
"""Texts that take less time to compute than to sort out equal ones."""


class Memo:
    """The words of one expression. `absent` is a word that no value has, `is_text`: the words are codes of the same
    dictionary. Reads take constant time; `learn` takes O(codes), amortised, and O(largest code / PAGE)."""

    def __init__(self, dictionary: Dictionary, absent: int, *, is_text: bool) -> None:
        self.absent, self.is_text, self.users = absent, is_text, 0
        self._dictionary = dictionary
        self._header = np.zeros(3, np.int64)
        self._pinned: int | None = None
        self.clear()

    @property
    def address(self) -> int:
        """The address of the header, which never moves."""
        return int(self._header.ctypes.data)

    def clear(self) -> None:
        """Forget all entries."""
        self._failing = set[int]()
        self._used = 1
        self._set(np.full((1, PAGE), self.absent, np.int64), np.zeros(1, np.int64))
        self._unpin()

    def lacks(self, codes: np.ndarray) -> np.ndarray:
        """Those of the codes that have no entry, each once if they are many. O(codes), and sorts those."""
        found = codes[self.words(codes) == self.absent]
        return found if len(found) <= _FEW else _distinct(found)

    def fails(self, codes: np.ndarray) -> bool:
        """Whether the expression is known to fail for one of these codes."""
        return bool(self._failing) and not self._failing.isdisjoint(codes.tolist())

    def words(self, codes: np.ndarray) -> np.ndarray:
        """The words of codes; `absent` where there is none."""
        places = _places(codes)
        entries = places >> PAGE_BITS
        if entries.max(initial=0) < len(self._directory):
            return self._pages.reshape(-1).take(self._in_pages(places, entries))
        found = np.full(len(codes), self.absent, np.int64)
        reached = np.flatnonzero(entries < len(self._directory))
        found[reached] = self.words(codes[reached])
        return found

    def learn(self, codes: np.ndarray, words: np.ndarray) -> None:
        """Enter the words of codes."""
        self._failing.update(codes[words == self.absent].tolist())
        if self.is_text and self._pinned is None and (null := words[(codes == NULL_CODE) & (words >= 0)]).size:
            self._dictionary.hold(int(null[0]))
            self._pinned = int(null[0])
        places = _places(codes)
        entries = places >> PAGE_BITS
        self._make_pages(entries)
        self._pages.reshape(-1)[self._in_pages(places, entries)] = words

    def fail(self, codes: np.ndarray) -> None:
        """Note that the expression fails for these codes."""
        self._failing.update(codes.tolist())

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """The codes of the texts that have an entry, NULL not among them, and their words."""
        codes, words = self._codes(), self._pages[1 : self._used]
        known = (codes >= 0) & (words != self.absent)
        return codes[known], words[known]

    def keep(self, alive: np.ndarray) -> None:
        """Forget the entries of texts that are not `alive`, by their codes, and pages without entries. O(pages)."""
        codes, words = self._codes(), self._pages[1 : self._used]
        words[(codes >= 0) & ~np.append(alive, False)[np.minimum(codes, len(alive))]] = self.absent
        self._failing = {code for code in self._failing if code < 0 or (code < len(alive) and alive[code])}
        if (left := (words != self.absent).any(1)).all():
            return
        owners, pages = self._owners()[left], np.concatenate([self._pages[:1], words[left]])
        directory = np.zeros(owners.max(initial=0) + 1, np.int64)
        directory[owners] = np.arange(1, len(pages))
        self._used = len(pages)
        self._set(pages, directory)

    def bytes(self) -> int:
        """Memory allocated."""
        return self._pages.nbytes + self._directory.nbytes

    def _codes(self) -> np.ndarray:
        """The codes whose words the pages in use hold; -1 for NULL."""
        return (self._owners() << PAGE_BITS)[:, None] + np.arange(-1, PAGE - 1)

    def _owners(self) -> np.ndarray:
        """The entry of the directory that each page in use belongs to."""
        owners = np.zeros(self._used, np.int64)
        used = np.flatnonzero(self._directory)
        owners[self._directory[used]] = used
        return owners[1:]

    def _in_pages(self, places: np.ndarray, entries: np.ndarray) -> np.ndarray:
        """Where the words lie, counted from the first page's first."""
        found: np.ndarray = (self._directory[entries] << PAGE_BITS) + (places & (PAGE - 1))
        return found

    def _make_pages(self, entries: np.ndarray) -> None:
        """Let these entries of the directory have pages."""
        directory, pages = self._directory, self._pages
        if (most := int(entries.max(initial=0))) >= len(directory):
            directory = np.zeros(2 * most + 1, np.int64)
            directory[: len(self._directory)] = self._directory
        is_needed = np.zeros(len(directory), bool)
        is_needed[entries] = True
        new = np.flatnonzero(is_needed & (directory == 0))
        if not new.size:
            return
        used = self._used + len(new)
        if used > len(pages):
            pages = np.full((used + used // 2, PAGE), self.absent, np.int64)
            pages[: self._used] = self._pages[: self._used]
        directory[new] = np.arange(self._used, used)
        self._used = used
        self._set(pages, directory)

    def _set(self, pages: np.ndarray, directory: np.ndarray) -> None:
        header = np.array([pages.ctypes.data, directory.ctypes.data, len(directory)], np.int64)
        # No call between these, at which Ctrl-C could come.
        self._pages, self._directory, self._header[:] = pages, directory, header

    def _unpin(self) -> None:
        if self._pinned is not None:
            self._dictionary.unpin(self._pinned)
            self._pinned = None

    def _check(self, live: np.ndarray) -> None:
        """Assert that all texts with entries are live, and so are the values that are texts."""
        codes, words = self.entries()
        assert live[codes].all()
        assert not self.is_text or live[words[words >= 0]].all()
        assert (self._pages[0] == self.absent).all()


class Memos:
    """The memos of one dictionary by what they compute, shared by all that compute it."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._memos: dict[Hashable, Memo] = {}

    def __iter__(self) -> Iterator[Memo]:
        return iter(self._memos.values())

    def __len__(self) -> int:
        return len(self._memos)

    def open(self, key: Hashable, absent: int, *, is_text: bool) -> Memo:
        """The memo of this key, made empty if it is not there, until as many calls of `close`."""
        if key not in self._memos:
            self._memos[key] = Memo(self._dictionary, absent, is_text=is_text)
        memo = self._memos[key]
        memo.users += 1
        return memo

    def close(self, key: Hashable) -> None:
        """Take one `open` back. The last one frees the memo."""
        memo = self._memos[key]
        memo.users -= 1
        if not memo.users:
            memo.clear()
            del self._memos[key]

    def settle(self, alive: np.ndarray, *, all_referred: bool) -> None:
        """Before a sweep: add the texts that memos keep to those that are referred to, `alive` by their codes. Entries
        of all other texts go. Memos keep texts that nothing refers to, with their values, unless `all_referred`, or
        these are many. O(codes + pages), times the depth of memos over values of memos."""
        entries = [memo.entries() for memo in self._memos.values()]
        if not all_referred:
            known = np.zeros_like(alive)
            for codes, _ in entries:
                known[codes] = True
            if int((known & ~alive).sum()) <= _MOST_LOOSE:
                alive |= known
        texts = [found for found, memo in zip(entries, self._memos.values(), strict=True) if memo.is_text]
        count = -1
        while count != (count := int(alive.sum())):
            for codes, words in texts:
                made = words[alive[codes]]
                alive[made[made >= 0]] = True
        for memo in self._memos.values():
            memo.keep(alive)

    def clear(self) -> None:
        """Forget all entries: codes have another meaning from now on."""
        for memo in self._memos.values():
            memo.clear()


def _places(codes: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.maximum(codes, -1) + 1
    return found


def _distinct(codes: np.ndarray) -> np.ndarray:
    """The codes, each once. NumPy's own way is a hash table, which takes longer than to sort them."""
    ordered = np.sort(codes)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: np.ndarray = ordered[is_first]
    return found

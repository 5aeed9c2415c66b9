"""When the nodes over a clock are due, so that a tick for which nothing is due does nothing."""

from __future__ import annotations

from sortedcontainers import SortedDict

NEVER = 1 << 62
"""A time after all others."""


class Calendar:
    """When the nodes over a clock are due: for each a time up to which none of its rows comes or goes with time alone.

    A time that is too early costs a look, a time that is too late would be wrong: an epoch that may be undone sets no
    later one. O(log nodes) for each change.
    """

    def __init__(self) -> None:
        self._due: SortedDict = SortedDict()
        self._of: dict[str, int] = {}

    @property
    def first(self) -> int:
        """The first time at which a node is due; NEVER if none is."""
        return int(self._due.peekitem(0)[0]) if self._due else NEVER

    def of(self, node: str) -> int:
        """When a node is due; at once before it has said."""
        return self._of.get(node, -NEVER)

    def set(self, node: str, due: int) -> None:
        """Let a node be due at another time."""
        self.forget(node)
        self._of[node] = due
        self._due.setdefault(due, set()).add(node)

    def forget(self, node: str) -> None:
        """A node is gone."""
        if node in self._of:
            due = self._of.pop(node)
            self._due[due].discard(node)
            if not self._due[due]:
                del self._due[due]

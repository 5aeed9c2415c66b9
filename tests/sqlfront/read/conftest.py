"""What tests of reads share: the walks along ranked trees that they make."""

from __future__ import annotations

import pytest

from sqlfront.maintenance.ranked.cursor import RankedWalk


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[RankedWalk]:
    """Every ranked walk that has begun, in order."""
    found: list[RankedWalk] = []
    begin = RankedWalk.__init__
    monkeypatch.setattr(RankedWalk, "__init__", lambda walk, *given: found.append(walk) or begin(walk, *given))
    return found

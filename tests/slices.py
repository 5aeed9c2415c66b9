"""Slices of long tests: one part runs always, the others with the slow tests."""

from __future__ import annotations

from typing import Any

import pytest


def parts(count: int) -> list[Any]:
    """The numbers of `count` parts as parameters of a test; all but the first are slow."""
    return [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, count))]

"""Slices of long tests: one part runs always, the others with the slow tests or the profile for fuzzing."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

LETTERS = st.characters(exclude_categories=["Cs"])
"""All characters of texts, as `st.text()` has them. That finds them by encoding each one, for 2 s in a fresh tree."""


def parts(count: int) -> list[Any]:
    """The numbers of `count` parts as parameters of a test; all but the first are slow."""
    return [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, count))]


def examples(count: int) -> settings:
    """So many random examples of a test, and ten times as many under HYPOTHESIS_PROFILE=fuzz."""
    more = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
    return settings(max_examples=10 * count if more else count, deadline=None)

"""The generated SQL support matrix tells the truth of this commit."""

from __future__ import annotations

from tests.support_matrix import PAGE, matrix


def test_support_matrix_is_up_to_date() -> None:
    assert PAGE.read_text() == matrix(), "run python -m tests.support_matrix"

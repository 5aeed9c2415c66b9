"""The page about Spark's dialect says what the rules say."""

from __future__ import annotations

from tests.spark_dialect import PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.spark_dialect"

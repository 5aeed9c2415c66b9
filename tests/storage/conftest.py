"""A table `t` and its capture."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from sqlfront.storage.capture.capture import Capture
from tests.storage.capture.captured import T


@pytest.fixture
def con() -> Any:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t(a INTEGER, b VARCHAR)")
    yield connection
    connection.close()


@pytest.fixture
def capture(con: Any) -> Capture:
    result = Capture("memory")
    result.install(con, {T: ["a", "b"]})
    return result

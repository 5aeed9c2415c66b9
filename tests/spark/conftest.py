"""One small Spark session for all Spark tests of a process; without Java they fail with the way out."""

from __future__ import annotations

import pytest

from sqlfront.spark.session import start


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = start(spark__sql__warehouse__dir=str(warehouse))
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()

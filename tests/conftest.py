"""Shared settings of the test suite: seeds are printed, and a failure can be replayed with them."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from sqlfront.storage.native.kernel_setup import ensure_kernels

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.register_profile("fuzz", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.register_profile("unshrunk", parent=settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
# Spark's Java starts in half the processor time without the second compiler and without code made for whole queries;
# the examples and the killed jobs, which start it in their own processes, inherit this.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.sql.codegen.wholeStage=false -Dspark.sql.adaptive.enabled=false",
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

ensure_kernels()  # Tests import what is below `sqlfront.connect`, which does this for others.

ROOT = Path(__file__).parents[1]
collect_ignore = (
    [] if (ROOT / "sqlfront").exists() else ["test_faults.py", "test_glossary.py", "test_house.py", "test_rails.py"]
)
"""Tests of the sources, which are not there when a wheel is tested."""

TOGETHER = {
    "tests/spark/": "spark", "[spark": "spark", "tests/streams/": "streams",
    "tests/test_rails.py": "sources", "tests/test_house.py": "sources", "tests/test_glossary.py": "sources",
}  # fmt: skip
"""What is in the names of tests that share what is slow to make: a session of Spark, what streams have done, or the
trees of all sources."""


SELDOM = dict((*line.split(" 1/"), "0")[:2] for line in (Path(__file__).parent / "seldom.txt").read_text().splitlines())
"""Variants of long tests that run with the slow ones, and tests with the n whose every n-th variant runs always.
Each such test has variants that run always."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the variants that run seldom, before pytest leaves out what is slow."""
    met: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        nth = int(SELDOM.get(test, 1))
        if item.nodeid in SELDOM or met[test] % nth:
            item.add_marker(pytest.mark.slow)
        met[test] += item.nodeid not in SELDOM


def pytest_collection_finish() -> None:
    """Garbage collections leave out the tests themselves, and are a tenth as many: each would look at all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(7000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share something run in one worker, the others wherever one is free."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((group for part, group in TOGETHER.items() if part in nodeid), nodeid)

    return Together(config, log)

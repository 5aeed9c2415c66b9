"""Shared settings of the test suite: seeds are printed, and a failure can be replayed with them."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.register_profile("fuzz", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.register_profile("unshrunk", parent=settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

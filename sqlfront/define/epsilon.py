"""The options about heavy and light values, as a view has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlfront.planner.model.heavy_light import EPSILON

OPTIONS = ("epsilon", "reads", "partition")
"""The options of a view that are about heavy and light values."""


def epsilon_of(options: Mapping[str, Any]) -> float:
    """The epsilon of a view by its options."""
    return float(options.get("epsilon", EPSILON))


def is_adaptive(options: Mapping[str, Any]) -> bool:
    """Whether a view may be planned anew while it runs: its options allow it, and choose no plan."""
    chosen = options.keys() & {*OPTIONS, "updates"} or options.get("strategy", "auto") != "auto"
    return bool(options.get("replan", True)) and not chosen

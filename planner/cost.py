"""The cost classes of the strategies. N is the number of rows in the view's tables."""

from __future__ import annotations

from dataclasses import replace

from planner.plan import Cost

CONSTANT = Cost(preprocessing="O(N)", update="O(1)", delay="O(1)", space="O(N)")
"""Berkholz, Keppeler and Schweikardt 2017, Theorem 3.2: q-hierarchical; or every step fixed by a declared key."""

LINEAR = Cost(preprocessing="O(N)", update="O(N)", delay="O(1)", space="O(N)")
"""Idris et al. 2017: free-connex acyclic. The update's N is met only when one key holds all rows."""

AMORTISED = replace(CONSTANT, update="O(1) amortised")
"""Free-connex, every step fixed by a declared key or ended by a foreign key (Wang and Yi 2020)."""

PROJECTED = Cost(
    preprocessing="O(N + extended result)",
    update="O(N + change of the extended result)",
    delay="O(1)",
    space="O(N + result)",
)
"""Idris et al. 2017, section 5.1: the free-connex extension, and its projection kept as rows."""

PROJECTED_CONSTANT = replace(PROJECTED, update="O(1 + change of the extended result)")
"""The same when every step of the extension's tree looks up one row: only the change itself is left to pay."""

PROJECTED_AMORTISED = replace(PROJECTED, update="O(1 + change of the extended result) amortised")
"""The same with foreign keys."""

MATERIALIZED = Cost(
    preprocessing="O(N + intermediate results)",
    update="O(1 + change of every intermediate result)",
    delay="O(1)",
    space="O(N + intermediate results)",
)
"""Koch et al. 2014: every intermediate join is stored; the result is the last of them."""

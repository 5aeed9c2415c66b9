"""From a query's shape to a plan: pure functions over frozen dataclasses, no I/O."""

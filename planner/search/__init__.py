"""The search for the cheapest tree of a query."""

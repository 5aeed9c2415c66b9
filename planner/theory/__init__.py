"""What the literature decides about a query: acyclic, hierarchical, free-connex, its cover and its core."""

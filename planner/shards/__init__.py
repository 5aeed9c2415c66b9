"""How a view is spread over shards."""

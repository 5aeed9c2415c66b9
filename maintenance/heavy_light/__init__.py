"""Heavy and light parts at run time: part trees, partitions, rebalancing and their union."""

"""EXPLAIN, SHOW and CHECK: what is kept, how, at what cost, and whether it is right."""

"""Named workloads, each run beside its peers in one process tree; results are written to benchmarks/results."""

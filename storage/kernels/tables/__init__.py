"""Kernels of tables in raw memory: hashing, groups, ordered groups, exact numbers."""

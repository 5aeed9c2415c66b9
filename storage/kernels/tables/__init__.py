"""Kernels of tables in raw memory: hashing, groups, ordered groups, files that hold them."""

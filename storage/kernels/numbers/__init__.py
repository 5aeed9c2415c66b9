"""Kernels of exact numbers: values of several words, and sums of floating numbers."""

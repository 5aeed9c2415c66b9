"""Sums over boxes: what lies within bounds of two orders at once."""

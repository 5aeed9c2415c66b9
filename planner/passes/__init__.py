"""Passes that add to a finished plan: orders, distinct values, merged branches, advice."""

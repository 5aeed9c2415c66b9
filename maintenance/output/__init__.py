"""Rows out of a view: reads, changes and subscribers."""

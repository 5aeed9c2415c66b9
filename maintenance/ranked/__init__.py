"""Ranked enumeration: ranked trees, and cursors that read them in order."""

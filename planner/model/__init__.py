"""Queries and plans as frozen values, and their costs."""

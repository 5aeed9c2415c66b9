"""Rows kept in order for window functions, and the values that are read from them."""

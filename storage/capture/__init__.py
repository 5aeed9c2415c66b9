"""Exact capture of the changes of ordinary DuckDB tables."""

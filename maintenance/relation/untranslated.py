"""What is left to DuckDB."""


class Untranslated(Exception):
    """An expression that only DuckDB computes."""

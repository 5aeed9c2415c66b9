"""The SQL shell: statements typed or read from a file, results drawn as tables."""

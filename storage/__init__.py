"""The ground floor: values as words, tables in raw memory, kernels, dictionaries, and capture of DuckDB's changes."""

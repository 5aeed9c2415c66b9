"""Window functions below other operators that have a native form."""

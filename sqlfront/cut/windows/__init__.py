"""Window functions as text, read for ordered rows."""

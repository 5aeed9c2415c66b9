"""Window functions: their text, read for ordered rows, and native forms of those below other operators."""

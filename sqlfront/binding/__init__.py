"""From sqlglot's tree of a query to a term of the algebra: names resolved, types as DuckDB gives them."""

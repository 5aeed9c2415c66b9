"""One rule per class of queries: each returns a plan, a refusal, or None to pass the query on."""

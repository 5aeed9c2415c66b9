"""Rewrite rules of the algebra: one rule, one file, one function from term to term."""

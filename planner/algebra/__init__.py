"""Queries as terms of a relational algebra: frozen values that rules rewrite, before they are cut into view trees."""

"""Distinct rows that no table has: a read finds them from the rows of single tables, group after group."""

"""Expressions and their types, apart from the join that they are over."""

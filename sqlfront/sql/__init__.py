"""The text of statements: tokens, statements of ours, parse trees, names in a text."""

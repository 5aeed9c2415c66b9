"""The text of statements: the dialect, statements of ours, trees, names in a text."""
